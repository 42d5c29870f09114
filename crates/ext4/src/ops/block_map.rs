//! Removes blocks from files of ext2 and ext3, which are mapped by indirect blocks. This crate adds
//! no blocks to such files.

use std::ops::Range;

use super::progress::{MAX_FREED, Progress, weight};
use crate::alloc::AllocHandle;
use crate::{Corruption, Defect, Result};
use meantime_ext4_format::block_map::{DIRECT, pointer, span};
use meantime_ext4_format::edit::InodeEdit;

/// Pointers in the inode.
const SLOTS: usize = DIRECT + 3;
/// The longest run that is freed at once, in blocks.
const MAX_RUN: u64 = 0x8000;

struct Removal<'t, 'h, 'a> {
    handle: &'t mut AllocHandle<'h, 'a>,
    inode: &'t mut InodeEdit,
    range: Range<u64>,
    metadata: bool,
    /// Pointers per block.
    pointers: u64,
    limit: usize,
    freed: usize,
    /// A run of blocks on the device whose pointers are cleared, and which is not freed yet.
    pending: Range<u64>,
}

/// Unmaps and frees a range of blocks of a file with a block map, like
/// [`extents::remove`](super::extents::remove).
pub(super) fn remove(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    range: Range<u64>,
    metadata: bool,
    budget: usize,
) -> Result<Progress> {
    // Fast commits cannot describe block maps.
    handle.fast_ineligible();
    let pointers = u64::from(handle.superblock().block_bytes()) / 4;
    let limit = weight(handle) + budget.max(1);
    let mut removal =
        Removal { handle, inode, range, metadata, pointers, limit, freed: 0, pending: 0..0 };
    let mut left = false;
    for slot in (0..SLOTS).rev() {
        let block = pointer(removal.inode.block_area(), slot);
        let below = slot.saturating_sub(DIRECT - 1);
        // This is the first logical block of this slot: the direct blocks and all lower levels
        // precede it.
        let first =
            (1..below).fold(slot.min(DIRECT) as u64, |first, level| first + span(pointers, level));
        if removal.is_over(block, first, below) {
            continue;
        }
        if removal.is_spent() {
            left = true;
        } else if removal.branch(block, below, first)? {
            removal.inode.block_area_mut()[4 * slot..4 * slot + 4].fill(0);
        } else {
            left |= removal.is_spent();
        }
    }
    removal.flush()?;
    Ok(if left { Progress::More } else { Progress::Done })
}

impl Removal<'_, '_, '_> {
    fn is_spent(&self) -> bool {
        self.freed >= MAX_FREED || weight(self.handle) >= self.limit
    }

    /// Returns whether the subtree of a pointer to `block` has nothing to remove. `below` is the
    /// number of pointer levels below it, and `first` its first logical block.
    fn is_over(&self, block: u64, first: u64, below: usize) -> bool {
        block == 0
            || first >= self.range.end
            || first + span(self.pointers, below) <= self.range.start
    }

    /// Frees the part of the range below a pointer to `block`. Returns `true` if nothing is left
    /// there; `block` is freed then, too.
    fn branch(&mut self, block: u64, below: usize, first: u64) -> Result<bool> {
        if !self.handle.superblock().holds(block, 1) {
            return Err(Corruption::new(Defect::BlockPointer).in_inode(self.inode.ino()).into());
        }
        if below == 0 {
            self.data(block)?;
            return Ok(true);
        }
        let table = self.handle.block(block)?;
        let step = span(self.pointers, below - 1);
        let (mut gone, mut left) = (Vec::new(), false);
        for slot in (0..self.pointers as usize).rev() {
            let child = pointer(&table, slot);
            let first = first + slot as u64 * step;
            if child == 0 {
                continue;
            }
            if self.is_over(child, first, below - 1) || self.is_spent() {
                left = true;
            } else if self.branch(child, below - 1, first)? {
                gone.push(slot);
            } else {
                left = true;
            }
        }
        if !left {
            self.flush()?;
            self.handle.allocator.free_blocks(self.handle, block..block + 1)?;
            self.handle.forget(block);
            self.count(1);
        } else if !gone.is_empty() {
            let table = self.handle.edit(block)?;
            gone.iter().for_each(|slot| table[4 * slot..4 * slot + 4].fill(0));
        }
        Ok(!left)
    }

    /// Frees a data block, batched with adjacent ones.
    fn data(&mut self, block: u64) -> Result<()> {
        let run = self.pending.end - self.pending.start;
        if block + 1 == self.pending.start && run < MAX_RUN && !self.metadata {
            self.pending.start = block;
            return Ok(());
        }
        self.flush()?;
        self.pending = block..block + 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let blocks = std::mem::replace(&mut self.pending, 0..0);
        if blocks.is_empty() {
            return Ok(());
        }
        self.freed += 1;
        self.handle.allocator.free_blocks(self.handle, blocks.clone())?;
        self.count(blocks.end - blocks.start);
        if self.metadata {
            blocks.for_each(|block| self.handle.forget(block));
        }
        Ok(())
    }

    /// Subtracts `fewer` from the file's block count.
    fn count(&mut self, fewer: u64) {
        let superblock = self.handle.superblock();
        let blocks = self.inode.blocks(superblock).saturating_sub(fewer);
        self.inode.set_blocks(superblock, blocks);
    }
}
