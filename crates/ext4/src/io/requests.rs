//! Requests in flight.

use std::collections::VecDeque;
use std::ops::Range;

use super::direct::Copied;
use super::fill::Fill;
use meantime_block::{BlockChannel, Channel, Done, Ticket};

/// What is in flight on a channel: a set for each purpose.
#[derive(Default)]
pub(crate) struct InFlight {
    /// Pages of the cache that a reader waits for.
    pub(crate) reads: RequestSet<Fill>,
    /// Pages of the cache that nobody waits for. They stay in flight when the context is given
    /// back; all others have ended by then.
    pub(crate) ahead: RequestSet<Fill>,
    /// Reads past the cache, into buffers that are copied from.
    pub(crate) copies: RequestSet<Copied>,
    /// Reads past the cache, into memory of the caller: how many bytes.
    pub(crate) lent: RequestSet<usize>,
    /// Writes of data: which bytes of the file.
    pub(crate) writes: RequestSet<Range<u64>>,
    /// Writes of the journal, and of metadata into their places.
    pub(crate) log: RequestSet<()>,
    /// A commit block.
    pub(crate) commit: RequestSet<()>,
}

/// Requests of one purpose, in the order in which they were sent.
pub(crate) struct RequestSet<T> {
    requests: VecDeque<(State, T)>,
}

enum State {
    InFlight(Ticket),
    /// It was waited for so that there is room for another one. (Boxed: it is rare.)
    Ended(Box<Done>),
}

/// For [`IoContext`](super::IoContext), which set is meant.
pub(crate) fn reads(all: &mut InFlight) -> &mut RequestSet<Fill> {
    &mut all.reads
}

/// As [`reads`].
pub(crate) fn ahead(all: &mut InFlight) -> &mut RequestSet<Fill> {
    &mut all.ahead
}

/// As [`reads`].
pub(crate) fn copies(all: &mut InFlight) -> &mut RequestSet<Copied> {
    &mut all.copies
}

/// As [`reads`].
pub(crate) fn lent(all: &mut InFlight) -> &mut RequestSet<usize> {
    &mut all.lent
}

/// As [`reads`].
pub(crate) fn writes(all: &mut InFlight) -> &mut RequestSet<Range<u64>> {
    &mut all.writes
}

/// As [`reads`].
pub(crate) fn log(all: &mut InFlight) -> &mut RequestSet<()> {
    &mut all.log
}

/// As [`reads`].
pub(crate) fn commit(all: &mut InFlight) -> &mut RequestSet<()> {
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

    /// The tag of the oldest.
    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.requests.front().map(|(_, tag)| tag)
    }

    /// The tag of the newest.
    pub(crate) fn back(&self) -> Option<&T> {
        self.requests.back().map(|(_, tag)| tag)
    }

    /// The place of the first whose tag `is_wanted`, for [`take`](Self::take).
    pub(super) fn position(&self, mut is_wanted: impl FnMut(&T) -> bool) -> Option<usize> {
        self.requests.iter().position(|(_, tag)| is_wanted(tag))
    }

    #[inline]
    pub(super) fn push(&mut self, ticket: Ticket, tag: T) {
        self.requests.push_back((State::InFlight(ticket), tag));
    }

    /// Takes out the one at `place`, as `wait` has it end.
    #[inline]
    pub(super) fn take(
        &mut self,
        place: usize,
        wait: impl FnOnce(Ticket) -> Done,
    ) -> Option<(Done, T)> {
        let (state, tag) = match place {
            0 => self.requests.pop_front()?,
            _ => self.requests.remove(place)?,
        };
        let done = match state {
            State::InFlight(ticket) => wait(ticket),
            State::Ended(done) => *done,
        };
        Some((done, tag))
    }

    /// Takes out the one at `place`, if `try_take` says that it has ended.
    #[inline]
    pub(super) fn try_take(
        &mut self,
        place: usize,
        try_take: impl FnOnce(Ticket) -> Result<Done, Ticket>,
    ) -> Option<(Done, T)> {
        let (state, tag) = self.requests.remove(place)?;
        let state = match state {
            State::InFlight(ticket) => try_take(ticket),
            State::Ended(done) => Ok(*done),
        };
        match state {
            Ok(done) => Some((done, tag)),
            Err(ticket) => {
                self.requests.insert(place, (State::InFlight(ticket), tag));
                None
            }
        }
    }

    /// Waits for the oldest that has not ended, and keeps what came of it: false if there is none.
    pub(super) fn end_oldest(&mut self, channel: &mut Channel) -> bool {
        let is_in_flight = |(state, _): &(State, T)| matches!(state, State::InFlight(_));
        let Some(place) = self.requests.iter().position(is_in_flight) else { return false };
        match self.requests.remove(place) {
            Some((State::InFlight(ticket), tag)) => {
                let done = channel.wait(ticket);
                self.requests.insert(place, (State::Ended(Box::new(done)), tag));
                true
            }
            _ => false,
        }
    }

    /// Takes out all: `give_up` has those that have not ended go on without us.
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
    /// Waits for a request, so that there is room for another: false if none is in flight. Those
    /// first that nobody waits for.
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

    /// Whether nothing but what is read ahead is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty()
            && self.copies.is_empty()
            && self.lent.is_empty()
            && self.writes.is_empty()
            && self.log.is_empty()
            && self.commit.is_empty()
    }
}
