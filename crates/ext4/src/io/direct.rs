//! Reads past the cache: directly into the caller's memory, or into buffers of the context that are
//! copied to the caller while other requests are in flight.
//!
//! The size decides between the two: lending memory costs two calls to the transport regardless of
//! the length, and the cost of copying grows with the length (see [`pays`]). Partial pages of the
//! caller's memory are always copied. So is everything if the transport does not lend memory
//! ([`user_memory`](meantime_hw::user_memory)).

use std::io::IoSliceMut;

use super::buffers::CHUNK_BYTES;
use super::context::IoContext;
use super::contexts::IoContexts;
use super::requests::{Copied, copy_set, lent_set};
use super::target::{Location, Piece, Target};
use crate::error::{Error, Result};
use meantime_block::{Done, Rejected, Request, RequestError, SubmitError};
use meantime_completion::Policy;
use meantime_hw::user_memory::{LOAN_BYTES_MAX, Loan, Undo, UserMemory, lendable};

/// From this size on, in bytes, it pays to lend memory that is mapped already or will be used
/// again: the remaining cost is a request with a list of pages. With a software SSD, a read of 8
/// KiB takes 1.4 instead of 2.1 µs, and one of 128 KiB takes 2.6 instead of 4.1.
const LEND_AGAIN_BYTES: usize = 8 << 10;

/// From this size on, in bytes, it pays to map and unmap memory for one read. A read then takes 7.0
/// instead of 7.3 µs, and one of 1 MiB 23 instead of 27; but one of 128 KiB would take 4.8 instead
/// of 4.0.
const LEND_ONCE_BYTES: usize = 256 << 10;

/// Returns whether to lend memory for a read of `bytes`. `reused` says that the memory is mapped
/// already, or was used by a recent read.
fn pays(bytes: usize, reused: bool, undo: Undo) -> bool {
    bytes >= if reused && undo == Undo::Lazy { LEND_AGAIN_BYTES } else { LEND_ONCE_BYTES }
}

/// An error, and where the read stopped.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// All bytes of the target before this one have been read.
    pub(crate) done: usize,
    pub(crate) error: Error,
}

impl IoContext {
    /// Returns the number of requests into lent memory since the last call.
    pub(crate) fn take_lent(&mut self) -> u64 {
        std::mem::take(&mut self.buffers.lent)
    }

    /// Copies the wanted bytes of a completed request to `target`, if there is one.
    fn complete_copy(
        &mut self,
        (done, tag): (Done, Copied),
        target: Option<&mut Target<'_, '_>>,
    ) -> Result<()> {
        let Copied { at, skipped, len } = tag;
        let result = match &done.buf {
            Some(_) => done.result.map_err(Error::from_io),
            None => {
                Err(done.result.map_or_else(Error::from_io, |()| RequestError::Quarantined.into()))
            }
        };
        if let (Ok(()), Some(target), Some(buf)) = (&result, target, &done.buf) {
            target.put(at, &buf[skipped..skipped + len]);
        }
        self.give_buffer(done.buf);
        result
    }

    /// Reads `pieces`, which are in order and without gaps, into `target` from byte `start` on.
    /// Returns the end offset.
    pub(crate) fn read_pieces(
        &mut self,
        start: usize,
        pieces: impl Iterator<Item = Piece>,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        self.read_pieces_with(None, start, pieces, target, policy)
    }

    /// Fills `buf` with the bytes of `pieces`, which are in order and without gaps.
    ///
    /// # Errors
    /// Fails if the device fails, or there is no buffer.
    pub(crate) fn fill(
        &mut self,
        buf: &mut [u8],
        pieces: impl Iterator<Item = Piece>,
        policy: Option<Policy>,
    ) -> Result<()> {
        let mut bufs = [IoSliceMut::new(buf)];
        match self.read_pieces(0, pieces, &mut Target::new(&mut bufs), policy) {
            Ok(_) => Ok(()),
            Err(Stopped { error, .. }) => Err(error),
        }
    }

    /// Reads pieces that may be large: lends the memory of `target` to the device where that pays.
    /// After an error, more may have been written than counts as read.
    pub(crate) fn read_pieces_lending(
        &mut self,
        start: usize,
        pieces: impl Iterator<Item = Piece>,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        let mut memory = self.user_memory.take();
        let result = self.read_pieces_with(memory.as_mut(), start, pieces, target, policy);
        self.user_memory = memory;
        result
    }

