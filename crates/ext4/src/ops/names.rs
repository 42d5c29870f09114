//! Creates, removes and links names with their inodes, each as one change (kernel: `fs/namei.c`,
//! `fs/ext4/namei.c`).
//!
//! Callers check permissions and the sticky bit first. Only immutable and append-only inodes are
//! checked here.

use super::directory::{Place, Sought, Vacancy};
use super::{attributes, directory, metadata, new_inode, orphans, truncate};
use crate::alloc::AllocHandle;
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::{FileType, NewNode};
use meantime_ext4_format::dirent::NAME_BYTES_MAX;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::edit::dirent::NewEntry;
use meantime_ext4_format::features::ro_compat;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::journal::fast_commit::Change;

/// The maximum number of links of an inode, and the maximum number of subdirectories counted
/// (`EXT4_LINK_MAX`).
const LINKS_MAX: u16 = 65_000;

/// The result of removing a name from an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlinked {
    /// The inode.
    pub ino: u32,
    /// Whether it was the last name. The inode is then an orphan, to be [finished](orphans::finish)
    /// when it is no longer open. If it is known to be [unused](Unused), it is no orphan, and the
    /// caller [deletes](orphans::delete) it in the same change.
    pub is_last: bool,
    /// Whether the inode is unused, and so no orphan.
    pub is_unused: bool,
}

/// Tells whether an inode that is losing its last name is open nowhere and cannot be opened again.
/// It is then deleted by the change that removes the name, and does not become an orphan.
pub type Unused<'a> = &'a dyn Fn(u32) -> bool;

/// Treats every inode as possibly open.
#[cfg(all(test, not(loom)))]
pub(crate) const MAYBE_USED: Unused<'static> = &|_| false;

/// Checks that `name` is valid for a new name.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
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

/// Checks that `name` is valid for an existing name.
pub(super) fn check_old_name(name: &[u8]) -> Result<()> {
    check_name(name).map_err(|error| match error {
        Error::Exists => Error::Invalid("`.` and `..` stay where they are"),
        other => other,
    })
}

/// Loads directory `ino`, to which a name is to be added (`may_create`).
pub(super) fn load_parent(handle: &Handle<'_>, ino: u32) -> Result<InodeEdit> {
    let dir = handle.load_inode(ino)?;
    if dir.file_type() != Some(FileType::Directory) {
        return Err(Error::NotDirectory);
    }
    if dir.links() == 0 {
        // The directory was removed.
        return Err(Error::NotFound);
    }
    if dir.flags() & flags::IMMUTABLE != 0 { Err(Error::NotPermitted) } else { Ok(dir) }
}

