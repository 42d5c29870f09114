//! Changes directories: adds, removes and redirects names (kernel: `fs/ext4/namei.c`).
//!
//! The caller stores the directory's inode; only its size, blocks and flags change here.
//! Directories never shrink.

use crate::FileType;
use crate::alloc::{Allocator, Want};
use crate::error::{Corruption, Defect, Error, Unsupported};
use crate::journal::Handle;
use crate::ops::extents;
use meantime_ext4_format::directory::{Block, Directory, IndexPath};
use meantime_ext4_format::dirent::{DirectoryShape, Dirents};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::edit::dirent::{self, NewEntry};
use meantime_ext4_format::edit::htree::{self, IndexEntry, NodeKind, RootContent};
use meantime_ext4_format::features::compat;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::{Inode as DiskInode, MappedExtent};

/// More attempts than finding room can take: creating the index, adding a level to it, and adding a
/// node on each level.
const TURNS: usize = 8;
/// The number of direct pointers in the inode of a file without extents.
const DIRECT_BLOCKS: u32 = 12;

/// Where a new name fits.
enum Room {
    /// In this block.
    In(u64),
    /// In no block: the directory needs another one at its end.
    Behind,
    /// Not in the only block: the directory needs an index.
    Unindexed(Block),
    /// Not in the leaf that the name's hash belongs to.
    FullLeaf(IndexPath, Block),
}

/// How the blocks of a directory are encoded.
#[derive(Clone, Copy)]
struct Style {
    shape: DirectoryShape,
    /// The checksum seed.
    seed: u32,
}

type Opened<'a, 'h> = Directory<'a, &'a Handle<'h>>;

