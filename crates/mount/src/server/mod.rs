//! Executes requests: a function for each kind.

mod answer;
mod attributes;
pub(crate) mod counts;
mod data;
mod directories;
mod extended;
mod handles;
mod ioctl;
mod kept;
mod names;
pub(crate) mod notice;
mod said;
pub(crate) mod short;
#[cfg(test)]
mod tests;
pub(crate) mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use meantime_ext4::{Errno, Error, FileSystem, Lookups, NewNode, Node};

use crate::fuse::wire::{BatchForgetIn, EntryOut, ForgetIn, ForgetOne, InHeader, StatFsOut};
use crate::fuse::{Malformed, Opcode, Request};
use answer::Answer;
use counts::RequestCounts;
use handles::Handles;
use kept::Kept;
use short::Short;

/// Number of the root inode: 1 in FUSE (`FUSE_ROOT_ID`), 2 in ext4.
const FUSE_ROOT: u64 = 1;
const EXT4_ROOT: u32 = 2;

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Self {
        Self(libc::EIO)
    }
}

/// How a mount is served.
#[derive(Debug, Clone)]
pub(crate) struct Serving {
    /// How long the kernel may cache names and attributes.
    pub(crate) timeout: Duration,
    /// Whether each change is durable before it is answered.
    pub(crate) sync: bool,
}

/// A file system that answers FUSE requests.
pub(crate) struct Server {
    fs: FileSystem,
    lookups: Lookups,
    handles: Handles,
    serving: Serving,
    pub(crate) kept: Arc<Kept>,
    /// Epoch of capabilities: from 1, incremented when an inode gets some.
    privileged: AtomicU64,
    pub(crate) counts: Arc<RequestCounts>,
    pub(crate) short: Option<Arc<Short>>,
    /// Pages that the page cache can hold.
    cache_pages: u64,
}

