//! Runs a policy on a trace.

use std::cell::Cell;

use super::machine::Machine;
use super::outcome::{Outcome, Seen};
use super::queue::{Lanes, Queue};
use super::trace::{Io, Trace};
use crate::published::{Ehp, register};
use meantime_completion::waiter::{FIRST_LOOKS, Found, InFlight, Queues, Timed, Waiter};
use meantime_completion::{Class, Flight, Policy, Source, WaitPlan};

/// Runs the I/Os of `trace` on `machine`. `policy` waits for them, with `depth` in flight (at least
/// 1). At depth 1 each I/O is submitted and waited for. Above that, as in `meantime bench`, one
/// doorbell submits as many I/Os as there are free slots, and then the caller waits for some of
/// them.
pub fn simulate(
    trace: &Trace,
    machine: &Machine,
    policy: Policy,
    depth: usize,
    seed: u64,
) -> Outcome {
    let mut channel = Channel::new(machine, policy, depth.max(1), seed);
    channel.run(trace)
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct Slot {
    flight: Flight,
    /// The policy by which it is waited for, which is `poll` if the channel's policy saw nothing to
    /// gain.
    policy: Policy,
    io: usize,
    start_ns: u64,
    under_way: bool,
}

/// The device of a channel, and the requests in flight.
struct Device<'m> {
    queue: Queue<'m>,
    slots: Vec<Slot>,
    active: usize,
    /// Number of entries of `queue.ended` that are processed.
    noted: usize,
    timed: Vec<Timed>,
    /// The number of I/Os in `timed` from which the policy has learned.
    learned: u64,
    /// The CPU time used when the clock was last read for the waiter, in ns.
    used_ns: Cell<u64>,
}

impl Device<'_> {
    /// Processes the I/Os that have ended.
    fn note_ended(&mut self) {
        for &slot in &self.queue.ended[self.noted..] {
            self.active -= 1;
            self.slots[slot].under_way = false;
            let Slot { flight, policy, .. } = self.slots[slot];
            if policy.wants_times() {
                self.timed.push(Timed { policy, flight });
                self.learned += u64::from(policy.learns());
            }
        }
        self.noted = self.queue.ended.len();
    }
}

impl<'m> Queues for Device<'m> {
    type Id = usize;
    type Queue<'a>
        = &'a mut Queue<'m>
    where
        Self: 'a;
    type Both<'a>
        = &'a mut Queue<'m>
    where
        Self: 'a;

    fn queue(&mut self, interrupted: bool) -> &mut Queue<'m> {
        self.queue.watched = Lanes::of(interrupted);
        &mut self.queue
    }

    fn both(&mut self) -> Option<&mut Queue<'m>> {
        self.queue.watched = Lanes::Both;
        Some(&mut self.queue)
    }

    fn is_busy(&self, interrupted: bool) -> bool {
        self.queue.is_busy(Lanes::of(interrupted))
    }

    fn refill(&mut self, _: bool) {
        self.note_ended();
    }

    fn active(&self) -> usize {
        self.active
    }

    fn request(&self, slot: usize) -> InFlight {
        let Slot { flight, policy, .. } = self.slots[slot];
        InFlight { policy, flight, timed: policy.wants_times(), unclaimed: true }
    }

    fn begin_wait(&mut self, slot: usize) -> InFlight {
        let request = self.request(slot);
        self.slots[slot].flight.waited = true;
        if request.policy.learns() {
            self.queue.run(self.queue.machine.plan_ns);
        }
        request
    }

    fn under_way(&self) -> impl Iterator<Item = InFlight> {
        self.unclaimed().map(|slot| self.request(slot))
    }

    fn unclaimed(&self) -> impl Iterator<Item = usize> {
        (0..self.slots.len()).filter(|slot| self.slots[*slot].under_way)
    }

    fn timed(&mut self) -> &mut Vec<Timed> {
        &mut self.timed
    }

    fn now_ns(&self) -> u64 {
        let now_ns = self.queue.now_ns();
        self.used_ns.set(self.queue.used_ns());
        now_ns
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.used_ns.get()
    }

    fn thread_waited_ns(&self) -> Option<u64> {
        Some(self.queue.waited_ns())
    }
}

/// A channel with one policy, and its caller.
struct Channel<'m> {
    device: Device<'m>,
    policy: Policy,
    waiter: Waiter,
    series: Vec<Seen>,
    /// The duration of the sleep in the last wait.
    slept_ns: u64,
}

