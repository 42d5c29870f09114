//! Replays fast commits in memory (`ext4_fc_replay`), which results in the final state of inodes,
//! file blocks and directory names. A read-only mount keeps inodes as new contents of inode table
//! blocks, and the rest in memory, since nothing is allocated for it. A writable mount writes all
//! of it to the disk (`ops/fast_commits.rs` of the crate `ext4`).
//!
//! The replay does not follow the kernel where the kernel's loses information: times and link
//! counts of directories (which the kernel sets to the time of the replay, and to one), and the
//! inode's `i_block` of a file without extents.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zerocopy::FromBytes;

use super::scan::Change;
use crate::FileType;
use crate::edit::NodeEdit;
use crate::error::{Corruption, Defect, Error, Result};
use crate::extent_map::{ExtentMap, MappedExtent};
use crate::extents::MAGIC;
use crate::inode::{Inode, RawInode, flags};
use crate::replayed::{Names, Replayed};
use crate::source::Source;
use crate::volume::Volume;

/// The greatest link count of a directory (`EXT4_LINK_MAX`). A directory with more links has a
/// count of 1.
const LINKS_MAX: u16 = 65_000;

/// Newer contents of blocks.
type Blocks = BTreeMap<u64, Arc<[u8]>>;

/// The effect of fast commits on a file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Inodes that were changed or read, in their on-disk form except for their block area and
    /// checksums.
    pub inodes: BTreeMap<u32, Vec<u8>>,
    /// The inodes that lost their last name. A later change may create them again.
    pub gone: BTreeSet<u32>,
    /// The complete extents of the files in this map.
    pub maps: BTreeMap<u32, Arc<ExtentMap>>,
    /// Changed names in directories. All others are unchanged.
    pub names: BTreeMap<u32, Names>,
}

impl Outcome {
    /// Splits the effect on `volume`, over which the replay ran, into new inode table blocks and
    /// the rest.
    ///
    /// # Errors
    /// Damage, or an error of the source.
    pub(super) fn beside<S: Source>(self, volume: &Volume<S>) -> Result<(Blocks, Replayed)> {
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut before = BTreeMap::new();
        for (ino, mut bytes) in self.inodes {
            Inode::set_checksum(volume.superblock(), ino, &mut bytes);
            let (block, at) = volume.inode_place(ino)?;
            let table = match blocks.entry(block) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(volume.block(block)?.to_vec()),
            };
            let stored = &mut table[at..at + bytes.len()];
            before.insert(ino, Arc::from(&*stored));
            stored.copy_from_slice(&bytes);
        }
        let overlay = blocks.into_iter().map(|(block, bytes)| (block, bytes.into())).collect();
        Ok((overlay, Replayed { maps: self.maps, names: self.names, before, lost: None }))
    }
}

/// A running replay, over a volume in which the log's transactions have been replayed.
struct Replay<'a, S: Source> {
    volume: &'a Volume<S>,
    /// Changed inodes, in their on-disk form.
    inodes: BTreeMap<u32, Vec<u8>>,
    /// Inodes that the current commit contains, with their final version.
    given: BTreeSet<u32>,
    /// Extents by their first logical block.
    maps: BTreeMap<u32, BTreeMap<u32, MappedExtent>>,
    names: BTreeMap<u32, Names>,
    /// Inodes that lost their last name.
    gone: BTreeSet<u32>,
}

/// Replays `commits`, in order, over `volume`.
///
/// # Errors
/// Fails if a change is impossible; damage, or an error of the source.
pub(super) fn replay<S: Source>(volume: &Volume<S>, commits: Vec<Vec<Change>>) -> Result<Outcome> {
    let mut replay = Replay {
        volume,
        inodes: BTreeMap::new(),
        given: BTreeSet::new(),
        maps: BTreeMap::new(),
        names: BTreeMap::new(),
        gone: BTreeSet::new(),
    };
    for commit in commits {
        replay.given.clear();
        for change in commit {
            replay.change(change)?;
        }
    }
    Ok(replay.finish())
}

fn corrupt(defect: Defect, ino: u32) -> Error {
    Corruption::new(defect).in_inode(ino).into()
}

