//! What changes do, as fast commits describe it.
//!
//! The running transaction has a change as new contents of blocks. To be committed fast, a change
//! must also be described by names, ranges and inodes, which a replay by the kernel, by e2fsck or
//! by us turns into the same file system. What a replay gets wrong is never described. The whole
//! transaction commits instead if it contains one of these:
//!
//! - directories made, moved and removed (the kernel's replay loses their link counts), links and
//!   devices (it loses what is in the inode);
//! - an inode's last name (e2fsck's replay removes the name and leaves the inode), so no inode is
//!   freed or reused by a fast commit;
//! - a change that allocates or frees a metadata block: replay allocates its own, at a time when
//!   the blocks of the inodes that it replays count as free;
//! - extended attributes (they have no tag), an inode with an attribute block (replay does not
//!   count that), ACLs of new files.
//!
//! Ranges are described in the order of the changes, not as the final map: replay then goes through
//! the same trees, which had room.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::changes::Changes;
pub use super::changes::FastChanges;
use crate::FileType;
use meantime_ext4_format::Superblock;
use meantime_ext4_format::extents::EMPTY_ROOT;
use meantime_ext4_format::inode::{BLOCK_AREA_BYTES, Inode as DiskInode, flags};
use meantime_ext4_format::journal::fast_commit::{Change, NotEncodable, Writer};

/// Bytes of an inode before its newer fields; their size (`i_extra_isize`) follows.
const GOOD_OLD_BYTES: usize = 128;
/// Offset of an inode's block area.
const BLOCK_AREA_AT: usize = 0x28;
/// Offsets of the number of the attribute block (`i_file_acl_lo`, `i_file_acl_high`).
const ATTRIBUTE_BLOCK_LOW: Range<usize> = 0x68..0x6C;
const ATTRIBUTE_BLOCK_HIGH: Range<usize> = 0x76..0x78;
/// What may change in a directory's inode when its names change: times of change, checksum and
/// version, each in both parts.
const DIRECTORY_MAY_CHANGE: [Range<usize>; 6] =
    [0x0C..0x14, 0x24..0x28, 0x7C..0x7E, 0x82..0x84, 0x84..0x8C, 0x98..0x9C];
/// With more operations and inodes than this, the transaction commits instead.
const OPERATIONS_MOST: usize = 512;

/// What the running transaction did that no fast commit has recorded yet.
#[derive(Debug, Default)]
pub(super) struct Unrecorded {
    operations: Vec<Change>,
    /// Inodes and their places.
    inodes: BTreeMap<u32, (u64, usize)>,
    /// Whether something cannot be recorded, so that there is no fast commit until the next
    /// transaction.
    barred: bool,
}

impl Unrecorded {
    /// Adds `changes`, which follow all that were added before.
    pub(super) fn merge(&mut self, changes: &Changes) {
        if changes.blocks.is_empty() && changes.forgotten.is_empty() && changes.freed.is_empty() {
            return;
        }
        let Some(operations) = changes.fast.operations().filter(|_| !self.barred) else {
            self.bar();
            return;
        };
        self.inodes.extend(&changes.fast.places);
        for operation in operations {
            let extends = self.operations.last_mut().is_some_and(|last| extend(last, operation));
            if !extends {
                self.operations.push(operation.clone());
            }
        }
        if self.operations.len() + self.inodes.len() > OPERATIONS_MOST {
            self.bar();
        }
    }

    /// Excludes fast commits for the rest of the transaction.
    pub(super) fn bar(&mut self) {
        *self = Self { barred: true, ..Self::default() };
    }

    /// Returns whether all of it can be recorded, as far as is known.
    pub(super) fn is_recordable(&self) -> bool {
        !self.barred
    }

    /// Returns whether there is nothing to record.
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.inodes.is_empty() && !self.barred
    }

    /// Returns the inode table blocks of the inodes that it changes.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        self.inodes.values().map(|(block, _)| *block)
    }

    /// Returns whether it makes blocks reachable, whose data have to be on the device before.
    pub(super) fn reaches_blocks(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation, Change::AddRange { .. }))
    }

    /// Returns the blocks of the fast commit that describes all of it, on top of the transaction
    /// before `tid`. `blocks` are those changed in a file system with `superblock`. Nothing is read
    /// from the device, because the caller may have a channel that a read would wait for.
    ///
    /// # Errors
    /// Fails if it cannot be encoded.
    pub(super) fn write(
        &self,
        superblock: &Superblock,
        blocks: &BTreeMap<u64, Arc<[u8]>>,
        tid: u32,
        first: bool,
    ) -> Result<Vec<u8>, NotEncodable> {
        if self.barred {
            return Err(NotEncodable);
        }
        let mut writer = Writer::new(superblock.block_bytes() as usize, tid, first);
        let bytes = |ino: u32| {
            let (block, at) = self.inodes.get(&ino)?;
            blocks.get(block)?.get(*at..at + superblock.inode_bytes() as usize)
        };
        for operation in &self.operations {
            if let Change::Create { ino, .. } = operation {
                add_inode(&mut writer, superblock, *ino, bytes(*ino).ok_or(NotEncodable)?)?;
            }
            writer.add(operation)?;
        }
        for ino in self.inodes.keys() {
            add_inode(&mut writer, superblock, *ino, bytes(*ino).ok_or(NotEncodable)?)?;
        }
        writer.finish()
    }
}

