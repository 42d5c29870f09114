//! NVMe commands that the kernel's driver sends for this process: the character device of a
//! namespace (`/dev/ng0n1`) takes them by io_uring (`IORING_OP_URING_CMD`) and by ioctl.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use io_uring::types::Fixed;
use io_uring::{opcode, squeue};
use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `NVME_IOCTL_ID`: `_IO('N', 0x40)`.
const IOCTL_ID: u32 = (b'N' as u32) << 8 | 0x40;
/// `NVME_IOCTL_ADMIN_CMD`: a command for the admin queue.
const IOCTL_ADMIN: u32 = number(0x41);
/// `NVME_URING_CMD_IO` (Linux 5.19): a command for an I/O queue, with one buffer.
pub(super) const IO: u32 = number(0x80);
/// `NVME_URING_CMD_IO_VEC`: a command for an I/O queue, with an array of `struct iovec`.
pub(super) const IO_VEC: u32 = number(0x81);

/// `_IOWR('N', number, struct nvme_passthru_cmd)` (include/uapi/asm-generic/ioctl.h).
const fn number(number: u32) -> u32 {
    3 << 30 | (size_of::<Passthrough>() as u32) << 16 | (b'N' as u32) << 8 | number
}

// Typed from what the compiler makes of include/uapi/linux/nvme_ioctl.h.
const _: () = assert!(IOCTL_ID == 0x4e40 && IOCTL_ADMIN == 0xc048_4e41);
const _: () = assert!(IO == 0xc048_4e80 && IO_VEC == 0xc048_4e81);

/// `struct nvme_passthru_cmd` and `struct nvme_uring_cmd` (include/uapi/linux/nvme_ioctl.h), which
/// differ only in the last field's name. In the byte order of this machine.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Passthrough {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    /// An address of this process.
    addr: u64,
    metadata_len: u32,
    /// The length of the data in bytes; of an array, its number of elements.
    data_len: u32,
    /// CDW10 to CDW15.
    cdw10: [u32; 6],
    /// 0 selects the driver's own time-out.
    timeout_ms: u32,
    result: u32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Passthrough>() == 72);
    assert!(offset_of!(Passthrough, nsid) == 4 && offset_of!(Passthrough, cdw2) == 8);
    assert!(offset_of!(Passthrough, metadata) == 16 && offset_of!(Passthrough, addr) == 24);
    assert!(offset_of!(Passthrough, metadata_len) == 32);
    assert!(offset_of!(Passthrough, data_len) == 36 && offset_of!(Passthrough, cdw10) == 40);
    assert!(offset_of!(Passthrough, timeout_ms) == 64 && offset_of!(Passthrough, result) == 68);
};

impl Passthrough {
    /// The command of `sqe` with other data. The driver chooses the identifier, and describes the
    /// data itself.
    fn new(sqe: &Sqe, addr: u64, data_len: u32) -> Self {
        let [cdw0, ..] = sqe.cdw0.get().to_le_bytes();
        let Sqe { cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, .. } = *sqe;
        Self {
            opcode: cdw0,
            flags: 0,
            rsvd1: 0,
            nsid: sqe.nsid.get(),
            cdw2: sqe.cdw2.get(),
            cdw3: sqe.cdw3.get(),
            metadata: 0,
            addr,
            metadata_len: 0,
            data_len,
            cdw10: [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15].map(|word| word.get()),
            timeout_ms: 0,
            result: 0,
        }
    }
}

/// Where a command's data is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    /// [`IO`] or [`IO_VEC`].
    pub(super) how: u32,
    pub(super) addr: u64,
    pub(super) len: u32,
    /// The number of the registered buffer that it lies in.
    pub(super) fixed: Option<u16>,
}

/// The entry of a command on the ring's first file.
pub(super) fn entry(sqe: &Sqe, data: Data) -> squeue::Entry128 {
    // The area for a command is larger than ours.
    let mut area = [0; 80];
    area[..size_of::<Passthrough>()]
        .copy_from_slice(Passthrough::new(sqe, data.addr, data.len).as_bytes());
    opcode::UringCmd80::new(Fixed(0), data.how).cmd(area).buf_index(data.fixed).build()
}

/// The namespace identifier of a namespace's device.
///
/// # Errors
/// Returns the kernel's error: ENOTTY if `file` is no such device.
pub fn namespace_id(file: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: NVME_IOCTL_ID has no argument.
    let nsid = unsafe { libc::ioctl(file.as_raw_fd(), IOCTL_ID as _) };
    u32::try_from(nsid).map_err(|_| io::Error::last_os_error())
}

/// The most data of one [`admin_read`]: a page.
const READ_BYTES: usize = 4096;

