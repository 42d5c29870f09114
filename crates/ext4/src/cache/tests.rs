use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::task::Wake;

use proptest::prelude::*;

use super::*;
use meantime_testkit::rig::{Rig, ssd};

/// This time is longer than any test. A thread that sleeps this long was not woken.
const LONG_NS: u64 = 3_600_000_000_000;

fn cache(bytes: usize) -> PageCache {
    PageCache::new(Rig::new(ssd("null")).device.heap(), bytes).unwrap()
}

fn page(cache: &PageCache, fill: u8) -> DmaBuf {
    let mut pages = Vec::new();
    assert_eq!(cache.take_pages(1, &mut pages), 1);
    let mut page = pages.pop().unwrap();
    page.fill(fill);
    page
}

fn claim(cache: &PageCache, file: u64, index: u64) -> FillDuty {
    match cache.claim(file, index) {
        Claiming::Claimed(duty) => duty,
        other => panic!("{other:?}"),
    }
}

fn fill(cache: &PageCache, file: u64, index: u64, value: u8) -> Hit {
    let duty = claim(cache, file, index);
    cache.publish(duty, page(cache, value)).unwrap()
}

fn value(cache: &PageCache, file: u64, index: u64) -> Option<u8> {
    let mut to = [0; PAGE_BYTES];
    let hit = matches!(cache.read(file, index, 0, &mut to), LookUp::Hit(_));
    assert!(!hit || to.iter().all(|byte| *byte == to[0]), "the page is torn");
    hit.then_some(to[0])
}

#[test]
fn what_is_published_is_found() {
    let cache = cache(1 << 20);
    assert_eq!(cache.look_up(1, 2), LookUp::Absent);
    let ours = claim(&cache, 1, 2);
    assert!(matches!(cache.look_up(1, 2), LookUp::Filling(_)));
    assert!(matches!(cache.claim(1, 2), Claiming::Filling(_)), "one claimant");
    let hit = cache.publish(ours, page(&cache, 7)).unwrap();
    assert_eq!(cache.look_up(1, 2), LookUp::Hit(hit));
    assert!(matches!(cache.claim(1, 2), Claiming::Hit(there) if there == hit));
    assert_eq!(
        (value(&cache, 1, 2), value(&cache, 2, 2), value(&cache, 1, 3)),
        (Some(7), None, None)
    );
    let mut part = [0; 100];
    assert!(cache.copy(hit, 3996, &mut part) && part == [7; 100]);
    assert!(std::mem::size_of::<FillDuty>() <= 32);
}

#[test]
fn what_is_abandoned_can_be_claimed_again() {
    let cache = cache(1 << 20);
    let ours = claim(&cache, 1, 0);
    let LookUp::Filling(filling) = cache.look_up(1, 0) else { panic!() };
    cache.abandon(ours);
    assert!(cache.wait(filling, LONG_NS), "nothing to wait for");
    fill(&cache, 1, 0, 3);
    assert_eq!(value(&cache, 1, 0), Some(3));
}

#[test]
fn a_run_is_claimed_up_to_what_is_there() {
    let cache = cache(1 << 20);
    fill(&cache, 5, 13, 1);
    let mut duties = Vec::new();
    assert_eq!(cache.claim_run(5, 8, 64, &mut duties), 5);
    assert_eq!(cache.claim_run(5, 8, 64, &mut duties), 0);
    assert_eq!(cache.claim_run(5, u64::MAX, 64, &mut duties), 1, "no index beyond the last");
    duties.into_iter().for_each(|duty| cache.abandon(duty));
    assert_eq!(cache.look_up(5, 8), LookUp::Absent);
}

