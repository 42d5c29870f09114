//! What the kernel may have kept of the content of files while they were written past it.
//!
//! Before a direct write the kernel gives up its copy of those bytes. What another program reads
//! meanwhile is kept again, as it was before, and nothing would end that. So whoever serves a direct
//! write has the kernel give up the file's content once more, before the write is answered; unless
//! nothing was read into the kernel's cache since the last time.
//!
//! The kernel then waits for reads that are under way, and these for a thread of ours. So it is told
//! by a thread that does nothing else.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::notice;

/// Files share a mark, which costs a notice too many at times.
const MARKS: usize = 1024;

/// Of which files the kernel may have kept something.
pub(crate) struct Kept {
    /// At first, that it has.
    marks: Vec<AtomicBool>,
}

impl Kept {
    pub(crate) fn new() -> Self {
        Self { marks: (0..MARKS).map(|_| AtomicBool::new(true)).collect() }
    }

    fn mark(&self, nodeid: u64) -> &AtomicBool {
        &self.marks[nodeid as usize % MARKS]
    }

    /// The kernel is about to be told some of the content of `nodeid`, which is not read yet.
    pub(crate) fn keep(&self, nodeid: u64) {
        let mark = self.mark(nodeid);
        // Either the read finds what a direct write has written, or the write finds this.
        if !mark.load(Ordering::SeqCst) {
            mark.store(true, Ordering::SeqCst);
        }
    }

    /// `nodeid` was written past the kernel: whether it has to give up what it has of it. It is
    /// taken to do so.
    pub(crate) fn give_up(&self, nodeid: u64) -> bool {
        self.mark(nodeid).swap(false, Ordering::SeqCst)
    }
}

/// An answer that waits until the kernel has given up the content of a file.
pub(crate) struct Late {
    pub(crate) nodeid: u64,
    pub(crate) answer: Vec<u8>,
    /// Whence the request came.
    pub(crate) device: Arc<OwnedFd>,
}

/// Starts the thread for late answers, which ends with the last sender.
pub(crate) fn start() -> std::io::Result<Sender<Late>> {
    let (sender, receiver) = channel();
    meantime_process::thread::spawn("meantime-notices", move || answer_late(&receiver))?;
    Ok(sender)
}

fn answer_late(all: &Receiver<Late>) {
    for late in all {
        // (If the kernel does not know the inode any more, it has nothing of it.)
        let _ = rustix::io::write(
            late.device.as_fd(),
            &notice::content_changed(late.nodeid, 0, u64::MAX),
        );
        let _ = rustix::io::write(late.device.as_fd(), &late.answer);
    }
}
