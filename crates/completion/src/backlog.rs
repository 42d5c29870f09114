//! Deferred work that waits for a gap: bounded, and ordered by deadline.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::work::{DeferError, DeferRefusal, Deferred, Notifier, Progress, WorkCounters};

/// The most pieces of work.
pub const LIMIT: usize = 1_024;

/// Number of items searched for a piece that fits.
const LOOKAHEAD: usize = 8;

struct Item {
    work: Box<dyn Deferred>,
    /// Bound of the next piece, in ns.
    bound_ns: u64,
    /// The time at which its patience ends, in ns.
    latest_ns: u64,
}

/// The next piece to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    index: usize,
    /// Whether its patience has ended.
    overdue: bool,
    /// Whether it runs for that reason although it does not fit.
    forced: bool,
}

/// The deferred work of one thread's channel.
///
/// Work is ordered by the end of its patience, which is the order of arrival for equal patience. A
/// piece that does not fit is overtaken by smaller ones among the next few while it may still wait;
/// so of two with the same patience and bound the earlier one begins first. Overdue work takes
/// turns.
#[derive(Default)]
pub(crate) struct Backlog {
    /// Runnable work, by `latest_ns`.
    ready: VecDeque<Item>,
    /// Work that waits for the notifier.
    parked: Vec<Item>,
    notifier: Notifier,
    counters: WorkCounters,
    /// The payload of the first panic not yet reported.
    panic: Option<Box<dyn Any + Send>>,
}

impl Backlog {
    /// Accepts `work` at `now_ns`.
    ///
    /// # Errors
    /// Returns the work, if there is too much.
    pub(crate) fn push(
        &mut self,
        mut work: Box<dyn Deferred>,
        now_ns: u64,
    ) -> Result<(), DeferError> {
        let len = self.len();
        if len >= LIMIT {
            return Err(DeferError { why: DeferRefusal::Full { limit: LIMIT }, work });
        }
        // Reserves here, so that moving work between the two lists never allocates.
        self.ready.reserve(len + 1 - self.ready.len());
        self.parked.reserve(len + 1 - self.parked.len());
        work.attach(&self.notifier);
        let latest_ns = now_ns.saturating_add(work.patience_ns());
        let bound_ns = work.piece_bound_ns();
        self.insert(Item { work, bound_ns, latest_ns });
        Ok(())
    }

    fn insert(&mut self, item: Item) {
        // Usually it goes to the end.
        let last = self.ready.back().is_none_or(|last| last.latest_ns <= item.latest_ns);
        let place = match last {
            true => self.ready.len(),
            false => self.ready.partition_point(|other| other.latest_ns <= item.latest_ns),
        };
        self.ready.insert(place, item);
    }

    /// The amount of work.
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.parked.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters.
    pub(crate) fn counters(&self) -> WorkCounters {
        self.counters
    }

    /// When the patience of the first runnable work ends, in ns.
    pub(crate) fn latest_ns(&self) -> Option<u64> {
        self.ready.front().map(|item| item.latest_ns)
    }

    /// Sets the waker that is called when pending work can continue.
    pub(crate) fn set_waker(&mut self, waker: Option<Waker>) {
        self.notifier.set_waker(waker);
    }

    /// The piece to run at `now_ns`, if `left_ns` are left: overdue work, else the first that fits.
    pub(crate) fn pick(&mut self, now_ns: u64, left_ns: u64) -> Option<Pick> {
        self.unpark(now_ns);
        let first = self.ready.front()?;
        if first.latest_ns <= now_ns {
            return Some(Pick { index: 0, overdue: true, forced: first.bound_ns > left_ns });
        }
        let index = self.ready.iter().take(LOOKAHEAD).position(|item| item.bound_ns <= left_ns)?;
        Some(Pick { index, overdue: false, forced: false })
    }

