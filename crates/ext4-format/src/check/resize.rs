//! The resize inode: the room behind the group descriptors for more of them (e2fsprogs:
//! `check_resize_inode`, `lib/ext2fs/res_gdt.c`).

use super::{Checker, Step};
use crate::{Corruption, Defect, FileType};
use crate::{Inode, Source, features};

/// Its number.
pub(super) const RESIZE_INO: u32 = 7;
/// Which pointer of an inode leads to a block of pointers to blocks of pointers (EXT2_DIND_BLOCK).
const TWICE_INDIRECT: usize = 13;

fn pointers(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
        .collect()
}

impl<S: Source> Checker<'_, S> {
    /// Checks the resize inode. Only its block of pointers is its own: it leads to the room behind
    /// the descriptors, which counts as theirs, and each block of that to those behind the
    /// descriptors' copies.
    pub(super) fn resize_inode(&mut self, inode: &Inode) -> Step {
        let own = pointers(inode.block_area());
        let superblock = self.volume.superblock();
        let reserved = superblock.reserved_descriptor_blocks() as usize;
        let wrong =
            |at: u64| Corruption::new(Defect::ResizeInode).in_inode(RESIZE_INO).in_block(at);
        let table = u64::from(own[TWICE_INDIRECT]);
        let others = own.iter().enumerate().any(|(at, block)| at != TWICE_INDIRECT && *block != 0);
        if !superblock.features().has_compat(features::compat::RESIZE_INODE) {
            let unused = own.iter().all(|block| *block == 0);
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
        let Some(bytes) = self.sound(self.volume.block(table), Some(RESIZE_INO), None)? else {
            return Ok(());
        };
        let leads_to = pointers(&bytes);
        let per_block = leads_to.len();
        let descriptors = superblock.descriptor_blocks() as usize;
        let copies: Vec<u32> =
            (1..superblock.groups()).filter(|group| superblock.has_superblock(*group)).collect();
        let mut expected = vec![0; per_block];
        let mut blocks = 1;
        let first = superblock.primary_block() + 1 + descriptors as u64;
        for nth in 0..reserved {
            self.tick()?;
            let block = first + nth as u64;
            expected[(descriptors + nth) % per_block] = block as u32;
            blocks += 1 + copies.len() as u64;
            let Some(bytes) = self.sound(self.volume.block(block), Some(RESIZE_INO), None)? else {
                continue;
            };
            let mut behind = pointers(&bytes).into_iter();
            let right = copies.iter().all(|group| {
                let there = superblock.group_start(*group) - superblock.group_start(0) + block;
                behind.next() == Some(there as u32)
            });
            if !right || behind.any(|more| more != 0) {
                self.found(wrong(block), None)?;
            }
        }
        if leads_to != expected {
            self.found(wrong(table), None)?;
        }
        // (With clusters it depends on who made it.)
        let right = blocks * u64::from(superblock.block_bytes() / 512);
        if superblock.cluster_blocks() == 1 && inode.metadata().blocks_512 != right {
            self.found(Corruption::new(Defect::BlockCount).in_inode(RESIZE_INO), None)?;
        }
        Ok(())
    }
}
