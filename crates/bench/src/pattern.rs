//! The places of a job's I/Os: sequential or random, aligned to the block size, within the job's
//! range.

use super::source::{Source, pass_begins};

pub use meantime_random::Rng;

/// Direction of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dir {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// Deallocation.
    Trim = 2,
}

/// One I/O, as a pattern chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// Direction.
    pub dir: Dir,
    /// First logical block.
    pub lba: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// The parameters of a pattern. The range need not be a multiple of a block size, and its rest is
/// not accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternSpec {
    /// First byte of the range.
    pub offset_bytes: u64,
    /// Length of the range.
    pub range_bytes: u64,
    /// Amount of one pass, which is the range unless `io_size` sets another.
    pub pass_bytes: u64,
    /// log2 of the logical block size.
    pub block_shift: u32,
    /// Size of reads.
    pub bs_read_bytes: u64,
    /// Size of writes.
    pub bs_write_bytes: u64,
    /// Random order.
    pub random: bool,
    /// Share of reads in percent.
    pub read_percent: u8,
    /// Number of passes, or `None` for no limit.
    pub passes: Option<u64>,
    /// Equal seeds give equal patterns.
    pub seed: u64,
}

impl PatternSpec {
    /// Draws the direction of an I/O.
    #[inline(always)]
    pub fn direction(&self, rng: &mut Rng) -> Dir {
        match self.read_percent {
            100 => Dir::Read,
            0 => Dir::Write,
            percent if ((rng.next_u64() >> 32) * 100) >> 32 < u64::from(percent) => Dir::Read,
            _ => Dir::Write,
        }
    }
}

/// All numbers below a limit in random order, each once, without a table. This is fio's random map
/// in three words.
///
/// A linear congruential generator of full period 2^k visits every number below 2^k once; an
/// invertible mix makes its low bits random, too. Numbers beyond the limit are skipped.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    state: u64,
    increment: u64,
    mix: Mix,
    limit: u64,
}

/// A bijection of the numbers of k bits, without recognisable order.
#[derive(Debug, Clone, Copy)]
struct Mix {
    mask: u64,
    half: u32,
}

impl Mix {
    /// Creates the map with the number of bits of the numbers below `limit`.
    fn below(limit: u64) -> Self {
        let bits = u64::BITS - limit.saturating_sub(1).leading_zeros();
        let mask = if bits == 0 { 0 } else { u64::MAX >> (u64::BITS - bits) };
        Self { mask, half: (bits / 2).max(1) }
    }

    /// Each step is invertible on k bits.
    #[inline(always)]
    fn of(self, mut x: u64) -> u64 {
        x ^= x >> self.half;
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) & self.mask;
        x ^ x >> self.half
    }
}

impl Permutation {
    /// Creates an order of the numbers below `limit`.
    pub(crate) fn new(limit: u64, rng: &mut Rng) -> Self {
        let mix = Mix::below(limit);
        Self { state: rng.next_u64() & mix.mask, increment: rng.next_u64() | 1, mix, limit }
    }

    /// Returns the next number. After the last one, it returns the first again.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        loop {
            // Multiplier ≡ 1 mod 4 and an odd increment: full period for every power of two (Hull
            // and Dobell 1962).
            self.state =
                self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(self.increment)
                    & self.mix.mask;
            let x = self.mix.of(self.state);
            if x < self.limit {
                return x;
            }
        }
    }
}

/// Chooses the places of one direction.
#[derive(Debug, Clone)]
struct Placer {
    bytes: u64,
    blocks: u64,
    next: u64,
    order: Option<Permutation>,
}

impl Placer {
    fn new(spec: &PatternSpec, bytes: u64, rng: &mut Rng) -> Self {
        let blocks = spec.range_bytes / bytes;
        let order = spec.random.then(|| Permutation::new(blocks, rng));
        Self { bytes, blocks, next: 0, order }
    }

    /// Returns the next place, in units of the block size.
    #[inline(always)]
    fn next(&mut self) -> u64 {
        if let Some(order) = &mut self.order {
            return order.next();
        }
        let place = self.next;
        self.next = if place + 1 == self.blocks { 0 } else { place + 1 };
        place
    }
}

/// The I/Os of one thread of a job.
#[derive(Debug, Clone)]
pub struct Pattern {
    spec: PatternSpec,
    rng: Rng,
    /// The placer of reads, or of both directions if they share one.
    read: Placer,
    write: Placer,
    left_bytes: u64,
    passes_left: Option<u64>,
}

impl Pattern {
    /// Creates the pattern of `spec`, at its beginning.
    pub fn new(spec: PatternSpec) -> Self {
        let mut rng = Rng::new(spec.seed);
        let read = Placer::new(&spec, spec.bs_read_bytes, &mut rng);
        let write = Placer::new(&spec, spec.bs_write_bytes, &mut rng);
        let mut pattern = Self { spec, rng, read, write, left_bytes: 0, passes_left: spec.passes };
        pattern.begin_pass();
        pattern
    }

    /// Returns the next I/O, of this pass or the next, or `None` after all passes.
    #[inline(always)]
    #[expect(clippy::should_implement_trait, reason = "as a source has it")]
    pub fn next(&mut self) -> Option<Io> {
        Source::next(self)
    }

    /// Returns the amount of all passes, in bytes, or `None` if they do not end.
    pub fn total_bytes(spec: &PatternSpec) -> Option<u64> {
        spec.passes.map(|passes| spec.pass_bytes.saturating_mul(passes))
    }
}

