//! Recovery: replays a journal that was not emptied. The result is in memory.
//!
//! The result is what `e2fsck` would write: the blocks of all committed transactions, with the
//! newest copy of each, without those revoked later. An uncommitted transaction has no effect.

pub mod fast_commit;
mod layout;
mod log;
mod recovery;
mod replay;
mod write;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::Arc;

use self::layout::{ADVICE, Superblock};
use self::log::Log;
use self::replay::replay;
use super::extent_map::{Run, RunState};
use super::inode::Inode;
use super::source::Source;
use super::volume::Volume;
use crate::FileType;
use crate::error::{Corruption, Defect, Error, Result, Unsupported};

pub use self::fast_commit::{FastCommits, Replayed};
pub use self::recovery::Recovery;
pub use self::write::{Copied, JournalFormat};

/// The journal in an inode of the file system.
struct InodeLog<'a, S: Source> {
    volume: &'a Volume<S>,
    inode: &'a Inode,
    /// The run looked up last, and its first block in the journal.
    run: Cell<Option<(u64, Run)>>,
}

impl<S: Source> InodeLog<'_, S> {
    /// Returns the block of journal block `index` in the file system.
    fn physical(&self, index: u32) -> Result<u64> {
        let logical = u64::from(index);
        let (start, run) = match self.run.get() {
            Some((start, run)) if logical >= start && logical - start < run.blocks => (start, run),
            _ => (logical, self.volume.run_at(self.inode, logical)?),
        };
        self.run.set(Some((start, run)));
        if run.state == RunState::Written {
            Ok(run.physical + (logical - start))
        } else {
            Err(self.corrupt(Defect::JournalBlock, None).into())
        }
    }

    fn corrupt(&self, defect: Defect, block: Option<u64>) -> Corruption {
        Corruption::at(defect, self.inode.ino(), block)
    }
}

impl<S: Source> Log for InodeLog<'_, S> {
    fn block(&self, index: u32) -> Result<Arc<[u8]>> {
        self.volume.block(self.physical(index)?)
    }

    fn wrong_checksum(&self, index: u32) -> Result<()> {
        let block = self.physical(index)?;
        self.volume.verify(false, || self.corrupt(Defect::JournalChecksum, Some(block)))
    }

    fn malformed(&self, index: u32) -> Error {
        self.corrupt(Defect::JournalBlock, self.physical(index).ok()).into()
    }
}

/// Reads the journal of `volume`, if its superblock requires recovery (the feature
/// `needs_recovery`). Otherwise the log's content is old.
///
/// # Errors
/// Fails if the journal is inconsistent, or if a copy or descriptor in it has a wrong checksum
/// (unless these are ignored). [`Error::Unsupported`] for unknown features, or for a journal on
/// another device; or an error of the source.
pub fn recover<S: Source>(volume: &Volume<S>) -> Result<Recovery> {
    // A backup superblock lacks the flag, so the log itself is read (as by e2fsck -b).
    let asks_log = volume.is_from_backup() && volume.superblock().journal_ino() != 0;
    if !volume.superblock().needs_recovery() && !asks_log {
        return Ok(Recovery::default());
    }
    let unsupported =
        |what: &str| Error::Unsupported(Unsupported { what: what.to_owned(), advice: ADVICE });
    let ino = volume.superblock().journal_ino();
    if ino == 0 {
        return Err(unsupported("a journal on another device that needs recovery"));
    }
    let inode = volume.inode(ino)?;
    let log = InodeLog { volume, inode: &inode, run: Cell::new(None) };
    if inode.file_type() != FileType::Regular || inode.is_free() {
        return Err(log.corrupt(Defect::JournalSuperblock, None).into());
    }
    let block_bytes = volume.superblock().block_bytes() as usize;
    let blocks = u32::try_from(inode.size() / block_bytes as u64).unwrap_or(u32::MAX);
    let first = log.block(0)?;
    let parse = |believe| Superblock::parse(&first, block_bytes, blocks, believe);
    let superblock = match parse(false) {
        Err(Error::Corrupt(Corruption { defect: Defect::JournalChecksum, .. })) => {
            log.wrong_checksum(0)?;
            parse(true)
        }
        other => other,
    };
    let superblock = superblock.map_err(|error| match error {
        Error::Corrupt(corruption) => log.corrupt(corruption.defect, log.physical(0).ok()).into(),
        other => other,
    })?;
    let errno = superblock.errno;
    if superblock.start == 0 {
        return Ok(Recovery { errno, ..Recovery::default() });
    }
    let mut recovery = replay(&log, &superblock, volume.superblock().blocks())?;
    recovery.errno = errno;
    // Fast commits follow the last transaction, so they are skipped if one is lost.
    if let (true, None, Some(end)) = (superblock.fast_commits, recovery.lost, recovery.end) {
        let inode_bytes = volume.superblock().inode_bytes() as usize;
        recovery.fast_commits = fast_commit::read(&log, &superblock, end, inode_bytes)?;
    }
    Ok(recovery)
}
