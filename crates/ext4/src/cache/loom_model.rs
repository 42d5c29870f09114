//! Loom models of the page cache: no stale page, one reader of a missing page, no lost wake-up.
//! Pages are numbers in loom's atomics.
//!
//! Run by `make loom`.

use std::process::Command;
use std::task::{Wake, Waker};

use super::table::{At, PageSlot, Published, Table};
use super::{Filling, Hit, LookUp};
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};

/// A page of two words, which are equal unless it is torn. Only its owner writes it, and any thread
/// reads it.
type Page = Arc<[AtomicU64; 2]>;

/// A slot's cell. As in the library, readers may access its memory after the page was taken.
struct Cell {
    page: Mutex<Option<Page>>,
    /// The page that readers access: its number, from 1.
    shown: AtomicUsize,
    all: [Page; 2],
}

impl PageSlot for Cell {
    type Page = Page;

    fn put(&self, page: Page) -> Result<(), Page> {
        let at = self.all.iter().position(|known| Arc::ptr_eq(known, &page)).expect("one of ours");
        *self.page.lock().unwrap() = Some(page);
        self.shown.store(at + 1, Ordering::Release);
        Ok(())
    }

    fn take(&self) -> Option<Page> {
        self.shown.store(0, Ordering::Relaxed);
        self.page.lock().unwrap().take()
    }
}

fn page() -> Page {
    Arc::new([AtomicU64::new(0), AtomicU64::new(0)])
}

fn write(page: &Page, value: u64) {
    // A device or a filling thread writes in this way: after the claim's fence, in no order.
    page[0].store(value, Ordering::Relaxed);
    page[1].store(value, Ordering::Relaxed);
}

struct Rig {
    table: Table<Cell>,
    pages: [Page; 2],
}

fn rig(slots: usize) -> Arc<Rig> {
    let pages = [page(), page()];
    let places: Vec<Cell> = (0..slots)
        .map(|_| Cell { page: Mutex::new(None), shown: AtomicUsize::new(0), all: pages.clone() })
        .collect();
    Arc::new(Rig { table: Table::new(places.into_iter()), pages })
}

impl Rig {
    fn claim(&self, slot: u32, index: u64) -> Option<At> {
        self.table.claim(slot, 1, index).ok()
    }

    /// A complete miss: page `index` holds `index + 10`.
    fn fill(&self, slot: u32, index: u64, page: &Page) -> Option<At> {
        let at = self.claim(slot, index)?;
        write(page, index + 10);
        matches!(self.table.publish(at, Arc::clone(page)), Published::Ready).then_some(at)
    }

    /// A read: a hit must be the right page, and whole.
    fn read(&self, index: u64) -> Option<u64> {
        let LookUp::Hit(Hit(at)) = self.table.look_up(1, index) else { return None };
        let cell = self.table.place(at);
        let shown = cell.shown.load(Ordering::Acquire).checked_sub(1)?;
        let words = [0, 1].map(|word| cell.all[shown][word].load(Ordering::Relaxed));
        if !self.table.still(at) {
            return None;
        }
        assert_eq!(words, [index + 10; 2], "stale or torn");
        Some(words[0])
    }
}

/// A page is evicted, and its memory and slot are reused for another one, during a read.
fn replaced() {
    loom::model(|| {
        let rig = rig(1);
        let first = rig.fill(0, 0, &rig.pages[0]).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let writer = loom::thread::spawn(move || {
            let page = theirs.table.evict(first).expect("clean").expect("its page");
            theirs.fill(0, 1, &page).expect("nobody else");
        });
        rig.read(0);
        rig.read(1);
        writer.join().unwrap();
        assert_eq!((rig.read(0), rig.read(1)), (None, Some(11)));
    });
}

#[test]
fn no_page_is_stale() {
    replaced();
}

/// A reader that finds a published page sees all of it.
fn published() {
    loom::model(|| {
        let rig = rig(1);
        let theirs = Arc::clone(&rig);
        let reader = loom::thread::spawn(move || theirs.fill(0, 0, &theirs.pages[0]).is_some());
        rig.read(0);
        assert!(reader.join().unwrap());
        assert_eq!(rig.read(0), Some(10));
    });
}

#[test]
fn what_is_found_is_there() {
    published();
}

#[test]
fn a_page_has_one_claimant() {
    loom::model(|| {
        let rig = rig(2);
        let theirs = Arc::clone(&rig);
        let other = loom::thread::spawn(move || theirs.claim(1, 0));
        let ours = rig.claim(0, 0);
        let theirs = other.join().unwrap();
        assert!(ours.is_some() != theirs.is_some());
        assert!(matches!(rig.table.look_up(1, 0), LookUp::Filling(_)));
    });
}

/// A page that stays is found, even if the chain before it is changed.
#[test]
fn what_stays_is_found() {
    loom::model(|| {
        let rig = rig(2);
        rig.fill(0, 0, &rig.pages[0]).expect("nobody else");
        // This page precedes it in the only chain.
        let second = rig.fill(1, 1, &rig.pages[1]).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let writer = loom::thread::spawn(move || {
            theirs.table.evict(second).expect("clean");
        });
        assert_eq!(rig.read(0), Some(10));
        writer.join().unwrap();
    });
}

