//! Waiting for the requests of one channel.
//!
//! A [`Waiter`] owns what one thread's channel needs to spend the time between a doorbell and the
//! completion: how each policy waits, and what it has learned of the device. The
//! channel owns queues and requests, and lends them for the duration of a call as [`Queues`]. The
//! NVMe channel, the channel to the kernel and the simulator use the same code; it is compiled for
//! each of them, without dynamic dispatch.
//!
//! **One I/O.** When the channel submits a request it asks which queue the request goes to
//! ([`Waiter::polls_timed`], [`Waiter::interrupts`]) and whether to time it
//! ([`Waiter::wants_time`]). Then [`Waiter::wait_for`] waits for a request, or
//! [`Waiter::wait_for_any`] for whichever ends first:
//!
//! 1. The policy chooses how to wait: block, spin, sleep and spin, or follow a plan of sleeps.
//! 2. The queue's [`Gap`] waits that way until a command has ended.
//! 3. [`Queues::refill`] sends requests that waited for room.
//! 4. The policy and the channel's published figures record the times of the ended requests.
//!
//! A polled request that is not timed passes through none of this: the channel itself looks
//! [`FIRST_LOOKS`] times, and calls the waiter only if it found no completion.
//!
//! **Work of the caller's.** After [`Waiter::gap_left_ns`] every request is timed, until 64 I/Os
//! have ended without such a question.
//!
//! **Several channels.** A thread that waits on several looks at each, and asks each
//! [`Waiter::rest`] until when it may sleep.
//!
//! **Cost of the fast path.** Whether a wait has to take the slow path is one byte
//! ([`Waiter::is_slow`]), which also says whether the channel collects requests before it rings its
//! doorbell.

mod gap_left;
mod queues;
mod rest;
mod times;

use super::adaptive::{Estimate, SleepCosts};
use super::class::Class;
use super::earliest::Observation;
use super::gap::{Gap, GapCounters, WaitPlan, Waited};
use super::learning::Learning;
use super::policy::Policy;
use super::rule::{Rule, RuleId, Sample};
use super::telemetry::QueueFigures;
pub use queues::{InFlight, Queues, Timed};
use rest::Looks;
pub use rest::Rest;
use times::Times;

/// The number of looks for a polled request before the channel calls its waiter: about 200 ns.
pub const FIRST_LOOKS: u32 = 128;

/// Number of requests whose likely ends are compared.
const COMPARED: usize = 16;

/// How ended requests were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// In a wait on the polled queue, or on the queue with an interrupt.
    Waiting {
        /// Whether it was the queue with an interrupt.
        interrupted: bool,
    },
    /// By a look outside a wait: they may have been complete for long.
    Looking,
    /// The kernel polled, or blocked the thread, until they were complete.
    Blocked,
}

/// Flags that keep waits off the fast path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SlowPath(u8);

impl SlowPath {
    const PLUGGED: u8 = 1;
    const ASKED: u8 = 2;

    #[inline(always)]
    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    #[inline(always)]
    fn set(&mut self, flag: u8, to: bool) {
        self.0 = if to { self.0 | flag } else { self.0 & !flag };
    }
}

/// The waits of one channel, and what it has learned. See the module's documentation.
#[derive(Default)]
pub struct Waiter {
    slow_path: SlowPath,
    /// Whether every request is timed, since callers ask for the time left, or did recently.
    takes_times: bool,
    /// Whether a caller has asked for the time left since the last wait.
    asked: bool,
    /// The number of I/Os that have ended since the last such question.
    unasked_ios: u32,
    /// The gaps of the polled queue and of the queue with an interrupt.
    gaps: [Gap; 2],
    learning: Learning,
    times: Times,
    /// The looks, if a thread looks at several channels.
    looks: Looks,
}

impl Waiter {
    /// A waiter without observations. `costs` are the costs of sleeping; `None` stands for those of
    /// this machine, measured when a policy needs them.
    pub fn new(costs: Option<SleepCosts>) -> Self {
        Self { learning: Learning::new(costs), ..Self::default() }
    }

    /// Uses this instance of the rule for the policy `id`.
    pub fn use_rule(&mut self, id: RuleId, rule: Box<dyn Rule>) {
        self.learning.use_rule(id, rule);
    }

    /// Notes that the channel has a queue with an interrupt.
    pub fn allow_interrupts(&mut self) {
        self.learning.allow_interrupts();
    }

    /// Notes that the channel's waits can only spin, or block for the interrupt.
    pub fn forbid_sleeps(&mut self) {
        self.learning.forbid_sleeps();
    }

    /// Allocates and measures what `policy` needs, so that no I/O has to.
    pub fn prepare(&mut self, policy: Policy) {
        self.learning.prepare(policy);
    }

