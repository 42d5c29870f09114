//! The gap: waiting for at least one completion, in the way that a policy has chosen.

use std::ops::Add;

use super::plan::Plan;
use super::watchdog::DeviceWatchdog;

/// Default of [`Gap::set_spin_budget_ns`].
const SPIN_BUDGET_NS: u64 = 1_000_000;

/// Looks at the queue between two readings of the clock: about 100 ns.
pub const SPINS_PER_CLOCK: u32 = if cfg!(loom) { 2 } else { 64 };

/// The longest nap, in ns.
pub(crate) const LONGEST_NAP_NS: u64 = 1_000_000;

/// A wait that neither spins (any more) nor blocks for an interrupt naps. A nap lasts the time
/// since the waiter's `since_ns` divided by this, but at least 1 µs and at most [`LONGEST_NAP_NS`].
pub(crate) const NAP_SHARE: u64 = 64;

/// A queue that can be waited on.
pub trait Source {
    /// Reaps completions. Returns the number of commands that ended.
    fn reap(&mut self) -> usize;
    /// Whether [`Source::reap`] would find a completion: one look, without side effects.
    fn has_completion(&self) -> bool;
    /// Checks deadlines and resets, off the fast path. Returns the number of commands that ended.
    fn tick(&mut self, now_ns: u64) -> usize;
    /// The longest time between two ticks, in ns.
    fn tick_interval_ns(&self) -> u64;
    /// The current time in ns.
    fn now_ns(&self) -> u64;
    /// Sleeps for `duration_ns`.
    fn sleep_ns(&self, duration_ns: u64);
    /// Blocks until the queue's interrupt, for at most `timeout_ns`. An earlier interrupt counts.
    /// Returns false at once if the queue has no interrupt.
    fn wait_interrupt(&self, timeout_ns: u64) -> bool;
    /// CPU time that this thread has used, in ns; 0 if unknown.
    fn cpu_ns(&self) -> u64 {
        0
    }
    /// If the device is a thread that last ran on this thread's CPU, returns a number that grows as
    /// long as that thread runs. Off the fast path.
    fn heartbeat_here(&self) -> Option<u64> {
        None
    }
    /// Asks the device's thread to yield its CPU when it has nothing to do, for a while.
    fn share_cpu(&self) {}
    /// Called when a wait by `plan` begins, which spins for at most `spin_budget_ns`. It is meant
    /// for sources that simulate time.
    #[inline(always)]
    fn begin_wait(&mut self, plan: &WaitPlan, spin_budget_ns: u64) {
        let _ = (plan, spin_budget_ns);
    }
}

impl<S: Source> Source for &mut S {
    fn reap(&mut self) -> usize {
        (**self).reap()
    }

    fn has_completion(&self) -> bool {
        (**self).has_completion()
    }

    fn tick(&mut self, now_ns: u64) -> usize {
        (**self).tick(now_ns)
    }

    fn tick_interval_ns(&self) -> u64 {
        (**self).tick_interval_ns()
    }

    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        (**self).sleep_ns(duration_ns);
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        (**self).wait_interrupt(timeout_ns)
    }

    fn cpu_ns(&self) -> u64 {
        (**self).cpu_ns()
    }

    fn heartbeat_here(&self) -> Option<u64> {
        (**self).heartbeat_here()
    }

    fn share_cpu(&self) {
        (**self).share_cpu();
    }

    fn begin_wait(&mut self, plan: &WaitPlan, spin_budget_ns: u64) {
        (**self).begin_wait(plan, spin_budget_ns);
    }
}

/// Counts of the waits on a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GapCounters {
    /// Waits. One that the caller's own looks have ended does not count.
    pub waits: u64,
    /// Sleeps before or between polling.
    pub sleeps: u64,
    /// Sleeps after which the completion was there already.
    pub oversleeps: u64,
    /// Waits in which the spin budget ran out.
    pub fallbacks: u64,
    /// Times that the waiter blocked for an interrupt, or napped where it cannot.
    pub blocks: u64,
}

impl Add for GapCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            waits: self.waits + other.waits,
            sleeps: self.sleeps + other.sleeps,
            oversleeps: self.oversleeps + other.oversleeps,
            fallbacks: self.fallbacks + other.fallbacks,
            blocks: self.blocks + other.blocks,
        }
    }
}

