//! A mount that only one process and its children see, in a mount namespace of their own.
//!
//! Root needs only the mount namespace. Other users first create a user namespace, in which they
//! may mount. The caller keeps its user and group there. Every other user and group is shown as
//! `nobody`.
//!
//! The kernel requires that /dev/fuse is opened and mounted in the same namespace. Therefore that
//! process does both, and passes the descriptor to the serving process, which stays outside.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::{SessionError, UNMOUNTED, kernel};
use crate::options::Options;

/// Advice where only root may create namespaces.
const ADVICE: &str = "users may not make namespaces here; root can permit it (sysctl -w \
                      kernel.unprivileged_userns_clone=1, or \
                      kernel.apparmor_restrict_unprivileged_userns=0, or \
                      user.max_user_namespaces=10000; in a container it is for who started it), \
                      or can run this command itself";

fn no_namespaces(why: impl fmt::Display) -> String {
    format!("{ADVICE}; {UNMOUNTED} ({why})")
}

/// Moves this process, which must have one thread, into namespaces of its own, and mounts at `dir`
/// there.
pub(crate) fn mount_for_this_process(
    dir: &Path,
    options: &Options,
) -> Result<OwnedFd, SessionError> {
    let refused = |why: String| SessionError::Refused { dir: dir.to_owned(), why };
    let is_user = enter().map_err(|why| refused(no_namespaces(why)))?;
    // Later mounts outside are seen here, too. Mounts made here are not seen outside.
    let down = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", down).map_err(|error| match error {
        Errno::PERM | Errno::ACCESS if is_user => refused(no_namespaces(error)),
        error => refused(format!("a mount namespace: {error}")),
    })?;
    make_place(dir)?;
    kernel::mount(dir, options)
}

/// Enters the namespaces. Returns whether a user namespace was created.
fn enter() -> io::Result<bool> {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() && unshare(UnshareFlags::NEWNS).is_ok() {
        return Ok(false);
    }
    // Root of a container, for example, may lack CAP_SYS_ADMIN.
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1\n", uid.as_raw()))?;
    // The kernel requires this before gid_map: a process that could drop a group could reach files
    // that deny access to that group.
    fs::write("/proc/self/setgroups", "deny\n")?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1\n", gid.as_raw()))?;
    Ok(true)
}

#[expect(deprecated, reason = "what is wrong with it is a flag that is not used here")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// Ensures that there is a directory `dir` to mount at. A missing one is made in a tmpfs over its
/// parent, with the parent's entries bound into it. So nothing is left behind.
fn make_place(dir: &Path) -> Result<(), SessionError> {
    let failed = |why: &str| SessionError::Directory { dir: dir.to_owned(), why: why.to_owned() };
    match dir.metadata() {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => return Err(failed("it is not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&super::why_unusable(&error))),
    }
    let parent = dir.parent().filter(|parent| parent.parent().is_some());
    let siblings = parent.and_then(directories);
    let (Some(parent), Some(siblings)) = (parent, siblings) else {
        return Err(failed(
            "there is no such directory, and none is made beside files; make it first (mkdir), or \
             name another one with --at",
        ));
    };
    make_over(parent, &siblings, dir)
        .map_err(|error| failed(&format!("making it in memory: {error}; make it first (mkdir)")))
}

/// Returns the names in `parent`, if they are few and all directories, which can be bind-mounted.
fn directories(parent: &Path) -> Option<Vec<OsString>> {
    const MOST: usize = 64;
    let entries = fs::read_dir(parent).ok()?.take(MOST + 1);
    let name = |entry: fs::DirEntry| entry.file_type().ok()?.is_dir().then(|| entry.file_name());
    let names: Vec<_> = entries.map(|entry| name(entry.ok()?)).collect::<Option<_>>()?;
    (names.len() <= MOST).then_some(names)
}

fn make_over(parent: &Path, siblings: &[OsString], dir: &Path) -> io::Result<()> {
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    let below = open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let hidden = Path::new("/proc/self/fd").join(below.as_raw_fd().to_string());
    mount("meantime", parent, "tmpfs", flags, c"mode=755,size=64k")?;
    for name in siblings {
        fs::create_dir(parent.join(name))?;
        mount_bind_recursive(hidden.join(name), parent.join(name))?;
    }
    fs::create_dir(dir)?;
    // The mount is read-only, because what programs wrote there would be lost.
    Ok(mount_remount(parent, flags | MountFlags::RDONLY, "")?)
}
