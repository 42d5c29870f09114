//! Changes of fast commits. Bitmaps and counts do not include them, because a replay in memory does
//! not update those.
//!
//! A replay onto the disk allocates tree blocks, and marks and counts everything. Here the bitmaps
//! and counts are compared in their old state, with the former versions of the inodes that fast
//! commits changed.

use std::path::Path;

use super::{Checker, Step};
use crate::Inode;
use crate::Source;
use crate::{Defect, Error, FileType};

impl<S: Source> Checker<'_, S> {
    /// Returns whether fast commits changed inode `ino`.
    pub(super) fn is_changed_by_replay(&self, ino: u32) -> bool {
        self.volume.replayed().before().contains_key(&ino)
    }

    /// Reports a lost transaction. Records the directories and blocks of the inodes that fast
    /// commits changed, in their former versions.
    pub(super) fn before_fast_commits(&mut self) -> Step {
        let volume = self.volume;
        let superblock = volume.superblock();
        if volume.replayed().lost().is_some() {
            self.wrong(Defect::JournalChecksum, superblock.journal_ino(), None)?;
        }
        let per_group = superblock.inodes_per_group();
        for (ino, bytes) in volume.replayed().before() {
            self.tick()?;
            let number = (ino - 1) / per_group;
            let Ok(group) = volume.group(number) else { continue };
            let written = per_group.saturating_sub(group.unused_inodes);
            // The table's content after the ever-used inodes is undefined.
            let was_used = !group.inode_uninit && (ino - 1) % per_group < written;
            let Some(inode) = Inode::parse(superblock, *ino, bytes)
                .ok()
                .filter(|inode| was_used && !inode.is_free())
            else {
                continue;
            };
            if inode.file_type() == FileType::Directory {
                *self.directories.entry(number).or_default() += 1;
            }
            if inode.attribute_block() != 0 {
                self.changed_by_replay(inode.attribute_block(), 1);
            }
            if !inode.has_blocks() {
                continue;
            }
            let mut nodes = Vec::new();
            let visited = volume.visit_mapping_blocks(&inode, &mut |block| {
                nodes.push(block);
                Ok(())
            });
            let map = visited.and_then(|()| volume.stored_extent_map(&inode));
            if let Some(map) = self.sound(map, Some(*ino), None)? {
                nodes.iter().for_each(|block| self.changed_by_replay(*block, 1));
                for extent in map.extents() {
                    self.changed_by_replay(extent.physical, u64::from(extent.blocks));
                }
            }
        }
        Ok(())
    }

    /// Records that bitmaps and counts need not include `blocks` blocks from `start` on.
    fn changed_by_replay(&mut self, start: u64, blocks: u64) {
        for block in start..start.saturating_add(blocks) {
            let cluster = self.cluster(block);
            self.replayed.insert(cluster);
        }
    }

    /// Claims the extents of `inode`, which fast commits changed. Returns whether all of them are
    /// known.
    pub(super) fn replayed_extents_of(&mut self, inode: &Inode, path: Option<&Path>) -> Step<bool> {
        let map = match self.volume.extent_map(inode) {
            Err(Error::Unsupported(_)) => return Ok(false),
            map => self.sound(map, Some(inode.ino()), path)?,
        };
        let Some(map) = map else { return Ok(false) };
        for extent in map.extents() {
            self.claim(extent.physical, u64::from(extent.blocks), Some(inode.ino()), path)?;
            self.changed_by_replay(extent.physical, u64::from(extent.blocks));
        }
        Ok(map.is_complete())
    }
}
