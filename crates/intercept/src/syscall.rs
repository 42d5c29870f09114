//! Defines syscall(2), for programs that close descriptors past the C library's functions. The
//! kernel executes the calls themselves.

use std::ffi::{c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use crate::confine::confined;
use crate::map::prepare_copy;
use crate::state::{TABLE, is_active};

/// Is called before a system call, with its number and its first arguments. Returns the next
/// definition of `syscall`.
extern "C" fn before_syscall(number: c_long, a: c_long, b: c_long, c: c_long) -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    if is_active() {
        match number {
            // The kernel frees the number before it tells the owner of the close.
            libc::SYS_close => TABLE.forget(a as i32, false),
            libc::SYS_close_range => TABLE.forget_range(a as u32, b as u32),
            libc::SYS_dup3 => TABLE.forget(b as i32, false),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => TABLE.forget(b as i32, false),
            libc::SYS_prctl if a as i32 == libc::PR_SET_SECCOMP => confined(),
            // Other values only query.
            libc::SYS_seccomp if a as u32 <= libc::SECCOMP_SET_MODE_FILTER => confined(),
            libc::SYS_sendfile => prepare_copy(b as i32, a as i32),
            libc::SYS_splice | libc::SYS_copy_file_range => prepare_copy(a as i32, c as i32),
            _ => {}
        }
    }
    crate::hook::resolve(&NEXT, c"syscall")
}

/// This function jumps to it, because the system call may be one that returns twice (vfork), and
/// its last argument is on the stack.
///
/// # Safety
/// The caller keeps the contract of syscall(2).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() -> c_long {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        // The stack is aligned to 16 bytes at a call.
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_syscall,
    )
}

/// This function jumps to it, because the system call may be one that returns twice.
///
/// # Safety
/// The caller keeps the contract of syscall(2).
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() -> c_long {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-80]!",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "bl {before}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        "br x16",
        before = sym before_syscall,
    )
}
