//! Finds the data and the holes of a file.
//!
//! Data are written extents, and pages that are newer than the disk: dirty or in flight. Newer
//! pages are collected before the extents are read, so that pages written back in between are found
//! twice rather than missed. No block is taken away meanwhile, so a half finished punch is never
//! seen.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::file::File;
use crate::inode::extents::{Blocks, Extents};
use crate::inode::units::Units;
use crate::inode::writable::Pages;

/// Limit of the newer blocks that are collected in one step.
const STRETCH_BLOCKS: u64 = 4096;

/// Kind of a segment of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// Data at this byte of the device. The cache may have newer data.
    Data(u64),
    /// Data that are not on the device yet: writeback allocates blocks for them, or writes them to
    /// their preallocated blocks. The device has nothing to be read instead. After
    /// [`sync_all`](File::sync_all) they are [`Data`](Self::Data).
    Delayed,
    /// Preallocated blocks at this byte of the device, which read as zeroes.
    Unwritten(u64),
    /// The range has no blocks and reads as zeroes.
    Hole,
    /// Data in the inode itself.
    Inline,
}

impl SegmentKind {
    /// Returns whether the segment has data, wherever they are; otherwise it reads as zeroes.
    pub fn is_data(self) -> bool {
        match self {
            Self::Data(_) | Self::Delayed | Self::Inline => true,
            Self::Unwritten(_) | Self::Hole => false,
        }
    }
}

/// A contiguous part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes; the last segment may reach beyond the file's size.
    pub bytes: u64,
    /// Kind of the segment.
    pub kind: SegmentKind,
}

impl Pages {
    /// Returns the first run of blocks, from block `from` on, that are newer than the disk. It may
    /// be shorter than the full run. All blocks of a page in flight count.
    pub(super) fn newer(&self, from: u64, units: &Units) -> Option<Range<u64>> {
        let first = from * units.per_block / units.per_page;
        let mut dirty = self.dirty.range(first..).peekable();
        let mut in_flight = self.in_flight.range(first..).peekable();
        let mut found: Option<Range<u64>> = None;
        loop {
            let index = match (dirty.peek(), in_flight.peek()) {
                (Some((dirty, _)), Some((flying, _))) => **dirty.min(flying),
                (Some((index, _)), None) | (None, Some((index, _))) => **index,
                (None, None) => return found,
            };
            let newer = dirty.next_if(|(dirty, _)| **dirty == index);
            let mask = newer.map_or(0, |(_, dirty)| dirty.mask);
            let flies = in_flight.next_if(|(flying, _)| **flying == index).is_some();
            let block = index * units.per_page / units.per_block;
            for block in
                (0..units.per_page).filter(|n| flies || mask >> n & 1 == 1).map(|n| block + n)
            {
                match &mut found {
                    _ if block < from => {}
                    None => found = Some(block..block + 1),
                    Some(found) if found.end == block => found.end += 1,
                    // Another page of the same block.
                    Some(found) if found.contains(&block) => {}
                    Some(_) => return found,
                }
            }
            if found.as_ref().is_some_and(|found| found.end - found.start >= STRETCH_BLOCKS) {
                return found;
            }
        }
    }
}

/// Adds `next` to `segments`, or extends the last one if both are delayed.
fn push(segments: &mut Vec<Segment>, next: Segment) {
    match segments.last_mut() {
        Some(last) if (last.kind, next.kind) == (SegmentKind::Delayed, SegmentKind::Delayed) => {
            last.bytes += next.bytes;
        }
        _ => segments.push(next),
    }
}

impl File {
    /// Returns the first run of newer blocks from block `from` on. Call it before the extents are
    /// read.
    fn newer(&self, from: u64) -> Option<Range<u64>> {
        let node = self.node();
        node.inode
            .writable
            .as_ref()
            .and_then(|writable| writable.pages().newer(from, &node.mount.units()))
    }

    /// Returns all runs of newer blocks, in order.
    fn all_newer(&self) -> Vec<Range<u64>> {
        let node = self.node();
        let Some(writable) = &node.inode.writable else { return Vec::new() };
        let (pages, units) = (writable.pages(), node.mount.units());
        let next = |last: &Range<u64>| pages.newer(last.end, &units);
        std::iter::successors(pages.newer(0, &units), next).collect()
    }

