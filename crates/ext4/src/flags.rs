//! Flags and project of an inode (`FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`; kernel:
//! `fs/ext4/ioctl.c`).

use super::error::{Error, Result, Unsupported};
use super::file::write::Writeback;
use super::fs::FileSystem;
use super::inode::Node;
use meantime_ext4_format::features::ro_compat;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::{FileType, Metadata};

/// The flags that a user can set (EXT4_FL_USER_MODIFIABLE without EXT4_EOFBLOCKS_FL, which is
/// obsolete): secure deletion, undeletable, compression, synchronous, immutable, append-only, no
/// dump, no access times, journalled data, no tail merging, synchronous directory, top of
/// hierarchies, extents, direct access, project, casefold.
const SETTABLE: u32 = 0x1
    | 0x2
    | 0x4
    | 0x8
    | flags::IMMUTABLE
    | flags::APPEND
    | 0x40
    | flags::NOATIME
    | flags::JOURNAL_DATA
    | 0x8000
    | 0x1_0000
    | 0x2_0000
    | flags::EXTENTS
    | 0x200_0000
    | flags::PROJINHERIT
    | flags::CASEFOLD;
/// The flags that a user can see (EXT4_FL_USER_VISIBLE): those and EXT4_DIRTY_FL, EXT4_COMPRBLK_FL,
/// EXT4_NOCOMPR_FL, encrypted, with an index, with verity, EXT4_EOFBLOCKS_FL, inline data.
const VISIBLE: u32 = SETTABLE
    | 0x100
    | 0x200
    | 0x400
    | flags::ENCRYPT
    | flags::INDEX
    | flags::VERITY
    | 0x40_0000
    | flags::INLINE_DATA;
/// The flags that only directories have (excluded by EXT4_REG_FLMASK).
const OF_DIRECTORIES: u32 = 0x1_0000 | flags::CASEFOLD | flags::PROJINHERIT;
/// The flags that types other than files and directories may have (EXT4_OTHER_FLMASK).
const OF_ALL: u32 = 0x40 | flags::NOATIME;
/// The flags whose change requires converting the content.
const CONVERTED: u32 = flags::JOURNAL_DATA | flags::EXTENTS | flags::CASEFOLD;

fn unsupported(what: &str) -> Error {
    Unsupported { what: what.to_owned(), advice: "Linux's chattr can do it, where it is possible" }
        .into()
}

impl FileSystem {
    /// Returns the flags of `node` that a user can see (`FS_IOC_GETFLAGS`). [`Metadata::flags`] has
    /// all flags.
    pub fn flags(&self, node: &Node) -> u32 {
        node.metadata().flags & VISIBLE
    }

    /// Sets the settable flags of `node` to those of `new`, and keeps the others
    /// (`FS_IOC_SETFLAGS`). Returns the new metadata. The caller checks the permission to change
    /// [immutable](flags::IMMUTABLE) and [append-only](flags::APPEND) (`CAP_LINUX_IMMUTABLE`).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for unknown flags, flags that do not apply to this file type, and
    /// flags that require converting the content: extents, journalled data, casefold.
    /// [`Error::NotPermitted`] for any other change of an inode that stays immutable.
    pub fn set_flags(&self, node: &Node, new: u32) -> Result<Metadata> {
        let mount = &node.mount;
        mount.for_writing()?;
        if new & !VISIBLE != 0 {
            return Err(unsupported("a flag that is none of ext4's"));
        }
        let new = new & SETTABLE;
        let of_type = match node.file_type() {
            FileType::Directory => u32::MAX,
            FileType::Regular => !OF_DIRECTORIES,
            _ => OF_ALL | flags::EXTENTS,
        };
        if new & !of_type != 0 {
            return Err(unsupported("a flag for another type of file"));
        }
        // Writers are excluded meanwhile, so all earlier writes are on the disk before the inode
        // becomes immutable.
        let writable = node.inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        let _content = writable.lock_content();
        if new & flags::IMMUTABLE != 0 && node.file_type() == FileType::Regular {
            Writeback::of(mount)?.write_back_and_wait(&node.inode, 0..u64::MAX)?;
        }
        mount.change(|handle| {
            let mut inode = handle.load_inode(node.ino())?;
            let old = inode.flags();
            let changed = (old ^ new) & SETTABLE;
            if old & new & flags::IMMUTABLE != 0 && changed != 0 {
                return Err(Error::NotPermitted);
            }
            if changed & CONVERTED != 0 {
                return Err(unsupported("changing the flags extents, journalled data, casefold"));
            }
            inode.set_flags(old ^ changed);
            inode.set_changed(handle.now());
            handle.store_inode(&inode, false)
        })?;
        Ok(node.metadata())
    }

    /// Sets the project of `node` ([`Metadata::project`]; `FS_IOC_FSSETXATTR`). Returns the new
    /// metadata.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the file system or the inode has no room for projects; without the
    /// feature, only project 0 can be set. [`Error::NotPermitted`] for an immutable inode.
    pub fn set_project(&self, node: &Node, project: u32) -> Result<Metadata> {
        let mount = &node.mount;
        mount.for_writing()?;
        if !mount.volume.superblock().features().has_ro_compat(ro_compat::PROJECT) {
            return match project {
                0 => Ok(node.metadata()),
                _ => Err(unsupported("projects without the feature project")),
            };
        }
        mount.change(|handle| {
            let mut inode = handle.load_inode(node.ino())?;
            if inode.project() == Some(project) {
                return Ok(());
            }
            if inode.flags() & flags::IMMUTABLE != 0 {
                return Err(Error::NotPermitted);
            }
            if !inode.set_project(project) {
                return Err(unsupported("a project for an inode without room for it"));
            }
            inode.set_changed(handle.now());
            handle.store_inode(&inode, false)
        })?;
        Ok(node.metadata())
    }
}
