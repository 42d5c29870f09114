//! A mount in the kernel, from beginning to end.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use meantime_ext4::{Error, FileSystem};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::options::Options;
use crate::server::counts::{CallCounts, RequestCounts};
use crate::server::shared_memory::SharedPath;
use crate::server::worker::Workers;
use crate::server::{Server, Serving, nodeid, notice};
use crate::session::{self, SessionError};

/// The time that a mount may take to end when the kernel has unmounted it.
const END_TIME: Duration = Duration::from_secs(3);

/// The time that the kernel gets to write back mapped files, before a mount in use is ended by
/// force.
const WRITE_BACK_TIME: Duration = Duration::from_secs(20);

/// The reason why a mount could not begin, or did not end cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connection with the kernel failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The file system failed: data was not written, or could not be read.
    #[error("the file system: {0}")]
    FileSystem(#[from] Error),
    /// Programs have open files or their working directory on the mount.
    #[error("{dir} is in use; fuser -vm {dir} says by whom", dir = dir.display())]
    Busy {
        /// The mount's directory.
        dir: PathBuf,
    },
    /// The kernel refused to unmount it.
    #[error("unmounting {dir}: {why}", dir = dir.display())]
    Unmount {
        /// The mount's directory.
        dir: PathBuf,
        /// The kernel's error.
        why: io::Error,
    },
}

