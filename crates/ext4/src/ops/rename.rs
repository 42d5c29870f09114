//! Moves names (kernel: `vfs_rename`, `ext4_rename`, `ext4_cross_rename`).

use std::collections::HashSet;

use super::directory::{Place, Sought, Vacancy};
use super::names::{
    Unlinked, Unused, change_directory, change_inode, check_may_count, check_may_go,
    check_may_lose, check_old_name, count_subdirectory, discount_subdirectory, entry_for,
    is_directory, load_parent, look_up, lose_name,
};
use super::{directory, metadata, new_inode};
use crate::alloc::AllocHandle;
use crate::error::{Corruption, Defect, Error, Result};
use crate::journal::Handle;
use crate::{FileType, NewNode, RenameFlags};
use meantime_ext4_format::ROOT_INO;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::journal::fast_commit::Change;

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The directory's inode.
    pub parent: u32,
    /// The name.
    pub name: &'a [u8],
}

/// The result of a [`rename`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renamed {
    /// The inode that has the new name now.
    pub ino: u32,
    /// The inode that had the new name before.
    pub replaced: Option<Unlinked>,
    /// The inode that was exchanged for it, and has the old name now.
    pub exchanged: Option<u32>,
    /// The whiteout that has the old name now.
    pub whiteout: Option<u32>,
}

/// The names, and the inode to be moved.
struct Ends<'a> {
    old: Name<'a>,
    new: Name<'a>,
    source: InodeEdit,
}

/// The target of the new name.
enum Target {
    /// An inode has the new name.
    There(Place, InodeEdit),
    /// No inode has the new name, which can be added here.
    Absent(Vacancy),
}

impl Target {
    fn find(handle: &Handle<'_>, dir: &InodeEdit, name: &[u8]) -> Result<Self> {
        Ok(match directory::seek(handle, dir, name)? {
            Sought::Absent(vacancy) => Self::Absent(vacancy),
            Sought::There(place) => {
                let inode = handle.load_linked_inode(place.ino)?;
                Self::There(place, inode)
            }
        })
    }

    fn inode(&self) -> Option<&InodeEdit> {
        match self {
            Self::There(_, inode) => Some(inode),
            Self::Absent(_) => None,
        }
    }
}

/// Returns whether directory `dir` is `above`, or below it.
fn is_within(handle: &Handle<'_>, dir: u32, above: u32) -> Result<bool> {
    let volume = handle.volume();
    let mut seen = HashSet::new();
    let mut at = dir;
    while at != above {
        let bad = || Corruption::new(Defect::DirectoryParent).in_inode(at);
        if at == ROOT_INO {
            return Ok(false);
        }
        if !seen.insert(at) {
            return Err(bad().into());
        }
        let (parent, _) = volume.lookup(&volume.linked_inode(at)?, b"..")?.ok_or_else(bad)?;
        at = parent;
    }
    Ok(true)
}

impl<'a> Ends<'a> {
    /// Checks everything before anything changes. Returns `None` if both names are of one inode, so
    /// that both stay.
    fn find(
        handle: &Handle<'_>,
        old: Name<'a>,
        new: Name<'a>,
        flags: RenameFlags,
    ) -> Result<Option<(Self, Target)>> {
        check_old_name(old.name)?;
        check_old_name(new.name)?;
        let old_dir = load_parent(handle, old.parent)?;
        let new_dir = load_parent(handle, new.parent)?;
        let (_, source) = look_up(handle, &old_dir, old.name)?.ok_or(Error::NotFound)?;
        let found = Target::find(handle, &new_dir, new.name)?;
        let target = found.inode();
        if flags.no_replace && target.is_some() {
            return Err(Error::Exists);
        }
        if flags.exchange && target.is_none() {
            return Err(Error::NotFound);
        }
        let other_parent = old.parent != new.parent;
        if other_parent {
            let holds = |inode: &InodeEdit, dir: u32| match is_directory(inode) {
                true => is_within(handle, dir, inode.ino()),
                false => Ok(false),
            };
            if holds(&source, new.parent)? {
                return Err(Error::Invalid("a directory cannot be moved into itself"));
            }
            if let Some(target) = target
                && (flags.exchange || !is_directory(&source))
                && holds(target, old.parent)?
            {
                let exchange = Error::Invalid("a directory cannot be moved into itself");
                return Err(if flags.exchange { exchange } else { Error::NotEmpty });
            }
        }
        if target.is_some_and(|target| target.ino() == source.ino()) {
            return Ok(None);
        }
        check_may_lose(&old_dir)?;
        check_may_go(&source)?;
        if let Some(target) = target {
            check_may_lose(&new_dir)?;
            check_may_go(target)?;
            match (is_directory(&source), is_directory(target)) {
                _ if flags.exchange => metadata::check_project(handle, &old_dir, target)?,
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ => {}
            }
        }
        metadata::check_project(handle, &new_dir, &source)?;
        if let Some(target) = target
            && !flags.exchange
            && is_directory(target)
            && !directory::is_empty(handle, &target.parsed(handle.superblock())?)?
        {
            return Err(Error::NotEmpty);
        }
        if other_parent {
            let is_counted = |inode: Option<&InodeEdit>| inode.is_some_and(is_directory);
            if is_directory(&source) && !is_counted(target) {
                check_may_count(handle, &new_dir)?;
            }
            if flags.exchange && is_counted(target) && !is_directory(&source) {
                check_may_count(handle, &old_dir)?;
            }
        }
        Ok(Some((Self { old, new, source }, found)))
    }

