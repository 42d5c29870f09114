//! A library's own threads, and the library's code that other threads run.

#![expect(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread called `name` that takes no signal sent to the process.
///
/// A signal sent to a process goes to any thread that does not block it. That must not be our
/// thread: the program may block the signal in all of its threads, to wait for it or to read it
/// from a descriptor, and its handlers do not expect our thread. Signals for a thread's own faults
/// stay unblocked: blocked, they would end the process without calling a handler.
///
/// # Errors
/// As [`Builder::spawn`].
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread inherits the mask of the thread that starts it.
    let _not_signalled = NotSignalled::enter();
    Builder::new().name(name.to_owned()).spawn(move || {
        let _ours = Ours::enter();
        body()
    })
}

/// The same for a thread that ends before `scope` does.
///
/// # Errors
/// As [`Builder::spawn_scoped`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _not_signalled = NotSignalled::enter();
    Builder::new().name(name.to_owned()).spawn_scoped(scope, move || {
        let _ours = Ours::enter();
        body()
    })
}

/// Whether this thread runs the library's code: a thread of [`spawn`], or inside [`Ours`].
pub fn is_ours() -> bool {
    OURS.try_with(Cell::get).unwrap_or(true)
}

/// Marks this thread as running the library's code until it is dropped.
#[derive(Debug)]
pub struct Ours {
    before: bool,
}

impl Ours {
    /// Starts now.
    #[inline]
    pub fn enter() -> Self {
        Self { before: OURS.try_with(|ours| ours.replace(true)).unwrap_or(true) }
    }
}

impl Drop for Ours {
    #[inline]
    fn drop(&mut self) {
        let _ = OURS.try_with(|ours| ours.set(self.before));
    }
}

/// Signals that a thread causes itself, delivered at once.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Blocks all signals in this thread until it is dropped, but those that a thread causes itself.
///
/// So a handler cannot leave the code in between (`siglongjmp`), which may hold locks.
pub struct NotSignalled {
    before: libc::sigset_t,
}

impl std::fmt::Debug for NotSignalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotSignalled").finish_non_exhaustive()
    }
}

impl NotSignalled {
    /// Starts now.
    pub fn enter() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: a set is filled before it is used; with such a set the call cannot fail, and then
        // it has written the old one.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }
}

impl Drop for NotSignalled {
    fn drop(&mut self) {
        // SAFETY: a set that the kernel has filled.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that the calling thread blocks, bit 0 for signal 1.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn only_faults_reach_a_thread_of_ours() {
        let before = blocked();
        assert!(!is_ours());
        let (mask, ours) = spawn("a-thread", || (blocked(), is_ours())).unwrap().join().unwrap();
        assert!(ours && !is_ours());
        let faults = FAULTS.iter().fold(0_u64, |all, fault| all | 1 << (fault - 1));
        // Except those that cannot be blocked, and the two that the C library reserves.
        let never = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
        let never = never.iter().fold(0_u64, |all, signal| all | 1 << (signal - 1));
        assert_eq!(mask, !faults & !never, "{mask:#x}");
        // The starting thread's mask is unchanged.
        assert_eq!(blocked(), before);
    }
}
