//! The cost of a sleep: the distribution of its lateness, and its CPU time. It is measured once per
//! process, and kept current from the sleeps that are made.

use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use super::super::calibrate;
use super::super::gap::Wake;
use super::tuning::*;
use meantime_hw::clock::{Clock, thread_cpu_ns};
use meantime_hw::cpu;

/// Recent sleeps remembered per length.
const KEPT: usize = 64;
/// Number of equally likely values that summarise a distribution.
pub const GROUPS: usize = 8;
/// Number of lengths of sleep distinguished: the longer the expected sleep, the deeper the idle
/// state.
const LENGTHS: usize = 4;
/// Longest sleep of the first length, in ns; each further length is four times longer.
const FIRST_LENGTH_NS: u64 = 8_000;

/// Lateness in equally likely values, ascending, in ns.
pub type Groups = [f32; GROUPS];

/// The costs of sleeping on an idle machine.
#[derive(Debug, Clone, PartialEq)]
pub struct SleepCosts {
    /// Lateness of recent sleeps in ns, by length of sleep.
    late_ns: [Vec<u32>; LENGTHS],
    /// CPU time of a sleep, charged to its thread, in ns.
    pub cpu_ns: u32,
    /// Median lateness of a thread that a signal wakes, in ns, by length of sleep.
    signal_late_ns: [u32; LENGTHS],
}

impl SleepCosts {
    /// Sleeps without lateness or cost: those of a virtual clock.
    pub fn none() -> Self {
        Self { late_ns: std::array::from_fn(|_| vec![0]), cpu_ns: 0, signal_late_ns: [0; LENGTHS] }
    }

    /// Costs from samples of lateness in ns, the same for every length of sleep; `signal_late_ns`
    /// is that of a signal.
    pub fn of(late_ns: &[u32], cpu_ns: u32, signal_late_ns: u32) -> Self {
        let samples = if late_ns.is_empty() { vec![0] } else { late_ns.to_vec() };
        let late_ns = std::array::from_fn(|_| samples.clone());
        Self { late_ns, cpu_ns, signal_late_ns: [signal_late_ns; LENGTHS] }
    }

    /// The costs on this machine, measured at the first call in the process, in about 15 ms on
    /// an idle machine.
    pub fn of_this_machine() -> &'static Self {
        static COSTS: OnceLock<SleepCosts> = OnceLock::new();
        COSTS.get_or_init(Self::measure)
    }

    fn measure() -> Self {
        let clock = Clock::real();
        let lengths_ns = std::array::from_fn(|length| FIRST_LENGTH_NS << (2 * length) >> 1);
        let mut cpu_ns = Vec::new();
        let late_ns: [Vec<u32>; LENGTHS] = lengths_ns.map(|sleep_ns: u64| {
            let count = if sleep_ns < 100_000 { 10 } else { 4 };
            let batch = |_| {
                let before_ns = thread_cpu_ns();
                let times = calibrate::oversleep(&clock, sleep_ns, count);
                (times.median_ns(), thread_cpu_ns() - before_ns, times)
            };
            // A batch during which other threads used the CPU says nothing about sleeping.
            let calmest = (0..MEASURED_BATCHES).map(batch).min_by_key(|(median_ns, ..)| *median_ns);
            let Some((_, used_ns, times)) = calmest else { return vec![0] };
            cpu_ns.push((used_ns / count as u64) as u32);
            (0..count).map(|n| times.quantile_ns(n as f64 / count as f64) as u32).collect()
        });
        cpu_ns.sort_unstable();
        let signalled_ns = signal_late_ns(lengths_ns);
        let signal_late_ns = std::array::from_fn(|length| {
            // Where nothing else is known, a signal counts as late as a timer.
            let timer_ns = Lateness::of(&late_ns[length]).median();
            signalled_ns.map_or(timer_ns, |ns| {
                ns[length].min(timer_ns.max(1_000).saturating_mul(SIGNAL_MOST_FACTOR))
            })
        });
        Self { late_ns, cpu_ns: cpu_ns[cpu_ns.len() / 2], signal_late_ns }
    }
}

