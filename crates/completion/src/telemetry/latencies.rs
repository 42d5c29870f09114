//! Times of I/Os, counted by operation and power of two.

use crate::class::Kind;

/// Buckets: up to 2^10 ns (1.024 µs), up to 2^11, … up to 2^30 (1.07 s), more.
const BUCKETS: usize = 22;
/// The exponent of the first bucket.
const FIRST_BITS: usize = 10;
/// The operations of [`Kind`].
const KINDS: usize = 3;

/// Timed I/Os by operation and time, from submission until found complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: [[u64; BUCKETS]; KINDS],
    sums_ns: [u64; KINDS],
}

impl Latencies {
    /// The longest times of the buckets but the last, in ns.
    pub const BOUNDS_NS: [u64; BUCKETS - 1] = {
        let mut bounds_ns = [0; BUCKETS - 1];
        let mut at = 0;
        while at < bounds_ns.len() {
            bounds_ns[at] = 1 << (FIRST_BITS + at);
            at += 1;
        }
        bounds_ns
    };

    /// Adds an I/O.
    #[inline]
    pub(crate) fn add(&mut self, kind: Kind, ns: u64) {
        let bits = (u64::BITS - ns.saturating_sub(1).leading_zeros()) as usize;
        let bucket = bits.saturating_sub(FIRST_BITS).min(BUCKETS - 1);
        self.counts[kind as usize][bucket] += 1;
        self.sums_ns[kind as usize] = self.sums_ns[kind as usize].wrapping_add(ns);
    }

    /// Adds all of `other`.
    pub(super) fn add_all(&mut self, other: &Self) {
        let add = |to: &mut u64, from: &u64| *to = to.wrapping_add(*from);
        let both = self.counts.iter_mut().flatten().zip(other.counts.iter().flatten());
        both.for_each(|(to, from)| add(to, from));
        self.sums_ns.iter_mut().zip(&other.sums_ns).for_each(|(to, from)| add(to, from));
    }

    /// The I/Os of `kind` in each bucket.
    pub fn counts(&self, kind: Kind) -> &[u64; BUCKETS] {
        &self.counts[kind as usize]
    }

    /// The sum of the times of `kind`, in ns.
    pub fn sum_ns(&self, kind: Kind) -> u64 {
        self.sums_ns[kind as usize]
    }

    /// The number of I/Os, and the sum of their times in ns, over all operations.
    pub(crate) fn total(&self) -> (u64, u64) {
        let sum_ns = self.sums_ns.iter().fold(0u64, |sum_ns, ns| sum_ns.wrapping_add(*ns));
        (self.counts.iter().flatten().sum(), sum_ns)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        for (ns, bucket) in [
            (0, 0),
            (1, 0),
            (1_024, 0),
            (1_025, 1),
            (2_048, 1),
            (1 << 30, 20),
            ((1 << 30) + 1, 21),
            (u64::MAX, 21),
        ] {
            let mut latencies = Latencies::default();
            latencies.add(Kind::Write, ns);
            assert_eq!(latencies.counts(Kind::Write)[bucket], 1, "{ns}");
            assert_eq!((latencies.total(), latencies.sum_ns(Kind::Write)), ((1, ns), ns));
            assert_eq!(latencies.counts(Kind::Read), &[0; BUCKETS]);
            assert!(bucket == 21 || ns <= Latencies::BOUNDS_NS[bucket]);
        }
    }
}
