//! Distributions of times, to draw from.

use meantime_random::Rng;

/// Number of values that stand for a distribution given by a formula.
const TABLE: usize = 1 << 13;

/// A distribution of times in ns: equally likely values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution(Vec<u64>);

impl Distribution {
    /// Returns a distribution in which each of `samples` is equally likely. Without samples every
    /// draw is 0.
    pub fn of_samples(mut samples: Vec<u64>) -> Self {
        if samples.is_empty() {
            samples.push(0);
        }
        samples.sort_unstable();
        Self(samples)
    }

    /// Returns a distribution that is always `ns`.
    pub fn constant(ns: u64) -> Self {
        Self(vec![ns])
    }

    /// Returns a uniform distribution from `from_ns` to `to_ns`.
    pub fn uniform(from_ns: u64, to_ns: u64) -> Self {
        let (from_ns, to_ns) = (from_ns.min(to_ns), from_ns.max(to_ns));
        let width = (to_ns - from_ns) as f64;
        let value = |i| from_ns + (width * (i as f64 + 0.5) / TABLE as f64).round() as u64;
        Self((0..TABLE).map(value).collect())
    }

    /// Returns a lognormal distribution: `median_ns` times e to a normal number of standard
    /// deviation `sigma`.
    pub fn lognormal(median_ns: u64, sigma: f64) -> Self {
        let mut random = Rng::new(1);
        let mut value = || (median_ns as f64 * (sigma * random.normal()).exp()).round() as u64;
        Self::of_samples((0..TABLE).map(|_| value()).collect())
    }

    /// Returns a distribution that draws from one of `parts`, each with the frequency of its
    /// weight.
    pub fn mixed(parts: &[(f64, Distribution)]) -> Self {
        let total: f64 = parts.iter().map(|(weight, _)| weight).sum();
        let mut samples = Vec::with_capacity(TABLE);
        for (weight, part) in parts {
            let count = (weight / total * TABLE as f64).round() as usize;
            samples.extend((0..count).map(|i| part.quantile_ns((i as f64 + 0.5) / count as f64)));
        }
        Self::of_samples(samples)
    }

    /// Returns the same distribution, later by `ns`.
    pub fn plus_ns(mut self, ns: u64) -> Self {
        self.0.iter_mut().for_each(|sample| *sample += ns);
        self
    }

    /// Draws one value.
    #[inline]
    pub fn draw_ns(&self, random: &mut Rng) -> u64 {
        self.0[random.below(self.0.len() as u64) as usize]
    }

    /// Returns the values, in order.
    pub fn samples_ns(&self) -> &[u64] {
        &self.0
    }

    /// Returns the time that the fraction `q` (0 to 1) of the values does not exceed.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        self.0[((q * self.0.len() as f64) as usize).min(self.0.len() - 1)]
    }

    /// Returns the mean in ns.
    pub fn mean_ns(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / self.0.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_what_they_say() {
        let uniform = Distribution::uniform(1_500, 3_000);
        assert!((uniform.mean_ns() - 2_250.0).abs() < 1.0);
        assert_eq!((uniform.quantile_ns(0.0), uniform.quantile_ns(1.0)), (1_500, 3_000));
        let lognormal = Distribution::lognormal(10_000, 0.2);
        assert!((lognormal.quantile_ns(0.5) as f64 / 10_000.0 - 1.0).abs() < 0.01);
        // The mean of a lognormal is its median times e to half the variance.
        assert!((lognormal.mean_ns() / (10_000.0 * 0.02f64.exp()) - 1.0).abs() < 0.01);
        let mixed = Distribution::mixed(&[
            (0.9, Distribution::constant(1)),
            (0.1, Distribution::constant(1).plus_ns(10)),
        ]);
        assert_eq!((mixed.quantile_ns(0.89), mixed.quantile_ns(0.91)), (1, 11));
        assert_eq!(Distribution::of_samples(vec![]).draw_ns(&mut Rng::new(1)), 0);
    }

    #[test]
    fn numbers_are_uniform_and_repeat() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            let n = a.below(10);
            assert_eq!(n, b.below(10));
            counts[n as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        let mean = (0..100_000).map(|_| a.normal()).sum::<f64>() / 100_000.0;
        assert!(mean.abs() < 0.02);
    }
}
