//! Serves open files: reads, writes, preallocates and syncs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use meantime_ext4::format::inode::flags;
use meantime_ext4::{
    Allocate, Caller, Errno, Error, FileType, Metadata, Node, OpenOptions, ReadOptions,
    SetMetadata, SetTime, WriteOptions,
};

use super::answer::{Answer, Served};
use super::handles::{OpenFile, Opened};
use super::state::{Server, ino, nodeid};
use crate::fuse::Request;
use crate::fuse::flags::{
    FSYNC_DATA, OPEN_KILL_SUIDGID, READ_PAST_CACHE, WRITE_CACHE, WRITE_KILL_SUIDGID,
    WRITE_PAST_CACHE, opened,
};
use crate::fuse::wire::{
    CopyFileRangeIn, FallocateIn, FlushIn, FsyncIn, InHeader, LseekIn, LseekOut, OpenIn, OpenOut,
    ReadIn, ReleaseIn, WriteIn, WriteOut,
};
use crate::session::PIECE_BYTES;

/// The maximum that one request copies. A caller that wants more repeats the request, and can be
/// interrupted in between.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// The set-user and set-group bits.
pub(super) const SET_IDS: u16 = 0o6000;
const SET_GID: u16 = 0o2000;
const GROUP_RUNS: u16 = 0o010;
/// The attribute with a program's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

impl Server {
    pub(super) fn open(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let open: OpenIn = request.take()?;
        let kills = open.open_flags & OPEN_KILL_SUIDGID != 0;
        let killer = kills.then_some(&request.header);
        let opened = self.open_node(&self.node(request)?, open.flags as i32, killer)?;
        if kills && open.flags as i32 & libc::O_TRUNC != 0 {
            answer.stale = Some(request.header.nodeid);
        }
        answer.put_as(&opened)
    }

    /// Opens `node` with `flags` of `open(2)`. `killer` is the request of the process whose
    /// truncation clears the set-user and set-group bits.
    pub(super) fn open_node(
        &self,
        node: &Node,
        flags: i32,
        killer: Option<&InHeader>,
    ) -> Result<OpenOut, Errno> {
        let mode = flags & libc::O_ACCMODE;
        let only_appended = node.metadata().flags & flags::APPEND != 0;
        let options = OpenOptions {
            read: mode != libc::O_WRONLY,
            write: mode != libc::O_RDONLY,
            // Each write has its own append flag, because it can change while the file is open.
            // Here it matters only for append-only files.
            append: only_appended && flags & libc::O_APPEND != 0,
            no_access_time: flags & libc::O_NOATIME != 0,
            ..OpenOptions::default()
        };
        if only_appended && (flags & libc::O_TRUNC != 0 || options.write && !options.append) {
            return Err(Errno(libc::EPERM));
        }
        let file = self.fs.open_node_with(node, &options)?;
        if flags & libc::O_TRUNC != 0 && node.file_type() == FileType::Regular {
            let emptied = SetMetadata {
                size: Some(0),
                modified: Some(SetTime::Now),
                drop_privileges: killer.is_some(),
                mode: killer.and_then(|killer| mode_without_ids(killer, &node.metadata())),
                ..SetMetadata::default()
            };
            self.fs.set_metadata(node, &emptied)?;
            self.changed()?;
        }
        let mut open = OpenFile::new(file, &options, only_appended);
        open.opened_to_append = flags & libc::O_APPEND != 0;
        if node.file_type() == FileType::Regular {
            self.share(&mut open, flags);
        }
        let fh = self.handles.add(Opened::File(Arc::new(open)));
        // All content changes come through the same kernel, so its cache stays valid.
        let mut open_flags = opened::KEEP_CACHE;
        if flags & libc::O_DIRECT != 0 {
            open_flags = opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES;
        }
        // Writes have arrived before the close, and mapped pages are written back when they are
        // unmapped. Only the shared-memory path has to know of each close.
        if self.shm.is_none() {
            open_flags |= opened::NOFLUSH;
        }
        Ok(OpenOut { fh, open_flags, padding: 0 })
    }

    /// Lets programs take `open`, if the mount has a shared-memory path.
    fn share(&self, open: &mut OpenFile, flags: i32) {
        let ino = open.file.node().ino();
        open.sharing = self.shm.as_ref().map(|shm| shm.opened(ino, flags));
    }

    /// Serves the close of a descriptor, which ends when this is answered. All writes have arrived.
    /// `fsync` reports whether they are on the device.
    pub(super) fn flush(&self, request: &mut Request<'_>) -> Served {
        let flush: FlushIn = request.take()?;
        if self.shm.is_some()
            && let Ok(open) = self.handles.file(flush.fh)
            && let Some(sharing) = &open.sharing
        {
            sharing.closed();
        }
        Ok(())
    }

