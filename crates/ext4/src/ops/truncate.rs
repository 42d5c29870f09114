//! Changes the size of a file.

use super::progress::Progress;
use super::{extents, orphans};
use crate::alloc::AllocHandle;
use crate::journal::Handle;
use crate::{Error, FileType, Result, Unsupported};
use meantime_ext4_format::RunState;
use meantime_ext4_format::block_map::{DIRECT, span};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::extents::LOGICAL_BLOCKS;
use meantime_ext4_format::features::ro_compat;
use meantime_ext4_format::inode::flags;

/// Returns the largest size that the file of `inode` can have, in bytes.
pub fn max_size(handle: &Handle<'_>, inode: &InodeEdit) -> u64 {
    let superblock = handle.superblock();
    let block_bytes = u64::from(superblock.block_bytes());
    let most = u64::from(extents::MAX_LOGICAL);
    let blocks = if inode.flags() & flags::EXTENTS == 0 {
        let map: u64 = (1..=3).map(|level| span(block_bytes / 4, level)).sum();
        most.min(DIRECT as u64 + map)
    } else {
        most
    };
    // `i_blocks` counts units of 512 bytes, and has 32 bits without that feature.
    let counted = if superblock.features().has_ro_compat(ro_compat::HUGE_FILE) { 48 } else { 32 };
    let limit = ((1u64 << counted) - 1) >> (superblock.block_bits() - 9);
    blocks.min(limit) * block_bytes
}

/// Loads the inode of a file whose content can be changed.
///
/// # Errors
/// [`Error::IsDirectory`], [`Error::Special`], [`Error::Unsupported`]; the errors of
/// [`Handle::load_inode`].
pub(super) fn load_file(handle: &Handle<'_>, ino: u32) -> Result<InodeEdit> {
    let inode = handle.load_inode(ino)?;
    inode.parsed(handle.superblock())?.check_supported()?;
    match inode.file_type() {
        Some(FileType::Regular) => {}
        Some(FileType::Directory) => return Err(Error::IsDirectory),
        _ => return Err(Error::Special),
    }
    if inode.flags() & flags::INLINE_DATA != 0 {
        return Err(Unsupported {
            what: format!("changing a file whose content is in its inode (inode {ino})"),
            advice: "copy it with Linux on a file system without inline_data",
        }
        .into());
    }
    Ok(inode)
}

/// Sets the size of file `ino`, in bytes. Unless the file grows, frees the blocks after the new
/// size, including preallocated ones. Returns [`Progress::More`] once it has added about `budget`
/// blocks to what `handle` changes. The inode is then an orphan, and the caller calls [`go_on`] in
/// other changes until that is done. The caller zeroes the rest of the last block.
///
/// # Errors
/// [`Error::FileTooBig`]; [`Error::IsDirectory`], [`Error::Special`]; [`Error::Unsupported`];
/// damage, or a device error.
pub fn set_size(
    handle: &mut AllocHandle<'_, '_>,
    ino: u32,
    size: u64,
    budget: usize,
) -> Result<Progress> {
    let mut inode = load_file(handle, ino)?;
    if size > max_size(handle, &inode) {
        return Err(Error::FileTooBig);
    }
    let before = inode.size();
    inode.set_size(size);
    inode.set_modified(handle.now());
    inode.set_changed(handle.now());
    orphans::note_size(handle, size)?;
    let mut progress = Progress::Done;
    if size <= before {
        progress = extents::remove_past_end(handle, &mut inode, budget)?;
    }
    // An inode without a name is an orphan already, and so is one whose truncation failed midway.
    if progress == Progress::More && inode.links() != 0 && !orphans::contains(handle, ino)? {
        orphans::add(handle, &mut inode)?;
    }
    handle.store_inode(&inode, true)?;
    handle.fast_eligible();
    Ok(progress)
}

/// Returns whether the file has written blocks past its size. If it has, a truncation is under
/// way, and the inode stays an orphan until it ends. Preallocated blocks may stay there.
///
/// # Errors
/// Damage, or a device error.
pub(super) fn is_under_way(handle: &Handle<'_>, inode: &InodeEdit) -> Result<bool> {
    if inode.flags() & (flags::EXTENTS | flags::INLINE_DATA) != flags::EXTENTS {
        return Ok(false);
    }
    let parsed = inode.parsed(handle.superblock())?;
    let volume = handle.volume();
    let mut from = inode.size().div_ceil(u64::from(handle.superblock().block_bytes()));
    while from < LOGICAL_BLOCKS {
        let run = volume.run_at(&parsed, from)?;
        if run.state == RunState::Written {
            return Ok(true);
        }
        from = from.saturating_add(run.blocks.max(1));
    }
    Ok(false)
}

/// Continues the truncation that [`set_size`] began, whether or not the file still has names. The
/// inode itself stays. Returns [`Progress::More`] in the same cases as `set_size`.
///
/// # Errors
/// Damage, or a device error.
pub fn go_on(handle: &mut AllocHandle<'_, '_>, ino: u32, budget: usize) -> Result<Progress> {
    let mut inode = load_file(handle, ino)?;
    let progress = extents::remove_past_end(handle, &mut inode, budget)?;
    // An inode that lost its last name meanwhile stays an orphan. One that got its first name stops
    // being one.
    if progress == Progress::Done && inode.links() != 0 && orphans::contains(handle, ino)? {
        orphans::remove(handle, &mut inode)?;
    }
    handle.store_inode(&inode, true)?;
    Ok(progress)
}
