//! syscall(2), for programs that bypass the C library's functions: the calls needed for reading.

use std::ffi::{c_char, c_int, c_long, c_uint};

use crate::state::is_ours;
use crate::{descriptor, dir, name, open, read, stat};

/// # Safety
/// As syscall(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    type Function = unsafe extern "C" fn(c_long, ...) -> c_long;
    let real = || meantime_hook::real!(c"syscall", Function);
    let (fd, path) = (a as c_int, b as *const c_char);
    let int = |argument: c_long| argument as c_int;
    // SAFETY: the caller's promise; arguments that were not given are never read.
    unsafe {
        match number {
            libc::SYS_openat => open::openat(fd, path, int(c), d as _).into(),
            libc::SYS_close => descriptor::close(fd).into(),
            libc::SYS_close_range => descriptor::close_range(a as _, b as _, int(c)).into(),
            libc::SYS_dup => descriptor::dup(fd).into(),
            libc::SYS_dup3 => descriptor::dup3(fd, int(b), int(c)).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptor::dup2(fd, int(b)).into(),
            libc::SYS_fcntl => descriptor::fcntl(fd, int(b), c as _).into(),
            libc::SYS_openat2 => {
                let theirs = |at: c_int, path: *const c_char| {
                    int(real()(number, c_long::from(at), path as c_long, c, d, e, f))
                };
                open::openat2(fd, path, c as _, d as _, theirs).into()
            }
            libc::SYS_newfstatat => stat::fstatat(fd, path, c as _, int(d)).into(),
            libc::SYS_faccessat => stat::faccessat(fd, path, int(c), 0).into(),
            libc::SYS_faccessat2 => stat::faccessat(fd, path, int(c), int(d)).into(),
            libc::SYS_readlinkat => name::readlinkat(fd, path, c as _, d as _) as c_long,
            libc::SYS_mmap if is_ours(int(e)) => {
                descriptor::mmap(a as _, b as _, int(c), int(d), int(e), f) as c_long
            }
            libc::SYS_copy_file_range if is_ours(fd) || is_ours(int(c)) => {
                let (to, bytes, flags) = (int(c), e as usize, f as c_uint);
                descriptor::copy_file_range(fd, b as _, to, d as _, bytes, flags) as c_long
            }
            libc::SYS_statx => stat::statx(fd, path, int(c), d as c_uint, e as _).into(),
            libc::SYS_read if is_ours(fd) => read::read(fd, b as _, c as _) as c_long,
            libc::SYS_pread64 if is_ours(fd) => read::pread64(fd, b as _, c as _, d) as c_long,
            libc::SYS_readv if is_ours(fd) => read::readv(fd, b as _, int(c)) as c_long,
            // The offset is passed in two halves, of which 64-bit Linux uses the first.
            libc::SYS_preadv if is_ours(fd) => read::preadv64(fd, b as _, int(c), d) as c_long,
            libc::SYS_preadv2 if is_ours(fd) => {
                read::preadv64v2(fd, b as _, int(c), d, int(f)) as c_long
            }
            libc::SYS_lseek if is_ours(fd) => read::lseek(fd, b, int(c)),
            libc::SYS_getdents64 if is_ours(fd) => dir::getdents64(fd, b as _, c as _) as c_long,
            libc::SYS_fstat if is_ours(fd) => stat::fstat(fd, b as _).into(),
            _ => real()(number, a, b, c, d, e, f),
        }
    }
}
