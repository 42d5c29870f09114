//! The connection to the owner. It is made when it is first needed, and never freed.

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use meantime_process::{descriptor, fork};
use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::closings::ClosingsView;
use meantime_shm_rpc::message::Nonce;
use meantime_shm_rpc::socket;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::thread::nanosleep;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::report::Reason;
use crate::state;

/// The maximum number of connections that a process makes. Each leaves the memory of its closings
/// behind.
const CONNECTIONS_MAX: u32 = 64;
/// The longest wait for the owner's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two checks while another thread connects, and the maximum number of checks.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };
const WAITS_MAX: u32 = 50_000;

/// A connection.
pub(crate) struct Link {
    /// The number of the connection, from 1.
    pub(crate) number: u32,
    pub(crate) nonce: Nonce,
    pub(crate) closings: ClosingsView,
    lines: Mutex<Lines>,
}

struct Lines {
    /// The lines of threads that have ended.
    free: Vec<Caller>,
    socket: Option<Socket>,
}

/// The socket, unless the program has closed it.
struct Socket {
    fd: RawFd,
    /// Its device and inode.
    identity: (u64, u64),
}

/// The connection, if there is one.
static LINK: AtomicPtr<Link> = AtomicPtr::new(null_mut());
/// Whether a thread is connecting.
static IS_CONNECTING: AtomicBool = AtomicBool::new(false);
/// The second before which no attempt is made.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// The number of attempts of this process.
static TRIED: AtomicU32 = AtomicU32::new(0);
/// The number of the last attempt. A child continues the count, so no two connections have the same
/// number.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Returns the connection, if there is one.
#[inline]
pub(crate) fn current() -> Option<&'static Link> {
    // SAFETY: null, or a box that was leaked. A child sees null.
    unsafe { LINK.load(Ordering::Acquire).as_ref() }
}

/// Returns the connection. Makes it if there is none, at most once a second. If another thread is
/// making it, waits for that, because a call that took the FUSE path would make the kernel cache
/// the file.
#[cold]
pub(crate) fn connect() -> Result<&'static Link, Reason> {
    let mut waits = 0;
    loop {
        if let Some(link) = current() {
            return Ok(link);
        }
        let now = seconds();
        let has_tried = TRIED.load(Ordering::Relaxed);
        let may_try = now >= NOT_BEFORE.load(Ordering::Relaxed) && has_tried < CONNECTIONS_MAX;
        if !IS_CONNECTING.swap(true, Ordering::Acquire) {
            // Another thread may just have made it.
            let made = match current() {
                Some(link) => Some(link),
                None if may_try => make(now),
                None => None,
            };
            IS_CONNECTING.store(false, Ordering::Release);
            return made.ok_or(Reason::Unconnected);
        }
        if waits >= WAITS_MAX {
            return Err(Reason::Unconnected);
        }
        waits += 1;
        let _ = nanosleep(&WAIT);
    }
}

fn make(now: u64) -> Option<&'static Link> {
    NOT_BEFORE.store(now + 1, Ordering::Relaxed);
    TRIED.fetch_add(1, Ordering::Relaxed);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
    let link: &'static Link = Box::leak(Box::new(Link::new(number).ok()?));
    LINK.store(std::ptr::from_ref(link).cast_mut(), Ordering::Release);
    Some(link)
}

fn seconds() -> u64 {
    clock_gettime(ClockId::Monotonic).tv_sec as u64
}

/// Is called in a child. The connection is the parent's, and so are its lines.
pub(crate) fn forget() {
    LINK.store(null_mut(), Ordering::Relaxed);
    IS_CONNECTING.store(false, Ordering::Relaxed);
    NOT_BEFORE.store(0, Ordering::Relaxed);
    TRIED.store(0, Ordering::Relaxed);
}

