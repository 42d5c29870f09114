//! SIGINT (Ctrl-C), SIGHUP and SIGTERM. The first signal requests a clean end with the results so
//! far; the second kills.
//!
//! Only a clean end gives back a device that was taken from the kernel's driver. So every command
//! that opens a device catches signals first.

#![expect(unsafe_code)]

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::failure::{FAILED, Failure};

/// Set once a signal requests the end. It is checked between I/Os.
pub(crate) static STOP: AtomicBool = AtomicBool::new(false);

static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Catches SIGINT, SIGTERM and SIGHUP from now on. Each is caught once: the next has its default
/// effect. Under `nohup`, SIGHUP stays ignored.
pub(crate) fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // The second signal has its default effect.
        install(signal, note, libc::SA_RESETHAND, signal == libc::SIGHUP);
    }
}

/// Set by SIGUSR1, which asks how far a run is.
static STATUS: AtomicBool = AtomicBool::new(false);

/// Catches SIGUSR1 from now on, which kills by default.
pub(crate) fn catch_status() {
    install(libc::SIGUSR1, note_status, libc::SA_RESTART, true);
}

extern "C" fn note_status(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    STATUS.store(true, Ordering::Relaxed);
}

/// Returns whether SIGUSR1 has come since the last call.
pub(crate) fn take_status() -> bool {
    STATUS.load(Ordering::Relaxed) && STATUS.swap(false, Ordering::Relaxed)
}

pub(crate) type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs `handler` for `signal`. If `unless_ignored`, an ignored signal stays ignored.
pub(crate) fn install(
    signal: libc::c_int,
    handler: Handler,
    flags: libc::c_int,
    unless_ignored: bool,
) {
    // SAFETY: all zeroes is a valid `sigaction` (no flags, empty mask), which is then completed.
    // With SA_SIGINFO the handler is called with the three arguments that `Handler` has. All
    // handlers do only what is async-signal-safe: they use lock-free atomics, and kill(2) without
    // errno; that of SIGBUS says so itself. Without SA_RESTART a blocking wait returns, so that the
    // flag is looked at. The old action is written to a valid place.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = flags | libc::SA_SIGINFO;
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &action, &mut old);
        if unless_ignored && old.sa_sigaction == libc::SIG_IGN {
            libc::sigaction(signal, &old, std::ptr::null_mut());
        }
    }
}

extern "C" fn note(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    SIGNAL.store(signal, Ordering::Relaxed);
    STOP.store(true, Ordering::Relaxed);
}

/// The process that signals are forwarded to. If it is 0, there is none, and signals are noted.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Catches signals for a child ([`forward_to`]) from now on, repeatedly. Ignored signals stay
/// ignored, for the child, too.
pub(crate) fn catch_for_child() {
    use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        install(signal, pass_on, 0, true);
    }
}

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, rest: *mut libc::c_void) {
    let Some(child) = Pid::from_raw(CHILD.load(Ordering::SeqCst)) else {
        return note(signal, info, rest);
    };
    // SAFETY: the kernel passes a valid `siginfo_t` (SA_SIGINFO), for the time of the call.
    let code = unsafe { (*info).si_code };
    // The kernel sends signals such as Ctrl-C's to the whole process group, so the child has it.
    if code != libc::SI_KERNEL {
        send(child, signal);
    }
}

fn send(child: Pid, signal: libc::c_int) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The child may have ended.
        let _ = kill_process(child, signal);
    }
}

/// Forwards signals to `child`, including one that was noted before.
pub(crate) fn forward_to(child: Pid) {
    CHILD.store(child.as_raw_pid(), Ordering::SeqCst);
    if let Some(signal) = take() {
        send(child, signal);
    }
}

/// Waits until `child` has ended, to which signals are forwarded. From then on, they are noted.
/// Returns the exit code that a shell would return.
pub(crate) fn wait(child: &mut Child) -> io::Result<u8> {
    // NOWAIT keeps the PID reserved. So signals are forwarded until the program has ended, and
    // never after the PID is free.
    let until_it_ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let pid = WaitId::Pid(Pid::from_child(child));
    let waited = rustix::io::retry_on_intr(|| waitid(pid.clone(), until_it_ends));
    CHILD.store(0, Ordering::SeqCst);
    waited?;
    let status = child.wait()?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

/// Returns the signal that was noted, and clears it.
pub(crate) fn take() -> Option<libc::c_int> {
    STOP.swap(false, Ordering::SeqCst).then(|| SIGNAL.load(Ordering::Relaxed))
}

/// Returns whether `signal` asks for the end, as opposed to what is only passed on.
pub(crate) fn is_an_end(signal: libc::c_int) -> bool {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
}

/// Restores the default effect of signals that ask for the end: the next one kills, unless it is
/// ignored.
pub(crate) fn let_the_next_kill() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: all zeroes is a valid `sigaction`, which is then filled. The default action has no
        // function.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if old.sa_sigaction != libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Returns whether a signal requested the end.
pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Sleeps for `time`, or until a signal. One just before it begins does not end it.
pub(crate) fn pause(time: std::time::Duration) {
    let time = time.try_into().ok();
    let _ = rustix::event::poll(&mut [], time.as_ref());
}

/// Returns the exit code a shell expects of a program that a signal ended: 130 for Ctrl-C.
pub(crate) fn exit_code() -> Option<u8> {
    stopped().then(|| 128 + SIGNAL.load(Ordering::Relaxed) as u8)
}

/// Returns an error, with `note` as its message, if a signal requested the end.
pub(crate) fn check(note: Option<&str>) -> Result<(), Failure> {
    exit_code().map_or(Ok(()), |code| Err(Failure::ended(note, code)))
}
