//! Searches for free blocks.
//!
//! The search tries the goal itself, so that a file's blocks stay contiguous; then, from there on,
//! a run with room for all blocks; then any run. Windows of other files come last. Blocks that wait
//! for a commit are never taken.

use std::ops::Range;
use std::sync::Arc;

use super::Allocator;
use super::zones::blocks_in;
use crate::Result;
use crate::journal::Handle;
use meantime_ext4_format::Group;
use meantime_ext4_format::edit::bitmap;

/// Bitmaps that are searched for a long enough run before the longest one so far is taken.
const GROUPS: u32 = 16;
/// Request sizes in blocks whose runs begin at a multiple of the size (rounded up to a power of
/// two) if there is room.
const ALIGNED: Range<u32> = 16..513;

/// A search for free blocks.
pub(super) struct Search<'s, 'h> {
    pub(super) allocator: &'s Allocator,
    pub(super) handle: &'s Handle<'h>,
    pub(super) ino: u32,
    /// Maximum number of blocks to find.
    pub(super) blocks: u32,
    /// Whether the windows of other files are left out.
    pub(super) polite: bool,
    /// Whether free blocks were passed over because they wait for a commit.
    pub(super) held: bool,
    /// Number and descriptor of the group that was searched last.
    pub(super) last: Option<(u32, Group)>,
}

/// The result of a search of one group.
struct Looked {
    /// A run with room for all blocks.
    found: Option<Range<u32>>,
    /// Otherwise, the longest run.
    longest: Range<u32>,
    /// Whether free blocks were left out that could be taken at another time.
    left_out: bool,
}

impl Search<'_, '_> {
    /// Finds between one and all blocks from `goal` on. Returns the group, and bits of its bitmap.
    pub(super) fn run(&mut self, goal: u64, exact: bool) -> Result<Option<(u32, Range<u32>)>> {
        let superblock = self.allocator.superblock();
        let first = superblock.group_of(goal);
        let from = (goal - superblock.group_start(first)) as u32;
        if exact && let Some(found) = self.at(first, from)? {
            return Ok(Some((first, found)));
        }
        if let Some(found) = self.long(first, from)? {
            return Ok(Some(found));
        }
        self.polite = false;
        self.any(first, from)
    }

    /// Returns the bitmap of group `number`; `None`: it has no free blocks.
    fn free_bits(&mut self, number: u32) -> Result<Option<Arc<[u8]>>> {
        let Some((group, bits)) = self.allocator.free_bits(self.handle, number)? else {
            return Ok(None);
        };
        self.last = Some((number, group));
        Ok(Some(bits))
    }

    /// Returns all groups, `first` first, each with the bit at which to begin: `from` in `first`.
    fn order(&self, first: u32, from: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let groups = self.allocator.superblock().groups();
        (0..groups).map(move |step| {
            let number = (u64::from(first) + u64::from(step)) % u64::from(groups);
            (number as u32, if step == 0 { from } else { 0 })
        })
    }

    /// Returns the first blocks in `run` of group `number` that may not be taken now.
    fn first_barred(&mut self, number: u32, run: &Range<u32>) -> Option<Range<u32>> {
        let start = self.allocator.superblock().group_start(number);
        let blocks = start + u64::from(run.start)..start + u64::from(run.end);
        let held = self.handle.first_held_in(blocks.clone());
        self.held |= held.is_some();
        let kept =
            if self.polite { self.allocator.windows().first_in(&blocks, self.ino) } else { None };
        let first = match (held, kept) {
            (Some(held), Some(kept)) => {
                if held.start <= kept.start {
                    held
                } else {
                    kept
                }
            }
            (held, kept) => held.or(kept)?,
        };
        Some((first.start - start) as u32..(first.end - start) as u32)
    }

