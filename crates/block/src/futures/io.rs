//! The futures: one request each.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::super::device::BlockChannel;
use super::super::error::RequestError;
use super::super::request::{Done, Rejected, Request};
use super::channel::{AsyncChannel, wake};
use super::sharing::{Local, Sharing};
use super::slots::Started;
use meantime_hw::DmaBuf;
use meantime_nvme::Op;

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestStage {
    /// Its future has not been polled.
    Unsent,
    /// It waits for room, under this number.
    Waiting(u64),
    /// It is in this slot.
    InFlight(u16),
    /// Its future has returned the result.
    Over,
}

/// The result of a request.
type Outcome = Result<Done, Box<Rejected>>;

/// One request on its way through a channel. The futures around it differ in what they keep until
/// it is sent (the less they keep, the less is moved) and in how they convert the outcome.
struct RequestFuture<'a, C: BlockChannel, S: Sharing> {
    channel: &'a AsyncChannel<C, S>,
    stage: RequestStage,
}

impl<'a, C: BlockChannel, S: Sharing> RequestFuture<'a, C, S> {
    #[inline(always)]
    fn new(channel: &'a AsyncChannel<C, S>) -> Self {
        Self { channel, stage: RequestStage::Unsent }
    }

    /// `make` makes the request when there is room; `map` converts the outcome to the future's
    /// output.
    #[inline(always)]
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        make: impl FnOnce() -> Request,
        map: impl Fn(Outcome) -> T,
    ) -> Poll<T> {
        match self.stage {
            RequestStage::Unsent => self.poll_unsent(cx, make).map(map),
            RequestStage::InFlight(index) => match self.channel.with(|state| state.take(index)) {
                Some(taken) => Poll::Ready(map(self.over(taken))),
                None => self.poll_not_ended(index, cx).map(map),
            },
            RequestStage::Waiting(id) => self.poll_waiting(id, cx, make).map(map),
            RequestStage::Over => panic!("a request's future was polled after it was ready"),
        }
    }

    #[inline(always)]
    fn over(&mut self, (done, room): (Done, Option<Waker>)) -> Outcome {
        self.stage = RequestStage::Over;
        wake(room);
        Ok(done)
    }

    #[inline(always)]
    fn poll_unsent(
        &mut self,
        cx: &mut Context<'_>,
        make: impl FnOnce() -> Request,
    ) -> Poll<Outcome> {
        let mut make = Some(make);
        let (started, has_driver, replaced) = self.channel.with(|state| {
            let started = state.start(|| make.take().expect("made once")());
            let replaced = match started {
                Started::InFlight(index) if state.has_driver => state.ask(index, cx.waker()),
                _ => None,
            };
            (started, state.has_driver, replaced)
        });
        drop(replaced);
        match (started, make) {
            (Started::Waiting(id), Some(make)) => {
                self.stage = RequestStage::Waiting(id);
                self.poll_waiting(id, cx, make)
            }
            (started, _) => self.after_start(started, has_driver, cx),
        }
    }

    #[inline(always)]
    fn after_start(
        &mut self,
        started: Started,
        has_driver: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome> {
        self.stage = match started {
            Started::InFlight(index) => RequestStage::InFlight(index),
            Started::Waiting(id) => RequestStage::Waiting(id),
            Started::Rejected(_) => RequestStage::Over,
        };
        if has_driver {
            // Sending may have found completions of other requests, which raise no further
            // interrupt.
            self.channel.deliver();
        } else {
            // The task is polled again after other tasks have run.
            cx.waker().wake_by_ref();
        }
        match started {
            Started::Rejected(rejected) => Poll::Ready(Err(rejected)),
            _ => Poll::Pending,
        }
    }

    #[inline(never)]
    fn poll_not_ended(&mut self, index: u16, cx: &mut Context<'_>) -> Poll<Outcome> {
        // This is one step: a result that is delivered after this check finds the waker.
        let (taken, has_driver, replaced) = self.channel.with(|state| {
            let taken = state.take(index);
            let asks = taken.is_none() && state.has_driver;
            (taken, state.has_driver, asks.then(|| state.ask(index, cx.waker())))
        });
        drop(replaced);
        if let Some(taken) = taken {
            return Poll::Ready(self.over(taken));
        }
        if !has_driver {
            self.channel.reap_and_wake();
            if let Some(taken) = self.channel.with(|state| state.take(index)) {
                return Poll::Ready(self.over(taken));
            }
            // The task is polled again after other tasks have run.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    #[cold]
    #[inline(never)]
    fn poll_waiting(
        &mut self,
        id: u64,
        cx: &mut Context<'_>,
        make: impl FnOnce() -> Request,
    ) -> Poll<Outcome> {
        let (started, has_driver, replaced, next) = self.channel.with(|state| {
            let (started, next) = state.start_waiter(id, make);
            let replaced = match started {
                Started::InFlight(index) if state.has_driver => state.ask(index, cx.waker()),
                Started::Waiting(id) if state.has_driver => state.ask_for_room(id, cx.waker()),
                _ => None,
            };
            (started, state.has_driver, replaced, next)
        });
        drop(replaced);
        wake(next);
        if !has_driver {
            // Requests of dropped futures may have ended, and no other code looks for them.
            self.channel.reap_and_wake();
        }
        self.after_start(started, has_driver, cx)
    }

    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        let (done, [room, own]) = match self.stage {
            RequestStage::InFlight(index) => self.channel.with(|state| state.abandon(index)),
            RequestStage::Waiting(id) => (None, self.channel.with(|state| state.leave(id))),
            RequestStage::Unsent | RequestStage::Over => return,
        };
        drop((done, own));
        wake(room);
    }
}

impl<C: BlockChannel, S: Sharing> Drop for RequestFuture<'_, C, S> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.stage != RequestStage::Over && self.stage != RequestStage::Unsent {
            self.give_up();
        }
    }
}

