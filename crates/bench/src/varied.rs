//! I/Os of varying sizes, to places that are not all equally likely, or with gaps: `bsrange`,
//! `bssplit`, `random_distribution`, `norandommap`, `blockalign`, `rw=read:N`, `zonemode=strided`.
//!
//! With one size, and without `norandommap`, each block is visited once before any is visited
//! again, for every name of the generator. With several sizes I/Os may overlap: each place is still
//! drawn once as a beginning.

use super::pattern::{Io, PatternSpec, Rng};
use super::source::{Source, pass_begins};
use super::spread::Spread;
use crate::job::{Distribution, Generator, Job, Places, Sizes, ZoneKeys, ZoneMode};

/// Number of draws of a size that does not fit, before the smallest is taken.
const DRAWS: usize = 8;

/// The parameters of a varied pattern.
#[derive(Debug, Clone)]
pub struct VariedSpec {
    /// Everything else.
    pub base: PatternSpec,
    /// Sizes of reads and writes.
    pub sizes: [Sizes; 2],
    /// Places of random I/Os.
    pub distribution: Distribution,
    /// Whether each place is visited once before any is visited again.
    pub once: bool,
    /// Sizes that random places are multiples of, if not those of the I/Os.
    pub align_bytes: [Option<u64>; 2],
    /// Order of the places.
    pub places: Places,
    /// Zones; a part of each is transferred before the next one.
    pub strides: Option<ZoneKeys>,
}

impl VariedSpec {
    /// Returns the variations of `base` that `job` sets; `None` without any.
    pub fn of(job: &Job, base: PatternSpec) -> Option<Self> {
        let align_bytes = [job.align_bytes(0), job.align_bytes(1)];
        // As in fio, places with gaps between their blocks are drawn independently.
        let mapped = !job.random.norandommap && align_bytes == [None; 2];
        let once = mapped || job.random.generator == Generator::Lfsr;
        let is_plain = match base.random {
            true => {
                job.random.distribution == Distribution::Uniform
                    && once
                    && align_bytes == [None; 2]
                    && job.places.run == 1
            }
            false => job.places.skip_bytes == 0,
        };
        let strides = Some(job.zones).filter(|zones| zones.mode() == ZoneMode::Strided);
        if is_plain && !job.has_varied_sizes() && strides.is_none() {
            return None;
        }
        let sizes = [job.sizes_of(0), job.sizes_of(1)];
        let distribution = job.random.distribution.clone();
        Some(Self { base, sizes, distribution, once, align_bytes, places: job.places, strides })
    }

    /// Returns the part of the range within which places are chosen: all of it, or a zone.
    fn window_bytes(&self, min_bytes: u64) -> u64 {
        match &self.strides {
            None => self.base.range_bytes,
            Some(zones) if self.base.random => zones.strided_range_bytes(),
            // As in fio the last I/O of a sequence begins within the zone.
            Some(zones) => zones.strided_range_bytes().next_multiple_of(min_bytes.max(1)),
        }
    }
}

/// Chooses sizes.
#[derive(Debug, Clone)]
pub(crate) enum Sizer {
    Fixed(u64),
    /// The smallest size, and the number of its multiples.
    Multiples(u64, u64),
    /// Cumulative shares in percent, with their sizes.
    Shares(Vec<(u8, u64)>),
}

impl Sizer {
    /// Creates the sizer of one direction.
    pub(crate) fn new(sizes: &Sizes) -> Self {
        match sizes {
            Sizes::Fixed(bytes) => Self::Fixed(*bytes),
            Sizes::Range(min, max) => Self::Multiples(*min, max / min),
            Sizes::Split(shares) => {
                let sum = shares.iter().scan(0, |sum, (bytes, percent)| {
                    *sum += percent;
                    Some((*sum, *bytes))
                });
                Self::Shares(sum.collect())
            }
        }
    }

    /// Returns a size within `room_bytes`; `None` if none was drawn.
    pub(crate) fn within(&self, room_bytes: u64, rng: &mut Rng) -> Option<u64> {
        (0..DRAWS).map(|_| self.next(rng)).find(|bytes| *bytes <= room_bytes)
    }

    /// Returns the next size.
    fn next(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Multiples(min, count) => min * (1 + rng.below(*count)),
            Self::Shares(shares) => {
                let drawn = rng.below(100) as u8;
                shares
                    .iter()
                    .find(|(sum, _)| drawn < *sum)
                    .or(shares.last())
                    .map_or(0, |(_, bytes)| *bytes)
            }
        }
    }
}

/// Chooses the places and sizes of one direction.
#[derive(Debug, Clone)]
struct Placer {
    sizer: Sizer,
    min_bytes: u64,
    step_bytes: u64,
    spread: Option<Spread>,
    places: Places,
    /// Number of I/Os left in a run after a random place.
    run_left: u64,
    /// Start of the last I/O.
    last_bytes: u64,
    /// End of the last I/O: the next one of a sequence begins here.
    position_bytes: u64,
}