/// A file system that is mounted at a directory and served by threads of this process.
///
/// The serving process must not use the mount, because a request needs a free thread of that
/// process, and would wait for ever if there is none. Dropping the mount without
/// [`unmount`](Self::unmount) unmounts it by force.
pub struct Mount {
    fs: FileSystem,
    dir: PathBuf,
    /// Whether it is mounted in namespaces of other processes. It ends when they end or leave
    /// those.
    is_elsewhere: bool,
    /// The serving threads, or `None` once the mount is over.
    workers: Option<Arc<Workers>>,
    requests: Arc<RequestCounts>,
    calls: Option<Arc<CallCounts>>,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Mount {
    /// Mounts `fs` at `dir`. When this returns, the mount answers.
    ///
    /// # Errors
    /// [`ServeError::Session`], with a message for the user. In this case nothing is mounted.
    pub fn new(fs: FileSystem, dir: &Path, options: &Options) -> Result<Self, ServeError> {
        let dir = Self::check(dir, options)?;
        let mut options = options.clone();
        options.read_only |= !fs.is_writable();
        let server = Self::server(&fs, &options)?;
        let device = session::mount(&dir, &options)?;
        Self::serve(fs, dir.clone(), server, device, threads(&options), false).inspect_err(|_| {
            // Without a server the mount would only return errors.
            let _ = session::unmount(&dir, true);
        })
    }

    /// Serves `fs` on `device`, which another process has mounted at `dir` in namespaces of its
    /// own. When this returns, the mount answers. The mount is busy as long as a process sees it.
    /// If it is ended by force, it loses what programs have stored in mapped files since their last
    /// msync. This process gets a handler for SIGURG, unless it has one.
    ///
    /// # Errors
    /// [`ServeError::Session`], with a message for the user.
    pub fn in_namespace(
        fs: FileSystem,
        dir: &Path,
        options: &Options,
        device: OwnedFd,
    ) -> Result<Self, ServeError> {
        let server = Self::server(&fs, options)?;
        Self::serve(fs, dir.to_owned(), server, device, threads(options), true)
    }

    fn server(fs: &FileSystem, options: &Options) -> Result<Server, ServeError> {
        let serving = Serving { timeout: options.timeout, sync: options.sync };
        let shm = options.shared_memory.as_deref().and_then(|name| {
            let cache = fs.cache_counters().capacity_pages as u64 * 4096;
            let made =
                SharedPath::new(name, options.shared_memory_limit, cache).inspect_err(|error| {
                    tracing::warn!(%error, "no program can take the shared-memory path");
                });
            made.ok().map(Arc::new)
        });
        Ok(Server::new(fs, serving, shm)?)
    }

    /// Serves the mount at `dir`, whose requests come from `device`.
    fn serve(
        fs: FileSystem,
        dir: PathBuf,
        server: Server,
        device: OwnedFd,
        threads: usize,
        is_elsewhere: bool,
    ) -> Result<Self, ServeError> {
        let time_gran_ns =
            if fs.volume().superblock().has_nanoseconds() { 1 } else { 1_000_000_000 };
        session::agree(&device, time_gran_ns)?;
        let requests = Arc::clone(&server.counts);
        let calls = server.shm.as_ref().map(|shm| Arc::clone(&shm.counts));
        let workers = Workers::start(server, device, threads).map_err(SessionError::Start)?;
        Ok(Self { fs, dir, is_elsewhere, workers: Some(workers), requests, calls })
    }

    /// Checks, before a device is opened, whether a file system can be mounted at `dir`. Returns
    /// the absolute path under which the mount will be known.
    ///
    /// # Errors
    /// [`SessionError::Directory`] says why `dir` cannot be used.
    pub fn check(dir: &Path, options: &Options) -> Result<PathBuf, SessionError> {
        session::check_directory(dir, options.nonempty)
    }

    /// Returns the mount's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the counts of requests, which continue while it is mounted.
    pub fn requests(&self) -> Arc<RequestCounts> {
        Arc::clone(&self.requests)
    }

    /// Returns the counts of the shared-memory path, if there is one ([`Options::shared_memory`]).
    pub fn calls(&self) -> Option<Arc<CallCounts>> {
        self.calls.clone()
    }

    /// Returns the file system that is served.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Tells the kernel that this process changed `range` of the content of inode `ino`, or its
    /// size, through [`file_system`](Self::file_system). Programs see the change when this returns.
    /// Without the call they may read what the kernel caches.
    ///
    /// The call waits for requests for those bytes, so the caller must hold nothing that a request
    /// needs. If a program has written to a mapped file, and the kernel has not sent that yet, it
    /// overwrites the change.
    ///
    /// # Errors
    /// The kernel's error, for example that it has no memory.
    pub fn content_changed(&self, ino: u32, range: Range<u64>) -> io::Result<()> {
        let len = range.end.saturating_sub(range.start);
        self.notify(&notice::content_changed(nodeid(ino), range.start, len))
    }

    /// Tells the kernel that this process changed attributes of inode `ino`: owner, mode, times,
    /// links, or extended attributes.
    ///
    /// # Errors
    /// The kernel's error, for example that it has no memory.
    pub fn attributes_changed(&self, ino: u32) -> io::Result<()> {
        self.notify(&notice::attributes_changed(nodeid(ino)))
    }

    /// Tells the kernel that this process changed `name` in the directory inode `parent`: the name
    /// was created or removed, or now refers to another inode.
    ///
    /// # Errors
    /// ENAMETOOLONG, or the kernel's error, for example that it has no memory.
    pub fn name_changed(&self, parent: u32, name: &OsStr) -> io::Result<()> {
        self.notify(&notice::name_changed(nodeid(parent), name))
    }

    fn notify(&self, notice: &[u8]) -> io::Result<()> {
        self.workers.as_ref().map_or(Ok(()), |workers| workers.notify(notice))
    }

    /// Returns whether the mount has ended because it was unmounted.
    pub fn has_ended(&self) -> bool {
        self.workers.as_ref().is_none_or(|workers| workers.has_ended())
    }

    /// Waits until the mount has ended, for at most `time` or until a signal. Returns whether the
    /// mount has ended.
    pub fn wait(&self, time: Duration) -> bool {
        self.wait_beside(None, time)
    }

    /// Waits like [`wait`](Self::wait), and also returns when `other` is readable.
    pub fn wait_beside(&self, other: Option<BorrowedFd<'_>>, time: Duration) -> bool {
        let Some(workers) = &self.workers else { return true };
        let all = [Some(workers.end_event().as_fd()), other];
        let mut polled: Vec<_> =
            all.iter().flatten().map(|waited| PollFd::new(waited, PollFlags::IN)).collect();
        let time = time.try_into().ok();
        // An error means a signal; the caller checks which.
        let _ = poll(&mut polled, time.as_ref());
        self.has_ended()
    }

    /// Unmounts, unless that was done from outside, and then ends the file system, which writes
    /// everything.
    ///
    /// # Errors
    /// [`ServeError::Busy`] and [`ServeError::Unmount`] give the mount back, which continues.
    /// `Busy` is also returned if only other mount namespaces still have the mount. After any other
    /// error the mount has ended, but not all data was written.
    pub fn unmount(mut self) -> Result<(), (Option<Self>, ServeError)> {
        if !self.has_ended() {
            match self.unmount_in_kernel(false) {
                Ok(()) => {}
                // The file system was unmounted from outside at the same time.
                Err(_) if self.has_ended() => {}
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                    let dir = self.dir.clone();
                    return Err((Some(self), ServeError::Busy { dir }));
                }
                Err(why) => {
                    let dir = self.dir.clone();
                    return Err((Some(self), ServeError::Unmount { dir, why }));
                }
            }
            if !self.ends_soon() {
                let dir = self.dir.clone();
                return Err((Some(self), ServeError::Busy { dir }));
            }
        }
        self.end().map_err(|error| (None, error))
    }

    /// Unmounts a mount that may be in use. What programs have written to mapped files is written
    /// back, unless the mount is [in other namespaces](Self::in_namespace). Afterwards the programs
    /// get errors (ENOTCONN).
    ///
    /// # Errors
    /// [`ServeError::Unmount`] if the kernel refused, in which case the threads continue to serve.
    /// Any other error means that not all data was written.
    pub fn unmount_by_force(mut self) -> Result<(), ServeError> {
        self.stop_elsewhere();
        if !self.has_ended() && self.unmount_in_kernel(false).is_err() {
            self.write_back_mapped();
            if let Err(why) = self.unmount_in_kernel(true)
                && why.raw_os_error() != Some(Errno::INVAL.raw_os_error())
                && !self.has_ended()
            {
                // The threads continue to serve the mount.
                self.workers = None;
                return Err(ServeError::Unmount { dir: self.dir.clone(), why });
            }
        }
        if !self.ends_soon()
            && let Some(workers) = &self.workers
        {
            workers.stop();
        }
        self.end()
    }

