//! Which file content the kernel may have cached while it was written by direct writes.
//!
//! Before a direct write the kernel drops its copy of those bytes. A concurrent read by another
//! program caches the old bytes again, and they would stay. So before the answer to a direct write
//! we make the kernel drop the file's content once more, unless nothing was read into its cache
//! since the last time.
//!
//! The kernel then waits for reads in flight, which need one of our serving threads. So a thread
//! that does nothing else sends the notice.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};

use meantime_process::lock::{Mutex, MutexGuard, Rank};

use super::notice;
use super::short::gate::Gate;

/// Number of parts, each with a lock of its own.
const PARTS: usize = 16;

/// The files of which the kernel may have cached something, by node number.
pub(crate) struct Kept {
    parts: [Mutex<HashSet<u64>>; PARTS],
}

impl Kept {
    pub(crate) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| Mutex::new(Rank::Served, HashSet::new())) }
    }

    fn part(&self, nodeid: u64) -> MutexGuard<'_, HashSet<u64>> {
        let part = &self.parts[nodeid as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that some of the content of `nodeid` is about to be sent to the kernel, or is in its
    /// cache. The lock has an order with that of a direct write: either the read sees the data of
    /// the write, or the write sees the note.
    pub(crate) fn keep(&self, nodeid: u64) {
        self.part(nodeid).insert(nodeid);
    }

    /// Returns whether the kernel may have cached content of `nodeid`.
    pub(crate) fn has(&self, nodeid: u64) -> bool {
        self.part(nodeid).contains(&nodeid)
    }

    /// Called after a direct write to `nodeid`, and when the kernel has dropped the inode. Returns
    /// whether the kernel has to drop its cached content, and forgets that.
    pub(crate) fn give_up(&self, nodeid: u64) -> bool {
        self.part(nodeid).remove(&nodeid)
    }
}

/// An answer that waits until the kernel has dropped the content of a file.
pub(crate) struct Late {
    pub(crate) nodeid: u64,
    pub(crate) answer: Vec<u8>,
    /// The descriptor from which the request came.
    pub(crate) device: Arc<OwnedFd>,
    /// The file's gate, if a program takes it.
    pub(crate) enters: Option<Arc<Gate>>,
}

/// Starts the thread for late answers. It ends when the last sender is dropped.
pub(crate) fn start() -> std::io::Result<Sender<Late>> {
    let (sender, receiver) = channel();
    meantime_process::thread::spawn("meantime-notices", move || answer_late(&receiver))?;
    Ok(sender)
}

fn answer_late(all: &Receiver<Late>) {
    for late in all {
        // (If the kernel no longer knows the inode, it caches nothing of it.)
        let _ = rustix::io::write(
            late.device.as_fd(),
            &notice::content_changed(late.nodeid, 0, u64::MAX),
        );
        if let Some(gate) = late.enters {
            gate.emptied();
        }
        let _ = rustix::io::write(late.device.as_fd(), &late.answer);
    }
}
