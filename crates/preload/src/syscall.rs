//! syscall(2), for programs that go past the C library's functions: those calls that reading needs.

use std::ffi::{c_char, c_int, c_long, c_uint};

use crate::state::is_ours;
use crate::{descriptor, dir, open, read, real, stat};

/// # Safety
/// As syscall(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    type Function = unsafe extern "C" fn(c_long, ...) -> c_long;
    let fd = a as c_int;
    // SAFETY: the caller's promise; arguments that were not given are not looked at by anybody.
    unsafe {
        match number {
            libc::SYS_openat => open::openat(fd, b as *const c_char, c as c_int, d as _).into(),
            libc::SYS_close => descriptor::close(fd).into(),
            libc::SYS_close_range => descriptor::close_range(a as c_uint, b as c_uint, c as c_int).into(),
            libc::SYS_dup => descriptor::dup(fd).into(),
            libc::SYS_dup3 => descriptor::dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_statx => {
                stat::statx(fd, b as *const c_char, c as c_int, d as c_uint, e as *mut libc::statx).into()
            }
            libc::SYS_read if is_ours(fd) => read::read(fd, b as *mut _, c as usize) as c_long,
            libc::SYS_pread64 if is_ours(fd) => read::pread64(fd, b as *mut _, c as usize, d) as c_long,
            libc::SYS_readv if is_ours(fd) => read::readv(fd, b as *const _, c as c_int) as c_long,
            // The offset is given in two halves, of which 64-bit Linux takes the first.
            libc::SYS_preadv if is_ours(fd) => read::preadv64(fd, b as *const _, c as c_int, d) as c_long,
            libc::SYS_preadv2 if is_ours(fd) => {
                read::preadv64v2(fd, b as *const _, c as c_int, d, f as c_int) as c_long
            }
            libc::SYS_lseek if is_ours(fd) => read::lseek(fd, b, c as c_int),
            libc::SYS_getdents64 if is_ours(fd) => dir::getdents64(fd, b as *mut _, c as usize) as c_long,
            libc::SYS_fstat if is_ours(fd) => stat::fstat(fd, b as *mut _).into(),
            _ => real::real!(c"syscall" as Function)(number, a, b, c, d, e, f),
        }
    }
}
