//! Checks inodes without a name: the file system's own, orphans, and lost ones.

use std::collections::HashSet;

use zerocopy::IntoBytes;

use super::names::unnamed;
use super::{Checker, Step};
use crate::inode::flags;
use crate::structures::{ORPHAN_MAGIC, words};
use crate::superblock::RESIZE_INO;
use crate::{Corruption, Defect, Error, FileType};
use crate::{ROOT_INO, RunState, STATE_VALID, Source, checksum, features};

/// The list of bad blocks (EXT2_BAD_INO).
const BAD_INO: u32 = 1;

impl<S: Source> Checker<'_, S> {
    /// Checks the blocks of the journal, quotas, the resize inode, and so on.
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
            let Some(inode) = self.inode(ino, None)? else { continue };
            // The list of bad blocks has neither a type nor links.
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

    /// Collects the inodes that were deleted or truncated while open, from the `i_dtime` list and
    /// from the orphan file.
    pub(super) fn list_orphans(&mut self) -> Step {
        let (first, inodes) =
            (self.volume.superblock().first_ino(), self.volume.superblock().inodes());
        let mut ino = self.raw.last_orphan.get();
        while ino != 0 {
            self.tick()?;
            if ino < first || ino > inodes || !self.orphans.insert(ino) {
                self.wrong(Defect::OrphanList, ino, None)?;
                break;
            }
            // Its defect is reported when it is checked.
            let Ok(inode) = self.volume.inode(ino) else { break };
            ino = inode.deletion_time();
        }
        self.orphan_file_entries()?;
        // There may be some while the file system is mounted for writing, and after a crash.
        let in_use = self.raw.feature_incompat.get() & features::incompat::RECOVER != 0
            || self.raw.state.get() & STATE_VALID == 0;
        if !in_use && !self.orphans.is_empty() {
            self.found(Corruption::new(Defect::OrphansLeft), None)?;
        }
        Ok(())
    }

    /// Collects the entries of the orphan file.
    fn orphan_file_entries(&mut self) -> Step {
        let (first, inodes) =
            (self.volume.superblock().first_ino(), self.volume.superblock().inodes());
        if self.orphan_file() == 0 {
            return Ok(());
        }
        let file = self.orphan_file();
        let Some(inode) = self.inode(file, None)? else { return Ok(()) };
        let Some(blocks) = self.blocks_within(&inode) else {
            return self.wrong(Defect::InodeField("size"), file, None);
        };
        for logical in 0..blocks {
            self.tick()?;
            let Some(run) = self.sound(self.volume.run_at(&inode, logical), Some(file), None)?
            else {
                return Ok(());
            };
            if run.state != RunState::Written {
                return self.wrong(Defect::OrphanList, file, None);
            }
            let physical = run.physical;
            let Some(bytes) = self.block(physical, Some(file), None)? else { return Ok(()) };
            // A block has inode numbers, followed by the magic number and the checksum.
            let Some((entries, [magic, says])) = words(&bytes).split_last_chunk::<2>() else {
                return Ok(());
            };
            let guarded = self.volume.superblock().has_checksums();
            let sum = checksum::crc32c(inode.checksum_seed(), &physical.to_le_bytes());
            let right = checksum::crc32c(sum, entries.as_bytes()) == says.get();
            let wrong = Corruption::at(Defect::OrphanList, file, Some(physical));
            if magic.get() != ORPHAN_MAGIC || guarded && !right {
                self.found(wrong, None)?;
                continue;
            }
            for ino in entries.iter().map(|ino| ino.get()).filter(|ino| *ino != 0) {
                if ino < first || ino > inodes {
                    self.found(wrong, None)?;
                } else {
                    self.orphans.insert(ino);
                }
            }
        }
        Ok(())
    }

    /// Checks orphans without a name.
    pub(super) fn orphans(&mut self) -> Step {
        let mut orphans: Vec<u32> = self.orphans.iter().copied().collect();
        orphans.sort_unstable();
        for ino in orphans {
            self.tick()?;
            if self.seen.insert(u64::from(ino))
                && let Some(inode) = self.inode(ino, None)?
            {
                self.visit(&inode, None)?;
            }
        }
        Ok(())
    }

    /// Checks inodes that are in use, or marked so in their bitmap, but were not reached.
    pub(super) fn unnamed(&mut self) -> Step {
        let (groups, per_group) = {
            let superblock = self.volume.superblock();
            (superblock.groups(), superblock.inodes_per_group())
        };
        for group in 0..groups {
            self.tick()?;
            // The bitmap's defect is reported when bitmaps are compared.
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
                    // For a free inode only the checksum matters.
                    Err(Error::Corrupt(wrong))
                        if !marked && wrong.defect != Defect::InodeChecksum =>
                    {
                        continue;
                    }
                    Ok(inode) if inode.is_free() => {
                        if marked && !self.is_changed_by_replay(ino) {
                            self.wrong(Defect::InodeLeaked, ino, None)?;
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
                // The inode is the value of an attribute, which references it.
                if inode.has(flags::EA_INODE) {
                    self.summary.inodes += 1;
                    self.fields_of(&inode, None)?;
                    self.blocks_of(&inode, None, false)?;
                    continue;
                }
                self.wrong(Defect::InodeUnreachable, ino, None)?;
                self.visit(&inode, Some(&name))?;
                // The missing name was already reported.
                self.links.add_name(ino);
                if inode.file_type() == FileType::Directory {
                    self.below(inode, name, None)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns bit `at` of a bitmap.
pub(super) fn bit(bitmap: &[u8], at: u32) -> bool {
    bitmap.get((at / 8) as usize).is_some_and(|byte| byte & 1 << (at % 8) != 0)
}
