//! The ways in which a thread can sleep. All end with the same timer interrupt, and differ in what
//! the kernel does on the way.

use std::fmt;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::clock::tighten_timer_slack;
use super::{EventFd, Futex, Result, UserWait};

/// A way to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SleepWay {
    /// `nanosleep`, by a duration.
    Nanosleep,
    /// `clock_nanosleep`, until a time of `CLOCK_MONOTONIC`.
    ClockNanosleep,
    /// `ppoll` of an eventfd, until its time-out: the way that a completion can end early.
    EventFd,
    /// A futex's wait, until its time-out: the way that another thread can end early.
    Futex,
    /// In user mode (TPAUSE or MWAITX): the thread keeps its CPU.
    User,
}

impl SleepWay {
    /// The ways that this machine has.
    pub fn available() -> Vec<Self> {
        let all = [Self::Nanosleep, Self::ClockNanosleep, Self::EventFd, Self::Futex, Self::User];
        all.into_iter().filter(|way| *way != Self::User || UserWait::detect().is_some()).collect()
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

impl fmt::Display for SleepWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Sleeps in one way. It belongs to the thread that made it.
#[derive(Debug)]
pub struct Sleeper(Means);

#[derive(Debug)]
enum Means {
    Nanosleep,
    ClockNanosleep,
    EventFd(EventFd),
    Futex(Futex),
    User(UserWait),
}

impl Sleeper {
    /// For sleeping `way`, on the calling thread, whose timer slack is set to 1 ns. `None` if this
    /// CPU cannot.
    ///
    /// # Errors
    /// If no eventfd can be created.
    pub fn new(way: SleepWay) -> Result<Option<Self>> {
        tighten_timer_slack();
        Ok(Some(Self(match way {
            SleepWay::Nanosleep => Means::Nanosleep,
            SleepWay::ClockNanosleep => Means::ClockNanosleep,
            SleepWay::EventFd => Means::EventFd(EventFd::new()?),
            SleepWay::Futex => Means::Futex(Futex::default()),
            SleepWay::User => match UserWait::detect() {
                Some(wait) => Means::User(wait),
                None => return Ok(None),
            },
        })))
    }

    /// Lets `duration_ns` pass. May be late by the machine's wake cost; a signal ends it early.
    pub fn sleep_ns(&self, duration_ns: u64) {
        // It may end early: the caller checks its queue and the clock after any wake-up.
        match &self.0 {
            Means::Nanosleep => {
                let _ = rustix::thread::nanosleep(&timespec(duration_ns));
            }
            Means::ClockNanosleep => {
                let until_ns = monotonic_ns().saturating_add(duration_ns);
                let _ = rustix::thread::clock_nanosleep_absolute(
                    rustix::thread::ClockId::Monotonic,
                    &timespec(until_ns),
                );
            }
            Means::EventFd(event) => {
                event.wait(duration_ns);
            }
            Means::Futex(futex) => futex.wait(0, duration_ns),
            Means::User(wait) => wait.pause_ns(duration_ns),
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_lets_the_time_pass() {
        for way in SleepWay::available() {
            let sleeper = Sleeper::new(way).unwrap().unwrap();
            for duration_ns in [0, 1_000, 3_000_000] {
                let start_ns = monotonic_ns();
                sleeper.sleep_ns(duration_ns);
                assert!(monotonic_ns() - start_ns >= duration_ns, "{way}, {duration_ns} ns");
            }
        }
    }

    #[test]
    fn an_unsupported_instruction_is_not_offered() {
        let can = SleepWay::available().contains(&SleepWay::User);
        assert_eq!(Sleeper::new(SleepWay::User).unwrap().is_some(), can);
        assert_eq!(SleepWay::available().len(), 4 + usize::from(can));
    }
}
