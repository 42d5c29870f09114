//! The server's side.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use super::medium::Medium;
use super::{HEADER_BYTES, Looks, RECEIVE_BYTES, REQUEST_BYTES, Shared, received, unless_blocked};

/// A socket of the server.
struct Served {
    stream: TcpStream,
    /// The bytes that were received. The first `held` bytes are the beginning of a request.
    input: Vec<u8>,
    held: usize,
    headers: Vec<u8>,
    /// The bytes that did not fit into the socket. Without a protocol that is rare, so they are
    /// copied.
    unsent: Vec<u8>,
}

/// The parameters of a request.
pub(super) struct Asked {
    pub number: u64,
    pub offset: u64,
    pub bytes: u64,
}

impl Asked {
    pub(super) fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.number, self.offset, self.bytes]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the place in a medium of `medium_bytes`, or `None` if it is outside.
    fn range(request: &[u8], medium_bytes: usize) -> Option<std::ops::Range<usize>> {
        let word = |at: usize| {
            let bytes = request.get(at..at + 8)?.try_into().ok()?;
            usize::try_from(u64::from_le_bytes(bytes)).ok()
        };
        let (start, bytes) = (word(8)?, word(16)?);
        let end = start.checked_add(bytes)?;
        (end <= medium_bytes).then_some(start..end)
    }
}

/// Serves until the exchange ends, or a connection.
pub(super) fn serve(shared: &Shared, streams: Vec<TcpStream>, medium: &Medium) {
    let mut sockets: Vec<Served> = streams.into_iter().map(Served::new).collect();
    let mut looks = Looks::default();
    loop {
        while !shared.active.load(Ordering::Acquire) {
            if shared.ended.load(Ordering::Acquire) {
                return;
            }
            std::thread::park();
        }
        while shared.active.load(Ordering::Relaxed) {
            let mut found = false;
            for socket in &mut sockets {
                match socket.turn(medium.bytes()) {
                    Ok(some) => found |= some,
                    Err(_) => return,
                }
            }
            looks.count(found);
        }
    }
}

impl Served {
    fn new(stream: TcpStream) -> Self {
        let input = vec![0; RECEIVE_BYTES];
        Self { stream, input, held: 0, headers: Vec::new(), unsent: Vec::new() }
    }

    /// Receives, and answers all that has come. Returns whether anything had.
    fn turn(&mut self, medium: &[u8]) -> io::Result<bool> {
        if !self.unsent.is_empty() {
            let Some(count) = unless_blocked(self.stream.write(&self.unsent))? else {
                return Ok(false);
            };
            self.unsent.drain(..count);
            return Ok(true);
        }
        let into = &mut self.input[self.held..];
        let Some(count) = received(self.stream.read(into))? else { return Ok(false) };
        self.held += count;
        let count = self.held / REQUEST_BYTES;
        let requests = self.input[..count * REQUEST_BYTES].chunks_exact(REQUEST_BYTES);
        self.headers.resize(count * HEADER_BYTES, 0);
        for (header, request) in self.headers.chunks_exact_mut(HEADER_BYTES).zip(requests.clone()) {
            header[..8].copy_from_slice(&request[..8]);
        }
        let mut answers = Vec::with_capacity(2 * count);
        for (header, request) in self.headers.chunks_exact(HEADER_BYTES).zip(requests) {
            let range = Asked::range(request, medium.len()).ok_or(io::ErrorKind::InvalidData)?;
            answers.push(IoSlice::new(header));
            answers.push(IoSlice::new(&medium[range]));
        }
        let sent = unless_blocked(self.stream.write_vectored(&answers))?.unwrap_or(0);
        let mut rest = &mut answers[..];
        IoSlice::advance_slices(&mut rest, sent);
        rest.iter().for_each(|slice| self.unsent.extend_from_slice(slice));
        self.input.copy_within(count * REQUEST_BYTES..self.held, 0);
        self.held -= count * REQUEST_BYTES;
        Ok(true)
    }
}
