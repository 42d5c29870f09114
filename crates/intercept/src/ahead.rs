//! Reading ahead: filling the kernel's cache with a file that the owner has left to it, and nothing
//! else.
//!
//! The owner leaves a file when its content is in its memory, and the program reads here and there.
//! The kernel would ask for each page by a request of its own. So the first read in each part of
//! the file has the kernel read the whole part.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::hook::hooks;
use libc::{off_t, size_t, ssize_t};
use meantime_process::thread;

use crate::call;
use crate::resolve::Use;
use crate::state::{TABLE, is_active};

/// Bytes of a part.
const PART_BYTES: i64 = 256 << 10;
/// The kernel reads no more than this by one call: its usual read-ahead.
const CALL_BYTES: i64 = 128 << 10;
/// Parts that are remembered.
const PARTS: usize = 1 << 14;

/// Which parts were read: a number for each, at a place that depends on it. A part that another one
/// displaces is read again, which costs a system call.
static READ: [AtomicU32; PARTS] = [const { AtomicU32::new(0) }; PARTS];

/// Has the kernel read what is around `at` in the file of `fd`, if it is asked for the first time.
/// `bytes`: how many are read there.
///
/// Not if they come in sequence: then the kernel reads further ahead, and does not stop at the end
/// of a part.
#[inline]
pub(crate) fn prepare(fd: c_int, at: i64, bytes: usize) {
    let Some((_, ticket)) = TABLE.load(fd).filter(|_| at >= 0) else { return };
    // The ticket is of this open file.
    let place = |part: i64| {
        let mixed = ticket.number(fd).wrapping_add(part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (&READ[(mixed >> 50) as usize % PARTS], mixed as u32 | 1)
    };
    let is_read = |(place, number): (&AtomicU32, u32)| place.load(Ordering::Relaxed) == number;
    let part = at / PART_BYTES;
    let (here, number) = place(part);
    if !is_read((here, number)) {
        here.store(number, Ordering::Relaxed);
        let is_next = at % PART_BYTES < bytes as i64 && is_read(place(part - 1));
        if !is_next {
            read(fd, part * PART_BYTES);
        }
    }
}

#[cold]
fn read(fd: c_int, from: i64) {
    crate::slowly(|| {
        for at in (from..from.saturating_add(PART_BYTES)).step_by(CALL_BYTES as usize) {
            // SAFETY: no memory is meant. An error (EINVAL of a file without a cache) changes
            // nothing.
            unsafe { libc::posix_fadvise(fd, at, CALL_BYTES, libc::POSIX_FADV_WILLNEED) };
        }
    });
}

/// Whether the program asks for nothing when it has the kernel read from `at` of `fd` into its
/// cache: it reads the file by the shared-memory path. (That the kernel has content of it would
/// end this.)
fn is_needless(fd: c_int, at: off_t, bytes: off_t) -> bool {
    if !is_active() || thread::is_ours() || at < 0 || bytes < 0 {
        return false;
    }
    // From the beginning: it is likely to read all of it.
    call::find_out(fd, if at == 0 { Use::ReadHere } else { Use::ReadThere })
}

hooks! {
    "C" fn readahead(fd: c_int, at: off_t, bytes: size_t) -> ssize_t = { |real|
        if is_needless(fd, at, 0) {
            return 0;
        }
        // SAFETY: no memory is meant.
        unsafe { real()(fd, at, bytes) }
    }

    "C" fn (posix_fadvise posix_fadvise64)(
        fd: c_int, at: off_t, bytes: off_t, advice: c_int,
    ) -> c_int = { |real|
        if advice == libc::POSIX_FADV_WILLNEED && is_needless(fd, at, bytes) {
            return 0;
        }
        // SAFETY: no memory is meant.
        unsafe { real()(fd, at, bytes, advice) }
    }
}
