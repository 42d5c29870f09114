//! Choosing between interrupt, adaptive and poll while running.
//!
//! Among the policies whose estimated mean latency is within 3 % of polling's, it takes the one
//! that uses the least CPU. It reconsiders once a second, and changes only to save a tenth of the
//! CPU or to keep the latency. While other threads compete for the CPU, a spinning thread is
//! preempted in the middle of an I/O, for ms; a sleeping one is not (Le Moal's finding): then it
//! sleeps, whatever that saves.

use super::adaptive::Outlook;

/// Time between two decisions, in ns.
const LOOK_NS: u64 = 1_000_000_000;
/// Time until the first decision, when there are observations, in ns.
const FIRST_LOOK_NS: u64 = 20_000_000;
/// The mean latency may exceed polling's by this share.
const LATENCY: f32 = 0.03;
/// A change has to reduce the CPU to this factor.
const SAVING: f32 = 0.9;
/// A thread that is preempted more often per second than this has competition. Beside one thread
/// that always wants the CPU, it is 125 times and more; occasionally the kernel's own threads
/// preempt it, too.
const SWITCHES_PER_SECOND: f32 = 60.0;
/// Under competition a thread keeps its sleeps if it needs at most this share of the CPU.
const MODEST_SHARE: f32 = 0.25;
/// Number of decisions for which competition is assumed to last when first seen; doubled each time
/// it is seen again.
const FIRST_PATIENCE: u32 = 10;
const LONGEST_PATIENCE: u32 = 600;
/// An interrupt does not show when the I/O ended, so one I/O in this many is waited for otherwise.
/// With others in flight, waiting for both queues means spinning: then it is done hardly ever.
const PROBE: u32 = 32;
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

