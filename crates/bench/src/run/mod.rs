//! Runs groups of jobs, with their devices and policies in turns, and the jobs of a turn at the
//! same time.
//!
//! The caller opens [`Devices`], makes [`groups()`] of its jobs, has them checked and gives each to
//! [`run()`]. The progress display and the competing programs are type parameters.
//!
//! # Its parts, in reading order
//! ```text
//!   target, devices     what is opened; files in file systems of devices
//!     media               files that are media of devices
//!   group, checks       jobs that run at the same time, and whether they can
//!     left_out            cells that cannot be measured
//!   fill                media that begin empty
//!   mod, turn           all turns of a group; one turn with what is measured around it
//!     schedule            the length of turns, and when a job is done
//!   cells, thread       the threads of a job
//!     worker              what a thread does in a turn
//!     tally, series, logs   what it counts while it does I/O
//!     watch, ring           what other threads see meanwhile
//!     file_counts         what file systems count meanwhile
//!   results             turns what was counted into a result for the report
//! ```

mod cells;
mod checks;
mod devices;
mod error;
mod file_counts;
mod fill;
mod floor;
mod group;
mod left_out;
mod logs;
mod media;
mod progress;
mod results;
mod ring;
mod schedule;
mod series;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod thread;
mod turn;
mod watch;
mod worker;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use meantime_hw::energy::EnergyMeter;

use crate::competitor::{Competitors, Sample};
use crate::pattern::Pattern;
use crate::plan::JobPlan;

pub use cells::thread_cpus;
pub use checks::check;
pub use devices::Devices;
pub use error::RunError;
pub use fill::fill;
pub use group::{Group, batches, groups};
pub use left_out::{LeftOut, leave_out};
pub use progress::Progress;
pub use results::JobResult;
pub use schedule::Rtts;
pub use target::{HowUsed, HowWritten, MountedToWrite, Wanted};
pub use watch::{Watch, WatchedCell, WatchedIo};

use group::Cell;
use schedule::{CellState, Turns};
use thread::{WorkerThread, received};
use worker::Worker;

/// How to run groups.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'a> {
    /// The number of turns of each cell, or `None` for as many as fit into its runtime.
    pub rounds: Option<u32>,
    /// Measure the floor before and after each turn.
    pub floor: bool,
    /// Ends the run when it is set. Earlier measurements are kept.
    pub stop: &'static AtomicBool,
    /// Sees the I/Os while the run goes on.
    pub watch: Option<&'a Watch>,
}

/// The results of groups that had turns one after the other.
pub struct GroupOutcome {
    /// The results by group, job, device and policy, without those that did not have a turn.
    pub results: Vec<JobResult>,
    /// The cache-line times during the run.
    pub rtts: Rtts,
    /// Memory that devices may read and write, at the end of the run, in bytes.
    pub dma_bytes: usize,
}

/// A job of the group, and its progress.
struct JobRun<'a> {
    plan: &'a JobPlan,
    /// The states by cell.
    states: Vec<CellState>,
    threads: Vec<WorkerThread>,
    turns: Turns,
}

impl JobRun<'_> {
    /// Makes all threads execute `order` at the same time. Returns the answers, by thread.
    fn ask_all<R: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Worker) -> R + Copy + Send + 'static,
    ) -> Result<Vec<R>, RunError> {
        let asked: Vec<_> = self.threads.iter().map(|thread| thread.ask(order)).collect();
        asked.iter().map(received).collect()
    }
}

struct Run<'a, C, P> {
    group: &'a Group,
    options: &'a RunOptions<'a>,
    progress: &'a P,
    devices: &'a Devices,
    cells: Vec<Cell>,
    jobs: Vec<JobRun<'a>>,
    rival: Option<Rival<C>>,
    /// `None` where the processors count no energy, or may not be asked.
    energy: Option<EnergyMeter>,
    /// Number of turns that may still be repeated.
    repeats_left: u64,
}

/// The competing programs, and their speed alone.
struct Rival<C> {
    programs: C,
    alone: Sample,
}

/// Runs `groups`, which have turns one after the other. Without a sweep it is a single group.
///
/// # Errors
/// Returns an error if it cannot begin, or a part of the run other than its I/O failed. I/O errors
/// are counted.
pub fn run<C: Competitors, P: Progress>(
    groups: &[Group],
    devices: &mut Devices,
    options: &RunOptions<'_>,
    progress: &mut P,
) -> Result<GroupOutcome, RunError> {
    progress.job();
    let plans = || groups.iter().flat_map(|group| &group.plans);
    for plan in plans() {
        fill(plan, devices, options.stop, progress)?;
    }
    let (devices, progress): (&Devices, &P) = (devices, progress);
    let runs = groups.iter().map(|group| Run::<C, P>::start(group, devices, options, progress));
    let mut runs = runs.collect::<Result<Vec<_>, RunError>>()?;
    let mut rtts = Rtts::default();
    if let Some(first) = runs.first_mut() {
        first.probe(0, &mut rtts)?;
    }
    let is_stopped = || options.stop.load(Relaxed);
    let places = runs.iter().enumerate();
    let places = places.flat_map(|(run, of)| (0..of.cells.len()).map(move |cell| (run, cell)));
    let places: Vec<(usize, usize)> = places.collect();
    let mut turn = |runs: &mut [Run<'_, C, P>], (run, cell): (usize, usize)| {
        let had_turn = !is_stopped() && runs[run].turn(cell, &mut rtts)?;
        if had_turn {
            progress.done(runs.iter().map(Run::progress).sum::<f64>() / runs.len() as f64);
        }
        Ok::<_, RunError>(had_turn)
    };
    if plans().any(JobPlan::verifies) {
        // Each cell is run completely before the next, because they write to the same blocks.
        for place in &places {
            while turn(&mut runs, *place)? {}
            runs[place.0].conclude(place.1)?;
        }
    } else {
        let mut going = true;
        while going {
            going = false;
            for place in &places {
                going |= turn(&mut runs, *place)?;
            }
        }
        for (run, cell) in places {
            runs[run].conclude(cell)?;
        }
    }
    let mut outcome = GroupOutcome { results: Vec::new(), rtts, dma_bytes: 0 };
    for run in runs {
        outcome.dma_bytes = outcome.dma_bytes.max(devices.dma_bytes(&run.group.devices()));
        outcome.results.extend(run.finish()?);
    }
    Ok(outcome)
}

