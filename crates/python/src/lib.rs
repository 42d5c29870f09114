//! The extension module `meantime._meantime`: devices, channels and file systems for Python.
//!
//! # What it is for
//! The package `meantime` (beside, in `python/meantime`) is what programs import; docs/python.md is
//! its documentation. This module has what needs Rust: thin classes over [`meantime_block`] and
//! [`meantime_ext4`].
//!
//! # What it owns
//! - Each device with its idle channels (`device`), and the objects that were made of it: closing
//!   the device closes those first.
//! - The buffers of all I/O in flight. Data are copied between them and Python's memory, which is
//!   exported meanwhile (`memory`).
//! - A thread for each asynchronous channel (`reactor`), which never calls Python.
//!
//! # What it promises
//! - A call that waits has released the GIL, and holds no lock that is waited for with the GIL
//!   held. Waits for a device end at Ctrl-C.
//! - A channel is used by one thread at a time; a second one gets a RuntimeError.
//! - The child of a fork uses nothing, and closes nothing of the parent's (`owned`).
//! - An error has the errno of the C library and the library's whole text (`error`).
//!
//! # Parts, in reading order
//! ```text
//!   error, owned, memory    exceptions; fork; buffers
//!   transfer                synchronous transfers on a channel
//!   device, channel         Device; Channel and its tickets
//!   reactor                 the thread of an asynchronous channel
//!   files                   FileSystem, File
//! ```

mod channel;
mod device;
mod error;
mod files;
mod memory;
mod owned;
mod reactor;
mod transfer;

/// The extension module.
#[pyo3::pymodule(name = "_meantime")]
mod module {
    #[pymodule_export]
    use crate::channel::{Channel, Ticket};
    #[pymodule_export]
    use crate::device::Device;
    #[pymodule_export]
    use crate::files::{File, FileSystem};
    #[pymodule_export]
    use crate::reactor::Reactor;

    /// The version of the library.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