/// The choice of one channel, and its inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Auto {
    mode: Mode,
    looked_ns: Option<u64>,
    switches: u64,
    /// Decisions until competition is assumed to be over, and the number to use next time.
    contended: u32,
    patience: u32,
    /// Decisions without competition.
    calm: u32,
    sent: u32,
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

    /// Whether the next I/O uses the interrupt; `alone`: no other is in flight.
    #[inline]
    pub(crate) fn interrupts(&mut self, alone: bool) -> bool {
        self.sent = self.sent.wrapping_add(1);
        self.mode == Mode::Interrupt
            && !self.sent.is_multiple_of(if alone { PROBE } else { PROBE_DEEP })
    }

    /// Whether a decision is due.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.looked_ns.is_none_or(|looked_ns| now_ns.saturating_sub(looked_ns) >= LOOK_NS)
    }

    /// Decides. `outlook` is the expectation; `can_interrupt`: whether there is a queue with an
    /// interrupt; `switches`: the number of times that this thread was preempted so far.
    #[cold]
    pub(crate) fn look(
        &mut self,
        now_ns: u64,
        outlook: &Outlook,
        can_interrupt: bool,
        switches: u64,
    ) {
        let before = std::mem::replace(&mut self.switches, switches);
        let Some(looked_ns) = self.looked_ns.replace(now_ns) else {
            // The next decision comes soon.
            self.looked_ns = Some(now_ns.saturating_sub(LOOK_NS - FIRST_LOOK_NS));
            return;
        };
        let rate =
            switches.saturating_sub(before) as f32 * 1e9 / (now_ns - looked_ns).max(1) as f32;
        self.note_competition(rate > SWITCHES_PER_SECOND);
        let mode = self.choose(outlook, can_interrupt);
        if mode != self.mode {
            self.changes += 1;
            self.mode = mode;
        }
    }

    fn note_competition(&mut self, seen: bool) {
        if seen {
            if self.contended == 0 {
                self.patience = (2 * self.patience).clamp(FIRST_PATIENCE, LONGEST_PATIENCE);
            }
            (self.contended, self.calm) = (self.patience, 0);
        } else {
            self.contended = self.contended.saturating_sub(1);
            // After twice the patience without competition, the patience halves.
            self.calm += 1;
            if self.calm > 2 * self.patience {
                (self.patience, self.calm) = (self.patience / 2, 0);
            }
        }
    }

    fn choose(&self, outlook: &Outlook, can_interrupt: bool) -> Mode {
        if outlook.device_ns <= 0.0 {
            return self.mode;
        }
        // The lateness measured at start-up: that of the I/Os cannot be separated from the device's
        // own variation.
        let late_ns = outlook.interrupt_late_ns;
        if self.contended > 0 {
            // Sleeps, if they leave most of the gap to others; else the interrupt, if the device
            // takes longer than the CPU time of a sleep.
            let modest = outlook.planned_cpu_ns < MODEST_SHARE * outlook.device_ns;
            let interrupt = can_interrupt && !modest && outlook.device_ns > outlook.sleep_cpu_ns;
            return if interrupt { Mode::Interrupt } else { Mode::Adaptive };
        }
        let allowed_ns = LATENCY * outlook.device_ns;
        let candidates = [
            (Mode::Poll, 0.0, outlook.device_ns),
            (Mode::Adaptive, outlook.planned_late_ns.min(allowed_ns), outlook.planned_cpu_ns),
            (
                Mode::Interrupt,
                if can_interrupt { late_ns } else { f32::INFINITY },
                outlook.sleep_cpu_ns,
            ),
        ];
        let cpu_ns = |mode| {
            candidates.iter().find(|(of, ..)| *of == mode).map_or(f32::INFINITY, |(_, _, cpu)| *cpu)
        };
        // The current choice may exceed the limit slightly, to avoid oscillation.
        let slack = |mode| if mode == self.mode { 1.2 } else { 1.0 };
        let best = candidates
            .iter()
            .filter(|(mode, late_ns, _)| *late_ns <= slack(*mode) * allowed_ns)
            .min_by(|a, b| a.2.total_cmp(&b.2))
            .map_or(Mode::Poll, |(mode, ..)| *mode);
        let in_force_is_late = candidates
            .iter()
            .any(|(mode, late_ns, _)| *mode == self.mode && *late_ns > slack(*mode) * allowed_ns);
        if in_force_is_late || cpu_ns(best) < SAVING * cpu_ns(self.mode) { best } else { self.mode }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A device of 100 µs on a machine that wakes in `late_ns`, where planned sleeps leave 10 µs of
    /// spinning.
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

    #[test]
    fn competition_is_remembered_for_longer_each_time() {
        let mut auto = Auto::default();
        auto.note_competition(true);
        assert_eq!(auto.contended, FIRST_PATIENCE);
        // Where no sleep pays, a thread under competition uses the interrupt.
        assert_eq!(auto.choose(&outlook(20_000.0, 15_000.0, 20_000.0), true), Mode::Interrupt);
        assert_eq!(auto.choose(&outlook(20_000.0, 15_000.0, 6_000.0), true), Mode::Interrupt);
        assert_eq!(auto.choose(&outlook(20_000.0, 15_000.0, 4_000.0), true), Mode::Adaptive);
        assert_eq!(auto.choose(&outlook(1_500.0, 15_000.0, 1_500.0), true), Mode::Adaptive);
        (0..FIRST_PATIENCE).for_each(|_| auto.note_competition(false));
        assert_eq!(auto.contended, 0);
        auto.note_competition(true);
        assert_eq!(auto.contended, 2 * FIRST_PATIENCE);
    }

    #[test]
    fn looks_once_a_second_at_most() {
        let mut auto = Auto::default();
        let mut looks = 0;
        for ms in 1..5_000u64 {
            let now_ns = 7_000_000_000 + ms * 1_000_000;
            if auto.is_due(now_ns) {
                looks += 1;
                auto.look(now_ns, &outlook(100_000.0, 2_000.0, 10_000.0), ms % 2 == 0, 0);
            }
        }
        assert!(looks <= 7, "{looks}");
        assert!(auto.changes() <= 5);
    }
}
