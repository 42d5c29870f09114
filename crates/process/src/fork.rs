//! Whether this process is the one that the library's threads and devices are in.
//!
//! A child of `fork` can be told by a handler of the C library's (`pthread_atfork`). One of `_Fork`
//! or of `clone` called past it cannot, and would wait for threads that it does not have. So there
//! is a page that the kernel empties in every child: a word in it says that this is the owner.
//! (The child of a `vfork`, which borrows the memory, has that page as it is.)

#![expect(unsafe_code)]

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The word, once there is one; its page is never unmapped.
static OWNER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// The page's length in bytes; the kernel rounds it up to a page of its own.
const PAGE: usize = 4096;

/// This process is the owner from now on. To be called by one thread at a time.
///
/// # Errors
/// No memory; or a kernel before 4.14, which cannot tell children.
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
    // SAFETY: our own mapping, of which nobody knows yet.
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

    /// In a child by a bare `clone`: what `in_child` returns, as its exit status.
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
    fn a_child_is_told_whoever_made_it() {
        assert!(!is_child());
        own().unwrap();
        own().unwrap();
        assert!(!is_child());
        assert_eq!(clone(|| i32::from(is_child())), 1);
        // One that has made everything anew is an owner itself, and its children are told again.
        assert_eq!(clone(|| i32::from(own().is_err() || is_child())), 0);
        assert_eq!(clone(|| i32::from(own().is_err()) + clone(|| i32::from(is_child()))), 1);
        assert!(!is_child());
    }
}
