//! Waiting for the end of a mount: the kernel's `umount` returns before the file system is
//! written.
//!
//! The process that serves a mount has an abstract socket, named after the mount's device number,
//! as long as it lives. Who unmounts connects to it, which needs no answer, and is told by the
//! kernel when the process has ended.

use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::cli::UmountArgs;
use crate::failure::Failure;

/// A mount as /proc/self/mountinfo tells of it.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    /// Its device number, `major:minor`.
    device: String,
    /// Its type: `fuse.meantime` for ours.
    kind: String,
}

/// What is mounted at `dir`, by the text of mountinfo: the last one there is on top.
fn mounted_at(dir: &Path, mountinfo: &str) -> Option<Mounted> {
    let of_line = |line: &str| {
        let (place, rest) = line.split_once(" - ")?;
        let mut place = place.split(' ');
        let (device, point) = (place.nth(2)?, place.nth(1)?);
        let is_it = unescaped(point) == dir.as_os_str().as_encoded_bytes();
        let kind = rest.split(' ').next()?;
        is_it.then(|| Mounted { device: device.to_owned(), kind: kind.to_owned() })
    };
    mountinfo.lines().rev().find_map(of_line)
}

/// A path as it is: in mountinfo, spaces and the like are written `\040`.
fn unescaped(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut path = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 4).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) if bytes[at] == b'\\' => {
                path.push(byte);
                at += 4;
            }
            _ => {
                path.push(bytes[at]);
                at += 1;
            }
        }
    }
    path
}

fn find(dir: &Path) -> Option<Mounted> {
    mounted_at(dir, &std::fs::read_to_string("/proc/self/mountinfo").ok()?)
}

fn address(mounted: &Mounted) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("meantime-mount-{}", mounted.device))
}

/// As long as this is held, who unmounts `dir` waits. (Where it cannot be had, nobody can wait.)
pub(super) fn hold(dir: &Path) -> Option<UnixListener> {
    UnixListener::bind_addr(&address(&find(dir)?).ok()?).ok()
}

/// Runs `umount`.
pub(crate) fn umount(args: &UmountArgs) -> Result<ExitCode, Failure> {
    let shown = args.dir.display();
    let failed = |error: std::io::Error| Failure::new(format_args!("{shown}: {error}"));
    // (The directory that it is in: a mount whose server has ended gives errors itself.)
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
        // It says nothing: this is its end.
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
