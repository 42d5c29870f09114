//! Per-I/O adaptive sleep: "DPAS: A Prompt, Accurate and Safe I/O Completion Method for SSDs", FAST
//! 2026.

use super::bucket::{BUCKETS, bucket_of};
use meantime_completion::Class;
use meantime_completion::rule::{Choice, Rule, Sample};

/// The shortest sleep, and the first.
const FLOOR_NS: f64 = 100.0;

/// Limit that keeps a growing sleep finite.
const LONGEST_NS: f64 = 1e9;

const UP: f64 = 0.01;
const DOWN: f64 = 0.1;
const MIN_DOWN: f64 = 0.01;
const MAX_DOWN: f64 = 0.1;

/// Ratio of `down` to `up`.
const DOWN_TO_UP: f64 = 10.0;

/// Growth of `down` after two equal results.
const HEAT: f64 = 0.05;

/// Shrinkage of `up` after two different results.
const COOL: f64 = 0.1;

/// A sleep for each bucket. After each I/O it is multiplied by a factor, which depends on whether
/// this sleep and the last one were too long.
///
/// Where the publication leaves room:
/// - The published state is per CPU and bucket; here it is per channel, which is one thread's, and
///   bucket.
/// - A sleep gives one result, whatever number of I/Os it ends with: overslept, if the first look
///   after it found anything. An I/O that was not slept for gives none.
/// - Times and factors are real numbers, not fixed-point ones; a sleep is at most 1 s. As in the
///   authors' implementation, a factor that falls to 0 becomes 1, and the history before the first
///   result is "overslept, underslept".
#[derive(Debug, Clone)]
pub struct Pas {
    buckets: [Sleep; BUCKETS],
    /// The bucket of the last sleep that was chosen.
    asked: Option<usize>,
    floor_hits: u32,
}

#[derive(Debug, Clone, Copy)]
struct Sleep {
    ns: f64,
    factor: f64,
    up: f64,
    down: f64,
    was_over: bool,
    /// The last result, not yet applied to `ns`.
    over: Option<bool>,
}

impl Default for Pas {
    fn default() -> Self {
        let first =
            Sleep { ns: FLOOR_NS, factor: 1.0, up: UP, down: DOWN, was_over: false, over: None };
        Self { buckets: [first; BUCKETS], asked: None, floor_hits: 0 }
    }
}

impl Pas {
    /// Returns the sleep for I/Os of `class` in ns, before the last result is applied.
    pub fn sleep_ns(&self, class: Class) -> u64 {
        self.buckets[bucket_of(class)].ns as u64
    }

    /// Returns how often a sleep would have become shorter than the floor since the last call.
    pub(super) fn take_floor_hits(&mut self) -> u32 {
        std::mem::take(&mut self.floor_hits)
    }
}

impl Sleep {
    /// Applies a result. Returns whether the sleep would have become shorter than the floor.
    fn adjust(&mut self, over: bool) -> bool {
        match (self.was_over, over) {
            (true, true) => self.factor -= self.down,
            (true, false) => self.factor = 1.0 + self.up,
            (false, true) => self.factor = 1.0 - self.down,
            (false, false) => self.factor += self.up,
        }
        if self.factor <= 0.0 {
            self.factor = 1.0;
        }
        let ns = self.ns * self.factor;
        self.ns = ns.clamp(FLOOR_NS, LONGEST_NS);
        if self.was_over == over {
            self.down = (self.down * (1.0 + HEAT)).min(MAX_DOWN);
            self.up = self.down / DOWN_TO_UP;
        } else {
            self.up = (self.up * (1.0 - COOL)).max(MIN_DOWN / DOWN_TO_UP);
            self.down = self.up * DOWN_TO_UP;
        }
        self.was_over = over;
        ns < FLOOR_NS
    }
}

