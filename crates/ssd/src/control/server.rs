//! The control socket, and the thread that answers on it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::FaultControl;
use super::command::{answer, error};
use crate::error::SsdError;
use crate::served::{Socket, SocketOptions};
use crate::sys::StoppedThread;

/// The longest line accepted, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// The longest time that a client may be silent, or take to read its answer. Other clients wait
/// meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the socket for as long as it lives. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    #[expect(dead_code, reason = "held so that the thread runs")]
    thread: StoppedThread,
}

/// Answers for `ssd` on the Unix socket `path`, from its own thread.
///
/// # Errors
/// [`SsdError::Socket`] if another server answers there already, or the path is no socket;
/// [`SsdError::Io`] if the system refuses.
pub fn serve(path: &Path, ssd: Arc<dyn FaultControl>) -> Result<ControlServer, SsdError> {
    let socket = Socket::bind(path, &SocketOptions::default())?;
    let thread =
        StoppedThread::spawn("meantime-ssd-ctl", |stop| move || Server { socket, stop, ssd }.run());
    let (path, attempted) = (path.to_owned(), "serving the control socket");
    match thread {
        Ok(thread) => Ok(ControlServer { path, thread }),
        Err(source) => Err(SsdError::Io { path, attempted, source }),
    }
}

impl ControlServer {
    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

struct Server {
    socket: Socket,
    stop: Arc<OwnedFd>,
    ssd: Arc<dyn FaultControl>,
}

/// The error that the server has been told to stop.
struct Stopped;

impl Server {
    fn run(&self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while self.wait(&self.socket, PollFlags::IN, None).is_ok() {
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(stream) => {
                    if self.talk(stream.into()).is_err() {
                        return;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Without free descriptors the listener stays ready. The pause avoids a busy loop.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Waits for `flags` of `fd`, or the stop signal. Returns false on a time-out.
    fn wait(
        &self,
        fd: &impl AsFd,
        flags: PollFlags,
        until: Option<Instant>,
    ) -> Result<bool, Stopped> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&*self.stop, PollFlags::IN), PollFd::new(fd, flags)];
            match poll(&mut fds, left.as_ref()) {
                Ok(_) if !fds[0].revents().is_empty() => return Err(Stopped),
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Stopped),
            }
        }
    }

    /// Serves one client until it closes, or is silent for too long.
    fn talk(&self, mut stream: UnixStream) -> Result<(), Stopped> {
        if !is_allowed(&stream) {
            let refusal = error("this SSD belongs to another user; be that user, or root");
            return self.say(&mut stream, &refusal).map(|_| ());
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
                let refusal = error(&format!("a line has at most {LINE_BYTES_MAX} bytes"));
                return self.say(&mut stream, &refusal).map(|_| ());
            }
            if !self.wait(&stream, PollFlags::IN, Some(until))? {
                return Ok(());
            }
            let mut bytes = [0; LINE_BYTES_MAX];
            match stream.read(&mut bytes) {
                Ok(0) => {
                    // This is a last line without a newline.
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

    /// Sends `text`. Returns false if the client has closed, or does not read.
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

/// Returns whether the user `peer` may send requests to a process of the user `own`.
fn may_ask(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::served::SocketError;
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
        // A connection that is closed before everything is read may be reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn the_server_answers_cleans_up_and_excludes_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let server_a = server(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(server(&path), Err(SsdError::Socket(SocketError::Taken { .. }))));
        assert_eq!(
            ask(&path, b"slow 1ms\nfaults clear\nfaults"),
            " late-completion by=1ms\nok\nok\nok\n"
        );
        assert!(ask(&path, b"\n").starts_with("error: there is no command"));
        assert!(ask(&path, &[b'x'; 5000]).contains("at most 4096"));
        // The request is sent in several writes, and the connection is left open.
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
        // This socket is left over from a dead process.
        drop(UnixListener::bind(&path).unwrap());
        drop(server(&path).unwrap());
        fs::write(&path, "mine").unwrap();
        assert!(matches!(server(&path), Err(SsdError::Socket(SocketError::NoSocket { .. }))));
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn only_the_owner_and_root_may_ask() {
        assert!(
            may_ask(1000, 1000) && may_ask(0, 1000) && !may_ask(1001, 1000) && !may_ask(1000, 0)
        );
    }
}