impl Link {
    fn new(number: u32) -> std::io::Result<Self> {
        let name = state::name().ok_or(std::io::ErrorKind::NotFound)?;
        // From now on a child is recognised.
        fork::own()?;
        let socket = descriptor::move_to_high_fd(socket::connect(name)?)?;
        let fd = socket.as_raw_fd();
        let said = set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))
            .map_err(std::io::Error::from)
            .and_then(|()| socket::receive_hello(&socket));
        let made = said.and_then(|(nonce, closings)| {
            let identity = identity(fd).ok_or(std::io::ErrorKind::NotFound)?;
            Ok((nonce, ClosingsView::new(&closings)?, identity))
        });
        match made {
            Ok((nonce, closings, identity)) => {
                let socket = Some(Socket { fd: socket.into_raw_fd(), identity });
                let lines = Mutex::new(Lines { free: Vec::new(), socket });
                Ok(Self { number, nonce, closings, lines })
            }
            // Its number is released where it is closed: `descriptor::close`.
            Err(error) => Err(error),
        }
    }

    /// Returns a line, either one that a thread left or a new one.
    #[cold]
    pub(crate) fn line(&self) -> Result<Caller, Reason> {
        let mut lines = self.lines.lock().map_err(|_| Reason::NoLine)?;
        if let Some(line) = lines.free.pop() {
            return Ok(line);
        }
        let socket = lines.socket.as_ref().ok_or(Reason::Ended)?;
        let asked = socket.with(|socket| socket::ask_line(socket).and_then(|it| Caller::new(&it)));
        match asked {
            Some(Ok(line)) => Ok(line),
            Some(Err(error)) if error.kind() == std::io::ErrorKind::QuotaExceeded => {
                Err(Reason::NoLine)
            }
            // After a time-out the answer may still come, and would be taken for the next one.
            Some(Err(_)) | None => {
                lines.close();
                drop(lines);
                self.lose();
                Err(Reason::Ended)
            }
        }
    }

    /// Keeps the line of a thread that ends for other threads.
    pub(crate) fn keep(&self, line: Caller) {
        if !line.has_ended()
            && let Ok(mut lines) = self.lines.lock()
            && lines.socket.is_some()
        {
            lines.free.push(line);
        }
    }

    /// Notes that the owner has ended the connection, or broke the protocol.
    #[cold]
    pub(crate) fn lose(&self) {
        let this = std::ptr::from_ref(self).cast_mut();
        let _ = LINK.compare_exchange(this, null_mut(), Ordering::AcqRel, Ordering::Relaxed);
        NOT_BEFORE.store(seconds() + 1, Ordering::Relaxed);
        if let Ok(mut lines) = self.lines.lock() {
            lines.close();
            lines.free.clear();
        }
    }

    /// Returns whether the owner's process has not closed its end. It is called only while a call
    /// takes long.
    pub(crate) fn is_alive(&self) -> bool {
        let Ok(lines) = self.lines.try_lock() else { return true };
        let Some(socket) = &lines.socket else { return false };
        socket.with(has_peer).unwrap_or(false)
    }
}

impl Lines {
    fn close(&mut self) {
        if let Some(socket) = self.socket.take() {
            if socket.is_ours() {
                // SAFETY: our own, and no longer used.
                return drop(unsafe { OwnedFd::from_raw_fd(socket.fd) });
            }
            descriptor::closed(socket.fd);
        }
    }
}

impl Socket {
    fn is_ours(&self) -> bool {
        identity(self.fd) == Some(self.identity)
    }

    /// Runs `body` with the socket. Returns `None` if the program has closed it (by a system call).
    fn with<R>(&self, body: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        if !self.is_ours() {
            return None;
        }
        // SAFETY: it is open: it is ours. A program that closes it in the next moment gets the
        // error of a call on a number that is not open, or that is no socket.
        Some(body(unsafe { BorrowedFd::borrow_raw(self.fd) }))
    }
}

fn identity(fd: RawFd) -> Option<(u64, u64)> {
    if fd < 0 {
        return None;
    }
    // SAFETY: only its status is asked for; a number that is not open is an error.
    let of = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    Some((of.st_dev, of.st_ino))
}

fn has_peer(socket: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
    match poll(&mut polled, Some(&now)) {
        Ok(_) => !polled[0].revents().intersects(gone),
        Err(_) => true,
    }
}
