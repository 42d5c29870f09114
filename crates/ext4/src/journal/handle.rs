//! Handles: each is one change of the metadata, which happens as a whole or not at all.
//!
//! A handle copies the blocks that it changes; everything read through it sees the copies. When the
//! change is complete, they become visible as metadata all at once, as a part of the running
//! transaction. A change that fails has changed nothing.

use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use zerocopy::IntoBytes;

use super::changes::{Changed, Changes};
use super::fast;
use super::held::Held;
use super::orphans::{OrphanPlace, Orphans};
use super::prepared_copies::Copies;
use crate::space::SpaceChanges;
use crate::{Corruption, Defect, Error, Result, Timestamp};
use meantime_ext4_format::edit::{InodeEdit, SuperblockEdit, superblock_place};
use meantime_ext4_format::journal::fast_commit::Change;
use meantime_ext4_format::{Checked, Group, Source, SourceError, Superblock, Volume};

/// Returns the time of day.
pub(crate) fn time_now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

/// A change in progress.
pub struct Handle<'a> {
    volume: Volume<()>,
    base: &'a (dyn Source + Sync),
    held: &'a Held,
    orphans: &'a Orphans,
    now: Timestamp,
    changes: Changes,
    copies: Copies,
}

impl<'a> Handle<'a> {
    /// Begins a change of `volume`, whose current content is `base`, at time `now`. `held` and
    /// `orphans` belong to the mount.
    pub fn new(
        volume: Volume<()>,
        base: &'a (dyn Source + Sync),
        held: &'a Held,
        orphans: &'a Orphans,
        now: Timestamp,
    ) -> Self {
        Self {
            volume,
            base,
            held,
            orphans,
            now,
            changes: Changes::default(),
            copies: Copies::default(),
        }
    }

    /// Makes the handle use `copies` of blocks that the change may edit.
    pub fn with_copies(self, copies: Copies) -> Self {
        Self { copies, ..self }
    }

    /// Returns the file system with the changes so far.
    pub fn volume(&self) -> Volume<&Self> {
        self.volume.with_source(self)
    }

    /// Returns the superblock as of the mount. Its free counts, and everything else that changes
    /// while mounted, are as of the mount too.
    pub fn superblock(&self) -> &Superblock {
        self.volume.superblock()
    }

    /// Returns the time of the change.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns metadata block `block` with the changes so far.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if the file system has no such block, or an error of the device.
    pub fn block(&self, block: u64) -> Result<Arc<[u8]>> {
        match self.changes.blocks.get(&block) {
            Some(changed) => Ok(Arc::clone(changed)),
            None => Ok(self.volume.block_of(self.base, block)?),
        }
    }

    /// Returns metadata block `block` for editing.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if the file system has no such block, or an error of the device.
    pub fn edit(&mut self, block: u64) -> Result<&mut [u8]> {
        let content = match self.changes.blocks.entry(block) {
            Entry::Occupied(changed) => changed.into_mut(),
            Entry::Vacant(place) => {
                let content = self.volume.block_of(self.base, block)?;
                place.insert(self.copies.instead_of(content))
            }
        };
        Ok(Arc::make_mut(content))
    }

    /// Makes block `block` a metadata block, and returns it zeroed.
    ///
    /// # Errors
    /// [`Defect::BlockPointer`] if the file system has no such block.
    pub fn create(&mut self, block: u64) -> Result<&mut [u8]> {
        if block >= self.volume.block_count() {
            return Err(Corruption::new(Defect::BlockPointer).in_block(block).into());
        }
        let zeroes = self.copies.zeroes(self.volume.block_bytes());
        let content = self.changes.blocks.entry(block).or_default();
        *content = zeroes;
        Ok(Arc::make_mut(content))
    }

