//! The interposition library: functions of the C library's names, for a program that `meantime run`
//! starts (LD_PRELOAD).
//!
//! Paths below the mount point, and descriptors that were opened by them, are [`meantime_posix`]'s;
//! everything else goes to the next definition of the function as it came, without an allocation or
//! a system call more. What is here is thunks: C's arguments made into Rust's, answers into return
//! values and errno. The library is a guest in the process: a panic ends at the boundary as EIO,
//! nothing is printed, and until a path below the mount point is used there is neither thread nor
//! memory of ours.
//!
//! What programs do past the C library is not seen: io_uring, system calls of their own making,
//! mappings by the loader. There a descriptor of ours is one of a name only (O_PATH), which fails
//! with EBADF rather than to read something else. A program that is executed (execve) finds the
//! mount by its environment, and the working directory by the kernel's (`cwd`); descriptors that it
//! inherits are names only. Functions of the C library that open files by themselves (nftw, glob,
//! freopen, mkstemp) see the kernel's only, as do poll and select.
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
