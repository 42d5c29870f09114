//! Runs one job: its devices and policies in turns.

use meantime::block::{BlockChannel, BlockDevice, ChannelOptions};
use meantime::completion::Policy;
use meantime::hw::cpu;
use meantime::hw::floor::Floor;

use super::devices::Devices;
use super::engine::{Plain, Slots};
use super::fill;
use super::pattern::Pattern;
use super::plan::JobPlan;
use super::progress::Progress;
use super::results;
use super::schedule::{CellState, Rtts, Turns, warm_up_ns};
use super::verify::Verified;
use super::worker::{CellWork, PARK_PAUSE, VisitReport, Work, Worker, WorkerThread, received};
use crate::failure::{Failure, named, warn};
use crate::report::RunResult;
use crate::signal;

/// How long a measurement of the floor is to take. Below, cold page tables show.
const FLOOR_NS: u64 = 10_000_000;

/// What one job came to.
pub struct JobOutcome {
    /// By device and policy; without those that had no turn.
    pub results: Vec<RunResult>,
    /// The cache-line time while it ran.
    pub rtts: Rtts,
}

/// A cell: indices into the plan.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// Into the plan's devices, and the workers' slots.
    device: usize,
    policy: Policy,
}

struct Run<'a> {
    plan: &'a JobPlan,
    devices: &'a Devices,
    cells: Vec<Cell>,
    states: Vec<CellState>,
    threads: Vec<WorkerThread>,
    turns: Turns,
    rtts: Rtts,
    floor: bool,
    /// How many more turns may be done again.
    repeats_left: u64,
}

/// Runs `plan`.
pub fn run(
    plan: &JobPlan,
    devices: &mut Devices,
    rounds: Option<u32>,
    floor: bool,
    progress: &mut Progress,
) -> Result<JobOutcome, Failure> {
    progress.job(&plan.job.name);
    fill::fill(plan, devices, progress)?;
    let cells: Vec<Cell> = (0..plan.devices.len())
        .flat_map(|device| plan.policies.iter().map(move |policy| Cell { device, policy: *policy }))
        .collect();
    let threads = start_threads(plan, devices, &cells, floor)?;
    let thread_bytes = Pattern::total_bytes(&plan.pattern(devices.get(plan.devices[0]).info(), 0));
    let turns = Turns::new(plan, thread_bytes, rounds, floor);
    let mut run = Run {
        plan,
        devices,
        states: cells.iter().map(|_| CellState::default()).collect(),
        repeats_left: 2 * cells.len() as u64,
        cells,
        threads,
        turns,
        rtts: Rtts::default(),
        floor,
    };
    run.probe(0)?;
    if plan.verifies() {
        // In turn and whole: they write to the same blocks.
        for cell in 0..run.cells.len() {
            while !signal::stopped() && run.turn(cell, progress)? {}
            run.check_rest(cell)?;
        }
    } else {
        let mut going = true;
        while going && !signal::stopped() {
            going = false;
            for cell in 0..run.cells.len() {
                going |= !signal::stopped() && run.turn(cell, progress)?;
            }
        }
    }
    run.finish()
}

