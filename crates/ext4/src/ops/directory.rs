//! Changes directories: adds, removes and redirects names (kernel: `fs/ext4/namei.c`).
//!
//! The caller stores the directory's inode; only its size, blocks and flags change here.
//! Directories never shrink.

use crate::FileType;
use crate::alloc::{AllocHandle, Want};
use crate::error::{Corruption, Defect, Error, Result, Unsupported};
use crate::journal::Handle;
use crate::ops::extents;
use meantime_ext4_format::directory::{Block, Directory, EntryPlace, IndexPath, Named};
use meantime_ext4_format::dirent::{DirectoryShape, Dirents, Slot};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::edit::dirent::{self, NewEntry, Search};
use meantime_ext4_format::edit::htree::{self, IndexEntry, NodeKind, RootContent};
use meantime_ext4_format::features::compat;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::{Inode as DiskInode, MappedExtent};

/// The limit of attempts to find room. It is more than can be needed to create the index, to add a
/// level to it, and to add a node on each level.
const TURNS: usize = 8;
/// The number of direct pointers in the inode of a file without extents.
const DIRECT_BLOCKS: u32 = 12;

/// A name in a directory, to be changed before the directory changes otherwise.
pub struct Place {
    /// Its inode.
    pub ino: u32,
    /// The block with its entry.
    number: u64,
    /// Whether that block is part of the hash tree, so that it has `.` and `..` only.
    is_index: bool,
    slot: Slot,
}

/// The place where a new name fits, before the directory changes otherwise.
pub struct Vacancy(Room);

/// The result of looking for a name that may be new.
pub enum Sought {
    /// The directory has the name.
    There(Place),
    /// The directory does not have the name, but has room for it.
    Absent(Vacancy),
}

enum Room {
    /// There is room in this block.
    In(u64, dirent::Room),
    /// No block has room, so the directory needs another one at its end.
    After,
    /// The only block has no room, so the directory needs an index.
    Unindexed(Block),
    /// The leaf that the name's hash belongs to has no room.
    FullLeaf(IndexPath, Block),
}

/// How the blocks of a directory are encoded.
#[derive(Clone, Copy)]
struct Style {
    shape: DirectoryShape,
    /// The checksum seed.
    seed: u32,
}

impl From<EntryPlace> for Place {
    fn from(EntryPlace { ino, block, slot, .. }: EntryPlace) -> Self {
        Self { ino, number: block.number, is_index: block.is_index, slot }
    }
}

type Opened<'a, 'h> = Directory<'a, &'a Handle<'h>>;

/// Runs `work` on the current content of directory `dir`.
fn read<T>(
    handle: &Handle<'_>,
    dir: &InodeEdit,
    work: impl FnOnce(&Opened<'_, '_>) -> Result<T>,
) -> Result<T> {
    let inode = dir.parsed(handle.superblock())?;
    let volume = handle.volume();
    let directory = Directory::open(&volume, &inode)?;
    if inode.is_inline() {
        return Err(Unsupported {
            what: format!("changing a directory with inline data (inode {})", inode.ino()),
            advice: "change it with Linux",
        }
        .into());
    }
    work(&directory)
}

fn corrupt(dir: &InodeEdit, defect: Defect, block: Option<u64>) -> Error {
    let corruption = Corruption::new(defect).in_inode(dir.ino());
    block.map_or(corruption, |block| corruption.in_block(block)).into()
}

/// Finds `name`.
///
/// # Errors
/// [`Error::Unsupported`] for a name in inline data; [`Defect::HashTree`] for one in a directory
/// whose tree is malformed; damage, or a device error.
pub fn find(handle: &Handle<'_>, dir: &InodeEdit, name: &[u8]) -> Result<Option<Place>> {
    let found = read(handle, dir, |directory| Ok(directory.place(name)?));
    let malformed = |error: &Error| {
        matches!(error, Error::Unsupported(_))
            || matches!(error, Error::Corrupt(corruption) if corruption.defect == Defect::HashTree)
    };
    match found {
        // A directory that cannot be changed can still be searched.
        Err(error) if malformed(&error) => {
            let inode = dir.parsed(handle.superblock())?;
            match handle.volume().lookup(&inode, name)? {
                Some(_) => Err(error),
                None => Ok(None),
            }
        }
        found => Ok(found?.map(Place::from)),
    }
}

