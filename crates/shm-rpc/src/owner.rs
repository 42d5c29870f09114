//! The owner's end of a line.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::Ended;
use crate::layout::{DATA_AT, DATA_BYTES, LINE_BYTES, Line};
use crate::memory::Mapping;
use crate::message::{Reply, Request};
use crate::patience::{Patience, cpu};
use crate::sync::{AtomicBool, Ordering};

/// The longest time for which the owner spins to get a request.
const SPIN: Duration = Duration::from_micros(20);

/// The owner's end of one line. A thread of its own serves it.
#[derive(Debug)]
pub struct Answerer {
    end: Arc<End>,
    /// The number of the last request that was taken.
    pub(crate) number: u32,
    patience: Patience,
    /// Whether the owner slept before the last request.
    has_slept: bool,
    /// The client's CPU, according to the last request.
    client_cpu: u32,
}

/// A handle that ends a line from another thread.
#[derive(Debug)]
pub struct End {
    memory: Mapping,
    is_ended: AtomicBool,
}

impl End {
    fn line(&self) -> &Line {
        self.memory.at(0)
    }

    /// Ends the line. [`Answerer::next`] returns [`Ended`], after the call in progress, and so does
    /// the client's call.
    pub fn end(&self) {
        self.line().end(&self.is_ended);
    }
}

impl Answerer {
    /// Makes a line. The descriptor is for the client.
    ///
    /// # Errors
    /// The errors of memfd_create(2) and mmap(2).
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (memory, for_client) = Mapping::new("meantime-line", LINE_BYTES, false)?;
        let end = Arc::new(End { memory, is_ended: AtomicBool::new(false) });
        let patience = Patience::new(SPIN);
        let answerer = Self { end, number: 0, patience, has_slept: false, client_cpu: u32::MAX };
        Ok((answerer, for_client))
    }

    /// Returns the handle that ends the line.
    pub fn end(&self) -> Arc<End> {
        Arc::clone(&self.end)
    }

    /// Waits for the next request.
    ///
    /// # Errors
    /// [`Ended`] if the line was ended, or if the client broke the protocol, which also ends the
    /// line.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "there is no end but an error")]
    pub fn next(&mut self) -> Result<Request, Ended> {
        let request = self.wait();
        if request.is_err() {
            self.end.is_ended.store(true, Ordering::Release);
        }
        request
    }

    #[inline]
    fn wait(&mut self) -> Result<Request, Ended> {
        let line: &Line = self.end.memory.at(0);
        let (old, is_ended) = (self.number, &self.end.is_ended);
        let is_there = || line.has_request_after(old) || is_ended.load(Ordering::Relaxed);
        self.has_slept = !self.patience.spin(self.client_cpu == cpu(), is_there);
        if self.has_slept {
            line.sleep_until_asked(old, is_ended)?;
        }
        let request = line.request_after(old, is_ended)?;
        self.client_cpu = line.request.cpu.load(Ordering::Relaxed);
        self.number = old.wrapping_add(1);
        Ok(request)
    }

    /// Fills `bytes` from the request's data.
    ///
    /// # Panics
    /// Panics if there are more than [`DATA_BYTES`].
    pub fn take(&self, bytes: &mut [u8]) {
        assert!(bytes.len() <= DATA_BYTES);
        self.end.memory.get(DATA_AT, bytes);
    }

    /// Makes `bytes` the reply's data.
    ///
    /// # Panics
    /// Panics if there are more than [`DATA_BYTES`].
    pub fn give(&self, bytes: &[u8]) {
        assert!(bytes.len() <= DATA_BYTES);
        self.end.memory.put(DATA_AT, bytes);
    }

    /// Frees the memory of what the client has stored after the first `kept` bytes of data. `kept`
    /// is a multiple of a page.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub fn drop_data(&self, kept: usize) {
        assert!(kept <= DATA_BYTES);
        self.end.memory.drop_from(DATA_AT + kept);
    }

    /// Returns whether one side sleeps in the last call, or the other did before it, so that the
    /// exchange takes longer than a system call. A client that lies about it harms only itself.
    #[inline]
    pub fn is_slow(&self) -> bool {
        let line: &Line = self.end.memory.at(0);
        self.has_slept || line.client.seems_asleep()
    }

    /// Answers the last request.
    #[inline]
    pub fn answer(&mut self, reply: &Reply) {
        let line: &Line = self.end.memory.at(0);
        line.answer(self.number, reply, cpu());
    }
}

impl Drop for Answerer {
    /// Ends the client's call, if there is one.
    fn drop(&mut self) {
        self.end.line().tell_end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Caller;
    use crate::message::Op;

    #[test]
    fn numbers_begin_again_after_the_last() {
        let (mut line, memory) = Answerer::new().unwrap();
        let mut caller = Caller::new(&memory).unwrap();
        // This is the state after that many calls.
        let last = u32::MAX - 2;
        (line.number, caller.number) = (last, last);
        let words = line.end.line();
        words.request.number.store(last, Ordering::Relaxed);
        words.reply.number.store(last, Ordering::Relaxed);
        let owner = std::thread::spawn(move || {
            while let Ok(request) = line.next() {
                line.answer(&Reply::done(1, request.offset));
            }
            line.number
        });
        for offset in 0..6 {
            let request =
                Request { op: Op::Read, flags: 0, handle: 0, closings: 0, offset, len: 1 };
            assert_eq!(caller.call(&request, || true), Ok(Reply::done(1, offset)));
        }
        drop(memory);
        let number = caller.number;
        caller.number = number.wrapping_add(1);
        let request = Request { op: Op::Read, flags: 0, handle: 0, closings: 0, offset: 0, len: 1 };
        assert_eq!(caller.call(&request, || true), Err(Ended), "one was left out");
        assert_eq!((owner.join().unwrap(), number), (3, 3));
    }
}
