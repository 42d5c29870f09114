//! A policy on a trace.

use super::machine::Machine;
use super::outcome::{Outcome, Seen};
use super::queue::{Lanes, Queue};
use super::trace::{Io, Trace};
use crate::{Class, Flight, Gap, GapCounters, Learning, Policy, Sample, Source, Way};
use meantime_hw::usage::{Pretence, Usage};

/// How often a wait by ticket for an I/O of `poll` looks before it does anything else, as a channel
/// does.
const FIRST_LOOKS: u32 = 128;

/// Of how many requests under way the likely end is compared, by a channel too.
const COMPARED: usize = 16;

/// Runs the I/Os of `trace` on `machine`, waited for by `policy`, with `depth` in flight (at least
/// 1). One at a time, each is submitted and waited for; else as many as there is room for are
/// submitted with one doorbell, and then some of them waited for, as `meantime bench` does it.
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

/// A request under way.
#[derive(Debug, Clone, Copy)]
struct Slot {
    flight: Flight,
    /// The way it is waited for: `poll` if the channel's policy saw nothing to gain.
    policy: Policy,
    io: usize,
    start_ns: u64,
    under_way: bool,
}

/// A channel with one policy, and its caller.
struct Channel<'m> {
    queue: Queue<'m>,
    policy: Policy,
    learning: Learning,
    usage: Pretence,
    /// Of the polled queue and of that with an interrupt.
    gaps: [Gap; 2],
    slots: Vec<Slot>,
    active: usize,
    /// What `queue.ended` had when it was last learned from.
    learned: usize,
    series: Vec<Seen>,
}

impl<'m> Channel<'m> {
    fn new(machine: &'m Machine, policy: Policy, depth: usize, seed: u64) -> Self {
        let flight =
            Flight { class: Class::default(), submitted_ns: 0, interrupted: false, waited: false };
        let mut learning = Learning::new(Some(machine.sleep_costs(seed)));
        learning.assume(machine.wake_costs());
        learning.allow_interrupts();
        learning.prepare(policy);
        Self {
            queue: Queue::new(machine, seed),
            policy,
            learning,
            usage: Pretence::begin(),
            gaps: [Gap::default(), Gap::default()],
            slots: vec![Slot { flight, policy, io: 0, start_ns: 0, under_way: false }; depth],
            active: 0,
            learned: 0,
            series: Vec::new(),
        }
    }

    fn run(&mut self, trace: &Trace) -> Outcome {
        self.series = vec![Seen::default(); trace.ios.len()];
        match self.slots.len() {
            1 => self.run_one_by_one(trace),
            _ => self.run_deep(trace),
        }
        let [a, b] = [self.gaps[0].counters(), self.gaps[1].counters()];
        let counters = GapCounters {
            waits: a.waits + b.waits,
            sleeps: a.sleeps + b.sleeps,
            oversleeps: a.oversleeps + b.oversleeps,
            fallbacks: a.fallbacks + b.fallbacks,
            blocks: a.blocks + b.blocks,
        };
        let series = std::mem::take(&mut self.series);
        Outcome::new(series, self.queue.time_ns(), self.queue.used_ns(), counters)
    }

    fn run_one_by_one(&mut self, trace: &Trace) {
        for (index, io) in trace.ios.iter().enumerate() {
            let start_ns = self.queue.time_ns();
            self.submit(0, index, io, start_ns);
            self.ring(&[0], trace);
            self.start_timed(0);
            if self.slots[0].policy == Policy::Poll {
                self.polls_until_done();
            }
            while self.queue.ended.is_empty() {
                self.wait_on(0);
            }
            self.take_ended();
        }
    }

