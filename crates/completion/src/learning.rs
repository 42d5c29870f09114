//! What a channel has learned, and how each policy chooses its wait plan from it.

use super::adaptive::choice::{Mode, WaitChoice};
use super::adaptive::{Adaptive, Estimate, Outlook, SleepCosts};
use super::class::Class;
use super::earliest::{EarliestCompletion, Observation};
use super::gap::{WaitPlan, Waited};
use super::mean::HalfMean;
use super::policy::{Goal, Policy};
use super::rule::{Choice, Expected, RULES_MAX, Rule, RuleId, Sample};
use super::telemetry::QueueFigures;
use super::waiter::Queues;

/// An I/O in flight, as the policies see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// Its class.
    pub class: Class,
    /// Submission time, in ns.
    pub submitted_ns: u64,
    /// Whether it went to the queue with an interrupt.
    pub interrupted: bool,
    /// Whether it was waited for before: a published rule sleeps once per I/O.
    pub waited: bool,
}

/// What a thread's channel has learned of its device. It belongs to the channel.
#[derive(Debug, Default)]
pub(crate) struct Learning {
    mean: HalfMean,
    rules: [Option<Box<dyn Rule>>; RULES_MAX],
    costs: Option<SleepCosts>,
    /// Whether there is a queue with an interrupt.
    can_interrupt: bool,
    /// Whether all other waits only spin.
    only_spins: bool,
    /// For `adaptive`: how to wait now for a goal of latency.
    choice: WaitChoice,
    /// For `adaptive`: what was learned, once that was needed. Before, a goal of latency polls.
    adaptive: Option<Box<Adaptive>>,
    earliest: EarliestCompletion,
}

impl Learning {
    /// Creates it without observations. `costs` are the costs of sleeping; `None` stands for those
    /// of this machine, measured when a policy needs them.
    pub(crate) fn new(costs: Option<SleepCosts>) -> Self {
        Self { costs, ..Self::default() }
    }

    /// Uses this instance of the rule for the policy `id`.
    pub(crate) fn use_rule(&mut self, id: RuleId, rule: Box<dyn Rule>) {
        self.rules[id.index()] = Some(rule);
    }

    /// Allocates and measures what `policy` needs, so that no I/O has to.
    pub(crate) fn prepare(&mut self, policy: Policy) {
        if matches!(policy, Policy::Adaptive(_)) {
            self.adaptive();
        }
        self.rule(policy);
    }

    #[inline]
    fn adaptive(&mut self) -> &mut Adaptive {
        let (costs, can_interrupt) = (&self.costs, self.can_interrupt);
        self.adaptive.get_or_insert_with(|| {
            let costs = costs.clone().unwrap_or_else(|| SleepCosts::of_this_machine().clone());
            Box::new(Adaptive::new(costs, can_interrupt))
        })
    }

    /// How I/O with this goal is waited for now.
    #[inline]
    fn mode(&self, goal: Goal) -> Mode {
        match goal {
            Goal::Latency(_) if self.adaptive.is_none() => Mode::Poll,
            Goal::Latency(_) => self.choice.mode(),
            // Only a plan holds these goals; it may end its sleeps by interrupt.
            Goal::Cpu(_) | Goal::P99(_) | Goal::P999(_) => Mode::Planned,
        }
    }

    /// Whether an I/O of `class` need not be timed, and is polled for, because sleeping would gain
    /// nothing.
    #[inline]
    pub(crate) fn may_skip_timing(&mut self, policy: Policy, class: Class) -> bool {
        let Policy::Adaptive(goal) = policy else { return false };
        self.choice.count();
        match self.mode(goal) {
            Mode::Poll => {
                self.adaptive.as_mut().is_some_and(|adaptive| adaptive.may_poll_untimed(class))
            }
            Mode::Planned => self.adaptive().may_skip_timing(goal, class),
            Mode::Interrupt => false,
        }
    }

    /// Whether all I/O of `policy` goes to the polled queue, where it may be timed.
    #[inline]
    pub(crate) fn goes_polled(&self, policy: Policy) -> bool {
        let Policy::Adaptive(goal) = policy else { return false };
        match self.mode(goal) {
            Mode::Poll => true,
            Mode::Planned => !self.adaptive.as_ref().is_some_and(|adaptive| adaptive.ends_sleeps()),
            Mode::Interrupt => false,
        }
    }