impl Rule for Pas {
    #[inline]
    fn choose(&mut self, class: Class) -> Choice {
        let index = bucket_of(class);
        let sleep = &mut self.buckets[index];
        if let Some(over) = sleep.over.take() {
            self.floor_hits += u32::from(sleep.adjust(over));
        }
        self.asked = Some(index);
        Choice::Sleep(sleep.ns as u64)
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        // A sleep of another policy is not a result for this one.
        let asked = self.asked.map(|index| &mut self.buckets[index]);
        let Some(sleep) =
            asked.filter(|sleep| sample.slept_ns > 0 && sample.slept_ns == sleep.ns as u64)
        else {
            return;
        };
        sleep.over = Some(sample.overslept);
        self.asked = None;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::sample;
    use super::*;
    use meantime_completion::Kind;

    fn class(kind: Kind) -> Class {
        Class::new(kind, 4096, 1)
    }

    /// Sends an I/O of 4 KiB that is slept for as `rule` says, and returns the sleep.
    pub(crate) fn io(rule: &mut impl Rule, overslept: bool, in_flight: u16) -> u64 {
        let Choice::Sleep(slept_ns) = rule.choose(class(Kind::Read)) else {
            panic!("an interrupt")
        };
        rule.record(&Sample {
            slept_ns,
            overslept,
            in_flight,
            ..sample(class(Kind::Read), 10_000, 1)
        });
        slept_ns
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs()
    }

    /// By hand, from 1,000 ns with factor 1, up 0.01, down 0.1, last underslept:
    /// - under: 1 + 0.01 = 1.01, 1,010; equal: down min(0.105, 0.1) = 0.1, up 0.01
    /// - under: 1.01 + 0.01 = 1.02, 1,030.2; the same
    /// - over: 1 − 0.1 = 0.9, 927.18; different: up 0.009, down 0.09
    /// - over: 0.9 − 0.09 = 0.81, 751.0158; equal: down 0.0945, up 0.00945
    /// - over: 0.81 − 0.0945 = 0.7155, 537.3518049; equal: down 0.099225, up 0.0099225
    /// - under: 1 + 0.0099225, 542.68367818…; different: up 0.00893025, down 0.0893025
    /// - over: 1 − 0.0893025, 494.22066…; different: up 0.008037225, down 0.08037225
    #[test]
    fn the_sleep_by_the_last_two_results() {
        let mut sleep = Sleep { ns: 1_000.0, ..Pas::default().buckets[0] };
        let steps = [
            (false, 1_010.0, 0.1),
            (false, 1_030.2, 0.1),
            (true, 927.18, 0.09),
            (true, 751.0158, 0.0945),
            (true, 537.351_804_9, 0.099_225),
            (false, 537.351_804_9 * 1.009_922_5, 0.089_302_5),
            (true, 537.351_804_9 * 1.009_922_5 * 0.910_697_5, 0.080_372_25),
        ];
        for (step, (over, ns, down)) in steps.into_iter().enumerate() {
            assert!(!sleep.adjust(over), "step {step}");
            assert!(
                close(sleep.ns, ns) && close(sleep.down, down) && close(sleep.up, down / 10.0),
                "{step}: {sleep:?}"
            );
        }
    }

    /// By hand: results that differ each time leave 0.1 × 0.9^21 = 0.01094… of down. Once more ×
    /// 0.9 makes 0.00985 < 0.01, where it stays, with up at a tenth. Then 48 equal ones: 0.01 ×
    /// 1.05^47 = 0.0991, × 1.05 = 0.104 > 0.1.
    #[test]
    fn the_steps_have_bounds() {
        let mut sleep = Sleep { ns: 10_000.0, ..Pas::default().buckets[0] };
        for turn in 0..21 {
            sleep.adjust(turn % 2 == 0);
        }
        assert!(close(sleep.down, 0.1 * 0.9_f64.powi(21)), "{sleep:?}");
        for turn in 0..10 {
            sleep.adjust(turn % 2 == 1);
        }
        assert!(close(sleep.down, 0.01) && close(sleep.up, 0.001), "{sleep:?}");
        let over = sleep.was_over;
        for _ in 0..48 {
            sleep.adjust(over);
        }
        assert!(close(sleep.down, 0.1) && close(sleep.up, 0.01), "{sleep:?}");
    }

    /// By hand: over after under makes 0.9 × 111 = 99.9 < 100, a hit; 112 gives 100.8, no hit. Over
    /// after over with 0.6 − 0.1 = 0.5 makes 100 of 200: exactly the floor, no hit.
    #[test]
    fn the_floor_is_hit_from_above() {
        for (ns, hit, left_ns) in [(111.0, true, 100.0), (112.0, false, 100.8)] {
            let mut sleep = Sleep { ns, ..Pas::default().buckets[0] };
            assert_eq!(sleep.adjust(true), hit, "{ns}");
            assert!(close(sleep.ns, left_ns), "{ns}: {sleep:?}");
        }
        let mut sleep =
            Sleep { ns: 200.0, factor: 0.6, was_over: true, ..Pas::default().buckets[0] };
        assert_eq!((sleep.adjust(true), sleep.ns), (false, 100.0));
    }

    /// A factor that falls with every oversleep becomes 1 at 0 or less. A sleep that is never too
    /// long stops growing at 1 s.
    #[test]
    fn neither_factor_nor_sleep_leaves_its_range() {
        let mut sleep = Pas::default().buckets[0];
        for _ in 0..1_000 {
            sleep.adjust(true);
            assert!(sleep.factor > 0.0 && sleep.factor <= 1.0 && sleep.ns == 100.0, "{sleep:?}");
        }
        for _ in 0..100_000 {
            sleep.adjust(false);
        }
        assert!(sleep.ns == 1e9 && sleep.factor.is_finite(), "{sleep:?}");
        sleep.adjust(true);
        assert!(sleep.ns < 1e9);
    }

    /// By hand: 100; underslept, 100 × 1.01 = 101; underslept, 101 × 1.02 = 103.02; overslept,
    /// 103.02 × 0.9 = 92.7, below the floor: a hit. A write has its own sleep.
    #[test]
    fn from_one_io_to_the_next() {
        let mut rule = Pas::default();
        assert_eq!([false, false, true].map(|over| io(&mut rule, over, 1)), [100, 101, 103]);
        assert_eq!(rule.take_floor_hits(), 0, "the next I/O takes it in");
        assert_eq!(rule.choose(class(Kind::Read)), Choice::Sleep(100));
        assert_eq!((rule.take_floor_hits(), rule.take_floor_hits()), (1, 0));
        assert_eq!(rule.choose(class(Kind::Write)), Choice::Sleep(100));
    }

    #[test]
    fn a_sleep_gives_one_result_and_what_was_not_slept_for_none() {
        let read = class(Kind::Read);
        let mut rule = Pas::default();
        rule.record(&sample(read, 10_000, 1));
        assert_eq!(rule.choose(read), Choice::Sleep(100));
        assert_eq!(rule.choose(read), Choice::Sleep(100), "asking changes nothing");
        rule.record(&sample(read, 10_000, 1));
        rule.record(&Sample { slept_ns: 5_000, overslept: true, ..sample(read, 10_000, 1) });
        assert_eq!(rule.choose(read), Choice::Sleep(100));
        // Two I/Os ended in the wait for one of them; the second gives no further result.
        rule.record(&Sample { slept_ns: 100, ..sample(read, 10_000, 1) });
        rule.record(&Sample {
            slept_ns: 100,
            overslept: true,
            ..sample(class(Kind::Write), 10_000, 1)
        });
        assert_eq!(rule.choose(class(Kind::Write)), Choice::Sleep(100));
        assert_eq!(rule.choose(read), Choice::Sleep(101));
        assert_eq!(rule.take_floor_hits(), 0);
    }
}