    fn run_deep(&mut self, trace: &Trace) {
        let mut free: Vec<usize> = (0..self.slots.len()).rev().collect();
        let mut batch = Vec::new();
        let mut ios = trace.ios.iter().enumerate();
        loop {
            batch.clear();
            let start_ns = self.queue.time_ns();
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
            while self.queue.ended.is_empty() {
                let Some(slot) = self.next_to_end() else { return };
                let busy = |lanes| self.queue.is_busy(lanes);
                if busy(Lanes::Polled) && busy(Lanes::Interrupt) {
                    self.wait_on_both();
                } else {
                    self.wait_on(slot);
                }
            }
            free.extend_from_slice(&self.queue.ended);
            self.take_ended();
        }
    }

    /// The command of I/O `index` into the queue, as [`Slot`] `slot`.
    fn submit(&mut self, slot: usize, index: usize, io: &Io, start_ns: u64) {
        self.active += 1;
        let class = Class::new(io.kind, io.bytes, self.active);
        let polls = self.learning.polls(self.policy);
        let interrupted =
            !polls && self.policy.may_interrupt() && self.learning.interrupts(self.policy, class);
        let flight = Flight { class, submitted_ns: 0, interrupted, waited: false };
        let policy = if polls { Policy::Poll } else { self.policy };
        self.slots[slot] = Slot { flight, policy, io: index, start_ns, under_way: true };
        self.queue.run(self.queue.machine.submit_ns);
        if policy.wants_times() {
            self.take_time(slot);
        }
    }

    /// After its command was sent, where that costs nothing: the time of an I/O whose policy goes
    /// to the polled queue and learns.
    fn start_timed(&mut self, slot: usize) {
        let Slot { flight, policy, .. } = self.slots[slot];
        if policy == self.policy || self.learning.skips(self.policy, flight.class) {
            return;
        }
        self.slots[slot].policy = self.policy;
        self.take_time(slot);
    }

    /// Of the requests under way the one that is likely to end first, if the policy can tell; else
    /// the first.
    fn next_to_end(&self) -> Option<usize> {
        let mut under_way = (0..self.slots.len()).filter(|slot| self.slots[*slot].under_way);
        let first = under_way.clone().next()?;
        if !matches!(self.slots[first].policy, Policy::Adaptive(_) | Policy::Auto) {
            return Some(first);
        }
        let end_ns = |slot: &usize| {
            let flight = &self.slots[*slot].flight;
            flight.submitted_ns + self.learning.soonest_ns(flight.class)
        };
        under_way.by_ref().take(COMPARED).min_by_key(end_ns)
    }

    fn take_time(&mut self, slot: usize) {
        self.slots[slot].flight.submitted_ns = self.queue.now_ns();
    }

    /// The doorbell for `batch`.
    fn ring(&mut self, batch: &[usize], trace: &Trace) {
        if batch.is_empty() {
            return;
        }
        self.queue.run(self.queue.machine.doorbell_ns);
        for &slot in batch {
            let Slot { flight, io, .. } = self.slots[slot];
            self.queue.start(slot, flight.interrupted, trace.ios[io].device_ns);
        }
    }

    fn polls_until_done(&mut self) {
        self.queue.begin(Lanes::Polled, &Way::Poll, 0);
        let in_vain = self.queue.look_in_vain(FIRST_LOOKS);
        for _ in in_vain..FIRST_LOOKS {
            if self.queue.reap() > 0 {
                return;
            }
        }
    }

    fn wait_on(&mut self, slot: usize) {
        let Slot { flight, policy, .. } = self.slots[slot];
        self.slots[slot].flight.waited = true;
        if policy.learns() {
            self.queue.run(self.queue.machine.plan_ns);
        }
        let way = self.learning.way(policy, &flight);
        self.wait_by(Lanes::of(flight.interrupted), way);
        self.learn(Some(flight.interrupted));
    }

    fn wait_on_both(&mut self) {
        self.wait_by(Lanes::Both, Way::Poll);
        self.learn(Some(false));
    }

    fn wait_by(&mut self, lanes: Lanes, way: Way) {
        let gap = &mut self.gaps[usize::from(lanes == Lanes::Interrupt)];
        self.queue.begin(lanes, &way, gap.spin_budget_ns());
        gap.wait(&mut self.queue, way);
    }

