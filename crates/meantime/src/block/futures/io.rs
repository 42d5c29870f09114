//! The futures: one request each.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::super::request::{BlockChannel, Done, Rejected, Request, RequestError};
use super::channel::{AsyncChannel, wake};
use super::sharing::{Local, Sharing};
use super::slots::{Duty, Started};
use crate::hw::DmaBuf;

/// Where a future is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Never polled.
    Unsent,
    /// Waits for room, known as this.
    Waiting(u64),
    /// Its request is in this slot.
    InFlight(u16),
    /// It was ready.
    Over,
}

/// A request as a future, made by [`AsyncChannel::submit`]. It is sent when it is first polled.
///
/// Dropping it before it was polled, or while it waits for room, gives the buffer up at once. Dropped later, the request goes
/// on, and the buffer goes back to its heap when the device is done with it.
#[must_use = "a request is not sent before its future is awaited"]
pub struct Io<'a, C: BlockChannel, S: Sharing = Local> {
    channel: &'a AsyncChannel<C, S>,
    request: Option<Request>,
    place: Place,
}

impl<'a, C: BlockChannel, S: Sharing> Io<'a, C, S> {
    #[inline(always)]
    pub(super) fn new(channel: &'a AsyncChannel<C, S>, request: Request) -> Self {
        Self { channel, request: Some(request), place: Place::Unsent }
    }

    #[inline(always)]
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<Done, Box<Rejected>>> {
        match self.place {
            Place::Unsent => self.poll_unsent(cx),
            Place::InFlight(index) => self.poll_in_flight(index, cx),
            Place::Waiting(id) => self.poll_waiting(id, cx),
            Place::Over => panic!("a request's future was polled after it was ready"),
        }
    }

    #[inline(always)]
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<Result<Done, Box<Rejected>>> {
        let (started, look, replaced) = self.channel.with(|state| {
            let started = state.start(&mut self.request);
            let replaced = match started {
                Started::InFlight(index) if state.has_driver => state.ask(index, cx.waker()),
                _ => None,
            };
            (started, state.duty(), replaced)
        });
        drop(replaced);
        if let Started::Waiting(id) = started {
            self.place = Place::Waiting(id);
            return self.poll_waiting(id, cx);
        }
        self.after_start(started, look, cx)
    }

    #[inline(always)]
    fn after_start(
        &mut self,
        started: Started,
        look: Duty,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Done, Box<Rejected>>> {
        self.place = match started {
            Started::InFlight(index) => Place::InFlight(index),
            Started::Waiting(id) => Place::Waiting(id),
            Started::Rejected(_) => Place::Over,
        };
        match look {
            Duty::Executor => {}
            // Sending may have come upon ends of other requests, which no interrupt will tell of.
            Duty::Driver => drop(self.channel.deliver()),
            Duty::Futures => cx.waker().wake_by_ref(),
        }
        match started {
            Started::Rejected(rejected) => Poll::Ready(Err(rejected)),
            _ => Poll::Pending,
        }
    }

    #[inline(always)]
    fn poll_in_flight(&mut self, index: u16, cx: &mut Context<'_>) -> Poll<Result<Done, Box<Rejected>>> {
        match self.channel.with(|state| state.take(index)) {
            Some(taken) => self.ready(taken),
            None => self.poll_not_ended(index, cx),
        }
    }

    #[inline(always)]
    fn ready(&mut self, (done, room): (Done, Option<Waker>)) -> Poll<Result<Done, Box<Rejected>>> {
        self.place = Place::Over;
        wake(room);
        Poll::Ready(Ok(done))
    }

    #[inline(never)]
    fn poll_not_ended(&mut self, index: u16, cx: &mut Context<'_>) -> Poll<Result<Done, Box<Rejected>>> {
        // One step: who brings the result after this look finds the waker.
        let (taken, look, replaced) = self.channel.with(|state| {
            let taken = state.take(index);
            let asks = taken.is_none() && state.has_driver;
            (taken, state.duty(), asks.then(|| state.ask(index, cx.waker())))
        });
        drop(replaced);
        if let Some(taken) = taken {
            return self.ready(taken);
        }
        if look == Duty::Futures {
            self.channel.look();
            if let Some(taken) = self.channel.with(|state| state.take(index)) {
                return self.ready(taken);
            }
            // Again, after other tasks have run.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    #[cold]
    #[inline(never)]
    fn poll_waiting(&mut self, id: u64, cx: &mut Context<'_>) -> Poll<Result<Done, Box<Rejected>>> {
        let (started, look, replaced, next) = self.channel.with(|state| {
            let (started, next) = state.start_waiter(id, &mut self.request);
            let replaced = match started {
                Started::InFlight(index) if state.has_driver => state.ask(index, cx.waker()),
                Started::Waiting(id) if state.has_driver => state.ask_for_room(id, cx.waker()),
                _ => None,
            };
            (started, state.duty(), replaced, next)
        });
        drop(replaced);
        wake(next);
        if look == Duty::Futures {
            // Requests of dropped futures may have ended, which nobody else looks for.
            self.channel.look();
        }
        self.after_start(started, look, cx)
    }
}

impl<C: BlockChannel, S: Sharing> Future for Io<'_, C, S> {
    type Output = Result<Done, Rejected>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_done(cx).map_err(|rejected| *rejected)
    }
}

impl<C: BlockChannel, S: Sharing> Drop for Io<'_, C, S> {
    #[inline]
    fn drop(&mut self) {
        if self.place != Place::Over && self.place != Place::Unsent {
            self.give_up();
        }
    }
}

impl<C: BlockChannel, S: Sharing> Io<'_, C, S> {
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        let (done, [room, own]) = match self.place {
            Place::InFlight(index) => self.channel.with(|state| state.abandon(index)),
            Place::Waiting(id) => (None, self.channel.with(|state| state.leave(id))),
            Place::Unsent | Place::Over => return,
        };
        drop((done, own));
        wake(room);
    }
}

/// A read or write, made by [`AsyncChannel::read`] and [`AsyncChannel::write`]: ready with the buffer. See [`Io`].
#[must_use = "a request is not sent before its future is awaited"]
pub struct Transfer<'a, C: BlockChannel, S: Sharing = Local>(Io<'a, C, S>);

impl<'a, C: BlockChannel, S: Sharing> Transfer<'a, C, S> {
    #[inline(always)]
    pub(super) fn new(io: Io<'a, C, S>) -> Self {
        Self(io)
    }
}

impl<C: BlockChannel, S: Sharing> Future for Transfer<'_, C, S> {
    type Output = Result<DmaBuf, RequestError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll_done(cx).map(|ended| match ended {
            Ok(Done { result: Ok(()), buf, .. }) => buf.ok_or(RequestError::Quarantined),
            Ok(Done { result: Err(error), .. }) => Err(error.into()),
            Err(rejected) => Err(rejected.error.into()),
        })
    }
}

/// A request without data, made by [`AsyncChannel::flush`] and its like. See [`Io`].
#[must_use = "a request is not sent before its future is awaited"]
pub struct Plain<'a, C: BlockChannel, S: Sharing = Local>(Io<'a, C, S>);

impl<'a, C: BlockChannel, S: Sharing> Plain<'a, C, S> {
    pub(super) fn new(io: Io<'a, C, S>) -> Self {
        Self(io)
    }
}

impl<C: BlockChannel, S: Sharing> Future for Plain<'_, C, S> {
    type Output = Result<(), RequestError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll_done(cx).map(|ended| match ended {
            Ok(done) => done.result.map_err(RequestError::from),
            Err(rejected) => Err(rejected.error.into()),
        })
    }
}
