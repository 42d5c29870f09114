//! The content of a journal that is not in place yet, and its application to a volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fast_commit::FastCommits;
use crate::replayed::Replayed;
use crate::{OpenFailure, Recovered, Source, Volume};

/// The contents of a journal that are not in place yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Blocks with newer contents, by their numbers in the file system. There are at most as many
    /// as the journal has blocks.
    pub overlay: BTreeMap<u64, Arc<[u8]>>,
    /// Number of committed transactions.
    pub transactions: u32,
    /// Number of revoked blocks.
    pub revoked: usize,
    /// Fast commits after the last transaction, to be replayed once the overlay is in effect
    /// ([`apply`](Self::apply)).
    pub fast_commits: FastCommits,
    /// A committed transaction whose commit block has a wrong checksum. As with `e2fsck`, neither
    /// it nor later ones were replayed.
    pub lost: Option<u32>,
    /// The errno with which the file system failed before (`s_errno`), or 0 for none.
    pub errno: i32,
    /// The next transaction number, of which the log may contain an incomplete part. It is `None`
    /// if the log was empty, or not read.
    pub end: Option<u32>,
}

impl Recovery {
    /// Returns whether there is nothing to replay.
    pub fn is_empty(&self) -> bool {
        self.transactions == 0 && self.fast_commits.count() == 0 && self.lost.is_none()
    }

    /// Applies the recovery to `volume`, to which the journal belongs. Returns a summary.
    ///
    /// # Errors
    /// Fails if the replayed superblock, or a fast commit, is invalid; damage, or an error of the
    /// source.
    pub fn apply<S: Source>(self, volume: &mut Volume<S>) -> Result<Recovered, OpenFailure> {
        let replayed = self.summary();
        if let Some(tid) = self.lost {
            tracing::warn!(
                tid,
                "the journal's transaction was committed and is damaged: it and those after it \
                 are lost"
            );
        }
        volume.set_overlay(self.overlay)?;
        if let Some(tid) = self.lost {
            volume.set_replayed(BTreeMap::new(), Replayed::without(tid));
        }
        self.fast_commits.replay(volume)?;
        Ok(replayed)
    }

    /// Returns a summary for display.
    pub fn summary(&self) -> Recovered {
        Recovered {
            transactions: self.transactions,
            blocks: self.overlay.len(),
            revoked: self.revoked,
            fast_commits: self.fast_commits.count(),
        }
    }
}