/// How one wait proceeds: the decision of a policy.
#[derive(Debug, Clone, Copy)]
pub enum WaitPlan {
    /// Block until the interrupt.
    Interrupt,
    /// Spin.
    Poll,
    /// Sleep for this many ns, then spin.
    Sleep(u64),
    /// Sleep as planned for an I/O submitted at `since_ns`, and spin between the sleeps. On a queue
    /// with an interrupt, the interrupt ends a sleep too.
    Planned {
        /// The sleeps.
        plan: Plan,
        /// Submission time of the I/O, in ns of the source's clock.
        since_ns: u64,
    },
}

/// A completed sleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wake {
    /// Its planned length, in ns.
    pub slept_ns: u64,
    /// How late the thread ran again, in ns.
    pub late_ns: u64,
    /// The CPU time charged for it, in ns; 0 if it was not measured, which takes a system call.
    pub cpu_ns: u64,
}

/// What a thread that waits on several queues did just before a look, other than looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffQueue {
    /// When the thread was back, in ns.
    pub back_ns: u64,
    /// Why the thread did not look.
    pub why: Why,
}

/// Why a thread did not look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It slept until it was woken, before the planned end.
    Woken,
    /// It slept to the planned end.
    Slept(Wake),
}

/// Number of sleeps recorded per wait.
const WAKES: usize = 2;

/// A sleep with less than this left, in ns, is over.
const SHORTEST_SLEEP_NS: u64 = 100;

/// The CPU time of a planned sleep is measured this often, in ns.
const CPU_SAMPLE_NS: u64 = 3_000_000;

/// The result of one wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waited {
    /// Planned length of [`WaitPlan::Sleep`], or of all planned sleeps together, in ns; 0 if there
    /// was no sleep.
    pub slept_ns: u64,
    /// Whether the completion was there at the end of a sleep.
    pub overslept: bool,
    /// A time at which a poll was empty, in ns of the source's clock: before the completion was
    /// found while spinning, or before the last planned sleep; 0 if unknown.
    pub last_empty_poll_ns: u64,
    /// Whether the completion came while the thread was blocked for the interrupt.
    pub blocked: bool,
    /// Whether the interrupt ended the last planned sleep.
    pub cut_short: bool,
    /// The CPU time charged for that sleep in ns, 0 if it was not measured.
    pub(crate) cut_short_cpu_ns: u64,
    /// The latest time at which the completion was found, provided that the thread has run since,
    /// in ns of the source's clock; 0 if the completion may have been there for long.
    exact_until_ns: u64,
    /// The first planned sleeps; not used by [`WaitPlan::Sleep`].
    wakes: [Wake; WAKES],
    wake_count: u8,
}

/// If two rounds of looks take longer than four of the shortest by this much, in ns, they were
/// disturbed: the thread was preempted, or its virtual CPU was.
const DISTURBED_NS: u64 = 5_000;

impl Waited {
    /// A wait in which the completion was seen as it came.
    pub fn exactly() -> Self {
        Self { exact_until_ns: u64::MAX, ..Self::default() }
    }

    /// A wait that the kernel blocked for, until the interrupt.
    pub(crate) fn blocked() -> Self {
        Self { blocked: true, ..Self::default() }
    }

    /// Whether the completion came just before it was found, at `now_ns`: the poll before was
    /// empty, and the thread has run since.
    #[inline]
    pub fn is_exact(&self, now_ns: u64) -> bool {
        now_ns <= self.exact_until_ns
    }

    /// Adds a sleep.
    fn add(&mut self, wake: Wake) {
        self.slept_ns += wake.slept_ns;
        if let Some(free) = self.wakes.get_mut(usize::from(self.wake_count)) {
            *free = wake;
            self.wake_count += 1;
        }
    }

    /// The first planned sleeps, with their lateness.
    pub fn wakes(&self) -> &[Wake] {
        &self.wakes[..usize::from(self.wake_count)]
    }
}

