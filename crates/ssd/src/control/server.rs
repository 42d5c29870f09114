//! The socket, and the thread that answers on it.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::FaultControl;
use super::command::{answer, error};
use crate::error::SsdError;

/// The longest line that is taken, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// How long a client may be silent, or take to read its answer. Others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the socket for as long as it lives; dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    /// Device and inode: whether the socket at `path` is still this one.
    identity: (u64, u64),
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Answers for `ssd` on the Unix socket `path`, from a thread of its own.
///
/// # Errors
/// [`SsdError::InUse`] if another server answers there already, [`SsdError::Io`] if the system
/// refuses, or something else is there.
pub fn serve(path: &Path, ssd: Arc<dyn FaultControl>) -> Result<ControlServer, SsdError> {
    let failed =
        |attempted| move |source| SsdError::Io { path: path.to_owned(), attempted, source };
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(failed("removing what a dead process has left"))?;
            }
            _ => return Err(SsdError::InUse { path: path.to_owned() }),
        }
    }
    let listener = UnixListener::bind(path).map_err(failed("making the control socket"))?;
    start(path, listener, ssd).map_err(|source| {
        let _ = fs::remove_file(path);
        failed("serving the control socket")(source)
    })
}

fn start(
    path: &Path,
    listener: UnixListener,
    ssd: Arc<dyn FaultControl>,
) -> std::io::Result<ControlServer> {
    // A client that connects before that has its credentials checked like any other.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let meta = fs::symlink_metadata(path)?;
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let server = Server { listener, stop: Arc::clone(&stop), ssd };
    let thread = meantime_process::thread::spawn("meantime-ssd-ctl", move || server.run())?;
    Ok(ControlServer {
        path: path.to_owned(),
        identity: (meta.dev(), meta.ino()),
        stop,
        thread: Some(thread),
    })
}

impl ControlServer {
    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
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
    stop: Arc<OwnedFd>,
    ssd: Arc<dyn FaultControl>,
}

/// The server is to end.
struct Stopped;

impl Server {
    fn run(&self) {
        while self.wait(&self.listener, PollFlags::IN, None).is_ok() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if self.talk(stream).is_err() {
                        return;
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // Without descriptors the listener stays ready: not at full speed.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Waits for `flags` of `fd`, or its end. False if it took too long.
    fn wait(
        &self,
        fd: &impl std::os::fd::AsFd,
        flags: PollFlags,
        until: Option<Instant>,
    ) -> Result<bool, Stopped> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            let mut fds = [PollFd::new(&*self.stop, PollFlags::IN), PollFd::new(fd, flags)];
            match poll(&mut fds, left.as_ref()) {
                Ok(_) if !fds[0].revents().is_empty() => return Err(Stopped),
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Stopped),
            }
        }
    }

    /// Answers one client, until it ends or is silent for too long.
    fn talk(&self, mut stream: UnixStream) -> Result<(), Stopped> {
        if stream.set_nonblocking(true).is_err() {
            return Ok(());
        }
        if !is_allowed(&stream) {
            self.say(
                &mut stream,
                &error("this SSD belongs to another user; be that user, or root"),
            )?;
            return Ok(());
        }
        let mut input = Vec::new();
        let mut until = Instant::now() + PATIENCE;
        loop {
            if let Some(end) = input.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = input.drain(..=end).collect();
                if !self.say(&mut stream, &answer(self.ssd.as_ref(), line.trim_ascii()))? {
                    return Ok(());
                }
                until = Instant::now() + PATIENCE;
                continue;
            }
            if input.len() >= LINE_BYTES_MAX {
                self.say(
                    &mut stream,
                    &error(&format!("a line has at most {LINE_BYTES_MAX} bytes")),
                )?;
                return Ok(());
            }
            if !self.wait(&stream, PollFlags::IN, Some(until))? {
                return Ok(());
            }
            let mut bytes = [0; LINE_BYTES_MAX];
            match stream.read(&mut bytes) {
                Ok(0) => {
                    // A last line without its end.
                    if !input.trim_ascii().is_empty() {
                        self.say(&mut stream, &answer(self.ssd.as_ref(), input.trim_ascii()))?;
                    }
                    return Ok(());
                }
                Ok(count) => input.extend_from_slice(&bytes[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return Ok(()),
            }
        }
    }

    /// False: the client has gone, or does not read.
    fn say(&self, stream: &mut UnixStream, text: &str) -> Result<bool, Stopped> {
        let until = Instant::now() + PATIENCE;
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(0) => return Ok(false),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.wait(stream, PollFlags::OUT, Some(until))? {
                        return Ok(false);
                    }
                }
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

fn is_allowed(stream: &UnixStream) -> bool {
    socket_peercred(stream.as_fd()).is_ok_and(|peer| may_ask(peer.uid.as_raw(), geteuid().as_raw()))
}

/// Whether `peer` may ask a process of the user `own`.
fn may_ask(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;
    use crate::{Medium, SsdConfig, SteppedSsd};

    fn server(path: &Path) -> Result<ControlServer, SsdError> {
        let config = SsdConfig::with_namespace(1 << 20, 512);
        let ssd = SteppedSsd::new(config, Medium::dram(1 << 20)?, 1)?;
        serve(path, Arc::new(ssd))
    }

    fn ask(path: &Path, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        // A connection that is ended before it has read everything may be reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn the_server_answers_cleans_up_and_excludes_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let server_a = server(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(server(&path), Err(SsdError::InUse { .. })));
        assert_eq!(
            ask(&path, b"slow 1ms\nfaults clear\nfaults"),
            " late-completion by=1ms\nok\nok\nok\n"
        );
        assert!(ask(&path, b"\n").starts_with("error: there is no command"));
        assert!(ask(&path, &[b'x'; 5000]).contains("at most 4096"));
        // In steps, and kept open.
        let mut stream = BufReader::new(UnixStream::connect(&path).unwrap());
        for _ in 0..3 {
            stream.get_mut().write_all(b"fau").unwrap();
            stream.get_mut().write_all(b"lts\n").unwrap();
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            assert_eq!(line, "ok\n");
        }
        // A silent client does not keep the server from ending.
        let began = Instant::now();
        drop(server_a);
        assert!(began.elapsed() < PATIENCE && !path.exists());
        drop(stream);
        // What a dead process has left.
        drop(UnixListener::bind(&path).unwrap());
        drop(server(&path).unwrap());
        fs::write(&path, "mine").unwrap();
        assert!(server(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn only_the_owner_and_root_may_ask() {
        assert!(
            may_ask(1000, 1000) && may_ask(0, 1000) && !may_ask(1001, 1000) && !may_ask(1000, 0)
        );
    }
}