impl Placer {
    fn new(spec: &VariedSpec, direction: usize, rng: &mut Rng) -> Self {
        let sizes = &spec.sizes[direction];
        let (min_bytes, step_bytes) =
            (sizes.min_bytes(), spec.align_bytes[direction].unwrap_or(sizes.step_bytes()));
        // A direction that the job does not use may not fit.
        let window_bytes = spec.window_bytes(min_bytes);
        let places = window_bytes.saturating_sub(min_bytes) / step_bytes + 1;
        let spread = spec.base.random.then(|| {
            Spread::new(&spec.distribution, places, step_bytes, direction, spec.once, rng)
        });
        Self {
            sizer: Sizer::new(sizes),
            min_bytes,
            step_bytes,
            spread,
            places: spec.places,
            run_left: 0,
            last_bytes: 0,
            position_bytes: 0,
        }
    }

    /// Restarts, as if no place had been visited.
    fn restart(&mut self, rng: &mut Rng) {
        (self.run_left, self.last_bytes, self.position_bytes) = (0, 0, 0);
        if let Some(spread) = &mut self.spread {
            spread.restart(rng);
        }
    }

    /// Returns place and size of the next I/O, in a range of `range_bytes` of which `left_bytes`
    /// are not yet transferred.
    fn next(&mut self, range_bytes: u64, left_bytes: u64, rng: &mut Rng) -> (u64, u64) {
        let offset_bytes = match &mut self.spread {
            None => self.next_of_sequence(range_bytes),
            Some(_) if self.run_left > 0 && self.places.identical => self.last_bytes,
            Some(_) if self.run_left > 0 && range_bytes - self.position_bytes >= self.min_bytes => {
                self.position_bytes
            }
            Some(spread) => {
                self.run_left = self.places.run;
                spread.next(rng) * self.step_bytes
            }
        };
        self.run_left = self.run_left.saturating_sub(1);
        let room_bytes = left_bytes.min(range_bytes - offset_bytes);
        let bytes = self.sizer.within(room_bytes, rng).unwrap_or(self.min_bytes);
        (self.last_bytes, self.position_bytes) = (offset_bytes, offset_bytes + bytes);
        (offset_bytes, bytes)
    }

    /// Returns the start of the next I/O of a sequence. As in fio nothing is added to the first
    /// place, and a backward sequence continues at the end of the range.
    fn next_of_sequence(&self, range_bytes: u64) -> u64 {
        let skip_bytes = self.places.skip_bytes;
        let fits = |bytes: &u64| {
            range_bytes.checked_sub(*bytes).is_some_and(|room| room >= self.min_bytes)
        };
        if self.position_bytes == 0 || skip_bytes == 0 {
            return Some(self.position_bytes).filter(fits).unwrap_or(0);
        }
        let back_bytes = || range_bytes.checked_add_signed(skip_bytes.min(0));
        let next = self.position_bytes.checked_add_signed(skip_bytes).filter(fits);
        next.or_else(|| back_bytes().filter(fits)).unwrap_or(0)
    }
}

/// The I/Os of one thread.
#[derive(Debug, Clone)]
pub struct Varied {
    spec: VariedSpec,
    rng: Rng,
    placers: [Placer; 2],
    left_bytes: u64,
    passes_left: Option<u64>,
    /// Start of the zone within the range, and the amount transferred in it.
    zone: (u64, u64),
}

impl Varied {
    /// Creates the pattern of `spec`, at its beginning.
    pub fn new(spec: VariedSpec) -> Self {
        let mut rng = Rng::new(spec.base.seed);
        let placers = [0, 1].map(|direction| Placer::new(&spec, direction, &mut rng));
        let passes_left = spec.base.passes.map(|passes| passes.saturating_sub(1));
        Self { left_bytes: spec.base.pass_bytes, rng, placers, passes_left, spec, zone: (0, 0) }
    }

    /// Enters the zone of the next I/O: the same until its amount is transferred, then the next
    /// one, and after the last the first again.
    fn enter_zone(&mut self, zones: &ZoneKeys) {
        let range_bytes = zones.strided_range_bytes();
        let (start_bytes, done_bytes) = &mut self.zone;
        if *done_bytes >= zones.size_bytes {
            let next_bytes =
                start_bytes.saturating_add(range_bytes).saturating_add(zones.skip_bytes);
            *start_bytes = if next_bytes >= self.spec.base.range_bytes { 0 } else { next_bytes };
            *done_bytes = 0;
        }
        // Each place of a zone is visited again after all were visited.
        if done_bytes.is_multiple_of(range_bytes) {
            self.placers.iter_mut().for_each(|placer| placer.restart(&mut self.rng));
        }
    }
}

impl Source for Varied {
    fn next_in_pass(&mut self) -> Option<Io> {
        let dir = self.spec.base.direction(&mut self.rng);
        if let Some(zones) = self.spec.strides {
            self.enter_zone(&zones);
        }
        let placer = &mut self.placers[dir as usize];
        if self.left_bytes < placer.min_bytes {
            return None;
        }
        let window_bytes = self.spec.window_bytes(placer.min_bytes);
        let (offset_bytes, bytes) = placer.next(window_bytes, self.left_bytes, &mut self.rng);
        let offset_bytes = self.zone.0 + offset_bytes;
        if offset_bytes + bytes > self.spec.base.range_bytes {
            // A zone that is cut short by the end. As in fio an I/O beyond it ends the pass.
            self.left_bytes = 0;
            return None;
        }
        self.zone.1 += bytes;
        self.left_bytes -= bytes;
        let lba = (self.spec.base.offset_bytes + offset_bytes) >> self.spec.base.block_shift;
        Some(Io { dir, lba, bytes: bytes as usize, ioprio: 0 })
    }