/// The wait state of one queue. It belongs to the queue's thread.
#[derive(Debug, Clone)]
pub struct Gap {
    spin_budget_ns: u64,
    waited: Waited,
    counters: GapCounters,
    /// The shortest round of looks between two readings of the clock.
    round_ns: u64,
    /// For looks from outside, the last two readings of the clock after empty polls; 0 if there is
    /// none.
    empty_poll_ns: [u64; 2],
    watchdog: DeviceWatchdog,
    /// When the CPU time of a sleep was last measured, in ns.
    cpu_taken_ns: u64,
}

impl Default for Gap {
    fn default() -> Self {
        Self {
            spin_budget_ns: SPIN_BUDGET_NS,
            waited: Waited::default(),
            counters: GapCounters::default(),
            round_ns: u64::MAX,
            empty_poll_ns: [0; 2],
            watchdog: DeviceWatchdog::default(),
            cpu_taken_ns: 0,
        }
    }
}

impl Gap {
    /// Sets how long a wait may spin, after any sleep, before it stops using the CPU. Default 1 ms.
    pub fn set_spin_budget_ns(&mut self, budget_ns: u64) {
        self.spin_budget_ns = budget_ns;
    }

    /// The current budget, in ns.
    pub fn spin_budget_ns(&self) -> u64 {
        self.spin_budget_ns
    }

    /// The counts of the waits.
    pub fn counters(&self) -> GapCounters {
        self.counters
    }

    /// The result of the last wait.
    #[inline]
    pub fn waited(&self) -> &Waited {
        &self.waited
    }

    /// Waits until at least one command of `source` has ended. Returns the number of ended
    /// commands.
    ///
    /// The caller has a command in flight on it, and has rung its doorbell. The wait is bounded:
    /// every command has a deadline at which [`Source::tick`] ends it.
    #[inline]
    pub fn wait(&mut self, source: &mut impl Source, plan: WaitPlan) -> usize {
        self.counters.waits += 1;
        self.waited = Waited::default();
        source.begin_wait(&plan, self.spin_budget_ns);
        match plan {
            WaitPlan::Poll => {}
            WaitPlan::Interrupt => {
                let ended = source.reap();
                return if ended > 0 { ended } else { self.wait_blocked(source, None) };
            }
            WaitPlan::Sleep(ns) => self.sleep(source, ns),
            WaitPlan::Planned { plan, since_ns } => {
                return self.wait_planned(source, &plan, since_ns);
            }
        }
        self.spin(source)
    }

    /// Alternates between sleeping and spinning.
    #[inline(never)]
    fn wait_planned(&mut self, source: &mut impl Source, plan: &Plan, since_ns: u64) -> usize {
        let ended = source.reap();
        if ended > 0 {
            return ended;
        }
        let mut now_ns = source.now_ns();
        let (mut before_ns, mut spun_since_ns) = (now_ns, now_ns);
        let mut stages = plan.stages().iter().peekable();
        loop {
            let elapsed_ns = now_ns.saturating_sub(since_ns);
            if let Some(stage) = stages.peek().filter(|s| u64::from(s.from_ns) <= elapsed_ns) {
                let left_ns = u64::from(stage.until_ns).saturating_sub(elapsed_ns);
                if left_ns < SHORTEST_SLEEP_NS {
                    stages.next();
                    continue;
                }
                self.waited.last_empty_poll_ns = now_ns;
                let left_ns = left_ns.min(source.tick_interval_ns());
                let woken_ns = self.sleep_until(source, now_ns, left_ns);
                let ended = source.reap();
                if ended > 0 {
                    self.counters.oversleeps += 1;
                    self.waited.overslept = true;
                    return ended;
                }
                let ended = source.tick(woken_ns);
                if ended > 0 {
                    return ended;
                }
                (now_ns, before_ns, spun_since_ns) = (woken_ns, woken_ns, woken_ns);
                continue;
            }
            for _ in 0..SPINS_PER_CLOCK {
                let ended = source.reap();
                if ended > 0 {
                    self.note_found(before_ns);
                    return ended;
                }
            }
            (before_ns, now_ns) = (now_ns, source.now_ns());
            self.note_round(before_ns, now_ns);
            let ended = source.tick(now_ns);
            if ended > 0 {
                return ended;
            }
            let impatient = now_ns.saturating_sub(spun_since_ns) >= self.spin_budget_ns
                || now_ns.saturating_sub(since_ns) >= plan.patience_ns();
            if stages.peek().is_none() && impatient {
                self.counters.fallbacks += 1;
                self.waited.last_empty_poll_ns = now_ns;
                return self.wait_blocked(source, Some(since_ns));
            }
            self.watchdog.yield_cpu(source, now_ns);
        }
    }