/// Finds `name`, or room for it.
///
/// # Errors
/// [`Error::Unsupported`] for inline data; damage, in particular [`Defect::HashTree`], or a device
/// error.
pub fn seek(handle: &Handle<'_>, dir: &InodeEdit, name: &[u8]) -> Result<Sought> {
    read(handle, dir, |directory| seek_in(directory, name))
}

/// Adds `entry` to `dir`, at the place that was found for its name.
///
/// # Errors
/// [`Error::NoSpace`] if no block is free, or if the index cannot grow; [`Error::Unsupported`] for
/// a further block in a directory without extents; damage, in particular [`Defect::HashTree`], or a
/// device error.
pub fn add(
    handle: &mut AllocHandle<'_, '_>,
    dir: &mut InodeEdit,
    entry: NewEntry<'_>,
    Vacancy(mut place): Vacancy,
) -> Result<()> {
    let style = Style {
        shape: DirectoryShape::of(handle.superblock()),
        seed: dir.checksum_seed(handle.superblock()),
    };
    if !handle.superblock().features().has_compat(compat::DIR_INDEX) {
        // The index would not lead to the new name.
        dir.set_flags(dir.flags() & !flags::INDEX);
    }
    for _ in 0..TURNS {
        match place {
            Room::In(number, room) => {
                let block = handle.edit(number)?;
                dirent::insert(block, style.shape, entry, room);
                dirent::seal(block, style.shape, style.seed);
                return Ok(());
            }
            Room::After => {
                let (_, number) = append(handle, dir)?;
                let block = handle.edit(number)?;
                dirent::fill(block, style.shape, &[entry])
                    .map_err(|defect| corrupt(dir, defect, None))?;
                dirent::seal(block, style.shape, style.seed);
                return Ok(());
            }
            Room::Unindexed(first) => index(handle, dir, style, &first)?,
            Room::FullLeaf(path, leaf) => {
                let parent = path.steps.last().map(|step| (step.node.count(), path.steps.len()));
                let (count, steps) = parent.ok_or_else(|| corrupt(dir, Defect::HashTree, None))?;
                if count < kind_at(steps - 1).limit(style.shape) {
                    return split(handle, dir, style, &path, &leaf, entry);
                }
                widen(handle, dir, style, &path)?;
            }
        }
        let Sought::Absent(Vacancy(room)) = seek(handle, dir, entry.name)? else {
            return Err(corrupt(dir, Defect::HashTree, None));
        };
        place = room;
    }
    Err(corrupt(dir, Defect::HashTree, None))
}

fn kind_at(depth: usize) -> NodeKind {
    if depth == 0 { NodeKind::Root } else { NodeKind::Inner }
}

/// Finds `name`, or room for it. The room is where the kernel finds it: in the leaf of the name's
/// hash, or in the first block that has some.
fn seek_in(directory: &Opened<'_, '_>, name: &[u8]) -> Result<Sought> {
    let search = |block: &Block| {
        let found = dirent::search(&block.bytes, directory.shape, name);
        found.map_err(|defect| directory.corrupt(defect, Some(block.number)))
    };
    let there = |(ino, _): Named, block: &Block, slot| {
        Sought::There(Place { ino, number: block.number, is_index: false, slot })
    };
    let absent = |room| Ok(Sought::Absent(Vacancy(room)));
    if directory.is_indexed {
        let (path, leaf) = directory.index_path(name)?;
        let room = match search(&leaf)? {
            Search::Found(named, slot) => return Ok(there(named, &leaf, slot)),
            Search::Absent(room) => room,
        };
        if path.goes_on().is_some()
            && let Some(place) = directory.place(name)?
        {
            return Ok(Sought::There(place.into()));
        }
        return absent(match room {
            Some(room) => Room::In(leaf.number, room),
            None => Room::FullLeaf(path, leaf),
        });
    }
    let mut logical = 0;
    let (mut first, mut found) = (None, None);
    while logical < directory.blocks {
        match directory.block(logical)? {
            Ok(block) => {
                match search(&block)? {
                    Search::Found(named, slot) => return Ok(there(named, &block, slot)),
                    Search::Absent(room) => {
                        found = found.or(room.map(|room| Room::In(block.number, room)));
                    }
                }
                first = first.or(Some(block));
                logical += 1;
            }
            Err(missing) => logical = logical.saturating_add(missing),
        }
    }
    absent(match (found, first) {
        (Some(found), _) => found,
        (None, Some(block)) if directory.blocks == 1 && directory.default_hash_kind().is_some() => {
            Room::Unindexed(block)
        }
        _ => Room::After,
    })
}