    /// Runs the piece `pick`, picked just before, at `start_ns`. Returns the time after it.
    ///
    /// The thread that waits for I/O did not ask for this work, which must not cost it its request
    /// and buffer: a panic is caught, logged, counted and kept for [`Backlog::take_panic`].
    pub(crate) fn run(&mut self, pick: Pick, start_ns: u64, now_ns: impl FnOnce() -> u64) -> u64 {
        let Some(item) = self.ready.get_mut(pick.index) else { return start_ns };
        let bound_ns = item.bound_ns;
        // Unwind safe: panicked work is dropped without further access.
        let progress = catch_unwind(AssertUnwindSafe(|| {
            let progress = item.work.run();
            item.bound_ns = item.work.piece_bound_ns();
            progress
        }));
        let end_ns = now_ns();
        let took_ns = end_ns.saturating_sub(start_ns);
        self.counters.pieces += 1;
        self.counters.worked_ns += took_ns;
        self.counters.forced += u64::from(pick.forced);
        if took_ns > bound_ns {
            self.counters.overruns += 1;
            self.counters.overrun_ns += took_ns - bound_ns;
        }
        match progress {
            // There is progress. In time: its patience starts again. Overdue: it continues at the
            // next opportunity, behind all other overdue work, which endless work must not starve.
            Ok(Progress::More) => {
                if let Some(mut item) = self.ready.remove(pick.index) {
                    let patience_ns = if pick.overdue { 0 } else { item.work.patience_ns() };
                    item.latest_ns = end_ns.saturating_add(patience_ns);
                    self.insert(item);
                }
            }
            Ok(Progress::Pending) => {
                if let Some(item) = self.ready.remove(pick.index) {
                    self.parked.push(item);
                }
            }
            Ok(Progress::Done) => self.end(pick.index),
            Err(panic) => {
                self.panicked(panic);
                self.end(pick.index);
            }
        }
        end_ns
    }

