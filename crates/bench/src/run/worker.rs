//! A thread of a job: its channels, and its part in a turn.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use meantime_block::{BlockChannel, Channel, ChannelCounters};
use meantime_completion::calibrate;
use meantime_hw::{Clock, SchedClass, SchedError, ThreadUsage};
use meantime_report::run::{LatencyStats, LogRows};

use super::error::RunError;
use super::floor::DeviceFloor;
use super::logs::Log;
use super::tally::{Logged, Tally, Watched};
use super::target::TargetChannel;
use super::watch::{CellWatch, WatchedThread};
use crate::engine::{Ended, Engine, Faults, Limit, Record, Slots, Source, Unrecorded};
use crate::shape::Shape;
use crate::trim::Trims;
use crate::verify::{Course, Findings, Verified};

/// Unmeasured I/O at the beginning of each turn, to warm the caches again.
pub(super) const WARM_UP_NS: u64 = 2_000_000;

/// Longer than a software SSD takes to park, so that its core is free for another one's thread.
pub(super) const PARK_PAUSE: Duration = Duration::from_millis(4);

/// The work of a cell.
#[derive(Debug)]
pub(crate) enum Work {
    /// I/O.
    Course(Course),
    /// Deallocation.
    Trims(Box<Trims>),
    /// I/O whose data is checked.
    Verified(Box<Verified>),
}

/// The task of one thread on one device with one policy.
pub(crate) struct Task {
    /// The work.
    pub work: Work,
    /// Work for unrecorded I/O. It is separate, so that it takes nothing from `work`.
    pub warm_up: Work,
    /// The shape, if not as fast as possible.
    pub shape: Option<Shape>,
    /// The log, if there is one.
    pub log: Option<Log>,
    /// End after this number of I/Os.
    pub number_ios: Option<u64>,
}

/// One device and policy of one thread.
pub(crate) struct CellWork {
    /// The channel to the device.
    pub channel: TargetChannel,
    /// Index of the worker's [`Slots`].
    pub slots: usize,
    /// The thread's scheduling class in its turns.
    sched: Option<SchedClass>,
    visited: Visited,
    total: Counted,
}

/// The counters of a turn, or of all turns.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Latencies.
    pub tally: Tally,
    /// CPU time.
    pub usage: ThreadUsage,
    /// Measured time.
    pub wall_ns: u64,
}

impl Counted {
    /// Discards everything. Allocations stay.
    fn reset(&mut self) {
        self.tally.reset();
        (self.usage, self.wall_ns) = (ThreadUsage::default(), 0);
    }

    /// Adds the counters of `other`.
    fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.usage += other.usage;
        self.wall_ns += other.wall_ns;
    }
}

/// The task of a channel, and its results.
struct Visited {
    task: Task,
    warm_up_shape: Option<Shape>,
    slice: Counted,
    faults: Faults,
    finished: bool,
    stop: &'static AtomicBool,
}

impl CellWork {
    /// Creates a cell at its beginning.
    pub(crate) fn new(
        channel: TargetChannel,
        slots: usize,
        sched: Option<SchedClass>,
        task: Task,
        stop: &'static AtomicBool,
    ) -> Self {
        Self { channel, slots, sched, visited: Visited::new(task, stop), total: Counted::default() }
    }
}

impl Visited {
    fn new(task: Task, stop: &'static AtomicBool) -> Self {
        Self {
            warm_up_shape: task.shape.as_ref().map(Shape::for_warm_up),
            task,
            slice: Counted::default(),
            faults: Faults::default(),
            finished: false,
            stop,
        }
    }

