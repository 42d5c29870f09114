//! The decision between polling, planned sleeps and the interrupt, for a goal of latency.
//!
//! Each way to wait has a time that an I/O takes with it and a CPU time that it costs. If the
//! thread gets only a [share](super::share) of its CPU, an I/O takes at least its CPU time divided
//! by that share. Waiting without the CPU is then often the fastest. The choice considers the ways
//! whose time exceeds the shortest by no more than the goal allows, and takes the one that costs
//! the least CPU. The channel reconsiders once a second, more often at first and after the device
//! has changed, and as soon as the CPU becomes short or ceases to be. It changes its choice only
//! for a tenth of the CPU, or to keep the time.
//!
//! The share is measured while the thread spins, and may depend on how it waits: a software SSD's
//! thread wants the CPU only while it has commands, and a thread that sleeps lets the other
//! channels of its program run. So, while the CPU is short, spinning is tried if its share is not
//! known. What an interrupt takes is *measured* if the interrupt is used for long enough, and then
//! replaces the expectation. Either measurement may be accidental, or become outdated, so it is
//! forgotten after a while, which is longer each time.

use super::super::telemetry::QueueFigures;
use super::Outlook;
use super::share::{Change, Share};
use super::tuning::*;

/// The choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// Classic polling.
    Poll,
    /// Planned sleeps.
    #[default]
    Planned,
    /// The interrupt.
    Interrupt,
}

/// A way to wait as a candidate for the choice, with its effect on an I/O.
#[derive(Debug, Clone, Copy, Default)]
struct Candidate {
    mode: Mode,
    /// The time of the I/O, in ns.
    time_ns: f32,
    /// The CPU used for waiting, in ns.
    cpu_ns: f32,
}

/// For how long a way to wait that was left is not tried again.
#[derive(Debug, Clone, Copy, Default)]
struct Left {
    until_ns: u64,
    kept_ns: u64,
}

impl Left {
    /// Notes that the way is left now, for one that takes less time by `factor`.
    fn leave(&mut self, now_ns: u64, factor: f32) {
        let factor = factor.max(1.0);
        let kept_ns = ((factor * factor * LEFT_NS) as u64).max(2 * self.kept_ns);
        self.kept_ns = kept_ns.min(LEFT_LONGEST_NS);
        self.until_ns = now_ns + self.kept_ns;
    }
}

/// The choice of one channel, and its inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaitChoice {
    mode: Mode,
    share: Share,
    looked_ns: u64,
    decided_ns: Option<u64>,
    /// The time when there was no experience with the device, and the number of its changes.
    began_ns: u64,
    device_changes: u32,
    /// The ways to wait at the last decision, and the time of the last change.
    candidates: [Candidate; 3],
    since_ns: u64,
    is_short: bool,
    /// The measured wait of an I/O by interrupt since the CPU became short, in ns; 0 if not yet
    /// known.
    interrupted_ns: f32,
    /// When the interrupt, and the other ways, were left since the CPU became short.
    interrupt_left: Left,
    others_left: Left,
    /// I/Os since the last look.
    ios: u32,
    /// The number of all I/Os so far that may use the interrupt.
    sent: u32,
    /// Measured per I/O, in ns: the CPU time without the wait, and the thread's sleep between I/Os.
    base_ns: f32,
    idle_ns: f32,
    /// The measured CPU of waiting for an interrupt since the CPU became short, in ns; 0 if not yet
    /// known.
    interrupt_cpu_ns: f32,
    changes: u64,
}

impl WaitChoice {
    /// The current choice.
    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The number of changes.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts an I/O that goes to the polled queue.
    #[inline]
    pub(crate) fn count(&mut self) {
        self.ios = self.ios.wrapping_add(1);
    }

    /// Counts another I/O. Returns whether it is a probe: it goes to the polled queue even if the
    /// interrupt is used, to show when it ends. `alone` says that no other is in flight.
    #[inline]
    pub(crate) fn next_is_probe(&mut self, alone: bool) -> bool {
        self.sent = self.sent.wrapping_add(1);
        let probe = match (alone, self.is_short) {
            (true, false) => PROBE_IOS,
            (true, true) => PROBE_SHORT_IOS,
            (false, _) => PROBE_DEEP_IOS,
        };
        self.count();
        self.sent.is_multiple_of(probe)
    }

