//! Tells whether this process owns the library's threads and devices.
//!
//! A handler (`pthread_atfork`) recognises a child of `fork`, but not one of `_Fork` or of a bare
//! `clone`. Such a child would wait for threads that it does not have. So the kernel zeroes one
//! page in every child (MADV_WIPEONFORK): a word in it says that this process is the owner. The
//! child of a `vfork`, which borrows the memory, sees the page unchanged.

#![expect(unsafe_code)]

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The word, once it exists; its page is never unmapped.
static OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// The page's length in bytes; the kernel rounds it up to a page of its own.
const PAGE: usize = 4096;

/// Makes this process the owner. One thread at a time may call it.
///
/// # Errors
/// Fails if there is no memory, or if the kernel is older than 4.14, which has no MADV_WIPEONFORK.
pub fn own() -> io::Result<()> {
    if OWNER.load(Ordering::Acquire).is_null() {
        OWNER.store(page()?.as_ptr(), Ordering::Release);
    }
    if let Some(owner) = word() {
        owner.store(1, Ordering::Release);
    }
    Ok(())
}

fn page() -> io::Result<NonNull<AtomicU32>> {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let page = unsafe {
        mmap_anonymous(null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
    };
    // SAFETY: our own mapping, which only we know.
    if let Err(errno) = unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) } {
        // SAFETY: as above.
        let _ = unsafe { munmap(page, PAGE) };
        return Err(errno.into());
    }
    NonNull::new(page.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[inline]
fn word() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a word in a page that stays and that only this file uses, as an atomic.
    unsafe { OWNER.load(Ordering::Relaxed).as_ref() }
}

/// Whether this is a child that has not called [`own`] itself, of a process that has.
#[inline]
pub fn is_child() -> bool {
    word().is_some_and(|owner| owner.load(Ordering::Relaxed) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `in_child` in a child made by a bare `clone`, and returns its exit status.
    fn clone(in_child: fn() -> i32) -> i32 {
        // SAFETY: the child makes no use of locks or memory that another thread may hold, and ends.
        unsafe {
            let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32;
            if child == 0 {
                libc::_exit(in_child());
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            libc::WEXITSTATUS(status)
        }
    }

    #[test]
    fn a_child_is_recognised_however_it_was_made() {
        assert!(!is_child());
        own().unwrap();
        own().unwrap();
        assert!(!is_child());
        assert_eq!(clone(|| i32::from(is_child())), 1);
        // A child that has called `own` is an owner itself, and its children are
        // recognised.
        assert_eq!(clone(|| i32::from(own().is_err() || is_child())), 0);
        assert_eq!(clone(|| i32::from(own().is_err()) + clone(|| i32::from(is_child()))), 1);
        assert!(!is_child());
    }
}
