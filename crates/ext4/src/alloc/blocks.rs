//! Takes and frees blocks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::search::Search;
use super::{Allocator, Want};
use crate::journal::Handle;
use crate::space::{Promised, Who};
use crate::{Corruption, Defect, Error, Result};
use meantime_ext4_format::Group;
use meantime_ext4_format::edit::bitmap;

/// Requests of this many blocks or more keep no window after them.
const MANY: u32 = 256;

impl Allocator {
    /// Takes a run of between one and [`Want::blocks`] blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no block is free, if the caller may not use the free ones, or if all
    /// of them wait for a [commit](Self::would_commit_help). Damage in a group's descriptor or
    /// bitmap, or a device error.
    pub fn blocks(&self, handle: &mut Handle<'_>, want: Want<'_>) -> Result<Range<u64>> {
        if want.metadata {
            handle.fast_ineligible();
        }
        // No run is longer than a group.
        let asked = u64::from(want.blocks.max(1)).min(self.superblock().blocks_per_group());
        let reserved = want.reservation.as_ref().filter(|reservation| reservation.blocks() > 0);
        let (promised, blocks) = match reserved {
            Some(reservation) => {
                let blocks = asked.min(reservation.blocks());
                reservation.shared().take(blocks);
                (Promised::Data(Arc::clone(reservation.shared())), blocks)
            }
            None => {
                // Blocks that wait for a commit count as free, so a commit would not help here.
                self.starved.store(false, Ordering::Relaxed);
                (Promised::Change(Arc::clone(&self.pool)), self.pool.promise(want.who, asked)?)
            }
        };
        let found = self.find(handle, &want, blocks as u32).and_then(|(number, group, bits)| {
            self.take(handle, number, &group, bits.clone())?;
            Ok((number, bits))
        });
        let taken = found.as_ref().map_or(0, |(_, bits)| bits.len() as u64);
        promised.put(blocks - taken);
        let (number, bits) = found?;
        handle.space().take(promised, taken);
        let superblock = self.superblock();
        let start = superblock.group_start(number);
        let taken = start + u64::from(bits.start)..start + u64::from(bits.end);
        self.hints()[number as usize].next = bits.end;
        // This is a file that grows in small steps.
        if want.goal.is_some() && !want.metadata && want.blocks < MANY {
            let end = superblock.blocks().min(start + superblock.blocks_per_group());
            self.windows().advance(want.ino, &taken, end);
        }
        Ok(taken)
    }

    /// Finds up to `blocks` free blocks. Returns the group, its descriptor, and the blocks' bits in
    /// its bitmap.
    fn find(
        &self,
        handle: &Handle<'_>,
        want: &Want<'_>,
        blocks: u32,
    ) -> Result<(u32, Group, Range<u32>)> {
        let superblock = self.superblock();
        let goal = want.goal.filter(|goal| superblock.holds(*goal, 1));
        let exact = goal.is_some();
        let goal = goal.unwrap_or_else(|| self.near_inode(want));
        let (allocator, ino) = (self, want.ino);
        let mut search =
            Search { allocator, handle, ino, blocks, polite: true, held: false, last: None };
        if let Some((number, bits)) = search.run(goal, exact)? {
            let group = match search.last.filter(|(last, _)| *last == number) {
                Some((_, group)) => group,
                None => handle.group(number)?,
            };
            return Ok((number, group, bits));
        }
        self.starved.store(search.held, Ordering::Relaxed);
        Err(Error::NoSpace)
    }

    /// Returns the goal for the first block of an inode. For data, it is the block after the one
    /// that was taken last in the inode's group; for metadata, the start of that group.
    fn near_inode(&self, want: &Want<'_>) -> u64 {
        let superblock = self.superblock();
        let group = want.ino.saturating_sub(1) / superblock.inodes_per_group();
        let group = group.min(superblock.groups() - 1);
        let next = if want.metadata { 0 } else { self.hints()[group as usize].next };
        let start = superblock.group_start(group);
        (start + u64::from(next)).min(superblock.blocks() - 1)
    }

