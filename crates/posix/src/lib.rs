//! A file system as a C program sees it: descriptors, paths below a mount point, errno.
//!
//! # What it is for
//! A program's calls become calls of [`Posix`].
//! Every function implements the system call of its name, for reading. Calls that would write
//! return EROFS, at the same point as in Linux.
//!
//! # What it owns
//! [`Posix`] is the state of one process: the mounted file system, its mount point
//! ([`MountPoint`]), its descriptors, and the working directory if it is below the mount point.
//!
//! # What it promises
//! `errno` is the only place that maps errors to errno. Differences from a kernel's mount:
//! - Permissions are checked as for root: a user who may read the device may read its files.
//!   Executing requires an `x` bit.
//! - Access times are not kept (as with `noatime`).
//! - O_DIRECT requires no alignment.
//! - Locks for reading are granted, and never conflict, because no file is written.
//! - Device nodes, pipes and sockets can be queried, but not opened (ENXIO).
//!
//! A forked child mounts again with the same descriptors, because it lacks the threads of its
//! parent's device.
//!
//! # Parts, in reading order
//! ```text
//!   mountpoint, walk, host   which paths are ours; from a path to an inode; links of the machine
//!   table, descriptor        descriptors
//!   open, read, stat, dir, lock    the calls
//!   errno                    errors to errno
//!   settings                 what `run --private` hands to the program
//! ```

#![forbid(unsafe_code)]

mod descriptor;
mod dir;
mod errno;
mod host;
mod lock;
mod mountpoint;
mod open;
mod read;
pub mod settings;
mod stat;
mod table;
mod walk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

pub use descriptor::{Description, Kind};
pub use dir::DirEntry;
pub use errno::Errno;
pub use host::{PathBuffer, Walk};
pub use lock::Lock;
pub use mountpoint::{DEFAULT_MOUNT_POINT, MountPoint, MountPointError};
pub use read::RwFlags;
pub use stat::{Access, Stat, StatFs};
pub use table::{MAX_DESCRIPTORS, Table};
pub use walk::{Found, ResolvedPath};

use meantime_ext4::FileSystem;

/// A mounted file system as seen by one process: its descriptors and working directory.
pub struct Posix {
    /// `None` once the process ends.
    fs: ArcSwapOption<FileSystem>,
    mount: MountPoint,
    descriptors: Table,
    /// The working directory, if it is below the mount point.
    cwd: ArcSwapOption<Found>,
    cwd_is_ours: AtomicBool,
    /// `st_dev` of every file.
    device: u64,
}

impl Posix {
    /// The file system `fs`, mounted at `mount`, without descriptors.
    pub fn new(fs: FileSystem, mount: MountPoint) -> Self {
        let fsid = fs.usage().map(|usage| usage.fsid).unwrap_or_default();
        let device = stat::device_number(fsid);
        Self {
            fs: ArcSwapOption::from_pointee(fs),
            mount,
            descriptors: Table::new(),
            cwd: ArcSwapOption::empty(),
            cwd_is_ours: AtomicBool::new(false),
            device,
        }
    }

    /// For the child of a fork: the same descriptors and working directory on `fs`, a new mount.
    /// Offsets are copied, and no longer shared with the parent. A file that no longer exists gets
    /// no descriptor.
    ///
    /// Takes no lock of `before`: threads that the child lacks may hold some.
    pub fn after_fork(before: &Self, fs: FileSystem) -> Self {
        let now = Self::new(fs, before.mount.clone());
        let mut same: Vec<(usize, Arc<Description>)> = Vec::new();
        before.descriptors.for_each(|fd, description| {
            let address = Arc::as_ptr(description) as usize;
            let known =
                same.iter().find(|(old, _)| *old == address).map(|(_, new)| Arc::clone(new));
            let Some(new) = known.or_else(|| now.reopen(description).ok()) else { return };
            same.push((address, Arc::clone(&new)));
            now.descriptors.set(fd, new);
        });
        if let Some(cwd) = before.cwd()
            && let Ok(ResolvedPath::Found(found)) = now.find_from_root(cwd.path(), true)
        {
            now.set_cwd(Some(found));
        }
        now
    }

    /// The file system.
    ///
    /// # Errors
    /// EIO after [`end`](Self::end).
    pub(crate) fn fs(&self) -> Result<Arc<FileSystem>, Errno> {
        self.fs.load_full().ok_or(Errno(libc::EIO))
    }

    /// Drops the file system and all descriptors; the device is released when the last running call
    /// has ended. Later calls fail.
    pub fn end(&self) {
        self.descriptors.clear_all();
        self.set_cwd(None);
        self.fs.store(None);
    }

    /// The descriptors.
    pub fn descriptors(&self) -> &Table {
        &self.descriptors
    }

    /// The working directory, if it is below the mount point.
    #[inline]
    pub fn cwd(&self) -> Option<Arc<Found>> {
        if self.cwd_is_ours.load(Ordering::Acquire) { self.cwd.load_full() } else { None }
    }

    /// Changes the working directory (`chdir`); `None`: it is no longer below the mount point.
    pub fn set_cwd(&self, cwd: Option<Found>) {
        let is_ours = cwd.is_some();
        self.cwd.store(cwd.map(Arc::new));
        self.cwd_is_ours.store(is_ours, Ordering::Release);
    }

    /// The absolute path of `found` as the program sees it.
    pub fn absolute(&self, found: &Found) -> Vec<u8> {
        let mut path = self.mount.as_bytes().to_vec();
        path.extend_from_slice(found.path());
        path
    }
}
