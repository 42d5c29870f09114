//! Decides when the I/Os of a job are submitted, and what comes between them: flushes, pauses,
//! rates, the times of a trace, and batches.

use super::pattern::{Dir, Io, Rng};
use super::replay::Times;
use crate::job::{Job, Verify};

/// The shape of the I/O of one thread of a cell, and its state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// Writes are durable when they complete.
    pub fua: bool,
    /// The number of writes after which to flush, or 0 for never.
    sync_every: [u64; 2],
    writes: u64,
    flushed_at: u64,
    think: Option<Think>,
    /// Minimum time between two reads, writes or trims, per I/O, or per byte in millionths.
    spacing: [Option<Spacing>; 3],
    /// Draws the time between two I/Os.
    poisson: Option<Rng>,
    due_ns: [u64; 3],
    /// Time from the end of the last turn until each due time. A negative time means that it was
    /// late.
    carried_ns: [i64; 3],
    /// Sizes of batches.
    pub batch: Reaping,
    /// The times of a trace.
    replay: Option<Times>,
    /// An I/O that was chosen when time was up.
    pub held: Option<Io>,
}

#[derive(Debug, Clone, Copy)]
struct Think {
    pause_ns: u64,
    spin_ns: u64,
    blocks: u64,
    since: u64,
    /// The rest of a pause that a turn's end cut short.
    left_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Spacing {
    PerIo(u64),
    PerByte(f64),
}

/// Sizes of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reaping {
    /// The number submitted at once.
    pub submit: usize,
    /// The minimum number for which to wait, or 0 to poll only.
    pub least: usize,
    /// The maximum number taken at once.
    pub most: usize,
}

impl Shape {
    /// Creates the shape of `job`, or returns `None` if it has none and goes as fast as possible.
    /// `seed` is the seed of the draws.
    pub(crate) fn of(job: &Job, seed: u64) -> Option<Self> {
        let pace = &job.pace;
        let writes = job.writes();
        let syncs = writes && (job.syncing.fsync + job.syncing.fdatasync > 0 || job.syncing.fua);
        let thinks = !pace.thinktime.is_zero();
        let replay = Times::of(job);
        let is_paced = thinks || pace.is_rated() || replay.is_some();
        if !syncs && !is_paced && !job.batch.is_set() {
            return None;
        }
        let depth = job.iodepth as usize;
        let number =
            |figure: Option<u32>, default| figure.map_or(default, |figure| figure as usize);
        let least = number(job.batch.complete_min, 1).min(depth);
        // Without these keys all completed I/Os are taken at once, as in the plain loop.
        let most = if job.batch.complete_min.is_some() { least } else { depth };
        let spacing =
            |direction: usize| match (pace.rate_iops[direction], pace.rate_bytes[direction]) {
                (Some(iops), _) => Some(Spacing::PerIo(1_000_000_000 / iops)),
                (_, Some(rate)) => Some(Spacing::PerByte(1e9 / rate as f64)),
                _ => None,
            };
        // An I/O that is filled for a check is submitted by itself, so that its filling does not
        // count in the latency of others.
        let submit = if job.verify != Verify::None { 1 } else { number(job.batch.submit, depth) };
        Some(Self {
            fua: job.syncing.fua,
            sync_every: if writes { [job.syncing.fsync, job.syncing.fdatasync] } else { [0; 2] },
            think: thinks.then_some(Think {
                pause_ns: pace.thinktime.as_nanos() as u64,
                spin_ns: pace.thinktime_spin.as_nanos() as u64,
                blocks: pace.thinktime_blocks,
                since: 0,
                left_ns: None,
            }),
            // Trims have the rate of writes.
            spacing: [spacing(0), spacing(1), spacing(1)],
            poisson: pace.poisson.then(|| Rng::new(seed)),
            replay,
            batch: Reaping {
                submit: if submit == 0 { depth } else { submit.min(depth) },
                least,
                most: number(job.batch.complete_max, most).max(least).max(1),
            },
            ..Self::default()
        })
    }

    /// Returns the shape without settings that would end a warm-up early or prolong it.
    pub(crate) fn for_warm_up(&self) -> Self {
        let free = Self { sync_every: [0; 2], think: None, spacing: [None; 3], ..self.clone() };
        Self { held: None, replay: None, ..free }
    }

