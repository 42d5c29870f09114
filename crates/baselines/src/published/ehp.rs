//! Efficient hybrid polling: Lee, Shin and Jeong, Journal of Systems Architecture 122 (2022).

use super::WakeCosts;
use super::bucket::{BUCKETS, Window, bucket_of};
use meantime_completion::Class;
use meantime_completion::rule::{Choice, Rule, Sample};

/// How long a minimum is used.
const WINDOW_NS: u64 = 10_000_000;

/// The interrupt is used if a device's minimum is at least this multiple of the cost of a sleep.
const BENEFIT_RATIO: u64 = 10;

/// Sleeps for the shortest time of the bucket less the cost of a sleep (two context switches and an
/// interrupt). It uses the interrupt where that cost is at most a tenth of the minimum, and polls
/// where the cost is all of the minimum.
///
/// Where the publication leaves room:
/// - The minimum is that of the last closed window of 10 ms in which the bucket had an I/O. Before
///   that the bucket is polled.
/// - The ratio is 10, from the implementation that the authors of DPAS measured against.
/// - The waiter stamps an I/O that ended by interrupt; in a kernel the handler does. So one context
///   switch is subtracted.
#[derive(Debug, Clone)]
pub struct Ehp {
    costs: WakeCosts,
    window: Window,
    buckets: [Min; BUCKETS],
}

#[derive(Debug, Clone, Copy)]
struct Min {
    /// Minimum of the last window that contained an I/O, or `None` before that.
    min_ns: Option<u64>,
    /// Minimum of the present window.
    next_ns: Option<u64>,
}

impl Ehp {
    /// Creates the rule with the cost of a sleep on this machine.
    pub fn new(costs: WakeCosts) -> Self {
        let none = Min { min_ns: None, next_ns: None };
        Self { costs, window: Window::default(), buckets: [none; BUCKETS] }
    }

    /// Returns the minimum in ns that I/Os of `class` use, or `None` before the first window has
    /// closed.
    pub fn min_ns(&self, class: Class) -> Option<u64> {
        self.buckets[bucket_of(class)].min_ns
    }
}

impl Rule for Ehp {
    #[inline]
    fn choose(&mut self, class: Class) -> Choice {
        let Some(min_ns) = self.min_ns(class) else { return Choice::Sleep(0) };
        let cost_ns = self.costs.of_a_sleep_ns();
        if cost_ns.saturating_mul(BENEFIT_RATIO) <= min_ns {
            return Choice::Interrupt;
        }
        Choice::Sleep(min_ns.saturating_sub(cost_ns))
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        if self.window.ended_before(sample, WINDOW_NS) {
            for bucket in &mut self.buckets {
                bucket.min_ns = bucket.next_ns.take().or(bucket.min_ns);
            }
        }
        let late_ns = if sample.interrupted { self.costs.context_switch_ns } else { 0 };
        let device_ns = sample.device_ns.saturating_sub(late_ns);
        let bucket = &mut self.buckets[bucket_of(sample.class)];
        bucket.next_ns = Some(bucket.next_ns.map_or(device_ns, |next_ns| next_ns.min(device_ns)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;
    use meantime_completion::Kind;

    const MS: u64 = 1_000_000;

    /// By hand: 2 × 1,500 + 1,000 = 4,000 ns a sleep, so the interrupt is used from 40,000 ns on.
    const COSTS: WakeCosts = WakeCosts { context_switch_ns: 1_500, interrupt_ns: 1_000 };

    fn class(kind: Kind, bytes: u32) -> Class {
        Class::new(kind, bytes, 1)
    }

    fn after_a_window_with(device_ns: u64) -> Choice {
        let class = class(Kind::Read, 4096);
        let mut rule = Ehp::new(COSTS);
        rule.record(&sample(class, device_ns, MS));
        rule.record(&sample(class, 7 * MS, 20 * MS));
        rule.choose(class)
    }

    /// By hand: 10,000 − 4,000 = 6,000. At 4,000 nothing is left to sleep. The interrupt begins at
    /// 10 × 4,000, not 1 ns before.
    #[test]
    fn the_minimum_less_the_cost_or_the_interrupt() {
        let cases = [
            (10_000, Choice::Sleep(6_000)),
            (4_001, Choice::Sleep(1)),
            (4_000, Choice::Sleep(0)),
            (100, Choice::Sleep(0)),
            (0, Choice::Sleep(0)),
            (39_999, Choice::Sleep(35_999)),
            (40_000, Choice::Interrupt),
            (90_000, Choice::Interrupt),
        ];
        for (device_ns, expected) in cases {
            assert_eq!(after_a_window_with(device_ns), expected, "{device_ns}");
        }
    }

    /// By hand: 12, 9 and 30 µs from 0 on, so the window ends at 10 ms; reads then use 9 − 4 = 5
    /// µs. The next window has only a write in it, so reads keep theirs. In the third reads are
    /// slower, 20 − 4 = 16: a minimum can rise.
    #[test]
    fn a_minimum_for_each_bucket_and_window() {
        let (read, write) = (class(Kind::Read, 4096), class(Kind::Write, 4096));
        let mut rule = Ehp::new(COSTS);
        rule.record(&sample(read, 12_000, 12_000));
        rule.record(&sample(read, 9_000, 5 * MS));
        rule.record(&sample(read, 30_000, 10 * MS - 1));
        assert_eq!(rule.choose(read), Choice::Sleep(0), "no window has closed");
        rule.record(&sample(write, 5_000, 10 * MS));
        assert_eq!(rule.choose(read), Choice::Sleep(5_000));
        assert_eq!(rule.choose(write), Choice::Sleep(0), "of the present one");
        rule.record(&sample(read, 20_000, 20 * MS));
        assert_eq!(rule.choose(read), Choice::Sleep(5_000));
        assert_eq!(rule.choose(write), Choice::Sleep(1_000));
        rule.record(&sample(read, 70_000, 30 * MS));
        assert_eq!(rule.choose(read), Choice::Sleep(16_000));
        assert_eq!(rule.min_ns(class(Kind::Read, 512)), None);
    }

    /// By hand: 41,499 ns to the waiter are 39,999 to the handler. So a device that has become
    /// faster returns from the interrupt to sleeping.
    #[test]
    fn what_the_interrupt_takes_is_no_device_time() {
        let class = class(Kind::Read, 4096);
        let mut rule = Ehp::new(COSTS);
        let interrupted =
            |device_ns, now_ns| Sample { interrupted: true, ..sample(class, device_ns, now_ns) };
        rule.record(&sample(class, 50_000, MS));
        rule.record(&interrupted(41_500, 20 * MS));
        assert_eq!(rule.choose(class), Choice::Interrupt);
        rule.record(&interrupted(41_499, 30 * MS));
        assert_eq!(rule.choose(class), Choice::Interrupt, "40,000");
        rule.record(&interrupted(50_000, 40 * MS));
        assert_eq!(rule.choose(class), Choice::Sleep(35_999));
    }
}
