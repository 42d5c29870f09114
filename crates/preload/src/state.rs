//! The state of this process: the settings, from its environment, and the mount, from the first
//! path below the mount point on.
//!
//! No thread is started and no memory allocated before that, so a program that never uses such a
//! path behaves as without this library. A forked child has none of its parent's threads, including
//! the software SSD's, and must not touch a real controller's queues: it mounts again when it first
//! needs to, and leaves the parent's state untouched. A child that was made without `fork`
//! (`_Fork`, a bare `clone`) may not even allocate: there all of our calls fail with EIO.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use arc_swap::Guard;
use meantime_posix::settings::Settings;
use meantime_posix::{Description, Errno, Posix};
use meantime_process::thread::Ours;
use meantime_process::{descriptor, fork};

use meantime_hook::{NotCancelled, errno, set_errno};

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(null_mut());
/// The mount. Never freed: other threads may be using it.
static MOUNTED: AtomicPtr<Posix> = AtomicPtr::new(null_mut());
/// In a child that has not mounted yet: the parent's mount.
static BEFORE_FORK: AtomicPtr<Posix> = AtomicPtr::new(null_mut());
/// The process that owns this state.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The progress of mounting: 0 idle, 1 in progress, 2 failed, 3 the process ends. Not a mutex,
/// since a child may have to take it over from a thread that it does not have.
static MOUNTING: AtomicU8 = AtomicU8::new(IDLE);
/// Why mounting failed.
static FAILED_WITH: AtomicI32 = AtomicI32::new(0);

const IDLE: u8 = 0;
const BUSY: u8 = 1;
const FAILED: u8 = 2;
const ENDED: u8 = 3;

thread_local! {
    /// Whether this thread is inside a call of this library, whose own calls of the C library are
    /// not the program's.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The value that `place`, a static of this module, points to, if any.
#[inline]
fn load<T>(place: &'static AtomicPtr<T>) -> Option<&'static T> {
    // SAFETY: what is stored in this module's statics comes from a box and is never freed.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// Marks this thread as inside until it is dropped.
pub(crate) struct Inside {
    before: bool,
    _ours: Ours,
}

impl Inside {
    pub(crate) fn enter() -> Self {
        let before = INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true);
        Self { before, _ours: Ours::enter() }
    }

    pub(crate) fn is_here() -> bool {
        INSIDE.try_with(Cell::get).unwrap_or(true)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.set(self.before));
    }
}

/// Called by the loader before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    let _ = std::panic::catch_unwind(|| {
        // The environment belongs to a user with fewer rights than this program: what it names is
        // not what its files are. SAFETY: it has no requirements.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return;
        }
        // Allocates nothing. Fails only if another rule has one of the names.
        let _ = meantime_lab::register();
        let Some(settings) = Settings::from_environment(|name| std::env::var_os(name)) else {
            return;
        };
        // The program gets errors as errno; its standard error is not ours, and may be a file.
        std::panic::set_hook(Box::new(|_| {}));
        descriptor::keep_away();
        own();
        crate::cwd::inherit();
        // SAFETY: functions that stay, without arguments and results.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            libc::atexit(at_exit);
        }
        SETTINGS.store(Box::into_raw(Box::new(settings)), Ordering::Release);
    });
}

/// Makes this process the owner of the state.
fn own() {
    OWNER.store(process(), Ordering::Relaxed);
    // On a kernel that cannot recognise children, only those of `fork` are recognised.
    let _ = fork::own();
}

fn process() -> c_int {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::getpid() }
}

/// Called in the child of a fork, which has no other thread. Not called in that of a vfork.
extern "C" fn in_child() {
    own();
    let mounted = MOUNTED.swap(null_mut(), Ordering::AcqRel);
    if !mounted.is_null() {
        BEFORE_FORK.store(mounted, Ordering::Release);
    }
    // SAFETY: what has them is never used here nor dropped: it is the parent's, in BEFORE_FORK.
    unsafe { descriptor::close_inherited() };
    MOUNTING.store(IDLE, Ordering::Release);
}

