//! Finds names that occur twice in a directory.
//!
//! A directory may have more names than fit in memory, so only hashes are kept, and only a limited
//! number at a time.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use super::{Checker, Step, Stop};
use crate::{Defect, Error};
use crate::{Inode, Source};

/// The maximum number of hashes kept: 32 MiB.
const HASHES_MAX: usize = if cfg!(test) { 64 } else { 4 << 20 };

/// The maximum number of repeated names reported per directory.
const REPORTED_MAX: usize = if cfg!(test) { 4 } else { 1000 };

/// The maximum number of parts processed, since each requires reading all names. It suffices for
/// 256 million names.
const PARTS_MAX: u64 = 64;

/// Hashes of names, or of a part of them.
#[derive(Default)]
pub(super) struct NameHashes {
    state: RandomState,
    hashes: Vec<u64>,
    /// Only hashes whose lowest `part_bits` bits are `part` are kept.
    part_bits: u32,
    part: u64,
    /// The number of hashes beyond which room is made.
    limit: usize,
}

impl NameHashes {
    pub(super) fn add(&mut self, name: &[u8]) {
        let hash = self.state.hash_one(name);
        if self.has(hash) {
            self.hashes.push(hash);
        }
        if self.hashes.len() > self.limit.max(HASHES_MAX) {
            self.shrink();
        }
    }

    /// Makes room. Two hashes of a value suffice, and in the first part the others can wait for a
    /// later part. The other parts are as large as this one, because hashes are spread evenly.
    fn shrink(&mut self) {
        self.hashes.sort_unstable();
        let (mut last, mut times) = (0, 0);
        self.hashes.retain(|hash| {
            times = if *hash == last { times + 1 } else { 1 };
            last = *hash;
            times <= 2
        });
        while self.part == 0 && self.hashes.len() > HASHES_MAX / 2 {
            self.part_bits += 1;
            let mask = self.mask();
            self.hashes.retain(|hash| hash & mask == 0);
        }
        self.limit = self.hashes.len() * 2;
    }

    fn mask(&self) -> u64 {
        (1 << self.part_bits.min(63)) - 1
    }

    fn has(&self, hash: u64) -> bool {
        hash & self.mask() == self.part
    }

    /// Returns the hashes that were added more than once.
    fn repeated(&mut self) -> HashSet<u64> {
        self.hashes.sort_unstable();
        let equal = self.hashes.chunk_by(|one, other| one == other);
        equal.filter(|hashes| hashes.len() > 1).map(|hashes| hashes[0]).take(REPORTED_MAX).collect()
    }

    /// Continues with the hashes that were left for a later part, if there are any. All names then
    /// have to be added again.
    fn next_part(&mut self) -> bool {
        self.hashes.clear();
        self.part += 1;
        self.part <= self.mask()
    }

    /// Returns whether the limit of parts is reached.
    fn is_enough(&self) -> bool {
        self.part >= PARTS_MAX
    }
}

impl<S: Source> Checker<'_, S> {
    /// Reports the names that occur twice in `directory`. `names` are those read from it.
    pub(super) fn repeated_names(
        &mut self,
        directory: &Inode,
        path: &Path,
        mut names: NameHashes,
    ) -> Step {
        let mut reported = 0;
        loop {
            let repeated = names.repeated();
            if !repeated.is_empty() {
                // Different names may have the same hash.
                let mut found: HashMap<Vec<u8>, u32> = HashMap::new();
                self.each_name(directory, |name| {
                    if repeated.contains(&names.state.hash_one(name)) {
                        *found.entry(name.to_vec()).or_default() += 1;
                    }
                })?;
                for _ in found.values().filter(|times| **times > 1).take(REPORTED_MAX - reported) {
                    reported += 1;
                    self.wrong(Defect::DuplicateName, directory.ino(), Some(path))?;
                }
            }
            if reported == REPORTED_MAX || !names.next_part() {
                return Ok(());
            }
            if names.is_enough() {
                self.summary.unsupported += 1;
                return Ok(());
            }
            self.each_name(directory, |name| names.add(name))?;
        }
    }

    /// Visits all readable names of `directory`, whose defects were already reported.
    fn each_name(&mut self, directory: &Inode, mut each: impl FnMut(&[u8])) -> Step {
        let mut cookie = 0;
        loop {
            let entries = match self.volume.entries(directory, cookie) {
                Err(error @ Error::Source(_)) => return Err(Stop::Failed(error)),
                entries => entries.unwrap_or_default(),
            };
            let Some(next) = entries.last().map(|last| last.cookie).filter(|next| *next > cookie)
            else {
                return Ok(());
            };
            cookie = next;
            for entry in &entries {
                self.tick()?;
                each(&entry.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeated names are found among many more than are kept at a time. Each is reported once,
    /// regardless of the number of repetitions and of the part of the hash.
    #[test]
    fn all_parts_are_looked_at() {
        let names: Vec<String> =
            (0..1000).chain([7, 500, 999]).chain([500; 300]).map(|name| name.to_string()).collect();
        for _ in 0..100 {
            let mut hashes = NameHashes::default();
            let mut found = Vec::new();
            loop {
                for name in &names {
                    hashes.add(name.as_bytes());
                    assert!(hashes.hashes.len() <= HASHES_MAX * 4);
                }
                found.extend(hashes.repeated());
                if !hashes.next_part() {
                    break;
                }
            }
            let mut wanted =
                ["7", "500", "999"].map(|name| hashes.state.hash_one(name.as_bytes())).to_vec();
            wanted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, wanted);
            assert!(hashes.part_bits > 3);
        }
    }
}
