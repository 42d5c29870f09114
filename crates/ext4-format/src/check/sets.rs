//! Sets and counts over large ranges of numbers, which use memory only for occupied parts.

use std::collections::BTreeMap;

/// Bits of a chunk.
const CHUNK_BITS: u64 = 1 << 15;
const CHUNK_WORDS: usize = (CHUNK_BITS / 64) as usize;

/// A set of numbers.
#[derive(Default)]
pub(super) struct Bits(BTreeMap<u64, Box<[u64; CHUNK_WORDS]>>);

impl Bits {
    /// Adds `at`. Returns whether it was new.
    pub(super) fn insert(&mut self, at: u64) -> bool {
        let chunk = self.0.entry(at / CHUNK_BITS).or_insert_with(|| Box::new([0; CHUNK_WORDS]));
        let within = at % CHUNK_BITS;
        let (word, bit) = (&mut chunk[(within / 64) as usize], 1 << (within % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Adds `count` numbers from `first` on. Returns how many were new, and the first one that was
    /// not.
    pub(super) fn insert_run(&mut self, first: u64, count: u64) -> (u64, Option<u64>) {
        let (mut new, mut old, mut at) = (0, None, first);
        let end = first.saturating_add(count);
        while at < end {
            let chunk = self.0.entry(at / CHUNK_BITS).or_insert_with(|| Box::new([0; CHUNK_WORDS]));
            let chunk_end = end.min((at / CHUNK_BITS + 1).saturating_mul(CHUNK_BITS));
            while at < chunk_end {
                let (word, bit) = (&mut chunk[(at % CHUNK_BITS / 64) as usize], at % 64);
                let bits = (64 - bit).min(chunk_end - at);
                let mask = (u64::MAX >> (64 - bits)) << bit;
                let there = *word & mask;
                if there != 0 {
                    old.get_or_insert(at - bit + u64::from(there.trailing_zeros()));
                }
                new += bits - u64::from(there.count_ones());
                *word |= mask;
                at += bits;
            }
        }
        (new, old)
    }

    /// Returns whether `at` is in the set.
    pub(super) fn contains(&self, at: u64) -> bool {
        let within = at % CHUNK_BITS;
        self.0
            .get(&(at / CHUNK_BITS))
            .is_some_and(|chunk| chunk[(within / 64) as usize] & 1 << (within % 64) != 0)
    }
}

const CHUNK_COUNTS: u32 = 1 << 10;

/// An inode's link count, and the number of names found.
#[derive(Clone, Copy, Default)]
pub(super) struct Links {
    /// The value of `i_links_count`, once the inode was read.
    pub(super) says: u16,
    /// Whether it is a directory.
    pub(super) is_directory: bool,
    /// Names found.
    pub(super) found: u32,
}

/// [`Links`] by inode.
#[derive(Default)]
pub(super) struct LinksOf(BTreeMap<u32, Box<[Links; CHUNK_COUNTS as usize]>>);

impl LinksOf {
    /// Returns the entry of `ino`.
    pub(super) fn of(&mut self, ino: u32) -> &mut Links {
        let new = || Box::new([Links::default(); CHUNK_COUNTS as usize]);
        &mut self.0.entry(ino / CHUNK_COUNTS).or_insert_with(new)[(ino % CHUNK_COUNTS) as usize]
    }

    /// Counts a name of `ino`.
    pub(super) fn add_name(&mut self, ino: u32) {
        let links = self.of(ino);
        links.found = links.found.saturating_add(1);
    }

    /// Returns all inodes with an entry, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Links)> + '_ {
        self.0.iter().flat_map(|(chunk, links)| {
            links
                .iter()
                .enumerate()
                .map(move |(at, links)| (chunk * CHUNK_COUNTS + at as u32, *links))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_contain_what_was_inserted() {
        let mut bits = Bits::default();
        for at in [0, 63, 64, CHUNK_BITS - 1, CHUNK_BITS, u64::MAX] {
            assert!(!bits.contains(at) && bits.insert(at) && !bits.insert(at) && bits.contains(at));
        }
        assert!(!bits.contains(1) && !bits.contains(65) && !bits.contains(u64::MAX - 1));
        // Inserting a run equals inserting its numbers one by one.
        for (first, count) in [(0, 1), (60, 8), (64, 64), (CHUNK_BITS - 3, 70), (5, 200), (9, 0)] {
            let (mut one_by_one, mut run) = (Bits::default(), Bits::default());
            for at in [62, 130, CHUNK_BITS + 2] {
                one_by_one.insert(at);
                run.insert(at);
            }
            let old: Vec<u64> =
                (first..first + count).filter(|at| !one_by_one.insert(*at)).collect();
            let inserted = run.insert_run(first, count);
            assert_eq!(inserted, (count - old.len() as u64, old.first().copied()), "{first}");
            assert!((0..2 * CHUNK_BITS).all(|at| one_by_one.contains(at) == run.contains(at)));
        }
        let mut links = LinksOf::default();
        links.of(5000).found += 2;
        links.of(u32::MAX).found += 1;
        let found: Vec<_> =
            links.iter().filter(|(_, links)| links.found > 0).map(|(ino, _)| ino).collect();
        assert_eq!(found, [5000, u32::MAX]);
    }
}