#[test]
fn what_is_invalidated_is_gone_and_what_is_being_read_stays_out() {
    let cache = cache(1 << 20);
    let hit = fill(&cache, 1, 0, 1);
    fill(&cache, 1, 1, 2);
    fill(&cache, 2, 0, 3);
    let ours = claim(&cache, 1, 2);
    let LookUp::Filling(filling) = cache.look_up(1, 2) else { panic!() };
    cache.invalidate(1, 0..u64::MAX);
    assert!(!cache.copy(hit, 0, &mut [0; 8]));
    assert!(cache.wait(filling, LONG_NS));
    // Another reader reads it again; neither reader's data are taken for the other's.
    let theirs = claim(&cache, 1, 2);
    let back = cache.publish(ours, page(&cache, 8)).unwrap_err();
    assert!(back.iter().all(|byte| *byte == 8), "its own reader has them");
    cache.give_pages([back]);
    assert!(matches!(cache.look_up(1, 2), LookUp::Filling(_)));
    cache.publish(theirs, page(&cache, 9)).unwrap();
    let values: Vec<_> =
        [(1, 0), (1, 1), (1, 2), (2, 0)].map(|(file, index)| value(&cache, file, index)).into();
    assert_eq!(values, [None, None, Some(9), Some(3)]);
    let dropped = claim(&cache, 3, 0);
    cache.invalidate(3, 0..1);
    cache.abandon(dropped);
    assert_eq!(cache.counters().dropped, 1);
}

#[test]
fn a_full_cache_evicts_and_memory_stays_bounded() {
    let cache = cache(1 << 20);
    for index in 0..10_000 {
        let hit = fill(&cache, 1, index, index as u8);
        if index < 100 {
            (0..3).for_each(|_| cache.visit(hit));
        }
    }
    let counters = cache.counters();
    assert_eq!((counters.capacity_pages, counters.pages), (256, 256));
    assert_eq!(counters.evicted as usize, 10_000 - 256 + counters.free_pages);
    assert_eq!(value(&cache, 1, 9_999), Some(15));
    let there = (0..100).filter(|index| value(&cache, 1, *index).is_some()).count();
    assert!(there > 90, "{there} of 100 pages in use have survived a scan");
    assert_eq!(cache.heap.allocated_bytes(), 1 << 20);
}

#[test]
fn maintenance_keeps_pages_free() {
    let cache = cache(1 << 20);
    (0..256).for_each(|index| _ = fill(&cache, 1, index, 1));
    assert_eq!(cache.maintain(0, 64), 0);
    assert_eq!(cache.maintain(64, 16), 16);
    assert_eq!(cache.maintain(64, 64), 48);
    assert_eq!((cache.maintain(64, 64), cache.counters().free_pages), (0, 64));
}

#[test]
fn pages_that_are_all_in_use_are_not_waited_for() {
    let cache = cache(1 << 20);
    let mut pages = Vec::new();
    assert_eq!(cache.take_pages(1_000, &mut pages), 256);
    assert_eq!(cache.take_pages(1, &mut pages), 0);
    cache.give_pages(pages.drain(..100));
    pages.clear();
    cache.lose_pages(156);
    assert_eq!(cache.take_pages(1_000, &mut pages), 256, "made anew");
    let mut duties = Vec::new();
    let slots = cache.table.slots() as usize;
    assert_eq!(cache.claim_run(1, 0, slots + 10, &mut duties), slots);
    assert!(matches!(cache.claim(2, 0), Claiming::Full));
    duties.into_iter().for_each(|duty| cache.abandon(duty));
}

#[test]
fn another_heaps_page_is_refused() {
    let (ours, theirs) = (cache(1 << 20), cache(1 << 20));
    let claimed = claim(&ours, 1, 0);
    assert!(ours.publish(claimed, page(&theirs, 1)).is_err());
    fill(&ours, 1, 0, 2);
    assert_eq!(value(&ours, 1, 0), Some(2));
}

#[derive(Default)]
struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn tasks_are_woken_once_each() {
    let cache = cache(1 << 20);
    let ours = claim(&cache, 1, 0);
    let LookUp::Filling(filling) = cache.look_up(1, 0) else { panic!() };
    let counts: [Arc<Counting>; 2] = Default::default();
    let wakers = counts.clone().map(Waker::from);
    assert!(
        wakers.iter().all(|waker| cache.register(filling, waker) && cache.register(filling, waker))
    );
    cache.publish(ours, page(&cache, 1)).unwrap();
    assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [1, 1]);
    assert!(!cache.register(filling, &wakers[0]), "it is there");
}

#[test]
fn a_wait_ends_in_time_though_the_reader_does_not() {
    let cache = cache(1 << 20);
    let ours = claim(&cache, 1, 0);
    let LookUp::Filling(filling) = cache.look_up(1, 0) else { panic!() };
    assert!(!cache.wait(filling, 1_000));
    cache.abandon(ours);
}