    pub(super) fn release(&self, request: &mut Request<'_>) -> Served {
        let release: ReleaseIn = request.take()?;
        drop(self.handles.remove(release.fh));
        Ok(())
    }

    pub(super) fn read(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let read: ReadIn = request.take()?;
        let open = self.handles.file(read.fh)?;
        let direct = read.flags as i32 & libc::O_DIRECT != 0;
        if direct {
            self.check_aligned(read.offset, read.size as usize)?;
        }
        let options = ReadOptions { direct, ..ReadOptions::default() };
        if read.read_flags & READ_PAST_CACHE == 0 {
            open.kernel_reads(read.size);
            self.kept.keep(request.header.nodeid);
        }
        answer.fill(read.size, |place| {
            let read = open.file.read_at_with(place, read.offset, &options);
            read.map_err(|error| error.errno_of_data())
        })
    }

    pub(super) fn write(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let write: WriteIn = request.take()?;
        let data = request.bytes(write.size)?;
        let open = self.handles.file(write.fh)?;
        let flags = write.flags as i32;
        // Cached pages are written at their offset, however the file used for the writeback was
        // opened.
        let is_cached = write.write_flags & WRITE_CACHE != 0;
        if is_cached && open.only_appended {
            return Err(Errno(libc::EPERM));
        }
        if !is_cached {
            let metadata = open.file.node().metadata();
            open.may_be_written(&metadata, write.offset, flags & libc::O_APPEND != 0)?;
        }
        // The kernel does not say which process stored into a mapping, and sends user 0.
        let _acting = is_cached.then(|| Caller::NOBODY.act());
        let direct = !is_cached && flags & libc::O_DIRECT != 0;
        if direct {
            self.check_aligned(write.offset, data.len())?;
        }
        let options = WriteOptions {
            // The pieces of one large direct write may come in any order. They go to the kernel's
            // offsets, because it knows the file's end, and excludes other appends meanwhile.
            append: !is_cached && !direct && flags & libc::O_APPEND != 0,
            direct,
            sync: self.serving.sync || flags & libc::O_SYNC == libc::O_SYNC,
            dsync: flags & libc::O_DSYNC != 0,
            ..WriteOptions::default()
        };
        if write.write_flags & WRITE_PAST_CACHE == 0 {
            open.kernel_caches();
            self.kept.keep(request.header.nodeid);
        }
        let killer = (write.write_flags & WRITE_KILL_SUIDGID != 0).then_some(&request.header);
        self.drop_privileges(&open, killer, answer)?;
        // The kernel places what it appends by a size that may not be current any more.
        let appends = !is_cached && flags & libc::O_APPEND != 0;
        let is_misplaced = appends
            && write.offset != open.file.size()
            && open.sharing.as_ref().is_some_and(|sharing| sharing.gate.was_taken());
        if is_misplaced && direct && write.offset < open.file.size() {
            answer.stale = Some(request.header.nodeid);
            return Err(Errno(libc::EIO));
        }
        let written = open.file.write_at_with(data, write.offset, &options);
        if is_misplaced && !direct {
            // The kernel has the bytes in its cache, at the wrong place.
            answer.misplaced = Some(request.header.nodeid);
        }
        // A failed write may have written a part.
        if direct && self.kept.has(request.header.nodeid) {
            answer.outdated = Some(request.header.nodeid);
        }
        let written = written.map_err(|error| error.errno_of_data())?;
        answer.put_as(&WriteOut { size: written as u32, padding: 0 })
    }

