//! A channel's two queues in virtual time.

use std::cell::Cell;

use super::competition::{Competition, Turn};
use super::distribution::Distribution;
use super::machine::Machine;
use meantime_completion::SPINS_PER_CLOCK;
use meantime_completion::{MAX_STAGES, Source, WaitPlan};
use meantime_random::Rng;

/// Deadlines are checked at intervals of an eighth of the default time-out.
const TICK_INTERVAL_NS: u64 = 30_000_000_000 / 8;

/// The queues of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lanes {
    Polled,
    Interrupt,
    Both,
}

impl Lanes {
    pub(super) fn of(interrupted: bool) -> Self {
        if interrupted { Self::Interrupt } else { Self::Polled }
    }

    fn looks(self) -> std::ops::Range<usize> {
        match self {
            Self::Polled => 0..1,
            Self::Interrupt => 1..2,
            Self::Both => 0..2,
        }
    }
}

/// The I/Os in flight on one of the queues.
#[derive(Debug, Default)]
struct Lane {
    /// Completion time and slot of each I/O.
    in_flight: Vec<(u64, usize)>,
    /// The earliest completion time.
    next_ns: u64,
}

/// The times at which a wait may do something other than poll. The polls until then need not be
/// simulated one by one.
#[derive(Debug, Clone, Copy)]
struct Quiet {
    /// Times at which a planned sleep begins, if the clock is read then.
    alarms_ns: [u64; MAX_STAGES],
    /// The time until which the wait spins at least. It is unknown before the clock is read.
    spins_until_ns: Option<u64>,
    /// The last reading of the clock in this wait.
    read_ns: Option<u64>,
    spin_budget_ns: u64,
    /// After this time the wait does not spin, if no planned sleep is left.
    patience_ns: u64,
    /// Whether the next poll follows a sleep, so that it is unknown what comes after that poll.
    woken: bool,
}

/// The queues, the clock, and the CPU used. Each action advances the time by its cost.
#[derive(Debug)]
pub(super) struct Queue<'m> {
    pub(super) machine: &'m Machine,
    now_ns: Cell<u64>,
    cpu_ns: Cell<u64>,
    /// The time in which the thread could have run and did not, and its turn among others.
    waited_ns: Cell<u64>,
    turn: Cell<Turn>,
    random: Cell<Rng>,
    lanes: [Lane; 2],
    /// The queues that are waited on.
    pub(super) watched: Lanes,
    /// Slots of the I/Os that ended, not yet taken by the caller.
    pub(super) ended: Vec<usize>,
    quiet: Cell<Quiet>,
    /// The time up to which the interrupt's signals were read.
    signals_read_ns: Cell<u64>,
    /// Whether a later signal is unread, but a poll has taken its completion.
    signal_left: Cell<bool>,
    /// Whether to simulate every poll, to check that skipping polls changes nothing.
    pub(super) one_by_one: bool,
}

const SPINS_ON: Quiet = Quiet {
    alarms_ns: [u64::MAX; MAX_STAGES],
    spins_until_ns: None,
    read_ns: None,
    spin_budget_ns: 0,
    patience_ns: u64::MAX,
    woken: false,
};

impl<'m> Queue<'m> {
    pub(super) fn new(machine: &'m Machine, seed: u64) -> Self {
        let lane = || Lane { in_flight: Vec::new(), next_ns: u64::MAX };
        Self {
            machine,
            now_ns: Cell::new(0),
            cpu_ns: Cell::new(0),
            waited_ns: Cell::new(0),
            turn: Cell::new(Turn::default()),
            random: Cell::new(Rng::new(seed)),
            lanes: [lane(), lane()],
            watched: Lanes::Polled,
            ended: Vec::new(),
            quiet: Cell::new(SPINS_ON),
            signals_read_ns: Cell::new(0),
            signal_left: Cell::new(false),
            one_by_one: false,
        }
    }

    /// Returns the time, without the cost of a clock reading.
    #[inline]
    pub(super) fn time_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Returns the CPU used.
    pub(super) fn used_ns(&self) -> u64 {
        self.cpu_ns.get()
    }

    /// Returns how long the thread could have run and did not.
    pub(super) fn waited_ns(&self) -> u64 {
        self.waited_ns.get()
    }

    /// Runs the thread for `ns`, as soon as it may run.
    #[inline]
    pub(super) fn run(&self, ns: u64) {
        let waits_ns = match self.machine.competition {
            Competition::None => 0,
            other => self.take_turn(|turn| other.run(turn, self.time_ns(), ns)),
        };
        self.now_ns.set(self.now_ns.get() + waits_ns + ns);
        self.cpu_ns.set(self.cpu_ns.get() + ns);
    }

