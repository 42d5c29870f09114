//! A server of one page: `GET /metrics` over HTTP/1.1, one request a connection. A thread sleeps
//! until a client connects. Each connection has a thread of its own as long as it lasts, so no
//! client makes another wait but while the page is made.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use meantime_hw::EventFd;
use meantime_process::thread::spawn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::address::Address;
use super::text::CONTENT_TYPE;

/// The longest request head, in bytes.
const HEAD_BYTES_MAX: usize = 8192;
/// The most connections; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;
/// Of that queue.
const BACKLOG: i32 = 128;
/// The time of a connection, from beginning to end.
const TIME_MAX: Duration = Duration::from_secs(10);
/// How long a page is shared: not each of many clients has all processes asked.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);
/// Pause after a failure that would repeat itself at once.
const PAUSE: Duration = Duration::from_millis(100);

/// A server; dropping it ends its thread and removes its socket.
pub(super) struct Server {
    place: String,
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
    /// A Unix socket, with its device and inode.
    socket: Option<(PathBuf, (u64, u64))>,
}

impl Server {
    /// Serves what `page` makes at `address`.
    pub(super) fn start(
        address: &Address,
        page: impl Fn() -> String + Send + 'static,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot serve metrics at {address}: {error}");
        let (listener, place, socket) = bind(address).map_err(failed)?;
        let stop = EventFd::new().map_err(|e| e.to_string())?;
        let mut server = Self { place, stop: stop.clone(), thread: None, socket };
        let page = Arc::new(Page(Mutex::new((Box::new(page), None))));
        let thread = spawn("meantime-metrics", move || serve(&listener, &stop, &page));
        server.thread = Some(thread.map_err(failed)?);
        Ok(server)
    }

    /// Where it is, with the port that was chosen.
    pub(super) fn place(&self) -> &str {
        &self.place
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some((path, identity)) = &self.socket
            && identity_of(path) == Some(*identity)
        {
            let _ = fs::remove_file(path);
        }
    }
}

type Bound = (OwnedFd, String, Option<(PathBuf, (u64, u64))>);

fn bind(address: &Address) -> io::Result<Bound> {
    let path = match address {
        Address::Tcp(address) => {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let place = Address::Tcp(listener.local_addr()?).to_string();
            return Ok((listener.into(), place, None));
        }
        Address::Unix(path) => path,
    };
    // What a dead process has left is replaced.
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(refused) {
        fs::remove_file(path)?;
    }
    // Absolute, because a mount's process leaves its directory.
    let path = std::path::absolute(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
    // Connections are possible from `listen` on, so the mode applies to all of them.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&listener, BACKLOG)?;
    let socket = identity_of(&path).map(|identity| (path, identity));
    Ok((listener, address.to_string(), socket))
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Accepts connections until `stop`.
fn serve(listener: &OwnedFd, stop: &EventFd, page: &Arc<Page>) {
    loop {
        // Each connection's thread has a reference.
        let is_full = Arc::strong_count(page) > CONNECTIONS_MAX;
        let listened = if is_full { PollFlags::empty() } else { PollFlags::IN };
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(listener, listened)];
        // The end of a connection wakes nobody who waits for room.
        let pause = is_full.then(|| Timespec::try_from(PAUSE).unwrap_or_default());
        let failed = match poll(&mut fds, pause.as_ref()) {
            Ok(_) if !fds[0].revents().is_empty() => return,
            Ok(_) if fds[1].revents().is_empty() => false,
            Ok(_) => accept(listener, page).is_err(),
            Err(errno) => errno != rustix::io::Errno::INTR,
        };
        if failed {
            std::thread::sleep(PAUSE);
        }
    }
}

fn accept(listener: &OwnedFd, page: &Arc<Page>) -> io::Result<()> {
    let stream = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?;
    let (connection, page) = (Connection(stream.into(), Instant::now()), Arc::clone(page));
    // A client that goes away, or takes too long, is not answered.
    spawn("meantime-metrics", move || drop(connection.answer(&page))).map(drop)
}

/// The answer with the page, shared for a while by all who ask, and how a new one is made.
struct Page(Mutex<(MakePage, MadePage)>);

type MakePage = Box<dyn Fn() -> String + Send>;
type MadePage = Option<(Instant, Arc<[u8]>)>;

impl Page {
    fn get(&self) -> Arc<[u8]> {
        let (make, made) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.take_if(|(since, _)| since.elapsed() >= PAGE_AGE_MAX);
        let (_, answer) = made.get_or_insert_with(|| {
            let answer = reply("200 OK", CONTENT_TYPE, &make());
            (Instant::now(), answer.into())
        });
        Arc::clone(answer)
    }
}

/// A stream socket of either kind, and when its time began.
struct Connection(UnixStream, Instant);

impl Connection {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = TIME_MAX.checked_sub(self.1.elapsed()).filter(|left| !left.is_zero());
        left.map(Some).ok_or_else(|| ErrorKind::TimedOut.into())
    }

    /// Reads a request, and answers it.
    fn answer(mut self, page: &Page) -> io::Result<()> {
        let (mut head, mut bytes) = (Vec::new(), [0; HEAD_BYTES_MAX]);
        let judged = loop {
            self.0.set_read_timeout(self.left()?)?;
            match self.0.read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => head.extend_from_slice(&bytes[..count]),
            }
            match end_of_head(&head) {
                Some(end) if end <= HEAD_BYTES_MAX => break judge(&head[..end]),
                None if head.len() <= HEAD_BYTES_MAX => {}
                _ => break Err(431),
            }
        };
        let answer = judged.map_or_else(|status| refusal(status).into(), |()| page.get());
        let mut rest = &answer[..];
        if head.starts_with(b"HEAD ") {
            rest = end_of_head(rest).map_or(rest, |end| &rest[..end + 4]);
        }
        while !rest.is_empty() {
            self.0.set_write_timeout(self.left()?)?;
            rest = &rest[self.0.write(rest)?..];
        }
        self.0.shutdown(std::net::Shutdown::Write)
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n")
}

