//! Passes a call to the owner and returns the result.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use crate::hook::set_errno;
use libc::iovec;
use meantime_shm_rpc::DATA_BYTES;
use meantime_shm_rpc::client::Caller;
use meantime_shm_rpc::message::{
    APPEND, Attributes, DIRECT, DSYNC, Op, Reply, Request, SYNC, Status,
};
use rustix::fs::SeekFrom;
use rustix::time::Timespec;

use crate::buffers;
use crate::report::{self, Reason};
use crate::resolve::{self, Resolved, Use, known, resolve};
use crate::state::{self, TABLE, is_limited};
use crate::table::{Entry, Flags};
use crate::thread::{self, Thread};

/// The number of attempts if the file is being closed, or if its size changed.
const ATTEMPTS: u32 = 8;
/// The number of further attempts to make the kernel know the size, each after a pause.
const PAUSES: u32 = 5_000;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The result of a transfer.
pub(crate) enum Outcome {
    /// The transfer ended with this number of bytes, or with this negated errno.
    Ended(isize),
    /// The first `done` of `total` bytes at `at` were moved. The rest takes the FUSE path. If the
    /// place was `Here`, the descriptor's position is after all of them, and the rest has been
    /// unreserved.
    Rest { done: usize, total: usize, at: i64 },
}

/// The place of a transfer.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// The place is the descriptor's position.
    Here,
    At(i64),
}

/// The progress of a transfer.
struct Progress {
    done: usize,
    /// The reason why it stopped, unless the file ended, or it is complete.
    stopped: Option<Stop>,
    /// The end of the last piece of a write.
    end: u64,
}

impl Progress {
    /// Whether nothing was done, because the handle is no longer good.
    fn is_stale(&self) -> bool {
        self.done == 0 && matches!(self.stopped, Some(Stop::Reason(Reason::Stale)))
    }
}

enum Stop {
    Errno(isize),
    Reason(Reason),
}

/// Runs `body` as a call of the shared-memory path. A panic ends here, as EIO.
#[inline]
fn short(body: impl Fn(&Thread) -> Result<Outcome, Reason>) -> Result<Outcome, Reason> {
    let once = || thread::enter(&body);
    let again = || {
        let mut result = once();
        for _ in 1..ATTEMPTS {
            // The file was closed between the check and the call, perhaps by another process.
            if !matches!(result, Err(Reason::Stale)) {
                break;
            }
            result = once();
        }
        result
    };
    let panicked = |payload| {
        // Dropping the payload might panic again.
        std::mem::forget(payload);
        Ok(Outcome::Ended(-(libc::EIO as isize)))
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(again)).unwrap_or_else(panicked)
}

/// Finds out what `fd` refers to, before it is `used`. Returns whether that use will take the
/// shared-memory path.
#[cold]
pub(crate) fn find_out(fd: c_int, used: Use) -> bool {
    short(|_| resolve(fd, used).map(|_| Outcome::Ended(0))).is_ok()
}

/// Makes the owner execute `request`. Returns `Err(Stale)` if its handle is no longer valid.
#[inline]
fn exchange(
    of: &Resolved,
    fd: c_int,
    caller: &mut Caller,
    request: &Request,
) -> Result<Reply, Reason> {
    let forks = state::forks();
    // It takes a lock.
    let is_alive = || state::forks() == forks && crate::slowly(|| of.link.is_alive());
    let reply = caller.call(request, is_alive);
    if state::forks() != forks {
        // A signal handler has forked meanwhile, and this is the child. The line is the parent's.
        return Err(Reason::Ended);
    }
    let Ok(reply) = reply else {
        crate::slowly(|| of.link.lose());
        return Err(Reason::Ended);
    };
    match reply.status {
        Status::Done => Ok(reply),
        Status::Resized => {
            crate::slowly(|| tell_size(fd));
            Ok(reply)
        }
        Status::Long => {
            left(fd, of, Entry::Long);
            Err(Reason::Cached)
        }
        Status::Left => {
            left(fd, of, Entry::Left);
            Err(Reason::Left)
        }
        Status::Stale => {
            TABLE.store(fd, of.ticket, Entry::Unknown);
            Err(Reason::Stale)
        }
    }
}

/// Notes that the kernel has the file from now on. Until then the kernel has not known of changes
/// of the size, and would end a read where the file ended before. So it is told the size before
/// other threads that have the descriptor go to it without asking the owner.
#[cold]
fn left(fd: c_int, of: &Resolved, entry: Entry) {
    crate::slowly(|| tell_size(fd));
    TABLE.store(fd, of.ticket, entry);
}

