//! The process's state: whether there is a shared-memory path, and the information about its
//! descriptors.

use std::ffi::{CStr, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use meantime_process::{descriptor, fork};
use rustix::process::{Resource, getrlimit};

use crate::sanitizer::is_watched;
use crate::table::Table;
use crate::{link, report, thread};

/// Descriptors from this number on always take the FUSE path.
const DESCRIPTORS: usize = 65_536;

/// The information about each descriptor. Its pages are allocated when they are used.
pub(crate) static TABLE: Table<DESCRIPTORS> = Table::new();

/// The mount's `st_dev`, or 0 without a shared-memory path.
static DEVICE: AtomicU64 = AtomicU64::new(0);
/// The process that owns this state.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The number of times that the process was forked into another one.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Whether files are limited in size. The kernel knows the limit, and sends the signal.
static IS_LIMITED: AtomicBool = AtomicBool::new(false);

/// The name of the owner's socket. It is a copy, since programs overwrite their environment
/// (`setproctitle`).
static NAME: OnceLock<Name> = OnceLock::new();

struct Name {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

/// The longest name in a socket's address, after the NUL that says it is abstract.
const NAME_BYTES: usize = 107;

/// The variable that `meantime run` sets: `DEVICE:NAME`.
const VARIABLE: &CStr = c"MEANTIME_SHARED_MEMORY";

/// Is called by the loader before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    // SAFETY: a name that ends; nothing changes the environment before the program begins.
    // AT_SECURE says that it belongs to a user with fewer rights than this program.
    let told = unsafe {
        let told = libc::getenv(VARIABLE.as_ptr());
        if told.is_null() || libc::getauxval(libc::AT_SECURE) != 0 {
            return;
        }
        CStr::from_ptr(told)
    };
    let Some((device, name)) = parsed(told.to_bytes()).filter(|_| !is_watched()) else { return };
    let _ = std::panic::catch_unwind(|| {
        // The program's standard error is not ours.
        std::panic::set_hook(Box::new(|_| {}));
        let _ = NAME.set(name);
        OWNER.store(process(), Ordering::Relaxed);
        look_at_limit();
        report::begin();
        // SAFETY: a function that stays, without arguments and results.
        unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
        DEVICE.store(device, Ordering::Release);
    });
}

/// Returns the variable's parts.
fn parsed(told: &[u8]) -> Option<(u64, Name)> {
    let colon = told.iter().position(|&byte| byte == b':')?;
    let device = std::str::from_utf8(&told[..colon]).ok()?.parse().ok()?;
    let given = &told[colon + 1..];
    let mut bytes = [0; NAME_BYTES];
    bytes.get_mut(..given.len())?.copy_from_slice(given);
    (!given.is_empty()).then_some((device, Name { bytes, len: given.len() }))
}

/// Returns the mount's `st_dev`, or 0 without a shared-memory path.
#[inline]
pub(crate) fn device() -> u64 {
    DEVICE.load(Ordering::Relaxed)
}

/// Returns whether there is a shared-memory path.
#[inline]
pub(crate) fn is_active() -> bool {
    device() != 0
}

/// Ends the shared-memory path in this process, because its threads no longer have the same
/// descriptors, or other processes have its memory.
pub(crate) fn end() {
    DEVICE.store(0, Ordering::SeqCst);
}

/// Returns the name of the owner's socket.
pub(crate) fn name() -> Option<&'static str> {
    let name = NAME.get()?;
    std::str::from_utf8(name.bytes.get(..name.len)?).ok()
}

fn process() -> c_int {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::getpid() }
}

/// Returns whether this process owns the state. Otherwise it is the child of a vfork that borrows
/// the memory.
pub(crate) fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == process()
}

/// Returns a number that differs in each child of a fork.
#[inline]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Notes whether there is a limit for files now.
pub(crate) fn look_at_limit() {
    IS_LIMITED.store(getrlimit(Resource::Fsize).current.is_some(), Ordering::Relaxed);
}

/// Returns whether files are limited in size.
#[inline]
pub(crate) fn is_limited() -> bool {
    IS_LIMITED.load(Ordering::Relaxed)
}

/// Notes that the child gets the descriptors.
extern "C" fn before_fork() {
    if is_active() {
        TABLE.share();
    }
}

/// Is called in the child of a fork, which has no other thread. It is not called in that of a
/// vfork.
extern "C" fn in_child() {
    OWNER.store(process(), Ordering::Relaxed);
    FORKS.fetch_add(1, Ordering::Relaxed);
    TABLE.clear();
    link::forget();
    thread::forget();
    // SAFETY: the parent's connection, which `link` has forgotten, and its copy of standard error.
    unsafe { descriptor::close_inherited() };
    report::clear();
    // This process is taken for a child only where the parent has a connection.
    if fork::is_child() && fork::own().is_err() {
        end();
    }
}