/// A waiter is woken, whether the page is published, abandoned or dropped.
fn waited(end: impl Fn(&Rig, At) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let rig = rig(1);
        let at = rig.claim(0, 0).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let filler = loom::thread::spawn(move || end(&theirs, at));
        if let LookUp::Filling(Filling(filling)) = rig.table.look_up(1, 0) {
            assert!(rig.table.wait(filling, u64::MAX));
        }
        rig.read(0);
        filler.join().unwrap();
    });
}

fn publish(rig: &Rig, at: At) {
    write(&rig.pages[0], 10);
    assert!(matches!(rig.table.publish(at, Arc::clone(&rig.pages[0])), Published::Ready));
}

#[test]
fn no_wake_up_is_lost() {
    waited(publish);
}

#[test]
fn no_wake_up_is_lost_when_a_page_is_abandoned() {
    waited(|rig, at| rig.table.abandon(at));
}

#[test]
fn no_wake_up_is_lost_when_a_page_is_dropped() {
    waited(|rig, at| {
        rig.table.forget(1, 0);
        rig.table.abandon(at);
    });
}

struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_is_woken_or_told() {
    loom::model(|| {
        let rig = rig(1);
        let at = rig.claim(0, 0).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let filler = loom::thread::spawn(move || publish(&theirs, at));
        let woken = std::sync::Arc::new(Woken(AtomicUsize::new(0)));
        let registered = rig.table.register(at, &Waker::from(std::sync::Arc::clone(&woken)));
        filler.join().unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed) == 1, registered);
    });
}

/// Two futures of one task wait for one page. The second registers when the page is ready; the
/// waker of the first stays.
#[test]
fn a_task_that_waits_twice_is_woken() {
    loom::model(|| {
        let rig = rig(1);
        let at = rig.claim(0, 0).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let woken = std::sync::Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let first = rig.table.register(at, &waker);
        let filler = loom::thread::spawn(move || publish(&theirs, at));
        rig.table.register(at, &waker);
        filler.join().unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed) == 1, first);
    });
}

/// A page that is invalidated while it is being read does not enter the cache, and is not mistaken
/// for a second reader's page.
#[test]
fn what_is_invalidated_stays_out() {
    loom::model(|| {
        let rig = rig(2);
        let at = rig.claim(0, 0).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let filler = loom::thread::spawn(move || {
            write(&theirs.pages[0], 10);
            matches!(theirs.table.publish(at, Arc::clone(&theirs.pages[0])), Published::Ready)
        });
        let was_there = rig.table.forget(1, 0).is_some();
        assert_eq!(rig.table.look_up(1, 0), LookUp::Absent);
        assert_eq!(filler.join().unwrap(), was_there);
        assert_eq!(rig.table.look_up(1, 0), LookUp::Absent);
        // Both slots are free.
        assert!(rig.claim(0, 0).is_some() && rig.claim(1, 1).is_some());
    });
}

#[test]
fn a_page_is_taken_out_once() {
    loom::model(|| {
        let rig = rig(1);
        let at = rig.fill(0, 0, &rig.pages[0]).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let other = loom::thread::spawn(move || theirs.table.evict(at).is_some());
        let ours = rig.table.forget(1, 0).is_some();
        assert!(ours != other.join().unwrap());
    });
}

/// A page is written to during an eviction: it is gone before the first byte, or stays.
fn written() {
    loom::model(|| {
        let rig = rig(1);
        let at = rig.fill(0, 0, &rig.pages[0]).expect("nobody else");
        let theirs = Arc::clone(&rig);
        let evictor = loom::thread::spawn(move || theirs.table.evict(at).is_some());
        let dirty = rig.table.make_dirty(at);
        assert!(dirty != evictor.join().unwrap());
        if dirty {
            assert!(rig.table.evict(at).is_none());
            assert!(rig.table.begin_writeback(at, false) && rig.table.evict(at).is_none());
            rig.table.end_writeback(at, false);
            assert!(rig.table.evict(at).is_some());
        }
    });
}

#[test]
fn what_is_written_stays() {
    written();
}

/// A page that is written to when its writeback ends is dirty, and stays in the cache.
#[test]
fn what_is_written_during_writeback_is_dirty() {
    loom::model(|| {
        let rig = rig(1);
        let at = rig.fill(0, 0, &rig.pages[0]).expect("nobody else");
        assert!(rig.table.make_dirty(at) && rig.table.begin_writeback(at, false));
        let theirs = Arc::clone(&rig);
        let writer = loom::thread::spawn(move || theirs.table.make_dirty(at));
        rig.table.end_writeback(at, false);
        let evicted = rig.table.evict(at).is_some();
        assert!(writer.join().unwrap() != evicted);
        assert!(evicted || rig.table.writing_state(at) == Some((true, false)));
    });
}

/// The models can fail: with `what` weakened, `model` does. In a separate process, because loom
/// aborts on a deadlock.
fn is_caught(model: &str, what: &str) {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("cache::loom_model::{model}")])
        .env("LOOM_WEAK", what)
        .output()
        .unwrap();
    assert!(!run.status.success(), "{model} does not notice a weak {what}");
}

#[test]
fn weak_orders_are_caught() {
    is_caught("no_page_is_stale", "still");
    is_caught("what_is_written_stays", "dirty");
    is_caught("no_wake_up_is_lost", "wait");
}