    fn read_pieces_with(
        &mut self,
        memory: Option<&mut UserMemory>,
        start: usize,
        pieces: impl Iterator<Item = Piece>,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        let result = self.read_pieces_by(memory, start, pieces, target, policy);
        // This leaves nothing in flight, even after an error.
        while let Some(ended) = self.wait_oldest(copy_set) {
            let _ = self.complete_copy(ended, None);
        }
        result
    }

    fn read_pieces_by(
        &mut self,
        mut memory: Option<&mut UserMemory>,
        start: usize,
        pieces: impl Iterator<Item = Piece>,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        if let Some(memory) = &mut memory {
            memory.count_read();
        }
        let mut end = start;
        for piece in pieces {
            let at = end;
            end += piece.len;
            let Some(offset) = target.put_piece(at, &piece) else { continue };
            let mut sent = 0;
            while sent < piece.len {
                let (from, to) = (offset + sent as u64, at + sent);
                let left = piece.len - sent;
                sent += match &mut memory {
                    Some(memory) => self.lend(memory, from, left, to, target, policy)?,
                    None => self.send_copy(from, left, to, target, policy)?,
                };
            }
        }
        // This is done while the device works, if anything is in flight.
        if let Some(memory) = memory.filter(|_| !self.in_flight().copies.is_empty()) {
            memory.undo_idle();
        }
        self.complete_until(usize::MAX, target)?;
        Ok(end)
    }

    /// Waits for the requests before byte `end` of the target.
    fn complete_until(&mut self, end: usize, target: &mut Target<'_, '_>) -> Result<(), Stopped> {
        while self.in_flight().copies.front().is_some_and(|front| front.at < end)
            && let Some(ended) = self.wait_oldest(copy_set)
        {
            let at = ended.1.at;
            self.complete_copy(ended, Some(target)).map_err(|error| Stopped { done: at, error })?;
        }
        Ok(())
    }

    /// Reads up to `len` bytes from byte `offset` of the device on. If that pays, lends the memory
    /// of `target` and waits for the requests; otherwise sends a request into a buffer, as
    /// [`IoContext::send_copy`] does.
    #[allow(clippy::too_many_arguments)] // Those of `send_copy`, and the lender.
    fn lend(
        &mut self,
        memory: &mut UserMemory,
        offset: u64,
        len: usize,
        at: usize,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        let block_bytes = self.block_bytes as usize;
        let skipped = (offset % block_bytes as u64) as usize;
        let buf = target.contiguous(at, len.min(LOAN_BYTES_MAX));
        let bytes = buf.len();
        let part = lendable(buf.as_ptr().addr(), bytes, skipped, block_bytes)
            .filter(|part| part.len() >= LEND_AGAIN_BYTES)
            .filter(|part| pays(part.len(), memory.is_reused(buf), memory.undo()));
        let Some(part) = part else { return self.send_copy(offset, bytes, at, target, policy) };
        // The parts before and after the lent memory are in flight at the same time.
        for around in [0..part.start, part.end..bytes] {
            let mut sent = around.start;
            while sent < around.end {
                let from = offset + sent as u64;
                sent += self.send_copy(from, around.end - sent, at + sent, target, policy)?;
            }
        }
        let lba = (offset + part.start as u64) / block_bytes as u64;
        let buf = target.contiguous(at, bytes);
        let lent = memory.lend(buf, part.clone(), |loan, memory| {
            let read = self.read_lent(loan, lba, part.len(), policy, || memory.undo_idle());
            if read.is_err() {
                loan.suspect();
            }
            read
        });
        let done = match lent.unwrap_or(Ok(0)) {
            Ok(done) => part.start + done,
            Err(Stopped { done, error }) => {
                self.complete_until(at + part.start, target)?;
                return Err(Stopped { done: at + part.start + done, error });
            }
        };
        if done == part.end {
            return Ok(bytes);
        }
        // Without a mapping, or without room in the queue, the rest is copied, in order, so that an
        // error stops the read at the right place.
        while self.in_flight().copies.back().is_some_and(|last| last.at >= at + part.end)
            && let Some(ended) = self.wait_at(copy_set, self.in_flight().copies.len() - 1)
        {
            let _ = self.complete_copy(ended, None);
        }
        let sent =
            self.send_copy(offset + done as u64, part.end - done, at + done, target, policy)?;
        Ok(done + sent)
    }

