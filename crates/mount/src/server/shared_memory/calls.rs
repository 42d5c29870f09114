//! Executes the calls of the shared-memory path.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use meantime_completion::Policy;
use meantime_ext4::{Caller, Errno, Error, File, ReadOptions, SetMetadata, SetTime, WriteOptions};
use meantime_shm_rpc::message::{
    APPEND, Attributes, DIRECT, DSYNC, HIPRI, Op, Reply, Request, SYNC, Status,
};
use meantime_shm_rpc::owner::Answerer;

use super::SharedPath;
use super::connection::Connection;
use super::gate::Done;
use super::memory::Share;
use crate::server::Server;
use crate::server::answer::Room;
use crate::server::attributes::attr;
use crate::server::data::SET_IDS;
use crate::server::handles::OpenFile;

/// A read of fewer bytes is small, compared with what the kernel reads ahead (128 KiB and more).
const SMALL_BYTES: usize = 32 << 10;
/// The number of small reads in a row, each beginning where the last one ended, after which a file
/// counts as read in sequence.
const SEQUENCE: u32 = 64;

/// Serves a line until it ends. This is a thread's main function.
pub(super) fn serve(
    server: &Server,
    shm: &SharedPath,
    connection: &Arc<Connection>,
    mut line: Answerer,
    mut share: Share,
) {
    let mut data = Room::new(0, share.data());
    while let Ok(request) = line.next() {
        if request.len as usize > share.data() {
            if !share.grow(request.len as usize) {
                shm.say_no_memory();
                line.drop_data(share.data());
                // The caller goes to the kernel, and has to find there what others have written.
                let open = connection.file(request.handle);
                if let Some(sharing) = open.as_ref().and_then(|open| open.sharing.as_ref()) {
                    sharing.gate.close();
                }
                let reply = Reply::without(Status::Long);
                shm.counts.add(&request, &reply);
                line.answer(&reply);
                continue;
            }
            data = Room::new(0, share.data());
        }
        let data = &mut data.all()[..request.len as usize];
        // As with a request of the kernel, a panic in one call must not end the others.
        let _waits = server.fs.begin_call();
        // The kernel does not say here who the caller is.
        let _acting = Caller::NOBODY.act();
        let call = AssertUnwindSafe(|| server.call(connection, &request, data, &line));
        let reply = catch_unwind(call).unwrap_or(Reply::done(-i64::from(libc::EIO), 0));
        shm.counts.add(&request, &reply);
        line.answer(&reply);
    }
}

impl Server {
    /// Executes `request`. `data` has the length that the request names.
    fn call(
        &self,
        connection: &Connection,
        request: &Request,
        data: &mut [u8],
        line: &Answerer,
    ) -> Reply {
        let Some(open) = connection.file(request.handle) else {
            return Reply::without(Status::Stale);
        };
        let Some(sharing) = &open.sharing else { return Reply::without(Status::Stale) };
        if sharing.closings() != Some(request.closings) {
            return Reply::without(Status::Stale);
        }
        if request.op == Op::Leave {
            sharing.gate.close();
            return Reply::done(0, 0);
        }
        let gate = &sharing.gate;
        sharing.used();
        if sharing.is_appended_elsewhere()
            && open.is_writable
            && seems_to_resize(&open.file, request)
        {
            gate.await_taking();
        }
        let Some(call) = gate.enter() else {
            return Reply::without(if gate.is_left() { Status::Left } else { Status::Long });
        };
        let has = |flag| request.flags & flag != 0;
        let policy = has(HIPRI).then_some(Policy::Poll);
        let size = open.file.size();
        let at = if has(APPEND) { size } else { request.offset };
        if has(DIRECT)
            && matches!(request.op, Op::Read | Op::Write)
            && let Err(Errno(errno)) = self.check_aligned(at, data.len())
        {
            return Reply::done(-i64::from(errno), 0);
        }
        let mut may_resize = false;
        let done = match request.op {
            Op::Read if !open.is_readable => return Reply::done(-i64::from(libc::EBADF), 0),
            Op::Write if !open.is_writable => return Reply::done(-i64::from(libc::EBADF), 0),
            Op::Truncate if !open.is_writable => return Reply::done(-i64::from(libc::EINVAL), 0),
            Op::Read => {
                let options = ReadOptions { direct: has(DIRECT), policy };
                let read = open.file.read_at_where(data, request.offset, &options);
                let read = read.map(|(read, is_hit)| {
                    line.give(&data[..read]);
                    gate.count(self.done_by_read(&open, request, read, is_hit, line.is_slow()));
                    (read as i64, 0)
                });
                read.map_err(|error| error.errno_of_data())
            }
            Op::Write => {
                // A write up to the end grows a file that another write truncates meanwhile.
                let end = at.saturating_add(data.len() as u64);
                may_resize = end >= size;
                let metadata = open.file.node().metadata();
                if let Err(Errno(errno)) =
                    open.may_be_written(&metadata, request.offset, has(APPEND))
                {
                    return Reply::done(-i64::from(errno), 0);
                }
                // Only the kernel knows whether the caller may keep the bits.
                if metadata.mode & SET_IDS != 0 || end > size && sharing.is_appended_elsewhere() {
                    return Reply::without(Status::Long);
                }
                gate.count(Done::Change);
                line.take(data);
                let (append, direct) = (has(APPEND), has(DIRECT));
                let options = WriteOptions { append, direct, policy, ..WriteOptions::default() };
                if let Err(Errno(errno)) = self.drop_capabilities(&open) {
                    return Reply::done(-i64::from(errno), 0);
                }
                let written = match open.file.write_at_where(data, request.offset, &options) {
                    // The kernel's request says who the caller is, for whom blocks may be reserved.
                    // What was appended before the failure must not be appended again.
                    Err(Error::NoSpace) if !append || open.file.size() <= size => {
                        return Reply::without(Status::Long);
                    }
                    Ok(written) => self.durable(&open.file, request).map(|()| written),
                    failed => failed,
                };
                let written = written.map(|(written, at)| (written as i64, at + written as u64));
                written.map_err(|error| error.errno_of_data())
            }
            // Syncs do not hold the gate, because they touch no content, and the kernel would wait
            // for them.
            Op::SyncData | Op::SyncAll => {
                drop(call);
                gate.count(Done::Change);
                let synced = match request.op {
                    Op::SyncData => open.file.sync_data(),
                    _ => open.file.sync_all(),
                };
                return match synced {
                    Ok(()) => Reply::done(0, 0),
                    Err(error) => Reply::done(-i64::from(error.errno_of_data().0), 0),
                };
            }
            Op::Truncate => {
                may_resize = true;
                let resizes = request.offset != size;
                if has_set_ids(&open) || resizes && sharing.is_appended_elsewhere() {
                    return Reply::without(Status::Long);
                }
                match self.truncate(&open, request.offset) {
                    Err(Errno(libc::ENOSPC)) => return Reply::without(Status::Long),
                    truncated => truncated.map(|()| (0, 0)),
                }
            }
            // This operation was handled above.
            Op::Leave => Ok((0, 0)),
            Op::Attributes => {
                line.give(&attributes(&open).to_bytes());
                Ok((Attributes::BYTES as i64, 0))
            }
        };
        drop(call);
        let (result, end) = done.unwrap_or_else(|Errno(errno)| (-i64::from(errno), 0));
        // A program that has not taken the file uses the size that the kernel knows, to map or copy
        // the file. A failed call may have changed the size, too.
        let changes = matches!(request.op, Op::Write | Op::Truncate);
        // The same applies to other threads of this program, if the file was left to the kernel
        // meanwhile. Threads that were refused may have asked for the size before this call changed
        // it.
        let is_known_elsewhere = sharing.is_open_elsewhere() || gate.is_closed();
        let is_untold = changes && is_known_elsewhere && (may_resize || open.file.size() != size);
        Reply { status: if is_untold { Status::Resized } else { Status::Done }, result, end }
    }

