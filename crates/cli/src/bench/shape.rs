//! When the I/Os of a job are submitted, and what comes between them: flushes, pauses, rates, batches, and the search
//! for the depth that keeps a latency.

use super::pattern::{Dir, Io};
use crate::job::{Job, LatencyTarget, Verify};

/// What shapes the I/O of one thread of a cell, and how far that is.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Writes are durable when they are done.
    pub fua: bool,
    /// Flush after so many writes; 0: never.
    sync_every: [u64; 2],
    writes: u64,
    flushed_at: u64,
    think: Option<Think>,
    /// Least time between two reads, two writes: per I/O, and per byte in millionths.
    spacing: [Option<Spacing>; 2],
    due_ns: [u64; 2],
    batch: Reaping,
    target: Option<Search>,
    /// An I/O that was chosen when time was up.
    pub held: Option<Io>,
}

#[derive(Debug, Clone, Copy)]
struct Think {
    pause_ns: u64,
    spin_ns: u64,
    blocks: u64,
    since: u64,
}

#[derive(Debug, Clone, Copy)]
enum Spacing {
    PerIo(u64),
    PerByte(f64),
}

/// How many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaping {
    /// Submit so many at once.
    pub submit: usize,
    /// Wait for so many; 0: only look.
    pub least: usize,
    /// Take so many at most.
    pub most: usize,
    /// Once full, let so many be left before submitting again.
    pub low: usize,
}

impl Shape {
    /// The shape of `job`; `None`: as fast as may be, and nothing in between.
    pub fn of(job: &Job) -> Option<Self> {
        let pace = &job.pace;
        let writes = job.writes();
        let syncs = writes && (job.syncing.fsync + job.syncing.fdatasync > 0 || job.syncing.fua);
        let thinks = !pace.thinktime.is_zero();
        if !syncs && !thinks && !pace.is_rated() && !job.batch.is_set() && job.latency_target.target.is_none()
        {
            return None;
        }
        let depth = job.iodepth as usize;
        let number = |figure: Option<u32>, default: usize| figure.map_or(default, |figure| figure as usize);
        let least = number(job.batch.complete_min, 1).min(depth);
        let spacing = |direction: usize| match (pace.rate_iops[direction], pace.rate_bytes[direction]) {
            (Some(iops), _) => Some(Spacing::PerIo(1_000_000_000 / iops)),
            (_, Some(rate)) => Some(Spacing::PerByte(1e9 / rate as f64)),
            _ => None,
        };
        // Each I/O that is filled for a check is submitted by itself, for the sake of the others' latencies.
        let submit = if job.verify == Verify::Crc32c { 1 } else { number(job.batch.submit, depth) };
        Some(Self {
            fua: job.syncing.fua,
            sync_every: if writes { [job.syncing.fsync, job.syncing.fdatasync] } else { [0; 2] },
            writes: 0,
            flushed_at: 0,
            think: thinks.then_some(Think {
                pause_ns: pace.thinktime.as_nanos() as u64,
                spin_ns: pace.thinktime_spin.as_nanos() as u64,
                blocks: pace.thinktime_blocks,
                since: 0,
            }),
            spacing: [spacing(0), spacing(1)],
            due_ns: [0; 2],
            batch: Reaping {
                submit: if submit == 0 { depth } else { submit.min(depth) },
                least,
                // Without any of the keys all that has completed is taken at once, as the plain loop does.
                most: number(
                    job.batch.complete_max,
                    if job.batch.complete_min.is_some() { least } else { depth },
                )
                .max(least)
                .max(1),
                low: number(job.batch.low, depth),
            },
            target: Search::new(&job.latency_target, depth),
            held: None,
        })
    }

    /// Without what would end a warm-up early or stretch it.
    pub fn for_warm_up(&self) -> Self {
        Self { sync_every: [0; 2], think: None, spacing: [None; 2], target: None, held: None, ..self.clone() }
    }

    /// A turn begins at `now_ns`: what is due is due from now on.
    pub fn begin(&mut self, now_ns: u64) {
        self.due_ns = [now_ns; 2];
        if let Some(search) = &mut self.target {
            search.begin(now_ns);
        }
    }

    /// A turn ends at `now_ns`.
    pub fn rest(&mut self, now_ns: u64) {
        if let Some(search) = &mut self.target {
            search.rest(now_ns);
        }
    }

    /// How many at once.
    pub fn batch(&self) -> Reaping {
        self.batch
    }

    /// How many may be in flight.
    pub fn depth(&self, most: usize) -> usize {
        self.target.as_ref().map_or(most, |search| search.depth)
    }

