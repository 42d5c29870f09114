//! Windows: free blocks that are kept for the file that ends before them, so that files that grow
//! at the same time do not interleave. They are hints: nothing of them is on the disk, and a
//! request takes blocks of a window when no others are left.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::numbers::ByNumber;

/// Maximum number of files that have a window.
const WINDOWS: usize = 64;
/// First and largest size of a window, in blocks; each use doubles it.
const FIRST: u32 = 8;
const MOST: u32 = 1024;

#[derive(Debug, Clone, Copy)]
struct Window {
    start: u64,
    end: u64,
    size: u32,
    used: u64,
}

/// The windows of all files; they do not overlap.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Windows by inode.
    of: ByNumber<u32, Window>,
    /// End and inode of each window by its first block.
    by_start: BTreeMap<u64, (u64, u32)>,
    /// Number of uses so far: the age of windows.
    clock: u64,
}

impl Windows {
    /// Returns the part inside `blocks` of the first window in it that belongs to another file than
    /// `ino`.
    pub(super) fn first_in(&self, blocks: &Range<u64>, ino: u32) -> Option<Range<u64>> {
        if self.by_start.is_empty() {
            return None;
        }
        let before = self.by_start.range(..blocks.start).next_back();
        let inside = self.by_start.range(blocks.start..blocks.end);
        let mut touching = before.into_iter().chain(inside);
        let (start, (end, _)) =
            touching.find(|(_, (end, owner))| *end > blocks.start && *owner != ino)?;
        Some((*start).max(blocks.start)..(*end).min(blocks.end))
    }

    /// Moves the window of file `ino` after `taken`, before `end`.
    pub(super) fn advance(&mut self, ino: u32, taken: &Range<u64>, end: u64) {
        let size =
            self.of.get(&ino).map_or(FIRST, |window| window.size.saturating_mul(2).min(MOST));
        self.remove(ino);
        let wanted = taken.end..taken.end.saturating_add(u64::from(size)).min(end);
        let others = self.first_in(&wanted, ino).map_or(wanted.end, |other| other.start);
        self.clock += 1;
        let window = Window { start: wanted.start, end: others, size, used: self.clock };
        if window.start < window.end {
            self.by_start.insert(window.start, (window.end, ino));
        }
        self.of.insert(ino, window);
        if self.of.len() > WINDOWS
            && let Some(oldest) =
                self.of.iter().min_by_key(|(_, window)| window.used).map(|(ino, _)| *ino)
        {
            self.remove(oldest);
        }
    }

    /// Removes the window of file `ino`.
    pub(super) fn remove(&mut self, ino: u32) {
        if let Some(window) = self.of.remove(&ino)
            && self.by_start.get(&window.start).is_some_and(|(_, owner)| *owner == ino)
        {
            self.by_start.remove(&window.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_keeps_others_away_and_grows() {
        let mut windows = Windows::default();
        windows.advance(12, &(100..101), 10_000);
        assert_eq!(windows.first_in(&(0..1000), 13), Some(101..109));
        assert_eq!(windows.first_in(&(105..1000), 13), Some(105..109));
        assert_eq!(windows.first_in(&(0..1000), 12), None);
        windows.advance(12, &(101..102), 10_000);
        assert_eq!(windows.first_in(&(0..1000), 13), Some(102..118));
        windows.advance(13, &(90..91), 10_000);
        assert_eq!(windows.first_in(&(0..1000), 14), Some(91..99));
        windows.advance(13, &(99..100), 10_000);
        assert_eq!(windows.first_in(&(0..1000), 12), Some(100..102));
        windows.remove(13);
        assert_eq!(windows.first_in(&(0..1000), 12), None);
        for ino in 100..300 {
            windows.advance(ino, &(u64::from(ino) * 100..u64::from(ino) * 100 + 1), 1 << 40);
        }
        assert_eq!((windows.of.len(), windows.by_start.len()), (WINDOWS, WINDOWS));
    }
}
