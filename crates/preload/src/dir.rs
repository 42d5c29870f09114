//! Directory streams. The C library's own would query the kernel by functions that cannot be
//! interposed: streams of our directories are separate objects.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::null_mut;

use libc::{DIR, dirent, dirent64, size_t, ssize_t};
use meantime_posix::{Description, DirEntry, Errno, Kind};

use crate::descriptor::close;
use crate::open::{open, open_resolved};
use crate::path::on_path;
use crate::state::{is_ours, mount};
use meantime_hook::{errno, fail, forwards, guarded, hooks, set_errno};

/// A stream of ours. The C library's begins with a descriptor, which is not negative: this
/// distinguishes them.
#[repr(C)]
struct Stream {
    mark: c_int,
    fd: c_int,
    /// The entry last returned by `readdir`.
    entry: dirent64,
}

const MARK: c_int = -0x6d65_616e;

/// Flags with which a stream opens its directory.
const FLAGS: c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;

/// 64-bit Linux has one layout for both.
const _: () = assert!(size_of::<dirent>() == size_of::<dirent64>());

/// The stream, if it is ours.
///
/// # Safety
/// `dir` is NULL or a stream, of ours or the C library's, which no other thread uses meanwhile.
unsafe fn stream<'a>(dir: *mut DIR) -> Option<&'a mut Stream> {
    let dir = dir.cast::<Stream>();
    // SAFETY: the caller's promise; both begin with an integer.
    unsafe {
        if dir.is_null() || (&raw const (*dir).mark).read() != MARK {
            return None;
        }
        dir.as_mut()
    }
}

fn new_stream(fd: c_int) -> *mut DIR {
    // SAFETY: integers and bytes.
    let entry = unsafe { std::mem::zeroed() };
    Box::into_raw(Box::new(Stream { mark: MARK, fd, entry })).cast()
}

fn description<R>(
    fd: c_int,
    then: impl FnOnce(&Description) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let open = mount()?.descriptors().get_full(fd).ok_or(Errno(libc::EBADF))?;
    then(&open)
}

hooks! {
    "C" fn opendir(path: *const c_char) -> *mut DIR = { |real|
        let ours = |posix, place| open_resolved(posix, place, FLAGS).map(new_stream);
        // SAFETY: the caller's promise.
        unsafe { on_path(libc::AT_FDCWD, path, true, ours, |_, path| real()(path)) }
    }

    "C" fn fdopendir(fd: c_int) -> *mut DIR = { |real|
        if !is_ours(fd) {
            // SAFETY: no memory is meant.
            return unsafe { real()(fd) };
        }
        guarded(|| {
            description(fd, |open| match open.kind() {
                Kind::Directory(_) => Ok(new_stream(fd)),
                Kind::File(_) => Err(Errno(libc::ENOTDIR)),
                Kind::Path => Err(Errno(libc::EBADF)),
            })
        })
    }

    "C" fn closedir(dir: *mut DIR) -> c_int = { |real|
        // SAFETY: the caller's promise.
        unsafe {
            let Some(stream) = stream(dir) else { return real()(dir) };
            let fd = stream.fd;
            stream.mark = 0;
            drop(Box::from_raw(dir.cast::<Stream>()));
            close(fd)
        }
    }

    "C" fn dirfd(dir: *mut DIR) -> c_int = { |real|
        // SAFETY: the caller's promise.
        unsafe { stream(dir).map_or_else(|| real()(dir), |stream| stream.fd) }
    }
}

fn fill(to: &mut dirent64, entry: &DirEntry) {
    to.d_ino = entry.ino;
    to.d_off = entry.next;
    to.d_type = entry.d_type;
    let bytes = entry.name.len().min(to.d_name.len() - 1);
    for (to, from) in to.d_name.iter_mut().zip(&entry.name[..bytes]) {
        *to = *from as c_char;
    }
    to.d_name[bytes] = 0;
    let header = std::mem::offset_of!(dirent64, d_name);
    to.d_reclen = (header + bytes + 1).next_multiple_of(8) as u16;
}

