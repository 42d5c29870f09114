//! Determines whether other threads want the CPU of the target's thread.
//!
//! This is measured ([`CpuContention`]). Where the kernel does not report how long a thread waits
//! for its CPU, it is guessed: others want the CPU if it is the only one, if a host runs on it, or
//! if the thread did not run for a while.

use meantime_process::cpu::{CpuContention, Reading, Times};
use rustix::thread::sched_getcpu;

/// If some rounds took this long, another thread may have had the CPU in between.
const AWAY_NS: u64 = 1_000_000;
/// How long the guess that others want the CPU then holds.
const GUESSED_NS: u64 = 20_000_000;
/// How long it is guessed until the kernel is asked again, which may have lacked a descriptor.
const ASK_NS: u64 = 1_000_000_000;

/// Returns how long the calling thread has waited for its CPU, in ns, or `None` if the kernel does
/// not report it.
pub(super) type WaitedNs = fn() -> Option<u64>;

/// Returns that time from the kernel.
pub(super) fn waited_ns() -> Option<u64> {
    Times::of_this_thread().map(|times| times.waited_ns)
}

pub(super) struct Neighbours {
    contention: CpuContention,
    waited_ns: WaitedNs,
    /// The time until which it is guessed.
    guess_until_ns: u64,
    one_cpu: bool,
    /// Whether a busy host was on this thread's CPU lately.
    host_here: bool,
    /// The time until which the thread counts as one that does not run all the time.
    away_until_ns: u64,
}

impl Neighbours {
    pub(super) fn new(waited_ns: WaitedNs) -> Self {
        Self {
            contention: CpuContention::default(),
            waited_ns,
            guess_until_ns: 0,
            one_cpu: std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1),
            host_here: false,
            away_until_ns: 0,
        }
    }

    /// Returns whether other threads want the CPU.
    #[inline]
    pub(super) fn want_cpu(&self, now_ns: u64) -> bool {
        if self.guesses(now_ns) {
            self.one_cpu || self.host_here || self.away_until_ns > now_ns
        } else {
            self.contention.is_contended(now_ns, sched_getcpu)
        }
    }

    /// Returns whether the thread, which has nothing to do, should [check](Self::yield_and_judge)
    /// for others.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        !self.guesses(now_ns) && self.contention.is_due(now_ns) && !self.want_cpu(now_ns)
    }

    /// Yields the CPU, and determines whether others wanted it.
    #[cold]
    pub(super) fn yield_and_judge(&mut self, now_ns: impl Fn() -> u64) {
        if !self.contention.yield_cpu(|| Reading::take(&now_ns, self.waited_ns)) {
            self.guess_until_ns = now_ns() + ASK_NS;
        }
    }

    /// Notes that some rounds have taken `took_ns`.
    #[inline]
    pub(super) fn rounds_took(&mut self, took_ns: u64, now_ns: u64) {
        if took_ns >= AWAY_NS {
            self.contention.look_soon();
            self.away_until_ns = now_ns + GUESSED_NS;
        }
    }

    /// Notes the `cpus` on which something came from busy hosts.
    pub(super) fn hosts_on(&mut self, now_ns: u64, mut cpus: impl Iterator<Item = u32>) {
        self.host_here = self.guesses(now_ns) && cpus.any(|cpu| cpu as usize == sched_getcpu());
    }

    fn guesses(&self, now_ns: u64) -> bool {
        now_ns < self.guess_until_ns
    }
}