    /// Records that block `block` is no longer metadata, so it is revoked (rule 9). The caller
    /// still has to [free](Self::hold) it.
    pub fn forget(&mut self, block: u64) {
        self.changes.blocks.remove(&block);
        self.changes.forgotten.insert(block);
        self.changes.fast.bar();
    }

    /// Holds `blocks`, which were marked as free, until the change has committed.
    pub fn hold(&mut self, blocks: Range<u64>) {
        self.changes.freed.push(blocks);
    }

    /// Returns the first range of `blocks` that is free but may not be reused yet.
    pub fn first_held_in(&self, blocks: Range<u64>) -> Option<Range<u64>> {
        let overlaps = |range: &&Range<u64>| range.start < blocks.end && blocks.start < range.end;
        let own = self.changes.freed.iter().filter(overlaps).min_by_key(|range| range.start);
        let own = own.map(|range| range.start.max(blocks.start)..range.end.min(blocks.end));
        let others = self.held.first_in(blocks);
        match (own, others) {
            (Some(own), Some(others)) if others.start < own.start => Some(others),
            (None, others) => others,
            (own, _) => own,
        }
    }

    /// Returns the place of orphan `ino` with the changes so far, or `None` if it is no orphan. The
    /// result is only valid if the places [are known](Orphans::is_known).
    pub fn orphan(&self, ino: u32) -> Option<OrphanPlace> {
        self.changes.orphans.get(&ino).copied().unwrap_or_else(|| self.orphans.place(ino))
    }

    /// Sets the place of orphan `ino`, or with `None`, records that it is no orphan any more.
    pub fn set_orphan(&mut self, ino: u32, place: Option<OrphanPlace>) {
        self.changes.orphans.insert(ino, place);
    }

    /// Returns the orphans as of the change before this one.
    pub fn orphans(&self) -> &Orphans {
        self.orphans
    }

    /// Returns group `number`.
    ///
    /// # Errors
    /// Fails if the descriptor is damaged, or with a device error.
    pub fn group(&self, number: u32) -> Result<Group> {
        Ok(self.volume.group_of(self, number)?)
    }

    /// Returns inode `ino` for editing; [`store_inode`](Self::store_inode) writes it.
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if there is no such inode; damage of the inode, or a device error.
    pub fn load_inode(&self, ino: u32) -> Result<InodeEdit> {
        // `inode_in_table` checks the inode.
        let (_, table, at) = self.volume().inode_in_table(ino)?;
        Ok(InodeEdit::of(ino, &table[at..at + self.superblock().inode_bytes() as usize]))
    }

    /// Returns inode `ino`, to which a directory refers, for editing.
    /// [`store_inode`](Self::store_inode) writes it.
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if there is no such inode or it is reserved; [`Defect::InodeFree`]
    /// if it is not in use; damage of the inode, or a device error.
    pub fn load_linked_inode(&self, ino: u32) -> Result<InodeEdit> {
        let (_, table, at) = self.volume().linked_inode_in_table(ino)?;
        Ok(InodeEdit::of(ino, &table[at..at + self.superblock().inode_bytes() as usize]))
    }

    /// Writes an inode to its place. `data` says whether `fdatasync` has to write the change (of
    /// size or blocks).
    ///
    /// # Errors
    /// [`Defect::InodeNumber`] if there is no such inode; damage of its group, or a device error.
    pub fn store_inode(&mut self, inode: &InodeEdit, data: bool) -> Result<()> {
        let (block, at) = self.volume().inode_place(inode.ino())?;
        let (is_barred, volume) = (self.changes.fast.is_barred(), self.volume.clone());
        let place = &mut self.edit(block)?[at..at + inode.as_bytes().len()];
        let is_recordable = is_barred || fast::is_recordable(place, inode.as_bytes());
        inode.put(volume.superblock(), place);
        if !is_recordable {
            self.changes.fast.bar();
        }
        self.changes.fast.store(inode.ino(), block, at);
        let changed = self.changes.inodes.entry(inode.ino()).or_default();
        *changed = Changed { data: changed.data | data, links: inode.links() };
        Ok(())
    }

