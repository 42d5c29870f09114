//! Group descriptors and bitmaps as a handle sees and changes them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::Allocator;
use super::zones::blocks_in;
use crate::journal::Handle;
use crate::{Corruption, Defect, Error, Result};
use meantime_ext4_format::Group;
use meantime_ext4_format::edit::{GroupEdit, bitmap};

/// Returns the error for an impossible count in the descriptor of group `number`.
fn wrong_count(number: u32, of: &'static str) -> Error {
    Corruption::new(Defect::FreeCount(of)).in_block(u64::from(number)).into()
}

/// The descriptor and bitmap of a group that has free blocks.
pub(super) type FreeBits = (Group, Arc<[u8]>);

/// Maximum number of bitmaps that are remembered as verified.
const KNOWN: usize = 16;

/// Bitmaps whose checksum needs no further check: those that were verified or changed last.
#[derive(Debug, Default)]
pub(super) struct Known(VecDeque<(u64, Arc<[u8]>)>);

impl Known {
    fn has(&self, block: u64, bits: &Arc<[u8]>) -> bool {
        self.0.iter().any(|(known, content)| *known == block && Arc::ptr_eq(content, bits))
    }

    /// Notes that `bits` are the right contents of block `block`.
    pub(super) fn learn(&mut self, block: u64, bits: &Arc<[u8]>) {
        if let Some((_, content)) = self.0.iter_mut().find(|(known, _)| *known == block) {
            *content = Arc::clone(bits);
            return;
        }
        if self.0.len() == KNOWN {
            self.0.pop_front();
        }
        self.0.push_back((block, Arc::clone(bits)));
    }
}

impl Allocator {
    /// Returns the bitmap of `count` bits in block `block`, verified against `checksum` from the
    /// descriptor of `group`.
    fn bitmap(
        &self,
        handle: &Handle<'_>,
        block: u64,
        count: u32,
        checksum: u32,
        group: &Group,
    ) -> Result<Arc<[u8]>> {
        let bits = handle.block(block)?;
        // The handle's own copy was verified before it was changed, and has had its checksum since.
        if handle.changes().blocks.contains_key(&block) || self.known().has(block, &bits) {
            return Ok(bits);
        }
        handle.volume().verify_bitmap(&bits, block, count, checksum, group.checksum_mask)?;
        self.known().learn(block, &bits);
        Ok(bits)
    }

    /// Returns the block bitmap of group `number` with the changes of `handle`; for an
    /// uninitialized bitmap, its initial contents.
    pub(super) fn block_bits(
        &self,
        handle: &Handle<'_>,
        number: u32,
        group: &Group,
    ) -> Result<Arc<[u8]>> {
        let superblock = self.superblock();
        let bits = if group.block_uninit {
            self.zones.initial_bitmap(superblock, number).into()
        } else {
            let count = superblock.clusters_per_group();
            self.bitmap(handle, group.block_bitmap, count, group.block_bitmap_checksum, group)?
        };
        if !self.hints()[number as usize].blocks_agree {
            let free = bitmap::count_free(&bits, 0..blocks_in(superblock, number));
            if free != group.free_clusters {
                return Err(wrong_count(number, "free blocks"));
            }
            self.hints()[number as usize].blocks_agree = true;
        }
        Ok(bits)
    }

    /// Returns the descriptor and the block bitmap of group `number`, or `None` if no block is
    /// free.
    pub(super) fn free_bits(&self, handle: &Handle<'_>, number: u32) -> Result<Option<FreeBits>> {
        if self.hints()[number as usize].free_blocks == 0 {
            return Ok(None);
        }
        let group = handle.group(number)?;
        if group.free_clusters == 0 {
            return Ok(None);
        }
        Ok(Some((group, self.block_bits(handle, number, &group)?)))
    }