/// Inserts `entry` into block `number`, which has room for it.
fn insert(
    handle: &mut Handle<'_>,
    dir: &InodeEdit,
    style: Style,
    number: u64,
    entry: NewEntry<'_>,
) -> Result<()> {
    let bad = |defect| corrupt(dir, defect, Some(number));
    let block = handle.edit(number)?;
    let Search::Absent(Some(room)) = dirent::search(block, style.shape, entry.name).map_err(bad)?
    else {
        return Err(bad(Defect::DirectoryEntry));
    };
    dirent::insert(block, style.shape, entry, room);
    dirent::seal(block, style.shape, style.seed);
    Ok(())
}

/// Appends a zeroed block to `dir`. Returns its logical and its physical number.
fn append(handle: &mut AllocHandle<'_, '_>, dir: &mut InodeEdit) -> Result<(u32, u64)> {
    let superblock = handle.superblock();
    let block_bytes = u64::from(superblock.block_bytes());
    let size = dir.size().next_multiple_of(block_bytes);
    let large = DirectoryShape::of(superblock).large;
    let fits = large || size + block_bytes <= u64::from(u32::MAX);
    let logical = u32::try_from(size / block_bytes).ok().filter(|_| fits).ok_or(Error::NoSpace)?;
    let goal = match logical.checked_sub(1) {
        None => None,
        Some(last) => {
            let run = handle.volume().run_at(&dir.parsed(superblock)?, u64::from(last))?;
            (run.physical != 0).then_some(run.physical + 1)
        }
    };
    let number = handle.allocator.blocks(handle, Want::metadata(dir.ino(), goal))?.start;
    if dir.flags() & flags::EXTENTS == 0 && logical < DIRECT_BLOCKS {
        let pointer = u32::try_from(number).map_err(|_| Error::NoSpace)?;
        let at = logical as usize * 4;
        dir.block_area_mut()[at..at + 4].copy_from_slice(&pointer.to_le_bytes());
        let superblock = handle.superblock();
        dir.set_blocks(superblock, dir.blocks(superblock) + 1);
    } else {
        let extent = MappedExtent { logical, blocks: 1, physical: number, unwritten: false };
        extents::insert(handle, dir, extent)?;
    }
    dir.set_size(size + block_bytes);
    handle.create(number)?;
    Ok((logical, number))
}

