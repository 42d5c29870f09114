//! A server of one page: `GET /metrics` over HTTP/1.1, one request a connection. A thread sleeps
//! until a client connects. Each connection has a thread of its own as long as it lasts, so no
//! client makes another wait but while the page is made.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use meantime_process::thread::spawn;
use meantime_ssd::served::{Socket, SocketOptions};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use super::address::Address;
use super::text::CONTENT_TYPE;

/// The longest request head, in bytes.
const HEAD_BYTES_MAX: usize = 8192;
/// The maximum number of connections. Further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;
/// The time of a connection, from beginning to end.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The time for which a page is shared, so that many clients do not each cause all processes to be
/// asked.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);
/// Pause after a failure that would repeat itself at once.
const PAUSE: Duration = Duration::from_millis(100);

/// A server. Dropping it ends its thread and removes its socket.
#[must_use = "dropping it ends the service"]
pub(crate) struct Server {
    place: String,
    listener: Box<dyn AsFd>,
}

impl Server {
    /// Serves what `page` makes at `address`.
    pub(super) fn start(
        address: &Address,
        page: impl Fn() -> String + Send + 'static,
    ) -> Result<Self, String> {
        let start = || -> Result<Self, Box<dyn Error>> {
            let server = Self::bind(address)?;
            let listener = server.listener.as_fd().try_clone_to_owned()?;
            rustix::io::ioctl_fionbio(&listener, false)?;
            let page = Arc::new(Page(Mutex::new((Box::new(page), None))));
            spawn("meantime-metrics", move || serve(&listener, &page))?;
            Ok(server)
        };
        start().map_err(|error| format!("cannot serve metrics at {address}: {error}"))
    }

    fn bind(address: &Address) -> Result<Self, Box<dyn Error>> {
        Ok(match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let place = Address::Tcp(listener.local_addr()?).to_string();
                Self { place, listener: Box::new(listener) }
            }
            Address::Unix(path) => {
                // Absolute, because a mount's process leaves its directory.
                let path = std::path::absolute(path)?;
                let listener = Socket::bind(&path, &SocketOptions::default())?;
                Self { place: address.to_string(), listener: Box::new(listener) }
            }
        })
    }

    /// Returns its address, with the port that was chosen.
    pub(super) fn place(&self) -> &str {
        &self.place
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The thread in accept(2) gets EINVAL, and ends.
        let _ = shutdown(&self.listener, Shutdown::Both);
    }
}

/// Accepts connections until the server is dropped.
fn serve(listener: &OwnedFd, page: &Arc<Page>) {
    loop {
        // Each connection's thread has a reference.
        while Arc::strong_count(page) > CONNECTIONS_MAX {
            std::thread::sleep(PAUSE);
        }
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(stream) => {
                let connection = Connection(stream.into(), Instant::now());
                let page = Arc::clone(page);
                // A client that goes away, or takes too long, is not answered.
                let _ = spawn("meantime-metrics", move || drop(connection.answer(&page)));
            }
            Err(Errno::INVAL) => return,
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
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

/// Returns `Ok` if the answer is the page, otherwise the error's status.
fn judge(head: &[u8]) -> Result<(), u16> {
    let head = std::str::from_utf8(head).map_err(|_| 400_u16)?;
    let mut lines = head.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = line[..] else { return Err(400) };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method || !version.starts_with("HTTP/") || lines.any(|line| !line.contains(':')) {
        return Err(400);
    }
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return Err(505);
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
