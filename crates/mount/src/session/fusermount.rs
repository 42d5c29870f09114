//! Mounts as an unprivileged user, by the program `fusermount3`, which passes the descriptor over a
//! socket.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use meantime_ext4::AccessTimes;
use rustix::io::FdFlags;

use super::{SessionError, UNMOUNTED, pass};
use crate::options::Options;

/// The program's names. A system has one or both.
const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];
/// The environment variable with the socket's descriptor number.
const SOCKET: &str = "_FUSE_COMMFD";

fn words(options: &Options) -> String {
    // A comma ends an option, and a backslash escapes it.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = format!("fsname={source},subtype=meantime,default_permissions");
    let choices = [
        (options.read_only, ",ro"),
        (options.noexec, ",noexec"),
        (options.sync, ",sync"),
        (options.allow_other, ",allow_other"),
        (options.access_times == AccessTimes::Never, ",noatime"),
    ];
    for (_, word) in choices.iter().filter(|(is, _)| *is) {
        words += word;
    }
    words
}

pub(crate) fn mount(dir: &Path, options: &Options) -> Result<OwnedFd, SessionError> {
    let (ours, theirs) = pass::sockets()?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(io::Error::from)?;
    let mut missing = None;
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.arg("-o").arg(words(options)).arg("--").arg(dir).stdin(Stdio::null());
        command.env(SOCKET, theirs.as_raw_fd().to_string());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                missing.get_or_insert(error);
                continue;
            }
        };
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(SessionError::Refused { dir: dir.to_owned(), why });
        }
        drop(theirs);
        let none = || io::Error::other("fusermount3 passed no descriptor");
        return Ok(pass::receive(&ours)?.ok_or_else(none)?);
    }
    let why = missing.map_or_else(String::new, |error| format!(" ({error})"));
    Err(SessionError::NoFuse(format!(
        "only root can mount without the program fusermount3, which is not here{why}: install \
         fuse3, mount as root, or use `meantime run`, which mounts for one program; {UNMOUNTED}"
    )))
}

pub(crate) fn unmount(dir: &Path, by_force: bool) -> io::Result<()> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.arg("-u").args(by_force.then_some("-z")).arg("--").arg(dir);
        if let Ok(output) = command.output() {
            return match output.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim())),
            };
        }
    }
    Err(io::Error::other("there is no fusermount3 here"))
}
