//! The kernel's time: its clocks, its time structure, and how late it may wake a thread.

#![expect(unsafe_code)]

use std::cell::Cell;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads a kernel clock, in ns.
pub(crate) fn kernel_ns(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Converts `ns` to the kernel's time structure.
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Sets this thread's timer slack when it first sleeps: one system call, without which every sleep
/// would be 50 µs late.
pub(crate) fn tighten_timer_slack_once() {
    thread_local! {
        static SLACK_SET: Cell<bool> = const { Cell::new(false) };
    }
    if !SLACK_SET.replace(true) {
        tighten_timer_slack();
    }
}

/// Sets this thread's timer slack to 1 ns (the default of 50 µs would make every short sleep late
/// by as much). Returns the slack in ns that was in force.
pub(crate) fn tighten_timer_slack() -> u64 {
    // SAFETY: PR_GET_TIMERSLACK and PR_SET_TIMERSLACK take plain integers and touch no memory of
    // ours.
    unsafe {
        let before = libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
        u64::try_from(before).unwrap_or(0)
    }
}
