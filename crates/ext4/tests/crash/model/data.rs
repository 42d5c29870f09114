//! The possible content of files, byte by byte.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::ops::BEGINNING;
use crate::ranges::Ranges;

/// The page size, in bytes: holes smaller than a page are made by writing zeroes to the cache.
const PAGE: u64 = 4096;

/// Byte `at` of write `id`; 0 is not a write, but zeroes.
pub(crate) fn byte(id: u32, at: u64) -> u8 {
    if id == 0 {
        return 0;
    }
    let word = (at / 8).wrapping_add(u64::from(id) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = ((word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (at % 8 * 8)) as u8;
    // Written bytes are never zero, so holes can be told from them.
    if byte == 0 { 0x5A } else { byte }
}

/// The bytes of write `id` from `at` on.
pub(crate) fn content(id: u32, at: u64, bytes: u64) -> Vec<u8> {
    (at..at + bytes).map(|at| byte(id, at)).collect()
}

/// A value of `bytes` bytes for attribute `user.x`.
pub(crate) fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + bytes) as u8).collect()
}

/// The target of symbolic link `name`.
pub(crate) fn target(name: &str) -> String {
    // Some fit into the inode, others do not.
    format!("{}/{name}", if name.len() > 2 { "x".repeat(100) } else { "y".into() })
}

#[derive(Debug, Clone)]
pub(super) struct Data {
    pub(super) size: u64,
    /// The write whose byte a program reads.
    pub(super) now: Ranges<u32>,
    /// The writes whose byte may be on the disk.
    pub(super) may: Ranges<BTreeSet<u32>>,
    /// The bounds of the size on the disk, in bytes.
    least: u64,
    most: u64,
}

impl Data {
    pub(super) fn new(size: u64, id: u32) -> Self {
        let (mut now, mut may) = (Ranges::new(0), Ranges::new(BTreeSet::from([0])));
        now.set(0..size, id);
        may.set(0..size, BTreeSet::from([id]));
        Self { size, now, may, least: size, most: size }
    }

    pub(super) fn write(&mut self, range: Range<u64>, id: u32) {
        self.now.set(range.clone(), id);
        self.may_be(range.clone(), id);
        self.size = self.size.max(range.end);
        self.most = self.most.max(range.end);
    }

    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.now.set(size..u64::MAX, 0);
            self.may.set(size..u64::MAX, BTreeSet::from([0]));
        }
        // A metadata change, which does not depend on unwritten data.
        (self.size, self.least, self.most) = (size, size, size);
    }

    /// Zeroes a range: at once where whole pages are removed, otherwise as a write. In partial
    /// pages, zeroes are written to the cache, so they reach the disk when writes there do. No
    /// standard promises more of a hole than of an unsynced write, and only the file's own old data
    /// can appear. The kernel has these zeroes on the disk before the transaction commits, which
    /// would be stricter. Returns the ranges zeroed as by a write, whose zeroes may be on the disk
    /// before anything else is.
    pub(super) fn zero(&mut self, range: Range<u64>) -> [Range<u64>; 2] {
        self.now.set(range.clone(), 0);
        let whole = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
        let ends = if whole.start < whole.end {
            self.may.set(whole.clone(), BTreeSet::from([0]));
            [range.start..whole.start, whole.end..range.end]
        } else {
            [range.clone(), range.end..range.end]
        };
        for end in &ends {
            self.may_be(end.clone(), 0);
        }
        ends
    }

    pub(super) fn grow(&mut self, size: u64) {
        if size > self.size {
            self.resize(size);
        }
    }

    /// Records that write `id` may be on the disk.
    pub(super) fn may_be(&mut self, range: Range<u64>, id: u32) {
        self.may.change(range, |ids| {
            ids.insert(id);
        });
    }

    /// Records that the bytes of `range` as a program read them at `then` are on the disk.
    pub(super) fn sync(&mut self, then: &Self, range: &Range<u64>) {
        for (piece, id) in then.now.pieces(range.clone()) {
            self.may.set(piece, BTreeSet::from([*id]));
        }
        self.least = self.least.max(then.size.min(range.end));
        if range.end >= then.size {
            self.most = then.size;
        }
    }

    /// Checks that a file with the bytes `found` may be on the disk.
    pub(super) fn check(&self, found: &[u8]) -> Result<(), String> {
        let size = found.len() as u64;
        if !(self.least..=self.most).contains(&size) {
            return Err(format!("{size} bytes, not {} to {}", self.least, self.most));
        }
        for (range, ids) in self.may.pieces(0..size) {
            for at in range.clone() {
                let is = found[at as usize];
                if !ids.iter().any(|id| byte(*id, at) == is) {
                    let end = (at as usize + 8).min(found.len());
                    let seen = &found[at as usize..end];
                    return Err(format!(
                        "byte {at} of {size} is {is:#x} ({seen:02x?}), from none of {ids:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The "write" that made the initial content of file `name`.
pub(crate) fn beginning_id(name: &str) -> u32 {
    let place =
        BEGINNING.iter().position(|(other, _)| *other == name).expect("one of the beginning");
    1_000_000 + place as u32
}
