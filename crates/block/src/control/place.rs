//! The paths and owners of control sockets.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, geteuid, test_kill_process};

use super::error::ControlError;

/// The most sockets of another user, and the most names looked at in a directory of that user.
const SOCKETS_MAX: usize = 64;
const NAMES_MAX: usize = 4096;

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
/// Fails if the directory cannot be made, or other users can write to it.
pub fn own_path() -> Result<PathBuf, ControlError> {
    let uid = geteuid().as_raw();
    let dir = directories(uid).swap_remove(0);
    // Others may look into the directory above that of root, for the records of bound devices.
    if let Some(above) = dir.parent().filter(|above| *above == Path::new("/run/meantime")) {
        let _ = fs::DirBuilder::new().mode(0o755).create(above);
    }
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
    // Only root can create that directory; any user can create one in /tmp.
    if uid == 0 && access("/run", Access::WRITE_OK).is_ok() {
        dirs.push(PathBuf::from("/run/meantime/control"));
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
/// Returns [`ControlError::Unsafe`], with a remedy.
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
/// Fails if the directory that this process would use exists and is not safe. Another unsafe
/// directory is left out with a warning, because other users can make it.
pub fn served() -> Result<Vec<Served>, ControlError> {
    let uid = geteuid().as_raw();
    if let Some(dir) = directories(uid).first() {
        served_in(dir, uid, 0)?;
    }
    Ok(served_safely(uid))
}

/// The serving processes of this user, and for root those of all users where they use the usual
/// directories, with at most 64 of each other user. Directories that are not safe are left out; for
/// this user's there is a warning.
pub fn served_by_all() -> Vec<Served> {
    let own = geteuid();
    let mut found = served_safely(own.as_raw());
    if own.is_root() {
        let mut uids: Vec<u32> = [("/tmp", "meantime-"), ("/run/user", "")]
            .iter()
            .flat_map(|(parent, prefix)| uids_in(Path::new(parent), prefix))
            .filter(|uid| *uid != own.as_raw())
            .collect();
        uids.sort_unstable();
        uids.dedup();
        for uid in uids {
            let dirs = [format!("/tmp/meantime-{uid}"), format!("/run/user/{uid}/meantime")];
            let served =
                dirs.iter().filter_map(|dir| served_in(dir.as_ref(), uid, SOCKETS_MAX).ok());
            found.extend(served.flatten().take(SOCKETS_MAX));
        }
        found.sort();
        found.dedup_by_key(|served| served.pid);
    }
    found
}

/// The numbers in the names of this user's sockets, in no order. [`served`] looks at these sockets.
pub fn served_names() -> Vec<u32> {
    let uid = geteuid().as_raw();
    let dirs = directories(uid).into_iter().filter(|dir| check_directory(dir, uid).is_ok());
    let entries = dirs.flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    entries.filter_map(|entry| pid_of(&entry.path())).filter(|pid| is_alive(*pid)).collect()
}

/// The serving processes of this user in directories that are safe.
fn served_safely(uid: u32) -> Vec<Served> {
    let mut found = Vec::new();
    for dir in directories(uid) {
        match served_in(&dir, uid, usize::MAX) {
            Ok(served) => found.extend(served),
            Err(error) => tracing::warn!("{error}"),
        }
    }
    found.sort();
    found.dedup_by_key(|served| served.pid);
    found
}

/// The users whose numbers follow `prefix` in names in `parent`.
fn uids_in(parent: &Path, prefix: &str) -> Vec<u32> {
    let names = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix(prefix)?.parse().ok()).collect()
}

/// The socket of the process `pid`, of any user. Returns `None` if the process serves none that
/// this user may use.
///
/// # Errors
/// Fails if the process's socket is in a directory that is not safe.
pub fn served_by(pid: u32) -> Result<Option<Served>, ControlError> {
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else { return Ok(None) };
    let uid = process.uid();
    if uid != geteuid().as_raw() && !geteuid().is_root() {
        return Ok(None);
    }
    let mut failure = None;
    for dir in directories(uid) {
        let path = dir.join(format!("{pid}.sock"));
        if fs::symlink_metadata(&path).is_err() {
            continue;
        }
        match check_directory(&dir, uid) {
            Ok(()) if look_at(&path, pid, uid) == Look::Serves => {
                return Ok(Some(Served { pid, path }));
            }
            Ok(()) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(None), Err)
}

/// The serving processes, at most `most`, in a directory of `uid`.
fn served_in(dir: &Path, uid: u32, most: usize) -> Result<Vec<Served>, ControlError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(_) => return Ok(Vec::new()),
    };
    check_directory(dir, uid)?;
    let names_max = if most == usize::MAX { most } else { NAMES_MAX };
    let mut found = Vec::new();
    for path in entries.flatten().take(names_max).map(|entry| entry.path()) {
        if found.len() >= most {
            break;
        }
        let Some(pid) = pid_of(&path) else { continue };
        match look_at(&path, pid, uid) {
            Look::Serves => found.push(Served { pid, path }),
            Look::Dead => drop(fs::remove_file(&path)),
            Look::Other => {}
        }
    }
    Ok(found)
}

