//! The check for damage: tests whether all structures reachable from the superblock are sound, and
//! agree with the bitmaps and counts.
//!
//! The check reads structures in the order in which they refer to one another, so that a defect is
//! reported with the path of its file. It begins with group descriptors and the file system's own
//! inodes. Then come directories from the root on, with everything they name, and inodes without a
//! name. At the end come the bitmaps and the counts, which must agree with the findings. (e2fsck's
//! passes find the same in the order of the disk.)
//!
//! The disk may be malicious. Memory and time are therefore bounded by the size of the file system,
//! regardless of the sizes and pointers on it. Blocks may be mapped many times over, but no file
//! read here, nor all directories together, can be larger than the file system. Memory holds bits
//! for each block and inode, some bytes for each inode in use, and 32 MiB of names at a time; with
//! `bigalloc`, and without checksums, also some bytes for each node of an extent tree.

mod blocks;
mod fields;
mod groups;
mod inodes;
mod names;
mod quota;
mod repeated;
mod replayed;
mod resize;
mod sets;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::extents::NodePlace;
use crate::{Corruption, Defect, Error, Result};
use crate::{Inode, RawSuperblock, Source, Volume, features};
use blocks::Part;
use quota::Usage;
use sets::{Bits, LinksOf};

/// A defect found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The defect, and its place.
    pub corruption: Corruption,
    /// The path of the inode, if it has one.
    pub path: Option<PathBuf>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.corruption.fmt(f)
    }
}

/// A summary of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Whether the check is complete; false if the caller stopped it.
    pub complete: bool,
    /// Number of defects found.
    pub findings: u64,
    /// Inodes in use, including the file system's own.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub others: u64,
    /// Blocks in use. With `bigalloc`, all blocks of a cluster are in use together.
    pub blocks: u64,
    /// Inodes that could only be checked in part, since they use an unsupported feature.
    pub unsupported: u64,
    /// Whether the superblock's totals of free blocks and inodes are not those of the groups. This
    /// is no defect: a mount computes them from the groups.
    pub stale_totals: bool,
}

/// An event reported to the caller during the check.
#[derive(Debug)]
pub enum Event<'a> {
    /// A defect was found.
    Found(&'a Finding),
    /// The number of inodes checked so far.
    Progress {
        /// Checked so far.
        inodes: u64,
        /// In use, according to the superblock.
        of: u64,
    },
}

/// The reason why the check ends early.
enum Stop {
    /// The caller stopped it.
    Asked,
    /// The device failed, or memory is exhausted.
    Failed(Error),
}

type Step<T = ()> = Result<T, Stop>;

/// Number of steps between two calls that ask whether to continue.
const STEPS: u32 = 16;

/// Checks a volume for damage.
pub struct Checker<'a, S: Source> {
    volume: &'a Volume<S>,
    watch: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    summary: Summary,
    /// The primary superblock, or the backup that is used instead of it.
    raw: Box<RawSuperblock>,
    steps: u32,
    /// Clusters in use.
    used: Bits,
    /// The clusters of the file system itself. They are also in `used`.
    own: Bits,
    /// Inodes that were reached, or that are the file system's own.
    seen: Bits,
    links: LinksOf,
    /// The remaining number of directory blocks that may be read. It bounds the check, because each
    /// block belongs to one directory.
    directory_blocks: u64,
    /// Directories by group.
    directories: HashMap<u32, u32>,
    /// Orphans: inodes being deleted or truncated.
    orphans: HashSet<u32>,
    /// Clusters that are not compared with the bitmaps: those that fast commits added, and those
    /// that belonged to the inodes before fast commits changed them.
    replayed: Bits,
    /// The usage of each user, group and project, or `None` without quota files.
    usage: Option<Box<[Usage; 3]>>,
    /// Attribute blocks, which inodes may share: the stored reference count, and the number found.
    shared: HashMap<u64, (u32, u32)>,
    /// Subtrees of extent trees that several inodes may share: by the block of the top node, its
    /// place in the tree, and the result.
    parts: HashMap<u64, (NodePlace, Rc<Part>)>,
}

