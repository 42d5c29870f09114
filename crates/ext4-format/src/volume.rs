//! Reads structures, and checks them. No other module does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::group::Group;
use super::inode::Inode;
use super::replayed::Replayed;
use super::source::{Checked, Source};
use super::superblock::{RawSuperblock, Superblock};
use crate::{Corruption, Defect, Error, FileType, Metadata, OpenFailure, Result, VolumeInfo};

/// The options of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Whether wrong checksums are counted instead of refused.
    pub ignore_checksums: bool,
    /// The block (of the file system) with the superblock to use. The descriptors after it are
    /// used, too.
    pub superblock: Option<u64>,
}

/// A file system's structures. Cloning is cheap; [`with_source`](Self::with_source) shares them
/// with another source of the same bytes.
#[derive(Debug, Clone)]
pub struct Volume<S> {
    source: S,
    shared: Arc<Shared>,
}

/// The state shared by all clones of a volume.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) superblock: Superblock,
    /// The block of the superblock used, from which the descriptors' places follow.
    pub(super) superblock_block: u64,
    pub(super) device_bytes: u64,
    pub(super) ignore_checksums: bool,
    pub(super) ignored: AtomicU64,
    pub(super) overlay: BTreeMap<u64, Arc<[u8]>>,
    /// Further changes of fast commits.
    pub(super) replayed: Replayed,
    pub(super) inode_tables: InodeTables,
}

/// The first inode table block of each group, as far as looked up. These blocks never move.
#[derive(Debug)]
pub(super) struct InodeTables(Box<[AtomicU64]>);

impl InodeTables {
    /// Creates the places for `groups` groups, all unknown.
    pub(super) fn new(groups: u32) -> Self {
        Self((0..groups).map(|_| AtomicU64::new(0)).collect())
    }
}

impl<S> Volume<S> {
    pub(super) fn from_parts(source: S, shared: Shared) -> Self {
        Self { source, shared: Arc::new(shared) }
    }

    /// Returns the same volume with another source of its bytes.
    pub fn with_source<T>(&self, source: T) -> Volume<T> {
        Volume { source, shared: Arc::clone(&self.shared) }
    }

    /// Returns the source of its bytes.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns the superblock. After a [replay](Self::set_overlay), this is the replayed one.
    pub fn superblock(&self) -> &Superblock {
        &self.shared.superblock
    }

    /// Returns the superblock's information.
    pub fn info(&self) -> VolumeInfo {
        self.superblock().info()
    }

    /// Returns the size of a block, in bytes.
    pub fn block_bytes(&self) -> usize {
        self.superblock().block_bytes() as usize
    }

    /// Returns the number of blocks of the file system.
    pub fn block_count(&self) -> u64 {
        self.superblock().blocks()
    }

    /// Returns whether a backup of the superblock is used, which does not record whether the
    /// journal was replayed.
    pub fn is_from_backup(&self) -> bool {
        self.shared.superblock_block != self.superblock().primary_block()
    }

    /// Returns whether wrong checksums are ignored.
    pub fn ignores_checksums(&self) -> bool {
        self.shared.ignore_checksums
    }

    /// Returns how many wrong checksums were ignored.
    pub fn ignored(&self) -> u64 {
        self.shared.ignored.load(Ordering::Relaxed)
    }

    /// Fails with `wrong` unless `right`. If checksums are ignored, counts the failure instead.
    pub(super) fn verify(&self, right: bool, wrong: impl FnOnce() -> Corruption) -> Result<()> {
        if right {
            return Ok(());
        }
        if !self.shared.ignore_checksums {
            return Err(wrong().into());
        }
        self.shared.ignored.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(wrong = %wrong(), "ignored");
        Ok(())
    }

    /// Returns the newer content of block `block` in the journal, if there is any.
    pub fn overlaid(&self, block: u64) -> Option<Arc<[u8]>> {
        self.shared.overlay.get(&block).cloned()
    }

    /// Returns whether the journal has newer content for any of the `blocks` blocks from `start`
    /// on.
    pub fn is_overlaid(&self, start: u64, blocks: u64) -> bool {
        self.shared.overlay.range(start..start.saturating_add(blocks)).next().is_some()
    }

