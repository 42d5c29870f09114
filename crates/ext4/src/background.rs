//! Background work of a mount for writing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::error::Result;
use super::file::write::Writeback;
use super::inode::Mount;
use super::inode::shared::Inode;
use super::worker::{Stopping, Worker};

/// How often the thread checks for work in a commit interval.
const LOOKS: u64 = 5;

/// Starts a thread that writes back for `mount`. Returns `None` (logged) if no thread can be
/// started; writers then do its work.
pub(super) fn start(mount: &Arc<Mount>) -> Option<Worker> {
    let mount = Arc::downgrade(mount);
    match Worker::start("meantime-ext4", move |stopping| run(stopping, &mount)) {
        Ok(worker) => Some(worker),
        Err(error) => {
            tracing::warn!(%error, "no thread for writing back");
            None
        }
    }
}

fn run(stopping: &Stopping, mount: &Weak<Mount>) {
    let Some(interval_ms) = mount.upgrade().map(|mount| mount.options.commit_interval_ms.max(1))
    else {
        return;
    };
    while !stopping.sleep(Duration::from_millis(interval_ms.div_ceil(LOOKS))) {
        let Some(mount) = mount.upgrade() else { return };
        match step(&mount) {
            Ok(_) => {}
            // The next sync returns the error.
            Err(error) => tracing::warn!(%error, "writing back"),
        }
    }
}

/// Does one round of the thread's work: writes back old dirty pages, or all if many are dirty;
/// commits an old transaction; empties a journal that is getting full. Returns whether there is
/// more to do.
///
/// # Errors
/// The first error; the remaining steps were done.
pub(super) fn step(mount: &Mount) -> Result<bool> {
    let Some(rw_mount) = &mount.rw_mount else { return Ok(false) };
    rw_mount.usable()?;
    let now_ns = mount.clock.now_ns();
    let interval_ns = mount.options.commit_interval_ms.saturating_mul(1_000_000);
    mount.accesses.renew_epoch(now_ns);
    let many = rw_mount.dirty_pages() > rw_mount.dirty_most / 2;
    let is_old = |inode: &Arc<Inode>| {
        let since_ns = inode.writable.as_ref().map(|writable| writable.pages().since_ns);
        since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= interval_ns)
    };
    let mut due = rw_mount.kept();
    due.retain(|inode| many || is_old(inode));
    let mut failed = Writeback::of(mount)?.write_back_many(&due);
    if rw_mount.commit_is_due(now_ns, interval_ns) {
        failed = failed.and(rw_mount.commit_whole(rw_mount.last_sequence()));
    }
    failed = failed.and(rw_mount.journal.balance());
    failed.map(|()| !rw_mount.kept().is_empty())
}