    /// Whether I/O of `policy` may be slept for by plan on the queue with an interrupt.
    #[inline]
    pub(crate) fn may_plan_sleeps(&self, policy: Policy) -> bool {
        matches!(policy, Policy::Adaptive(goal) if self.mode(goal) == Mode::Planned)
    }

    /// A time in ns since submission before which an I/O of `class` is unlikely to end; 0 if
    /// unknown.
    #[inline]
    pub(crate) fn soonest_ns(&self, class: Class) -> u64 {
        self.adaptive.as_ref().map_or(0, |adaptive| adaptive.soonest_ns(class))
    }

    /// The current estimate of `policy`; `None` if it does not estimate.
    pub(crate) fn estimate(&self, policy: Policy) -> Option<Estimate> {
        let Policy::Adaptive(goal) = policy else { return None };
        self.adaptive.as_ref().map(|adaptive| adaptive.estimate(goal))
    }

    /// The mean device time used by `hybrid`, in ns; 0 while there is none.
    pub(crate) fn mean_ns(&self) -> u64 {
        self.mean.mean_ns()
    }

    /// The expected device time, for the telemetry.
    pub(crate) fn expected(&self, policy: Policy) -> Expected {
        match policy {
            Policy::HybridHalfMean => Expected { median_ns: self.mean.mean_ns(), low_ns: 0 },
            Policy::Rule(id) => {
                self.rules[id.index()].as_ref().map_or(Expected::default(), |rule| rule.expected())
            }
            _ => self.estimate(policy).map_or(Expected::default(), |estimate| Expected {
                median_ns: estimate.median_ns as u64,
                low_ns: estimate.low_ns as u64,
            }),
        }
    }

    /// Shows how I/O of `policy` is waited for, and why, if that is a choice.
    pub(crate) fn show(&self, policy: Policy, figures: &mut QueueFigures) {
        if let Policy::Adaptive(goal) = policy {
            self.choice.show(self.mode(goal), figures);
        }
    }

    /// Notes that there is a queue with an interrupt. Must come before [`Self::prepare`].
    pub(crate) fn allow_interrupts(&mut self) {
        self.can_interrupt = true;
    }

    /// Notes that waits can only spin, or block for the interrupt. Must come before
    /// [`Self::prepare`].
    pub(crate) fn forbid_sleeps(&mut self) {
        self.only_spins = true;
    }

    /// Whether an I/O of `class` goes to the queue with an interrupt. Called at its submission, if
    /// there is such a queue and [`Policy::may_interrupt`].
    pub(crate) fn interrupts(&mut self, policy: Policy, class: Class) -> bool {
        match policy {
            Policy::Interrupt => true,
            Policy::Adaptive(goal) => {
                let is_probe = self.choice.next_is_probe(class.depth() == 0);
                match self.mode(goal) {
                    Mode::Poll => false,
                    Mode::Planned => self.adaptive().interrupts(goal, class),
                    Mode::Interrupt => !is_probe,
                }
            }
            _ => self.rule(policy).is_some_and(|rule| rule.choose(class) == Choice::Interrupt),
        }
    }

    /// Returns how to wait for `flight`, which is in flight on `queues`. Called in its gap.
    #[inline]
    pub(crate) fn wait_plan<Q: Queues>(
        &mut self,
        policy: Policy,
        flight: &Flight,
        queues: &Q,
    ) -> WaitPlan {
        if let Policy::Adaptive(goal @ Goal::Latency(_)) = policy
            && self.choice.is_due(flight.submitted_ns)
        {
            self.sample_cpu(goal, queues);
        }
        match policy {
            _ if flight.interrupted && !self.may_plan_sleeps(policy) => WaitPlan::Interrupt,
            Policy::Poll => WaitPlan::Poll,
            Policy::Adaptive(goal) if self.mode(goal) == Mode::Poll => WaitPlan::Poll,
            Policy::Adaptive(goal) => self.planned(goal, flight),
            _ if flight.waited => WaitPlan::Poll,
            Policy::HybridFixed(ns) => WaitPlan::Sleep(u64::from(ns)),
            _ => match self.rule(policy).map(|rule| rule.choose(flight.class)) {
                Some(Choice::Sleep(ns)) => WaitPlan::Sleep(ns),
                // The I/O was sent to the polled queue.
                Some(Choice::Interrupt) | None => WaitPlan::Poll,
            },
        }
    }

