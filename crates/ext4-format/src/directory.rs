//! Directories: names found by their index or one after another, and listed.

use std::sync::Arc;

use super::dirent::{
    DirectoryShape, Dirent, Dirents, NAME_BYTES_MAX, find, leaf_checksum_is_right,
};
use super::features::compat;
use super::hash::HashKind;
use super::htree::{IndexNode, IndexRoot, index_checksum_is_right, looks_like_node};
use super::inode::{Inode, flags};
use super::mapping::RunState;
use super::source::Source;
use super::volume::Volume;
use crate::FileType;
use crate::error::{Corruption, Defect, Error, Result};

/// `s_flags`: hashes take characters as unsigned (`EXT2_FLAGS_UNSIGNED_HASH`).
const UNSIGNED_HASH: u32 = 0x2;

/// Of a small directory that is in its inode: `.` and `..` are not stored, but count as this many
/// bytes.
const INLINE_DOTS_BYTES: u64 = 24;
/// The parent's inode number comes first (`EXT4_INLINE_DOTDOT_SIZE`).
const INLINE_PARENT_BYTES: usize = 4;

/// Entries that fast commits added count from here on: behind what any directory has.
const REPLAYED_COOKIE: u64 = 1 << 62;

/// The inode that a name leads to, and its type if the directory says so.
pub type Named = (u32, Option<FileType>);

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name; `.` and `..` are among them.
    pub name: Vec<u8>,
    /// Its inode.
    pub ino: u32,
    /// What it is, if the directory says so.
    pub file_type: Option<FileType>,
    /// Where the next one begins: a byte of the directory ([`Volume::entries`]), or a full hash
    /// ([`Volume::list`]).
    pub cookie: u64,
}

/// A block of a directory, its checksum seen to.
pub struct Block {
    /// What is in it.
    pub bytes: Arc<[u8]>,
    /// Its number in the file system.
    pub number: u64,
    /// It is of the hash tree: there are no names in it, or only `.` and `..`.
    pub is_index: bool,
}

/// Where a name is.
pub struct EntryPlace {
    /// The inode that it names.
    pub ino: u32,
    /// What that is, if the entry says so.
    pub file_type: Option<FileType>,
    /// The block that has its entry.
    pub block: Block,
}

/// A directory that can be read.
pub struct Directory<'a, S: Source> {
    volume: &'a Volume<S>,
    /// Its inode.
    pub inode: &'a Inode,
    /// How its blocks are laid out.
    pub shape: DirectoryShape,
    /// How many blocks it has.
    pub blocks: u32,
    /// It has a hash tree.
    pub is_indexed: bool,
}