/// Gives `dir`, whose only block is `first`, an index, and moves its names to a second block
/// (`make_indexed_dir`).
fn index(
    handle: &mut AllocHandle<'_, '_>,
    dir: &mut InodeEdit,
    style: Style,
    first: &Block,
) -> Result<()> {
    let bad = |defect| corrupt(dir, defect, Some(first.number));
    let mut names = Vec::new();
    for found in Dirents::new(&first.bytes[..dirent::names_bytes(style.shape)], style.shape) {
        let found = found.map_err(bad)?;
        if found.ino != 0 {
            names.push(NewEntry { ino: found.ino, file_type: found.file_type, name: found.name });
        }
    }
    let (Some((dots, names)), hash_version) =
        (names.split_at_checked(2), handle.superblock().default_hash_version())
    else {
        return Err(bad(Defect::DirectoryEntry));
    };
    let root = RootContent { dot: dots[0], dot_dot: dots[1], hash_version, levels: 0 };
    if (root.dot.name, root.dot_dot.name) != (b".", b"..") {
        return Err(bad(Defect::DirectoryEntry));
    }
    let (logical, number) = append(handle, dir)?;
    let bad = |defect| corrupt(dir, defect, Some(first.number));
    let leaf = handle.edit(number)?;
    dirent::fill(leaf, style.shape, names).map_err(bad)?;
    dirent::seal(leaf, style.shape, style.seed);
    let entries = [IndexEntry { hash: 0, block: logical }];
    htree::write_root(handle.edit(first.number)?, style.shape, style.seed, root, &entries)
        .map_err(bad)?;
    dir.set_flags(dir.flags() | flags::INDEX);
    Ok(())
}

/// Rewrites the node at `depth` of `path` with its entries changed by `work`.
fn rewrite(
    handle: &mut Handle<'_>,
    dir: &InodeEdit,
    style: Style,
    (path, depth): (&IndexPath, usize),
    work: impl FnOnce(&mut Vec<IndexEntry>, usize),
) -> Result<()> {
    let step = &path.steps[depth];
    let mut entries = htree::entries(&step.node);
    work(&mut entries, step.index);
    let block = handle.edit(step.number)?;
    htree::write_entries(block, kind_at(depth), style.shape, style.seed, &entries)
        .map_err(|defect| corrupt(dir, defect, Some(step.number)))
}

/// Splits `leaf`, the end of `path`, and inserts `entry` into the half that it belongs to. The
/// leaf's parent node has room for another entry.
fn split(
    handle: &mut AllocHandle<'_, '_>,
    dir: &mut InodeEdit,
    style: Style,
    path: &IndexPath,
    leaf: &Block,
    entry: NewEntry<'_>,
) -> Result<()> {
    let seed = handle.superblock().hash_seed();
    let halves =
        htree::split_leaf(&leaf.bytes, style.shape, style.seed, |name| path.kind.hash(name, &seed));
    let halves = halves.map_err(|defect| corrupt(dir, defect, Some(leaf.number)))?;
    let (logical, number) = append(handle, dir)?;
    handle.edit(leaf.number)?.copy_from_slice(&halves.low);
    handle.edit(number)?.copy_from_slice(&halves.high);
    let new = IndexEntry { hash: halves.hash, block: logical };
    let last = path.steps.len() - 1;
    rewrite(handle, dir, style, (path, last), |entries, index| entries.insert(index + 1, new))?;
    let is_high = path.hash >= halves.hash & !1;
    insert(handle, dir, style, if is_high { number } else { leaf.number }, entry)
}

/// Adds a node or a level to the index, so that the lowest node of `path`, or at least a node above
/// it, gets room for another entry.
fn widen(
    handle: &mut AllocHandle<'_, '_>,
    dir: &mut InodeEdit,
    style: Style,
    path: &IndexPath,
) -> Result<()> {
    let Style { shape, seed } = style;
    let has_room = |depth: &usize| path.steps[*depth].node.count() < kind_at(*depth).limit(shape);
    let Some(depth) = (0..path.steps.len()).rev().find(has_room) else {
        // All nodes are full up to the root.
        let levels = path.steps.len();
        let (Some(root), true) = (path.steps.first(), levels <= shape.levels_max()) else {
            return Err(Error::NoSpace);
        };
        let (logical, number) = append(handle, dir)?;
        let bad = |defect| corrupt(dir, defect, Some(root.number));
        htree::write_inner(handle.edit(number)?, shape, seed, &htree::entries(&root.node))
            .map_err(bad)?;
        let only = [IndexEntry { hash: 0, block: logical }];
        // This is at most 2.
        let levels = levels as u8;
        return htree::deepen(handle.edit(root.number)?, shape, seed, levels, &only).map_err(bad);
    };
    let below = path.steps.get(depth + 1).ok_or_else(|| corrupt(dir, Defect::HashTree, None))?;
    let (logical, number) = append(handle, dir)?;
    let mut low = htree::entries(&below.node);
    let high = low.split_off(low.len() / 2);
    let hash = high.first().map_or(0, |entry| entry.hash);
    let bad = |defect| corrupt(dir, defect, Some(below.number));
    htree::write_inner(handle.edit(number)?, shape, seed, &high).map_err(bad)?;
    htree::write_entries(handle.edit(below.number)?, NodeKind::Inner, shape, seed, &low)
        .map_err(bad)?;
    let new = IndexEntry { hash, block: logical };
    rewrite(handle, dir, style, (path, depth), |entries, index| entries.insert(index + 1, new))
}

