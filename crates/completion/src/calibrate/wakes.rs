//! Wake-ups by another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Times, spawn};
use meantime_hw::{Clock, EventFd, Futex, HwError};

/// A sleeper that is not woken checks again after this time, in ns.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// The time in ns from an eventfd being signalled on `other_cpu` until the calling thread, which
/// sleeps on it, runs. Between two signals the caller's core is idle for `idle`, and may enter a
/// deeper idle state.
///
/// # Errors
/// Fails if no thread or eventfd can be created.
pub fn eventfd_wake(
    other_cpu: Option<usize>,
    idle: Duration,
    count: usize,
) -> Result<Times, HwError> {
    let event = EventFd::new()?;
    let theirs = event.clone();
    let wait = |_| while !event.wait(LOOK_AGAIN_NS) {};
    wake(move |_| theirs.signal(), wait, other_cpu, idle, count)
}

/// The time in ns from a futex being set on `other_cpu` until the calling thread, which sleeps on
/// it, runs. Between two wake-ups the caller's core is idle for `idle`, and may enter a deeper idle
/// state.
///
/// # Errors
/// Fails if no thread can be created.
pub fn futex_wake(
    other_cpu: Option<usize>,
    idle: Duration,
    count: usize,
) -> Result<Times, HwError> {
    let turns = Arc::new(Futex::default());
    let theirs = Arc::clone(&turns);
    let wait = |turn| {
        while turns.get() == turn {
            turns.wait(turn, LOOK_AGAIN_NS);
        }
    };
    wake(move |turn| theirs.set(turn + 1), wait, other_cpu, idle, count)
}

/// Has another thread call `signal` once per turn, while this one waits for it by `wait`.
fn wake(
    signal: impl Fn(u32) + Send + 'static,
    wait: impl Fn(u32),
    other_cpu: Option<usize>,
    idle: Duration,
    count: usize,
) -> Result<Times, HwError> {
    let signalled_ns = Arc::new(AtomicU64::new(0));
    let their_ns = Arc::clone(&signalled_ns);
    let total = u32::try_from(count + count / 10 + 1).unwrap_or(u32::MAX);
    let clock = Clock::real();
    let their_clock = clock.clone();
    let taken = Arc::new(AtomicU64::new(0));
    let their_taken = Arc::clone(&taken);
    let signaller = spawn(other_cpu, move || {
        for turn in 0..total {
            // Busy waiting keeps this core's own wake-up out of the figure.
            while their_taken.load(Ordering::Acquire) < u64::from(turn) {
                std::hint::spin_loop();
            }
            let until_ns = their_clock.now_ns() + idle.as_nanos() as u64;
            while their_clock.now_ns() < until_ns {
                std::hint::spin_loop();
            }
            their_ns.store(their_clock.now_ns(), Ordering::Release);
            signal(turn);
        }
    })?;
    let mut samples = Vec::with_capacity(total as usize);
    for turn in 0..total {
        wait(turn);
        samples.push(clock.now_ns().saturating_sub(signalled_ns.load(Ordering::Acquire)));
        taken.store(u64::from(turn) + 1, Ordering::Release);
    }
    let _ = signaller.join();
    // The first samples find caches and cores cold.
    Ok(Times::new(samples.split_off(samples.len().saturating_sub(count))))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_a_sample() {
        let idle = Duration::from_micros(50);
        assert_eq!(eventfd_wake(None, idle, 20).unwrap().count(), 20);
        assert_eq!(futex_wake(None, idle, 20).unwrap().count(), 20);
        assert_eq!(futex_wake(None, Duration::ZERO, 0).unwrap().count(), 0);
    }
}
