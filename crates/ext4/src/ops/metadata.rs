//! Modes, owners and times (kernel: `fs/attr.c`, `ext4_setattr`).

use super::{acl, attributes};
use crate::alloc::AllocHandle;
use crate::journal::Handle;
use crate::{Error, FileType, Result, Timestamp};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::features::ro_compat;
use meantime_ext4_format::inode::flags;

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
/// The bits of a mode other than the type.
const MODE_BITS: u16 = 0o7777;

/// Sets the permissions of `inode` to the lowest twelve bits of `mode`, and updates its ACL. The
/// caller [stores](Handle::store_inode) the inode.
///
/// # Errors
/// [`Error::Unsupported`] for a symbolic link, which has none; damage, or a device error.
pub fn set_mode(handle: &mut AllocHandle<'_, '_>, inode: &mut InodeEdit, mode: u16) -> Result<()> {
    if inode.file_type() == Some(FileType::Symlink) {
        return Err(Error::Unsupported(crate::Unsupported {
            what: "the mode of a symbolic link".to_owned(),
            advice: "it means nothing: that of its target counts",
        }));
    }
    inode.set_mode(inode.mode() & !MODE_BITS | mode & MODE_BITS);
    acl::follow_mode(handle, inode)?;
    inode.set_changed(handle.now());
    Ok(())
}

/// Removes what lets programs run as another user from `inode`, a file that was written to or
/// changes its owner: the set-user and set-group bits, and its capabilities. Returns whether
/// anything changed. The caller [stores](Handle::store_inode) the inode.
///
/// # Errors
/// The errors of [`attributes::remove`].
pub fn drop_privileges(handle: &mut AllocHandle<'_, '_>, inode: &mut InodeEdit) -> Result<bool> {
    let mut mode = inode.mode() & !SET_UID;
    // Without group execute, this bit once meant mandatory locking.
    if mode & GROUP_EXECUTE != 0 {
        mode &= !SET_GID;
    }
    let changed = mode != inode.mode();
    inode.set_mode(mode);
    Ok(drop_capabilities(handle, inode)? || changed)
}

/// Removes only the capabilities of `inode`, as every change of its content must. Returns whether
/// there were any. The caller [stores](Handle::store_inode) the inode.
///
/// # Errors
/// The errors of [`attributes::remove`].
pub fn drop_capabilities(handle: &mut AllocHandle<'_, '_>, inode: &mut InodeEdit) -> Result<bool> {
    match attributes::remove(handle, inode, b"security.capability") {
        Ok(()) => Ok(true),
        // A file system without attributes has no capabilities.
        Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Changes the owner, the group, or both of `inode`. Unless it is a directory, [drops its
/// privileges](drop_privileges), as Linux does for root, too. The caller
/// [stores](Handle::store_inode) the inode.
///
/// # Errors
/// Damage, or a device error.
pub fn set_owner(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<()> {
    if inode.file_type() != Some(FileType::Directory) {
        drop_privileges(handle, inode)?;
    }
    let (old_uid, old_gid) = inode.owner();
    inode.set_owner(uid.unwrap_or(old_uid), gid.unwrap_or(old_gid));
    inode.set_changed(handle.now());
    Ok(())
}

/// Returns the project that new inodes in `dir` inherit, if any (EXT4_PROJINHERIT_FL).
pub(super) fn project_given(handle: &Handle<'_>, dir: &InodeEdit) -> Option<u32> {
    let has_projects = handle.superblock().features().has_ro_compat(ro_compat::PROJECT);
    (has_projects && dir.flags() & flags::PROJINHERIT != 0).then(|| dir.project()).flatten()
}

/// Fails if `inode` cannot get a name in `dir`, which belongs to another project.
pub(super) fn check_project(handle: &Handle<'_>, dir: &InodeEdit, inode: &InodeEdit) -> Result<()> {
    let given = project_given(handle, dir);
    if given.is_some() && given != inode.project() { Err(Error::CrossDevice) } else { Ok(()) }
}

/// The first second that an inode can store.
const SECONDS_MIN: i64 = i32::MIN as i64;
/// The last second that an inode with two extra epoch bits can store: in 2446.
const SECONDS_MAX: i64 = (3 << 32) + i32::MAX as i64;
/// The `i_extra_isize` that covers the extra fields of all three times, in bytes.
const TIMES_EXTRA_BYTES: usize = 16;

/// Clamps `time` to what `inode` can store.
fn told(inode: &InodeEdit, time: Timestamp) -> Timestamp {
    let wide = inode.extra_bytes() >= TIMES_EXTRA_BYTES;
    let last = if wide { SECONDS_MAX } else { i64::from(i32::MAX) };
    let seconds = time.seconds.clamp(SECONDS_MIN, last);
    let nanoseconds = if seconds == time.seconds { time.nanoseconds.min(999_999_999) } else { 0 };
    Timestamp { seconds, nanoseconds }
}

/// Sets the access time, the modification time, or both of `inode`, clamped to what it can store.
/// The caller [stores](Handle::store_inode) the inode.
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
