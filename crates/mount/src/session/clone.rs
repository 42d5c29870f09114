//! A queue of its own for a thread.

#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, ioctl, opcode};

/// Opens /dev/fuse once more, for the connection of `device`: what is read by the new descriptor is
/// answered by it, and shares no lock with others.
pub(crate) fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    /// `FUSE_DEV_IOC_CLONE`.
    const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);
    let clone = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the kernel reads four bytes, a descriptor's number, from the address that it is given
    // (although the opcode says that it writes), and those are there for the time of the call.
    unsafe { ioctl(&clone, Setter::<CLONE, u32>::new(device.as_raw_fd() as u32))? };
    Ok(clone)
}
