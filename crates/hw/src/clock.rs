//! Time: the time stamp counter calibrated against the kernel's clock, with a fallback, or a
//! virtual clock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use meantime_nvme_spec::soft_port::{Stepping, VirtualClock};
use rustix::time::ClockId;

use super::counter::{fence_instructions, is_invariant, ticks};
use super::event::EventFd;
use super::kernel_time::{kernel_ns, tighten_timer_slack_once, timespec};

/// A source of monotonic nanoseconds, with waits on the same clock.
///
/// Cloning is cheap. All real-time clocks of a process share one origin.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// The processor's counter: ≈ 10 ns a reading.
    Tsc(&'static Counter),
    /// `CLOCK_MONOTONIC` through the vDSO: ≈ 25 ns a reading.
    Monotonic,
    /// A stepped device's clock, which moves when it is read.
    Virtual(Arc<dyn VirtualClock>),
    /// Real time, for a stepped device: a thread that reads this clock or sleeps by it runs the
    /// device.
    Stepping(Arc<(Clock, Arc<dyn Stepping>)>),
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The processor's counter as a clock: `ns = ticks * mult / 2^32 + offset_ns`.
///
/// The counter is compared with the kernel's time every quarter of a second, provided it is read
/// that often. The two differ after a suspension to memory: the kernel's time stands still
/// meanwhile, while the counter goes on, or restarts afterwards.
struct Counter {
    mult: u64,
    /// Added with wrapping arithmetic.
    offset_ns: AtomicU64,
    /// A little before the last comparison. No reading is lower, unless the counter has restarted.
    floor: AtomicU64,
    /// Ticks of a quarter of a second.
    far: u64,
    compared: Mutex<Compared>,
}

/// The last comparison.
struct Compared {
    ours_ns: u64,
    kernel_ns: u64,
}

/// A difference between the two since the last comparison counts as an error of the counter's rate
/// if it is at most this and a thousandth of the time passed. A larger one is a jump.
const JUMP_NS: u64 = 10_000_000;

impl Counter {
    /// A clock for which the reading `ticks` is the time `kernel_ns`.
    fn new(mult: u64, ticks: u64, kernel_ns: u64) -> Self {
        let far = u64::try_from((250_000_000u128 << 32) / u128::from(mult.max(1)));
        let counter = Self {
            mult,
            offset_ns: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            far: far.unwrap_or(u64::MAX),
            compared: Mutex::new(Compared { ours_ns: kernel_ns, kernel_ns }),
        };
        counter.offset_ns.store(kernel_ns.wrapping_sub(counter.scaled(ticks)), Ordering::Relaxed);
        counter.set_floor(ticks);
        counter
    }

    #[inline(always)]
    fn scaled(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.mult)) >> 32) as u64
    }

    /// Whether a reading is far from the last comparison.
    #[inline(always)]
    fn is_far(&self, ticks: u64) -> bool {
        ticks.wrapping_sub(self.floor.load(Ordering::Acquire)) > self.far
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        let offset_ns = self.offset_ns.load(Ordering::Acquire);
        let ticks = ticks();
        // The offset has changed meanwhile: the reading, or the offset, may be from before a
        // restart.
        if self.is_far(ticks) || self.offset_ns.load(Ordering::Relaxed) != offset_ns {
            return self.compare();
        }
        self.scaled(ticks).wrapping_add(offset_ns)
    }

    /// Compares the counter with the kernel's time, if a comparison is due. Returns the time.
    #[cold]
    #[inline(never)]
    fn compare(&self) -> u64 {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_far(ticks()) {
            let (ticks, kernel_ns) = pair();
            self.compare_at(&mut compared, ticks, kernel_ns);
        }
        self.scaled(ticks()).wrapping_add(self.offset_ns.load(Ordering::Relaxed))
    }

    /// Compares, knowing that the counter is at `ticks` when the kernel's time is `kernel_ns`.
    fn compare_at(&self, compared: &mut Compared, ticks: u64, kernel_ns: u64) {
        let offset_ns = self.offset_ns.load(Ordering::Relaxed);
        let mut ours_ns = self.scaled(ticks).wrapping_add(offset_ns);
        let passed_ns = kernel_ns.saturating_sub(compared.kernel_ns);
        let expected_ns = compared.ours_ns + passed_ns;
        if ours_ns.abs_diff(expected_ns) > JUMP_NS + passed_ns / 1_000 {
            let offset_ns = offset_ns.wrapping_add(expected_ns.wrapping_sub(ours_ns));
            self.offset_ns.store(offset_ns, Ordering::Release);
            ours_ns = expected_ns;
        }
        *compared = Compared { ours_ns, kernel_ns };
        self.set_floor(ticks);
    }

    fn set_floor(&self, ticks: u64) {
        // The floor is a millisecond lower, because the counters of other CPUs may be behind this
        // one. A thread that loads this floor then loads the offset that was stored before it.
        self.floor.store(ticks.saturating_sub(self.far / 250), Ordering::Release);
    }
}

