//! The threads that serve a mount. Each reads a request, executes it, and answers it.
//!
//! There is one for each CPU, with a descriptor of its own (`FUSE_DEV_IOC_CLONE`). A request that
//! may take long (an `fsync`, a copy) starts another thread if none is left to read, so that a
//! cached read does not wait for another program's commit.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use meantime_ext4::{Caller, Errno};
use meantime_process::lock::{Mutex, Rank};
use rustix::io::Errno as OsErrno;

use super::Server;
use super::answer::{Answer, Room};
use super::kept::{self, Late};
use super::lock::locked;
use super::notice;
use super::throttled::{PAUSE, ThrottledMessage};
use crate::fuse::wire::{InHeader, WriteIn};
use crate::fuse::{Opcode, Request};
use crate::session::{self, PIECE_BYTES};

/// The number of bytes before the data of a WRITE request. In the buffer, the data begins on a page
/// boundary.
const BEFORE_DATA: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// The size of a buffer for a request: a WRITE's data, or two names of 4 KiB, with room to spare.
const REQUEST_BYTES: usize = PIECE_BYTES + (16 << 10);
/// Limit of threads where there are fewer CPUs. It is below a file system's usual number of
/// channels, so that each thread has one.
const THREADS_MAX: usize = 6;

/// The longest time that the end of a mount waits for requests that are being executed.
const STOP_TIME: Duration = Duration::from_secs(60);
/// The time between two checks at the end of a mount.
const LOOK: Duration = Duration::from_millis(1);

/// A mount being served.
pub(crate) struct Workers {
    server: Arc<Server>,
    device: OwnedFd,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The number of threads that execute a request. The others read one, or are about to.
    busy: AtomicUsize,
    all: AtomicUsize,
    most: usize,
    /// Whether no further request is executed: each is answered with ENOTCONN.
    is_stopping: AtomicBool,
    /// Whether no further request is read.
    is_stopped: AtomicBool,
    /// The channel to the thread that sends answers after a notice, and the number of answers to be
    /// sent.
    late: Sender<Late>,
    late_left: Arc<AtomicUsize>,
    ended: Ended,
    /// Messages that programs, or a lack of memory, can cause in a loop.
    unread: ThrottledMessage,
    malformed: ThrottledMessage,
    no_thread: ThrottledMessage,
}

/// Whether the kernel has ended the mount, with a descriptor that can be polled.
struct Ended {
    is: AtomicBool,
    event: OwnedFd,
}

impl Workers {
    /// Serves requests of `device`, after INIT, by `server`, beginning with `threads` threads.
    pub(crate) fn start(server: Server, device: OwnedFd, threads: usize) -> io::Result<Arc<Self>> {
        use rustix::event::{EventfdFlags, eventfd};
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let server = Arc::new(server);
        let late_left = Arc::default();
        let workers = Arc::new(Self {
            server: Arc::clone(&server),
            device,
            threads: Mutex::new(Rank::Served, Vec::new()),
            busy: AtomicUsize::new(0),
            all: AtomicUsize::new(0),
            most: threads.max(THREADS_MAX),
            is_stopping: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            late: kept::start(Arc::clone(&server.kept), Arc::clone(&late_left))?,
            late_left,
            ended: Ended { is: AtomicBool::new(false), event },
            unread: ThrottledMessage::new(),
            malformed: ThrottledMessage::new(),
            no_thread: ThrottledMessage::new(),
        });
        for _ in 0..threads {
            workers.add_thread()?;
        }
        if let Some(shm) = &server.shm
            && let Err(error) = shm.start(&server)
        {
            tracing::warn!(%error, "no program can take the shared-memory path");
        }
        Ok(workers)
    }

