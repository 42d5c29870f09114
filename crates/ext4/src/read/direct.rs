//! Reads past the cache: straight into the caller's memory, or into pages of the lane's and from
//! there to the caller, finished requests being copied while others are under way.
//!
//! Which of the two is decided by size, since lending memory costs two calls to the transport,
//! whatever the length, and copying costs by the length: see [`pays`]. What is no whole page of the
//! caller's is copied in any case, and so is everything where the transport does not lend
//! ([`user_memory`](meantime_hw::user_memory)).

use std::collections::VecDeque;
use std::io::IoSliceMut;

use super::super::error::Error;
use super::super::lanes::{Lane, Lanes};
use super::place::{Piece, Place};
use super::target::Target;
use meantime_block::{BlockChannel, Rejected, Request, RequestError, SubmitError, Ticket};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use meantime_hw::user_memory::{LOAN_BYTES_MAX, Loan, Undo, UserMemory, lendable};

/// The most that one request reads, in bytes: so that there are several, of which the first is
/// copied while the others are under way.
pub(crate) const CHUNK_BYTES: usize = 32 << 10;

/// The most requests of a read that are under way at once.
const WINDOW: usize = 8;

/// The most that one request reads into lent memory, in bytes: the device works on several at once,
/// and what comes before one that fails is had.
const LENT_REQUEST_BYTES: usize = 64 << 10;

/// From so many bytes on it pays to lend memory that is mapped already, or will be needed again:
/// what is left is a request with a list of pages. (With a software SSD a read of 8 KiB takes 1.4
/// instead of 2.1 µs, one of 128 KiB 2.6 instead of 4.1.)
const LEND_AGAIN_BYTES: usize = 8 << 10;

/// From so many bytes on it pays to map memory for one read and to undo that. (7.0 instead of 7.3
/// µs; of 1 MiB 23 instead of 27; but of 128 KiB 4.8 instead of 4.0.)
const LEND_ONCE_BYTES: usize = 256 << 10;

/// Whether a read of `bytes` is to be lent its memory. `familiar`: it is mapped already, or was
/// used by a read shortly before.
fn pays(bytes: usize, familiar: bool, undo: Undo) -> bool {
    bytes >= if familiar && undo == Undo::Lazy { LEND_AGAIN_BYTES } else { LEND_ONCE_BYTES }
}

/// What went wrong, and where.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Everything before this byte of the target is there.
    pub(crate) done: usize,
    pub(crate) error: Error,
}

/// A request that is under way, and which of its bytes are wanted where.
struct Flying {
    ticket: Ticket,
    /// Where in the target its first wanted byte goes.
    at: usize,
    /// Bytes before that one, which nobody wants: requests are whole blocks.
    lead: usize,
    len: usize,
}

/// The buffers of a lane's direct reads, and the list that they have of theirs.
#[derive(Default)]
pub(crate) struct Bounce {
    bufs: Vec<DmaBuf>,
    /// One more, to be filled first.
    warm: Option<DmaBuf>,
    flying: VecDeque<Flying>,
    made: usize,
    /// The requests into lent memory that are under way, and how many bytes each reads.
    tickets: VecDeque<(Ticket, usize)>,
    /// Requests that went into lent memory and that nobody has counted yet.
    lent: u64,
}

impl Bounce {
    /// How many requests went into lent memory since this was asked last.
    pub(crate) fn take_lent(&mut self) -> u64 {
        std::mem::take(&mut self.lent)
    }
}

impl Lane {
    /// A buffer for a request of a direct read, if there may be one more; `None`: one has to end
    /// first.
    pub(crate) fn take_bounce(&mut self) -> Result<Option<DmaBuf>, Error> {
        let bounce = &mut self.scratch.bounce;
        if let Some(buf) = bounce.warm.take().or_else(|| bounce.bufs.pop()) {
            return Ok(Some(buf));
        }
        if bounce.made == WINDOW {
            return Ok(None);
        }
        let buf =
            self.channel.alloc(CHUNK_BYTES).map_err(|error| Error::Resources(error.to_string()))?;
        bounce.made += 1;
        Ok(Some(buf))
    }

    /// Has the cache own what the next write is copied to. Work for the gap: another buffer than
    /// that which is under way.
    pub(crate) fn warm_bounce(&mut self) {
        if self.scratch.bounce.warm.is_none()
            && let Ok(Some(mut buf)) = self.take_bounce()
        {
            buf.warm(crate::cache::PAGE_BYTES);
            self.scratch.bounce.warm = Some(buf);
        }
    }

    /// Takes back a buffer that was taken for a write.
    pub(crate) fn give_bounce(&mut self, buf: DmaBuf) {
        self.scratch.bounce.bufs.push(buf);
    }

    /// A buffer that was taken will not come back.
    pub(crate) fn lose_bounce(&mut self) {
        self.scratch.bounce.made -= 1;
    }

