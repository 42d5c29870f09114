//! Directories: looks names up by the index or linearly, and lists them.

use std::sync::Arc;

pub use super::dirent::Named;
use super::dirent::{
    DirectoryShape, Dirent, Dirents, NAME_BYTES_MAX, Slot, find, leaf_checksum_is_right,
};
use super::extent_map::RunState;
use super::features::compat;
use super::hash::HashKind;
use super::htree::{IndexNode, IndexRoot, index_checksum_is_right, looks_like_node};
use super::inode::{Inode, flags};
use super::source::Source;
use super::volume::Volume;
use crate::FileType;
use crate::error::{Corruption, Defect, Error, Result};

/// `s_flags`: hashes treat characters as unsigned (`EXT2_FLAGS_UNSIGNED_HASH`).
const UNSIGNED_HASH: u32 = 0x2;

/// Offset of the first entry of an inline directory: `.` and `..` are not stored, but count as this
/// number of bytes.
const INLINE_DOTS_BYTES: u64 = 24;
/// Size of the parent's inode number at the start (`EXT4_INLINE_DOTDOT_SIZE`).
const INLINE_PARENT_BYTES: usize = 4;

/// The cookies of entries added by fast commits start here, beyond those of any directory.
const REPLAYED_COOKIE: u64 = 1 << 62;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name; `.` and `..` are included.
    pub name: Vec<u8>,
    /// Its inode.
    pub ino: u32,
    /// Its type, if the directory stores it.
    pub file_type: Option<FileType>,
    /// The position of the next entry: a byte of the directory ([`Volume::entries`]), or a full
    /// hash ([`Volume::list`]).
    pub cookie: u64,
}

/// A directory block, with its checksum verified.
pub struct Block {
    /// Its content.
    pub bytes: Arc<[u8]>,
    /// Its number in the file system.
    pub number: u64,
    /// Whether it is part of the hash tree, so that it holds no names, or only `.` and `..`.
    pub is_index: bool,
}

/// The place of a name.
pub struct EntryPlace {
    /// Its inode.
    pub ino: u32,
    /// The inode's type, if the entry stores it.
    pub file_type: Option<FileType>,
    /// The block with its entry.
    pub block: Block,
    /// The entry.
    pub slot: Slot,
}

/// A readable directory.
pub struct Directory<'a, S: Source> {
    volume: &'a Volume<S>,
    /// Its inode.
    pub inode: &'a Inode,
    /// The layout of its blocks.
    pub shape: DirectoryShape,
    /// Number of blocks.
    pub blocks: u32,
    /// Whether it has a hash tree.
    pub is_indexed: bool,
}

