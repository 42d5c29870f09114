//! The threads and limits that prevent a thread that could run from running.

/// Other threads, or a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Competition {
    /// The thread has its CPU alone.
    #[default]
    None,
    /// The thread's control group may run for a limited time in each period (`cpu.max`).
    Quota {
        /// Time in which it may run, in ns, at least 1.
        quota_ns: u64,
        /// Length of a period, in ns, at least 1.
        period_ns: u64,
    },
    /// Other threads always want the same CPU. A fair scheduler gives each thread slices of the
    /// same length, and a thread that had less than its part runs as soon as it wakes up.
    Hogs {
        /// Their number.
        count: u32,
        /// The length of a slice, in ns, at least 1.
        slice_ns: u64,
        /// They run and pause in turns of this length, in ns; with 0 they always run.
        phase_ns: u64,
    },
}

/// The state of a thread's competition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn {
    /// The current period of the quota, and what was used of it, in ns.
    period: u64,
    used_ns: u64,
    /// With hogs, the time that the thread had more than its fair part, in ns, and how long it has
    /// run in its slice.
    ahead_ns: f64,
    slice_ns: u64,
}

impl Competition {
    /// Notes that the thread runs from `now_ns` on for `ns`. Returns how long it waits in that time
    /// besides.
    pub(super) fn run(self, turn: &mut Turn, now_ns: u64, ns: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Quota { quota_ns, period_ns } => {
                let (mut at_ns, mut left_ns) = (now_ns, ns);
                loop {
                    let period = at_ns / period_ns;
                    if period > turn.period {
                        (turn.period, turn.used_ns) = (period, 0);
                    }
                    let until_refill_ns = (period + 1) * period_ns - at_ns;
                    let runs_ns =
                        left_ns.min(quota_ns.saturating_sub(turn.used_ns)).min(until_refill_ns);
                    turn.used_ns += runs_ns;
                    at_ns += runs_ns;
                    left_ns -= runs_ns;
                    if left_ns == 0 {
                        return at_ns - now_ns - ns;
                    }
                    if runs_ns < until_refill_ns {
                        at_ns = (period + 1) * period_ns;
                    }
                }
            }
            Self::Hogs { count, slice_ns, .. } if self.is_on(now_ns) => {
                let fair = 1.0 / f64::from(count + 1);
                turn.slice_ns += ns;
                turn.ahead_ns += ns as f64 * (1.0 - fair);
                if turn.slice_ns < slice_ns || turn.ahead_ns <= 0.0 {
                    return 0;
                }
                turn.slice_ns = 0;
                let waits_ns = u64::from(count) * slice_ns;
                turn.ahead_ns -= waits_ns as f64 * fair;
                waits_ns
            }
            Self::Hogs { .. } => 0,
        }
    }

    /// Returns whether other threads want the CPU.
    fn is_on(self, now_ns: u64) -> bool {
        let Self::Hogs { phase_ns, .. } = self else { return false };
        phase_ns == 0 || (now_ns / phase_ns).is_multiple_of(2)
    }

    /// Notes that the thread has slept for `ns`, until `now_ns`. Returns how long it waits before
    /// it runs.
    pub(super) fn wake(self, turn: &mut Turn, now_ns: u64, ns: u64) -> u64 {
        let Self::Hogs { count, slice_ns, .. } = self else { return 0 };
        let fair = 1.0 / f64::from(count + 1);
        turn.slice_ns = 0;
        // A long sleep earns at most one slice.
        turn.ahead_ns = (turn.ahead_ns - ns as f64 * fair).max(-(slice_ns as f64));
        if !self.is_on(now_ns) {
            return 0;
        }
        let waits_ns = (turn.ahead_ns.max(0.0) / fair) as u64;
        turn.ahead_ns -= waits_ns as f64 * fair;
        waits_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs and sleeps in turns for a second. Returns the parts of it that the thread ran and
    /// waited.
    fn parts(competition: Competition, runs_ns: u64, sleeps_ns: u64) -> (f64, f64) {
        let mut turn = Turn::default();
        let (mut now_ns, mut ran_ns, mut waited_ns) = (0, 0, 0);
        while now_ns < 1_000_000_000 {
            let waits_ns = competition.run(&mut turn, now_ns, runs_ns);
            now_ns += runs_ns + waits_ns + sleeps_ns;
            let woken_ns = match sleeps_ns {
                0 => 0,
                _ => competition.wake(&mut turn, now_ns, sleeps_ns),
            };
            now_ns += woken_ns;
            ran_ns += runs_ns;
            waited_ns += waits_ns + woken_ns;
        }
        (ran_ns as f64 / now_ns as f64, waited_ns as f64 / now_ns as f64)
    }

    #[test]
    fn a_spinning_thread_gets_its_part() {
        let quota = Competition::Quota { quota_ns: 20_000_000, period_ns: 100_000_000 };
        let (ran, waited) = parts(quota, 1_000, 0);
        assert!((ran - 0.2).abs() < 0.001 && (waited - 0.8).abs() < 0.001, "{ran} {waited}");
        // This is longer than the quota of a period.
        assert!((parts(quota, 70_000_000, 0).0 - 0.2).abs() < 0.02);
        for count in [1, 2, 4] {
            let hogs = Competition::Hogs { count, slice_ns: 3_000_000, phase_ns: 0 };
            let fair = 1.0 / f64::from(count + 1);
            assert!((parts(hogs, 1_000, 0).0 - fair).abs() < 0.01);
        }
        assert_eq!(parts(Competition::None, 1_000, 0), (1.0, 0.0));
    }

    #[test]
    fn who_sleeps_enough_never_waits() {
        let quota = Competition::Quota { quota_ns: 20_000_000, period_ns: 100_000_000 };
        assert_eq!(parts(quota, 1_000, 5_000).1, 0.0);
        let hogs = Competition::Hogs { count: 1, slice_ns: 3_000_000, phase_ns: 0 };
        assert_eq!(parts(hogs, 1_000, 2_000).1, 0.0);
        // A thread that sleeps too little gets its fair part.
        let (ran, waited) = parts(hogs, 3_000, 1_000);
        assert!((0.45..0.55).contains(&ran) && waited > 0.2, "{ran} {waited}");
    }
}
