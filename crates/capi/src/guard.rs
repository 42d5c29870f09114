//! The boundary: arguments are checked, and no panic unwinds into C.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Answer, Failed, fail, misuse};
use crate::handle::{Handle, Kind, State};

/// Runs `body`, the entire function `call`.
pub(crate) fn guarded(call: &str, body: impl FnOnce() -> Answer) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(Failed(error))) => error,
        Err(payload) => panicked(call, payload),
    }
}

/// The answer of `call`, which has panicked.
#[cold]
#[inline(never)]
pub(crate) fn panicked(call: &str, payload: Box<dyn Any + Send>) -> c_int {
    let what = payload.downcast_ref::<&str>().copied();
    let what =
        what.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
    let error =
        fail(libc::EIO, format_args!("{call}: a bug in Meantime, please report it: {what}"));
    // Dropping it might panic again.
    std::mem::forget(payload);
    error.0
}

/// Returns why the handle `ptr` of kind `T` cannot be used.
#[cold]
#[inline(never)]
pub(crate) fn not_open<T: Kind>(call: &str, ptr: *const Handle<T>) -> Failed {
    let name = T::NAME;
    if ptr.is_null() {
        return misuse(call, format_args!("the {name} is NULL"));
    }
    // SAFETY: the caller has checked it already; or `remove` has found it among the handles.
    match unsafe { Handle::at(ptr) }.map(Handle::state) {
        None | Some(State::Closed) => {
            misuse(call, format_args!("this is no {name}, or it was closed"))
        }
        Some(State::Lent) => fail(
            libc::EBUSY,
            format_args!("{call}: the {name} is with the device: wait for its request"),
        ),
        Some(State::Empty) => misuse(
            call,
            format_args!(
                "the memory of the {name} was given up (detached, or the device is gone): free it"
            ),
        ),
        Some(State::Grouped) => fail(
            libc::EBUSY,
            format_args!("{call}: the {name} is in a group: remove it from there before"),
        ),
        // The handle may also have ceased to be held or open meanwhile.
        Some(State::Held | State::Open) => fail(
            libc::EBUSY,
            format_args!("{call}: another thread is using the {name} (mt_wake() ends a wait)"),
        ),
        Some(State::Broken) => fail(
            libc::EIO,
            format_args!("{call}: the {name} met a bug in Meantime before: give it up"),
        ),
    }
}

/// Closes a handle. NULL is allowed.
pub(crate) fn close<T: Kind>(call: &str, ptr: *const Handle<T>, end: impl FnOnce(T)) -> c_int {
    if ptr.is_null() {
        return 0;
    }
    guarded(call, || match Handle::remove(ptr) {
        Ok(value) => {
            if let Some(value) = value {
                end(value);
            }
            Ok(0)
        }
        // `ptr` may be any address, so it is not read.
        Err(State::Closed) => {
            Err(misuse(call, format_args!("this is no {}, or it was closed", T::NAME)))
        }
        Err(_) => Err(not_open(call, ptr)),
    })
}

/// A string from C.
///
/// # Safety
/// `text` is NULL or ends with a NUL, and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(
    call: &str,
    name: &str,
    text: *const c_char,
) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(misuse(call, format_args!("{name} is NULL")));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| misuse(call, format_args!("{name} is not UTF-8")))
}

/// The address for a result, if C gave one.
pub(crate) fn out<T>(call: &str, name: &str, place: *mut T) -> Result<*mut T, Failed> {
    if place.is_null() { Err(misuse(call, format_args!("{name} is NULL"))) } else { Ok(place) }
}