/// Runs `work` on the current content of directory `dir`.
fn read<T>(
    handle: &Handle<'_>,
    dir: &InodeEdit,
    work: impl FnOnce(&Opened<'_, '_>) -> Result<T, Error>,
) -> Result<T, Error> {
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

/// Adds `entry`, whose name does not exist yet, to `dir`.
///
/// # Errors
/// [`Error::NoSpace`], also for an index that cannot grow; [`Error::Unsupported`] for inline data,
/// or for a further block in a directory without extents; damage, in particular
/// [`Defect::HashTree`]; a device error.
pub fn add(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    dir: &mut InodeEdit,
    entry: NewEntry<'_>,
) -> Result<(), Error> {
    let style = Style {
        shape: DirectoryShape::of(handle.superblock()),
        seed: dir.checksum_seed(handle.superblock()),
    };
    if !handle.superblock().features().has_compat(compat::DIR_INDEX) {
        // The index would not lead to the new name.
        dir.set_flags(dir.flags() & !flags::INDEX);
    }
    for _ in 0..TURNS {
        match read(handle, dir, |directory| room(directory, entry.name))? {
            Room::In(number) => return insert(handle, dir, style, number, entry),
            Room::Behind => {
                let (_, number) = append(handle, allocator, dir)?;
                let block = handle.edit(number)?;
                dirent::fill(block, style.shape, &[entry])
                    .map_err(|defect| corrupt(dir, defect, None))?;
                dirent::seal(block, style.shape, style.seed);
                return Ok(());
            }
            Room::Unindexed(first) => index(handle, allocator, dir, style, &first)?,
            Room::FullLeaf(path, leaf) => {
                let parent = path.steps.last().map(|step| (step.node.count(), path.steps.len()));
                let (count, steps) = parent.ok_or_else(|| corrupt(dir, Defect::HashTree, None))?;
                if count < kind_at(steps - 1).limit(style.shape) {
                    return split(handle, allocator, dir, style, &path, &leaf, entry);
                }
                widen(handle, allocator, dir, style, &path)?;
            }
        }
    }
    Err(corrupt(dir, Defect::HashTree, None))
}

fn kind_at(depth: usize) -> NodeKind {
    if depth == 0 { NodeKind::Root } else { NodeKind::Inner }
}

/// Finds room for `name` as the kernel does: in the leaf of its hash, or from the first block on.
fn room(directory: &Opened<'_, '_>, name: &[u8]) -> Result<Room, Error> {
    let has_room = |block: &Block| {
        let found = dirent::has_room(&block.bytes, directory.shape, name.len());
        found.map_err(|defect| directory.corrupt(defect, Some(block.number)))
    };
    if directory.is_indexed {
        let (path, leaf) = directory.index_path(name)?;
        return Ok(if has_room(&leaf)? {
            Room::In(leaf.number)
        } else {
            Room::FullLeaf(path, leaf)
        });
    }
    let mut logical = 0;
    let mut first = None;
    while logical < directory.blocks {
        match directory.block(logical)? {
            Ok(block) if has_room(&block)? => return Ok(Room::In(block.number)),
            Ok(block) => {
                first = first.or(Some(block));
                logical += 1;
            }
            Err(missing) => logical = logical.saturating_add(missing),
        }
    }
    Ok(match first {
        Some(block) if directory.blocks == 1 && directory.default_hash_kind().is_some() => {
            Room::Unindexed(block)
        }
        _ => Room::Behind,
    })
}

/// Inserts `entry` into block `number`, which has room for it.
fn insert(
    handle: &mut Handle<'_>,
    dir: &InodeEdit,
    style: Style,
    number: u64,
    entry: NewEntry<'_>,
) -> Result<(), Error> {
    let block = handle.edit(number)?;
    match dirent::insert(block, style.shape, entry) {
        Ok(true) => {
            dirent::seal(block, style.shape, style.seed);
            Ok(())
        }
        Ok(false) => Err(corrupt(dir, Defect::DirectoryEntry, Some(number))),
        Err(defect) => Err(corrupt(dir, defect, Some(number))),
    }
}

/// Appends a zeroed block to `dir`. Returns its logical and its physical number.
fn append(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    dir: &mut InodeEdit,
) -> Result<(u32, u64), Error> {
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
    let number = allocator.blocks(handle, Want::metadata(dir.ino(), goal))?.start;
    if dir.flags() & flags::EXTENTS == 0 && logical < DIRECT_BLOCKS {
        let pointer = u32::try_from(number).map_err(|_| Error::NoSpace)?;
        let at = logical as usize * 4;
        dir.block_area_mut()[at..at + 4].copy_from_slice(&pointer.to_le_bytes());
        let superblock = handle.superblock();
        dir.set_blocks(superblock, dir.blocks(superblock) + 1);
    } else {
        let extent = MappedExtent { logical, blocks: 1, physical: number, unwritten: false };
        extents::insert(handle, allocator, dir, extent)?;
    }
    dir.set_size(size + block_bytes);
    handle.create(number)?;
    Ok((logical, number))
}

/// Gives `dir`, whose only block is `first`, an index, and moves its names to a second block
/// (`make_indexed_dir`).
fn index(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    dir: &mut InodeEdit,
    style: Style,
    first: &Block,
) -> Result<(), Error> {
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
    let (logical, number) = append(handle, allocator, dir)?;
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
) -> Result<(), Error> {
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
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    dir: &mut InodeEdit,
    style: Style,
    path: &IndexPath,
    leaf: &Block,
    entry: NewEntry<'_>,
) -> Result<(), Error> {
    let seed = handle.superblock().hash_seed();
    let halves =
        htree::split_leaf(&leaf.bytes, style.shape, style.seed, |name| path.kind.hash(name, &seed));
    let halves = halves.map_err(|defect| corrupt(dir, defect, Some(leaf.number)))?;
    let (logical, number) = append(handle, allocator, dir)?;
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
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    dir: &mut InodeEdit,
    style: Style,
    path: &IndexPath,
) -> Result<(), Error> {
    let Style { shape, seed } = style;
    let has_room = |depth: &usize| path.steps[*depth].node.count() < kind_at(*depth).limit(shape);
    let Some(depth) = (0..path.steps.len()).rev().find(has_room) else {
        // All nodes are full up to the root.
        let levels = path.steps.len();
        let (Some(root), true) = (path.steps.first(), levels <= shape.levels_max()) else {
            return Err(Error::NoSpace);
        };
        let (logical, number) = append(handle, allocator, dir)?;
        let bad = |defect| corrupt(dir, defect, Some(root.number));
        htree::write_inner(handle.edit(number)?, shape, seed, &htree::entries(&root.node))
            .map_err(bad)?;
        let only = [IndexEntry { hash: 0, block: logical }];
        // At most 2.
        let levels = levels as u8;
        return htree::deepen(handle.edit(root.number)?, shape, seed, levels, &only).map_err(bad);
    };
    let below = path.steps.get(depth + 1).ok_or_else(|| corrupt(dir, Defect::HashTree, None))?;
    let (logical, number) = append(handle, allocator, dir)?;
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

/// Changes the block of `dir` that has `name` by `work`, which returns the name's previous inode.
fn change_at(
    handle: &mut Handle<'_>,
    dir: &InodeEdit,
    name: &[u8],
    work: impl FnOnce(&mut [u8], DirectoryShape) -> Result<Option<u32>, Defect>,
) -> Result<u32, Error> {
    let found = read(handle, dir, |directory| {
        let place = directory.place(name)?.ok_or(Error::NotFound)?;
        Ok((
            place.block.number,
            place.block.is_index,
            directory.shape,
            directory.inode.checksum_seed(),
        ))
    });
    let (number, is_index, shape, seed) = found?;
    let bad = |defect| corrupt(dir, defect, Some(number));
    let block = handle.edit(number)?;
    let ino = work(block, shape).map_err(bad)?.ok_or_else(|| bad(Defect::DirectoryEntry))?;
    if is_index {
        htree::seal_root(block, shape, seed).map_err(bad)?;
    } else {
        dirent::seal(block, shape, seed);
    }
    Ok(ino)
}

/// Removes `name` from `dir`. Returns its inode.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::Unsupported`] for inline data; damage, or a device error.
pub fn remove(handle: &mut Handle<'_>, dir: &InodeEdit, name: &[u8]) -> Result<u32, Error> {
    change_at(handle, dir, name, |block, shape| dirent::remove(block, shape, name))
}

/// Points the existing name of `entry` to another inode. Returns the previous one.
///
/// # Errors
/// The errors of [`remove`].
pub fn replace(
    handle: &mut Handle<'_>,
    dir: &InodeEdit,
    entry: NewEntry<'_>,
) -> Result<u32, Error> {
    change_at(handle, dir, entry.name, |block, shape| dirent::replace(block, shape, entry))
}

/// Points `..` of `dir` to `parent`.
///
/// # Errors
/// The errors of [`remove`].
pub fn set_parent(handle: &mut Handle<'_>, dir: &InodeEdit, parent: u32) -> Result<(), Error> {
    let entry = NewEntry { ino: parent, file_type: Some(FileType::Directory), name: b".." };
    replace(handle, dir, entry).map(|_| ()).map_err(|error| match error {
        Error::NotFound => corrupt(dir, Defect::DirectoryParent, None),
        other => other,
    })
}

/// Creates the first block of the new directory `dir`, with `.` and `..`.
///
/// # Errors
/// [`Error::NoSpace`]; damage, or a device error.
pub fn create(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    dir: &mut InodeEdit,
    parent: u32,
) -> Result<(), Error> {
    let shape = DirectoryShape::of(handle.superblock());
    let seed = dir.checksum_seed(handle.superblock());
    let (_, number) = append(handle, allocator, dir)?;
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

/// Whether `dir` contains only `.` and `..`.
///
/// # Errors
/// [`Error::NotDirectory`]; damage, or a device error.
pub fn is_empty(handle: &Handle<'_>, dir: &DiskInode) -> Result<bool, Error> {
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
