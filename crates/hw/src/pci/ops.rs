//! The operations on the machine, few enough for tests to simulate the kernel.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::loops::{self, LoopFile};

/// Time limit of one write to sysfs. Unbinding a controller that does not answer takes longest: its
/// driver waits for the shutdown.
const WRITE_TIMEOUT: Duration = Duration::from_secs(90);

/// Time limit of loading a module.
const MODULE_TIMEOUT: Duration = Duration::from_secs(30);

/// A disk held exclusively: neither it nor its partitions can be mounted until this is dropped.
#[derive(Debug, Default)]
pub struct Claim(#[allow(dead_code)] Option<File>);

/// The owner and mode of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOwner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
}

/// Operations that change the machine, or query the kernel beyond its files.
pub trait SysfsOps: fmt::Debug + Send + Sync {
    /// Writes `text` to a file of sysfs in one write.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    /// Loads a kernel module with its dependencies.
    fn load_module(&self, name: &str) -> io::Result<()>;
    /// Holds a block device exclusively (`O_EXCL`): EBUSY if it is in use, including mounts.
    fn claim(&self, node: &Path) -> io::Result<Claim>;
    /// The backing of a loop device.
    fn loop_file(&self, node: &Path) -> io::Result<LoopFile>;
    /// Whether any process has the VFIO group of `node` open.
    fn is_open(&self, node: &Path) -> bool;
    /// The owner of a device node.
    fn owner(&self, node: &Path) -> io::Result<NodeOwner>;
    /// Sets the owner of a device node.
    fn set_owner(&self, node: &Path, owner: NodeOwner) -> io::Result<()>;
    /// Whether this process may write to `path`.
    fn may_write(&self, path: &Path) -> bool;
    /// Creates a file, or overwrites it.
    fn create(&self, path: &Path, text: &str) -> io::Result<()>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Time since a fixed moment.
    fn now(&self) -> Duration;
    /// Sleeps.
    fn pause(&self, time: Duration);
}

/// The real machine.
#[derive(Debug)]
pub struct System {
    start: Instant,
}

impl Default for System {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl SysfsOps for System {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // On a separate thread: the kernel runs a driver's probe and remove within the write, and
        // these may never return.
        let (path, text) = (path.to_owned(), text.to_owned());
        let (answer, answered) = mpsc::channel();
        meantime_process::thread::spawn("meantime-sysfs", move || {
            let written = OpenOptions::new().write(true).open(&path);
            let _ = answer.send(written.and_then(|mut file| file.write_all(text.as_bytes())));
        })?;
        answered.recv_timeout(WRITE_TIMEOUT).unwrap_or_else(|_| {
            let what = format!("the kernel has not answered in {} s", WRITE_TIMEOUT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })
    }

    fn load_module(&self, name: &str) -> io::Result<()> {
        let tool = std::fs::read_to_string("/proc/sys/kernel/modprobe").unwrap_or_default();
        let tool = if tool.trim().is_empty() { "/sbin/modprobe" } else { tool.trim() };
        let mut command = Command::new(tool);
        command
            .args(["-q", "--", name])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot run {tool}: {error}")))?;
        let end = Instant::now() + MODULE_TIMEOUT;
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(io::Error::other(format!("{tool} {name}: {status}"))),
                None if Instant::now() >= end => {
                    let _ = child.kill();
                    return Err(io::ErrorKind::TimedOut.into());
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn claim(&self, node: &Path) -> io::Result<Claim> {
        // Read-only: udev processes a disk again after it was open for writing.
        let flags = libc::O_EXCL | libc::O_NONBLOCK;
        Ok(Claim(Some(OpenOptions::new().read(true).custom_flags(flags).open(node)?)))
    }

    fn loop_file(&self, node: &Path) -> io::Result<LoopFile> {
        loops::loop_file(node)
    }

    fn is_open(&self, node: &Path) -> bool {
        // A group can only be opened once at a time (vfio_group_fops_open).
        let opened = OpenOptions::new().read(true).write(true).open(node);
        opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
    }

    fn owner(&self, node: &Path) -> io::Result<NodeOwner> {
        let meta = std::fs::metadata(node)?;
        Ok(NodeOwner { uid: meta.uid(), gid: meta.gid(), mode: meta.mode() & 0o7777 })
    }

    fn set_owner(&self, node: &Path, owner: NodeOwner) -> io::Result<()> {
        std::os::unix::fs::chown(node, Some(owner.uid), Some(owner.gid))?;
        std::fs::set_permissions(node, std::fs::Permissions::from_mode(owner.mode))
    }

    fn may_write(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn create(&self, path: &Path, text: &str) -> io::Result<()> {
        std::fs::write(path, text)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}
