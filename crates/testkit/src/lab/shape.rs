//! The kinds of file systems made.

use crate::Rng;

/// The properties of an empty file system.
pub struct Shape {
    pub name: &'static str,
    /// Arguments of `mkfs.ext4`.
    pub arguments: Vec<String>,
    pub block_bytes: u64,
    pub image_bytes: u64,
    /// Whether it has a journal, and may be stopped midway. Never with `inline_data`: some kernels
    /// hang then.
    pub may_crash: bool,
    /// Whether files are mapped by extents, so that preallocation and hole punching work.
    pub extents: bool,
    pub inode_bytes: u64,
}

struct Kind {
    name: &'static str,
    /// Arguments of `mkfs.ext4`, separated by blanks.
    arguments: &'static str,
    blocks: &'static [u64],
    inodes: &'static [u64],
    journal: bool,
    extents: bool,
}

const ALL: &[u64] = &[1024, 2048, 4096];
const KIND: Kind =
    Kind { name: "", arguments: "", blocks: ALL, inodes: &[256], journal: true, extents: true };

const KINDS: &[Kind] = &[
    Kind { name: "default", ..KIND },
    Kind { name: "upstream", arguments: "-O metadata_csum_seed,orphan_file", ..KIND },
    Kind { name: "ext3", arguments: "-t ext3", extents: false, ..KIND },
    Kind { name: "inline_data", arguments: "-O inline_data", inodes: &[256, 512, 1024], ..KIND },
    Kind { name: "bigalloc", arguments: "-O bigalloc", ..KIND },
    Kind { name: "no journal", arguments: "-O ^has_journal", journal: false, ..KIND },
    Kind { name: "small inodes", inodes: &[128], ..KIND },
    Kind { name: "large inodes", inodes: &[512, 1024], ..KIND },
    Kind { name: "ext2", arguments: "-t ext2", journal: false, extents: false, ..KIND },
    Kind { name: "uninit_bg", arguments: "-O ^metadata_csum,uninit_bg", ..KIND },
    Kind { name: "fast_commit", arguments: "-O fast_commit", ..KIND },
    Kind { name: "ea_inode", arguments: "-O ea_inode", ..KIND },
    Kind { name: "meta_bg", arguments: "-O meta_bg,^resize_inode", ..KIND },
    Kind { name: "32 bits", arguments: "-O ^64bit", ..KIND },
    Kind { name: "large_dir", arguments: "-O large_dir", blocks: &[1024], ..KIND },
    Kind { name: "no extents", arguments: "-O ^extents,^64bit", extents: false, ..KIND },
    Kind { name: "no dir_index", arguments: "-O ^dir_index", ..KIND },
    Kind { name: "sparse_super2", arguments: "-O sparse_super2", ..KIND },
    Kind { name: "groups", arguments: "-G 2 -g 1024", blocks: &[1024, 4096], ..KIND },
    Kind { name: "no flex_bg", arguments: "-O ^flex_bg", ..KIND },
    Kind { name: "no huge_file", arguments: "-O ^huge_file,^dir_nlink", ..KIND },
    Kind { name: "encrypt", arguments: "-O encrypt,verity,stable_inodes", ..KIND },
    Kind { name: "revision 1 without filetype", arguments: "-O ^filetype,^ext_attr", ..KIND },
    Kind { name: "tea", arguments: "", ..KIND },
    Kind { name: "old checksums", arguments: "-O ^metadata_csum,^uninit_bg", ..KIND },
    Kind {
        name: "inline_data and ea_inode",
        arguments: "-O inline_data,ea_inode",
        inodes: &[256, 1024],
        ..KIND
    },
];

impl Shape {
    /// The shape of image `seed`: all kinds in turn, the rest at random.
    pub fn of(seed: u64, rng: &mut Rng) -> Self {
        // Journals too large to be filled by the writes here.
        Self::sized(seed, rng, 8192, |block_bytes| match block_bytes {
            1024 => (48, 8),
            2048 => (56, 12),
            _ => (64, 16),
        })
    }

    /// The smallest version, for a few dozen names, from which mutations start.
    #[allow(dead_code)]
    pub fn tiny(seed: u64, rng: &mut Rng) -> Self {
        Self::sized(seed, rng, 128, |block_bytes| match block_bytes {
            1024 => (6, 1),
            2048 => (8, 2),
            _ => (16, 4),
        })
    }

    fn sized(seed: u64, rng: &mut Rng, inodes: u64, mib: impl Fn(u64) -> (u64, u64)) -> Self {
        let kind = &KINDS[seed as usize % KINDS.len()];
        let block_bytes = kind.blocks[rng.below(kind.blocks.len() as u64) as usize];
        let fits: Vec<u64> =
            kind.inodes.iter().copied().filter(|bytes| *bytes <= block_bytes).collect();
        let inode_bytes = fits[rng.below(fits.len() as u64) as usize];
        let (mib, journal_mib) = mib(block_bytes);
        let uuid = format!(
            "{:08x}-1234-4abc-8def-{:012x}",
            rng.next() as u32,
            rng.next() & 0xffff_ffff_ffff
        );
        let packed = if kind.name == "groups" { ",packed_meta_blocks=1" } else { "" };
        let mut arguments = vec![
            "-b".to_owned(),
            block_bytes.to_string(),
            "-I".to_owned(),
            inode_bytes.to_string(),
            "-N".to_owned(),
            inodes.to_string(),
            "-U".to_owned(),
            uuid.clone(),
            "-E".to_owned(),
            format!("hash_seed={uuid},lazy_itable_init={}{packed}", rng.below(2)),
            "-L".to_owned(),
            "meantime".to_owned(),
        ];
        arguments.extend(kind.arguments.split_whitespace().map(str::to_owned));
        if kind.name == "bigalloc" {
            arguments.extend(["-C".to_owned(), (block_bytes << (1 + rng.below(4))).to_string()]);
        }
        if kind.journal {
            arguments.extend(["-J".to_owned(), format!("size={journal_mib}")]);
        }
        Self {
            name: kind.name,
            arguments,
            block_bytes,
            image_bytes: mib << 20,
            may_crash: kind.journal && !kind.arguments.contains("inline_data"),
            extents: kind.extents,
            inode_bytes,
        }
    }

    /// Settings that only `tune2fs` has an argument for.
    pub fn tune(&self, rng: &mut Rng) -> Option<&'static str> {
        match self.name {
            "tea" => Some("hash_alg=tea"),
            "default" | "32 bits" if rng.one_in(4) => Some("hash_alg=legacy"),
            _ => None,
        }
    }
}
