//! An image in memory that handles change at once, for tests of handles.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

use crate::alloc::Allocator;
use crate::journal::{Changes, Handle, Held, Journal, Orphans, Sequence};
use crate::{Error, Timestamp};
use meantime_ext4_format::{Source, SourceError, Volume, VolumeOptions};

/// Unmounts `at`. A process that another test is starting has this one's files open until it
/// executes its program, so a mount can be busy for a moment.
pub(crate) fn unmount(at: &Path) {
    let ended =
        || Command::new("umount").arg(at).output().is_ok_and(|output| output.status.success());
    let waited = || std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(
        (0..500).any(|_| ended() || {
            waited();
            false
        }),
        "{} stays busy",
        at.display()
    );
}

impl Journal {
    /// Returns the last durable transaction.
    pub(crate) fn durable(&self) -> Sequence {
        self.commits.durable()
    }
}

/// An image. A change is in it as soon as it is complete.
pub(crate) struct Image {
    bytes: RwLock<Vec<u8>>,
    /// The held blocks, which only `commit` releases: freed blocks stay unused until then.
    held: Held,
    orphans: Orphans,
    /// The number of reads.
    pub reads: AtomicUsize,
}

impl Source for Image {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.reads.fetch_add(1, Relaxed);
        let all = self.bytes.read().unwrap();
        all.get(offset as usize..offset as usize + bytes)
            .map(Arc::from)
            .ok_or(SourceError::OutOfRange)
    }
}

impl Image {
    /// Makes a file system of `size` (in mke2fs's notation) with `args`. Returns `None` without
    /// e2fsprogs.
    pub(crate) fn make(size: &str, args: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let made =
            Command::new("mkfs.ext4").args(["-q", "-F"]).args(args).arg(&path).arg(size).output();
        let Ok(made) = made else {
            println!("skipped: e2fsprogs are not installed");
            return None;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(Self::load(&path))
    }

    /// Loads the image in file `path`.
    pub(crate) fn load(path: &Path) -> Self {
        let bytes = RwLock::new(std::fs::read(path).unwrap());
        Self {
            bytes,
            held: Held::default(),
            orphans: Orphans::default(),
            reads: AtomicUsize::new(0),
        }
    }

    /// Opens the file system in it.
    pub(crate) fn volume(&self) -> Volume<&Self> {
        let bytes = self.bytes.read().unwrap().len() as u64;
        Volume::open(self, bytes, VolumeOptions::default()).unwrap()
    }

    /// Changes the image by `work`, at a time after 2001. If `work` fails, nothing changes.
    pub(crate) fn change<T>(
        &self,
        work: impl FnOnce(&mut Handle<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.change_told(work, |_| {})
    }

    /// Changes the image, and tells `allocator` when the change is complete.
    pub(crate) fn change_with<T>(
        &self,
        allocator: &Allocator,
        work: impl FnOnce(&mut Handle<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.change_told(work, |changes| allocator.completed(changes))
    }

    /// Changes the image, and calls `completed` with the changes.
    pub(crate) fn change_told<T>(
        &self,
        work: impl FnOnce(&mut Handle<'_>) -> Result<T, Error>,
        completed: impl FnOnce(&Changes),
    ) -> Result<T, Error> {
        let volume = self.volume();
        let now = Timestamp { seconds: 1_000_000_000, nanoseconds: 42 };
        let mut handle = Handle::new(volume.with_source(()), self, &self.held, &self.orphans, now);
        let result = work(&mut handle)?;
        let changes = handle.into_changes();
        self.orphans.completed(&changes.orphans);
        completed(&changes);
        let block_bytes = volume.block_bytes();
        let mut all = self.bytes.write().unwrap();
        for (block, content) in &changes.blocks {
            let at = *block as usize * block_bytes;
            all[at..at + block_bytes].copy_from_slice(content);
        }
        for range in changes.freed {
            self.held.hold(range, Sequence(1));
        }
        Ok(result)
    }

    /// Returns all bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.read().unwrap().clone()
    }

    /// Releases freed blocks, as a commit does.
    pub(crate) fn commit(&self) {
        self.held.release(Sequence(1));
    }

    /// Writes data.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) {
        self.bytes.write().unwrap()[offset as usize..offset as usize + data.len()]
            .copy_from_slice(data);
    }

    /// Saves it to file `path`.
    pub(crate) fn save(&self, path: &Path) {
        std::fs::write(path, &*self.bytes.read().unwrap()).unwrap();
    }

    /// Runs `e2fsck -fn`, which must find nothing.
    ///
    /// It may report wrong free block and inode counts in the superblock: a mount corrects them
    /// when it ends.
    pub(crate) fn fsck(&self) {
        self.fsck_but(|line| {
            line.contains("Free blocks count wrong (") || line.contains("Free inodes count wrong (")
        });
    }

    /// Runs `e2fsck -fn` after the superblock's counts were written.
    pub(crate) fn fsck_all(&self) {
        self.fsck_but(|_| false);
    }

    fn fsck_but(&self, is_allowed: impl Fn(&str) -> bool) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        self.save(&path);
        let output = Command::new("e2fsck").args(["-fn"]).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let quiet: Vec<_> = text
            .lines()
            .filter(|line| !line.starts_with("Pass ") && !line.trim().is_empty())
            .filter(|line| !line.contains("files (") && !is_allowed(line))
            // The height of trees is not an error: e2fsck suggests the same for the kernel's.
            .filter(|line| {
                !(line.contains(" extent tree (at level ") && line.ends_with("Optimize? no"))
            })
            .filter(|line| {
                !line.starts_with("Fix? no")
                    && !line.contains("** WARNING: Filesystem still has errors **")
            })
            .collect();
        assert!(quiet.is_empty(), "e2fsck: {text}");
    }
}
