//! Errors as C has them: a negative errno, mapped once, here; and the library's own words, kept for each thread.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;

use meantime::block::{ChannelError, IoError, OpenError, SubmitError};
use meantime::hw::HwError;
use meantime::nvme::{self, CommandError};
use meantime_spec::status::StatusCode;

/// A call that failed; [`mt_last_error`] has the reason. A negative errno.
#[derive(Debug, Clone, Copy)]
pub struct Failed(pub c_int);

/// What a call returns.
pub type Answer = Result<c_int, Failed>;

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Remembers `text` for this thread. `errno` is positive.
#[cold]
#[inline(never)]
pub fn fail(errno: c_int, text: impl Display) -> Failed {
    let mut text = text.to_string();
    text.retain(|c| c != '\0');
    // A thread that is ending has no room for it any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).ok());
    Failed(-errno)
}

/// The caller's mistake, in the arguments of `call`.
#[cold]
#[inline(never)]
pub fn misuse(call: &str, what: impl Display) -> Failed {
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
        Some(libc::EBUSY) => c"the buffer is with the device, or the controller's queues are in use",
        Some(libc::EAGAIN) => c"all requests of the channel are under way",
        Some(libc::EOPNOTSUPP) => c"the device cannot do that",
        Some(libc::EROFS) => c"the device can be read only",
        Some(libc::ENOMEM) => c"no memory for DMA",
        Some(libc::ETIMEDOUT) => c"the device did not answer in time",
        Some(libc::ECANCELED) => c"given up because of a reset",
        Some(libc::ENODEV) => c"the device is gone",
        Some(libc::ENOSPC) => c"no capacity left",
        Some(libc::EIO) => c"I/O error",
        Some(libc::ENOENT) => c"no such file or device",
        Some(libc::EACCES | libc::EPERM) => c"no permission",
        _ => c"an error of the kernel (see errno(3))",
    };
    text.as_ptr()
}

/// What the kernel said, if it was the kernel.
fn kernel_errno(error: &(dyn Error + 'static)) -> Option<c_int> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.raw_os_error();
        }
        next = error.source();
    }
    None
}

pub fn open_failed(error: &OpenError) -> Failed {
    let errno = match error {
        OpenError::Nvme(error) => nvme_errno(error),
        _ => kernel_errno(error).unwrap_or(libc::EINVAL),
    };
    fail(errno, error)
}

pub fn channel_failed(error: &ChannelError) -> Failed {
    let errno = match error {
        ChannelError::Nvme(error) => nvme_errno(error),
        ChannelError::Hw(error) => hw_errno(error),
        ChannelError::Depth { .. } => libc::EINVAL,
        ChannelError::Policy { .. } => libc::EOPNOTSUPP,
        ChannelError::Kernel { .. } => match kernel_errno(error) {
            // Of what was asked for nothing was wrong: the kernel does not know it.
            Some(libc::EINVAL | libc::ENOSYS) => libc::EOPNOTSUPP,
            errno => errno.unwrap_or(libc::EIO),
        },
        _ => libc::EIO,
    };
    fail(errno, error)
}

pub fn hw_failed(error: &HwError) -> Failed {
    fail(hw_errno(error), error)
}

fn nvme_errno(error: &nvme::Error) -> c_int {
    match error {
        nvme::Error::Hw(error) => hw_errno(error),
        nvme::Error::NotReady { .. } | nvme::Error::AdminTimeout { .. } => libc::ETIMEDOUT,
        nvme::Error::Gone => libc::ENODEV,
        nvme::Error::Unsupported(_) => libc::EOPNOTSUPP,
        nvme::Error::NoNamespace { .. } => libc::EINVAL,
        nvme::Error::NoQueue { .. } | nvme::Error::NoVector { .. } => libc::EBUSY,
        _ => libc::EIO,
    }
}

fn hw_errno(error: &HwError) -> c_int {
    match error {
        HwError::Map { .. } | HwError::Lock { .. } | HwError::DmaMap { .. } => libc::ENOMEM,
        HwError::TooLarge { .. } => libc::EINVAL,
        HwError::Missing { .. } => libc::EOPNOTSUPP,
        HwError::Unresponsive => libc::ETIMEDOUT,
        HwError::Gone => libc::ENODEV,
        _ => kernel_errno(error).unwrap_or(libc::EIO),
    }
}

/// A request that was not taken.
pub fn submit_failed(call: &str, error: &SubmitError) -> Failed {
    let errno = match error {
        SubmitError::Full { .. } => libc::EAGAIN,
        SubmitError::Unsupported(_) | SubmitError::NoInterrupt | SubmitError::CannotWait { .. } => {
            libc::EOPNOTSUPP
        }
        SubmitError::ReadOnly(_) => libc::EROFS,
        SubmitError::Lost(_) => libc::ENODEV,
        _ => libc::EINVAL,
    };
    fail(errno, format_args!("{call}: {error}"))
}

/// A request that was not done. Never EINVAL, which is for calls that did nothing.
#[cold]
#[inline(never)]
pub fn io_failed(error: &IoError) -> Failed {
    let errno = match error.kind {
        CommandError::Status(status) if status.code() == Ok(StatusCode::CapacityExceeded) => libc::ENOSPC,
        // As fsync(2) says of writes that were lost.
        CommandError::Status(_) | CommandError::EndOfFile | CommandError::CacheLost => libc::EIO,
        CommandError::Os(errno) if i32::from(errno) == libc::EINVAL => libc::EIO,
        CommandError::TimedOut => libc::ETIMEDOUT,
        CommandError::Reset => libc::ECANCELED,
        CommandError::Gone { .. } => libc::ENODEV,
        CommandError::Os(errno) => errno.into(),
    };
    fail(errno, error)
}
