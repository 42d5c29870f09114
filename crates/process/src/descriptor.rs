//! Descriptors of a library's own in the table of somebody else's program.
//!
//! A program takes the numbers of its descriptors for its own affair: it closes all from 3 on, or
//! puts a file onto number 5 (`exec 5>log`) because nothing of its own is there. So ours go to the
//! top of what its limit allows, and their numbers are kept in a set: a close of one is refused as
//! if nothing were open there, and nothing can be put onto one, as if it were above the limit.
//!
//! The limit itself is left alone. A higher one, even for the moment that it takes to get a number,
//! would be seen by other threads and inherited by children that are just being made; and where
//! soft and hard limit are the same there is nothing to be raised. What it costs is that a program
//! which uses its limit up has so many descriptors less.
//!
//! Who calls [`keep_away`] makes this the rule for this process; without it nothing is moved.

#![expect(unsafe_code)]

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::io::{Errno, Result, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

/// How many descriptors can be ours at a time.
const SLOTS_MAX: usize = 512;

/// Numbers that are no higher than this do without a large table in the kernel, which every fork
/// copies up to the highest number.
const TOP_MAX: u64 = 4096;

/// So many numbers below the top are for us at first, or a quarter of all if that is less.
const ROOM: RawFd = 64;

/// The numbers that are ours, one a slot; [`FREE`]. A number can be in two slots for a moment: its
/// descriptor was closed, and another is there already.
static SLOTS: [AtomicI32; SLOTS_MAX] = [const { AtomicI32::new(FREE) }; SLOTS_MAX];
const FREE: RawFd = -1;

/// No number of ours was ever lower: most questions end here.
static LOWEST: AtomicI32 = AtomicI32::new(RawFd::MAX);

static KEEPS_AWAY: AtomicBool = AtomicBool::new(false);

/// From now on, descriptors of ours keep away from the program's.
pub fn keep_away() {
    KEEPS_AWAY.store(true, Ordering::Relaxed);
}

/// `fd` at a number that is out of the program's way, and in the set; unchanged unless this is the
/// [rule](keep_away) here. Close-on-exec in any case.
///
/// Only threads that run [code of ours](crate::thread::Ours) can close it then.
///
/// # Errors
/// EMFILE: there are too many.
pub fn shelter(fd: OwnedFd) -> Result<OwnedFd> {
    if !KEEPS_AWAY.load(Ordering::Relaxed) {
        return Ok(fd);
    }
    move_up(|number| fcntl_dupfd_cloexec(&fd, number))
}

/// The same, of a number that is the caller's to give.
///
/// # Errors
/// As [`shelter`]; `fd` is closed then.
///
/// # Safety
/// `fd` is open, and nobody else closes it.
pub unsafe fn shelter_raw(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: the caller's promise.
    shelter(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What `duplicate` (F_DUPFD_CLOEXEC) makes, high up or wherever there is room.
///
/// Its number is in the set before anything is there: else the program could close it in between,
/// or put a file of its own onto it.
fn move_up(duplicate: impl Fn(RawFd) -> Result<OwnedFd>) -> Result<OwnedFd> {
    let top = getrlimit(Resource::Nofile).current.unwrap_or(TOP_MAX).min(TOP_MAX) as RawFd;
    let mut first = top - (top / 4).min(ROOM);
    let mut number = first;
    loop {
        if number >= top {
            if first <= 3 {
                return Err(Errno::MFILE);
            }
            first /= 2;
            number = first;
        }
        if in_slots(number) || is_open(number) {
            number += 1;
            continue;
        }
        claim(number)?;
        match duplicate(number) {
            Ok(moved) if moved.as_raw_fd() == number => return Ok(moved),
            // Another file has just come there.
            Ok(moved) => {
                closed(number);
                number = moved.as_raw_fd() + 1;
            }
            // EINVAL: the limit was lowered just now.
            Err(Errno::MFILE | Errno::INVAL) => {
                closed(number);
                number = top;
            }
            Err(errno) => {
                closed(number);
                return Err(errno);
            }
        }
    }
}

/// Whether the process has a descriptor of that number.
fn is_open(fd: RawFd) -> bool {
    // SAFETY: only its flags are asked for; a number that is not open is an error.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn claim(fd: RawFd) -> Result<()> {
    LOWEST.fetch_min(fd, Ordering::Relaxed);
    let free = |slot: &&AtomicI32| {
        slot.compare_exchange(FREE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    match SLOTS.iter().find(free) {
        Some(_) => Ok(()),
        None => Err(Errno::MFILE),
    }
}

/// Whether `fd` is one of ours.
#[inline]
pub fn is_reserved(fd: RawFd) -> bool {
    fd >= LOWEST.load(Ordering::Relaxed) && in_slots(fd)
}

#[cold]
fn in_slots(fd: RawFd) -> bool {
    SLOTS.iter().any(|slot| slot.load(Ordering::Acquire) == fd)
}

/// The lowest number of ours from `first` on.
pub fn next_reserved(first: RawFd) -> Option<RawFd> {
    reserved_from(first).min()
}

/// The highest number of ours, unless it is below `first`.
pub fn highest_from(first: RawFd) -> Option<RawFd> {
    reserved_from(first).max()
}

fn reserved_from(first: RawFd) -> impl Iterator<Item = RawFd> {
    SLOTS.iter().map(|slot| slot.load(Ordering::Acquire)).filter(move |&fd| fd >= first.max(0))
}

/// In a child that is just being made: closes the descriptors that its parent has for itself, so
/// that no child keeps the parent's device.
///
/// # Safety
/// Nobody in this process uses them any more, nor closes them.
pub unsafe fn close_inherited() {
    for slot in &SLOTS {
        let fd = slot.swap(FREE, Ordering::AcqRel);
        if fd != FREE {
            // SAFETY: the caller's promise.
            unsafe { rustix::io::close(fd) };
        }
    }
}

/// A descriptor of ours with number `fd` was closed by us.
pub fn closed(fd: RawFd) {
    for slot in &SLOTS {
        if slot.compare_exchange(fd, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    // One test, since the rule is for the whole process.
    #[test]
    fn ours_are_high_and_known() {
        let fd = shelter(null()).unwrap();
        let low = fd.as_raw_fd();
        assert!(low < 64 && !is_reserved(low) && next_reserved(0).is_none());
        drop(fd);
        keep_away();
        let (first, second) = (shelter(null()).unwrap(), shelter(null()).unwrap());
        let (a, b) = (first.as_raw_fd(), second.as_raw_fd());
        let soft = getrlimit(Resource::Nofile).current.unwrap_or(TOP_MAX).min(TOP_MAX) as RawFd;
        assert!(a < b && b < soft && a >= soft - soft / 4, "{a} and {b} of {soft}");
        assert!(is_reserved(a) && is_reserved(b) && !is_reserved(b + 1) && !is_reserved(low));
        assert_eq!(
            (next_reserved(0), next_reserved(a + 1), next_reserved(b + 1)),
            (Some(a), Some(b), None)
        );
        let flags = rustix::io::fcntl_getfd(first.as_fd()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        // The low number is free again.
        assert_eq!(null().as_raw_fd(), low);
        drop(first);
        closed(a);
        assert!(!is_reserved(a) && is_reserved(b));
        // A number that is taken again before the last one was given up is still ours.
        claim(a).unwrap();
        claim(a).unwrap();
        closed(a);
        assert!(is_reserved(a));
        closed(a);
        assert!(!is_reserved(a));
        drop(second);
        closed(b);
        // The program sees a number of ours from the moment on at which something is there.
        let device = null();
        let at_once = move_up(|number| {
            assert!(is_reserved(number));
            fcntl_dupfd_cloexec(&device, number)
        });
        let d = at_once.unwrap().as_raw_fd();
        assert!(is_reserved(d));
        closed(d);
        // It has put a file of its own there just before.
        let taken = std::cell::RefCell::new(Vec::new());
        let beside = move_up(|number| {
            if taken.borrow().is_empty() {
                taken.borrow_mut().push(fcntl_dupfd_cloexec(&device, number)?);
            }
            fcntl_dupfd_cloexec(&device, number)
        });
        let (beside, theirs) = (beside.unwrap(), taken.borrow()[0].as_raw_fd());
        assert!(is_reserved(beside.as_raw_fd()) && !is_reserved(theirs));
        closed(beside.as_raw_fd());
        drop((beside, taken));
        // A child has them closed.
        let third = std::mem::ManuallyDrop::new(shelter(null()).unwrap());
        let c = third.as_raw_fd();
        assert!(is_reserved(c));
        // SAFETY: it is not used below.
        unsafe { close_inherited() };
        assert!(!is_reserved(c));
        assert!(std::fs::read_link(format!("/proc/self/fd/{c}")).is_err());
    }
}
