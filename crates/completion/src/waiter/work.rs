//! Deferred work in a channel's waits.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

use super::super::backlog::Backlog;
use super::super::earliest::Observation;
use super::super::gap::{Source, WaitPlan};
use super::super::learning::Flight;
use super::super::work::{DeferError, Deferred, WorkCounters};
use super::{InFlight, Queues, SlowPath, Waiter};
use meantime_hw::Clock;

/// After this many I/Os without work the time of I/O is not taken any more.
const IDLE_IOS: u32 = 64;

/// A piece of at most this is run when nothing is known of the gap, in ns: no device we know of
/// completes an I/O sooner.
const SMALL_NS: u64 = 1_000;

/// With more requests than this under way one is always about to end.
const MANY: usize = 64;

/// How long a channel that is dropped works, in ns.
const FINISH_NS: u64 = 1_000_000_000;

impl Waiter {
    /// Whether there is deferred work, or just was, or requests under way were timed for it.
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        self.slow_path.has(SlowPath::WORK)
    }

    /// Takes `work` over at `now_ns`.
    ///
    /// # Errors
    /// The work, if there is too much.
    #[inline(never)]
    pub fn defer(&mut self, work: Box<dyn Deferred>, now_ns: u64) -> Result<(), DeferError> {
        self.work.backlog.push(work, now_ns)?;
        self.begin_work();
        Ok(())
    }

    /// From now on I/O is timed, and waits take the slow path.
    fn begin_work(&mut self) {
        self.work.begin();
        self.takes_times = true;
        self.slow_path.set(SlowPath::WORK, true);
    }

    /// An I/O that was timed has ended, or a wait is over. If there was no work for long, all is as
    /// it was before.
    pub(super) fn after_work<Q: Queues>(&mut self, queues: &Q) {
        self.takes_times &= self.work.goes_on();
        if self.takes_times {
            return;
        }
        // The fast path does not look for times: no polled request may be left whose time is taken.
        let timed = |request: InFlight| request.policy.is_poll() && request.timed;
        if !queues.under_way().any(timed) {
            self.slow_path.set(SlowPath::WORK, false);
        }
    }

    /// How much deferred work there is.
    pub fn deferred(&self) -> usize {
        self.work.backlog.len()
    }

    /// What deferred work came to.
    pub fn work_counters(&self) -> WorkCounters {
        self.work.counters()
    }

    /// Wakes `waker` when work that was pending can go on.
    pub fn set_work_waker(&mut self, waker: Option<Waker>) {
        self.work.backlog.set_waker(waker);
    }

    /// Runs pieces, fitting or not, until `budget_ns` are used up or nothing can go on; how many.
    ///
    /// # Panics
    /// If a piece did.
    pub fn run_deferred(&mut self, budget_ns: u64, clock: &Clock) -> usize {
        self.work.run_for(budget_ns, clock)
    }

    /// Runs a piece that has waited too long, if there is one.
    pub fn run_overdue(&mut self, clock: &Clock) {
        self.work.run_overdue(clock.now_ns(), || clock.now_ns());
    }

    /// When the first work that can go on has waited too long, in ns.
    pub fn overdue_ns(&self) -> Option<u64> {
        self.work.backlog.latest_ns()
    }

    /// Runs what fits before `id`, or any request if that is `None`, may be complete. How many
    /// commands ended meanwhile.
    pub fn work_before<Q: Queues>(&mut self, queues: &mut Q, id: Option<Q::Id>) -> usize {
        if self.deferred() == 0 {
            return 0;
        }
        let ends_ns = self.earliest_end_ns(queues, id);
        self.work.work(&mut queues.queue(false), ends_ns)
    }

    /// How much time is left before a request may be complete, in ns; `None` if that is not known.
    pub fn gap_left_ns<Q: Queues>(&mut self, queues: &Q) -> Option<u64> {
        if queues.active() == 0 {
            return Some(u64::MAX);
        }
        self.begin_work();
        self.work.asked();
        Some(self.earliest_end_ns(queues, None)?.saturating_sub(queues.now_ns()))
    }

    /// When the request that is waited for may be complete, in ns: `id` if a caller has a ticket
    /// for it, else any. `None`: not known.
    pub(super) fn earliest_end_ns<Q: Queues>(&self, queues: &Q, id: Option<Q::Id>) -> Option<u64> {
        let end_ns = |request: InFlight| {
            let Flight { submitted_ns, class, .. } = request.flight;
            let earliest_ns = request.timed.then(|| self.learning.earliest_ns(class))??;
            Some(submitted_ns.saturating_add(earliest_ns))
        };
        let claimed = id.map(|id| queues.request(id)).filter(|request| !request.unclaimed);
        if let Some(request) = claimed {
            return end_ns(request);
        }
        if queues.active() > MANY {
            return Some(0);
        }
        queues
            .under_way()
            .try_fold(u64::MAX, |earliest_ns, request| Some(earliest_ns.min(end_ns(request)?)))
    }

    /// The channel ends: runs what can be run, and logs how much could not.
    pub fn finish_work(&mut self, clock: &Clock) {
        self.work.finish(clock);
    }
}