/// Whether to answer with the page; else the status.
fn judge(head: &[u8]) -> Result<(), u16> {
    let head = std::str::from_utf8(head).map_err(|_| 400_u16)?;
    let mut lines = head.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = line[..] else { return Err(400) };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(400);
    }
    match version.strip_prefix("HTTP/") {
        Some("1.0" | "1.1") => {}
        Some(_) => return Err(505),
        None => return Err(400),
    }
    if lines.any(|line| !line.contains(':')) {
        return Err(400);
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(405);
    }
    if target.split('?').next() != Some("/metrics") {
        return Err(404);
    }
    Ok(())
}

/// Why there is no page.
fn refusal(status: u16) -> Vec<u8> {
    let (name, text) = match status {
        404 => ("Not Found", "There is only /metrics.\n"),
        405 => ("Method Not Allowed", "Only GET and HEAD are served.\n"),
        431 => ("Request Header Fields Too Large", "The head is too long.\n"),
        505 => ("HTTP Version Not Supported", "Only HTTP/1 is served.\n"),
        _ => ("Bad Request", "This is no request of HTTP/1.1.\n"),
    };
    reply(&format!("{status} {name}"), "text/plain; charset=utf-8", text)
}

fn reply(status: &str, content_type: &str, body: &str) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_the_page_is_served() {
        let get = |head: &str| judge(head.as_bytes());
        assert_eq!(get("GET /metrics HTTP/1.1\r\nHost: x"), Ok(()));
        assert_eq!(get("HEAD /metrics?x=1 HTTP/1.0"), Ok(()));
        for (head, refusal) in [
            ("", 400),
            ("GET /metrics", 400),
            ("GET  /metrics HTTP/1.1", 400),
            ("get /metrics HTTP/1.1", 400),
            ("GET /metrics HTTP/1.1\r\nno colon", 400),
            ("GET /metrics FTP/1.1", 400),
            ("GET /metrics HTTP/2.0", 505),
            ("POST /metrics HTTP/1.1", 405),
            ("GET / HTTP/1.1", 404),
            ("GET /metrics/../x HTTP/1.1", 404),
        ] {
            assert_eq!(get(head), Err(refusal), "{head}");
        }
        assert_eq!(judge(b"GET /metrics\xff HTTP/1.1"), Err(400));
    }

    /// The whole answer to `request`.
    fn asked(request: &str, page: &Page) -> String {
        let (stream, mut other) = UnixStream::pair().unwrap();
        other.write_all(request.as_bytes()).unwrap();
        Connection(stream, Instant::now()).answer(page).unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_page_is_shared_and_head_has_no_body() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let make = move || format!("page {}\n", count.fetch_add(1, Ordering::Relaxed));
        let page = Page(Mutex::new((Box::new(make), None)));
        let get = "GET /metrics HTTP/1.1\r\n\r\n";
        let first = asked(get, &page);
        assert!(
            first.ends_with("Content-Length: 7\r\nConnection: close\r\n\r\npage 0\n"),
            "{first}"
        );
        // Whether the second has passed in between is the machine's affair.
        page.0.lock().unwrap().1.as_mut().unwrap().0 = Instant::now();
        assert_eq!(asked(get, &page), first);
        let head = asked("HEAD /metrics HTTP/1.1\r\n\r\n", &page);
        assert_eq!(head, first.strip_suffix("page 0\n").unwrap());
        let refused = asked("HEAD / HTTP/1.1\r\n\r\n", &page);
        assert!(refused.starts_with("HTTP/1.1 404 ") && refused.ends_with("\r\n\r\n"), "{refused}");
        page.0.lock().unwrap().1.as_mut().unwrap().0 -= PAGE_AGE_MAX;
        assert!(asked(get, &page).ends_with("page 1\n"));
    }
}
