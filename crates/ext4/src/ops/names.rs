//! Names made, taken away and moved, with the inodes they lead to: each as one change (kernel:
//! `fs/namei.c`, `fs/ext4/namei.c`).
//!
//! Who may do it (permissions, the sticky bit) is asked before; only immutable and append-only
//! inodes are seen to here.

use super::{attributes, directory, metadata, new_inode, orphans, truncate};
use crate::alloc::Allocator;
use crate::error::Error;
use crate::journal::Handle;
use crate::{FileType, NewNode};
use meantime_ext4_format::dirent::NAME_BYTES_MAX;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::edit::dirent::NewEntry;
use meantime_ext4_format::features::ro_compat;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::journal::fast_commit::Change;

/// The most names an inode has, and subdirectories are counted to (`EXT4_LINK_MAX`).
const LINKS_MAX: u16 = 65_000;

/// A name that was taken from an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlinked {
    /// The inode.
    pub ino: u32,
    /// It was the last one: the inode is an orphan now, to be [finished](orphans::finish) when
    /// nobody has it open any more. If it is known that [nobody has](Unused), it is none, and to be
    /// [deleted](orphans::delete) in the same change.
    pub is_last: bool,
    /// Whether it is none.
    pub is_unused: bool,
}

/// Answers whether nobody has an inode, which is just losing its last name, nor will get it: then
/// it is no orphan, and is deleted by the change that took the name.
pub type Unused<'a> = &'a dyn Fn(u32) -> bool;

/// Whoever has an inode is not known.
#[cfg(test)]
pub(crate) const MAYBE_USED: Unused<'static> = &|_| false;

/// Whether `name` can be a new one.
pub(super) fn check_name(name: &[u8]) -> Result<(), Error> {
    match name {
        b"" => Err(Error::NotFound),
        b"." | b".." => Err(Error::Exists),
        _ if name.len() > NAME_BYTES_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => {
            Err(Error::Invalid("a name has no slash and no NUL in it"))
        }
        _ => Ok(()),
    }
}

/// The same for a name that is there.
pub(super) fn check_old_name(name: &[u8]) -> Result<(), Error> {
    check_name(name).map_err(|error| match error {
        Error::Exists => Error::Invalid("`.` and `..` stay where they are"),
        other => other,
    })
}

/// Directory `ino`, in which names are put (`may_create`).
pub(super) fn load_parent(handle: &Handle<'_>, ino: u32) -> Result<InodeEdit, Error> {
    let dir = handle.load_inode(ino)?;
    if dir.file_type() != Some(FileType::Directory) {
        return Err(Error::NotDirectory);
    }
    if dir.links() == 0 {
        // It was removed.
        return Err(Error::NotFound);
    }
    if dir.flags() & flags::IMMUTABLE != 0 { Err(Error::NotPermitted) } else { Ok(dir) }
}

