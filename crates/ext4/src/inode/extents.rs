//! Maps a file's blocks to blocks of the device.

use std::ops::Range;

use crate::error::Result;
use crate::io::DeviceSource;
use crate::io::target::{Location, Piece};
use meantime_ext4_format::{Inode as DiskInode, RunState, Source, Volume};

/// The state of a run of a file's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// The blocks have data, and begin at this block of the file system.
    Written(u64),
    /// The blocks are preallocated from this block on, and read as zeroes.
    Unwritten(u64),
    /// No blocks are allocated, so the run reads as zeroes.
    Hole,
}

/// One extent: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    first: u32,
    blocks: u32,
    /// The first block on the device, of at most 48 bits, combined with [`UNWRITTEN`].
    physical: u64,
}

const _: () = assert!(size_of::<Extent>() == 16);

/// Flags an extent that is preallocated and was never written.
const UNWRITTEN: u64 = 1 << 63;

/// The extents of a file, or of a part of one, in order; between them are holes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Extents {
    extents: Box<[Extent]>,
    /// Block of the file before which all extents are known.
    known: u64,
}

impl Extents {
    /// Loads all extents of `inode`. Of a file with more than a million it loads the first ones.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    pub(crate) fn load(volume: &Volume<impl Source>, inode: &DiskInode) -> Result<Self> {
        let map = volume.extent_map(inode)?;
        let extents = map.extents().iter().map(|extent| Extent {
            first: extent.logical,
            blocks: extent.blocks,
            physical: extent.physical | if extent.unwritten { UNWRITTEN } else { 0 },
        });
        Ok(Self { extents: extents.collect(), known: map.known() })
    }

    /// Loads the extents that have blocks in `blocks`.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    pub(crate) fn of_range(
        volume: &Volume<DeviceSource>,
        inode: &DiskInode,
        blocks: Range<u64>,
    ) -> Result<Self> {
        let mut extents = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let run = volume.run_at(inode, at)?;
            let count = run.blocks.min(blocks.end - at).max(1);
            push(&mut extents, at, count, run.physical, run.state);
            at += count;
        }
        Ok(Self { extents: extents.into(), known: blocks.end })
    }

    /// Returns whether everything before byte `end` is known, with blocks of `1 << shift` bytes.
    #[inline]
    pub(crate) fn reaches(&self, end: u64, shift: u32) -> bool {
        self.known == u64::MAX || end.div_ceil(1 << shift) <= self.known
    }

    /// Returns what block `block` of the file is, and the length of the run from it on: at least 1.
    #[inline]
    pub(crate) fn at(&self, block: u64) -> (Blocks, u64) {
        let after = self.extents.partition_point(|extent| u64::from(extent.first) <= block);
        if let Some(extent) = after.checked_sub(1).and_then(|index| self.extents.get(index)) {
            let into = block - u64::from(extent.first);
            if into < u64::from(extent.blocks) {
                let physical = (extent.physical & !UNWRITTEN) + into;
                let left = u64::from(extent.blocks) - into;
                return match extent.physical & UNWRITTEN {
                    0 => (Blocks::Written(physical), left),
                    _ => (Blocks::Unwritten(physical), left),
                };
            }
        }
        let next = self.extents.get(after).map_or(u64::MAX, |extent| u64::from(extent.first));
        (Blocks::Hole, next - block)
    }

    /// Returns the block after the last allocated one.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, |extent| u64::from(extent.first) + u64::from(extent.blocks))
    }

    /// Returns the memory of the extents, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.extents)
    }
}

/// Adds a run to `extents`, in pieces that an [`Extent`] can hold.
fn push(
    extents: &mut Vec<Extent>,
    mut first: u64,
    mut blocks: u64,
    mut physical: u64,
    state: RunState,
) {
    let mark = match state {
        RunState::Hole => return,
        RunState::Written => 0,
        RunState::Unwritten => UNWRITTEN,
    };
    // A file has at most 2³² blocks: no read asks for later ones.
    while blocks > 0
        && let Ok(start) = u32::try_from(first)
    {
        let count = u32::try_from(blocks).unwrap_or(u32::MAX);
        extents.push(Extent { first: start, blocks: count, physical: physical | mark });
        (first, physical, blocks) =
            (first + u64::from(count), physical + u64::from(count), blocks - u64::from(count));
    }
}

