//! SIGINT (Ctrl-C), SIGHUP and SIGTERM: the first signal requests a clean end with the results so
//! far, the second kills.
//!
//! Only a clean end gives back a device that was taken from the kernel's driver: every command that
//! opens one catches signals first.

#![expect(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::failure::Failure;

/// Set once a signal requests the end. Checked between I/Os.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Catches SIGINT, SIGTERM and SIGHUP from now on, each once: the next has its default effect.
/// Under `nohup`, SIGHUP stays ignored.
pub(crate) fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = note;
        // SAFETY: all zeroes is a valid `sigaction` (no flags, empty mask), which is then
        // completed; the handler only stores to lock-free atomics, which is async-signal-safe.
        // Without SA_RESTART a blocking wait returns, so that the flag is looked at; SA_RESETHAND
        // gives the second signal its default effect. The old action is written to a valid place.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND;
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &action, &mut old);
            if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
                libc::sigaction(signal, &old, std::ptr::null_mut());
            }
        }
    }
}

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
    STOP.store(true, Ordering::Relaxed);
}

/// Returns whether a signal requested the end.
pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Returns the exit code a shell expects of a program that a signal ended: 130 for Ctrl-C.
pub(crate) fn exit_code() -> Option<u8> {
    stopped().then(|| 128 + SIGNAL.load(Ordering::Relaxed) as u8)
}

/// Returns an error, with `note` as its message, if a signal requested the end.
pub(crate) fn check(note: Option<&str>) -> Result<(), Failure> {
    exit_code().map_or(Ok(()), |code| Err(Failure::ended(note, code)))
}