/// The work of a channel, and what it needs to know to do it in time.
#[derive(Default)]
pub(super) struct GapWork {
    pub(super) backlog: Backlog,
    /// Whether the caller has asked how much time is left, before this wait.
    asked: bool,
    /// I/Os that have ended since there was work last.
    idle: u32,
    /// When the queue was last looked at in vain before a piece after which a completion was found,
    /// in ns.
    vain_ns: Option<u64>,
}

impl GapWork {
    /// What was done.
    pub(super) fn counters(&self) -> WorkCounters {
        self.backlog.counters()
    }

    /// There is work.
    fn begin(&mut self) {
        self.idle = 0;
    }

    /// A caller that has work of its own asks how much time is left.
    pub(super) fn asked(&mut self) {
        self.asked = true;
    }

    /// Whether it matters to the coming wait how much time is left.
    pub(super) fn is_wanted(&mut self) -> bool {
        std::mem::take(&mut self.asked) || !self.backlog.is_empty()
    }

    /// An I/O has ended. False once there was no work for long.
    pub(super) fn goes_on(&mut self) -> bool {
        self.forget_look();
        self.idle = if self.backlog.is_empty() { self.idle.saturating_add(1) } else { 0 };
        self.idle < IDLE_IOS
    }

    /// Before `source` is waited for: runs what fits before `ends_ns`, the time at which it may be
    /// complete, and what has waited too long, a piece at a time. How many commands ended
    /// meanwhile.
    ///
    /// If that time is not known, one small piece is run.
    #[inline(never)]
    pub(super) fn work(&mut self, source: &mut impl Source, ends_ns: Option<u64>) -> usize {
        if self.backlog.is_empty() {
            return 0;
        }
        let ended = source.reap();
        if ended > 0 {
            return ended;
        }
        let mut now_ns = source.now_ns();
        let mut small_ns = SMALL_NS;
        loop {
            let left_ns = ends_ns.map_or(small_ns, |ends_ns| ends_ns.saturating_sub(now_ns));
            let Some(pick) = self.backlog.pick(now_ns, left_ns) else { return 0 };
            let began_ns = now_ns;
            now_ns = self.backlog.run(pick, began_ns, || source.now_ns());
            small_ns = 0;
            let ended = source.reap();
            if ended > 0 {
                self.found_after(began_ns, now_ns);
                return ended;
            }
            // Work that never ends must not keep deadlines from being looked at.
            let ended = source.tick(now_ns);
            if ended > 0 {
                return ended;
            }
        }
    }

    /// A completion was found after a piece that ran from `began_ns` to `end_ns`, and not before
    /// it.
    fn found_after(&mut self, began_ns: u64, end_ns: u64) {
        self.backlog.note_late(end_ns.saturating_sub(began_ns));
        self.vain_ns = Some(began_ns);
    }