    /// Blocks the thread for `ns`, at the end of which it uses `cpu_ns`.
    fn block(&self, ns: u64, cpu_ns: u64) {
        let (competition, cpu_ns) = (self.machine.competition, cpu_ns.min(ns));
        let woken_ns = self.take_turn(|turn| {
            let woken_ns = self.time_ns() + ns - cpu_ns;
            let waits_ns = competition.wake(turn, woken_ns, ns - cpu_ns);
            waits_ns + competition.run(turn, woken_ns + waits_ns, cpu_ns)
        });
        self.now_ns.set(self.time_ns() + ns + woken_ns);
        self.cpu_ns.set(self.used_ns() + cpu_ns);
    }

    /// Returns how long the thread waits for its turn, and notes that.
    fn take_turn(&self, waits_ns: impl FnOnce(&mut Turn) -> u64) -> u64 {
        let mut turn = self.turn.get();
        let waits_ns = waits_ns(&mut turn);
        self.turn.set(turn);
        self.waited_ns.set(self.waited_ns.get() + waits_ns);
        waits_ns
    }

    /// Starts the I/O of `slot` on the device, for `device_ns`.
    pub(super) fn start(&mut self, slot: usize, interrupted: bool, device_ns: u64) {
        let at_ns = self.time_ns() + device_ns;
        let lane = &mut self.lanes[usize::from(interrupted)];
        lane.in_flight.push((at_ns, slot));
        lane.next_ns = lane.next_ns.min(at_ns);
    }

    pub(super) fn is_busy(&self, lanes: Lanes) -> bool {
        lanes.looks().any(|lane| !self.lanes[lane].in_flight.is_empty())
    }

    /// Begins or continues a wait that spins until `alarm_ns` or the completion.
    pub(super) fn begin_spin(&mut self, alarm_ns: u64) {
        self.watched = Lanes::Polled;
        let mut alarms_ns = [u64::MAX; MAX_STAGES];
        alarms_ns[0] = alarm_ns;
        self.quiet.set(Quiet { alarms_ns, spin_budget_ns: u64::MAX / 2, ..SPINS_ON });
    }

    #[inline]
    fn next_ns(&self) -> u64 {
        match self.watched {
            Lanes::Polled => self.lanes[0].next_ns,
            Lanes::Interrupt => self.lanes[1].next_ns,
            Lanes::Both => self.lanes[0].next_ns.min(self.lanes[1].next_ns),
        }
    }

    /// Returns the time of a poll, which is at least 1. Otherwise time would stand still during a
    /// spin.
    #[inline]
    fn look_ns(&self) -> u64 {
        self.machine.look_ns.max(1)
    }

    /// Polls once. The poll sees what is there at its end.
    #[inline]
    fn poll_once(&self) -> bool {
        let look_ns = self.look_ns() * if self.watched == Lanes::Both { 2 } else { 1 };
        let next_ns = self.next_ns();
        let round_ns = look_ns * u64::from(SPINS_PER_CLOCK) + self.machine.clock_ns;
        if next_ns > self.time_ns() + round_ns && !self.one_by_one {
            self.skip(next_ns, round_ns);
        }
        self.run(look_ns);
        next_ns <= self.time_ns()
    }

    /// Makes up to `most` looks while there is nothing to see. Returns their number.
    pub(super) fn poll_empty(&self, most: u32) -> u32 {
        let looks = (self.next_ns().saturating_sub(self.time_ns() + 1) / self.look_ns())
            .min(u64::from(most));
        let looks = if self.one_by_one { 0 } else { looks };
        self.run(looks * self.look_ns());
        looks as u32
    }

    /// Skips whole rounds of looks with one reading of the clock, in which nothing would be seen
    /// and after which nothing would be done. The position within the round stays, so everything
    /// that follows happens at the same times as without skipping.
    #[inline(never)]
    fn skip(&self, next_ns: u64, round_ns: u64) {
        let mut quiet = self.quiet.get();
        if std::mem::take(&mut quiet.woken) {
            self.quiet.set(quiet);
            return;
        }
        let (Some(read_ns), Some(spins_until_ns)) = (quiet.read_ns, quiet.spins_until_ns) else {
            return;
        };
        let ahead = quiet.alarms_ns.into_iter().filter(|alarm_ns| *alarm_ns > read_ns);
        let until_ns = ahead.fold(next_ns.min(spins_until_ns).min(quiet.patience_ns), u64::min);
        let rounds = until_ns.saturating_sub(self.time_ns() + 1) / round_ns.max(1);
        // The clock is read three times after them, because the wait knows when it polled before,
        // and how long a round takes.
        let rounds = rounds.saturating_sub(3);
        self.run(rounds * round_ns);
        quiet.read_ns = Some(read_ns + rounds * round_ns);
        self.quiet.set(quiet);
    }