impl Source for Pattern {
    /// A random pass has another order than the one before.
    #[cold]
    fn begin_pass(&mut self) -> bool {
        if !pass_begins(&mut self.passes_left) {
            return false;
        }
        self.left_bytes = self.spec.pass_bytes;
        self.read = Placer::new(&self.spec, self.spec.bs_read_bytes, &mut self.rng);
        self.write = Placer::new(&self.spec, self.spec.bs_write_bytes, &mut self.rng);
        true
    }

    #[inline(always)]
    fn next_in_pass(&mut self) -> Option<Io> {
        let dir = self.spec.direction(&mut self.rng);
        // In random order, reads and writes of one size visit each place once between them.
        let is_shared = self.spec.random && self.spec.bs_read_bytes == self.spec.bs_write_bytes;
        let placer = match dir {
            Dir::Write | Dir::Trim if !is_shared => &mut self.write,
            _ => &mut self.read,
        };
        self.left_bytes = match self.left_bytes.checked_sub(placer.bytes) {
            Some(left_bytes) => left_bytes,
            None => {
                self.left_bytes = 0;
                return None;
            }
        };
        let lba = (self.spec.offset_bytes + placer.next() * placer.bytes) >> self.spec.block_shift;
        Some(Io { dir, lba, bytes: placer.bytes as usize })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn spec(range_bytes: u64, random: bool) -> PatternSpec {
        PatternSpec {
            offset_bytes: 8192,
            range_bytes,
            pass_bytes: range_bytes,
            block_shift: 9,
            bs_read_bytes: 4096,
            bs_write_bytes: 4096,
            random,
            read_percent: 100,
            passes: Some(1),
            seed: 1,
        }
    }

    #[test]
    fn sequential_goes_through_the_range_and_begins_again() {
        let mut pattern =
            Pattern::new(PatternSpec { passes: Some(2), ..spec(3 * 4096 + 512, false) });
        let lbas: Vec<u64> = std::iter::from_fn(|| pattern.next()).map(|io| io.lba).collect();
        assert_eq!(lbas, [16, 24, 32, 16, 24, 32]);
    }

    #[test]
    fn a_pass_transfers_what_it_is_to() {
        let mut pattern =
            Pattern::new(PatternSpec { pass_bytes: 5 * 4096, ..spec(3 * 4096, false) });
        let lbas: Vec<u64> = std::iter::from_fn(|| pattern.next()).map(|io| io.lba).collect();
        assert_eq!(lbas, [16, 24, 32, 16, 24]);
    }

    #[test]
    fn equal_seeds_give_equal_patterns() {
        let take = |seed| {
            let mut pattern =
                Pattern::new(PatternSpec { seed, read_percent: 30, ..spec(1 << 20, true) });
            (0..100).filter_map(move |_| pattern.next()).collect::<Vec<_>>()
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn the_mix_is_as_asked() {
        let mut pattern =
            Pattern::new(PatternSpec { passes: None, read_percent: 70, ..spec(1 << 20, true) });
        let reads =
            (0..20_000).filter(|_| pattern.next().is_some_and(|io| io.dir == Dir::Read)).count();
        assert!((13_700..14_300).contains(&reads), "{reads}");
    }

    /// Consecutive places are a third of the range apart on average.
    #[test]
    fn random_jumps_about() {
        let mut pattern = Pattern::new(spec(4096 << 16, true));
        let lbas: Vec<u64> = std::iter::from_fn(|| pattern.next()).map(|io| io.lba / 8).collect();
        let jumps: u64 = lbas.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
        let mean = jumps as f64 / (lbas.len() - 1) as f64 / 65536.0;
        assert!((0.31..0.36).contains(&mean), "{mean}");
    }

    proptest! {
        #[test]
        fn a_random_pass_touches_each_block_once(
            blocks in 1u64..3000,
            read_percent in 0u8..=100,
            seed: u64,
        ) {
            let spec = PatternSpec { seed, read_percent, ..spec(blocks * 4096 + 1024, true) };
            let mut pattern = Pattern::new(spec);
            let seen: Vec<u64> = std::iter::from_fn(|| pattern.next()).map(|io| io.lba).collect();
            prop_assert_eq!(seen.len() as u64, blocks);
            let lbas = 16..16 + 8 * blocks;
            prop_assert!(seen.iter().all(|lba| lbas.contains(lba) && lba % 8 == 0));
            prop_assert_eq!(seen.iter().collect::<HashSet<_>>().len() as u64, blocks);
        }

        #[test]
        fn never_beyond_the_range(
            sectors in 16u64..5000,
            read in 1u64..17,
            write in 1u64..17,
            random: bool,
            percent in 0u8..=100,
            seed: u64,
        ) {
            let spec = PatternSpec {
                range_bytes: sectors * 512,
                pass_bytes: sectors * 512,
                bs_read_bytes: read * 512,
                bs_write_bytes: write * 512,
                random,
                read_percent: percent,
                passes: Some(3),
                seed,
                ..spec(0, random)
            };
            let mut pattern = Pattern::new(spec);
            let mut bytes = 0;
            while let Some(io) = pattern.next() {
                let (from, to) = (io.lba * 512, io.lba * 512 + io.bytes as u64);
                prop_assert!(from >= 8192 && to <= 8192 + spec.range_bytes);
                bytes += io.bytes as u64;
            }
            let all_bytes = 3 * spec.range_bytes;
            prop_assert!(bytes <= all_bytes && bytes + 3 * 16 * 512 > all_bytes);
        }
    }
}
