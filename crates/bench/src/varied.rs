//! I/Os of varying sizes, or to places that may come again before all have come: `bssplit` and
//! `norandommap`.
//!
//! With one size, and without `norandommap`, each block is visited once before any is visited
//! again. With several sizes I/Os may overlap, but each place is still drawn once as a beginning.

use super::pattern::{Io, PatternSpec, Permutation, Rng};
use super::source::{Source, pass_begins};
use crate::job::{Job, Sizes};

/// Number of draws of a size that does not fit, before the smallest is taken.
const DRAWS: usize = 8;

/// The parameters of a varied pattern.
#[derive(Debug, Clone)]
pub struct VariedSpec {
    /// Everything else.
    pub base: PatternSpec,
    /// Sizes of reads and writes.
    pub sizes: [Sizes; 2],
    /// Whether each place is visited once before any is visited again.
    pub once: bool,
}

impl VariedSpec {
    /// Returns the variations of `base` that `job` sets, or `None` if there are none.
    pub fn of(job: &Job, base: PatternSpec) -> Option<Self> {
        let once = !job.random.norandommap;
        if (once || !base.random) && !job.has_varied_sizes() {
            return None;
        }
        Some(Self { base, sizes: [job.sizes_of(0), job.sizes_of(1)], once })
    }
}

/// Chooses random places.
#[derive(Debug, Clone)]
enum Random {
    /// Each once before any comes again.
    Once(Permutation),
    /// Any of this number of places.
    Any(u64),
}

/// Chooses the places and sizes of one direction.
#[derive(Debug, Clone)]
struct Placer {
    /// Cumulative shares in percent, with their sizes.
    shares: Vec<(u8, u64)>,
    min_bytes: u64,
    step_bytes: u64,
    random: Option<Random>,
    /// End of the last I/O, at which the next one of a sequence begins.
    position_bytes: u64,
}

impl Placer {
    fn new(spec: &VariedSpec, direction: usize, rng: &mut Rng) -> Self {
        let sizes = &spec.sizes[direction];
        let (min_bytes, step_bytes) = (sizes.min_bytes(), sizes.step_bytes());
        // A direction that the job does not use may not fit.
        let places = spec.base.range_bytes.saturating_sub(min_bytes) / step_bytes + 1;
        let random = spec.base.random.then(|| match spec.once {
            true => Random::Once(Permutation::new(places, rng)),
            false => Random::Any(places),
        });
        let mut sum = 0;
        let shares = sizes.shares().into_iter().map(|(bytes, percent)| {
            sum += percent;
            (sum, bytes)
        });
        Self { shares: shares.collect(), min_bytes, step_bytes, random, position_bytes: 0 }
    }

    /// Draws a size.
    fn size_bytes(&self, rng: &mut Rng) -> u64 {
        let drawn = if self.shares.len() > 1 { rng.below(100) as u8 } else { 0 };
        let found = self.shares.iter().find(|(sum, _)| drawn < *sum);
        found.map_or(self.min_bytes, |(_, bytes)| *bytes)
    }

    /// Returns place and size of the next I/O, in a range of `range_bytes` of which `left_bytes`
    /// are not yet transferred.
    fn next(&mut self, range_bytes: u64, left_bytes: u64, rng: &mut Rng) -> (u64, u64) {
        let offset_bytes = match &mut self.random {
            Some(Random::Once(order)) => order.next() * self.step_bytes,
            Some(Random::Any(places)) => rng.below(*places) * self.step_bytes,
            None if range_bytes - self.position_bytes >= self.min_bytes => self.position_bytes,
            None => 0,
        };
        let room_bytes = left_bytes.min(range_bytes - offset_bytes);
        let mut draws = (0..DRAWS).map(|_| self.size_bytes(rng));
        let bytes = draws.find(|bytes| *bytes <= room_bytes).unwrap_or(self.min_bytes);
        self.position_bytes = offset_bytes + bytes;
        (offset_bytes, bytes)
    }
}

/// The I/Os of one thread.
#[derive(Debug, Clone)]
pub struct Varied {
    spec: VariedSpec,
    rng: Rng,
    placers: [Placer; 2],
    /// Whether reads and writes have the first placer in common.
    is_shared: bool,
    left_bytes: u64,
    passes_left: Option<u64>,
}

impl Varied {
    /// Creates the pattern of `spec`, at its beginning.
    pub fn new(spec: VariedSpec) -> Self {
        let mut rng = Rng::new(spec.base.seed);
        let placers = [0, 1].map(|direction| Placer::new(&spec, direction, &mut rng));
        let passes_left = spec.base.passes.map(|passes| passes.saturating_sub(1));
        let is_shared = spec.base.random && spec.sizes[0] == spec.sizes[1];
        Self { left_bytes: spec.base.pass_bytes, rng, placers, is_shared, passes_left, spec }
    }
}

