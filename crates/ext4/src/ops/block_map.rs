//! Taking blocks from the files of ext2 and ext3, whose blocks are found by a map. (None are given
//! to them here.)

use std::ops::Range;

use super::Progress;
use super::extents::{MAX_FREED, weight};
use crate::alloc::Allocator;
use crate::journal::Handle;
use crate::{Corruption, Defect, Error};
use meantime_ext4_format::block_map::{DIRECT, pointer, span};
use meantime_ext4_format::edit::InodeEdit;

/// Pointers in the inode.
const SLOTS: usize = DIRECT + 3;
/// The longest run of blocks that is freed at once.
const MAX_RUN: u64 = 0x8000;

struct Removal<'t, 'h> {
    handle: &'t mut Handle<'h>,
    allocator: &'t Allocator,
    inode: &'t mut InodeEdit,
    range: Range<u64>,
    metadata: bool,
    /// Pointers in a block.
    pointers: u64,
    limit: usize,
    freed: usize,
    /// Blocks of the file, one after another on the disk, whose pointers are gone: not freed yet.
    pending: Range<u64>,
}

/// As [`extents::remove`](super::extents::remove), for a file with a map.
pub(super) fn remove(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    inode: &mut InodeEdit,
    range: Range<u64>,
    metadata: bool,
    budget: usize,
) -> Result<Progress, Error> {
    // They have no words for maps.
    handle.fast_ineligible();
    let pointers = u64::from(handle.superblock().block_bytes()) / 4;
    let limit = weight(handle) + budget.max(1);
    let mut removal = Removal {
        handle,
        allocator,
        inode,
        range,
        metadata,
        pointers,
        limit,
        freed: 0,
        pending: 0..0,
    };
    let mut left = false;
    for slot in (0..SLOTS).rev() {
        let block = pointer(removal.inode.block_area(), slot);
        let below = slot.saturating_sub(DIRECT - 1);
        // What is before this one: the direct blocks, and all of each lower level.
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

impl Removal<'_, '_> {
    fn is_spent(&self) -> bool {
        self.freed >= MAX_FREED || weight(self.handle) >= self.limit
    }

    /// Whether nothing is to be removed below a pointer to `block`, from which `below` more lead to
    /// data, the first of which is block `first` of the file.
    fn is_over(&self, block: u64, first: u64, below: usize) -> bool {
        block == 0
            || first >= self.range.end
            || first + span(self.pointers, below) <= self.range.start
    }

    /// Frees what is in the range below a pointer to `block`; `true`: nothing is left there, and
    /// the block is freed too.
    fn branch(&mut self, block: u64, below: usize, first: u64) -> Result<bool, Error> {
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
            self.allocator.free_blocks(self.handle, block..block + 1)?;
            self.handle.forget(block);
            self.count(1);
        } else if !gone.is_empty() {
            let table = self.handle.edit(block)?;
            gone.iter().for_each(|slot| table[4 * slot..4 * slot + 4].fill(0));
        }
        Ok(!left)
    }

    /// Frees a block of the file, together with those beside it.
    fn data(&mut self, block: u64) -> Result<(), Error> {
        let run = self.pending.end - self.pending.start;
        if block + 1 == self.pending.start && run < MAX_RUN && !self.metadata {
            self.pending.start = block;
            return Ok(());
        }
        self.flush()?;
        self.pending = block..block + 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let blocks = std::mem::replace(&mut self.pending, 0..0);
        if blocks.is_empty() {
            return Ok(());
        }
        self.freed += 1;
        self.allocator.free_blocks(self.handle, blocks.clone())?;
        self.count(blocks.end - blocks.start);
        if self.metadata {
            blocks.for_each(|block| self.handle.forget(block));
        }
        Ok(())
    }

    /// The file has `fewer` blocks less.
    fn count(&mut self, fewer: u64) {
        let superblock = self.handle.superblock();
        let blocks = self.inode.blocks(superblock).saturating_sub(fewer);
        self.inode.set_blocks(superblock, blocks);
    }
}