    fn has_other_parent(&self) -> bool {
        self.old.parent != self.new.parent
    }

    /// Updates the moved `inode`: its change time, and `..` if it is a directory.
    fn moved(
        &self,
        handle: &mut AllocHandle<'_, '_>,
        inode: &InodeEdit,
        parent: u32,
    ) -> Result<()> {
        let has_parent = is_directory(inode) && self.has_other_parent();
        let inode = handle.load_inode(inode.ino())?;
        change_inode(handle, inode, |handle, inode| {
            if has_parent { directory::set_parent(handle, inode, parent) } else { Ok(()) }
        })
    }

    /// Exchanges source and `target`.
    fn exchange(&self, handle: &mut AllocHandle<'_, '_>, target: &InodeEdit) -> Result<()> {
        let (source, old, new) = (&self.source, self.old, self.new);
        let recount = |dir: &mut InodeEdit, comes: &InodeEdit, goes: &InodeEdit| match (
            self.has_other_parent(),
            is_directory(comes),
            is_directory(goes),
        ) {
            (true, true, false) => count_subdirectory(dir),
            (true, false, true) => discount_subdirectory(dir),
            _ => {}
        };
        change_name(handle, new, |handle, dir, place| {
            recount(dir, source, target);
            directory::replace(handle, dir, place, source.ino(), source.file_type())
        })?;
        change_name(handle, old, |handle, dir, place| {
            recount(dir, target, source);
            directory::replace(handle, dir, place, target.ino(), target.file_type())
        })?;
        self.moved(handle, source, new.parent)?;
        self.moved(handle, target, old.parent)
    }

    /// Points the new name to the source. Returns the inode that it led to before.
    fn put(
        &self,
        handle: &mut AllocHandle<'_, '_>,
        target: Target,
        unused: Unused<'_>,
    ) -> Result<Option<Unlinked>> {
        let (source, new) = (&self.source, self.new);
        let counts = is_directory(source) && self.has_other_parent();
        let dir = handle.load_inode(new.parent)?;
        match target {
            Target::Absent(vacancy) => {
                change_directory(handle, dir, |handle, dir| {
                    if counts {
                        count_subdirectory(dir);
                    }
                    directory::add(handle, dir, entry_for(source, new.name), vacancy)
                })?;
                Ok(None)
            }
            Target::There(place, target) => {
                change_directory(handle, dir, |handle, dir| {
                    // The target leaves. If the source is a directory from another parent, it takes
                    // the target's place in the count. Otherwise the count drops by one.
                    if is_directory(&target) && !counts {
                        discount_subdirectory(dir);
                    }
                    directory::replace(handle, dir, &place, source.ino(), source.file_type())
                })?;
                lose_name(handle, target, unused).map(Some)
            }
        }
    }

