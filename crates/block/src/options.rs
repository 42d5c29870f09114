//! How a device may be opened: the options beside its URI, and whether it can be written.

use std::io;
use std::path::PathBuf;

use super::uri::Uri;
use meantime_hw::pci::Sysfs;
use meantime_nvme::ControllerOptions;

/// The intended access to a `file:` or `kernel:` device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Read and write. The device is read only if it cannot or must not be written;
    /// [`Device::read_only`](super::Device::read_only) has the reason.
    #[default]
    WhatIsPossible,
    /// Read. The device is not even opened for writing, and may be shared with other readers.
    Read,
    /// Read and write. A device that cannot or must not be written is an error:
    /// [`OpenError::ReadOnly`](super::OpenError::ReadOnly).
    ReadWrite,
}

/// The options beside the URI.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The intended access. A file or disk that the kernel has mounted, swaps on or uses in another
    /// device is never opened for writing.
    pub access: Access,
    /// The driver's waits and queues.
    pub controller: ControllerOptions,
    /// The CPU of a software SSD's thread, if the URI names none. `None` selects the last CPU that
    /// this process may use.
    pub ssd_cpu: Option<usize>,
    /// Whether the software SSD takes time stamps of every command:
    /// [`BlockDevice::stamps`](super::BlockDevice::stamps).
    pub stamps: bool,
    /// Whether a device on which a partition table, a file system or another known format lies is
    /// opened for reading only, unless its URI has `overwrite=1`. For programs that write whatever
    /// device they are given; those that write a file system do not set it.
    /// [`Device::read_only`](super::Device::read_only) has the reason, and the program obeys it.
    pub protect: bool,
}

/// Why the device that `uri` names is not, or would not be, opened for writing: how the kernel uses
/// its file or disk, with a remedy. `None` if no use is found.
pub fn in_use(uri: &Uri) -> Option<String> {
    let (Uri::File { path, .. } | Uri::Kernel { path, .. }) = uri else { return None };
    meantime_hw::pci::in_use(&Sysfs::default(), path)
}

/// The reason why a file cannot be opened for writing, if reading may still work.
pub(super) fn may_not_write(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EACCES | libc::EPERM => {
            Some("this process may not write it, and it was opened for reading only")
        }
        libc::EROFS => Some("it is write-protected, and was opened for reading only"),
        libc::ETXTBSY => {
            Some("it is swap space or a program that runs, and was opened for reading only")
        }
        _ => None,
    }
}

/// A file created for a device; removed on drop unless kept.
pub(super) struct Created(pub(super) Option<PathBuf>);

impl Created {
    /// Keeps the file.
    pub(super) fn keep(mut self) -> Option<PathBuf> {
        self.0.take()
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
