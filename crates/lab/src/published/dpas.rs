//! Dynamic PAS: "DPAS: A Prompt, Accurate and Safe I/O Completion Method for SSDs", FAST 2026.

use super::pas::Pas;
use meantime_completion::Class;
use meantime_completion::rule::{Choice, Rule, Sample};

/// How many I/Os PAS, overloaded or not, is judged over.
const JUDGED_OVER: u32 = 100;

/// How many I/Os classic polling lasts.
const CLASSIC_FOR: u32 = 1_000;

/// How many I/Os the interrupt lasts.
const INTERRUPT_FOR: u32 = 10_000;

/// θ, the mean depth above which an overloaded queue goes to the interrupt, as the authors set it
/// for Optane. For NAND they set 1.
pub const OPTANE_THETA: u32 = 3;

/// How a queue's I/Os are waited for at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DpasMode {
    /// Each slept for as [`Pas`] says.
    Pas,
    /// Classic polling.
    Classic,
    /// As [`DpasMode::Pas`], but the timer has stopped to be of use.
    Overloaded,
    /// The interrupt.
    Interrupt,
}

/// Switches between [`Pas`], classic polling and the interrupt.
///
/// From PAS, each 100 I/Os: to overloaded, if a sleep has hit the floor; else to classic polling,
/// if the mean depth is 1. From classic polling to PAS after 1,000 I/Os. From overloaded, each 100
/// I/Os: to PAS at a mean depth of 1, to the interrupt above θ. From the interrupt to overloaded
/// after 10,000 I/Os.
///
/// Where what is published leaves room:
/// - A mean depth is cut to tenths, as in the authors' implementation: 1 means less than 1.1. The
///   depth of an I/O is how many were in flight on its channel when it was found complete, itself
///   included.
/// - An I/O counts for the mode in which it ends.
/// - θ is set by hand there; here it is the one for Optane, [`OPTANE_THETA`], by
///   default: this is for fast devices.
/// - It begins with PAS.
#[derive(Debug, Clone)]
pub struct Dpas {
    pas: Pas,
    theta: u32,
    mode: DpasMode,
    ios: u32,
    depths: u64,
    floor_hits: u32,
}

impl Default for Dpas {
    fn default() -> Self {
        Self::new(OPTANE_THETA)
    }
}

impl Dpas {
    /// With the mean depth above which an overloaded queue goes to the interrupt.
    pub fn new(theta: u32) -> Self {
        Self { pas: Pas::default(), theta, mode: DpasMode::Pas, ios: 0, depths: 0, floor_hits: 0 }
    }

    /// How I/Os are waited for at present.
    pub fn mode(&self) -> DpasMode {
        self.mode
    }

    /// The next mode, once the present one has lasted for what it is judged over.
    fn judge(&self) -> Option<DpasMode> {
        let depth_tenths = || self.depths * 10 / u64::from(self.ios.max(1));
        match self.mode {
            DpasMode::Pas if self.ios < JUDGED_OVER => None,
            DpasMode::Pas if self.floor_hits > 0 => Some(DpasMode::Overloaded),
            DpasMode::Pas if depth_tenths() <= 10 => Some(DpasMode::Classic),
            DpasMode::Pas => Some(DpasMode::Pas),
            DpasMode::Classic => (self.ios >= CLASSIC_FOR).then_some(DpasMode::Pas),
            DpasMode::Overloaded if self.ios < JUDGED_OVER => None,
            DpasMode::Overloaded if depth_tenths() <= 10 => Some(DpasMode::Pas),
            DpasMode::Overloaded if depth_tenths() > u64::from(self.theta) * 10 => {
                Some(DpasMode::Interrupt)
            }
            DpasMode::Overloaded => Some(DpasMode::Overloaded),
            DpasMode::Interrupt => (self.ios >= INTERRUPT_FOR).then_some(DpasMode::Overloaded),
        }
    }
}