#[test]
fn threads_that_wait_are_woken() {
    let cache = cache(1 << 20);
    for round in 0..200 {
        let ours = claim(&cache, 1, round);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let LookUp::Filling(filling) = cache.look_up(1, round) {
                        cache.wait(filling, LONG_NS);
                    }
                });
            }
            match round % 3 {
                0 => drop(cache.publish(ours, page(&cache, 1))),
                1 => cache.abandon(ours),
                _ => {
                    cache.invalidate(1, round..round + 1);
                    cache.abandon(ours);
                }
            }
        });
    }
}

/// Threads read, fill and invalidate in a much too small cache: every hit is the right page, and
/// whole.
#[test]
fn no_page_is_stale_or_torn() {
    let cache = cache(1 << 20);
    let over = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    let expected = |file: u64, index: u64| (file * 101 + index * 7) as u8;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3u64)
            .map(|reader| {
                let (cache, over, hits) = (&cache, &over, &hits);
                scope.spawn(move || {
                    let mut seed = reader;
                    while !over.load(Ordering::Relaxed) {
                        seed = seed.wrapping_add(1);
                        let key = table::hash(seed, reader);
                        let (file, index) = (key % 3, (key >> 8) % 300);
                        if let Some(value) = value(cache, file, index) {
                            assert_eq!(value, expected(file, index), "{file} {index}");
                            hits.fetch_add(1, Ordering::Relaxed);
                        } else if let Claiming::Claimed(duty) = cache.claim(file, index) {
                            let mut pages = Vec::new();
                            cache.take_pages(1, &mut pages);
                            match pages.pop() {
                                Some(mut page) => {
                                    page.fill(expected(file, index));
                                    if let Err(page) = cache.publish(duty, page) {
                                        cache.give_pages([page]);
                                    }
                                }
                                None => cache.abandon(duty),
                            }
                        }
                    }
                })
            })
            .collect();
        // On a busy machine the readers may be scheduled late: continue until they have worked, or
        // have ended by a panic.
        let at_work = || {
            hits.load(Ordering::Relaxed) > 1000
                || readers.iter().any(std::thread::ScopedJoinHandle::is_finished)
        };
        for round in (0u64..).take_while(|round| *round < 500 || !at_work()) {
            cache.invalidate(round % 3, round % 300..round % 300 + 3);
            cache.maintain(16, 8);
            std::thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let counters = cache.counters();
    cache.invalidate(0, 0..300);
    cache.invalidate(1, 0..u64::MAX);
    cache.invalidate(2, 0..300);
    assert_eq!((cache.counters().free_pages, counters.pages), (256, 256), "no page is lost");
    assert_eq!(lock(&cache.slots).len(), cache.table.slots() as usize, "nor a slot");
}