impl<'m> Channel<'m> {
    fn new(machine: &'m Machine, policy: Policy, depth: usize, seed: u64) -> Self {
        let flight =
            Flight { class: Class::default(), submitted_ns: 0, interrupted: false, waited: false };
        let mut waiter = Waiter::new(Some(machine.sleep_costs(seed)));
        if let (Ok(published), Policy::Rule(rule)) = (register(), policy)
            && policy == published.ehp
        {
            waiter.use_rule(rule, Box::new(Ehp::new(machine.wake_costs())));
        }
        waiter.allow_interrupts();
        waiter.prepare(policy);
        let device = Device {
            queue: Queue::new(machine, seed),
            slots: vec![Slot { flight, policy, io: 0, start_ns: 0, under_way: false }; depth],
            active: 0,
            noted: 0,
            timed: Vec::new(),
            learned: 0,
            used_ns: Cell::new(0),
        };
        Self { device, policy, waiter, series: Vec::new(), slept_ns: 0 }
    }

    fn run(&mut self, trace: &Trace) -> Outcome {
        self.series = vec![Seen::default(); trace.ios.len()];
        match self.device.slots.len() {
            1 => self.run_one_by_one(trace),
            _ => self.run_deep(trace),
        }
        let counters = self.waiter.counters(false) + self.waiter.counters(true);
        let series = std::mem::take(&mut self.series);
        let queue = &self.device.queue;
        Outcome::new(series, queue.time_ns(), queue.used_ns(), counters)
    }

    fn run_one_by_one(&mut self, trace: &Trace) {
        for (index, io) in trace.ios.iter().enumerate() {
            let start_ns = self.device.queue.time_ns();
            self.submit(0, index, io, start_ns);
            self.ring(&[0], trace);
            self.start_timed(0);
            if self.device.slots[0].policy == Policy::Poll {
                self.polls_until_done();
            }
            while self.device.queue.ended.is_empty() {
                self.waiter.wait_for(&mut self.device, 0);
                self.note_wait(self.device.slots[0].flight.interrupted);
            }
            self.take_ended();
        }
    }

    fn run_deep(&mut self, trace: &Trace) {
        let mut free: Vec<usize> = (0..self.device.slots.len()).rev().collect();
        let mut batch = Vec::new();
        let mut ios = trace.ios.iter().enumerate();
        loop {
            batch.clear();
            let start_ns = self.device.queue.time_ns();
            while !free.is_empty()
                && let Some((index, io)) = ios.next()
                && let Some(slot) = free.pop()
            {
                self.submit(slot, index, io, start_ns);
                // The doorbell comes after the batch.
                self.start_timed(slot);
                batch.push(slot);
            }
            self.ring(&batch, trace);
            while self.device.queue.ended.is_empty() {
                let busy = [false, true].map(|interrupted| self.device.is_busy(interrupted));
                if !self.waiter.wait_for_any(&mut self.device) {
                    return;
                }
                self.note_wait(busy == [false, true]);
            }
            free.extend_from_slice(&self.device.queue.ended);
            self.take_ended();
        }
    }

    /// Puts the command of I/O `index` into the queue, as [`Slot`] `slot`.
    fn submit(&mut self, slot: usize, index: usize, io: &Io, start_ns: u64) {
        let device = &mut self.device;
        device.active += 1;
        let class = Class::new(io.kind, io.bytes, device.active);
        let polls = self.waiter.polls_timed(self.policy);
        let interrupted =
            !polls && self.policy.may_interrupt() && self.waiter.interrupts(self.policy, class);
        let flight = Flight { class, submitted_ns: 0, interrupted, waited: false };
        let policy = if polls { Policy::Poll } else { self.policy };
        device.slots[slot] = Slot { flight, policy, io: index, start_ns, under_way: true };
        device.queue.run(device.queue.machine.submit_ns);
        if policy.wants_times() {
            self.take_time(slot);
        }
    }

    /// Takes the time of an I/O after its command was sent, where that costs nothing, which is so
    /// if its policy uses the polled queue and learns.
    fn start_timed(&mut self, slot: usize) {
        let Slot { flight, policy, .. } = self.device.slots[slot];
        if policy == self.policy || !self.waiter.wants_time(self.policy, flight.class) {
            return;
        }
        self.device.slots[slot].policy = self.policy;
        self.take_time(slot);
    }

    fn take_time(&mut self, slot: usize) {
        self.device.slots[slot].flight.submitted_ns = self.device.queue.now_ns();
    }

    /// Rings the doorbell for `batch`.
    fn ring(&mut self, batch: &[usize], trace: &Trace) {
        if batch.is_empty() {
            return;
        }
        let Device { queue, slots, .. } = &mut self.device;
        queue.run(queue.machine.doorbell_ns);
        for &slot in batch {
            let Slot { flight, io, .. } = slots[slot];
            let slowed_ns = (queue.machine.slowed_by_sleep * self.slept_ns as f64) as u64;
            queue.start(slot, flight.interrupted, trace.ios[io].device_ns + slowed_ns);
        }
        self.slept_ns = 0;
    }