    /// Finds blocks from bit `from` of group `number` on, if that bit is free.
    fn at(&mut self, number: u32, from: u32) -> Result<Option<Range<u32>>> {
        let Some(bits) = self.free_bits(number)? else { return Ok(None) };
        let most =
            from.saturating_add(self.blocks).min(blocks_in(self.allocator.superblock(), number));
        let mut run = from..bitmap::first_used(&bits, from..most);
        if run.is_empty() {
            return Ok(None);
        }
        if let Some(barred) = self.first_barred(number, &run) {
            run.end = barred.start;
        }
        Ok((!run.is_empty()).then_some(run))
    }

    /// Searches `range` of group `number`, whose bitmap is `bits`, for a run with room for all
    /// blocks.
    fn search(&mut self, bits: &[u8], number: u32, range: Range<u32>) -> Looked {
        let (mut longest, mut left_out) = (0..0, false);
        let mut at = range.start;
        while at < range.end {
            let run = bitmap::free_run(bits, at..range.end);
            if run.is_empty() {
                break;
            }
            at = run.end;
            // Check for barred blocks only while the rest of the run could be an improvement.
            let mut rest = run;
            while rest.len() > longest.len() {
                let barred = self.first_barred(number, &rest);
                left_out |= barred.is_some();
                let piece = rest.start..barred.as_ref().map_or(rest.end, |barred| barred.start);
                if piece.len() >= self.blocks as usize {
                    return Looked { found: Some(self.place(number, piece)), longest, left_out };
                }
                if piece.len() > longest.len() {
                    longest = piece;
                }
                rest.start = barred.map_or(rest.end, |barred| barred.end);
            }
        }
        Looked { found: None, longest, left_out }
    }

    /// Searches group `number` from bit `begin` on, and then from its start, for a run with room
    /// for all blocks.
    fn search_around(&mut self, bits: &[u8], number: u32, begin: u32) -> Looked {
        let end = blocks_in(self.allocator.superblock(), number);
        if begin > 0 {
            let looked = self.search(bits, number, begin..end);
            if looked.found.is_some() {
                return looked;
            }
        }
        self.search(bits, number, 0..end)
    }

    /// Places all blocks within `run`, which has room for them.
    fn place(&self, number: u32, run: Range<u32>) -> Range<u32> {
        let mut start = run.start;
        if ALIGNED.contains(&self.blocks) {
            let first = self.allocator.superblock().group_start(number);
            let aligned = (first + u64::from(start))
                .next_multiple_of(u64::from(self.blocks.next_power_of_two()));
            let aligned = (aligned - first) as u32;
            if aligned + self.blocks <= run.end {
                start = aligned;
            }
        }
        start..start + self.blocks
    }

    /// Finds a run with room for all blocks; after some groups, the longest run that was seen.
    fn long(&mut self, first: u32, from: u32) -> Result<Option<(u32, Range<u32>)>> {
        let mut longest: Option<(u32, Range<u32>)> = None;
        let mut looked_at = 0;
        for (number, begin) in self.order(first, from) {
            if looked_at == GROUPS {
                break;
            }
            // By the hints, no run of this group is long enough.
            if self.allocator.longest_run(number) < self.blocks {
                continue;
            }
            let Some(bits) = self.free_bits(number)? else { continue };
            looked_at += 1;
            let looked = self.search_around(&bits, number, begin);
            // Blocks that were left out can come back unnoticed, so they count as a longer run.
            if looked.found.is_none() && !looked.left_out {
                self.allocator.learn_longest(number, looked.longest.len() as u32);
            }
            if let Some(found) = looked.found {
                return Ok(Some((number, found)));
            }
            if looked.longest.len() > longest.as_ref().map_or(0, |(_, run)| run.len()) {
                longest = Some((number, looked.longest));
            }
        }
        Ok(longest)
    }

    /// Finds any blocks: the longest run of the first group that has some.
    fn any(&mut self, first: u32, from: u32) -> Result<Option<(u32, Range<u32>)>> {
        for (number, begin) in self.order(first, from) {
            let Some(bits) = self.free_bits(number)? else { continue };
            let looked = self.search_around(&bits, number, begin);
            if let Some(found) = looked.found.or(Some(looked.longest)).filter(|run| !run.is_empty())
            {
                return Ok(Some((number, found)));
            }
        }
        Ok(None)
    }
}