    /// Marks `bits` of group `number`, which are free, as in use.
    fn take(
        &self,
        handle: &mut Handle<'_>,
        number: u32,
        group: &Group,
        bits: Range<u32>,
    ) -> Result<()> {
        let start = self.superblock().group_start(number);
        let blocks = start + u64::from(bits.start)..start + u64::from(bits.end);
        if let Some(own) = self.zones.within(blocks).next() {
            // The bitmap is damaged: it says that blocks of the file system's own are free.
            return Err(Corruption::new(Defect::BlockUnmarked).in_block(own.start).into());
        }
        self.mark_blocks(handle, number, group, bits, true)
    }

    /// Takes `blocks`, which are known to belong to what is being changed. All must be free; blocks
    /// that are held until a commit count as free here.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if a block is beyond the end; [`Defect::BlockShared`] if one
    /// belongs to the file system itself, or is in use. [`Error::NoSpace`] if the free blocks are
    /// promised to others. Damage in a group's descriptor or bitmap, or a device error.
    pub fn take_exactly(&self, handle: &mut Handle<'_>, blocks: Range<u64>) -> Result<()> {
        handle.fast_ineligible();
        self.by_groups(blocks, |number, bits, blocks| {
            let group = handle.group(number)?;
            let used = bitmap::first_used(&self.block_bits(handle, number, &group)?, bits.clone());
            if used < bits.end {
                let shared = blocks.start + u64::from(used - bits.start);
                return Err(Corruption::new(Defect::BlockShared).in_block(shared).into());
            }
            let promised = Promised::Change(Arc::clone(&self.pool));
            let wanted = blocks.end - blocks.start;
            let taken = self.pool.promise(Who::Need, wanted)?;
            handle.space().take(promised, taken);
            if taken < wanted {
                return Err(Error::NoSpace);
            }
            self.mark_blocks(handle, number, &group, bits, true)
        })
    }

    /// Frees `blocks`, all of which are in use. They are not reused before the change has
    /// committed. A caller that frees metadata also calls [`forget`](Handle::forget).
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if a block is beyond the end; [`Defect::BlockShared`] if one
    /// belongs to the file system itself; [`Defect::BlockUnmarked`] if one is already free. Damage
    /// in a group's descriptor or bitmap, or a device error.
    pub fn free_blocks(&self, handle: &mut Handle<'_>, blocks: Range<u64>) -> Result<()> {
        self.by_groups(blocks, |number, bits, blocks| {
            let group = handle.group(number)?;
            let free = bitmap::first_free(&self.block_bits(handle, number, &group)?, bits.clone());
            if free < bits.end {
                let unmarked = blocks.start + u64::from(free - bits.start);
                return Err(Corruption::new(Defect::BlockUnmarked).in_block(unmarked).into());
            }
            self.mark_blocks(handle, number, &group, bits, false)?;
            handle.hold(blocks);
            Ok(())
        })
    }

    /// Calls `change` for each group of `blocks`, after checking that a file may own them. It gets
    /// the group's number, the bits, and the blocks.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if a block is beyond the end; [`Defect::BlockShared`] if one
    /// belongs to the file system itself. The errors of `change`.
    fn by_groups(
        &self,
        blocks: Range<u64>,
        mut change: impl FnMut(u32, Range<u32>, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let superblock = self.superblock();
        if blocks.is_empty() {
            return Ok(());
        }
        if !superblock.holds(blocks.start, blocks.end - blocks.start) {
            return Err(Corruption::new(Defect::BlockPointer).in_block(blocks.start).into());
        }
        if let Some(own) = self.zones.within(blocks.clone()).next() {
            return Err(Corruption::new(Defect::BlockShared).in_block(own.start).into());
        }
        let mut at = blocks.start;
        while at < blocks.end {
            let number = superblock.group_of(at);
            let start = superblock.group_start(number);
            let end = blocks.end.min(start + superblock.blocks_per_group());
            change(number, (at - start) as u32..(end - start) as u32, at..end)?;
            at = end;
        }
        Ok(())
    }
}
