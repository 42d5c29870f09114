//! Choosing between interrupt, adaptive and poll while running.
//!
//! Each way to wait has a time that an I/O takes with it and a CPU time that it costs. If the
//! thread gets only a [share](super::share) of its CPU, an I/O takes at least its CPU time divided
//! by that share: then waiting without the CPU is often the fastest. Among the ways whose time is
//! within 3 % of the shortest, `auto` takes the one that costs the least CPU. It reconsiders once a
//! second, and as soon as the CPU becomes short or is not any more; it changes only for a tenth of
//! the CPU, or to keep the time.

use super::adaptive::Outlook;
use super::share::Share;
use meantime_hw::cpu::CpuTimes;

/// Time between two looks at the CPU that the thread had, in ns.
const LOOK_NS: u64 = 4_000_000;
/// Time between two decisions; until the first one, when there are observations; and while the CPU
/// is short; in ns.
const DECISION_NS: u64 = 1_000_000_000;
const FIRST_DECISION_NS: u64 = 20_000_000;
const SHORT_DECISION_NS: u64 = 50_000_000;
/// The time of an I/O may exceed the shortest by this share.
const LATENCY: f32 = 0.03;
/// A change has to reduce the CPU to this factor.
const SAVING: f32 = 0.9;
/// An interrupt does not show when the I/O ended, so one I/O in this many is waited for otherwise.
/// With others in flight, waiting for both queues means spinning: then it is done hardly ever; and
/// rarely while the CPU is short.
const PROBE: u32 = 32;
const PROBE_SHORT: u32 = 512;
const PROBE_DEEP: u32 = 4_096;

/// The choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// Classic polling.
    Poll,
    /// Planned sleeps.
    #[default]
    Adaptive,
    /// The interrupt.
    Interrupt,
}

/// A way to wait, and what it does to an I/O.
#[derive(Debug, Clone, Copy)]
struct Way {
    mode: Mode,
    /// The time of the I/O, in ns.
    time_ns: f32,
    /// The CPU used for waiting, in ns.
    cpu_ns: f32,
}

/// The choice of one channel, and its inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Auto {
    mode: Mode,
    share: Share,
    looked_ns: u64,
    decided_ns: Option<u64>,
    is_short: bool,
    /// I/Os since the last look; sent to the queue with an interrupt, or not.
    ios: u32,
    sent: u32,
    /// The CPU of an I/O without its wait, and that of waiting for an interrupt, in ns, as
    /// measured; 0: not yet.
    base_ns: f32,
    interrupt_cpu_ns: f32,
    changes: u64,
}

impl Auto {
    /// The current choice.
    #[inline]
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The number of changes.
    #[cfg(test)]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// As [`mode`](Self::mode), for an I/O that goes to the polled queue.
    #[inline]
    pub(crate) fn mode_of_polled(&mut self) -> Mode {
        self.ios += 1;
        self.mode
    }

    /// Whether the next I/O uses the interrupt; `alone`: no other is in flight.
    #[inline]
    pub(crate) fn interrupts(&mut self, alone: bool) -> bool {
        self.sent = self.sent.wrapping_add(1);
        let probe = match (alone, self.is_short) {
            (true, false) => PROBE,
            (true, true) => PROBE_SHORT,
            (false, _) => PROBE_DEEP,
        };
        let interrupts = self.mode == Mode::Interrupt && !self.sent.is_multiple_of(probe);
        self.ios += u32::from(interrupts);
        interrupts
    }

