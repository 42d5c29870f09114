//! The exchange over TCP: request and answer between two threads, without a protocol.
//!
//! A request is as long as a command capsule of NVMe/TCP, an answer as the header of a data PDU and
//! its data. It goes over loopback, with TCP_NODELAY. The server takes the data from a random place
//! of a medium in one gather from the medium's memory. Nothing is checked, looked up or retried, so
//! this is what a host and a target have to be measured against (docs/benchmarks.md).
//!
//! Both sides look at their sockets without blocking, and never sleep during a burst. With one
//! exchange at a time the client receives header and data in one scatter. With more, a turn of
//! either side is, for each socket that has something, one receive of at most 64 KiB and one send
//! of all that it answers or asks for; the client does not move the data out of that buffer.
//!
//! The client is the calling thread, which its caller binds to a CPU if it wants to. Between bursts
//! the server sleeps, so bursts can alternate with those of a device.

mod client;
mod medium;
mod server;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, iter};

use meantime_hw::clock::thread_cpu_ns;
use meantime_hw::{Clock, HwError, cpu};
use meantime_random::Rng;

use client::Line;
use medium::Medium;

/// What a receive takes at most.
const RECEIVE_BYTES: usize = 64 << 10;

/// The most exchanges in flight on a socket: so many answers fit into one gather.
pub const OUTSTANDING_MAX: usize = 512;

/// Looks without a result, of about a quarter of a microsecond, before a look gives up its CPU.
const LOOKS: u32 = 4096;

/// The sizes of both sides, and where the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeOptions {
    /// Connections.
    pub sockets: usize,
    /// Size of a request; at least 24 bytes.
    pub request_bytes: usize,
    /// Size of an answer without its payload; at least 8 bytes.
    pub header_bytes: usize,
    /// Size of the medium.
    pub medium_bytes: u64,
    /// The server's CPU. `None`: any.
    pub server_cpu: Option<usize>,
}

impl Default for ExchangeOptions {
    /// The sizes of NVMe/TCP: CapsuleCmd, and C2HData's header. One socket, a medium of 64 MiB.
    fn default() -> Self {
        Self {
            sockets: 1,
            request_bytes: 72,
            header_bytes: 24,
            medium_bytes: 64 << 20,
            server_cpu: None,
        }
    }
}

/// What a burst does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Size of an answer's payload.
    pub payload_bytes: usize,
    /// Exchanges in flight on each socket, at most [`OUTSTANDING_MAX`].
    pub outstanding: usize,
}

/// How long a burst is. A tenth more goes before it as a warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// That many exchanges (with several in flight, a few more).
    Exchanges(u64),
    /// That long.
    Time(Duration),
}

/// What a burst has measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Exchanges.
    pub exchanges: u64,
    /// Their time.
    pub wall_ns: u64,
    /// Median latency, from before a request is sent until its answer has been received.
    pub median_ns: u64,
    /// CPU time of the client's thread, spinning included.
    pub client_cpu_ns: u64,
    /// CPU time of the server's thread, spinning included.
    pub server_cpu_ns: u64,
}

impl Burst {
    /// Exchanges per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.exchanges as f64 * 1e9 / self.wall_ns.max(1) as f64
    }

    /// CPU time of client and server for an exchange, in ns.
    #[must_use]
    pub fn cpu_ns_each(&self) -> [f64; 2] {
        [self.client_cpu_ns, self.server_cpu_ns].map(|ns| ns as f64 / self.exchanges.max(1) as f64)
    }
}

/// What client and server tell each other besides what goes over the sockets.
#[derive(Default)]
struct Shared {
    active: AtomicBool,
    ended: AtomicBool,
    /// How often the server was asked for its CPU time, and how often it has told it.
    asked: AtomicU64,
    told: AtomicU64,
    /// The last two answers.
    cpu_ns: [AtomicU64; 2],
}

impl Shared {
    /// Tells the CPU time, if asked.
    fn tell(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        if asked != self.told.load(Ordering::Relaxed) {
            self.cpu_ns[asked as usize % 2].store(thread_cpu_ns(), Ordering::Relaxed);
            // Release: the time is visible before the number.
            self.told.store(asked, Ordering::Release);
        }
    }
}

/// Looks without a result, one after the other.
#[derive(Default)]
struct Looks(u32);

