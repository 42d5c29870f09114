//! The interposition library: functions of the C library's names, for a program that `meantime
//! run` starts (LD_PRELOAD).
//!
//! # What it is for
//! Paths below the mount point, and descriptors that were opened by them, are
//! [`meantime_posix`]'s. Everything else goes to the next definition of the function as it came,
//! without an allocation or a system call more. What is here is thunks: C's arguments made into
//! Rust's, answers into return values and errno.
//!
//! # What it promises
//! The library is a guest in the process:
//! - A panic ends at the boundary as EIO, and nothing is printed.
//! - Until a path below the mount point is used there is neither thread nor memory of ours.
//! - Nothing is cancelled in the middle (`pthread_cancel`): reads are cancellation points at their
//!   beginning.
//! - A descriptor of ours is an O_PATH descriptor to the kernel, which keeps the number. Streams are
//!   cookies; directories are objects of our own.
//! - A program with more rights than its user (AT_SECURE) is left alone.
//! - Our descriptors are at the top of the program's limit, below 4,096. The program can neither
//!   close them nor put a file onto one: both answer EBADF. The limit is not changed, because
//!   threads and children would see that.
//! - Mounting has a stack of its own. A path that is not ours needs almost none; a signal handler
//!   that opens a file of ours needs 48 KiB.
//!
//! # What it does not see
//! io_uring, system calls of the program's own, mappings by the loader, and files that the C
//! library opens by itself (nftw, glob, freopen, mkstemp); nor poll and select. A descriptor of
//! ours is one of a name only (O_PATH) to the kernel, which fails with EBADF rather than to read
//! something else. The kernel's working directory is a removed one while ours is in use, so a
//! relative path that we do not see fails; its name tells an executed program where it is. A
//! program that is executed (execve) finds the mount by its environment; descriptors that it
//! inherits are names only.
//!
//! A child by fork leaves everything of its parent's alone and mounts anew. A child by vfork is
//! recognised by its pid and changes nothing. In one that was made past the C library's `fork`
//! (`_Fork`, a bare `clone`) all that is ours is EIO. A path that leads to the mount point by the
//! machine's links is looked for only after the kernel's ENOENT, without an allocation, because
//! allocators open files, too.
//!
//! # Parts, in reading order
//! ```text
//!   state                    what the process has of ours, made when it is first needed
//!   path, map, cwd           is this path, descriptor or directory ours?
//!   open, read, stat, dir,   the C library's functions, by subject
//!     attribute, change, name, descriptor, stdio, syscall
//!   lent, limit              descriptors of ours; the program's limit
//!   real                     what defines functions, and finds the next definition of each
//! ```
//!
//! Needs a 64-bit Linux with glibc 2.33 or later.

// What each function promises and asks for is in its manual page.
#![allow(missing_docs)]

pub mod attribute;
pub mod change;
mod cwd;
pub mod descriptor;
pub mod dir;
mod lent;
pub mod limit;
mod map;
pub mod name;
pub mod open;
mod path;
pub mod read;
mod real;
pub mod stat;
mod state;
pub mod stdio;
pub mod syscall;
