//! Orphans: inodes whose deletion or truncation has to be completed after a crash.
//!
//! They are recorded in the orphan file if the file system has one with room in it (kernel
//! documentation: `filesystems/ext4/orphan.rst`), otherwise in the list that begins in the
//! superblock and is linked through `i_dtime`.

use std::collections::HashSet;
use std::sync::Arc;

use super::progress::Progress;
use super::{attributes, extents};
use crate::alloc::AllocHandle;
use crate::journal::{Handle, OrphanPlace};
use crate::{Corruption, Defect, FileType, Result};
use meantime_ext4_format::checksum::crc32c;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::features::{compat, ro_compat};
use meantime_ext4_format::{Inode as DiskInode, RunState};

/// The magic number at the end of each block of the orphan file (EXT4_ORPHAN_BLOCK_MAGIC).
const MAGIC: u32 = 0x0B10_CA04;
/// `struct ext4_orphan_block_tail`: magic number and checksum.
const TAIL_BYTES: usize = 8;

/// Sets the superblock's feature for files of 2 GiB or more if `size`, a file's size in bytes,
/// needs it.
///
/// # Errors
/// The errors of [`Handle::edit`].
pub fn note_size(handle: &mut Handle<'_>, size: u64) -> Result<()> {
    if size <= i32::MAX as u64 {
        return Ok(());
    }
    let mut superblock = handle.load_superblock()?;
    if superblock.has_ro_compat(ro_compat::LARGE_FILE) {
        return Ok(());
    }
    superblock.set_ro_compat(ro_compat::LARGE_FILE);
    handle.fast_ineligible();
    handle.store_superblock(&superblock)
}

/// Records in the superblock whether the orphan file may contain entries. This is set (`present`)
/// while the file system is mounted for writing, and cleared at unmount, when the file is empty.
/// Does nothing without an orphan file.
///
/// # Errors
/// The errors of [`Handle::edit`].
pub fn set_present(handle: &mut Handle<'_>, present: bool) -> Result<()> {
    let mut superblock = handle.load_superblock()?;
    let has_file = handle.superblock().features().has_compat(compat::ORPHAN_FILE);
    if !has_file || superblock.has_ro_compat(ro_compat::ORPHAN_PRESENT) == present {
        return Ok(());
    }
    if present {
        superblock.set_ro_compat(ro_compat::ORPHAN_PRESENT);
    } else {
        superblock.clear_ro_compat(ro_compat::ORPHAN_PRESENT);
    }
    handle.store_superblock(&superblock)
}

/// The orphan file.
struct OrphanFile {
    inode: DiskInode,
    blocks: u64,
}

/// A checked block of the orphan file.
struct OrphanBlock {
    block: u64,
    content: Arc<[u8]>,
}

impl OrphanBlock {
    fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        let bytes = &self.content[..self.content.len() - TAIL_BYTES];
        bytes.as_chunks().0.iter().map(|entry| u32::from_le_bytes(*entry))
    }
}

impl OrphanFile {
    /// Returns the file system's orphan file, if it has one.
    fn of(handle: &Handle<'_>) -> Result<Option<Self>> {
        if !handle.superblock().features().has_compat(compat::ORPHAN_FILE) {
            return Ok(None);
        }
        let inode =
            handle.volume().inode(handle.load_superblock()?.raw().orphan_file_inum.get())?;
        let blocks = inode.size() / u64::from(handle.superblock().block_bytes());
        Ok(Some(Self { inode, blocks }))
    }

    fn checksum(&self, block: u64, content: &[u8]) -> [u8; 4] {
        let state = crc32c(self.inode.checksum_seed(), &block.to_le_bytes());
        crc32c(state, &content[..content.len() - TAIL_BYTES]).to_le_bytes()
    }

    fn block(&self, handle: &Handle<'_>, logical: u64) -> Result<OrphanBlock> {
        let volume = handle.volume();
        let wrong = Corruption::new(Defect::OrphanList).in_inode(self.inode.ino());
        let run = volume.run_at(&self.inode, logical)?;
        if run.state != RunState::Written {
            return Err(wrong.into());
        }
        let content = handle.block(run.physical)?;
        let (_, tail) = content.split_at(content.len() - TAIL_BYTES);
        let sound = tail[..4] == MAGIC.to_le_bytes()
            && (!handle.superblock().has_checksums()
                || tail[4..] == self.checksum(run.physical, &content));
        if sound {
            Ok(OrphanBlock { block: run.physical, content })
        } else {
            Err(wrong.in_block(run.physical).into())
        }
    }

    /// Replaces the first entry `instead` in block `logical` by `ino`. Returns `false` if there is
    /// no such entry.
    fn replace(
        &self,
        handle: &mut Handle<'_>,
        logical: u64,
        instead: u32,
        ino: u32,
    ) -> Result<bool> {
        let found = self.block(handle, logical)?;
        let Some(at) = found.entries().position(|entry| entry == instead) else { return Ok(false) };
        let has_checksums = handle.superblock().has_checksums();
        let content = handle.edit(found.block)?;
        content[4 * at..4 * at + 4].copy_from_slice(&ino.to_le_bytes());
        if has_checksums {
            let right = self.checksum(found.block, content);
            let end = content.len();
            content[end - 4..].copy_from_slice(&right);
        }
        Ok(true)
    }