/// Makes the kernel ask for the size of a file.
///
/// The kernel ignores the answer if it learned anything else of the file since it asked, or while
/// others write at the end. So this asks again until the kernel has the size that the owner
/// reported, or at least the first one of a file that grows. It asks a few times at once, and then
/// for a while.
#[cold]
fn tell_size(fd: c_int) {
    use rustix::fs::{AtFlags, StatxFlags};
    // SAFETY: a number that is not open is an error: then another thread has closed it.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let size = |how| {
        let of = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | how, StatxFlags::SIZE);
        of.map(|of| of.stx_size)
    };
    let mut least = None;
    for attempt in 0..ATTEMPTS + PAUSES {
        let Ok(said) = size(AtFlags::STATX_FORCE_SYNC) else { break };
        let least = *least.get_or_insert(said);
        let is_known = |known| known == said || known >= least && said >= least;
        if size(AtFlags::STATX_DONT_SYNC).is_ok_and(is_known) {
            break;
        }
        if attempt >= ATTEMPTS {
            let _ = rustix::thread::nanosleep(&PAUSE);
        }
    }
}

/// Returns the flags of a request on a file.
fn flags_of(flags: Flags, is_write: bool) -> u32 {
    let mut all = if flags.has(Flags::DIRECT) { DIRECT } else { 0 };
    if is_write {
        let of_writes = [(Flags::APPEND, APPEND), (Flags::DSYNC, DSYNC), (Flags::SYNC, SYNC)];
        all |= of_writes.iter().filter(|(flag, _)| flags.has(*flag)).fold(0, |all, it| all | it.1);
    }
    all
}

/// Moves the position of `fd`. Returns the new position.
fn seek(fd: c_int, to: SeekFrom) -> rustix::io::Result<u64> {
    // SAFETY: it is no negative number; one that is not open is an error.
    rustix::fs::seek(unsafe { BorrowedFd::borrow_raw(fd) }, to)
}

