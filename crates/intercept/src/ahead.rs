//! Filling the kernel's cache with a file that the owner has left to it.
//!
//! The owner leaves a file when its content is in its memory, and the program reads here and there.
//! The kernel would ask for each page by a request of its own. So the first read in each part of the
//! file has the kernel read the whole part.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::state::TABLE;

/// Bytes of a part.
const PART_BYTES: i64 = 256 << 10;
/// Parts that are remembered.
const PARTS: usize = 1 << 14;

/// Which parts were read: a number for each, at a place that depends on it. A part that another one
/// displaces is read again, which costs a system call.
static READ: [AtomicU32; PARTS] = [const { AtomicU32::new(0) }; PARTS];

/// Has the kernel read what is around `at` in the file of `fd`, if it is asked for the first time.
#[inline]
pub(crate) fn prepare(fd: c_int, at: i64) {
    let Some((_, ticket)) = TABLE.look(fd).filter(|_| at >= 0) else { return };
    let part = at / PART_BYTES;
    // The ticket is of this open file.
    let mixed = ticket.number(fd).wrapping_add(part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (place, number) = (mixed >> 50, mixed as u32 | 1);
    let place = &READ[place as usize % PARTS];
    if place.load(Ordering::Relaxed) != number {
        place.store(number, Ordering::Relaxed);
        read(fd, part * PART_BYTES);
    }
}

#[cold]
fn read(fd: c_int, from: i64) {
    // SAFETY: no memory is meant. An error (EINVAL of a file without a cache) changes nothing.
    crate::slowly(|| unsafe {
        libc::posix_fadvise(fd, from, PART_BYTES, libc::POSIX_FADV_WILLNEED);
    });
}
