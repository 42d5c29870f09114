//! The methods by which a thread can sleep. All end with the same timer interrupt, but take
//! different paths in the kernel.

use std::fmt;

use rustix::event::{PollFd, poll};
use rustix::thread::{ClockId, clock_nanosleep_absolute, nanosleep};

use super::kernel_time::{kernel_ns, tighten_timer_slack, tighten_timer_slack_once, timespec};
use super::{EventFd, Futex, Result, UserWait};

/// The clock of sleeps until an absolute time.
const CLOCK: ClockId = ClockId::Monotonic;

/// A method to sleep by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SleepMethod {
    /// `nanosleep`, by a duration.
    Nanosleep,
    /// `clock_nanosleep`, until a time of `CLOCK_MONOTONIC`.
    ClockNanosleep,
    /// `ppoll` of an eventfd, until its time-out: a sleep that a completion can end early.
    EventFd,
    /// A futex wait, until its time-out: a sleep that another thread can end early.
    Futex,
    /// In user mode (TPAUSE or MWAITX): the thread keeps its CPU.
    User,
}

impl SleepMethod {
    /// The methods that this machine supports.
    pub fn available() -> Vec<Self> {
        let all = [Self::Nanosleep, Self::ClockNanosleep, Self::EventFd, Self::Futex, Self::User];
        all.into_iter()
            .filter(|method| *method != Self::User || UserWait::detect().is_some())
            .collect()
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nanosleep => "nanosleep",
            Self::ClockNanosleep => "clock_nanosleep",
            Self::EventFd => "eventfd",
            Self::Futex => "futex",
            Self::User => "user",
        }
    }
}

impl fmt::Display for SleepMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Sleeps by one method. It belongs to the thread that made it.
pub struct Sleeper(Box<dyn Fn(u64)>);

impl Sleeper {
    /// A sleeper for the calling thread, whose timer slack is set to 1 ns. `None` if this CPU does
    /// not support `method`.
    ///
    /// # Errors
    /// Fails if no eventfd can be created.
    pub fn new(method: SleepMethod) -> Result<Option<Self>> {
        tighten_timer_slack();
        Ok(Some(Self(match method {
            SleepMethod::Nanosleep => Box::new(|ns| {
                let _ = nanosleep(&timespec(ns));
            }),
            SleepMethod::ClockNanosleep => Box::new(|ns| {
                let until_ns = kernel_ns(CLOCK).saturating_add(ns);
                let _ = clock_nanosleep_absolute(CLOCK, &timespec(until_ns));
            }),
            SleepMethod::EventFd => {
                let event = EventFd::new()?;
                Box::new(move |ns| {
                    event.wait(ns);
                })
            }
            SleepMethod::Futex => {
                let futex = Futex::default();
                Box::new(move |ns| futex.wait(0, ns))
            }
            SleepMethod::User => match UserWait::detect() {
                Some(wait) => Box::new(move |ns| wait.pause_ns(ns)),
                None => return Ok(None),
            },
        })))
    }

    /// Sleeps for `duration_ns`. The sleep may be longer by the machine's wake cost, and a signal
    /// ends it early, so the caller checks its queue and the clock after any wake-up.
    pub fn sleep_ns(&self, duration_ns: u64) {
        (self.0)(duration_ns);
    }
}

/// Sleeps until one of `fds` is ready, for at most `timeout_ns`. Returns the number of ready ones,
/// which is 0 also after a signal handler has run. The first call of a thread sets its timer slack
/// to 1 ns.
pub fn sleep_until_ready(fds: &mut [PollFd<'_>], timeout_ns: Option<u64>) -> usize {
    tighten_timer_slack_once();
    // An error is taken as a wake-up: the caller checks the clock.
    poll(fds, timeout_ns.map(timespec).as_ref()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_lets_the_time_pass() {
        for method in SleepMethod::available() {
            let sleeper = Sleeper::new(method).unwrap().unwrap();
            for duration_ns in [0, 1_000, 3_000_000] {
                let start_ns = kernel_ns(CLOCK);
                sleeper.sleep_ns(duration_ns);
                assert!(kernel_ns(CLOCK) - start_ns >= duration_ns, "{method}, {duration_ns} ns");
            }
        }
    }

    #[test]
    fn an_unsupported_instruction_is_not_offered() {
        let can = SleepMethod::available().contains(&SleepMethod::User);
        assert_eq!(Sleeper::new(SleepMethod::User).unwrap().is_some(), can);
        assert_eq!(SleepMethod::available().len(), 4 + usize::from(can));
    }
}