    /// Whether a look is due.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.looked_ns) >= LOOK_NS
    }

    /// Whether a look has been due for long, because there were no waits in whose gaps to look.
    #[inline]
    pub(crate) fn is_overdue(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.looked_ns) >= 2 * LOOK_NS
    }

    /// Looks at how much of its CPU the thread got: it has run for `ran_ns` in all, and waited for
    /// `waited_ns`. Returns whether a decision is due.
    #[cold]
    pub(crate) fn sample(
        &mut self,
        now_ns: u64,
        ran_ns: u64,
        device_changes: u32,
        waited_ns: impl FnOnce() -> Option<u64>,
    ) -> bool {
        self.looked_ns = now_ns;
        if std::mem::replace(&mut self.device_changes, device_changes) != device_changes {
            self.began_ns = now_ns;
        }
        let ios = std::mem::take(&mut self.ios);
        let change = self.share.sample(now_ns, ran_ns, ios, waited_ns);
        self.is_short = self.share.is_short(now_ns);
        if change == Change::Short {
            (self.interrupt_cpu_ns, self.interrupted_ns) = (0.0, 0.0);
            (self.interrupt_left, self.others_left) = Default::default();
        }
        let Some(decided_ns) = self.decided_ns else {
            (self.decided_ns, self.began_ns) = (Some(now_ns), now_ns);
            return false;
        };
        // An expectation from few I/Os is soon superseded.
        let experience_ns = now_ns.saturating_sub(self.began_ns);
        let longest_ns = if self.is_short { SHORT_DECISION_NS } else { DECISION_NS };
        let interval_ns =
            (experience_ns / EXPERIENCE_DECISIONS).clamp(FIRST_DECISION_NS, longest_ns);
        change != Change::Nothing || now_ns.saturating_sub(decided_ns) >= interval_ns
    }

    /// Decides by what `outlook` expects.
    #[cold]
    pub(crate) fn decide(&mut self, now_ns: u64, outlook: &Outlook) {
        self.decided_ns = Some(now_ns);
        if outlook.device_ns <= 0.0 {
            return;
        }
        self.note_cpu(outlook);
        self.note_interrupt(outlook);
        self.candidates = self.candidates(now_ns, outlook);
        let mode = self.choose(&self.candidates, outlook);
        if mode != self.mode {
            if self.is_short {
                self.leave(now_ns, mode);
            }
            if self.mode == Mode::Interrupt {
                self.share.forget_share();
            }
            self.changes += 1;
            self.mode = mode;
            self.since_ns = now_ns;
            self.share.changes(now_ns, mode == Mode::Poll);
        }
    }

    /// Shows in `figures` that I/O is waited for by `mode`, and why.
    pub(crate) fn show(&self, mode: Mode, figures: &mut QueueFigures) {
        figures.way = match mode {
            Mode::Poll => 1,
            Mode::Planned => 2,
            Mode::Interrupt => 3,
        };
        figures.way_since_ns = self.since_ns;
        figures.cpu_share_permille = (1_000.0 * self.share.share()) as u64;
        for candidate in &self.candidates {
            let (time_ns, cpu_ns) = match candidate.mode {
                Mode::Poll => (&mut figures.poll_ns, &mut figures.poll_cpu_ns),
                Mode::Planned => (&mut figures.planned_ns, &mut figures.planned_cpu_ns),
                Mode::Interrupt => (&mut figures.interrupt_ns, &mut figures.interrupt_cpu_ns),
            };
            if candidate.time_ns.is_finite() {
                (*time_ns, *cpu_ns) = (candidate.time_ns as u64, candidate.cpu_ns as u64);
            }
        }
    }

    /// Learns how much CPU I/Os take besides their waits, and how much waiting for an interrupt
    /// takes.
    fn note_cpu(&mut self, outlook: &Outlook) {
        let Some(io_cpu_ns) = self.share.io_cpu_ns() else { return };
        let base_ns = |wait_ns: f32| (io_cpu_ns - wait_ns / outlook.in_flight).max(0.0);
        if self.mode != Mode::Interrupt {
            self.interrupt_cpu_ns *= INTERRUPT_CPU_KEPT_PART;
        }
        let slept_ns = self.share.io_slept_ns();
        let idle_ns = |wait_ns: f32| (slept_ns - wait_ns / outlook.in_flight).max(0.0);
        match self.mode {
            Mode::Poll => (self.base_ns, self.idle_ns) = (base_ns(outlook.device_ns), idle_ns(0.0)),
            Mode::Planned => {
                let planned_ns = outlook.planned_cpu_ns;
                self.base_ns = base_ns(planned_ns);
                self.idle_ns = idle_ns(outlook.device_ns - planned_ns);
            }
            Mode::Interrupt if self.is_short => {
                // The interrupt would look too expensive for a program that computes between its
                // I/Os.
                let most_ns = INTERRUPT_CPU_SLEEPS * outlook.sleep_cpu_ns;
                self.interrupt_cpu_ns = (io_cpu_ns - self.base_ns).min(most_ns).max(1.0);
            }
            Mode::Interrupt => {}
        }
    }

    /// The time and CPU of an I/O by each way to wait. Of what it shares with others in flight,
    /// only its part counts.
    fn candidates(&self, now_ns: u64, outlook: &Outlook) -> [Candidate; 3] {
        let Outlook { device_ns, planned_cpu_ns, in_flight, .. } = *outlook;
        let base_ns = self.base_ns;
        let share = self.spinning_share(now_ns);
        // This is the time of the wait alone: the rest of the I/O takes the same for all ways.
        let candidate = |mode, cpu_ns, at_least_ns: f32| {
            let by_share_ns = (base_ns + cpu_ns) / share - base_ns;
            Candidate { mode, time_ns: (at_least_ns / in_flight).max(by_share_ns), cpu_ns }
        };
        // The goal bounds the lateness of planned sleeps; it has to remain within the limit.
        let planned_late_ns = match outlook.can_plan {
            true => outlook.planned_late_ns.min(PLANNED_LATE_PART * outlook.late_part * device_ns),
            false => f32::INFINITY,
        };
        let interrupt_late_ns = match (outlook.can_interrupt, self.is_short) {
            (false, _) => f32::INFINITY,
            // The lateness seen contains errors of the expected device time. With the whole CPU,
            // the ways differ by less than these errors.
            (true, false) => outlook.interrupt_late_ns,
            (true, true) => outlook.interrupt_seen_ns,
        };
        let interrupt_cpu_ns =
            if self.interrupt_cpu_ns > 0.0 { self.interrupt_cpu_ns } else { outlook.sleep_cpu_ns };
        let woken_ns = device_ns + self.share.wake_wait_ns();
        // The lateness seen contains the wait for the CPU, if most wake-ups wait for it.
        let interrupted_ns = interrupt_late_ns.max(self.share.wake_wait_ns());
        // A wait that sleeps nothing is not woken.
        let sleeps = planned_cpu_ns < SAVING_FACTOR * device_ns;
        let planned_ns = if sleeps { woken_ns } else { device_ns };
        let mut interrupt =
            candidate(Mode::Interrupt, interrupt_cpu_ns, device_ns + interrupted_ns);
        if let Some(time_ns) = self.measured_interrupt_ns(now_ns) {
            interrupt.time_ns = time_ns;
        }
        [
            candidate(Mode::Poll, device_ns / in_flight, device_ns),
            candidate(Mode::Planned, planned_cpu_ns / in_flight, planned_ns + planned_late_ns),
            interrupt,
        ]
    }

    /// Measures how long the thread waits for an I/O, if by interrupt. The rest of the I/O takes
    /// the same for all ways.
    fn note_interrupt(&mut self, outlook: &Outlook) {
        // With many in flight, the depth is known too roughly to compare with the expectation.
        if self.mode != Mode::Interrupt || outlook.in_flight > MEASURED_DEPTH_IOS {
            return;
        }
        if let Some(io_ns) = self.share.io_ns() {
            self.interrupted_ns = (io_ns - self.base_ns - self.idle_ns).max(1.0);
        }
    }

    /// The measured time, in ns, if it is known and still counts.
    fn measured_interrupt_ns(&self, now_ns: u64) -> Option<f32> {
        let counts = self.mode == Mode::Interrupt || now_ns < self.interrupt_left.until_ns;
        (self.is_short && self.interrupted_ns > 0.0 && counts).then_some(self.interrupted_ns)
    }

    /// The part of the CPU that the thread gets if it spins; all of it if spinning is to be tried
    /// again.
    fn spinning_share(&self, now_ns: u64) -> f32 {
        let tries = self.mode == Mode::Interrupt && now_ns >= self.others_left.until_ns;
        if tries { 1.0 } else { self.share.share() }
    }

    /// Notes that the current way is left for `mode`. The more the way costs, the later it is tried
    /// again.
    fn leave(&mut self, now_ns: u64, mode: Mode) {
        let [left_ns, next_ns] =
            [self.mode, mode].map(|mode| self.base_ns + self.candidates[mode as usize].time_ns);
        if self.mode == Mode::Interrupt {
            self.interrupt_left.leave(now_ns, left_ns / next_ns);
        } else if mode == Mode::Interrupt {
            self.others_left.leave(now_ns, left_ns / next_ns);
            if now_ns >= self.interrupt_left.until_ns {
                // The interrupt is tried anew.
                self.interrupted_ns = 0.0;
            }
        }
    }

    fn choose(&self, candidates: &[Candidate], outlook: &Outlook) -> Mode {
        if self.is_short && outlook.can_interrupt && self.interrupt_cpu_ns == 0.0 {
            // The cost of an interrupt is not known before it was tried; now it matters.
            return Mode::Interrupt;
        }
        // A measurement has errors of the whole I/O, not only of the wait.
        let besides_ns = if self.is_short { self.base_ns } else { 0.0 };
        let time_ns = |candidate: &Candidate| besides_ns + candidate.time_ns;
        let shortest_ns = candidates.iter().map(time_ns).fold(f32::INFINITY, f32::min);
        // The current choice may exceed the limit slightly, to avoid oscillation.
        let is_fast = |candidate: &&Candidate| {
            let slack = match (candidate.mode == self.mode, self.is_short) {
                (true, true) => KEEP_SHORT_FACTOR * outlook.late_part,
                (true, false) => KEEP_FACTOR * outlook.late_part,
                (false, _) => outlook.late_part,
            };
            time_ns(candidate) <= (1.0 + slack) * shortest_ns
        };
        let fast = || candidates.iter().filter(is_fast);
        let Some(cheapest) = fast().min_by(|a, b| a.cpu_ns.total_cmp(&b.cpu_ns)) else {
            return self.mode;
        };
        match fast().find(|candidate| candidate.mode == self.mode) {
            Some(current) if cheapest.cpu_ns >= SAVING_FACTOR * current.cpu_ns => self.mode,
            _ => cheapest.mode,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
