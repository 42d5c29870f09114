//! The policy `adaptive`: observes, estimates, decides.
//!
//! - The policy observes the device time of each class of I/O (`times`), the costs of a sleep and
//!   of an interrupt (`wake`), the part of its CPU that the thread gets (`share`), and whether
//!   sleeps slow the device down (`feedback`).
//! - From these [`plan`] derives, for each I/O, the sleeps that pay off at a price of lateness,
//!   and `control` moves the price until the goal is held.
//! - For a goal of latency, `choice` decides among these sleeps, polling and the interrupt, by
//!   the time and the CPU that each is expected to take.
//! - `tuning` has the constants that were chosen for all of this, and the experiment behind each.

pub(crate) mod choice;
mod control;
mod feedback;
mod planner;
mod share;
mod times;
mod tuning;
mod wake;

use super::class::Class;
use super::gap::Waited;
use super::plan::{MAX_STAGES, Plan, Stage};
use super::policy::Goal;
use super::rule::Sample;
use control::{Control, Ended};
use feedback::Feedback;
use planner::Planned;
pub use planner::{Costs, plan};
use times::Times;
pub use times::{MAX_POINTS, Support};
use tuning::*;
pub use wake::{GROUPS, Groups, SleepCosts, WakeCost};

/// The most classes of I/O with their own model; further ones share.
const MODELS: usize = 32;
/// The most goals at a time; a further one replaces the first.
const GOALS: usize = 8;
/// No class.
const NONE: u8 = u8::MAX;

/// The model of one class of I/O.
#[derive(Debug, Default)]
struct Model {
    times: Times,
    support: Support,
    /// The 2 % quantile.
    soonest_ns: u64,
    /// The range of times that are not surprising.
    usual_ns: std::ops::Range<f32>,
    /// I/Os since the last plan, and the number after which to plan again.
    since_plan: u32,
    replan_after: u32,
    plans: [Entry; GOALS],
    oversleeps_in_a_row: u32,
    /// Number of consecutive I/Os for which the thread woke early and that had ended before, plus
    /// one; 0 if it does not explore.
    exploring: u32,
    unexplored: u32,
    surprise: f32,
    /// How often the times turned out to differ from those before.
    changes: u32,
    random: u32,
    skipped: u32,
    seen: u32,
    /// The mean time. It stays the same while I/Os are polled for to be compared.
    reference_ns: f32,
    /// I/Os since the last outlook.
    recent: u32,
    /// A class that uses this model.
    class: Class,
}

/// How an I/O was found to have ended.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// At the moment when it ended.
    Exactly,
    /// By the interrupt that ended a sleep: usually `late_ns` after the I/O ended, and after
    /// `more_ns`.
    Woken { late_ns: f32, more_ns: u64 },
    /// Some time after `more_ns`; `overslept` says that it was at the end of a sleep.
    Within { more_ns: u64, overslept: bool },
}

/// The plans for one goal.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The plan on the polled queue.
    polled: Planned,
    /// The plan on the queue with an interrupt, if that is better.
    interrupted: Option<Planned>,
    price: f32,
    made: bool,
}

impl Entry {
    /// The plan for an I/O on the queue with an interrupt, or on the polled one.
    fn on(&self, interrupted: bool) -> &Planned {
        self.interrupted.as_ref().filter(|_| interrupted).unwrap_or(&self.polled)
    }

    /// The plan for the better queue.
    fn best(&self) -> &Planned {
        self.on(true)
    }
}

impl Model {
    fn new(class: Class) -> Self {
        Self {
            usual_ns: 0.0..f32::INFINITY,
            replan_after: FIRST_PLAN_IOS,
            random: 0x9e37_79b9,
            class,
            ..Self::default()
        }
    }

    /// Recomputes the summary of all observations.
    #[inline(never)]
    fn refresh(&mut self) {
        self.support = self.times.support();
        self.soonest_ns = self.support.quantile_ns(SOONEST_QUANTILE) as u64;
        let (low_ns, high_ns) = (
            self.support.quantile_ns(SURPRISING_QUANTILE),
            self.support.quantile_ns(1.0 - SURPRISING_QUANTILE),
        );
        self.usual_ns = if high_ns > 0.0 {
            low_ns / SURPRISING_FASTER_FACTOR..SURPRISING_SLOWER_FACTOR * high_ns
        } else {
            0.0..f32::INFINITY
        };
        self.since_plan = 0;
        self.plans.iter_mut().for_each(|entry| entry.made = false);
    }

