//! What a mount for writing examines before it writes: whether the metadata are usable, and what
//! the fast commits after the log change.

use super::{fast_commits, orphans};
use crate::FileType;
use crate::alloc::{AllocHandle, Allocator};
use crate::error::{Corruption, Defect, Result};
use crate::journal::{Changes, Handle, Held, Orphans, Sequence, time_now};
use meantime_ext4_format::journal::FastCommits;
use meantime_ext4_format::{ROOT_INO, Source, Volume};

/// Checks that `volume`, as it is after the log's replay, has what a mount for writing needs: a
/// root directory, correct group descriptors, a valid list of orphans.
///
/// # Errors
/// Fails if one of these is missing or damaged, or with a device error.
pub(crate) fn validate(volume: &Volume<impl Source + Sync>) -> Result<()> {
    if volume.linked_inode(ROOT_INO)?.file_type() != FileType::Directory {
        return Err(Corruption::new(Defect::InodeField("type")).in_inode(ROOT_INO).into());
    }
    Allocator::new(volume)?;
    let (held, orphans) = (Held::default(), Orphans::default());
    let handle = Handle::new(volume.with_source(()), volume.source(), &held, &orphans, time_now());
    orphans::list(&handle).map(drop)
}

/// Returns the changes that `commits` make to the metadata of `volume`, which includes the
/// transactions before them.
///
/// # Errors
/// Fails if the fast commits cannot be applied; damage, or a device error.
pub(crate) fn apply(volume: &Volume<impl Source + Sync>, commits: FastCommits) -> Result<Changes> {
    let outcome = commits.outcome(volume)?;
    let held = Held::default();
    for blocks in fast_commits::given(&outcome) {
        held.hold(blocks, Sequence(1));
    }
    let (allocator, orphans) = (Allocator::new(volume)?, Orphans::default());
    // The change was permitted when it was committed.
    allocator.set_privileged(true);
    let mut handle =
        Handle::new(volume.with_source(()), volume.source(), &held, &orphans, time_now());
    fast_commits::apply(&mut AllocHandle::new(&mut handle, &allocator), &outcome)?;
    Ok(handle.into_changes())
}
