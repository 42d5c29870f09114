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

/// Number of I/Os without work after which I/O is no longer timed.
const IDLE_IOS: u32 = 64;

/// Bound of the largest piece that runs when the gap is unknown, in ns: no known device completes
/// an I/O sooner.
const SMALL_NS: u64 = 1_000;

/// With more requests than this in flight, one is always about to end.
const MANY: usize = 64;

/// Working time of a channel that is dropped, in ns.
const FINISH_NS: u64 = 1_000_000_000;

impl Waiter {
    /// Whether there is deferred work, or was recently, or requests in flight were timed for it.
    #[inline(always)]
    pub fn has_work(&self) -> bool {
        self.slow_path.has(SlowPath::WORK)
    }

    /// Accepts `work` at `now_ns`.
    ///
    /// # Errors
    /// Returns the work, if there is too much.
    #[inline(never)]
    pub fn defer(&mut self, work: Box<dyn Deferred>, now_ns: u64) -> Result<(), DeferError> {
        self.work.backlog.push(work, now_ns)?;
        self.begin_work();
        Ok(())
    }

    /// Turns on timing of I/O and the slow path of waits.
    fn begin_work(&mut self) {
        self.work.begin();
        self.takes_times = true;
        self.slow_path.set(SlowPath::WORK, true);
    }

    /// Called when a timed I/O or a wait has ended. Without work for long enough, restores the
    /// normal state.
    pub(super) fn after_work<Q: Queues>(&mut self, queues: &Q) {
        self.takes_times &= self.work.goes_on();
        if self.takes_times {
            return;
        }
        // The fast path does not record times: no timed polled request may be left.
        let timed = |request: InFlight| request.policy.is_poll() && request.timed;
        if !queues.under_way().any(timed) {
            self.slow_path.set(SlowPath::WORK, false);
        }
    }

    /// The amount of deferred work.
    pub fn deferred(&self) -> usize {
        self.work.backlog.len()
    }

    /// The counters of deferred work.
    pub fn work_counters(&self) -> WorkCounters {
        self.work.counters()
    }

    /// Sets the waker that is called when pending work can continue.
    pub fn set_work_waker(&mut self, waker: Option<Waker>) {
        self.work.backlog.set_waker(waker);
    }

    /// Runs pieces, fitting or not, until `budget_ns` are used up or no work is runnable. Returns
    /// their number.
    ///
    /// # Panics
    /// If a piece panicked.
    pub fn run_deferred(&mut self, budget_ns: u64, clock: &Clock) -> usize {
        self.work.run_for(budget_ns, clock)
    }

    /// Runs an overdue piece, if there is one.
    pub fn run_overdue(&mut self, clock: &Clock) {
        self.work.run_overdue(clock.now_ns(), || clock.now_ns());
    }

    /// Runs a piece that takes at most `left_ns`, or one that is overdue. False if there is none.
    pub fn run_piece(&mut self, left_ns: u64, clock: &Clock) -> bool {
        let now_ns = clock.now_ns();
        let Some(pick) = self.work.backlog.pick(now_ns, left_ns) else { return false };
        let end_ns = self.work.backlog.run(pick, now_ns, || clock.now_ns());
        self.work.piece = Some((now_ns, end_ns));
        true
    }

    /// When the first runnable work becomes overdue, in ns.
    pub fn overdue_ns(&self) -> Option<u64> {
        self.work.backlog.latest_ns()
    }

    /// Runs the pieces that fit before `id`, or any request if that is `None`, may be complete.
    /// Returns the number of commands that ended meanwhile.
    pub fn work_before<Q: Queues>(&mut self, queues: &mut Q, id: Option<Q::Id>) -> usize {
        if self.deferred() == 0 {
            return 0;
        }
        let ends_ns = self.earliest_end_ns(queues, id);
        self.work.work(&mut queues.queue(false), ends_ns)
    }

    /// The time left before a request may be complete, in ns; `None` if unknown.
    pub fn gap_left_ns<Q: Queues>(&mut self, queues: &Q) -> Option<u64> {
        if queues.active() == 0 {
            return Some(u64::MAX);
        }
        self.begin_work();
        self.work.asked();
        Some(self.earliest_end_ns(queues, None)?.saturating_sub(queues.now_ns()))
    }