    /// Sets how long a wait may spin before it stops using the CPU.
    pub fn set_spin_budget_ns(&mut self, budget_ns: u64) {
        self.gaps.iter_mut().for_each(|gap| gap.set_spin_budget_ns(budget_ns));
    }

    /// The gap of the polled queue, or of the one with an interrupt.
    pub fn gap(&mut self, interrupted: bool) -> &mut Gap {
        &mut self.gaps[usize::from(interrupted)]
    }

    /// The counters of that gap.
    pub fn counters(&self, interrupted: bool) -> GapCounters {
        self.gaps[usize::from(interrupted)].counters()
    }

    /// The result of the last wait in that gap.
    pub fn waited(&self, interrupted: bool) -> &Waited {
        self.gaps[usize::from(interrupted)].waited()
    }

    /// The current estimate of `policy`; `None` if it does not estimate.
    pub fn estimate(&self, policy: Policy) -> Option<Estimate> {
        self.learning.estimate(policy)
    }

    /// The mean device time used by `hybrid`, in ns; 0 while there is none.
    pub fn mean_ns(&self) -> u64 {
        self.learning.mean_ns()
    }

    /// The figures that a channel of `policy` publishes of its waits and times. The channel adds
    /// the numbers of commands ended and in flight.
    pub fn figures(&self, policy: Policy) -> QueueFigures {
        let expected = self.learning.expected(policy);
        let [polled, interrupted] = [0, 1].map(|at: usize| self.gaps[at].counters());
        let waits = polled + interrupted;
        let (timed, timed_sum_ns) = self.times.latencies.total();
        let mut figures = QueueFigures {
            timed,
            timed_sum_ns,
            expected_ns: expected.median_ns,
            expected_low_ns: expected.low_ns,
            waits: waits.waits,
            sleeps: waits.sleeps,
            oversleeps: waits.oversleeps,
            fallbacks: waits.fallbacks,
            blocks: waits.blocks,
            latencies: self.times.latencies,
            ..QueueFigures::default()
        };
        self.learning.show(policy, &mut figures);
        figures
    }

    /// Whether a wait has to consider more than its queue: requests are collected, or callers ask
    /// for the time left.
    #[inline(always)]
    pub fn is_slow(&self) -> bool {
        self.slow_path != SlowPath(0)
    }

    /// Whether the channel collects requests.
    #[inline(always)]
    pub fn is_plugged(&self) -> bool {
        self.slow_path.has(SlowPath::PLUGGED)
    }

    /// Sets whether the channel collects requests.
    #[inline(always)]
    pub fn set_plugged(&mut self, plugged: bool) {
        self.slow_path.set(SlowPath::PLUGGED, plugged);
    }

    /// Whether I/O of `policy` always goes to the polled queue, and may need to be timed.
    #[inline]
    pub fn polls_timed(&self, policy: Policy) -> bool {
        self.learning.goes_polled(policy) || policy.is_poll() && self.takes_times
    }

    /// Whether an I/O of `class` goes to the queue with an interrupt, if there is one and
    /// [`Policy::may_interrupt`].
    pub fn interrupts(&mut self, policy: Policy, class: Class) -> bool {
        self.learning.interrupts(policy, class)
    }

    /// Whether an I/O of `class` sent to the polled queue is to be timed. If not, sleeping would
    /// gain nothing, and it is polled for.
    #[inline]
    pub fn wants_time(&mut self, policy: Policy, class: Class) -> bool {
        let may_skip = self.learning.may_skip_timing(policy, class);
        self.takes_times || !may_skip
    }

    /// Whether every I/O is timed, since callers ask for the time left, or did recently.
    #[inline]
    pub fn takes_times(&self) -> bool {
        self.takes_times
    }

    /// Whether to time a polled I/O submitted at `now_ns` as a sample.
    pub fn take_sample(&mut self, now_ns: u64) -> bool {
        self.times.take_sample(now_ns)
    }

    /// Waits until a command has ended on the queue of `id`, by that request's policy.
    #[inline(always)]
    pub fn wait_for<Q: Queues>(&mut self, queues: &mut Q, id: Q::Id) {
        if self.is_asked() {
            return self.wait_asked(queues, id);
        }
        let InFlight { policy, flight, .. } = queues.begin_wait(id);
        let plan = self.learning.wait_plan(policy, &flight, queues);
        let interrupted = flight.interrupted;
        if queues.is_busy(interrupted) {
            self.gap(interrupted).wait(&mut queues.queue(interrupted), plan);
        }
        queues.refill(interrupted);
        self.learn(queues, Found::Waiting { interrupted });
    }