    /// Sets the newer blocks of a replayed journal. From now on they replace those of the device,
    /// for all reads by this volume and its clones. A superblock among them is read again, unless a
    /// backup was requested.
    ///
    /// # Errors
    /// Fails if the superblock is invalid.
    pub fn set_overlay(&mut self, overlay: BTreeMap<u64, Arc<[u8]>>) -> Result<(), OpenFailure> {
        let bytes = self.block_bytes();
        if overlay.values().any(|block| block.len() != bytes) {
            return Err(OpenFailure::Failed(Error::Invalid(
                "a replayed block is not as long as a block",
            )));
        }
        let mut superblock = self.superblock().clone();
        if let Some(block) =
            overlay.get(&superblock.primary_block()).filter(|_| !self.is_from_backup())
        {
            let raw = RawSuperblock::in_block(block)
                .ok_or(OpenFailure::Failed(Error::Invalid("a replayed superblock is too short")))?;
            let parsed = Superblock::parse(&raw, self.shared.ignore_checksums);
            let replayed = parsed.map_err(|error| match error {
                Error::Corrupt(corruption) => {
                    corruption.in_block(superblock.primary_block()).into()
                }
                other => other,
            })?;
            if replayed.block_bits() != superblock.block_bits() {
                return Err(Corruption::new(Defect::SuperblockField("block size"))
                    .in_block(superblock.primary_block())
                    .into());
            }
            if replayed.bytes() > self.shared.device_bytes {
                return Err(OpenFailure::TooSmall { fs_bytes: replayed.bytes() });
            }
            superblock = replayed;
        }
        self.replace(superblock, overlay, Replayed::default());
        Ok(())
    }

    fn replace(
        &mut self,
        superblock: Superblock,
        overlay: BTreeMap<u64, Arc<[u8]>>,
        replayed: Replayed,
    ) {
        let groups = superblock.groups();
        self.shared = Arc::new(Shared {
            superblock,
            superblock_block: self.shared.superblock_block,
            device_bytes: self.shared.device_bytes,
            ignore_checksums: self.shared.ignore_checksums,
            ignored: AtomicU64::new(self.ignored()),
            overlay,
            replayed,
            inode_tables: InodeTables::new(groups),
        });
    }

    /// Returns the changes of fast commits, other than [blocks](Self::overlaid).
    pub fn replayed(&self) -> &Replayed {
        &self.shared.replayed
    }

    /// Adds `replayed`, and `newer` contents of some blocks.
    pub(super) fn set_replayed(&mut self, newer: BTreeMap<u64, Arc<[u8]>>, replayed: Replayed) {
        let mut overlay = self.shared.overlay.clone();
        overlay.extend(newer);
        self.replace(self.superblock().clone(), overlay, replayed);
    }

    /// Returns the place of group `number`'s descriptor: its block, and the byte offset in it.
    pub fn descriptor_place(&self, number: u32) -> (u64, usize) {
        let superblock = self.superblock();
        let per_block = superblock.descriptors_per_block();
        let block = superblock.descriptor_block(number / per_block, self.shared.superblock_block);
        (block, (number % per_block) as usize * usize::from(superblock.descriptor_bytes))
    }

    /// Reads block `block`, as it is after a replay, from another `source` than the volume's own.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if the file system has no such block; or an error of the source.
    pub fn block_of(&self, source: &(impl Source + ?Sized), block: u64) -> Result<Arc<[u8]>> {
        Ok(self.checked_block_of(source, block, block)?.0)
    }

    fn checked_block_of(
        &self,
        source: &(impl Source + ?Sized),
        block: u64,
        end: u64,
    ) -> Result<Checked> {
        if let Some(newer) = self.shared.overlay.get(&block) {
            return Ok((Arc::clone(newer), false));
        }
        let bytes = self.block_bytes();
        let wrong = || Corruption::new(Defect::BlockPointer).in_block(block);
        if block >= self.block_count() {
            return Err(wrong().into());
        }
        let bits = self.superblock().block_bits();
        let end = end.min(self.block_count());
        let found = source.read_checked(block << bits, bytes, end << bits)?;
        if found.0.len() == bytes { Ok(found) } else { Err(wrong().into()) }
    }

    /// Reads group `number` from another `source` than the volume's own.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such group; [`Defect::GroupChecksum`] or
    /// [`Defect::GroupPointer`] (with the group in place of a block); damage, or an error of the
    /// source.
    pub fn group_of(&self, source: &(impl Source + ?Sized), number: u32) -> Result<Group> {
        if number >= self.superblock().groups() {
            return Err(Error::Invalid("there is no such block group"));
        }
        let (block, at) = self.descriptor_place(number);
        self.group_in(number, &self.block_of(source, block)?, at)
    }

    fn group_in(&self, number: u32, block: &[u8], at: usize) -> Result<Group> {
        let wrong = |defect| Corruption::new(defect).in_block(u64::from(number));
        let bytes = block.get(at..at + usize::from(self.superblock().descriptor_bytes));
        let bytes = bytes.ok_or_else(|| wrong(Defect::GroupPointer))?;
        self.verify(Group::checksum_is_right(self.superblock(), number, bytes), || {
            wrong(Defect::GroupChecksum)
        })?;
        Ok(Group::parse(self.superblock(), number, bytes)?)
    }
}