    /// Records an I/O that was found after `ns`, in the way of `seen`. Returns the estimated
    /// oversleep.
    fn observe(&mut self, ns: u64, seen: Seen) -> f32 {
        self.seen = self.seen.saturating_add(1);
        self.since_plan += 1;
        self.recent += 1;
        let at = ns as f32;
        let is_unusual = |ns: f32| self.seen > 2 * FIRST_PLAN_IOS && !self.usual_ns.contains(&ns);
        let (surprising, late_ns) = match seen {
            Seen::Exactly => {
                let surprising = is_unusual(at);
                self.times.exactly(ns);
                (self.oversleeps_in_a_row, self.exploring) = (0, 0);
                (surprising, 0.0)
            }
            // The interrupt came when the I/O ended.
            Seen::Woken { late_ns, more_ns } => {
                let ended = (at - late_ns).max(more_ns as f32);
                let surprising = is_unusual(ended);
                self.times.exactly(ended as u64);
                (self.oversleeps_in_a_row, self.exploring) = (0, 0);
                (surprising, at - ended)
            }
            Seen::Within { more_ns, overslept } => {
                let late_ns = self.observe_within(at, more_ns);
                // The thread woke early, and still too late.
                let too_late = overslept && self.exploring > 0 && more_ns <= self.soonest_ns;
                if overslept {
                    self.oversleeps_in_a_row += 1;
                    self.exploring = if too_late { self.exploring + 1 } else { 0 };
                }
                (too_late, if overslept { late_ns } else { 0.0 })
            }
        };
        if surprising {
            self.surprise += 1.0;
            if self.surprise >= CHANGED_SURPRISES {
                self.changes += 1;
                self.forget();
            }
        } else {
            self.surprise = (self.surprise - CALMED_SURPRISES).max(0.0);
        }
        late_ns
    }

    /// Forgets all observations.
    fn forget(&mut self) {
        self.times.forget();
        (self.surprise, self.seen) = (0.0, 0);
        self.replan_after = FIRST_PLAN_IOS;
        self.since_plan = 0;
    }

    /// Records an I/O that took at most `at` and more than `more_ns`. Returns by how much less than
    /// `at` it probably took.
    fn observe_within(&mut self, at: f32, more_ns: u64) -> f32 {
        let (more, random) = (more_ns as f32, self.random());
        if more_ns <= self.soonest_ns {
            self.times.at_most(at as u64);
            return self.support.mean_below_ns(at).map_or(0.0, |mean_ns| at - mean_ns);
        }
        // A poll was empty at a time when some I/Os have usually ended. Draws a time from the
        // known ones in the range or, so that the estimate does not confirm itself, any time in it.
        let known = self.support.draw_between_ns(more, at, random);
        let known = known.filter(|_| self.random() > DRAWN_ANYWHERE_PART);
        let drawn = known.unwrap_or(more + random * (at - more));
        self.times.exactly(drawn as u64);
        at - drawn
    }

    /// A random number from 0 to 1.
    #[inline]
    fn random(&mut self) -> f32 {
        // A step of Marsaglia's xorshift: sufficient here.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        (self.random >> 8) as f32 / (1 << 24) as f32
    }

    /// Whether to wake early for this I/O.
    fn explores(&mut self, interrupted: bool) -> bool {
        if self.exploring == 0 {
            self.unexplored += 1;
            let every = if interrupted { EXPLORE_INTERRUPTED_IOS } else { EXPLORE_EVERY_IOS };
            if self.oversleeps_in_a_row >= EXPLORE_AFTER_OVERSLEEPS || self.unexplored >= every {
                self.unexplored = 0;
                self.exploring = 1;
            }
        }
        self.exploring > 0
    }