impl Looks {
    fn count(&mut self, found: bool) {
        if found {
            self.0 = 0;
            return;
        }
        self.0 += 1;
        // The other side has waited for its CPU for a millisecond: it may be this one.
        if self.0 >= LOOKS {
            self.0 = 0;
            std::thread::yield_now();
        }
    }
}

/// A client, and the server's thread.
pub struct Exchange {
    shared: Arc<Shared>,
    options: ExchangeOptions,
    lines: Vec<Line>,
    random: Rng,
    /// Exchanges so far: the number in a request and its answer.
    number: u64,
    clock: Clock,
    server: Option<JoinHandle<()>>,
}

impl Exchange {
    /// Starts the server and connects to it.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the medium, no socket, or the CPU is not
    /// available.
    ///
    /// # Panics
    /// If a size in `options` is out of its range.
    pub fn start(options: &ExchangeOptions) -> Result<Self, HwError> {
        assert!(options.sockets > 0 && options.header_bytes >= 8);
        assert!((24..=RECEIVE_BYTES).contains(&options.request_bytes));
        let medium = Medium::new(options.medium_bytes)?;
        let (ours, theirs) = (0..options.sockets)
            .map(|_| connection())
            .collect::<io::Result<(Vec<_>, Vec<_>)>>()
            .map_err(|source| HwError::Os { what: "the exchange cannot connect", source })?;
        let shared = Arc::<Shared>::default();
        let (server_shared, options) = (Arc::clone(&shared), *options);
        let (report, bound) = std::sync::mpsc::channel();
        let server = meantime_process::thread::spawn("meantime-echo", move || {
            let binding = options.server_cpu.map_or(Ok(()), |cpu| cpu::bind(&[cpu]));
            let ok = binding.is_ok();
            let _ = report.send(binding);
            if ok {
                server::serve(&server_shared, theirs, &medium, &options);
            }
        })
        .map_err(|source| HwError::Os { what: "cannot start the exchange's thread", source })?;
        bound.recv().unwrap_or(Err(HwError::Gone))?;
        Ok(Self {
            shared,
            options,
            lines: ours.into_iter().map(Line::new).collect(),
            random: Rng::new(1),
            number: 0,
            clock: Clock::real(),
            server: Some(server),
        })
    }

    /// Exchanges `load` for `length`.
    ///
    /// # Errors
    /// Returns an error if a connection or the server ended; later bursts fail, too.
    ///
    /// # Panics
    /// If a payload exceeds the medium, or the load or the length is 0 or too large.
    pub fn burst(&mut self, load: &Load, length: Length) -> Result<Burst, HwError> {
        assert!((1..=self.options.medium_bytes).contains(&(load.payload_bytes as u64)));
        assert!((1..=OUTSTANDING_MAX).contains(&load.outstanding));
        assert!(length != Length::Exchanges(0) && length != Length::Time(Duration::ZERO));
        self.shared.active.store(true, Ordering::Release);
        if let Some(server) = &self.server {
            server.thread().unpark();
        }
        let burst = self.exchange(load, length);
        // The server parks once it sees that.
        self.shared.active.store(false, Ordering::Release);
        burst.map_err(|source| {
            // The next answer would be one of this burst's.
            self.lines.clear();
            HwError::Os { what: "the exchange failed", source }
        })
    }

    /// Asks the server for its CPU time, without waiting for the answer.
    fn ask(&self) -> u64 {
        let number = self.shared.asked.load(Ordering::Relaxed) + 1;
        self.shared.asked.store(number, Ordering::Relaxed);
        number
    }

    /// Returns the answer to a question, which is one of the last two.
    fn answer(&self, number: u64) -> io::Result<u64> {
        while self.shared.told.load(Ordering::Acquire) < number {
            if self.server.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            std::thread::yield_now();
        }
        Ok(self.shared.cpu_ns[number as usize % 2].load(Ordering::Relaxed))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(server) = self.server.take() {
            server.thread().unpark();
            let _ = server.join();
        }
    }
}

/// The two ends of a connection over loopback.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    // Another program may have been quicker.
    let theirs = iter::repeat_with(|| listener.accept())
        .find(|accepted| match accepted {
            Ok((_, peer)) => ours.local_addr().is_ok_and(|address| address == *peer),
            Err(_) => true,
        })
        .unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))?
        .0;
    for end in [&ours, &theirs] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
    }
    Ok((ours, theirs))
}

/// What a non-blocking call has done: `None` if it would have blocked.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}

/// The same for a receive, to which an end of the stream is an error.
fn received(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match unless_blocked(result)? {
        Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests;
