//! Access control lists (kernel: `fs/posix_acl.c`, `fs/ext4/acl.c`).

use super::attributes::{Name, store, stored};
use crate::alloc::AllocHandle;
use crate::journal::Handle;
use crate::{Corruption, Defect, Error, FileType, Result, SetAttribute, Unsupported};
use meantime_ext4_format::edit::InodeEdit;

/// One of the two lists of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The permissions on the inode itself.
    Access,
    /// The initial list of new inodes in a directory.
    Default,
}

impl Kind {
    /// Returns the kind of the list that is stored in attribute `full`.
    pub(super) fn of_attribute(full: &[u8]) -> Option<Self> {
        match full {
            b"system.posix_acl_access" => Some(Self::Access),
            b"system.posix_acl_default" => Some(Self::Default),
            _ => None,
        }
    }

    /// Returns the list's attribute name as stored.
    pub(super) fn name(self) -> Name<'static> {
        let index = match self {
            Self::Access => 2,
            Self::Default => 3,
        };
        Name { index, rest: b"" }
    }
}

/// The subject of an entry, with the number of a named user or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tag {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    /// The upper bound for named users and groups and for the owning group.
    Mask,
    Other,
}

/// An entry: its subject and its permissions (three bits: read, write, execute).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
}

/// A list whose entries are ordered and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Acl(Vec<Entry>);

const STORED_VERSION: [u8; 4] = 1_u32.to_le_bytes();
const GIVEN_VERSION: [u8; 4] = 2_u32.to_le_bytes();

/// Builds an entry from the tag, permissions and identifier that both encodings share.
fn entry(tag: u16, permissions: u16, id: u32) -> Option<Entry> {
    let tag = match tag {
        0x01 => Tag::Owner,
        0x02 => Tag::User(id),
        0x04 => Tag::OwningGroup,
        0x08 => Tag::Group(id),
        0x10 => Tag::Mask,
        0x20 => Tag::Other,
        _ => return None,
    };
    let nobody = matches!(tag, Tag::User(u32::MAX) | Tag::Group(u32::MAX));
    (permissions <= 7 && !nobody).then_some(Entry { tag, permissions })
}

impl Acl {
    /// Returns a list of `entries` if they form a valid one (`posix_acl_valid`): the owner, users,
    /// the owning group, groups, the mask (required if users or groups are named), others.
    fn new(entries: Vec<Entry>) -> Option<Self> {
        let rank = |entry: &Entry| match entry.tag {
            Tag::Owner => 0,
            Tag::User(_) => 1,
            Tag::OwningGroup => 2,
            Tag::Group(_) => 3,
            Tag::Mask => 4,
            Tag::Other => 5,
        };
        let mut count = [0_usize; 6];
        for entry in &entries {
            count[rank(entry)] += 1;
        }
        let named = count[1] + count[3];
        let complete = count[0] == 1 && count[2] == 1 && count[5] == 1 && count[4] <= 1;
        let masked = named == 0 || count[4] == 1;
        (complete && masked && entries.is_sorted_by_key(rank)).then_some(Self(entries))
    }

    /// Decodes the format of `setxattr` (`linux/posix_acl_xattr.h`). Returns `None` if there are no
    /// entries.
    fn from_given(given: &[u8]) -> Result<Option<Self>> {
        let wrong = Error::Invalid("the ACL cannot be");
        let Some(rest) = given.strip_prefix(&GIVEN_VERSION) else {
            return Err(if given.len() < GIVEN_VERSION.len() {
                wrong
            } else {
                Error::Unsupported(Unsupported {
                    what: "an ACL of another version than 2".to_owned(),
                    advice: "make it with setfacl",
                })
            });
        };
        let (chunks, left) = rest.as_chunks::<8>();
        if !left.is_empty() {
            return Err(wrong);
        }
        if chunks.is_empty() {
            return Ok(None);
        }
        let entries = chunks.iter().map(|[t0, t1, p0, p1, id @ ..]| {
            entry(
                u16::from_le_bytes([*t0, *t1]),
                u16::from_le_bytes([*p0, *p1]),
                u32::from_le_bytes(*id),
            )
        });
        entries.collect::<Option<_>>().and_then(Self::new).map(Some).ok_or(wrong)
    }

    /// Decodes ext4's stored format (`fs/ext4/acl.h`). Returns `None` if it is malformed.
    fn from_stored(stored: &[u8]) -> Option<Self> {
        let mut rest = stored.strip_prefix(&STORED_VERSION)?;
        let mut entries = Vec::new();
        while let [t0, t1, p0, p1, after @ ..] = rest {
            let tag = u16::from_le_bytes([*t0, *t1]);
            rest = after;
            let mut id = 0;
            if matches!(tag, 0x02 | 0x08) {
                let (bytes, after) = rest.split_first_chunk()?;
                (id, rest) = (u32::from_le_bytes(*bytes), after);
            }
            entries.push(entry(tag, u16::from_le_bytes([*p0, *p1]), id)?);
        }
        if rest.is_empty() { Self::new(entries) } else { None }
    }

    fn to_stored(&self) -> Vec<u8> {
        let mut stored = STORED_VERSION.to_vec();
        for Entry { tag, permissions } in &self.0 {
            let (tag, id) = match *tag {
                Tag::Owner => (0x01_u16, None),
                Tag::User(id) => (0x02, Some(id)),
                Tag::OwningGroup => (0x04, None),
                Tag::Group(id) => (0x08, Some(id)),
                Tag::Mask => (0x10, None),
                Tag::Other => (0x20, None),
            };
            stored.extend(tag.to_le_bytes());
            stored.extend(permissions.to_le_bytes());
            stored.extend(id.into_iter().flat_map(u32::to_le_bytes));
        }
        stored
    }