/// A request as a future, made by [`AsyncChannel::submit`]. The first poll sends it.
///
/// If it is dropped before its first poll, or while it waits for room, the buffer is released at
/// once. If it is dropped later, the request continues, and the buffer goes back to its heap when
/// the device is done with it.
#[must_use = "a request is not sent before its future is awaited"]
pub struct Io<'a, C: BlockChannel, S: Sharing = Local> {
    future: RequestFuture<'a, C, S>,
    request: Option<Request>,
}

impl<'a, C: BlockChannel, S: Sharing> Io<'a, C, S> {
    pub(super) fn new(channel: &'a AsyncChannel<C, S>, request: Request) -> Self {
        Self { future: RequestFuture::new(channel), request: Some(request) }
    }
}

impl<C: BlockChannel, S: Sharing> Future for Io<'_, C, S> {
    type Output = Result<Done, Rejected>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { future, request } = self.get_mut();
        future.poll(
            cx,
            || request.take().expect("a request is sent once"),
            |outcome| outcome.map_err(|rejected| *rejected),
        )
    }
}

/// A read or write, made by [`AsyncChannel::read`] and [`AsyncChannel::write`], with the buffer as
/// output. The first poll sends it, and it may be dropped at any time, as described for [`Io`].
#[must_use = "a request is not sent before its future is awaited"]
pub struct Transfer<'a, C: BlockChannel, S: Sharing = Local> {
    future: RequestFuture<'a, C, S>,
    op: Op,
    lba: u64,
    buf: Option<DmaBuf>,
}

impl<'a, C: BlockChannel, S: Sharing> Transfer<'a, C, S> {
    #[inline(always)]
    pub(super) fn new(channel: &'a AsyncChannel<C, S>, op: Op, lba: u64, buf: DmaBuf) -> Self {
        Self { future: RequestFuture::new(channel), op, lba, buf: Some(buf) }
    }
}

impl<C: BlockChannel, S: Sharing> Future for Transfer<'_, C, S> {
    type Output = Result<DmaBuf, RequestError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { future, op, lba, buf } = self.get_mut();
        future.poll(cx, || Request::new(*op, *lba, 0, buf.take()), transferred)
    }
}

#[inline(always)]
fn transferred(outcome: Outcome) -> Result<DmaBuf, RequestError> {
    match outcome {
        Ok(done) => done.into_buf(),
        Err(rejected) => Err(rejected.error.into()),
    }
}

/// A request without data, made by [`AsyncChannel::flush`] and similar functions. The first poll
/// sends it, and it may be dropped at any time, as described for [`Io`].
#[must_use = "a request is not sent before its future is awaited"]
pub struct Plain<'a, C: BlockChannel, S: Sharing = Local>(Io<'a, C, S>);

impl<'a, C: BlockChannel, S: Sharing> Plain<'a, C, S> {
    pub(super) fn new(channel: &'a AsyncChannel<C, S>, request: Request) -> Self {
        Self(Io::new(channel, request))
    }
}

impl<C: BlockChannel, S: Sharing> Future for Plain<'_, C, S> {
    type Output = Result<(), RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|outcome| match outcome {
            Ok(done) => done.result.map_err(RequestError::from),
            Err(rejected) => Err(rejected.error.into()),
        })
    }
}
