//! The trait that a [`Waiter`](super::Waiter) is generic over: the queues of one channel, and the
//! requests in flight on them.

use super::super::gap::Source;
use super::super::learning::Flight;
use super::super::policy::Policy;
use meantime_hw::{clock, cpu};

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// Its policy.
    pub policy: Policy,
    /// What policies see of it.
    pub flight: Flight,
    /// Whether it is timed: only then its class and submission time are known.
    pub timed: bool,
    /// Whether any caller may take its result: there is no ticket for it.
    pub unclaimed: bool,
}

/// A timed request that has succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// Its policy.
    pub policy: Policy,
    /// What policies see of it.
    pub flight: Flight,
}

/// One channel: a polled queue, optionally one with an interrupt, and the requests in flight.
pub trait Queues {
    /// Identifies a request.
    type Id: Copy;
    /// One queue that can be waited on.
    type Queue<'a>: Source
    where
        Self: 'a;
    /// Both queues, waited on together.
    type Both<'a>: Source
    where
        Self: 'a;

    /// The polled queue, or the one with an interrupt.
    fn queue(&mut self, interrupted: bool) -> Self::Queue<'_>;

    /// Both queues; `None` if there is only one.
    fn both(&mut self) -> Option<Self::Both<'_>>;

    /// Whether commands are in flight on the polled queue, or on the one with an interrupt.
    fn is_busy(&self, interrupted: bool) -> bool;

    /// Called after commands may have ended on this queue: sends requests that wait for room.
    fn refill(&mut self, interrupted: bool) {
        let _ = interrupted;
    }

    /// Number of commands that have ended, so that a wait for another is told apart.
    fn ended(&self) -> u64 {
        0
    }

    /// Number of requests in flight.
    fn active(&self) -> usize;

    /// The request `id`.
    fn request(&self, id: Self::Id) -> InFlight;

    /// The request `id`, as it was before this call marks it as waited for.
    fn begin_wait(&mut self, id: Self::Id) -> InFlight;

    /// All requests in flight.
    fn under_way(&self) -> impl Iterator<Item = InFlight>;

    /// Those of them that are [`InFlight::unclaimed`].
    fn unclaimed(&self) -> impl Iterator<Item = Self::Id>;

    /// The timed requests that have ended since the waiter last took them.
    fn timed(&mut self) -> &mut Vec<Timed>;

    /// The time in ns.
    fn now_ns(&self) -> u64;

    /// CPU time that this thread has used, in ns.
    fn thread_cpu_ns(&self) -> u64 {
        clock::thread_cpu_ns()
    }

    /// How long this thread was runnable but did not run, in ns; `None` if unknown. This takes at
    /// least one system call.
    fn thread_waited_ns(&self) -> Option<u64> {
        cpu::thread_waited_ns()
    }
}
