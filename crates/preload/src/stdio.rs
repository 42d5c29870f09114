//! Streams on our files. The C library reads its own by functions that cannot be interposed;
//! fopencookie(3) makes one that reads through ours. Such a stream has no descriptor in the C
//! library, so `fileno` is answered from a list here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use libc::{FILE, off64_t, size_t, ssize_t};
use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::descriptor::close;
use crate::open::open_resolved;
use crate::path::on_path;
use crate::read::{by_descriptor, memory};
use crate::state::{descriptor, is_ours};
use meantime_hook::{errno, fail, guarded, hooks, set_errno};

/// cookie_io_functions_t.
#[repr(C)]
struct Functions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// The streams with a known descriptor. A stream that finds no room works, but has no `fileno`.
struct Open {
    file: AtomicPtr<FILE>,
    fd: AtomicI32,
}

static STREAMS: [Open; 1024] =
    [const { Open { file: AtomicPtr::new(std::ptr::null_mut()), fd: AtomicI32::new(-1) } }; 1024];
/// Number of entries of the list ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn remember(file: *mut FILE, fd: c_int) {
    for (index, slot) in STREAMS.iter().enumerate() {
        if slot.fd.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            slot.file.store(file, Ordering::Release);
            USED.fetch_max(index + 1, Ordering::AcqRel);
            return;
        }
    }
}

fn used() -> &'static [Open] {
    &STREAMS[..USED.load(Ordering::Acquire)]
}

fn forget_stream(fd: c_int) {
    for slot in used().iter().filter(|slot| slot.fd.load(Ordering::Acquire) == fd) {
        slot.file.store(std::ptr::null_mut(), Ordering::Release);
        slot.fd.store(-1, Ordering::Release);
    }
}

// A cookie is a descriptor's number, so it stays valid in a forked child.

unsafe extern "C" fn cookie_read(cookie: *mut c_void, buf: *mut c_char, bytes: size_t) -> ssize_t {
    by_descriptor!(
        cookie as usize as c_int,
        // SAFETY: the C library's own buffer.
        |open| open.read(unsafe { memory(buf.cast(), bytes) }?).map(|read| read as ssize_t),
        // The descriptor was closed without closing its stream.
        fail(libc::EBADF)
    )
}

unsafe extern "C" fn cookie_seek(
    cookie: *mut c_void,
    offset: *mut off64_t,
    whence: c_int,
) -> c_int {
    // SAFETY: the C library's own variable.
    let offset = unsafe { &mut *offset };
    by_descriptor!(
        cookie as usize as c_int,
        |open| {
            *offset = open.seek(*offset, whence)?;
            Ok(0)
        },
        fail(libc::EBADF)
    )
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    let fd = cookie as usize as c_int;
    forget_stream(fd);
    // SAFETY: no memory is meant.
    unsafe { close(fd) }
}

/// The flags of open(2) for a mode of fopen(3).
fn flags_of(mode: &[u8]) -> Result<c_int, Errno> {
    let plus = mode.contains(&b'+');
    let access = |alone| if plus { libc::O_RDWR } else { alone };
    let mut flags = match mode.first() {
        Some(b'r') => access(libc::O_RDONLY),
        Some(b'w') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return Err(Errno(libc::EINVAL)),
    };
    // A comma begins the name of a character set.
    for letter in mode[1..].iter().take_while(|&&letter| letter != b',') {
        match letter {
            b'x' => flags |= libc::O_EXCL,
            b'e' => flags |= libc::O_CLOEXEC,
            _ => {}
        }
    }
    Ok(flags)
}

/// A stream that reads descriptor `fd` of ours.
fn stream_on(fd: c_int) -> Result<*mut FILE, Errno> {
    let functions = Functions {
        read: Some(cookie_read),
        write: None,
        seek: Some(cookie_seek),
        close: Some(cookie_close),
    };
    // SAFETY: functions that stay, and a cookie that is a number.
    let file = unsafe { fopencookie(fd as usize as *mut c_void, c"r".as_ptr(), functions) };
    if file.is_null() {
        return Err(Errno(errno()));
    }
    remember(file, fd);
    Ok(file)
}

/// # Safety
/// As fopen(3).
unsafe fn open_stream(
    path: *const c_char,
    mode: *const c_char,
    mut theirs: impl FnMut(*const c_char) -> *mut FILE,
) -> *mut FILE {
    let ours = |posix: &'static Posix, place: ResolvedPath| {
        // SAFETY: the caller's promise.
        let flags = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes())?;
        let fd = open_resolved(posix, place, flags)?;
        stream_on(fd).inspect_err(|_| {
            // SAFETY: no memory is meant.
            unsafe { close(fd) };
        })
    };
    // SAFETY: the caller's promise.
    unsafe { on_path(libc::AT_FDCWD, path, true, ours, |_, path| theirs(path)) }
}

hooks! {
    "C" fn (fopen fopen64)(path: *const c_char, mode: *const c_char) -> *mut FILE = { |real|
        // SAFETY: the caller's promise.
        unsafe { open_stream(path, mode, |path| real()(path, mode)) }
    }

    "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = { |real|
        if !is_ours(fd) {
            // SAFETY: the caller's promise.
            return unsafe { real()(fd, mode) };
        }
        guarded(|| {
            // SAFETY: the caller's promise.
            let flags = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes())?;
            if flags & libc::O_ACCMODE != libc::O_RDONLY {
                return Err(Errno(libc::EINVAL));
            }
            stream_on(fd)
        })
    }

    "C" fn (fileno fileno_unlocked)(file: *mut FILE) -> c_int = { |real|
        let before = errno();
        // SAFETY: the caller's promise.
        let fd = unsafe { real()(file) };
        if fd >= 0 {
            return fd;
        }
        let slot = used().iter().find(|slot| slot.file.load(Ordering::Acquire) == file);
        match slot.map(|slot| slot.fd.load(Ordering::Acquire)) {
            Some(fd) if fd >= 0 => {
                set_errno(before);
                fd
            }
            _ => fd,
        }
    }
}
