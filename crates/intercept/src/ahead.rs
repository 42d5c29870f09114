//! Reads ahead: fills the kernel's cache with a file that the owner has left to it, and with
//! nothing else.
//!
//! The owner leaves a file to the kernel when its content is in the owner's memory, and the program
//! reads here and there. The kernel would ask for each page by a request of its own. Therefore the
//! first read in each part of the file makes the kernel read the whole part.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::hook::hooks;
use libc::{off_t, size_t, ssize_t};
use meantime_process::thread;

use crate::call;
use crate::resolve::Use;
use crate::state::{TABLE, is_active};

/// The size of a part in bytes.
const PART_BYTES: i64 = 256 << 10;
/// The maximum that the kernel reads by one call, which is its usual read-ahead.
const CALL_BYTES: i64 = 128 << 10;
/// The number of parts that are remembered.
const PARTS: usize = 1 << 14;

/// The parts that were read. Each has a number, at a place that depends on it. A part that another
/// one displaces is read again, which costs a system call.
static READ: [AtomicU32; PARTS] = [const { AtomicU32::new(0) }; PARTS];

/// Makes the kernel read what is around `at` in the file of `fd`, if this is asked for the first
/// time. `bytes` is the number of bytes that are read there.
///
/// It does nothing if the reads come in sequence, because the kernel then reads further ahead, and
/// does not stop at the end of a part.
#[inline]
pub(crate) fn prepare(fd: c_int, at: i64, bytes: usize) {
    let Some((_, ticket)) = TABLE.load(fd).filter(|_| at >= 0) else { return };
    // The ticket belongs to this open file.
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

/// Returns whether the program's request that the kernel read from `at` of `fd` into its cache is
/// needless, because the program reads the file by the shared-memory path. If the kernel had
/// content of the file, this would end the shared-memory path.
fn is_needless(fd: c_int, at: off_t, bytes: off_t) -> bool {
    if !is_active() || thread::is_ours() || at < 0 || bytes < 0 {
        return false;
    }
    // The program reads from the beginning, so it is likely to read all of the file.
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
