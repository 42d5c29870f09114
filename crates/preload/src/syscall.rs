//! syscall(2), for programs that go past the C library's functions: those calls that reading needs.

use std::ffi::{c_char, c_int, c_long, c_uint};

use crate::state::is_ours;
use crate::{descriptor, dir, name, open, read, real, stat};

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
    let fd = a as c_int;
    // SAFETY: the caller's promise; arguments that were not given are never read.
    unsafe {
        match number {
            libc::SYS_openat => open::openat(fd, b as *const c_char, c as c_int, d as _).into(),
            libc::SYS_close => descriptor::close(fd).into(),
            libc::SYS_close_range => {
                descriptor::close_range(a as c_uint, b as c_uint, c as c_int).into()
            }
            libc::SYS_dup => descriptor::dup(fd).into(),
            libc::SYS_dup3 => descriptor::dup3(fd, b as c_int, c as c_int).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptor::dup2(fd, b as c_int).into(),
            libc::SYS_fcntl => descriptor::fcntl(fd, b as c_int, c as _).into(),
            libc::SYS_openat2 => {
                let theirs = |at: c_int, path: *const c_char| {
                    real::real!(c"syscall", Function)(
                        number,
                        c_long::from(at),
                        path as c_long,
                        c,
                        d,
                        e,
                        f,
                    ) as c_int
                };
                open::openat2(fd, b as *const c_char, c as *const _, d as usize, theirs).into()
            }
            libc::SYS_newfstatat => {
                stat::fstatat(fd, b as *const c_char, c as *mut _, d as c_int).into()
            }
            libc::SYS_faccessat => stat::faccessat(fd, b as *const c_char, c as c_int, 0).into(),
            libc::SYS_faccessat2 => {
                stat::faccessat(fd, b as *const c_char, c as c_int, d as c_int).into()
            }
            libc::SYS_readlinkat => {
                name::readlinkat(fd, b as *const c_char, c as *mut c_char, d as usize) as c_long
            }
            libc::SYS_mmap if is_ours(e as c_int) => {
                descriptor::mmap(a as *mut _, b as usize, c as c_int, d as c_int, e as c_int, f)
                    as c_long
            }
            libc::SYS_copy_file_range if is_ours(fd) || is_ours(c as c_int) => {
                descriptor::copy_file_range(
                    fd,
                    b as *mut _,
                    c as c_int,
                    d as *mut _,
                    e as usize,
                    f as c_uint,
                ) as c_long
            }
            libc::SYS_statx => {
                stat::statx(fd, b as *const c_char, c as c_int, d as c_uint, e as *mut libc::statx)
                    .into()
            }
            libc::SYS_read if is_ours(fd) => read::read(fd, b as *mut _, c as usize) as c_long,
            libc::SYS_pread64 if is_ours(fd) => {
                read::pread64(fd, b as *mut _, c as usize, d) as c_long
            }
            libc::SYS_readv if is_ours(fd) => read::readv(fd, b as *const _, c as c_int) as c_long,
            // The offset is given in two halves, of which 64-bit Linux takes the first.
            libc::SYS_preadv if is_ours(fd) => {
                read::preadv64(fd, b as *const _, c as c_int, d) as c_long
            }
            libc::SYS_preadv2 if is_ours(fd) => {
                read::preadv64v2(fd, b as *const _, c as c_int, d, f as c_int) as c_long
            }
            libc::SYS_lseek if is_ours(fd) => read::lseek(fd, b, c as c_int),
            libc::SYS_getdents64 if is_ours(fd) => {
                dir::getdents64(fd, b as *mut _, c as usize) as c_long
            }
            libc::SYS_fstat if is_ours(fd) => stat::fstat(fd, b as *mut _).into(),
            _ => real::real!(c"syscall", Function)(number, a, b, c, d, e, f),
        }
    }
}