    fn end(&mut self, index: usize) {
        self.counters.finished += 1;
        let item = self.ready.remove(index);
        // Its destructor may panic as well.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(item))) {
            self.panicked(panic);
        }
    }

    #[cold]
    fn panicked(&mut self, panic: Box<dyn Any + Send>) {
        tracing::error!("deferred work panicked, and was given up");
        self.counters.panics += 1;
        self.panic.get_or_insert(panic);
    }

    /// Records that a completion was found just after a piece of `piece_ns`.
    pub(crate) fn note_late(&mut self, piece_ns: u64) {
        self.counters.late += 1;
        self.counters.late_ns += piece_ns;
        self.counters.late_max_ns = self.counters.late_max_ns.max(piece_ns);
    }

    /// Takes the payload of the first panic.
    pub(crate) fn take_panic(&mut self) -> Option<Box<dyn Any + Send>> {
        self.panic.take()
    }

    /// Runs pieces, fitting or not, until `budget_ns` are used up or no work is runnable. Returns
    /// their number.
    pub(crate) fn run_for(&mut self, budget_ns: u64, mut now_ns: impl FnMut() -> u64) -> usize {
        let start_ns = now_ns();
        let (mut time_ns, mut pieces) = (start_ns, 0);
        while time_ns - start_ns < budget_ns
            && let Some(pick) = self.pick(time_ns, u64::MAX)
        {
            time_ns = self.run(pick, time_ns, &mut now_ns).max(start_ns);
            pieces += 1;
        }
        pieces
    }

    /// Moves notified work back to the runnable list.
    fn unpark(&mut self, now_ns: u64) {
        if self.parked.is_empty() || !self.notifier.take() {
            return;
        }
        let mut index = 0;
        while let Some(item) = self.parked.get(index) {
            if item.work.is_due() {
                let mut item = self.parked.swap_remove(index);
                // It could not continue before: its patience starts now.
                item.latest_ns = now_ns.saturating_add(item.work.patience_ns());
                self.insert(item);
            } else {
                index += 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::{Arc, Mutex};

    use super::super::work::{PATIENCE_NS, Pieces};
    use super::*;

    type Log = Arc<Mutex<Vec<u32>>>;

    fn work(log: &Log, name: u32, bound_ns: u64) -> Box<dyn Deferred> {
        let log = Arc::clone(log);
        Box::new(Pieces::once(bound_ns, move || log.lock().unwrap().push(name)))
    }

    /// Runs the piece picked at `now_ns`; false if there is none.
    fn step(backlog: &mut Backlog, now_ns: u64, left_ns: u64) -> bool {
        let Some(pick) = backlog.pick(now_ns, left_ns) else { return false };
        backlog.run(pick, now_ns, || now_ns + 1);
        true
    }

    #[test]
    fn first_come_first_served_but_for_what_fits() {
        let log = Log::default();
        let mut backlog = Backlog::default();
        for (name, bound_ns) in [(1, 100), (2, 5_000), (3, 100), (4, 5_000), (5, 200)] {
            backlog.push(work(&log, name, bound_ns), 0).unwrap();
        }
        // By hand: with 150 ns left the large ones and the last are skipped; then there is room for
        // all.
        while step(&mut backlog, 10, 150) {}
        assert_eq!(*log.lock().unwrap(), [1, 3]);
        while step(&mut backlog, 10, 5_000) {}
        assert_eq!(*log.lock().unwrap(), [1, 3, 2, 4, 5]);
        assert_eq!((backlog.len(), backlog.counters().forced), (0, 0));
    }

    #[test]
    fn what_has_waited_too_long_runs_although_it_does_not_fit() {
        let log = Log::default();
        let mut backlog = Backlog::default();
        backlog.push(work(&log, 1, 9_000), 7).unwrap();
        let soon = Pieces::once(9_000, {
            let log = Arc::clone(&log);
            move || log.lock().unwrap().push(2)
        });
        backlog.push(Box::new(soon.patience_ns(50)), 8).unwrap();
        assert!(!step(&mut backlog, 57, 8_999));
        assert_eq!(backlog.latest_ns(), Some(58));
        assert!(step(&mut backlog, 58, 8_999));
        assert!(!step(&mut backlog, 6 + PATIENCE_NS, 8_999));
        assert!(step(&mut backlog, 7 + PATIENCE_NS, 8_999));
        assert_eq!(*log.lock().unwrap(), [2, 1]);
        assert_eq!(backlog.counters().forced, 2);
    }

    #[test]
    fn what_has_waited_too_long_takes_turns() {
        let log = Log::default();
        let mut backlog = Backlog::default();
        for name in [1, 2] {
            let log = Arc::clone(&log);
            let endless = Pieces::new(9_000, move || {
                log.lock().unwrap().push(name);
                Progress::More
            });
            backlog.push(Box::new(endless), 0).unwrap();
        }
        backlog.push(work(&log, 3, 9_000), 0).unwrap();
        (0..6).for_each(|n| assert!(step(&mut backlog, PATIENCE_NS + n, 0)));
        assert_eq!(*log.lock().unwrap(), [1, 2, 3, 1, 2, 1]);
    }

    /// Work that takes longer than its patience but makes progress in time is never overdue.
    #[test]
    fn what_gets_on_is_patient() {
        let mut backlog = Backlog::default();
        backlog.push(Box::new(Pieces::new(1_000, || Progress::More)), 0).unwrap();
        for n in 1..100 {
            assert!(step(&mut backlog, n * PATIENCE_NS / 2, 1_000));
        }
        assert_eq!(backlog.counters().forced, 0);
    }

    /// Also for items beyond the lookahead.
    #[test]
    fn a_long_queue_is_served_from_its_head() {
        let log = Log::default();
        let mut backlog = Backlog::default();
        for name in 0..LIMIT as u32 {
            backlog
                .push(work(&log, name, if name < 20 { 1_000 } else { 10 }), u64::from(name))
                .unwrap();
        }
        let full = backlog.push(work(&log, 9_999, 1), 5_000).unwrap_err();
        assert_eq!(full.why, DeferRefusal::Full { limit: LIMIT });
        assert_eq!(full.work.piece_bound_ns(), 1);
        // The small ones are too far back.
        assert!(!step(&mut backlog, 5_000, 999));
        assert_eq!(backlog.run_for(u64::MAX, || 5_000), LIMIT);
        assert!(log.lock().unwrap().iter().copied().eq(0..LIMIT as u32));
    }

    /// By hand: pieces of 30, 50 and 20 ns with bounds of 40.
    #[test]
    fn what_takes_longer_than_its_bound_is_counted() {
        let clock = Cell::new(0);
        let mut backlog = Backlog::default();
        let mut pieces = 0;
        let work = Pieces::new(40, move || {
            pieces += 1;
            if pieces < 3 { Progress::More } else { Progress::Done }
        });
        backlog.push(Box::new(work), 0).unwrap();
        for took_ns in [30, 50, 20] {
            let start_ns = clock.get();
            let pick = backlog.pick(start_ns, 40).unwrap();
            clock.set(backlog.run(pick, start_ns, || start_ns + took_ns));
        }
        let counters = backlog.counters();
        assert_eq!((counters.pieces, counters.worked_ns, counters.finished), (3, 100, 1));
        assert_eq!((counters.overruns, counters.overrun_ns), (1, 10));
    }

    #[test]
    fn a_budget_is_exceeded_by_one_piece_at_most() {
        let mut backlog = Backlog::default();
        backlog.push(Box::new(Pieces::new(30, || Progress::More)), 0).unwrap();
        let clock = Cell::new(0);
        // Each reading is 30 ns after the one before: 0, 30, 60, 90, 120.
        let now_ns = || clock.replace(clock.get() + 30);
        assert_eq!(backlog.run_for(100, now_ns), 4);
        assert_eq!(backlog.run_for(0, now_ns), 0);
        assert_eq!(backlog.run_for(1, now_ns), 1);
    }

    #[test]
    fn a_panic_ends_the_work_and_nothing_else() {
        struct Grenade;
        impl Drop for Grenade {
            fn drop(&mut self) {
                panic!("in drop");
            }
        }
        let log = Log::default();
        let mut backlog = Backlog::default();
        backlog.push(Box::new(Pieces::once(1, || panic!("in a piece"))), 0).unwrap();
        let grenade = Grenade;
        let armed = Pieces::new(1, move || {
            let _held = &grenade;
            Progress::Done
        });
        backlog.push(Box::new(armed), 0).unwrap();
        backlog.push(work(&log, 3, 1), 0).unwrap();
        assert_eq!(backlog.run_for(u64::MAX, || 0), 3);
        assert_eq!(*log.lock().unwrap(), [3]);
        assert_eq!((backlog.counters().panics, backlog.counters().finished), (2, 3));
        let said = backlog.take_panic().unwrap();
        assert_eq!(said.downcast_ref(), Some(&"in a piece"));
        assert!(backlog.take_panic().is_none());
    }

    #[test]
    fn a_pending_future_takes_part_again_when_it_is_woken() {
        let kept = Arc::new(Mutex::new(None::<Waker>));
        let mut backlog = Backlog::default();
        for _ in 0..2 {
            let kept = Arc::clone(&kept);
            let mut polls = 0;
            let future = std::future::poll_fn(move |cx| {
                polls += 1;
                *kept.lock().unwrap() = Some(cx.waker().clone());
                if polls > 1 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            });
            backlog.push(Box::new(Pieces::future(10, future)), 0).unwrap();
        }
        assert_eq!(backlog.run_for(u64::MAX, || 0), 2);
        assert_eq!((backlog.len(), backlog.pick(2 * PATIENCE_NS, 10)), (2, None));
        let waker = kept.lock().unwrap().clone().unwrap();
        waker.wake();
        // Only that one, with new patience.
        assert!(backlog.pick(100, 10).is_some());
        assert_eq!(backlog.latest_ns(), Some(100 + PATIENCE_NS));
        assert_eq!(backlog.run_for(u64::MAX, || 200), 1);
        assert_eq!(backlog.len(), 1);
    }
}
