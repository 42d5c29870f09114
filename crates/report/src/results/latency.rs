//! A distribution of latencies from a report file: the whole histogram, or a list of percentiles.

use std::collections::BTreeMap;

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
    /// The distribution between minimum and maximum.
    pub shape: Shape,
}

/// The known part of a distribution.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Shape {
    /// Only mean and extremes are known.
    #[default]
    Unknown,
    /// (highest latency of the step in ns, count), ascending, counts above 0.
    Histogram(Vec<(f64, u64)>),
    /// (latency in ns, share of I/Os not slower), both ascending, the shares above 0 and below 1.
    Percentiles(Vec<(f64, f64)>),
}

impl Latency {
    /// Returns the histogram of `bins`: by latency in ns, a count.
    pub(crate) fn histogram(bins: &BTreeMap<u64, u64>, (min_ns, max_ns): (f64, f64)) -> Shape {
        let known = bins.iter().filter(|(_, count)| **count > 0);
        let known = known.map(|(ns, count)| ((*ns as f64).clamp(min_ns, max_ns), *count));
        let mut known: Vec<(f64, u64)> = known.collect();
        // The last step ends at the maximum, even if the histogram ends before.
        let Some(last) = known.last_mut() else { return Shape::Unknown };
        last.0 = max_ns;
        Shape::Histogram(known)
    }

    /// Returns the distribution with these percentiles, in any order.
    pub(crate) fn percentiles(mut known: Vec<(f64, f64)>) -> Shape {
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        if known.is_empty() { Shape::Unknown } else { Shape::Percentiles(known) }
    }

    /// Returns the latency that `percentile` percent of the I/Os did not exceed; `None` where it is
    /// not known. (Divided as for the text, so that both round to the same I/O.)
    pub(crate) fn percentile_ns(&self, percentile: f64) -> Option<f64> {
        self.quantile_ns(percentile / 100.0)
    }

    /// Returns the same percentile, or `None` if there are too few I/Os for one of them to be
    /// slower.
    pub(crate) fn known_percentile_ns(&self, percentile: f64) -> Option<f64> {
        self.percentile_ns(percentile).filter(|_| is_known(self.n, percentile))
    }

    /// Returns the latency that `share` of the I/Os did not exceed; `None` where it is not known.
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<f64> {
        match &self.shape {
            Shape::Unknown => None,
            Shape::Histogram(steps) => {
                let total: u64 = steps.iter().map(|(_, count)| count).sum();
                let rank = ((share * total as f64).ceil() as u64).clamp(1, total.max(1));
                let mut seen = 0;
                let reached = steps.iter().find(|(_, count)| {
                    seen += count;
                    seen >= rank
                });
                reached.map(|(ns, _)| *ns)
            }
            Shape::Percentiles(known) => {
                const NEAR: f64 = 1e-9;
                let after = known.iter().position(|(_, at)| *at >= share - NEAR)?;
                let (ns, at) = known[after];
                if (at - share).abs() <= NEAR {
                    return Some(ns);
                }
                let (before_ns, before) = known[after.checked_sub(1)?];
                Some(before_ns + (ns - before_ns) * (share - before) / (at - before))
            }
        }
    }

    /// Returns the latency that the slowest one in `of` reached; `None` with fewer than `of` I/Os,
    /// or where it is not known.
    pub(crate) fn slowest_1_in(&self, of: u64) -> Option<f64> {
        let slow = self.n.checked_div(of).filter(|slow| *slow > 0)?;
        match self.shape {
            Shape::Histogram(_) => {
                self.quantile_ns((self.n as f64 - slow as f64 + 0.5) / self.n as f64)
            }
            _ => self.quantile_ns(1.0 - 1.0 / of as f64),
        }
    }

    /// Returns whether the curve is drawn through only a few percentiles.
    pub(crate) fn is_coarse(&self) -> bool {
        matches!(self.shape, Shape::Percentiles(_))
    }