/// Fails for whoever wants to take names out of `dir` if it must not lose any (`may_delete`).
pub(super) fn check_may_lose(dir: &InodeEdit) -> Result<(), Error> {
    if dir.flags() & flags::APPEND != 0 { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Fails if `inode` has to keep its names.
pub(super) fn check_may_go(inode: &InodeEdit) -> Result<(), Error> {
    if inode.flags() & (flags::APPEND | flags::IMMUTABLE) != 0 {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}

/// The inode that `name` in `dir` leads to.
pub(super) fn look_up(
    handle: &Handle<'_>,
    dir: &InodeEdit,
    name: &[u8],
) -> Result<Option<InodeEdit>, Error> {
    let volume = handle.volume();
    let Some((ino, _)) = volume.lookup(&dir.parsed(handle.superblock())?, name)? else {
        return Ok(None);
    };
    volume.linked_inode(ino)?;
    Ok(Some(handle.load_inode(ino)?))
}

fn check_absent(handle: &Handle<'_>, dir: &InodeEdit, name: &[u8]) -> Result<(), Error> {
    let found = handle.volume().lookup(&dir.parsed(handle.superblock())?, name)?;
    if found.is_some() { Err(Error::Exists) } else { Ok(()) }
}

pub(super) fn is_directory(inode: &InodeEdit) -> bool {
    inode.file_type() == Some(FileType::Directory)
}

/// Changes directory `ino`, whose content is newer then.
pub(super) fn change_directory<T>(
    handle: &mut Handle<'_>,
    ino: u32,
    work: impl FnOnce(&mut Handle<'_>, &mut InodeEdit) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut dir = handle.load_inode(ino)?;
    let result = work(handle, &mut dir)?;
    let now = handle.now();
    dir.set_modified(now);
    dir.set_changed(now);
    handle.store_inode(&dir, true)?;
    Ok(result)
}

/// Changes inode `ino` but for its content.
pub(super) fn change_inode(
    handle: &mut Handle<'_>,
    ino: u32,
    work: impl FnOnce(&mut Handle<'_>, &mut InodeEdit) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut inode = handle.load_inode(ino)?;
    work(handle, &mut inode)?;
    inode.set_changed(handle.now());
    handle.store_inode(&inode, false)
}

pub(super) fn entry_for<'a>(inode: &InodeEdit, name: &'a [u8]) -> NewEntry<'a> {
    NewEntry { ino: inode.ino(), file_type: inode.file_type(), name }
}

/// Fails if `dir` cannot have a subdirectory more (`EXT4_DIR_LINK_MAX`).
pub(super) fn check_may_count(handle: &Handle<'_>, dir: &InodeEdit) -> Result<(), Error> {
    let uncounted = handle.superblock().features().has_ro_compat(ro_compat::DIR_NLINK)
        && dir.flags() & flags::INDEX != 0;
    if dir.links() >= LINKS_MAX && !uncounted { Err(Error::TooManyLinks) } else { Ok(()) }
}

/// `dir` has a subdirectory more: above 65,000 they are not counted any more, and 1 says so.
pub(super) fn count_subdirectory(dir: &mut InodeEdit) {
    let links = dir.links();
    dir.set_links(if links == 1 || links >= LINKS_MAX { 1 } else { links + 1 });
}

/// `dir` has a subdirectory less.
pub(super) fn discount_subdirectory(dir: &mut InodeEdit) {
    let links = dir.links();
    if links > 2 {
        dir.set_links(links - 1);
    }
}

/// Puts `inode`, which is stored, into `parent` as `name`.
fn put(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    parent: u32,
    name: &[u8],
    inode: &InodeEdit,
) -> Result<(), Error> {
    change_directory(handle, parent, |handle, dir| {
        directory::add(handle, allocator, dir, entry_for(inode, name))?;
        if is_directory(inode) {
            count_subdirectory(dir);
        }
        Ok(())
    })
}

/// Makes file `name` in directory `parent`: its inode.
///
/// # Errors
/// [`Error::Exists`], [`Error::NameTooLong`], [`Error::NotPermitted`], [`Error::NoSpace`],
/// [`Error::NotFound`] in a directory that was removed, …; damage, or the device.
pub fn create(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    parent: u32,
    name: &[u8],
    new: &NewNode,
) -> Result<u32, Error> {
    mknod(handle, allocator, parent, name, new, FileType::Regular, (0, 0))
}

/// Makes `name` in directory `parent` a file, pipe, socket or device; of a device, `device` has the
/// major and minor number.
///
/// # Errors
/// As [`create`]; [`Error::Invalid`] for another type, or numbers that are too large.
pub fn mknod(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    parent: u32,
    name: &[u8],
    new: &NewNode,
    file_type: FileType,
    device: (u32, u32),
) -> Result<u32, Error> {
    if matches!(file_type, FileType::Directory | FileType::Symlink) {
        return Err(Error::Invalid("not a type to make nodes of"));
    }
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    check_absent(handle, &dir, name)?;
    let mut inode = new_inode::make(handle, allocator, &dir, file_type, new)?;
    if matches!(file_type, FileType::Character | FileType::Block) && !inode.set_device(device) {
        return Err(Error::Invalid("a device's numbers are below 4,096 and 1,048,576"));
    }
    inode.set_links(1);
    handle.store_inode(&inode, true)?;
    put(handle, allocator, parent, name, &inode)?;
    if file_type == FileType::Regular {
        handle.record_create(parent, inode.ino(), name);
        handle.fast_eligible();
    }
    Ok(inode.ino())
}

/// Makes a file in no directory (O_TMPFILE), on behalf of `parent`: its inode, which is an orphan
/// until it is [linked](link).
///
/// # Errors
/// As [`create`].
pub fn tmpfile(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    parent: u32,
    new: &NewNode,
) -> Result<u32, Error> {
    let dir = load_parent(handle, parent)?;
    let mut inode = new_inode::make(handle, allocator, &dir, FileType::Regular, new)?;
    orphans::add(handle, &mut inode)?;
    handle.store_inode(&inode, true)?;
    Ok(inode.ino())
}

/// Makes directory `name` in directory `parent`: its inode.
///
/// # Errors
/// As [`create`]; [`Error::TooManyLinks`].
pub fn mkdir(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    parent: u32,
    name: &[u8],
    new: &NewNode,
) -> Result<u32, Error> {
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    check_absent(handle, &dir, name)?;
    check_may_count(handle, &dir)?;
    let mut inode = new_inode::make(handle, allocator, &dir, FileType::Directory, new)?;
    inode.set_links(2);
    directory::create(handle, allocator, &mut inode, parent)?;
    handle.store_inode(&inode, true)?;
    put(handle, allocator, parent, name, &inode)?;
    Ok(inode.ino())
}

/// Makes symbolic link `name` in directory `parent`, which leads to `target`: its inode.
///
/// # Errors
/// As [`create`]; [`Error::NameTooLong`] for a target that does not fit into a block.
pub fn symlink(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    parent: u32,
    name: &[u8],
    target: &[u8],
    new: &NewNode,
) -> Result<u32, Error> {
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    check_absent(handle, &dir, name)?;
    let mut inode = new_inode::make(handle, allocator, &dir, FileType::Symlink, new)?;
    new_inode::set_target(handle, allocator, &mut inode, target)?;
    inode.set_links(1);
    handle.store_inode(&inode, true)?;
    put(handle, allocator, parent, name, &inode)?;
    Ok(inode.ino())
}

/// Gives inode `ino` a further name. If it has none, the caller knows that it is a [`tmpfile`] and
/// not one that was deleted.
///
/// # Errors
/// As [`create`]; [`Error::NotPermitted`] for a directory; [`Error::TooManyLinks`];
/// [`Error::CrossDevice`] into a directory for another project.
pub fn link(
    handle: &mut Handle<'_>,
    allocator: &Allocator,
    ino: u32,
    parent: u32,
    name: &[u8],
) -> Result<(), Error> {
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    check_absent(handle, &dir, name)?;
    let mut inode = handle.load_inode(ino)?;
    check_may_go(&inode)?;
    if is_directory(&inode) {
        return Err(Error::NotPermitted);
    }
    if inode.links() >= LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    metadata::check_project(handle, &dir, &inode)?;
    if inode.links() == 0 {
        // Whoever is cutting it off has it be none in the end.
        if !truncate::is_under_way(handle, &inode)? {
            orphans::remove(handle, &mut inode)?;
        }
        handle.fast_ineligible();
    }
    inode.set_links(inode.links() + 1);
    inode.set_changed(handle.now());
    handle.store_inode(&inode, false)?;
    put(handle, allocator, parent, name, &inode)?;
    handle.record(Change::Link { parent, ino, name: name.to_vec() });
    handle.fast_eligible();
    Ok(())
}

/// Inode `ino` has a name less; a directory, which has only one, none.
pub(super) fn lose_name(
    handle: &mut Handle<'_>,
    ino: u32,
    unused: Unused<'_>,
) -> Result<Unlinked, Error> {
    let (mut is_last, mut is_unused) = (false, false);
    change_inode(handle, ino, |handle, inode| {
        let links = if is_directory(inode) { 0 } else { inode.links().saturating_sub(1) };
        inode.set_links(links);
        is_last = links == 0;
        if !is_last {
            return Ok(());
        }
        // Before it goes: what could not be deleted would be an orphan for ever.
        attributes::check_releasable(handle, inode)?;
        // (It may be an orphan: somebody is cutting it off.)
        is_unused = !orphans::contains(handle, ino)? && unused(ino);
        if is_unused {
            handle.fast_ineligible();
            return Ok(());
        }
        orphans::add(handle, inode)
    })?;
    Ok(Unlinked { ino, is_last, is_unused })
}

/// The inode of `name`, which is to be taken out of directory `parent`.
fn load_victim(handle: &Handle<'_>, parent: u32, name: &[u8]) -> Result<InodeEdit, Error> {
    check_old_name(name)?;
    let dir = load_parent(handle, parent)?;
    let inode = look_up(handle, &dir, name)?.ok_or(Error::NotFound)?;
    check_may_lose(&dir)?;
    check_may_go(&inode)?;
    Ok(inode)
}

/// Takes `name`, which is not a directory, out of directory `parent`. If it was the last name and
/// the inode is `unused`, the caller [deletes](orphans::delete) that.
///
/// # Errors
/// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotPermitted`], …; [`Error::Unsupported`]
/// for the last name of an inode that could not be deleted, since the value of an attribute has an
/// inode of its own; damage, or the device.
pub fn unlink(
    handle: &mut Handle<'_>,
    parent: u32,
    name: &[u8],
    unused: Unused<'_>,
) -> Result<Unlinked, Error> {
    let inode = load_victim(handle, parent, name)?;
    if is_directory(&inode) {
        return Err(Error::IsDirectory);
    }
    change_directory(handle, parent, |handle, dir| directory::remove(handle, dir, name))?;
    handle.record(Change::Unlink { parent, ino: inode.ino(), name: name.to_vec() });
    // If it was the last one, it is not: the inode is an orphan.
    handle.fast_eligible();
    lose_name(handle, inode.ino(), unused)
}

/// Takes the empty directory `name` out of directory `parent`. If the inode is `unused`, the caller
/// [deletes](orphans::delete) it.
///
/// # Errors
/// As [`unlink`]; [`Error::NotDirectory`], [`Error::NotEmpty`].
pub fn rmdir(
    handle: &mut Handle<'_>,
    parent: u32,
    name: &[u8],
    unused: Unused<'_>,
) -> Result<Unlinked, Error> {
    let inode = load_victim(handle, parent, name)?;
    if !is_directory(&inode) {
        return Err(Error::NotDirectory);
    }
    if !directory::is_empty(handle, &inode.parsed(handle.superblock())?)? {
        return Err(Error::NotEmpty);
    }
    change_directory(handle, parent, |handle, dir| {
        discount_subdirectory(dir);
        directory::remove(handle, dir, name)
    })?;
    lose_name(handle, inode.ino(), unused)
}

#[cfg(all(test, not(loom)))]
mod tests;