impl Run<'_> {
    fn name(&self, cell: usize) -> String {
        let Cell { device, policy } = self.cells[cell];
        format!("job {}, {}, {policy}", self.plan.job.name, self.devices.uri(self.plan.devices[device]))
    }

    /// A turn of `cell`; false if it has had enough.
    fn turn(&mut self, cell: usize, progress: &mut Progress) -> Result<bool, Failure> {
        let Cell { device, policy } = self.cells[cell];
        let first = self.states[cell].turns == 0;
        let learns = matches!(policy, Policy::HybridHalfMean);
        let Some(mut visit) = self.turns.next(&self.states[cell], warm_up_ns(first, self.plan, learns))
        else {
            return Ok(false);
        };
        progress.cell(self.devices.uri(self.plan.devices[device]), policy);
        loop {
            let before_ns = self.measure_floor(device)?;
            let asked: Vec<_> = self
                .threads
                .iter()
                .map(|thread| thread.ask(move |worker| worker.visit(cell, visit)))
                .collect();
            let reports = asked.iter().map(received).collect::<Result<Vec<_>, _>>()?;
            let after_ns = self.measure_floor(device)?;
            let moved = self.probe(device)?;
            self.tell(cell, &reports, progress);
            let again = moved && self.may_repeat(cell);
            for thread in &self.threads {
                received(&thread.ask(move |worker| worker.settle(cell, !again)))?;
            }
            if again {
                self.rtts.repeated += 1;
                visit.warm_up_ns = warm_up_ns(false, self.plan, learns);
                continue;
            }
            self.rtts.disturbed += u64::from(moved);
            let floor_ns = before_ns.zip(after_ns).map(|(before_ns, after_ns)| (before_ns + after_ns) / 2.0);
            let state = &mut self.states[cell];
            state.count(&reports, floor_ns);
            state.finished = reports.iter().all(|report| report.finished);
            if let Some(why) = reports.into_iter().find_map(|report| report.lost) {
                self.lose(device, &why);
            }
            break;
        }
        let done: f64 = self.states.iter().map(|state| self.turns.progress(state)).sum();
        progress.done(done / self.states.len() as f64);
        Ok(true)
    }

    /// A turn can be done again if that leaves nothing out, and the machine has some rest at times.
    fn may_repeat(&mut self, cell: usize) -> bool {
        let by_time = self.turns.total_bytes.is_none() && !self.plan.verifies();
        let may = by_time && !signal::stopped() && self.states[cell].lost.is_none() && self.repeats_left > 0;
        self.repeats_left -= u64::from(may);
        may
    }

    /// No cell of this device has another turn.
    fn lose(&mut self, device: usize, why: &str) {
        for (cell, state) in self.cells.iter().zip(&mut self.states) {
            if cell.device == device && state.lost.is_none() {
                state.lost = Some(why.to_owned());
            }
        }
        let uri = self.devices.uri(self.plan.devices[device]);
        warn(format_args!(
            "job {}: {uri} takes no more I/O: {why}; what was measured is kept",
            self.plan.job.name
        ));
    }

    /// Says what went wrong, once per cell and kind.
    fn tell(&mut self, cell: usize, reports: &[VisitReport], progress: &Progress) {
        let name = self.name(cell);
        let told = &mut self.states[cell].told;
        for report in reports {
            if let Some(first) = report.faults.first.as_ref().filter(|_| !told.fault) {
                told.fault = true;
                progress.above(|| eprintln!("meantime: {name}: {first} (further errors are counted)"));
            }
            if let Some(first) = report.findings.first.as_ref().filter(|_| !told.mismatch) {
                told.mismatch = true;
                progress.above(|| eprintln!("meantime: {name}: verify: {first} (further ones are counted)"));
            }
        }
    }

    /// When time was up in the middle of a pass, what it wrote has yet to be checked.
    fn check_rest(&mut self, cell: usize) -> Result<(), Failure> {
        if signal::stopped() || self.states[cell].finished || self.states[cell].lost.is_some() {
            return Ok(());
        }
        let asked: Vec<_> =
            self.threads.iter().map(|thread| thread.ask(move |worker| worker.read_back(cell))).collect();
        let reports = asked.iter().map(received).collect::<Result<Vec<_>, _>>()?;
        self.tell(cell, &reports, &Progress::hidden());
        if let Some(why) = reports.into_iter().find_map(|report| report.lost) {
            self.lose(self.cells[cell].device, &why);
        }
        Ok(())
    }

    fn measure_floor(&self, device: usize) -> Result<Option<f64>, Failure> {
        if !self.floor || signal::stopped() {
            return Ok(None);
        }
        let bytes = self.plan.job.bs_max_bytes();
        // By a rough guess at one exchange: half a microsecond, and 8 GB/s.
        let count = (FLOOR_NS / (500 + bytes / 8)).max(200) as usize;
        received(&self.threads[0].ask(move |worker| worker.floor_ns(device, bytes as usize, count)))
    }

    /// Lets the software SSDs park, and probes the cache-line time; whether it has changed.
    fn probe(&mut self, device: usize) -> Result<bool, Failure> {
        std::thread::sleep(PARK_PAUSE);
        let Some(cpu) = self.devices.ssd_cpu(self.plan.devices[device]) else { return Ok(false) };
        // A line between a CPU and itself would take two turns of the scheduler.
        if signal::stopped() || thread_cpus(self.plan, self.devices).contains(&cpu) {
            return Ok(false);
        }
        let rtt_ns = received(&self.threads[0].ask(move |worker| worker.rtt_ns(cpu)))?;
        Ok(self.rtts.moved(rtt_ns))
    }

    fn finish(self) -> Result<JobOutcome, Failure> {
        let asked: Vec<_> = self.threads.iter().map(|thread| thread.ask(Worker::finish)).collect();
        let mut totals = asked.iter().map(received).collect::<Result<Vec<_>, _>>()?;
        drop(self.threads);
        let mut results = Vec::new();
        for (at, (cell, state)) in self.cells.iter().zip(&self.states).enumerate().rev() {
            let threads: Vec<_> = totals.iter_mut().filter_map(Vec::pop).collect();
            debug_assert!(totals.iter().all(|left| left.len() == at));
            let uri = self.devices.uri(self.plan.devices[cell.device]);
            let result = results::result(self.plan, uri, cell.policy, state, threads);
            // After Ctrl-C some may not have had their turn.
            if result.read.ios + result.write.ios + result.errors > 0 {
                results.push(result);
            }
        }
        results.reverse();
        Ok(JobOutcome { results, rtts: self.rtts })
    }
}

