//! Waits for the end of a mount: umount(2) returns before the file system is written.
//!
//! The process that serves a mount listens on an abstract socket, named after the mount's device
//! number, until it ends. `meantime umount` connects to it before it unmounts. The process accepts
//! no connection; when it ends, the kernel closes the socket, and `umount` sees that.

use std::io::{ErrorKind, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use meantime_hw::mountinfo::{self, MountEntry};

use crate::cli::UmountArgs;
use crate::failure::{Context as _, Failure, warn};
use crate::run::holders::Place;

/// The file system type of our mounts.
pub(crate) const KIND: &str = "fuse.meantime";
/// How long `umount` waits for the mount's process before it says which processes still use the
/// mount.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a process that is about to end may keep the socket of a new mount.
const OTHER_ENDS_TIME: Duration = Duration::from_secs(20);

/// Finds the mount at `dir` in the text of mountinfo. The last entry is the topmost mount.
fn mounted_at(dir: &Path, mountinfo: &str) -> Option<MountEntry> {
    mountinfo::parse(mountinfo).rfind(|entry| entry.dir == dir)
}

/// Finds the mount at `dir`, an absolute path.
pub(super) fn find(dir: &Path) -> Option<MountEntry> {
    mounted_at(dir, &std::fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// Returns `dir` as mountinfo has it. Resolves only its parent where a mount is there, because its
/// server may not answer.
pub(super) fn place(dir: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(dir).context(dir.display())?;
    if find(&path).is_some() {
        return Ok(path);
    }
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        let path = parent.canonicalize().context(dir.display())?.join(name);
        if find(&path).is_some() {
            return Ok(path);
        }
    }
    path.canonicalize().context(dir.display())
}

/// Returns the place of our mount at `dir`, and what the kernel says of it.
pub(super) fn ours(dir: &Path) -> Result<(PathBuf, MountEntry), Failure> {
    let place = place(dir)?;
    let mounted = find(&place).filter(|mounted| mounted.kind == KIND).ok_or_else(|| {
        Failure::new(format_args!("{}: nothing of ours is mounted there", dir.display()))
    })?;
    Ok((place, mounted))
}

/// Connects to the process that serves `mounted`.
pub(super) fn connect(mounted: &MountEntry) -> std::io::Result<UnixStream> {
    UnixStream::connect_addr(&address(mounted)?)
}

fn address(mounted: &MountEntry) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("meantime-mount-{}", mounted.device))
}

/// Creates the socket of the mount at `dir`, for whose end `meantime umount` waits. Returns `None`
/// if that fails; `umount` then does not wait.
pub(super) fn hold(dir: &Path) -> Option<UnixListener> {
    listen(&address(&find(dir)?).ok()?).ok()
}

/// Listens at `address`. The kernel may reuse the number of a mount while the process of the first
/// mount still writes. This waits until that process has ended, for [`OTHER_ENDS_TIME`] at most.
fn listen(address: &SocketAddr) -> std::io::Result<UnixListener> {
    let deadline = Instant::now() + OTHER_ENDS_TIME;
    loop {
        let error = match UnixListener::bind_addr(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => error,
            bound => return bound,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(error);
        }
        // If the other process cannot be connected to, it has just ended.
        if let Ok(mut other) = UnixStream::connect_addr(address) {
            other.set_read_timeout(Some(left))?;
            let _ = other.read(&mut [0]);
        }
    }
}

/// Runs `umount`.
pub(crate) fn umount(args: &UmountArgs) -> Result<ExitCode, Failure> {
    unmount(&args.dir, false, false)?;
    Ok(ExitCode::SUCCESS)
}

/// Unmounts `dir`, and waits until its process has ended. With `by_force`, users of the mount get
/// errors from now on. With `lazily`, it is detached now, without waiting for its users.
pub(super) fn unmount(dir: &Path, by_force: bool, lazily: bool) -> Result<(), Failure> {
    let (place, mounted) = ours(dir)?;
    let server = connect(&mounted);
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("umount");
        // Without -i, umount would call our helper again.
        command.arg("-i").args(by_force.then_some("-f")).args(lazily.then_some("-l"));
        command
    } else {
        let mut command = Command::new("fusermount3");
        command.arg("-u").args((by_force || lazily).then_some("-z"));
        command
    };
    let program = command.get_program().to_owned();
    let output = command.arg("--").arg(&place).output();
    let output = output.context(format_args!("starting {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim_end();
        let users = Place::of_mount(&mounted).map(|place| place.users());
        return Err(match users.filter(|users| !users.is_empty()) {
            Some(users) => Failure::new(format_args!("{said} It is used by {users}.")),
            None => Failure::new(said),
        });
    }
    if let (Ok(mut server), false) = (server, lazily) {
        // No data is ever sent. The read returns when the process has ended.
        let _ = server.set_read_timeout(Some(PATIENCE));
        let is_over =
            |read: std::io::Result<usize>| !read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        if !is_over(server.read(&mut [0])) {
            let holders = Place::of_mount(&mounted).map(|place| place.holders());
            let (dir, holders) = (dir.display(), holders.unwrap_or_default());
            warn(format_args!(
                "{dir} is unmounted here, and waits for those that have it still: {holders}"
            ));
            let _ = server.set_read_timeout(None);
            let _ = server.read(&mut [0]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_a_process_that_ends_is_waited_for() {
        let name = format!("meantime-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let other = listen(&address).unwrap();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(other);
        });
        let ours = listen(&address).unwrap();
        drop(ours);
        ends.join().unwrap();
    }

    #[test]
    fn mounts_are_found_by_their_place() {
        let text = "22 1 0:20 / / rw - ext4 /dev/root rw\n\
                    30 22 0:31 / /mnt/a\\040b rw,relatime shared:1 - fuse.meantime file:x rw\n\
                    31 22 0:32 / /mnt rw - tmpfs tmpfs rw\n\
                    32 31 0:33 / /mnt rw - fuse.meantime file:y rw\n";
        let device = |dir| mounted_at(Path::new(dir), text).map(|mounted| mounted.device);
        assert_eq!(device("/mnt").as_deref(), Some("0:33"));
        assert_eq!(device("/mnt/a b").as_deref(), Some("0:31"));
        assert_eq!(device("/mn"), None);
        assert_eq!(mounted_at(Path::new("/"), text).unwrap().kind, "ext4");
    }
}