    /// When the request waited for may be complete, in ns: `id` if a caller has a ticket for it,
    /// else any request. `None`: unknown.
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

    /// Called when the channel is dropped: runs the remaining work, and logs how much is left.
    pub fn finish_work(&mut self, clock: &Clock) {
        self.work.finish(clock);
    }
}

/// The work of a channel, and the state needed to run it in time.
#[derive(Default)]
pub(super) struct GapWork {
    pub(super) backlog: Backlog,
    /// Whether the caller asked for the time left before this wait.
    asked: bool,
    /// I/Os that have ended since there was last work.
    idle: u32,
    /// Time of the last look in vain before a piece after which a completion was found, in ns.
    vain_ns: Option<u64>,
    /// Start and end of a piece that ran since the last look from outside.
    piece: Option<(u64, u64)>,
}

impl GapWork {
    /// The counters.
    pub(super) fn counters(&self) -> WorkCounters {
        self.backlog.counters()
    }

    /// Notes that there is work.
    fn begin(&mut self) {
        self.idle = 0;
    }

    /// Notes that a caller with its own work asked for the time left.
    pub(super) fn asked(&mut self) {
        self.asked = true;
    }

    /// Whether the coming wait needs the time left.
    pub(super) fn is_wanted(&mut self) -> bool {
        std::mem::take(&mut self.asked) || !self.backlog.is_empty()
    }

    /// Notes that an I/O has ended. False after enough I/Os without work.
    pub(super) fn goes_on(&mut self) -> bool {
        self.forget_look();
        self.idle = if self.backlog.is_empty() { self.idle.saturating_add(1) } else { 0 };
        self.idle < IDLE_IOS
    }

    /// Before a wait on `source`: runs the pieces that fit before `ends_ns`, the time at which it
    /// may be complete, and overdue work, a piece at a time. Returns the number of commands that
    /// ended meanwhile.
    ///
    /// If that time is unknown, runs one small piece.
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
            // Endless work must not prevent deadline checks.
            let ended = source.tick(now_ns);
            if ended > 0 {
                return ended;
            }
        }
    }

    /// Records that a completion was found after a piece that ran from `began_ns` to `end_ns`, and
    /// not before it.
    fn found_after(&mut self, began_ns: u64, end_ns: u64) {
        self.backlog.note_late(end_ns.saturating_sub(began_ns));
        self.vain_ns = Some(began_ns);
    }

    /// Records that a look from outside found a completion, perhaps after a piece.
    #[inline(always)]
    pub(super) fn found_after_piece(&mut self) {
        if let Some((began_ns, end_ns)) = self.piece.take() {
            self.found_after(began_ns, end_ns);
        }
    }

    /// A look from outside was in vain.
    pub(super) fn forget_piece(&mut self) {
        self.piece = None;
    }

    /// Runs an overdue piece, if there is one. Returns its start and end.
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

    /// The observation for an I/O that was found complete just after a piece.
    pub(super) fn observation_after_piece(&self, flight: &Flight) -> Option<Observation> {
        self.vain_ns.map(|vain_ns| Observation::After(vain_ns.saturating_sub(flight.submitted_ns)))
    }

    /// Called when the completions found in a wait have been recorded.
    pub(super) fn forget_look(&mut self) {
        self.vain_ns = None;
    }
}

/// The plan with its sleep shortened by the time already spent on work.
pub(super) fn shortened(plan: WaitPlan, worked_ns: u64) -> WaitPlan {
    match plan {
        WaitPlan::Sleep(ns) => WaitPlan::Sleep(ns.saturating_sub(worked_ns)),
        // A plan counts from the submission already.
        other => other,
    }
}

/// A queue to wait on, with work that may become overdue meanwhile: each deadline check also checks
/// for that.
pub(super) struct WithWork<'a, S> {
    source: &'a mut S,
    work: &'a mut GapWork,
    /// Start and end of the piece that ran since the last look.
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
        // The look after a piece has to reap what it finds.
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
        // Never zero, so that a blocking wait blocks.
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

    fn heartbeat_here(&self) -> Option<u64> {
        self.source.heartbeat_here()
    }

    fn share_cpu(&self) {
        self.source.share_cpu();
    }
}
