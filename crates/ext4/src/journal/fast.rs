//! What changes do, in the words of fast commits.
//!
//! A change is in the running transaction as new contents of blocks. To be committed fast, it has
//! to be sayable besides: as names, ranges and inodes, which a replay by the kernel, by e2fsck or
//! by us turns into the same file system. What no replay gets quite right is never said; then the
//! whole transaction commits:
//!
//! - directories made, moved and removed (the kernel's replay loses their link counts), links and
//!   devices (it loses what is in the inode);
//! - an inode's last name (e2fsck's replay takes the name, and leaves the inode), so that no inode
//!   is freed, or used again, by what a fast commit says;
//! - whatever takes or gives back a block of metadata: replay takes its own while the blocks of
//!   inodes it replays are free for a time, as it has it;
//! - extended attributes (there is no tag for them), an inode with a block of them (replay does not
//!   count that), ACLs of new files.
//!
//! Ranges are said as they were changed, one after another, not as the map is at the end: replay
//! then goes through the same trees, which had room.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::handle::Changes;
use crate::FileType;
use meantime_ext4_format::Superblock;
use meantime_ext4_format::inode::{BLOCK_AREA_BYTES, Inode as DiskInode, flags};
use meantime_ext4_format::journal::fast_commit::{Change, NotEncodable, Writer};

/// Bytes of an inode before its newer fields, where the size of those is (`i_extra_isize`).
const GOOD_OLD_BYTES: usize = 128;
/// Where an inode's block area is.
const BLOCK_AREA_AT: usize = 0x28;
/// Where the number of its block of attributes is (`i_file_acl_lo`, `i_file_acl_high`).
const ATTRIBUTE_BLOCK_LOW: Range<usize> = 0x68..0x6C;
const ATTRIBUTE_BLOCK_HIGH: Range<usize> = 0x76..0x78;
/// What may change of a directory whose names do: times of change, in both parts, the checksum, in
/// both parts, and version, in both parts.
const DIRECTORY_MAY_CHANGE: [Range<usize>; 6] =
    [0x0C..0x14, 0x24..0x28, 0x7C..0x7E, 0x82..0x84, 0x84..0x8C, 0x98..0x9C];
/// The header of an extent root without extents: magic number, none of four, no depth.
const EMPTY_ROOT: [u8; 8] = [0x0A, 0xF3, 0, 0, 4, 0, 0, 0];
/// A fast commit of more operations than this is none any more.
const OPERATIONS_MOST: usize = 512;

/// What one change did.
#[derive(Debug, Default)]
pub struct FastChanges {
    operations: Vec<Change>,
    /// Where the inodes are that it changed: the block, and where in it.
    places: BTreeMap<u32, (u64, usize)>,
    /// They, and the inodes, are all it did.
    complete: bool,
    /// It did something that is never said.
    barred: bool,
}

impl FastChanges {
    pub(super) fn record(&mut self, operation: Change) {
        if !self.barred {
            self.operations.push(operation);
        }
    }

    /// Whether it cannot be said, whatever else it does.
    pub(super) fn is_barred(&self) -> bool {
        self.barred
    }

    /// Inode `ino`, at this place, was stored.
    pub(super) fn store(&mut self, ino: u32, block: u64, at: usize) {
        if !self.barred {
            self.places.insert(ino, (block, at));
        }
    }

    pub(super) fn complete(&mut self) {
        self.complete = true;
    }

    pub(super) fn bar(&mut self) {
        self.barred = true;
    }

    /// What it did besides changing inodes; `None`: it cannot be said.
    pub fn operations(&self) -> Option<&[Change]> {
        (self.complete && !self.barred).then_some(&self.operations)
    }
}

/// What the running transaction did that no fast commit has said yet.
#[derive(Debug, Default)]
pub(super) struct Unsaid {
    operations: Vec<Change>,
    /// Inodes, and where they are.
    inodes: BTreeMap<u32, (u64, usize)>,
    /// Something cannot be said: until the next transaction, nothing is.
    barred: bool,
}

impl Unsaid {
    /// Takes `changes` in, which came after all before.
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

    /// From now on it cannot be said.
    pub(super) fn bar(&mut self) {
        *self = Self { barred: true, ..Self::default() };
    }

    /// Whether all of it can be said, as far as is known.
    pub(super) fn is_sayable(&self) -> bool {
        !self.barred
    }

    /// Whether there is nothing to be said.
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.inodes.is_empty() && !self.barred
    }

    /// The blocks of the tables that have the inodes it changes.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        self.inodes.values().map(|(block, _)| *block)
    }

    /// Whether blocks come to be reachable by it, whose data have to be on the device before.
    pub(super) fn reaches_blocks(&self) -> bool {
        self.operations.iter().any(|operation| matches!(operation, Change::AddRange { .. }))
    }

    /// The fast commit that says all of it, as blocks, on top of the transaction before `tid`;
    /// `blocks` are those that were changed in a file system with `superblock`. (Nothing is read
    /// from anywhere else: whoever wants this may have a channel that a read would wait for.)
    ///
    /// # Errors
    /// It cannot be said.
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

/// Makes `last` stand for `next`, too, if that goes on where it ends.
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