    /// The sleeps of `usual`, except that the first ends well before the likely end of the I/O:
    /// half as long after each failed attempt.
    fn early(&self, wake: &Groups, usual: &Plan) -> Plan {
        let soonest_ns = EXPLORE_SOONEST_PART * self.soonest_ns as f32 - wake[GROUPS - 1];
        let until_ns = soonest_ns / (1u32 << (self.exploring - 1).min(20)) as f32;
        let mut plan = first(if self.exploring <= 3 { until_ns } else { 0.0 });
        // For an I/O that takes longer than nearly all others, the thread sleeps as usual.
        let most_ns = self.support.quantile_ns(MOST_QUANTILE) as u32;
        for stage in usual.stages().iter().filter(|stage| stage.until_ns > most_ns) {
            let from_ns = stage.from_ns.max(most_ns + most_ns / 64);
            plan.push(Stage { from_ns, until_ns: stage.until_ns });
        }
        plan.with_patience_ns(usual.patience_ns())
    }
}

/// The length of the sleep that begins at submission, in ns; 0 if there is none.
fn first_sleep_ns(plan: &Plan) -> f32 {
    let first = plan.stages().first().filter(|stage| stage.from_ns == 0);
    first.map_or(0.0, |stage| stage.until_ns as f32)
}

/// Returns `usual`; if the device tolerates only `part` of the first sleep, returns that part and
/// no other sleep.
fn limit_sleep(part: f32, usual: Plan) -> Plan {
    if part == 1.0 {
        return usual;
    }
    first(part * first_sleep_ns(&usual)).with_patience_ns(usual.patience_ns())
}

/// The time for which `limit_sleep` spins instead of sleeping, in ns.
fn unslept_ns(part: f32, usual: &Plan) -> f32 {
    (1.0 - part) * first_sleep_ns(usual)
}

/// A sleep until `until_ns` after submission, if that is worth a sleep.
fn first(until_ns: f32) -> Plan {
    let mut plan = Plan::SPIN;
    if until_ns >= SLEEP_LEAST_NS as f32 {
        plan.push(Stage { from_ns: 0, until_ns: until_ns as u32 });
    }
    plan
}

/// The model of the last class of I/O, for display.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Median device time, in ns.
    pub median_ns: f32,
    /// The 10 % quantile, in ns.
    pub low_ns: f32,
    /// The mean, in ns.
    pub mean_ns: f32,
    /// The present value of one ns of lateness, in ns of CPU.
    pub price: f32,
    /// Whether the goal can be held, as far as is known.
    pub held: bool,
}

/// The expectation for an I/O, averaged over the recent classes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outlook {
    /// Device time, in ns; 0 if unknown.
    pub device_ns: f32,
    /// CPU used while waiting by plan, in ns.
    pub planned_cpu_ns: f32,
    /// Lateness of the completion by plan, in ns.
    pub planned_late_ns: f32,
    /// CPU cost of a sleep, in ns.
    pub sleep_cpu_ns: f32,
    /// Lateness of an interrupt's waiter as measured at start-up, in ns.
    pub interrupt_late_ns: f32,
    /// Lateness of an interrupt's waiter as seen, in ns. It contains errors of the expected device
    /// time.
    pub interrupt_seen_ns: f32,
    /// Number of I/Os in flight, at least 1; they share a wait.
    pub in_flight: f32,
    /// How much longer than the shortest time an I/O may take, as a part of that time.
    pub late_part: f32,
    /// Whether the thread can sleep by plan.
    pub can_plan: bool,
    /// Whether the thread can wait for an interrupt.
    pub can_interrupt: bool,
}

/// The learned state of `adaptive` on one channel.
#[derive(Debug)]
pub struct Adaptive {
    wake: WakeCost,
    models: Vec<Model>,
    index: [u8; Class::COUNT],
    controls: Vec<Control>,
    last: usize,
    /// Whether there is a queue with an interrupt, and whether a plan uses it.
    can_interrupt: bool,
    ends_sleeps: bool,
    /// Number of submissions since one with others in flight.
    alone: u32,
    feedback: Feedback,
}

impl Adaptive {
    /// A state without observations, with the sleep costs `costs`. `can_interrupt`: there is a
    /// queue with an interrupt, which ends sleeps. Allocates all memory that it will need.
    pub fn new(costs: SleepCosts, can_interrupt: bool) -> Self {
        Self {
            wake: WakeCost::new(costs),
            models: Vec::with_capacity(MODELS),
            index: [NONE; Class::COUNT],
            controls: Vec::with_capacity(GOALS),
            last: 0,
            can_interrupt,
            ends_sleeps: false,
            alone: 0,
            feedback: Feedback::default(),
        }
    }

