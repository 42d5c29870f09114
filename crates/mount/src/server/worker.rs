//! The threads that serve a mount: each reads a request, does it, and answers it.
//!
//! There is one for each CPU, with a descriptor of its own (`FUSE_DEV_IOC_CLONE`). What may take
//! long (an `fsync`, a copy) has another one started if no thread is left to read; so nobody's
//! cached read waits for somebody else's commit.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use meantime_posix::Errno;
use meantime_process::lock::{Mutex, Rank};
use rustix::io::Errno as OsErrno;

use super::Server;
use super::answer::{Answer, Room};
use super::kept::{self, Late};
use super::notice;
use crate::fuse::wire::{InHeader, WriteIn};
use crate::fuse::{Opcode, Request};
use crate::session::{self, PIECE_BYTES};

/// What comes before the data of a WRITE: so those begin a page.
const BEFORE_DATA: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// Room for a request beside a WRITE's data: two names of 4 KiB, and then some.
const REQUEST_BYTES: usize = PIECE_BYTES + (16 << 10);
/// As many threads are started while others wait, where there are not as many CPUs: fewer than a
/// file system has channels, as a rule, so that each has one.
const THREADS_MAX: usize = 6;

/// Before a read is tried again that failed for no reason of ours.
const PAUSE: Duration = Duration::from_millis(100);

/// A mount that is served.
pub(crate) struct Workers {
    server: Server,
    device: OwnedFd,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads that read, or are about to.
    idle: AtomicUsize,
    all: AtomicUsize,
    most: usize,
    /// For answers that wait for a notice.
    late: Sender<Late>,
    ended: Ended,
}

/// Whether the kernel has ended the mount: known by a descriptor that can be polled.
struct Ended {
    is: AtomicBool,
    event: OwnedFd,
}

impl Workers {
    /// Serves `server` by requests of `device`, of which the first was answered; by `threads`
    /// threads at first.
    pub(crate) fn start(server: Server, device: OwnedFd, threads: usize) -> io::Result<Arc<Self>> {
        use rustix::event::{EventfdFlags, eventfd};
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let workers = Arc::new(Self {
            server,
            device,
            threads: Mutex::new(Rank::Served, Vec::new()),
            idle: AtomicUsize::new(0),
            all: AtomicUsize::new(0),
            most: threads.max(THREADS_MAX),
            late: kept::start()?,
            ended: Ended { is: AtomicBool::new(false), event },
        });
        for _ in 0..threads {
            workers.add_thread()?;
        }
        Ok(workers)
    }

    /// Starts one more thread.
    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        // A kernel that cannot has the threads share one queue.
        let device = session::clone_device(&self.device)
            .or_else(|_| rustix::io::fcntl_dupfd_cloexec(&self.device, 0))?;
        let workers = Arc::clone(self);
        self.all.fetch_add(1, Ordering::Relaxed);
        self.idle.fetch_add(1, Ordering::Relaxed);
        let started = meantime_process::thread::spawn("meantime-mount", move || {
            workers.work(&Arc::new(device))
        });
        match started {
            Ok(thread) => {
                self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
                Ok(())
            }
            Err(error) => {
                self.all.fetch_sub(1, Ordering::Relaxed);
                self.idle.fetch_sub(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// What a thread does until the mount ends.
    fn work(self: &Arc<Self>, device: &Arc<OwnedFd>) {
        let mut room = Room::new(BEFORE_DATA, REQUEST_BYTES);
        let mut answer = Answer::new(PIECE_BYTES);
        loop {
            let bytes = room.all();
            match rustix::io::read(device.as_fd(), &mut *bytes) {
                Ok(0) => break,
                Ok(len) => self.handle(&bytes[..len], &mut answer, device),
                // It was taken back (ENOENT), or a signal came.
                Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT) => {}
                // The end of the mount (ENODEV), or of the connection.
                Err(OsErrno::NODEV | OsErrno::CONNABORTED) => break,
                Err(error) => {
                    // No memory, perhaps: those who wait wait on.
                    tracing::error!(%error, "a request could not be read from /dev/fuse");
                    std::thread::sleep(PAUSE);
                }
            }
        }
        self.ended.note();
    }

    fn handle(self: &Arc<Self>, bytes: &[u8], answer: &mut Answer, device: &Arc<OwnedFd>) {
        let Ok(mut request) = Request::new(bytes) else {
            // Whom to answer is not known.
            return tracing::error!(len = bytes.len(), "a request of the kernel is malformed");
        };
        let unique = request.header.unique;
        let opcode = Opcode::of(request.header.opcode);
        let left = self.idle.fetch_sub(1, Ordering::Relaxed) - 1;
        if left == 0
            && opcode.is_some_and(takes_long)
            && self.all.load(Ordering::Relaxed) < self.most
            && let Err(error) = self.add_thread()
        {
            tracing::warn!(%error, "no further thread for a mount");
        }
        answer.clear();
        // One request that goes wrong is no reason to end a mount that others use.
        let served = catch_unwind(AssertUnwindSafe(|| self.server.serve(&mut request, answer)));
        let done = served.unwrap_or(Err(Errno(libc::EIO)));
        if let Some(nodeid) = answer.stale.take() {
            // Before whoever asked goes on. (The kernel may not know the inode any more.)
            let _ = rustix::io::write(device.as_fd(), &notice::attributes_changed(nodeid));
        }
        if let Some(nodeid) = answer.outdated.take() {
            let answer = answer.finish(unique, done).to_vec();
            // (Its thread ends only with us.)
            let _ = self.late.send(Late { nodeid, answer, device: Arc::clone(device) });
        } else if opcode.is_none_or(Opcode::is_answered) {
            // (If nobody waits any more, the mount has ended.)
            let _ = rustix::io::write(device.as_fd(), answer.finish(unique, done));
        }
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the kernel `notice`. What it does not know, or not any more, it need not be told.
    pub(crate) fn notify(&self, notice: &[u8]) -> io::Result<()> {
        match rustix::io::write(&self.device, notice) {
            Ok(_) | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the mount has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is.load(Ordering::Acquire)
    }

    /// Can be read from once it has.
    pub(crate) fn end_event(&self) -> &OwnedFd {
        &self.ended.event
    }

    /// Waits until all threads have ended.
    pub(crate) fn join(&self) {
        loop {
            let next = self.threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match next {
                // (A thread adds others only before it ends itself.)
                Some(thread) => drop(thread.join()),
                None => return,
            }
        }
    }
}

impl Ended {
    fn note(&self) {
        // Whoever sees it has seen all that was done.
        self.is.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// Whether a request may wait for more than a single read of the device.
fn takes_long(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Fsync
            | Opcode::FsyncDir
            | Opcode::SyncFs
            | Opcode::CopyFileRange
            | Opcode::Fallocate
            | Opcode::Ioctl
            | Opcode::Write
    )
}
