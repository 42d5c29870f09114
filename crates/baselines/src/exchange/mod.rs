//! The exchange over TCP: request and answer between two threads, without a protocol.
//!
//! A request is as long as a command capsule of NVMe/TCP, an answer as the header of a data PDU and
//! its data. It goes over loopback, with TCP_NODELAY. The server takes the data from a random place
//! of a medium in one gather from the medium's memory. Nothing is checked, looked up or retried, so
//! this is what a host and a target have to be measured against (docs/benchmarks.md).
//!
//! Both sides poll their sockets without blocking, and never sleep during a burst. With one
//! exchange at a time the client receives header and data in one scatter. With more, a turn of
//! either side is, for each socket that has something, one receive of at most 64 KiB and one send
//! of all answers or requests. The client does not move the data out of that buffer.
//!
//! The client is the calling thread, which its caller binds to a CPU if it wants to. Between bursts
//! the server sleeps, so bursts can alternate with those of a device.

mod client;
mod medium;
mod server;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, iter};

use meantime_hw::{Clock, HwError, cpu};
use meantime_random::Rng;

use client::Line;
use medium::Medium;

/// Size of a request: CapsuleCmd of NVMe/TCP.
const REQUEST_BYTES: usize = 72;

/// Size of an answer without its payload: C2HData's header.
const HEADER_BYTES: usize = 24;

/// The maximum that a receive takes.
const RECEIVE_BYTES: usize = 64 << 10;

/// The maximum number of exchanges in flight on a socket. This number of answers fits into one
/// gather.
pub const OUTSTANDING_MAX: usize = 512;

/// Polls without a result, of about a quarter of a microsecond, before a side yields its CPU.
const LOOKS: u32 = 4096;

/// The connections, and the server's medium and CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeOptions {
    /// Connections.
    pub sockets: usize,
    /// Size of the medium.
    pub medium_bytes: u64,
    /// The server's CPU, or `None` for any CPU.
    pub server_cpu: Option<usize>,
}

impl Default for ExchangeOptions {
    /// Returns the options for one socket and a medium of 64 MiB.
    fn default() -> Self {
        Self { sockets: 1, medium_bytes: 64 << 20, server_cpu: None }
    }
}

/// The load of a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Size of an answer's payload.
    pub payload_bytes: usize,
    /// Exchanges in flight on each socket, at most [`OUTSTANDING_MAX`].
    pub outstanding: usize,
}

/// The results of a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Exchanges.
    pub exchanges: u64,
    /// Their time.
    pub wall_ns: u64,
    /// Median latency, from before a request is sent until its answer has been received.
    pub median_ns: u64,
}

impl Burst {
    /// Exchanges per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.exchanges as f64 * 1e9 / self.wall_ns.max(1) as f64
    }
}

/// The state that client and server share besides the sockets.
#[derive(Default)]
struct Shared {
    active: AtomicBool,
    ended: AtomicBool,
}

/// The number of polls without a result, one after the other.
#[derive(Default)]
struct Looks(u32);

impl Looks {
    fn count(&mut self, found: bool) {
        if found {
            self.0 = 0;
            return;
        }
        self.0 += 1;
        // The other side has waited for its CPU for a millisecond, and that may be this one.
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
    /// The number of exchanges so far, which is also the number in a request and its answer.
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
    /// Panics if there is no socket in `options`.
    pub fn start(options: &ExchangeOptions) -> Result<Self, HwError> {
        assert!(options.sockets > 0);
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
                server::serve(&server_shared, theirs, &medium);
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

    /// Exchanges `load` for `time`, after a tenth of it as a warm-up.
    ///
    /// # Errors
    /// Returns an error if a connection or the server ended; later bursts fail, too.
    ///
    /// # Panics
    /// Panics if a payload exceeds the medium, or if the load or the time is 0 or too large.
    pub fn burst(&mut self, load: &Load, time: Duration) -> Result<Burst, HwError> {
        assert!((1..=self.options.medium_bytes).contains(&(load.payload_bytes as u64)));
        assert!((1..=OUTSTANDING_MAX).contains(&load.outstanding));
        assert!(!time.is_zero());
        self.shared.active.store(true, Ordering::Release);
        if let Some(server) = &self.server {
            server.thread().unpark();
        }
        let burst = self.exchange(load, time);
        // The server parks once it sees that.
        self.shared.active.store(false, Ordering::Release);
        burst.map_err(|source| {
            // Otherwise the next answer would be one of this burst's.
            self.lines.clear();
            HwError::Os { what: "the exchange failed", source }
        })
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

/// Returns the two ends of a connection over loopback.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    // Another program may have connected first.
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

/// Returns the result of a non-blocking call, or `None` if it would have blocked.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}

/// Returns the result of a non-blocking receive, for which an end of the stream is an error.
fn received(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match unless_blocked(result)? {
        Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests;
