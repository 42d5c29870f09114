//! Reads and sets attributes of inodes.

use std::os::unix::ffi::OsStrExt as _;

use meantime_ext4::{Errno, FileType, Metadata, Node, SetMetadata, SetTime, Timestamp};

use super::answer::{Answer, Served};
use super::data::mode_without_ids;
use super::state::{Server, nodeid};
use crate::fuse::Request;
use crate::fuse::flags::set;
use crate::fuse::wire::{Attr, AttrOut, EntryOut, SetAttrIn, Statx, StatxIn, StatxOut, StatxTime};

/// Returns a device's number as the kernel encodes it (`new_encode_dev`).
fn encoded((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Decodes a device's number to major and minor number (`new_decode_dev`).
pub(super) fn device_of(encoded: u32) -> (u32, u32) {
    ((encoded & 0xf_ff00) >> 8, (encoded & 0xff) | (encoded >> 12 & 0xf_ff00))
}

/// Encodes `metadata` for the kernel.
pub(super) fn attr(metadata: &Metadata) -> Attr {
    Attr {
        ino: u64::from(metadata.ino),
        size: metadata.size,
        blocks: metadata.blocks_512,
        // Seconds before 1970 are negative.
        atime: metadata.accessed.seconds as u64,
        mtime: metadata.modified.seconds as u64,
        ctime: metadata.changed.seconds as u64,
        atimensec: metadata.accessed.nanoseconds,
        mtimensec: metadata.modified.nanoseconds,
        ctimensec: metadata.changed.nanoseconds,
        mode: u32::from(metadata.mode),
        nlink: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        rdev: encoded(metadata.device),
        blksize: metadata.block_bytes,
        flags: 0,
    }
}

fn statx_time(time: Timestamp) -> StatxTime {
    StatxTime { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 }
}

fn statx(metadata: &Metadata) -> Statx {
    let born = if metadata.created.is_some() { libc::STATX_BTIME } else { 0 };
    Statx {
        mask: libc::STATX_BASIC_STATS | born,
        blksize: metadata.block_bytes,
        nlink: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        mode: metadata.mode,
        ino: u64::from(metadata.ino),
        size: metadata.size,
        blocks: metadata.blocks_512,
        atime: statx_time(metadata.accessed),
        btime: metadata.created.map(statx_time).unwrap_or_default(),
        ctime: statx_time(metadata.changed),
        mtime: statx_time(metadata.modified),
        rdev_major: metadata.device.0,
        rdev_minor: metadata.device.1,
        ..Statx::default()
    }
}

impl Server {
    pub(super) fn getattr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let node = self.node(request)?;
        let was_taken = self.was_taken(node.ino());
        self.put_attr(&node.metadata(), was_taken, answer)
    }

    fn put_attr(
        &self,
        metadata: &Metadata,
        was_taken: bool,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let (attr_valid, attr_valid_nsec) = self.attr_timeout(was_taken, metadata.ino);
        answer.put_as(&AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr(metadata) })
    }

    /// Returns the answer's entry for `node`. The caller counts the look-up.
    pub(super) fn entry(&self, node: &Node) -> EntryOut {
        let was_taken = self.was_taken(node.ino());
        let metadata = node.metadata();
        let (entry_valid, entry_valid_nsec) = self.timeout();
        let (attr_valid, attr_valid_nsec) = self.attr_timeout(was_taken, node.ino());
        EntryOut {
            nodeid: nodeid(node.ino()),
            generation: u64::from(metadata.generation),
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: attr(&metadata),
        }
    }

    pub(super) fn statx(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let _: StatxIn = request.take()?;
        let node = self.node(request)?;
        let was_taken = self.was_taken(node.ino());
        let metadata = node.metadata();
        let (attr_valid, attr_valid_nsec) = self.attr_timeout(was_taken, metadata.ino);
        answer.put_as(&StatxOut {
            attr_valid,
            attr_valid_nsec,
            stat: statx(&metadata),
            ..StatxOut::default()
        })
    }

    pub(super) fn setattr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let asked: SetAttrIn = request.take()?;
        let node = self.node(request)?;
        // The kernel believes this answer even after a notice that came in between. Therefore it
        // does not keep the attributes of a file that a program may take.
        let may_be_taken = self.shm.as_ref().is_some_and(|shm| shm.is_open(node.ino()));
        let mut set = what_to_set(&asked);
        // A change of the owner kills them even if the kernel does not ask.
        let is_given = set.uid.is_some() || set.gid.is_some();
        let kills = set.drop_privileges || is_given && request.header.uid != 0;
        if kills && node.file_type() != FileType::Directory {
            set.mode = set.mode.or_else(|| mode_without_ids(&request.header, &node.metadata()));
        }
        let metadata = self.fs.set_metadata(&node, &set)?;
        self.changed()?;
        self.put_attr(&metadata, may_be_taken, answer)
    }

    pub(super) fn readlink(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let target = self.fs.read_link_at(&self.node(request)?)?;
        answer.put(target.as_os_str().as_bytes())
    }
}

fn what_to_set(asked: &SetAttrIn) -> SetMetadata {
    let has = |flag| asked.valid & flag != 0;
    let time = |given, now, seconds: u64, nanoseconds| match (has(given), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::To(Timestamp { seconds: seconds as i64, nanoseconds })),
        (false, false) => None,
    };
    let mut modified = time(set::MTIME, set::MTIME_NOW, asked.mtime, asked.mtimensec);
    // `ftruncate` sets mtime even if the size stays, and leaves that to us. `truncate` does not.
    if has(set::SIZE) && has(set::FH) && modified.is_none() {
        modified = Some(SetTime::Now);
    }
    SetMetadata {
        size: has(set::SIZE).then_some(asked.size),
        mode: has(set::MODE).then_some((asked.mode & 0o7777) as u16),
        uid: has(set::UID).then_some(asked.uid),
        gid: has(set::GID).then_some(asked.gid),
        accessed: time(set::ATIME, set::ATIME_NOW, asked.atime, asked.atimensec),
        modified,
        drop_privileges: has(set::KILL_SUIDGID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_what_the_kernel_makes_of_them() {
        for device in [(0, 0), (8, 1), (259, 300), (0xfff, 0xf_ffff)] {
            assert_eq!(device_of(encoded(device)), device);
        }
        assert_eq!(encoded((8, 0x1_23)), 0x10_0823);
    }

    #[test]
    fn what_was_not_asked_for_stays() {
        let asked = SetAttrIn { size: 5, uid: 7, mode: 0o644, ..SetAttrIn::default() };
        assert_eq!(what_to_set(&asked), SetMetadata::default());
        let valid = set::SIZE | set::KILL_SUIDGID | set::ATIME | set::ATIME_NOW;
        let expected = SetMetadata {
            size: Some(5),
            accessed: Some(SetTime::Now),
            drop_privileges: true,
            ..SetMetadata::default()
        };
        assert_eq!(what_to_set(&SetAttrIn { valid, ..asked }), expected);
        let ftruncate = SetAttrIn { valid: set::SIZE | set::FH, ..asked };
        assert_eq!(what_to_set(&ftruncate).modified, Some(SetTime::Now));
        let before =
            SetAttrIn { valid: set::MTIME | set::UID, mtime: -2_i64 as u64, mtimensec: 3, ..asked };
        let time = SetTime::To(Timestamp { seconds: -2, nanoseconds: 3 });
        let expected = SetMetadata { uid: Some(7), modified: Some(time), ..SetMetadata::default() };
        assert_eq!(what_to_set(&before), expected);
    }
}