/// Fails if `dir` must not lose names (`may_delete`).
pub(super) fn check_may_lose(dir: &InodeEdit) -> Result<()> {
    if dir.flags() & flags::APPEND != 0 { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Fails if `inode` must keep its names.
pub(super) fn check_may_go(inode: &InodeEdit) -> Result<()> {
    if inode.flags() & (flags::APPEND | flags::IMMUTABLE) != 0 {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}

/// Finds `name` in `dir`, and loads its inode.
pub(super) fn look_up(
    handle: &Handle<'_>,
    dir: &InodeEdit,
    name: &[u8],
) -> Result<Option<(Place, InodeEdit)>> {
    let Some(place) = directory::find(handle, dir, name)? else { return Ok(None) };
    let inode = handle.load_linked_inode(place.ino)?;
    Ok(Some((place, inode)))
}

/// Finds room in `dir` for `name`, which must not exist.
fn make_room(handle: &Handle<'_>, dir: &InodeEdit, name: &[u8]) -> Result<Vacancy> {
    match directory::seek(handle, dir, name)? {
        Sought::Absent(vacancy) => Ok(vacancy),
        Sought::There(_) => Err(Error::Exists),
    }
}

pub(super) fn is_directory(inode: &InodeEdit) -> bool {
    inode.file_type() == Some(FileType::Directory)
}

/// Changes directory `dir`, as it was loaded, by `work`, and updates its modification and change
/// times.
pub(super) fn change_directory<T>(
    handle: &mut AllocHandle<'_, '_>,
    mut dir: InodeEdit,
    work: impl FnOnce(&mut AllocHandle<'_, '_>, &mut InodeEdit) -> Result<T>,
) -> Result<T> {
    let result = work(handle, &mut dir)?;
    let now = handle.now();
    dir.set_modified(now);
    dir.set_changed(now);
    handle.store_inode(&dir, true)?;
    Ok(result)
}

/// Changes `inode`, as it was loaded, by `work`, and updates its change time only.
pub(super) fn change_inode(
    handle: &mut AllocHandle<'_, '_>,
    mut inode: InodeEdit,
    work: impl FnOnce(&mut AllocHandle<'_, '_>, &mut InodeEdit) -> Result<()>,
) -> Result<()> {
    work(handle, &mut inode)?;
    inode.set_changed(handle.now());
    handle.store_inode(&inode, false)
}

pub(super) fn entry_for<'a>(inode: &InodeEdit, name: &'a [u8]) -> NewEntry<'a> {
    NewEntry { ino: inode.ino(), file_type: inode.file_type(), name }
}

/// Fails if `dir` cannot have another subdirectory (`EXT4_DIR_LINK_MAX`).
pub(super) fn check_may_count(handle: &Handle<'_>, dir: &InodeEdit) -> Result<()> {
    let uncounted = handle.superblock().features().has_ro_compat(ro_compat::DIR_NLINK)
        && dir.flags() & flags::INDEX != 0;
    if dir.links() >= LINKS_MAX && !uncounted { Err(Error::TooManyLinks) } else { Ok(()) }
}

/// Counts a new subdirectory of `dir`. From 65,000 on, a link count of 1 means "not counted".
pub(super) fn count_subdirectory(dir: &mut InodeEdit) {
    let links = dir.links();
    dir.set_links(if links == 1 || links >= LINKS_MAX { 1 } else { links + 1 });
}

/// Counts one subdirectory less in `dir`.
pub(super) fn discount_subdirectory(dir: &mut InodeEdit) {
    let links = dir.links();
    if links > 2 {
        dir.set_links(links - 1);
    }
}

/// Adds the stored inode `inode` to `dir` as `name`, where there is a vacancy for it.
fn put(
    handle: &mut AllocHandle<'_, '_>,
    (dir, vacancy): (InodeEdit, Vacancy),
    name: &[u8],
    inode: &InodeEdit,
) -> Result<()> {
    change_directory(handle, dir, |handle, dir| {
        directory::add(handle, dir, entry_for(inode, name), vacancy)?;
        if is_directory(inode) {
            count_subdirectory(dir);
        }
        Ok(())
    })
}

/// Creates file `name` in directory `parent`. Returns its inode.
///
/// # Errors
/// [`Error::Exists`], [`Error::NameTooLong`], [`Error::NotPermitted`], [`Error::NoSpace`],
/// [`Error::NotFound`] in a removed directory, …; damage, or a device error.
pub fn create(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    name: &[u8],
    new: &NewNode,
) -> Result<u32> {
    mknod(handle, parent, name, new, FileType::Regular, (0, 0))
}

/// Creates a file, pipe, socket or device `name` in directory `parent`. For a device, `device` is
/// its major and minor number.
///
/// # Errors
/// The errors of [`create`]; [`Error::Invalid`] for another type, or for numbers that are too
/// large.
pub fn mknod(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    name: &[u8],
    new: &NewNode,
    file_type: FileType,
    device: (u32, u32),
) -> Result<u32> {
    if matches!(file_type, FileType::Directory | FileType::Symlink) {
        return Err(Error::Invalid("not a type to make nodes of"));
    }
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    let vacancy = make_room(handle, &dir, name)?;
    let mut inode = new_inode::make(handle, &dir, file_type, new)?;
    if matches!(file_type, FileType::Character | FileType::Block) && !inode.set_device(device) {
        return Err(Error::Invalid("a device's numbers are below 4,096 and 1,048,576"));
    }
    inode.set_links(1);
    handle.store_inode(&inode, true)?;
    put(handle, (dir, vacancy), name, &inode)?;
    if file_type == FileType::Regular {
        handle.record_create(parent, inode.ino(), name);
        handle.fast_eligible();
    }
    Ok(inode.ino())
}

/// Creates a file without a name (O_TMPFILE), in the context of directory `parent`. Returns its
/// inode, which is an orphan until it is [linked](link).
///
/// # Errors
/// The errors of [`create`].
pub fn tmpfile(handle: &mut AllocHandle<'_, '_>, parent: u32, new: &NewNode) -> Result<u32> {
    let dir = load_parent(handle, parent)?;
    let mut inode = new_inode::make(handle, &dir, FileType::Regular, new)?;
    orphans::add(handle, &mut inode)?;
    handle.store_inode(&inode, true)?;
    Ok(inode.ino())
}

/// Creates directory `name` in directory `parent`. Returns its inode.
///
/// # Errors
/// The errors of [`create`]; [`Error::TooManyLinks`].
pub fn mkdir(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    name: &[u8],
    new: &NewNode,
) -> Result<u32> {
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    let vacancy = make_room(handle, &dir, name)?;
    check_may_count(handle, &dir)?;
    let mut inode = new_inode::make(handle, &dir, FileType::Directory, new)?;
    inode.set_links(2);
    directory::create(handle, &mut inode, parent)?;
    handle.store_inode(&inode, true)?;
    put(handle, (dir, vacancy), name, &inode)?;
    Ok(inode.ino())
}

/// Creates symbolic link `name` to `target` in directory `parent`. Returns its inode.
///
/// # Errors
/// The errors of [`create`]; [`Error::NameTooLong`] for a target that does not fit into a block.
pub fn symlink(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    name: &[u8],
    target: &[u8],
    new: &NewNode,
) -> Result<u32> {
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    let vacancy = make_room(handle, &dir, name)?;
    let mut inode = new_inode::make(handle, &dir, FileType::Symlink, new)?;
    new_inode::set_target(handle, &mut inode, target)?;
    inode.set_links(1);
    handle.store_inode(&inode, true)?;
    put(handle, (dir, vacancy), name, &inode)?;
    Ok(inode.ino())
}

/// Adds a name to inode `ino`. If the inode has no name, the caller ensures that it is a
/// [`tmpfile`] and not a deleted file.
///
/// # Errors
/// The errors of [`create`]; [`Error::NotPermitted`] for a directory; [`Error::TooManyLinks`];
/// [`Error::CrossDevice`] into a directory of another project.
pub fn link(handle: &mut AllocHandle<'_, '_>, ino: u32, parent: u32, name: &[u8]) -> Result<()> {
    check_name(name)?;
    let dir = load_parent(handle, parent)?;
    let vacancy = make_room(handle, &dir, name)?;
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
        // A truncation under way removes the orphan when it ends.
        if !truncate::is_under_way(handle, &inode)? {
            orphans::remove(handle, &mut inode)?;
        }
        handle.fast_ineligible();
    }
    inode.set_links(inode.links() + 1);
    inode.set_changed(handle.now());
    handle.store_inode(&inode, false)?;
    put(handle, (dir, vacancy), name, &inode)?;
    handle.record(Change::Link { parent, ino, name: name.to_vec() });
    handle.fast_eligible();
    Ok(())
}