/// Has `writer` say what inode `ino` is. Nothing of a directory, of which only names are said.
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
    let sayable = inode.file_type() == FileType::Regular
        && inode.has(flags::EXTENTS)
        && inode.flags() & others == 0
        && inode.attribute_block() == 0
        && inode.metadata().links > 0
        && !superblock.is_reserved(ino);
    if !sayable {
        return Err(NotEncodable);
    }
    writer.add(&Change::Inode { ino, raw: bytes[..field_bytes(bytes)].to_vec() })
}

/// How many bytes of an inode are fields.
fn field_bytes(bytes: &[u8]) -> usize {
    let extra = match bytes.get(GOOD_OLD_BYTES..GOOD_OLD_BYTES + 2) {
        Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
        _ => 0,
    };
    (GOOD_OLD_BYTES + extra).min(bytes.len())
}

/// Whether fast commits have words for what becomes of inode `old` if `new` is written over it: not
/// if what is behind its fields changes, or its block of attributes; of a directory, nothing but
/// its times may, which replay sets to those of its own.
pub(super) fn is_sayable(old: &[u8], new: &[u8]) -> bool {
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

/// Whether a replay that puts the fields of `new`, a file without blocks, over `old`, whatever that
/// was, makes `new` of it: it leaves what is behind the fields, and what looks like the root of a
/// tree.
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
mod tests {
    use super::*;
    use crate::journal::Changed;

    fn add(first: u32, blocks: u32, at: u64) -> Change {
        Change::AddRange { ino: 12, first, blocks, at, unwritten: false }
    }

    fn changes(operations: &[Change], complete: bool, barred: bool) -> Changes {
        let places = [(12, (5, 0))].into();
        let fast = FastChanges { operations: operations.to_vec(), places, complete, barred };
        let blocks = [(5, Arc::from([0; 4]))].into();
        Changes {
            fast,
            blocks,
            inodes: [(12, Changed { data: true, links: 1 })].into(),
            ..Changes::default()
        }
    }

    #[test]
    fn one_that_cannot_be_said_bars_all() {
        for (complete, barred) in [(false, false), (true, true)] {
            let mut unsaid = Unsaid::default();
            assert!(unsaid.is_empty());
            unsaid.merge(&changes(&[add(0, 1, 100)], true, false));
            assert!(unsaid.is_sayable() && !unsaid.is_empty() && unsaid.reaches_blocks());
            unsaid.merge(&changes(&[], complete, barred));
            unsaid.merge(&changes(&[add(1, 1, 101)], true, false));
            assert!(!unsaid.is_sayable() && !unsaid.is_empty());
        }
    }

    #[test]
    fn ranges_that_go_on_are_one() {
        let mut unsaid = Unsaid::default();
        for operation in [add(0, 1, 100), add(1, 2, 101), add(4, 1, 103), add(5, 1, 105)] {
            unsaid.merge(&changes(&[operation], true, false));
        }
        assert_eq!(unsaid.operations, [add(0, 3, 100), add(4, 1, 103), add(5, 1, 105)]);
    }

    #[test]
    fn what_has_no_words_is_seen_in_the_inode() {
        let mut old = vec![0; 256];
        old[0x80] = 32;
        let with = |base: &[u8], at: usize| {
            let mut new = base.to_vec();
            new[at] ^= 1;
            new
        };
        // Size, mode, extents, time it was made; not attributes.
        for at in [0, 4, 0x28, 0x90] {
            assert!(is_sayable(&old, &with(&old, at)), "{at:#x}");
        }
        for at in [0x68, 0x77, 160, 255] {
            assert!(!is_sayable(&old, &with(&old, at)), "{at:#x}");
        }
        old[1] = 0x40;
        for at in [0x0C, 0x10, 0x7C, 0x83, 0x84, 0x8B] {
            assert!(is_sayable(&old, &with(&old, at)), "{at:#x}");
        }
        for at in [0, 2, 4, 0x08, 0x14, 0x1A, 0x1C, 0x28, 0x64, 0x8C, 0x9C, 160] {
            assert!(!is_sayable(&old, &with(&old, at)), "{at:#x}");
        }
        // One of 128 bytes.
        assert!(is_sayable(&old[..128], &with(&old[..128], 0x10)));
        assert!(!is_sayable(&old[..128], &with(&old[..128], 4)));
    }

    #[test]
    fn leftovers_of_an_old_inode_are_seen() {
        let mut new = vec![0; 256];
        new[0x80] = 32;
        new[BLOCK_AREA_AT..BLOCK_AREA_AT + 8].copy_from_slice(&EMPTY_ROOT);
        assert!(comes_out_of(&new, &[0; 256]));
        assert!(comes_out_of(&new, &new));
        let with = |at: usize, byte: u8| {
            let mut old = new.clone();
            old[at] = byte;
            old
        };
        // Attributes behind the fields; an extent; another magic number is no root.
        assert!(!comes_out_of(&new, &with(160, 1)));
        assert!(!comes_out_of(&new, &with(BLOCK_AREA_AT + 2, 1)));
        assert!(comes_out_of(&new, &with(BLOCK_AREA_AT, 1)));
        assert!(comes_out_of(&new, &with(159, 1)));
        assert!(!comes_out_of(&with(BLOCK_AREA_AT + 2, 1), &new));
    }
}