/// The median lateness of a thread that a signal wakes, in ns, in the calmest batch, by length of
/// sleep. The two threads have CPUs of their own: on one CPU, the woken thread takes over at once.
/// `None` if there are no two CPUs, or if they are busy for long.
fn signal_late_ns(lengths_ns: [u64; LENGTHS]) -> Option<[u32; LENGTHS]> {
    let allowed = cpu::allowed();
    let (&own, &other) = (allowed.first()?, allowed.last().filter(|cpu| allowed[0] != **cpu)?);
    let (done, result) = mpsc::channel();
    let measure = move || {
        let batch = |length_ns| {
            let idle = Duration::from_nanos(length_ns);
            calibrate::eventfd_wake(Some(other), idle, BATCH_SIGNALS)
                .ok()
                .map(|late| late.median_ns())
        };
        let calmest = |length_ns| (0..MEASURED_BATCHES).filter_map(|_| batch(length_ns)).min();
        if cpu::bind(&[own]).is_ok() {
            let late_ns = lengths_ns.map(|length_ns| calmest(length_ns).map(|ns| ns as u32));
            // The receiver is gone if this took too long.
            let _ = done.send(late_ns);
        }
    };
    // Another thread measures, so that the affinity of this one stays as it is.
    let _measures = meantime_process::thread::spawn("meantime-calib", measure).ok()?;
    let late_ns = result.recv_timeout(Duration::from_millis(SIGNALS_TIMEOUT_MS)).ok()?;
    late_ns.iter().all(Option::is_some).then(|| late_ns.map(Option::unwrap_or_default))
}

/// The lateness of sleeps of one length.
#[derive(Debug, Clone)]
struct Lateness {
    recent: [u32; KEPT],
    count: usize,
    next: usize,
    groups: Groups,
    changed: u32,
}

impl Lateness {
    fn of(samples: &[u32]) -> Self {
        let mut lateness =
            Self { recent: [0; KEPT], count: 0, next: 0, groups: [0.0; GROUPS], changed: 0 };
        samples.iter().for_each(|late| lateness.push(*late));
        lateness.sum_up();
        lateness
    }

    #[inline]
    fn push(&mut self, late_ns: u32) {
        self.recent[self.next] = late_ns;
        self.next = (self.next + 1) % KEPT;
        self.count = (self.count + 1).min(KEPT);
        self.changed += 1;
    }

    fn sorted(&self) -> ([u32; KEPT], usize) {
        let mut sorted = self.recent;
        sorted[..self.count].sort_unstable();
        (sorted, self.count)
    }

    fn median(&self) -> u32 {
        let (sorted, count) = self.sorted();
        sorted[count / 2]
    }

    /// Each group is the mean of an eighth of the samples, so that the groups' mean is the samples'
    /// mean.
    fn sum_up(&mut self) {
        self.changed = 0;
        let (sorted, count) = self.sorted();
        if count == 0 {
            return;
        }
        let largest = sorted[count / 2].saturating_mul(PREEMPTED_FACTOR);
        for (group, mean) in self.groups.iter_mut().enumerate() {
            // Fewer samples than groups: some stand for several.
            let from = group * count / GROUPS;
            let until = ((group + 1) * count / GROUPS).max(from + 1);
            let part = &sorted[from..until];
            let sum: u64 = part.iter().map(|late| u64::from(*late.min(&largest))).sum();
            *mean = sum as f32 / part.len() as f32;
        }
    }
}

