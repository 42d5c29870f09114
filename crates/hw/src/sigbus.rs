//! Stores to device memory that is no longer there.
//!
//! Doorbells are stored to through a mapping of the device's BAR. While the device's memory
//! decoding is off, during a reset, or after its removal, such a store raises SIGBUS, which would
//! end the process. The handler here replaces one of *our* mappings by ordinary memory, so that the
//! store has no effect, and marks the mapping as lost. A thread that polls for a completion finds
//! out by its deadline, or at once if it watches the mapping's event. Every other SIGBUS goes to
//! the previous handler.
//!
//! A program that installs a SIGBUS handler after the first device was opened should pass on faults
//! that it does not know, as this one does.

#![expect(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::event::EventFd;
use super::{HwError, Result};

/// The most mappings guarded at once; each device has one.
pub const MAX_GUARDED: usize = 256;

/// One guarded mapping. The handler reads it at any moment, so it consists of atomics. `start`
/// decides: 0 while the slot is free.
struct GuardedSlot {
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
    /// An eventfd to signal, or −1.
    event: AtomicI32,
}

static SLOTS: [GuardedSlot; MAX_GUARDED] = [const {
    GuardedSlot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        event: AtomicI32::new(-1),
    }
}; MAX_GUARDED];

/// Locked to claim and to free slots, but never by the handler.
static CLAIM: Mutex<()> = Mutex::new(());

/// The previous handler: its address (or SIG_DFL, SIG_IGN) and its flags.
static PREVIOUS: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PREVIOUS_FLAGS: AtomicI32 = AtomicI32::new(0);

/// A mapping whose faults our handler answers. Must be dropped before the mapping is unmapped.
#[derive(Debug)]
pub struct Guard {
    slot: usize,
    /// Keeps the descriptor that the handler signals open.
    _event: Option<EventFd>,
}

/// Guards the mapping of `len` bytes at `start`, both multiples of the page size. Installs the
/// handler the first time. `event` is signalled when the mapping is lost.
///
/// # Safety
/// The range is a mapping of the caller's own: its pages may be replaced by zeroed private memory
/// at any moment until the guard is dropped.
///
/// # Errors
/// Returns [`HwError::Os`] with more than [`MAX_GUARDED`] mappings, or if the handler cannot be
/// installed.
pub unsafe fn guard(start: NonNull<c_void>, len: usize, event: Option<EventFd>) -> Result<Guard> {
    install()
        .map_err(|source| HwError::Os { what: "cannot install a handler for SIGBUS", source })?;
    let _claim = CLAIM.lock().unwrap_or_else(PoisonError::into_inner);
    let free = SLOTS.iter().position(|slot| slot.start.load(Ordering::Relaxed) == 0);
    let index = free.ok_or_else(|| HwError::Os {
        what: "too many devices are open in this process: close some",
        source: io::ErrorKind::OutOfMemory.into(),
    })?;
    let slot = &SLOTS[index];
    slot.lost.store(false, Ordering::Relaxed);
    slot.event.store(event.as_ref().map_or(-1, AsRawFd::as_raw_fd), Ordering::Relaxed);
    // Release: a handler that sees this length, but not yet the start below, sees that the slot was
    // free before.
    slot.len.store(len, Ordering::Release);
    // Release: a handler that sees the start sees the rest.
    slot.start.store(start.as_ptr() as usize, Ordering::Release);
    Ok(Guard { slot: index, _event: event })
}

impl Guard {
    /// Whether a store to the mapping has faulted, so that stores no longer have an effect.
    pub fn is_lost(&self) -> bool {
        SLOTS[self.slot].lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _claim = CLAIM.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &SLOTS[self.slot];
        slot.event.store(-1, Ordering::Relaxed);
        slot.start.store(0, Ordering::Release);
    }
}

/// Replaces a mapping of a device by zeroed private memory: stores have no effect from now on, and
/// the mapping no longer holds the device's file. Async-signal-safe: one system call, and no
/// `errno`.
///
/// # Safety
/// The range is a mapping of the caller's own, of device memory that is never read for its
/// contents.
pub unsafe fn replace(start: NonNull<c_void>, len: usize) -> io::Result<()> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller owns the range; it stays mapped, readable and writable.
    unsafe { mmap_anonymous(start.as_ptr(), len, prot, MapFlags::PRIVATE | MapFlags::FIXED) }?;
    Ok(())
}

