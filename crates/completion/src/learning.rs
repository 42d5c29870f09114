//! What a queue has learned, and how each policy chooses its wait plan from it.

use super::adaptive::{Adaptive, Estimate, SleepCosts};
use super::auto::{Auto, Mode};
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

/// What a thread's channel has learned of its device. Belongs to the channel.
#[derive(Debug, Default)]
pub(crate) struct Learning {
    mean: HalfMean,
    rules: [Option<Box<dyn Rule>>; RULES_MAX],
    costs: Option<SleepCosts>,
    auto: Auto,
    /// Whether there is a queue with an interrupt.
    can_interrupt: bool,
    adaptive: Option<Box<Adaptive>>,
    earliest: EarliestCompletion,
}

impl Learning {
    /// Creates it without observations. `costs` are the costs of sleeping; `None`: those of this
    /// machine, measured when a policy needs them.
    pub(crate) fn new(costs: Option<SleepCosts>) -> Self {
        Self { costs, ..Self::default() }
    }

    /// Uses this instance of the rule for the policy `id`.
    pub(crate) fn use_rule(&mut self, id: RuleId, rule: Box<dyn Rule>) {
        self.rules[id.index()] = Some(rule);
    }

    /// Allocates and measures what `policy` needs, so that its first I/O does not have to.
    pub(crate) fn prepare(&mut self, policy: Policy) {
        if matches!(policy, Policy::Adaptive(_) | Policy::Auto) {
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

    /// Whether an I/O of `class` need not be timed, and is polled for: sleeping would gain nothing.
    #[inline]
    pub(crate) fn skips(&mut self, policy: Policy, class: Class) -> bool {
        match policy {
            Policy::Adaptive(goal) => self.adaptive().skips(goal, class),
            Policy::Auto => match self.auto.mode_of_polled() {
                Mode::Poll => self.adaptive().samples(class),
                Mode::Adaptive => self.adaptive().skips(Goal::default(), class),
                Mode::Interrupt => false,
            },
            _ => false,
        }
    }

    /// Whether all I/O of `policy` goes to the polled queue, timed.
    #[inline]
    pub(crate) fn polls(&self, policy: Policy) -> bool {
        let ends_sleeps = || self.adaptive.as_ref().is_some_and(|adaptive| adaptive.ends_sleeps());
        match policy {
            Policy::Adaptive(_) => !ends_sleeps(),
            Policy::Auto => match self.auto.mode() {
                Mode::Poll => true,
                Mode::Adaptive => !ends_sleeps(),
                Mode::Interrupt => false,
            },
            _ => false,
        }
    }

    /// Whether I/O of `policy` may be slept for by plan on the queue with an interrupt.
    #[inline]
    pub(crate) fn plans(&self, policy: Policy) -> bool {
        match policy {
            Policy::Adaptive(_) => true,
            Policy::Auto => self.auto.mode() == Mode::Adaptive,
            _ => false,
        }
    }

    /// A time in ns since submission before which an I/O of `class` is unlikely to end; 0 if
    /// unknown.
    #[inline]
    pub(crate) fn soonest_ns(&self, class: Class) -> u64 {
        self.adaptive.as_ref().map_or(0, |adaptive| adaptive.soonest_ns(class))
    }

    /// The current estimate of `policy`; `None` if it does not estimate.
    pub(crate) fn estimate(&self, policy: Policy) -> Option<Estimate> {
        let goal = match policy {
            Policy::Adaptive(goal) => goal,
            Policy::Auto => Goal::default(),
            _ => return None,
        };
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

    /// Shows what `auto` has chosen, and why, if it is the policy.
    pub(crate) fn show(&self, policy: Policy, figures: &mut QueueFigures) {
        if policy == Policy::Auto {
            self.auto.show(figures);
        }
    }

    /// Notes that there is a queue with an interrupt. Before [`Self::prepare`].
    pub(crate) fn allow_interrupts(&mut self) {
        self.can_interrupt = true;
    }

    /// Whether an I/O of `class` goes to the queue with an interrupt. Called at its submission, if
    /// there is such a queue and [`Policy::may_interrupt`].
    pub(crate) fn interrupts(&mut self, policy: Policy, class: Class) -> bool {
        match policy {
            Policy::Interrupt => true,
            Policy::Adaptive(goal) => self.adaptive().interrupts(goal, class),
            Policy::Auto => {
                self.auto.interrupts(class.depth() == 0)
                    || self.auto.mode() == Mode::Adaptive
                        && self.adaptive().interrupts(Goal::default(), class)
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
        if policy == Policy::Auto && self.auto.is_due(flight.submitted_ns) {
            self.look(queues);
        }
        match policy {
            _ if flight.interrupted && !self.plans(policy) => WaitPlan::Interrupt,
            Policy::Poll => WaitPlan::Poll,
            Policy::Adaptive(goal) => self.planned(goal, flight),
            Policy::Auto if self.auto.mode() == Mode::Poll => WaitPlan::Poll,
            Policy::Auto => self.planned(Goal::default(), flight),
            _ if flight.waited => WaitPlan::Poll,
            Policy::HybridFixed(ns) => WaitPlan::Sleep(u64::from(ns)),
            _ => match self.rule(policy).map(|rule| rule.choose(flight.class)) {
                Some(Choice::Sleep(ns)) => WaitPlan::Sleep(ns),
                // It was sent to the polled queue.
                Some(Choice::Interrupt) | None => WaitPlan::Poll,
            },
        }
    }

    /// Records an I/O that succeeded in a wait like `waited`; `None`: it was found without waiting.
    /// `cpu_ns` returns the CPU time that this thread has used.
    #[inline]
    pub(crate) fn record(
        &mut self,
        policy: Policy,
        sample: &Sample,
        waited: Option<&Waited>,
        cpu_ns: impl FnOnce() -> u64,
    ) {
        let goal = match policy {
            Policy::Adaptive(goal) => Some(goal),
            Policy::Auto => Some(Goal::default()),
            _ => None,
        };
        if let Some(goal) = goal {
            let blocked = sample.interrupted && waited.is_some_and(|waited| waited.blocked);
            // While `auto` uses the interrupt, it waits by plan for what it sends to the polled queue.
            let by_plan = match self.auto.mode() {
                _ if policy != Policy::Auto => true,
                Mode::Adaptive => true,
                Mode::Interrupt => !sample.interrupted,
                Mode::Poll => false,
            };
            let adaptive = self.adaptive();
            adaptive.record(goal, sample, by_plan, waited, cpu_ns);
            let Sample { class, device_ns, .. } = *sample;
            if blocked && !by_plan {
                adaptive.interrupted(class, device_ns);
            }
            return;
        }
        if let Some(rule) = self.rule(policy) {
            rule.record(sample);
        }
    }

    /// For `auto`, when an I/O of it has ended: looks if no gap was used for that.
    #[inline]
    pub(crate) fn look_after<Q: Queues>(&mut self, now_ns: u64, queues: &Q) {
        if self.auto.is_overdue(now_ns) {
            self.look(queues);
        }
    }

    /// For `auto`: looks at the thread's CPU, and decides again if that is due.
    #[cold]
    fn look<Q: Queues>(&mut self, queues: &Q) {
        let (now_ns, ran_ns) = (queues.now_ns(), queues.thread_cpu_ns());
        let device_changes = self.adaptive().device_changes();
        if self.auto.look(now_ns, ran_ns, device_changes, || queues.thread_waited_ns()) {
            let outlook = self.adaptive().outlook(Goal::default());
            self.auto.decide(now_ns, &outlook, self.can_interrupt);
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

    /// The earliest likely completion of an I/O of `class`, in ns since its submission: a low
    /// quantile of all I/O while there is deferred work, whatever its policy. `None`: unknown.
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
