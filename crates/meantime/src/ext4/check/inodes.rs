//! Inodes that no name leads to: the file system's own, those that are being deleted, and lost ones.

use std::collections::HashSet;

use super::super::format::inode::flags;
use super::super::format::{Inode, ROOT_INO, RunState, Source, checksum};
use super::names::unnamed;
use super::{Checker, Step};
use crate::ext4::{Corruption, Defect, FileType};

/// The list of bad blocks (EXT2_BAD_INO).
const BAD_INO: u32 = 1;
/// The inode that holds the room for more group descriptors (EXT2_RESIZE_INO).
const RESIZE_INO: u32 = 7;

/// At the end of each block of the orphan file (EXT4_ORPHAN_BLOCK_MAGIC).
const ORPHAN_MAGIC: u32 = 0x0B10_CA04;

impl<S: Source> Checker<'_, S> {
    /// Journal, quotas, room for descriptors, …: their blocks.
    pub(super) fn own_inodes(&mut self) -> Step {
        let superblock = self.volume.superblock();
        let first = superblock.first_ino();
        let own = self.fields.quota.into_iter().chain([self.fields.orphan_file, superblock.journal_ino()]);
        let own: HashSet<u32> = own.filter(|ino| *ino >= first && *ino <= superblock.inodes()).collect();
        let mut own: Vec<u32> = (1..first).chain(own).filter(|ino| *ino != ROOT_INO).collect();
        own.sort_unstable();
        for ino in own {
            self.tick()?;
            self.seen.insert(u64::from(ino));
            let Some(inode) = self.sound(self.volume.inode(ino), Some(ino), None)? else { continue };
            // (The list of bad blocks has no type, and no link.)
            let is_list = ino == BAD_INO && inode.metadata().blocks_512 > 0;
            if ino == RESIZE_INO && !inode.is_free() {
                self.room_for_descriptors(&inode)?;
            } else if !inode.is_free() || is_list {
                self.blocks_of(&inode, None, true)?;
            }
            self.summary.inodes += 1;
        }
        Ok(())
    }

    /// Of the resize inode only the block of pointers is its own: it leads to the room behind the descriptors, which counts as theirs.
    fn room_for_descriptors(&mut self, inode: &Inode) -> Step {
        let four = &inode.block_area()[13 * 4..14 * 4];
        let block = u64::from(u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        if block == 0 {
            return Ok(());
        }
        if !self.volume.superblock().holds(block, 1) {
            let wrong = Corruption::new(Defect::BlockPointer).in_inode(RESIZE_INO).in_block(block);
            return self.found(wrong, None);
        }
        self.claim(block, 1, Some(RESIZE_INO), None)
    }

    /// Inodes that were deleted or truncated while somebody had them open: the list through `i_dtime`, and the orphan file.
    pub(super) fn orphans(&mut self) -> Step {
        let (first, inodes) = (self.volume.superblock().first_ino(), self.volume.superblock().inodes());
        let mut ino = self.fields.last_orphan;
        let mut listed = HashSet::new();
        while ino != 0 {
            self.tick()?;
            if ino < first || ino > inodes || !listed.insert(ino) {
                self.found(Corruption::new(Defect::OrphanList).in_inode(ino), None)?;
                break;
            }
            let Some(next) = self.orphan(ino)? else { break };
            ino = next;
        }
        if self.fields.orphan_file == 0 {
            return Ok(());
        }
        let file = self.fields.orphan_file;
        let Some(inode) = self.sound(self.volume.inode(file), Some(file), None)? else { return Ok(()) };
        let blocks = inode.size() / u64::from(self.volume.superblock().block_bytes());
        let mut logical = 0;
        while logical < blocks {
            self.tick()?;
            let Some(run) = self.sound(self.volume.run_at(&inode, logical), Some(file), None)? else {
                return Ok(());
            };
            if run.state != RunState::Written {
                return self.found(Corruption::new(Defect::OrphanList).in_inode(file), None);
            }
            let physical = run.physical;
            let Some(bytes) = self.sound(self.volume.block(physical), Some(file), None)? else {
                return Ok(());
            };
            let words: Vec<u32> = bytes
                .chunks_exact(4)
                .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
                .collect();
            // Inode numbers, and a tail of magic number and checksum.
            let Some((entries, [magic, says])) = words.split_last_chunk::<2>() else { return Ok(()) };
            let guarded = self.volume.superblock().has_checksums();
            let sum = checksum::crc32c(inode.checksum_seed(), &physical.to_le_bytes());
            let right = checksum::crc32c(sum, bytes.get(..entries.len() * 4).unwrap_or_default()) == *says;
            if *magic != ORPHAN_MAGIC || guarded && !right {
                let wrong = Corruption::new(Defect::OrphanList).in_inode(file).in_block(physical);
                self.found(wrong, None)?;
            } else {
                for ino in entries.iter().copied().filter(|ino| *ino != 0) {
                    if ino < first || ino > inodes {
                        let wrong = Corruption::new(Defect::OrphanList).in_inode(file).in_block(physical);
                        self.found(wrong, None)?;
                        continue;
                    }
                    self.orphan(ino)?;
                }
            }
            logical += 1;
        }
        Ok(())
    }

    /// An orphan, unless a name leads to it, too; and the next one's number.
    fn orphan(&mut self, ino: u32) -> Step<Option<u32>> {
        let Some(inode) = self.sound(self.volume.inode(ino), Some(ino), None)? else { return Ok(None) };
        if self.seen.insert(u64::from(ino)) {
            self.visit(&inode, None)?;
        }
        Ok(Some(inode.deletion_time()))
    }

    /// Inodes that their bitmap says are in use, and that nothing has led to so far.
    pub(super) fn unnamed(&mut self) -> Step {
        let (groups, per_group) = {
            let superblock = self.volume.superblock();
            (superblock.groups(), superblock.inodes_per_group())
        };
        for group in 0..groups {
            self.tick()?;
            // What is wrong with the bitmap is said when all of them are compared.
            let Ok(Some(bitmap)) = self.volume.inode_bitmap(group) else { continue };
            for at in (0..per_group).filter(|at| bit(&bitmap, *at)) {
                let ino = group * per_group + at + 1;
                if self.seen.contains(u64::from(ino)) || ino < self.volume.superblock().first_ino() {
                    continue;
                }
                self.tick()?;
                let name = unnamed(ino);
                let Some(inode) = self.sound(self.volume.inode(ino), Some(ino), Some(&name))? else {
                    self.seen.insert(u64::from(ino));
                    continue;
                };
                if inode.is_free() {
                    self.found(Corruption::new(Defect::InodeLeaked).in_inode(ino), None)?;
                    continue;
                }
                self.seen.insert(u64::from(ino));
                // The value of an attribute: the attribute leads to it.
                if inode.has(flags::EA_INODE) {
                    self.summary.inodes += 1;
                    self.blocks_of(&inode, None, true)?;
                    continue;
                }
                self.found(Corruption::new(Defect::InodeUnreachable).in_inode(ino), None)?;
                self.visit(&inode, Some(&name))?;
                let links = self.links.of(ino);
                // That it has no name was said.
                links.found = links.found.saturating_add(1);
                if inode.file_type() == FileType::Directory {
                    self.below(inode, name, None)?;
                }
            }
        }
        Ok(())
    }
}

/// Bit `at` of a bitmap.
pub(super) fn bit(bitmap: &[u8], at: u32) -> bool {
    bitmap.get((at / 8) as usize).is_some_and(|byte| byte & 1 << (at % 8) != 0)
}