    /// Removes the old name, or points it to a whiteout.
    fn leave(&self, handle: &mut AllocHandle<'_, '_>, whiteout: Option<&InodeEdit>) -> Result<()> {
        let counts = is_directory(&self.source) && self.has_other_parent();
        change_name(handle, self.old, |handle, dir, place| {
            if place.ino != self.source.ino() {
                return Err(Corruption::new(Defect::DirectoryEntry).in_inode(dir.ino()).into());
            }
            if counts {
                discount_subdirectory(dir);
            }
            match whiteout {
                Some(inode) => {
                    directory::replace(handle, dir, place, inode.ino(), inode.file_type())
                }
                None => directory::remove(handle, dir, place),
            }
        })
    }
}

/// Changes directory `of.parent` by `work`, which gets the place of the name.
fn change_name(
    handle: &mut AllocHandle<'_, '_>,
    of: Name<'_>,
    work: impl FnOnce(&mut AllocHandle<'_, '_>, &mut InodeEdit, &Place) -> Result<()>,
) -> Result<()> {
    let dir = handle.load_inode(of.parent)?;
    let place = directory::find(handle, &dir, of.name)?.ok_or(Error::NotFound)?;
    change_directory(handle, dir, |handle, dir| work(handle, dir, &place))
}

/// Moves name `old` to name `new`, as `renameat2(2)` does. The inode that had the new name loses
/// it. If it was its last name and the inode is `unused`, the caller
/// [deletes](super::orphans::delete) the inode. `owner` is the owner of a whiteout.
///
/// # Errors
/// [`Error::NotFound`]; [`Error::Exists`]; [`Error::NotEmpty`], [`Error::IsDirectory`],
/// [`Error::NotDirectory`]; [`Error::Invalid`] for contradictory flags, and for a directory moved
/// into itself; [`Error::CrossDevice`] into a directory of another project; the errors of
/// [`create`](super::names::create). For a replaced inode, the errors of
/// [`unlink`](super::names::unlink).
pub fn rename(
    handle: &mut AllocHandle<'_, '_>,
    old: Name<'_>,
    new: Name<'_>,
    (flags, owner): (RenameFlags, &NewNode),
    unused: Unused<'_>,
) -> Result<Renamed> {
    if flags.exchange && (flags.no_replace || flags.whiteout) {
        return Err(Error::Invalid("what is exchanged is there, and leaves nothing"));
    }
    let Some((ends, target)) = Ends::find(handle, old, new, flags)? else {
        let dir = load_parent(handle, new.parent)?;
        let ino = directory::find(handle, &dir, new.name)?.ok_or(Error::NotFound)?.ino;
        return Ok(Renamed { ino, replaced: None, exchanged: None, whiteout: None });
    };
    let ino = ends.source.ino();
    if flags.exchange {
        let target = target.inode().ok_or(Error::NotFound)?;
        ends.exchange(handle, target)?;
        return Ok(Renamed { ino, replaced: None, exchanged: Some(target.ino()), whiteout: None });
    }
    let whiteout = match flags.whiteout {
        true => Some(new_whiteout(handle, old.parent, owner)?),
        false => None,
    };
    let target_ino = target.inode().map(InodeEdit::ino);
    let replaced = ends.put(handle, target, unused)?;
    ends.leave(handle, whiteout.as_ref())?;
    ends.moved(handle, &ends.source, new.parent)?;
    if !flags.whiteout && !is_directory(&ends.source) {
        if let Some(ino) = target_ino {
            handle.record(Change::Unlink { parent: new.parent, ino, name: new.name.to_vec() });
        }
        handle.record(Change::Link { parent: new.parent, ino, name: new.name.to_vec() });
        handle.record(Change::Unlink { parent: old.parent, ino, name: old.name.to_vec() });
        handle.fast_eligible();
    }
    Ok(Renamed { ino, replaced, exchanged: None, whiteout: whiteout.map(|inode| inode.ino()) })
}

/// Creates character device 0:0, which overlayfs treats as a deleted name.
fn new_whiteout(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    owner: &NewNode,
) -> Result<InodeEdit> {
    let dir = load_parent(handle, parent)?;
    let new = NewNode { mode: 0, ..*owner };
    let mut inode = new_inode::make(handle, &dir, FileType::Character, &new)?;
    inode.set_links(1);
    handle.store_inode(&inode, true)?;
    Ok(inode)
}