/// A directory stored in its inode.
struct InlineParts<'a> {
    /// The inode of `..`.
    parent: u32,
    /// Two areas with entries, and the byte offset of the first entry of each.
    areas: [(&'a [u8], u64); 2],
}

/// A node on the path from the root of an index to a leaf, and the entry followed.
pub struct Step {
    /// The node.
    pub node: IndexNode,
    /// The index of that entry.
    pub index: usize,
    /// The node's block in the file system.
    pub number: u64,
}

/// The path through an index to names of one hash.
pub struct IndexPath {
    /// The hash.
    pub hash: u32,
    /// The tree's hash function.
    pub kind: HashKind,
    /// The nodes from the root downwards.
    pub steps: Vec<Step>,
}

impl IndexPath {
    /// Returns the directory block that the path leads to.
    pub fn leaf(&self) -> Option<u32> {
        self.steps.last().map(|step| step.node.child(step.index))
    }

    /// Returns the lowest hash in that block, and the upper bound (`None` if there is none),
    /// according to the entries on the path. Returns `None` if these contradict each other.
    pub fn range(&self) -> Option<(u32, Option<u32>)> {
        self.steps.iter().try_fold((0, None), |(low, high), Step { node, index, .. }| {
            let from = if *index == 0 { low } else { node.hash(*index) };
            let to = if index + 1 < node.count() { Some(node.hash(index + 1)) } else { high };
            let is_within = high.is_none_or(|high| to.is_some_and(|to| to <= high));
            (node.is_sorted() && low <= from && is_within).then_some((from, to))
        })
    }

    /// Returns the lowest hash in the next leaf, and the depth at which its path branches off, or
    /// `None` if this is the last leaf.
    pub fn next(&self) -> Option<(u32, usize)> {
        let depth = self.steps.iter().rposition(|step| step.index + 1 < step.node.count())?;
        let step = &self.steps[depth];
        Some((step.node.hash(step.index + 1), depth))
    }

    /// Returns the depth at which the next leaf's path branches off, if that leaf may have names of
    /// this hash, too.
    pub fn goes_on(&self) -> Option<usize> {
        self.next().filter(|(hash, _)| *hash == self.hash | 1).map(|(_, depth)| depth)
    }
}

/// The reason why a search by the index failed.
pub(super) enum Miss {
    /// The tree is malformed. The names themselves are still there.
    Malformed,
    Failed(Error),
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<'a, S: Source> Directory<'a, S> {
    /// Opens the directory with `inode`.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], or damage.
    pub fn open(volume: &'a Volume<S>, inode: &'a Inode) -> Result<Self> {
        if inode.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        inode.check_supported()?;
        let superblock = volume.superblock();
        let block_bytes = superblock.block_bytes();
        // A directory has no holes, so it cannot be longer than its file system. This bounds every
        // loop over its blocks.
        let blocks = inode.size().div_ceil(u64::from(block_bytes));
        let blocks =
            u32::try_from(blocks).ok().filter(|blocks| u64::from(*blocks) <= superblock.blocks());
        let blocks = blocks.ok_or_else(|| {
            Corruption::new(Defect::InodeField("size of a directory")).in_inode(inode.ino())
        })?;
        let any_names = inode.has_encrypted_names();
        let shape = DirectoryShape { any_names, ..DirectoryShape::of(superblock) };
        let is_inline = inode.is_inline();
        let has_index =
            superblock.features().has_compat(compat::DIR_INDEX) && inode.has(flags::INDEX);
        let blocks = if is_inline { 0 } else { blocks };
        Ok(Self { volume, inode, shape, blocks, is_indexed: has_index && !is_inline })
    }

    /// Returns the error for `defect`, in `block` of this directory.
    pub fn corrupt(&self, defect: Defect, block: Option<u64>) -> Error {
        Error::Corrupt(Corruption::at(defect, self.inode.ino(), block))
    }

    /// Returns whether `bytes`, which are not the first block, are a node of the index. Without
    /// checksums, a leaf that lost all its names also has one unused entry of the whole block, but
    /// no counts.
    fn is_node(&self, bytes: &Arc<[u8]>) -> bool {
        looks_like_node(bytes, self.shape)
            && (self.shape.checksums || IndexNode::parse(Arc::clone(bytes), self.shape).is_ok())
    }

    /// Reads block `logical` of it. Returns the length of the hole there, in blocks, if there is
    /// one.
    pub fn block(&self, logical: u32) -> Result<Result<Block, u32>> {
        let run = self.volume.run_at(self.inode, u64::from(logical))?;
        if run.state != RunState::Written {
            return Ok(Err(u32::try_from(run.blocks).unwrap_or(u32::MAX)));
        }
        let number = run.physical;
        let (bytes, is_checked) = self.volume.checked_block(number, number)?;
        let is_index = self.is_indexed && (logical == 0 || self.is_node(&bytes));
        if self.shape.checksums && !is_checked {
            let seed = self.inode.checksum_seed();
            let (is_right, defect) = if is_index {
                (index_checksum_is_right(&bytes, logical == 0, seed), Defect::HashTreeChecksum)
            } else {
                (leaf_checksum_is_right(&bytes, seed), Defect::DirectoryChecksum)
            };
            if !is_right {
                let wrong = || Corruption::at(defect, self.inode.ino(), Some(number));
                self.volume.verify(false, wrong)?;
            }
        }
        Ok(Ok(Block { bytes, number, is_index }))
    }

    fn inline_parts(&self) -> Result<InlineParts<'_>> {
        let (first, second) = self.inode.inline_parts()?;
        let (parent, first) = first.split_at_checked(INLINE_PARENT_BYTES).unwrap_or_default();
        let parent = parent.try_into().map_or(0, u32::from_le_bytes);
        if parent == 0 || parent > self.shape.inodes {
            return Err(self.corrupt(Defect::DirectoryEntry, None));
        }
        let areas = [(first, INLINE_DOTS_BYTES), (second, INLINE_DOTS_BYTES + first.len() as u64)];
        Ok(InlineParts { parent, areas })
    }

    fn find_inline(&self, name: &[u8]) -> Result<Option<Named>> {
        let InlineParts { parent, areas } = self.inline_parts()?;
        match name {
            b"." => return Ok(Some((self.inode.ino(), Some(FileType::Directory)))),
            b".." => return Ok(Some((parent, Some(FileType::Directory)))),
            _ => {}
        }
        for (area, _) in areas {
            let found =
                find(area, self.shape, name).map_err(|defect| self.corrupt(defect, None))?;
            if let Some((named, _)) = found {
                return Ok(Some(named));
            }
        }
        Ok(None)
    }

    fn find_in_block(&self, block: Block, name: &[u8]) -> Result<Option<EntryPlace>> {
        let found = find(&block.bytes, self.shape, name)
            .map_err(|defect| self.corrupt(defect, Some(block.number)))?;
        Ok(found.map(|((ino, file_type), slot)| EntryPlace { ino, file_type, block, slot }))
    }

    /// Searches all blocks for `name`.
    fn find_linearly(&self, name: &[u8]) -> Result<Option<EntryPlace>> {
        let mut logical = 0_u32;
        while logical < self.blocks {
            match self.block(logical)? {
                Ok(block) => {
                    if let Some(place) = self.find_in_block(block, name)? {
                        return Ok(Some(place));
                    }
                    logical += 1;
                }
                Err(missing) => logical = logical.saturating_add(missing),
            }
        }
        Ok(None)
    }

    /// Reads the root of its hash tree. Returns it with the block of the root.
    ///
    /// # Errors
    /// Damage, or an error of the source.
    pub fn root(&self) -> Result<(IndexRoot, u64)> {
        let bad = |number| self.corrupt(Defect::HashTree, number);
        let block = self.block(0)?.map_err(|_| bad(None))?;
        let root =
            IndexRoot::parse(block.bytes, self.shape).map_err(|_| bad(Some(block.number)))?;
        Ok((root, block.number))
    }

    /// Returns the hash function for `version`, from a tree's root or the superblock.
    pub fn hash_kind(&self, version: u8) -> Option<HashKind> {
        HashKind::from_version(version, self.volume.superblock().flags() & UNSIGNED_HASH == 0)
    }

    /// Returns the hash function of a new tree, or `None` if no tree may be made.
    pub fn default_hash_kind(&self) -> Option<HashKind> {
        let superblock = self.volume.superblock();
        let version = superblock.default_hash_version();
        if superblock.features().has_compat(compat::DIR_INDEX) {
            self.hash_kind(version)
        } else {
            None
        }
    }

    /// Returns the hash of `name`, without the minor hash.
    pub fn hash(&self, kind: HashKind, name: &[u8]) -> u32 {
        self.full_hash(kind, name).0
    }

    /// Returns the hash of `name` with the minor hash.
    pub fn full_hash(&self, kind: HashKind, name: &[u8]) -> (u32, u32) {
        kind.full_hash(name, &self.volume.superblock().hash_seed())
    }

    /// Reads the node in block `logical` for a search. Returns it with its entry for `hash`.
    fn step(&self, logical: u32, hash: u32) -> Result<Step, Miss> {
        if logical >= self.blocks {
            return Err(Miss::Malformed);
        }
        let block = self.block(logical)?.map_err(|_| Miss::Malformed)?;
        let node = IndexNode::parse(block.bytes, self.shape).map_err(|_| Miss::Malformed)?;
        Ok(Step { index: node.find(hash), node, number: block.number })
    }

    /// Returns the path through the hash tree for the hash that `hash` computes for its function.
    pub(super) fn descend(&self, hash: impl FnOnce(HashKind) -> u32) -> Result<IndexPath, Miss> {
        let malformed = |error| match error {
            Error::Corrupt(Corruption { defect: Defect::HashTree, .. }) => Miss::Malformed,
            other => Miss::Failed(other),
        };
        let (root, number) = self.root().map_err(malformed)?;
        let kind = self.hash_kind(root.hash_version).ok_or(Miss::Malformed)?;
        let hash = hash(kind);
        let mut steps = vec![Step { index: root.node.find(hash), node: root.node, number }];
        while steps.len() <= root.levels {
            let Some(Step { node, index, .. }) = steps.last() else { return Err(Miss::Malformed) };
            let below = self.step(node.child(*index), hash)?;
            steps.push(below);
        }
        Ok(IndexPath { hash, kind, steps })
    }

    /// Reads the leaf in block `logical`, for a search.
    pub(super) fn leaf(&self, logical: u32) -> Result<Block, Miss> {
        if logical >= self.blocks {
            return Err(Miss::Malformed);
        }
        let block = self.block(logical)?.map_err(|_| Miss::Malformed)?;
        if block.is_index { Err(Miss::Malformed) } else { Ok(block) }
    }

    /// Searches by the hash tree (`ext4_dx_find_entry`).
    fn find_by_index(&self, name: &[u8]) -> Result<Option<EntryPlace>, Miss> {
        let mut path = self.descend(|kind| self.hash(kind, name))?;
        // Each block is at most one leaf, so the search ends even if a tree refers to the same leaf
        // repeatedly.
        for _ in 0..self.blocks {
            let block = self.leaf(path.leaf().ok_or(Miss::Malformed)?)?;
            if let Some(place) = self.find_in_block(block, name)? {
                return Ok(Some(place));
            }
            match path.goes_on() {
                Some(depth) => self.go_on(&mut path, depth)?,
                None => return Ok(None),
            }
        }
        Err(Miss::Malformed)
    }

    /// Advances to the next leaf, whose path differs from `depth` on.
    pub(super) fn go_on(&self, path: &mut IndexPath, depth: usize) -> Result<(), Miss> {
        let steps = &mut path.steps;
        steps[depth].index += 1;
        for below in depth + 1..steps.len() {
            let Step { node, index, .. } = &steps[below - 1];
            steps[below] = Step { index: 0, ..self.step(node.child(*index), path.hash)? };
        }
        Ok(())
    }

    /// Returns the path to the leaf for `name`, and the leaf, for a change of an indexed directory.
    ///
    /// # Errors
    /// [`Defect::HashTree`] if the tree is malformed; other damage, or an error of the source.
    pub fn index_path(&self, name: &[u8]) -> Result<(IndexPath, Block)> {
        let path = self.descend(|kind| self.hash(kind, name));
        let path = path.map_err(|miss| self.no_way_around(miss))?;
        let leaf = path.leaf().ok_or(Miss::Malformed).and_then(|logical| self.leaf(logical));
        Ok((path, leaf.map_err(|miss| self.no_way_around(miss))?))
    }

    /// Returns the place of `name`, for a change of its entry.
    ///
    /// # Errors
    /// [`Defect::HashTree`] if the tree is malformed; other damage, or an error of the source.
    pub fn place(&self, name: &[u8]) -> Result<Option<EntryPlace>> {
        if self.is_indexed && name != b"." && name != b".." {
            return self.find_by_index(name).map_err(|miss| self.no_way_around(miss));
        }
        self.find_linearly(name)
    }

    /// Returns the error of a change: only a reader can continue without the tree.
    pub(super) fn no_way_around(&self, miss: Miss) -> Error {
        match miss {
            Miss::Failed(error) => error,
            Miss::Malformed => self.corrupt(Defect::HashTree, None),
        }
    }

    fn find(&self, name: &[u8]) -> Result<Option<Named>> {
        if self.inode.is_inline() {
            return self.find_inline(name);
        }
        // The index leads to all names but these, which are in the first block.
        if self.is_indexed && name != b"." && name != b".." {
            match self.find_by_index(name) {
                Ok(found) => return Ok(found.map(|place| (place.ino, place.file_type))),
                Err(Miss::Failed(error)) => return Err(error),
                Err(Miss::Malformed) => {}
            }
        }
        Ok(self.find_linearly(name)?.map(|place| (place.ino, place.file_type)))
    }
}

impl<S: Source> Volume<S> {
    /// Returns the inode of `name` in directory `dir`, and its type if the directory stores it.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; [`Error::NameTooLong`]; damage, or an error of the source. A
    /// malformed hash tree is ignored, and all names are searched.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Named>> {
        let dir = Directory::open(self, dir)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        if let Some(changed) =
            self.replayed().names(dir.inode.ino()).and_then(|names| names.get(name))
        {
            return Ok(*changed);
        }
        if name.is_empty() { Ok(None) } else { dir.find(name) }
    }

    /// Returns names in directory `dir`, block by block, from `cookie` on (0, or an entry's). The
    /// result has all names of one block, or none at the end. If there is an index, concurrent
    /// changes move names between blocks; to read a directory in parts, [list](Self::list) it.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; damage, or an error of the source.
    pub fn entries(&self, dir: &Inode, cookie: u64) -> Result<Vec<DirectoryEntry>> {
        let dir = Directory::open(self, dir)?;
        let Some(changed) = self.replayed().names(dir.inode.ino()) else {
            return self.stored_entries(&dir, cookie);
        };
        let mut at = cookie;
        while at < REPLAYED_COOKIE {
            let mut stored = self.stored_entries(&dir, at)?;
            let Some(last) = stored.last() else { break };
            at = last.cookie;
            stored.retain(|entry| !changed.contains_key(&entry.name));
            if !stored.is_empty() {
                return Ok(stored);
            }
        }
        // Entries added by fast commits are in no block, so they come last.
        let known = usize::try_from(cookie.saturating_sub(REPLAYED_COOKIE)).unwrap_or(usize::MAX);
        let added = changed.iter().filter_map(|(name, now)| now.map(|now| (name, now))).skip(known);
        let entries =
            added.zip(known as u64..).map(|((name, (ino, file_type)), place)| DirectoryEntry {
                name: name.clone(),
                ino,
                file_type,
                cookie: REPLAYED_COOKIE + place + 1,
            });
        Ok(entries.collect())
    }

    /// Returns names in directory `dir`, like [`entries`](Self::entries), without the changes of
    /// fast commits.
    fn stored_entries(&self, dir: &Directory<'_, S>, cookie: u64) -> Result<Vec<DirectoryEntry>> {
        if dir.inode.is_inline() {
            return dir.inline_entries(cookie);
        }
        let block_bytes = dir.shape.block_bytes as u64;
        let Ok(mut logical) = u32::try_from(cookie / block_bytes) else { return Ok(Vec::new()) };
        while logical < dir.blocks {
            match dir.block(logical)? {
                Ok(block) => {
                    let mut found = Vec::new();
                    dir.collect(
                        &block.bytes,
                        u64::from(logical) * block_bytes,
                        Some(block.number),
                        cookie,
                        &mut found,
                    )?;
                    if !found.is_empty() {
                        return Ok(found);
                    }
                    logical += 1;
                }
                Err(missing) => logical = logical.saturating_add(missing),
            }
        }
        Ok(Vec::new())
    }
}