fn monotonic_ns() -> u64 {
    kernel_ns(ClockId::Monotonic)
}

/// One pair of readings, the tightest of several: (tsc, ns).
fn pair() -> (u64, u64) {
    (0..16)
        .map(|_| {
            let before = ticks();
            let ns = monotonic_ns();
            let after = ticks();
            (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), ns)
        })
        .min_by_key(|&(width, ..)| width)
        .map_or((0, 0), |(_, tsc, ns)| (tsc, ns))
}

fn calibrate() -> Option<Counter> {
    if !is_invariant() {
        return None;
    }
    let (tsc0, ns0) = pair();
    // Readings are good to ≈ 50 ns, so over 20 ms the rate is known within 5 parts in a million.
    std::thread::sleep(Duration::from_millis(20));
    let (tsc1, ns1) = pair();
    let (passed, ns) = (tsc1.checked_sub(tsc0)?, ns1.checked_sub(ns0)?);
    // Counters of AArch64 may run at 24 MHz.
    let passed_least = if cfg!(target_arch = "x86_64") { 1_000_000 } else { 20_000 };
    if passed < passed_least || ns < 1_000_000 {
        return None;
    }
    let mult = u64::try_from((u128::from(ns) << 32) / u128::from(passed)).ok()?;
    Some(Counter::new(mult, tsc1, ns1))
}

impl Clock {
    /// The best real-time clock of this machine. The first call of a process takes ≈ 20 ms to
    /// calibrate.
    pub fn real() -> Self {
        static COUNTER: OnceLock<Option<Counter>> = OnceLock::new();
        match COUNTER.get_or_init(calibrate) {
            Some(counter) => Self(Source::Tsc(counter)),
            None => Self(Source::Monotonic),
        }
    }

    /// The clock `CLOCK_MONOTONIC`, for comparison.
    pub fn monotonic() -> Self {
        Self(Source::Monotonic)
    }

    /// The clock of a stepped device.
    pub(crate) fn virtual_time(clock: Arc<dyn VirtualClock>) -> Self {
        Self(Source::Virtual(clock))
    }

    /// Real time, for a device that runs when the clock is read.
    pub(crate) fn stepping(device: Arc<dyn Stepping>) -> Self {
        Self(Source::Stepping(Arc::new((Self::real(), device))))
    }