/// Removes one link of `inode`. A directory, which has only one name, loses all links.
pub(super) fn lose_name(
    handle: &mut AllocHandle<'_, '_>,
    inode: InodeEdit,
    unused: Unused<'_>,
) -> Result<Unlinked> {
    let ino = inode.ino();
    let (mut is_last, mut is_unused) = (false, false);
    change_inode(handle, inode, |handle, inode| {
        let links = if is_directory(inode) { 0 } else { inode.links().saturating_sub(1) };
        inode.set_links(links);
        is_last = links == 0;
        if !is_last {
            return Ok(());
        }
        // This is checked first, because an inode that cannot be deleted would stay an orphan
        // forever.
        attributes::check_releasable(handle, inode)?;
        // A truncation under way has already made it an orphan.
        is_unused = !orphans::contains(handle, ino)? && unused(ino);
        if is_unused {
            handle.fast_ineligible();
            return Ok(());
        }
        orphans::add(handle, inode)
    })?;
    Ok(Unlinked { ino, is_last, is_unused })
}

/// A name that is to be removed: its directory, its place there, and its inode.
struct Victim {
    dir: InodeEdit,
    place: Place,
    inode: InodeEdit,
}

impl Victim {
    fn load(handle: &Handle<'_>, parent: u32, name: &[u8]) -> Result<Self> {
        check_old_name(name)?;
        let dir = load_parent(handle, parent)?;
        let (place, inode) = look_up(handle, &dir, name)?.ok_or(Error::NotFound)?;
        check_may_lose(&dir)?;
        check_may_go(&inode)?;
        Ok(Self { dir, place, inode })
    }
}

/// Removes `name`, which is not a directory, from directory `parent`. If it was the last name and
/// the inode is `unused`, the caller [deletes](orphans::delete) the inode.
///
/// # Errors
/// [`Error::NotFound`], [`Error::IsDirectory`], [`Error::NotPermitted`], …; [`Error::Unsupported`]
/// for the last name of an inode that cannot be deleted, because an attribute value is stored in an
/// inode of its own; damage, or a device error.
pub fn unlink(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    name: &[u8],
    unused: Unused<'_>,
) -> Result<Unlinked> {
    let Victim { dir, place, inode } = Victim::load(handle, parent, name)?;
    if is_directory(&inode) {
        return Err(Error::IsDirectory);
    }
    change_directory(handle, dir, |handle, dir| directory::remove(handle, dir, &place))?;
    handle.record(Change::Unlink { parent, ino: inode.ino(), name: name.to_vec() });
    // If this removes the last name, the change is not eligible after all, because it makes the
    // inode an orphan.
    handle.fast_eligible();
    lose_name(handle, inode, unused)
}

/// Removes the empty directory `name` from directory `parent`. If the inode is `unused`, the caller
/// [deletes](orphans::delete) it.
///
/// # Errors
/// The errors of [`unlink`]; [`Error::NotDirectory`], [`Error::NotEmpty`].
pub fn rmdir(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    name: &[u8],
    unused: Unused<'_>,
) -> Result<Unlinked> {
    let Victim { dir, place, inode } = Victim::load(handle, parent, name)?;
    if !is_directory(&inode) {
        return Err(Error::NotDirectory);
    }
    if !directory::is_empty(handle, &inode.parsed(handle.superblock())?)? {
        return Err(Error::NotEmpty);
    }
    change_directory(handle, dir, |handle, dir| {
        discount_subdirectory(dir);
        directory::remove(handle, dir, &place)
    })?;
    lose_name(handle, inode, unused)
}

#[cfg(all(test, not(loom)))]
mod tests;
