//! The backing file of a loop device, from the kernel.

#![expect(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use super::attribute::DeviceNumber;

/// LOOP_GET_STATUS64 (linux/loop.h).
const GET_STATUS64: libc::c_ulong = 0x4C05;

/// `struct loop_info64`.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    of_device: u64,
    offset: u64,
    size_limit: u64,
    /// Its number, cipher and flags, and further fields, which are not used here.
    rest: [u64; 24],
}

const _: () = assert!(size_of::<Info>() == 232);

/// The file or block device that backs a loop device. It is identified without a name, since it may
/// have been renamed or removed, or be in another mount namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopFile {
    /// `st_dev` and `st_ino` of the file.
    pub file: (u64, u64),
    /// The block device, if it backs the loop device instead of a file.
    pub device: Option<DeviceNumber>,
}

/// The backing of loop device `node`.
pub(super) fn loop_file(node: &Path) -> io::Result<LoopFile> {
    let loop_device = File::open(node)?;
    let mut info =
        Info { device: 0, inode: 0, of_device: 0, offset: 0, size_limit: 0, rest: [0; 24] };
    // SAFETY: the kernel writes a `struct loop_info64`, which is as large as `Info`, and any bytes
    // are an `Info`. `info` is ours alone during the call. A file that is no loop device knows no
    // such call.
    let done = unsafe { libc::ioctl(loop_device.as_raw_fd(), GET_STATUS64 as _, &raw mut info) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // 0:0 is no block device's number.
    let number = (rustix::fs::major(info.of_device), rustix::fs::minor(info.of_device));
    Ok(LoopFile { file: (info.device, info.inode), device: (number != (0, 0)).then_some(number) })
}
