//! Waiting for the end of a mount: the kernel's `umount` returns before the file system is
//! written.
//!
//! The process that serves a mount listens at an abstract socket, named after the mount's device
//! number, until it ends. `meantime umount` connects to this socket before it unmounts. The process
//! accepts no connection; when it ends, the kernel closes the socket, and `umount` sees that.

use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode};

use meantime_hw::mountinfo::{self, MountEntry};

use crate::cli::UmountArgs;
use crate::failure::Failure;

/// What is mounted at `dir`, by the text of mountinfo: the last one there is on top.
fn mounted_at(dir: &Path, mountinfo: &str) -> Option<MountEntry> {
    mountinfo::parse(mountinfo).rfind(|entry| entry.dir == dir)
}

fn find(dir: &Path) -> Option<MountEntry> {
    mounted_at(dir, &std::fs::read_to_string("/proc/self/mountinfo").ok()?)
}

fn address(mounted: &MountEntry) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("meantime-mount-{}", mounted.device))
}

/// The socket of the mount at `dir`: `meantime umount` waits until it is dropped. `None` if it
/// cannot be made; `umount` does not wait then.
pub(super) fn hold(dir: &Path) -> Option<UnixListener> {
    UnixListener::bind_addr(&address(&find(dir)?).ok()?).ok()
}

/// Runs `umount`.
pub(crate) fn umount(args: &UmountArgs) -> Result<ExitCode, Failure> {
    let shown = args.dir.display();
    let failed = |error: std::io::Error| Failure::new(format_args!("{shown}: {error}"));
    // A mount whose server has ended answers every look with ENOTCONN.
    let dir = match args.dir.canonicalize() {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            std::path::absolute(&args.dir).map_err(failed)?
        }
        dir => dir.map_err(failed)?,
    };
    let mounted = find(&dir).filter(|mounted| mounted.kind == "fuse.meantime");
    let mounted = mounted
        .ok_or_else(|| Failure::new(format_args!("{shown}: nothing of ours is mounted there")))?;
    let server = address(&mounted).and_then(|address| UnixStream::connect_addr(&address));
    let root = rustix::process::geteuid().is_root();
    let (program, words): (_, &[&str]) =
        if root { ("umount", &["--"]) } else { ("fusermount3", &["-u", "--"]) };
    let output = Command::new(program).args(words).arg(&dir).output();
    let output =
        output.map_err(|error| Failure::new(format_args!("starting {program}: {error}")))?;
    if !output.status.success() {
        return Err(Failure::new(String::from_utf8_lossy(&output.stderr)));
    }
    if let Ok(mut server) = server {
        // Nothing is ever sent: the read returns when the process has ended.
        let _ = server.read(&mut [0]);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

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