    /// Whether a look is due.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.looked_ns) >= LOOK_NS
    }

    /// Notes what the thread had of its CPU. Returns whether a decision is due.
    #[cold]
    pub(crate) fn look(&mut self, now_ns: u64, times: CpuTimes) -> bool {
        self.looked_ns = now_ns;
        let ios = std::mem::take(&mut self.ios);
        let changed = self.share.look(now_ns, times, ios, self.mode == Mode::Poll);
        self.is_short = self.share.is_short(now_ns);
        let Some(decided_ns) = self.decided_ns else {
            // The first decision comes soon.
            self.decided_ns = Some(now_ns.saturating_sub(DECISION_NS - FIRST_DECISION_NS));
            return false;
        };
        let interval_ns = if self.is_short { SHORT_DECISION_NS } else { DECISION_NS };
        changed || now_ns.saturating_sub(decided_ns) >= interval_ns
    }

    /// Decides. `outlook` is the expectation; `can_interrupt`: whether there is a queue with an
    /// interrupt.
    #[cold]
    pub(crate) fn decide(&mut self, now_ns: u64, outlook: &Outlook, can_interrupt: bool) {
        self.decided_ns = Some(now_ns);
        self.note_cpu(outlook);
        let mode = self.choose(outlook, can_interrupt);
        if mode != self.mode {
            self.changes += 1;
            self.mode = mode;
            self.share.changes();
        }
    }

    /// Learns from the CPU that I/Os took what they take besides their waits, and what waiting for
    /// an interrupt takes.
    fn note_cpu(&mut self, outlook: &Outlook) {
        let Some(io_cpu_ns) = self.share.io_cpu_ns() else { return };
        match self.mode {
            Mode::Poll => self.base_ns = (io_cpu_ns - outlook.device_ns).max(0.0),
            Mode::Adaptive => self.base_ns = (io_cpu_ns - outlook.planned_cpu_ns).max(0.0),
            Mode::Interrupt => self.interrupt_cpu_ns = (io_cpu_ns - self.base_ns).max(1.0),
        }
    }

    /// What an I/O takes by each way to wait.
    fn ways(&self, outlook: &Outlook, can_interrupt: bool) -> [Way; 3] {
        let Outlook { device_ns, planned_cpu_ns, .. } = *outlook;
        let base_ns = self.base_ns;
        // The time of the wait alone: what the I/O takes besides is the same for all.
        let way = |mode, cpu_ns, at_least_ns: f32| {
            let by_share_ns = (base_ns + cpu_ns) / self.share.share() - base_ns;
            Way { mode, time_ns: at_least_ns.max(by_share_ns), cpu_ns }
        };
        let planned_late_ns = outlook.planned_late_ns.min(LATENCY * device_ns);
        // The lateness measured at start-up: that of the I/Os cannot be separated from the device's
        // own variation.
        let interrupt_late_ns =
            if can_interrupt { outlook.interrupt_late_ns } else { f32::INFINITY };
        let interrupt_cpu_ns =
            if self.interrupt_cpu_ns > 0.0 { self.interrupt_cpu_ns } else { outlook.sleep_cpu_ns };
        let woken_ns = device_ns + self.share.wake_wait_ns();
        // A wait that sleeps nothing is not woken.
        let sleeps = planned_cpu_ns < SAVING * device_ns;
        let planned_ns = if sleeps { woken_ns } else { device_ns };
        [
            way(Mode::Poll, device_ns, device_ns),
            way(Mode::Adaptive, planned_cpu_ns, planned_ns + planned_late_ns),
            way(Mode::Interrupt, interrupt_cpu_ns, woken_ns + interrupt_late_ns),
        ]
    }

    fn choose(&self, outlook: &Outlook, can_interrupt: bool) -> Mode {
        if outlook.device_ns <= 0.0 {
            return self.mode;
        }
        if self.is_short && can_interrupt && self.interrupt_cpu_ns == 0.0 {
            // What an interrupt costs is not known before it was tried; now it matters.
            return Mode::Interrupt;
        }
        let ways = self.ways(outlook, can_interrupt);
        let shortest_ns = ways.iter().map(|way| way.time_ns).fold(f32::INFINITY, f32::min);
        // The current choice may exceed the limit slightly, to avoid oscillation.
        let is_fast = |way: &&Way| {
            let slack = if way.mode == self.mode { 1.2 * LATENCY } else { LATENCY };
            way.time_ns <= (1.0 + slack) * shortest_ns
        };
        let fast = || ways.iter().filter(is_fast);
        let Some(cheapest) = fast().min_by(|a, b| a.cpu_ns.total_cmp(&b.cpu_ns)) else {
            return self.mode;
        };
        match fast().find(|way| way.mode == self.mode) {
            Some(current) if cheapest.cpu_ns >= SAVING * current.cpu_ns => self.mode,
            _ => cheapest.mode,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A device of `device_ns` on a machine that wakes in `late_ns`, where planned sleeps leave
    /// `planned_cpu_ns` of spinning.
    fn outlook(device_ns: f32, late_ns: f32, planned_cpu_ns: f32) -> Outlook {
        Outlook {
            device_ns,
            planned_cpu_ns,
            planned_late_ns: 0.0,
            sleep_cpu_ns: 2_000.0,
            interrupt_late_ns: late_ns,
        }
    }

    #[test]
    fn the_cheapest_within_the_latency() {
        let auto = Auto::default();
        // 3 % of 100 µs are 3 µs: an interrupt 2 µs late is within, and cheaper than the spinning
        // after a sleep.
        assert_eq!(auto.choose(&outlook(100_000.0, 2_000.0, 10_000.0), true), Mode::Interrupt);
        assert_eq!(auto.choose(&outlook(100_000.0, 2_000.0, 10_000.0), false), Mode::Adaptive);
        assert_eq!(auto.choose(&outlook(100_000.0, 4_000.0, 10_000.0), true), Mode::Adaptive);
    }

    #[test]
    fn a_small_saving_changes_nothing() {
        let auto = Auto { mode: Mode::Poll, ..Auto::default() };
        assert_eq!(auto.choose(&outlook(10_000.0, 5_000.0, 9_100.0), true), Mode::Poll);
        assert_eq!(auto.choose(&outlook(10_000.0, 5_000.0, 8_900.0), true), Mode::Adaptive);
        let auto = Auto { mode: Mode::Interrupt, ..Auto::default() };
        // A slight excess is kept, more is not.
        assert_eq!(auto.choose(&outlook(100_000.0, 3_500.0, 10_000.0), true), Mode::Interrupt);
        assert_eq!(auto.choose(&outlook(100_000.0, 3_700.0, 10_000.0), true), Mode::Adaptive);
    }

    /// A thread that gets a part of its CPU, and always wants to run.
    fn with_share(share: f32) -> Auto {
        let mut auto = Auto { mode: Mode::Poll, interrupt_cpu_ns: 2_000.0, ..Auto::default() };
        let (mut now_ns, mut times) = (5_000 * MS, CpuTimes { ran_ns: 0, waited_ns: Some(0) });
        for _ in 0..200 {
            auto.look(now_ns, times);
            now_ns += 10 * MS;
            times.ran_ns += (share * 1e7) as u64;
            times.waited_ns = times.waited_ns.map(|ns| ns + ((1.0 - share) * 1e7) as u64);
        }
        assert!(share == 1.0 || (auto.share.share() - share).abs() < 0.01);
        auto
    }

    #[test]
    fn with_a_part_of_the_cpu_the_fastest_way_uses_little_of_it() {
        // Spinning for 20 µs takes 100; an interrupt, 15 µs late, takes 35.
        let fast = outlook(20_000.0, 15_000.0, 20_000.0);
        assert_eq!(with_share(1.0).choose(&fast, true), Mode::Poll);
        assert_eq!(with_share(0.2).choose(&fast, true), Mode::Interrupt);
        // Half of a CPU: 40 µs or 35.
        assert_eq!(with_share(0.5).choose(&fast, true), Mode::Interrupt);
        assert_eq!(with_share(0.7).choose(&fast, true), Mode::Poll);
        // A sleep that leaves little to spin is as good as with the whole CPU.
        let slow = outlook(100_000.0, 15_000.0, 18_000.0);
        assert_eq!(with_share(0.2).choose(&slow, true), Mode::Adaptive);
        assert_eq!(with_share(0.1).choose(&slow, true), Mode::Interrupt);
        // A wake-up costs more CPU than the whole wait.
        let fastest = outlook(1_500.0, 15_000.0, 1_500.0);
        assert_eq!(with_share(0.2).choose(&fastest, true), Mode::Poll);
        // Not tried before.
        let untried = Auto { interrupt_cpu_ns: 0.0, ..with_share(0.2) };
        assert_eq!(untried.choose(&fastest, true), Mode::Interrupt);
        assert_eq!(untried.choose(&fastest, false), Mode::Poll);
    }

    #[test]
    fn looks_every_few_ms_and_decides_once_a_second() {
        let mut auto = Auto::default();
        let (mut looks, mut decisions) = (0, 0);
        for us in 1..5_000_000u64 {
            let now_ns = 7_000_000_000 + us * 1_000;
            if auto.is_due(now_ns) {
                looks += 1;
                let times = CpuTimes { ran_ns: us * 900, waited_ns: Some(us) };
                if auto.look(now_ns, times) {
                    decisions += 1;
                    let can_interrupt = decisions % 2 == 0;
                    auto.decide(now_ns, &outlook(100_000.0, 2_000.0, 10_000.0), can_interrupt);
                }
            }
        }
        assert!((1_240..=1_250).contains(&looks), "{looks}");
        assert!((5..=6).contains(&decisions) && auto.changes() <= 5, "{decisions}");
    }
}