    /// Waits for the end of a mount that is no longer in this process's namespace. Returns false if
    /// copies of it are in other namespaces.
    fn ends_soon(&self) -> bool {
        let until = Instant::now() + END_TIME;
        while !self.has_ended() && Instant::now() < until {
            // A signal ends a wait early.
            self.wait(until.saturating_duration_since(Instant::now()));
        }
        self.has_ended()
    }

    /// Ends a mount that this process can reach only by the descriptor.
    fn stop_elsewhere(&self) {
        if let Some(workers) = &self.workers
            && self.is_elsewhere
            && !self.has_ended()
        {
            workers.stop();
        }
    }

    fn unmount_in_kernel(&self, by_force: bool) -> io::Result<()> {
        // Something else may be mounted at the same path in this process's namespace.
        if self.is_elsewhere {
            return Err(Errno::BUSY.into());
        }
        session::unmount(&self.dir, by_force)
    }

    /// Makes the kernel write back mapped files. This is done in a thread, which is left behind
    /// after [`WRITE_BACK_TIME`]. The mount's threads answer it, unless they hang.
    fn write_back_mapped(&self) {
        if self.is_elsewhere {
            return;
        }
        let (done, wait) = mpsc::channel();
        let dir = self.dir.clone();
        let syncing = meantime_process::thread::spawn("meantime-sync", move || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            if let Ok(root) = rustix::fs::open(&dir, flags, Mode::empty()) {
                let _ = rustix::fs::syncfs(root.as_fd());
            }
            let _ = done.send(());
        });
        if syncing.is_ok() {
            let _ = wait.recv_timeout(WRITE_BACK_TIME);
        }
    }

    /// Ends the file system, after the kernel has ended the mount.
    fn end(&mut self) -> Result<(), ServeError> {
        if let Some(workers) = self.workers.take() {
            workers.join();
            // This drops the kernel's open files and look-ups, because the kernel sends no FORGET
            // at the end. It deletes inodes without a name.
            drop(workers);
        }
        Ok(self.fs.clone().unmount()?)
    }
}

/// Returns how many threads `options` ask for.
fn threads(options: &Options) -> usize {
    match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.workers.is_some() {
            self.stop_elsewhere();
            if self.unmount_in_kernel(true).is_err() && !self.has_ended() {
                // Its threads continue, and no handle is left to wait for them.
                let dir = self.dir.display();
                return tracing::error!("the mount at {dir} goes on until this process ends");
            }
            if let Err(error) = self.end() {
                tracing::error!(%error, "the mount did not end as it should");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use meantime_ext4::MountOptions;
    use meantime_testkit::{e2fs, image};

    use super::*;
    use crate::session::fusermount;

    /// Mounts as an unprivileged user does.
    #[test]
    fn fusermount_passes_a_descriptor_and_unmounts() {
        if !e2fs::tools() || !e2fs::has("fusermount3") {
            return;
        }
        let scratch = image::scratch();
        let path = image::mkfs(scratch.path(), "image", "16M", &[]);
        let dir = scratch.path().join("at");
        std::fs::create_dir(&dir).unwrap();
        let write = MountOptions { write: true, ..image::writable() };
        let fs = image::mount(&path, &write);
        let source = "a,b\\c".to_owned();
        let options = Options { source, noexec: true, ..Options::default() };
        let device = match fusermount::mount(&dir, &options) {
            Ok(device) => device,
            Err(error) => return println!("skipped: {error}"),
        };
        let serving = Serving { timeout: options.timeout, sync: options.sync };
        let server = Server::new(&fs, serving, None).unwrap();
        let mount = Mount::serve(fs, dir.clone(), server, device, 2, false).unwrap();
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let line = mounts.lines().find(|line| line.contains(dir.to_str().unwrap())).unwrap();
        assert!(line.contains("fuse.meantime") && line.contains("noexec"), "{line}");
        let script = format!("echo text > '{0}/file'; cat '{0}/file'", dir.display());
        let output =
            Command::new("timeout").args(["-s", "KILL", "30", "sh", "-c", &script]).output();
        assert_eq!(output.unwrap().stdout, b"text\n");
        fusermount::unmount(&dir, false).unwrap();
        assert!(mount.wait(Duration::from_secs(10)));
        mount.unmount().map_err(|(_, error)| error).unwrap();
        e2fs::run("e2fsck", &["-fn", path.to_str().unwrap()]);
    }
}
