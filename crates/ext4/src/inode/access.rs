//! Notes the times of reads and writes.
//!
//! A read notes its access time, if it has to be updated at all, in memory only. The time is stored
//! with the next change that writes back data or syncs a written file, by the writeback of the
//! mount's thread, and at the end of the mount. A crash before that loses it. No read waits for the
//! journal, and no `fsync` commits only for an access time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mount::Mount;
use super::node::Node;
use super::shared::Inode;
use super::writable::Pages;
use crate::journal::time_now;
use crate::options::AccessTimes;
use meantime_ext4_format::inode::flags;

/// Age in seconds at which an access time is updated though nothing has changed.
const DAY: i64 = 24 * 60 * 60;

/// Interval of the checks for that age, in ns.
const HOUR_NS: u64 = 60 * 60 * 1_000_000_000;

impl Inode {
    /// Notes that the content changes now. `pages` are those of this inode.
    pub(crate) fn note_modified(&self, pages: &mut Pages) {
        pages.times.modified = Some(time_now());
        self.forget_access();
    }
}

impl Mount {
    /// Returns the first access epoch of a mount with `times`; 0: access times are never updated.
    pub(crate) fn first_access_epoch(write: bool, times: AccessTimes) -> u32 {
        u32::from(write && times != AccessTimes::Never)
    }

    /// Renews the access epoch every hour, so that the age of access times is checked again.
    pub(crate) fn renew_access_epoch(&self, now_ns: u64) {
        if self.options.access_times == AccessTimes::Relative {
            self.access_epoch.store(1 + (now_ns / HOUR_NS) as u32, Ordering::Relaxed);
        }
    }

    /// Notes a read of `inode`, if its access time has to be updated.
    #[cold]
    #[inline(never)]
    fn note_access(&self, inode: &Arc<Inode>) {
        let (Some(writer), Some(writable)) = (&self.writer, &inode.writable) else { return };
        if self.access_unnoted.load(Ordering::Relaxed) {
            return;
        }
        let relative = self.options.access_times == AccessTimes::Relative;
        if relative {
            // Set before the times are read: a thread that changes them later resets it.
            inode.access_noted.swap(self.access_epoch.load(Ordering::Relaxed), Ordering::SeqCst);
        }
        // (On a file system that cannot be changed any more, no time is noted.)
        let metadata = inode.metadata(&self.volume);
        // (The inode of a large attribute value keeps its checksum and reference count in the
        // times.)
        if writer.usable().is_err() || metadata.flags & (flags::NOATIME | flags::EA_INODE) != 0 {
            return;
        }
        // Access times must not fill the memory or make readers wait: beyond the limit they are
        // dropped.
        if self.volume.superblock().is_reserved(inode.ino) || writer.keeps_most() {
            return;
        }
        let (now, before) = (time_now(), metadata.accessed);
        // As `relatime_need_update` in Linux.
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
    /// Notes a read of the content. If it was noted already, this is one comparison.
    #[inline(always)]
    pub(crate) fn accessed(&self) {
        let noted = self.inode.access_noted.load(Ordering::Relaxed);
        if noted != self.mount.access_epoch.load(Ordering::Relaxed) {
            self.mount.note_access(&self.inode);
        }
    }
}