    /// Records an I/O that succeeded in a wait like `waited`; `None` if it was found without
    /// waiting. `cpu_ns` returns the CPU time that this thread has used.
    #[inline]
    pub(crate) fn record(
        &mut self,
        policy: Policy,
        sample: &Sample,
        waited: Option<&Waited>,
        cpu_ns: impl FnOnce() -> u64,
    ) {
        if let Policy::Adaptive(goal) = policy {
            let mode = self.mode(goal);
            let Some(adaptive) = &mut self.adaptive else { return };
            let blocked = sample.interrupted && waited.is_some_and(|waited| waited.blocked);
            // Beside the interrupt, I/O that goes to the polled queue is waited for by plan.
            let by_plan = match mode {
                Mode::Planned => true,
                Mode::Interrupt => !sample.interrupted,
                Mode::Poll => false,
            };
            adaptive.record(goal, sample, by_plan, waited, cpu_ns);
            if blocked && !by_plan {
                adaptive.interrupted(sample.class, sample.device_ns);
            }
            return;
        }
        if let Some(rule) = self.rule(policy) {
            rule.record(sample);
        }
    }

    /// Called when an I/O of `policy` has ended: looks at the thread's CPU if no gap was used for
    /// that.
    #[inline]
    pub(crate) fn sample_cpu_if_overdue<Q: Queues>(
        &mut self,
        policy: Policy,
        now_ns: u64,
        queues: &Q,
    ) {
        if let Policy::Adaptive(goal @ Goal::Latency(_)) = policy
            && self.choice.is_overdue(now_ns)
        {
            self.sample_cpu(goal, queues);
        }
    }

    /// Looks at the thread's CPU, and decides again if that is due. A channel has only one choice:
    /// if I/Os have different goals of latency, it is for the goal of the I/O just waited for.
    #[cold]
    fn sample_cpu<Q: Queues>(&mut self, goal: Goal, queues: &Q) {
        let (now_ns, ran_ns) = (queues.now_ns(), queues.thread_cpu_ns());
        let device_changes = self.adaptive.as_ref().map_or(0, |adaptive| adaptive.device_changes());
        if self.choice.sample(now_ns, ran_ns, device_changes, || queues.thread_waited_ns()) {
            let outlook = self.adaptive().outlook(goal);
            self.choice.decide(now_ns, &Outlook { can_plan: !self.only_spins, ..outlook });
        }
    }

    #[inline]
    fn planned(&mut self, goal: Goal, flight: &Flight) -> WaitPlan {
        let Flight { class, submitted_ns, interrupted, .. } = *flight;
        let plan = self.adaptive().plan(goal, class, submitted_ns, interrupted);
        if plan.is_spin() {
            WaitPlan::Poll
        } else {
            WaitPlan::Planned { plan, since_ns: flight.submitted_ns }
        }
    }

    /// Records the lateness of the planned sleeps of a wait.
    #[inline]
    pub(crate) fn slept(&mut self, waited: &Waited) {
        if let Some(adaptive) = &mut self.adaptive
            && (!waited.wakes().is_empty() || waited.cut_short_cpu_ns > 0)
        {
            adaptive.slept(waited);
        }
    }

    /// Records when an I/O of `class` was complete, for [`Learning::earliest_ns`].
    #[inline]
    pub(crate) fn record_observation(&mut self, class: Class, observation: Observation) {
        self.earliest.record(class, observation);
    }

    /// The earliest likely completion of an I/O of `class`, in ns since its submission; `None` if
    /// unknown. It is a low quantile of all I/O while callers ask for it, whatever its policy.
    pub(crate) fn earliest_ns(&self, class: Class) -> Option<u64> {
        self.earliest.estimate_ns(class)
    }

    fn rule(&mut self, policy: Policy) -> Option<&mut dyn Rule> {
        match policy {
            Policy::HybridHalfMean => Some(&mut self.mean),
            Policy::Rule(id) => {
                let rule = &mut self.rules[id.index()];
                if rule.is_none() {
                    *rule = id.make();
                }
                rule.as_deref_mut().map(|rule| rule as &mut dyn Rule)
            }
            _ => None,
        }
    }
}