    /// Starts one more thread.
    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        // Without FUSE_DEV_IOC_CLONE the threads share one queue.
        let device = session::clone_device(&self.device)
            .or_else(|_| rustix::io::fcntl_dupfd_cloexec(&self.device, 0))?;
        let workers = Arc::clone(self);
        self.all.fetch_add(1, Ordering::Relaxed);
        let started = meantime_process::thread::spawn("meantime-mount", move || {
            workers.work(&Arc::new(device))
        });
        match started {
            Ok(thread) => {
                locked(&self.threads).push(thread);
                Ok(())
            }
            Err(error) => {
                self.all.fetch_sub(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Serves requests until the mount ends. This is a thread's main function.
    fn work(self: &Arc<Self>, device: &Arc<OwnedFd>) {
        let mut room = Room::new(BEFORE_DATA, REQUEST_BYTES);
        let mut answer = Answer::new(PIECE_BYTES);
        // This is for `stop`: another mount namespace may have the mount when none here has it.
        meantime_process::thread::allow_interrupts();
        while !self.is_stopped.load(Ordering::Acquire) {
            let bytes = room.all();
            match rustix::io::read(device.as_fd(), &mut *bytes) {
                Ok(0) => break,
                Ok(len) => self.handle(&bytes[..len], &mut answer, device),
                // The request was interrupted (ENOENT), or a signal came.
                Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT) => {}
                // The mount (ENODEV) or the connection has ended.
                Err(OsErrno::NODEV | OsErrno::CONNABORTED) => break,
                Err(error) => {
                    // Memory may be exhausted. The callers continue to wait.
                    self.unread.log_if_due(|times| {
                        tracing::error!(%error, times, "a request could not be read from /dev/fuse");
                    });
                    std::thread::sleep(PAUSE);
                }
            }
        }
        self.ended.note();
    }

    fn handle(self: &Arc<Self>, bytes: &[u8], answer: &mut Answer, device: &Arc<OwnedFd>) {
        let Ok(mut request) = Request::new(bytes) else {
            // The request's number is unknown, so it cannot be answered.
            let len = bytes.len();
            return self.malformed.log_if_due(|times| {
                tracing::error!(len, times, "a request of the kernel is malformed");
            });
        };
        let unique = request.header.unique;
        let opcode = Opcode::of(request.header.opcode);
        // SeqCst, as in `stop`: either `stop` sees that this thread is busy, or this thread sees
        // that the mount is stopping.
        let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        if self.is_stopping.load(Ordering::SeqCst) {
            self.busy.fetch_sub(1, Ordering::SeqCst);
            if opcode.is_none_or(Opcode::is_answered) {
                answer.clear();
                let gone = answer.finish(unique, Err(Errno(libc::ENOTCONN)));
                let _ = rustix::io::write(device.as_fd(), gone);
            }
            return;
        }
        if busy >= self.all.load(Ordering::Relaxed)
            && opcode.is_some_and(takes_long)
            && self.all.load(Ordering::Relaxed) < self.most
            && let Err(error) = self.add_thread()
        {
            self.no_thread.log_if_due(|times| {
                tracing::warn!(%error, times, "no further thread for a mount");
            });
        }
        answer.clear();
        // A panic in one request must not end a mount that others use.
        let begun = Instant::now();
        let _waits = self.server.fs.begin_call();
        let _acting = Caller { uid: request.header.uid, gid: request.header.gid }.act();
        let served = catch_unwind(AssertUnwindSafe(|| self.server.serve(&mut request, answer)));
        let done = served.unwrap_or(Err(Errno(libc::EIO)));
        self.server.counts.add(opcode, done.is_ok(), begun.elapsed());
        if let Some(nodeid) = answer.stale.take() {
            // The notice is sent before the caller continues. The kernel may have forgotten the
            // inode.
            let _ = rustix::io::write(device.as_fd(), &notice::attributes_changed(nodeid));
        }
        if let Some(nodeid) = answer.outdated.take() {
            let enters = answer.enters.take();
            let answer = answer.finish(unique, done).to_vec();
            self.send_late(Late { nodeid, answer, device: Arc::clone(device), enters });
        } else if opcode.is_none_or(Opcode::is_answered) {
            // An error means that the mount has ended.
            let _ = rustix::io::write(device.as_fd(), answer.finish(unique, done));
        }
        if let Some(nodeid) = answer.misplaced.take() {
            let (answer, device) = (Vec::new(), Arc::clone(device));
            self.send_late(Late { nodeid, answer, device, enters: None });
        }
        // Release, by SeqCst: a thread that sees this one idle also sees what it has done.
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    fn send_late(&self, late: Late) {
        self.late_left.fetch_add(1, Ordering::SeqCst);
        // The receiving thread ends only after all senders.
        let _ = self.late.send(late);
    }

    /// Ends the mount, also if other namespaces have it. Requests that are being executed are
    /// answered, and all later ones get ENOTCONN. Then the threads end, and with the last
    /// descriptor of /dev/fuse the mount ends.
    ///
    /// Users of the mount are answered until then, because notices wait for pages that they have
    /// asked for.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        if let Some(shm) = &self.server.shm {
            shm.end();
        }
        // Each request ends by itself. The time limit is for a device with an unknown fault.
        let deadline = Instant::now() + STOP_TIME;
        let is_at_work =
            || self.busy.load(Ordering::SeqCst) > 0 || self.late_left.load(Ordering::SeqCst) > 0;
        while is_at_work() && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        self.is_stopped.store(true, Ordering::Release);
        while Instant::now() < deadline {
            let threads = locked(&self.threads);
            let left: Vec<_> = threads.iter().filter(|thread| !thread.is_finished()).collect();
            if left.is_empty() {
                break;
            }
            // This is repeated, because a thread may be about to read just now.
            left.into_iter().for_each(meantime_process::thread::interrupt);
            drop(threads);
            std::thread::sleep(LOOK);
        }
    }

    /// Sends `notice` to the kernel. An inode or name that it does not cache is no error.
    pub(crate) fn notify(&self, notice: &[u8]) -> io::Result<()> {
        match rustix::io::write(&self.device, notice) {
            Ok(_) | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the mount has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is.load(Ordering::Acquire)
    }

    /// Returns a descriptor that is readable once the mount has ended.
    pub(crate) fn end_event(&self) -> &OwnedFd {
        &self.ended.event
    }

    /// Waits until all threads have ended.
    pub(crate) fn join(&self) {
        loop {
            let next = locked(&self.threads).pop();
            match next {
                // A thread starts others only before it ends.
                Some(thread) => drop(thread.join()),
                None => break,
            }
        }
        if let Some(shm) = &self.server.shm {
            shm.end();
        }
        self.unread.end(|times| tracing::error!(times, "requests could not be read"));
        self.malformed.end(|times| tracing::error!(times, "requests were malformed"));
        self.no_thread.end(|times| tracing::warn!(times, "there was no further thread"));
    }
}

impl Ended {
    fn note(&self) {
        // Release: a thread that sees the flag sees everything done before it.
        self.is.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// Returns whether a request may wait for more than a single read of the device.
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