    /// Returns whether the list says more than a mode can.
    fn is_extended(&self) -> bool {
        self.0.iter().any(|entry| matches!(entry.tag, Tag::User(_) | Tag::Group(_) | Tag::Mask))
    }

    /// Returns the tag of the entry that a mode's group bits describe, which is the mask if there
    /// is one.
    fn group_tag(&self) -> Tag {
        if self.0.iter().any(|entry| entry.tag == Tag::Mask) { Tag::Mask } else { Tag::OwningGroup }
    }

    /// Returns the entries that a mode covers, each with the shift of its bits in the mode.
    fn of_mode(&mut self) -> impl Iterator<Item = (&mut Entry, u32)> {
        let group = self.group_tag();
        self.0.iter_mut().filter_map(move |entry| {
            let shift = match entry.tag {
                Tag::Owner => 6,
                tag if tag == group => 3,
                Tag::Other => 0,
                _ => return None,
            };
            Some((entry, shift))
        })
    }

    /// Returns the nine mode bits that come closest to this list.
    fn mode(&mut self) -> u16 {
        self.of_mode().fold(0, |mode, (entry, shift)| mode | entry.permissions << shift)
    }

    /// Sets the entries to the nine bits of `mode` (`posix_acl_chmod`).
    fn set_mode(&mut self, mode: u16) {
        for (entry, shift) in self.of_mode() {
            entry.permissions = mode >> shift & 7;
        }
    }

    /// Removes permissions that `mode` does not allow (`posix_acl_create_masq`).
    fn restrict(&mut self, mode: u16) {
        for (entry, shift) in self.of_mode() {
            entry.permissions &= mode >> shift & 7;
        }
    }
}

/// Loads the list of `kind` of `inode`.
fn load(handle: &Handle<'_>, inode: &mut InodeEdit, kind: Kind) -> Result<Option<Acl>> {
    let Some(stored) = stored(handle, inode, kind.name())? else { return Ok(None) };
    // A list without entries counts as none.
    if stored == STORED_VERSION {
        return Ok(None);
    }
    let wrong = || Corruption::new(Defect::Attribute).in_inode(inode.ino());
    Ok(Some(Acl::from_stored(&stored).ok_or_else(wrong)?))
}

fn save(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    kind: Kind,
    acl: Option<&Acl>,
) -> Result<()> {
    let value = acl.map(Acl::to_stored);
    store(handle, inode, kind.name(), value.as_deref(), SetAttribute::Any)
}

/// Replaces the nine bits of `inode`'s mode.
fn set_permissions(inode: &mut InodeEdit, permissions: u16) {
    inode.set_mode(inode.mode() & !0o777 | permissions);
}

/// Sets a list as `setxattr` does. An access list that says no more than a mode is not stored.
pub(super) fn set_attribute(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    kind: Kind,
    given: &[u8],
) -> Result<()> {
    let kind_of_file = inode.file_type();
    if kind_of_file == Some(FileType::Symlink) {
        return Err(Error::Unsupported(Unsupported {
            what: "an ACL of a symbolic link".to_owned(),
            advice: "its target can have one",
        }));
    }
    let acl = if given.is_empty() { None } else { Acl::from_given(given)? };
    match (kind, acl) {
        (Kind::Access, Some(mut acl)) => {
            set_permissions(inode, acl.mode());
            save(handle, inode, kind, Some(&acl).filter(|acl| acl.is_extended()))
        }
        (Kind::Default, Some(_)) if kind_of_file != Some(FileType::Directory) => {
            Err(Error::NotPermitted)
        }
        (_, acl) => save(handle, inode, kind, acl.as_ref()),
    }
}

/// Updates the access list of `inode`, if it has one, after a change of its mode.
pub(super) fn follow_mode(handle: &mut AllocHandle<'_, '_>, inode: &mut InodeEdit) -> Result<()> {
    let Some(mut acl) = load(handle, inode, Kind::Access)? else { return Ok(()) };
    acl.set_mode(inode.mode());
    save(handle, inode, Kind::Access, Some(&acl))
}

/// Applies the default list of directory `parent` to the new inode `child`, whose type and mode are
/// set (`posix_acl_create`): restricts its mode and gives it its own lists. Without a default list,
/// clears the bits of `umask` in the mode. Does nothing for a symbolic link. The caller
/// [stores](Handle::store_inode) it.
///
/// # Errors
/// [`Error::NoSpace`]; damage, or a device error.
pub fn inherit(
    handle: &mut AllocHandle<'_, '_>,
    parent: u32,
    child: &mut InodeEdit,
    umask: u16,
) -> Result<()> {
    if child.file_type() == Some(FileType::Symlink) {
        return Ok(());
    }
    let mut parent = handle.load_inode(parent)?;
    let Some(default) = load(handle, &mut parent, Kind::Default)? else {
        set_permissions(child, child.mode() & 0o777 & !umask);
        return Ok(());
    };
    let mut access = default.clone();
    access.restrict(child.mode());
    set_permissions(child, access.mode());
    if child.file_type() == Some(FileType::Directory) {
        save(handle, child, Kind::Default, Some(&default))?;
    }
    if access.is_extended() {
        save(handle, child, Kind::Access, Some(&access))?;
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