    /// Notes a round of empty polls between two readings of the clock.
    #[inline(always)]
    fn note_round(&mut self, from_ns: u64, until_ns: u64) {
        self.round_ns = self.round_ns.min(until_ns.saturating_sub(from_ns));
    }

    /// Notes that a look found a completion. `before_ns` is the reading of the clock before the
    /// last one: the thread may have been off its CPU just before it read the last one.
    #[inline]
    fn note_found(&mut self, before_ns: u64) {
        self.waited.last_empty_poll_ns = before_ns;
        let round_ns = if self.round_ns == u64::MAX { 0 } else { self.round_ns };
        let rounds_ns = round_ns.saturating_mul(4).saturating_add(DISTURBED_NS);
        self.waited.exact_until_ns = before_ns.saturating_add(rounds_ns);
    }

    /// Sleeps for `left_ns` from `now_ns` on, or until the queue's interrupt, if it has one.
    /// Returns when the thread ran again.
    fn sleep_until(&mut self, source: &mut impl Source, now_ns: u64, left_ns: u64) -> u64 {
        let takes_cpu = now_ns.saturating_sub(self.cpu_taken_ns) >= CPU_SAMPLE_NS;
        self.counters.sleeps += 1;
        let (mut now_ns, mut left_ns, mut used_ns) = (now_ns, left_ns, 0);
        if takes_cpu {
            self.cpu_taken_ns = now_ns;
            used_ns = source.cpu_ns();
            let read_ns = source.now_ns();
            left_ns = left_ns.saturating_sub(read_ns.saturating_sub(now_ns)).max(1);
            now_ns = read_ns;
        }
        let has_interrupt = source.wait_interrupt(left_ns);
        if !has_interrupt {
            source.sleep_ns(left_ns);
        }
        let (woken_ns, end_ns) = (source.now_ns(), now_ns + left_ns);
        let cpu_ns = if takes_cpu { source.cpu_ns() - used_ns } else { 0 };
        self.waited.cut_short = has_interrupt && woken_ns < end_ns;
        let Some(late_ns) = woken_ns.checked_sub(end_ns) else {
            self.waited.cut_short_cpu_ns = cpu_ns;
            return woken_ns;
        };
        if has_interrupt {
            // A completion before that would have woken the thread, about as late.
            self.waited.last_empty_poll_ns = now_ns.max(end_ns.saturating_sub(late_ns));
        }
        self.waited.add(Wake { slept_ns: left_ns, late_ns, cpu_ns });
        woken_ns
    }

    /// Begins a wait by looks from outside; one before `now_ns` was empty.
    pub(crate) fn begin_looks(&mut self, now_ns: u64) {
        self.counters.waits += 1;
        self.waited = Waited::default();
        self.empty_poll_ns = [now_ns; 2];
    }

    /// Notes an empty poll from outside, before `now_ns`.
    pub(crate) fn polled_empty(&mut self, now_ns: u64) {
        let [_, last_ns] = self.empty_poll_ns;
        self.note_round(last_ns, now_ns);
        self.empty_poll_ns = [last_ns, now_ns];
    }

    /// Notes an empty poll from outside, after the thread was off the queue.
    pub(crate) fn polled_empty_after(&mut self, off_queue: OffQueue) {
        if self.empty_poll_ns[1] != 0 {
            self.empty_poll_ns = [off_queue.back_ns; 2];
            if let Why::Slept(wake) = off_queue.why {
                self.counters.sleeps += 1;
                self.waited.add(wake);
            }
        }
    }

