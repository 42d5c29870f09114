//! Fast commits: changes since the last full transaction, in the blocks after the log (kernel:
//! `fs/ext4/fast_commit.c`; kernel documentation: `filesystems/ext4/journal.rst`, "Fast commits").
//! They describe changes of inodes, names and extents, not the contents of blocks.

mod replay;
mod scan;
mod write;

pub use self::replay::Outcome;
pub use self::scan::Change;
use self::scan::Scan;
pub use self::write::{NotEncodable, Writer};
use super::layout::Superblock;
use super::log::Log;
use crate::error::Result;
pub use crate::replayed::{Names, Replayed};
use crate::source::Source;
use crate::volume::Volume;

/// The complete fast commits of a journal, which are not yet replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastCommits(Vec<Vec<scan::Change>>);

impl FastCommits {
    /// Returns the number of fast commits.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Returns their effect on `volume`, in which the transactions before them have been replayed.
    /// Does not change `volume`.
    ///
    /// # Errors
    /// Fails if a change is impossible; damage, or an error of the source.
    pub fn outcome<S: Source>(self, volume: &Volume<S>) -> Result<Outcome> {
        replay::replay(volume, self.0)
    }

    /// Replays them over `volume`, in which the transactions before them have been replayed.
    ///
    /// # Errors
    /// Fails if a change is impossible; damage, or an error of the source. `volume` is then
    /// unchanged.
    pub(super) fn replay<S: Source>(self, volume: &mut Volume<S>) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let (newer, replayed) = self.outcome(volume)?.beside(volume)?;
        volume.set_replayed(newer, replayed);
        Ok(())
    }
}

/// Reads the complete fast commits that follow transaction `expected` - 1.
///
/// # Errors
/// [`Error::Unsupported`](crate::Error::Unsupported) if one has unknown features; or an error of
/// the source.
pub(super) fn read(
    log: &impl Log,
    superblock: &Superblock,
    expected: u32,
    inode_bytes: usize,
) -> Result<FastCommits> {
    let mut scan = Scan::new(expected, inode_bytes);
    // The block after the log is skipped (`j_fc_first`).
    for index in superblock.last.saturating_add(1)..superblock.blocks {
        if scan.block(&log.block(index)?)?.is_break() {
            break;
        }
    }
    Ok(FastCommits(scan.finish()))
}
