//! The blocks of a file, as `FS_IOC_FIEMAP` reports them.

use std::ops::Range;

use super::error::Result;
use super::file::File;
use super::file::SegmentKind;

/// Flags of an [`Extent`] (`FIEMAP_EXTENT_*`).
pub mod extent_flags {
    /// The file's last extent.
    pub const LAST: u32 = 0x1;
    /// The extent has no location on the device yet.
    pub const UNKNOWN: u32 = 0x2;
    /// The data are in memory; writeback allocates their blocks.
    pub const DELAYED: u32 = 0x4;
    /// The extent may begin or end within a block.
    pub const NOT_ALIGNED: u32 = 0x100;
    /// The data share a block with metadata.
    pub const INLINE: u32 = 0x200;
    /// Allocated blocks that read as zeroes.
    pub const UNWRITTEN: u32 = 0x800;
}

/// A range of a file that is allocated or will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The offset on the device, in bytes; 0 if there is none.
    pub place: u64,
    /// The length, in bytes.
    pub bytes: u64,
    /// The [`extent_flags`].
    pub flags: u32,
}

impl File {
    /// Returns the extents that overlap `range` (in bytes), in order. Data that are only in memory
    /// are [delayed](extent_flags::DELAYED); after [`sync_range`](Self::sync_range) they have a
    /// location.
    ///
    /// # Errors
    /// Damage, or a device error.
    pub fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
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

    /// The device offset of a file's inline content, in bytes.
    fn inode_place(&self) -> Result<u64> {
        /// The offset of `i_block` in the inode.
        const AT: u64 = 0x28;
        let node = self.node();
        let (block, at) = node.mount.volume.inode_place(node.ino())?;
        Ok((block << node.mount.block_shift) + at as u64 + AT)
    }
}