/// The present cost of sleeping.
#[derive(Debug, Clone)]
pub struct WakeCost {
    costs: SleepCosts,
    lengths: [Lateness; LENGTHS],
    cpu_ns: f32,
    /// How much later an interrupt's waiter runs than was measured at start-up, in ns (median); and
    /// the number of interrupts since the last call of [`WakeCost::forget_interrupts`].
    interrupt_more_ns: f32,
    interrupts: u32,
    /// How much later a signal wakes a thread than a timer does, in ns: as measured at start-up, by
    /// length of sleep, and as found since.
    signal_more_ns: [f32; LENGTHS],
    signal_found_ns: f32,
    /// Of the sleeps that only measure: when the last one was, and how long and for how many I/Os
    /// to wait before the next.
    probed_ns: u64,
    asked: u32,
    probe_after_ns: u64,
    probe_after_ios: u32,
    /// The length of the next such sleep, in ns, once it is planned; 0 if none is.
    probe_ns: u64,
}

fn length_of(sleep_ns: u64) -> usize {
    let mut limit_ns = FIRST_LENGTH_NS;
    (0..LENGTHS - 1)
        .find(|_| {
            let found = sleep_ns <= limit_ns;
            limit_ns *= 4;
            found
        })
        .unwrap_or(LENGTHS - 1)
}

impl WakeCost {
    /// Starts from the measured costs.
    pub fn new(costs: SleepCosts) -> Self {
        let lengths: [_; LENGTHS] =
            std::array::from_fn(|length| Lateness::of(&costs.late_ns[length]));
        let cpu_ns = costs.cpu_ns as f32;
        let signal_more_ns = std::array::from_fn(|length| {
            costs.signal_late_ns[length] as f32 - lengths[length].groups[GROUPS / 2]
        });
        Self {
            cpu_ns,
            costs,
            lengths,
            interrupt_more_ns: 0.0,
            interrupts: 0,
            signal_more_ns,
            signal_found_ns: 0.0,
            probed_ns: 0,
            asked: 0,
            probe_after_ns: FIRST_PROBE_NS,
            probe_after_ios: FIRST_PROBE_IOS,
            probe_ns: 0,
        }
    }

    /// CPU time of a sleep, charged to its thread, in ns.
    pub fn cpu_ns(&self) -> f32 {
        self.cpu_ns
    }

    /// The median lateness of a thread that blocks for `blocked_ns` until an interrupt, in ns: as
    /// measured at start-up, and as seen.
    pub fn interrupt_late_ns(&self, blocked_ns: u64) -> (f32, f32) {
        let measured_ns = self.costs.signal_late_ns[length_of(blocked_ns)] as f32;
        (measured_ns, (measured_ns + self.interrupt_more_ns).max(0.0))
    }

    /// Records that a thread that blocked for `blocked_ns` until an interrupt ran `late_ns` after
    /// the I/O had probably ended.
    #[inline]
    pub fn interrupted(&mut self, blocked_ns: u64, late_ns: f32) {
        // The estimate goes up as often as down at the median, whatever single values are.
        let (_, seen_ns) = self.interrupt_late_ns(blocked_ns);
        let step_ns = INTERRUPT_STEP_PART * seen_ns.max(1_000.0);
        let more_ns = self.interrupt_more_ns + if late_ns > seen_ns { step_ns } else { -step_ns };
        let (measured_ns, _) = self.interrupt_late_ns(blocked_ns);
        self.interrupt_more_ns = more_ns.max(-measured_ns);
        self.interrupts = self.interrupts.saturating_add(1);
    }

    /// Called with each decision: forgets what was found of interrupts while none is used.
    pub fn forget_interrupts(&mut self) {
        if std::mem::take(&mut self.interrupts) == 0 {
            self.interrupt_more_ns *= 1.0 - INTERRUPT_FORGET_PART;
        }
    }

    /// Records a sleep.
    #[inline]
    pub fn record(&mut self, wake: Wake) {
        // This is the planned one, and no other sleep.
        let is_probe =
            self.probe_ns > 0 && (self.probe_ns / 2..=self.probe_ns).contains(&wake.slept_ns);
        let weight = if is_probe { PROBE_WEIGHT_SLEEPS } else { 1 };
        if is_probe {
            self.probe_ns = 0;
        }
        if is_probe && wake.cpu_ns > 0 {
            self.charge(wake.cpu_ns, PROBE_CPU_MOST_FACTOR, PROBE_CPU_STEP_PART);
        } else if wake.cpu_ns > 0 {
            self.record_cpu(wake.cpu_ns);
        }
        let late_ns = u32::try_from(wake.late_ns).unwrap_or(u32::MAX);
        let lateness = &mut self.lengths[length_of(wake.slept_ns)];
        (0..weight).for_each(|_| lateness.push(late_ns));
    }

