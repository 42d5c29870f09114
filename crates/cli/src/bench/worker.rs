//! A thread of a job: its channels, and what it does when it has its turn.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use meantime::block::{BlockChannel, Channel, ChannelCounters};
use meantime::completion::calibrate;
use meantime::hw::floor::Floor;
use meantime::hw::{Clock, cpu};

use super::engine::{Ended, Engine, Faults, Limit, Plain, Slots};
use super::pattern::Pattern;
use super::tally::Tally;
use super::usage::Usage;
use super::verify::{Findings, Verified};
use crate::failure::Failure;
use crate::signal;

/// Unmeasured I/O at the beginning of each turn, to fill the caches again.
pub const WARM_UP_NS: u64 = 2_000_000;

/// Longer than a software SSD takes to park, so that it leaves its core to another one's thread.
pub const PARK_PAUSE: Duration = Duration::from_millis(4);

/// What a cell does.
#[derive(Debug)]
pub enum Work {
    /// I/O.
    Plain(Box<Plain>),
    /// I/O whose data is checked.
    Verified(Box<Verified>),
}

/// One device and policy, as one thread sees it.
pub struct CellWork {
    /// The way to the device.
    pub channel: Channel,
    /// Which of the worker's [`Slots`].
    pub slots: usize,
    visited: Visited,
    total: Tally,
    total_usage: Usage,
}

/// What is done on a channel, and what came of it.
struct Visited {
    work: Work,
    /// For I/O that is not recorded; separate, so that it takes nothing from `work`.
    warm_up: Plain,
    slice: Tally,
    slice_usage: Usage,
    faults: Faults,
    finished: bool,
}

impl CellWork {
    /// A cell at its beginning.
    pub fn new(channel: Channel, slots: usize, work: Work, warm_up: Pattern) -> Self {
        Self {
            channel,
            slots,
            visited: Visited {
                work,
                warm_up: Plain(warm_up),
                slice: Tally::default(),
                slice_usage: Usage::default(),
                faults: Faults::default(),
                finished: false,
            },
            total: Tally::default(),
            total_usage: Usage::default(),
        }
    }
}

impl Visited {
    /// A turn: unrecorded I/O, then what is measured.
    fn visit<C: BlockChannel>(
        &mut self,
        channel: &mut C,
        slots: &mut Slots,
        clock: &Clock,
        visit: Visit,
    ) -> VisitReport {
        let Self { work, warm_up, slice, slice_usage, faults, .. } = self;
        slice.reset();
        *slice_usage = Usage::default();
        let mut engine = Engine { channel, slots, clock, stop: &signal::STOP, faults };
        let mut lost = None;
        if visit.warm_up_ns > 0 && !self.finished {
            let limit = Limit { until_ns: clock.now_ns() + visit.warm_up_ns, max_ios: u64::MAX };
            if let Ended::Lost(why) = engine.run(warm_up, limit, None) {
                lost = Some(why);
            }
        }
        // Other threads of the job may have more to do.
        let (mut wall_ns, mut finished) = (0, self.finished);
        while lost.is_none() && !finished {
            let usage = Usage::of_thread();
            let start_ns = clock.now_ns();
            let limit = Limit {
                until_ns: start_ns + (visit.limit_ns - wall_ns),
                max_ios: visit.max_ios.saturating_sub(slice.ios()).max(1),
            };
            let ended = match work {
                Work::Plain(plain) => engine.run(plain.as_mut(), limit, Some(slice)),
                Work::Verified(verified) => engine.run(verified.as_mut(), limit, Some(slice)),
            };
            wall_ns += clock.now_ns() - start_ns;
            *slice_usage += Usage::of_thread() - usage;
            match (ended, &mut *work) {
                (Ended::Lost(why), _) => lost = Some(why),
                (Ended::Limit | Ended::Stopped, _) => break,
                (Ended::Dry, Work::Plain(_)) => finished = true,
                (Ended::Dry, Work::Verified(verified)) => {
                    match read_back(&mut engine, verified) {
                        Ended::Lost(why) => lost = Some(why),
                        Ended::Stopped => break,
                        _ => finished = !verified.pattern.begin_pass(),
                    }
                    if wall_ns >= visit.limit_ns || slice.ios() >= visit.max_ios {
                        break;
                    }
                }
            }
        }
        self.finished = finished;
        VisitReport {
            wall_ns,
            ios: self.slice.ios(),
            bytes: self.slice.bytes(),
            median_ns: self.slice.median_ns(),
            finished,
            lost,
            faults: self.faults.clone(),
            findings: findings(&self.work),
        }
    }

    fn read_back<C: BlockChannel>(
        &mut self,
        channel: &mut C,
        slots: &mut Slots,
        clock: &Clock,
    ) -> VisitReport {
        let Self { work, faults, .. } = self;
        let mut engine = Engine { channel, slots, clock, stop: &signal::STOP, faults };
        let lost = match work {
            Work::Verified(verified) => match read_back(&mut engine, verified) {
                Ended::Lost(why) => Some(why),
                _ => None,
            },
            Work::Plain(_) => None,
        };
        let (faults, findings) = (self.faults.clone(), findings(&self.work));
        VisitReport { lost, faults, findings, ..VisitReport::default() }
    }
}

/// A turn.
#[derive(Debug, Clone, Copy)]
pub struct Visit {
    /// Unrecorded I/O first, for so long.
    pub warm_up_ns: u64,
    /// Measure for so long at most.
    pub limit_ns: u64,
    /// Measure so many I/Os at most.
    pub max_ios: u64,
}

