//! The asynchronous channel: handles to one channel, whose requests are futures.

use std::task::Waker;

use super::super::device::{BlockChannel, BlockInfo};
use super::super::error::SubmitError;
use super::super::request::Request;
use super::driver::{Driver, DriverTaken};
use super::io::{Io, Plain, Transfer};
use super::sharing::{Local, Shared, Sharing};
use super::slots::ChannelState;
use meantime_completion::Policy;
use meantime_hw::{DmaBuf, HwError};
use meantime_nvme::Op;

/// A channel whose requests are futures. Cloning gives another handle to the same channel. The drop
/// of the last handle, including the borrows of futures, ends the channel, which waits for requests
/// in flight.
///
/// Each future that has sent its request has one of [`depth`](Self::depth) slots until it is ready
/// or dropped. When none is free, futures wait for room in the order of their first polls. The
/// [module](super) describes how the queue is looked at, and what happens to the buffer of a
/// dropped future.
pub struct AsyncChannel<C: BlockChannel, S: Sharing = Local> {
    core: S::Ref<Core<C, S>>,
}

/// An [`AsyncChannel`] for multi-threaded executors: its handles and futures are `Send`.
/// [`AsyncChannel::shared`] makes it.
pub type SharedChannel<C> = AsyncChannel<C, Shared>;

struct Core<C: BlockChannel, S: Sharing> {
    info: BlockInfo,
    depth: u16,
    state: S::Cell<ChannelState<C>>,
}

impl<C: BlockChannel, S: Sharing> Clone for AsyncChannel<C, S> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone() }
    }
}

impl<C: BlockChannel, S: Sharing> std::fmt::Debug for AsyncChannel<C, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncChannel")
            .field("device", &self.core.info.uri)
            .field("depth", &self.core.depth)
            .finish_non_exhaustive()
    }
}

impl<C: BlockChannel> AsyncChannel<C> {
    /// Makes `channel` asynchronous, for one thread.
    ///
    /// # Panics
    /// Panics if `channel` has requests in flight, or results that have not been taken.
    pub fn new(channel: C) -> Self {
        Self::with_sharing(channel)
    }
}

impl<C: BlockChannel> SharedChannel<C> {
    /// Makes `channel` asynchronous, for any number of threads.
    ///
    /// # Panics
    /// Panics if `channel` has requests in flight, or results that have not been taken.
    pub fn shared(channel: C) -> Self {
        Self::with_sharing(channel)
    }
}

impl<C: BlockChannel, S: Sharing> AsyncChannel<C, S> {
    fn with_sharing(mut channel: C) -> Self {
        let none = channel.in_flight() == 0 && channel.next_done().is_none();
        assert!(
            none,
            "the channel has requests under way: wait for them before it becomes asynchronous"
        );
        let state = ChannelState::new(channel);
        let core = Core {
            info: state.channel.info().clone(),
            depth: state.channel.depth().max(1),
            state: state.into(),
        };
        Self { core: core.into() }
    }

