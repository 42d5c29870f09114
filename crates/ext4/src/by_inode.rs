//! Inodes by number, for a FUSE or NFS server.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::ffi::OsStr;
use std::sync::PoisonError;

use super::error::Error;
use super::fs::{Entry, FileSystem, ReadDir};
use super::inode::Node;
use meantime_ext4_format::ROOT_INO;
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// What tells an inode from all that ever were: its number, which is used again, and its
/// generation, which is another one then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId {
    /// Inode number.
    pub ino: u32,
    /// Generation.
    pub generation: u32,
}

impl Node {
    /// Number and generation.
    pub fn id(&self) -> NodeId {
        NodeId { ino: self.ino(), generation: self.inode.last_snapshot().metadata.generation }
    }
}

impl FileSystem {
    /// The inode `id`, whether a name leads to it or not: on a mount for writing, one to which none
    /// leads only as long as somebody has it.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is no more, or never was; damage, or the device.
    pub fn node(&self, id: NodeId) -> Result<Node, Error> {
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

/// So many locks share the numbers.
const SHARDS: usize = 16;

/// The inodes that somebody else was told of, by number, and how often each: a kernel counts the
/// look-ups that it was answered, and says when it forgets some of them. As long as one is counted
/// it is not deleted, and its number is no other's. The root is always there, uncounted.
///
/// What is still counted when this is dropped is forgotten: at the end of a mount a kernel does not
/// say so.
#[derive(Debug)]
pub struct Lookups {
    fs: FileSystem,
    root: Node,
    shards: [Mutex<HashMap<u32, (Node, u64)>>; SHARDS],
}

impl Lookups {
    /// Of `fs`; nothing was told yet.
    ///
    /// # Errors
    /// As [`FileSystem::root`].
    pub fn new(fs: &FileSystem) -> Result<Self, Error> {
        let shards = std::array::from_fn(|_| Mutex::new(Rank::Lookups, HashMap::new()));
        Ok(Self { fs: fs.clone(), root: fs.root()?, shards })
    }

    fn shard(&self, ino: u32) -> MutexGuard<'_, HashMap<u32, (Node, u64)>> {
        // Whole after each step.
        self.shards[ino as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode of number `ino`, which was told of and not forgotten.
    ///
    /// # Errors
    /// [`Error::Stale`] for any other.
    pub fn get(&self, ino: u32) -> Result<Node, Error> {
        if ino == ROOT_INO {
            return Ok(self.root.clone());
        }
        self.shard(ino).get(&ino).map(|(node, _)| node.clone()).ok_or(Error::Stale)
    }

    /// What `name` in directory `parent` is, which is counted.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`FileSystem::lookup`].
    pub fn lookup(&self, parent: u32, name: &OsStr) -> Result<Node, Error> {
        let node = self.fs.lookup(&self.get(parent)?, name)?;
        self.count(&node);
        Ok(node)
    }

    /// `node` is told of once more: by the answer to whatever made it, or by a listing.
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
        // Dropped when the lock is not held any more: a deletion changes metadata.
        let _forgotten = match self.shard(ino).entry(ino) {
            Place::Occupied(mut there) if there.get().1 > count => {
                there.get_mut().1 -= count;
                None
            }
            Place::Occupied(there) => Some(there.remove()),
            Place::Vacant(_) => None,
        };
    }

    /// How many inodes are counted.
    pub fn len(&self) -> usize {
        (0..SHARDS).map(|shard| self.shard(shard as u32).len()).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadDir {
    /// The next name, with its inode: what a look-up of it would give now. (So its attributes can
    /// be told with it.) There is none for `.` and `..`, nor for what cannot be read, of which a
    /// look-up says why. A name that is gone since it was listed is left out.
    pub fn next_with_node(&mut self) -> Option<Result<(Entry, Option<Node>), Error>> {
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
                    // Another one has the name since, perhaps.
                    (entry.ino, entry.file_type) = (node.ino(), Some(node.file_type()));
                    return Some(Ok((entry, Some(node))));
                }
                Err(Error::NotFound) if self.node.inode.writable.is_some() => {}
                Err(_) => return Some(Ok((entry, None))),
            }
        }
    }

    fn node_of(&self, entry: &Entry) -> Result<Node, Error> {
        let Node { mount, inode } = &self.node;
        let fs = FileSystem { mount: mount.clone() };
        let found = fs.linked(entry.ino);
        // If no name came or went since it was listed, the name leads to what has the number; and
        // as long as there is a node of it, nothing else has.
        if inode.writable.is_none() || found.is_ok() && inode.version() == self.version {
            return found;
        }
        fs.lookup(&self.node, &entry.name)
    }
}