impl<'a, S: Source> Checker<'a, S> {
    /// Creates a check of `volume` that reports to `watch`.
    ///
    /// # Errors
    /// Fails if the superblock cannot be read again.
    pub fn new(
        volume: &'a Volume<S>,
        watch: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Self> {
        let superblock = volume.superblock();
        let mut raw = Box::new(superblock.raw().clone());
        if !volume.is_from_backup() {
            // The superblock is read again, because some fields change while it is mounted for
            // writing.
            let block = volume.block(superblock.primary_block())?;
            *raw = RawSuperblock::in_block(&block).unwrap_or(*raw);
        }
        let keeps_account = superblock.features().has_ro_compat(features::ro_compat::QUOTA)
            && volume.replayed().before().is_empty();
        Ok(Self {
            volume,
            watch,
            summary: Summary::default(),
            raw,
            steps: 0,
            used: Bits::default(),
            own: Bits::default(),
            seen: Bits::default(),
            links: LinksOf::default(),
            directory_blocks: superblock.blocks(),
            directories: HashMap::new(),
            orphans: HashSet::new(),
            replayed: Bits::default(),
            usage: keeps_account.then(Box::default),
            shared: HashMap::new(),
            parts: HashMap::new(),
        })
    }

    /// Runs the check.
    ///
    /// # Errors
    /// Fails if the source fails, or memory is exhausted. Damage is not an error.
    pub fn run(mut self) -> Result<Summary> {
        match self.everything() {
            Ok(()) => self.summary.complete = true,
            Err(Stop::Asked) => {}
            Err(Stop::Failed(error)) => return Err(error),
        }
        Ok(self.summary)
    }

    fn everything(&mut self) -> Step {
        self.superblock_fields()?;
        self.own_blocks()?;
        self.before_fast_commits()?;
        self.list_orphans()?;
        self.own_inodes()?;
        self.names_from_root()?;
        self.orphans()?;
        self.unnamed()?;
        self.attribute_references()?;
        self.link_counts()?;
        self.quotas()?;
        self.bitmaps()
    }

    /// Returns the inode of the orphan file, or 0 if there is none.
    fn orphan_file(&self) -> u32 {
        let has = self.volume.superblock().features().has_compat(features::compat::ORPHAN_FILE);
        if has { self.raw.orphan_file_inum.get() } else { 0 }
    }

    /// Returns the inodes of the quota files of users, groups and projects, or 0 where there is
    /// none.
    fn quota_files(&self) -> [u32; 3] {
        let has = self.volume.superblock().features().has_ro_compat(features::ro_compat::QUOTA);
        let raw = &self.raw;
        let files = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        files.map(|ino| if has && ino.get() <= raw.inodes_count.get() { ino.get() } else { 0 })
    }

    /// Returns the block count of `inode`, if the file system has that many.
    fn blocks_within(&self, inode: &Inode) -> Option<u64> {
        let superblock = self.volume.superblock();
        let blocks = inode.size().div_ceil(u64::from(superblock.block_bytes()));
        Some(blocks).filter(|blocks| *blocks <= superblock.blocks())
    }

    /// Counts a step.
    fn tick(&mut self) -> Step {
        self.steps += 1;
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        let of = self.volume.superblock().inodes().saturating_sub(self.raw.free_inodes_count.get());
        self.report(Event::Progress { inodes: self.summary.inodes, of: u64::from(of) })
    }

    fn report(&mut self, event: Event<'_>) -> Step {
        match (self.watch)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stop::Asked),
        }
    }

    /// Reports a defect.
    fn found(&mut self, corruption: Corruption, path: Option<&Path>) -> Step {
        self.summary.findings += 1;
        let path = path.filter(|_| corruption.ino.is_some()).map(ToOwned::to_owned);
        self.report(Event::Found(&Finding { corruption, path }))
    }

    /// Reports `defect` in inode `ino`.
    fn wrong(&mut self, defect: Defect, ino: u32, path: Option<&Path>) -> Step {
        self.found(Corruption::new(defect).in_inode(ino), path)
    }

    /// Reads block `block`. `ino` and `path` are those for [`sound`](Self::sound).
    fn block(
        &mut self,
        block: u64,
        ino: Option<u32>,
        path: Option<&Path>,
    ) -> Step<Option<Arc<[u8]>>> {
        self.sound(self.volume.block(block), ino, path)
    }

    /// Reads inode `ino`.
    fn inode(&mut self, ino: u32, path: Option<&Path>) -> Step<Option<Inode>> {
        self.sound(self.volume.inode(ino), Some(ino), path)
    }

    /// Returns the value of `result`. If it is damage, reports that and returns no value.
    fn sound<T>(
        &mut self,
        result: Result<T>,
        ino: Option<u32>,
        path: Option<&Path>,
    ) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Corrupt(corruption)) => {
                let corruption = ino.map_or(corruption, |ino| corruption.in_inode(ino));
                self.found(corruption, path).map(|()| None)
            }
            Err(Error::Unsupported(_)) => {
                self.summary.unsupported += 1;
                Ok(None)
            }
            Err(error @ Error::Source(_)) => Err(Stop::Failed(error)),
            // These are other errors that invalid contents cause.
            Err(_) => {
                let mut corruption = Corruption::new(Defect::InodeField("content"));
                corruption.ino = ino;
                self.found(corruption, path).map(|()| None)
            }
        }
    }
}
