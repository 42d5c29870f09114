//! Gives allocated blocks and inodes owners and names, so that `e2fsck` can check them. The
//! structures are written by hand, to be independent of the code for files.

use std::ops::Range;

use super::super::{Allocator, Want};
use crate::journal::Handle;
use crate::journal::tests::image::Image;
use meantime_ext4_format::checksum::{crc32c, inode_seed};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::inode::flags;

const LOST_AND_FOUND: u32 = 11;

/// A file or directory of the model.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    pub directory: bool,
    /// Its blocks, as runs.
    pub runs: Vec<Range<u64>>,
}

fn put_header(bytes: &mut [u8], entries: usize, most: usize, depth: u16) {
    bytes[0..2].copy_from_slice(&0xF30A_u16.to_le_bytes());
    bytes[2..4].copy_from_slice(&(entries as u16).to_le_bytes());
    bytes[4..6].copy_from_slice(&(most as u16).to_le_bytes());
    bytes[6..8].copy_from_slice(&depth.to_le_bytes());
}

/// Writes `runs`, from logical block `first` on, as extents after a header. Returns the logical
/// block after the last.
fn put_extents(bytes: &mut [u8], runs: &[Range<u64>], mut first: u32) -> u32 {
    for (at, run) in runs.iter().enumerate() {
        let entry = &mut bytes[12 + at * 12..24 + at * 12];
        let length = (run.end - run.start) as u16;
        entry[0..4].copy_from_slice(&first.to_le_bytes());
        entry[4..6].copy_from_slice(&length.to_le_bytes());
        entry[6..8].copy_from_slice(&((run.start >> 32) as u16).to_le_bytes());
        entry[8..12].copy_from_slice(&(run.start as u32).to_le_bytes());
        first += u32::from(length);
    }
    first
}

/// Maps `runs` in `inode`, with one level of nodes if the inode cannot hold them.
fn map(handle: &mut Handle<'_>, allocator: &Allocator, inode: &mut InodeEdit, runs: &[Range<u64>]) {
    inode.set_flags(flags::EXTENTS);
    let mut blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
    if runs.len() <= 4 {
        put_header(inode.block_area_mut(), runs.len(), 4, 0);
        put_extents(inode.block_area_mut(), runs, 0);
    } else {
        let superblock = handle.superblock().clone();
        let most = (superblock.block_bytes() as usize - 12) / 12;
        let nodes = runs.chunks(most);
        assert!(nodes.len() <= 4, "too many runs");
        put_header(inode.block_area_mut(), nodes.len(), 4, 1);
        let mut first = 0;
        for (at, runs) in nodes.enumerate() {
            let want = Want::node(inode.ino(), None);
            let block = allocator.blocks(handle, want).unwrap().start;
            let entry = &mut inode.block_area_mut()[12 + at * 12..24 + at * 12];
            entry[0..4].copy_from_slice(&u32::to_le_bytes(first));
            entry[4..8].copy_from_slice(&(block as u32).to_le_bytes());
            entry[8..10].copy_from_slice(&((block >> 32) as u16).to_le_bytes());
            let seed = inode.checksum_seed(&superblock);
            let bytes = handle.create(block).unwrap();
            put_header(bytes, runs.len(), most, 0);
            first = put_extents(bytes, runs, first);
            if superblock.has_checksums() {
                let tail = 12 + 12 * most;
                let checksum = crc32c(seed, &bytes[..tail]);
                bytes[tail..tail + 4].copy_from_slice(&checksum.to_le_bytes());
            }
            blocks += 1;
        }
    }
    inode.set_blocks(handle.superblock(), blocks);
}

/// Writes `entries` (inode, type, name) as a block of directory `ino`.
fn put_entries(handle: &mut Handle<'_>, ino: u32, block: u64, entries: &[(u32, u8, String)]) {
    let superblock = handle.superblock().clone();
    let generation = handle.load_inode(ino).map_or(0, |inode| inode.generation());
    let bytes = handle.create(block).unwrap();
    let end = bytes.len() - if superblock.has_checksums() { 12 } else { 0 };
    let mut at = 0;
    let empty = [(0, 0, String::new())];
    let entries = if entries.is_empty() { &empty } else { entries };
    for (number, (ino, kind, name)) in entries.iter().enumerate() {
        let length = if number + 1 == entries.len() {
            end - at
        } else {
            (8 + name.len()).next_multiple_of(4)
        };
        bytes[at..at + 4].copy_from_slice(&ino.to_le_bytes());
        bytes[at + 4..at + 6].copy_from_slice(&(length as u16).to_le_bytes());
        (bytes[at + 6], bytes[at + 7]) = (name.len() as u8, *kind);
        bytes[at + 8..at + 8 + name.len()].copy_from_slice(name.as_bytes());
        at += length;
    }
    assert_eq!(at, end, "too many names");
    if superblock.has_checksums() {
        bytes[end + 4..end + 6].copy_from_slice(&12u16.to_le_bytes());
        bytes[end + 7] = 0xDE;
        let checksum = crc32c(inode_seed(superblock.seed(), ino, generation), &bytes[..end]);
        bytes[end + 8..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Gives every inode of `made` its blocks, and a name in `lost+found`, whose entries are rewritten.
pub(super) fn attach(image: &Image, allocator: &Allocator, made: &[(u32, Made)]) {
    for (ino, file) in made {
        let work = |handle: &mut Handle<'_>| {
            let superblock = handle.superblock().clone();
            let mut inode = InodeEdit::new(&superblock, *ino, 7);
            let mut runs = file.runs.clone();
            if file.directory {
                assert!(runs.is_empty());
                runs.push(allocator.blocks(handle, Want::node(*ino, None))?);
            }
            inode.set_mode(if file.directory { 0o40755 } else { 0o100644 });
            inode.set_links(if file.directory { 2 } else { 1 });
            let blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
            inode.set_size(blocks * u64::from(superblock.block_bytes()));
            map(handle, allocator, &mut inode, &runs);
            handle.store_inode(&inode, true)?;
            if file.directory {
                let own = [(*ino, 2, ".".to_owned()), (LOST_AND_FOUND, 2, "..".to_owned())];
                put_entries(handle, *ino, runs[0].start, &own);
            }
            Ok(())
        };
        image.change_with(allocator, work).unwrap();
    }
    let work = |handle: &mut Handle<'_>| {
        let mut inode = handle.load_inode(LOST_AND_FOUND)?;
        let area = *inode.block_area();
        let word = |at: usize| u32::from_le_bytes(area[at..at + 4].try_into().unwrap());
        let (count, first) = (u64::from(word(16) & 0xFFFF), u64::from(word(20)));
        assert_eq!(
            count << handle.superblock().block_bits(),
            inode.size(),
            "lost+found in one extent"
        );
        let mut entries: Vec<_> = made
            .iter()
            .map(|(ino, file)| (*ino, if file.directory { 2 } else { 1 }, format!("{ino}")))
            .collect();
        entries.insert(0, (2, 2, "..".to_owned()));
        entries.insert(0, (LOST_AND_FOUND, 2, ".".to_owned()));
        let a_block = handle.superblock().block_bytes() as usize / 20;
        let mut parts = entries.chunks(a_block);
        for block in first..first + count {
            put_entries(handle, LOST_AND_FOUND, block, parts.next().unwrap_or(&[]));
        }
        assert!(parts.next().is_none(), "too many names");
        inode.set_links(2 + made.iter().filter(|(_, file)| file.directory).count() as u16);
        handle.store_inode(&inode, true)
    };
    image.change_with(allocator, work).unwrap();
}