    /// Notes a look from outside that found a completion. `slept_ns` is the sleep that a rule
    /// chose.
    #[inline]
    pub(crate) fn found_by_a_look(&mut self, off_queue: Option<OffQueue>, slept_ns: u64) {
        let [before_ns, last_ns] = std::mem::take(&mut self.empty_poll_ns);
        if last_ns == 0 {
            self.waited = Waited::default();
            return;
        }
        match off_queue.map(|off_queue| off_queue.why) {
            None => self.note_found(before_ns),
            Some(why) => {
                self.waited.last_empty_poll_ns = last_ns;
                self.waited.overslept = true;
                self.waited.cut_short = why == Why::Woken;
                if let Why::Slept(wake) = why {
                    (self.counters.sleeps, self.counters.oversleeps) =
                        (self.counters.sleeps + 1, self.counters.oversleeps + 1);
                    self.waited.add(wake);
                }
            }
        }
        if slept_ns > 0 {
            self.waited.slept_ns = slept_ns;
        }
    }

    /// Forgets empty polls: the wait has ended otherwise.
    pub(crate) fn forget_looks(&mut self) {
        self.empty_poll_ns = [0; 2];
    }

    /// Notes that the spin budget ran out in a wait by looks from outside.
    pub(crate) fn note_fallback(&mut self) {
        self.counters.fallbacks += 1;
    }

    #[inline(never)]
    fn sleep(&mut self, source: &mut impl Source, duration_ns: u64) {
        self.waited.slept_ns = duration_ns;
        if duration_ns == 0 {
            return;
        }
        self.counters.sleeps += 1;
        // A sleep must not skip deadline checks.
        source.sleep_ns(duration_ns.min(source.tick_interval_ns()));
        if source.has_completion() {
            self.counters.oversleeps += 1;
            self.waited.overslept = true;
        }
    }

    #[inline(always)]
    fn spin(&mut self, source: &mut impl Source) -> usize {
        // The loop does not read the clock at first: a fast device is done before that.
        for look in 0..SPINS_PER_CLOCK {
            let ended = source.reap();
            if ended > 0 {
                if look > 0 {
                    self.waited.exact_until_ns = u64::MAX;
                }
                return ended;
            }
        }
        self.spin_long(source)
    }

    #[inline(never)]
    fn spin_long(&mut self, source: &mut impl Source) -> usize {
        let start_ns = source.now_ns();
        let (mut before_ns, mut now_ns) = (start_ns, start_ns);
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if source.has_completion() {
                    let ended = source.reap();
                    // A stray completion ends no command.
                    if ended > 0 {
                        self.note_found(before_ns);
                        return ended;
                    }
                }
            }
            (before_ns, now_ns) = (now_ns, source.now_ns());
            self.note_round(before_ns, now_ns);
            let ended = source.tick(now_ns);
            if ended > 0 {
                return ended;
            }
            if now_ns.saturating_sub(start_ns) >= self.spin_budget_ns {
                break;
            }
            self.watchdog.yield_cpu(source, now_ns);
        }
        self.counters.fallbacks += 1;
        self.waited.last_empty_poll_ns = now_ns;
        self.wait_blocked(source, Some(start_ns))
    }

    /// Waits without using the CPU, in the order of ARCHITECTURE.md §5: it looks, blocks, and looks
    /// again. Without an interrupt it naps, never for more than a small part of the time since
    /// `since_ns`, or since now if that is `None`.
    #[inline(never)]
    fn wait_blocked(&mut self, source: &mut impl Source, since_ns: Option<u64>) -> usize {
        let mut since_ns = since_ns;
        loop {
            let ended = source.reap();
            if ended > 0 {
                return ended;
            }
            let timeout_ns = source.tick_interval_ns();
            self.counters.blocks += 1;
            self.waited.blocked = source.wait_interrupt(timeout_ns);
            if !self.waited.blocked {
                let now_ns = source.now_ns();
                self.waited.last_empty_poll_ns = now_ns;
                let passed_ns = now_ns.saturating_sub(*since_ns.get_or_insert(now_ns));
                let nap_ns = (passed_ns / NAP_SHARE).clamp(1_000, LONGEST_NAP_NS);
                source.sleep_ns(nap_ns.min(timeout_ns));
            }
            // Reaping comes first: a tick checks deadlines, and must not find a command overdue
            // that has completed.
            let mut ended = source.reap();
            if ended == 0 {
                let now_ns = source.now_ns();
                ended = source.tick(now_ns);
            }
            if ended > 0 {
                self.waited.overslept = !self.waited.blocked;
                return ended;
            }
        }
    }
}

#[cfg(all(loom, test))]
mod loom_model;

#[cfg(all(test, not(loom)))]
mod tests;
