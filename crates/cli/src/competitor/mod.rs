//! A second program on the same CPU: measures the time that the first one leaves.
//!
//! It is a process of its own, like a program that competes with I/O: switching to it changes the
//! address space. It reads the time stamp counter continuously; where two readings are far apart,
//! it did not run (FAST 2012 used this method).

mod body;
mod group;
mod shared;

use std::fmt;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use meantime_hw::{Clock, cpu};
use rustix::process::{Pid, Signal};

use crate::cli::CompetitorArgs;
use crate::failure::Failure;
use crate::signal;
pub(crate) use group::CompetitorGroup;
pub(crate) use meantime_bench::competitor::{Kind, Sample};
use shared::Counters;

/// The maximum time to start, which includes filling 4 GiB on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time until a stop takes effect: the competitor sees it when it next runs.
const UNTIL_STOPPED: Duration = Duration::from_micros(200);

/// A running competitor. It ends when this is dropped, or when the thread that started it ends.
#[derive(Debug)]
pub(crate) struct Competitor {
    child: Child,
    shared: &'static Counters,
    clock: Clock,
    paused: bool,
}

impl Competitor {
    /// Starts a competitor on `cpu`. It is paused when this returns.
    fn start(cpu: usize, kind: Kind) -> Result<Self, String> {
        let failed = |what: &dyn fmt::Display| {
            format!("cannot start the competing program {kind} on CPU {cpu}: {what}")
        };
        let (shared, file) = shared::create().map_err(|error| failed(&error))?;
        let child = Command::new("/proc/self/exe")
            .arg0("meantime-competitor")
            .args(["competitor", "--cpu", &cpu.to_string(), "--kind", &kind.to_string()])
            .args(["--parent", &std::process::id().to_string()])
            .stdin(Stdio::from(file))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C must not end it: the results so far were measured beside a competitor.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut competitor = Self { child, shared, clock: Clock::real(), paused: false };
        let start = Instant::now();
        // After a signal nothing is measured beside it any more, so that it need not be ready.
        while !competitor.shared.ready.load(Acquire) && !signal::stopped() {
            if let Ok(Some(status)) = competitor.child.try_wait() {
                let mut why = String::new();
                if let Some(stderr) = &mut competitor.child.stderr {
                    let _ = stderr.read_to_string(&mut why);
                }
                let why = why.trim().trim_start_matches("meantime: ");
                return Err(if why.is_empty() { failed(&status) } else { failed(&why) });
            }
            if start.elapsed() > PATIENCE {
                return Err(failed(&"it does not run: is the CPU taken by a real-time program?"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        competitor.ask_to_pause();
        std::thread::sleep(UNTIL_STOPPED);
        Ok(competitor)
    }

    /// Returns its counters so far; callers take differences. It is cheap enough to be called
    /// around every I/O.
    pub(crate) fn sample(&self) -> Sample {
        Sample {
            at_ns: self.clock.now_ns(),
            work: self.shared.work.load(Relaxed),
            ran_ns: self.shared.ran_ns.load(Relaxed),
            gaps: self.shared.gaps.load(Relaxed),
            gap_ns: self.shared.gap_ns.load(Relaxed),
        }
    }

    /// Returns an error if it has ended by itself, or was killed: its figures would be those of a
    /// dead program.
    fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(format!("the competing program has ended: {status}")),
            _ => Ok(()),
        }
    }

    /// Returns the time in which it has run so far, in ns. The time is accurate to some 20 ns if
    /// the caller is on the same CPU.
    #[inline(always)]
    pub(crate) fn ran_ns(&self) -> u64 {
        self.shared.ran_ns.load(Relaxed)
    }

    /// Stops it, without waiting until it has stopped. Returns whether it ran.
    fn ask_to_pause(&mut self) -> bool {
        let ran = !std::mem::replace(&mut self.paused, true);
        if ran {
            self.signal(Signal::STOP);
        }
        ran
    }

    /// Resumes it.
    fn resume(&mut self) {
        if std::mem::replace(&mut self.paused, false) {
            self.shared.pauses.fetch_add(1, Relaxed);
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        // It is our child and has not been waited for, so the process number is not reused.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the other process: `meantime competitor`, started by [`Competitor::start`] only.
pub(crate) fn run(args: &CompetitorArgs) -> Result<ExitCode, Failure> {
    let kind: Kind = args.kind.parse().map_err(Failure::usage)?;
    let stdin = std::io::stdin();
    let opened = stdin.as_fd().try_clone_to_owned().and_then(|file| shared::map(&file));
    let shared = opened.map_err(|_| {
        Failure::usage(
            "competitor: this is a part of `meantime anatomy` and `meantime bench`, not for the \
             command line",
        )
    })?;
    // The process that started this one may be killed, or may have been killed already.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if parent != Some(args.parent) {
        return Err(Failure::new("competitor: the program that started this has ended"));
    }
    cpu::bind(&[args.cpu]).map_err(Failure::new)?;
    body::run(kind, shared, &Clock::real());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_round_trip() {
        assert_eq!("walk=4m".parse(), Ok(Kind::Walk { bytes: 4 << 20 }));
        for text in ["tsc", "walk=64k", "walk=4m", "walk=5000"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        for text in ["", "walk", "walk=", "walk=1", "walk=1t", "tsc=1"] {
            assert!(text.parse::<Kind>().unwrap_err().contains("walk=BYTES"), "{text}");
        }
    }
}
