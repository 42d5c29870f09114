//! SIGBUS is raised when memory that a driver mapped is gone (its file has shrunk, or there are no
//! huge pages left). That ends the driver's connection, not this process.

#![expect(unsafe_code)]

use crate::signal;

/// Catches SIGBUS from now on.
pub(super) fn catch() {
    signal::install(libc::SIGBUS, replace, 0, false);
}

extern "C" fn replace(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`, which for SIGBUS has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    if !meantime_ssd::served::replace_faulted(address) {
        // The memory is not a driver's. On return the access faults again, and the signal has its
        // default effect. SAFETY: signal(2) is async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
