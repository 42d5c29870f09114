//! Access to inodes by number, for a FUSE or NFS server.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::ffi::OsStr;
use std::sync::PoisonError;

use super::error::{Error, Result};
use super::fs::{Entry, FileSystem, ReadDir};
use super::inode::Node;
use meantime_ext4_format::ROOT_INO;
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Identifies an inode for all time: its number, which is reused, and its generation, which is then
/// a different one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId {
    /// Inode number.
    pub ino: u32,
    /// Generation.
    pub generation: u32,
}

impl Node {
    /// The inode's number and generation.
    pub fn id(&self) -> NodeId {
        NodeId { ino: self.ino(), generation: self.inode.last_snapshot().metadata.generation }
    }
}

impl FileSystem {
    /// Returns inode `id`. On a mount for writing, an inode without names is found only while a
    /// reference to it exists.
    ///
    /// # Errors
    /// [`Error::Stale`] if the inode was deleted or never existed; damage, or a device error.
    pub fn node(&self, id: NodeId) -> Result<Node> {
        let superblock = self.mount.volume.superblock();
        let is_own = superblock.is_reserved(id.ino) && id.ino != ROOT_INO;
        if id.ino == 0 || id.ino > superblock.inodes() || is_own {
            return Err(Error::Stale);
        }
        let node = match self.inode(id.ino) {
            Err(Error::NotFound) => return Err(Error::Stale),
            found => found?,
        };
        let is_free = node.inode.writable.is_none() && node.inode.last_snapshot().on_disk.is_free();
        if is_free || node.id() != id { Err(Error::Stale) } else { Ok(node) }
    }
}

/// The number of locks that share the inode numbers.
const SHARDS: usize = 16;

/// Look-up counts by inode number, for a FUSE kernel: the kernel counts the look-ups it was
/// answered, and reports when it forgets some of them. A counted inode is not deleted, and its
/// number is not reused. The root is always present and not counted.
///
/// Dropping this forgets all counts, because a kernel does not report them at the end of a mount.
#[derive(Debug)]
pub struct Lookups {
    fs: FileSystem,
    root: Node,
    shards: [Mutex<HashMap<u32, (Node, u64)>>; SHARDS],
}

impl Lookups {
    /// Creates an empty table for `fs`.
    ///
    /// # Errors
    /// The errors of [`FileSystem::root`].
    pub fn new(fs: &FileSystem) -> Result<Self> {
        let shards = std::array::from_fn(|_| Mutex::new(Rank::Lookups, HashMap::new()));
        Ok(Self { fs: fs.clone(), root: fs.root()?, shards })
    }

    fn shard(&self, ino: u32) -> MutexGuard<'_, HashMap<u32, (Node, u64)>> {
        // The map is consistent after each step.
        self.shards[ino as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns counted inode `ino`, or the root.
    ///
    /// # Errors
    /// [`Error::Stale`] if `ino` is not counted.
    pub fn get(&self, ino: u32) -> Result<Node> {
        if ino == ROOT_INO {
            return Ok(self.root.clone());
        }
        self.shard(ino).get(&ino).map(|(node, _)| node.clone()).ok_or(Error::Stale)
    }

    /// Looks up `name` in directory `parent`, and counts the result.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get) and [`FileSystem::lookup`].
    pub fn lookup(&self, parent: u32, name: &OsStr) -> Result<Node> {
        let node = self.fs.lookup(&self.get(parent)?, name)?;
        self.count(&node);
        Ok(node)
    }

    /// Counts `node` once more: it was returned by an operation that created it, or by a listing.
    pub fn count(&self, node: &Node) {
        if node.ino() == ROOT_INO {
            return;
        }
        match self.shard(node.ino()).entry(node.ino()) {
            Place::Occupied(mut there) => there.get_mut().1 += 1,
            Place::Vacant(place) => drop(place.insert((node.clone(), 1))),
        }
    }

    /// Forgets inode `ino` `count` times. At a count of 0 its reference is dropped. That deletes an
    /// inode without names, unless another reference to it is left.
    pub fn forget(&self, ino: u32, count: u64) {
        self.forget_with(ino, count, || ());
    }

    /// Forgets inode `ino` `count` times, like [`forget`](Self::forget). At a count of 0 it calls
    /// `then`, before the inode can be counted again.
    pub fn forget_with(&self, ino: u32, count: u64, then: impl FnOnce()) {
        // The node is dropped after the lock is released, because a deletion changes metadata.
        let _forgotten = match self.shard(ino).entry(ino) {
            Place::Occupied(mut there) if there.get().1 > count => {
                there.get_mut().1 -= count;
                None
            }
            Place::Occupied(there) => {
                then();
                Some(there.remove())
            }
            Place::Vacant(_) => None,
        };
    }

    /// The number of counted inodes.
    pub fn len(&self) -> usize {
        (0..SHARDS).map(|shard| self.shard(shard as u32).len()).sum()
    }

    /// Whether no inode is counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadDir {
    /// Returns the next name with its inode, as a look-up would return it now. So a listing can
    /// include attributes. `.` and `..` have no inode, nor does a name whose inode cannot be read;
    /// a look-up returns the reason. Skips a name that was removed since it was listed.
    pub fn next_with_node(&mut self) -> Option<Result<(Entry, Option<Node>)>> {
        loop {
            let mut entry = match self.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            if entry.name == "." || entry.name == ".." {
                return Some(Ok((entry, None)));
            }
            match self.node_of(&entry) {
                Ok(node) => {
                    // By now the name may lead to another inode.
                    (entry.ino, entry.file_type) = (node.ino(), Some(node.file_type()));
                    return Some(Ok((entry, Some(node))));
                }
                Err(Error::NotFound) if self.node.inode.writable.is_some() => {}
                Err(_) => return Some(Ok((entry, None))),
            }
        }
    }

    fn node_of(&self, entry: &Entry) -> Result<Node> {
        let Node { mount, inode } = &self.node;
        let fs = FileSystem { mount: mount.clone() };
        let found = fs.linked(entry.ino);
        // If no name was added or removed since the listing, the name still leads to this number;
        // and while a node of it exists, the number is not reused.
        if inode.writable.is_none() || found.is_ok() && inode.version() == self.version {
            return found;
        }
        fs.lookup(&self.node, &entry.name)
    }
}
