//! The options of a new file system.

use crate::Timestamp;

/// The options of a new file system. [`MakeOptions::new`] has the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeOptions {
    /// Size of a block, in bytes: a power of two from 1 to 64 KiB. `None` means 4 KiB, or 1 KiB
    /// below 512 MiB.
    pub block_bytes: Option<u32>,
    /// Size of an inode, in bytes: a power of two from 128 to a block.
    pub inode_bytes: u32,
    /// Bytes of the device per inode. `None` means 16 KiB, but less for small file systems, and
    /// more from 4 TiB on.
    pub bytes_per_inode: Option<u64>,
    /// Size of the journal, in bytes. `None` makes it depend on the size of the file system, with 1
    /// GiB at most.
    pub journal_bytes: Option<u64>,
    /// Share of the blocks reserved for root, in percent: 50 at most.
    pub reserved_percent: u32,
    /// Its label: 16 bytes at most.
    pub label: Vec<u8>,
    /// Its UUID: 16 random bytes.
    pub uuid: [u8; 16],
    /// Seed of the hashes of directory names: 16 random bytes.
    pub hash_seed: [u8; 16],
    /// Creation time.
    pub now: Timestamp,
    /// Whether to set the feature `64bit`: descriptors of 64 bytes, for more than 2³² blocks.
    pub bit64: bool,
    /// Whether to set the feature `metadata_csum_seed`: the UUID can be changed while mounted.
    pub checksum_seed: bool,
    /// Whether to set the feature `orphan_file`: orphans are kept in a file instead of a list.
    pub orphan_file: bool,
    /// Whether to set the feature `fast_commit`: a part of the journal is reserved for fast
    /// commits.
    pub fast_commit: bool,
    /// Whether to zero all inode tables. Otherwise a mount zeroes them later, as with mke2fs.
    pub zero_inode_tables: bool,
}

impl MakeOptions {
    /// Returns Debian 12's defaults, at time `now`, with 32 random bytes.
    pub fn new(random: [u8; 32], now: Timestamp) -> Self {
        let mut uuid = [0; 16];
        let mut hash_seed = [0; 16];
        uuid.copy_from_slice(&random[..16]);
        hash_seed.copy_from_slice(&random[16..]);
        // The UUID is of RFC 4122's version 4, which is random.
        uuid[6] = uuid[6] & 0x0F | 0x40;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        Self {
            block_bytes: None,
            inode_bytes: 256,
            bytes_per_inode: None,
            journal_bytes: None,
            reserved_percent: 5,
            label: Vec::new(),
            uuid,
            hash_seed,
            now,
            bit64: true,
            checksum_seed: false,
            orphan_file: false,
            fast_commit: false,
            zero_inode_tables: false,
        }
    }
}

/// The reason why such a file system cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MakeRefusal(pub String);
