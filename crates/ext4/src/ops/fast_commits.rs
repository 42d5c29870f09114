//! Applies fast commits at a mount for writing. It applies their [`Outcome`] for inodes, files and
//! directories as one metadata change, with the bitmaps and counts, which fast commits do not
//! contain.
//!
//! Everything is freed before anything is allocated, because one file may get what another gave up.
//! If the caller holds the blocks that fast commits give to files ([`given`]), blocks for trees and
//! directories are not taken from them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Progress, attributes, directory, extents, orphans};
use crate::FileType;
use crate::alloc::{AllocHandle, merged};
use crate::error::{Corruption, Defect, Error, Result, Unsupported};
use crate::journal::Handle;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::edit::dirent::NewEntry;
use meantime_ext4_format::extents::EMPTY_ROOT;
use meantime_ext4_format::inode::{BLOCK_AREA_BYTES, flags};
use meantime_ext4_format::journal::fast_commit::{Names, Outcome};
use meantime_ext4_format::{ExtentMap, MappedExtent, ROOT_INO, Run, RunState};

/// A file whose inode is decoded, with the changes to its blocks.
struct Pending {
    inode: InodeEdit,
    is_new: bool,
    /// Extents still to be mapped.
    added: Vec<MappedExtent>,
    /// Mapped extents to be converted to written or unwritten.
    converted: Vec<MappedExtent>,
}

fn corrupt(defect: Defect, ino: u32) -> Error {
    Corruption::new(defect).in_inode(ino).into()
}

fn unsupported(what: &str, ino: u32) -> Error {
    Unsupported {
        what: format!("replaying a fast commit that {what} (inode {ino})"),
        advice: "run e2fsck -p, or mount it once with the kernel",
    }
    .into()
}

/// Returns the blocks that `outcome` gives to files, ordered and merged. They must not be allocated
/// otherwise.
pub fn given(outcome: &Outcome) -> Vec<Range<u64>> {
    let extents = outcome.maps.values().flat_map(|map| map.extents());
    let blocks = extents.map(|at| at.physical..at.physical + u64::from(at.blocks));
    merged(blocks.collect())
}

/// Applies `outcome` to the file system that `handle` changes, from which `outcome` was computed.
///
/// # Errors
/// Fails if the outcome cannot be applied, because blocks are already in use or inodes are
/// impossible. [`Error::Unsupported`] for what no kernel writes; [`Error::NoSpace`] for trees and
/// directories; damage, or a device error.
pub fn apply(handle: &mut AllocHandle<'_, '_>, outcome: &Outcome) -> Result<()> {
    let listed: BTreeSet<u32> = orphans::list(handle)?.into_iter().collect();
    let mut pending = BTreeMap::new();
    for (ino, bytes) in &outcome.inodes {
        let taken = *ino == ROOT_INO || handle.allocator.is_inode_taken(handle, *ino)?;
        let now = InodeEdit::of(*ino, bytes);
        let lives = now.links() > 0 && now.file_type().is_some();
        match (taken, lives) {
            (true, false) => lose(handle, *ino)?,
            // The inode was created and deleted again.
            (false, false) => {}
            (true, true) if outcome.gone.contains(ino) => {
                strip(handle, *ino, &listed)?;
                pending.insert(*ino, fresh(handle, outcome, now)?);
            }
            (true, true) => {
                let known = known(handle, outcome, now, &listed)?;
                pending.insert(*ino, known);
            }
            (false, true) => {
                pending.insert(*ino, fresh(handle, outcome, now)?);
            }
        }
    }
    for file in pending.values_mut() {
        give(handle, file)?;
    }
    for file in pending.values_mut().filter(|file| file.is_new) {
        if file.inode.file_type() == Some(FileType::Directory) {
            let names = outcome.names.get(&file.inode.ino());
            let parent = names.and_then(|names| names.get(&b".."[..]).copied().flatten());
            let (parent, _) =
                parent.ok_or_else(|| corrupt(Defect::DirectoryParent, file.inode.ino()))?;
            directory::create(handle, &mut file.inode, parent)?;
            handle.store_inode(&file.inode, true)?;
        }
    }
    for (dir, names) in &outcome.names {
        if handle.load_inode(*dir)?.links() > 0 {
            rename(handle, *dir, names)?;
        }
    }
    Ok(())
}

/// Makes inode `ino`, which lost its last name, an orphan. The mount deletes it when it begins.
fn lose(handle: &mut Handle<'_>, ino: u32) -> Result<()> {
    let mut inode = handle.load_inode(ino)?;
    if inode.links() == 0 {
        // The inode is an orphan already.
        return Ok(());
    }
    inode.set_links(0);
    inode.set_changed(handle.now());
    orphans::add(handle, &mut inode)?;
    handle.store_inode(&inode, true)
}

