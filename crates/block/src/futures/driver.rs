//! The driver of an asynchronous channel, which looks at its queue.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::super::device::BlockChannel;
use super::channel::AsyncChannel;
use super::sharing::{Local, Sharing};
use meantime_hw::EventFd;

/// The channel has a driver already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the channel has a driver already: drop that first, or use it")]
pub struct DriverTaken;

/// Looks at an [`AsyncChannel`]'s queue. While it exists, futures do not look. The caller has to
/// call [`process`](Self::process) or [`wait`](Self::wait) again and again, which wake the futures
/// for results and for deadlines. When the driver is dropped, the futures look again.
pub struct Driver<C: BlockChannel, S: Sharing = Local> {
    channel: AsyncChannel<C, S>,
}

/// Time that a wait outside the lock blocks for a signal before it checks deadlines, in ns.
const BLOCK_NS: u64 = 10_000_000;
/// Spinning time before the first nap, and length of the longest nap.
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

    /// Reaps completions, without waiting, and wakes their futures. Returns the number of ended
    /// requests. If there are none, it checks deadlines.
    #[inline]
    pub fn process(&self) -> usize {
        self.channel.reap_and_wake()
    }

    /// Waits by the channel's policy until a request has ended, and wakes the futures of all ended
    /// requests. Returns their number, or 0 at once if none is in flight.
    ///
    /// Other threads can use a [`Shared`](super::Shared) channel meanwhile. For such a channel,
    /// this waits for the interrupt if the policy is `interrupt`. Otherwise it looks repeatedly for
    /// 1 ms, and then between naps of up to 1 ms.
    pub fn wait(&self) -> usize {
        if S::WAITS_INSIDE { self.wait_inside() } else { self.wait_outside() }
    }

    /// Collects requests from now on, for one doorbell.
    #[inline]
    pub fn plug(&self) {
        self.channel.with(|state| state.channel.plug());
    }

    /// Sends all collected requests, and each further request at once.
    #[inline]
    pub fn unplug(&self) {
        self.channel.with(|state| state.channel.unplug());
    }

    /// The event that the device signals when a request whose policy is `interrupt` has ended;
    /// `None` if the channel has no interrupt. An event loop can watch it, because it becomes
    /// readable. *Take the signal, then [`process`](Self::process), then wait until it is readable
    /// again*, for at most as long as deadlines may slip: a lost request raises no interrupt.
    pub fn event(&self) -> Option<EventFd> {
        self.channel.with(|state| state.channel.event())
    }

    /// Waits while holding the channel.
    fn wait_inside(&self) -> usize {
        let ended = self.channel.deliver();
        if ended > 0 {
            return ended;
        }
        self.channel.with(|state| state.channel.wait_until(&|| false));
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
            if ended > 0 || self.channel.in_flight() == 0 {
                return ended;
            }
            match &event {
                // This takes the signal before the next look.
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
            state.channel.unplug();
            state.take_wakers()
        });
        // From now on futures look themselves; none waits for a driver that does not exist.
        waiting.into_iter().for_each(Waker::wake);
    }
}
