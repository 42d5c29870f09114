//! Errors for C: a negative errno, mapped by [`meantime_block::Errno`], and the library's message,
//! kept for each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;

use meantime_block::{ChannelError, Errno, IoError, OpenError, SubmitError};
use meantime_hw::HwError;

/// The negative errno of a call that failed; [`mt_last_error`] has the reason.
#[derive(Debug, Clone, Copy)]
pub struct Failed(pub c_int);

/// The result of a call.
pub(crate) type Answer = Result<c_int, Failed>;

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Stores `text` for this thread. `errno` is positive.
#[cold]
#[inline(never)]
pub(crate) fn fail(errno: c_int, text: impl Display) -> Failed {
    let mut text = text.to_string();
    text.retain(|c| c != '\0');
    // A thread that is ending can no longer store it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).ok());
    Failed(-errno)
}

/// The error for wrong arguments of `call`.
#[cold]
#[inline(never)]
pub(crate) fn misuse(call: &str, what: impl Display) -> Failed {
    fail(libc::EINVAL, format_args!("{call}: {what}"))
}

#[unsafe(no_mangle)]
pub extern "C" fn mt_last_error() -> *const c_char {
    let last = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    last.ok().flatten().unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn mt_strerror(error: c_int) -> *const c_char {
    let text: &CStr = match error.checked_neg() {
        Some(0) => c"no error",
        Some(libc::EINVAL) => c"wrong use; nothing has happened",
        Some(libc::EBUSY) => {
            c"in use by the device, by a group or by another thread; or all queues are in use"
        }
        Some(libc::EAGAIN) => c"all requests of the channel are under way",
        Some(libc::EOPNOTSUPP) => c"the device cannot do that",
        Some(libc::EROFS) => c"the device can be read only",
        Some(libc::ENOMEM) => c"no memory for DMA",
        Some(libc::ETIMEDOUT) => c"the device did not answer in time",
        Some(libc::ECANCELED) => c"given up because of a reset",
        Some(libc::ENODEV) => c"the device is gone",
        Some(libc::EILSEQ) => c"something else is there than was expected; nothing was written",
        Some(libc::ENOSPC) => c"no capacity left",
        Some(libc::EIO) => c"I/O error",
        Some(libc::ENOENT) => c"no such file or device",
        Some(libc::EACCES | libc::EPERM) => c"no permission",
        _ => c"an error of the kernel (see errno(3))",
    };
    text.as_ptr()
}

pub(crate) fn open_failed(error: &OpenError) -> Failed {
    fail(Errno::from(error).0, error)
}

pub(crate) fn channel_failed(error: &ChannelError) -> Failed {
    fail(Errno::from(error).0, error)
}

pub(crate) fn hw_failed(error: &HwError) -> Failed {
    fail(Errno::from(error).0, error)
}

/// The error for a refused request.
pub(crate) fn submit_failed(call: &str, error: &SubmitError) -> Failed {
    fail(Errno::from(error).0, format_args!("{call}: {error}"))
}

/// The error for a failed request.
#[cold]
#[inline(never)]
pub(crate) fn io_failed(error: &IoError) -> Failed {
    fail(Errno::from(error).0, error)
}
