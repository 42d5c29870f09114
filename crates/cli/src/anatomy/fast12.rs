//! FAST 2012's times: the CPU cost of an I/O, and the time left to other programs.
//!
//! A second program runs on the same CPU and reads the time stamp counter continuously, so it knows
//! when it ran. For each I/O:
//!
//! - Td: the device works, from the doorbell to the CQE written; from its stamps;
//! - Tu: the second program really ran, from before the submission to after the completion;
//! - Ta = total − Td: the part of the path that does not overlap the device (Ta' before it, Ta''
//!   after);
//! - Tb = Td − Tu: the part of the device's time that no program got: scheduling the other program
//!   and coming back – or polling;
//! - Ta + Tb = total − Tu: the CPU cost of the I/O.
//!
//! Tb is below 0 where the other program still runs after the device is done, until the interrupt
//! has reached the CPU. The paper's machine did not have such a time.

use super::results::Bar;
use crate::competitor::Sample;

/// The times of one device, size and policy, in ns: means of the middle half of I/Os, so that they
/// add up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fast12 {
    /// Before the device works.
    pub ta_before_ns: f64,
    /// After the device worked.
    pub ta_after_ns: f64,
    /// While the device works.
    pub td_ns: f64,
    /// The part of the device's time that no program got.
    pub tb_ns: f64,
    /// The other program's time.
    pub tu_ns: f64,
    /// Share of the total time in which the other program ran, in percent.
    pub share_percent: f64,
    /// Speed of its work, in percent of its speed alone.
    pub speed_percent: f64,
}

impl Fast12 {
    /// Returns the times of `bar`. `alone` is the other program's sample with the CPU for itself.
    /// Returns `None` without such a program.
    pub(super) fn new(bar: &Bar, alone: &Sample) -> Option<Self> {
        let tally = &bar.competing;
        if tally.ios() == 0 {
            return None;
        }
        let typical = tally.typical();
        let (td_ns, tu_ns) = (typical.device_ns(), typical.competitor_ns);
        let ta_before_ns = typical.parts_ns[0];
        let alone_per_second = alone.work_per_second();
        Some(Self {
            ta_before_ns,
            ta_after_ns: typical.host_ns() - ta_before_ns,
            td_ns,
            tb_ns: td_ns - tu_ns,
            tu_ns,
            share_percent: tally.competed.share_percent(),
            speed_percent: match alone_per_second {
                speed if speed > 0.0 => tally.competed.work_per_second() / speed * 100.0,
                _ => 0.0,
            },
        })
    }

    /// Returns the time that does not overlap the device.
    pub(super) fn ta_ns(&self) -> f64 {
        self.ta_before_ns + self.ta_after_ns
    }

    /// Returns the CPU cost of the I/O.
    pub(super) fn cost_ns(&self) -> f64 {
        self.ta_ns() + self.tb_ns
    }

    /// Returns the total time.
    pub(super) fn total_ns(&self) -> f64 {
        self.ta_ns() + self.td_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::Tally;
    use super::super::timeline::TimeLine;
    use super::*;

    /// The paper's own numbers.
    #[test]
    fn as_in_the_paper() {
        let mut competing = Tally::default();
        for _ in 0..100 {
            let parts_ns = [1_900, 0, 0, 4_100, 2_800, 100, 100];
            competing.record(&TimeLine { parts_ns, competitor_ns: 2_700, ..TimeLine::default() });
        }
        competing.competed = Sample { at_ns: 9_000, ran_ns: 2_700, work: 270, ..Sample::default() };
        let policy = meantime_completion::Policy::Interrupt;
        let device = "mem:1M".to_owned();
        let bar =
            Bar { device, stamped: true, bytes: 4096, policy, alone: Tally::default(), competing };
        let alone = Sample { at_ns: 1_000, ran_ns: 1_000, work: 100, ..Sample::default() };
        let times = Fast12::new(&bar, &alone).unwrap();
        assert_eq!((times.ta_ns(), times.ta_before_ns, times.td_ns), (4_900.0, 1_900.0, 4_100.0));
        assert_eq!((times.tb_ns, times.tu_ns, times.cost_ns()), (1_400.0, 2_700.0, 6_300.0));
        assert_eq!(times.total_ns(), times.cost_ns() + times.tu_ns);
        assert!(
            (29.9..30.1).contains(&times.share_percent)
                && (29.9..30.1).contains(&times.speed_percent)
        );
    }
}
