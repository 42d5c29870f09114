//! The block layer from C: thunks over [`meantime_block`], and what C needs beside it. The
//! documentation is `include/meantime.h`; a test compares it with the definitions here.
//!
//! Handles are never unmapped, only marked, so that a closed one is recognised (`shell`). A channel
//! keeps the move-only tickets and buffers of its requests in a table; C has numbers for them
//! (`lane`). Every call that can reach the library catches panics (`guard`).

// What each function promises and asks for is in the header.
#![allow(clippy::missing_safety_doc, missing_docs)]

pub mod abi;
pub mod buf;
pub mod channel;
pub mod device;
mod error;
mod guard;
mod lane;
mod policy;
mod shell;

pub use error::{mt_last_error, mt_strerror};

use std::ffi::{CStr, c_char};

/// The version, as C has it.
const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL"),
    };

#[unsafe(no_mangle)]
pub extern "C" fn mt_version() -> *const c_char {
    VERSION.as_ptr()
}