    fn polls_until_done(&mut self) {
        let queue = self.device.queue(false);
        queue.begin_wait(&WaitPlan::Poll, 0);
        let empty = queue.poll_empty(FIRST_LOOKS);
        for _ in empty..FIRST_LOOKS {
            if queue.reap() > 0 {
                return;
            }
        }
    }

    /// Records that something ended in a wait on the polled queue, or on the one with an interrupt.
    fn note_wait(&mut self, interrupted: bool) {
        let slept_ns = self.waiter.waited(interrupted).slept_ns;
        self.slept_ns = slept_ns;
        for &slot in &self.device.queue.ended {
            self.series[self.device.slots[slot].io].slept_ns = slept_ns;
        }
        self.learn();
    }

    /// Accounts for the time in which a policy learned from I/Os that ended.
    fn learn(&mut self) {
        let ios = std::mem::take(&mut self.device.learned);
        self.device.queue.run(ios * self.device.queue.machine.learn_ns);
    }

    /// Gives the caller the results of the I/Os that ended.
    fn take_ended(&mut self) {
        self.device.note_ended();
        self.waiter.learn(&mut self.device, Found::Looking);
        self.learn();
        let now_ns = self.device.queue.time_ns();
        for &slot in &self.device.queue.ended {
            let Slot { io, start_ns, .. } = self.device.slots[slot];
            self.series[io].latency_ns = now_ns - start_ns;
        }
        self.device.queue.ended.clear();
        self.device.noted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::distribution::Distribution;
    use super::super::shape::Shape;
    use super::*;

    /// A machine whose wake-ups are always 2 µs late.
    fn machine() -> Machine {
        let wake = Distribution::constant(2_000);
        Machine {
            timer_wake: wake.clone(),
            interrupt_wake: wake.plus_ns(500),
            ..Machine::bare_metal()
        }
    }

    fn policies() -> Vec<Policy> {
        register().unwrap();
        let texts = [
            "interrupt",
            "poll",
            "hybrid=3us",
            "hybrid",
            "hybrid-bucket",
            "hybrid-min",
            "ehp",
            "pas",
            "dpas",
            "adaptive",
            "adaptive:cpu=30",
            "adaptive:p99=25us",
        ];
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Submission takes 120 ns, the doorbell 80 ns, the device 10 µs. The next look of 3 ns sees
    /// the completion, and reaping takes 80 ns. The CPU runs all the time.
    #[test]
    fn polling_by_hand() {
        let outcome = simulate(&Trace::of_reads([10_000; 100]), &machine(), Policy::Poll, 1, 1);
        // A reading of the clock may come between the completion and the look.
        let within = 120 + 80 + 10_000 + 80..=120 + 80 + 10_000 + 13 + 80;
        assert!(outcome.series().iter().all(|seen| within.contains(&seen.latency_ns)));
        assert_eq!(outcome.cpu_percent(), 100.0);
        assert_eq!(
            outcome.elapsed_ns(),
            outcome.series().iter().map(|seen| seen.latency_ns).sum::<u64>()
        );
        // Seen by the first 128 looks, without a clock: 99 looks of 3 ns are 297.
        let fast = simulate(&Trace::of_reads([297]), &machine(), Policy::Poll, 1, 1);
        assert_eq!(fast.max_ns(), 120 + 80 + 297 + 80);
    }

    /// 3 µs asleep, and 2 µs until the thread runs: an I/O of 10 µs is spun for from then on, one
    /// of 4 µs is found 1 µs late. The time is taken before the doorbell and after the end, 10 ns
    /// each.
    #[test]
    fn a_fixed_sleep_by_hand() {
        let policy = Policy::HybridFixed(3_000);
        let outcome = simulate(&Trace::of_reads([10_000, 4_000]), &machine(), policy, 1, 1);
        let fixed_ns = 120 + 10 + 80 + 80 + 10;
        let [long, short] = [0, 1].map(|at| outcome.series()[at]);
        assert!((fixed_ns + 10_000..=fixed_ns + 10_013).contains(&long.latency_ns), "{long:?}");
        // The sleep ends with a look, and the reaping look comes after that.
        assert_eq!(short.latency_ns, fixed_ns + 5_000 + 2 * 3);
        assert_eq!((short.slept_ns, long.slept_ns), (3_000, 3_000));
        let counters = outcome.counters();
        assert_eq!((counters.sleeps, counters.oversleeps), (2, 1));
        let asleep_ns = 2 * (5_000 - 1_200);
        assert_eq!(outcome.elapsed_ns() - asleep_ns, (outcome.cpu_ns_per_io() * 2.0) as u64);
    }

    /// Looks twice, blocks, runs 2.5 µs after the completion, looks again.
    #[test]
    fn an_interrupt_by_hand() {
        let outcome = simulate(&Trace::of_reads([10_000; 3]), &machine(), Policy::Interrupt, 1, 1);
        let latency_ns = 120 + 80 + 10_000 + 2_500 + 3 + 80;
        assert!(outcome.series().iter().all(|seen| seen.latency_ns == latency_ns));
        assert_eq!(outcome.counters().blocks, 3);
        assert_eq!(outcome.cpu_ns_per_io(), f64::from(120 + 80 + 2 * 3 + 1_200 + 3 + 80));
    }

    /// After the budget of 1 ms the sleeps grow.
    #[test]
    fn a_stall_is_not_spun_through() {
        let outcome = simulate(&Trace::of_reads([50_000_000]), &machine(), Policy::Poll, 1, 1);
        assert_eq!(outcome.counters().fallbacks, 1);
        assert!(outcome.cpu_percent() < 3.0, "{}", outcome.cpu_percent());
    }

    #[test]
    fn one_seed_one_outcome() {
        let trace = Shape::ReadWrite.trace(20_000, 2_000, 3);
        for policy in policies() {
            for depth in [1, 4] {
                let run = |seed| simulate(&trace, &Machine::bare_metal(), policy, depth, seed);
                assert!(run(5) == run(5), "{policy} at depth {depth}");
                assert_eq!(run(5).ios(), 2_000);
                if run(5).counters().sleeps > 100 {
                    assert!(run(5) != run(6), "{policy} at depth {depth}");
                }
            }
        }
    }

    /// Skipping looks changes nothing.
    #[test]
    fn leaving_looks_out_is_exact() {
        for shape in
            [Shape::GRID[0], Shape::GRID[1], Shape::BehindPrograms { fraction: 0.1, factor: 200.0 }]
        {
            let trace = shape.trace(9_000, 300, 3);
            for (policy, depth) in
                policies().into_iter().flat_map(|policy| [(policy, 1), (policy, 4)])
            {
                let run = |one_by_one| {
                    let machine = Machine::bare_metal();
                    let mut channel = Channel::new(&machine, policy, depth, 7);
                    channel.device.queue.one_by_one = one_by_one;
                    channel.run(&trace)
                };
                assert!(run(true) == run(false), "{policy} at depth {depth}, {shape}");
            }
        }
    }

    /// Covers planned sleeps that policies do not make yet.
    #[test]
    fn leaving_looks_out_is_exact_around_planned_sleeps() {
        use meantime_completion::{Gap, Plan, Stage};
        let plans = [
            Plan::of(&[Stage { from_ns: 4_000, until_ns: 6_000 }]),
            Plan::of(&[
                Stage { from_ns: 0, until_ns: 500 },
                Stage { from_ns: 20_000, until_ns: 50_000 },
            ]),
            Plan::of(&[
                Stage { from_ns: 1_000, until_ns: 1_100 },
                Stage { from_ns: 1_200, until_ns: 1_250_000 },
            ]),
        ];
        let machine = Machine::bare_metal();
        for (plan, device_ns) in plans.iter().flat_map(|plan| {
            [700, 5_000, 21_000, 90_000, 1_030_000, 1_260_000, 5_000_000]
                .map(|device_ns| (plan, device_ns))
        }) {
            let run = |one_by_one| {
                let mut queue = Queue::new(&machine, 3);
                queue.one_by_one = one_by_one;
                queue.start(0, false, device_ns);
                let mut gap = Gap::default();
                gap.wait(&mut queue, WaitPlan::Planned { plan: *plan, since_ns: 0 });
                (queue.time_ns(), queue.cpu_ns(), gap.counters(), *gap.waited())
            };
            assert_eq!(run(true), run(false), "{plan:?} {device_ns}");
        }
    }

    #[test]
    fn nothing_to_do() {
        for depth in [0, 1, 4] {
            let outcome = simulate(&Trace::default(), &machine(), Policy::Poll, depth, 1);
            assert_eq!((outcome.ios(), outcome.elapsed_ns()), (0, 0));
        }
    }

    /// Depth 4 has four times the throughput, as long as the device's time is the longer.
    #[test]
    fn depth_overlaps() {
        let trace = Shape::Constant.trace(50_000, 4_000, 1);
        let [one, four] = [1, 4].map(|depth| simulate(&trace, &machine(), Policy::Poll, depth, 1));
        let ratio = four.iops() / one.iops();
        assert!((3.8..4.05).contains(&ratio), "{ratio}");
    }
}