    /// Returns the superblock as it is on the disk, for editing;
    /// [`store_superblock`](Self::store_superblock) writes it.
    ///
    /// # Errors
    /// Fails if the superblock on the disk is damaged, or with a device error.
    pub fn load_superblock(&self) -> Result<SuperblockEdit> {
        let (block, _) = superblock_place(self.superblock());
        Ok(SuperblockEdit::of(self.superblock(), &self.block(block)?)?)
    }

    /// Writes the superblock to its place.
    ///
    /// # Errors
    /// Fails with a device error.
    pub fn store_superblock(&mut self, superblock: &SuperblockEdit) -> Result<()> {
        let (block, at) = superblock_place(self.superblock());
        let sealed = superblock.sealed();
        let bytes = sealed.as_bytes();
        self.edit(block)?[at..at + bytes.len()].copy_from_slice(bytes);
        self.changes.fast.bar();
        Ok(())
    }

    /// Returns the change's effect on the totals, to be added to.
    pub(crate) fn space(&mut self) -> &mut SpaceChanges {
        &mut self.changes.space
    }

    /// Records `operation` as part of the change, for fast commits. [Stored](Self::store_inode)
    /// inodes need no record.
    pub fn record(&mut self, operation: Change) {
        self.changes.fast.record(operation);
    }

    /// Records a new regular file with its first name, whose inode is stored.
    pub fn record_create(&mut self, parent: u32, ino: u32, name: &[u8]) {
        if !self.changes.fast.is_barred() && self.comes_out(ino).unwrap_or(false) {
            self.record(Change::Create { parent, ino, name: name.to_vec() });
        } else {
            self.changes.fast.bar();
        }
    }

    /// Returns whether replay of inode `ino` over its old content results in the new one.
    fn comes_out(&self, ino: u32) -> Result<bool> {
        let (block, at) = self.volume().inode_place(ino)?;
        let (new, bytes) = (self.block(block)?, self.superblock().inode_bytes() as usize);
        let offset = block * self.volume.block_bytes() as u64;
        let old = self
            .base
            .read(offset, self.volume.block_bytes())
            .map_err(|_| Error::Invalid("no table"))?;
        Ok(fast::comes_out_of(&new[at..at + bytes], &old[at..at + bytes]))
    }

    /// Declares that all of the change has been recorded, and that replay of fast commits gets none
    /// of it wrong ([`fast`]), so it can be committed fast. Without this the whole transaction
    /// commits.
    pub fn fast_eligible(&mut self) {
        self.changes.fast.complete();
    }

    /// Declares that fast commits cannot describe the change, regardless of
    /// [`fast_eligible`](Self::fast_eligible).
    pub fn fast_ineligible(&mut self) {
        self.changes.fast.bar();
    }

    /// Returns what was changed so far.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Completes the change.
    pub fn into_changes(self) -> Changes {
        self.changes
    }

    /// Completes the change. Also returns the unused [copies](Self::with_copies).
    pub(super) fn into_parts(self) -> (Changes, Copies) {
        (self.changes, self.copies)
    }
}

impl Source for Handle<'_> {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.read_table(offset, bytes, 0)
    }

    fn read_checked(&self, offset: u64, bytes: usize, end: u64) -> Result<Checked, SourceError> {
        let block_bytes = self.volume.block_bytes() as u64;
        let (block, at) = (offset / block_bytes, (offset % block_bytes) as usize);
        let Some(changed) = self.changes.blocks.get(&block) else {
            return self.base.read_checked(offset, bytes, end);
        };
        match changed.get(at..at + bytes) {
            Some(all) if all.len() == changed.len() => Ok((Arc::clone(changed), true)),
            Some(part) => Ok((part.into(), false)),
            None => Ok((self.base.read(offset, bytes)?, false)),
        }
    }
}