    /// Waits for the oldest request; the bytes that are wanted of it go to `target`, if there still
    /// is one.
    fn land_direct(
        &mut self,
        flying: Flying,
        target: Option<&mut Target<'_, '_>>,
    ) -> Result<(), Error> {
        let Flying { ticket, at, lead, len } = flying;
        let done = self.channel.wait(ticket);
        let Some(buf) = done.buf else {
            self.scratch.bounce.made -= 1;
            return Err(done
                .result
                .map_or_else(Error::from_io, |()| RequestError::Quarantined.into()));
        };
        let result = done.result.map_err(Error::from_io);
        if let (Ok(()), Some(target)) = (&result, target) {
            target.put(at, &buf[lead..lead + len]);
        }
        self.scratch.bounce.bufs.push(buf);
        result
    }

    /// Reads `pieces`, which are in order and without gaps, into `target` from byte `start` on; up
    /// to which byte.
    pub(crate) fn read_pieces(
        &mut self,
        start: usize,
        pieces: impl Iterator<Item = Piece>,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        self.read_pieces_with(None, start, pieces, target, policy)
    }

    /// The same for pieces that are large perhaps: the memory of `target` is lent to the device
    /// where that pays. After an error, more than what counts as read may have been written.
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
        let mut flying = std::mem::take(&mut self.scratch.bounce.flying);
        let result = self.read_pieces_by(memory, &mut flying, start, pieces, target, policy);
        // Whatever happened: the tickets are redeemed, so that the buffers come back.
        while let Some(front) = flying.pop_front() {
            let _ = self.land_direct(front, None);
        }
        self.scratch.bounce.flying = flying;
        result
    }

    fn read_pieces_by(
        &mut self,
        mut memory: Option<&mut UserMemory>,
        flying: &mut VecDeque<Flying>,
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
            match piece.place {
                Place::Zero => target.zero(at, piece.len),
                Place::Memory(bytes, from) => target.put(at, &bytes[from..from + piece.len]),
                Place::Device(offset) => {
                    let mut sent = 0;
                    while sent < piece.len {
                        let (from, to) = (offset + sent as u64, at + sent);
                        let left = piece.len - sent;
                        sent += match &mut memory {
                            Some(memory) => {
                                self.lend(memory, flying, from, left, to, target, policy)?
                            }
                            None => self.send(flying, from, left, to, target, policy)?,
                        };
                    }
                }
            }
        }
        // In the gap, if anything is under way.
        if let Some(memory) = memory.filter(|_| !flying.is_empty()) {
            memory.undo_idle();
        }
        self.land_until(flying, usize::MAX, target)?;
        Ok(end)
    }

    /// Waits for the requests before byte `end` of the target.
    fn land_until(
        &mut self,
        flying: &mut VecDeque<Flying>,
        end: usize,
        target: &mut Target<'_, '_>,
    ) -> Result<(), Stopped> {
        while flying.front().is_some_and(|front| front.at < end)
            && let Some(front) = flying.pop_front()
        {
            let at = front.at;
            self.land_direct(front, Some(target)).map_err(|error| Stopped { done: at, error })?;
        }
        Ok(())
    }

    /// Sends, and waits for, up to `len` bytes from byte `offset` of the device on, in whose place
    /// the memory of `target` is lent if that pays; else as [`Lane::send`] does.
    #[allow(clippy::too_many_arguments)] // Of `send`, and who lends.
    fn lend(
        &mut self,
        memory: &mut UserMemory,
        flying: &mut VecDeque<Flying>,
        offset: u64,
        len: usize,
        at: usize,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        let block_bytes = self.channel.info().block_bytes as usize;
        let lead = (offset % block_bytes as u64) as usize;
        let buf = target.stretch(at, len.min(LOAN_BYTES_MAX));
        let bytes = buf.len();
        let part = lendable(buf.as_ptr().addr(), bytes, lead, block_bytes)
            .filter(|part| part.len() >= LEND_AGAIN_BYTES)
            .filter(|part| pays(part.len(), memory.is_familiar(buf), memory.undo()));
        let Some(part) = part else { return self.send(flying, offset, bytes, at, target, policy) };
        // What is before it and after it comes at the same time.
        for around in [0..part.start, part.end..bytes] {
            let mut sent = around.start;
            while sent < around.end {
                let from = offset + sent as u64;
                sent += self.send(flying, from, around.end - sent, at + sent, target, policy)?;
            }
        }
        let lba = (offset + part.start as u64) / block_bytes as u64;
        let buf = target.stretch(at, bytes);
        let lent = memory.lend(buf, part.clone(), |loan, memory| {
            let read = self.read_lent(loan, lba, part.len(), policy, || memory.undo_idle());
            if read.is_err() {
                loan.suspect();
            }
            read
        });
        let read = lent.unwrap_or(Ok(0));
        let (done, error) = match read {
            Ok(done) => (done, None),
            Err(Stopped { done, error }) => (done, Some(error)),
        };
        if let Some(error) = error {
            self.land_until(flying, at + part.start, target)?;
            return Err(Stopped { done: at + part.start + done, error });
        }
        let done = part.start + done;
        if done == part.end {
            return Ok(bytes);
        }
        // Without a mapping, or room in the queue: copied, and in order, so that an error is where
        // it was.
        while flying.back().is_some_and(|last| last.at >= at + part.end)
            && let Some(last) = flying.pop_back()
        {
            let _ = self.land_direct(last, None);
        }
        let sent =
            self.send(flying, offset + done as u64, part.end - done, at + done, target, policy)?;
        Ok(done + sent)
    }

    /// Reads `bytes` from block `lba` on into what is lent; how many, if there was no room for more
    /// requests. `gap` is called once, when all are under way.
    fn read_lent(
        &mut self,
        loan: &Loan<'_>,
        lba: u64,
        bytes: usize,
        policy: Option<Policy>,
        gap: impl FnOnce(),
    ) -> Result<usize, Stopped> {
        let block_bytes = self.channel.info().block_bytes as usize;
        let step = LENT_REQUEST_BYTES.max(block_bytes);
        let (mut sent, mut done, mut error) = (0, 0, None);
        let mut tickets = std::mem::take(&mut self.scratch.bounce.tickets);
        let mut gap = Some(gap);
        loop {
            while sent < bytes && error.is_none() {
                let len = step.min(bytes - sent);
                let mut request =
                    Request::read(lba + (sent / block_bytes) as u64, loan.buf(sent, len));
                request.policy = policy;
                match self.submit(request) {
                    Ok(ticket) => {
                        tickets.push_back((ticket, len));
                        sent += len;
                    }
                    // When one has ended there is room.
                    Err(Rejected { error: SubmitError::Full { .. }, .. }) => break,
                    Err(rejected) => error = Some(RequestError::from(rejected.error).into()),
                }
            }
            if let Some(gap) = gap.take() {
                gap();
            }
            let Some((ticket, len)) = tickets.pop_front() else { break };
            let ended = self.channel.wait(ticket);
            match ended.result.map_err(Error::from_io) {
                _ if error.is_some() => {}
                Ok(()) if ended.buf.is_none() => error = Some(RequestError::Quarantined.into()),
                Ok(()) => {
                    done += len;
                    self.scratch.bounce.lent += 1;
                }
                Err(failed) => error = Some(failed),
            }
        }
        self.scratch.bounce.tickets = tickets;
        error.map_or(Ok(done), |error| Err(Stopped { done, error }))
    }

    /// Sends a request for up to `len` bytes from byte `offset` of the device on, when there is
    /// room for one; how many it is for.
    fn send(
        &mut self,
        flying: &mut VecDeque<Flying>,
        offset: u64,
        len: usize,
        at: usize,
        target: &mut Target<'_, '_>,
        policy: Option<Policy>,
    ) -> Result<usize, Stopped> {
        let block_bytes = self.channel.info().block_bytes as usize;
        let lead = (offset % block_bytes as u64) as usize;
        loop {
            // If the read ends here, it has what was asked for before the oldest request.
            let before = flying.front().map_or(at, |front| front.at);
            let stopped = |error| Stopped { done: before, error };
            let rejected = match self.take_bounce().map_err(stopped)? {
                None => None,
                Some(mut buf) => {
                    let len = len.min(buf.capacity() - lead);
                    buf.set_len((lead + len).next_multiple_of(block_bytes));
                    let mut request = Request::read(offset / block_bytes as u64, buf);
                    request.policy = policy;
                    match self.submit(request) {
                        Ok(ticket) => {
                            flying.push_back(Flying { ticket, at, lead, len });
                            return Ok(len);
                        }
                        Err(rejected) => {
                            self.scratch.bounce.bufs.extend(rejected.request.buf);
                            Some(rejected.error)
                        }
                    }
                }
            };
            // No room: there is when one has ended.
            match (flying.pop_front(), rejected) {
                (Some(front), _) => {
                    let at = front.at;
                    self.land_direct(front, Some(target))
                        .map_err(|error| Stopped { done: at, error })?;
                }
                (None, Some(error)) => return Err(stopped(RequestError::from(error).into())),
                (None, None) => {
                    return Err(stopped(Error::Resources(
                        "no buffer for a read came back".to_owned(),
                    )));
                }
            }
        }
    }
}

/// Reads `buf` from byte `offset` of the device on.
///
/// # Errors
/// The device, or no lane.
pub(crate) fn read_bytes(
    lanes: &Lanes,
    offset: u64,
    buf: &mut [u8],
    policy: Option<Policy>,
) -> Result<(), Error> {
    let piece = Piece { place: Place::Device(offset), len: buf.len() };
    let mut bufs = [IoSliceMut::new(buf)];
    let mut lane = lanes.take_leaf()?;
    match lane.read_pieces(0, std::iter::once(piece), &mut Target::new(&mut bufs), policy) {
        Ok(_) => Ok(()),
        Err(stopped) => Err(stopped.error),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn small_reads_are_copied() {
        for (undo, familiar, least) in [
            (Undo::Lazy, true, LEND_AGAIN_BYTES),
            (Undo::Lazy, false, LEND_ONCE_BYTES),
            (Undo::Strict, true, LEND_ONCE_BYTES),
            (Undo::Strict, false, LEND_ONCE_BYTES),
        ] {
            assert!(
                !pays(4096, familiar, undo)
                    && !pays(least - 1, familiar, undo)
                    && pays(least, familiar, undo)
            );
        }
    }
}