    /// Stores `ino` in a free entry. Returns its block, or `None` if the file is full.
    fn put(&self, handle: &mut Handle<'_>, ino: u32) -> Result<Option<u64>> {
        let first = handle.orphans().room();
        for logical in first..self.blocks {
            if self.replace(handle, logical, 0, ino)? {
                handle.orphans().no_room_before(logical);
                return Ok(Some(logical));
            }
        }
        handle.orphans().no_room_before(self.blocks);
        Ok(None)
    }

    /// Returns the orphans in the file, each with its logical block.
    fn list(&self, handle: &Handle<'_>) -> Result<Vec<(u32, u64)>> {
        let mut all = Vec::new();
        for logical in 0..self.blocks {
            let block = self.block(handle, logical)?;
            all.extend(block.entries().filter(|ino| *ino != 0).map(|ino| (ino, logical)));
        }
        Ok(all)
    }
}

/// Makes `inode` an orphan, unless a truncation made it one already. The caller stores it.
///
/// # Errors
/// Damage, or a device error.
pub fn add(handle: &mut Handle<'_>, inode: &mut InodeEdit) -> Result<()> {
    handle.fast_ineligible();
    let ino = inode.ino();
    // A second entry would make the list a circle.
    if contains(handle, ino)? {
        return Ok(());
    }
    if let Some(file) = OrphanFile::of(handle)?
        && let Some(logical) = file.put(handle, ino)?
    {
        handle.set_orphan(ino, Some(OrphanPlace::File { logical }));
        return Ok(());
    }
    let mut superblock = handle.load_superblock()?;
    let next = superblock.last_orphan();
    inode.set_deletion_time(next);
    superblock.set_last_orphan(ino);
    if next != 0 {
        handle.set_orphan(next, Some(OrphanPlace::List { before: ino }));
    }
    handle.set_orphan(ino, Some(OrphanPlace::List { before: 0 }));
    handle.store_superblock(&superblock)
}

/// Removes `inode` from the orphans. The caller stores it. The caller must have stored any other
/// inode that it has changed, because that may be in the list, too.
///
/// # Errors
/// [`Defect::OrphanList`] if `inode` is no orphan; or a device error.
pub fn remove(handle: &mut Handle<'_>, inode: &mut InodeEdit) -> Result<()> {
    handle.fast_ineligible();
    learn(handle)?;
    let ino = inode.ino();
    let wrong = || Err(Corruption::new(Defect::OrphanList).in_inode(ino).into());
    let before = match handle.orphan(ino) {
        Some(OrphanPlace::List { before }) => before,
        Some(OrphanPlace::File { logical }) => {
            handle.set_orphan(ino, None);
            return match OrphanFile::of(handle)? {
                Some(file) if file.replace(handle, logical, ino, 0)? => Ok(()),
                _ => wrong(),
            };
        }
        None => return wrong(),
    };
    let next = inode.deletion_time();
    inode.set_deletion_time(0);
    handle.set_orphan(ino, None);
    if next != 0 {
        handle.set_orphan(next, Some(OrphanPlace::List { before }));
    }
    if before == 0 {
        let mut superblock = handle.load_superblock()?;
        if superblock.last_orphan() != ino {
            return wrong();
        }
        superblock.set_last_orphan(next);
        return handle.store_superblock(&superblock);
    }
    let mut other = handle.load_inode(before)?;
    if other.deletion_time() != ino {
        return wrong();
    }
    other.set_deletion_time(next);
    handle.store_inode(&other, false)
}

/// The result of [`walk`].
#[derive(Default)]
struct Walk {
    /// All orphans with their places: those of the list, then those of the file.
    orphans: Vec<(u32, OrphanPlace)>,
    /// Entries of the file whose inodes were deleted, each with its logical block. e2fsck -p
    /// deletes orphans and leaves their entries if it has only the journal to recover.
    stale: Vec<(u32, u64)>,
}

/// Finds the orphans on the disk.
fn walk(handle: &Handle<'_>) -> Result<Walk> {
    let mut found = Walk::default();
    let mut listed = HashSet::new();
    // The closure returns `None` if the inode is free.
    let mut check = |ino: u32| -> Result<Option<DiskInode>> {
        let wrong = Corruption::new(Defect::OrphanList).in_inode(ino);
        let superblock = handle.superblock();
        if superblock.is_reserved(ino) || ino < superblock.first_ino() || !listed.insert(ino) {
            return Err(wrong.into());
        }
        let inode = handle.volume().inode(ino)?;
        let (group, bit) =
            ((ino - 1) / superblock.inodes_per_group(), (ino - 1) % superblock.inodes_per_group());
        let bitmap = handle.volume().inode_bitmap(group)?;
        let byte = bitmap.and_then(|bitmap| bitmap.get(bit as usize / 8).copied()).unwrap_or(0);
        Ok((byte & 1 << (bit % 8) != 0).then_some(inode))
    };
    let (mut before, mut ino) = (0, handle.load_superblock()?.last_orphan());
    while ino != 0 {
        let free = || Corruption::new(Defect::OrphanList).in_inode(ino);
        let inode = check(ino)?.ok_or_else(free)?;
        found.orphans.push((ino, OrphanPlace::List { before }));
        (before, ino) = (ino, inode.deletion_time());
    }
    if let Some(file) = OrphanFile::of(handle)? {
        for (ino, logical) in file.list(handle)? {
            match check(ino)? {
                Some(_) => found.orphans.push((ino, OrphanPlace::File { logical })),
                None => found.stale.push((ino, logical)),
            }
        }
    }
    Ok(found)
}

