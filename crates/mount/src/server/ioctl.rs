//! Serves the ioctls of file systems: flags, projects, generations and trimming.

use std::sync::Arc;

use meantime_ext4::format::inode::flags;
use meantime_ext4::{Errno, Error, Node};
use meantime_shm_rpc::message::{Nonce, SYNCFS, TAKE};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::Server;
use super::answer::{Answer, Served};
use super::shared_memory::NotTaken;
use super::shared_memory::gate::Mode;
use crate::fuse::Request;
use crate::fuse::wire::{FsXattr, FstrimRange, IoctlIn, IoctlOut};

/// `_IOR('f', 1, long)`. As for the next ones, an int is copied. The number encodes the size of
/// `long`, so a 32-bit program's number differs.
const GETFLAGS: u32 = 0x8008_6601;
const GETFLAGS_32: u32 = 0x8004_6601;
/// `_IOW('f', 2, long)`.
const SETFLAGS: u32 = 0x4008_6602;
const SETFLAGS_32: u32 = 0x4004_6602;
/// `_IOR('v', 1, long)`.
const GETVERSION: u32 = 0x8008_7601;
const GETVERSION_32: u32 = 0x8004_7601;
/// `_IOR(0x94, 49, char[FSLABEL_MAX])`.
const GETFSLABEL: u32 = 0x8100_9431;
const LABEL_BYTES: usize = 256;
/// `_IOR('X', 31, struct fsxattr)`.
const FSGETXATTR: u32 = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)`.
const FSSETXATTR: u32 = 0x401c_5820;
/// `_IOWR('X', 121, struct fstrim_range)`.
const FITRIM: u32 = 0xc018_5879;

/// `FS_XFLAG_*`, and ext4's flags for them.
const XFLAGS: [(u32, u32); 6] = [
    (0x8, flags::IMMUTABLE),
    (0x10, flags::APPEND),
    // ext4's 0x8 is FS_SYNC_FL, its 0x40 FS_NODUMP_FL.
    (0x20, 0x8),
    (0x40, flags::NOATIME),
    (0x80, 0x40),
    (0x200, flags::PROJINHERIT),
];

fn to_xflags(flags: u32) -> u32 {
    XFLAGS.iter().filter(|(_, ext4)| flags & ext4 != 0).map(|(xflag, _)| xflag).sum()
}

/// Returns `old` with the flags of `xflags`, or `None` if one of them is not supported.
fn from_xflags(xflags: u32, old: u32) -> Option<u32> {
    let known: u32 = XFLAGS.iter().map(|(xflag, _)| xflag).sum();
    let told: u32 = XFLAGS.iter().map(|(_, ext4)| ext4).sum();
    let new: u32 =
        XFLAGS.iter().filter(|(xflag, _)| xflags & xflag != 0).map(|(_, ext4)| ext4).sum();
    (xflags & !known == 0).then_some(old & !told | new)
}

impl Server {
    pub(super) fn ioctl(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let asked: IoctlIn = request.take()?;
        let given = request.bytes(asked.in_size)?;
        let node = self.node(request)?;
        let number = || u32::read_from_prefix(given).map(|(n, _)| n).or(Err(Errno(libc::EINVAL)));
        match asked.cmd {
            GETFLAGS | GETFLAGS_32 => put_out(&self.fs.flags(&node).to_ne_bytes(), &asked, answer),
            SETFLAGS | SETFLAGS_32 => {
                self.fs.set_flags(&node, number()?)?;
                // The kernel does not expect an ioctl to change ctime.
                answer.stale = Some(request.header.nodeid);
                self.changed()?;
                put_out(&[], &asked, answer)
            }
            GETVERSION | GETVERSION_32 => {
                let generation = node.metadata().generation;
                put_out(&generation.to_ne_bytes(), &asked, answer)
            }
            GETFSLABEL => {
                let mut label = self.fs.info().label;
                label.resize(LABEL_BYTES, 0);
                put_out(&label, &asked, answer)
            }
            FSGETXATTR => {
                let xflags = to_xflags(self.fs.flags(&node));
                let projid = node.metadata().project;
                let told = FsXattr { xflags, projid, ..FsXattr::default() };
                put_out(told.as_bytes(), &asked, answer)
            }
            FSSETXATTR => {
                let (set, _) = FsXattr::read_from_prefix(given).or(Err(Errno(libc::EINVAL)))?;
                let old = self.fs.flags(&node);
                let new = from_xflags(set.xflags, old).ok_or(Errno(libc::EOPNOTSUPP))?;
                if new != old {
                    self.fs.set_flags(&node, new)?;
                }
                if set.projid != node.metadata().project {
                    self.fs.set_project(&node, set.projid)?;
                }
                answer.stale = Some(request.header.nodeid);
                self.changed()?;
                put_out(&[], &asked, answer)
            }
            TAKE => self.take(request, given, &asked, answer),
            SYNCFS => {
                self.fs.sync().map_err(|error| error.errno_of_data())?;
                put_out(&[], &asked, answer)
            }
            FITRIM => self.trim(request, &node, given, &asked, answer),
            _ => Err(Errno(libc::ENOTTY)),
        }
    }

    /// Serves a program that takes an open file, in order to use the shared-memory path.
    fn take(
        &self,
        request: &Request<'_>,
        given: &[u8],
        asked: &IoctlIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let shm = self.shm.as_ref().ok_or(Errno(libc::ENOTTY))?;
        let (nonce, _) = Nonce::read_from_prefix(given).or(Err(Errno(libc::EINVAL)))?;
        let open = self.handles.file(asked.fh)?;
        if open.only_appended {
            return Err(Errno(libc::EPERM));
        }
        let fits = self.fits_cache(&open.file);
        let (taken, mode) = shm.take(&open, &nonce, fits).map_err(|why| match why {
            NotTaken::Nobody => Errno(libc::EACCES),
            NotTaken::Cached => Errno(libc::EBUSY),
            NotTaken::Left => Errno(libc::EALREADY),
            NotTaken::NoRoom => Errno(libc::ENOSPC),
        })?;
        let nodeid = request.header.nodeid;
        // From now on the attributes change without the kernel's knowledge.
        answer.stale = Some(nodeid);
        if mode == Mode::Entering
            && let Some(sharing) = &open.sharing
        {
            // This is done even if nothing is known to be cached, because a write may have filled a
            // page, and not have arrived yet.
            (answer.outdated, answer.enters) = (Some(nodeid), Some(Arc::clone(&sharing.gate)));
        }
        put_out(&taken.to_bytes(), asked, answer)
    }

    fn trim(
        &self,
        request: &Request<'_>,
        node: &Node,
        given: &[u8],
        asked: &IoctlIn,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        // The kernel does not check the caller's privilege.
        if request.header.uid != 0 {
            return Err(Errno(libc::EPERM));
        }
        let (range, _) = FstrimRange::read_from_prefix(given).or(Err(Errno(libc::EINVAL)))?;
        if range.len < u64::from(node.metadata().block_bytes) {
            return Err(Errno(libc::EINVAL));
        }
        let end = range.start.saturating_add(range.len);
        let trimmed = match self.fs.trim(range.start..end, range.minlen) {
            // The kernel's ext4 returns this for a device without discard.
            Err(Error::Unsupported(_)) => return Err(Errno(libc::EOPNOTSUPP)),
            trimmed => trimmed?,
        };
        put_out(FstrimRange { len: trimmed, ..range }.as_bytes(), asked, answer)
    }
}

/// Answers with success, and with as many of `bytes` as the caller has room for.
fn put_out(bytes: &[u8], asked: &IoctlIn, answer: &mut Answer) -> Result<(), Errno> {
    answer.put_as(&IoctlOut::default())?;
    let room = (asked.out_size as usize).min(bytes.len());
    answer.put(&bytes[..room])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_both_forms_are_the_same() {
        let ext4 = flags::IMMUTABLE | flags::NOATIME | flags::EXTENTS;
        assert_eq!(to_xflags(ext4), 0x48);
        assert_eq!(from_xflags(0x10, ext4), Some(flags::APPEND | flags::EXTENTS));
        assert_eq!(from_xflags(0x8000, ext4), None, "no direct access to memory");
    }
}
