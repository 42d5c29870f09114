//! What a file system has that the first ext2 had not (e2fsprogs: `lib/e2p/feature.c` for the
//! names).

use crate::Unsupported;

/// Features that a file system may have without hindering those who do not know them
/// (`s_feature_compat`).
#[expect(missing_docs, reason = "named as in e2fsprogs' ext2_fs.h")]
pub mod compat {
    pub const HAS_JOURNAL: u32 = 0x4;
    pub const EXT_ATTR: u32 = 0x8;
    pub const RESIZE_INODE: u32 = 0x10;
    pub const DIR_INDEX: u32 = 0x20;
    pub const SPARSE_SUPER2: u32 = 0x200;
    pub const FAST_COMMIT: u32 = 0x400;
    pub const STABLE_INODES: u32 = 0x800;
    pub const ORPHAN_FILE: u32 = 0x1000;
}

/// Features that nobody may read over who does not know them (`s_feature_incompat`).
#[expect(missing_docs, reason = "named as in e2fsprogs' ext2_fs.h")]
pub mod incompat {
    pub const COMPRESSION: u32 = 0x1;
    pub const FILETYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    pub const JOURNAL_DEV: u32 = 0x8;
    pub const META_BG: u32 = 0x10;
    pub const EXTENTS: u32 = 0x40;
    pub const BIT64: u32 = 0x80;
    pub const MMP: u32 = 0x100;
    pub const FLEX_BG: u32 = 0x200;
    pub const EA_INODE: u32 = 0x400;
    pub const DIRDATA: u32 = 0x1000;
    pub const CSUM_SEED: u32 = 0x2000;
    pub const LARGEDIR: u32 = 0x4000;
    pub const INLINE_DATA: u32 = 0x8000;
    pub const ENCRYPT: u32 = 0x10000;
    pub const CASEFOLD: u32 = 0x20000;
    /// What is read here. Encrypted and casefolded files are refused one by one, everything beside
    /// them can be read.
    pub(crate) const SUPPORTED: u32 = FILETYPE
        | RECOVER
        | META_BG
        | EXTENTS
        | BIT64
        | MMP
        | FLEX_BG
        | EA_INODE
        | CSUM_SEED
        | LARGEDIR
        | INLINE_DATA
        | ENCRYPT
        | CASEFOLD;
}

/// Features that do not hinder reading (`s_feature_ro_compat`).
#[expect(missing_docs, reason = "named as in e2fsprogs' ext2_fs.h")]
pub mod ro_compat {
    pub const SPARSE_SUPER: u32 = 0x1;
    pub const LARGE_FILE: u32 = 0x2;
    pub const HUGE_FILE: u32 = 0x8;
    pub const GDT_CSUM: u32 = 0x10;
    pub const DIR_NLINK: u32 = 0x20;
    pub const EXTRA_ISIZE: u32 = 0x40;
    pub const QUOTA: u32 = 0x100;
    pub const BIGALLOC: u32 = 0x200;
    pub const METADATA_CSUM: u32 = 0x400;
    pub const PROJECT: u32 = 0x2000;
    pub const SHARED_BLOCKS: u32 = 0x4000;
    pub const VERITY: u32 = 0x8000;
    pub const ORPHAN_PRESENT: u32 = 0x10000;
}

/// Names of the bits of one word, as `dumpe2fs` has them.
type Names = &'static [(u32, &'static str)];

const COMPAT_NAMES: Names = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (compat::HAS_JOURNAL, "has_journal"),
    (compat::EXT_ATTR, "ext_attr"),
    (compat::RESIZE_INODE, "resize_inode"),
    (compat::DIR_INDEX, "dir_index"),
    (0x40, "lazy_bg"),
    (0x100, "snapshot_bitmap"),
    (compat::SPARSE_SUPER2, "sparse_super2"),
    (compat::FAST_COMMIT, "fast_commit"),
    (compat::STABLE_INODES, "stable_inodes"),
    (compat::ORPHAN_FILE, "orphan_file"),
];

const INCOMPAT_NAMES: Names = &[
    (incompat::COMPRESSION, "compression"),
    (incompat::FILETYPE, "filetype"),
    (incompat::RECOVER, "needs_recovery"),
    (incompat::JOURNAL_DEV, "journal_dev"),
    (incompat::META_BG, "meta_bg"),
    (incompat::EXTENTS, "extent"),
    (incompat::BIT64, "64bit"),
    (incompat::MMP, "mmp"),
    (incompat::FLEX_BG, "flex_bg"),
    (incompat::EA_INODE, "ea_inode"),
    (incompat::DIRDATA, "dirdata"),
    (incompat::CSUM_SEED, "metadata_csum_seed"),
    (incompat::LARGEDIR, "large_dir"),
    (incompat::INLINE_DATA, "inline_data"),
    (incompat::ENCRYPT, "encrypt"),
    (incompat::CASEFOLD, "casefold"),
];

