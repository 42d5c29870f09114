//! INIT, in which kernel and server agree on features.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use zerocopy::IntoBytes as _;

use super::{SessionError, UNMOUNTED};
use crate::fuse::flags::init;
use crate::fuse::wire::{InitIn, InitOut, OutHeader};
use crate::fuse::{Opcode, Request};

/// The largest read or write of one request: 256 pages, the kernel's default limit
/// (`fs.fuse.max_pages_limit`).
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// `FUSE_KERNEL_VERSION`, and the newest minor version whose structures we define.
const MAJOR: u32 = 7;
const MINOR: u32 = 39;
/// The oldest minor version whose structures have the same length, which is that of Linux 5.4. The
/// features of [`NEEDED`] came later.
const MINOR_MIN: u32 = 31;

/// The features that we use if the kernel offers them.
const WANTED: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::IOCTL_DIR
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;
/// The features that are required. Without this one `setxattr` has another structure.
const NEEDED: u64 = init::SETXATTR_EXT;

/// The maximum number of the kernel's background requests (read-ahead, writeback) in flight, and
/// the number from which the kernel throttles them.
const BACKGROUND: u16 = 64;
const CONGESTED: u16 = 48;

/// Reads the first request of `device`, and answers it. Times of the file system are multiples of
/// `time_gran_ns`.
pub(crate) fn agree(device: &OwnedFd, time_gran_ns: u32) -> Result<(), SessionError> {
    let protocol = |why: &str| SessionError::Protocol(format!("/dev/fuse: {why}"));
    let mut bytes = vec![0; PIECE_BYTES];
    loop {
        let len = match rustix::io::read(device.as_fd(), &mut bytes[..]) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            read => read.map_err(|error| protocol(&error.to_string()))?,
        };
        let mut request = Request::new(&bytes[..len])
            .map_err(|_| protocol("the first request of the kernel is malformed"))?;
        if Opcode::of(request.header.opcode) != Some(Opcode::Init) {
            return Err(protocol("the first request of the kernel is not INIT"));
        }
        let unique = request.header.unique;
        let asked: InitIn =
            request.take().map_err(|_| protocol("the kernel's INIT is malformed"))?;
        // `flags2` came with 7.36.
        let flags2: u32 = match u64::from(asked.flags) & init::INIT_EXT {
            0 => 0,
            _ => request.take().map_err(|_| protocol("the kernel's INIT is malformed"))?,
        };
        let (mut answer, is_agreed) = answer(&asked, flags2).map_err(|why| protocol(&why))?;
        answer.time_gran = time_gran_ns;
        let len = (size_of::<OutHeader>() + size_of::<InitOut>()) as u32;
        let header = OutHeader { len, error: 0, unique };
        let all = [header.as_bytes(), answer.as_bytes()].concat();
        rustix::io::write(device.as_fd(), &all).map_err(|error| protocol(&error.to_string()))?;
        if is_agreed {
            return Ok(());
        }
    }
}

/// Returns the answer to `asked`, and whether it fixes the version. A kernel of a later major
/// version asks again.
fn answer(asked: &InitIn, flags2: u32) -> Result<(InitOut, bool), String> {
    if asked.major > MAJOR {
        return Ok((InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() }, false));
    }
    if asked.major < MAJOR || asked.minor < MINOR_MIN {
        return Err(format!(
            "the kernel speaks version {}.{} of FUSE, and {MAJOR}.{MINOR_MIN} or later is needed \
             (Linux 5.13)",
            asked.major, asked.minor
        ));
    }
    let flags = (u64::from(asked.flags) | u64::from(flags2) << 32) & WANTED;
    let mut flags = flags;
    if flags & init::EXPLICIT_INVAL_DATA == 0 {
        flags |= u64::from(asked.flags) & init::AUTO_INVAL_DATA;
    }
    if flags & NEEDED != NEEDED {
        return Err(format!("the kernel is too old: Linux 5.13 or later is needed; {UNMOUNTED}"));
    }
    let answer = InitOut {
        major: MAJOR,
        minor: MINOR.min(asked.minor),
        max_readahead: asked.max_readahead,
        flags: flags as u32,
        max_background: BACKGROUND,
        congestion_threshold: CONGESTED,
        max_write: PIECE_BYTES as u32,
        time_gran: 1,
        max_pages: (PIECE_BYTES / 4096) as u16,
        map_alignment: 0,
        flags2: (flags >> 32) as u32,
        unused: [0; 7],
    };
    Ok((answer, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(major: u32, minor: u32) -> InitIn {
        InitIn { major, minor, max_readahead: 1 << 17, flags: u32::MAX }
    }

    #[test]
    fn what_the_kernel_offers_and_we_want_is_agreed() {
        let (told, is_agreed) = answer(&asked(7, 45), u32::MAX).unwrap();
        assert!(is_agreed);
        assert_eq!((told.major, told.minor, told.max_write), (7, 39, 1 << 20));
        assert_eq!(u64::from(told.flags) | u64::from(told.flags2) << 32, WANTED);
        let not_offered = !(init::READDIRPLUS_AUTO as u32 | init::EXPLICIT_INVAL_DATA as u32);
        let less = InitIn { flags: not_offered, ..asked(7, 36) };
        let (told, _) = answer(&less, 0).unwrap();
        assert_eq!((told.minor, told.flags2), (36, 0));
        assert_eq!(told.flags & init::READDIRPLUS_AUTO as u32, 0);
        assert_ne!(told.flags & init::AUTO_INVAL_DATA as u32, 0, "then by time and size");
    }

    #[test]
    fn kernels_that_are_too_old_are_refused_and_later_majors_asked_again() {
        assert!(answer(&asked(7, 30), 0).is_err());
        assert!(answer(&asked(6, 40), 0).is_err());
        let old = InitIn { flags: 0, ..asked(7, 31) };
        assert!(answer(&old, 0).unwrap_err().contains("5.13"));
        let (told, is_agreed) = answer(&asked(8, 0), 0).unwrap();
        assert!(!is_agreed && told.major == 7);
    }
}