/// The CPUs of a job's threads: what the job says, else all but the software SSDs', if any is left.
pub fn thread_cpus(plan: &JobPlan, devices: &Devices) -> Vec<usize> {
    if !plan.job.cpus_allowed.is_empty() {
        return plan.job.cpus_allowed.iter().map(|cpu| *cpu as usize).collect();
    }
    let taken: Vec<usize> = plan.devices.iter().filter_map(|index| devices.ssd_cpu(*index)).collect();
    let allowed = cpu::allowed();
    let free: Vec<usize> = allowed.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
    if free.is_empty() { allowed } else { free }
}

fn start_threads(
    plan: &JobPlan,
    devices: &Devices,
    cells: &[Cell],
    floor: bool,
) -> Result<Vec<WorkerThread>, Failure> {
    let cpus = thread_cpus(plan, devices);
    let mut threads = Vec::new();
    for thread in 0..plan.job.numjobs as usize {
        let mut works = Vec::with_capacity(cells.len());
        for (index, cell) in cells.iter().enumerate() {
            works.push(cell_work(plan, devices, *cell, index, thread)?);
        }
        let mut slots = Vec::with_capacity(plan.devices.len());
        for (device, index) in plan.devices.iter().enumerate() {
            // Any of the device's channels can allocate for all of them.
            let Some(work) = works.iter().find(|work| work.slots == device) else { continue };
            let (depth, bytes) = (plan.job.iodepth as usize, plan.job.bs_max_bytes() as usize);
            slots.push(
                Slots::new(&work.channel, depth, bytes)
                    .map_err(|error| named(devices.uri(*index), &error))?,
            );
        }
        let mut floors = Vec::new();
        for index in plan.devices.iter().filter(|_| floor && thread == 0) {
            let bytes = devices.get(*index).info().bytes();
            let started = Floor::start(bytes, devices.ssd_cpu(*index));
            floors.push(started.map_err(|error| Failure::new(format_args!("--floor: {error}")))?);
        }
        let name = format!("meantime-job{thread}");
        threads.push(WorkerThread::start(name, Worker::new(works, slots, floors), cpus.clone())?);
    }
    Ok(threads)
}

fn cell_work(
    plan: &JobPlan,
    devices: &Devices,
    cell: Cell,
    index: usize,
    thread: usize,
) -> Result<CellWork, Failure> {
    let device = devices.get(plan.devices[cell.device]);
    let options = ChannelOptions { depth: plan.job.iodepth as u16, policy: cell.policy, interrupt: None };
    let channel =
        device.channel(&options).map_err(|error| named(devices.uri(plan.devices[cell.device]), &error))?;
    let spec = plan.pattern(channel.info(), thread);
    let pattern = Pattern::new(spec);
    let work = if plan.verifies() {
        let seed = run_seed() ^ (index as u64) << 32 ^ thread as u64;
        Work::Verified(Box::new(Verified::new(pattern, &spec, plan.job.iodepth as usize, seed)))
    } else {
        Work::Plain(Box::new(Plain(pattern)))
    };
    let warm_up = Pattern::new(super::pattern::PatternSpec { passes: None, seed: !spec.seed, ..spec });
    Ok(CellWork::new(channel, cell.device, work, warm_up))
}

/// Tells this run's blocks from those an earlier one left on the same medium.
fn run_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as u64
}
