//! The block layer for C: thunks over [`meantime_block`], and the state that C needs in addition.
//!
//! The documentation is `include/meantime.h`; a test compares it with the definitions here.
//! docs/c-api.md says how to install and link it.
//!
//! # What it owns
//! - Handles: devices, channels, buffers, groups, wakers (`handle`). They are never unmapped, only
//!   marked, so a closed one is recognised.
//! - Each channel's table of tickets and buffers (`channel_handle`): the library's can only be
//!   moved, so C gets numbers for them.
//! - Groups (`group_handle`). A channel in a group stays in its handle, where C goes on using it;
//!   the group has a reference (`member`).
//!
//! # What it promises
//! - A buffer that is with the device can be neither freed nor submitted. A ticket is redeemed
//!   once.
//! - A panic ends at the boundary (`guard`): the call returns `-EIO`, and the channel is neither
//!   used nor dropped again, because the device may still write to its buffers.
//! - Errors are negative errnos; `mt_last_error()` has the text, for each thread.
//! - `mt_submit` and `mt_wait` add no allocation, lock or system call.
//! - A group and its channels are used by one call at a time: the call holds the group, and
//!   meanwhile a call of another thread is refused. Handles that are in no group have no such
//!   check.
//!
//! # Parts, in reading order
//! ```text
//!   abi                     structures as in meantime.h
//!   device, buf, channel    the functions
//!   group, word             the functions of groups
//!   calls                   calls on a channel or a group, and their panics
//!   channel_handle          tickets and buffers of a channel
//!   group_handle, member    what is in a group
//!   handle, guard           handles; the boundary
//!   policy, error           texts
//! ```

// The header says what each function promises and requires.
#![allow(clippy::missing_safety_doc, missing_docs)]

pub mod abi;
pub mod buf;
mod calls;
pub mod channel;
mod channel_handle;
pub mod device;
mod error;
pub mod group;
mod group_handle;
mod guard;
mod handle;
mod member;
mod policy;
pub mod word;

pub use error::{mt_last_error, mt_strerror};

use std::ffi::{CStr, c_char};

/// The version as a C string.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL"),
    };

#[unsafe(no_mangle)]
pub extern "C" fn mt_version() -> *const c_char {
    VERSION.as_ptr()
}
