//! Times of reads and writes that an inode does not have yet.
//!
//! A read notes its time in memory only, if it has to be noted at all. It goes into the inode with
//! the next change that writes data back or syncs a written file, with what the mount's thread
//! writes back, and at the end of the mount; a crash before that loses it. No read waits for the
//! journal, and no `fsync` commits for the sake of a time of reading alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mount::Mount;
use super::node::Node;
use super::shared::Inode;
use super::writable::Pages;
use crate::journal::time_now;
use crate::options::AccessTimes;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::{Metadata, Timestamp};

/// After so long a time of reading is renewed though nothing has changed, in seconds.
const DAY: i64 = 24 * 60 * 60;

/// How often it is looked whether it is that long, in ns.
const HOUR_NS: u64 = 60 * 60 * 1_000_000_000;

/// Times that the inode does not have yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// When the content was last changed.
    pub(crate) modified: Option<Timestamp>,
    /// When it was last read.
    pub(crate) accessed: Option<Timestamp>,
}

impl Times {
    /// Whether the inode has all of them.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Puts them into `inode`. The caller reads them within the change: earlier ones may be older
    /// than what another change (`utimes`, a truncation) has set since.
    pub(crate) fn put(&self, inode: &mut InodeEdit) {
        if let Some(modified) = self.modified {
            // `utimes` may have set a later time before the write, which then makes it earlier, as
            // in Linux.
            inode.set_modified(modified);
            // The mode or another field may have been changed after the write.
            inode.set_changed(modified.max(inode.changed()));
        }
        if let Some(accessed) = self.accessed {
            inode.set_accessed(accessed);
        }
    }

    /// `metadata` with them.
    pub(crate) fn shown(&self, metadata: &mut Metadata) {
        if let Some(time) = self.modified {
            (metadata.modified, metadata.changed) = (time, metadata.changed.max(time));
        }
        metadata.accessed = self.accessed.unwrap_or(metadata.accessed);
    }

    /// The inode has `stored` now: what is newer still is left.
    pub(crate) fn stored(&mut self, stored: Self) {
        if self.modified == stored.modified {
            self.modified = None;
        }
        if self.accessed == stored.accessed {
            self.accessed = None;
        }
    }
}

impl Inode {
    /// Its content is changed now. `pages` are its own.
    pub(crate) fn note_modified(&self, pages: &mut Pages) {
        pages.times.modified = Some(time_now());
        self.forget_access();
    }
}

impl Mount {
    /// The number that stands for "its time of reading was noted", for a mount with `times`; 0: it
    /// never has to be.
    pub(crate) fn first_access_epoch(write: bool, times: AccessTimes) -> u32 {
        u32::from(write && times != AccessTimes::Never)
    }

    /// Time passes: now and then it is looked again whether times of reading are old.
    pub(crate) fn renew_access_epoch(&self, now_ns: u64) {
        if self.options.access_times == AccessTimes::Relative {
            self.access_epoch.store(1 + (now_ns / HOUR_NS) as u32, Ordering::Relaxed);
        }
    }

    /// `inode` is read now, which may have to be noted.
    #[cold]
    #[inline(never)]
    fn note_access(&self, inode: &Arc<Inode>) {
        let (Some(writer), Some(writable)) = (&self.writer, &inode.writable) else { return };
        if self.access_unnoted.load(Ordering::Relaxed) {
            return;
        }
        let relative = self.options.access_times == AccessTimes::Relative;
        if relative {
            // Before it is looked at the times: who changes them from now on has it looked at
            // again.
            inode.access_noted.swap(self.access_epoch.load(Ordering::Relaxed), Ordering::SeqCst);
        }
        // (Of a file system that cannot be changed any more nothing is noted.)
        let metadata = inode.metadata(self);
        // (A large attribute's value has its checksum and its owners' count there.)
        if writer.usable().is_err() || metadata.flags & (flags::NOATIME | flags::EA_INODE) != 0 {
            return;
        }
        // Readers need not wait for room, nor fill memory: of more inodes than that no time is
        // kept.
        if self.volume.superblock().is_reserved(inode.ino) || writer.keeps_most() {
            return;
        }
        let (now, before) = (time_now(), metadata.accessed);
        // Linux: relatime_need_update.
        let is_old = before <= metadata.modified.max(metadata.changed)
            || now.seconds - before.seconds >= DAY;
        if relative && !is_old {
            return;
        }
        let mut pages = writable.pages();
        if pages.dirty.is_empty() && pages.times.is_empty() {
            pages.since_ns = self.clock.now_ns();
        }
        pages.times.accessed = Some(now);
        drop(pages);
        writer.keep(inode);
    }
}

impl Node {
    /// Its content is read now. Where that was noted already this is a comparison.
    #[inline(always)]
    pub(crate) fn accessed(&self) {
        let noted = self.inode.access_noted.load(Ordering::Relaxed);
        if noted != self.mount.access_epoch.load(Ordering::Relaxed) {
            self.mount.note_access(&self.inode);
        }
    }
}