    /// Runs a turn, with unrecorded I/O first, and then the measurement.
    fn visit<C: BlockChannel>(
        &mut self,
        channel: &mut C,
        slots: &mut Slots,
        clock: &Clock,
        visit: Visit,
        mut at_ns: u64,
        watch: Option<CellWatch<'_>>,
    ) -> VisitReport {
        let Self { task, warm_up_shape, slice, faults, stop, .. } = self;
        slice.reset();
        if let Some(log) = task.log.as_mut().filter(|_| !self.finished) {
            log.make_room();
        }
        let mut engine = Engine { channel, slots, clock, stop, faults };
        let mut lost = None;
        if visit.warm_up_ns > 0 && !self.finished {
            let limit = Limit { until_ns: clock.now_ns() + visit.warm_up_ns, ..Limit::NONE };
            let shape = warm_up_shape.as_mut();
            lost = run(&mut engine, &mut task.warm_up, shape, limit, &mut Unrecorded).lost();
        }
        // This thread may be finished while others of the job are not.
        let (mut spent_ns, mut checked_ns, mut finished) = (0, 0, self.finished);
        while lost.is_none() && !finished {
            let usage = ThreadUsage::of_thread();
            let (start_ns, errors_before, ios_before) =
                (clock.now_ns(), engine.faults.errors, slice.tally.ios());
            slice.tally.series.begin(start_ns, at_ns);
            let limit = Limit {
                until_ns: start_ns + (visit.limit_ns - spent_ns),
                max_ios: visit
                    .max_ios
                    .saturating_sub(slice.tally.ios())
                    .max(1)
                    .min(task.number_ios.unwrap_or(u64::MAX)),
            };
            let shape = task.shape.as_mut();
            let (tally, mut log) = (&mut slice.tally, task.log.as_mut());
            if let Some(log) = &mut log {
                log.begin(start_ns, at_ns);
            }
            let (on, work) = (&mut engine, &mut task.work);
            let ended = match (log, watch) {
                (None, None) => run(on, work, shape, limit, tally),
                (Some(log), None) => run(on, work, shape, limit, &mut Logged(tally, log)),
                (log, Some(watch)) => {
                    run(on, work, shape, limit, &mut Watched { tally, log, watch })
                }
            };
            let wall_ns = clock.now_ns() - start_ns;
            spent_ns += wall_ns;
            at_ns += wall_ns;
            slice.wall_ns += wall_ns;
            slice.usage += ThreadUsage::of_thread() - usage;
            let ios = slice.tally.ios();
            if let Some(left) = &mut task.number_ios {
                *left -= (ios - ios_before + engine.faults.errors - errors_before).min(*left);
                finished = *left == 0;
            }
            match (ended, &mut task.work) {
                (Ended::Lost(why), _) => lost = Some(why),
                (Ended::Limit | Ended::Stopped, _) => break,
                (Ended::Dry, Work::Verified(verified)) => {
                    let read_back_ns = clock.now_ns();
                    let ended = read_back(&mut engine, verified);
                    let passed_ns = clock.now_ns() - read_back_ns;
                    spent_ns += passed_ns;
                    checked_ns += passed_ns;
                    match ended {
                        Ended::Lost(why) => lost = Some(why),
                        Ended::Stopped => break,
                        _ => finished |= !verified.course.begin_pass(),
                    }
                    if spent_ns >= visit.limit_ns || ios >= visit.max_ios {
                        break;
                    }
                }
                (Ended::Dry, _) => finished = true,
            }
        }
        self.finished = finished;
        let tally = &self.slice.tally;
        VisitReport {
            wall_ns: spent_ns - checked_ns,
            checked_ns,
            bytes: tally.bytes(),
            latency: tally.latency(),
            usage: self.slice.usage,
            finished,
            ..self.report(lost)
        }
    }

    fn read_back<C: BlockChannel>(
        &mut self,
        channel: &mut C,
        slots: &mut Slots,
        clock: &Clock,
    ) -> VisitReport {
        let Self { task, faults, stop, .. } = self;
        let mut engine = Engine { channel, slots, clock, stop, faults };
        let lost = match &mut task.work {
            Work::Verified(verified) => read_back(&mut engine, verified).lost(),
            _ => None,
        };
        self.report(lost)
    }