/// Frees everything that inode `ino` has, and the inode itself, because it was deleted and its
/// number reused.
fn strip(handle: &mut AllocHandle<'_, '_>, ino: u32, listed: &BTreeSet<u32>) -> Result<()> {
    let mut inode = handle.load_inode(ino)?;
    if inode.parsed(handle.superblock())?.has_blocks() {
        remove(handle, &mut inode, 0..extents::MAX_LOGICAL)?;
    }
    attributes::release(handle, &mut inode)?;
    if listed.contains(&ino) {
        orphans::remove(handle, &mut inode)?;
    }
    handle.store_inode(&inode, true)?;
    handle.allocator.free_inode(handle, ino, inode.file_type() == Some(FileType::Directory))
}

fn remove(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    range: Range<u32>,
) -> Result<()> {
    while extents::remove(handle, inode, range.clone(), usize::MAX / 2)? == Progress::More {}
    Ok(())
}

/// Prepares the new inode `inode` and the extents to map for it.
fn fresh(handle: &Handle<'_>, outcome: &Outcome, mut inode: InodeEdit) -> Result<Pending> {
    let ino = inode.ino();
    let superblock = handle.superblock();
    if inode.attribute_block(superblock) != 0 {
        return Err(unsupported("makes a file with a block of attributes", ino));
    }
    inode.set_deletion_time(0);
    let mut added = Vec::new();
    if inode.flags() & flags::EXTENTS != 0 {
        let area = inode.block_area_mut();
        area.fill(0);
        area[..EMPTY_ROOT.len()].copy_from_slice(&EMPTY_ROOT);
        // The block of a new directory is created, not taken from the fast commit.
        if inode.file_type() != Some(FileType::Directory)
            && let Some(map) = outcome.maps.get(&ino)
        {
            added.extend_from_slice(map.extents());
        }
    } else if inode.parsed(superblock)?.has_blocks() && *inode.block_area() != [0; BLOCK_AREA_BYTES]
    {
        return Err(unsupported("makes a file without extents", ino));
    }
    inode.set_blocks(superblock, 0);
    Ok(Pending { inode, is_new: true, added, converted: Vec::new() })
}

/// Prepares the existing inode `now`, and frees the blocks that it loses.
fn known(
    handle: &mut AllocHandle<'_, '_>,
    outcome: &Outcome,
    mut now: InodeEdit,
    listed: &BTreeSet<u32>,
) -> Result<Pending> {
    let ino = now.ino();
    let before = handle.load_inode(ino)?;
    let superblock = handle.superblock();
    if before.generation() != now.generation() || before.file_type() != now.file_type() {
        return Err(corrupt(Defect::InodeField("generation"), ino));
    }
    if before.attribute_block(superblock) != now.attribute_block(superblock) {
        return Err(unsupported("changes a block of attributes", ino));
    }
    let has_extents = now.flags() & flags::EXTENTS != 0;
    if has_extents != (before.flags() & flags::EXTENTS != 0) {
        return Err(unsupported("gives a file extents", ino));
    }
    let map = outcome.maps.get(&ino);
    let is_directory = now.file_type() == Some(FileType::Directory);
    let keeps_blocks = is_directory || !has_extents;
    if keeps_blocks && now.parsed(superblock)?.has_blocks() {
        let same = map.map_or(Ok(true), |map| same_blocks(handle, &before, map))?;
        let same_area = has_extents || before.block_area() == now.block_area();
        if !same || !same_area {
            return Err(unsupported(
                "moves blocks of a directory, or of a file without extents",
                ino,
            ));
        }
    }
    if has_extents {
        *now.block_area_mut() = *before.block_area();
    }
    now.set_blocks(superblock, before.blocks(superblock));
    // In the orphan list, this field links to the next orphan.
    now.set_deletion_time(if listed.contains(&ino) { before.deletion_time() } else { 0 });
    let mut file = Pending { inode: now, is_new: false, added: Vec::new(), converted: Vec::new() };
    let Some(map) = map.filter(|_| !keeps_blocks) else { return Ok(file) };
    let old = handle.volume().extent_map(&before.parsed(handle.superblock())?)?;
    for (piece, _) in
        split(&old, map).filter(|(piece, run)| !is_same_place(piece, run)).collect::<Vec<_>>()
    {
        let end = u32::try_from(piece.end()).unwrap_or(extents::MAX_LOGICAL);
        remove(handle, &mut file.inode, piece.logical..end)?;
    }
    for (piece, run) in split(map, &old) {
        if !is_same_place(&piece, &run) {
            join(&mut file.added, piece);
        } else if (run.state == RunState::Unwritten) != piece.unwritten {
            join(&mut file.converted, piece);
        }
    }
    Ok(file)
}

