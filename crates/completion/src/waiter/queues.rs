//! What a [`Waiter`](super::Waiter) is generic over: the queues of one channel, and the requests
//! under way on them.

use super::super::gap::Source;
use super::super::learning::Flight;
use super::super::policy::Policy;
use meantime_hw::{clock, cpu};

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// The way it is waited for.
    pub policy: Policy,
    /// What policies see of it.
    pub flight: Flight,
    /// Whether its time is taken: only then its class and its time of submission are known.
    pub timed: bool,
    /// Whether any caller may take its result: none holds a ticket for it.
    pub unclaimed: bool,
}

/// A request that has ended well, and whose time is taken.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// The way it was waited for.
    pub policy: Policy,
    /// What policies see of it.
    pub flight: Flight,
}

/// One channel: a polled queue, perhaps one with an interrupt, and the requests under way on them.
pub trait Queues {
    /// Names a request.
    type Id: Copy;
    /// One queue, to be waited on.
    type Queue<'a>: Source
    where
        Self: 'a;
    /// Both queues, to be waited on together.
    type Both<'a>: Source
    where
        Self: 'a;

    /// The polled queue, or the one with an interrupt.
    fn queue(&mut self, interrupted: bool) -> Self::Queue<'_>;

    /// Both queues; `None` if there is one.
    fn both(&mut self) -> Option<Self::Both<'_>>;

    /// Whether commands are in flight on the polled queue, or on the one with an interrupt.
    fn is_busy(&self, interrupted: bool) -> bool;

    /// Commands may have ended on this queue: sends what waits for room.
    fn refill(&mut self, interrupted: bool) {
        let _ = interrupted;
    }

    /// How many requests are under way.
    fn active(&self) -> usize;

    /// The request `id`.
    fn request(&self, id: Self::Id) -> InFlight;

    /// The same, before it is marked as one that was waited for.
    fn begin_wait(&mut self, id: Self::Id) -> InFlight;

    /// All requests under way.
    fn under_way(&self) -> impl Iterator<Item = InFlight>;

    /// Those of them that are [`InFlight::unclaimed`].
    fn unclaimed(&self) -> impl Iterator<Item = Self::Id>;

    /// The requests that have ended since the waiter last looked, of those whose time is taken.
    fn timed(&mut self) -> &mut Vec<Timed>;

    /// The time in ns.
    fn now_ns(&self) -> u64;

    /// CPU time that this thread has used, in ns.
    fn thread_cpu_ns(&self) -> u64 {
        clock::thread_cpu_ns()
    }

    /// How often another thread took the CPU away from this one.
    fn involuntary_switches(&self) -> u64 {
        cpu::involuntary_switches()
    }
}