/// What a turn came to.
#[derive(Debug, Clone, Default)]
pub struct VisitReport {
    /// How long it was measured.
    pub wall_ns: u64,
    /// I/Os recorded.
    pub ios: u64,
    /// Bytes recorded.
    pub bytes: u64,
    /// Their median latency.
    pub median_ns: u64,
    /// All that was to be transferred has been.
    pub finished: bool,
    /// The device takes no more I/O, and why.
    pub lost: Option<String>,
    /// I/Os that failed since the job began.
    pub faults: Faults,
    /// What checking found since the job began.
    pub findings: Findings,
}

/// What a cell came to, in one thread.
#[derive(Debug)]
pub struct Totals {
    /// Latencies.
    pub tally: Tally,
    /// CPU time.
    pub usage: Usage,
    /// I/Os that failed.
    pub faults: Faults,
    /// What checking found.
    pub findings: Findings,
    /// The driver's counters.
    pub counters: ChannelCounters,
}

/// The state of a thread of a job.
pub struct Worker {
    /// By device and policy.
    pub cells: Vec<CellWork>,
    /// Buffers by device.
    pub slots: Vec<Slots>,
    /// The floor's other side, by device; in the first thread only.
    pub floors: Vec<Floor>,
    clock: Clock,
}

impl Worker {
    /// A worker with its channels and buffers.
    pub fn new(cells: Vec<CellWork>, slots: Vec<Slots>, floors: Vec<Floor>) -> Self {
        Self { cells, slots, floors, clock: Clock::real() }
    }

    /// Does I/O on `cell`, and keeps the figures apart until [`Worker::settle`].
    pub fn visit(&mut self, cell: usize, visit: Visit) -> VisitReport {
        let Self { cells, slots, clock, .. } = self;
        let CellWork { channel, slots: device, visited, .. } = &mut cells[cell];
        // The one place where the kind of channel is asked for: the loop inside knows it.
        match channel {
            Channel::Nvme(channel) => visited.visit(channel, &mut slots[*device], clock, visit),
            Channel::Kernel(channel) => visited.visit(channel, &mut slots[*device], clock, visit),
        }
    }

    /// Reads back and checks what `cell` wrote, when time was up before its pass had ended.
    pub fn read_back(&mut self, cell: usize) -> VisitReport {
        let Self { cells, slots, clock, .. } = self;
        let CellWork { channel, slots: device, visited, .. } = &mut cells[cell];
        match channel {
            Channel::Nvme(channel) => visited.read_back(channel, &mut slots[*device], clock),
            Channel::Kernel(channel) => visited.read_back(channel, &mut slots[*device], clock),
        }
    }

    /// The figures of the last turn of `cell` count, or are dropped.
    pub fn settle(&mut self, cell: usize, counts: bool) {
        let cell = &mut self.cells[cell];
        if counts {
            cell.total.merge(&cell.visited.slice);
            cell.total_usage += cell.visited.slice_usage;
        }
    }

    /// The floor of the device with index `device`, in ns.
    pub fn floor_ns(&mut self, device: usize, bytes: usize, count: usize) -> Option<f64> {
        let buf = self.slots[device].any_buf()?;
        buf.set_len(bytes);
        Some(self.floors.get_mut(device)?.measure(buf, bytes, count))
    }

    /// The time of a cache line to `cpu` and back, in ns. The software SSDs must have parked.
    pub fn rtt_ns(&self, cpu: usize) -> Option<u64> {
        calibrate::cacheline_rtt(Some(cpu)).ok().map(|times| times.median_ns())
    }

    /// What it all came to; the channels are closed.
    pub fn finish(&mut self) -> Vec<Totals> {
        let totals = self.cells.drain(..).map(|cell| Totals {
            findings: findings(&cell.visited.work),
            counters: cell.channel.counters(),
            tally: cell.total,
            usage: cell.total_usage,
            faults: cell.visited.faults,
        });
        totals.collect()
    }
}

fn read_back<C: BlockChannel>(engine: &mut Engine<'_, C>, verified: &mut Verified) -> Ended {
    engine.run(&mut verified.read_back(), Limit { until_ns: u64::MAX, max_ios: u64::MAX }, None)
}

fn findings(work: &Work) -> Findings {
    match work {
        Work::Verified(verified) => verified.findings().clone(),
        Work::Plain(_) => Findings::default(),
    }
}

type Order = Box<dyn FnOnce(&mut Worker) + Send>;

/// A worker's thread, which does what it is told.
pub struct WorkerThread {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts the thread on `cpus` (anywhere, if empty).
    pub fn start(name: String, mut worker: Worker, cpus: Vec<usize>) -> Result<Self, Failure> {
        let (orders, inbox): (Sender<Order>, Receiver<Order>) = channel();
        let body = move || {
            for order in inbox {
                order(&mut worker);
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(body).map_err(|error| {
            Failure::new(format_args!("cannot start a thread: {error}; use fewer (numjobs)"))
        })?;
        let started = Self { orders: Some(orders), thread: Some(thread) };
        if !cpus.is_empty() {
            let bound = started.ask(move |_| cpu::bind(&cpus));
            received(&bound)?.map_err(Failure::new)?;
        }
        Ok(started)
    }

    /// Has the thread do `order`; the answer comes when it is done.
    pub fn ask<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Receiver<R> {
        let (answer, answers) = channel();
        let boxed: Order = Box::new(move |worker| {
            let _ = answer.send(order(worker));
        });
        if let Some(orders) = &self.orders {
            // A thread that has ended drops the order and with it the answer: `received` finds that.
            let _ = orders.send(boxed);
        }
        answers
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for the answer to an order.
pub fn received<R>(answers: &Receiver<R>) -> Result<R, Failure> {
    answers
        .recv()
        .map_err(|_| Failure::new("a thread of the job ended unexpectedly: this is a bug, please report it"))
}