    /// Whether some I/O is to be sent to the queue with an interrupt.
    #[inline]
    pub fn ends_sleeps(&self) -> bool {
        self.ends_sleeps
    }

    /// Whether an I/O of `class` goes to the queue with an interrupt. Called at its submission.
    pub fn interrupts(&mut self, goal: Goal, class: Class) -> bool {
        if !self.ends_sleeps {
            return false;
        }
        self.alone = if class.depth() == 0 { self.alone.saturating_add(1) } else { 0 };
        if self.alone < ALONE_IOS {
            return false;
        }
        let Some(control) = self.controls.iter().position(|control| control.goal() == goal) else {
            return false;
        };
        let model = self.models.get(usize::from(self.index[class.index()]));
        model.is_some_and(|model| {
            model.plans[control].made && model.plans[control].interrupted.is_some()
        })
    }

    fn control(&mut self, goal: Goal) -> usize {
        if let Some(at) = self.controls.iter().position(|control| control.goal() == goal) {
            return at;
        }
        let wake_ns = self.wake.groups(20_000)[GROUPS - 1];
        let control = Control::new(goal, wake_ns);
        if self.controls.len() < GOALS {
            self.controls.push(control);
            return self.controls.len() - 1;
        }
        self.controls[0] = control;
        self.models.iter_mut().for_each(|model| model.plans[0].made = false);
        0
    }

    #[inline]
    fn model(&mut self, class: Class) -> usize {
        match self.index[class.index()] {
            NONE => self.new_model(class),
            at => usize::from(at),
        }
    }

    #[cold]
    fn new_model(&mut self, class: Class) -> usize {
        let at = if self.models.len() < MODELS {
            self.models.push(Model::new(class));
            self.models.len() - 1
        } else {
            class.index() % MODELS
        };
        self.index[class.index()] = at as u8;
        at
    }

    /// Whether an I/O of `class` need not be timed and can be polled for, because no sleep pays and
    /// a sample of I/Os suffices to notice a change.
    #[inline]
    pub fn may_skip_timing(&mut self, goal: Goal, class: Class) -> bool {
        let at = self.index[class.index()];
        let Some(model) = self.models.get_mut(usize::from(at)) else { return false };
        let Some(control) = self.controls.iter().position(|control| control.goal() == goal) else {
            return false;
        };
        let entry = &model.plans[control];
        if !entry.made || !entry.best().plan.is_spin() || model.replan_after < REPLAN_IOS {
            return false;
        }
        model.skipped += 1;
        !model.skipped.is_multiple_of(SPIN_SAMPLE_IOS)
    }

    /// Returns the plan for an I/O of `class`, sent to the queue with an interrupt or to the polled
    /// one. Called in its gap.
    #[inline]
    pub fn plan(&mut self, goal: Goal, class: Class, now_ns: u64, interrupted: bool) -> Plan {
        let control = self.control(goal);
        let at = self.model(class);
        self.last = at;
        let model = &mut self.models[at];
        if model.since_plan >= model.replan_after {
            model.refresh();
            model.replan_after = (2 * model.replan_after).min(REPLAN_IOS);
        }
        if model.seen < FIRST_PLAN_IOS || model.support.count == 0 {
            return Plan::SPIN;
        }
        let part = match goal {
            Goal::Latency(_) => self.feedback.part(),
            // These goals bound the CPU to use, or the time by which an I/O has to end.
            Goal::Cpu(_) | Goal::P99(_) | Goal::P999(_) => 1.0,
        };
        let usual = model.plans[control].on(interrupted).plan;
        let explores = model.plans[control].made && !usual.is_spin() && part == 1.0;
        if explores && model.explores(interrupted) {
            return model.early(self.wake.groups(model.soonest_ns), &usual);
        }
        let entry = &model.plans[control];
        let price = self.controls[control].raw_price();
        // Sleeps for an I/O that has missed its usual time are another matter.
        let sleeps = usual.stages().first().is_some_and(|stage| stage.from_ns == 0);
        if entry.made && sleeps {
            self.wake.pays(now_ns);
        } else if entry.made {
            let sleep_ns = (model.soonest_ns / 2).max(1_000);
            if self.wake.is_due(now_ns, sleep_ns) {
                // Only a sleep shows whether sleeping has become cheaper.
                return Plan::of(&[Stage { from_ns: 0, until_ns: sleep_ns as u32 }]);
            }
        }
        if entry.made
            && (entry.price == price
                || price / entry.price < REPRICED_FACTOR && entry.price / price < REPRICED_FACTOR)
        {
            return limit_sleep(part, usual);
        }
        let usual = self.make_plans(control, at, class).on(interrupted).plan;
        limit_sleep(part, usual)
    }

