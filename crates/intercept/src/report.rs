//! Counts calls. `MEANTIME_REPORT=1` asks how many took the shared-memory path.

use std::ffi::c_int;
use std::fmt::Write as _;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::hook::hooks;
use meantime_process::descriptor;

use crate::state;

/// The reason why a call took the FUSE path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Reason {
    /// Its descriptor is no file of the mount, or no regular one.
    Foreign,
    /// The owner does not take the descriptor, or was not asked because the file is read whole.
    Refused,
    /// The kernel caches the file.
    Cached,
    /// The kernel caches the file, because that is faster. Data near those of the call will
    /// probably be read as well.
    Left,
    /// The owner did not know the handle in two attempts.
    Stale,
    /// The descriptor was changed while it was examined, or it has not been read or written yet.
    Changing,
    /// There is no connection to the owner.
    Unconnected,
    /// The owner has no more lines.
    NoLine,
    /// The owner has ended the connection.
    Ended,
    /// The thread was already in a call (of a signal handler), or is ending.
    Busy,
    /// The process is a child by vfork or clone.
    Child,
    /// Files are limited in size (`RLIMIT_FSIZE`).
    Limited,
    /// Its arguments are for the kernel: an error, no bytes, flags, or a large append.
    Arguments,
}

const REASONS: [&str; 13] = [
    "not of the mount, or no regular file",
    "the file is left to the kernel",
    "the kernel caches the file",
    "the kernel's cache is faster for the file",
    "the owner does not know the file",
    "the descriptor was not known yet, or being changed",
    "no connection",
    "no line",
    "the owner ended the connection",
    "in a signal handler, or an ending thread",
    "in a child by vfork or clone",
    "RLIMIT_FSIZE",
    "arguments for the kernel",
];

static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);
static SHORT: AtomicU64 = AtomicU64::new(0);
static LONG: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];

/// The descriptor to which the report is printed.
static STDERR: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);

/// Begins to count, if the program is asked to.
pub(crate) fn begin() {
    // SAFETY: a name that ends; nothing changes the environment before the program begins.
    let asked = unsafe { libc::getenv(c"MEANTIME_REPORT".as_ptr()) };
    // SAFETY: null, or a string that ends.
    if !asked.is_null() && unsafe { std::ffi::CStr::from_ptr(asked) } == c"1" {
        IS_ASKED_FOR.store(true, Ordering::Relaxed);
        keep_stderr();
        // SAFETY: a function that stays, without arguments and results.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Counts a call.
#[inline]
pub(crate) fn count<R>(result: &Result<R, Reason>) {
    if IS_ASKED_FOR.load(Ordering::Relaxed) {
        let counter = match result {
            Ok(_) => &SHORT,
            Err(reason) => &LONG[*reason as usize],
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps a copy of standard error, which programs close before they end.
fn keep_stderr() {
    let copy = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0);
    let copy = copy.and_then(descriptor::move_to_high_fd).map(OwnedFd::into_raw_fd);
    STDERR.store(copy.unwrap_or(libc::STDERR_FILENO), Ordering::Relaxed);
}

/// Is called in a child, when the parent's descriptors are closed. The child's calls are counted
/// from 0.
pub(crate) fn clear() {
    if IS_ASKED_FOR.load(Ordering::Relaxed) {
        keep_stderr();
    }
    for counter in LONG.iter().chain([&SHORT]) {
        counter.store(0, Ordering::Relaxed);
    }
}

/// Prints how many calls took which path, if that was asked for and the program has used the mount.
pub(crate) extern "C" fn at_exit() {
    // The report is printed once.
    if !state::is_owner() || !IS_ASKED_FOR.swap(false, Ordering::Relaxed) {
        return;
    }
    let _ = std::panic::catch_unwind(|| {
        LONG[Reason::Foreign as usize].store(0, Ordering::Relaxed);
        let counts = LONG.each_ref().map(|count| count.load(Ordering::Relaxed));
        let (short, long) = (SHORT.load(Ordering::Relaxed), counts.iter().sum::<u64>());
        // Calls on a descriptor before anything was known of it do not count.
        if short + long == counts[Reason::Changing as usize] {
            return;
        }
        let pid = std::process::id();
        let mut text = format!("meantime: process {pid}: {short} calls short, {long} long\n");
        for (reason, count) in REASONS.iter().zip(counts).filter(|(_, count)| *count > 0) {
            let _ = writeln!(text, "meantime: process {pid}:   {count} long: {reason}");
        }
        // SAFETY: a number that is not open is an error.
        let stderr = unsafe { std::os::fd::BorrowedFd::borrow_raw(STDERR.load(Ordering::Relaxed)) };
        let _ = rustix::io::write(stderr, text.as_bytes());
    });
}

hooks! {
    "C" fn (_exit _Exit)(status: c_int) -> () = { |real|
        at_exit();
        // SAFETY: it has no requirements.
        unsafe { real()(status) }
    }
}
