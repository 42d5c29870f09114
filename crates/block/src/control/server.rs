//! The thread that answers on the control socket.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use rustix::time::Timespec;

use super::connection::{Change, Connection};
use super::error::ControlError;
use super::{answer, place};
use meantime_hw::EventFd;

/// The most clients connected at a time.
const CLIENTS_MAX: usize = 16;

/// The most changes kept.
const CHANGES_MAX: usize = 1024;

/// Serves the control socket. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    /// Device and inode, to check that the file at `path` is still this socket.
    identity: (u64, u64),
    stop: EventFd,
    changes: Arc<Mutex<Vec<Change>>>,
    thread: Option<JoinHandle<()>>,
}

/// Serves this process's channels at `path`, usually [`own_path`](super::own_path), from its own
/// thread.
///
/// # Errors
/// Returns [`ControlError`] if the directory is open to other users, if another process serves
/// there already, or if a system call fails.
pub fn serve(path: &Path) -> Result<ControlServer, ControlError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The directory keeps other users out before the socket has its mode.
    place::check_directory(dir, geteuid().as_raw())?;
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        if !place::is_stale(path) {
            return Err(ControlError::Taken { path: path.to_owned() });
        }
        fs::remove_file(path)
            .map_err(ControlError::io("cannot remove what a dead process has left:", path))?;
    }
    let failed = || ControlError::io("cannot make the control socket", path);
    let listener = UnixListener::bind(path).map_err(failed())?;
    let made = start(path, listener);
    if made.is_err() {
        let _ = fs::remove_file(path);
    }
    made.map_err(failed())
}

fn start(path: &Path, listener: UnixListener) -> std::io::Result<ControlServer> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let meta = fs::symlink_metadata(path)?;
    let stop = EventFd::new().map_err(std::io::Error::other)?;
    let changes = Arc::<Mutex<Vec<Change>>>::default();
    let mut server =
        Server { listener, stop: stop.clone(), changes: Arc::clone(&changes), clients: Vec::new() };
    let thread = meantime_process::thread::spawn("meantime-control", move || server.run())?;
    let identity = (meta.dev(), meta.ino());
    Ok(ControlServer { path: path.to_owned(), identity, stop, changes, thread: Some(thread) })
}

impl ControlServer {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The changes made from outside so far, in order; at most the first 1,024.
    pub fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let is_ours = |meta: fs::Metadata| (meta.dev(), meta.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

struct Server {
    listener: UnixListener,
    stop: EventFd,
    changes: Arc<Mutex<Vec<Change>>>,
    clients: Vec<Connection>,
}

impl Server {
    fn run(&mut self) {
        loop {
            let patience = self.clients.iter().filter_map(Connection::patience).min();
            let Some(ready) = self.wait(patience) else {
                // Polling failed: a pause avoids a busy loop.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if !ready[0].is_empty() {
                return;
            }
            let (mut at, mut made) = (1, Vec::new());
            self.clients.retain_mut(|client| {
                at += 1;
                client.go_on(ready[at], &mut made)
            });
            if !made.is_empty() {
                let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
                let room = CHANGES_MAX.saturating_sub(changes.len());
                changes.extend(made.into_iter().take(room));
            }
            if !ready[1].is_empty() {
                self.accept();
            }
        }
    }

    /// The ready events: the stop signal, the listener, the clients.
    fn wait(&self, patience: Option<Duration>) -> Option<Vec<PollFlags>> {
        let mut fds = vec![
            PollFd::new(&self.stop, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        fds.extend(
            self.clients.iter().map(|client| PollFd::new(client.stream(), client.interest())),
        );
        let timeout = patience.map(|patience| Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => Some(fds.iter().map(PollFd::revents).collect()),
            Err(rustix::io::Errno::INTR) => Some(vec![PollFlags::empty(); fds.len()]),
            Err(_) => None,
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((mut stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    return;
                }
                let refusal = match is_allowed(&stream) {
                    true if self.clients.len() < CLIENTS_MAX => {
                        self.clients.push(Connection::new(stream));
                        return;
                    }
                    true => format!("{CLIENTS_MAX} are connected already; end one of them"),
                    false => {
                        "this process belongs to another user; be that user, or root".to_owned()
                    }
                };
                let _ = stream.write_all(format!("{}\n", answer::error(refusal)).as_bytes());
            }
            // Without free descriptors the listener stays ready: the pause avoids a busy loop.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
                ) =>
            {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(_) => {}
        }
    }
}

fn is_allowed(stream: &UnixStream) -> bool {
    socket_peercred(stream.as_fd()).is_ok_and(|peer| may_ask(peer.uid.as_raw(), geteuid().as_raw()))
}

/// Whether the user `peer` may send requests to a process of the user `own`.
fn may_ask(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests;
