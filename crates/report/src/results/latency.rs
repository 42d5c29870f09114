//! A distribution of latencies from a report file: the whole histogram, or a list of percentiles.

use std::collections::BTreeMap;

use itertools::Itertools as _;

use crate::run::is_known;

/// Latencies of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Latency {
    /// I/Os.
    pub n: u64,
    /// The minimum, in ns.
    pub min_ns: f64,
    /// The maximum, in ns.
    pub max_ns: f64,
    /// The mean, in ns.
    pub mean_ns: f64,
    /// (latency in ns, number of I/Os that were not slower), both ascending; empty if only mean and
    /// extremes are known.
    pub steps: Vec<(f64, f64)>,
    /// Whether the steps are a few percentiles, and nothing is known between them.
    pub is_coarse: bool,
}

impl Latency {
    /// Sets the histogram. `bins` has a count for each latency in ns.
    pub(crate) fn set_bins(&mut self, bins: &BTreeMap<u64, u64>) {
        let known = bins.iter().filter(|(_, count)| **count > 0);
        let mut until = 0.0;
        let step = |(ns, count): (&u64, &u64)| {
            until += *count as f64;
            ((*ns as f64).clamp(self.min_ns, self.max_ns), until)
        };
        self.steps = known.map(step).collect();
        // The last step ends at the maximum, even if the histogram ends before.
        if let Some(last) = self.steps.last_mut() {
            last.0 = self.max_ns;
        }
    }

    /// Sets percentiles, in any order: each a latency in ns with the share of I/Os that were not
    /// slower.
    pub(crate) fn set_percentiles(&mut self, known: impl Iterator<Item = (f64, f64)>) {
        self.is_coarse = true;
        self.steps = known.map(|(ns, share)| (ns, share * self.n as f64)).collect();
        self.steps.sort_by(|a, b| a.1.total_cmp(&b.1));
    }

    /// Returns the latency that `percentile` percent of the I/Os did not exceed, or `None` where it
    /// is not known. The division is the same as in the text output, so that both round to the same
    /// I/O.
    pub(crate) fn percentile_ns(&self, percentile: f64) -> Option<f64> {
        self.quantile_ns(percentile / 100.0)
    }

    /// Returns the same percentile, or `None` if there are too few I/Os for one of them to be
    /// slower.
    pub(crate) fn known_percentile_ns(&self, percentile: f64) -> Option<f64> {
        self.percentile_ns(percentile).filter(|_| is_known(self.n, percentile))
    }

    /// Returns the latency that `share` of the I/Os did not exceed, or `None` where it is not
    /// known.
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<f64> {
        let (rank, total) = (share * self.total(), self.total());
        let rank = if self.is_coarse { rank } else { rank.ceil().max(1.0).min(total) };
        let after = self.steps.partition_point(|(_, until)| *until < rank);
        let (ns, until) = *self.steps.get(after)?;
        if !self.is_coarse || until == rank {
            return Some(ns);
        }
        let (before_ns, before) = self.steps[after.checked_sub(1)?];
        Some(before_ns + (ns - before_ns) * (rank - before) / (until - before))
    }

    /// Returns the number of I/Os of which the steps are.
    fn total(&self) -> f64 {
        let all = self.steps.last().filter(|_| !self.is_coarse);
        all.map_or(self.n as f64, |(_, all)| *all)
    }

    /// Returns the latency that at least one in `of` I/Os reached. Returns `None` with fewer than
    /// `of` I/Os, or where it is not known.
    pub(crate) fn slowest_1_in(&self, of: u64) -> Option<f64> {
        let slow = (of > 0 && self.n >= of).then(|| self.n.div_ceil(of))?;
        let slow = (slow as f64 - 0.5) / self.n as f64;
        self.quantile_ns(1.0 - if self.is_coarse { 1.0 / of as f64 } else { slow })
    }

    /// Returns the tail as pairs (latency in ns, share of I/Os at least as slow). Latencies ascend
    /// and shares descend, from (minimum, 1) to (maximum, 1/n).
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        if self.n == 0 || self.steps.is_empty() {
            return Vec::new();
        }
        let (mut curve, mut before) = (vec![(self.min_ns, 1.0)], 0.0);
        for (ns, until) in &self.steps {
            let quicker = if self.is_coarse { *until } else { before };
            curve.push((*ns, (self.total() - quicker) / self.total()));
            before = *until;
        }
        curve.push((self.max_ns, 1.0 / self.n as f64));
        // Foreign files may have a percentile beyond the maximum; a curve does not turn back.
        for at in 1..curve.len() {
            let ((before_ns, before), (ns, share)) = (curve[at - 1], curve[at]);
            curve[at] = (ns.max(before_ns), share.min(before));
        }
        curve
    }

    /// Merges both distributions: exactly for two histograms, otherwise from the percentiles of
    /// both.
    pub(crate) fn merged(&self, other: &Self) -> Self {
        if self.n == 0 || other.n == 0 {
            return if self.n == 0 { other.clone() } else { self.clone() };
        }
        let n = self.n.saturating_add(other.n);
        let is_coarse = self.is_coarse || other.is_coarse;
        let all = self.steps.iter().chain(&other.steps).map(|(ns, _)| *ns);
        let steps = all.sorted_by(f64::total_cmp).dedup();
        let steps = steps.map(|ns| (ns, self.until(ns) + other.until(ns)));
        let told = |until: f64| !is_coarse || until <= LAST_KNOWN * n as f64;
        let is_known = !self.steps.is_empty() && !other.steps.is_empty();
        Self {
            n,
            min_ns: self.min_ns.min(other.min_ns),
            max_ns: self.max_ns.max(other.max_ns),
            mean_ns: (self.mean_ns * self.n as f64 + other.mean_ns * other.n as f64) / n as f64,
            steps: steps.filter(|(_, until)| is_known && told(*until)).collect(),
            is_coarse,
        }
    }

    /// Returns the number of I/Os that took no longer. Between percentiles it is interpolated on
    /// the logarithmic axis of latencies.
    fn until(&self, ns: f64) -> f64 {
        let after = self.steps.partition_point(|(at, _)| *at <= ns);
        let before = after.checked_sub(1).map(|before| self.steps[before]);
        let (before_ns, before) = before.unwrap_or((self.min_ns, 0.0));
        if !self.is_coarse || ns <= before_ns {
            return before;
        }
        let (next_ns, next) =
            self.steps.get(after).copied().unwrap_or((self.max_ns, self.n as f64));
        let part = (ns / before_ns).ln() / (next_ns / before_ns).ln();
        before + (next - before) * part.clamp(0.0, 1.0)
    }
}