    fn begin_pass(&mut self) -> bool {
        if !pass_begins(&mut self.passes_left) {
            return false;
        }
        self.left_bytes = self.spec.base.pass_bytes;
        self.placers = [0, 1].map(|direction| Placer::new(&self.spec, direction, &mut self.rng));
        self.zone = (0, 0);
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
        let range = sizes(&[("rw", "read"), ("bsrange", "4k-16k")]);
        assert_eq!(range.len(), 4);
        assert!(range.values().all(|count| count.abs_diff(12_500) < 500), "{range:?}");
        // Half of the sequence's I/Os are of either size, regardless of the amount they transfer.
        let seq = sizes(&[("rw", "write"), ("bssplit", "4k/50:8k/50")]);
        assert!(seq[&4096].abs_diff(25_000) < 500, "{seq:?}");
    }

    #[test]
    fn what_does_not_vary_is_left_to_the_plain_pattern() {
        let base = varied(&[("rw", "randread"), ("norandommap", "1")], 1 << 20, None, 1).spec.base;
        for (keys, plain) in [
            (&[("rw", "randread")][..], true),
            (&[("rw", "randread"), ("random_generator", "lfsr"), ("norandommap", "1")], true),
            (&[("rw", "randread"), ("norandommap", "1")], false),
            (&[("rw", "randread"), ("random_distribution", "zipf")], false),
            (&[("rw", "randread"), ("bsrange", "4k-8k")], false),
        ] {
            assert_eq!(VariedSpec::of(&job(keys), base).is_none(), plain, "{keys:?}");
        }
    }

    /// Returns the offsets of the first `count` I/Os in units of 4 KiB, in a range of 16.
    fn first(keys: &[(&str, &str)], count: usize) -> Vec<u64> {
        first_of(16, keys, count)
    }

    fn first_of(blocks: u64, keys: &[(&str, &str)], count: usize) -> Vec<u64> {
        let mut varied = varied(keys, blocks * 4096, None, 1);
        (0..count).map(|_| (varied.next().unwrap().lba * 512 - 8192) / 4096).collect()
    }

    #[test]
    fn sequences_with_gaps_and_backwards() {
        assert_eq!(first(&[("rw", "read:8k")], 7), [0, 3, 6, 9, 12, 15, 0]);
        assert_eq!(first(&[("rw", "read:-8k")], 5), [0, 14, 13, 12, 11]);
        // -4k cancels the I/O's length, 1m exceeds the range: the first place again.
        assert_eq!(first(&[("rw", "read:-4k")], 3), [0, 0, 0]);
        assert_eq!(first(&[("rw", "read:1m")], 3), [0, 0, 0]);
        assert_eq!(first(&[("rw", "read:-1m")], 3), [0, 0, 0]);
    }

    #[test]
    fn runs_after_random_places() {
        let places = first_of(1 << 20, &[("rw", "randread:4")], 40);
        for run in places.chunks(4) {
            assert!(run.windows(2).all(|pair| pair[1] == pair[0] + 1), "{places:?}");
        }
        assert!(
            places.chunks(4).map(|run| run[0]).collect::<std::collections::HashSet<_>>().len()
                == 10
        );
        // At the end of the range a run ends early.
        let places = first(&[("rw", "randread:4")], 400);
        assert!(places.iter().all(|place| *place < 16) && places.contains(&15));
        let places = first(&[("rw", "randread:4"), ("rw_sequencer", "identical")], 40);
        assert!(places.chunks(4).all(|run| run.iter().all(|place| *place == run[0])), "{places:?}");
    }

    #[test]
    fn random_places_are_aligned() {
        let mut varied = varied(
            &[("rw", "randread"), ("bssplit", "512/50:4k/50"), ("ba", "4k")],
            1 << 20,
            None,
            1,
        );
        let lbas: Vec<u64> = (0..2000).map(|_| varied.next().unwrap().lba - 16).collect();
        assert!(lbas.iter().all(|lba| lba % 8 == 0));
        assert!(lbas.iter().collect::<std::collections::HashSet<_>>().len() > 200);
    }

    #[test]
    fn a_sequence_is_without_gaps() {
        let mut varied = varied(&[("rw", "read"), ("bsrange", "512-8k")], 1 << 20, Some(2), 3);
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
            what in 0usize..6,
        ) {
            let (key, value) = [
                ("bsrange", "512-8k"),
                ("bsrange", "1k-3k"),
                ("bssplit", "512/10:2k/40:7k/50"),
                ("bssplit", "1k/50:1536/50"),
                ("random_distribution", "zipf:1.2"),
                ("random_distribution", "normal:30"),
            ][what];
            prop_assume!(random || what < 4);
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