impl<S: Source> Volume<S> {
    /// Reads the whole block `block`, as it is after a replay.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if the file system has no such block; or an error of the source.
    pub fn block(&self, block: u64) -> Result<Arc<[u8]>> {
        self.table_block(block, block)
    }

    /// Reads the whole block `block` of a table that ends at block `end`.
    fn table_block(&self, block: u64, end: u64) -> Result<Arc<[u8]>> {
        Ok(self.checked_block(block, end)?.0)
    }

    /// Reads the whole block `block` of a table that ends at block `end`. Also returns whether its
    /// [checksum](Source::read_checked) need not be verified.
    pub(super) fn checked_block(&self, block: u64, end: u64) -> Result<Checked> {
        self.checked_block_of(&self.source, block, end)
    }

    /// Reads group `number`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such group; [`Defect::GroupChecksum`] or
    /// [`Defect::GroupPointer`] (with the group in place of a block); damage, or an error of the
    /// source.
    pub fn group(&self, number: u32) -> Result<Group> {
        self.group_of(&self.source, number)
    }

    /// Calls `visit` with every group, and reads each block of descriptors once.
    ///
    /// # Errors
    /// [`Defect::GroupChecksum`] or [`Defect::GroupPointer`] (with the group in place of a block);
    /// damage, or an error of the source.
    pub fn visit_groups(&self, mut visit: impl FnMut(u32, &Group)) -> Result<()> {
        let superblock = self.superblock();
        let per_block = superblock.descriptors_per_block();
        for index in 0..superblock.descriptor_blocks() {
            let first = index * per_block;
            let block = self.block(self.descriptor_place(first).0)?;
            for place in 0..per_block.min(superblock.groups() - first) {
                let at = place as usize * usize::from(superblock.descriptor_bytes);
                visit(first + place, &self.group_in(first + place, &block, at)?);
            }
        }
        Ok(())
    }

    /// Verifies that the checksum of a bitmap of `bits` bits, the content `bytes` of block `block`,
    /// is `checksum`, within `mask`.
    pub fn verify_bitmap(
        &self,
        bytes: &[u8],
        block: u64,
        bits: u32,
        checksum: u32,
        mask: u32,
    ) -> Result<()> {
        let wrong = || Corruption::new(Defect::BitmapChecksum).in_block(block);
        let covered = bytes.get(..bits as usize / 8).ok_or_else(wrong)?;
        let superblock = self.superblock();
        let right = !superblock.has_checksums()
            || (super::checksum::crc32c(superblock.seed(), covered) ^ checksum) & mask == 0;
        self.verify(right, wrong)
    }

    /// Returns the bitmap of used clusters of group `number`, or `None` if it was never written. In
    /// that case only the group's own clusters are in use.
    ///
    /// # Errors
    /// The errors of [`group`](Self::group), and [`Defect::BitmapChecksum`].
    pub fn block_bitmap(&self, number: u32) -> Result<Option<Arc<[u8]>>> {
        let group = self.group(number)?;
        if group.block_uninit {
            return Ok(None);
        }
        let bits = self.superblock().clusters_per_group();
        self.bitmap(group.block_bitmap, bits, group.block_bitmap_checksum, &group).map(Some)
    }

    /// Returns the bitmap of used inodes of group `number`, or `None` if it was never written. In
    /// that case no inode is in use.
    ///
    /// # Errors
    /// The errors of [`group`](Self::group), and [`Defect::BitmapChecksum`].
    pub fn inode_bitmap(&self, number: u32) -> Result<Option<Arc<[u8]>>> {
        let group = self.group(number)?;
        if group.inode_uninit {
            return Ok(None);
        }
        let bits = self.superblock().inodes_per_group();
        self.bitmap(group.inode_bitmap, bits, group.inode_bitmap_checksum, &group).map(Some)
    }

    fn bitmap(&self, block: u64, bits: u32, checksum: u32, group: &Group) -> Result<Arc<[u8]>> {
        let bytes = self.block(block)?;
        self.verify_bitmap(&bytes, block, bits, checksum, group.checksum_mask)?;
        Ok(bytes)
    }

    /// Returns the first block of the inode table of group `number`.
    fn inode_table(&self, number: u32) -> Result<u64> {
        let Some(known) = self.shared.inode_tables.0.get(number as usize) else {
            return Ok(self.group(number)?.inode_table);
        };
        // The load is relaxed, because the number never changes.
        match known.load(Ordering::Relaxed) {
            0 => {
                let found = self.group(number)?.inode_table;
                known.store(found, Ordering::Relaxed);
                Ok(found)
            }
            table => Ok(table),
        }
    }

