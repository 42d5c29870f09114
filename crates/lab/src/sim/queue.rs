//! A channel's two queues in virtual time.

use std::cell::Cell;

use super::distribution::Distribution;
use super::machine::Machine;
use meantime_completion::SPINS_PER_CLOCK;
use meantime_completion::{MAX_STAGES, Source, WaitPlan};
use meantime_random::Rng;

/// Deadlines are looked at an eighth of the default time-out apart.
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

/// What is in flight on one of them.
#[derive(Debug, Default)]
struct Lane {
    /// When it will be complete, and whose it is.
    in_flight: Vec<(u64, usize)>,
    /// The earliest of those.
    next_ns: u64,
}

impl Lane {
    fn refresh(&mut self) {
        self.next_ns = self.in_flight.iter().map(|(at_ns, _)| *at_ns).min().unwrap_or(u64::MAX);
    }
}

/// When a wait might do something else than look, so that the looks until then need not be made one
/// by one.
#[derive(Debug, Clone, Copy)]
struct Quiet {
    /// Times at which a planned sleep begins, if the clock is read then.
    alarms_ns: [u64; MAX_STAGES],
    /// Until when the wait surely spins on. Unknown before the clock was read.
    spins_until_ns: Option<u64>,
    /// The last reading of the clock; none yet in this wait.
    read_ns: Option<u64>,
    spin_budget_ns: u64,
    /// After that it does not spin, if no planned sleep is left.
    patience_ns: u64,
    /// The next look is the one after a sleep: it is not known what comes after that.
    woken: bool,
}

/// The queues, the clock, and the CPU that was used. Time passes by what is done.
#[derive(Debug)]
pub(super) struct Queue<'m> {
    pub(super) machine: &'m Machine,
    now_ns: Cell<u64>,
    cpu_ns: Cell<u64>,
    random: Cell<Rng>,
    lanes: [Lane; 2],
    /// Which of them are waited on.
    pub(super) watched: Lanes,
    /// Whose I/Os ended, not yet taken by the caller.
    pub(super) ended: Vec<usize>,
    quiet: Cell<Quiet>,
    /// Until when the interrupt's signals were read.
    signals_read_ns: Cell<u64>,
    /// A signal after that whose completion was taken by a look.
    signal_left: Cell<bool>,
    /// Looks are made one by one, for checking that leaving them out changes nothing.
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

    /// The time, without a reading of the clock.
    #[inline]
    pub(super) fn time_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// The CPU that was used.
    pub(super) fn used_ns(&self) -> u64 {
        self.cpu_ns.get()
    }

    /// The thread runs for `ns`.
    #[inline]
    pub(super) fn run(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
        self.cpu_ns.set(self.cpu_ns.get() + ns);
    }

    /// The device has got the I/O of `slot`, which takes it `device_ns`.
    pub(super) fn start(&mut self, slot: usize, interrupted: bool, device_ns: u64) {
        let at_ns = self.time_ns() + device_ns;
        let lane = &mut self.lanes[usize::from(interrupted)];
        lane.in_flight.push((at_ns, slot));
        lane.next_ns = lane.next_ns.min(at_ns);
    }

    pub(super) fn is_busy(&self, lanes: Lanes) -> bool {
        lanes.looks().any(|lane| !self.lanes[lane].in_flight.is_empty())
    }

    /// A wait begins, or goes on, that spins until `alarm_ns` or the completion.
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

    /// Something, or time would stand still while it is spun.
    #[inline]
    fn look_ns(&self) -> u64 {
        self.machine.look_ns.max(1)
    }

    /// One look, which sees what is there when it is over.
    #[inline]
    fn look(&self) -> bool {
        let look_ns = self.look_ns() * if self.watched == Lanes::Both { 2 } else { 1 };
        let next_ns = self.next_ns();
        let round_ns = look_ns * u64::from(SPINS_PER_CLOCK) + self.machine.clock_ns;
        if next_ns > self.time_ns() + round_ns && !self.one_by_one {
            self.skip(next_ns, round_ns);
        }
        self.run(look_ns);
        next_ns <= self.time_ns()
    }

    /// Looks, up to so often, as long as there is nothing to see; how often.
    pub(super) fn look_in_vain(&self, most: u32) -> u32 {
        let looks = (self.next_ns().saturating_sub(self.time_ns() + 1) / self.look_ns())
            .min(u64::from(most));
        let looks = if self.one_by_one { 0 } else { looks };
        self.run(looks * self.look_ns());
        looks as u32
    }

    /// Leaves out whole rounds of looks with one reading of the clock, in which nothing would be
    /// seen and after which nothing would be done. The place within the round stays, so that all
    /// that follows happens at the times at which it would have.
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

    /// Whether a signal waits to be read.
    fn has_signal(&self) -> bool {
        self.signal_left.get() || self.lanes[1].next_ns <= self.time_ns()
    }
}

impl Source for Queue<'_> {
    #[inline]
    fn reap(&mut self) -> usize {
        if !self.look() {
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
                lane.refresh();
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
        self.look()
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
        self.now_ns.set(self.time_ns() + duration_ns + late_ns);
        self.cpu_ns.set(self.used_ns() + self.machine.sleep_cpu_ns.min(duration_ns + late_ns));
        let mut quiet = self.quiet.get();
        quiet.woken = true;
        // The budget begins again, unless it was spent: then this is one of the growing sleeps.
        if let Some(until_ns) = &mut quiet.spins_until_ns
            && *until_ns > self.time_ns() - duration_ns - late_ns
        {
            *until_ns = self.time_ns() + quiet.spin_budget_ns;
        }
        self.quiet.set(quiet);
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        if self.watched != Lanes::Interrupt {
            return false;
        }
        if self.has_signal() {
            self.run(self.machine.syscall_ns);
        } else {
            let left_ns = self.lanes[1].next_ns.saturating_sub(self.time_ns()).min(timeout_ns);
            let late_ns = self.draw_ns(&self.machine.interrupt_wake);
            self.now_ns.set(self.time_ns() + left_ns + late_ns);
            self.cpu_ns.set(self.used_ns() + self.machine.interrupt_cpu_ns.min(left_ns + late_ns));
        }
        self.signal_left.set(false);
        self.signals_read_ns.set(self.time_ns());
        true
    }

    fn cpu_ns(&self) -> u64 {
        self.run(self.machine.syscall_ns);
        self.used_ns()
    }

    fn begin_wait(&mut self, plan: &WaitPlan, spin_budget_ns: u64) {
        let mut quiet = Quiet { spin_budget_ns, ..SPINS_ON };
        match plan {
            // Looks between blocking are few.
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