    fn flush<C: BlockChannel>(
        &mut self,
        channel: &mut C,
        slots: &mut Slots,
        clock: &Clock,
    ) -> VisitReport {
        let Self { faults, stop, .. } = self;
        let mut engine = Engine { channel, slots, clock, stop, faults };
        let lost = engine.flush_once().err().and_then(Ended::lost);
        self.report(lost)
    }

    fn report(&self, lost: Option<String>) -> VisitReport {
        let (faults, findings) = (self.faults.clone(), findings(&self.task.work));
        VisitReport { lost, faults, findings, ..VisitReport::default() }
    }
}

/// Runs the loop for the kind of work, which is chosen here, outside the loop.
fn run<C: BlockChannel, R: Record>(
    engine: &mut Engine<'_, C>,
    work: &mut Work,
    shape: Option<&mut Shape>,
    limit: Limit,
    record: &mut R,
) -> Ended {
    fn of<C: BlockChannel, S: Source, R: Record>(
        engine: &mut Engine<'_, C>,
        source: &mut S,
        shape: Option<&mut Shape>,
        limit: Limit,
        record: &mut R,
    ) -> Ended {
        match shape {
            Some(shape) => engine.run_shaped(source, shape, limit, record),
            None => engine.run(source, limit, record),
        }
    }
    match work {
        Work::Course(Course::Plain(pattern)) => of(engine, pattern.as_mut(), shape, limit, record),
        Work::Course(Course::Varied(varied)) => of(engine, varied.as_mut(), shape, limit, record),
        Work::Course(Course::Replay(replay)) => of(engine, replay.as_mut(), shape, limit, record),
        Work::Trims(trims) => of(engine, trims.as_mut(), shape, limit, record),
        Work::Verified(verified) => of(engine, verified.as_mut(), shape, limit, record),
    }
}

/// A turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    /// Time of unrecorded I/O at its beginning.
    pub warm_up_ns: u64,
    /// Maximum time to measure, and to read back what was written. A pass that has ended is read
    /// back to its end.
    pub limit_ns: u64,
    /// Maximum number of I/Os to measure.
    pub max_ios: u64,
}

/// The result of a turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct VisitReport {
    /// Measured time.
    pub wall_ns: u64,
    /// Time to read back passes that ended in it.
    pub checked_ns: u64,
    /// Bytes recorded.
    pub bytes: u64,
    /// The latencies of the I/Os recorded, if there were any.
    pub latency: Option<LatencyStats>,
    /// CPU time in the measured time.
    pub usage: ThreadUsage,
    /// Whether all is transferred.
    pub finished: bool,
    /// Why the device takes no more I/O, if so.
    pub lost: Option<String>,
    /// I/Os that failed since the job began.
    pub faults: Faults,
    /// Results of the checks since the job began.
    pub findings: Findings,
}

/// The result of a cell, in one thread.
#[derive(Debug)]
pub(crate) struct Totals {
    /// Latencies, CPU time and measured time.
    pub counted: Counted,
    /// I/Os that failed.
    pub faults: Faults,
    /// Results of the checks.
    pub findings: Findings,
    /// The log.
    pub log: Option<LogRows>,
    /// The driver's counters.
    pub counters: ChannelCounters,
}

/// The state of a thread of a job.
pub(crate) struct Worker {
    /// The work by device and policy.
    pub cells: Vec<CellWork>,
    /// Buffers by device.
    pub slots: Vec<Slots>,
    /// The floors by device. Only the first thread has them.
    pub floors: Vec<DeviceFloor>,
    /// What other threads see, if any looks.
    watched: Option<Arc<WatchedThread>>,
    clock: Clock,
}

/// Runs `$body` with a channel of its own kind. Only this macro distinguishes the kinds. The loop
/// inside is compiled for each.
macro_rules! of_kind {
    ($channel:ident => $body:expr) => {
        match $channel {
            TargetChannel::Device(Channel::Nvme($channel)) => $body,
            TargetChannel::Device(Channel::Kernel($channel)) => $body,
            TargetChannel::File($channel) => $body,
        }
    };
}