    /// Returns (latency in ns, share of I/Os at least as slow): ascending, descending, from
    /// (minimum, 1) to (maximum, 1/n).
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        if self.n == 0 {
            return Vec::new();
        }
        let n = self.n as f64;
        let mut curve = vec![(self.min_ns, 1.0)];
        match &self.shape {
            Shape::Unknown => return Vec::new(),
            Shape::Histogram(steps) => {
                let total: u64 = steps.iter().map(|(_, count)| count).sum();
                let mut left = total;
                for (ns, count) in steps {
                    curve.push((*ns, left as f64 / total as f64));
                    left -= count;
                }
            }
            Shape::Percentiles(known) => {
                curve.extend(known.iter().map(|(ns, at)| (*ns, 1.0 - at)));
            }
        }
        curve.push((self.max_ns, 1.0 / n));
        // Foreign files may have a percentile beyond the maximum; a curve does not turn back.
        let (mut ns_so_far, mut share_so_far) = (0.0f64, 1.0f64);
        for (ns, share) in &mut curve {
            ns_so_far = ns_so_far.max(*ns);
            share_so_far = share_so_far.min(*share);
            (*ns, *share) = (ns_so_far, share_so_far);
        }
        curve
    }

    /// Merges both distributions: exactly for two histograms, else through the percentiles of both.
    pub(crate) fn merged(&self, other: &Self) -> Self {
        if self.n == 0 || other.n == 0 {
            return if self.n == 0 { other.clone() } else { self.clone() };
        }
        let n = self.n.saturating_add(other.n);
        let shape = match (&self.shape, &other.shape) {
            (Shape::Histogram(ours), Shape::Histogram(theirs)) => {
                let mut all = [ours.as_slice(), theirs.as_slice()].concat();
                all.sort_by(|a, b| a.0.total_cmp(&b.0));
                Shape::Histogram(all)
            }
            (Shape::Unknown, _) | (_, Shape::Unknown) => Shape::Unknown,
            _ => {
                let (ours, theirs) = (self.curve(), other.curve());
                let mut all: Vec<f64> = ours.iter().chain(&theirs).map(|(ns, _)| *ns).collect();
                all.sort_by(f64::total_cmp);
                let weight = self.n as f64 / n as f64;
                let both = all.into_iter().map(|ns| {
                    (
                        ns,
                        1.0 - (weight * share_at(&ours, ns)
                            + (1.0 - weight) * share_at(&theirs, ns)),
                    )
                });
                Shape::Percentiles(both.filter(|(_, at)| *at > 0.0 && *at <= LAST_KNOWN).collect())
            }
        };
        Self {
            n,
            min_ns: self.min_ns.min(other.min_ns),
            max_ns: self.max_ns.max(other.max_ns),
            mean_ns: (self.mean_ns * self.n as f64 + other.mean_ns * other.n as f64) / n as f64,
            shape,
        }
    }
}

/// fio's list of percentiles ends here; beyond it only the maximum is known.
const LAST_KNOWN: f64 = 0.9999;

/// Returns the curve's share at `ns`, interpolated on the logarithmic axis of latencies.
fn share_at(curve: &[(f64, f64)], ns: f64) -> f64 {
    let after = curve.partition_point(|(at, _)| *at < ns);
    match (after.checked_sub(1).map(|before| curve[before]), curve.get(after)) {
        (None, _) => 1.0,
        (_, None) => 0.0,
        (Some((left, high)), Some((right, low))) => {
            let whole = (right / left.max(1e-3)).ln();
            let part = if whole > 0.0 { (ns / left.max(1e-3)).ln() / whole } else { 1.0 };
            high + (low - high) * part.clamp(0.0, 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{LatencyStats, PERCENTILES};

    #[test]
    fn quantiles_are_those_of_the_run() {
        let mut stats = LatencyStats::new();
        for at in 0..50_000u64 {
            stats.record(900 + at * at % 100_003 + if at % 500 == 0 { 3_000_000 } else { 0 });
        }
        let bins = stats.steps().collect();
        let ends = (stats.min_ns() as f64, stats.max_ns() as f64);
        let latency = Latency {
            n: stats.n(),
            min_ns: ends.0,
            max_ns: ends.1,
            mean_ns: stats.mean_ns(),
            shape: Latency::histogram(&bins, ends),
        };
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
            let shape = Latency::histogram(&[(1_000, n)].into(), (1.0, 2_000.0));
            Latency { n, shape, ..Latency::default() }
        };
        assert_eq!(of(650).known_percentile_ns(99.9), None);
        assert!(of(650).known_percentile_ns(99.0).is_some());
        assert!(of(1_000).known_percentile_ns(99.9).is_some());
        assert_eq!(of(1_000).known_percentile_ns(99.99), None);
        assert_eq!(Latency::default().known_percentile_ns(50.0), None);
    }

    #[test]
    fn percentiles_are_known_where_they_were_told() {
        let shape = Shape::Percentiles(vec![(100.0, 0.5), (200.0, 0.9), (900.0, 0.9999)]);
        let latency = Latency { n: 100_000, min_ns: 50.0, max_ns: 5_000.0, mean_ns: 120.0, shape };
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
        let shape = Shape::Percentiles(vec![(9_000.0, 0.5)]);
        let odd = Latency { n: 1, min_ns: 10.0, max_ns: 20.0, mean_ns: 15.0, shape };
        assert!(odd.curve().is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
        let huge = Latency::histogram(&[(u64::MAX, 3), (0, 0), (1, 2)].into(), (1.0, 2.0));
        assert_eq!(huge, Shape::Histogram(vec![(1.0, 2), (2.0, 3)]));
    }
}
