//! Where a file's blocks are, as `FS_IOC_FIEMAP` tells it.

use std::ops::Range;

use super::error::Error;
use super::file::File;
use super::file::SegmentKind;

/// Flags of an [`Extent`] (`FIEMAP_EXTENT_*`).
pub mod extent_flags {
    /// It is the file's last one.
    pub const LAST: u32 = 0x1;
    /// It has no place on the device yet.
    pub const UNKNOWN: u32 = 0x2;
    /// It is in memory, and gets a place when it is written back.
    pub const DELAYED: u32 = 0x4;
    /// It may begin or end within a block.
    pub const NOT_ALIGNED: u32 = 0x100;
    /// It is in a block with metadata.
    pub const INLINE: u32 = 0x200;
    /// Room that is set aside, and reads as zeroes.
    pub const UNWRITTEN: u32 = 0x800;
}

/// A stretch of a file that has room on the device, or will have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Where it begins on the device, in bytes; 0 if it has no place.
    pub place: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// [`extent_flags`].
    pub flags: u32,
}

impl File {
    /// The extents that touch `range` (in bytes), in order. What is only in memory so far is there,
    /// as [delayed](extent_flags::DELAYED); after [`sync_range`](Self::sync_range) it has its place.
    ///
    /// # Errors
    /// Damage, or the device.
    pub fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>, Error> {
        let mut all: Vec<Extent> = Vec::new();
        for segment in self.segments()? {
            let (place, flags) = match segment.kind {
                SegmentKind::Hole => continue,
                SegmentKind::Data(place) => (place, 0),
                SegmentKind::Unwritten(place) => (place, extent_flags::UNWRITTEN),
                SegmentKind::Delayed => (0, extent_flags::DELAYED | extent_flags::UNKNOWN),
                SegmentKind::Inline => {
                    (self.inode_place()?, extent_flags::INLINE | extent_flags::NOT_ALIGNED)
                }
            };
            all.push(Extent { offset: segment.offset, place, bytes: segment.bytes, flags });
        }
        if let Some(last) = all.last_mut() {
            last.flags |= extent_flags::LAST;
        }
        all.retain(|extent| {
            extent.offset < range.end && range.start < extent.offset + extent.bytes
        });
        Ok(all)
    }

    /// Where the content begins of a file that has it in its inode, in bytes.
    fn inode_place(&self) -> Result<u64, Error> {
        /// `i_block`.
        const AT: u64 = 0x28;
        let node = self.node();
        let (block, at) = node.mount.volume.inode_place(node.ino())?;
        Ok((block << node.mount.block_shift) + at as u64 + AT)
    }
}