/// Moves `total` bytes from or to `iov`, piece by piece.
///
/// # Safety
/// The caller keeps the contract of readv(2) or writev(2).
#[inline]
unsafe fn pieces(
    of: &Resolved,
    fd: c_int,
    thread: &Thread,
    (op, flags): (Op, u32),
    (buffers, total): (&mut buffers::Buffers<'_>, usize),
    at: u64,
) -> Progress {
    let (handle, closings) = (of.known.handle, of.known.closings);
    let mut progress = Progress { done: 0, stopped: None, end: at };
    while progress.done < total {
        let len = (total - progress.done).min(DATA_BYTES);
        let offset = at + progress.done as u64;
        let request = Request { op, flags, handle, closings, offset, len: len as u32 };
        let moved = thread.with(of.link, |caller| {
            if op == Op::Write {
                // SAFETY: the caller's promise.
                unsafe { buffers.put(caller, len) };
            }
            let reply = exchange(of, fd, caller, &request)?;
            let count = usize::try_from(reply.result).map(|count| count.min(len));
            if op == Op::Read
                && let Ok(count) = count
            {
                // SAFETY: the caller's promise.
                unsafe { buffers.get(caller, count) };
            }
            Ok((count.map_err(|_| reply.result as isize), reply.end))
        });
        match moved.and_then(|moved| moved) {
            Ok((Ok(count), end)) => {
                progress.done += count;
                progress.end = end;
                if count < len {
                    break;
                }
            }
            Ok((Err(errno), _)) => {
                progress.stopped = Some(Stop::Errno(errno));
                break;
            }
            Err(reason) => {
                if reason == Reason::Ended {
                    thread.drop_line();
                }
                progress.stopped = Some(Stop::Reason(reason));
                break;
            }
        }
    }
    progress
}

/// Reads or writes by the shared-memory path.
///
/// # Safety
/// The caller keeps the contract of preadv2(2) or pwritev2(2).
#[inline]
pub(crate) unsafe fn transfer(
    is_write: bool,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    place: Place,
    more_flags: u32,
) -> Result<Outcome, Reason> {
    if let Some(reason) = resolve::why_long(fd) {
        report::count::<()>(&Err(reason));
        return Err(reason);
    }
    // SAFETY: the caller's promise.
    let body = |thread: &Thread| unsafe {
        transfer_inside(thread, is_write, fd, (iov, count), place, more_flags)
    };
    let result = short(body);
    report::count(&result);
    if !is_write && matches!(result, Err(Reason::NoLine)) {
        // Other threads of this program may have written past the end that the kernel knows.
        crate::slowly(|| tell_size(fd));
    }
    result
}

/// # Safety
/// The caller keeps the contract of preadv2(2) or pwritev2(2).
#[inline]
unsafe fn transfer_inside(
    thread: &Thread,
    is_write: bool,
    fd: c_int,
    (iov, count): (*const iovec, c_int),
    place: Place,
    more_flags: u32,
) -> Result<Outcome, Reason> {
    if is_write && is_limited() {
        return Err(Reason::Limited);
    }
    let is_here = matches!(place, Place::Here);
    let used = match is_write {
        false if is_here => Use::ReadHere,
        false => Use::ReadThere,
        true => Use::Other,
    };
    let of = resolve(fd, used)?;
    // SAFETY: the caller's promise.
    let (mut buffers, total) = unsafe { buffers::of(iov, count) }?;
    let (op, access) = if is_write { (Op::Write, Flags::WRITE) } else { (Op::Read, Flags::READ) };
    let mut open = of.known.flags;
    if is_write && !of.ticket.is_own() {
        // Another process that has the open file may have changed them.
        // SAFETY: a number that is not open is an error.
        let flags = rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) });
        open = resolve::of_file(flags.map_err(|_| Reason::Arguments)?);
    }
    if !open.has(access) {
        return Err(Reason::Arguments);
    }
    let flags = flags_of(open, is_write) | more_flags;
    let is_append = flags & APPEND != 0;
    // If the append were in several pieces, others could append between them.
    if is_append && total > DATA_BYTES {
        return Err(Reason::Arguments);
    }
    let at = match place {
        Place::At(at) if at < 0 => return Err(Reason::Arguments),
        _ if is_append => 0,
        Place::At(at) => at,
        // This reserves the range, so that others that move the position at the same time get
        // another one.
        Place::Here => {
            thread.with(of.link, |_| ())?;
            let end = seek(fd, SeekFrom::Current(total as i64)).map_err(|_| Reason::Arguments)?;
            end as i64 - total as i64
        }
    };
    if at < 0 || at.checked_add(total as i64).is_none() {
        return Err(Reason::Arguments);
    }
    // SAFETY: the caller's promise.
    let mut progress =
        unsafe { pieces(&of, fd, thread, (op, flags), (&mut buffers, total), at as u64) };
    // The range is reserved, and stays so. If it were unreserved, others would get it a second
    // time.
    for _ in 1..ATTEMPTS {
        if !is_here || is_append || !progress.is_stale() {
            break;
        }
        match resolve(fd, Use::Other) {
            Ok(again) if again.known.handle == of.known.handle => {
                // SAFETY: the caller's promise.
                let (mut buffers, total) = unsafe { buffers::of(iov, count) }?;
                let (of, buffers) = (&again, (&mut buffers, total));
                // SAFETY: as above.
                progress = unsafe { pieces(of, fd, thread, (op, flags), buffers, at as u64) };
            }
            // Another thread has closed the descriptor meanwhile. The result is that of a close
            // before this call.
            Ok(_) | Err(Reason::Foreign) => return Ok(Outcome::Ended(-(libc::EBADF as isize))),
            Err(_) => break,
        }
    }
    let done = progress.done;
    match progress.stopped {
        // It is unknown whether the data were appended, and appending them twice would be wrong.
        Some(Stop::Reason(Reason::Ended)) if is_append => Ok(Outcome::Ended(-(libc::EIO as isize))),
        Some(Stop::Reason(reason)) if is_append || !is_here && done == 0 => Err(reason),
        // After some bytes the call ends short, because it is not certain what the descriptor
        // refers to by now.
        Some(Stop::Reason(_)) if done == 0 => Ok(Outcome::Rest { done, total, at }),
        stopped => {
            // The seeks below are for the file of the transfer.
            if done < total && is_here && is_another(fd, &of) {
                return Ok(Outcome::Ended(done as isize));
            }
            if is_append && is_here && done > 0 {
                let _ = seek(fd, SeekFrom::Start(progress.end));
            } else if is_here && !is_append {
                unreserve(fd, total - done);
            }
            match stopped {
                Some(Stop::Errno(errno)) if done == 0 => Ok(Outcome::Ended(errno)),
                _ => Ok(Outcome::Ended(done as isize)),
            }
        }
    }
}

