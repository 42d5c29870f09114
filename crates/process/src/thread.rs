//! A library's own threads, and the library's code that other threads run.

#![expect(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt as _;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread called `name` that takes no signal sent to the process.
///
/// A signal sent to a process goes to any thread that does not block it. That must not be the
/// library's thread: the program may block the signal in all of its threads, to wait for it or to
/// read it from a descriptor, and its handlers do not expect a thread of the library. Signals for a
/// thread's own faults stay unblocked: blocked, they would end the process without calling a
/// handler.
///
/// # Errors
/// Returns the system's error if the thread cannot be started.
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

/// Starts such a thread, which ends before `scope` does.
///
/// # Errors
/// Returns the system's error if the thread cannot be started.
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
    /// Marks the calling thread from now on.
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

/// The signal that interrupts. The kernel ignores it unless a handler is set, and programs hardly
/// use it.
const INTERRUPTING: libc::c_int = libc::SIGURG;

/// Lets [`interrupt`] end system calls of this thread (EINTR) from now on. The process gets an
/// empty handler for SIGURG, unless it has one.
pub fn allow_interrupts() {
    extern "C" fn nothing(_: libc::c_int) {}
    let mut set = MaybeUninit::uninit();
    // SAFETY: all zeroes is a valid `sigaction`, and a set is filled before it is used. The handler
    // does nothing. Without SA_RESTART a system call ends.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(INTERRUPTING, std::ptr::null(), &raw mut action);
        if [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as libc::sighandler_t;
            libc::sigaction(INTERRUPTING, &raw const action, std::ptr::null_mut());
        }
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), INTERRUPTING);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Ends the system call in which `thread` is, if it is in one and has [allowed
/// that](allow_interrupts).
pub fn interrupt<T>(thread: &JoinHandle<T>) {
    // Of musl's C library it is a pointer.
    let thread_id = thread.as_pthread_t() as libc::pthread_t;
    // SAFETY: a thread that was neither joined nor detached, as its handle shows.
    unsafe { libc::pthread_kill(thread_id, INTERRUPTING) };
}

/// Blocks all signals in this thread until it is dropped, except those that a thread causes itself.
///
/// A handler then cannot leave the code in between (`siglongjmp`), which may hold locks.
pub struct NotSignalled {
    before: libc::sigset_t,
}

impl std::fmt::Debug for NotSignalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotSignalled").finish_non_exhaustive()
    }
}

impl NotSignalled {
    /// Blocks the signals from now on.
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

    #[test]
    fn a_thread_that_allows_it_is_interrupted() {
        let (ready, is_ready) = std::sync::mpsc::channel();
        let sleeper = spawn("a-thread", move || {
            allow_interrupts();
            ready.send(()).unwrap();
            // SAFETY: the call polls no descriptor. It sleeps until a signal.
            let slept = unsafe { libc::poll(std::ptr::null_mut(), 0, -1) };
            (slept, io::Error::last_os_error().raw_os_error())
        });
        let sleeper = sleeper.unwrap();
        is_ready.recv().unwrap();
        while !sleeper.is_finished() {
            interrupt(&sleeper);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(sleeper.join().unwrap(), (-1, Some(libc::EINTR)));
    }
}
