//! The functions that ours stand before, and errno.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use meantime_posix::Errno;
use meantime_process::fork;
use meantime_process::thread::{self, Ours};

/// The next definition of function `name`, which has type `type`.
macro_rules! real {
    ($name:literal as $type:ty) => {{
        static CELL: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let symbol = $crate::real::resolve(&CELL, $name);
        // SAFETY: the C library's function of that name has that type, arguments that follow an
        // ellipsis included.
        #[allow(unused_unsafe)]
        let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(symbol) };
        function
    }};
}
pub(crate) use real;

/// What stands for a function that this C library does not have: fails with ENOSYS, whatever its
/// arguments.
unsafe extern "C" fn missing() -> isize {
    set_errno(libc::ENOSYS);
    -1
}

#[inline(always)]
pub(crate) fn resolve(cell: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cell.load(Ordering::Relaxed);
    if known.is_null() { look_up(cell, name) } else { known }
}

#[cold]
#[inline(never)]
fn look_up(cell: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        found = missing as *mut c_void;
    }
    cell.store(found, Ordering::Relaxed);
    found
}

pub(crate) fn errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

/// What a function returns, as far as failing goes.
pub(crate) trait Answer: Copy {
    /// What says that errno says why.
    const FAILED: Self;

    /// Whether this is it.
    fn failed(self) -> bool;
}

impl Answer for c_int {
    const FAILED: Self = -1;

    fn failed(self) -> bool {
        self == -1
    }
}

impl Answer for isize {
    const FAILED: Self = -1;

    fn failed(self) -> bool {
        self == -1
    }
}

impl Answer for i64 {
    const FAILED: Self = -1;

    fn failed(self) -> bool {
        self == -1
    }
}

impl<T> Answer for *mut T {
    const FAILED: Self = null_mut();

    fn failed(self) -> bool {
        self.is_null()
    }
}

/// What the caller gets: the value, or errno and what says so.
#[inline]
pub(crate) fn answer<R: Answer>(result: Result<R, Errno>) -> R {
    result.unwrap_or_else(|Errno(errno)| {
        set_errno(errno);
        R::FAILED
    })
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While it lives, this thread is not cancelled: it may hold locks of ours.
pub(crate) struct NotCancelled {
    before: c_int,
}

impl NotCancelled {
    #[inline]
    pub(crate) fn enter() -> Self {
        const PTHREAD_CANCEL_DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: a state that there is, and a variable of our own.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for NotCancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the state that was there.
        unsafe { pthread_setcancelstate(self.before, null_mut()) };
    }
}

/// Where a thread that was cancelled ends, as in the C library's function of that name. To be
/// called before anything is held: the thread does not come back.
#[inline(always)]
pub(crate) fn cancellation_point() {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    // Our own code holds something, and calls the C library as well.
    if !thread::is_ours() {
        // SAFETY: the caller's promise; the thread's cleaning up runs through frames that own
        // nothing.
        unsafe { pthread_testcancel() }
    }
}

/// Runs `body`, which is ours: a panic ends here, as EIO, since C cannot be unwound through. Errno
/// stays as it is unless it fails. In a child that has neither our threads nor a way to get them
/// everything fails (`state`).
#[inline]
pub(crate) fn guarded<R: Answer>(body: impl FnOnce() -> Result<R, Errno>) -> R {
    if fork::is_child() {
        set_errno(libc::EIO);
        return R::FAILED;
    }
    let before = errno();
    let result = {
        let (_ours, _not_cancelled) = (Ours::enter(), NotCancelled::enter());
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
    };
    match result {
        Ok(Ok(value)) => {
            set_errno(before);
            value
        }
        Ok(Err(Errno(errno))) => {
            set_errno(errno);
            R::FAILED
        }
        Err(payload) => {
            // Dropping it might panic again.
            std::mem::forget(payload);
            set_errno(libc::EIO);
            R::FAILED
        }
    }
}