/// The result of a look at a socket and its listener.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// The process of that number serves there.
    Serves,
    /// No process listens, and the named process does not exist.
    Dead,
    /// Another process or user listens, or the process does not listen yet.
    Other,
}

/// Looks whether the process `pid` of the user `uid` listens on `path`: a name alone proves
/// nothing.
fn look_at(path: &Path, pid: u32, uid: u32) -> Look {
    match listener(path) {
        Ok(peer) if peer == (pid, uid) => Look::Serves,
        Ok(_) => Look::Other,
        Err(error) if is_of_nobody(&error) => {
            if is_alive(pid) {
                Look::Other
            } else {
                Look::Dead
            }
        }
        // The process is busy, or stopped.
        Err(_) => {
            let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
            if owner.is_ok_and(|owner| owner == uid) { Look::Serves } else { Look::Other }
        }
    }
}

fn pid_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let pid: u32 = name.strip_suffix(".sock")?.parse().ok()?;
    (format!("{pid}.sock") == name && pid > 0).then_some(pid)
}

/// Whether no process listens on the socket `path`, or it is not a socket.
pub(super) fn is_stale(path: &Path) -> bool {
    // A busy socket is not stale.
    listener(path).is_err_and(|error| is_of_nobody(&error))
}

fn is_of_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
}

/// The process that listens on the socket `path`, and its user.
#[expect(unsafe_code)]
fn listener(path: &Path) -> io::Result<(u32, u32)> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(ErrorKind::NotFound.into());
    }
    let stream = connect(path)?;
    // This is not rustix's structure, whose process number cannot be 0. The number of a process in
    // another namespace is 0.
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `bytes` is the size of `peer`, so the kernel writes only within it. Any bytes are a
    // valid `ucred`. Both variables live until the call returns.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((peer.pid.unsigned_abs(), peer.uid))
}

/// Connects without waiting, since a stopped process may have a full queue of connections.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Whether the process exists. One that has just begun to serve does not listen yet.
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
        // The number is beyond the kernel's largest process number, 4,194,304.
        let dead = dir.path().join("4194999.sock");
        drop(UnixListener::bind(&dead).unwrap());
        let deaf = dir.path().join(format!("{}.sock", std::process::id()));
        drop(UnixListener::bind(&deaf).unwrap());
        let other = dir.path().join("notes.sock");
        fs::write(&other, "").unwrap();
        assert_eq!(served_in(dir.path(), uid(), 9).unwrap(), []);
        assert!(!dead.exists() && other.exists());
        assert!(deaf.exists(), "its process is alive, and may be about to listen");
        fs::remove_file(&deaf).unwrap();
        let _listener = UnixListener::bind(&deaf).unwrap();
        let pid = std::process::id();
        assert_eq!(served_in(dir.path(), uid(), 9).unwrap(), [Served { pid, path: deaf }]);
        // The socket has the name of another process, which lives.
        let false_name = dir.path().join("1.sock");
        let _other = UnixListener::bind(&false_name).unwrap();
        assert_eq!(served_in(dir.path(), uid(), 9).unwrap().len(), 1);
        assert!(false_name.exists());
        assert_eq!(served_in(dir.path(), uid(), 0).unwrap(), []);
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
