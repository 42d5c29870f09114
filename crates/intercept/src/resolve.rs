//! Finds out to which file of the owner's a descriptor refers.

use std::ffi::{c_char, c_int, c_ulong};
use std::os::fd::BorrowedFd;

use meantime_shm_rpc::message::{SMALL_FILE_BYTES, TAKE, Taken};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::link::{self, Link};
use crate::report::Reason;
use crate::state::{TABLE, device};
use crate::table::{Entry, Flags, Known, Ticket};

/// The number of attempts if a descriptor is being changed.
const ATTEMPTS: u32 = 100;

/// The use of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The descriptor is read at its position.
    ReadHere,
    /// The descriptor is read at another place.
    ReadThere,
    Other,
}

/// A descriptor of a file of the owner's, and the connection to it.
#[derive(Clone, Copy)]
pub(crate) struct Resolved {
    pub(crate) link: &'static Link,
    pub(crate) known: Known,
    pub(crate) ticket: Ticket,
}

/// Returns what is known of `fd`, if its descriptor was not closed since. It may be closed in the
/// next moment, but so may the descriptor of a system call that has begun.
#[inline]
pub(crate) fn known(fd: c_int) -> Result<Resolved, Reason> {
    let (entry, ticket) = TABLE.load(fd).ok_or(Reason::Foreign)?;
    match entry {
        Entry::Known(known) => {
            let link = link::current().filter(|link| link.number == known.connection);
            let link = link.ok_or(Reason::Changing)?;
            if link.closings.count(known.word) == Some(known.closings) {
                Ok(Resolved { link, known, ticket })
            } else {
                Err(Reason::Changing)
            }
        }
        Entry::Foreign => Err(Reason::Foreign),
        Entry::Long => Err(Reason::Refused),
        Entry::Left => Err(Reason::Left),
        Entry::Unknown | Entry::Busy => Err(Reason::Changing),
    }
}

/// Returns why a call on `fd` takes the FUSE path, if this is already known.
#[inline]
pub(crate) fn why_long(fd: c_int) -> Option<Reason> {
    match TABLE.load_long(fd)? {
        Entry::Foreign => Some(Reason::Foreign),
        Entry::Left => Some(Reason::Left),
        _ => Some(Reason::Refused),
    }
}

/// Returns what `fd` refers to, and finds it out if it is not known.
#[inline]
pub(crate) fn resolve(fd: c_int, used: Use) -> Result<Resolved, Reason> {
    match known(fd) {
        Err(Reason::Changing) => crate::slowly(|| find_out(fd, used)),
        other => other,
    }
}

/// Finds out what `fd` refers to.
///
/// What is found out must still be true when it is stored. The owner's answer has the count of
/// closings, and the changes of the descriptor that this library sees void the ticket. A change
/// that it does not see (`fclose`) may come before the count, if another thread makes it. In that
/// case only a second answer, with the same file and the same count, shows that the descriptor
/// referred to that file in between, and was not closed.
#[cold]
#[inline(never)]
fn find_out(fd: c_int, used: Use) -> Result<Resolved, Reason> {
    for _ in 0..ATTEMPTS {
        // Another thread may have found it out meanwhile.
        match known(fd) {
            Err(Reason::Changing) => {}
            other => return other,
        }
        let (entry, ticket) = TABLE.load(fd).ok_or(Reason::Foreign)?;
        if entry == Entry::Busy {
            // That thread is storing three words, and no call of this thread is doing so.
            rustix::thread::sched_yield();
            continue;
        }
        // SAFETY: only system calls use it, for which a number that is not open is an error.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let of = rustix::fs::fstat(file).map_err(|_| Reason::Arguments)?;
        let flags = rustix::fs::fcntl_getfl(file).map_err(|_| Reason::Arguments)?;
        let is_regular = FileType::from_raw_mode(of.st_mode) == FileType::RegularFile;
        if of.st_dev != device() || !is_regular || flags.contains(OFlags::PATH) {
            TABLE.store(fd, ticket, Entry::Foreign);
            return Err(Reason::Foreign);
        }
        if let Some((entry, reason)) = left_unasked(file, &of, flags, used)? {
            TABLE.store(fd, ticket, entry);
            return Err(reason);
        }
        let link = link::connect()?;
        let taken = match take(fd, link) {
            Ok(taken) => taken,
            Err(Errno::INTR) => return Err(Reason::Changing),
            Err(Errno::ALREADY) => {
                TABLE.store(fd, ticket, Entry::Left);
                return Err(Reason::Left);
            }
            Err(_) => {
                TABLE.store(fd, ticket, Entry::Long);
                return Err(Reason::Refused);
            }
        };
        // The flags are its flags, if it is the same file before and after.
        let flags = rustix::fs::fcntl_getfl(file).map_err(|_| Reason::Changing)?;
        if !is_alone() && take(fd, link) != Ok(taken) {
            continue;
        }
        let known = Known {
            handle: taken.handle,
            closings: taken.closings,
            word: taken.word,
            connection: link.number,
            flags: of_file(flags),
        };
        if TABLE.store(fd, ticket, Entry::Known(known)) {
            return self::known(fd);
        }
    }
    Err(Reason::Changing)
}

