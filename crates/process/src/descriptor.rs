//! A library's own descriptors in the program's descriptor table.
//!
//! A program assumes that all descriptors are its own: it closes all from 3 on, or opens a file at
//! number 5 (`exec 5>log`) because that is free. So a library that is loaded into it moves its own
//! to the top of the range that the program's limit allows, and a set keeps their numbers. An
//! attempt to close one fails as if it were not open, and an attempt to replace one fails as if it
//! were above the limit.
//!
//! The limit itself stays unchanged. Other threads would see a higher one, even briefly, and
//! children being created would inherit it. If the soft limit equals the hard limit, it cannot be
//! raised at all. The cost is that a program that uses its whole limit has fewer descriptors.

#![expect(unsafe_code)]

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::{Errno, Result, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

/// The most descriptors that the library can have at a time.
const SLOTS_MAX: usize = 512;

/// Higher numbers would need a large table in the kernel, which every fork copies up to the highest
/// number.
const TOP_MAX: u64 = 4096;

/// The numbers reserved at first: this many below the top, or a quarter of all if that is less.
const ROOM: RawFd = 64;

/// The library's numbers, one in each slot, or [`FREE`]. A number can briefly be in two slots: its
/// descriptor was closed, and the number is already in use again.
static SLOTS: [AtomicI32; SLOTS_MAX] = [const { AtomicI32::new(FREE) }; SLOTS_MAX];
const FREE: RawFd = -1;

/// The lowest number that the library has ever used: most queries end here.
static LOWEST: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// Moves `fd` to a number out of the program's way, and adds it to the set. It is closed by execve.
///
/// Afterwards only threads that run [our code](crate::thread::Ours) can close it.
///
/// # Errors
/// Fails with EMFILE if the library or the process has too many open.
pub fn move_to_high_fd(fd: OwnedFd) -> Result<OwnedFd> {
    move_up(|number| fcntl_dupfd_cloexec(&fd, number))
}

/// Duplicates by `duplicate` (F_DUPFD_CLOEXEC), at a high number or wherever there is room.
///
/// The number is in the set before the descriptor exists: otherwise the program could close or
/// replace it in between.
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
            // Another file has just taken the number.
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

/// Whether the process has a descriptor with that number.
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

/// Whether `fd` belongs to the library.
#[inline]
pub fn is_reserved(fd: RawFd) -> bool {
    fd >= LOWEST.load(Ordering::Relaxed) && in_slots(fd)
}

#[cold]
fn in_slots(fd: RawFd) -> bool {
    SLOTS.iter().any(|slot| slot.load(Ordering::Acquire) == fd)
}

/// The library's lowest number from `first` on.
fn next_reserved(first: RawFd) -> Option<RawFd> {
    reserved_from(first).min()
}

/// The library's highest number, unless it is below `first`.
pub fn highest_from(first: RawFd) -> Option<RawFd> {
    reserved_from(first).max()
}

/// Calls `close` for all ranges between the library's descriptors, from `first` to `last`. Returns
/// the first result that is not 0.
pub fn around_reserved(first: u32, last: u32, mut close: impl FnMut(u32, u32) -> i32) -> i32 {
    let mut from = first;
    while let Some(ours) = RawFd::try_from(from).ok().and_then(next_reserved) {
        let ours = ours as u32;
        if ours > last {
            break;
        }
        if from < ours {
            let closed = close(from, ours - 1);
            if closed != 0 {
                return closed;
            }
        }
        from = ours + 1;
    }
    if from <= last { close(from, last) } else { 0 }
}

fn reserved_from(first: RawFd) -> impl Iterator<Item = RawFd> {
    SLOTS.iter().map(|slot| slot.load(Ordering::Acquire)).filter(move |&fd| fd >= first.max(0))
}

/// Closes the descriptors that belong to the parent's library, in a child being created, so that no
/// child keeps the parent's device.
///
/// # Safety
/// Nothing in this process uses or closes them any more.
pub unsafe fn close_inherited() {
    for slot in &SLOTS {
        let fd = slot.swap(FREE, Ordering::AcqRel);
        // SAFETY: only its flags are asked for. A thread of the parent may have claimed the number
        // and not opened it yet.
        if fd != FREE && rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok() {
            // SAFETY: the caller's promise.
            unsafe { rustix::io::close(fd) };
        }
    }
}

/// Removes `fd`, which the library has closed, from the set.
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

    // One test, since the set is the whole process's.
    #[test]
    fn ours_are_high_and_known() {
        let low = null().as_raw_fd();
        assert!(low < 64 && !is_reserved(low) && next_reserved(0).is_none());
        let (first, second) = (move_to_high_fd(null()).unwrap(), move_to_high_fd(null()).unwrap());
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
        // A number that is reused before its last entry was removed is still ours.
        claim(a).unwrap();
        claim(a).unwrap();
        closed(a);
        assert!(is_reserved(a));
        closed(a);
        assert!(!is_reserved(a));
        drop(second);
        closed(b);
        // The program finds a number reserved from the moment its descriptor exists.
        let device = null();
        let at_once = move_up(|number| {
            assert!(is_reserved(number));
            fcntl_dupfd_cloexec(&device, number)
        });
        let d = at_once.unwrap().as_raw_fd();
        assert!(is_reserved(d));
        closed(d);
        // The program has just opened a file there.
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
        // A child closes them.
        let third = std::mem::ManuallyDrop::new(move_to_high_fd(null()).unwrap());
        let c = third.as_raw_fd();
        assert!(is_reserved(c));
        // SAFETY: it is not used below.
        unsafe { close_inherited() };
        assert!(!is_reserved(c));
        assert!(std::fs::read_link(format!("/proc/self/fd/{c}")).is_err());
    }
}
