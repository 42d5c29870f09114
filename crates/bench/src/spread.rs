//! The distribution of random I/Os: fio's distributions over a number of places.

use super::pattern::{Mix, Permutation, Rng};
use crate::job::{Distribution, Zone};

/// ζ's sum is exact up to here, and an integral beyond.
const EXACT_TERMS: u64 = 10_000;

/// Number of draws of `normal` for one place, as in fio.
const NORMAL_DRAWS: u64 = 12;

/// Chooses places.
#[derive(Debug, Clone)]
pub(super) enum Spread {
    /// Every place once, in random order, repeatedly.
    Once(Permutation),
    /// Each drawn independently, all equally likely.
    Uniform(u64),
    /// By popularity; the popular ones are scattered over the range.
    Ranked(Ranked),
    /// Bell-shaped, then scattered, as in fio.
    Normal(Normal),
    /// Parts of the range, each with its share.
    Zoned(Zones),
}

impl Spread {
    /// Creates the spread of `distribution` over `places` places (at least one) that are
    /// `step_bytes` apart, for reads (0) or writes (1).
    pub(super) fn new(
        distribution: &Distribution,
        places: u64,
        step_bytes: u64,
        direction: usize,
        once: bool,
        rng: &mut Rng,
    ) -> Self {
        let anywhere = |center_ppm: &Option<u64>, rng: &mut Rng| match center_ppm {
            Some(ppm) => part(places, *ppm),
            None => rng.below(places),
        };
        match distribution {
            Distribution::Uniform if once => Self::Once(Permutation::new(places, rng)),
            Distribution::Uniform => Self::Uniform(places),
            Distribution::Zipf { theta_ppm, center_ppm } => Self::Ranked(Ranked {
                places,
                shift: anywhere(center_ppm, rng),
                law: Law::zipf(places, *theta_ppm as f64 / 1e6),
            }),
            Distribution::Pareto { h_ppm, center_ppm } => {
                let h = *h_ppm as f64 / 1e6;
                let law = Law::Pareto { power: h.ln() / (1.0 - h).ln() };
                Self::Ranked(Ranked { places, shift: anywhere(center_ppm, rng), law })
            }
            Distribution::Normal { deviation_ppm, center_ppm } => Self::Normal(Normal {
                places,
                // Relative to the middle, where the bell is by default.
                shift: center_ppm
                    .map_or(0, |ppm| (part(places, ppm) + places - places / 2) % places),
                deviation: part(places, deviation_ppm.div_ceil(100)).min(places / 2),
            }),
            Distribution::Zoned(zones) => {
                Self::Zoned(Zones::new(&zones[direction], places, |percent| {
                    (u128::from(places) * u128::from(percent) / 100) as u64
                }))
            }
            Distribution::ZonedAbs(zones) => {
                Self::Zoned(Zones::new(&zones[direction], places, |bytes| bytes / step_bytes))
            }
        }
    }

    /// Restarts, as if no place had been chosen.
    pub(super) fn restart(&mut self, rng: &mut Rng) {
        if let Self::Once(permutation) = self {
            *permutation = Permutation::new(permutation.limit, rng);
        }
    }

    /// Returns the next place.
    #[inline]
    pub(super) fn next(&mut self, rng: &mut Rng) -> u64 {
        match self {
            Self::Once(permutation) => permutation.next(),
            Self::Uniform(places) => rng.below(*places),
            Self::Ranked(ranked) => ranked.next(rng),
            Self::Normal(normal) => normal.next(rng),
            Self::Zoned(zones) => zones.next(rng),
        }
    }
}

fn part(places: u64, ppm: u64) -> u64 {
    (u128::from(places) * u128::from(ppm) / 1_000_000) as u64 % places.max(1)
}

/// Maps the numbers below `places` (at least one) onto themselves, one to one, without order.
fn scattered(mut x: u64, places: u64) -> u64 {
    let mix = Mix::below(places);
    loop {
        // A value outside is mapped again until it is inside.
        x = mix.of(x);
        if x < places {
            return x;
        }
    }
}

/// Places by rank.
#[derive(Debug, Clone)]
pub(super) struct Ranked {
    places: u64,
    shift: u64,
    law: Law,
}

#[derive(Debug, Clone)]
enum Law {
    Zipf { zeta: f64, second: f64, alpha: f64, eta: f64 },
    Pareto { power: f64 },
}

impl Law {
    /// Gray et al., "Quickly generating billion-record synthetic databases", 1994, as in fio.
    fn zipf(places: u64, theta: f64) -> Self {
        let zeta = zeta(places, theta);
        let second = 1.0 + 0.5f64.powf(theta);
        Self::Zipf {
            zeta,
            second,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / places as f64).powf(1.0 - theta)) / (1.0 - second / zeta),
        }
    }
}

/// Σ k^-θ for k from 1 to `places`.
fn zeta(places: u64, theta: f64) -> f64 {
    let exact = places.min(EXACT_TERMS);
    let sum: f64 = (1..=exact).map(|k| (k as f64).powf(-theta)).sum();
    let rest = |x: f64| (x + 0.5).powf(1.0 - theta) / (1.0 - theta);
    if places > exact { sum + rest(places as f64) - rest(exact as f64) } else { sum }
}

impl Ranked {
    fn next(&mut self, rng: &mut Rng) -> u64 {
        let uniform = rng.unit();
        let rank = match self.law {
            Law::Zipf { zeta, second, alpha, eta } => match uniform * zeta {
                z if z < 1.0 => 0,
                z if z < second => 1,
                _ => (self.places as f64 * (eta * uniform - eta + 1.0).powf(alpha)) as u64,
            },
            Law::Pareto { power } => ((self.places - 1) as f64 * uniform.powf(power)) as u64,
        };
        (scattered(rank.min(self.places - 1), self.places) + self.shift) % self.places
    }
}

