//! The interposition library: functions of the C library's names, for a program that `meantime
//! run` starts (LD_PRELOAD).
//!
//! # What it is for
//! Paths below the mount point, and descriptors opened through them, go to [`meantime_posix`]. All
//! other calls go unchanged to the next definition of the function, without an allocation or an
//! additional system call. This crate consists of thunks, which convert C's arguments, return
//! values and errno.
//!
//! # What it promises
//! The library is a guest in the process:
//! - A panic ends at the boundary as EIO, and nothing is printed.
//! - Until a path below the mount point is used, the library has neither threads nor memory.
//! - No operation is cancelled midway (`pthread_cancel`): reads are cancellation points only at
//!   their beginning.
//! - A descriptor of ours is an O_PATH descriptor to the kernel, which reserves the number. Streams
//!   are cookies; directories are separate objects.
//! - The library is inactive in a program with more rights than its user (AT_SECURE).
//! - Our descriptors are at the top of the program's limit, below 4,096. The program can neither
//!   close nor replace them: both return EBADF. The limit is not changed, because threads and
//!   children would see that.
//! - Mounting uses a separate stack. A foreign path needs almost no stack; a signal handler that
//!   opens a file of ours needs 48 KiB.
//!
//! # What it does not see
//! io_uring, the program's direct system calls, mappings by the loader, and files that the C
//! library opens internally (nftw, glob, freopen, mkstemp); nor poll and select. A descriptor of
//! ours is an O_PATH descriptor to the kernel, which fails with EBADF instead of reading something
//! else. The kernel's working directory is a removed one while ours is in use, so a relative path
//! that the library does not see fails; its name tells an executed program where it is. A program
//! that is executed (execve) finds the mount through its environment; descriptors that it inherits
//! are names only.
//!
//! A forked child leaves its parent's state untouched and mounts again. A child by vfork is
//! recognised by its pid and changes nothing. In one that was made without the C library's `fork`
//! (`_Fork`, a bare `clone`) all of our calls fail with EIO. A path that enters the mount point
//! through the machine's links is searched for only after the kernel's ENOENT, without an
//! allocation, because allocators open files, too.
//!
//! # Parts, in reading order
//! ```text
//!   state                    what the process has of ours, made when it is first needed
//!   path, map, cwd           is this path, descriptor or directory ours?
//!   open, read, stat, dir,   the C library's functions, by subject
//!     attribute, change, name, descriptor, stdio, syscall
//!   lent, limit              descriptors of ours; the program's limit
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
pub mod stat;
mod state;
pub mod stdio;
pub mod syscall;