/// Releases the device. Running calls of other threads keep it until they end; later ones fail.
extern "C" fn at_exit() {
    // A vfork child that calls exit has a bug, and would otherwise release its parent's device.
    if !is_owner() || MOUNTING.swap(ENDED, Ordering::AcqRel) == BUSY {
        return;
    }
    if let Some(posix) = load(&MOUNTED) {
        let (_inside, _whole) = (Inside::enter(), NotCancelled::enter());
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| posix.end()));
    }
}

/// The settings, if there are any and this is not a call from this library itself.
#[inline]
pub(crate) fn settings() -> Option<&'static Settings> {
    load(&SETTINGS)
}

/// Whether this process owns the state, as opposed to the child of a vfork that borrows its memory.
pub(crate) fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == process()
}

/// The mount, if it exists.
#[inline]
pub(crate) fn mounted() -> Option<&'static Posix> {
    let posix = load(&MOUNTED);
    if posix.is_some() { posix } else { mounted_after_fork() }
}

/// A child with descriptors of its parent mounts when one is first used.
#[inline]
fn mounted_after_fork() -> Option<&'static Posix> {
    if BEFORE_FORK.load(Ordering::Acquire).is_null() || Inside::is_here() {
        return None;
    }
    mount().ok()
}

/// The description of `fd`, if it is ours.
#[inline]
pub(crate) fn descriptor(fd: c_int) -> Option<Guard<Option<Arc<Description>>>> {
    match load(&MOUNTED) {
        Some(posix) => posix.descriptors().get(fd),
        None => descriptor_after_fork(fd),
    }
}

fn descriptor_after_fork(fd: c_int) -> Option<Guard<Option<Arc<Description>>>> {
    let before = load(&BEFORE_FORK)?;
    if !before.descriptors().has(fd) || Inside::is_here() {
        return None;
    }
    mount().ok()?.descriptors().get(fd)
}

/// Whether `fd` is ours; does not mount in a child.
#[inline]
pub(crate) fn is_ours(fd: c_int) -> bool {
    let (now, before) = (load(&MOUNTED), load(&BEFORE_FORK));
    now.or(before).is_some_and(|posix| posix.descriptors().has(fd))
}

/// Removes `fd`, which was closed or now refers to another file. No effect in the child of a vfork,
/// whose descriptors are not the parent's.
pub(crate) fn forget(fd: c_int) {
    if !is_ours(fd) {
        return;
    }
    let is_child = fork::is_child();
    if !is_owner() && !is_child {
        return;
    }
    let (now, before) = (load(&MOUNTED), load(&BEFORE_FORK));
    match (now, before) {
        // A child made without `fork`, with its own memory and without the threads.
        (Some(posix), _) if is_child => std::mem::forget(posix.descriptors().clear(fd)),
        (Some(posix), _) => drop(posix.descriptors().clear(fd)),
        // Nothing of the parent's memory is dropped: vanished threads may hold locks in it.
        (None, Some(before)) => std::mem::forget(before.descriptors().clear(fd)),
        (None, None) => {}
    }
}

/// The mount; mounts if necessary.
pub(crate) fn mount() -> Result<&'static Posix, Errno> {
    if let Some(posix) = load(&MOUNTED) {
        return Ok(posix);
    }
    mount_now()
}

#[cold]
#[inline(never)]
fn mount_now() -> Result<&'static Posix, Errno> {
    let settings = settings().ok_or(Errno(libc::EIO))?;
    if !is_owner() {
        // In the child of a vfork a mount would belong to its parent.
        return Err(Errno(libc::EIO));
    }
    // In addition to `guarded`: if the thread ended here, others would wait for ever.
    let _whole = NotCancelled::enter();
    let mut mounting = Mounting::begun();
    loop {
        if let Some(posix) = load(&MOUNTED) {
            return Ok(posix);
        }
        match MOUNTING.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => begin(settings),
            Err(BUSY) if Inside::is_here() => return Err(Errno(libc::EDEADLK)),
            Err(BUSY) => mounting.wait_a_little()?,
            Err(ENDED) => return Err(Errno(libc::EIO)),
            Err(_) => return Err(Errno(FAILED_WITH.load(Ordering::Relaxed))),
        }
    }
}

