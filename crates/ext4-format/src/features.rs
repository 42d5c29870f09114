//! Features, in which file systems differ from the first ext2 (names from e2fsprogs:
//! `lib/e2p/feature.c`).

use crate::Unsupported;

/// Names of the bits of one word, as in `dumpe2fs`.
type Names = &'static [(u32, &'static str)];

/// The feature words, each bit with its name in `dumpe2fs`.
macro_rules! features {
    ($(
        $(#[$meta:meta])*
        $word:ident, $names:ident { $( $bit:literal $name:ident $text:literal, )* }
    )*) => {$(
        $(#[$meta])*
        #[expect(missing_docs, reason = "named as in e2fsprogs' ext2_fs.h")]
        pub mod $word {
            $( pub const $name: u32 = $bit; )*
        }

        const $names: Names = &[$( ($bit, $text), )*];
    )*};
}

features! {
    /// Features that an implementation need not know (`s_feature_compat`).
    compat, COMPAT_NAMES {
        0x1 DIR_PREALLOC "dir_prealloc",
        0x2 IMAGIC_INODES "imagic_inodes",
        0x4 HAS_JOURNAL "has_journal",
        0x8 EXT_ATTR "ext_attr",
        0x10 RESIZE_INODE "resize_inode",
        0x20 DIR_INDEX "dir_index",
        0x40 LAZY_BG "lazy_bg",
        0x100 SNAPSHOT_BITMAP "snapshot_bitmap",
        0x200 SPARSE_SUPER2 "sparse_super2",
        0x400 FAST_COMMIT "fast_commit",
        0x800 STABLE_INODES "stable_inodes",
        0x1000 ORPHAN_FILE "orphan_file",
    }
    /// Features that an implementation must know to read the file system (`s_feature_incompat`).
    incompat, INCOMPAT_NAMES {
        0x1 COMPRESSION "compression",
        0x2 FILETYPE "filetype",
        0x4 RECOVER "needs_recovery",
        0x8 JOURNAL_DEV "journal_dev",
        0x10 META_BG "meta_bg",
        0x40 EXTENTS "extent",
        0x80 BIT64 "64bit",
        0x100 MMP "mmp",
        0x200 FLEX_BG "flex_bg",
        0x400 EA_INODE "ea_inode",
        0x1000 DIRDATA "dirdata",
        0x2000 CSUM_SEED "metadata_csum_seed",
        0x4000 LARGEDIR "large_dir",
        0x8000 INLINE_DATA "inline_data",
        0x10000 ENCRYPT "encrypt",
        0x20000 CASEFOLD "casefold",
    }
    /// Features that an implementation must know to write (`s_feature_ro_compat`).
    ro_compat, RO_COMPAT_NAMES {
        0x1 SPARSE_SUPER "sparse_super",
        0x2 LARGE_FILE "large_file",
        0x8 HUGE_FILE "huge_file",
        0x10 GDT_CSUM "uninit_bg",
        0x20 DIR_NLINK "dir_nlink",
        0x40 EXTRA_ISIZE "extra_isize",
        0x80 SNAPSHOT "snapshot",
        0x100 QUOTA "quota",
        0x200 BIGALLOC "bigalloc",
        0x400 METADATA_CSUM "metadata_csum",
        0x800 REPLICA "replica",
        0x1000 READ_ONLY "read-only",
        0x2000 PROJECT "project",
        0x4000 SHARED_BLOCKS "shared_blocks",
        0x8000 VERITY "verity",
        0x10000 ORPHAN_PRESENT "orphan_present",
    }
}

/// The features supported for reading. Encrypted and casefolded files are refused individually; all
/// others can be read.
const INCOMPAT_SUPPORTED: u32 = incompat::FILETYPE
    | incompat::RECOVER
    | incompat::META_BG
    | incompat::EXTENTS
    | incompat::BIT64
    | incompat::MMP
    | incompat::FLEX_BG
    | incompat::EA_INODE
    | incompat::CSUM_SEED
    | incompat::LARGEDIR
    | incompat::INLINE_DATA
    | incompat::ENCRYPT
    | incompat::CASEFOLD;

/// The three feature words of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// [`compat`].
    pub compat: u32,
    /// [`incompat`].
    pub incompat: u32,
    /// [`ro_compat`].
    pub ro_compat: u32,
}

/// Returns the names of the bits of `word`. An unknown bit has its number, after `FEATURE_` and
/// `kind`, as in `dumpe2fs`.
fn names(word: u32, names: Names, kind: char) -> impl Iterator<Item = String> {
    (0..u32::BITS).map(|bit| (bit, 1 << bit)).filter(move |(_, mask)| word & mask != 0).map(
        move |(bit, mask)| match names.iter().find(|(known, _)| *known == mask) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("FEATURE_{kind}{bit}"),
        },
    )
}

impl Features {
    /// Returns whether `bits` of [`compat`] are all set.
    pub const fn has_compat(&self, bits: u32) -> bool {
        self.compat & bits == bits
    }

    /// Returns whether `bits` of [`incompat`] are all set.
    pub const fn has_incompat(&self, bits: u32) -> bool {
        self.incompat & bits == bits
    }

    /// Returns whether `bits` of [`ro_compat`] are all set.
    pub const fn has_ro_compat(&self, bits: u32) -> bool {
        self.ro_compat & bits == bits
    }

    fn words(&self) -> impl Iterator<Item = (u32, Names, char)> {
        let words = [
            (self.compat, COMPAT_NAMES, 'C'),
            (self.incompat, INCOMPAT_NAMES, 'I'),
            (self.ro_compat, RO_COMPAT_NAMES, 'R'),
        ];
        words.into_iter()
    }

    /// Returns whether there is an unknown feature.
    pub fn has_unknown(&self) -> bool {
        self.words()
            .any(|(word, names, _)| names.iter().fold(word, |left, (known, _)| left & !known) != 0)
    }

    /// Returns the names of all features, in the order of `dumpe2fs`.
    pub fn names(&self) -> Vec<String> {
        self.words().flat_map(|(word, known, kind)| names(word, known, kind)).collect()
    }

    /// Checks that such a file system can be read. An unknown bit of [`ro_compat`] is no obstacle.
    ///
    /// # Errors
    /// [`Unsupported`], which has the unknown features by name.
    pub fn check(&self) -> Result<(), Unsupported> {
        let unknown = self.incompat & !INCOMPAT_SUPPORTED;
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
    fn known_and_unknown_features_have_names() {
        let features = Features { compat: 0x3C, incompat: 0x2C2, ro_compat: 0x46B };
        let all = "has_journal ext_attr resize_inode dir_index filetype extent 64bit flex_bg \
                   sparse_super large_file huge_file dir_nlink extra_isize metadata_csum";
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
