//! The paths and owners of control sockets.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, geteuid, test_kill_process};

use super::ControlError;

/// A serving process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// Its process number.
    pub pid: u32,
    /// Its socket.
    pub path: PathBuf,
}

/// The path of this process's control socket. Creates its directory if necessary.
///
/// # Errors
/// If the directory cannot be made, or other users can write to it.
pub fn own_path() -> Result<PathBuf, ControlError> {
    let uid = geteuid().as_raw();
    let dir = directories(uid).swap_remove(0);
    let made = fs::DirBuilder::new().mode(0o700).create(&dir);
    if let Err(source) = made
        && source.kind() != ErrorKind::AlreadyExists
    {
        return Err(ControlError::Io { what: "cannot make the directory", path: dir, source });
    }
    check_directory(&dir, uid)?;
    Ok(dir.join(format!("{}.sock", std::process::id())))
}

/// The directories that may hold sockets of `uid`; this process uses the first.
fn directories(uid: u32) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    // Under `sudo -E` and the like the variable is another user's, who could not even remove a file
    // put there.
    let own = |path: &Path| {
        path.is_absolute()
            && fs::metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
    };
    if let Some(runtime) =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| own(path))
    {
        dirs.push(runtime.join("meantime"));
    }
    // A service, or a login without the variable, may run beside one that has it.
    let usual = PathBuf::from(format!("/run/user/{uid}/meantime"));
    let fallback = PathBuf::from(format!("/tmp/meantime-{uid}"));
    for dir in [fallback, usual] {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs
}

/// Checks that `dir` is a directory, not a link to one, that belongs to `uid` and is closed to
/// other users.
///
/// # Errors
/// [`ControlError::Unsafe`], with a remedy.
pub(super) fn check_directory(dir: &Path, uid: u32) -> Result<(), ControlError> {
    let meta =
        fs::symlink_metadata(dir).map_err(ControlError::io("cannot look at the directory", dir))?;
    let why = if !meta.is_dir() {
        "it is a link or a file; remove it, or set XDG_RUNTIME_DIR to a directory of your own"
            .to_owned()
    } else if meta.uid() != uid {
        format!("it belongs to user {}; set XDG_RUNTIME_DIR to a directory of your own", meta.uid())
    } else if meta.mode() & 0o077 != 0 {
        format!("others can use it (mode {:o}); chmod 700 it", meta.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(ControlError::Unsafe { path: dir.to_owned(), why })
}

/// The serving processes of this user, by number. Removes sockets of dead processes.
///
/// # Errors
/// If a directory exists and is not safe.
pub fn served() -> Result<Vec<Served>, ControlError> {
    let uid = geteuid().as_raw();
    let mut found = Vec::new();
    for dir in directories(uid) {
        found.extend(served_in(&dir, uid)?);
    }
    found.sort();
    found.dedup_by_key(|served| served.pid);
    Ok(found)
}

/// The serving processes of this user, and for root those of all users, where they use the usual
/// directories. A user's directory that is not safe is left out, but for this user's.
///
/// # Errors
/// As [`served`].
pub fn served_by_all() -> Result<Vec<Served>, ControlError> {
    let mut found = served()?;
    if geteuid().is_root() {
        for (parent, prefix) in [("/tmp", "meantime-"), ("/run/user", "")] {
            for uid in uids_in(Path::new(parent), prefix) {
                let dirs = [format!("/tmp/meantime-{uid}"), format!("/run/user/{uid}/meantime")];
                let served = dirs.iter().filter_map(|dir| served_in(Path::new(dir), uid).ok());
                found.extend(served.flatten());
            }
        }
        found.sort();
        found.dedup_by_key(|served| served.pid);
    }
    Ok(found)
}

/// The users whose numbers follow `prefix` in names in `parent`.
fn uids_in(parent: &Path, prefix: &str) -> Vec<u32> {
    let names = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix(prefix)?.parse().ok()).collect()
}

/// The socket of the process `pid`, of any user. `None` if it serves none that this user may use.
///
/// # Errors
/// As [`served`].
pub fn served_by(pid: u32) -> Result<Option<Served>, ControlError> {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { return Ok(None) };
    let uid = process.uid();
    if uid != geteuid().as_raw() && !geteuid().is_root() {
        return Ok(None);
    }
    for dir in directories(uid) {
        if let Some(served) = served_in(&dir, uid)?.into_iter().find(|served| served.pid == pid) {
            return Ok(Some(served));
        }
    }
    Ok(None)
}

fn served_in(dir: &Path, uid: u32) -> Result<Vec<Served>, ControlError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(_) => return Ok(Vec::new()),
    };
    check_directory(dir, uid)?;
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(pid) = pid_of(&path) else { continue };
        if !is_stale(&path) {
            found.push(Served { pid, path });
        } else if !is_alive(pid) {
            let _ = fs::remove_file(&path);
        }
    }
    Ok(found)
}

fn pid_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let pid: u32 = name.strip_suffix(".sock")?.parse().ok()?;
    (format!("{pid}.sock") == name && pid > 0).then_some(pid)
}

/// Whether no process listens on the socket `path`, or it is not a socket.
pub(super) fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    // A busy socket is not stale.
    !is_socket
        || connect(path).is_err_and(|error| {
            matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
        })
}

/// Connects without waiting: a process that is stopped has a full queue of connections at some time.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// A process that has just begun to serve does not listen yet.
fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn uid() -> u32 {
        geteuid().as_raw()
    }

    #[test]
    fn only_a_directory_of_ones_own_will_do() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("meantime");
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        check_directory(&dir, uid()).unwrap();
        let error = check_directory(&dir, uid() + 1).unwrap_err().to_string();
        assert!(error.contains("belongs to user") && error.contains("XDG_RUNTIME_DIR"), "{error}");
        let link = top.path().join("link");
        symlink(&dir, &link).unwrap();
        assert!(check_directory(&link, uid()).unwrap_err().to_string().contains("link"));
        for mode in [0o710, 0o701, 0o777] {
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            assert!(check_directory(&dir, uid()).unwrap_err().to_string().contains("chmod 700"));
        }
    }

    #[test]
    fn sockets_of_the_dead_are_removed_and_other_files_are_left() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        // Beyond the kernel's largest process number, 4,194,304.
        let dead = dir.path().join("4194999.sock");
        drop(UnixListener::bind(&dead).unwrap());
        let deaf = dir.path().join(format!("{}.sock", std::process::id()));
        drop(UnixListener::bind(&deaf).unwrap());
        let other = dir.path().join("notes.sock");
        fs::write(&other, "").unwrap();
        assert_eq!(served_in(dir.path(), uid()).unwrap(), []);
        assert!(!dead.exists() && other.exists());
        assert!(deaf.exists(), "its process is alive, and may be about to listen");
        fs::remove_file(&deaf).unwrap();
        let _listener = UnixListener::bind(&deaf).unwrap();
        let pid = std::process::id();
        assert_eq!(served_in(dir.path(), uid()).unwrap(), [Served { pid, path: deaf }]);
    }

    #[test]
    fn other_names_are_no_sockets() {
        for name in [
            "0.sock",
            "+1.sock",
            "01.sock",
            "1.sock.sock",
            "x.sock",
            "1",
            ".sock",
            "99999999999.sock",
        ] {
            assert_eq!(pid_of(Path::new(name)), None, "{name}");
        }
        assert_eq!(pid_of(Path::new("/a/17.sock")), Some(17));
    }
}
