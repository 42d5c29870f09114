//! What the kernel has open, by the numbers that it was given.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use meantime_ext4::{Entry, File, Node, ReadDir};
use meantime_posix::Errno;
use meantime_process::lock::{Mutex, Rank, RwLock};

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    /// It may only be appended to.
    pub(crate) only_appended: bool,
    /// [`Server::privileged`](super::Server) when its capabilities were last looked for; 0: never.
    pub(crate) unprivileged_at: AtomicU64,
}

impl OpenFile {
    pub(crate) fn new(file: File, only_appended: bool) -> Self {
        Self { file, only_appended, unprivileged_at: AtomicU64::new(0) }
    }

    /// Whether its capabilities were looked for at `epoch`; if not, they are now.
    pub(crate) fn is_unprivileged_at(&self, epoch: u64) -> bool {
        self.unprivileged_at.swap(epoch, Ordering::Relaxed) == epoch
    }
}

/// An open directory.
pub(crate) struct OpenDirectory {
    pub(crate) listing: Mutex<Listing>,
}

/// Where a reader of a directory is.
pub(crate) struct Listing {
    pub(crate) names: ReadDir,
    /// The cookie at which it goes on.
    pub(crate) at: u64,
    /// What was listed, and had no room in the answer.
    pub(crate) left: Option<(Entry, Option<Node>)>,
}

impl OpenDirectory {
    pub(crate) fn new(names: ReadDir) -> Self {
        let listing = Listing { names, at: 0, left: None };
        Self { listing: Mutex::new(Rank::DirectoryPosition, listing) }
    }
}

/// Something that is open.
#[derive(Clone)]
pub(crate) enum Opened {
    File(Arc<OpenFile>),
    Directory(Arc<OpenDirectory>),
}

/// All that is open.
pub(crate) struct Handles {
    all: RwLock<Slots>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Opened>>,
    free: Vec<usize>,
}

impl Handles {
    pub(crate) fn new() -> Self {
        Self { all: RwLock::new(Rank::Served, Slots::default()) }
    }

    /// Keeps `opened`; its number.
    pub(crate) fn add(&self, opened: Opened) -> u64 {
        // Whole after each step.
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        match all.free.pop() {
            Some(free) => {
                all.slots[free] = Some(opened);
                free as u64
            }
            None => {
                all.slots.push(Some(opened));
                all.slots.len() as u64 - 1
            }
        }
    }

    fn get(&self, number: u64) -> Result<Opened, Errno> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let slot = usize::try_from(number).ok().and_then(|number| all.slots.get(number));
        slot.and_then(Clone::clone).ok_or(Errno(libc::EBADF))
    }

    /// The file of number `number`.
    pub(crate) fn file(&self, number: u64) -> Result<Arc<OpenFile>, Errno> {
        match self.get(number)? {
            Opened::File(file) => Ok(file),
            Opened::Directory(_) => Err(Errno(libc::EISDIR)),
        }
    }

    /// The directory of number `number`.
    pub(crate) fn directory(&self, number: u64) -> Result<Arc<OpenDirectory>, Errno> {
        match self.get(number)? {
            Opened::Directory(directory) => Ok(directory),
            Opened::File(_) => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// Ends `number`. What it was is dropped by the caller, without a lock: the last user of an
    /// inode without names deletes it.
    pub(crate) fn remove(&self, number: u64) -> Option<Opened> {
        let number = usize::try_from(number).ok()?;
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let opened = all.slots.get_mut(number)?.take()?;
        all.free.push(number);
        Some(opened)
    }
}