/// Extends `last` by `next` if that continues it. Returns whether it does.
fn extend(last: &mut Change, next: &Change) -> bool {
    let Change::AddRange { ino, first, blocks, at, unwritten } = last else { return false };
    let Change::AddRange {
        ino: n_ino,
        first: n_first,
        blocks: n_blocks,
        at: n_at,
        unwritten: n_unwritten,
    } = next
    else {
        return false;
    };
    let goes_on = (*ino, *unwritten) == (*n_ino, *n_unwritten)
        && first.checked_add(*blocks) == Some(*n_first)
        && *at + u64::from(*blocks) == *n_at;
    let Some(sum) = blocks.checked_add(*n_blocks).filter(|_| goes_on) else { return false };
    *blocks = sum;
    true
}

/// Adds inode `ino` to `writer`. Adds nothing for a directory, of which only names are described.
fn add_inode(
    writer: &mut Writer,
    superblock: &Superblock,
    ino: u32,
    bytes: &[u8],
) -> Result<(), NotEncodable> {
    let inode = DiskInode::parse(superblock, ino, bytes).map_err(|_| NotEncodable)?;
    if inode.file_type() == FileType::Directory {
        return Ok(());
    }
    let others =
        flags::INLINE_DATA | flags::ENCRYPT | flags::VERITY | flags::EA_INODE | flags::JOURNAL_DATA;
    let recordable = inode.file_type() == FileType::Regular
        && inode.has(flags::EXTENTS)
        && inode.flags() & others == 0
        && inode.attribute_block() == 0
        && inode.metadata().links > 0
        && !superblock.is_reserved(ino);
    if !recordable {
        return Err(NotEncodable);
    }
    writer.add(&Change::Inode { ino, raw: bytes[..field_bytes(bytes)].to_vec() })
}

/// Returns how many bytes of an inode are fields.
fn field_bytes(bytes: &[u8]) -> usize {
    let extra = match bytes.get(GOOD_OLD_BYTES..GOOD_OLD_BYTES + 2) {
        Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
        _ => 0,
    };
    (GOOD_OLD_BYTES + extra).min(bytes.len())
}

/// Returns whether a fast commit can record that `new` is written over inode `old`. It cannot if
/// the bytes after the fields or the attribute block change. Of a directory only the times may
/// change, which replay sets to its own.
pub(super) fn is_recordable(old: &[u8], new: &[u8]) -> bool {
    let fields = field_bytes(new);
    let same = |range: Range<usize>| old.get(range.clone()) == new.get(range);
    if !(same(fields..new.len()) && same(ATTRIBUTE_BLOCK_LOW) && same(ATTRIBUTE_BLOCK_HIGH)) {
        return false;
    }
    let is_directory = new.get(1).is_some_and(|high| high >> 4 == 4);
    let mut at = 0;
    !is_directory
        || DIRECTORY_MAY_CHANGE.iter().all(|may_change| {
            let before = at..may_change.start.min(fields);
            at = may_change.end.min(fields);
            same(before)
        }) && same(at..fields)
}

/// Returns whether a replay that writes the fields of `new`, a file without blocks, over `old`
/// results in `new`. Replay leaves the bytes after the fields, and anything that looks like the
/// root of an extent tree.
pub(super) fn comes_out_of(new: &[u8], old: &[u8]) -> bool {
    let fields = field_bytes(new);
    let area = BLOCK_AREA_AT..BLOCK_AREA_AT + BLOCK_AREA_BYTES;
    let (Some(new_area), Some(old_area)) = (new.get(area.clone()), old.get(area)) else {
        return false;
    };
    let root_is_made = old_area[..2] != EMPTY_ROOT[..2] || old_area[..8] == EMPTY_ROOT;
    new_area[..8] == EMPTY_ROOT
        && root_is_made
        && new.len() == old.len()
        && new[fields..] == old[fields..]
}

#[cfg(all(test, not(loom)))]
mod tests;