/// The mean of twelve draws, with a deviation.
#[derive(Debug, Clone)]
pub(super) struct Normal {
    places: u64,
    shift: u64,
    deviation: u64,
}

impl Normal {
    fn next(&mut self, rng: &mut Rng) -> u64 {
        let sum: u128 = (0..NORMAL_DRAWS).map(|_| u128::from(rng.below(self.places) + 1)).sum();
        let mean = (sum / u128::from(NORMAL_DRAWS)) as i128;
        let mut off = if self.deviation == 0 {
            0
        } else {
            i128::from(rng.below(self.deviation)) - i128::from(self.deviation / 2)
        };
        while !(0..i128::from(self.places)).contains(&(mean + off)) && off != 0 {
            off /= 2;
        }
        let place = (mean + off).clamp(0, i128::from(self.places) - 1) as u64;
        (scattered(place, self.places) + self.shift) % self.places
    }
}

/// Parts of the range.
#[derive(Debug, Clone)]
pub(super) struct Zones {
    /// Cumulative accesses in percent including this zone, its first place, and its number of
    /// places.
    zones: Vec<(u8, u64, u64)>,
}

impl Zones {
    fn new(zones: &[Zone], places: u64, length: impl Fn(u64) -> u64) -> Self {
        let (mut access, mut end) = (0, 0u64);
        let zone = |zone: &Zone| {
            access += zone.access_percent;
            let first = length(end).min(places - 1);
            end += zone.length;
            (access, first, (length(end).min(places) - first.min(length(end).min(places))).max(1))
        };
        Self { zones: zones.iter().map(zone).collect() }
    }

    fn next(&mut self, rng: &mut Rng) -> u64 {
        let drawn = rng.below(100) as u8;
        let zone = self.zones.iter().find(|(access, ..)| drawn < *access).or(self.zones.last());
        zone.map_or(0, |(_, first, places)| first + rng.below(*places))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::job::testing::job;
    use crate::pattern::Rng;

    fn spread(text: &str, places: u64) -> Spread {
        let job = job(&[("random_distribution", text)]);
        Spread::new(&job.random.distribution, places, 4096, 0, false, &mut Rng::new(5))
    }

    /// Returns the shares of the most popular places, descending.
    fn shares(text: &str, places: u64) -> Vec<f64> {
        let (mut spread, mut rng, mut counts) = (spread(text, places), Rng::new(9), HashMap::new());
        for _ in 0..200_000 {
            *counts.entry(spread.next(&mut rng)).or_insert(0u64) += 1;
        }
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.iter().map(|count| *count as f64 / 200_000.0).collect()
    }

    #[test]
    fn zipf_is_zipfs_law() {
        for theta in [0.6, 1.2, 2.0] {
            let shares = shares(&format!("zipf:{theta}"), 1000);
            let zeta = zeta(1000, theta);
            for (rank, tolerance) in [(1, 0.02), (2, 0.03), (10, 0.15)] {
                let want = f64::powf(rank as f64, -theta) / zeta;
                assert!(
                    (shares[rank - 1] / want - 1.0).abs() < tolerance,
                    "{theta} {rank}: {} {want}",
                    shares[rank - 1]
                );
            }
        }
        let exact: f64 = (1..=200_000u64).map(|k| (k as f64).powf(-1.2)).sum();
        assert!((zeta(200_000, 1.2) / exact - 1.0).abs() < 1e-9);
    }

    /// h = 0.2 means that 80 % of the accesses go to 20 % of the places.
    #[test]
    fn pareto_is_the_rule_of_its_power() {
        for (text, part, want) in [("pareto:0.2", 200, 0.8), ("pareto:0.3", 300, 0.7)] {
            let hot: f64 = shares(text, 1000)[..part].iter().sum();
            assert!((hot - want).abs() < 0.01, "{text}: {hot}");
        }
    }

    #[test]
    fn zones_have_their_shares() {
        let (mut spread, mut rng) = (spread("zoned:60/10:30/20:8/30:2/40", 1000), Rng::new(1));
        let mut counts = [0u32; 4];
        for _ in 0..100_000 {
            let place = spread.next(&mut rng);
            counts[[100, 300, 600, 1000].iter().position(|end| place < *end).unwrap()] += 1;
        }
        for (count, percent) in counts.iter().zip([60, 30, 8, 2]) {
            assert!(count.abs_diff(percent * 1000) < 700, "{counts:?}");
        }
    }

    proptest! {
        #[test]
        fn scattering_is_one_to_one(places in 1u64..3000) {
            let seen: HashSet<u64> = (0..places).map(|x| scattered(x, places)).collect();
            prop_assert_eq!(seen.len() as u64, places);
            prop_assert!(seen.iter().all(|place| *place < places));
        }

        #[test]
        fn always_within_the_range(places in 1u64..100_000, seed: u64, what in 0usize..8) {
            let text = [
                "random", "zipf:1.2", "zipf:0.3:0.9", "pareto:0.01", "normal:0", "normal:99:1",
                "zoned:1/1:99/1", "zoned_abs:50/4k:50/1g",
            ][what];
            let (mut spread, mut rng) = (spread(text, places), Rng::new(seed));
            for _ in 0..200 {
                prop_assert!(spread.next(&mut rng) < places);
            }
        }
    }
}
