//! Measures what a sleep costs on this machine.

use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use meantime_completion::calibrate;
use meantime_hw::{Clock, HwError, cpu};

/// Number of sleeps that measure the interrupt.
const SLEEPS: usize = 100;

/// Length of each of these sleeps, in ns.
const SLEEP_NS: u64 = 1_000;

/// Number of batches of switches that are timed, and the round trips (two switches each) in a
/// batch.
const BATCHES: usize = 20;
const ROUND_TRIPS: u64 = 10;

/// The parts of what a sleep costs, as the published rules see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeCosts {
    /// A switch from one thread to another on the same CPU, in ns.
    pub context_switch_ns: u64,
    /// From the interrupt until the woken thread can be switched to, in ns.
    pub interrupt_ns: u64,
}

static OF_THIS_MACHINE: OnceLock<WakeCosts> = OnceLock::new();

impl WakeCosts {
    /// Returns the costs of this machine. The first call in a process measures them, which takes
    /// some ms.
    pub fn of_this_machine() -> Self {
        *OF_THIS_MACHINE.get_or_init(|| {
            Self::measure().unwrap_or_else(|error| {
                // Only the division of the total into its parts is unknown.
                let whole_ns = calibrate::oversleep(&Clock::real(), SLEEP_NS, SLEEPS).median_ns();
                tracing::warn!(
                    %error,
                    whole_ns,
                    "context switches cannot be measured: all of a wake-up counts as interrupt"
                );
                Self { context_switch_ns: 0, interrupt_ns: whole_ns }
            })
        })
    }

    /// Uses `self` as this machine's costs for the rest of the process.
    ///
    /// # Errors
    /// Returns the costs in force if they were already measured or set.
    pub fn assume(self) -> Result<(), Self> {
        OF_THIS_MACHINE.set(self).map_err(|_| Self::of_this_machine())
    }

    /// Measures the costs on threads of its own, so the caller's CPU binding does not change.
    ///
    /// For the context switch, two threads on one CPU wake each other in turn, so each hop is a
    /// system call to wake, one to block, and the switch. For the interrupt, a sleep ends late by
    /// the timer's interrupt and one switch, which is subtracted. Both results are medians.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started or bound to a CPU.
    pub fn measure() -> Result<Self, HwError> {
        let cpu = cpu::allowed().last().copied();
        thread::scope(|scope| {
            let measuring = spawn(scope, move || {
                // Threads started from here inherit the binding.
                cpu.map(|cpu| cpu::bind(&[cpu])).transpose()?;
                let context_switch_ns = context_switch_ns()?;
                let late_ns = calibrate::oversleep(&Clock::real(), SLEEP_NS, SLEEPS).median_ns();
                Ok(Self {
                    context_switch_ns,
                    interrupt_ns: late_ns.saturating_sub(context_switch_ns),
                })
            })?;
            measuring.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Returns the cost of a sleep in ns: a switch away, the interrupt, a switch back.
    #[inline]
    pub fn of_a_sleep_ns(&self) -> u64 {
        self.context_switch_ns.saturating_mul(2).saturating_add(self.interrupt_ns)
    }
}

/// Returns the median time in ns of a switch between two threads, on the one CPU that the calling
/// thread is bound to.
fn context_switch_ns() -> Result<u64, HwError> {
    // An even turn is the caller's. `END` is odd.
    const END: u64 = u64::MAX;
    let turn = AtomicU64::new(0);
    let wait_until = |mine: &dyn Fn(u64) -> bool| {
        loop {
            let now = turn.load(Ordering::Acquire);
            if mine(now) {
                return now;
            }
            thread::park();
        }
    };
    let caller = thread::current();
    thread::scope(|scope| {
        let partner = spawn(scope, || {
            loop {
                let now = wait_until(&|now| now % 2 == 1);
                if now == END {
                    return;
                }
                turn.store(now + 1, Ordering::Release);
                caller.unpark();
            }
        })?;
        let clock = Clock::real();
        let round_trip = || {
            turn.fetch_add(1, Ordering::AcqRel);
            partner.thread().unpark();
            wait_until(&|now| now % 2 == 0);
        };
        let batch_ns = || {
            let start_ns = clock.now_ns();
            (0..ROUND_TRIPS).for_each(|_| round_trip());
            (clock.now_ns() - start_ns) / (2 * ROUND_TRIPS)
        };
        // The first batch includes the thread's start and is not counted.
        batch_ns();
        let mut batches_ns: [u64; BATCHES] = std::array::from_fn(|_| batch_ns());
        batches_ns.sort_unstable();
        turn.store(END, Ordering::Release);
        partner.thread().unpark();
        Ok(batches_ns[BATCHES / 2])
    })
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, HwError> {
    let started = meantime_process::thread::spawn_scoped(scope, "meantime-calib", body);
    started
        .map_err(|source| HwError::Os { what: "cannot start a thread to calibrate with", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_can_be_measured() {
        let costs = WakeCosts::measure().expect("threads, and a CPU to bind them to");
        assert!((1..1_000_000_000).contains(&costs.context_switch_ns), "{costs:?}");
    }

    /// By hand: 2 × 1,500 + 1,000.
    #[test]
    fn a_sleep_is_two_switches_and_an_interrupt() {
        let costs = WakeCosts { context_switch_ns: 1_500, interrupt_ns: 1_000 };
        assert_eq!(costs.of_a_sleep_ns(), 4_000);
        let endless = WakeCosts { context_switch_ns: u64::MAX, interrupt_ns: 1 };
        assert_eq!(endless.of_a_sleep_ns(), u64::MAX);
    }

    #[test]
    fn what_is_assumed_stays() {
        let costs = WakeCosts { context_switch_ns: 7, interrupt_ns: 8 };
        assert_eq!(costs.assume(), Ok(()));
        assert_eq!(WakeCosts::of_this_machine(), costs);
        assert_eq!(WakeCosts { context_switch_ns: 9, ..costs }.assume(), Err(costs));
    }
}
