//! Requests in flight.

use std::collections::VecDeque;
use std::ops::Range;

use super::fill_memory::Fill;
use meantime_block::{BlockChannel, Channel, Done, Ticket};

/// The requests in flight on a channel, in one set for each purpose.
#[derive(Default)]
pub(crate) struct InFlight {
    /// Pages of the cache that a reader waits for.
    pub(crate) reads: RequestSet<Fill>,
    /// Pages of the cache for read-ahead. They stay in flight when the context is released; all
    /// others have completed by then.
    pub(crate) ahead: RequestSet<Fill>,
    /// Reads past the cache, into buffers that are copied.
    pub(crate) copies: RequestSet<Copied>,
    /// Reads past the cache into memory of the caller; the tag is the number of bytes.
    pub(crate) lent: RequestSet<usize>,
    /// Writes of data, and trims. The tag of a writeback is the range of its bytes in the batch's
    /// stream (`file/write/sending.rs`).
    pub(crate) writes: RequestSet<Range<u64>>,
    /// Writes of the journal, in-place writes of metadata, and reads of single blocks of metadata.
    pub(crate) log: RequestSet<()>,
    /// A commit block.
    pub(crate) commit: RequestSet<()>,
}

/// Requests of one purpose, in the order in which they were sent.
pub(crate) struct RequestSet<T> {
    requests: VecDeque<(State, T)>,
}

/// The tag of a request into a buffer, which says where its bytes go.
pub(crate) struct Copied {
    /// The offset in the target of its first wanted byte.
    pub(super) at: usize,
    /// The number of bytes before that one, which are not wanted: requests are whole blocks.
    pub(super) skipped: usize,
    pub(super) len: usize,
}

enum State {
    InFlight(Ticket),
    /// The request was waited for to make room for another one. The result is boxed because this
    /// is rare.
    Ended(Box<Done>),
}

/// Selects the [`reads`](InFlight::reads), for [`IoContext`](super::IoContext).
pub(crate) fn read_set(all: &mut InFlight) -> &mut RequestSet<Fill> {
    &mut all.reads
}

/// Selects the read-ahead.
pub(crate) fn ahead_set(all: &mut InFlight) -> &mut RequestSet<Fill> {
    &mut all.ahead
}

/// Selects the reads past the cache into buffers.
pub(crate) fn copy_set(all: &mut InFlight) -> &mut RequestSet<Copied> {
    &mut all.copies
}

/// Selects the reads past the cache into lent memory.
pub(crate) fn lent_set(all: &mut InFlight) -> &mut RequestSet<usize> {
    &mut all.lent
}

/// Selects the writes of data.
pub(crate) fn write_set(all: &mut InFlight) -> &mut RequestSet<Range<u64>> {
    &mut all.writes
}

/// Selects the requests of the journal and for metadata.
pub(crate) fn log_set(all: &mut InFlight) -> &mut RequestSet<()> {
    &mut all.log
}

/// Selects the commit block.
pub(crate) fn commit_set(all: &mut InFlight) -> &mut RequestSet<()> {
    &mut all.commit
}

impl<T> Default for RequestSet<T> {
    fn default() -> Self {
        Self { requests: VecDeque::new() }
    }
}

impl<T> RequestSet<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the tag of the oldest.
    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.requests.front().map(|(_, tag)| tag)
    }

    /// Returns the tag of the newest.
    pub(crate) fn back(&self) -> Option<&T> {
        self.requests.back().map(|(_, tag)| tag)
    }

    /// Returns the position of the first whose tag `is_wanted`, for [`take`](Self::take).
    pub(super) fn position(&self, mut is_wanted: impl FnMut(&T) -> bool) -> Option<usize> {
        self.requests.iter().position(|(_, tag)| is_wanted(tag))
    }

    #[inline]
    pub(super) fn push(&mut self, ticket: Ticket, tag: T) {
        self.requests.push_back((State::InFlight(ticket), tag));
    }

    /// Takes out the request at `position`, after waiting for it with `wait`.
    #[inline]
    pub(super) fn take(
        &mut self,
        position: usize,
        wait: impl FnOnce(Ticket) -> Done,
    ) -> Option<(Done, T)> {
        let (state, tag) = match position {
            0 => self.requests.pop_front()?,
            _ => self.requests.remove(position)?,
        };
        let done = match state {
            State::InFlight(ticket) => wait(ticket),
            State::Ended(done) => *done,
        };
        Some((done, tag))
    }

    /// Takes out the request at `position`, if it has completed according to `try_take`.
    #[inline]
    pub(super) fn try_take(
        &mut self,
        position: usize,
        try_take: impl FnOnce(Ticket) -> Result<Done, Ticket>,
    ) -> Option<(Done, T)> {
        let (state, tag) = self.requests.remove(position)?;
        let state = match state {
            State::InFlight(ticket) => try_take(ticket),
            State::Ended(done) => Ok(*done),
        };
        match state {
            Ok(done) => Some((done, tag)),
            Err(ticket) => {
                self.requests.insert(position, (State::InFlight(ticket), tag));
                None
            }
        }
    }

    /// Waits for the oldest request in flight, and keeps its result. Returns false if there is
    /// none.
    pub(super) fn end_oldest(&mut self, channel: &mut Channel) -> bool {
        let is_in_flight = |(state, _): &(State, T)| matches!(state, State::InFlight(_));
        let Some(position) = self.requests.iter().position(is_in_flight) else { return false };
        match self.requests.remove(position) {
            Some((State::InFlight(ticket), tag)) => {
                let done = channel.wait(ticket);
                self.requests.insert(position, (State::Ended(Box::new(done)), tag));
                true
            }
            _ => false,
        }
    }

    /// Takes out all requests, and detaches those still in flight.
    pub(super) fn take_all(&mut self, channel: &mut Channel) -> impl Iterator<Item = T> {
        self.requests.drain(..).map(|(state, tag)| {
            if let State::InFlight(ticket) = state {
                channel.detach(ticket);
            }
            tag
        })
    }
}

impl InFlight {
    /// Waits for a request, read-ahead first, to make room for another. Returns false if none is in
    /// flight.
    #[cold]
    pub(super) fn make_room(&mut self, channel: &mut Channel) -> bool {
        let Self { reads, ahead, copies, lent, writes, log, commit } = self;
        ahead.end_oldest(channel)
            || log.end_oldest(channel)
            || writes.end_oldest(channel)
            || reads.end_oldest(channel)
            || copies.end_oldest(channel)
            || lent.end_oldest(channel)
            || commit.end_oldest(channel)
    }

    /// Returns whether nothing but read-ahead is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty()
            && self.copies.is_empty()
            && self.lent.is_empty()
            && self.writes.is_empty()
            && self.log.is_empty()
            && self.commit.is_empty()
    }
}
