//! Memory for paths, borrowed for a call.
//!
//! Paths are long, and the stack may be a signal handler's, of a few KiB. The heap is not used
//! either: allocators open files, too, and would wait for themselves. So the memory comes from the
//! kernel, and a few pieces are kept for later calls.

use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use meantime_posix::Walk;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Free pieces.
static KEPT: [AtomicPtr<Walk>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

/// A piece, which is returned on drop.
pub(crate) struct Lent(NonNull<Walk>);

impl Lent {
    /// `None` if the kernel has no memory.
    pub(crate) fn take() -> Option<Self> {
        let kept =
            KEPT.iter().find_map(|kept| NonNull::new(kept.swap(null_mut(), Ordering::AcqRel)));
        kept.or_else(map).map(Self)
    }
}

fn map() -> Option<NonNull<Walk>> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let memory = unsafe { mmap_anonymous(null_mut(), size_of::<Walk>(), prot, flags) };
    NonNull::new(memory.ok()?.cast())
}

impl Drop for Lent {
    fn drop(&mut self) {
        let piece = self.0.as_ptr();
        let keep = |kept: &AtomicPtr<Walk>| {
            kept.compare_exchange(null_mut(), piece, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if !KEPT.iter().any(keep) {
            // SAFETY: a mapping of that length, which only we have.
            let _ = unsafe { munmap(piece.cast(), size_of::<Walk>()) };
        }
    }
}

impl Deref for Lent {
    type Target = Walk;

    fn deref(&self) -> &Walk {
        // SAFETY: only we have it; it was zero at first, which is valid, and only its methods have
        // written to it.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Walk {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}
