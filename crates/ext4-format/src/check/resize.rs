//! The resize inode, which reserves blocks after the group descriptors for further descriptors
//! (e2fsprogs: `check_resize_inode`, `lib/ext2fs/res_gdt.c`).

use zerocopy::little_endian::U32;

use super::{Checker, Step};
use crate::block_map::TWICE_INDIRECT;
use crate::structures::words;
use crate::superblock::RESIZE_INO;
use crate::{Corruption, Defect, FileType};
use crate::{Inode, Source, features};

impl<S: Source> Checker<'_, S> {
    /// Checks the resize inode. Only its block of pointers is its own. It points to the reserved
    /// blocks after the descriptors, which are already claimed, and each of these points to those
    /// after the descriptors' copies.
    pub(super) fn resize_inode(&mut self, inode: &Inode) -> Step {
        let own = words(inode.block_area());
        let superblock = self.volume.superblock();
        let reserved = superblock.reserved_descriptor_blocks() as usize;
        let wrong =
            |at: u64| Corruption::new(Defect::ResizeInode).in_inode(RESIZE_INO).in_block(at);
        let table = u64::from(own[TWICE_INDIRECT].get());
        let others =
            own.iter().enumerate().any(|(at, block)| at != TWICE_INDIRECT && block.get() != 0);
        if !superblock.features().has_compat(features::compat::RESIZE_INODE) {
            let unused = own.iter().all(|block| block.get() == 0);
            return if unused { Ok(()) } else { self.found(wrong(0), None) };
        }
        if others
            || inode.file_type() != FileType::Regular
            || inode.is_free()
            || !superblock.holds(table, 1)
        {
            return self.found(wrong(table), None);
        }
        self.claim(table, 1, Some(RESIZE_INO), None)?;
        let Some(bytes) = self.block(table, Some(RESIZE_INO), None)? else { return Ok(()) };
        let leads_to = words(&bytes);
        let per_block = leads_to.len();
        let descriptors = superblock.descriptor_blocks() as usize;
        let copies: Vec<u32> =
            (1..superblock.groups()).filter(|group| superblock.has_superblock(*group)).collect();
        let mut expected = vec![U32::ZERO; per_block];
        let mut blocks = 1;
        let first = superblock.primary_block() + 1 + descriptors as u64;
        for nth in 0..reserved {
            self.tick()?;
            let block = first + nth as u64;
            expected[(descriptors + nth) % per_block] = U32::new(block as u32);
            blocks += 1 + copies.len() as u64;
            let Some(bytes) = self.block(block, Some(RESIZE_INO), None)? else { continue };
            let mut after = words(&bytes).iter().map(|word| word.get());
            let right = copies.iter().all(|group| {
                let there = superblock.group_start(*group) - superblock.group_start(0) + block;
                after.next() == Some(there as u32)
            });
            if !right || after.any(|more| more != 0) {
                self.found(wrong(block), None)?;
            }
        }
        if leads_to != expected {
            self.found(wrong(table), None)?;
        }
        // With clusters, the count depends on the tool that made the file system.
        let right = blocks * u64::from(superblock.block_bytes() / 512);
        if superblock.cluster_blocks() == 1 && inode.metadata().blocks_512 != right {
            self.wrong(Defect::BlockCount, RESIZE_INO, None)?;
        }
        Ok(())
    }
}