    #[inline(never)]
    fn make_plans(&mut self, control: usize, at: usize, class: Class) -> Entry {
        let Self { wake, models, controls, .. } = self;
        let (model, control_at, control) = (&mut models[at], control, &controls[control]);
        let typical_ns = model.support.quantile_ns(TYPICAL_QUANTILE);
        let (sleep_cpu_ns, sleep_ns) = (wake.cpu_ns(), (typical_ns * TYPICAL_SLEPT_PART) as u64);
        let (groups, interrupt_ns) = (*wake.groups(sleep_ns), wake.signalled_late_ns(sleep_ns));
        // With several in flight, each of them may be late by one sleep.
        let in_flight = (1u32 << class.depth()) as f32;
        let price = control.price() * in_flight;
        // Spinning ends for an I/O that takes longer than any seen, or than the plan covers.
        let longest_ns = model.support.quantile_ns(1.0);
        let planned = |interrupt| {
            let costs = Costs { wake: &groups, interrupt, cpu: sleep_cpu_ns };
            let mut planned = planner::plan(&model.support, &costs, price);
            let stretch_ns = control.stretch() * model.support.mean_ns();
            if stretch_ns > 0.0 {
                let until_ns = planned.plan.stages().first().map_or(1, |stage| stage.until_ns);
                let until_ns = until_ns.saturating_add(stretch_ns as u32);
                planned.plan = Plan::of(&[Stage { from_ns: 0, until_ns }]);
            }
            if let Some(limit_ns) = control.limit_ns() {
                planned.plan = within(limit_ns, &planned.plan);
            }
            let patience_ns = match planned.plan.stages() {
                stages if stages.len() == MAX_STAGES => {
                    u64::from(stages[MAX_STAGES - 1].until_ns) + groups[GROUPS / 2] as u64
                }
                _ => PATIENCE_NS + 2 * longest_ns as u64,
            };
            planned.plan = planned.plan.with_patience_ns(patience_ns);
            planned
        };
        let polled = planned(None);
        // A sleep that is to make the I/O slower must not be ended.
        let may_interrupt = self.can_interrupt && class.depth() == 0 && control.stretch() == 0.0;
        let cost = |planned: &Planned| planned.cpu_ns + price * planned.late_ns;
        let interrupted = may_interrupt.then(|| planned(Some(interrupt_ns))).filter(|planned| {
            let cost_now = cost(planned) + SIGNAL_CPU_PART * sleep_cpu_ns;
            let sleep_ns = planned.plan.stages().first().map_or(0, |stage| stage.until_ns) as f32;
            let is_long = sleep_ns > LONG_SLEEP_FACTOR * interrupt_ns.max(groups[GROUPS / 2]);
            cost_now
                <= if is_long { LONG_SLEEP_COST_FACTOR } else { WORTH_INTERRUPT_FACTOR }
                    * cost(&polled)
        });
        let entry = Entry { polled, interrupted, price: control.raw_price(), made: true };
        model.plans[control_at] = entry;
        self.ends_sleeps = self.can_interrupt
            && self.models.iter().flat_map(|model| &model.plans).any(|e| e.interrupted.is_some());
        entry
    }

    /// Records the sleeps of a wait.
    #[inline]
    pub fn slept(&mut self, waited: &Waited) {
        for wake in waited.wakes() {
            self.wake.record(*wake);
        }
        if waited.cut_short_cpu_ns > 0 {
            self.wake.record_cpu(waited.cut_short_cpu_ns);
        }
    }

