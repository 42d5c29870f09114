//! The progress of an operation in one change.

use crate::journal::Handle;

/// The maximum number of extents freed in one change, even if few blocks change, because other
/// changes wait meanwhile.
pub(super) const MAX_FREED: usize = 1024;

/// Whether an operation needs another change to finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// More work remains.
    More,
    /// The operation is complete.
    Done,
}

/// The size of a change: the blocks that it changed and those that it revokes.
pub(super) fn weight(handle: &Handle<'_>) -> usize {
    handle.changes().blocks.len() + handle.changes().forgotten.len()
}
