//! Fast commits: what changed since the last whole transaction, in the blocks behind the log
//! (kernel: `fs/ext4/fast_commit.c`; kernel documentation: `filesystems/ext4/journal.rst`, "Fast
//! commits"). They say what was done to inodes, names and extents, not which blocks have which
//! contents.

mod replay;
mod scan;
mod write;

pub use self::replay::{Names, Outcome, Replayed};
pub use self::scan::Change;
use self::scan::Scan;
pub use self::write::{NotEncodable, Writer};
use super::layout::Superblock;
use super::replay::Log;
use crate::error::Result;
use crate::source::Source;
use crate::volume::Volume;

/// The fast commits of a journal, found whole and not yet replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastCommits(Vec<Vec<scan::Change>>);

impl FastCommits {
    /// How many there are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// What they make of `volume`, in which the transactions before them have been replayed.
    /// Nothing is changed.
    ///
    /// # Errors
    /// A change that cannot be; damage, or the source.
    pub fn outcome<S: Source>(self, volume: &Volume<S>) -> Result<Outcome> {
        replay::replay(volume, self.0)
    }

    /// Replays them over `volume`, in which the transactions before them have been replayed.
    ///
    /// # Errors
    /// A change that cannot be; damage, or the source. `volume` is then as it was.
    pub(super) fn replay<S: Source>(self, volume: &mut Volume<S>) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let (newer, replayed) = self.outcome(volume)?.beside(volume)?;
        volume.set_replayed(newer, replayed);
        Ok(())
    }
}

/// The whole fast commits that follow transaction `expected` - 1.
///
/// # Errors
/// The device; [`Error::Unsupported`](crate::Error::Unsupported) if one has features that are not
/// known.
pub(super) fn read(
    log: &impl Log,
    superblock: &Superblock,
    expected: u32,
    inode_bytes: usize,
) -> Result<FastCommits> {
    let mut scan = Scan::new(expected, inode_bytes);
    // The block behind the log is left out (`j_fc_first`).
    for index in superblock.last.saturating_add(1)..superblock.blocks {
        if scan.block(&log.block(index)?)?.is_break() {
            break;
        }
    }
    Ok(FastCommits(scan.finish()))
}