    /// Whether a flush must come before the next I/O.
    pub fn is_flush_due(&self) -> bool {
        self.writes > self.flushed_at
            && self.sync_every.iter().any(|every| *every > 0 && self.writes.is_multiple_of(*every))
    }

    /// It has come.
    pub fn flushed(&mut self) {
        self.flushed_at = self.writes;
    }

    /// The pause that must come before the next I/O, and how much of it is spent busily.
    pub fn pause(&mut self) -> Option<(u64, u64)> {
        let think = self.think.as_mut().filter(|think| think.since >= think.blocks)?;
        think.since = 0;
        Some((think.pause_ns, think.spin_ns))
    }

    /// When `io` may be submitted at the earliest.
    pub fn due_ns(&self, io: &Io) -> Option<u64> {
        let direction = io.dir as usize;
        self.spacing[direction].map(|_| self.due_ns[direction])
    }

    /// `io` is submitted now.
    pub fn submits(&mut self, io: &Io) {
        let direction = io.dir as usize;
        // From when it was due, not from now: what came late is caught up.
        self.due_ns[direction] += match self.spacing[direction] {
            Some(Spacing::PerIo(ns)) => ns,
            Some(Spacing::PerByte(ns)) => (ns * io.bytes as f64) as u64,
            None => 0,
        };
        self.writes += u64::from(io.dir == Dir::Write);
        if let Some(think) = &mut self.think {
            think.since += 1;
        }
    }

    /// An I/O took so long.
    #[inline]
    pub fn took(&mut self, latency_ns: u64) {
        if let Some(search) = &mut self.target {
            search.ios += 1;
            search.late += u64::from(latency_ns > search.target_ns);
            search.worst_ns = search.worst_ns.max(latency_ns);
        }
    }

    /// Whether the depth is to change.
    #[inline]
    pub fn judge(&mut self, now_ns: u64) -> Verdict {
        self.target.as_mut().map_or(Verdict::GoOn, |search| search.judge(now_ns))
    }

    /// The depth that was found, or is being tried.
    pub fn target_depth(&self) -> Option<u32> {
        self.target.as_ref().map(|search| search.depth as u32)
    }
}

/// What a look at the latencies led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing changes.
    GoOn,
    /// Another depth, once nothing is in flight.
    Changed,
    /// The depth is found: what is measured from now on counts.
    Found,
    /// It has been measured.
    Done,
    /// Not even one at a time keeps it: this was the worst.
    Hopeless(u64),
}

/// The search for the greatest depth that keeps a latency, as fio goes about it: double until it fails, then bisect.
#[derive(Debug, Clone)]
struct Search {
    target_ns: u64,
    window_ns: u64,
    /// In millionths of a percent.
    percentile_ppm: u64,
    goes_on: bool,
    depth_max: usize,
    depth: usize,
    low: usize,
    high: usize,
    /// Successes in a row just below `high`.
    stable: u32,
    is_final: bool,
    began_ns: u64,
    /// Of the window, in earlier turns.
    before_ns: u64,
    ios: u64,
    late: u64,
    worst_ns: u64,
}

/// So many successes just below a depth that failed once, and it is tried again.
const STABLE: u32 = 3;

impl Search {
    fn new(keys: &LatencyTarget, depth_max: usize) -> Option<Self> {
        Some(Self {
            target_ns: keys.target?.as_nanos() as u64,
            window_ns: keys.window.as_nanos() as u64,
            percentile_ppm: keys.percentile_ppm,
            goes_on: keys.run,
            depth_max,
            depth: 1,
            low: 1,
            high: depth_max,
            stable: 0,
            is_final: false,
            began_ns: 0,
            before_ns: 0,
            ios: 0,
            late: 0,
            worst_ns: 0,
        })
    }

    fn begin(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
    }

    fn rest(&mut self, now_ns: u64) {
        self.before_ns += now_ns - self.began_ns;
    }

    fn judge(&mut self, now_ns: u64) -> Verdict {
        // Where all have to keep it, one is enough to tell.
        let all = self.percentile_ppm == 100_000_000;
        if all && self.late > 0 {
            return self.failed(now_ns);
        }
        if self.ios == 0 || self.before_ns + (now_ns - self.began_ns) < self.window_ns {
            return Verdict::GoOn;
        }
        let kept = u128::from(self.ios - self.late) * 100_000_000;
        if kept >= u128::from(self.ios) * u128::from(self.percentile_ppm) {
            self.succeeded(now_ns)
        } else {
            self.failed(now_ns)
        }
    }

    fn next_window(&mut self, now_ns: u64) {
        (self.began_ns, self.before_ns) = (now_ns, 0);
        (self.ios, self.late, self.worst_ns) = (0, 0, 0);
    }

