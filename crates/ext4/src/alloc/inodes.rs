//! Takes and frees inodes.

use super::Allocator;
use crate::journal::Handle;
use crate::{Corruption, Defect, Error, Result};
use meantime_ext4_format::Group;
use meantime_ext4_format::edit::bitmap;

impl Allocator {
    /// Takes an inode for a new file or `directory` in directory `parent`. Its slot in the table
    /// may hold anything: the caller writes a [new
    /// inode](meantime_ext4_format::edit::InodeEdit::new) over all of it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no inode is free. Damage in a group's descriptor or bitmap, or a
    /// device error.
    pub fn inode(&self, handle: &mut Handle<'_>, parent: u32, directory: bool) -> Result<u32> {
        let per_group = self.superblock().inodes_per_group();
        for number in self.groups_for_inode(parent, directory) {
            if let Some(index) = self.take_inode_in(handle, number, directory)? {
                return Ok(number * per_group + index + 1);
            }
        }
        Err(Error::NoSpace)
    }

    /// Takes an inode of group `number`, if one is free.
    fn take_inode_in(
        &self,
        handle: &mut Handle<'_>,
        number: u32,
        directory: bool,
    ) -> Result<Option<u32>> {
        let superblock = self.superblock();
        let per_group = superblock.inodes_per_group();
        let group = handle.group(number)?;
        if group.free_inodes == 0 {
            return Ok(None);
        }
        // Inodes below `first_ino` are the file system's own.
        let reserved = superblock.first_ino() - 1;
        let first = u64::from(reserved).saturating_sub(u64::from(number) * u64::from(per_group));
        let first = first.min(u64::from(per_group)) as u32;
        let index = match self.inode_bits(handle, number, &group)? {
            Some(bits) => bitmap::first_free(&bits, first..per_group),
            None => first,
        };
        if index >= per_group {
            return Ok(None);
        }
        self.clear_slots(handle, &group, index)?;
        self.mark_inode(handle, number, &group, index, true, directory)?;
        Ok(Some(index))
    }

    /// Returns group and index of inode `ino`, which must not be the file system's own.
    fn inode_index(&self, ino: u32) -> Result<(u32, u32)> {
        let superblock = self.superblock();
        if ino < superblock.first_ino() || ino > superblock.inodes() || superblock.is_reserved(ino)
        {
            return Err(Corruption::new(Defect::InodeNumber).in_inode(ino).into());
        }
        let per_group = superblock.inodes_per_group();
        Ok(((ino - 1) / per_group, (ino - 1) % per_group))
    }

    /// Returns whether inode `ino` is in use according to its bitmap.
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if the number is reserved for the file system, or too large. Damage
    /// in a group's descriptor or bitmap, or a device error.
    pub fn is_inode_taken(&self, handle: &Handle<'_>, ino: u32) -> Result<bool> {
        let (number, index) = self.inode_index(ino)?;
        let group = handle.group(number)?;
        let bits = self.inode_bits(handle, number, &group)?;
        Ok(bits.is_some_and(|bits| bitmap::first_free(&bits, index..index + 1) > index))
    }

    /// Takes inode `ino`, which must be free, for a file or `directory`. Unlike
    /// [`inode`](Self::inode), the caller chooses the number.
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if the number is reserved for the file system, or too large.
    /// [`Defect::InodeUnmarked`] if it is in use. Damage in a group's descriptor or bitmap, or a
    /// device error.
    pub fn take_inode(&self, handle: &mut Handle<'_>, ino: u32, directory: bool) -> Result<()> {
        if self.is_inode_taken(handle, ino)? {
            return Err(Corruption::new(Defect::InodeUnmarked).in_inode(ino).into());
        }
        let (number, index) = self.inode_index(ino)?;
        let group = handle.group(number)?;
        self.clear_slots(handle, &group, index)?;
        self.mark_inode(handle, number, &group, index, true, directory)
    }

    /// Clears the slots of the inode table that were never used, up to slot `index`, which is about
    /// to be used. They count as inodes from then on, and their contents are unknown: mke2fs writes
    /// only the part of a table that is in use.
    fn clear_slots(&self, handle: &mut Handle<'_>, group: &Group, index: u32) -> Result<()> {
        let superblock = self.superblock();
        let per_block = superblock.block_bytes() / superblock.inode_bytes();
        let known = superblock.inodes_per_group().saturating_sub(group.unused_inodes);
        if index < known {
            return Ok(());
        }
        for place in known / per_block..=index / per_block {
            let block = group.inode_table + u64::from(place);
            if place * per_block >= known {
                handle.create(block)?;
            } else {
                let at = ((known % per_block) * superblock.inode_bytes()) as usize;
                handle.edit(block)?[at..].fill(0);
            }
        }
        Ok(())
    }

    /// Frees inode `ino`, a `directory` or not.
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if the number is reserved for the file system, or too large.
    /// [`Defect::InodeUnmarked`] if it is already free. Damage in a group's descriptor or bitmap,
    /// or a device error.
    pub fn free_inode(&self, handle: &mut Handle<'_>, ino: u32, directory: bool) -> Result<()> {
        handle.fast_ineligible();
        if !self.is_inode_taken(handle, ino)? {
            return Err(Corruption::new(Defect::InodeUnmarked).in_inode(ino).into());
        }
        let (number, index) = self.inode_index(ino)?;
        let group = handle.group(number)?;
        self.mark_inode(handle, number, &group, index, false, directory)
    }
}