impl Worker {
    /// Creates a worker with its channels and buffers.
    pub(crate) fn new(
        cells: Vec<CellWork>,
        slots: Vec<Slots>,
        floors: Vec<DeviceFloor>,
        watched: Option<Arc<WatchedThread>>,
    ) -> Self {
        Self { cells, slots, floors, watched, clock: Clock::real() }
    }

    /// Does I/O on `cell`, in its scheduling class, and keeps the figures separate until
    /// [`Worker::count_turn`].
    pub(crate) fn visit(&mut self, cell: usize, visit: Visit) -> Result<VisitReport, SchedError> {
        let Self { cells, slots, clock, watched, .. } = self;
        let watch = watched.as_ref().map(|thread| thread.cell(cell));
        let CellWork { channel, slots: device, sched, visited, total } = &mut cells[cell];
        let slots = &mut slots[*device];
        let _class = sched.map(SchedClass::apply_to_this_thread).transpose()?;
        Ok(of_kind!(channel => visited.visit(channel, slots, clock, visit, total.wall_ns, watch)))
    }

    /// Reads back and checks the writes of `cell`, when time ended before its pass.
    pub(crate) fn read_back(&mut self, cell: usize) -> VisitReport {
        let Self { cells, slots, clock, .. } = self;
        let CellWork { channel, slots: device, visited, .. } = &mut cells[cell];
        of_kind!(channel => visited.read_back(channel, &mut slots[*device], clock))
    }

    /// Makes the writes of `cell` durable.
    pub(crate) fn flush(&mut self, cell: usize) -> VisitReport {
        let Self { cells, slots, clock, .. } = self;
        let CellWork { channel, slots: device, visited, .. } = &mut cells[cell];
        of_kind!(channel => visited.flush(channel, &mut slots[*device], clock))
    }

    /// Counts the figures of the last turn of `cell`, or drops them.
    pub(crate) fn count_turn(&mut self, cell: usize, counts: bool) {
        let CellWork { visited, total, .. } = &mut self.cells[cell];
        if counts {
            total.merge(&visited.slice);
        } else if let Some(log) = &mut visited.task.log {
            log.undo();
        }
    }

    /// Returns the floor of the device with index `device`, in ns.
    pub(crate) fn floor_ns(
        &mut self,
        device: usize,
        bytes: usize,
        count: usize,
    ) -> Result<Option<f64>, RunError> {
        let Some((buf, floor)) = self.slots[device].any_buf().zip(self.floors.get_mut(device))
        else {
            return Ok(None);
        };
        buf.set_len(bytes);
        let measured = floor.measure(buf, count);
        measured.map(Some).map_err(|error| RunError::new(format_args!("--floor: {error}")))
    }

    /// Returns the time of a cache line to `cpu` and back, in ns. The software SSDs must have
    /// parked.
    pub(crate) fn rtt_ns(&self, cpu: usize) -> Option<u64> {
        calibrate::cacheline_rtt(Some(cpu)).ok().map(|times| times.median_ns())
    }

    /// Returns the results of all cells, and closes the channels.
    pub(crate) fn finish(&mut self) -> Vec<Totals> {
        let totals = self.cells.drain(..).map(|cell| Totals {
            findings: findings(&cell.visited.task.work),
            counters: cell.channel.counters(),
            counted: cell.total,
            faults: cell.visited.faults,
            log: cell.visited.task.log.map(Log::finish),
        });
        totals.collect()
    }
}

fn read_back<C: BlockChannel>(engine: &mut Engine<'_, C>, verified: &mut Verified) -> Ended {
    engine.run(&mut verified.read_back(), Limit::NONE, &mut Unrecorded)
}

fn findings(work: &Work) -> Findings {
    match work {
        Work::Verified(verified) => verified.findings.clone(),
        _ => Findings::default(),
    }
}
