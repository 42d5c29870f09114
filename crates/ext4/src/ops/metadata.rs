//! Modes, owners and times (kernel: `fs/attr.c`, `ext4_setattr`).

use super::{acl, attributes};
use crate::alloc::Allocator;
use crate::journal::Handle;
use crate::{Error, FileType, Timestamp};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::features::ro_compat;
use meantime_ext4_format::inode::flags;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
/// Bits of a mode that are not the type.
const MODE_BITS: u16 = 0o7777;

/// Gives `inode` the permissions of `mode` (its lowest twelve bits), and has its ACL say so too.
/// The caller [stores](Handle::store_inode) it.
///
/// # Errors
/// [`Error::Unsupported`] for a symbolic link, which has none; damage, or the device.
pub fn set_mode(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    inode: &mut InodeEdit,
    mode: u16,
) -> Result<(), Error> {
    if inode.file_type() == Some(FileType::Symlink) {
        return Err(Error::Unsupported(crate::Unsupported {
            what: "the mode of a symbolic link".to_owned(),
            advice: "it means nothing: that of its target counts",
        }));
    }
    inode.set_mode(inode.mode() & !MODE_BITS | mode & MODE_BITS);
    acl::follow_mode(handle, allocator, inode)?;
    inode.set_changed(handle.now());
    Ok(())
}

/// Takes from `inode`, a file that was written to or gets another owner, what lets programs run as
/// somebody else: the set-user and set-group bits, and its capabilities. Whether anything was
/// changed. The caller [stores](Handle::store_inode) it.
///
/// # Errors
/// As [`attributes::remove`].
pub fn drop_privileges(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    inode: &mut InodeEdit,
) -> Result<bool, Error> {
    let mut mode = inode.mode() & !SET_UID;
    // Without the right to execute it once meant mandatory locking.
    if mode & GROUP_EXECUTE != 0 {
        mode &= !SET_GID;
    }
    let changed = mode != inode.mode();
    inode.set_mode(mode);
    Ok(drop_capabilities(handle, allocator, inode)? || changed)
}

/// Takes from `inode` its capabilities alone, as each change of its content does, whoever makes it.
/// Whether it had some. The caller [stores](Handle::store_inode) it.
///
/// # Errors
/// As [`attributes::remove`].
pub fn drop_capabilities(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    inode: &mut InodeEdit,
) -> Result<bool, Error> {
    match attributes::remove(handle, allocator, inode, b"security.capability") {
        Ok(()) => Ok(true),
        // A file system without attributes has no capabilities.
        Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives `inode` another owner, another group, or both; unless it is a directory,
/// [privileges](drop_privileges) end, as in Linux for root too. The caller
/// [stores](Handle::store_inode) it.
///
/// # Errors
/// Damage, or the device.
pub fn set_owner(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    inode: &mut InodeEdit,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<(), Error> {
    if inode.file_type() != Some(FileType::Directory) {
        drop_privileges(handle, allocator, inode)?;
    }
    let (old_uid, old_gid) = inode.owner();
    inode.set_owner(uid.unwrap_or(old_uid), gid.unwrap_or(old_gid));
    inode.set_changed(handle.now());
    Ok(())
}

/// The project that `dir` gives to what is in it, if it gives one (EXT4_PROJINHERIT_FL).
pub(super) fn project_given(handle: &Handle<'_>, dir: &InodeEdit) -> Option<u32> {
    let has_projects = handle.superblock().features().has_ro_compat(ro_compat::PROJECT);
    (has_projects && dir.flags() & flags::PROJINHERIT != 0).then(|| dir.project()).flatten()
}

/// Fails if `inode` cannot get a name in `dir`, since that is for another project.
pub(super) fn check_project(
    handle: &Handle<'_>,
    dir: &InodeEdit,
    inode: &InodeEdit,
) -> Result<(), Error> {
    let given = project_given(handle, dir);
    if given.is_some() && given != inode.project() { Err(Error::CrossDevice) } else { Ok(()) }
}

/// The first second that an inode can tell.
const SECONDS_MIN: i64 = i32::MIN as i64;
/// The last second that an inode with two more bits of them can tell: in 2446.
const SECONDS_MAX: i64 = (3 << 32) + i32::MAX as i64;
/// `i_extra_isize` that reaches behind the newer parts of all three times, in bytes.
const TIMES_EXTRA_BYTES: usize = 16;

/// `time`, or the nearest that `inode` can tell.
fn told(inode: &InodeEdit, time: Timestamp) -> Timestamp {
    let wide = inode.extra_bytes() >= TIMES_EXTRA_BYTES;
    let last = if wide { SECONDS_MAX } else { i64::from(i32::MAX) };
    let seconds = time.seconds.clamp(SECONDS_MIN, last);
    let nanoseconds = if seconds == time.seconds { time.nanoseconds.min(999_999_999) } else { 0 };
    Timestamp { seconds, nanoseconds }
}

/// Sets the times of `inode`'s last read and last change of content, one or both; times that it
/// cannot tell become the nearest it can. The caller [stores](Handle::store_inode) it.
pub fn set_times(
    handle: &Handle<'_>,
    inode: &mut InodeEdit,
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
) {
    if let Some(time) = accessed {
        inode.set_accessed(told(inode, time));
    }
    if let Some(time) = modified {
        inode.set_modified(told(inode, time));
    }
    inode.set_changed(handle.now());
}
