//! Defines functions of the C library's names. [`hooks!`] defines one, and finds the next
//! definition of it ([`real!`]) when it is first called. Calls that are not for this library are
//! passed on without an allocation or an additional system call. If there is no next definition,
//! the function fails with ENOSYS.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use meantime_process::thread;

/// Returns the next definition of function `name`, which has type `type`.
macro_rules! real {
    ($name:expr, $type:ty) => {{
        static CELL: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let symbol = $crate::hook::resolve(&CELL, $name);
        // SAFETY: the C library's function of that name has that type, arguments that follow an
        // ellipsis included.
        #[allow(unused_unsafe)]
        let function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(symbol) };
        function
    }};
}

/// Defines functions of the C library's names: `fn name(…)`, or the same for each of several names,
/// `fn (name name)(…)`. In a body, `real` is the next definition of the function, which is looked
/// up when it is first called.
macro_rules! hooks {
    ($($abi:literal fn $names:tt $arguments:tt -> $result:ty = $body:tt)*) => {
        $($crate::hook::hooks!(@ $abi $names $arguments $result, $body);)*
    };
    (@ $abi:literal ($($name:ident)+) $arguments:tt $result:ty, $body:tt) => {
        $($crate::hook::hooks!(@ $abi $name $arguments $result, $body);)+
    };
    (
        @ $abi:literal $name:ident ($($argument:ident: $type:ty),* $(,)?)
        $result:ty, { |$real:ident| $($body:tt)* }
    ) => {
        /// # Safety
        /// The caller keeps the contract of the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern $abi fn $name($($argument: $type),*) -> $result {
            type Real = unsafe extern $abi fn($($type),*) -> $result;
            const NAME: &std::ffi::CStr = $crate::hook::c_name(concat!(stringify!($name), "\0"));
            let $real = || $crate::hook::real!(NAME, Real);
            $($body)*
        }
    };
}

/// Defines functions that call others with some arguments fixed.
macro_rules! forwards {
    ($(
        $abi:literal fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty
        => $other:ident($($given:expr),*);
    )*) => {$(
        /// # Safety
        /// The caller keeps the contract of the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern $abi fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller's promise, which is what the other function asks for.
            unsafe { $other($($given),*) }
        }
    )*};
}

pub(crate) use {forwards, hooks, real};

/// Converts `name`, which ends with a NUL, to a C string.
///
/// # Panics
/// Panics if it does not, or has another NUL.
pub(crate) const fn c_name(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has one NUL, at its end"),
    }
}

/// Replaces a function that this C library lacks. It fails with ENOSYS, whatever its arguments.
unsafe extern "C" fn missing() -> isize {
    set_errno(libc::ENOSYS);
    -1
}

/// Returns what `cell` holds. If it is empty, finds the next definition of `name`, which it holds
/// from then on.
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

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Disables cancellation of this thread until it is dropped, because the thread may hold our locks.
pub(crate) struct NotCancelled {
    before: c_int,
}

impl NotCancelled {
    /// Starts to disable cancellation now.
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

/// Ends a cancelled thread, as in the C library's function of that name. It is called before
/// anything is held, because the thread does not return.
#[inline(always)]
pub(crate) fn cancellation_point() {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    // Our own code may hold locks, and also calls the C library.
    if !thread::is_ours() {
        // SAFETY: the caller's promise; the thread's cleaning up runs through frames that own
        // nothing.
        unsafe { pthread_testcancel() }
    }
}
