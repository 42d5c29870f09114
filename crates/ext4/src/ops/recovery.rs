//! What a mount for writing asks of metadata before anything is written: whether they can be worked
//! with, and what the fast commits behind the log make of them.

use super::{fast_commits, orphans};
use crate::FileType;
use crate::alloc::Allocator;
use crate::error::{Corruption, Defect, Error};
use crate::journal::{Changes, Handle, Held, Orphans, Sequence, time_now};
use meantime_ext4_format::journal::FastCommits;
use meantime_ext4_format::{ROOT_INO, Source, Volume};

/// Whether `volume`, as it is when everything is home, has what a mount for writing begins with: a
/// root directory, groups whose descriptors are right, a list of orphans that can be.
///
/// # Errors
/// It has not; the device.
pub(crate) fn look_over(volume: &Volume<impl Source + Sync>) -> Result<(), Error> {
    if volume.linked_inode(ROOT_INO)?.file_type() != FileType::Directory {
        return Err(Corruption::new(Defect::InodeField("type")).in_inode(ROOT_INO).into());
    }
    Allocator::new(volume)?;
    let (held, orphans) = (Held::default(), Orphans::default());
    let handle = Handle::new(volume.with_source(()), volume.source(), &held, &orphans, time_now());
    orphans::list(&handle).map(drop)
}

/// What `commits` make of the metadata of `volume`, which has what the transactions before them
/// had.
///
/// # Errors
/// What cannot be carried out; damage, or the device.
pub(crate) fn carry_out(
    volume: &Volume<impl Source + Sync>,
    commits: FastCommits,
) -> Result<Changes, Error> {
    let outcome = commits.outcome(volume)?;
    let held = Held::default();
    for blocks in fast_commits::given(&outcome) {
        held.hold(blocks, Sequence(1));
    }
    let (allocator, orphans) = (Allocator::new(volume)?, Orphans::default());
    let mut handle =
        Handle::new(volume.with_source(()), volume.source(), &held, &orphans, time_now());
    fast_commits::carry_out(&mut handle, &allocator, &outcome)?;
    Ok(handle.into_changes())
}