impl Source for Varied {
    fn next_in_pass(&mut self) -> Option<Io> {
        let dir = self.spec.base.direction(&mut self.rng);
        // As in a `Pattern`, both directions have one order if their sizes are the same.
        let index = if self.is_shared { 0 } else { dir as usize };
        let placer = &mut self.placers[index];
        if self.left_bytes < placer.min_bytes {
            return None;
        }
        let range_bytes = self.spec.base.range_bytes;
        let (offset_bytes, bytes) = placer.next(range_bytes, self.left_bytes, &mut self.rng);
        self.left_bytes -= bytes;
        let lba = (self.spec.base.offset_bytes + offset_bytes) >> self.spec.base.block_shift;
        Some(Io { dir, lba, bytes: bytes as usize })
    }

    fn begin_pass(&mut self) -> bool {
        if !pass_begins(&mut self.passes_left) {
            return false;
        }
        self.left_bytes = self.spec.base.pass_bytes;
        self.placers = [0, 1].map(|direction| Placer::new(&self.spec, direction, &mut self.rng));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::job::testing::job;

    fn varied(keys: &[(&str, &str)], range_bytes: u64, passes: Option<u64>, seed: u64) -> Varied {
        let job = job(keys);
        let base = PatternSpec {
            offset_bytes: 8192,
            range_bytes,
            pass_bytes: range_bytes,
            block_shift: 9,
            bs_read_bytes: job.bs_read_bytes,
            bs_write_bytes: job.bs_write_bytes,
            random: job.rw.is_random(),
            read_percent: if job.reads() { 100 } else { 0 },
            passes,
            seed,
        };
        Varied::new(VariedSpec::of(&job, base).unwrap())
    }

    fn sizes(keys: &[(&str, &str)]) -> HashMap<usize, usize> {
        let mut varied = varied(keys, 64 << 20, None, 1);
        let mut counts = HashMap::new();
        for _ in 0..50_000 {
            *counts.entry(varied.next().unwrap().bytes).or_default() += 1;
        }
        counts
    }

    #[test]
    fn sizes_have_their_shares() {
        let split = sizes(&[("rw", "randread"), ("bssplit", "4k/70:16k/30"), ("norandommap", "1")]);
        assert_eq!(split.len(), 2);
        assert!(split[&4096].abs_diff(35_000) < 500, "{split:?}");
        // Half of the sequence's I/Os are of either size, regardless of the amount they transfer.
        let seq = sizes(&[("rw", "write"), ("bssplit", "4k/50:8k/50")]);
        assert!(seq[&4096].abs_diff(25_000) < 500, "{seq:?}");
    }

    #[test]
    fn what_does_not_vary_is_left_to_the_plain_pattern() {
        let base = varied(&[("rw", "randread"), ("norandommap", "1")], 1 << 20, None, 1).spec.base;
        for (keys, plain) in [
            (&[("rw", "randread")][..], true),
            (&[("rw", "randread"), ("norandommap", "1")], false),
            (&[("rw", "randread"), ("bssplit", "4k/50:8k/50")], false),
        ] {
            assert_eq!(VariedSpec::of(&job(keys), base).is_none(), plain, "{keys:?}");
        }
    }

    #[test]
    fn a_place_comes_again_only_if_it_may() {
        let distinct = |keys: &[(&str, &str)]| {
            let mut varied = varied(keys, 512 << 10, None, 1);
            let lbas = std::iter::from_fn(|| varied.next_in_pass()).map(|io| io.lba);
            lbas.collect::<std::collections::HashSet<_>>().len()
        };
        let sizes = ("bssplit", "4k/100");
        assert_eq!(distinct(&[("rw", "randread"), sizes]), 128);
        // All but e^-1 of them.
        let some = distinct(&[("rw", "randread"), sizes, ("norandommap", "1")]);
        assert!((70..95).contains(&some), "{some}");
    }

    #[test]
    fn a_sequence_is_without_gaps() {
        let mut varied =
            varied(&[("rw", "read"), ("bssplit", "512/30:4k/40:8k/30")], 1 << 20, Some(2), 3);
        let ios: Vec<Io> = std::iter::from_fn(|| varied.next()).collect();
        assert_eq!(ios.iter().map(|io| io.bytes).sum::<usize>(), 2 << 20);
        for pair in ios.windows(2) {
            assert!(
                pair[1].lba == 16 || pair[1].lba * 512 == pair[0].lba * 512 + pair[0].bytes as u64,
                "{pair:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn never_beyond_the_range(
            blocks in 16u64..600,
            seed: u64,
            random: bool,
            what in 0usize..3,
        ) {
            let (key, value) = [
                ("bssplit", "512/10:2k/40:7k/50"),
                ("bssplit", "1k/50:1536/50"),
                ("norandommap", "1"),
            ][what];
            prop_assume!(random || what < 2);
            let rw = if random { "randread" } else { "read" };
            let range_bytes = blocks * 512;
            let mut varied = varied(&[("rw", rw), (key, value)], range_bytes, Some(2), seed);
            let mut bytes = 0;
            while let Some(io) = varied.next() {
                let (from, to) = (io.lba * 512, io.lba * 512 + io.bytes as u64);
                prop_assert!(from >= 8192 && to <= 8192 + range_bytes, "{:?}", io);
                bytes += io.bytes as u64;
            }
            let all_bytes = 2 * range_bytes;
            prop_assert!(bytes <= all_bytes, "{} of {}", bytes, all_bytes);
            prop_assert!(bytes + 2 * 4096 > all_bytes, "{} of {}", bytes, all_bytes);
        }
    }
}
