//! Allocates blocks for files in advance, and frees ranges of them: `fallocate`.

use std::ops::Range;

use super::progress::{Progress, weight};
use super::{extents, orphans, truncate};
use crate::alloc::{AllocHandle, Want};
use crate::journal::Handle;
use crate::{Error, Result};
use meantime_ext4_format::edit::{InodeEdit, max_blocks};
use meantime_ext4_format::{MappedExtent, RunState};

/// The maximum number of runs examined in one change, even if few blocks change, because other
/// changes wait meanwhile.
const MAX_RUNS: usize = 1024;

/// The fate of blocks that are already mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    /// They stay as they are.
    Keep,
    /// They become unwritten, so they read as zeroes.
    Zero,
}

/// Allocates unwritten blocks for the holes in blocks `range` of file `ino`. They read as zeroes
/// until they are written.
///
/// With `size`, which must be in the last block of the range, the file grows to at least that many
/// bytes in the end. Before that, it grows to the end of what is allocated. The function stops once
/// it has added about `budget` blocks to what `handle` changes, and returns the block at which to
/// continue in another change. The allocation is done when that block is the end of the range.
///
/// # Errors
/// [`Error::NoSpace`], after which earlier changes' blocks stay; [`Error::FileTooBig`];
/// [`Error::Unsupported`] for files without extents; [`Error::IsDirectory`], [`Error::Special`];
/// damage, or a device error.
pub fn allocate(
    handle: &mut AllocHandle<'_, '_>,
    ino: u32,
    range: Range<u32>,
    size: Option<u64>,
    budget: usize,
) -> Result<u32> {
    fill(handle, ino, range, size, budget, There::Keep)
}

/// Allocates blocks like [`allocate`], and makes written blocks in the range read as zeroes, too.
///
/// # Errors
/// The errors of [`allocate`].
pub fn zero(
    handle: &mut AllocHandle<'_, '_>,
    ino: u32,
    range: Range<u32>,
    size: Option<u64>,
    budget: usize,
) -> Result<u32> {
    fill(handle, ino, range, size, budget, There::Zero)
}

fn fill(
    handle: &mut AllocHandle<'_, '_>,
    ino: u32,
    range: Range<u32>,
    size: Option<u64>,
    budget: usize,
    there: There,
) -> Result<u32> {
    let mut inode = truncate::load_file(handle, ino)?;
    let limit = weight(handle) + budget.max(1);
    let mut from = range.start;
    let mut goal = last_block(handle, &inode, from)?;
    for _ in 0..MAX_RUNS {
        if from >= range.end || weight(handle) >= limit {
            break;
        }
        let run = handle.volume().run_at(&inode.parsed(handle.superblock())?, u64::from(from))?;
        let blocks = u64::from(range.end - from).min(run.blocks) as u32;
        match (run.state, there) {
            (RunState::Hole, _) => {
                let blocks = blocks.min(max_blocks(true));
                let found = handle.allocator.blocks(handle, Want::data(ino, goal, blocks))?;
                let blocks = (found.end - found.start) as u32;
                let extent =
                    MappedExtent { logical: from, blocks, physical: found.start, unwritten: true };
                extents::insert(handle, &mut inode, extent)?;
                (from, goal) = (from + blocks, Some(found.end));
            }
            (RunState::Written, There::Zero) => {
                extents::set_written(handle, &mut inode, from..from + blocks, false)?;
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

/// Returns the goal for block `from`: the place after that of the block before it, if that one is
/// mapped.
fn last_block(handle: &Handle<'_>, inode: &InodeEdit, from: u32) -> Result<Option<u64>> {
    let Some(before) = from.checked_sub(1) else { return Ok(None) };
    let run = handle.volume().run_at(&inode.parsed(handle.superblock())?, u64::from(before))?;
    Ok((run.state != RunState::Hole).then_some(run.physical + 1))
}

/// Makes blocks `range` of file `ino` a hole. The caller zeroes partial blocks at either end.
/// Returns [`Progress::More`] once it has added about `budget` blocks to what `handle` changes. The
/// caller then calls it again in another change.
///
/// # Errors
/// [`Error::NoSpace`], only where an extent is cut in two; [`Error::IsDirectory`],
/// [`Error::Special`], [`Error::Unsupported`]; damage, or a device error.
pub fn punch(
    handle: &mut AllocHandle<'_, '_>,
    ino: u32,
    range: Range<u32>,
    budget: usize,
) -> Result<Progress> {
    let mut inode = truncate::load_file(handle, ino)?;
    let progress = extents::remove(handle, &mut inode, range, budget)?;
    inode.set_modified(handle.now());
    inode.set_changed(handle.now());
    handle.store_inode(&inode, true)?;
    handle.fast_eligible();
    Ok(progress)
}
