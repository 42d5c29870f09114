//! Half the mean of a bucket (Linux 4.12 to 6.3), and the code that the bucketed rules share.

use meantime_completion::rule::{Choice, Rule, Sample};
use meantime_completion::{Class, Kind};

/// Number of buckets: two directions, eight sizes.
pub(super) const BUCKETS: usize = DIRECTIONS * SIZES;

const DIRECTIONS: usize = 2;

/// 512 B, 1 KiB, … 64 KiB and more.
const SIZES: usize = 8;

/// How long a mean is used.
const WINDOW_NS: u64 = 100_000_000;

/// Returns the bucket of an I/O: 2 × its size class, + 1 for a write.
///
/// Linux rounds a size that is not a power of two down, and [`Class`] rounds it up. For powers of
/// two they agree. An I/O that is neither a read nor a write counts as a write of the smallest
/// size.
#[inline]
pub(super) fn bucket_of(class: Class) -> usize {
    match class.kind() {
        Kind::Read => DIRECTIONS * class.size().min(SIZES - 1),
        Kind::Write => DIRECTIONS * class.size().min(SIZES - 1) + 1,
        Kind::Other => 1,
    }
}

/// The statistics window of a queue. Linux starts a timer with the first I/O after the last window.
/// Here the first I/O that is found complete after the window's end closes it, and begins the next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    start_ns: Option<u64>,
}

impl Window {
    /// Returns whether a window of `length_ns` ended before `sample` was found complete. If so,
    /// `sample` begins the next one.
    #[inline]
    pub(super) fn ended_before(&mut self, sample: &Sample, length_ns: u64) -> bool {
        let ended = self
            .start_ns
            .is_some_and(|start_ns| sample.now_ns.saturating_sub(start_ns) >= length_ns);
        if ended || self.start_ns.is_none() {
            self.start_ns = Some(sample.now_ns.saturating_sub(sample.device_ns));
        }
        ended
    }
}

/// The mean device time of I/Os of the same direction and size. A mean is refreshed after each
/// window of 100 ms that contains such an I/O.
///
/// A bucket is not slept for before its first window has closed. Time that the sleeper overslept
/// counts as device time.
#[derive(Debug, Clone, Default)]
pub struct HybridBucket {
    window: Window,
    buckets: [Mean; BUCKETS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    /// Mean of the last window that contained an I/O.
    mean_ns: u64,
    sum_ns: u64,
    count: u64,
}

impl HybridBucket {
    /// Returns the mean device time in ns that I/Os of `class` use, or 0 while there is none.
    pub fn mean_ns(&self, class: Class) -> u64 {
        self.buckets[bucket_of(class)].mean_ns
    }
}

impl Rule for HybridBucket {
    /// Sleeps for half the mean of the bucket, rounded up.
    #[inline]
    fn choose(&mut self, class: Class) -> Choice {
        Choice::Sleep(self.mean_ns(class).div_ceil(2))
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        if self.window.ended_before(sample, WINDOW_NS) {
            for bucket in self.buckets.iter_mut().filter(|bucket| bucket.count > 0) {
                *bucket = Mean { mean_ns: bucket.sum_ns / bucket.count, ..Mean::default() };
            }
        }
        let bucket = &mut self.buckets[bucket_of(sample.class)];
        bucket.sum_ns = bucket.sum_ns.saturating_add(sample.device_ns);
        bucket.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    const MS: u64 = 1_000_000;

    fn class(kind: Kind, bytes: u32) -> Class {
        Class::new(kind, bytes, 1)
    }

    /// Linux: direction + 2 × (log2 of the bytes − 9), the last two for everything larger. 4 KiB: 2
    /// × (12 − 9) = 6, 64 KiB: 2 × (16 − 9) = 14.
    #[test]
    fn buckets_are_those_of_linux() {
        let cases = [
            (512, 0),
            (1024, 2),
            (4096, 6),
            (32_768, 12),
            (65_536, 14),
            (65_537, 14),
            (131_072, 14),
            (u32::MAX, 14),
        ];
        for (bytes, expected) in cases {
            assert_eq!(bucket_of(class(Kind::Read, bytes)), expected, "{bytes}");
            assert_eq!(bucket_of(class(Kind::Write, bytes)), expected + 1, "{bytes}");
            assert_eq!(bucket_of(class(Kind::Other, bytes)), 1, "{bytes}");
        }
        assert_eq!(bucket_of(Class::new(Kind::Read, 4096, 32)), 6, "the depth is nothing to it");
    }

    /// By hand. 4 KiB reads of 10, 11 and 12 µs: mean 11 µs, sleep 5.5. A 64 KiB write of 40,001
    /// ns: sleep 20,000.5, rounded up. The first I/O was submitted at 0, so the window ends at 100
    /// ms. An I/O that completes 1 ns earlier is in it; one that completes at 100 ms (it takes 1
    /// ms) is not.
    #[test]
    fn half_the_mean_of_the_bucket() {
        let (small, large) = (class(Kind::Read, 4096), class(Kind::Write, 65_536));
        let mut rule = HybridBucket::default();
        rule.record(&sample(small, 10_000, 10_000));
        rule.record(&sample(small, 11_000, 50 * MS));
        rule.record(&sample(large, 40_001, 60 * MS));
        rule.record(&sample(small, 12_000, 100 * MS - 1));
        assert_eq!([small, large].map(|class| rule.choose(class)), [Choice::Sleep(0); 2]);
        rule.record(&sample(small, MS, 100 * MS));
        assert_eq!(rule.choose(small), Choice::Sleep(5_500));
        assert_eq!(rule.choose(large), Choice::Sleep(20_001));
        assert_eq!(rule.choose(class(Kind::Write, 4096)), Choice::Sleep(0), "none of these so far");
        // The second window began when the 1 ms I/O was submitted, at 99 ms. It contains no write,
        // so the write's mean stays.
        rule.record(&sample(large, 60_000, 199 * MS));
        assert_eq!((rule.mean_ns(small), rule.mean_ns(large)), (MS, 40_001));
    }
}