/// Returns the entry of a file that is left to the kernel without asking the owner, and why its
/// calls take the FUSE path.
///
/// A program that only reads a file through the cache, and from its beginning, is likely to read
/// all of it. The next program then finds it in the kernel's cache. The same holds for small files.
/// But a file that another program has taken is taken here as well.
fn left_unasked(
    file: BorrowedFd<'_>,
    of: &Stat,
    flags: OFlags,
    used: Use,
) -> Result<Option<(Entry, Reason)>, Reason> {
    let only_reads = flags & OFlags::RWMODE == OFlags::RDONLY && !flags.contains(OFlags::DIRECT);
    if used == Use::Other || !only_reads {
        return Ok(None);
    }
    let is_taken = |link: &Link| link.closings.may_be_taken(of.st_ino);
    if of.st_size as u64 <= SMALL_FILE_BYTES {
        // Making a connection takes longer than reading a small file.
        let is_taken = link::current().is_some_and(is_taken);
        return Ok((!is_taken).then_some((Entry::Left, Reason::Left)));
    }
    let is_at_start = used == Use::ReadHere && rustix::fs::tell(file).is_ok_and(|at| at == 0);
    if !is_at_start || is_taken(link::connect()?) {
        return Ok(None);
    }
    // The reason is not `Left`, for which reads at other places would fetch what is around them.
    Ok(Some((Entry::Long, Reason::Refused)))
}

/// Returns whether the process has one thread.
fn is_alone() -> bool {
    unsafe extern "C" {
        static __libc_single_threaded: c_char;
    }
    // SAFETY: the C library's variable, which changes when this thread starts another one.
    unsafe { (&raw const __libc_single_threaded).read_volatile() != 0 }
}

/// Asks the owner which file `fd` refers to.
fn take(fd: c_int, link: &Link) -> Result<Taken, Errno> {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&link.nonce);
    // SAFETY: the ioctl writes as many bytes as its number says.
    let answer = unsafe { libc::ioctl(fd, c_ulong::from(TAKE), &raw mut bytes) };
    if answer < 0 {
        return Err(Errno::from_raw_os_error(crate::hook::errno()));
    }
    Ok(Taken::from_bytes(&bytes))
}

/// Returns the flags of an open file.
pub(crate) fn of_file(flags: OFlags) -> Flags {
    let mut all = match flags & OFlags::RWMODE {
        OFlags::RDONLY => Flags::READ,
        OFlags::WRONLY => Flags::WRITE,
        OFlags::RDWR => Flags::READ | Flags::WRITE,
        _ => 0,
    };
    for (flag, ours) in [
        (OFlags::APPEND, Flags::APPEND),
        (OFlags::DIRECT, Flags::DIRECT),
        (OFlags::DSYNC, Flags::DSYNC),
        (OFlags::SYNC, Flags::SYNC),
    ] {
        if flags.contains(flag) {
            all |= ours;
        }
    }
    Flags(all)
}
