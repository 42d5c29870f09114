//! Which file content the kernel may have cached while it was written by direct writes.
//!
//! Before a direct write the kernel drops its copy of those bytes. A concurrent read by another
//! program caches the old bytes again, and they would stay. So before the answer to a direct write
//! we make the kernel drop the file's content once more, unless nothing was read into its cache
//! since the last time.
//!
//! The kernel then waits for reads in flight, which need one of our serving threads. So a thread
//! that does nothing else sends the notice.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::notice;

/// Number of marks. Files share a mark, which causes a superfluous notice at times.
const MARKS: usize = 1024;

/// The files of which the kernel may have cached something.
pub(crate) struct Kept {
    /// Set if it may have; all are set at first.
    marks: Vec<AtomicBool>,
}

impl Kept {
    pub(crate) fn new() -> Self {
        Self { marks: (0..MARKS).map(|_| AtomicBool::new(true)).collect() }
    }

    fn mark(&self, nodeid: u64) -> &AtomicBool {
        &self.marks[nodeid as usize % MARKS]
    }

    /// Notes that some of the content of `nodeid` is about to be read and sent to the kernel.
    pub(crate) fn keep(&self, nodeid: u64) {
        let mark = self.mark(nodeid);
        // Either the read sees the direct write's data, or the write sees this mark.
        if !mark.load(Ordering::SeqCst) {
            mark.store(true, Ordering::SeqCst);
        }
    }

    /// Called after a direct write to `nodeid`. Returns whether the kernel has to drop its cached
    /// content, and clears the mark.
    pub(crate) fn give_up(&self, nodeid: u64) -> bool {
        self.mark(nodeid).swap(false, Ordering::SeqCst)
    }
}

/// An answer that waits until the kernel has dropped the content of a file.
pub(crate) struct Late {
    pub(crate) nodeid: u64,
    pub(crate) answer: Vec<u8>,
    /// The descriptor from which the request came.
    pub(crate) device: Arc<OwnedFd>,
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
        let _ = rustix::io::write(late.device.as_fd(), &late.answer);
    }
}
