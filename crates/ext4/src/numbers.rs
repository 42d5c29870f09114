//! Maps keyed by block or inode numbers. Each change makes some dozens of look-ups in them.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map keyed by a number.
pub(crate) type ByNumber<K, V> = HashMap<K, V, Keyed>;

/// 2^64 over the golden ratio, odd.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes numbers by a product with a secret, random for each map, so that no disk can make all its
/// numbers collide.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    secret: u64,
}

impl Default for Keyed {
    fn default() -> Self {
        Self { secret: RandomState::new().hash_one(FACTOR) }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.secret)
    }
}

/// The hash of the numbers so far.
pub(crate) struct Folded(u64);

impl Hasher for Folded {
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(self.0 ^ FACTOR | 1);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_lie_together_are_spread() {
        let keyed = Keyed::default();
        for step in [1, 8, 4096, 1 << 32] {
            let mut counts = [0; 64];
            for number in 0..6400_u64 {
                let hash = keyed.hash_one(number * step);
                // The table uses the lowest bits, and compares the highest seven.
                counts[(hash & 63) as usize] += 1;
            }
            assert!(counts.iter().all(|count| (20..400).contains(count)), "{step}: {counts:?}");
        }
    }
}
