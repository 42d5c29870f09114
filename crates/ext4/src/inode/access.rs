//! Notes the times of reads and writes.
//!
//! A read notes its access time, if it has to be updated at all, in memory only. The time is stored
//! with the next change that writes back data or syncs a written file, by the writeback of the
//! mount's thread, and at the end of the mount. A crash before that loses it. No read waits for the
//! journal, and no `fsync` commits only for an access time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::shared::Inode;
use super::writable::Pages;
use super::writable_mount::WritableMount;
use crate::io::DeviceSource;
use crate::journal::time_now;
use crate::options::AccessTimes;
use meantime_ext4_format::Volume;
use meantime_ext4_format::inode::flags;
use meantime_hw::Clock;

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

/// Which reads have to note their time.
pub(crate) struct Accesses {
    times: AccessTimes,
    /// Value of [`Inode::access_noted`] for inodes whose access time needs no check; 0: access
    /// times are never updated.
    epoch: AtomicU32,
    /// Whether access times are left alone for now.
    unnoted: AtomicBool,
}

impl Accesses {
    /// Returns those of a mount with `times`.
    pub(crate) fn new(write: bool, times: AccessTimes) -> Self {
        let epoch = u32::from(write && times != AccessTimes::Never);
        Self { times, epoch: AtomicU32::new(epoch), unnoted: AtomicBool::new(false) }
    }

    /// Sets whether access times are noted from now on, or left alone.
    pub(crate) fn set_noted(&self, is_on: bool) {
        self.unnoted.store(!is_on, Ordering::Relaxed);
    }

    /// Renews the epoch every hour, so that the age of access times is checked again.
    pub(crate) fn renew_epoch(&self, now_ns: u64) {
        if self.times == AccessTimes::Relative {
            self.epoch.store(1 + (now_ns / HOUR_NS) as u32, Ordering::Relaxed);
        }
    }

    /// Returns whether a read of `inode` need not be noted.
    #[inline(always)]
    pub(super) fn are_noted(&self, inode: &Inode) -> bool {
        inode.access_noted.load(Ordering::Relaxed) == self.epoch.load(Ordering::Relaxed)
    }

    /// Notes a read of `inode` of `volume`, if its access time has to be updated.
    pub(super) fn note(
        &self,
        inode: &Arc<Inode>,
        rw_mount: &WritableMount,
        volume: &Volume<DeviceSource>,
        clock: &Clock,
    ) {
        let Some(writable) = &inode.writable else { return };
        if self.unnoted.load(Ordering::Relaxed) {
            return;
        }
        let relative = self.times == AccessTimes::Relative;
        if relative {
            // Set before the times are read: a thread that changes them later resets it.
            inode.access_noted.swap(self.epoch.load(Ordering::Relaxed), Ordering::SeqCst);
        }
        // (On a file system that cannot be changed any more, no time is noted.)
        let metadata = inode.metadata(volume);
        // (The inode of a large attribute value keeps its checksum and reference count in the
        // times.)
        if rw_mount.usable().is_err() || metadata.flags & (flags::NOATIME | flags::EA_INODE) != 0 {
            return;
        }
        // Access times must not fill the memory or make readers wait: beyond the limit they are
        // dropped.
        if volume.superblock().is_reserved(inode.ino) || rw_mount.keeps_most() {
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
            pages.since_ns = clock.now_ns();
        }
        pages.times.accessed = Some(now);
        drop(pages);
        rw_mount.keep(inode);
    }
}
