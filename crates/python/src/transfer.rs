//! Synchronous transfers: a channel that one thread uses for one transfer.

use std::time::{Duration, Instant};

use meantime_block::{BlockChannel as _, Channel, Done, Request, RequestError};
use meantime_hw::{DmaBuf, HwError};
use pyo3::prelude::*;

use crate::error::failed;

/// The data of one request, in bytes. Larger transfers are several requests, some of which are in
/// flight while others are copied.
const PIECE: usize = 256 << 10;
/// Requests of one transfer in flight.
const WINDOW: usize = 4;
/// How long a wait goes on without checking for signals (Ctrl-C).
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// What is transferred.
pub(crate) enum Data<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

/// A channel for transfers, one at a time, and buffers of [`PIECE`] bytes for it.
pub(crate) struct TransferChannel {
    channel: Channel,
    spare: Vec<DmaBuf>,
    /// The number of the next request. Requests that an interrupted transfer has left in flight
    /// have a lower number than the first of the current transfer.
    next: u64,
}

/// Waits for a queued request of `channel` to end. Returns `None` if nothing is in flight.
///
/// # Errors
/// Returns the exception that a signal handler of the program raised. The requests stay in flight.
pub(crate) fn wait(channel: &mut Channel) -> PyResult<Option<Done>> {
    loop {
        if let Some(done) = channel.next_done() {
            return Ok(Some(done));
        }
        if channel.in_flight() == 0 {
            return Ok(None);
        }
        let since = Instant::now();
        channel.wait_until(&|| since.elapsed() >= SLICE);
        if since.elapsed() >= SLICE {
            Python::attach(|py| py.check_signals())?;
        }
    }
}

impl TransferChannel {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, spare: Vec::new(), next: 0 }
    }

    fn buffer(&mut self, bytes: usize) -> Result<DmaBuf, HwError> {
        let mut buf = match self.spare.pop() {
            Some(buf) => buf,
            None => self.channel.alloc(PIECE)?,
        };
        buf.set_len(bytes);
        Ok(buf)
    }

    /// The next result of a request from number `first` on.
    fn ended(&mut self, first: u64) -> PyResult<Option<Done>> {
        while let Some(mut done) = wait(&mut self.channel)? {
            if done.user_data >= first {
                return Ok(Some(done));
            }
            self.spare.extend(done.buf.take());
        }
        Ok(None)
    }

    /// Executes one request without data.
    pub(crate) fn command(&mut self, request: Request) -> PyResult<()> {
        let first = self.next;
        self.next += 1;
        let sent = self.channel.enqueue(request.user_data(first));
        sent.map_err(|rejected| failed(rejected.error))?;
        self.ended(first)?.map_or(Ok(()), |done| done.result).map_err(failed)
    }

    /// Transfers `data` from block `lba` on; they are whole blocks. After an error nothing of it is
    /// in flight, unless a signal ended it.
    pub(crate) fn transfer(&mut self, lba: u64, mut data: Data<'_>) -> PyResult<()> {
        let block_bytes = u64::from(self.channel.info().block_bytes);
        let len = match &data {
            Data::Read(target) => target.len(),
            Data::Write(source) => source.len(),
        };
        let first = self.next;
        let (mut sent, mut flying, mut error) = (0, 0, None);
        while flying > 0 || sent < len && error.is_none() {
            let full = flying == WINDOW || self.channel.in_flight() >= WINDOW;
            if sent < len && error.is_none() && !full {
                let piece = sent..(sent + PIECE).min(len);
                match self.send(lba + sent as u64 / block_bytes, &data, piece.clone(), first) {
                    Ok(()) => (sent, flying) = (piece.end, flying + 1),
                    Err(refused) => error = Some(refused),
                }
                continue;
            }
            let Some(done) = self.ended(first)? else {
                // Only requests that an interrupted transfer had left were in flight.
                flying = 0;
                continue;
            };
            flying -= 1;
            match (done.result, done.buf) {
                (Ok(()), Some(buf)) => {
                    if let Data::Read(target) = &mut data {
                        let at = (done.user_data - first) as usize * PIECE;
                        target[at..at + buf.len()].copy_from_slice(&buf);
                    }
                    self.spare.push(buf);
                }
                (Err(failure), buf) => {
                    self.spare.extend(buf);
                    error.get_or_insert_with(|| failed(failure));
                }
                (Ok(()), None) => {
                    error.get_or_insert_with(|| failed(RequestError::Quarantined));
                }
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Sends the request for `piece` of `data`.
    fn send(
        &mut self,
        lba: u64,
        data: &Data<'_>,
        piece: std::ops::Range<usize>,
        first: u64,
    ) -> PyResult<()> {
        let number = first + (piece.start / PIECE) as u64;
        let mut buf = self.buffer(piece.len()).map_err(failed)?;
        let request = match data {
            Data::Read(_) => Request::read(lba, buf),
            Data::Write(source) => {
                buf.copy_from_slice(&source[piece]);
                Request::write(lba, buf)
            }
        };
        self.next = number + 1;
        self.channel.enqueue(request.user_data(number)).map_err(|rejected| {
            self.spare.extend(rejected.request.buf);
            failed(rejected.error)
        })
    }
}