    /// Makes what `request` wrote durable, if the request asks for that. This is separate from the
    /// write, which is not to be repeated when only the sync fails.
    fn durable(&self, file: &File, request: &Request) -> Result<(), Error> {
        let has = |flag| request.flags & flag != 0;
        if self.serving.sync || has(SYNC) {
            file.sync_all()
        } else if has(DSYNC) {
            file.sync_data()
        } else {
            Ok(())
        }
    }

    /// Classifies a read of `read` bytes, from memory (`is_hit`) or not.
    fn done_by_read(
        &self,
        open: &OpenFile,
        request: &Request,
        read: usize,
        is_hit: bool,
        is_slow: bool,
    ) -> Done {
        if request.flags & DIRECT != 0 {
            return Done::Miss;
        }
        let fits = self.fits_cache(&open.file);
        let end = request.offset.saturating_add(read as u64);
        let count = open.sharing.as_ref().map_or(0, |it| it.in_sequence(request.offset..end));
        if count >= SEQUENCE && (1..SMALL_BYTES).contains(&read) {
            Done::Sequence { fits }
        } else if is_hit {
            Done::Hit { is_slow, fits }
        } else {
            Done::Miss
        }
    }

    /// Returns whether our cache can hold all of `file`.
    pub(crate) fn fits_cache(&self, file: &File) -> bool {
        file.size() / 4096 < self.cache_pages
    }

    fn truncate(&self, open: &OpenFile, size: u64) -> Result<(), Errno> {
        self.drop_capabilities(open)?;
        let modified = Some(SetTime::Now);
        let set = SetMetadata { size: Some(size), modified, ..SetMetadata::default() };
        self.fs.set_metadata(open.file.node(), &set)?;
        self.changed()
    }
}

/// Returns whether a call seems to change the file's size. The size may change until the call is
/// executed.
fn seems_to_resize(file: &File, request: &Request) -> bool {
    let end = request.offset.saturating_add(request.len.into());
    match request.op {
        Op::Write => request.flags & APPEND != 0 || end > file.size(),
        Op::Truncate => request.offset != file.size(),
        _ => false,
    }
}

fn has_set_ids(open: &OpenFile) -> bool {
    open.file.node().metadata().mode & SET_IDS != 0
}

fn attributes(open: &OpenFile) -> Attributes {
    let told = attr(&open.file.node().metadata());
    Attributes {
        ino: told.ino,
        size: told.size,
        blocks: told.blocks,
        atime: told.atime as i64,
        mtime: told.mtime as i64,
        ctime: told.ctime as i64,
        atime_nsec: told.atimensec,
        mtime_nsec: told.mtimensec,
        ctime_nsec: told.ctimensec,
        mode: told.mode,
        nlink: told.nlink,
        uid: told.uid,
        gid: told.gid,
        blksize: told.blksize,
    }
}
