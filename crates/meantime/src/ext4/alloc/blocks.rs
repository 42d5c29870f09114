//! Blocks are taken and freed.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::pool::Who;
use super::zones::blocks_in;
use super::{Allocator, Want};
use crate::ext4::format::edit::bitmap;
use crate::ext4::journal::Handle;
use crate::ext4::{Corruption, Defect, Error};

impl Allocator {
    /// Takes between one and [`Want::blocks`] blocks that lie one after another.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: no block is free, or none that the caller may have, or those that are wait for a
    /// [commit](Self::would_commit_help). What [`Volume::group`](crate::ext4::format::Volume::group) and the bitmaps say, if they are damaged.
    pub fn blocks(&self, handle: &mut Handle<'_>, want: Want<'_>) -> Result<Range<u64>, Error> {
        let asked = u64::from(want.blocks.max(1));
        let reserved = want.reservation.as_ref().filter(|reservation| reservation.blocks() > 0);
        let blocks = match reserved {
            Some(reservation) => asked.min(reservation.blocks()),
            None => {
                let who = if want.metadata { Who::Need } else { self.pool.user() };
                let space = &handle.changes().space;
                asked.min(self.pool.available(who, space.taken(), space.spent()))
            }
        };
        if blocks == 0 {
            return Err(Error::NoSpace);
        }
        let reserved = reserved.map(|reservation| std::sync::Arc::clone(reservation.shared()));
        let superblock = self.superblock();
        let groups = superblock.groups();
        let goal = want.goal.filter(|goal| superblock.holds(*goal, 1));
        let goal = goal.unwrap_or_else(|| self.near_inode(want.ino));
        let first = superblock.group_of(goal);
        let mut held = false;
        // The goal's group once more at the end, from its beginning.
        for step in 0..=groups {
            let number = ((u64::from(first) + u64::from(step)) % u64::from(groups)) as u32;
            let from = if step == 0 { (goal - superblock.group_start(first)) as u32 } else { 0 };
            let Some(found) = self.find_in(handle, number, from, blocks as u32, &mut held)? else { continue };
            let group = handle.volume().group(number)?;
            let start = superblock.group_start(number);
            let found_blocks = start + u64::from(found.start)..start + u64::from(found.end);
            if self.zones.within(found_blocks.clone()).next().is_some() {
                // Its bitmap says that the file system's own are free.
                return Err(Corruption::new(Defect::BlockUnmarked).in_block(found_blocks.start).into());
            }
            self.mark_blocks(handle, number, &group, found.clone(), true)?;
            handle.space().take(u64::from(found.end - found.start), reserved.as_ref());
            return Ok(found_blocks);
        }
        self.starved.store(held, Ordering::Relaxed);
        Err(Error::NoSpace)
    }

    /// Where the first block of inode `ino` would be good.
    fn near_inode(&self, ino: u32) -> u64 {
        let superblock = self.superblock();
        let group = ino.saturating_sub(1) / superblock.inodes_per_group();
        superblock.group_start(group.min(superblock.groups() - 1))
    }

    /// The first up to `blocks` free blocks of group `number`, as bits of its bitmap, from bit `from` on. `held`: some are free, and wait.
    fn find_in(
        &self,
        handle: &Handle<'_>,
        number: u32,
        from: u32,
        blocks: u32,
        held: &mut bool,
    ) -> Result<Option<Range<u32>>, Error> {
        if self.hints()[number as usize].free_blocks == 0 {
            return Ok(None);
        }
        let superblock = self.superblock();
        let group = handle.volume().group(number)?;
        if group.free_clusters == 0 {
            return Ok(None);
        }
        let bits = self.block_bits(handle, number, &group)?;
        let start = superblock.group_start(number);
        let end = blocks_in(superblock, number);
        let mut at = from;
        loop {
            let first = bitmap::first_free(&bits, at..end);
            let run = first..bitmap::first_used(&bits, first..end.min(first.saturating_add(blocks)));
            if run.is_empty() {
                return Ok(None);
            }
            match handle.first_held_in(start + u64::from(run.start)..start + u64::from(run.end)) {
                None => return Ok(Some(run)),
                Some(waits) => {
                    *held = true;
                    let free_end = (waits.start - start) as u32;
                    if free_end > run.start {
                        return Ok(Some(run.start..free_end));
                    }
                    at = (waits.end - start) as u32;
                }
            }
        }
    }

    /// Frees `blocks`, all of which are in use. Nobody gets them before the change has committed. Whoever frees blocks of metadata
    /// [says so](Handle::forget) besides.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`], [`Defect::BlockShared`], [`Defect::BlockUnmarked`] if they cannot be freed: beyond the end, the file system's own,
    /// free already; as for [`blocks`](Self::blocks).
    pub fn free_blocks(&self, handle: &mut Handle<'_>, blocks: Range<u64>) -> Result<(), Error> {
        let superblock = self.superblock();
        let wrong = |defect, block| Err(Corruption::new(defect).in_block(block).into());
        if blocks.is_empty() {
            return Ok(());
        }
        if !superblock.holds(blocks.start, blocks.end - blocks.start) {
            return wrong(Defect::BlockPointer, blocks.start);
        }
        if let Some(own) = self.zones.within(blocks.clone()).next() {
            return wrong(Defect::BlockShared, own.start);
        }
        let mut at = blocks.start;
        while at < blocks.end {
            let number = superblock.group_of(at);
            let start = superblock.group_start(number);
            let end = blocks.end.min(start + superblock.blocks_per_group());
            let freed = (at - start) as u32..(end - start) as u32;
            let group = handle.volume().group(number)?;
            let bits = self.block_bits(handle, number, &group)?;
            let free = bitmap::first_free(&bits, freed.clone());
            if free < freed.end {
                return wrong(Defect::BlockUnmarked, start + u64::from(free));
            }
            drop(bits);
            self.mark_blocks(handle, number, &group, freed, false)?;
            handle.hold(at..end);
            at = end;
        }
        Ok(())
    }
}