    /// Refuses, as Linux does, a call with O_DIRECT that ends within a block of the device. A
    /// large call whose memory begins within a page comes as several requests. These end at any
    /// byte, except for the last one, which may begin at any byte.
    pub(super) fn check_aligned(&self, offset: u64, bytes: usize) -> Result<(), Errno> {
        let is_part = bytes > PIECE_BYTES - 4096;
        let end = offset.saturating_add(bytes as u64);
        let is_whole = end.is_multiple_of(self.fs.device_block_bytes().into());
        if is_part || is_whole { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Drops the privileges of a file that is written to. Capabilities are always dropped. Set-user
    /// and set-group bits are dropped if the kernel asks for it, or would ask; `killer` is then the
    /// writer's request.
    fn drop_privileges(
        &self,
        open: &OpenFile,
        killer: Option<&InHeader>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let node = open.file.node();
        let killer = killer.map(|killer| (killer, node.metadata()));
        if let Some((killer, metadata)) = killer.filter(|(_, it)| it.mode & SET_IDS != 0) {
            let mode = mode_without_ids(killer, &metadata);
            let dropped = SetMetadata { drop_privileges: true, mode, ..SetMetadata::default() };
            self.fs.set_metadata(node, &dropped)?;
            // The kernel does not expect a write to change the mode.
            answer.stale = Some(nodeid(node.ino()));
            Ok(())
        } else {
            self.drop_capabilities(open)
        }
    }

    /// Drops the capabilities of a file that is written to.
    pub(super) fn drop_capabilities(&self, open: &OpenFile) -> Result<(), Errno> {
        let node = open.file.node();
        // Looking for capabilities costs more than a short write, so it is done once for each
        // epoch, which changes when an inode gets capabilities.
        let epoch = self.privileged.load(Ordering::Relaxed);
        if !open.is_unprivileged_at(epoch) {
            // As in the kernel, an attribute that cannot be read counts as none.
            if self.fs.attribute(node, CAPABILITY).is_ok() {
                match self.fs.remove_attribute(node, CAPABILITY) {
                    // Another write removed it first.
                    Ok(()) | Err(Error::NoAttribute) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            // This is noted only now, because a concurrent write must not pass before the
            // capabilities are gone.
            open.note_unprivileged(epoch);
        }
        Ok(())
    }

    /// Drops the privileges of a file for a request in which the kernel sends no flag for that. The
    /// check of the user stands for the kernel's check for CAP_FSETID.
    fn drop_privileges_of(
        &self,
        request: &Request<'_>,
        open: &OpenFile,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let header = &request.header;
        self.drop_privileges(open, (header.uid != 0).then_some(header), answer)
    }

    pub(super) fn fsync(&self, request: &mut Request<'_>) -> Served {
        let fsync: FsyncIn = request.take()?;
        let open = self.handles.file(fsync.fh)?;
        let synced = if fsync.fsync_flags & FSYNC_DATA != 0 {
            open.file.sync_data()
        } else {
            open.file.sync_all()
        };
        synced.map_err(|error| error.errno_of_data())
    }

    pub(super) fn fallocate(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let asked: FallocateIn = request.take()?;
        let open = self.handles.file(asked.fh)?;
        let keeps = asked.mode as i32 & libc::FALLOC_FL_KEEP_SIZE != 0;
        let how = match (asked.mode as i32 & !libc::FALLOC_FL_KEEP_SIZE, keeps) {
            (0, false) => Allocate::Extend,
            (0, true) => Allocate::KeepSize,
            (libc::FALLOC_FL_PUNCH_HOLE, true) => Allocate::Punch,
            (libc::FALLOC_FL_ZERO_RANGE, false) => Allocate::Zero,
            (libc::FALLOC_FL_ZERO_RANGE, true) => Allocate::ZeroKeepSize,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        let adds = matches!(how, Allocate::Extend | Allocate::KeepSize);
        open.may_be_changed(&open.file.node().metadata(), !adds)?;
        self.drop_privileges_of(request, &open, answer)?;
        open.file.allocate(asked.offset, asked.length, how)?;
        self.changed()
    }

    pub(super) fn lseek(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let asked: LseekIn = request.take()?;
        let open = self.handles.file(asked.fh)?;
        let found = match asked.whence as i32 {
            libc::SEEK_DATA => open.file.seek_data(asked.offset),
            libc::SEEK_HOLE => open.file.seek_hole(asked.offset),
            _ => return Err(Errno(libc::EINVAL)),
        };
        match found {
            Ok(offset) => answer.put_as(&LseekOut { offset }),
            Err(Error::NotFound) => Err(Errno(libc::ENXIO)),
            Err(error) => Err(error.errno_of_data()),
        }
    }

    pub(super) fn copy_file_range(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let copy: CopyFileRangeIn = request.take()?;
        let (from, to) = (self.handles.file(copy.fh_in)?, self.handles.file(copy.fh_out)?);
        if to.file.node().ino() != ino(copy.nodeid_out) {
            return Err(Errno(libc::EBADF));
        }
        to.may_be_written(&to.file.node().metadata(), copy.off_out, false)?;
        self.drop_privileges_of(request, &to, answer)?;
        let bytes = copy.len.min(COPY_BYTES_MAX);
        let copied = from.file.copy_range(copy.off_in, &to.file, copy.off_out, bytes);
        let copied = copied.map_err(|error| error.errno_of_data())?;
        self.changed()?;
        answer.put_as(&WriteOut { size: copied as u32, padding: 0 })
    }
}

/// Returns the mode of a file that loses its set-user and set-group bits because of `killer`, if it
/// differs from the result of [`SetMetadata::drop_privileges`]. That keeps a set-group bit without
/// group execution, which ext4 clears unless the caller is in the group or root (CAP_FSETID). FUSE
/// sends neither supplementary groups nor capabilities: a caller that is a member, or capable, only
/// by these does not count as such.
pub(super) fn mode_without_ids(killer: &InHeader, of: &Metadata) -> Option<u16> {
    let is_kept = of.mode & (SET_GID | GROUP_RUNS) == SET_GID;
    let may_keep = killer.uid == 0 || killer.gid == of.gid;
    (is_kept && !may_keep).then_some(of.mode & 0o7777 & !SET_IDS)
}