fn install() -> io::Result<()> {
    static INSTALL: Once = Once::new();
    static ERROR: AtomicI32 = AtomicI32::new(0);
    INSTALL.call_once(|| {
        if let Err(error) = install_now() {
            ERROR.store(error.raw_os_error().unwrap_or(libc::EINVAL), Ordering::Relaxed);
        }
    });
    match ERROR.load(Ordering::Relaxed) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn install_now() -> io::Result<()> {
    let old = sigaction(None)?;
    // Stored before our handler is in force, so it always has a successor.
    PREVIOUS.store(old.sa_sigaction, Ordering::Relaxed);
    PREVIOUS_FLAGS.store(old.sa_flags, Ordering::Release);
    let mut ours = old;
    ours.sa_sigaction = on_sigbus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (old.sa_flags & libc::SA_RESTART);
    sigaction(Some(&ours)).map(drop)
}

/// Reads the action for SIGBUS, and sets a new one if given.
fn sigaction(new: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut old = MaybeUninit::zeroed();
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `new` is null or a whole action, whose handler is one of ours or was the process's
    // own; `old` has room for one.
    if unsafe { libc::sigaction(libc::SIGBUS, new, old.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroes are a valid `sigaction`, and the call has filled it in.
    Ok(unsafe { old.assume_init() })
}

/// The handler. It only accesses atomics and makes system calls, so it may interrupt itself.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands over a whole siginfo (SA_SIGINFO).
    let code = unsafe { (*info).si_code };
    // Positive: a fault. A signal from another process's `kill` has no address.
    if code > 0 {
        // SAFETY: as above, and SIGBUS by a fault has an address.
        let address = unsafe { (*info).si_addr() } as usize;
        if take_over(address) {
            return;
        }
    }
    pass_on(signal, code, info, context);
}

/// Whether `address` was in one of our mappings. If so, the faulting access is repeated, on
/// ordinary memory.
fn take_over(address: usize) -> bool {
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Acquire);
        if start == 0 || !(start..start.saturating_add(len)).contains(&address) {
            continue;
        }
        // The mapping that faulted stays in its slot, since the storing thread holds its guard. But
        // another slot may be freed and reused between the two loads: one mapping's start with
        // another's length would extend beyond the first.
        if slot.start.load(Ordering::Relaxed) != start {
            continue;
        }
        let Some(place) = NonNull::new(start as *mut c_void) else { continue };
        // SAFETY: `guard`'s contract. The slot is not freed meanwhile: the storing thread holds its
        // guard.
        if unsafe { replace(place, len) }.is_err() {
            return false;
        }
        slot.lost.store(true, Ordering::Release);
        let event = slot.event.load(Ordering::Relaxed);
        if event >= 0 {
            // SAFETY: the guard keeps the descriptor open while its slot is claimed.
            let event = unsafe { std::os::fd::BorrowedFd::borrow_raw(event) };
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        return true;
    }
    false
}

/// Does what the process would do without our handler.
fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let flags = PREVIOUS_FLAGS.load(Ordering::Acquire);
    match PREVIOUS.load(Ordering::Relaxed) {
        // A fault cannot be ignored (the kernel ends the process as by default); a sent signal can.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            if let Ok(mut action) = sigaction(None) {
                action.sa_sigaction = libc::SIG_DFL;
                action.sa_flags = 0;
                let _ = sigaction(Some(&action));
            }
            // A fault repeats when the handler returns; a sent signal has to be sent again.
            if code <= 0 {
                // SAFETY: raising a signal has no requirements. It is blocked until this handler
                // returns.
                unsafe { libc::raise(signal) };
            }
        }
        handler if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the process installed it as a handler with three arguments.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the process installed it as a handler with one argument.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{mmap, munmap};

    const PAGE: usize = 4096;

    /// A mapping of a file of `pages` pages, which can be truncated while mapped.
    fn mapping(pages: usize) -> (OwnedFd, NonNull<c_void>, usize) {
        let file = memfd_create("bar", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, (pages * PAGE) as u64).unwrap();
        let (prot, len) = (ProtFlags::READ | ProtFlags::WRITE, pages * PAGE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, &file, 0) }.unwrap();
        (file, NonNull::new(start).unwrap(), len)
    }

    fn store(start: NonNull<c_void>, at: usize) {
        // SAFETY: inside a mapping of the test's own.
        unsafe { start.as_ptr().cast::<u8>().add(at).write_volatile(1) };
    }

    #[test]
    fn a_store_to_a_lost_mapping_is_survived_and_detected() {
        let (file, start, len) = mapping(3);
        let (other_file, other, _) = mapping(1);
        let event = EventFd::new().unwrap();
        // SAFETY: both are ours, and are not read.
        let (guarded, intact) = unsafe {
            (guard(start, len, Some(event.clone())).unwrap(), guard(other, PAGE, None).unwrap())
        };
        store(start, 0);
        assert!(!guarded.is_lost());
        ftruncate(&file, 0).unwrap();
        store(start, 2 * PAGE + 17);
        assert!(guarded.is_lost() && event.take() && !intact.is_lost());
        // Every page is ordinary memory now.
        (0..3).for_each(|page| store(start, page * PAGE));
        assert!(!event.take());
        drop((guarded, intact, other_file));
        // SAFETY: our own, and not used any more.
        unsafe { munmap(start.as_ptr(), len).and(munmap(other.as_ptr(), PAGE)) }.unwrap();
    }

    #[test]
    fn slots_are_used_again_and_there_are_enough() {
        let (_file, start, len) = mapping(1);
        // SAFETY: ours, and never stored to.
        let guards: Vec<_> = (0..16).map(|_| unsafe { guard(start, len, None).unwrap() }).collect();
        let slots: Vec<_> = guards.iter().map(|guard| guard.slot).collect();
        drop(guards);
        // SAFETY: as above.
        let again = unsafe { guard(start, len, None).unwrap() };
        assert!(again.slot <= *slots.iter().max().unwrap());
        assert!(!again.is_lost());
    }

    /// Runs a test's body in a child process that runs this test alone. Returns how the child
    /// ended.
    fn in_child(test: &str, body: fn()) -> Option<std::process::ExitStatus> {
        if std::env::var_os("SIGBUS_CHILD").is_some() {
            body();
            std::process::exit(7);
        }
        let exe = std::env::current_exe().unwrap();
        let name = format!("sigbus::tests::{test}");
        let mut child = std::process::Command::new(exe);
        child.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env("SIGBUS_CHILD", "1");
        Some(
            child
                .stderr(std::process::Stdio::null())
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap(),
        )
    }

    fn guard_one() -> Guard {
        let (file, start, len) = mapping(1);
        std::mem::forget(file);
        // SAFETY: ours, and never stored to.
        unsafe { guard(start, len, None).unwrap() }
    }

    /// A store to a mapping that no guard covers.
    fn foreign_fault() {
        let (file, start, _) = mapping(1);
        ftruncate(&file, 0).unwrap();
        store(start, 0);
    }

    #[test]
    fn a_foreign_fault_still_ends_the_process() {
        use std::os::unix::process::ExitStatusExt as _;
        let status = in_child("a_foreign_fault_still_ends_the_process", || {
            let _guard = guard_one();
            foreign_fault();
        });
        assert_eq!(status.unwrap().signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn a_signal_that_was_sent_still_ends_the_process() {
        use std::os::unix::process::ExitStatusExt as _;
        let status = in_child("a_signal_that_was_sent_still_ends_the_process", || {
            // The previous handler is Rust's own, which ignores one signal without a fault.
            set_handler(libc::SIG_DFL, 0);
            let _guard = guard_one();
            // SAFETY: raising a signal has no requirements.
            unsafe { libc::raise(libc::SIGBUS) };
        });
        assert_eq!(status.unwrap().signal(), Some(libc::SIGBUS));
    }

    fn set_handler(handler: usize, flags: c_int) {
        let mut action = sigaction(None).unwrap();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        sigaction(Some(&action)).unwrap();
    }

    #[test]
    fn the_handler_before_ours_is_asked() {
        extern "C" fn with_info(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
            // SAFETY: what our handler was given by the kernel.
            let whole = unsafe { !(*info).si_addr().is_null() };
            std::process::exit(if signal == libc::SIGBUS && whole { 42 } else { 1 });
        }
        let status = in_child("the_handler_before_ours_is_asked", || {
            set_handler(with_info as *const () as usize, libc::SA_SIGINFO);
            let _guard = guard_one();
            foreign_fault();
        });
        assert_eq!(status.unwrap().code(), Some(42));
    }

    #[test]
    fn a_handler_without_information_is_asked_too() {
        extern "C" fn plain(signal: c_int) {
            std::process::exit(if signal == libc::SIGBUS { 43 } else { 1 });
        }
        let status = in_child("a_handler_without_information_is_asked_too", || {
            set_handler(plain as *const () as usize, 0);
            let _guard = guard_one();
            foreign_fault();
        });
        assert_eq!(status.unwrap().code(), Some(43));
    }

    #[test]
    fn an_ignored_signal_stays_ignored() {
        let status = in_child("an_ignored_signal_stays_ignored", || {
            set_handler(libc::SIG_IGN, 0);
            let _guard = guard_one();
            // SAFETY: raising a signal has no requirements.
            unsafe { libc::raise(libc::SIGBUS) };
        });
        assert_eq!(status.unwrap().code(), Some(7));
    }
}
