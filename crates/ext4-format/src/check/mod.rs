//! Looking for damage: whether all that the superblock leads to is sound, and agrees with what the
//! bitmaps and counts say.
//!
//! It reads the structures in the order in which they lead to one another, so that a defect comes
//! with the path of its file: group descriptors; the file system's own inodes; directories from the
//! root on, with everything they name; inodes without a name; and then the bitmaps and the counts,
//! which must say what was found. (e2fsck's passes find the same in the order of the disk.)
//!
//! The disk may have been made to do harm. So memory and time are bounded by the size of the file
//! system, whatever the sizes and pointers in it say: blocks may be mapped many times over, but no
//! file that is read here, nor all directories together, can be larger than the file system. (In
//! memory are bits for each block and inode, some bytes for each inode in use, and 32 MiB of names
//! at a time; with `bigalloc`, and without checksums, some bytes for each node of a tree of
//! extents.)

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

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What, and where.
    pub corruption: Corruption,
    /// The path of the inode, if a name leads to it.
    pub path: Option<PathBuf>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.corruption.fmt(f)
    }
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Whether all of it was; false if the caller stopped the check.
    pub complete: bool,
    /// Defects found.
    pub findings: u64,
    /// Inodes in use, the file system's own included.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub others: u64,
    /// Blocks in use, in units of what the bitmaps count: blocks, or with `bigalloc` clusters.
    pub blocks: u64,
    /// Inodes of which not everything could be looked at, since they use what is not supported.
    pub unsupported: u64,
}

/// What the caller learns meanwhile.
#[derive(Debug)]
pub enum Event<'a> {
    /// Something is wrong.
    Found(&'a Finding),
    /// How many inodes have been looked at.
    Progress {
        /// Looked at.
        inodes: u64,
        /// In use, as the superblock has it.
        of: u64,
    },
}

/// Why it does not go on.
enum Stop {
    /// The caller stopped it.
    Asked,
    /// The device failed, or memory did.
    Failed(Error),
}

type Step<T = ()> = Result<T, Stop>;

/// After this many steps the caller is asked whether to go on.
const STEPS: u32 = 16;

/// Looks for damage in a volume.
pub struct Checker<'a, S: Source> {
    volume: &'a Volume<S>,
    watch: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    summary: Summary,
    /// The primary superblock, or the backup in its stead.
    raw: Box<RawSuperblock>,
    steps: u32,
    /// Clusters that something uses.
    used: Bits,
    /// Those of them that the file system itself uses.
    own: Bits,
    /// Inodes that something leads to, or that are the file system's own.
    seen: Bits,
    links: LinksOf,
    /// Blocks of directories that can still be read: a block is one directory's.
    directory_blocks: u64,
    /// Directories by group.
    directories: HashMap<u32, u32>,
    /// Inodes that are being deleted or truncated.
    orphans: HashSet<u32>,
    /// What bitmaps and counts do not know of: clusters that fast commits gave, or that their
    /// inodes had before.
    unsettled: Bits,
    /// What each user, group and project has; nothing without quota files.
    usage: Option<Box<[Usage; 3]>>,
    /// Attribute blocks, which several inodes may share: what the block says of that, and how many
    /// do.
    shared: HashMap<u64, (u32, u32)>,
    /// Parts of extent trees that several inodes may lead to: by the block of its first node, where
    /// in a tree that is, and what was found.
    parts: HashMap<u64, (NodePlace, Rc<Part>)>,
}

impl<'a, S: Source> Checker<'a, S> {
    /// A check of `volume` that reports to `watch`.
    ///
    /// # Errors
    /// The superblock cannot be read once more.
    pub fn new(
        volume: &'a Volume<S>,
        watch: &'a mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Self> {
        let superblock = volume.superblock();
        let mut raw = Box::new(superblock.raw().clone());
        if !volume.is_from_backup() {
            // The newest: of one that is mounted for writing some fields change.
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
            unsettled: Bits::default(),
            usage: keeps_account.then(Box::default),
            shared: HashMap::new(),
            parts: HashMap::new(),
        })
    }

    /// Looks.
    ///
    /// # Errors
    /// The device, or memory; damage is no error.
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

    /// The inode of the orphan file; 0: there is none.
    fn orphan_file(&self) -> u32 {
        let has = self.volume.superblock().features().has_compat(features::compat::ORPHAN_FILE);
        if has { self.raw.orphan_file_inum.get() } else { 0 }
    }

    /// The inodes of the quota files of users, groups and projects; 0: there is none.
    fn quota_files(&self) -> [u32; 3] {
        let has = self.volume.superblock().features().has_ro_compat(features::ro_compat::QUOTA);
        let raw = &self.raw;
        let files = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        files.map(|ino| if has && ino.get() <= raw.inodes_count.get() { ino.get() } else { 0 })
    }

    /// How many blocks `inode` says to have, if the file system has as many.
    fn blocks_within(&self, inode: &Inode) -> Option<u64> {
        let superblock = self.volume.superblock();
        let blocks = inode.size().div_ceil(u64::from(superblock.block_bytes()));
        Some(blocks).filter(|blocks| *blocks <= superblock.blocks())
    }

    /// A step was made.
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

    /// Something is wrong.
    fn found(&mut self, corruption: Corruption, path: Option<&Path>) -> Step {
        self.summary.findings += 1;
        let path = path.filter(|_| corruption.ino.is_some()).map(ToOwned::to_owned);
        self.report(Event::Found(&Finding { corruption, path }))
    }

    /// Inode `ino` has `defect`.
    fn wrong(&mut self, defect: Defect, ino: u32, path: Option<&Path>) -> Step {
        self.found(Corruption::new(defect).in_inode(ino), path)
    }

    /// Block `block`; `ino` and `path` as for [`sound`](Self::sound).
    fn block(
        &mut self,
        block: u64,
        ino: Option<u32>,
        path: Option<&Path>,
    ) -> Step<Option<Arc<[u8]>>> {
        self.sound(self.volume.block(block), ino, path)
    }

    /// Inode `ino`.
    fn inode(&mut self, ino: u32, path: Option<&Path>) -> Step<Option<Inode>> {
        self.sound(self.volume.inode(ino), Some(ino), path)
    }

    /// The value of `result`; damage is reported, and there is no value then.
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
            // Other errors of invalid contents.
            Err(_) => {
                let mut corruption = Corruption::new(Defect::InodeField("content"));
                corruption.ino = ino;
                self.found(corruption, path).map(|()| None)
            }
        }
    }
}
