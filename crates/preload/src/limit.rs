//! `pathconf`: the limits of our file system.

use std::ffi::{c_char, c_int, c_long};

use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::path::{on_fd, on_path};
use meantime_hook::hooks;

/// The limit of ext4.
const LINK_MAX: c_long = 65_000;

/// The answer for `name`; −1, which is no error, if there is no limit or no such name.
fn limit(posix: &Posix, place: ResolvedPath, name: c_int) -> Result<c_long, Errno> {
    place.found()?;
    Ok(match name {
        libc::_PC_LINK_MAX => LINK_MAX,
        libc::_PC_NAME_MAX => posix.stat_fs()?.name_max.into(),
        libc::_PC_PATH_MAX | libc::_PC_PIPE_BUF => libc::PATH_MAX.into(),
        libc::_PC_MAX_CANON | libc::_PC_MAX_INPUT => 255,
        libc::_PC_CHOWN_RESTRICTED | libc::_PC_NO_TRUNC | libc::_PC_2_SYMLINKS => 1,
        libc::_PC_VDISABLE => 0,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_REC_MIN_XFER_SIZE | libc::_PC_REC_XFER_ALIGN | libc::_PC_ALLOC_SIZE_MIN => {
            c_long::from(posix.stat_fs()?.usage.block_bytes)
        }
        libc::_PC_SYNC_IO
        | libc::_PC_ASYNC_IO
        | libc::_PC_PRIO_IO
        | libc::_PC_SOCK_MAXBUF
        | libc::_PC_REC_INCR_XFER_SIZE
        | libc::_PC_REC_MAX_XFER_SIZE
        | libc::_PC_SYMLINK_MAX => -1,
        _ => return Err(Errno(libc::EINVAL)),
    })
}

hooks! {
    "C" fn pathconf(path: *const c_char, name: c_int) -> c_long = { |real|
        let ours = |posix, place| limit(posix, place, name);
        // SAFETY: the caller's promise.
        unsafe { on_path(libc::AT_FDCWD, path, true, ours, |_, path| real()(path, name)) }
    }

    "C" fn fpathconf(fd: c_int, name: c_int) -> c_long = { |real|
        // SAFETY: no memory is meant.
        on_fd(fd, |posix, place| limit(posix, place, name), || unsafe { real()(fd, name) })
    }
}
