//! What the kernel reports of a file.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use meantime_ext4::{SegmentKind, Timestamp};
use rustix::fs::{AtFlags, CWD, SeekFrom, StatxFlags, lgetxattr, llistxattr, seek, statx};

/// The full names of `path`'s attributes with their values, in the kernel's order.
pub(crate) fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0u8; 65536];
    let length = llistxattr(path, &mut names[..])?;
    let mut all = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 65536];
        let length = lgetxattr(path, OsString::from_vec(name.to_vec()), &mut value[..])?;
        value.truncate(length);
        all.push((name.to_vec(), value));
    }
    Ok(all)
}

/// The creation time of `path`, if its inode is large enough to store it.
pub(crate) fn created(path: &Path) -> Option<Timestamp> {
    let said = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).expect("statx");
    StatxFlags::from_bits_retain(said.stx_mask).contains(StatxFlags::BTIME).then_some(Timestamp {
        seconds: said.stx_btime.tv_sec,
        nanoseconds: said.stx_btime.tv_nsec,
    })
}

/// The ranges of data in `file`, by SEEK_DATA and SEEK_HOLE.
pub(crate) fn data(file: &File) -> Vec<(u64, u64)> {
    let mut stretches = Vec::new();
    let mut at = 0;
    while let Ok(begin) = seek(file.as_fd(), SeekFrom::Data(at)) {
        let end = seek(file.as_fd(), SeekFrom::Hole(begin)).expect("after data comes a hole");
        stretches.push((begin, end));
        at = end;
    }
    stretches
}

/// The flags, as `lsattr` shows them, and the generation of a file or directory.
pub(crate) fn flags(file: &File) -> (u32, u32) {
    // FS_IOC_GETFLAGS and FS_IOC_GETVERSION: _IOR('f', 1, long) and _IOR('v', 1, long); both store
    // an int.
    let ask = |request: libc::c_ulong| {
        let mut value = [0u32; 2];
        // SAFETY: the ioctl stores 4 bytes, or the 8 bytes that its number encodes; `value` has 8.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), request, value.as_mut_ptr()) };
        assert_eq!(result, 0, "flags: {}", io::Error::last_os_error());
        value[0]
    };
    (ask(0x8008_6601), ask(0x8008_7601))
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const FIEMAP_ROOM: usize = 256;

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_ROOM],
}

/// An allocated range of a file: offset, length, kind.
pub(crate) type Piece = (u64, u64, SegmentKind);

/// The extents of `file` by FIEMAP, adjacent ones joined.
pub(crate) fn extents(file: &File) -> io::Result<Vec<Piece>> {
    const LAST: u32 = 0x1;
    const INLINE: u32 = 0x200;
    const UNWRITTEN: u32 = 0x800;
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let mut map = Fiemap {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: FIEMAP_ROOM as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); FIEMAP_ROOM],
        };
        // FS_IOC_FIEMAP: _IOWR('f', 11, struct fiemap).
        // SAFETY: the structure is the kernel's, with room for as many extents as it says.
        if unsafe { libc::ioctl(file.as_raw_fd(), 0xc020_660b, &raw mut map) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let extents = &map.extents[..map.mapped_extents as usize];
        let Some(last) = extents.last() else { break };
        start = last.logical + last.length;
        let done = last.flags & LAST != 0;
        found.extend(extents.iter().map(|extent| {
            let kind = match extent.flags {
                flags if flags & INLINE != 0 => SegmentKind::Inline,
                flags if flags & UNWRITTEN != 0 => SegmentKind::Unwritten(extent.physical),
                _ => SegmentKind::Data(extent.physical),
            };
            (extent.logical, extent.length, kind)
        }));
        if done {
            break;
        }
    }
    Ok(join(found))
}

/// Joins neighbours that are also adjacent on the disk.
pub(crate) fn join(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        if let Some(last) = joined.last_mut().filter(|last| last.0 + last.1 == piece.0) {
            let goes_on = match (last.2, piece.2) {
                (SegmentKind::Data(a), SegmentKind::Data(b)) => a + last.1 == b,
                (SegmentKind::Unwritten(a), SegmentKind::Unwritten(b)) => a + last.1 == b,
                _ => false,
            };
            if goes_on {
                last.1 += piece.1;
                continue;
            }
        }
        joined.push(piece);
    }
    joined
}