    /// Changes the descriptor of group `number`.
    fn edit_group(
        &self,
        handle: &mut Handle<'_>,
        number: u32,
        change: impl FnOnce(&mut GroupEdit<'_>),
    ) -> Result<()> {
        let (block, at) = self.volume.descriptor_place(number);
        let bytes = self.superblock().descriptor_bytes();
        let bytes = handle.edit(block)?.get_mut(at..at + bytes);
        let wrong = || Corruption::new(Defect::GroupPointer).in_block(u64::from(number));
        let mut edit = GroupEdit::of(self.superblock(), number, bytes.ok_or_else(wrong)?);
        change(&mut edit);
        edit.seal();
        Ok(())
    }

    /// Marks the blocks `marked` (bits of the bitmap) of group `number` as in use if `used`,
    /// otherwise as free. Before, all of them have the other state.
    pub(super) fn mark_blocks(
        &self,
        handle: &mut Handle<'_>,
        number: u32,
        group: &Group,
        marked: Range<u32>,
        used: bool,
    ) -> Result<()> {
        let superblock = self.superblock();
        let count = marked.end - marked.start;
        let free = if used {
            group.free_clusters.checked_sub(count)
        } else {
            group
                .free_clusters
                .checked_add(count)
                .filter(|free| *free <= blocks_in(superblock, number))
        };
        let free = free.ok_or_else(|| wrong_count(number, "free blocks"))?;
        let bits = if group.block_uninit {
            let bits = handle.create(group.block_bitmap)?;
            bits.copy_from_slice(&self.zones.initial_bitmap(superblock, number));
            bits
        } else {
            handle.edit(group.block_bitmap)?
        };
        if used {
            bitmap::set(bits, marked.clone());
        } else {
            bitmap::clear(bits, marked.clone());
        }
        let before = (!group.block_uninit).then_some(group.block_bitmap_checksum);
        let checksum = self.bitmap_checksum(bits, superblock.clusters_per_group(), before, marked);
        self.edit_group(handle, number, |edit| {
            edit.set_free_clusters(free);
            edit.set_block_bitmap(checksum);
        })?;
        let change = handle.space().group(number);
        change.block_bitmap = group.block_bitmap;
        if used {
            change.taken += count;
        } else {
            change.freed += count;
        }
        Ok(())
    }

    /// Returns the checksum of a bitmap of `count` bits, which was `before` until the bits `turned`
    /// were flipped; 0 where bitmaps have no checksum.
    fn bitmap_checksum(
        &self,
        bits: &[u8],
        count: u32,
        before: Option<u32>,
        turned: Range<u32>,
    ) -> u32 {
        let superblock = self.superblock();
        if !superblock.has_checksums() {
            return 0;
        }
        let patched = before
            .and_then(|before| Some(before ^ bitmap::checksum_patch(&self.patch, count, turned)?));
        patched.unwrap_or_else(|| bitmap::checksum(superblock.seed(), bits, count))
    }

    /// Returns the inode bitmap of group `number`, or `None` if no inode of the group is in use.
    pub(super) fn inode_bits(
        &self,
        handle: &Handle<'_>,
        number: u32,
        group: &Group,
    ) -> Result<Option<Arc<[u8]>>> {
        let bits = if group.inode_uninit {
            None
        } else {
            let count = self.superblock().inodes_per_group();
            Some(self.bitmap(
                handle,
                group.inode_bitmap,
                count,
                group.inode_bitmap_checksum,
                group,
            )?)
        };
        if !self.hints()[number as usize].inodes_agree {
            let per_group = self.superblock().inodes_per_group();
            let free =
                bits.as_ref().map_or(per_group, |bits| bitmap::count_free(bits, 0..per_group));
            if free != group.free_inodes {
                return Err(wrong_count(number, "free inodes"));
            }
            self.hints()[number as usize].inodes_agree = true;
        }
        Ok(bits)
    }

    /// Marks inode `index` of group `number`, which is free, as in use; or the reverse.
    pub(super) fn mark_inode(
        &self,
        handle: &mut Handle<'_>,
        number: u32,
        group: &Group,
        index: u32,
        used: bool,
        directory: bool,
    ) -> Result<()> {
        let superblock = self.superblock();
        let per_group = superblock.inodes_per_group();
        let step = |count: u32, up: bool, most: u32| {
            if up {
                count.checked_add(1).filter(|count| *count <= most)
            } else {
                count.checked_sub(1)
            }
        };
        let free = step(group.free_inodes, !used, per_group)
            .ok_or_else(|| wrong_count(number, "free inodes"))?;
        let directories = if directory {
            step(group.directories, used, per_group)
                .ok_or_else(|| wrong_count(number, "directories in use"))?
        } else {
            group.directories
        };
        let bits = if group.inode_uninit {
            let bits = handle.create(group.inode_bitmap)?;
            // Padding bits after the last inode count as in use.
            bitmap::set(bits, per_group..superblock.block_bytes() * 8);
            bits
        } else {
            handle.edit(group.inode_bitmap)?
        };
        if used {
            bitmap::set(bits, index..index + 1);
        } else {
            bitmap::clear(bits, index..index + 1);
        }
        let before = (!group.inode_uninit).then_some(group.inode_bitmap_checksum);
        let checksum = self.bitmap_checksum(bits, per_group, before, index..index + 1);
        let never_used = if used {
            group.unused_inodes.min(per_group.saturating_sub(index + 1))
        } else {
            group.unused_inodes
        };
        // A group with an inode in use has an initialized block bitmap, as in the kernel.
        let block_checksum = if used && group.block_uninit {
            let bits = handle.create(group.block_bitmap)?;
            bits.copy_from_slice(&self.zones.initial_bitmap(superblock, number));
            Some(self.bitmap_checksum(bits, superblock.clusters_per_group(), None, 0..0))
        } else {
            None
        };
        self.edit_group(handle, number, |edit| {
            edit.set_free_inodes(free);
            edit.set_directories(directories);
            if never_used != group.unused_inodes {
                edit.set_unused_inodes(never_used);
            }
            edit.set_inode_bitmap(checksum);
            if let Some(checksum) = block_checksum {
                edit.set_block_bitmap(checksum);
            }
        })?;
        let change = handle.space().group(number);
        change.inode_bitmap = group.inode_bitmap;
        let sign = if used { 1 } else { -1 };
        change.inodes -= sign;
        change.directories += if directory { sign } else { 0 };
        Ok(())
    }
}
