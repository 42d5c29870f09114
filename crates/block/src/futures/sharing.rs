//! Whether a channel's handles and futures stay on one thread or may be sent to others, as a type
//! parameter.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Local {}
    impl Sealed for super::Shared {}
}

/// How the handles of an [`AsyncChannel`](super::AsyncChannel) share it: [`Local`] or [`Shared`].
pub trait Sharing: sealed::Sealed + Sized + 'static {
    /// A counted reference.
    #[doc(hidden)]
    type Ref<T>: Clone + Deref<Target = T> + From<T>;

    /// A cell that gives access to a `T` to one caller at a time.
    #[doc(hidden)]
    type Cell<T>: From<T>;

    /// Whether to wait for the device while holding the cell: no other thread could want it.
    #[doc(hidden)]
    const WAITS_INSIDE: bool;

    #[doc(hidden)]
    fn unshare<T>(shared: Self::Ref<T>) -> Result<T, Self::Ref<T>>;

    #[doc(hidden)]
    fn into_inner<T>(cell: Self::Cell<T>) -> T;

    /// Runs `action` on the content of `cell`. It must not access the same cell again, so no waker
    /// is woken or dropped in it.
    #[doc(hidden)]
    fn with<T, R>(cell: &Self::Cell<T>, action: impl FnOnce(&mut T) -> R) -> R;
}

/// All handles and futures stay on one thread, and are not `Send`. This is the fastest: it takes no
/// lock and no atomic operation.
#[derive(Debug, Clone, Copy)]
pub enum Local {}

/// Handles and futures may be sent to other threads and used by several, as multi-threaded
/// executors require. Each access to the channel takes a lock.
#[derive(Debug, Clone, Copy)]
pub enum Shared {}

impl Sharing for Local {
    type Ref<T> = Rc<T>;
    type Cell<T> = RefCell<T>;
    const WAITS_INSIDE: bool = true;

    fn unshare<T>(shared: Rc<T>) -> Result<T, Rc<T>> {
        Rc::try_unwrap(shared)
    }

    fn into_inner<T>(cell: RefCell<T>) -> T {
        cell.into_inner()
    }

    #[inline(always)]
    fn with<T, R>(cell: &RefCell<T>, action: impl FnOnce(&mut T) -> R) -> R {
        action(&mut cell.borrow_mut())
    }
}

impl Sharing for Shared {
    type Ref<T> = Arc<T>;
    type Cell<T> = Mutex<T>;
    const WAITS_INSIDE: bool = false;

    fn unshare<T>(shared: Arc<T>) -> Result<T, Arc<T>> {
        Arc::try_unwrap(shared)
    }

    fn into_inner<T>(cell: Mutex<T>) -> T {
        cell.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn with<T, R>(cell: &Mutex<T>, action: impl FnOnce(&mut T) -> R) -> R {
        // A panic inside is a failed assertion of this crate; other requests' buffers are still in
        // their slots.
        action(&mut cell.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