/// The last percentile in fio's list. Beyond it only the maximum is known.
const LAST_KNOWN: f64 = 0.9999;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{LatencyStats, PERCENTILES};

    #[test]
    fn quantiles_are_those_of_the_run() {
        let mut stats = LatencyStats::default();
        for at in 0..50_000u64 {
            stats.record(900 + at * at % 100_003 + if at % 500 == 0 { 3_000_000 } else { 0 });
        }
        let bins = stats.steps().collect();
        let ends = (stats.min_ns() as f64, stats.max_ns() as f64);
        let (min_ns, max_ns) = ends;
        let mut latency = Latency { n: stats.n(), min_ns, max_ns, ..Latency::default() };
        latency.set_bins(&bins);
        for at in PERCENTILES {
            assert_eq!(
                latency.quantile_ns(at / 100.0),
                Some(stats.percentile_ns(at) as f64),
                "{at}"
            );
        }
        assert_eq!(latency.slowest_1_in(6000), stats.slowest_1_in(6000).map(|ns| ns as f64));
        assert_eq!(latency.slowest_1_in(50_001), None);
        let curve = latency.curve();
        assert_eq!(curve.first(), Some(&(ends.0, 1.0)));
        assert_eq!(curve.last(), Some(&(ends.1, 1.0 / 50_000.0)));
        assert!(curve.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
    }

    /// One in a thousand of 650 I/Os is less than one.
    #[test]
    fn a_percentile_of_too_few_is_not_known() {
        let of = |n: u64| {
            let mut latency = Latency { n, min_ns: 1.0, max_ns: 2_000.0, ..Latency::default() };
            latency.set_bins(&[(1_000, n)].into());
            latency
        };
        assert_eq!(of(650).known_percentile_ns(99.9), None);
        assert!(of(650).known_percentile_ns(99.0).is_some());
        assert!(of(1_000).known_percentile_ns(99.9).is_some());
        assert_eq!(of(1_000).known_percentile_ns(99.99), None);
        assert_eq!(Latency::default().known_percentile_ns(50.0), None);
    }

    #[test]
    fn percentiles_are_known_where_they_were_told() {
        let (n, min_ns, max_ns, mean_ns) = (100_000, 50.0, 5_000.0, 120.0);
        let mut latency = Latency { n, min_ns, max_ns, mean_ns, ..Latency::default() };
        latency.set_percentiles([(200.0, 0.9), (100.0, 0.5), (900.0, 0.9999)].into_iter());
        assert_eq!(latency.quantile_ns(0.9), Some(200.0));
        assert_eq!(latency.quantile_ns(0.7), Some(150.0));
        assert_eq!((latency.quantile_ns(0.1), latency.quantile_ns(0.99999)), (None, None));
        assert!(latency.slowest_1_in(6000).is_some_and(|ns| ns > 200.0 && ns < 900.0));
        let twice = latency.merged(&latency);
        assert_eq!((twice.n, twice.mean_ns), (200_000, 120.0));
        assert!((twice.quantile_ns(0.9).unwrap() - 200.0).abs() < 1.0, "{twice:?}");
        assert_eq!(latency.merged(&Latency::default()), latency);
    }

    #[test]
    fn nothing_and_nonsense() {
        let nothing = Latency::default();
        assert_eq!((nothing.quantile_ns(0.5), nothing.slowest_1_in(6000)), (None, None));
        assert!(nothing.curve().is_empty());
        // A percentile beyond the maximum, and a single I/O.
        let mut odd = Latency { n: 1, min_ns: 10.0, max_ns: 20.0, ..Latency::default() };
        odd.set_percentiles([(9_000.0, 0.5)].into_iter());
        assert!(odd.curve().is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
        let mut huge = Latency { n: 5, min_ns: 1.0, max_ns: 2.0, ..Latency::default() };
        huge.set_bins(&[(u64::MAX, 3), (0, 0), (1, 2)].into());
        assert_eq!(huge.steps, [(1.0, 2.0), (2.0, 5.0)]);
    }
}
