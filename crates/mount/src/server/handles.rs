//! Open files and directories, by the handle numbers that were given to the kernel.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use meantime_ext4::format::inode::flags;
use meantime_ext4::{Entry, Errno, File, Metadata, Node, OpenOptions, ReadDir};
use meantime_process::lock::{Mutex, Rank, RwLock};

use super::shared_memory::sharing::Sharing;

/// An open file.
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// Whether the file was append-only when it was opened.
    pub(crate) only_appended: bool,
    /// Whether it was opened with O_APPEND, which the program may clear later.
    pub(crate) opened_to_append: bool,
    /// The value of [`Server::privileged`](super::Server) when capabilities were last looked for,
    /// or 0 if they never were.
    pub(crate) unprivileged_at: AtomicU64,
    /// The state of the shared-memory path, if the mount has one and this is a regular file.
    pub(crate) sharing: Option<Sharing>,
}

impl OpenFile {
    pub(crate) fn new(file: File, options: &OpenOptions, only_appended: bool) -> Self {
        Self {
            file,
            is_readable: options.read,
            is_writable: options.write,
            only_appended,
            opened_to_append: false,
            unprivileged_at: AtomicU64::new(0),
            sharing: None,
        }
    }

    /// Returns EPERM if the file became immutable or append-only after it was opened, which the
    /// kernel does not know, and the change is not allowed then. `below` says whether the change
    /// may affect existing content.
    pub(crate) fn may_be_changed(&self, metadata: &Metadata, below: bool) -> Result<(), Errno> {
        let forbidden = if below { flags::IMMUTABLE | flags::APPEND } else { flags::IMMUTABLE };
        if metadata.flags & forbidden != 0 { Err(Errno(libc::EPERM)) } else { Ok(()) }
    }

    /// Returns EPERM if a write at `offset` is not allowed any more. `appends` says whether it
    /// appends. Linux still writes to a file that becomes append-only by descriptors that were not
    /// opened to append.
    pub(crate) fn may_be_written(
        &self,
        metadata: &Metadata,
        offset: u64,
        appends: bool,
    ) -> Result<(), Errno> {
        let below = self.opened_to_append && !appends && offset < metadata.size;
        self.may_be_changed(metadata, below)
    }

    /// Is called when the kernel reads or writes pages of its cache, before that is executed.
    pub(crate) fn kernel_caches(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.gate.close();
        }
    }

    /// Is called when the kernel reads `bytes` into its cache, before that is executed.
    pub(crate) fn kernel_reads(&self, bytes: u32) {
        self.kernel_caches();
        if let Some(sharing) = &self.sharing {
            sharing.gate.count_kept(bytes.into(), self.file.size());
        }
    }

    /// Returns whether the file was found without capabilities at `epoch`.
    pub(crate) fn is_unprivileged_at(&self, epoch: u64) -> bool {
        self.unprivileged_at.load(Ordering::Acquire) == epoch
    }

    /// Records that the file has no capabilities at `epoch`.
    pub(crate) fn note_unprivileged(&self, epoch: u64) {
        self.unprivileged_at.store(epoch, Ordering::Release);
    }
}

/// An open directory.
pub(crate) struct OpenDirectory {
    pub(crate) listing: Mutex<Listing>,
}

/// The position of a directory's reader.
pub(crate) struct Listing {
    pub(crate) names: ReadDir,
    /// The cookie of the position.
    pub(crate) at: u64,
    /// An entry that was read but did not fit into the answer.
    pub(crate) left: Option<(Entry, Option<Node>)>,
}

impl OpenDirectory {
    pub(crate) fn new(names: ReadDir) -> Self {
        let listing = Listing { names, at: 0, left: None };
        Self { listing: Mutex::new(Rank::DirectoryPosition, listing) }
    }
}

/// An open file or directory.
#[derive(Clone)]
pub(crate) enum Opened {
    File(Arc<OpenFile>),
    Directory(Arc<OpenDirectory>),
}

/// The table of all handles.
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

    /// Adds `opened`, and returns its number.
    pub(crate) fn add(&self, opened: Opened) -> u64 {
        // Poisoning is ignored, because the table is consistent after each step.
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

    /// Returns the file with handle `number`.
    pub(crate) fn file(&self, number: u64) -> Result<Arc<OpenFile>, Errno> {
        match self.get(number)? {
            Opened::File(file) => Ok(file),
            Opened::Directory(_) => Err(Errno(libc::EISDIR)),
        }
    }

    /// Returns the directory with handle `number`.
    pub(crate) fn directory(&self, number: u64) -> Result<Arc<OpenDirectory>, Errno> {
        match self.get(number)? {
            Opened::Directory(directory) => Ok(directory),
            Opened::File(_) => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// Removes handle `number`. The caller drops the result without holding a lock, because the
    /// last user of an inode without names deletes it.
    pub(crate) fn remove(&self, number: u64) -> Option<Opened> {
        let number = usize::try_from(number).ok()?;
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let opened = all.slots.get_mut(number)?.take()?;
        all.free.push(number);
        Some(opened)
    }
}