/// A model of the cache: every page is as last published, or absent.
#[derive(Debug, Clone)]
enum Step {
    Fill(u64, u64, u8),
    FillDuty(u64, u64),
    End(usize, bool),
    Invalidate(u64, u64, u64),
    Maintain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (file, index) = (0..3u64, 0..20u64);
    prop_oneof![
        4 => (file.clone(), index.clone(), any::<u8>()).prop_map(|(file, index, value)| Step::Fill(file, index, value)),
        2 => (file.clone(), index.clone()).prop_map(|(file, index)| Step::FillDuty(file, index)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(which, well)| Step::End(which, well)),
        1 => (file, index, 0..8u64).prop_map(|(file, first, count)| Step::Invalidate(file, first, first + count)),
        1 => (0..300usize).prop_map(Step::Maintain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn agrees_with_a_model(steps in prop::collection::vec(step(), 1..200)) {
        let cache = cache(1 << 20);
        let mut there: HashMap<(u64, u64), u8> = HashMap::new();
        let mut under_way: Vec<(u64, u64, bool, FillDuty)> = Vec::new();
        let mut next = 0u8;
        for step in steps {
            match step {
                Step::Fill(file, index, fill) => match cache.claim(file, index) {
                    Claiming::Claimed(duty) => {
                        let page = page(&cache, fill);
                        prop_assert!(cache.publish(duty, page).is_ok());
                        there.insert((file, index), fill);
                    }
                    Claiming::Hit(_) => prop_assert!(there.contains_key(&(file, index))),
                    Claiming::Filling(_) => {
                        prop_assert!(under_way.iter().any(|(f, i, wanted, _)| (*f, *i, *wanted) == (file, index, true)));
                    }
                    Claiming::Full => prop_assert!(false, "there are slots"),
                },
                Step::FillDuty(file, index) => {
                    if let Claiming::Claimed(duty) = cache.claim(file, index) {
                        there.remove(&(file, index));
                        under_way.push((file, index, true, duty));
                    }
                }
                Step::End(which, well) if !under_way.is_empty() => {
                    let (file, index, wanted, duty) = under_way.swap_remove(which % under_way.len());
                    next = next.wrapping_add(1);
                    if !well {
                        cache.abandon(duty);
                    } else {
                        let published = cache.publish(duty, page(&cache, next));
                        prop_assert_eq!(published.is_ok(), wanted);
                        if let Err(page) = published {
                            cache.give_pages([page]);
                        } else {
                            there.insert((file, index), next);
                        }
                    }
                }
                Step::End(..) => {}
                Step::Invalidate(file, first, end) => {
                    cache.invalidate(file, first..end);
                    there.retain(|(f, i), _| *f != file || !(first..end).contains(i));
                    for (f, i, wanted, _) in &mut under_way {
                        *wanted &= *f != file || !(first..end).contains(i);
                    }
                }
                Step::Maintain(spare) => {
                    cache.maintain(spare, 20);
                }
            }
            for file in 0..3 {
                for index in 0..28 {
                    let found = value(&cache, file, index);
                    // The page may have been evicted, and stays absent then.
                    if found.is_none() {
                        there.remove(&(file, index));
                    }
                    prop_assert_eq!(found, there.get(&(file, index)).copied());
                }
            }
        }
        under_way.into_iter().for_each(|(_, _, _, duty)| cache.abandon(duty));
        (0..3).for_each(|file| cache.invalidate(file, 0..u64::MAX));
        prop_assert_eq!(lock(&cache.slots).len(), cache.table.slots() as usize);
        prop_assert_eq!(cache.counters().free_pages, cache.counters().pages);
    }
}

#[test]
fn what_is_written_stays_until_it_is_written_back() {
    let cache = cache(1 << 20);
    assert_eq!(cache.write(1, 0, 0, &[1]), Written::Absent);
    let ours = claim(&cache, 1, 0);
    assert!(matches!(cache.write(1, 0, 0, &[1]), Written::Filling(_)));
    cache.publish(ours, page(&cache, 3)).unwrap();
    assert_eq!(cache.write(1, 0, 0, &[4; PAGE_BYTES]), Written::Done);
    let made = claim(&cache, 1, 1);
    cache.publish_dirty(made, page(&cache, 5)).unwrap();
    let stays = |cache: &PageCache| {
        cache.invalidate(1, 0..2);
        while cache.evict(1) > 0 {}
        (value(cache, 1, 0), value(cache, 1, 1))
    };
    assert_eq!(stays(&cache), (Some(4), Some(5)));
    let hit = cache.begin_page_writeback(1, 0, false).unwrap();
    assert_eq!(cache.begin_page_writeback(1, 0, false), None, "one at a time");
    assert_eq!(cache.writing_state(1, 0), (false, true));
    assert!(!cache.discard(1, 0) && cache.discard(1, 1));
    assert_eq!(stays(&cache), (Some(4), None));
    // A page that is written to during its writeback becomes dirty again.
    assert_eq!(cache.zero(1, 0, 0, PAGE_BYTES), Written::Done);
    cache.end_page_writeback(hit, false);
    assert_eq!((cache.writing_state(1, 0), stays(&cache)), ((true, false), (Some(0), None)));
    let hit = cache.begin_page_writeback(1, 0, false).unwrap();
    // The writeback failed.
    cache.end_page_writeback(hit, true);
    assert_eq!(stays(&cache), (Some(0), None));
    let hit = cache.begin_page_writeback(1, 0, false).unwrap();
    cache.end_page_writeback(hit, false);
    assert_eq!(stays(&cache), (None, None));
}
