//! Records which file content the kernel may have cached while direct writes wrote it.
//!
//! Before a direct write the kernel drops its copy of those bytes. A concurrent read by another
//! program caches the old bytes again, and they would stay. Before the answer to a direct write we
//! therefore make the kernel drop the file's content once more, unless nothing was read into its
//! cache since the last time.
//!
//! The kernel then waits for reads in flight, which need one of our serving threads. Therefore a
//! thread that does nothing else sends the notice.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use meantime_process::lock::{Mutex, MutexGuard, Rank};

use super::lock::locked;
use super::notice;
use super::shared_memory::gate::Gate;

/// Number of parts, each with a lock of its own.
const PARTS: usize = 16;

/// The files of which the kernel may have cached something, by node number. Each has a number for
/// the last time when that happened.
pub(crate) struct Kept {
    parts: [Mutex<HashMap<u64, u64>>; PARTS],
    times: AtomicU64,
}

impl Kept {
    pub(crate) fn new() -> Self {
        let part = |_| Mutex::new(Rank::Kept, HashMap::new());
        Self { parts: std::array::from_fn(part), times: AtomicU64::new(0) }
    }

    fn part(&self, nodeid: u64) -> MutexGuard<'_, HashMap<u64, u64>> {
        locked(&self.parts[nodeid as usize % PARTS])
    }

    /// Notes that some of the content of `nodeid` is about to be sent to the kernel, or is in its
    /// cache. The lock orders this with a direct write: either the read sees the data of the write,
    /// or the write sees the note.
    pub(crate) fn keep(&self, nodeid: u64) {
        let mut part = self.part(nodeid);
        part.insert(nodeid, self.times.fetch_add(1, Ordering::Relaxed));
    }

    /// Returns whether the kernel may have cached content of `nodeid`.
    pub(crate) fn has(&self, nodeid: u64) -> bool {
        self.part(nodeid).contains_key(&nodeid)
    }

    /// Is called when the kernel has dropped the inode.
    pub(crate) fn forget(&self, nodeid: u64) {
        self.part(nodeid).remove(&nodeid);
    }

    /// Makes the kernel drop the content of `nodeid` by `notice`. Afterwards the kernel has none,
    /// unless some was sent to it meanwhile.
    fn drop_by(&self, nodeid: u64, notice: impl FnOnce()) {
        let before = self.part(nodeid).get(&nodeid).copied();
        notice();
        let mut part = self.part(nodeid);
        if before.is_some() && part.get(&nodeid).copied() == before {
            part.remove(&nodeid);
        }
    }
}

/// An answer that waits until the kernel has dropped the content of a file.
pub(crate) struct Late {
    pub(crate) nodeid: u64,
    /// The answer. It is empty if it was sent before.
    pub(crate) answer: Vec<u8>,
    /// The descriptor from which the request came.
    pub(crate) device: Arc<OwnedFd>,
    /// The file's gate, if a program takes it.
    pub(crate) enters: Option<Arc<Gate>>,
}

/// Starts the thread for late answers, which ends when the last sender is dropped. When an answer
/// is done, the thread subtracts it from `left`.
pub(crate) fn start(kept: Arc<Kept>, left: Arc<AtomicUsize>) -> std::io::Result<Sender<Late>> {
    let (sender, receiver) = channel();
    let answer_all = move || answer_late(&kept, &receiver, &left);
    meantime_process::thread::spawn("meantime-notices", answer_all)?;
    Ok(sender)
}

fn answer_late(kept: &Kept, all: &Receiver<Late>, left: &AtomicUsize) {
    for late in all {
        answer_one(kept, late);
        left.fetch_sub(1, Ordering::SeqCst);
    }
}

fn answer_one(kept: &Kept, late: Late) {
    // If the kernel no longer knows the inode, it caches nothing of it. A file that the kernel
    // already uses keeps its pages, because one may be on its way to us.
    if late.enters.as_ref().is_some_and(|gate| gate.is_closed()) {
        let _ = rustix::io::write(late.device.as_fd(), &late.answer);
        return;
    }
    let notice = notice::content_changed(late.nodeid, 0, u64::MAX);
    kept.drop_by(late.nodeid, || {
        let _ = rustix::io::write(late.device.as_fd(), &notice);
    });
    if let Some(gate) = late.enters {
        gate.emptied();
    }
    if !late.answer.is_empty() {
        let _ = rustix::io::write(late.device.as_fd(), &late.answer);
    }
}