    /// Records an I/O that has ended: in a wait like `waited`, or found by chance. `by_plan` says
    /// whether it was to be waited for by plan. `cpu_ns` returns the CPU time that this thread has
    /// used.
    #[inline]
    pub fn record(
        &mut self,
        goal: Goal,
        sample: &Sample,
        by_plan: bool,
        waited: Option<&Waited>,
        cpu_ns: impl FnOnce() -> u64,
    ) {
        let Sample { class, device_ns, now_ns, .. } = *sample;
        let control = self.control(goal);
        let at = self.model(class);
        let model = &mut self.models[at];
        // This I/O may be younger than the one that was waited for.
        let submitted_ns = now_ns.saturating_sub(device_ns);
        let more_ns =
            waited.map_or(0, |waited| waited.last_empty_poll_ns.saturating_sub(submitted_ns));
        let seen = match waited {
            Some(waited) if waited.is_exact(now_ns) => Seen::Exactly,
            // The interrupt ended a planned sleep, or the block after all of them.
            Some(waited)
                if sample.interrupted
                    && (waited.cut_short || waited.blocked && waited.last_empty_poll_ns > 0) =>
            {
                let sleep_ns = device_ns.saturating_sub(more_ns);
                Seen::Woken { late_ns: self.wake.signalled_late_ns(sleep_ns), more_ns }
            }
            _ => Seen::Within { more_ns, overslept: waited.is_some_and(|w| w.overslept) },
        };
        if let Seen::Exactly = seen
            && model.exploring > 0
            && sample.interrupted
        {
            // The median of those whose time is seen; the thread sleeps through the last tenth.
            let [low_ns, usual_ns, high_ns] =
                [0.25, 0.5 * MOST_QUANTILE, 0.75].map(|q| model.support.quantile_ns(q));
            // The interrupt wakes most of the others, also those at the median.
            let first = model.plans[control].on(true).plan.stages().first();
            if first.is_some_and(|stage| stage.from_ns == 0 && stage.until_ns as f32 > high_ns) {
                let later = (device_ns as f32) < usual_ns;
                self.wake.signals_are(later, usual_ns as u64, high_ns - low_ns);
            }
        }
        let late_ns = model.observe(device_ns, seen);
        let planned = *model.plans[control].on(sample.interrupted);
        let is_bounded = matches!(goal, Goal::Latency(_));
        let part = if is_bounded { self.feedback.part() } else { 1.0 };
        let planned_ns = planned.cpu_ns + unslept_ns(part, &planned.plan);
        // The first I/O since the distribution was summed up.
        if model.since_plan == 1 && !self.feedback.is_polling() {
            model.reference_ns = model.support.mean_ns();
        }
        if by_plan && is_bounded && first_sleep_ns(&planned.plan) > 0.0 && model.reference_ns > 0.0
        {
            let relative = (device_ns as f32 - late_ns) / model.reference_ns;
            if self.feedback.record(relative, 1 << class.depth()) {
                self.models.iter_mut().for_each(Model::forget);
            }
        }
        let ended = Ended { total_ns: device_ns as f32, late_ns, cpu_ns: planned_ns, now_ns };
        // An I/O that was not waited for by plan says nothing about the price.
        let moved = by_plan && self.controls[control].record(&ended, cpu_ns);
        if moved && self.controls[control].limit_ns().is_some() {
            self.models.iter_mut().for_each(|model| model.plans[control].made = false);
        }
    }

    /// Records an I/O of `class` whose interrupt's waiter ran `total_ns` after its submission.
    #[inline]
    pub fn interrupted(&mut self, class: Class, total_ns: u64) {
        if let Some(model) = self.models.get(usize::from(self.index[class.index()]))
            && model.support.count > 0
        {
            self.wake.interrupted(total_ns, total_ns as f32 - model.support.quantile_ns(0.5));
        }
    }

    /// How often a class of I/O has turned out to take other times than before.
    pub fn device_changes(&self) -> u32 {
        self.models.iter().fold(0, |sum, model| sum.wrapping_add(model.changes))
    }