impl<S: Source> Replay<'_, S> {
    fn change(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Inode { ino, raw } => self.set_inode(ino, &raw),
            Change::AddRange { ino, first, blocks, at, unwritten } => {
                let extent = MappedExtent { logical: first, blocks, physical: at, unwritten };
                self.add_range(ino, extent)
            }
            Change::DelRange { ino, first, blocks } => self.del_range(ino, first, blocks),
            Change::Create { parent, ino, name } => self.create(parent, ino, name),
            Change::Link { parent, ino, name } => self.link(parent, ino, name),
            Change::Unlink { parent, ino, name } => self.unlink(parent, ino, name),
        }
    }

    /// Returns the current bytes of inode `ino`.
    fn bytes(&mut self, ino: u32) -> Result<&mut Vec<u8>> {
        match self.inodes.entry(ino) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let (block, at) = self.volume.inode_place(ino)?;
                let table = self.volume.block(block)?;
                let end = at + self.volume.superblock().inode_bytes() as usize;
                let bytes = table.get(at..end).ok_or_else(|| corrupt(Defect::InodeNumber, ino))?;
                // The table's content after the ever-used inodes is undefined.
                let per_group = self.volume.superblock().inodes_per_group();
                let group = self.volume.group((ino - 1) / per_group)?;
                let never_used = group.inode_uninit
                    || (ino - 1) % per_group >= per_group.saturating_sub(group.unused_inodes);
                Ok(new.insert(if never_used { vec![0; bytes.len()] } else { bytes.to_vec() }))
            }
        }
    }

    /// Returns the current inode `ino`, or `None` if it is free. As in the kernel, changes of a
    /// free inode are skipped.
    fn inode(&mut self, ino: u32) -> Result<Option<Inode>> {
        let superblock = self.volume.superblock().clone();
        let inode = Inode::parse(&superblock, ino, self.bytes(ino)?)?;
        Ok(Some(inode).filter(|inode| !inode.is_free()))
    }

    /// Returns the fields of inode `ino`.
    fn raw(&mut self, ino: u32) -> Result<&mut RawInode> {
        let found = RawInode::mut_from_prefix(self.bytes(ino)?);
        found.map(|(raw, _)| raw).map_err(|_| corrupt(Defect::InodeNumber, ino))
    }

    fn set_inode(&mut self, ino: u32, raw: &[u8]) -> Result<()> {
        let old = self.raw(ino)?.block;
        let bytes = self.bytes(ino)?;
        let known = raw.len().min(bytes.len());
        bytes[..known].copy_from_slice(&raw[..known]);
        let raw = self.raw(ino)?;
        if raw.flags.get() & flags::EXTENTS != 0 {
            // The map of its blocks is kept.
            raw.block = old;
            if old[..2] != MAGIC.to_le_bytes() {
                NodeEdit::format(&mut raw.block[..], 0);
            }
        }
        self.given.insert(ino);
        Ok(())
    }

    /// Returns the extents of inode `ino`, which initially come from the disk, or `None` if it has
    /// no mapped blocks.
    fn map(&mut self, ino: u32) -> Result<Option<&mut BTreeMap<u32, MappedExtent>>> {
        let Some(inode) = self.inode(ino)?.filter(Inode::has_blocks) else { return Ok(None) };
        match self.maps.entry(ino) {
            Entry::Occupied(known) => Ok(Some(known.into_mut())),
            Entry::Vacant(new) => {
                let map = self.volume.extent_map(&inode)?;
                if !map.is_complete() {
                    return Err(corrupt(Defect::ExtentOrder, ino));
                }
                let extents = map.extents().iter().map(|extent| (extent.logical, *extent));
                Ok(Some(new.insert(extents.collect())))
            }
        }
    }

    fn add_range(&mut self, ino: u32, extent: MappedExtent) -> Result<()> {
        let in_file = u64::from(extent.logical) + u64::from(extent.blocks) <= 1 << 32;
        if !in_file || !self.volume.superblock().holds(extent.physical, u64::from(extent.blocks)) {
            return Err(corrupt(Defect::BlockPointer, ino));
        }
        if let Some(map) = self.map(ino)?.filter(|_| extent.blocks > 0) {
            remove(map, extent.logical, extent.end());
            map.insert(extent.logical, extent);
        }
        Ok(())
    }

    fn del_range(&mut self, ino: u32, first: u32, blocks: u32) -> Result<()> {
        if let Some(map) = self.map(ino)? {
            remove(map, first, u64::from(first) + u64::from(blocks));
        }
        Ok(())
    }

    /// Returns the current inode of `name` in `parent`.
    fn find(&mut self, parent: u32, name: &[u8]) -> Result<Option<u32>> {
        if let Some(changed) = self.names.get(&parent).and_then(|names| names.get(name)) {
            return Ok(changed.map(|(ino, _)| ino));
        }
        let dir = self.inode(parent)?.ok_or_else(|| corrupt(Defect::InodeFree, parent))?;
        Ok(self.volume.lookup(&dir, name)?.map(|(ino, _)| ino))
    }

    /// Adds `change` to the links of inode `ino`.
    fn count_links(&mut self, ino: u32, change: i32) -> Result<()> {
        let raw = self.raw(ino)?;
        let links = u16::try_from(i32::from(raw.links_count.get()) + change)
            .map_err(|_| corrupt(Defect::InodeField("link count"), ino))?;
        raw.links_count = links.into();
        Ok(())
    }

    /// Adds `change` to the links of directory `parent`, which gains or loses a subdirectory.
    fn count_directories(&mut self, parent: u32, change: i32) -> Result<()> {
        if self.given.contains(&parent) {
            return Ok(());
        }
        let links = self.raw(parent)?.links_count.get();
        // A count of 1 means that there are too many links to count.
        if links < 2 || (links == LINKS_MAX && change > 0) {
            Ok(())
        } else {
            self.count_links(parent, change)
        }
    }

    fn directory(&mut self, ino: u32) -> Result<()> {
        let inode = self.inode(ino)?.ok_or_else(|| corrupt(Defect::InodeFree, ino))?;
        if inode.file_type() != FileType::Directory {
            return Err(corrupt(Defect::JournalBlock, ino));
        }
        Ok(())
    }

    /// Adds a name. Returns whether it was new.
    fn add_name(
        &mut self,
        parent: u32,
        ino: u32,
        name: Vec<u8>,
        file_type: FileType,
    ) -> Result<bool> {
        self.directory(parent)?;
        if name.contains(&0) || name.contains(&b'/') || name == b"." || name == b".." {
            return Err(corrupt(Defect::DirectoryEntry, parent));
        }
        // The directory's block may have reached the disk before.
        if self.find(parent, &name)?.is_some() {
            return Ok(false);
        }
        self.names.entry(parent).or_default().insert(name, Some((ino, Some(file_type))));
        Ok(true)
    }

    fn create(&mut self, parent: u32, ino: u32, name: Vec<u8>) -> Result<()> {
        let inode = self.inode(ino)?.ok_or_else(|| corrupt(Defect::InodeFree, ino))?;
        let file_type = inode.file_type();
        let is_new = self.add_name(parent, ino, name, file_type)?;
        if file_type == FileType::Directory && is_new {
            let names = self.names.entry(ino).or_default();
            for (dot, at) in [(&b"."[..], ino), (b"..", parent)] {
                names.insert(dot.to_vec(), Some((at, Some(FileType::Directory))));
            }
            // A fast commit contains the inode of a directory only if it is new.
            self.count_directories(parent, 1)?;
        }
        Ok(())
    }

    fn link(&mut self, parent: u32, ino: u32, name: Vec<u8>) -> Result<()> {
        let Some(inode) = self.inode(ino)? else { return Ok(()) };
        if self.add_name(parent, ino, name, inode.file_type())? {
            self.count_links(ino, 1)?;
        }
        Ok(())
    }

    fn unlink(&mut self, parent: u32, ino: u32, name: Vec<u8>) -> Result<()> {
        self.directory(parent)?;
        if self.find(parent, &name)? != Some(ino) {
            return Ok(());
        }
        self.names.entry(parent).or_default().insert(name, None);
        let Some(inode) = self.inode(ino)? else { return Ok(()) };
        if inode.file_type() == FileType::Directory {
            self.lose(ino)?;
            return self.count_directories(parent, -1);
        }
        self.count_links(ino, -1)?;
        if inode.metadata().links == 1 { self.lose(ino) } else { Ok(()) }
    }

    /// Handles the loss of the last name of inode `ino`. If the number is reused, the new inode has
    /// none of the former blocks.
    fn lose(&mut self, ino: u32) -> Result<()> {
        self.raw(ino)?.links_count = 0.into();
        self.gone.insert(ino);
        self.maps.insert(ino, BTreeMap::new());
        Ok(())
    }

    fn finish(self) -> Outcome {
        let whole = |(ino, map): (u32, BTreeMap<u32, MappedExtent>)| {
            (ino, Arc::new(ExtentMap::whole(map.into_values())))
        };
        let maps = self.maps.into_iter().map(whole).collect();
        Outcome { inodes: self.inodes, gone: self.gone, maps, names: self.names }
    }
}

/// Removes blocks `first` to `end` from `map`.
fn remove(map: &mut BTreeMap<u32, MappedExtent>, first: u32, end: u64) {
    let Some(last) = u64::from(first).max(end).checked_sub(1) else { return };
    let last = u32::try_from(last).unwrap_or(u32::MAX);
    if end <= u64::from(first) {
        return;
    }
    let before = map.range(..first).next_back().map(|(_, extent)| *extent);
    let touched: Vec<MappedExtent> =
        before.into_iter().chain(map.range(first..=last).map(|(_, e)| *e)).collect();
    for extent in touched {
        if extent.end() <= u64::from(first) {
            continue;
        }
        map.remove(&extent.logical);
        if extent.logical < first {
            map.insert(extent.logical, MappedExtent { blocks: first - extent.logical, ..extent });
        }
        if let Some(blocks) = extent.end().checked_sub(end).filter(|blocks| *blocks > 0) {
            let into = end - u64::from(extent.logical);
            // Both numbers lie within the extent, so they fit.
            let rest = MappedExtent {
                logical: end as u32,
                blocks: blocks as u32,
                physical: extent.physical + into,
                unwritten: extent.unwritten,
            };
            map.insert(rest.logical, rest);
        }
    }
}