    fn failed(&mut self, now_ns: u64) -> Verdict {
        if self.depth == 1 {
            return Verdict::Hopeless(self.worst_ns);
        }
        self.high = self.depth;
        if self.depth == self.low {
            self.low -= 1;
        }
        self.depth = ((self.depth + self.low) / 2).max(1);
        (self.stable, self.is_final) = (0, false);
        self.next_window(now_ns);
        Verdict::Changed
    }

    fn succeeded(&mut self, now_ns: u64) -> Verdict {
        let before = self.depth;
        self.low = self.depth;
        if self.depth + 1 == self.high {
            self.stable += 1;
            if self.stable >= STABLE {
                (self.high, self.stable) = ((self.high + 1).min(self.depth_max), 0);
            }
        }
        // Nothing has failed yet: double.
        let next = if self.high == self.depth_max { self.depth * 2 } else { (self.depth + self.high) / 2 };
        self.depth = next.min(self.depth_max);
        self.next_window(now_ns);
        match (self.depth == before, self.goes_on, self.is_final) {
            (false, ..) => Verdict::Changed,
            (true, true, _) => Verdict::GoOn,
            (true, false, true) => Verdict::Done,
            (true, false, false) => {
                self.is_final = true;
                Verdict::Found
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Origin;

    const WRITE: Io = Io { dir: Dir::Write, lba: 0, bytes: 4096 };
    const READ: Io = Io { dir: Dir::Read, lba: 0, bytes: 4096 };

    fn job(keys: &[(&str, &str)]) -> Job {
        let mut job = Job::new("a");
        for (key, value) in keys {
            job.set(key, Some(value), &Origin::CommandLine).unwrap();
        }
        job
    }

    fn shape(keys: &[(&str, &str)]) -> Shape {
        Shape::of(&job(keys)).unwrap()
    }

    #[test]
    fn a_plain_job_has_no_shape() {
        for keys in [&[][..], &[("iodepth", "32")], &[("rw", "randread"), ("rate", "0")], &[("fsync", "1")]] {
            assert!(Shape::of(&job(keys)).is_none(), "{keys:?}");
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
        let mut shape = shape(&[("thinktime", "100"), ("thinktime_spin", "30"), ("thinktime_blocks", "2")]);
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
        let of = |keys: &[(&str, &str)]| shape(&[&[("iodepth", "16")], keys].concat()).batch();
        assert_eq!(of(&[("iodepth_batch", "4")]), Reaping { submit: 4, least: 1, most: 16, low: 16 });
        assert_eq!(of(&[("iodepth_batch", "0")]).submit, 16);
        assert_eq!(
            of(&[("iodepth_batch_complete", "4")]),
            Reaping { submit: 16, least: 4, most: 4, low: 16 }
        );
        let both = of(&[("iodepth_batch_complete_min", "0"), ("iodepth_batch_complete_max", "8")]);
        assert_eq!((both.least, both.most), (0, 8));
        assert_eq!(of(&[("iodepth_low", "2")]).low, 2);
    }

    /// A device that keeps 100 µs up to a depth of `good`.
    fn search(good: usize, depth_max: &str, percentile: &str) -> (Vec<usize>, Verdict) {
        let mut shape = shape(&[
            ("iodepth", depth_max),
            ("latency_target", "100"),
            ("latency_window", "1ms"),
            ("latency_percentile", percentile),
        ]);
        let (mut now_ns, mut tried) = (0, vec![1]);
        shape.begin(0);
        for _ in 0..100 {
            for at in 0..100 {
                shape.took(if at == 7 && shape.depth(0) > good { 150_000 } else { 90_000 });
            }
            now_ns += 1_000_000;
            match shape.judge(now_ns) {
                Verdict::GoOn => {}
                Verdict::Changed | Verdict::Found => tried.push(shape.depth(0)),
                end => return (tried, end),
            }
        }
        panic!("no end: {tried:?}")
    }

    #[test]
    fn the_depth_is_found() {
        assert_eq!(search(11, "64", "100"), (vec![1, 2, 4, 8, 16, 12, 10, 11, 11], Verdict::Done));
        assert_eq!(search(100, "16", "100"), (vec![1, 2, 4, 8, 16, 16], Verdict::Done));
        assert_eq!(search(0, "16", "100"), (vec![1], Verdict::Hopeless(150_000)));
        // One in a hundred is late, and may be.
        assert_eq!(search(4, "16", "99").1, Verdict::Done);
        assert_eq!(search(4, "16", "99").0.last(), Some(&16));
        assert_eq!(search(4, "16", "99.5").0.last(), Some(&4));
    }
}
