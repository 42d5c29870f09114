//! The system calls of VFIO, with typed arguments.

#![expect(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};

use zerocopy::{FromBytes, IntoBytes};

use super::uapi::{
    GROUP_GET_DEVICE_FD, GROUP_SET_CONTAINER, IOAS_IOVA_RANGES, IoasIovaRanges, IovaRange, Plain,
    Sized,
};

/// The longest answer with capabilities, in bytes.
const MAX_ANSWER: usize = 1 << 16;

fn checked(result: c_int) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// An ioctl whose argument is a number. Returns its result.
pub(super) fn plain(fd: BorrowedFd<'_>, ioctl: Plain, value: usize) -> io::Result<u32> {
    // SAFETY: a `Plain` ioctl takes no pointer.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), ioctl.0 as _, value) })
}

/// An ioctl on a structure that begins with its size, and may be followed by data.
///
/// # Panics
/// Panics if the size exceeds the buffer: the kernel would write beyond it.
pub(super) fn bytes(fd: BorrowedFd<'_>, ioctl: Sized, argument: &mut [u8]) -> io::Result<u32> {
    let size = argument.first_chunk::<4>().map(|size| u32::from_ne_bytes(*size) as usize);
    assert!(
        size.is_some_and(|size| size <= argument.len()),
        "an ioctl's size is not that of its argument"
    );
    // SAFETY: a `Sized` ioctl reads and writes as many bytes as the first four say, and we own
    // those.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), ioctl.0 as _, argument.as_mut_ptr()) })
}

/// Does what [`bytes`] does, for a structure alone.
pub(super) fn structure<T: FromBytes + IntoBytes>(
    fd: BorrowedFd<'_>,
    ioctl: Sized,
    argument: &mut T,
) -> io::Result<u32> {
    bytes(fd, ioctl, argument.as_mut_bytes())
}

/// Does what [`bytes`] does, for a query whose answer may be longer. Returns the whole answer.
pub(super) fn answer(fd: BorrowedFd<'_>, ioctl: Sized, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = question.to_vec();
    bytes(fd, ioctl, &mut answer)?;
    // The kernel returns the size of the whole answer.
    let needed = answer.first_chunk::<4>().map_or(0, |size| u32::from_ne_bytes(*size) as usize);
    if needed > question.len() && needed <= MAX_ANSWER {
        answer = question.to_vec();
        answer.resize(needed, 0);
        answer[..4].copy_from_slice(&(needed as u32).to_ne_bytes());
        bytes(fd, ioctl, &mut answer)?;
    }
    Ok(answer)
}

/// Puts `group` into `container`.
pub(super) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let container: c_int = container.as_raw_fd();
    // SAFETY: the argument points to one int, which is only read.
    checked(unsafe {
        libc::ioctl(group.as_raw_fd(), GROUP_SET_CONTAINER as _, &raw const container)
    })
    .map(drop)
}

/// A descriptor of the device called `name` in `group`.
pub(super) fn device_fd(group: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the argument is a NUL-terminated string, which is only read.
    let fd = checked(unsafe {
        libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD as _, name.as_ptr())
    })?;
    // SAFETY: a fresh descriptor, which only we know.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// The I/O virtual addresses that the address space `ioas` allows.
pub(super) fn iova_ranges(iommu: BorrowedFd<'_>, ioas: u32) -> io::Result<Vec<IovaRange>> {
    // There are only a few reserved regions.
    let mut ranges = vec![IovaRange::default(); 256];
    let mut argument = IoasIovaRanges {
        size: IoasIovaRanges::BYTES,
        ioas_id: ioas,
        num_iovas: ranges.len() as u32,
        allowed_iovas: ranges.as_mut_ptr() as u64,
        ..Default::default()
    };
    // SAFETY: the structure has the size that it says; it points to as many ranges as it says.
    checked(unsafe { libc::ioctl(iommu.as_raw_fd(), IOAS_IOVA_RANGES as _, &raw mut argument) })?;
    ranges.truncate(argument.num_iovas as usize);
    Ok(ranges)
}
