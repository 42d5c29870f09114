//! The user for whom a thread changes a file system.
//!
//! As in the kernel, this is a property of the thread: a change needs blocks in many places, far
//! below the call that made it.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static CURRENT: Cell<Option<Caller>> = const { Cell::new(None) };
}

/// A user for whom a thread of this process changes file systems. It decides who gets the blocks
/// that a file system reserves ([`ReservedBlocks`](crate::ReservedBlocks)), and nothing else. The
/// program that uses this crate checks all other permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// User ID. 0 counts as having `CAP_SYS_RESOURCE`.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
}

impl Caller {
    /// An unknown caller, for whom no blocks are reserved.
    pub const NOBODY: Self = Self { uid: u32::MAX, gid: u32::MAX };

    /// Makes this thread act for the caller until the result is dropped. After that, the thread
    /// acts again for whom it acted before, which at first is the process.
    pub fn act(self) -> Acting {
        Acting { before: CURRENT.replace(Some(self)), of_this_thread: PhantomData }
    }

    /// Returns the caller for whom this thread acts, or `None` if it acts for the process.
    pub(super) fn current() -> Option<Self> {
        CURRENT.get()
    }
}

/// A thread acts for a [`Caller`] until this is dropped.
#[derive(Debug)]
#[must_use = "the thread acts for the caller only until this is dropped"]
pub struct Acting {
    before: Option<Caller>,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_acts_for_one_caller_at_a_time_and_no_other_thread_does() {
        let (outer, inner) = (Caller { uid: 1, gid: 2 }, Caller::NOBODY);
        assert_eq!(Caller::current(), None);
        let acting = outer.act();
        {
            let _acting = inner.act();
            assert_eq!(Caller::current(), Some(inner));
            let other = std::thread::spawn(Caller::current).join();
            assert_eq!(other.ok(), Some(None));
        }
        assert_eq!(Caller::current(), Some(outer));
        drop(acting);
        assert_eq!(Caller::current(), None);
    }
}
