//! The random generator of everything that a seed reproduces: software SSD, simulator, jobs.
//!
//! Written here rather than taken from a crate because its numbers must stay the same: data that
//! `meantime bench` wrote is checked by a later version, which generates it again from its seed,
//! and the simulator's published figures come from fixed seeds.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// A seeded pseudo-random generator (`SplitMix64`, by Steele, Lea and Flood). Not for secrets.
#[derive(Debug, Clone, Copy)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed. Equal seeds give equal sequences.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias is below `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true in `ppm` of a million cases.
    #[inline]
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// Returns a number of the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        // 1 - unit() is in (0, 1], so its logarithm is finite.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_sequence() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(Rng::new(7).next_u64(), Rng::new(8).next_u64());
    }

    #[test]
    fn split_mix_reference() {
        // First output for seed 1234567, from the algorithm's published test vector.
        assert_eq!(Rng::new(1_234_567).next_u64(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn normal_has_mean_zero_and_variance_one() {
        let mut rng = Rng::new(3);
        let n = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = rng.normal();
            sum += x;
            squares += x * x;
        }
        assert!((sum / f64::from(n)).abs() < 0.02);
        assert!((squares / f64::from(n) - 1.0).abs() < 0.02);
    }
}
