//! The interposition library of the shared-memory path. It defines functions of the C library's
//! names, for programs that `meantime run` starts (LD_PRELOAD).
//!
//! # What it is for
//! Reads, writes and fsyncs of files of the mount go to its owner's process by shared memory
//! ([`meantime_shm_rpc`]), without the kernel. The descriptors are the kernel's, as FUSE gave them.
//! All other calls take the *FUSE path*, to the next definition of the function, on the same
//! descriptor. `MEANTIME_SHARED_MEMORY=DEVICE:NAME`, which `meantime run` sets, names the mount's
//! `st_dev` and the owner's socket. Without it each function only calls the next definition.
//!
//! # What it promises
//! - A call goes to the file to which its descriptor refers when the call begins. The information
//!   about a descriptor is checked against the owner's count of closings before each call, because
//!   the kernel reports each close, also those that this library does not see. But the kernel frees
//!   the number a moment earlier. Therefore functions that close or open a descriptor also mark its
//!   number (close, fclose, open, dup2, syscall(2) and so on).
//! - The kernel has the position of a descriptor, so all that share the open file (dup, fork, exec,
//!   SCM_RIGHTS, stdio) share the position. A call reserves its bytes by one `lseek`, and
//!   unreserves those that it did not move.
//! - The library runs inside the host process. It has no threads, and neither memory nor a
//!   descriptor until the first call on a file of the mount. A panic ends at the boundary as EIO,
//!   and nothing is printed. The program can neither close nor replace the library's socket.
//! - Errno stays unchanged unless a call fails. Calls are cancellation points only at their
//!   beginning. A call by a signal handler that has interrupted another one takes the FUSE path. A
//!   handler may leave a call (`siglongjmp`). The thread's next call then waits until the owner has
//!   executed it, and takes the shared-memory path.
//! - A call for a known file has no lock, no allocation and no system call, as long as the owner is
//!   awake. The exceptions are `lseek` (read, write), `fcntl` before writes where another process
//!   may have the open file, and may set O_APPEND, and `statx` after a change of size that the
//!   kernel has to know.
//!
//! # What takes the FUSE path
//! - Descriptors that the owner refuses, and files that the kernel caches, such as mapped ones.
//!   Also files that are only read, through the cache, if they are small or read from their
//!   beginning.
//! - Calls with no bytes, with NULL, or with other errors in arguments; flags of preadv2(2) other
//!   than RWF_HIPRI, RWF_DSYNC, RWF_SYNC and RWF_APPEND; more than 1 MiB at the end of a file
//!   (O_APPEND), since others could append in between; writes and ftruncate while RLIMIT_FSIZE is
//!   set.
//! - fstat, ftruncate and SEEK_END, until a file has been read or written.
//! - Calls of threads for which the owner has no line. All calls, for a second, after the
//!   connection ended. A write at the end of the file that this interrupted fails with EIO, since
//!   it may be done.
//! - Children by vfork, and by `_Fork` or a bare `clone`. A process that gives one of its threads
//!   other descriptors (unshare, clone), or that confines itself to some system calls (seccomp),
//!   has no shared-memory path from then on. A program built with AddressSanitizer has none at all.
//!
//! # What differs
//! A bad pointer that is not NULL is a fault instead of EFAULT. `readahead`, and `posix_fadvise`
//! with POSIX_FADV_WILLNEED, do nothing to a file that takes the shared-memory path. A reader that
//! finds the end of the file moves the position past it for a moment. The library does not see
//! system calls that bypass the C library, io_uring, sendfile and the like, which the kernel
//! executes on the same descriptors. It does not see a limit of file sizes that another process
//! sets (prlimit). A thread may close a file past the C library (by a system call instruction, or
//! io_uring) while another thread gets its number in such a way, or for a socket or pipe. The other
//! thread's first calls may then go to the closed file.
//!
//! # Parts, in reading order
//! ```text
//!   table        what is known of each descriptor
//!   state        whether there is a shared-memory path; what happens in a child
//!   link         the connection to the owner
//!   thread       a thread's line
//!   resolve      which file of the owner's a descriptor refers to
//!   buffers      the caller's memory
//!   ahead        reading ahead: filling the kernel's cache with a file that was left to it
//!   call         a call's way to the owner and back
//!   hook         defining the C library's functions
//!   sanitizer    programs that have none
//!   data, map, descriptor, children, confine, syscall    these functions, by subject
//!   report       counts, for MEANTIME_REPORT=1
//! ```
//!
//! The library needs a 64-bit Linux with glibc 2.33 or later.

// The manual page of each function has its promises and requirements.
#![allow(missing_docs)]

pub mod ahead;
mod buffers;
mod call;
pub mod children;
pub mod confine;
pub mod data;
pub mod descriptor;
mod hook;
mod link;
pub mod map;
pub mod report;
mod resolve;
pub mod sanitizer;
mod state;
pub mod syscall;
mod table;
mod thread;

/// Runs `body`, which uses the C library, or locks. The thread is not cancelled in it, and a signal
/// handler does not leave it. The library's own descriptors are not hidden from it, and errno stays
/// unchanged.
fn slowly<R>(body: impl FnOnce() -> R) -> R {
    let before = hook::errno();
    let result = {
        let _not_signalled = meantime_process::thread::NotSignalled::enter();
        let _ours = meantime_process::thread::Ours::enter();
        let _not_cancelled = hook::NotCancelled::enter();
        body()
    };
    hook::set_errno(before);
    result
}