impl Rule for Dpas {
    #[inline]
    fn choose(&mut self, class: Class) -> Choice {
        match self.mode {
            DpasMode::Pas | DpasMode::Overloaded => {
                let choice = self.pas.choose(class);
                self.floor_hits += self.pas.take_floor_hits();
                choice
            }
            DpasMode::Classic => Choice::Sleep(0),
            DpasMode::Interrupt => Choice::Interrupt,
        }
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        if matches!(self.mode, DpasMode::Pas | DpasMode::Overloaded) {
            self.pas.record(sample);
        }
        self.ios += 1;
        self.depths += u64::from(sample.in_flight);
        if let Some(mode) = self.judge() {
            (self.mode, self.ios, self.depths, self.floor_hits) = (mode, 0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pas::tests::io;
    use super::super::tests::sample;
    use super::*;
    use meantime_completion::Kind;

    /// Ends `count` I/Os at `depth`, slept for as `rule` says, if it says so.
    fn ios(rule: &mut Dpas, count: u32, overslept: bool, depth: u16) {
        for _ in 0..count {
            match rule.mode() {
                DpasMode::Pas | DpasMode::Overloaded => drop(io(rule, overslept, depth)),
                DpasMode::Classic | DpasMode::Interrupt => {
                    let class = Class::new(Kind::Read, 4096, usize::from(depth));
                    rule.record(&Sample { in_flight: depth, ..sample(class, 10_000, 1) });
                }
            }
        }
    }

    /// 100 underslept I/Os never hit the floor.
    fn at_depth(depths: &[(u32, u16)]) -> Dpas {
        let mut rule = Dpas::default();
        depths.iter().for_each(|&(count, depth)| ios(&mut rule, count, false, depth));
        rule
    }

    /// By hand: 100 × 1 = 100, mean 1. 91 × 1 + 9 × 2 = 109, 1.09 → 1.0: classic. 90 × 1 + 10 × 2 =
    /// 110, 1.1: PAS.
    #[test]
    fn pas_at_depth_1_becomes_classic_polling_for_1000_ios() {
        let mut rule = at_depth(&[(99, 1)]);
        assert_eq!(rule.mode(), DpasMode::Pas);
        ios(&mut rule, 1, false, 1);
        assert_eq!(
            (rule.mode(), rule.choose(Class::default())),
            (DpasMode::Classic, Choice::Sleep(0))
        );
        ios(&mut rule, 999, false, 1);
        assert_eq!(rule.mode(), DpasMode::Classic);
        ios(&mut rule, 1, false, 1);
        assert_eq!(rule.mode(), DpasMode::Pas);
        assert_eq!(at_depth(&[(91, 1), (9, 2)]).mode(), DpasMode::Classic);
        assert_eq!(at_depth(&[(90, 1), (10, 2)]).mode(), DpasMode::Pas);
        // Judged anew: a depth of 4 before is forgotten.
        assert_eq!(at_depth(&[(100, 4), (100, 1)]).mode(), DpasMode::Classic);
    }

    /// By hand: a first result of "overslept" makes 100 × 0.9 = 90 of the sleep, which hits the
    /// floor; so after 100 I/Os it is overloaded, whatever the depth. That lasts for 100, then the
    /// depth decides: 1 is PAS; 3.0 is neither; 3.1 is the interrupt.
    #[test]
    fn a_floor_hit_is_overloaded_and_the_depth_decides() {
        for (depths, then) in [
            ([(100, 1), (0, 0)], DpasMode::Pas),
            ([(91, 1), (9, 2)], DpasMode::Pas),
            ([(90, 1), (10, 2)], DpasMode::Overloaded),
            ([(100, 3), (0, 0)], DpasMode::Overloaded),
            ([(91, 3), (9, 4)], DpasMode::Overloaded),
            ([(90, 3), (10, 4)], DpasMode::Interrupt),
        ] {
            let mut rule = Dpas::default();
            ios(&mut rule, 1, true, 1);
            ios(&mut rule, 99, false, 1);
            assert_eq!(rule.mode(), DpasMode::Overloaded);
            assert!(
                matches!(rule.choose(Class::default()), Choice::Sleep(1..)),
                "slept for as by PAS"
            );
            depths.into_iter().for_each(|(count, depth)| ios(&mut rule, count, false, depth));
            assert_eq!(rule.mode(), then, "{depths:?}");
        }
    }

    /// θ = 1, for NAND: 2 is above it.
    #[test]
    fn theta_is_as_told() {
        for (theta, then) in [(1, DpasMode::Interrupt), (2, DpasMode::Overloaded)] {
            let mut rule = Dpas::new(theta);
            ios(&mut rule, 100, true, 2);
            ios(&mut rule, 100, false, 2);
            assert_eq!(rule.mode(), then, "{theta}");
        }
    }

    #[test]
    fn the_interrupt_lasts_for_10000_ios() {
        let mut rule = Dpas::default();
        ios(&mut rule, 200, true, 8);
        assert_eq!(
            (rule.mode(), rule.choose(Class::default())),
            (DpasMode::Interrupt, Choice::Interrupt)
        );
        ios(&mut rule, 9_999, false, 1);
        assert_eq!(rule.mode(), DpasMode::Interrupt);
        ios(&mut rule, 1, false, 1);
        assert_eq!(rule.mode(), DpasMode::Overloaded);
        ios(&mut rule, 100, false, 1);
        assert_eq!(rule.mode(), DpasMode::Pas);
    }
}