    /// Whether a polled I/O of `class` need not be timed.
    #[inline]
    pub fn may_poll_untimed(&mut self, class: Class) -> bool {
        let Some(model) = self.models.get_mut(usize::from(self.index[class.index()])) else {
            return false;
        };
        model.skipped += 1;
        model.seen > SPIN_SAMPLE_IOS * FIRST_PLAN_IOS
            && !model.skipped.is_multiple_of(SPIN_SAMPLE_IOS)
    }

    /// The expectation for recent I/O. Starts a new averaging period.
    pub fn outlook(&mut self, goal: Goal) -> Outlook {
        let control = self.control(goal);
        self.wake.forget_interrupts();
        let mut outlook = Outlook {
            sleep_cpu_ns: self.wake.cpu_ns(),
            late_part: goal.late_part().unwrap_or_default(),
            can_plan: true,
            can_interrupt: self.can_interrupt,
            ..Outlook::default()
        };
        let mut weight = 0.0;
        for at in 0..self.models.len() {
            let recent = std::mem::take(&mut self.models[at].recent) as f32;
            if recent == 0.0 {
                continue;
            }
            if self.models[at].support.count == 0 || self.models[at].since_plan > 0 {
                self.models[at].refresh();
            }
            if !self.models[at].plans[control].made {
                let class = self.models[at].class;
                self.make_plans(control, at, class);
            }
            let model = &self.models[at];
            let planned = model.plans[control].best();
            outlook.device_ns += recent * model.support.mean_ns();
            let cpu_ns = planned.cpu_ns + unslept_ns(self.feedback.part, &planned.plan);
            outlook.planned_cpu_ns += recent * cpu_ns;
            outlook.planned_late_ns += recent * planned.late_ns;
            outlook.in_flight += recent * (1u32 << model.class.depth()) as f32;
            weight += recent;
        }
        if weight > 0.0 {
            outlook.device_ns /= weight;
            outlook.planned_cpu_ns /= weight;
            outlook.planned_late_ns /= weight;
            outlook.in_flight /= weight;
        }
        outlook.in_flight = outlook.in_flight.max(1.0);
        (outlook.interrupt_late_ns, outlook.interrupt_seen_ns) =
            self.wake.interrupt_late_ns(outlook.device_ns as u64);
        outlook
    }

    /// A time in ns since submission before which I/O of `class` is unlikely to end; 0 if unknown.
    pub fn soonest_ns(&self, class: Class) -> u64 {
        let model = self.models.get(usize::from(self.index[class.index()]));
        model.map_or(0, |model| model.soonest_ns)
    }

    /// The model of the last class of I/O, for display.
    pub fn estimate(&self, goal: Goal) -> Estimate {
        let control = self.controls.iter().find(|control| control.goal() == goal);
        let Some(model) = self.models.get(self.last) else {
            return Estimate { held: true, ..Estimate::default() };
        };
        Estimate {
            median_ns: model.support.quantile_ns(0.5),
            low_ns: model.support.quantile_ns(0.1),
            mean_ns: model.support.mean_ns(),
            price: control.map_or(0.0, Control::price),
            held: control.is_none_or(Control::is_held),
        }
    }
}

/// The sleeps of `plan`, with none beyond `limit_ns`. After that the thread polls for the I/O, so
/// that the rest of the tail is no worse than with polling.
fn within(limit_ns: f32, plan: &Plan) -> Plan {
    let limit_ns = limit_ns as u32;
    let mut within = Plan::SPIN;
    for stage in plan.stages() {
        let until_ns = stage.until_ns.min(limit_ns);
        if until_ns > stage.from_ns.saturating_add(SLEEP_LEAST_NS) {
            within.push(Stage { until_ns, ..*stage });
        }
    }
    within
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn stage(from_ns: u32, until_ns: u32) -> Stage {
        Stage { from_ns, until_ns }
    }

    #[test]
    fn sleeps_keep_within_a_percentile() {
        let plan = Plan::of(&[stage(0, 18_000), stage(20_000, 38_000), stage(52_000, 80_000)]);
        assert_eq!(within(30_000.0, &plan).stages(), [stage(0, 18_000), stage(20_000, 30_000)]);
        // With no time to spare there is no sleep.
        assert!(within(0.0, &plan).is_spin() && within(-7.0, &plan).is_spin());
    }
}