    /// Nanoseconds since an origin that is the same for all real-time clocks of this machine's
    /// boot.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Source::Tsc(counter) => counter.now_ns(),
            other => other.slow_now_ns(),
        }
    }

    /// Like [`Clock::now_ns`], but ordered: everything earlier in the program is done when the
    /// clock is read (every core sees stores that a fence follows), and nothing later has begun.
    /// Without this, a core reads the counter some 100 instructions early. It costs about 20 ns
    /// more, and is meant for measuring the parts of an I/O.
    #[inline(always)]
    pub fn now_ns_in_order(&self) -> u64 {
        fence_instructions();
        let now_ns = self.now_ns();
        fence_instructions();
        now_ns
    }

    /// The name of this clock.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Source::Tsc(_) => "tsc",
            Source::Monotonic => "clock_monotonic",
            Source::Virtual(_) => "virtual",
            Source::Stepping(stepping) => stepping.0.name(),
        }
    }

    /// Ticks of the time stamp counter per ns, times 2³²; `None` for a clock that does not use it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn ticks_per_ns(&self) -> Option<u64> {
        match &self.0 {
            // `mult` is ns per tick, times 2³².
            Source::Tsc(counter) => {
                u64::try_from((1u128 << 64) / u128::from(counter.mult.max(1))).ok()
            }
            _ => None,
        }
    }

    /// Whether it is a real-time clock, not a virtual one.
    pub fn is_real(&self) -> bool {
        !matches!(self.0, Source::Virtual(_))
    }

    /// Sleeps for `duration_ns`. The sleep may be longer by the machine's wake cost, and a signal
    /// ends it early. The first call of a thread sets its timer slack to 1 ns.
    pub fn sleep_ns(&self, duration_ns: u64) {
        match &self.0 {
            Source::Virtual(clock) => clock.advance(duration_ns),
            Source::Stepping(_) => {
                self.step_until(duration_ns, || false);
            }
            _ => real_sleep(duration_ns),
        }
    }

    /// Waits until `event` is signalled or `timeout_ns` has passed. Takes the signal, and returns
    /// whether there was one.
    pub fn wait_event(&self, event: &EventFd, timeout_ns: u64) -> bool {
        match &self.0 {
            Source::Virtual(clock) => {
                let deadline_ns = clock.now_ns().saturating_add(timeout_ns);
                loop {
                    if event.take() {
                        return true;
                    }
                    if clock.now_ns() >= deadline_ns {
                        return false;
                    }
                    // Interrupts are measured to the microsecond at most. A finer step would only
                    // slow tests down.
                    clock.advance(200);
                }
            }
            Source::Stepping(_) => self.step_until(timeout_ns, || event.take()),
            _ => {
                tighten_timer_slack_once();
                event.wait(timeout_ns)
            }
        }
    }

    /// Whether the device only works while a thread reads this clock or sleeps by it.
    pub fn steps_device(&self) -> bool {
        matches!(self.0, Source::Stepping(_))
    }

    /// The time until a device that this clock runs has something to do, in ns; `None` if it has
    /// nothing to do, or runs by itself. A thread that sleeps by other means must wake up then.
    pub fn idle_for_ns(&self) -> Option<u64> {
        match &self.0 {
            Source::Stepping(stepping) => stepping.1.idle_for_ns(),
            _ => None,
        }
    }

    /// Sleeps for `duration_ns`, or until `stop` returns true, and runs the device when something
    /// is due. Returns whether `stop` ended the sleep.
    #[cold]
    fn step_until(&self, duration_ns: u64, stop: impl Fn() -> bool) -> bool {
        let Source::Stepping(stepping) = &self.0 else { return false };
        let (clock, device) = &**stepping;
        let until_ns = clock.now_ns().saturating_add(duration_ns);
        loop {
            device.step();
            if stop() {
                return true;
            }
            let left_ns = until_ns.saturating_sub(clock.now_ns());
            if left_ns == 0 {
                return false;
            }
            real_sleep(device.idle_for_ns().unwrap_or(LONGEST_STEP_NS).min(left_ns));
        }
    }
}

/// How often, in ns, a waiter that sleeps looks at a device without work: another thread may have
/// given it some.
const LONGEST_STEP_NS: u64 = 1_000_000;

impl Source {
    #[cold]
    #[inline(never)]
    fn slow_now_ns(&self) -> u64 {
        match self {
            Self::Virtual(clock) => clock.now_ns(),
            Self::Stepping(stepping) => {
                stepping.1.step();
                stepping.0.now_ns()
            }
            _ => monotonic_ns(),
        }
    }
}