/// Starts the programs that compete with the group's jobs.
fn start_rival<C: Competitors>(
    group: &Group,
    devices: &Devices,
) -> Result<Option<Rival<C>>, RunError> {
    let Some((plan, kind, count)) = group.rivals() else { return Ok(None) };
    let Some(&cpu) = thread_cpus(plan, group, devices).first() else { return Ok(None) };
    let programs = C::start(cpu, kind, count).map_err(RunError::new)?;
    Ok(Some(Rival { programs, alone: Sample::default() }))
}

impl<'a, C: Competitors, P: Progress> Run<'a, C, P> {
    /// Starts the threads of `group` and its competing programs. They wait for their turns.
    fn start(
        group: &'a Group,
        devices: &'a Devices,
        options: &'a RunOptions<'a>,
        progress: &'a P,
    ) -> Result<Self, RunError> {
        let cells = group.cells();
        let longest = group.plans.iter().filter_map(|plan| plan.runtime).max();
        let mut jobs = Vec::with_capacity(group.plans.len());
        for plan in &group.plans {
            let RunOptions { floor, stop, watch, .. } = *options;
            let threads = cells::start_threads(plan, group, devices, floor, stop, watch)?;
            let spec = plan.pattern(devices.get(plan.devices[0]).info(), 0);
            let bytes = Pattern::total_bytes(&spec);
            let turns = Turns::new(plan, bytes, options.rounds, options.floor, longest);
            let states = cells.iter().map(|_| CellState::default()).collect();
            jobs.push(JobRun { plan, states, threads, turns });
        }
        let repeats_left = 2 * cells.len() as u64;
        let (rival, energy) = (start_rival::<C>(group, devices)?, EnergyMeter::open());
        Ok(Self { group, options, progress, devices, cells, jobs, rival, energy, repeats_left })
    }

    /// Returns the share of the work that is done, from 0 to 1.
    fn progress(&self) -> f64 {
        let of = |job: &JobRun<'_>| {
            job.states.iter().map(|state| job.turns.progress(state)).sum::<f64>()
        };
        let all = self.jobs.len() * self.cells.len();
        self.jobs.iter().map(of).sum::<f64>() / all.max(1) as f64
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Relaxed)
    }

    /// Concludes the turns of `at`, which checks the writes of an unfinished pass, and flushes.
    fn conclude(&mut self, at: usize) -> Result<(), RunError> {
        for job in 0..self.jobs.len() {
            let run = &self.jobs[job];
            let JobRun { plan, states, .. } = run;
            if self.is_stopped() || states[at].lost.is_some() {
                continue;
            }
            let mut reports = Vec::new();
            if plan.verifies() && !states[at].finished {
                reports.extend(run.ask_all(move |worker| worker.read_back(at))?);
            }
            if plan.job.syncing.end_fsync && plan.job.writes() {
                reports.extend(run.ask_all(move |worker| worker.flush(at))?);
            }
            self.report_failures(job, at, &reports);
            if let Some(why) = reports.into_iter().find_map(|report| report.lost) {
                self.lose(job, self.cells[at].device, &why);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<JobResult>, RunError> {
        let several = self.jobs.len() > 1;
        let mut results: Vec<JobResult> = Vec::new();
        for (number, job) in self.jobs.into_iter().enumerate() {
            let finished = job.ask_all(Worker::finish)?;
            drop(job.threads);
            // Each thread has its results by cell.
            let mut totals: Vec<_> = finished.into_iter().map(Vec::into_iter).collect();
            for (at, (cell, state)) in self.cells.iter().zip(job.states).enumerate() {
                let index = job.plan.devices[cell.device];
                let result = JobResult {
                    plan: job.plan.clone(),
                    uri: self.devices.uri(index).to_owned(),
                    medium: self.devices.get(index).info().medium.clone(),
                    alone: self.rival.as_ref().map(|rival| rival.alone),
                    block_bytes: u64::from(self.devices.get(index).info().block_bytes),
                    policy: job.plan.policies[cell.policy],
                    settings: cells::settings(job.plan, self.group, *cell),
                    cell: several.then_some(at),
                    beside: beside(self.group, number, *cell),
                    numjobs: job.plan.job.numjobs,
                    state,
                    threads: totals.iter_mut().filter_map(Iterator::next).collect(),
                };
                results::add(&mut results, result);
            }
        }
        // After Ctrl-C some jobs have not begun.
        results.retain(JobResult::has_begun);
        Ok(results)
    }
}

/// Returns the other jobs of a cell, by number: the name of each, and its policy.
fn beside(group: &Group, number: usize, cell: Cell) -> Vec<(usize, String)> {
    let others = group.plans.iter().enumerate().filter(|(other, _)| *other != number);
    others
        .map(|(other, plan)| (other, format!("{} ({})", plan.job.name, plan.policies[cell.policy])))
        .collect()
}
