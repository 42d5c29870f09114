//! The I/Os of a recorded trace (`read_iolog`), in its order, and their times.

use std::sync::Arc;

use super::pattern::Io;
use super::source::Source;
use crate::job::{Action, Job, Trace};

/// The I/Os of a trace.
#[derive(Debug)]
pub(crate) struct Replay {
    trace: Arc<Trace>,
    /// The next step.
    at: usize,
    /// log2 of the device's logical block size.
    block_shift: u32,
    /// Whether it begins again at its end.
    repeats: bool,
}

impl Replay {
    /// Creates the I/Os of `trace` at its beginning, on a device with blocks of 2^`block_shift`
    /// bytes.
    pub(crate) fn new(trace: Arc<Trace>, block_shift: u32, repeats: bool) -> Self {
        Self { trace, at: 0, block_shift, repeats }
    }
}

impl Source for Replay {
    fn next_in_pass(&mut self) -> Option<Io> {
        loop {
            let step = self.trace.steps.get(self.at)?;
            self.at += 1;
            if let Action::Io { dir, offset_bytes, bytes } = step.action {
                let lba = offset_bytes >> self.block_shift;
                return Some(Io { dir, lba, bytes: bytes as usize });
            }
        }
    }

    fn begin_pass(&mut self) -> bool {
        self.at = 0;
        self.repeats
    }
}

/// The times of a trace's steps, beside its [`Replay`].
#[derive(Debug, Clone)]
pub(crate) struct Times {
    trace: Arc<Trace>,
    /// The next step.
    at: usize,
    /// The speed in percent; `None` is as fast as it goes.
    speed_percent: Option<u32>,
    /// When the replay began, without the time between turns.
    begun_ns: u64,
    /// The time from the beginning to the end of the last turn.
    passed_ns: u64,
}

impl Times {
    /// Returns the times of the trace of `job`, if it has one.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let trace = Arc::clone(job.trace.as_ref()?);
        let speed_percent = (!job.replay.no_stall).then_some(job.replay.speed_percent);
        Some(Self { trace, at: 0, speed_percent, begun_ns: 0, passed_ns: 0 })
    }

    /// Begins a turn at `now_ns`.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.begun_ns = now_ns.wrapping_sub(self.passed_ns);
    }

    /// Ends a turn at `now_ns`.
    pub(crate) fn rest(&mut self, now_ns: u64) {
        self.passed_ns = now_ns.wrapping_sub(self.begun_ns);
    }

    /// Returns when the next step is due, 0 if at once, and whether it is a flush.
    pub(crate) fn next(&self) -> Option<(u64, bool)> {
        let step = self.trace.steps.get(self.at)?;
        let due_ns = self.speed_percent.map_or(0, |percent| {
            let after_ns = u128::from(step.at_ns) * 100 / u128::from(percent);
            self.begun_ns.wrapping_add(after_ns.min(u128::from(u64::MAX / 4)) as u64)
        });
        Some((due_ns, step.action == Action::Flush))
    }

    /// Records that the next step is done.
    pub(crate) fn advance(&mut self) {
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::testing::job;
    use crate::pattern::Dir;

    const TRACE: &str = "fio version 3 iolog\n0 /d open\n0 /d write 4096 4096\n\
                         100 /d sync 0 0\n400 /d read 8192 512\n";

    fn replayed(keys: &[(&str, &str)]) -> Job {
        let mut job = job(&[&[("read_iolog", "t.log")], keys].concat());
        job.read_trace(|_| Ok(TRACE.into())).unwrap();
        job
    }

    #[test]
    fn places_are_the_traces() {
        let trace = replayed(&[]).trace.unwrap();
        let mut once = Replay::new(Arc::clone(&trace), 9, false);
        let write = Io { dir: Dir::Write, lba: 8, bytes: 4096 };
        let read = Io { dir: Dir::Read, lba: 16, bytes: 512 };
        assert_eq!([once.next(), once.next(), once.next()], [Some(write), Some(read), None]);
        let mut again = Replay::new(trace, 9, true);
        assert_eq!([again.next(), again.next(), again.next()], [write, read, write].map(Some));
    }

    #[test]
    fn times_are_scaled_and_stand_still_between_turns() {
        let due = |keys: &[(&str, &str)]| {
            let mut times = Times::of(&replayed(keys)).unwrap();
            times.begin(1_000);
            let first = times.next();
            times.advance();
            let second = times.next();
            times.rest(51_000);
            times.begin(1_000_000);
            times.advance();
            let third = times.next();
            times.advance();
            assert_eq!(times.next(), None);
            [first, second, third].map(Option::unwrap)
        };
        let began_ns = 950_000;
        assert_eq!(due(&[]), [(1_000, false), (101_000, true), (began_ns + 400_000, false)]);
        let half = due(&[("replay_time_scale", "50")]);
        assert_eq!(half, [(1_000, false), (201_000, true), (began_ns + 800_000, false)]);
        assert_eq!(due(&[("replay_time_scale", "400")])[2].0, began_ns + 100_000);
        assert_eq!(due(&[("replay_no_stall", "1")]), [(0, false), (0, true), (0, false)]);
    }
}