    /// Reads from `lba` on to fill `buf`. Returns the buffer, and drops it on an error.
    #[inline]
    pub fn read(&self, lba: u64, buf: DmaBuf) -> Transfer<'_, C, S> {
        Transfer::new(self, Op::Read, lba, buf)
    }

    /// Writes all of `buf` from `lba` on. Returns the buffer, and drops it on an error.
    #[inline]
    pub fn write(&self, lba: u64, buf: DmaBuf) -> Transfer<'_, C, S> {
        Transfer::new(self, Op::Write, lba, buf)
    }

    /// Makes completed writes durable: those whose futures were ready before this one was first
    /// polled.
    pub fn flush(&self) -> Plain<'_, C, S> {
        Plain::new(self, Request::flush())
    }

    /// Writes zeroes to `blocks` logical blocks from `lba` on.
    pub fn write_zeroes(&self, lba: u64, blocks: u64) -> Plain<'_, C, S> {
        Plain::new(self, Request::write_zeroes(lba, blocks))
    }

    /// Tells the device that `blocks` logical blocks from `lba` on are no longer needed.
    pub fn deallocate(&self, lba: u64, blocks: u64) -> Plain<'_, C, S> {
        Plain::new(self, Request::deallocate(lba, blocks))
    }

    /// Submits any request, for example with FUA, or with its own policy or mark. Returns the
    /// complete result.
    #[inline]
    pub fn submit(&self, request: Request) -> Io<'_, C, S> {
        Io::new(self, request)
    }

    /// Allocates a zeroed buffer that the device can reach. This is not for the fast path, where
    /// buffers should be reused.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        self.with(|state| state.channel.alloc(bytes))
    }

    /// The properties of the device.
    pub fn info(&self) -> &BlockInfo {
        &self.core.info
    }

    /// The most requests in flight.
    pub fn depth(&self) -> u16 {
        self.core.depth
    }

    /// Requests in flight, including those of dropped futures.
    pub fn in_flight(&self) -> usize {
        self.with(|state| state.channel.in_flight())
    }

    /// Number of free slots minus waiting futures.
    pub fn room(&self) -> usize {
        self.with(|state| state.free_count().saturating_sub(state.waiting()))
    }

    /// The policy of requests that name none.
    pub fn policy(&self) -> Policy {
        self.with(|state| state.channel.policy())
    }

    /// Changes the channel's policy from the next request on.
    ///
    /// # Errors
    /// Returns [`SubmitError::NoInterrupt`] if the channel does not support it.
    pub fn set_policy(&self, policy: Policy) -> Result<(), SubmitError> {
        self.with(|state| state.channel.set_policy(policy))
    }

    /// Gives access to the channel itself, for instance to its counters.
    ///
    /// # Panics
    /// Panics if `look` uses this handle.
    pub fn inspect<R>(&self, look: impl FnOnce(&C) -> R) -> R {
        self.with(|state| look(&state.channel))
    }

    /// Makes a [`Driver`], which looks at the queue instead of the futures as long as it exists.
    ///
    /// # Errors
    /// Returns [`DriverTaken`] if there is one already.
    pub fn driver(&self) -> Result<Driver<C, S>, DriverTaken> {
        Driver::attach(self)
    }

    /// Turns the handle back into a synchronous channel.
    ///
    /// # Errors
    /// Returns this handle if there are others (a [`Driver`] has one), or if requests of dropped
    /// futures are in flight.
    pub fn into_channel(self) -> Result<C, Self> {
        self.reap_and_wake();
        if self.in_flight() > 0 {
            return Err(self);
        }
        match S::unshare(self.core) {
            Ok(core) => Ok(S::into_inner(core.state).channel),
            Err(core) => Err(Self { core }),
        }
    }

    #[inline(always)]
    pub(super) fn with<R>(&self, action: impl FnOnce(&mut ChannelState<C>) -> R) -> R {
        S::with(&self.core.state, action)
    }

    /// Reaps completions and wakes their futures. Returns the number of ended requests.
    #[inline]
    pub(super) fn reap_and_wake(&self) -> usize {
        let mut ended = 0;
        // One borrow serves the look and its result, which is nearly always enough.
        let waker = self.with(|state| {
            state.channel.poll();
            state.deliver(&mut ended)
        });
        if let Some(waker) = waker {
            waker.wake();
            ended += self.deliver();
        }
        ended
    }

    /// Wakes the futures of ended requests. Returns the number of ended requests.
    ///
    /// Wakers are woken and dropped outside the cell: they may run any code, including futures of
    /// this channel.
    #[inline]
    pub(super) fn deliver(&self) -> usize {
        let mut ended = 0;
        while let Some(waker) = self.with(|state| state.deliver(&mut ended)) {
            waker.wake();
        }
        ended
    }
}

/// Wakes `waker`, if there is one.
#[inline(always)]
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
