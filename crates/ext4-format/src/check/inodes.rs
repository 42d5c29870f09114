//! Inodes that no name leads to: the file system's own, those that are being deleted, and lost
//! ones.

use std::collections::HashSet;

use super::names::unnamed;
use super::resize::RESIZE_INO;
use super::{Checker, Step};
use crate::inode::flags;
use crate::{Corruption, Defect, Error, FileType};
use crate::{ROOT_INO, RunState, STATE_VALID, Source, checksum, features};

/// The list of bad blocks (EXT2_BAD_INO).
const BAD_INO: u32 = 1;

/// At the end of each block of the orphan file (EXT4_ORPHAN_BLOCK_MAGIC).
const ORPHAN_MAGIC: u32 = 0x0B10_CA04;

impl<S: Source> Checker<'_, S> {
    /// Journal, quotas, room for descriptors, …: their blocks.
    pub(super) fn own_inodes(&mut self) -> Step {
        let superblock = self.volume.superblock();
        let first = superblock.first_ino();
        let own =
            self.quota_files().into_iter().chain([self.orphan_file(), superblock.journal_ino()]);
        let own: HashSet<u32> =
            own.filter(|ino| *ino >= first && *ino <= superblock.inodes()).collect();
        let mut own: Vec<u32> = (1..first).chain(own).filter(|ino| *ino != ROOT_INO).collect();
        own.sort_unstable();
        for ino in own {
            self.tick()?;
            self.seen.insert(u64::from(ino));
            let Some(inode) = self.sound(self.volume.inode(ino), Some(ino), None)? else {
                continue;
            };
            // (The list of bad blocks has no type, and no link.)
            let is_list = ino == BAD_INO && inode.block_area().iter().any(|byte| *byte != 0);
            if ino == RESIZE_INO {
                self.resize_inode(&inode)?;
            } else if is_list {
                self.blocks_of(&inode, None, true)?;
            } else if !inode.is_free() {
                self.fields_of(&inode, None)?;
                self.blocks_of(&inode, None, false)?;
            }
            self.summary.inodes += 1;
        }
        Ok(())
    }

    /// Lists inodes that were deleted or truncated while somebody had them open: by `i_dtime`, and
    /// in the orphan file.
    pub(super) fn list_orphans(&mut self) -> Step {
        let (first, inodes) =
            (self.volume.superblock().first_ino(), self.volume.superblock().inodes());
        let mut ino = self.raw.last_orphan.get();
        while ino != 0 {
            self.tick()?;
            if ino < first || ino > inodes || !self.orphans.insert(ino) {
                self.found(Corruption::new(Defect::OrphanList).in_inode(ino), None)?;
                break;
            }
            // What is wrong with it is said when it is looked at.
            let Ok(inode) = self.volume.inode(ino) else { break };
            ino = inode.deletion_time();
        }
        self.orphan_file_entries()?;
        // As long as it is mounted for writing, and after a crash, there may be some.
        let in_use = self.raw.feature_incompat.get() & features::incompat::RECOVER != 0
            || self.raw.state.get() & STATE_VALID == 0;
        if !in_use && !self.orphans.is_empty() {
            self.found(Corruption::new(Defect::OrphansLeft), None)?;
        }
        Ok(())
    }

    /// Those that the orphan file lists.
    fn orphan_file_entries(&mut self) -> Step {
        let (first, inodes) =
            (self.volume.superblock().first_ino(), self.volume.superblock().inodes());
        if self.orphan_file() == 0 {
            return Ok(());
        }
        let file = self.orphan_file();
        let Some(inode) = self.sound(self.volume.inode(file), Some(file), None)? else {
            return Ok(());
        };
        let Some(blocks) = self.blocks_within(&inode) else {
            return self.found(Corruption::new(Defect::InodeField("size")).in_inode(file), None);
        };
        let mut logical = 0;
        while logical < blocks {
            self.tick()?;
            let Some(run) = self.sound(self.volume.run_at(&inode, logical), Some(file), None)?
            else {
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
            let Some((entries, [magic, says])) = words.split_last_chunk::<2>() else {
                return Ok(());
            };
            let guarded = self.volume.superblock().has_checksums();
            let sum = checksum::crc32c(inode.checksum_seed(), &physical.to_le_bytes());
            let right =
                checksum::crc32c(sum, bytes.get(..entries.len() * 4).unwrap_or_default()) == *says;
            if *magic != ORPHAN_MAGIC || guarded && !right {
                let wrong = Corruption::new(Defect::OrphanList).in_inode(file).in_block(physical);
                self.found(wrong, None)?;
            } else {
                for ino in entries.iter().copied().filter(|ino| *ino != 0) {
                    if ino < first || ino > inodes {
                        let wrong =
                            Corruption::new(Defect::OrphanList).in_inode(file).in_block(physical);
                        self.found(wrong, None)?;
                        continue;
                    }
                    self.orphans.insert(ino);
                }
            }
            logical += 1;
        }
        Ok(())
    }

    /// Looks at orphans that no name leads to.
    pub(super) fn orphans(&mut self) -> Step {
        let mut orphans: Vec<u32> = self.orphans.iter().copied().collect();
        orphans.sort_unstable();
        for ino in orphans {
            self.tick()?;
            if self.seen.insert(u64::from(ino))
                && let Some(inode) = self.sound(self.volume.inode(ino), Some(ino), None)?
            {
                self.visit(&inode, None)?;
            }
        }
        Ok(())
    }

    /// Inodes that are in use, or that their bitmap says are, and that nothing has led to so far.
    pub(super) fn unnamed(&mut self) -> Step {
        let (groups, per_group) = {
            let superblock = self.volume.superblock();
            (superblock.groups(), superblock.inodes_per_group())
        };
        for group in 0..groups {
            self.tick()?;
            // What is wrong with the bitmap is said when all of them are compared.
            let Ok(Some(bitmap)) = self.volume.inode_bitmap(group) else { continue };
            let Ok(described) = self.volume.group(group) else { continue };
            let written = per_group.saturating_sub(described.unused_inodes);
            for at in 0..per_group {
                let ino = group * per_group + at + 1;
                let marked = bit(&bitmap, at);
                if !marked && at >= written {
                    continue;
                }
                if self.seen.contains(u64::from(ino)) || ino < self.volume.superblock().first_ino()
                {
                    continue;
                }
                self.tick()?;
                let name = unnamed(ino);
                let inode = match self.volume.inode(ino) {
                    // Of one that is free nobody reads more than its checksum.
                    Err(Error::Corrupt(wrong))
                        if !marked && wrong.defect != Defect::InodeChecksum =>
                    {
                        continue;
                    }
                    Ok(inode) if inode.is_free() => {
                        if marked && !self.is_unsettled(ino) {
                            self.found(Corruption::new(Defect::InodeLeaked).in_inode(ino), None)?;
                        }
                        continue;
                    }
                    inode => inode,
                };
                let Some(inode) = self.sound(inode, Some(ino), Some(&name))? else {
                    if marked {
                        self.seen.insert(u64::from(ino));
                    }
                    continue;
                };
                self.seen.insert(u64::from(ino));
                // The value of an attribute: the attribute leads to it.
                if inode.has(flags::EA_INODE) {
                    self.summary.inodes += 1;
                    self.fields_of(&inode, None)?;
                    self.blocks_of(&inode, None, false)?;
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