const RO_COMPAT_NAMES: Names = &[
    (ro_compat::SPARSE_SUPER, "sparse_super"),
    (ro_compat::LARGE_FILE, "large_file"),
    (ro_compat::HUGE_FILE, "huge_file"),
    (ro_compat::GDT_CSUM, "uninit_bg"),
    (ro_compat::DIR_NLINK, "dir_nlink"),
    (ro_compat::EXTRA_ISIZE, "extra_isize"),
    (0x80, "snapshot"),
    (ro_compat::QUOTA, "quota"),
    (ro_compat::BIGALLOC, "bigalloc"),
    (ro_compat::METADATA_CSUM, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (ro_compat::PROJECT, "project"),
    (ro_compat::SHARED_BLOCKS, "shared_blocks"),
    (ro_compat::VERITY, "verity"),
    (ro_compat::ORPHAN_PRESENT, "orphan_present"),
];

/// The three words of features of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// [`compat`].
    pub compat: u32,
    /// [`incompat`].
    pub incompat: u32,
    /// [`ro_compat`].
    pub ro_compat: u32,
}

/// The names of the bits of `word`; an unknown one by its number, after `FEATURE_` and `kind`, as
/// `dumpe2fs` says.
fn names(word: u32, names: Names, kind: char) -> impl Iterator<Item = String> {
    (0..u32::BITS).map(|bit| (bit, 1 << bit)).filter(move |(_, mask)| word & mask != 0).map(
        move |(bit, mask)| match names.iter().find(|(known, _)| *known == mask) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("FEATURE_{kind}{bit}"),
        },
    )
}

impl Features {
    /// Whether `bits` of [`compat`] are all set.
    pub const fn has_compat(&self, bits: u32) -> bool {
        self.compat & bits == bits
    }

    /// Whether `bits` of [`incompat`] are all set.
    pub const fn has_incompat(&self, bits: u32) -> bool {
        self.incompat & bits == bits
    }

    /// Whether `bits` of [`ro_compat`] are all set.
    pub const fn has_ro_compat(&self, bits: u32) -> bool {
        self.ro_compat & bits == bits
    }

    /// Whether there is one that has no name here.
    pub fn has_unknown(&self) -> bool {
        [
            (self.compat, COMPAT_NAMES),
            (self.incompat, INCOMPAT_NAMES),
            (self.ro_compat, RO_COMPAT_NAMES),
        ]
        .iter()
        .any(|(word, names)| names.iter().fold(*word, |left, (known, _)| left & !known) != 0)
    }

    /// The names of all, in the order of `dumpe2fs`.
    pub fn names(&self) -> Vec<String> {
        names(self.compat, COMPAT_NAMES, 'C')
            .chain(names(self.incompat, INCOMPAT_NAMES, 'I'))
            .chain(names(self.ro_compat, RO_COMPAT_NAMES, 'R'))
            .collect()
    }

    /// Whether this implementation can read such a file system. An unknown bit of [`ro_compat`]
    /// does not hinder reading.
    ///
    /// # Errors
    /// The features that are not known, by name.
    pub fn check(&self) -> Result<(), Unsupported> {
        let unknown = self.incompat & !incompat::SUPPORTED;
        if unknown == 0 {
            return Ok(());
        }
        let advice = if unknown & incompat::JOURNAL_DEV != 0 {
            "this is the journal of another file system: name the device with the files"
        } else if unknown & incompat::COMPRESSION != 0 {
            "Linux cannot read it either; the ext2 compression patches of its time can"
        } else {
            "read it with the software that made it, or take the feature off with tune2fs -O ^…"
        };
        let what = names(unknown, INCOMPAT_NAMES, 'I').collect::<Vec<_>>().join(", ");
        Err(Unsupported { what: format!("feature {what}"), advice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_default_and_unknown_ones_have_names() {
        let features = Features { compat: 0x3C, incompat: 0x2C2, ro_compat: 0x46B };
        let all = "has_journal ext_attr resize_inode dir_index filetype extent 64bit flex_bg sparse_super large_file huge_file dir_nlink \
                   extra_isize metadata_csum";
        assert_eq!(features.names().join(" "), all);
        features.check().unwrap();
        let odd = Features { compat: 1 << 31, incompat: 1 << 20 | 0x1000, ro_compat: 1 << 29 };
        assert_eq!(odd.names().join(" "), "FEATURE_C31 dirdata FEATURE_I20 FEATURE_R29");
        assert_eq!(odd.check().unwrap_err().what, "feature dirdata, FEATURE_I20");
        assert!(odd.has_unknown() && !features.has_unknown());
        let journal = Features { compat: 0, incompat: 0x8, ro_compat: 0 };
        assert_eq!(journal.check().unwrap_err().what, "feature journal_dev");
    }
}
