//! Handles processes that get descriptors, or memory, of this one, and limits.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use crate::hook::{hooks, resolve};
use libc::{FILE, mmsghdr, msghdr, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, rlimit};

use crate::state::{TABLE, end, is_active, look_at_limit};
use crate::thread;

/// Notes that another process gets descriptors.
fn shared() {
    if is_active() {
        TABLE.share();
    }
}

/// Notes that a thread no longer has the descriptors of the others, so that their numbers are
/// ambiguous.
pub(crate) fn unshared() {
    end();
}

/// Is called before `vfork`. Returns the next definition.
extern "C" fn before_vfork() -> *mut c_void {
    if is_active() {
        let _ = std::panic::catch_unwind(|| {
            thread::may_be_child();
            TABLE.share();
        });
    }
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    resolve(&NEXT, c"vfork")
}

/// The function returns twice into the caller's frame, so this one jumps to it and has no frame of
/// its own.
///
/// # Safety
/// The caller keeps the contract of vfork(2).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        "endbr64",
        // The stack is aligned to 16 bytes at a call.
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "jmp rax",
        before = sym before_vfork,
    )
}

/// The function returns twice into the caller's frame, so this one jumps to it and has no frame of
/// its own.
///
/// # Safety
/// The caller keeps the contract of vfork(2).
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-16]!",
        "bl {before}",
        "mov x16, x0",
        "ldp x29, x30, [sp], #16",
        "br x16",
        before = sym before_vfork,
    )
}

hooks! {
    // The function runs in the child. Here it returns once.
    "C" fn clone(
        function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_tid: *mut c_void, tls: *mut c_void, child_tid: *mut c_void,
    ) -> c_int = { |real|
        if is_active() {
            shared();
            let is_thread = flags & libc::CLONE_FILES != 0;
            if flags & libc::CLONE_VM != 0 && !is_thread {
                unshared();
            }
        }
        // SAFETY: the caller's promise. What was not given is not read.
        unsafe { real()(function, stack, flags, argument, parent_tid, tls, child_tid) }
    }

    "C" fn unshare(flags: c_int) -> c_int = { |real|
        if flags & libc::CLONE_FILES != 0 && is_active() {
            unshared();
        }
        // SAFETY: no memory is meant.
        unsafe { real()(flags) }
    }

    "C" fn (posix_spawn posix_spawnp)(
        pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: *const *mut c_char, envp: *const *mut c_char,
    ) -> c_int = { |real|
        shared();
        // SAFETY: the caller's promise.
        unsafe { real()(pid, path, actions, attributes, argv, envp) }
    }

    "C-unwind" fn system(command: *const c_char) -> c_int = { |real|
        shared();
        // SAFETY: the caller's promise.
        unsafe { real()(command) }
    }

    "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE = { |real|
        shared();
        // SAFETY: the caller's promise.
        unsafe { real()(command, mode) }
    }

    "C-unwind" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> isize = { |real|
        // SAFETY: the caller's promise.
        if is_active() && unsafe { message.as_ref() }.is_some_and(|it| it.msg_controllen > 0) {
            shared();
        }
        // SAFETY: the caller's promise.
        unsafe { real()(socket, message, flags) }
    }

    "C-unwind" fn sendmmsg(
        socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int,
    ) -> c_int = { |real|
        shared();
        // SAFETY: the caller's promise.
        unsafe { real()(socket, messages, count, flags) }
    }

    "C" fn (setrlimit setrlimit64)(resource: c_uint, limit: *const rlimit) -> c_int = { |real|
        // SAFETY: the caller's promise.
        let answer = unsafe { real()(resource, limit) };
        limited();
        answer
    }

    "C" fn (prlimit prlimit64)(
        pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit,
    ) -> c_int = { |real|
        // SAFETY: the caller's promise.
        let answer = unsafe { real()(pid, resource, new, old) };
        limited();
        answer
    }
}

fn limited() {
    if is_active() {
        look_at_limit();
    }
}
