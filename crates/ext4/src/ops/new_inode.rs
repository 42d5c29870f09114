//! Creates inodes (kernel: `fs/ext4/ialloc.c`).

use crate::alloc::{AllocHandle, Want};
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::ops::{acl, extents, metadata};
use crate::{FileType, NewNode};
use meantime_ext4_format::MappedExtent;
use meantime_ext4_format::checksum::crc32c;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::extents::EMPTY_ROOT;
use meantime_ext4_format::features::incompat;
use meantime_ext4_format::inode::{BLOCK_AREA_BYTES, flags};

/// With this bit, the directory's group becomes that of new inodes in it (`S_ISGID`).
const SET_GROUP: u16 = 0o2000;
/// The flags that new inodes inherit from their directory (`EXT4_FL_INHERITED`): secure deletion,
/// undeletable, compression, synchronous, no dump, no access times, no compression, journalled
/// data, no tail merging, synchronous directory, direct access, project, casefold.
const INHERITED: u32 = 0x1
    | 0x2
    | 0x4
    | 0x8
    | 0x40
    | 0x80
    | 0x400
    | 0x4000
    | 0x8000
    | 0x1_0000
    | 0x200_0000
    | 0x6000_0000;
/// The flags among them that only directories have (`EXT4_REG_FLMASK`).
const OF_DIRECTORIES: u32 = 0x1_0000 | 0x2_0000 | 0x6000_0000;
/// The flags that other types may have (`EXT4_OTHER_FLMASK`): no dump, no access times.
const OF_ALL: u32 = 0x40 | 0x80;

fn type_bits(file_type: FileType) -> u16 {
    let number = match file_type {
        FileType::Fifo => 0x1,
        FileType::Character => 0x2,
        FileType::Directory => 0x4,
        FileType::Block => 0x6,
        FileType::Regular => 0x8,
        FileType::Symlink => 0xA,
        FileType::Socket => 0xC,
    };
    number << 12
}

/// Returns a generation other than that of the slot's last inode.
fn generation(handle: &Handle<'_>, ino: u32) -> Result<u32> {
    let (block, at) = handle.volume().inode_place(ino)?;
    let slot_bytes = handle.superblock().inode_bytes() as usize;
    let before = InodeEdit::of(ino, &handle.block(block)?[at..at + slot_bytes]).generation();
    let now = handle.now();
    let state = crc32c(before, &now.seconds.to_le_bytes());
    let new = crc32c(crc32c(state, &now.nanoseconds.to_le_bytes()), &ino.to_le_bytes());
    Ok(if new == before { new.wrapping_add(1) } else { new })
}

/// Allocates an inode without names in directory `parent`, and applies the directory's default ACL,
/// if there is one. The caller stores the inode.
///
/// # Errors
/// [`Error::NoSpace`]; damage, or a device error.
pub(super) fn make(
    handle: &mut AllocHandle<'_, '_>,
    parent: &InodeEdit,
    file_type: FileType,
    new: &NewNode,
) -> Result<InodeEdit> {
    let is_directory = file_type == FileType::Directory;
    let ino = handle.allocator.inode(handle, parent.ino(), is_directory)?;
    let generation = generation(handle, ino)?;
    let superblock = handle.superblock();
    let mut inode = InodeEdit::new(superblock, ino, generation);
    let (mut mode, mut gid) = (new.mode & 0o7777, new.gid);
    if parent.mode() & SET_GROUP != 0 {
        gid = parent.parsed(superblock)?.metadata().gid;
        if is_directory {
            mode |= SET_GROUP;
        }
    }
    if file_type == FileType::Symlink {
        mode = 0o777;
    }
    inode.set_mode(type_bits(file_type) | mode);
    inode.set_owner(new.uid, gid);
    let mut inherited = parent.flags() & INHERITED;
    if file_type == FileType::Regular {
        inherited &= !OF_DIRECTORIES;
    } else if !is_directory {
        inherited &= OF_ALL;
    }
    let has_blocks =
        matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink);
    if has_blocks && superblock.features().has_incompat(incompat::EXTENTS) {
        inherited |= flags::EXTENTS;
        inode.block_area_mut()[..EMPTY_ROOT.len()].copy_from_slice(&EMPTY_ROOT);
    }
    inode.set_flags(inherited);
    if let Some(project) = metadata::project_given(handle, parent) {
        // This does nothing for an inode without room for a project.
        inode.set_project(project);
    }
    let now = handle.now();
    inode.set_created(now);
    inode.set_accessed(now);
    inode.set_modified(now);
    inode.set_changed(now);
    acl::inherit(handle, parent.ino(), &mut inode, new.umask)?;
    Ok(inode)
}

/// Sets the target of the new symbolic link `inode`. A short target is stored in the inode, another
/// one in a journalled block.
///
/// # Errors
/// [`Error::NotFound`] for an empty target, [`Error::NameTooLong`] for one that does not fit into a
/// block; [`Error::NoSpace`]; damage, or a device error.
pub(super) fn set_target(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    target: &[u8],
) -> Result<()> {
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.contains(&0) {
        return Err(Error::Invalid("the target of a link has no NUL in it"));
    }
    // The limit includes a NUL, and is at most PATH_MAX.
    if target.len() >= (handle.superblock().block_bytes() as usize).min(4096) {
        return Err(Error::NameTooLong);
    }
    inode.set_size(target.len() as u64);
    if target.len() < BLOCK_AREA_BYTES {
        inode.set_flags(inode.flags() & !flags::EXTENTS);
        let area = inode.block_area_mut();
        area.fill(0);
        area[..target.len()].copy_from_slice(target);
        return Ok(());
    }
    let block = handle.allocator.blocks(handle, Want::metadata(inode.ino(), None))?.start;
    if inode.flags() & flags::EXTENTS == 0 {
        let pointer = u32::try_from(block).map_err(|_| Error::NoSpace)?;
        inode.block_area_mut()[..4].copy_from_slice(&pointer.to_le_bytes());
        let superblock = handle.superblock();
        inode.set_blocks(superblock, 1);
    } else {
        let extent = MappedExtent { logical: 0, blocks: 1, physical: block, unwritten: false };
        extents::insert(handle, inode, extent)?;
    }
    handle.create(block)?[..target.len()].copy_from_slice(target);
    Ok(())
}
