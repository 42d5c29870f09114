//! Times of reads and writes that are not in the inode yet.

use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{Metadata, Timestamp};

/// Times that the inode does not have yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Time of the last change of the content.
    pub(crate) modified: Option<Timestamp>,
    /// Time of the last read.
    pub(crate) accessed: Option<Timestamp>,
}

impl Times {
    /// Returns whether the inode has all of them.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Puts them into `inode`. The caller reads them within the change: otherwise they may be older
    /// than what another change (`utimes`, a truncation) has set since.
    pub(crate) fn put(&self, inode: &mut InodeEdit) {
        if let Some(modified) = self.modified {
            // `utimes` may have set a later time before the write: the write then makes it earlier,
            // as in Linux.
            inode.set_modified(modified);
            // The mode or another field may have been changed after the write.
            inode.set_changed(modified.max(inode.changed()));
        }
        if let Some(accessed) = self.accessed {
            inode.set_accessed(accessed);
        }
    }

    /// Updates `metadata` with them.
    pub(crate) fn shown(&self, metadata: &mut Metadata) {
        if let Some(time) = self.modified {
            (metadata.modified, metadata.changed) = (time, metadata.changed.max(time));
        }
        metadata.accessed = self.accessed.unwrap_or(metadata.accessed);
    }

    /// Removes the times that are `stored` in the inode now. Newer ones stay.
    pub(crate) fn stored(&mut self, stored: Self) {
        if self.modified == stored.modified {
            self.modified = None;
        }
        if self.accessed == stored.accessed {
            self.accessed = None;
        }
    }
}
