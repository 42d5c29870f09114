//! Dynamic PAS: "DPAS: A Prompt, Accurate and Safe I/O Completion Method for SSDs", FAST 2026.

use super::pas::Pas;
use meantime_completion::Class;
use meantime_completion::rule::{Choice, Rule, Sample};

/// Number of I/Os after which PAS, overloaded or not, is judged.
const JUDGED_OVER: u32 = 100;

/// Number of I/Os for which classic polling lasts.
const CLASSIC_FOR: u32 = 1_000;

/// Number of I/Os for which the interrupt lasts.
const INTERRUPT_FOR: u32 = 10_000;

/// θ, the mean depth above which an overloaded queue changes to the interrupt. This is the authors'
/// value for Optane; for NAND they use 1.
pub const OPTANE_THETA: u32 = 3;

/// The way in which a queue's I/Os are waited for at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DpasMode {
    /// Each wait sleeps for the time that [`Pas`] chooses.
    Pas,
    /// Each wait polls without a sleep (classic polling).
    Classic,
    /// Each wait still sleeps as in [`DpasMode::Pas`], but a sleep has hit the floor, so sleeping
    /// no longer pays.
    Overloaded,
    /// Each wait is for the interrupt.
    Interrupt,
}

/// Switches between [`Pas`], classic polling and the interrupt.
///
/// From PAS, after each 100 I/Os, it changes to overloaded if a sleep has hit the floor, and
/// otherwise to classic polling if the mean depth is 1. From classic polling it changes to PAS
/// after 1,000 I/Os. From overloaded, after each 100 I/Os, it changes to PAS at a mean depth of 1,
/// and to the interrupt above θ. From the interrupt it changes to overloaded after 10,000 I/Os.
///
/// Where the publication leaves room:
/// - A mean depth is truncated to tenths, as in the authors' implementation: 1 means less than 1.1.
///   The depth of an I/O is the number in flight on its channel when it is found complete, itself
///   included.
/// - An I/O counts for the mode in which it ends.
/// - The publication sets θ by hand. The default here is the value for Optane, [`OPTANE_THETA`],
///   since this library is for fast devices.
/// - The first mode is PAS.
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
    /// Creates the rule. Above a mean depth of `theta` an overloaded queue changes to the
    /// interrupt.
    pub fn new(theta: u32) -> Self {
        Self { pas: Pas::default(), theta, mode: DpasMode::Pas, ios: 0, depths: 0, floor_hits: 0 }
    }

    /// Returns how I/Os are waited for at present.
    pub fn mode(&self) -> DpasMode {
        self.mode
    }

    /// Returns the next mode, once the present one has lasted for the I/Os after which it is
    /// judged.
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

    /// Completes `count` I/Os at `depth`, after a sleep if `rule` asks for one.
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

    /// Completes underslept I/Os, `count` at each depth. They never hit the floor.
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
        // Each judgement starts from zero: an earlier depth of 4 has no effect.
        assert_eq!(at_depth(&[(100, 4), (100, 1)]).mode(), DpasMode::Classic);
    }

    /// By hand: a first result of "overslept" makes 100 × 0.9 = 90 of the sleep, which hits the
    /// floor. So after 100 I/Os the queue is overloaded, whatever the depth. That lasts for 100
    /// I/Os, then the depth decides: 1 is PAS; 3.0 is neither; 3.1 is the interrupt.
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