    /// Waits until a command of any request without a ticket has ended. Returns false if no such
    /// request is in flight.
    #[inline]
    pub fn wait_for_any<Q: Queues>(&mut self, queues: &mut Q) -> bool {
        if queues.is_busy(false) && queues.is_busy(true) {
            self.wait_on_both(queues);
            return true;
        }
        let Some(id) = self.next_to_end(queues, |_| true) else { return false };
        self.wait_for(queues, id);
        true
    }

    /// Waits until a command has ended on either queue. It looks at both, since a sleep for one
    /// would oversleep the other; when the spin budget is spent, it sleeps between looks, longer
    /// each time.
    #[inline(never)]
    fn wait_on_both<Q: Queues>(&mut self, queues: &mut Q) {
        let Some(mut both) = queues.both() else { return };
        self.gaps[0].wait(&mut both, WaitPlan::Poll);
        drop(both);
        queues.refill(false);
        queues.refill(true);
        self.learn(queues, Found::Waiting { interrupted: false });
    }

    /// The request without a ticket that is likely to end first, among those for which `may` is
    /// true. Only the first few are compared.
    fn next_to_end<Q: Queues>(&self, queues: &Q, may: impl Fn(&Q::Id) -> bool) -> Option<Q::Id> {
        let first = queues.unclaimed().find(&may)?;
        if !matches!(queues.request(first).policy, Policy::Adaptive(_)) {
            return Some(first);
        }
        let end_ns = |id: &Q::Id| {
            let flight = queues.request(*id).flight;
            flight.submitted_ns + self.learning.soonest_ns(flight.class)
        };
        queues.unclaimed().filter(may).take(COMPARED).min_by_key(end_ns)
    }

    /// Waits until a command has ended on the queue of `id`, for a caller that asks for the time
    /// left.
    #[inline(never)]
    fn wait_asked<Q: Queues>(&mut self, queues: &mut Q, id: Q::Id) {
        let asked = std::mem::take(&mut self.asked);
        let unknown = asked && self.earliest_end_ns(queues, Some(id)).is_none();
        let InFlight { policy, flight, timed, .. } = queues.begin_wait(id);
        let interrupted = flight.interrupted;
        if queues.is_busy(interrupted) {
            // It must not sleep: only then the earliest completion can be learned.
            let plan = match timed && unknown {
                true => WaitPlan::Poll,
                false => self.learning.wait_plan(policy, &flight, queues),
            };
            self.gap(interrupted).wait(&mut queues.queue(interrupted), plan);
        }
        queues.refill(interrupted);
        self.learn(queues, Found::Waiting { interrupted });
        if !self.takes_times {
            self.after_asked(queues);
        }
    }

    /// Records the times of ended requests.
    #[inline]
    pub fn learn<Q: Queues>(&mut self, queues: &mut Q, found: Found) {
        if !queues.timed().is_empty() {
            self.learn_times(queues, found);
        }
    }

    #[inline(never)]
    fn learn_times<Q: Queues>(&mut self, queues: &mut Q, found: Found) {
        let is_asked = self.is_asked();
        let now_ns = queues.now_ns();
        let mut ended = std::mem::take(queues.timed());
        let in_flight = queues.active() + ended.len();
        let Self { learning, gaps, times, .. } = self;
        let waited = match found {
            Found::Waiting { interrupted } => Some(gaps[usize::from(interrupted)].waited()),
            Found::Looking | Found::Blocked => None,
        };
        if let Some(waited) = waited {
            learning.slept(waited);
        }
        for Timed { policy, flight } in ended.drain(..) {
            let sample = Sample {
                class: flight.class,
                device_ns: now_ns.saturating_sub(flight.submitted_ns),
                slept_ns: waited.map_or(0, |waited| waited.slept_ns),
                overslept: waited.is_some_and(|waited| waited.overslept),
                interrupted: flight.interrupted,
                in_flight: u16::try_from(in_flight).unwrap_or(u16::MAX),
                now_ns,
            };
            times.add(sample.class.kind(), sample.device_ns);
            let by_kernel = match flight.interrupted {
                true => Waited::blocked(),
                false => Waited::exactly(),
            };
            let waited = waited.or((found == Found::Blocked).then_some(&by_kernel));
            learning.record(policy, &sample, waited, || queues.thread_cpu_ns());
            learning.sample_cpu_if_overdue(policy, now_ns, queues);
            if is_asked {
                let seen =
                    waited.is_some_and(|waited| waited.is_exact(now_ns)) || found == Found::Blocked;
                let found = if seen {
                    Observation::Exact(sample.device_ns)
                } else {
                    Observation::AtMost(sample.device_ns)
                };
                learning.record_observation(flight.class, found);
            }
        }
        *queues.timed() = ended;
        if is_asked {
            self.after_asked(queues);
        }
    }
}