/// CPU time that this thread has used, in ns. This takes a system call.
pub fn thread_cpu_ns() -> u64 {
    kernel_ns(ClockId::ThreadCPUTime)
}

/// Displays a time in the largest unit that makes it a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nanos(pub u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns.is_multiple_of(1_000_000) => write!(f, "{}ms", ns / 1_000_000),
            ns if ns.is_multiple_of(1_000) => write!(f, "{}us", ns / 1_000),
            ns => write!(f, "{ns}ns"),
        }
    }
}

/// Parses `2us`, `1500ns`, `0.5ms`, `1s` to ns; a bare number is in µs. Returns `None` for text
/// that is no time, or a time longer than 30 years.
pub fn parse_time_ns(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" | "" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = (number.parse::<f64>().ok()? * factor).round();
    (0.0..=1e18).contains(&ns).then_some(ns as u64)
}

fn real_sleep(duration_ns: u64) {
    tighten_timer_slack_once();
    // Interrupted sleeps are not resumed: the caller checks its queue after any wake-up.
    let _ = rustix::thread::nanosleep(&timespec(duration_ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_kernel() {
        let clock = Clock::real();
        // The reading lies between two of the kernel's: the thread may be descheduled anywhere.
        let reading = || {
            let before_ns = monotonic_ns();
            let ours_ns = clock.now_ns();
            (before_ns, ours_ns, monotonic_ns())
        };
        let first = reading();
        std::thread::sleep(Duration::from_millis(50));
        let second = reading();
        let (ours, least, most) = (second.1 - first.1, second.0 - first.2, second.2 - first.0);
        assert!(
            ours as f64 > least as f64 * 0.998 && (ours as f64) < most as f64 * 1.002,
            "{ours} ns against the kernel's {least} to {most} ns"
        );
    }

    const SECOND_NS: u64 = 1_000_000_000;

    /// A clock of 2 ticks a ns, and its times at comparisons of made-up readings.
    fn compared_at<const N: usize>(from: (u64, u64), at: [(u64, u64); N]) -> [u64; N] {
        let counter = Counter::new(1 << 31, from.0, from.1);
        at.map(|(ticks, kernel_ns)| {
            counter.compare_at(&mut counter.compared.lock().unwrap(), ticks, kernel_ns);
            assert!(!counter.is_far(ticks) && counter.is_far(ticks + SECOND_NS));
            counter.scaled(ticks).wrapping_add(counter.offset_ns.load(Ordering::Relaxed))
        })
    }

    #[test]
    fn time_goes_on_if_the_counter_restarts() {
        // Up for a thousand seconds, of which the clock knows the last ten.
        let from = (1_980 * SECOND_NS, 990 * SECOND_NS);
        let before = (2_000 * SECOND_NS, 1_000 * SECOND_NS);
        let after = (2 * SECOND_NS, 1_001 * SECOND_NS);
        assert_eq!(compared_at(from, [before, after]), [before.1, after.1]);
        // Or it went on while the kernel's time stood still.
        let after = (90_000 * SECOND_NS, 1_001 * SECOND_NS);
        assert_eq!(compared_at(from, [before, after]), [before.1, after.1]);
    }

    #[test]
    fn an_error_of_the_rate_changes_nothing() {
        let from = (20 * SECOND_NS, 10 * SECOND_NS);
        // A hundred parts in a million, and a comparison that was disturbed.
        let at = (20 * SECOND_NS + 2_000 * 1_000_100_000, 1_010 * SECOND_NS);
        let disturbed = (at.0 + SECOND_NS / 100, at.1);
        assert_eq!(compared_at(from, [at, disturbed]), [at.0 / 2, disturbed.0 / 2]);
    }

    #[test]
    fn never_goes_back() {
        let clock = Clock::real();
        let mut last = 0;
        for _ in 0..100_000 {
            let now = clock.now_ns();
            assert!(now >= last);
            last = clock.now_ns_in_order();
            assert!(last >= now);
        }
    }
}
