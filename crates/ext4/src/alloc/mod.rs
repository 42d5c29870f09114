//! Allocation of free blocks and inodes.
//!
//! Bitmaps and group descriptors say what is free. They are read and changed through a [`Handle`],
//! so a change that fails takes nothing. Memory holds totals and hints: totals follow complete
//! changes ([`Allocator::completed`]), hints may be wrong.

mod blocks;
mod groups;
mod inodes;
mod search;
mod spread;
#[cfg(all(test, not(loom)))]
mod tests;
mod trim;
mod windows;
mod zones;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use super::journal::{Changes, Handle};
use super::{Result, Unsupported, Usage};
use meantime_ext4_format::checksum::Patch;
use meantime_ext4_format::features::ro_compat;
use meantime_ext4_format::{Source, Superblock, Volume};

pub use crate::space::Reservation;
use crate::space::{Caller, Pool, Totals, Who};
use groups::Known;
use meantime_process::lock::{Mutex, MutexGuard, Rank};
use windows::Windows;
use zones::Zones;
pub(crate) use zones::merged;

/// A request for blocks.
#[derive(Debug)]
pub struct Want<'r> {
    /// Inode that the blocks are for.
    pub ino: u32,
    /// Preferred first block; `None`: near the inode.
    pub goal: Option<u64>,
    /// Maximum number of blocks; 0 counts as 1.
    pub blocks: u32,
    /// Promise that the blocks are taken from.
    pub reservation: Option<&'r mut Reservation>,
    /// Whether the blocks are metadata (nodes of trees, directories, attributes).
    pub metadata: bool,
    /// The caller for whom they are allocated, unless they were promised.
    pub(crate) who: Who,
}

impl Want<'_> {
    /// Returns a request for up to `blocks` blocks of data of inode `ino`.
    pub fn data(ino: u32, goal: Option<u64>, blocks: u32) -> Self {
        Self { ino, goal, blocks, reservation: None, metadata: false, who: Who::Caller }
    }

    /// Returns a request for a block of metadata of inode `ino`.
    pub fn metadata(ino: u32, goal: Option<u64>) -> Self {
        Self { metadata: true, ..Self::data(ino, goal, 1) }
    }

    /// Returns a request for a node of the tree of file `ino`, without which a promise could not be
    /// kept: it may use the last reserve.
    pub fn node(ino: u32, goal: Option<u64>) -> Self {
        Self { who: Who::Need, ..Self::metadata(ino, goal) }
    }
}

/// Hints about a group. Its descriptor and bitmaps are authoritative.
#[derive(Debug, Clone, Copy)]
struct Hint {
    free_blocks: u32,
    free_inodes: u32,
    directories: u32,
    /// Longest run that a search found and could have taken; `u32::MAX`: unknown.
    longest: u32,
    /// Bit after the block that was taken last.
    next: u32,
    /// Whether the bitmap was seen to agree with the descriptor.
    blocks_agree: bool,
    inodes_agree: bool,
}

/// Allocates blocks and inodes of a file system that is mounted for writing. Each mount has one.
#[derive(Debug)]
pub struct Allocator {
    volume: Volume<()>,
    zones: Zones,
    pool: Arc<Pool>,
    /// One hint for each group. This lock and the next two are taken one at a time, after all
    /// others.
    hints: Mutex<Vec<Hint>>,
    windows: Mutex<Windows>,
    known: Mutex<Known>,
    /// For the checksums of bitmaps.
    patch: Patch,
    /// Constant part of what `statfs` returns.
    usage: Usage,
    /// Whether the last search failed because the free blocks wait for a commit.
    starved: AtomicBool,
}

/// A [`Handle`] whose change may take and free blocks and inodes.
pub struct AllocHandle<'h, 'a> {
    handle: &'h mut Handle<'a>,
    /// What takes and frees them.
    pub allocator: &'h Allocator,
}

impl<'h, 'a> AllocHandle<'h, 'a> {
    /// Lets the change of `handle` use `allocator`, which is the mount's.
    pub fn new(handle: &'h mut Handle<'a>, allocator: &'h Allocator) -> Self {
        Self { handle, allocator }
    }
}

impl<'a> Deref for AllocHandle<'_, 'a> {
    type Target = Handle<'a>;

    fn deref(&self) -> &Handle<'a> {
        self.handle
    }
}

impl<'a> DerefMut for AllocHandle<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Handle<'a> {
        self.handle
    }
}