impl<S: Source> Directory<'_, S> {
    /// Appends the entries of `area`, whose first byte has offset `base`, from `cookie` on.
    pub(super) fn collect(
        &self,
        area: &[u8],
        base: u64,
        number: Option<u64>,
        cookie: u64,
        found: &mut Vec<DirectoryEntry>,
    ) -> Result<()> {
        for entry in Dirents::new(area, self.shape) {
            let Dirent { offset, bytes, ino, file_type, name } =
                entry.map_err(|defect| self.corrupt(defect, number))?;
            let at = base + offset as u64;
            if ino != 0 && at >= cookie {
                found.push(DirectoryEntry {
                    name: name.to_vec(),
                    ino,
                    file_type,
                    cookie: at + bytes as u64,
                });
            }
        }
        Ok(())
    }

    pub(super) fn inline_entries(&self, cookie: u64) -> Result<Vec<DirectoryEntry>> {
        let InlineParts { parent, areas } = self.inline_parts()?;
        let mut found = Vec::new();
        let dots = [(&b"."[..], self.inode.ino()), (b"..", parent)];
        for (at, (name, ino)) in (0..).step_by(12).zip(dots) {
            if at >= cookie {
                let file_type = Some(FileType::Directory);
                found.push(DirectoryEntry { name: name.to_vec(), ino, file_type, cookie: at + 12 });
            }
        }
        for (area, base) in areas {
            self.collect(area, base, None, cookie, &mut found)?;
        }
        Ok(found)
    }
}
