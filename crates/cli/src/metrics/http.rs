//! A server of one page: `GET /metrics` over HTTP/1.1, one request a connection. One thread, which
//! sleeps while nobody asks; no client makes another wait but while the page is made.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use meantime_hw::EventFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::address::Address;
use super::text::Format;

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
        page: impl Fn(Format) -> String + Send + 'static,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot serve metrics at {address}: {error}");
        let (listener, place, socket) = bind(address).map_err(failed)?;
        let mut server =
            Self { place, stop: EventFd::new().map_err(|e| e.to_string())?, thread: None, socket };
        let pages = Pages { make: Box::new(page), made: vec![] };
        let mut service = Service { listener, stop: server.stop.clone(), pages, clients: vec![] };
        let thread = meantime_process::thread::spawn("meantime-metrics", move || service.run());
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

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

type Bound = (Listener, String, Option<(PathBuf, (u64, u64))>);

fn bind(address: &Address) -> io::Result<Bound> {
    match address {
        Address::Tcp(address) => {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let place = Address::Tcp(listener.local_addr()?).to_string();
            Ok((Listener::Tcp(listener), place, None))
        }
        Address::Unix(path) => {
            // What a dead process has left is replaced.
            let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
            let is_socket =
                fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
            if is_socket && UnixStream::connect(path).is_err_and(refused) {
                fs::remove_file(path)?;
            }
            // Absolute, because a mount's process leaves its directory.
            let path = std::path::absolute(path)?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
            // Nobody can connect before it listens, so the mode applies to all.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            rustix::net::listen(&listener, BACKLOG)?;
            let listener = UnixListener::from(listener);
            let socket = identity_of(&path).map(|identity| (path, identity));
            Ok((Listener::Unix(listener), address.to_string(), socket))
        }
    }
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl Listener {
    fn accept(&self) -> io::Result<Client> {
        let stream: OwnedFd = match self {
            Self::Tcp(listener) => listener.accept()?.0.into(),
            Self::Unix(listener) => listener.accept()?.0.into(),
        };
        rustix::io::ioctl_fionbio(&stream, true)?;
        let (stream, since) = (stream.into(), Instant::now());
        Ok(Client { stream, head: vec![], answer: None, sent: 0, since })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

struct Service {
    listener: Listener,
    stop: EventFd,
    pages: Pages,
    clients: Vec<Client>,
}

/// The answers with pages, each shared for a while by all who ask for its format.
struct Pages {
    make: Box<dyn Fn(Format) -> String + Send>,
    made: Vec<(Format, Instant, Arc<[u8]>)>,
}

impl Pages {
    fn get(&mut self, format: Format) -> Arc<[u8]> {
        self.made.retain(|(_, since, _)| since.elapsed() < PAGE_AGE_MAX);
        if let Some((.., answer)) = self.made.iter().find(|(made, ..)| *made == format) {
            return Arc::clone(answer);
        }
        let answer: Arc<[u8]> = reply("200 OK", format.content_type(), &(self.make)(format)).into();
        self.made.push((format, Instant::now(), Arc::clone(&answer)));
        answer
    }
}

impl Service {
    fn run(&mut self) {
        loop {
            let Some(ready) = self.wait() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            if ready[0] {
                return;
            }
            let (pages, mut ready) = (&mut self.pages, ready.into_iter().skip(1));
            let has_new = ready.next() == Some(true);
            self.clients.retain_mut(|client| client.go_on(ready.next() == Some(true), pages));
            if has_new {
                match self.listener.accept() {
                    Ok(client) => self.clients.push(client),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // Without descriptors the listener stays ready.
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        }
    }

    /// What is ready: the end, the listener, the clients. `None` if waiting failed.
    fn wait(&self) -> Option<Vec<bool>> {
        let is_full = self.clients.len() == CONNECTIONS_MAX;
        let listened = if is_full { PollFlags::empty() } else { PollFlags::IN };
        let mut fds =
            vec![PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.listener, listened)];
        fds.extend(self.clients.iter().map(|client| {
            let wanted = if client.answer.is_none() { PollFlags::IN } else { PollFlags::OUT };
            PollFd::new(&client.stream, wanted)
        }));
        let left =
            self.clients.iter().map(|client| TIME_MAX.saturating_sub(client.since.elapsed()));
        let left = left.min().and_then(|left| left.try_into().ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {
                Some(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
            }
            Err(_) => None,
        }
    }
}

struct Client {
    /// A stream socket of either kind.
    stream: UnixStream,
    head: Vec<u8>,
    answer: Option<Arc<[u8]>>,
    /// Bytes of the answer.
    sent: usize,
    since: Instant,
}

impl Client {
    /// Does what can be done without waiting. False if the connection is over.
    fn go_on(&mut self, is_ready: bool, pages: &mut Pages) -> bool {
        if self.since.elapsed() >= TIME_MAX {
            return false;
        }
        if !is_ready {
            return true;
        }
        let answer = match &self.answer {
            Some(answer) => Arc::clone(answer),
            None => match self.read() {
                Ok(None) => return true,
                Ok(Some(Ok(format))) => pages.get(format),
                Ok(Some(Err(refusal))) => refusal.bytes().into(),
                Err(_) => return false,
            },
        };
        self.answer = Some(Arc::clone(&answer));
        let mut end = answer.len();
        if self.head.starts_with(b"HEAD ") {
            end = end_of_head(&answer).map_or(end, |end| end + 4);
        }
        while self.sent < end {
            match self.stream.write(&answer[self.sent..end]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        false
    }

    /// Reads on. What to answer, once the head is complete or wrong.
    fn read(&mut self) -> io::Result<Option<Result<Format, Refusal>>> {
        let mut bytes = [0; HEAD_BYTES_MAX];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.head.extend_from_slice(&bytes[..count]);
                Ok(match end_of_head(&self.head) {
                    Some(end) if end <= HEAD_BYTES_MAX => Some(judge(&self.head[..end])),
                    None if self.head.len() <= HEAD_BYTES_MAX => None,
                    _ => Some(Err(Refusal::TooLong)),
                })
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n")
}

/// Why there is no page.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Bad,
    NotFound,
    Method,
    TooLong,
    Version,
}

impl Refusal {
    fn bytes(&self) -> Vec<u8> {
        let (status, text) = match self {
            Self::Bad => ("400 Bad Request", "This is no request of HTTP/1.1.\n"),
            Self::NotFound => ("404 Not Found", "There is only /metrics.\n"),
            Self::Method => ("405 Method Not Allowed", "Only GET and HEAD are served.\n"),
            Self::TooLong => ("431 Request Header Fields Too Large", "The head is too long.\n"),
            Self::Version => ("505 HTTP Version Not Supported", "Only HTTP/1 is served.\n"),
        };
        reply(status, "text/plain; charset=utf-8", text)
    }
}

/// What to answer to a request's head.
fn judge(head: &[u8]) -> Result<Format, Refusal> {
    let head = std::str::from_utf8(head).map_err(|_| Refusal::Bad)?;
    let mut lines = head.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = line[..] else { return Err(Refusal::Bad) };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(Refusal::Bad);
    }
    match version.strip_prefix("HTTP/") {
        Some("1.0" | "1.1") => {}
        Some(_) => return Err(Refusal::Version),
        None => return Err(Refusal::Bad),
    }
    let mut accept = String::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Refusal::Bad)?;
        if name.eq_ignore_ascii_case("accept") {
            accept = accept + "," + value;
        }
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(Refusal::Method);
    }
    if target.split('?').next() != Some("/metrics") {
        return Err(Refusal::NotFound);
    }
    Ok(Format::accepted(&accept))
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
        assert_eq!(get("GET /metrics HTTP/1.1\r\nHost: x"), Ok(Format::Prometheus));
        assert_eq!(get("HEAD /metrics?x=1 HTTP/1.0"), Ok(Format::Prometheus));
        let accept = "GET /metrics HTTP/1.1\r\nACCEPT: application/openmetrics-text; version=1.0.0";
        assert_eq!(get(accept), Ok(Format::OpenMetrics));
        for (head, refusal) in [
            ("", Refusal::Bad),
            ("GET /metrics", Refusal::Bad),
            ("GET  /metrics HTTP/1.1", Refusal::Bad),
            ("get /metrics HTTP/1.1", Refusal::Bad),
            ("GET /metrics HTTP/1.1\r\nno colon", Refusal::Bad),
            ("GET /metrics FTP/1.1", Refusal::Bad),
            ("GET /metrics HTTP/2.0", Refusal::Version),
            ("POST /metrics HTTP/1.1", Refusal::Method),
            ("GET / HTTP/1.1", Refusal::NotFound),
            ("GET /metrics/../x HTTP/1.1", Refusal::NotFound),
        ] {
            assert_eq!(get(head), Err(refusal), "{head}");
        }
        assert_eq!(judge(b"GET /metrics\xff HTTP/1.1"), Err(Refusal::Bad));
    }

    /// The whole answer to `request`.
    fn asked(request: &str, pages: &mut Pages) -> String {
        let (stream, mut other) = UnixStream::pair().unwrap();
        let since = Instant::now();
        let mut client = Client { stream, head: vec![], answer: None, sent: 0, since };
        other.write_all(request.as_bytes()).unwrap();
        assert!(!client.go_on(true, pages));
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_page_is_shared_and_head_has_no_body() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let make = move |_| format!("page {}\n", count.fetch_add(1, Ordering::Relaxed));
        let mut pages = Pages { make: Box::new(make), made: vec![] };
        let get = "GET /metrics HTTP/1.1\r\n\r\n";
        let first = asked(get, &mut pages);
        assert!(
            first.ends_with("Content-Length: 7\r\nConnection: close\r\n\r\npage 0\n"),
            "{first}"
        );
        // Whether the second has passed in between is the machine's affair.
        pages.made[0].1 = Instant::now();
        assert_eq!(asked(get, &mut pages), first);
        let head = asked("HEAD /metrics HTTP/1.1\r\n\r\n", &mut pages);
        assert_eq!(head, first.strip_suffix("page 0\n").unwrap());
        let open = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
        assert!(asked(open, &mut pages).ends_with("page 1\n"));
        let refused = asked("HEAD / HTTP/1.1\r\n\r\n", &mut pages);
        assert!(refused.starts_with("HTTP/1.1 404 ") && refused.ends_with("\r\n\r\n"), "{refused}");
        pages.made.iter_mut().for_each(|made| made.1 -= PAGE_AGE_MAX);
        assert!(asked(get, &mut pages).ends_with("page 2\n"));
    }
}