    fn all_extents(&self) -> Result<Arc<Extents>> {
        let (mount, inode) = (&self.node().mount, &self.node().inode);
        let extents = match &self.extents {
            Some(extents) => Arc::clone(extents),
            None => inode.extents(&mount.volume)?,
        };
        let blocks = 1 << 32;
        if extents.reaches(blocks << mount.block_shift, mount.block_shift) {
            return Ok(extents);
        }
        let snapshot = inode.snapshot(&mount.volume)?;
        Ok(Arc::new(
            mount.consistent(|| Extents::of_range(&mount.volume, &snapshot.on_disk, 0..blocks))?,
        ))
    }

    /// Returns the segments of the file in order, without gaps, up to its end. Extents beyond the
    /// end are included.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        if self.is_inline() {
            return Ok(vec![Segment { offset: 0, bytes: self.size(), kind: SegmentKind::Inline }]);
        }
        if !self.is_in_blocks() {
            return Err(Error::IsDirectory);
        }
        let _guard = self.keep_blocks();
        let newer = self.all_newer();
        let extents = self.all_extents()?;
        let shift = self.node().mount.block_shift;
        let in_size = self.size().div_ceil(1 << shift);
        let end = extents.end().max(in_size);
        // Newer blocks past the file's end are zeroes.
        let mut newer = newer.into_iter().take_while(|newer| newer.start < in_size).peekable();
        let mut segments: Vec<Segment> = Vec::new();
        let mut block = 0;
        while block < end {
            while newer.next_if(|newer| newer.end.min(in_size) <= block).is_some() {}
            let (blocks, count) = extents.at(block);
            let mut next = block.saturating_add(count).min(end);
            let is_newer = newer.peek().is_some_and(|newer| newer.start <= block);
            let kind = match blocks {
                Blocks::Written(physical) => SegmentKind::Data(physical << shift),
                Blocks::Unwritten(_) | Blocks::Hole if is_newer => SegmentKind::Delayed,
                Blocks::Unwritten(physical) => SegmentKind::Unwritten(physical << shift),
                Blocks::Hole => SegmentKind::Hole,
            };
            if !matches!(kind, SegmentKind::Data(_))
                && let Some(newer) = newer.peek()
            {
                next = next.min(if is_newer { newer.end.min(in_size) } else { newer.start });
            }
            push(
                &mut segments,
                Segment { offset: block << shift, bytes: (next - block) << shift, kind },
            );
            block = next;
        }
        Ok(segments)
    }

    /// Returns the first byte from `offset` on that is data, written back or not. Unwritten extents
    /// count as a hole, and the data end at the file's size.
    ///
    /// # Errors
    /// [`Error::NotFound`] (ENXIO for `lseek`) if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        if self.begin_seek(offset)? {
            return Ok(offset);
        }
        let _guard = self.keep_blocks();
        let shift = self.node().mount.block_shift;
        let mut block = offset >> shift;
        let newer = self.newer(block).map_or(u64::MAX, |newer| newer.start);
        let extents = self.all_extents()?;
        let size = self.size();
        while block < newer && block << shift < size {
            let (blocks, count) = extents.at(block);
            if matches!(blocks, Blocks::Written(_)) {
                break;
            }
            // The last hole has no end.
            block = block.saturating_add(count).min(newer).min(size.div_ceil(1 << shift));
        }
        let at = offset.max(block << shift);
        if at < size { Ok(at) } else { Err(Error::NotFound) }
    }

    /// Returns the first byte from `offset` on that is no data. The file's end counts as a hole.
    ///
    /// # Errors
    /// [`Error::NotFound`] (ENXIO for `lseek`) if `offset` is beyond the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        if self.begin_seek(offset)? {
            return Ok(self.size());
        }
        let _guard = self.keep_blocks();
        let shift = self.node().mount.block_shift;
        let mut block = offset >> shift;
        while block << shift < self.size() {
            let newer = self.newer(block).filter(|newer| newer.contains(&block));
            block = match (newer, self.all_extents()?.at(block)) {
                (Some(newer), _) => newer.end,
                (None, (Blocks::Written(_), count)) => block + count,
                (None, (Blocks::Unwritten(_) | Blocks::Hole, _)) => break,
            };
        }
        Ok(offset.max(block << shift).min(self.size()))
    }

    /// Checks `offset`. Returns whether the content is inline, so that all of it is data.
    fn begin_seek(&self, offset: u64) -> Result<bool> {
        if !self.is_inline() && !self.is_in_blocks() {
            return Err(Error::IsDirectory);
        }
        if offset >= self.size() {
            return Err(Error::NotFound);
        }
        Ok(self.is_inline())
    }
}
