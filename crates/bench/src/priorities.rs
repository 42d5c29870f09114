//! `cmdprio_percentage` and related keys: priorities of single I/Os.

use super::pattern::{Dir, Io, Rng};
use crate::job::{Job, PriorityShare};

/// Draws the priorities of the I/Os of one thread.
#[derive(Debug, Clone)]
pub(super) struct Priorities {
    shares: [Vec<PriorityShare>; 2],
    rng: Rng,
}

impl Priorities {
    /// Creates the priorities of `job`; `None` if all I/Os have that of their thread. `seed` is the
    /// seed of the draws.
    pub(super) fn of(job: &Job, seed: u64) -> Option<Self> {
        Some(Self { shares: job.own_priorities()?, rng: Rng::new(seed) })
    }

    /// Returns the priority of `io` in the kernel's encoding; 0: the thread's.
    pub(super) fn draw(&mut self, io: &Io) -> u16 {
        let shares = match io.dir {
            Dir::Read | Dir::Write => &self.shares[io.dir as usize],
            Dir::Trim => return 0,
        };
        let is_of =
            |share: &&PriorityShare| share.bytes.is_none_or(|bytes| bytes == io.bytes as u64);
        if !shares.iter().any(|share| is_of(&share)) {
            return 0;
        }
        let mut drawn = self.rng.below(100);
        for share in shares.iter().filter(is_of) {
            match drawn.checked_sub(u64::from(share.percent)) {
                None => return share.bits.unwrap_or(0),
                Some(rest) => drawn = rest,
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::job::testing::job;

    #[test]
    fn shares_are_kept() {
        let split = "64k/25/1/1:64k/50/3/2:1m/0,4k/100";
        let job = job(&[("rw", "randrw"), ("bs", "4k"), ("cmdprio_bssplit", split)]);
        let mut priorities = Priorities::of(&job, 1).unwrap();
        let mut drawn = |dir, bytes| {
            let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
            for _ in 0..40_000 {
                let io = Io { dir, lba: 0, bytes, ioprio: 0 };
                *counts.entry(priorities.draw(&io)).or_default() += 1;
            }
            counts
        };
        let reads = drawn(Dir::Read, 65_536);
        assert_eq!(reads.keys().copied().collect::<Vec<_>>(), [0, 1 << 13 | 1, 3 << 13 | 2]);
        for (bits, want) in [(0, 10_000u64), (1 << 13 | 1, 10_000), (3 << 13 | 2, 20_000)] {
            assert!(reads[&bits].abs_diff(want) < 500, "{reads:?}");
        }
        assert_eq!(drawn(Dir::Read, 1 << 20), BTreeMap::from([(0, 40_000)]));
        assert_eq!(drawn(Dir::Write, 4096), BTreeMap::from([(1 << 13, 40_000)]));
        assert_eq!(drawn(Dir::Trim, 4096), BTreeMap::from([(0, 40_000)]));
    }
}