/// Loads the places of all orphans into memory, if they are not there yet. Every change of an
/// orphan calls this first, so the disk has the state before `handle`.
fn learn(handle: &Handle<'_>) -> Result<()> {
    if !handle.orphans().is_known() {
        handle.orphans().learn(walk(handle)?.orphans.into_iter().collect());
    }
    Ok(())
}

/// Lists all orphans: those of the list, then those of the file.
///
/// # Errors
/// [`Defect::OrphanList`] if the list is circular, or contains an inode that is free or reserved;
/// or a device error.
pub fn list(handle: &Handle<'_>) -> Result<Vec<u32>> {
    Ok(walk(handle)?.orphans.into_iter().map(|(ino, _)| ino).collect())
}

/// Removes the entries of deleted inodes from the orphan file, before their numbers are reused.
///
/// # Errors
/// The errors of [`list`].
pub fn drop_stale(handle: &mut Handle<'_>) -> Result<()> {
    let stale = walk(handle)?.stale;
    if stale.is_empty() {
        return Ok(());
    }
    let Some(file) = OrphanFile::of(handle)? else { return Ok(()) };
    for (ino, logical) in stale {
        file.replace(handle, logical, ino, 0)?;
    }
    handle.fast_ineligible();
    Ok(())
}

/// Returns whether inode `ino` is an orphan.
///
/// # Errors
/// The errors of [`list`].
pub fn contains(handle: &Handle<'_>, ino: u32) -> Result<bool> {
    learn(handle)?;
    Ok(handle.orphan(ino).is_some())
}

/// Continues the deletion or truncation of orphan `ino`, which is not open. Deletes an inode
/// without links, and frees the blocks past the size of another one. Returns [`Progress::More`]
/// once it has added about `budget` blocks to what `handle` changes. The caller then calls it again
/// in another change. When it is done, the inode is no orphan any more.
///
/// # Errors
/// Damage, or a device error.
pub fn finish(handle: &mut AllocHandle<'_, '_>, ino: u32, budget: usize) -> Result<Progress> {
    let mut inode = handle.load_inode(ino)?;
    if !contains(handle, ino)? {
        return Err(Corruption::new(Defect::OrphanList).in_inode(ino).into());
    }
    if inode.links() != 0 {
        let progress = match inode.parsed(handle.superblock())?.has_blocks() {
            true => extents::remove_past_end(handle, &mut inode, budget)?,
            false => Progress::Done,
        };
        if progress == Progress::Done {
            remove(handle, &mut inode)?;
        }
        handle.store_inode(&inode, true)?;
        return Ok(progress);
    }
    if empty(handle, &mut inode, budget)? == Progress::More {
        handle.store_inode(&inode, true)?;
        return Ok(Progress::More);
    }
    remove(handle, &mut inode)?;
    free(handle, inode)?;
    Ok(Progress::Done)
}

/// Deletes inode `ino`, which lost its last name in this change, and is no orphan because it is not
/// in use. If that takes more than about `budget` changed blocks, makes it an orphan and returns
/// [`Progress::More`]; [`finish`] then does the rest.
///
/// # Errors
/// Damage, or a device error.
pub fn delete(handle: &mut AllocHandle<'_, '_>, ino: u32, budget: usize) -> Result<Progress> {
    let mut inode = handle.load_inode(ino)?;
    if empty(handle, &mut inode, budget)? == Progress::More {
        add(handle, &mut inode)?;
        handle.store_inode(&inode, true)?;
        return Ok(Progress::More);
    }
    free(handle, inode)?;
    Ok(Progress::Done)
}

/// Frees the blocks and attributes of `inode`, which has no name. The caller stores it.
fn empty(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    budget: usize,
) -> Result<Progress> {
    if inode.parsed(handle.superblock())?.has_blocks() {
        inode.set_size(0);
        let progress = extents::remove(handle, inode, 0..extents::MAX_LOGICAL, budget)?;
        if progress == Progress::More {
            return Ok(progress);
        }
    }
    attributes::release(handle, inode)?;
    Ok(Progress::Done)
}

/// Frees the number of `inode`, which has no blocks or attributes and is no orphan.
fn free(handle: &mut AllocHandle<'_, '_>, mut inode: InodeEdit) -> Result<()> {
    inode.set_deletion_time(handle.now().seconds as u32);
    inode.set_changed(handle.now());
    let directory = inode.file_type() == Some(FileType::Directory);
    handle.store_inode(&inode, true)?;
    handle.allocator.free_inode(handle, inode.ino(), directory)
}
