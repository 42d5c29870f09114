//! A mount's server: the state that the requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use meantime_ext4::{Errno, Error, FileSystem, Lookups, NewNode, Node};

use super::counts::RequestCounts;
use super::handles::Handles;
use super::kept::Kept;
use super::shared_memory::SharedPath;
use crate::fuse::wire::InHeader;
use crate::fuse::{Malformed, Request};

/// Number of the root inode: 1 in FUSE (`FUSE_ROOT_ID`), 2 in ext4.
const FUSE_ROOT: u64 = 1;
const EXT4_ROOT: u32 = 2;

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Self {
        Self(libc::EIO)
    }
}

/// The way in which a mount is served.
#[derive(Debug, Clone)]
pub(crate) struct Serving {
    /// How long the kernel may cache names and attributes.
    pub(crate) timeout: Duration,
    /// Whether each change is durable before it is answered.
    pub(crate) sync: bool,
}

/// A file system that answers FUSE requests.
pub(crate) struct Server {
    pub(super) fs: FileSystem,
    pub(super) lookups: Lookups,
    pub(super) handles: Handles,
    pub(super) serving: Serving,
    pub(crate) kept: Arc<Kept>,
    /// The epoch of capabilities. It begins with 1 and is incremented when an inode gets some.
    pub(super) privileged: AtomicU64,
    pub(crate) counts: Arc<RequestCounts>,
    pub(crate) shm: Option<Arc<SharedPath>>,
    /// Pages that the page cache can hold.
    pub(super) cache_pages: u64,
}

impl Server {
    /// Creates a server of `fs`.
    pub(crate) fn new(
        fs: &FileSystem,
        serving: Serving,
        shm: Option<Arc<SharedPath>>,
    ) -> Result<Self, Error> {
        let lookups = Lookups::new(fs)?;
        Ok(Self {
            fs: fs.clone(),
            lookups,
            handles: Handles::new(),
            serving,
            kept: Arc::new(Kept::new()),
            privileged: AtomicU64::new(1),
            counts: Arc::new(RequestCounts::new()),
            shm,
            cache_pages: fs.cache_counters().capacity_pages as u64,
        })
    }

    /// Returns the inode of a request.
    pub(super) fn node(&self, request: &Request<'_>) -> Result<Node, Errno> {
        Ok(self.lookups.get(ino(request.header.nodeid))?)
    }

    pub(super) fn timeout(&self) -> (u64, u32) {
        (self.serving.timeout.as_secs(), self.serving.timeout.subsec_nanos())
    }

    /// Returns whether programs may have changed `ino` past the kernel since it was opened.
    pub(super) fn was_taken(&self, ino: u32) -> bool {
        self.shm.as_ref().is_some_and(|shm| shm.was_taken(ino))
    }

    /// Returns how long the kernel may keep the attributes of `ino`, which is not at all if
    /// programs change them without its knowledge. `was_taken` is the result of the function of
    /// that name before the attributes were read. The function is called again here, because a
    /// program may have taken the file in between.
    pub(super) fn attr_timeout(&self, was_taken: bool, ino: u32) -> (u64, u32) {
        if was_taken || self.was_taken(ino) { (0, 0) } else { self.timeout() }
    }

    /// Ends a change. On a `sync` mount, makes it durable.
    pub(super) fn changed(&self) -> Result<(), Errno> {
        if self.serving.sync { Ok(self.fs.sync()?) } else { Ok(()) }
    }
}

/// Returns the inode of a FUSE node number, or 0, which is no inode, if there can be none.
pub(super) fn ino(nodeid: u64) -> u32 {
    match nodeid {
        FUSE_ROOT => EXT4_ROOT,
        nodeid => u32::try_from(nodeid).unwrap_or(0),
    }
}

/// Returns the FUSE node number of an inode.
pub(crate) fn nodeid(ino: u32) -> u64 {
    if ino == EXT4_ROOT { FUSE_ROOT } else { u64::from(ino) }
}

/// Returns the properties of an inode that the caller creates and owns.
pub(super) fn new_node(header: &InHeader, mode: u32, umask: u32) -> NewNode {
    NewNode {
        mode: (mode & 0o7777) as u16,
        uid: header.uid,
        gid: header.gid,
        umask: (umask & 0o777) as u16,
    }
}