impl Server {
    /// Creates a server of `fs`.
    pub(crate) fn new(
        fs: &FileSystem,
        serving: Serving,
        short: Option<Arc<Short>>,
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
            short,
            cache_pages: fs.cache_counters().capacity_pages as u64,
        })
    }

    /// Executes `request`; the result goes into `answer`.
    fn serve(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<(), Errno> {
        let opcode = Opcode::of(request.header.opcode).ok_or(Errno(libc::ENOSYS))?;
        match opcode {
            Opcode::Lookup => self.lookup(request, answer),
            Opcode::Forget => self.forget(request),
            Opcode::BatchForget => self.forget_batch(request),
            Opcode::Symlink => self.symlink(request, answer),
            Opcode::MkNod => self.mknod(request, answer),
            Opcode::MkDir => self.mkdir(request, answer),
            Opcode::Unlink => self.unlink(request),
            Opcode::RmDir => self.rmdir(request),
            Opcode::Rename => self.rename(request),
            Opcode::Rename2 => self.rename2(request),
            Opcode::Link => self.link(request, answer),
            Opcode::Create => self.create(request, answer),
            Opcode::TmpFile => self.tmpfile(request, answer),

            Opcode::GetAttr => self.getattr(request, answer),
            Opcode::SetAttr => self.setattr(request, answer),
            Opcode::Statx => self.statx(request, answer),
            Opcode::ReadLink => self.readlink(request, answer),
            Opcode::StatFs => self.statfs(answer),

            Opcode::Open => self.open(request, answer),
            Opcode::Read => self.read(request, answer),
            Opcode::Write => self.write(request, answer),
            Opcode::Flush => self.flush(request),
            Opcode::Release | Opcode::ReleaseDir => self.release(request),
            Opcode::Fsync => self.fsync(request),
            Opcode::Fallocate => self.fallocate(request, answer),
            Opcode::Lseek => self.lseek(request, answer),
            Opcode::CopyFileRange => self.copy_file_range(request, answer),
            Opcode::SyncFs => Ok(self.fs.sync()?),

            Opcode::OpenDir => self.opendir(request, answer),
            Opcode::ReadDir => self.readdir(request, answer, false),
            Opcode::ReadDirPlus => self.readdir(request, answer, true),
            Opcode::FsyncDir => Ok(self.fs.sync_node(&self.node(request)?)?),

            Opcode::SetXattr => self.setxattr(request),
            Opcode::GetXattr => self.getxattr(request, answer),
            Opcode::ListXattr => self.listxattr(request, answer),
            Opcode::RemoveXattr => self.removexattr(request),
            Opcode::Ioctl => self.ioctl(request, answer),

            // Every request ends by itself.
            Opcode::Interrupt | Opcode::NotifyReply | Opcode::Destroy => Ok(()),
            // The kernel checks permissions, keeps the locks, and does not poll; we have no DAX
            // window. There is no second INIT.
            Opcode::Access
            | Opcode::GetLk
            | Opcode::SetLk
            | Opcode::SetLkW
            | Opcode::Bmap
            | Opcode::Poll
            | Opcode::SetupMapping
            | Opcode::RemoveMapping
            | Opcode::Init => Err(Errno(libc::ENOSYS)),
        }
    }

    /// Returns the inode of a request.
    fn node(&self, request: &Request<'_>) -> Result<Node, Errno> {
        Ok(self.lookups.get(ino(request.header.nodeid))?)
    }

    /// Returns the answer's entry for `node`. The caller counts the look-up.
    fn entry(&self, node: &Node) -> EntryOut {
        let was_taken = self.was_taken(node.ino());
        let metadata = node.metadata();
        let (entry_valid, entry_valid_nsec) = self.timeout();
        let (attr_valid, attr_valid_nsec) = self.attr_timeout(was_taken, node.ino());
        EntryOut {
            nodeid: nodeid(node.ino()),
            generation: u64::from(metadata.generation),
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: attributes::attr(&metadata),
        }
    }

    fn timeout(&self) -> (u64, u32) {
        (self.serving.timeout.as_secs(), self.serving.timeout.subsec_nanos())
    }

    /// Returns whether programs may have changed `ino` past the kernel since it was opened.
    fn was_taken(&self, ino: u32) -> bool {
        self.short.as_ref().is_some_and(|short| short.was_taken(ino))
    }

    /// How long the kernel may keep the attributes of `ino`: not at all if programs change them
    /// behind its back. `was_taken`: what the function of that name returned before they were read;
    /// it is asked again here, because a program may have taken the file in between.
    fn attr_timeout(&self, was_taken: bool, ino: u32) -> (u64, u32) {
        if was_taken || self.was_taken(ino) { (0, 0) } else { self.timeout() }
    }

    /// Ends a change: on a `sync` mount, makes it durable.
    fn changed(&self) -> Result<(), Errno> {
        if self.serving.sync { Ok(self.fs.sync()?) } else { Ok(()) }
    }

    fn forget(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let forget: ForgetIn = request.take()?;
        self.forget_node(request.header.nodeid, forget.nlookup);
        Ok(())
    }

    fn forget_batch(&self, request: &mut Request<'_>) -> Result<(), Errno> {
        let batch: BatchForgetIn = request.take()?;
        for _ in 0..batch.count {
            let forget: ForgetOne = request.take()?;
            self.forget_node(forget.nodeid, forget.nlookup);
        }
        Ok(())
    }

    fn forget_node(&self, nodeid: u64, count: u64) {
        // The kernel has dropped the inode. What it caches of it later, after another look-up, is
        // noted later, too.
        self.lookups.forget_with(ino(nodeid), count, || self.kept.forget(nodeid));
    }

    fn statfs(&self, answer: &mut Answer) -> Result<(), Errno> {
        let usage = self.fs.usage()?;
        answer.put_as(&StatFsOut {
            blocks: usage.blocks,
            bfree: usage.free_blocks,
            bavail: usage.available_blocks,
            files: usage.inodes,
            ffree: usage.free_inodes,
            bsize: usage.block_bytes,
            namelen: 255,
            frsize: usage.block_bytes,
            ..StatFsOut::default()
        })
    }
}

/// Returns the inode of a FUSE node number; 0, which is no inode, if there can be none.
fn ino(nodeid: u64) -> u32 {
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
fn new_node(header: &InHeader, mode: u32, umask: u32) -> NewNode {
    NewNode {
        mode: (mode & 0o7777) as u16,
        uid: header.uid,
        gid: header.gid,
        umask: (umask & 0o777) as u16,
    }
}
