//! SIGBUS: memory that a driver mapped is gone (its file has shrunk, or there are no huge pages
//! left). That ends the driver's connection, not this process.

#![expect(unsafe_code)]

use crate::failure::Failure;

/// Catches SIGBUS from now on.
pub(super) fn catch() -> Result<(), Failure> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = replace;
    // SAFETY: all zeroes is a valid `sigaction` (no flags, empty mask), which is then completed;
    // the handler has the signature that SA_SIGINFO asks for, and calls nothing that is not
    // async-signal-safe.
    let caught = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut())
    };
    if caught == 0 {
        return Ok(());
    }
    Err(Failure::new(format_args!("cannot take SIGBUS: {}", std::io::Error::last_os_error())))
}

extern "C" fn replace(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`, which for SIGBUS has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    if !meantime_ssd::served::replace_faulted(address) {
        // Not a driver's memory: on return the access faults again, and the signal has its default
        // effect. SAFETY: signal(2) is async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