    /// Runs a piece that has waited too long, if there is one; from when to when.
    pub(super) fn run_overdue(
        &mut self,
        now_ns: u64,
        clock: impl FnOnce() -> u64,
    ) -> Option<(u64, u64)> {
        let pick = self.backlog.latest_ns().filter(|latest_ns| *latest_ns <= now_ns);
        let pick = pick.and_then(|_| self.backlog.pick(now_ns, 0))?;
        Some((now_ns, self.backlog.run(pick, now_ns, clock)))
    }

    /// See [`Waiter::run_deferred`](super::Waiter::run_deferred).
    pub(super) fn run_for(&mut self, budget_ns: u64, clock: &Clock) -> usize {
        let pieces = self.backlog.run_for(budget_ns, || clock.now_ns());
        if let Some(panic) = self.backlog.take_panic() {
            resume_unwind(panic);
        }
        pieces
    }

    /// See [`Waiter::finish_work`](super::Waiter::finish_work).
    pub(super) fn finish(&mut self, clock: &Clock) {
        self.backlog.run_for(FINISH_NS, || clock.now_ns());
        let left = self.backlog.len();
        if left > 0 {
            tracing::error!(
                left,
                "the channel ended before all deferred work was done: the rest is dropped"
            );
        }
        let backlog = std::mem::take(&mut self.backlog);
        if catch_unwind(AssertUnwindSafe(|| drop(backlog))).is_err() {
            tracing::error!("deferred work panicked when it was dropped");
        }
    }

    /// When an I/O that has just been found complete may have been so, if it was found just after a
    /// piece.
    pub(super) fn observation_after_piece(&self, flight: &Flight) -> Option<Observation> {
        self.vain_ns.map(|vain_ns| Observation::After(vain_ns.saturating_sub(flight.submitted_ns)))
    }

    /// What was found in a wait has been taken in.
    pub(super) fn forget_look(&mut self) {
        self.vain_ns = None;
    }
}

/// What is left to be slept when so much has passed with work.
pub(super) fn shortened(plan: WaitPlan, worked_ns: u64) -> WaitPlan {
    match plan {
        WaitPlan::Sleep(ns) => WaitPlan::Sleep(ns.saturating_sub(worked_ns)),
        // A plan counts from the submission as it is.
        other => other,
    }
}

/// A queue to wait on, with work that may become overdue meanwhile: each look at deadlines is one
/// at that as well.
pub(super) struct WithWork<'a, S> {
    source: &'a mut S,
    work: &'a mut GapWork,
    /// The piece that was run since the last look, from when to when.
    piece: Option<(u64, u64)>,
}

impl<'a, S: Source> WithWork<'a, S> {
    pub(super) fn new(source: &'a mut S, work: &'a mut GapWork) -> Self {
        Self { source, work, piece: None }
    }
}

impl<S: Source> Source for WithWork<'_, S> {
    #[inline]
    fn reap(&mut self) -> usize {
        let ended = self.source.reap();
        if let Some((began_ns, end_ns)) = self.piece.take()
            && ended > 0
        {
            self.work.found_after(began_ns, end_ns);
        }
        ended
    }

    #[inline]
    fn has_completion(&self) -> bool {
        // The look after a piece is one that takes what it finds.
        self.piece.is_some() || self.source.has_completion()
    }

    fn tick(&mut self, now_ns: u64) -> usize {
        let ended = self.source.tick(now_ns);
        if ended == 0 {
            self.piece = self.work.run_overdue(now_ns, || self.source.now_ns());
        }
        ended
    }

    fn tick_interval_ns(&self) -> u64 {
        let interval_ns = self.source.tick_interval_ns();
        let Some(latest_ns) = self.work.backlog.latest_ns() else { return interval_ns };
        // Something, so that a wait that blocks does.
        interval_ns.min(latest_ns.saturating_sub(self.source.now_ns()).max(SMALL_NS))
    }

    fn begin_wait(&mut self, plan: &WaitPlan, spin_budget_ns: u64) {
        self.source.begin_wait(plan, spin_budget_ns);
    }

    fn now_ns(&self) -> u64 {
        self.source.now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.source.sleep_ns(duration_ns);
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        self.source.wait_interrupt(timeout_ns)
    }

    fn cpu_ns(&self) -> u64 {
        self.source.cpu_ns()
    }
}