/// Returns whether `map` equals the current mapping of `inode`'s file.
fn same_blocks(handle: &Handle<'_>, inode: &InodeEdit, map: &ExtentMap) -> Result<bool> {
    let old = handle.volume().extent_map(&inode.parsed(handle.superblock())?)?;
    let same = |(piece, run): (MappedExtent, Run)| {
        is_same_place(&piece, &run) && (run.state == RunState::Unwritten) == piece.unwritten
    };
    Ok(split(&old, map).all(same) && split(map, &old).all(same))
}

/// Splits the extents of `of` where `by` changes. Returns each piece with its run in `by`.
fn split(of: &ExtentMap, by: &ExtentMap) -> impl Iterator<Item = (MappedExtent, Run)> {
    of.extents().iter().flat_map(move |extent| {
        let mut at = u64::from(extent.logical);
        std::iter::from_fn(move || {
            if at >= extent.end() {
                return None;
            }
            let into = at - u64::from(extent.logical);
            let run = by.run_at(at).unwrap_or(Run {
                physical: 0,
                blocks: u64::MAX,
                state: RunState::Hole,
            });
            let blocks = run.blocks.clamp(1, extent.end() - at);
            // Both numbers are within the extent.
            let piece = MappedExtent {
                logical: at as u32,
                blocks: blocks as u32,
                physical: extent.physical + into,
                unwritten: extent.unwritten,
            };
            at += blocks;
            Some((piece, run))
        })
    })
}

fn is_same_place(piece: &MappedExtent, run: &Run) -> bool {
    run.state != RunState::Hole && run.physical == piece.physical
}

/// Appends `piece` to the ordered `pieces`. Merges it with the last one if possible.
fn join(pieces: &mut Vec<MappedExtent>, piece: MappedExtent) {
    if let Some(last) = pieces.last_mut()
        && last.end() == u64::from(piece.logical)
        && last.physical + u64::from(last.blocks) == piece.physical
        && last.unwritten == piece.unwritten
        && let Some(blocks) = last.blocks.checked_add(piece.blocks)
    {
        last.blocks = blocks;
        return;
    }
    pieces.push(piece);
}

/// Applies the pending changes of `file`, and stores its inode.
fn give(handle: &mut AllocHandle<'_, '_>, file: &mut Pending) -> Result<()> {
    let inode = &mut file.inode;
    if file.is_new {
        handle.allocator.take_inode(
            handle,
            inode.ino(),
            inode.file_type() == Some(FileType::Directory),
        )?;
    }
    for extent in &file.added {
        handle
            .allocator
            .take_exactly(handle, extent.physical..extent.physical + u64::from(extent.blocks))?;
        extents::insert(handle, inode, *extent)?;
    }
    for piece in &file.converted {
        let end = u32::try_from(piece.end()).unwrap_or(extents::MAX_LOGICAL);
        extents::set_written(handle, inode, piece.logical..end, !piece.unwritten)?;
    }
    if inode.file_type() == Some(FileType::Regular) {
        orphans::note_size(handle, inode.size())?;
    }
    handle.store_inode(inode, true)
}

/// Makes the names in directory `dir` match `names`.
fn rename(handle: &mut AllocHandle<'_, '_>, dir: u32, names: &Names) -> Result<()> {
    let mut inode = handle.load_inode(dir)?;
    let mut changed = false;
    for (name, now) in names.iter().filter(|(name, _)| *name != b"." && *name != b"..") {
        let before = directory::find(handle, &inode, name)?;
        if before.as_ref().map(|place| place.ino) == now.map(|(ino, _)| ino) {
            continue;
        }
        changed = true;
        let Some((ino, _)) = *now else {
            if let Some(place) = before {
                directory::remove(handle, &inode, &place)?;
            }
            continue;
        };
        // The target must be in use, whatever fast commits say.
        let target = handle.volume().linked_inode(ino)?;
        let file_type = Some(target.file_type());
        if let Some(place) = before {
            directory::replace(handle, &inode, &place, ino, file_type)?;
        } else {
            let directory::Sought::Absent(vacancy) = directory::seek(handle, &inode, name)? else {
                return Err(Error::Exists);
            };
            let entry = NewEntry { ino, file_type, name };
            directory::add(handle, &mut inode, entry, vacancy)?;
        }
    }
    if changed {
        inode.set_modified(handle.now());
        inode.set_changed(handle.now());
        handle.store_inode(&inode, true)?;
    }
    Ok(())
}