    /// Begins a turn at `now_ns`. Due times keep their distance from the end of the last turn.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.due_ns = self.carried_ns.map(|carried_ns| now_ns.saturating_add_signed(carried_ns));
        self.replay.iter_mut().for_each(|times| times.begin(now_ns));
    }

    /// Ends a turn at `now_ns`.
    pub(crate) fn rest(&mut self, now_ns: u64) {
        self.carried_ns = self.due_ns.map(|due_ns| due_ns.wrapping_sub(now_ns) as i64);
        self.replay.iter_mut().for_each(|times| times.rest(now_ns));
    }

    /// Returns whether a flush must come before the next I/O.
    pub(crate) fn is_flush_due(&self) -> bool {
        self.writes > self.flushed_at
            && self.sync_every.iter().any(|every| *every > 0 && self.writes.is_multiple_of(*every))
    }

    /// Records that the flush completed.
    pub(crate) fn flushed(&mut self) {
        self.flushed_at = self.writes;
        if self.step().is_some_and(|(_, is_flush)| is_flush) {
            self.advance();
        }
    }

    /// Returns when the next step of a trace is due, 0 if at once, and whether it is a flush.
    pub(crate) fn step(&self) -> Option<(u64, bool)> {
        self.replay.as_ref()?.next()
    }

    fn advance(&mut self) {
        self.replay.iter_mut().for_each(Times::advance);
    }

    /// Returns the pause that must come before the next I/O, and the part of it that the thread
    /// spins.
    pub(crate) fn pause(&mut self) -> Option<(u64, u64)> {
        let think = self.think.as_mut()?;
        if let Some(left_ns) = think.left_ns.take() {
            return Some((left_ns, think.spin_ns.min(left_ns)));
        }
        if think.since < think.blocks {
            return None;
        }
        think.since = 0;
        Some((think.pause_ns, think.spin_ns))
    }

    /// Keeps the rest of a pause that was cut short. It comes before the next I/O.
    pub(crate) fn pause_left(&mut self, left_ns: u64) {
        if let Some(think) = &mut self.think {
            think.left_ns = Some(left_ns);
        }
    }

    /// Returns the earliest time at which `io` may be submitted.
    pub(crate) fn due_ns(&self, io: &Io) -> Option<u64> {
        let direction = io.dir as usize;
        self.spacing[direction].map(|_| self.due_ns[direction])
    }

    /// Records that `io` is submitted now.
    pub(crate) fn submits(&mut self, io: &Io) {
        let direction = io.dir as usize;
        // The next time is relative to the due time, not to now, so a late I/O does not delay later
        // ones.
        let mean_ns = match self.spacing[direction] {
            Some(Spacing::PerIo(ns)) => ns,
            Some(Spacing::PerByte(ns)) => (ns * io.bytes as f64) as u64,
            None => 0,
        };
        self.due_ns[direction] += match &mut self.poisson {
            // The value is drawn from the unit interval without 0, whose logarithm is infinite.
            Some(rng) => (mean_ns as f64 * -(1.0 - rng.unit()).ln()) as u64,
            None => mean_ns,
        };
        self.writes += u64::from(io.dir == Dir::Write);
        self.advance();
        if let Some(think) = &mut self.think {
            think.since += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::testing::job;

    const WRITE: Io = Io { dir: Dir::Write, lba: 0, bytes: 4096 };
    const READ: Io = Io { dir: Dir::Read, lba: 0, bytes: 4096 };

    fn shape(keys: &[(&str, &str)]) -> Shape {
        Shape::of(&job(keys), 1).unwrap()
    }

    #[test]
    fn a_plain_job_has_no_shape() {
        for keys in
            [&[][..], &[("iodepth", "32")], &[("rw", "randread"), ("rate", "0")], &[("fsync", "1")]]
        {
            assert!(Shape::of(&job(keys), 1).is_none(), "{keys:?}");
        }
    }

    #[test]
    fn a_flush_is_due_once_after_so_many_writes() {
        let mut shape = shape(&[("rw", "write"), ("fsync", "3"), ("fdatasync", "4")]);
        let mut due = Vec::new();
        for at in 1..=12 {
            shape.submits(&WRITE);
            shape.submits(&READ);
            if shape.is_flush_due() {
                due.push(at);
                shape.flushed();
            }
            assert!(!shape.is_flush_due());
        }
        assert_eq!(due, [3, 4, 6, 8, 9, 12]);
    }

    #[test]
    fn rates_are_kept_on_average() {
        let mut rated = shape(&[("rw", "randrw"), ("rate_iops", "1000,2000")]);
        rated.begin(5_000);
        for at in 0..10 {
            assert_eq!(rated.due_ns(&READ), Some(5_000 + at * 1_000_000));
            assert_eq!(rated.due_ns(&WRITE), Some(5_000 + at * 500_000));
            rated.submits(&READ);
            rated.submits(&WRITE);
        }
        let mut bytes = shape(&[("rate", "4096000")]);
        bytes.begin(0);
        bytes.submits(&READ);
        assert_eq!(bytes.due_ns(&READ), Some(1_000_000));
    }

    #[test]
    fn a_pause_comes_after_so_many() {
        let mut shape =
            shape(&[("thinktime", "100"), ("thinktime_spin", "30"), ("thinktime_blocks", "2")]);
        let pauses: Vec<_> = (0..5)
            .map(|_| {
                shape.submits(&READ);
                shape.pause()
            })
            .collect();
        assert_eq!(pauses, [None, Some((100_000, 30_000)), None, Some((100_000, 30_000)), None]);
    }

    #[test]
    fn batches_default_to_what_fio_says() {
        let of = |keys: &[(&str, &str)]| shape(&[&[("iodepth", "16")], keys].concat()).batch;
        assert_eq!(of(&[("iodepth_batch", "4")]), Reaping { submit: 4, least: 1, most: 16 });
        assert_eq!(of(&[("iodepth_batch", "0")]).submit, 16);
        assert_eq!(
            of(&[("iodepth_batch_complete", "4")]),
            Reaping { submit: 16, least: 4, most: 4 }
        );
        let both = of(&[("iodepth_batch_complete_min", "0"), ("iodepth_batch_complete_max", "8")]);
        assert_eq!((both.least, both.most), (0, 8));
    }
}
