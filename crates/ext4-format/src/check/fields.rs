//! Fields that are checked on their own: features of the superblock; flags, sizes and times of
//! inodes (e2fsprogs: `e2fsck/super.c`, `pass1.c`).

use std::path::Path;

use zerocopy::FromBytes;

use super::{Checker, Step};
use crate::inode::{RawInode, flags};
use crate::{Corruption, Defect, FileType};
use crate::{Inode, Source, features};

impl<S: Source> Checker<'_, S> {
    /// Checks the fields of the superblock.
    pub(super) fn superblock_fields(&mut self) -> Step {
        let superblock = self.volume.superblock();
        let has = superblock.features();
        let raw = self.raw.clone();
        let inodes = superblock.inodes();
        let mut wrong = Vec::new();
        // With an unknown feature, the correct values are unknown, too.
        if has.has_unknown() {
            wrong.push("features (one has no name)");
        }
        let has_resize_inode = has.has_compat(features::compat::RESIZE_INODE);
        if !has_resize_inode && raw.reserved_gdt_blocks.get() != 0 {
            wrong.push("reserved descriptor blocks (without the feature resize_inode)");
        }
        if has_resize_inode && has.has_incompat(features::incompat::META_BG) {
            wrong.push("features (both resize_inode and meta_bg)");
        }
        let has_journal = has.has_compat(features::compat::HAS_JOURNAL);
        if !has_journal && (raw.journal_inum.get() != 0 || raw.journal_dev.get() != 0) {
            wrong.push("journal (without the feature has_journal)");
        }
        if has.has_ro_compat(features::ro_compat::QUOTA) {
            let usual = [3, 4];
            let quotas =
                [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum].map(|ino| ino.get());
            let can_be = |ino: &u32| {
                *ino == 0 || usual.contains(ino) || (superblock.first_ino()..=inodes).contains(ino)
            };
            if !quotas.iter().all(can_be) {
                wrong.push("quota inode");
            }
        }
        let room = superblock.inode_bytes() - 128;
        let extra = [raw.min_extra_isize, raw.want_extra_isize].map(|bytes| u32::from(bytes.get()));
        let can_be =
            |bytes: &u32| *bytes == 0 || *bytes >= 4 && *bytes <= room && bytes.is_multiple_of(4);
        if room > 0
            && has.has_ro_compat(features::ro_compat::EXTRA_ISIZE)
            && !extra.iter().all(can_be)
        {
            wrong.push("extra inode size");
        }
        for field in wrong {
            let wrong = Corruption::new(Defect::SuperblockField(field));
            self.found(wrong.in_block(superblock.primary_block()), None)?;
        }
        Ok(())
    }

    /// Checks the fields of `inode`, which is in use. Its blocks are checked elsewhere.
    pub(super) fn fields_of(&mut self, inode: &Inode, path: Option<&Path>) -> Step {
        let ino = inode.ino();
        let Some((_, table, from)) =
            self.sound(self.volume.inode_in_table(ino), Some(ino), path)?
        else {
            return Ok(());
        };
        let Ok((raw, _)) = RawInode::ref_from_prefix(&table[from..]) else { return Ok(()) };
        let features = self.volume.superblock().features();
        let has_extents = features.has_incompat(features::incompat::EXTENTS);
        let file_type = inode.file_type();
        let mut wrong = Vec::new();
        let attributes =
            inode.attribute_block() != 0 && !features.has_compat(features::compat::EXT_ATTR);
        let high =
            raw.file_acl_high.get() != 0 && !features.has_incompat(features::incompat::BIT64);
        if attributes || high {
            wrong.push(Defect::InodeField("attribute block"));
        }
        let huge_file = features.has_ro_compat(features::ro_compat::HUGE_FILE);
        if raw.blocks_high.get() != 0 && !huge_file {
            wrong.push(Defect::BlockCount);
        }
        let large_dir = features.has_incompat(features::incompat::LARGEDIR);
        if file_type == FileType::Directory && !large_dir && raw.size_high.get() != 0 {
            wrong.push(Defect::InodeField("size"));
        }
        // In the orphan list, the field holds the next orphan's number.
        if inode.deletion_time() != 0 && !self.orphans.contains(&ino) {
            wrong.push(Defect::InodeField("deletion time"));
        }
        let content = flags::EXTENTS | flags::INLINE_DATA | flags::INDEX;
        let is_special =
            !matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink);
        let no_extents = inode.has(flags::EXTENTS) && (!has_extents || inode.is_fast_symlink());
        let has_inline = features.has_incompat(features::incompat::INLINE_DATA);
        let index = inode.has(flags::INDEX) && file_type != FileType::Directory;
        if is_special && inode.flags() & content != 0
            || no_extents
            || inode.is_inline() && !has_inline
            || index
        {
            wrong.push(Defect::InodeField("flags"));
        }
        if is_special && inode.size() != 0 {
            wrong.push(Defect::InodeField("size"));
        }
        for defect in wrong {
            self.wrong(defect, ino, path)?;
        }
        Ok(())
    }
}