impl Allocator {
    /// Returns the allocator of `volume`, after reading all its descriptors.
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) for `bigalloc`. Damage in a group descriptor or
    /// the journal's inode, or a device error.
    pub fn new<S: Source>(volume: &Volume<S>) -> Result<Self> {
        let superblock = volume.superblock();
        if superblock.features().has_ro_compat(ro_compat::BIGALLOC) {
            let what = "feature bigalloc".into();
            return Err(Unsupported { what, advice: "mount it for reading" }.into());
        }
        let mut hints = Vec::with_capacity(superblock.groups() as usize);
        let mut totals = Totals::default();
        volume.visit_groups(|_, group| {
            totals.free += u64::from(group.free_clusters);
            totals.free_inodes += u64::from(group.free_inodes);
            totals.directories += u64::from(group.directories);
            hints.push(Hint {
                free_blocks: group.free_clusters,
                free_inodes: group.free_inodes,
                directories: group.directories,
                longest: u32::MAX,
                next: 0,
                blocks_agree: false,
                inodes_agree: false,
            });
        })?;
        let (root, last) = (superblock.root_blocks(), superblock.reserved_clusters());
        let (uid, gid) = superblock.reserved_for();
        Ok(Self {
            volume: volume.with_source(()),
            zones: Zones::of(volume)?,
            pool: Arc::new(Pool::new(totals, root, Caller { uid, gid }, last)),
            hints: Mutex::new(Rank::AllocHints, hints),
            windows: Mutex::new(Rank::AllocWindows, Windows::default()),
            known: Mutex::new(Rank::AllocGroups, Known::default()),
            patch: Patch::new(superblock.block_bytes() as usize),
            usage: volume.usage()?,
            starved: false.into(),
        })
    }

    fn superblock(&self) -> &Superblock {
        self.volume.superblock()
    }

    fn hints(&self) -> MutexGuard<'_, Vec<Hint>> {
        // These are only hints, which may be wrong.
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        // These are only hints.
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a bound for the runs of free blocks of group `number`, as far as is known.
    fn longest_run(&self, number: u32) -> u32 {
        let hint = self.hints()[number as usize];
        hint.longest.min(hint.free_blocks)
    }

    /// Notes that no run in group `number` that could be taken is longer than `blocks`.
    fn learn_longest(&self, number: u32, blocks: u32) {
        self.hints()[number as usize].longest = blocks;
    }

    /// Sets whether this process counts as root, and so gets the blocks that are reserved for root.
    /// Initially it does not.
    pub fn set_privileged(&self, privileged: bool) {
        self.pool.set_privileged(privileged);
    }

    /// Sets whether a thread that acts for a [`Caller`] counts as that one, as it does initially,
    /// or as the process.
    pub fn set_by_caller(&self, by_caller: bool) {
        self.pool.set_by_caller(by_caller);
    }

    /// Promises `blocks` blocks to data that are allocated later. The metadata that go with them
    /// come from a reserve that the file system keeps for that.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace) if the caller may not have that many blocks.
    pub fn reserve(&self, blocks: u64) -> Result<Reservation> {
        self.pool.reserve(blocks)
    }

    /// Returns the current `statfs` counts. Promised blocks do not count as free.
    pub fn usage(&self) -> Usage {
        let totals = self.pool.totals();
        let free_blocks = totals.free.saturating_sub(totals.promised);
        Usage {
            free_blocks,
            available_blocks: free_blocks.saturating_sub(self.pool.kept_back()),
            free_inodes: totals.free_inodes,
            ..self.usage
        }
    }

    /// Adds the changes of a complete handle to the totals. Called once for each handle, before the
    /// next one begins.
    pub fn completed(&self, changes: &Changes) {
        let groups = changes.space.groups();
        if groups.is_empty() {
            return;
        }
        let mut hints = self.hints();
        let (mut blocks, mut inodes, mut directories) = (0, 0, 0);
        for (number, change) in groups {
            let Some(hint) = hints.get_mut(*number as usize) else { continue };
            hint.free_blocks = (hint.free_blocks + change.freed).saturating_sub(change.taken);
            hint.free_inodes = hint.free_inodes.saturating_add_signed(change.inodes);
            if change.freed > 0 {
                hint.longest = u32::MAX;
            }
            hint.directories = hint.directories.saturating_add_signed(change.directories);
            blocks += i64::from(change.freed) - i64::from(change.taken);
            inodes += i64::from(change.inodes);
            directories += i64::from(change.directories);
        }
        drop(hints);
        let mut known = self.known();
        for bitmap in
            groups.iter().flat_map(|(_, change)| [change.block_bitmap, change.inode_bitmap])
        {
            if let Some(bits) = changes.blocks.get(&bitmap) {
                known.learn(bitmap, bits);
            }
        }
        drop(known);
        self.pool.add(blocks, inodes, directories, changes.space.finish());
    }

    /// Returns whether, after [`NoSpace`](crate::Error::NoSpace), the next commit frees blocks, so
    /// that a retry is worthwhile.
    pub fn would_commit_help(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Writes the totals of free blocks and inodes into the superblock, for the end of a mount.
    ///
    /// # Errors
    /// Damage in the superblock, or a device error.
    pub fn write_superblock_counts(&self, handle: &mut Handle<'_>) -> Result<()> {
        let totals = self.pool.totals();
        let mut free = (totals.free as i64, totals.free_inodes as i64);
        for (_, change) in handle.changes().space.groups() {
            free.0 += i64::from(change.freed) - i64::from(change.taken);
            free.1 += i64::from(change.inodes);
        }
        let mut superblock = handle.load_superblock()?;
        superblock.set_free_blocks(free.0 as u64);
        superblock.set_free_inodes(free.1 as u32);
        handle.store_superblock(&superblock)
    }
}