hooks! {
    "C" fn readdir64(dir: *mut DIR) -> *mut dirent64 = { |real|
        // SAFETY: the caller's promise.
        let Some(stream) = (unsafe { stream(dir) }) else { return unsafe { real()(dir) } };
        // At the end errno stays as it is.
        guarded(|| {
            let next = description(stream.fd, Description::next_entry)?;
            Ok::<_, Errno>(next.map_or(null_mut(), |entry| {
                fill(&mut stream.entry, &entry);
                &raw mut stream.entry
            }))
        })
    }

    "C" fn readdir64_r(
        dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64,
    ) -> c_int = { |real|
        // SAFETY: the caller's promise.
        unsafe {
            if stream(dir).is_none() {
                return real()(dir, entry, result);
            }
            let before = errno();
            set_errno(0);
            let next = readdir64(dir);
            let failed = errno();
            set_errno(before);
            if next.is_null() {
                result.write(null_mut());
                return failed;
            }
            std::ptr::copy_nonoverlapping(next, entry, 1);
            result.write(entry);
            0
        }
    }

    "C" fn rewinddir(dir: *mut DIR) -> () = { |real|
        // SAFETY: the caller's promise.
        unsafe { if stream(dir).is_none() { real()(dir) } else { seekdir(dir, 0) } }
    }

    "C" fn seekdir(dir: *mut DIR, at: c_long) -> () = { |real|
        // SAFETY: the caller's promise.
        let Some(stream) = (unsafe { stream(dir) }) else { return unsafe { real()(dir, at) } };
        let _: i64 = guarded(|| description(stream.fd, |open| open.seek(at, libc::SEEK_SET)));
    }

    "C" fn telldir(dir: *mut DIR) -> c_long = { |real|
        // SAFETY: the caller's promise.
        let Some(stream) = (unsafe { stream(dir) }) else { return unsafe { real()(dir) } };
        guarded(|| description(stream.fd, |open| Ok(open.position() as i64)))
    }
}

// The layout of both is the same.
forwards! {
    "C" fn readdir(dir: *mut DIR) -> *mut dirent64 => readdir64(dir);
    "C" fn readdir_r(dir: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int
        => readdir64_r(dir, entry, result);
}

/// Entries in the format of getdents64(2), as many as fit.
///
/// # Safety
/// There are `room` bytes.
unsafe fn getdents(fd: c_int, to: *mut c_void, room: size_t) -> Result<ssize_t, Errno> {
    let header = std::mem::offset_of!(dirent64, d_name);
    description(fd, |open| {
        let mut filled = 0;
        // Continues while the longest possible entry fits.
        while room - filled >= size_of::<dirent64>() {
            let Some(entry) = open.next_entry()? else { break };
            // SAFETY: integers and bytes.
            let mut buf: dirent64 = unsafe { std::mem::zeroed() };
            fill(&mut buf, &entry);
            let bytes = usize::from(buf.d_reclen);
            debug_assert!(bytes >= header);
            // SAFETY: there is room for the longest.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    (&raw const buf).cast::<u8>(),
                    to.cast::<u8>().add(filled),
                    bytes,
                )
            };
            filled += bytes;
        }
        if filled == 0 && room < size_of::<dirent64>() {
            Err(Errno(libc::EINVAL))
        } else {
            Ok(filled as ssize_t)
        }
    })
}

hooks! {
    "C" fn getdents64(fd: c_int, to: *mut c_void, room: size_t) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        unsafe {
            if is_ours(fd) { guarded(|| getdents(fd, to, room)) } else { real()(fd, to, room) }
        }
    }
}

type List = *mut *mut dirent64;
type Filter = unsafe extern "C" fn(*const dirent64) -> c_int;
type Compare = unsafe extern "C" fn(*mut *const dirent64, *mut *const dirent64) -> c_int;

hooks! {
    "C" fn scandir64(
        path: *const c_char, list: *mut List, filter: Option<Filter>, compare: Option<Compare>,
    ) -> c_int = { |real|
        // SAFETY: the caller's promise. What is opened is closed; what is given out is the C
        // library's memory, for the caller to free.
        unsafe {
            let fd = open(path, FLAGS, 0);
            if fd < 0 {
                return -1;
            }
            if !is_ours(fd) {
                close(fd);
                return real()(path, list, filter, compare);
            }
            let dir = fdopendir(fd);
            let mut found: Vec<*mut dirent64> = Vec::new();
            let before = errno();
            set_errno(0);
            loop {
                let entry = readdir64(dir);
                if entry.is_null() {
                    break;
                }
                if filter.is_some_and(|filter| filter(entry) == 0) {
                    continue;
                }
                let bytes = usize::from((*entry).d_reclen);
                let copy = libc::malloc(bytes).cast::<u8>();
                if copy.is_null() {
                    set_errno(libc::ENOMEM);
                    break;
                }
                std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy, bytes);
                found.push(copy.cast());
            }
            let mut failed = errno();
            let room = found.len().max(1) * size_of::<*mut dirent64>();
            let array =
                if failed == 0 { libc::malloc(room).cast::<*mut dirent64>() } else { null_mut() };
            if failed == 0 && array.is_null() {
                failed = libc::ENOMEM;
            }
            closedir(dir);
            if failed != 0 {
                found.into_iter().for_each(|entry| libc::free(entry.cast()));
                return fail(failed);
            }
            std::ptr::copy_nonoverlapping(found.as_ptr(), array, found.len());
            if let Some(compare) = compare {
                type Untyped = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
                let compare = std::mem::transmute::<Compare, Untyped>(compare);
                libc::qsort(array.cast(), found.len(), size_of::<*mut dirent64>(), Some(compare));
            }
            list.write(array);
            set_errno(before);
            found.len() as c_int
        }
    }
}

forwards! {
    "C" fn scandir(
        path: *const c_char, list: *mut List, filter: Option<Filter>, compare: Option<Compare>
    ) -> c_int
        => scandir64(path, list, filter, compare);
}
