//! Setting blocks aside, and giving them back: `fallocate`.

use std::ops::Range;

use super::{Progress, extents, orphans, truncate};
use crate::Error;
use crate::alloc::{Allocator, Want};
use crate::journal::Handle;
use meantime_ext4_format::edit::{InodeEdit, max_blocks};
use meantime_ext4_format::{MappedExtent, RunState};

/// Runs that are looked at in one change at most, however few blocks it changes for that: it holds
/// up all others.
const MAX_RUNS: usize = 1024;

/// What is done with blocks that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    /// They stay as they are.
    Keep,
    /// They are read as zeroes.
    Zero,
}

/// Sets blocks aside for what the file `ino` does not have of blocks `range`: they are read as
/// zeroes until they are written to.
///
/// With `size`, the file has at least as many bytes in the end, which is to be in the last block of
/// the range, and as many as there are blocks for before. Once this has added about `budget` blocks
/// to what `handle` changes it ends, and returns where it is to go on in another change; at the end
/// of the range it is done.
///
/// # Errors
/// [`Error::NoSpace`]: what earlier changes set aside stays; [`Error::FileTooBig`];
///                     [`Error::Unsupported`] for files without extents;
/// [`Error::IsDirectory`], [`Error::Special`]; damage, or the device.
pub fn allocate(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    ino: u32,
    range: Range<u32>,
    size: Option<u64>,
    budget: usize,
) -> Result<u32, Error> {
    fill(handle, allocator, ino, range, size, budget, There::Keep)
}

/// As [`allocate`], but what the file has there is read as zeroes from now on, too.
///
/// # Errors
/// As [`allocate`].
pub fn zero(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    ino: u32,
    range: Range<u32>,
    size: Option<u64>,
    budget: usize,
) -> Result<u32, Error> {
    fill(handle, allocator, ino, range, size, budget, There::Zero)
}

fn fill(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    ino: u32,
    range: Range<u32>,
    size: Option<u64>,
    budget: usize,
    there: There,
) -> Result<u32, Error> {
    let mut inode = truncate::load_file(handle, ino)?;
    let limit = extents::weight(handle) + budget.max(1);
    let mut from = range.start;
    let mut goal = last_block(handle, &inode, from)?;
    for _ in 0..MAX_RUNS {
        if from >= range.end || extents::weight(handle) >= limit {
            break;
        }
        let run = handle.volume().run_at(&inode.parsed(handle.superblock())?, u64::from(from))?;
        let blocks = u64::from(range.end - from).min(run.blocks) as u32;
        match (run.state, there) {
            (RunState::Hole, _) => {
                let blocks = blocks.min(max_blocks(true));
                let want =
                    Want { ino, goal, blocks, reservation: None, metadata: false, node: false };
                let found = allocator.blocks(handle, want)?;
                let blocks = (found.end - found.start) as u32;
                let extent =
                    MappedExtent { logical: from, blocks, physical: found.start, unwritten: true };
                extents::insert(handle, allocator, &mut inode, extent)?;
                (from, goal) = (from + blocks, Some(found.end));
            }
            (RunState::Written, There::Zero) => {
                extents::set_written(handle, allocator, &mut inode, from..from + blocks, false)?;
                (from, goal) = (from + blocks, Some(run.physical + u64::from(blocks)));
            }
            _ => (from, goal) = (from + blocks, Some(run.physical + u64::from(blocks))),
        }
    }
    let reached = u64::from(from) * u64::from(handle.superblock().block_bytes());
    inode.set_changed(handle.now());
    if let Some(size) = size.map(|size| size.min(reached)).filter(|size| *size > inode.size()) {
        if size > truncate::max_size(handle, &inode) {
            return Err(Error::FileTooBig);
        }
        inode.set_size(size);
        inode.set_modified(handle.now());
        orphans::note_size(handle, size)?;
    } else if there == There::Zero {
        inode.set_modified(handle.now());
    }
    handle.store_inode(&inode, true)?;
    handle.fast_eligible();
    Ok(from)
}

/// Where what is behind block `from` of the file should be, if it has anything right before.
fn last_block(handle: &Handle<'_>, inode: &InodeEdit, from: u32) -> Result<Option<u64>, Error> {
    let Some(before) = from.checked_sub(1) else { return Ok(None) };
    let run = handle.volume().run_at(&inode.parsed(handle.superblock())?, u64::from(before))?;
    Ok((run.state != RunState::Hole).then_some(run.physical + 1))
}

/// Takes blocks `range` of file `ino` from it: they become a hole. (The parts of blocks at either
/// end are the caller's to zero.) Once this has added about `budget` blocks to what `handle`
/// changes it ends with [`Progress::More`], to be called again in another change.
///
/// # Errors
/// [`Error::NoSpace`], which is possible only where an extent is cut in two;
/// [`Error::IsDirectory`], [`Error::Special`], [`Error::Unsupported`]; damage, or the device.
pub fn punch(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    ino: u32,
    range: Range<u32>,
    budget: usize,
) -> Result<Progress, Error> {
    let mut inode = truncate::load_file(handle, ino)?;
    let progress = extents::remove(handle, allocator, &mut inode, range, budget)?;
    inode.set_modified(handle.now());
    inode.set_changed(handle.now());
    handle.store_inode(&inode, true)?;
    handle.fast_eligible();
    Ok(progress)
}