/// A directory that is in its inode.
struct InlineParts<'a> {
    /// The inode of `..`.
    parent: u32,
    /// Two areas with entries, and the byte of the directory that each one's first counts as.
    areas: [(&'a [u8], u64); 2],
}

/// A node on the way from the root of an index to a leaf, and which of its entries leads on.
pub struct Step {
    /// The node.
    pub node: IndexNode,
    /// The entry that leads on.
    pub index: usize,
    /// The node's block in the file system.
    pub number: u64,
}

/// The way that an index shows to names of one hash.
pub struct IndexPath {
    /// The hash.
    pub hash: u32,
    /// Which hash function the tree has.
    pub kind: HashKind,
    /// From the root on.
    pub steps: Vec<Step>,
}

impl IndexPath {
    /// The block of the directory that it leads to.
    pub fn leaf(&self) -> Option<u32> {
        self.steps.last().map(|step| step.node.child(step.index))
    }

    /// From which hash on names are in that block, and up to which (`None`: all), as the entries on
    /// the way say; nothing if they contradict each other.
    pub fn range(&self) -> Option<(u32, Option<u32>)> {
        self.steps.iter().try_fold((0, None), |(low, high), Step { node, index, .. }| {
            let from = if *index == 0 { low } else { node.hash(*index) };
            let to = if index + 1 < node.count() { Some(node.hash(index + 1)) } else { high };
            let is_within = high.is_none_or(|high| to.is_some_and(|to| to <= high));
            (node.is_sorted() && low <= from && is_within).then_some((from, to))
        })
    }

    /// From which hash on names are in the leaf after it, and at which depth its way leaves this
    /// one; `None`: it is the last.
    pub fn next(&self) -> Option<(u32, usize)> {
        let depth = self.steps.iter().rposition(|step| step.index + 1 < step.node.count())?;
        let step = &self.steps[depth];
        Some((step.node.hash(step.index + 1), depth))
    }
}

/// Why a search by the index gave nothing.
pub(super) enum Miss {
    /// The tree is malformed: the names are still there.
    Malformed,
    Failed(Error),
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<'a, S: Source> Directory<'a, S> {
    /// The directory that `inode` is.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; damage.
    pub fn open(volume: &'a Volume<S>, inode: &'a Inode) -> Result<Self> {
        if inode.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        inode.check_supported()?;
        let superblock = volume.superblock();
        let block_bytes = superblock.block_bytes();
        // A directory has no holes, so that it is never longer than its file system; this bounds
        // every loop over its blocks.
        let blocks = inode.size().div_ceil(u64::from(block_bytes));
        let blocks =
            u32::try_from(blocks).ok().filter(|blocks| u64::from(*blocks) <= superblock.blocks());
        let blocks = blocks.ok_or_else(|| {
            Corruption::new(Defect::InodeField("size of a directory")).in_inode(inode.ino())
        })?;
        let shape = DirectoryShape::of(superblock);
        let is_inline = inode.is_inline();
        let has_index =
            superblock.features().has_compat(compat::DIR_INDEX) && inode.has(flags::INDEX);
        let blocks = if is_inline { 0 } else { blocks };
        Ok(Self { volume, inode, shape, blocks, is_indexed: has_index && !is_inline })
    }

    /// `defect`, in `block` of this directory.
    pub fn corrupt(&self, defect: Defect, block: Option<u64>) -> Error {
        Error::Corrupt(Corruption::at(defect, self.inode.ino(), block))
    }

    /// Whether `bytes`, which are not the first block, are a node of the index. Without checksums,
    /// a leaf that lost all its names has one unused entry of the whole block, too, but no counts.
    fn is_node(&self, bytes: &Arc<[u8]>) -> bool {
        looks_like_node(bytes, self.shape)
            && (self.shape.checksums || IndexNode::parse(Arc::clone(bytes), self.shape).is_ok())
    }

    /// Block `logical` of it, or how many blocks from there on are not there.
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
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn find_in_block(&self, block: &Block, name: &[u8]) -> Result<Option<Named>> {
        find(&block.bytes, self.shape, name)
            .map_err(|defect| self.corrupt(defect, Some(block.number)))
    }

    /// Looks through all blocks.
    fn find_linearly(&self, name: &[u8]) -> Result<Option<EntryPlace>> {
        let mut logical = 0_u32;
        while logical < self.blocks {
            match self.block(logical)? {
                Ok(block) => {
                    if let Some((ino, file_type)) = self.find_in_block(&block, name)? {
                        return Ok(Some(EntryPlace { ino, file_type, block }));
                    }
                    logical += 1;
                }
                Err(missing) => logical = logical.saturating_add(missing),
            }
        }
        Ok(None)
    }

    /// The root of its hash tree, and the block that it is in.
    ///
    /// # Errors
    /// Damage, or the source.
    pub fn root(&self) -> Result<(IndexRoot, u64)> {
        let bad = |number| self.corrupt(Defect::HashTree, number);
        let block = self.block(0)?.map_err(|_| bad(None))?;
        let root =
            IndexRoot::parse(block.bytes, self.shape).map_err(|_| bad(Some(block.number)))?;
        Ok((root, block.number))
    }

    /// Which hash `version` is, of a tree's root or of the superblock.
    pub fn hash_kind(&self, version: u8) -> Option<HashKind> {
        HashKind::from_version(version, self.volume.superblock().flags() & UNSIGNED_HASH == 0)
    }

    /// Which hash a tree is sorted by that it may get, or gets; `None`: it gets none.
    pub fn default_hash_kind(&self) -> Option<HashKind> {
        let superblock = self.volume.superblock();
        let version = superblock.default_hash_version();
        if superblock.features().has_compat(compat::DIR_INDEX) {
            self.hash_kind(version)
        } else {
            None
        }
    }

    /// The hash of `name`, without the minor hash.
    pub fn hash(&self, kind: HashKind, name: &[u8]) -> u32 {
        self.full_hash(kind, name).0
    }

    /// With the minor hash.
    pub fn full_hash(&self, kind: HashKind, name: &[u8]) -> (u32, u32) {
        kind.full_hash(name, &self.volume.superblock().hash_seed())
    }

    /// The node in block `logical`, and which of its entries `hash` leads to, for a search.
    fn step(&self, logical: u32, hash: u32) -> Result<Step, Miss> {
        if logical >= self.blocks {
            return Err(Miss::Malformed);
        }
        let block = self.block(logical)?.map_err(|_| Miss::Malformed)?;
        let node = IndexNode::parse(block.bytes, self.shape).map_err(|_| Miss::Malformed)?;
        Ok(Step { index: node.find(hash), node, number: block.number })
    }

    /// Where the hash tree says that names are with the hash that `hash` makes of its kind.
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

    /// The leaf in block `logical`, for a search.
    pub(super) fn leaf(&self, logical: u32) -> Result<Block, Miss> {
        if logical >= self.blocks {
            return Err(Miss::Malformed);
        }
        let block = self.block(logical)?.map_err(|_| Miss::Malformed)?;
        if block.is_index { Err(Miss::Malformed) } else { Ok(block) }
    }

    /// Looks where the hash tree says (`ext4_dx_find_entry`).
    fn find_by_index(&self, name: &[u8]) -> Result<Option<EntryPlace>, Miss> {
        let mut path = self.descend(|kind| self.hash(kind, name))?;
        // Each block is one leaf at most, so that a tree which leads to the same one again and
        // again comes to an end.
        for _ in 0..self.blocks {
            let block = self.leaf(path.leaf().ok_or(Miss::Malformed)?)?;
            if let Some((ino, file_type)) = self.find_in_block(&block, name)? {
                return Ok(Some(EntryPlace { ino, file_type, block }));
            }
            match path.next() {
                Some((hash, depth)) if hash == path.hash | 1 => self.go_on(&mut path, depth)?,
                _ => return Ok(None),
            }
        }
        Err(Miss::Malformed)
    }

    /// Goes to the next leaf, to which the way is another from `depth` on.
    pub(super) fn go_on(&self, path: &mut IndexPath, depth: usize) -> Result<(), Miss> {
        let steps = &mut path.steps;
        steps[depth].index += 1;
        for below in depth + 1..steps.len() {
            let Step { node, index, .. } = &steps[below - 1];
            steps[below] = Step { index: 0, ..self.step(node.child(*index), path.hash)? };
        }
        Ok(())
    }

    /// The path to the leaf that `name` belongs to, and the leaf, for a change of an indexed
    /// directory.
    ///
    /// # Errors
    /// [`Defect::HashTree`]: the tree is malformed. Damage, or the device.
    pub fn index_path(&self, name: &[u8]) -> Result<(IndexPath, Block)> {
        let path = self.descend(|kind| self.hash(kind, name));
        let path = path.map_err(|miss| self.no_way_around(miss))?;
        let leaf = path.leaf().ok_or(Miss::Malformed).and_then(|logical| self.leaf(logical));
        Ok((path, leaf.map_err(|miss| self.no_way_around(miss))?))
    }

    /// The block that has `name`, for a change of its entry.
    ///
    /// # Errors
    /// As [`index_path`](Self::index_path).
    pub fn place(&self, name: &[u8]) -> Result<Option<EntryPlace>> {
        if self.is_indexed && name != b"." && name != b".." {
            return self.find_by_index(name).map_err(|miss| self.no_way_around(miss));
        }
        self.find_linearly(name)
    }

    /// The error for a change: only a reader can go on without the tree.
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
    /// The inode that `name` in directory `dir` is, and what it is if the directory says so.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; [`Error::NameTooLong`]; damage, or the device. A malformed hash
    /// tree is ignored: all names are searched.
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

    /// Names in directory `dir`, block after block, from `cookie` on (0, or an entry's), as many as
    /// there are in one; none at the end. Changes meanwhile move names from block to block where
    /// there is an index: to read a directory in parts, [list](Self::list) it.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; damage, or the device.
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
        // What fast commits added is in no block: it comes last.
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

    /// As [`entries`](Self::entries), without what fast commits changed.
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
    /// Appends the entries of `area`, whose first byte counts as `base`, from `cookie` on.
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