/// Returns whether `fd` refers to another file than `of` by now.
fn is_another(fd: c_int, of: &Resolved) -> bool {
    match resolve(fd, Use::Other) {
        Ok(now) => now.known.handle != of.known.handle,
        Err(reason) => matches!(reason, Reason::Foreign | Reason::Arguments),
    }
}

/// Ends the reservation of the last `bytes` of a range.
pub(crate) fn unreserve(fd: c_int, bytes: usize) {
    if bytes > 0 {
        let _ = seek(fd, SeekFrom::Current(-(bytes as i64)));
    }
}

/// Executes a request without data of the caller's. If `is_known`, it does so only if the
/// descriptor is known.
fn execute(
    fd: c_int,
    is_known: bool,
    request: impl Fn(&Resolved) -> Result<(Op, u64), Reason>,
    use_reply: impl Fn(&Caller, &Reply) -> Option<isize>,
) -> Result<isize, Reason> {
    let body = |thread: &Thread| {
        let of = if is_known { known(fd) } else { resolve(fd, Use::Other) }?;
        let (op, offset) = request(&of)?;
        let (handle, closings) = (of.known.handle, of.known.closings);
        let request = Request { op, flags: 0, handle, closings, offset, len: 0 };
        let result = thread.with(of.link, |caller| {
            let reply = exchange(&of, fd, caller, &request)?;
            let result = reply.result as isize;
            let used = if result < 0 { Some(result) } else { use_reply(caller, &reply) };
            used.map(Outcome::Ended).ok_or(Reason::Arguments)
        });
        result.and_then(|result| result).inspect_err(|reason| {
            if *reason == Reason::Ended {
                thread.drop_line();
            }
        })
    };
    let result = short(body).map(|outcome| match outcome {
        Outcome::Ended(result) => result,
        Outcome::Rest { .. } => 0,
    });
    // Requests for a file that was not read or written yet also go to the kernel, and are not
    // counted.
    if !is_known || !matches!(result, Err(Reason::Changing)) {
        report::count(&result);
    }
    result
}

/// Makes a file durable.
pub(crate) fn sync(fd: c_int, op: Op) -> Result<isize, Reason> {
    execute(fd, false, |_| Ok((op, 0)), |_, _| Some(0))
}

/// Sets a file's size.
pub(crate) fn truncate(fd: c_int, size: i64) -> Result<isize, Reason> {
    let request = |of: &Resolved| match u64::try_from(size) {
        _ if is_limited() => Err(Reason::Limited),
        Ok(size) if of.known.flags.has(Flags::WRITE) => Ok((Op::Truncate, size)),
        _ => Err(Reason::Arguments),
    };
    execute(fd, true, request, |_, _| Some(0))
}

/// Returns whether `fd` may refer to a file of the mount.
pub(crate) fn may_be_of_mount(fd: c_int) -> bool {
    TABLE.load(fd).is_none_or(|(entry, _)| entry != Entry::Foreign)
}

/// Leaves the file of `fd` to the kernel's cache, if it is of the mount. Returns `false` if the
/// owner could not be asked, or was not asked, since the file seemed to be better left to the
/// kernel.
pub(crate) fn leave(fd: c_int) -> bool {
    if TABLE.load(fd).is_none() {
        return false;
    }
    let left = execute(fd, false, |_| Ok((Op::Leave, 0)), |_, _| Some(0));
    matches!(left, Ok(_) | Err(Reason::Foreign | Reason::Refused | Reason::Cached))
}

/// Asks for a file's attributes, and passes them to `then`.
pub(crate) fn attributes(
    fd: c_int,
    then: impl Fn(&Attributes) -> Option<isize>,
) -> Result<isize, Reason> {
    let request = |_: &Resolved| Ok((Op::Attributes, 0));
    execute(fd, true, request, |caller, _| {
        let mut bytes = [0; Attributes::BYTES];
        // SAFETY: our own.
        unsafe { caller.get(0, bytes.as_mut_ptr(), bytes.len()) };
        then(&Attributes::from_bytes(&bytes))
    })
}

/// Returns what a C function returns for `result`. If it is an errno, it returns −1 and sets errno.
pub(crate) fn answer(result: isize) -> isize {
    if result >= 0 {
        return result;
    }
    set_errno(-result as c_int);
    -1
}