    /// Reads `bytes` from block `lba` on into lent memory. Returns how many bytes it read, which
    /// are fewer if there was no room for more requests. Calls `gap` once, when all requests are in
    /// flight.
    fn read_lent(
        &mut self,
        loan: &Loan<'_>,
        lba: u64,
        bytes: usize,
        policy: Option<Policy>,
        gap: impl FnOnce(),
    ) -> Result<usize, Stopped> {
        let block_bytes = self.block_bytes as usize;
        // The device works on several requests at once, and what precedes a failed one counts as
        // read. With the model `optane`, 128 KiB take 31 µs, and 43 with two requests.
        let step = if bytes <= 8 * CHUNK_BYTES { CHUNK_BYTES } else { 2 * CHUNK_BYTES };
        let step = step.max(block_bytes);
        let (mut sent, mut done, mut error) = (0, 0, None);
        while sent < bytes && error.is_none() {
            let len = step.min(bytes - sent);
            let mut request = Request::read(lba + (sent / block_bytes) as u64, loan.buf(sent, len));
            request.policy = policy;
            match self.submit(lent_set, request, len) {
                Ok(()) => sent += len,
                // No request of this context is in flight, and there is still no room.
                Err((Rejected { error: SubmitError::Full { .. }, .. }, _)) => break,
                Err((rejected, _)) => error = Some(RequestError::from(rejected.error).into()),
            }
        }
        gap();
        while let Some((ended, len)) = self.wait_oldest(lent_set) {
            match ended.result.map_err(Error::from_io) {
                _ if error.is_some() => {}
                Ok(()) if ended.buf.is_none() => error = Some(RequestError::Quarantined.into()),
                Ok(()) => {
                    done += len;
                    self.buffers.lent += 1;
                }
                Err(failed) => error = Some(failed),
            }
        }
        error.map_or(Ok(done), |error| Err(Stopped { done, error }))
    }

    /// Sends a request for up to `len` bytes from byte `offset` of the device on, when there is
    /// room for one. Returns the number of bytes.
    fn send_copy(
        &mut self,
        offset: u64,
        len: usize,
        at: usize,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        let block_bytes = self.block_bytes as usize;
        let skipped = (offset % block_bytes as u64) as usize;
        loop {
            // If the read ends here, it has all bytes before the oldest request.
            let before = self.in_flight().copies.front().map_or(at, |front| front.at);
            let stopped = |error| Stopped { done: before, error };
            if let Some(mut buf) = self.take_buffer().map_err(stopped)? {
                let len = len.min(buf.capacity() - skipped);
                buf.set_len((skipped + len).next_multiple_of(block_bytes));
                let mut request = Request::read(offset / block_bytes as u64, buf);
                request.policy = policy;
                return match self.submit(copy_set, request, Copied { at, skipped, len }) {
                    Ok(()) => Ok(len),
                    Err((rejected, _)) => {
                        self.give_buffer(rejected.request.buf);
                        Err(stopped(RequestError::from(rejected.error).into()))
                    }
                };
            }
            // A completed request returns a buffer.
            let Some(ended) = self.wait_oldest(copy_set) else {
                return Err(stopped(Error::Resources("no buffer for a read came back".to_owned())));
            };
            let at = ended.1.at;
            self.complete_copy(ended, Some(target)).map_err(|error| Stopped { done: at, error })?;
        }
    }
}

/// Reads `buf` from byte `offset` of the device on.
///
/// # Errors
/// Fails if the device fails, or there is no context.
pub(crate) fn read_bytes(
    contexts: &IoContexts,
    offset: u64,
    buf: &mut [u8],
    policy: Option<Policy>,
) -> Result<()> {
    let piece = Piece { place: Location::Device(offset), len: buf.len() };
    contexts.take_or_spare()?.fill(buf, std::iter::once(piece), policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_reads_are_copied() {
        for (undo, reused, least) in [
            (Undo::Lazy, true, LEND_AGAIN_BYTES),
            (Undo::Lazy, false, LEND_ONCE_BYTES),
            (Undo::Strict, true, LEND_ONCE_BYTES),
            (Undo::Strict, false, LEND_ONCE_BYTES),
        ] {
            assert!(
                !pays(4096, reused, undo)
                    && !pays(least - 1, reused, undo)
                    && pays(least, reused, undo)
            );
        }
    }
}