/// The number of bytes that the admin command `sqe` transfers to the host at most; `None` if it is
/// none that only reads, or transfers more than [`READ_BYTES`].
fn read_bytes(sqe: &Sqe) -> Option<usize> {
    let [opcode, ..] = sqe.cdw0.get().to_le_bytes();
    match opcode {
        // A feature's data are at most those of the LBA Range Type (1.4 §5.21.1.3): 4,096 bytes.
        admin::IDENTIFY | admin::GET_FEATURES => Some(READ_BYTES),
        admin::GET_LOG_PAGE => {
            // NUMDU is in CDW11, NUMDL in CDW10 (1.4 §5.14), 0's based.
            let dwords = (sqe.cdw11.get() & 0xffff) << 16 | sqe.cdw10.get() >> 16;
            let bytes = (u64::from(dwords) + 1) * 4;
            (bytes <= READ_BYTES as u64).then_some(bytes as usize)
        }
        _ => None,
    }
}

/// Has the kernel's driver send the admin command `sqe` to the controller behind `file`, a device
/// of a namespace. Returns CQE.DW0 and the data, a page where the command does not say how much it
/// is; or the controller's status. The addresses in `sqe` are of no account.
///
/// # Errors
/// Returns the kernel's error: EACCES without CAP_SYS_ADMIN, ENOTTY if `file` is no such device.
/// Only commands that read are sent: Identify, Get Features, and Get Log Page of up to 4,096 bytes.
/// Any other is [`io::ErrorKind::Unsupported`].
pub fn admin_read(
    file: BorrowedFd<'_>,
    sqe: &Sqe,
) -> io::Result<std::result::Result<(u32, Vec<u8>), Status>> {
    let Some(len) = read_bytes(sqe) else {
        let what = "only Identify, Get Features and Get Log Page of a page are passed on";
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    };
    let mut data = vec![0; len];
    let addr = data.as_mut_ptr().expose_provenance() as u64;
    let mut command = Passthrough::new(sqe, addr, len as u32);
    // SAFETY: NVME_IOCTL_ADMIN_CMD reads and writes one `struct nvme_passthru_cmd`, which `command`
    // is. The command is one that `read_bytes` knows: it transfers at most `len` bytes, and all of
    // them from the controller. The kernel writes them to `data`, which is that long and not
    // otherwise borrowed, and whose bytes may have any value.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), IOCTL_ADMIN as _, &raw mut command) };
    match result {
        0 => Ok(Ok((command.result, data))),
        ..0 => Err(io::Error::last_os_error()),
        status => Ok(Err(Status::from_bits(status as u16))),
    }
}

/// Returns what Identify (1.4 §5.15) reports for `cns`, which selects a structure of 4,096 bytes.
///
/// # Errors
/// Returns the kernel's error, or the controller's status.
pub fn identify<T: FromBytes>(file: BorrowedFd<'_>, nsid: u32, cns: u8) -> io::Result<T> {
    const { assert!(size_of::<T>() == READ_BYTES) };
    let (_, data) = admin_read(file, &Sqe::identify(0, nsid, cns, 0, 0, 0))?.map_err(|status| {
        io::Error::other(format!("the controller answered Identify with {status}"))
    })?;
    T::read_from_bytes(&data).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use meantime_nvme_spec::identify::IdentifyNamespace;
    use meantime_nvme_spec::opcode::io::WRITE;

    use super::*;

    /// Against bytes typed from the kernel's header.
    #[test]
    fn a_command_has_the_kernels_layout() {
        let sqe = Sqe::transfer(WRITE, 0x7777, 3, 0x11_2233_4455, 7, 1, 2, true);
        let command = Passthrough::new(&sqe, 0x7f00_1234_5000, 4096);
        let mut expected = [0; 72];
        expected[0] = 0x01;
        expected[4] = 3;
        expected[24..30].copy_from_slice(&[0x00, 0x50, 0x34, 0x12, 0x00, 0x7f]);
        expected[37] = 0x10;
        expected[40..45].copy_from_slice(&[0x55, 0x44, 0x33, 0x22, 0x11]);
        expected[48..52].copy_from_slice(&[7, 0, 0, 0x40]);
        assert_eq!(command.as_bytes(), expected);
    }

    #[test]
    fn what_is_no_namespace_says_so() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let errno = |error: io::Error| error.raw_os_error();
        assert_eq!(namespace_id(file.as_fd()).map_err(errno), Err(Some(libc::ENOTTY)));
        let identified = identify::<IdentifyNamespace>(file.as_fd(), 1, 0).map(drop);
        assert_eq!(identified.map_err(errno), Err(Some(libc::ENOTTY)));
    }

    #[test]
    fn only_commands_that_read_are_sent() {
        let log = |dwords| read_bytes(&Sqe::get_log_page(0, 1, 2, 0, true, dwords, 0, 0, 0));
        assert_eq!(log(128), Some(512));
        assert_eq!(log(1024), Some(4096));
        assert_eq!(log(1025), None);
        assert_eq!(log(0x1_0001), None, "NUMDU counts");
        assert_eq!(log(u32::MAX), None);
        assert_eq!(read_bytes(&Sqe::get_features(0, 1, 3, 0, 0)), Some(4096));
        let file = std::fs::File::open("/dev/null").unwrap();
        for refused in [Sqe::set_features(0, 0, 6, false, 0), Sqe::delete_io_sq(0, 1)] {
            let sent = admin_read(file.as_fd(), &refused).unwrap_err();
            assert_eq!(sent.kind(), io::ErrorKind::Unsupported);
        }
    }
}