/// Finds the places of a file's bytes on the device or in memory.
#[derive(Clone, Copy)]
pub(crate) struct Finder<'a> {
    pub(crate) extents: &'a Extents,
    /// Log2 of the block size.
    pub(crate) block_shift: u32,
    pub(crate) volume: &'a Volume<DeviceSource>,
    /// Whether journal recovery left any block of the file system in memory.
    pub(crate) overlaid: bool,
}

impl<'a> Finder<'a> {
    /// Returns the place of byte `at`, and of up to `most` bytes from it on.
    #[inline]
    pub(crate) fn find(&self, at: u64, most: usize) -> Piece {
        let (block, inside) = (at >> self.block_shift, at & ((1 << self.block_shift) - 1));
        let (blocks, count) = self.extents.at(block);
        let bytes = |count: u64| {
            let bytes = u128::from(count) << self.block_shift;
            usize::try_from(bytes - u128::from(inside)).unwrap_or(usize::MAX).min(most)
        };
        let Blocks::Written(physical) = blocks else {
            return Piece { place: Location::Zero, len: bytes(count) };
        };
        if self.overlaid {
            return self.find_beside_memory(physical, inside, count, &bytes);
        }
        Piece {
            place: Location::Device((physical << self.block_shift) + inside),
            len: bytes(count),
        }
    }

    /// Returns the place of a byte of block `physical`, where some blocks are in memory.
    #[cold]
    fn find_beside_memory(
        &self,
        physical: u64,
        inside: u64,
        count: u64,
        bytes: &dyn Fn(u64) -> usize,
    ) -> Piece {
        if let Some(block) = self.volume.overlaid(physical) {
            return Piece { place: Location::Memory(block, inside as usize), len: bytes(1) };
        }
        let wanted = (bytes(count) as u64 >> self.block_shift) + 2;
        let count = count.min(wanted);
        let plain = match self.volume.is_overlaid(physical, count) {
            true => (1..count).find(|n| self.volume.overlaid(physical + n).is_some()),
            false => None,
        };
        let len = bytes(plain.unwrap_or(count));
        Piece { place: Location::Device((physical << self.block_shift) + inside), len }
    }

    /// Returns the places of the bytes `range`, in order.
    pub(crate) fn pieces(self, range: Range<u64>) -> impl Iterator<Item = Piece> + 'a {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let most = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let piece = self.find(at, most);
            at += piece.len as u64;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_extents_is_a_hole() {
        let mut extents = Vec::new();
        push(&mut extents, 2, 3, 100, RunState::Written);
        push(&mut extents, 5, 1, 7, RunState::Unwritten);
        push(&mut extents, 9, 2, 50, RunState::Hole);
        push(&mut extents, 20, 1, 9, RunState::Written);
        let extents = Extents { extents: extents.into(), known: u64::MAX };
        let at = |block| extents.at(block);
        assert_eq!(at(0), (Blocks::Hole, 2));
        assert_eq!(at(3), (Blocks::Written(101), 2));
        assert_eq!(at(5), (Blocks::Unwritten(7), 1));
        assert_eq!(at(6), (Blocks::Hole, 14));
        assert_eq!((at(20), extents.end()), ((Blocks::Written(9), 1), 21));
        assert_eq!(at(21).0, Blocks::Hole);
        assert_eq!(Extents::default().at(0), (Blocks::Hole, u64::MAX));
    }

    #[test]
    fn a_stretch_longer_than_a_field_is_several() {
        let mut extents = Vec::new();
        push(&mut extents, 0, (1 << 32) + 5, 10, RunState::Written);
        assert_eq!(extents.len(), 2);
        let extents = Extents { extents: extents.into(), known: u64::MAX };
        assert_eq!(
            extents.at(u64::from(u32::MAX) - 1).0,
            Blocks::Written(10 + u64::from(u32::MAX) - 1)
        );
    }
}
