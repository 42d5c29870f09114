//! Replays a trace by the plan of a reference.

use super::informed::Plan as Schedules;
use super::oracle::Plan as Moments;
use super::schedule::Schedule;
use super::search::Mixture;
use crate::sim::machine::Machine;
use crate::sim::outcome::{Outcome, Seen};
use crate::sim::queue::{Lanes, Queue};
use crate::sim::trace::{Io, Trace};
use meantime_completion::SPINS_PER_CLOCK;
use meantime_completion::{GapCounters, Source, WaitPlan};
use meantime_random::Rng;

/// Replays one I/O after the other by either kind of plan.
fn replay<P>(
    trace: &Trace,
    machine: &Machine,
    mixture: &Mixture<P>,
    seed: u64,
    mut wait: impl FnMut(&P, &Io, &mut Wait<'_>),
) -> Outcome {
    let mut choice = Rng::new(seed ^ 0x5eed);
    let mut wait_state = Wait {
        queue: Queue::new(machine, seed),
        counters: GapCounters::default(),
        slept_ns: 0,
        since_ns: 0,
    };
    let mut series = Vec::with_capacity(trace.ios.len());
    for io in &trace.ios {
        let first = choice.unit() < mixture.share_of_first;
        let plan = &mixture.plans[usize::from(!first)].0;
        let queue = &mut wait_state.queue;
        queue.watched = Lanes::Polled;
        queue.begin_wait(&WaitPlan::Poll, 0);
        let start_ns = queue.time_ns();
        queue.run(machine.submit_ns + machine.doorbell_ns);
        queue.start(0, false, io.device_ns);
        wait_state.since_ns = queue.time_ns();
        wait_state.slept_ns = 0;
        wait_state.counters.waits += 1;
        if wait_state.queue.reap() == 0 {
            wait(plan, io, &mut wait_state);
        }
        wait_state.queue.ended.clear();
        let latency_ns = wait_state.queue.time_ns() - start_ns;
        series.push(Seen { latency_ns, slept_ns: wait_state.slept_ns });
    }
    let Wait { queue, counters, .. } = wait_state;
    Outcome::new(series, queue.time_ns(), queue.used_ns(), counters)
}

/// A wait as in `Gap`, without a fall-back.
struct Wait<'m> {
    queue: Queue<'m>,
    counters: GapCounters,
    slept_ns: u64,
    since_ns: u64,
}

impl Wait<'_> {
    /// Returns how long the I/O has been in flight, by the clock.
    fn elapsed_ns(&self) -> u64 {
        self.queue.now_ns().saturating_sub(self.since_ns)
    }

    /// Sleeps. Returns how long the I/O has been in flight, or `None` if the completion is there
    /// afterwards.
    fn sleep(&mut self, ns: u64) -> Option<u64> {
        self.counters.sleeps += 1;
        self.slept_ns += ns;
        self.queue.sleep_ns(ns);
        let elapsed_ns = self.elapsed_ns();
        let overslept = self.queue.reap() > 0;
        self.counters.oversleeps += u64::from(overslept);
        (!overslept).then_some(elapsed_ns)
    }

    /// Polls until the completion, for which it returns `None`, or until the clock shows `alarm_ns`
    /// since the doorbell. In that case it returns what the clock shows.
    fn spin(&mut self, alarm_ns: u64) -> Option<u64> {
        self.queue.begin_spin(self.since_ns.saturating_add(alarm_ns));
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if self.queue.reap() > 0 {
                    return None;
                }
            }
            let elapsed_ns = self.elapsed_ns();
            if elapsed_ns >= alarm_ns {
                return Some(elapsed_ns);
            }
        }
    }
}

pub(super) fn informed(
    trace: &Trace,
    machine: &Machine,
    mixture: &Mixture<Schedules>,
    seed: u64,
) -> Outcome {
    replay(trace, machine, mixture, seed, |plan, io, wait| {
        let class = Trace::class_at_depth_1(io);
        let none = Schedule::default();
        let schedule =
            plan.iter().find(|(of, _)| *of == class).map_or(&none, |(_, schedule)| schedule);
        let mut next = Some(wait.elapsed_ns());
        while let Some(elapsed_ns) = next {
            next = match schedule.rest_at(elapsed_ns) {
                Some(rest) if rest.from_ns <= elapsed_ns && rest.until_ns > elapsed_ns => {
                    wait.sleep(rest.until_ns - elapsed_ns)
                }
                Some(rest) if rest.from_ns > elapsed_ns => wait.spin(rest.from_ns),
                Some(rest) => wait.spin(rest.before_ns),
                None => wait.spin(u64::MAX),
            };
        }
    })
}

pub(super) fn oracle(
    trace: &Trace,
    machine: &Machine,
    mixture: &Mixture<Moments>,
    seed: u64,
) -> Outcome {
    replay(trace, machine, mixture, seed, |plan, io, wait| {
        let mut next = Some(wait.elapsed_ns());
        while let Some(elapsed_ns) = next {
            let left_ns = io.device_ns.saturating_sub(elapsed_ns);
            next = match plan.sleep_until_before_ns(io.device_ns, left_ns) {
                Some(before_ns) if before_ns <= left_ns => wait.sleep(left_ns - before_ns),
                _ => wait.spin(u64::MAX),
            };
        }
    })
}