    /// Records the CPU time that a sleep was charged, in ns.
    pub fn record_cpu(&mut self, cpu_ns: u64) {
        self.charge(cpu_ns, SLEEP_CPU_MOST_FACTOR, SLEEP_CPU_STEP_PART);
    }

    /// Moves the CPU of a sleep by `part` of the difference to `cpu_ns`, which counts as at most
    /// `most` times the present value: a preemption is not part of a sleep's cost.
    fn charge(&mut self, cpu_ns: u64, most: f32, part: f32) {
        let cpu_ns = (cpu_ns as f32).min(most * self.cpu_ns.max(1_000.0));
        self.cpu_ns += part * (cpu_ns - self.cpu_ns);
    }

    /// Whether to sleep only to measure the cost: no sleep pays, and the last one is long ago, both
    /// in time and in calls of this function. The sleep would be one of `sleep_ns`.
    #[inline]
    pub fn is_due(&mut self, now_ns: u64, sleep_ns: u64) -> bool {
        self.asked = self.asked.saturating_add(1);
        let due = self.asked > self.probe_after_ios
            && now_ns.saturating_sub(self.probed_ns) > self.probe_after_ns;
        if due {
            (self.probed_ns, self.asked, self.probe_ns) = (now_ns, 0, sleep_ns);
            self.probe_after_ns = (2 * self.probe_after_ns).min(LAST_PROBE_NS);
            self.probe_after_ios = (2 * self.probe_after_ios).min(LAST_PROBE_IOS);
        }
        due
    }

    /// Notes that I/Os are slept for.
    #[inline]
    pub fn pays(&mut self, now_ns: u64) {
        (self.probed_ns, self.asked, self.probe_ns) = (now_ns, 0, 0);
        (self.probe_after_ns, self.probe_after_ios) = (FIRST_PROBE_NS, FIRST_PROBE_IOS);
    }

    /// The lateness of a sleep of about `sleep_ns` that a signal ends, in ns: that of a sleep that
    /// ends at its time, plus the difference between signal and timer.
    pub fn signalled_late_ns(&mut self, sleep_ns: u64) -> f32 {
        let more_ns = self.signal_more_ns[length_of(sleep_ns)] + self.signal_found_ns;
        (self.groups(sleep_ns)[GROUPS / 2] + more_ns).max(0.0)
    }

    /// Records that an I/O whose time was seen took less, or more, than half of those whose times
    /// were concluded from the signals that woke the thread. Signals are then later, or less late,
    /// than was assumed. Half of all I/Os differ by `spread_ns`.
    pub fn signals_are(&mut self, later: bool, sleep_ns: u64, spread_ns: f32) {
        let late_ns = self.signalled_late_ns(sleep_ns).max(1_000.0);
        // Where times differ by more than the lateness, one I/O says little.
        let step_ns = SIGNAL_STEP_PART * late_ns * (late_ns / spread_ns.max(1.0)).min(1.0);
        let found_ns = self.signal_found_ns + if later { step_ns } else { -step_ns };
        let measured_ns =
            self.groups(sleep_ns)[GROUPS / 2] + self.signal_more_ns[length_of(sleep_ns)];
        self.signal_found_ns = found_ns.max(-measured_ns);
    }

    /// The lateness of sleeps of about `sleep_ns`.
    pub fn groups(&mut self, sleep_ns: u64) -> &Groups {
        let lateness = &mut self.lengths[length_of(sleep_ns)];
        if lateness.changed >= RENEW_SLEEPS {
            lateness.sum_up();
        }
        &lateness.groups
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