    /// Takes in the times of what has ended.
    fn learn(&mut self, waited_on: Option<bool>) {
        let new = self.learned..self.queue.ended.len();
        self.learned = new.end;
        let waited = waited_on.map(|interrupt| self.gaps[usize::from(interrupt)].waited());
        let in_flight = self.active;
        for &slot in &self.queue.ended[new.clone()] {
            self.active -= 1;
            self.slots[slot].under_way = false;
            self.series[self.slots[slot].io].slept_ns = waited.map_or(0, |waited| waited.slept_ns);
        }
        let is_timed = |slot: &usize| self.slots[*slot].policy.wants_times();
        if !self.queue.ended[new.clone()].iter().any(is_timed) {
            return;
        }
        let now_ns = self.queue.now_ns();
        // Nobody else is on this CPU.
        self.usage.tell(Usage { cpu_ns: self.queue.used_ns(), involuntary_switches: 0 });
        if let Some(waited) = waited {
            self.learning.slept(waited, now_ns);
        }
        for at in new {
            let Slot { flight, policy, .. } = self.slots[self.queue.ended[at]];
            if !policy.wants_times() {
                continue;
            }
            let sample = Sample {
                class: flight.class,
                device_ns: now_ns.saturating_sub(flight.submitted_ns),
                slept_ns: waited.map_or(0, |waited| waited.slept_ns),
                overslept: waited.is_some_and(|waited| waited.overslept),
                interrupted: flight.interrupted,
                in_flight: u16::try_from(in_flight).unwrap_or(u16::MAX),
                now_ns,
            };
            if policy.learns() {
                self.queue.run(self.queue.machine.learn_ns);
            }
            self.learning.record(policy, &sample, waited);
        }
    }

    /// The caller has the results of what ended.
    fn take_ended(&mut self) {
        self.learn(None);
        let now_ns = self.queue.time_ns();
        for &slot in &self.queue.ended {
            let Slot { io, start_ns, .. } = self.slots[slot];
            self.series[io].latency_ns = now_ns - start_ns;
        }
        self.queue.ended.clear();
        self.learned = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::random::Distribution;
    use super::super::shape::Shape;
    use super::*;

    /// Wake-ups always 2 µs late.
    fn machine() -> Machine {
        let wake = Distribution::constant(2_000);
        Machine {
            timer_wake: wake.clone(),
            interrupt_wake: wake.plus_ns(500),
            ..Machine::bare_metal()
        }
    }

    fn policies() -> Vec<Policy> {
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
            "auto",
        ];
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Submission 120 ns, doorbell 80 ns, then 10 µs, seen by the next look of 3 ns, and 80 ns to
    /// reap: and the CPU runs all the time.
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

    /// 3 µs asleep and 2 µs until it runs: an I/O of 10 µs is spun for from there on, one of 4 µs
    /// is found 1 µs late. The time is taken before the doorbell and after the end, 10 ns each.
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

    /// Past the budget of 1 ms, growing sleeps.
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

    /// Looks that are left out change nothing.
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
                    channel.queue.one_by_one = one_by_one;
                    channel.run(&trace)
                };
                assert!(run(true) == run(false), "{policy} at depth {depth}, {shape}");
            }
        }
    }

    /// Planned sleeps, which policies may not make yet.
    #[test]
    fn leaving_looks_out_is_exact_around_planned_sleeps() {
        use crate::{Plan, Stage};
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
                let way = Way::Planned { plan: *plan, since_ns: 0 };
                queue.begin(Lanes::Polled, &way, gap.spin_budget_ns());
                gap.wait(&mut queue, way);
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

    /// Four at a time are four times as many in the same time, as long as the device's time is the
    /// longer.
    #[test]
    fn depth_overlaps() {
        let trace = Shape::Constant.trace(50_000, 4_000, 1);
        let [one, four] = [1, 4].map(|depth| simulate(&trace, &machine(), Policy::Poll, depth, 1));
        let ratio = four.iops() / one.iops();
        assert!((3.8..4.05).contains(&ratio), "{ratio}");
    }
}