    /// Returns the place of inode `ino`: its block, and the byte offset in it.
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if there is no such inode; damage of its group, or an error of the
    /// source.
    pub fn inode_place(&self, ino: u32) -> Result<(u64, usize)> {
        let superblock = self.superblock();
        let wrong = Corruption::new(Defect::InodeNumber).in_inode(ino);
        let index = ino.checked_sub(1).filter(|_| ino <= superblock.inodes()).ok_or(wrong)?;
        let per_group = superblock.inodes_per_group();
        let table = self.inode_table(index / per_group)?;
        let at = u64::from(index % per_group) * u64::from(superblock.inode_bytes());
        let block_bytes = u64::from(superblock.block_bytes());
        Ok((table + at / block_bytes, (at % block_bytes) as usize))
    }

    /// Reads inode `ino`, in use or not.
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if there is no such inode; [`Defect::InodeChecksum`] or
    /// [`Defect::InodeField`]; damage of its group, or an error of the source.
    pub fn inode(&self, ino: u32) -> Result<Inode> {
        self.inode_in_table(ino).map(|(inode, ..)| inode)
    }

    /// Reads inode `ino`, in use or not. Returns it with its block of the table and the byte offset
    /// there.
    ///
    /// # Errors
    /// The errors of [`inode`](Self::inode).
    pub fn inode_in_table(&self, ino: u32) -> Result<(Inode, Arc<[u8]>, usize)> {
        let (block, at) = self.inode_place(ino)?;
        let per_block = self.block_bytes() as u32 / self.superblock().inode_bytes();
        let after =
            self.superblock().inodes_per_group() - (ino - 1) % self.superblock().inodes_per_group();
        let table = self.table_block(block, block + u64::from(after.div_ceil(per_block)))?;
        let wrong = |defect| Corruption::new(defect).in_inode(ino).in_block(block);
        let bytes = table.get(at..at + self.superblock().inode_bytes() as usize);
        let bytes = bytes.ok_or_else(|| wrong(Defect::InodeNumber))?;
        let right = Inode::checksum_is_right(self.superblock(), ino, bytes);
        self.verify(right, || wrong(Defect::InodeChecksum))?;
        let inode =
            Inode::parse(self.superblock(), ino, bytes).map_err(|wrong| wrong.in_block(block))?;
        Ok((inode, table, at))
    }

    /// Reads inode `ino`, to which a directory refers. It has to be in use, and not reserved.
    ///
    /// # Errors
    /// [`Defect::InodeFree`] if it is not in use; [`Defect::InodeNumber`] if it is reserved, or if
    /// there is no such inode; damage of the inode or its group, or an error of the source.
    pub fn linked_inode(&self, ino: u32) -> Result<Inode> {
        self.linked_inode_in_table(ino).map(|(inode, ..)| inode)
    }

    /// Reads inode `ino`, to which a directory refers. Returns it with its block of the table and
    /// the byte offset there.
    ///
    /// # Errors
    /// The errors of [`linked_inode`](Self::linked_inode).
    pub fn linked_inode_in_table(&self, ino: u32) -> Result<(Inode, Arc<[u8]>, usize)> {
        let wrong = |defect| Err(Corruption::new(defect).in_inode(ino).into());
        if self.superblock().is_reserved(ino) {
            return wrong(Defect::InodeNumber);
        }
        let found = self.inode_in_table(ino)?;
        if found.0.is_free() {
            return wrong(Defect::InodeFree);
        }
        if found.0.has(super::inode::flags::EA_INODE) {
            return wrong(Defect::InodeField("flags (the value of an attribute)"));
        }
        Ok(found)
    }

    /// Returns the inline content of an inode, or `None` if it has none.
    ///
    /// # Errors
    /// [`Defect::InlineData`] if the content is missing or too long; [`Error::Unsupported`] if it
    /// cannot be read.
    pub fn inline_data(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        inode.check_supported()?;
        Ok(inode.is_inline().then(|| inode.inline_data()).transpose()?)
    }

    /// Returns the result of Linux's `stat` for `inode`.
    pub fn metadata(&self, inode: &Inode) -> Metadata {
        let mut metadata = inode.metadata();
        if inode.is_inline() && metadata.file_type == FileType::Regular {
            // A file without blocks would look like a hole (`ext4_file_getattr`).
            metadata.blocks_512 = metadata.blocks_512.saturating_add(metadata.size.div_ceil(512));
        }
        metadata
    }
}