    fn draw_ns(&self, of: &Distribution) -> u64 {
        let mut random = self.random.get();
        let ns = of.draw_ns(&mut random);
        self.random.set(random);
        ns
    }

    /// Notes that the wait continues after a sleep.
    fn wakes(&self, asleep_since_ns: u64) {
        let mut quiet = self.quiet.get();
        quiet.woken = true;
        // The budget begins again, unless it was spent. In that case this is one of the growing
        // sleeps.
        if let Some(until_ns) = &mut quiet.spins_until_ns
            && *until_ns > asleep_since_ns
        {
            *until_ns = self.time_ns() + quiet.spin_budget_ns;
        }
        self.quiet.set(quiet);
    }
}

impl Source for Queue<'_> {
    #[inline]
    fn reap(&mut self) -> usize {
        if !self.poll_once() {
            return 0;
        }
        let before = self.ended.len();
        for index in self.watched.looks() {
            while self.lanes[index].next_ns <= self.time_ns() {
                let lane = &mut self.lanes[index];
                let first =
                    lane.in_flight.iter().enumerate().min_by_key(|(_, io)| **io).map(|(at, _)| at);
                let Some(first) = first else { break };
                let (at_ns, slot) = lane.in_flight.remove(first);
                let rest = lane.in_flight.iter().map(|(at_ns, _)| *at_ns);
                lane.next_ns = rest.min().unwrap_or(u64::MAX);
                if index == 1 && at_ns > self.signals_read_ns.get() {
                    self.signal_left.set(true);
                }
                self.ended.push(slot);
                self.run(self.machine.reap_ns);
            }
        }
        self.ended.len() - before
    }

    #[inline]
    fn has_completion(&self) -> bool {
        self.poll_once()
    }

    fn tick(&mut self, _: u64) -> usize {
        0
    }

    fn tick_interval_ns(&self) -> u64 {
        TICK_INTERVAL_NS
    }

    fn now_ns(&self) -> u64 {
        self.run(self.machine.clock_ns);
        let now_ns = self.time_ns();
        let mut quiet = self.quiet.get();
        quiet.read_ns = Some(now_ns);
        quiet.spins_until_ns.get_or_insert(now_ns + quiet.spin_budget_ns);
        self.quiet.set(quiet);
        now_ns
    }

    fn sleep_ns(&self, duration_ns: u64) {
        let late_ns = self.draw_ns(&self.machine.timer_wake);
        let asleep_since_ns = self.time_ns();
        self.block(duration_ns + late_ns, self.machine.sleep_cpu_ns);
        self.wakes(asleep_since_ns);
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        if self.watched != Lanes::Interrupt {
            return false;
        }
        let asleep_since_ns = self.time_ns();
        // A signal may be unread.
        if self.signal_left.get() || self.lanes[1].next_ns <= self.time_ns() {
            self.run(self.machine.syscall_ns);
        } else {
            let left_ns = self.lanes[1].next_ns.saturating_sub(self.time_ns());
            let Machine { timer_wake, interrupt_wake, interrupt_cpu_ns, sleep_cpu_ns, .. } =
                self.machine;
            let (left_ns, late, cpu_ns) = match left_ns.min(timeout_ns) {
                left if left < timeout_ns => (left, interrupt_wake, *interrupt_cpu_ns),
                left => (left, timer_wake, *sleep_cpu_ns),
            };
            self.block(left_ns + self.draw_ns(late), cpu_ns);
        }
        self.signal_left.set(false);
        self.signals_read_ns.set(self.time_ns());
        self.wakes(asleep_since_ns);
        true
    }

    fn cpu_ns(&self) -> u64 {
        self.run(self.machine.syscall_ns);
        self.used_ns()
    }

    fn begin_wait(&mut self, plan: &WaitPlan, spin_budget_ns: u64) {
        let mut quiet = Quiet { spin_budget_ns, ..SPINS_ON };
        match plan {
            // There are few polls between blocking.
            WaitPlan::Interrupt => quiet.spin_budget_ns = 0,
            WaitPlan::Poll | WaitPlan::Sleep(_) => {}
            WaitPlan::Planned { plan, since_ns } => {
                quiet.patience_ns = since_ns.saturating_add(plan.patience_ns());
                for (alarm_ns, stage) in quiet.alarms_ns.iter_mut().zip(plan.stages()) {
                    *alarm_ns = since_ns.saturating_add(u64::from(stage.from_ns));
                }
            }
        }
        self.quiet.set(quiet);
    }
}
