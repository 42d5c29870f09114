//! The owner's end of a line.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Ended;
use crate::layout::{DATA_AT, DATA_BYTES, LINE_BYTES, Line};
use crate::memory::Mapping;
use crate::message::{FLAGS, Op, Reply, Request};
use crate::patience::{Patience, cpu};

/// The longest time for which the owner spins for a request.
const SPIN: Duration = Duration::from_micros(20);
/// The longest sleep. It only bounds the effect of a client that clears the owner's word.
const SLEEP: Duration = Duration::from_secs(1);

/// The owner's end of one line. A thread of its own serves it.
#[derive(Debug)]
pub struct Answerer {
    end: Arc<End>,
    /// The number of the last request taken.
    number: u32,
    patience: Patience,
    /// The client's CPU, as it said with the last request.
    client_cpu: u32,
}

/// What ends a line from another thread.
#[derive(Debug)]
pub struct End {
    memory: Mapping,
    is_ended: AtomicBool,
}

impl End {
    fn line(&self) -> &Line {
        self.memory.at(0)
    }

    /// Ends the line: [`Answerer::next`] returns [`Ended`], after the call in progress, and so does
    /// the client's call.
    pub fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        let line = self.line();
        line.owner.wake();
    }
}

impl Answerer {
    /// Makes a line. The descriptor is for the client.
    ///
    /// # Errors
    /// Of memfd_create(2) and mmap(2).
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (memory, for_client) = Mapping::new("meantime-line", LINE_BYTES, false)?;
        let end = Arc::new(End { memory, is_ended: AtomicBool::new(false) });
        let answerer = Self { end, number: 0, patience: Patience::new(SPIN), client_cpu: u32::MAX };
        Ok((answerer, for_client))
    }

    /// Returns what ends the line.
    pub fn end(&self) -> Arc<End> {
        Arc::clone(&self.end)
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// [`Ended`]: the line was ended, or the client broke the protocol. (It is ended then, too.)
    #[inline]
    pub fn next(&mut self) -> Result<Request, Ended> {
        let line: &Line = self.end.memory.at(0);
        let (old, end) = (self.number, &self.end.is_ended);
        // Acquire: with the number come the request, and its data.
        let is_there =
            || line.request.number.load(Ordering::Acquire) != old || end.load(Ordering::Relaxed);
        if !self.patience.spin(self.client_cpu == cpu(), is_there) {
            while !is_there() {
                line.owner.sleep(SLEEP, is_there);
            }
        }
        if end.load(Ordering::Acquire) {
            return Err(Ended);
        }
        let words = &line.request;
        let number = words.number.load(Ordering::Acquire);
        // Each word is loaded once, and only these copies are checked and used.
        let (op, flags) = (words.op.load(Ordering::Relaxed), words.flags.load(Ordering::Relaxed));
        let request = Op::of(op).map(|op| Request {
            op,
            flags,
            handle: words.handle.load(Ordering::Relaxed),
            offset: words.offset.load(Ordering::Relaxed),
            len: words.len.load(Ordering::Relaxed),
        });
        self.client_cpu = words.cpu.load(Ordering::Relaxed);
        let is_next = number == old.wrapping_add(1);
        match request {
            Some(request)
                if is_next && flags & !FLAGS == 0 && request.len as usize <= DATA_BYTES =>
            {
                self.number = number;
                Ok(request)
            }
            _ => Err(Ended),
        }
    }

    /// Fills `bytes` from the request's data.
    ///
    /// # Panics
    /// If there are more than [`DATA_BYTES`].
    pub fn take(&self, bytes: &mut [u8]) {
        assert!(bytes.len() <= DATA_BYTES);
        self.end.memory.get(DATA_AT, bytes);
    }

    /// Makes `bytes` the reply's data.
    ///
    /// # Panics
    /// If there are more than [`DATA_BYTES`].
    pub fn give(&self, bytes: &[u8]) {
        assert!(bytes.len() <= DATA_BYTES);
        self.end.memory.put(DATA_AT, bytes);
    }

    /// Answers the last request.
    #[inline]
    pub fn answer(&mut self, reply: &Reply) {
        let line: &Line = self.end.memory.at(0);
        let words = &line.reply;
        words.status.store(reply.status as u32, Ordering::Relaxed);
        words.result.store(reply.result, Ordering::Relaxed);
        words.end.store(reply.end, Ordering::Relaxed);
        words.cpu.store(cpu(), Ordering::Relaxed);
        // Release: the client that sees the number sees the reply, and its data.
        words.number.store(self.number, Ordering::Release);
        line.client.wake();
    }
}

impl Drop for Answerer {
    /// Ends the client's call, if there is one.
    fn drop(&mut self) {
        let line = self.end.line();
        line.reply.ended.store(1, Ordering::Release);
        line.client.wake();
    }
}
