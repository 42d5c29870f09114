//! The asynchronous channel: handles to one channel, whose futures are requests.

use std::task::Waker;

use super::super::device::BlockInfo;
use super::super::error::SubmitError;
use super::super::request::{BlockChannel, Request};
use super::driver::{Driver, DriverTaken};
use super::io::{Io, Plain, Transfer};
use super::sharing::{Local, Shared, Sharing};
use super::slots::ChannelState;
use meantime_completion::{DeferError, Deferred, Policy};
use meantime_hw::{DmaBuf, HwError};
use meantime_nvme::Op;

/// A channel whose requests are futures. Cloning gives another handle to the same one; the last to
/// go, futures' borrows included, ends the channel, which waits for what is in flight.
///
/// Each future that has sent its request has one of [`depth`](Self::depth) slots until it is ready
/// or dropped; when none is free, futures wait for room in the order in which they were first
/// polled. See the [module](super) for what looks at the queue and what happens to the buffer of a
/// future that is dropped.
pub struct AsyncChannel<C: BlockChannel, S: Sharing = Local> {
    core: S::Ref<Core<C, S>>,
}

/// An [`AsyncChannel`] for executors of many threads: its handles and futures are `Send`. Made by
/// [`AsyncChannel::shared`].
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
    /// If `channel` has requests under way, or results that have not been taken.
    pub fn new(channel: C) -> Self {
        Self::with_sharing(channel)
    }
}

impl<C: BlockChannel> SharedChannel<C> {
    /// Makes `channel` asynchronous, for any number of threads.
    ///
    /// # Panics
    /// As [`AsyncChannel::new`].
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

    /// Reads from `lba` on as much as `buf` holds. Ready with the buffer.
    #[inline]
    pub fn read(&self, lba: u64, buf: DmaBuf) -> Transfer<'_, C, S> {
        Transfer::new(self, Op::Read, lba, buf)
    }

    /// Writes all of `buf` from `lba` on. Ready with the buffer.
    #[inline]
    pub fn write(&self, lba: u64, buf: DmaBuf) -> Transfer<'_, C, S> {
        Transfer::new(self, Op::Write, lba, buf)
    }

    /// Makes everything durable that was done before: writes whose futures were ready before this
    /// one was first polled.
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

    /// Any request: with FUA, with a policy or a mark of its own. Ready with everything that became
    /// of it.
    #[inline]
    pub fn submit(&self, request: Request) -> Io<'_, C, S> {
        Io::new(self, request)
    }

    /// A zeroed buffer that the device can reach. Not for the path of an I/O: recycle buffers
    /// there.
    ///
    /// # Errors
    /// Without memory.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        self.with(|state| state.channel.alloc(bytes))
    }

    /// What the channel leads to.
    pub fn info(&self) -> &BlockInfo {
        &self.core.info
    }

    /// How many requests can be under way.
    pub fn depth(&self) -> u16 {
        self.core.depth
    }

    /// Requests under way, those of dropped futures included.
    pub fn in_flight(&self) -> usize {
        self.with(|state| state.channel.in_flight())
    }

    /// How many more futures could send their requests now, less those that wait for it.
    pub fn room(&self) -> usize {
        self.with(|state| state.free_count().saturating_sub(state.waiting()))
    }

    /// The way to wait, for requests that name none.
    pub fn policy(&self) -> Policy {
        self.with(|state| state.channel.policy())
    }

    /// Changes the way to wait from the next request on.
    ///
    /// # Errors
    /// [`SubmitError::NoInterrupt`] if the channel cannot wait that way.
    pub fn set_policy(&self, policy: Policy) -> Result<(), SubmitError> {
        self.with(|state| state.channel.set_policy(policy))
    }

    /// Hands over work to be done while a wait for the queue lasts; see [`BlockChannel::defer`].
    /// It must not use this channel. An [`Executor`](super::super::Executor) runs it too when it
    /// has nothing else to do; where futures look at the queue themselves, or a [`SharedChannel`]'s
    /// driver, it is run when it has waited for its patience.
    ///
    /// # Errors
    /// [`DeferError`] with the work.
    pub fn defer(&self, work: Box<dyn Deferred>) -> Result<(), DeferError> {
        self.with(|state| state.channel.defer(work))
    }

    /// Runs deferred work outside of a gap; see [`BlockChannel::run_deferred`].
    ///
    /// # Panics
    /// With the first panic of a piece that was not reported yet.
    pub fn run_deferred(&self, budget_ns: u64) -> usize {
        self.with(|state| state.channel.run_deferred(budget_ns))
    }

    /// How much work is deferred and not done.
    pub fn deferred(&self) -> usize {
        self.with(|state| state.channel.deferred())
    }

    /// Looks at the channel itself, for instance at its counters.
    ///
    /// # Panics
    /// If `look` uses this handle.
    pub fn inspect<R>(&self, look: impl FnOnce(&C) -> R) -> R {
        self.with(|state| look(&state.channel))
    }

    /// Takes the duty of looking at the queue over from the futures, as long as the [`Driver`]
    /// exists.
    ///
    /// # Errors
    /// [`DriverTaken`] if it is taken.
    pub fn driver(&self) -> Result<Driver<C, S>, DriverTaken> {
        Driver::attach(self)
    }

    /// The channel, synchronous again.
    ///
    /// # Errors
    /// This handle, if there are others (a [`Driver`] or an [`Executor`](super::super::Executor)
    /// has one), or if requests of dropped futures are under way.
    pub fn into_channel(self) -> Result<C, Self> {
        self.look();
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

    /// Takes what has completed from the device and wakes the futures concerned; how many requests
    /// ended.
    #[inline]
    pub(super) fn look(&self) -> usize {
        let mut ended = 0;
        // One borrow for the look and what it found: nearly always that is all.
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

    /// Wakes those whose requests have ended; how many ended.
    ///
    /// Wakers (but our executor's) are woken and dropped outside the cell: they may run anything,
    /// futures of this channel included.
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
