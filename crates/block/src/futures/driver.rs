//! The duty of looking at the queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::super::request::BlockChannel;
use super::channel::AsyncChannel;
use super::sharing::{Local, Sharing};
use meantime_hw::EventFd;

/// The channel has a driver already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the channel has a driver already (an executor is one): drop that first, or use it")]
pub struct DriverTaken;

/// The duty of looking at an [`AsyncChannel`]'s queue. While it exists, futures do not look: they
/// are woken by [`process`](Self::process) and [`wait`](Self::wait), one of which has to be called
/// again and again, for results and for deadlines. When it is dropped the futures look again.
pub struct Driver<C: BlockChannel, S: Sharing = Local> {
    channel: AsyncChannel<C, S>,
}

/// How long a wait outside the lock blocks for a signal before it looks at deadlines.
const BLOCK_NS: u64 = 10_000_000;
/// How long it spins before it naps, and how long it naps at most.
const SPIN: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(1);

impl<C: BlockChannel, S: Sharing> Driver<C, S> {
    pub(super) fn attach(channel: &AsyncChannel<C, S>) -> Result<Self, DriverTaken> {
        let taken = channel.with(|state| std::mem::replace(&mut state.has_driver, true));
        if taken { Err(DriverTaken) } else { Ok(Self { channel: channel.clone() }) }
    }

    /// The channel.
    pub fn channel(&self) -> &AsyncChannel<C, S> {
        &self.channel
    }

    /// Takes what has completed, without waiting, and wakes the futures that it concerns; how many
    /// requests ended. Looks at deadlines if nothing has.
    #[inline]
    pub fn process(&self) -> usize {
        self.channel.look()
    }

    /// As [`process`](Self::process), but waits by the channel's policy until something has ended.
    /// Returns 0, at once, if nothing is under way.
    ///
    /// A [`Shared`](super::Shared) channel is not kept from other threads meanwhile: it waits for
    /// the interrupt if the policy is that, else it looks again and again for 1 ms, and by naps of
    /// up to 1 ms after that.
    pub fn wait(&self) -> usize {
        if S::WAITS_INSIDE { self.wait_until(&|| false) } else { self.wait_outside() }
    }

    /// Collects requests from now on, for one doorbell.
    #[inline]
    pub fn plug(&self) {
        self.channel.with(|state| state.channel.plug());
    }

    /// Sends everything collected, and each further request at once.
    #[inline]
    pub fn unplug(&self) {
        self.channel.with(|state| state.channel.unplug());
    }

    /// What the device signals when a request whose policy is `interrupt` has ended; `None` if the
    /// channel has no interrupt. For event loops: it is readable then. *Take the signal, then
    /// [`process`](Self::process), then wait for it to be readable again*, and never longer than
    /// deadlines may slip: a request that is lost raises no interrupt.
    pub fn event(&self) -> Option<EventFd> {
        self.channel.with(|state| state.channel.event())
    }

    /// This driver is our executor's, which calls [`process`](Self::process) after each round;
    /// `waker` is one of its own.
    pub(in super::super) fn set_executor(&self, waker: &Waker) {
        self.channel.with(|state| {
            state.executor = Some(waker.vtable());
            state.channel.wake_for_deferred(Some(waker.clone()));
        });
    }

    /// See [`BlockChannel::gap_left_ns`].
    pub(in super::super) fn gap_left_ns(&self) -> Option<u64> {
        self.channel.with(|state| state.channel.gap_left_ns())
    }

    /// Runs a piece of deferred work, if there is one. One that panics was logged, and concerns no
    /// task.
    pub(in super::super) fn run_piece(&self) -> bool {
        let run = || self.channel.with(|state| state.channel.run_deferred(1));
        catch_unwind(AssertUnwindSafe(run)).map_or(true, |pieces| pieces > 0)
    }

    /// Requests under way.
    #[inline(always)]
    pub(in super::super) fn in_flight(&self) -> usize {
        self.channel.with(|state| state.channel.in_flight())
    }

    /// Waits with the channel taken. `stop` must not use it.
    #[inline]
    pub(in super::super) fn wait_until(&self, stop: &dyn Fn() -> bool) -> usize {
        let ended = self.channel.deliver();
        if ended > 0 {
            return ended;
        }
        self.channel.with(|state| state.channel.wait_until(stop));
        self.channel.deliver()
    }

    fn wait_outside(&self) -> usize {
        let (event, blocks) = self.channel.with(|state| {
            let blocks = state.channel.policy().wants_interrupt();
            (state.channel.event(), blocks)
        });
        let event = event.filter(|_| blocks);
        let start = Instant::now();
        let mut nap = Duration::from_micros(1);
        loop {
            let ended = self.process();
            if ended > 0 || self.in_flight() == 0 {
                return ended;
            }
            match &event {
                // Taken by the wait, before the next look.
                Some(event) => drop(event.wait(BLOCK_NS)),
                None if start.elapsed() < SPIN => std::thread::yield_now(),
                None => {
                    std::thread::sleep(nap);
                    nap = (nap * 2).min(LONGEST_NAP);
                }
            }
        }
    }
}

impl<C: BlockChannel, S: Sharing> Drop for Driver<C, S> {
    fn drop(&mut self) {
        let waiting = self.channel.with(|state| {
            state.has_driver = false;
            if state.executor.take().is_some() {
                state.channel.wake_for_deferred(None);
            }
            state.channel.unplug();
            state.take_wakers()
        });
        // From now on they look by themselves; none waits for a driver that is not there.
        waiting.into_iter().for_each(Waker::wake);
    }
}