/// Changes the block of `dir` that has `place` by `work`.
fn change_at(
    handle: &mut Handle<'_>,
    dir: &InodeEdit,
    place: &Place,
    work: impl FnOnce(&mut [u8], DirectoryShape),
) -> Result<()> {
    let shape = DirectoryShape::of(handle.superblock());
    let seed = dir.checksum_seed(handle.superblock());
    let block = handle.edit(place.number)?;
    work(block, shape);
    if place.is_index {
        htree::seal_root(block, shape, seed)
            .map_err(|defect| corrupt(dir, defect, Some(place.number)))?;
    } else {
        dirent::seal(block, shape, seed);
    }
    Ok(())
}

/// Removes the name at `place` from `dir`.
///
/// # Errors
/// Damage, or a device error.
pub fn remove(handle: &mut Handle<'_>, dir: &InodeEdit, place: &Place) -> Result<()> {
    change_at(handle, dir, place, |block, shape| dirent::remove(block, shape, place.slot))
}

/// Points the name at `place` to inode `ino`.
///
/// # Errors
/// Damage, or a device error.
pub fn replace(
    handle: &mut Handle<'_>,
    dir: &InodeEdit,
    place: &Place,
    ino: u32,
    file_type: Option<FileType>,
) -> Result<()> {
    change_at(handle, dir, place, |block, shape| {
        dirent::replace(block, shape, place.slot, (ino, file_type));
    })
}

/// Points `..` of `dir` to `parent`.
///
/// # Errors
/// The errors of [`find`] and [`replace`].
pub fn set_parent(handle: &mut Handle<'_>, dir: &InodeEdit, parent: u32) -> Result<()> {
    let place =
        find(handle, dir, b"..")?.ok_or_else(|| corrupt(dir, Defect::DirectoryParent, None))?;
    replace(handle, dir, &place, parent, Some(FileType::Directory))
}

/// Creates the first block of the new directory `dir`, with `.` and `..`.
///
/// # Errors
/// [`Error::NoSpace`]; damage, or a device error.
pub fn create(handle: &mut AllocHandle<'_, '_>, dir: &mut InodeEdit, parent: u32) -> Result<()> {
    let shape = DirectoryShape::of(handle.superblock());
    let seed = dir.checksum_seed(handle.superblock());
    let (_, number) = append(handle, dir)?;
    let file_type = Some(FileType::Directory);
    let dots = [
        NewEntry { ino: dir.ino(), file_type, name: b"." },
        NewEntry { ino: parent, file_type, name: b".." },
    ];
    let block = handle.edit(number)?;
    dirent::fill(block, shape, &dots).map_err(|defect| corrupt(dir, defect, Some(number)))?;
    dirent::seal(block, shape, seed);
    Ok(())
}

/// Returns whether `dir` contains only `.` and `..`.
///
/// # Errors
/// [`Error::NotDirectory`]; damage, or a device error.
pub fn is_empty(handle: &Handle<'_>, dir: &DiskInode) -> Result<bool> {
    let volume = handle.volume();
    let mut cookie = 0;
    loop {
        let entries = volume.entries(dir, cookie)?;
        let Some(last) = entries.last() else { return Ok(true) };
        cookie = last.cookie;
        if entries.iter().any(|entry| entry.name != b"." && entry.name != b"..") {
            return Ok(false);
        }
    }
}
