//! A separate /dev/fuse queue for each thread.

#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};

/// Opens /dev/fuse again for the connection of `device`. A request that is read from the new
/// descriptor is answered on it, and the descriptor shares no lock with the others.
pub(crate) fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    /// `FUSE_DEV_IOC_CLONE`.
    const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);
    let clone = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the kernel reads four bytes, a descriptor's number, from the address that it is given
    // (although the opcode says that it writes), and those are there for the time of the call.
    unsafe { ioctl(&clone, Setter::<CLONE, u32>::new(device.as_raw_fd() as u32))? };
    Ok(clone)
}