/// Mounts on a thread with its own stack, since the caller may be a signal handler with a few KiB.
/// Afterwards no mount is in progress.
fn begin(settings: &'static Settings) {
    // Another thread may just have completed it.
    if !MOUNTED.load(Ordering::Acquire).is_null() {
        return end_mounting(IDLE);
    }
    let before = errno();
    let started = {
        let _inside = Inside::enter();
        std::panic::catch_unwind(|| {
            meantime_process::thread::spawn("meantime-mount", move || {
                let _inside = Inside::enter();
                let made = std::panic::catch_unwind(|| make(settings));
                match made.unwrap_or(Err(Errno(libc::EIO))) {
                    Ok(posix) => {
                        MOUNTED.store(Box::into_raw(Box::new(posix)), Ordering::Release);
                        BEFORE_FORK.store(null_mut(), Ordering::Release);
                        end_mounting(IDLE);
                    }
                    Err(errno) => fail_mounting(errno),
                }
            })
        })
    };
    match started {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => fail_mounting(Errno(libc::ENOMEM)),
        Err(_) => fail_mounting(Errno(libc::EIO)),
    }
    set_errno(before);
}

fn fail_mounting(Errno(errno): Errno) {
    FAILED_WITH.store(errno, Ordering::Relaxed);
    end_mounting(FAILED);
}

/// Ends the mount in progress, unless the process ends.
fn end_mounting(to: u8) {
    let _ = MOUNTING.compare_exchange(BUSY, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// Waits until another thread has mounted, which may take as long as a mount does. But a thread in
/// the constructor of a library that is being loaded (`dlopen`) holds the loader's lock, which the
/// other one needs to look up functions.
struct Mounting {
    since: Instant,
    /// Time after which to check whether this thread holds the lock.
    ask_after: Duration,
}

impl Mounting {
    fn begun() -> Self {
        Self { since: Instant::now(), ask_after: PATIENCE }
    }

    /// # Errors
    /// EDEADLK: the mount cannot progress while this thread waits. A later call may succeed.
    fn wait_a_little(&mut self) -> Result<(), Errno> {
        let (waited, before) = (self.since.elapsed(), errno());
        if waited >= self.ask_after {
            self.ask_after = 2 * waited;
            if has_loader_lock() {
                return Err(Errno(libc::EDEADLK));
            }
        }
        let pause = waited / 8;
        std::thread::sleep(pause.clamp(Duration::from_micros(50), Duration::from_millis(1)));
        set_errno(before);
        Ok(())
    }
}

/// A thread that has not acquired the loader's lock by then is considered blocked.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the calling thread holds the loader's lock, which is recursive: this thread can take it
/// again, and another one cannot.
fn has_loader_lock() -> bool {
    // SAFETY: a name that ends. (`dlsym` takes the lock.)
    let take = || unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlsym".as_ptr()) };
    let _inside = Inside::enter();
    let other = meantime_process::thread::spawn("meantime-loader", move || {
        take();
    });
    let Ok(other) = other else { return false };
    let gets_it = || {
        let since = Instant::now();
        while !other.is_finished() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        other.is_finished()
    };
    if gets_it() {
        return false;
    }
    // Waits, if a third thread holds it.
    take();
    !gets_it()
}

fn make(settings: &Settings) -> Result<Posix, Errno> {
    let fs = settings.mount().map_err(|_| Errno(libc::EIO))?;
    let before = load(&BEFORE_FORK);
    let posix = match before {
        Some(before) => Posix::after_fork(before, fs),
        None => Posix::new(fs, settings.mount_point.clone()),
    };
    crate::cwd::settle(&posix);
    Ok(posix)
}
