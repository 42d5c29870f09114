//! One turn of a cell: all its jobs at once, with the measurements around them.

use std::time::{Duration, Instant};

use meantime_completion::Policy;
use meantime_hw::PmQos;
use meantime_hw::energy::{EnergyMeter, EnergyReading};

use super::cells;
use super::checks;
use super::error::RunError;
use super::file_counts::FileCounts;
use super::group::{Cell, PmQosSetting};
use super::progress::Progress;
use super::schedule::{Rtts, warm_up_ns};
use super::thread::received;
use super::worker::{PARK_PAUSE, Visit, VisitReport, WARM_UP_NS};
use super::{JobRun, Run};
use crate::competitor::Competitors;

/// Length of a measurement of the floor. A shorter one is distorted by cold page tables.
const FLOOR_NS: u64 = 10_000_000;

/// Time for which the competing program runs alone, once a turn.
const ALONE: Duration = Duration::from_millis(100);

impl JobRun<'_> {
    fn policy(&self, cell: Cell) -> Policy {
        self.plan.policies[cell.policy]
    }

    /// Returns whether a turn can be repeated without leaving anything out.
    fn is_repeatable(&self, cell: usize) -> bool {
        let by_time =
            self.plan.endless && self.plan.job.number_ios.is_none() && !self.plan.verifies();
        by_time && self.states[cell].lost.is_none()
    }

    /// Returns the next turn of `cell`, or `None` if it is done.
    fn next(&self, at: usize, cell: Cell) -> Option<Visit> {
        let first = self.states[at].turns == 0;
        let learns = self.policy(cell).learns();
        self.turns.next(&self.states[at], warm_up_ns(first, self.plan, learns))
    }
}

impl<C: Competitors, P: Progress> Run<'_, C, P> {
    fn name(&self, job: usize, at: usize) -> String {
        let (cell, job) = (self.cells[at], &self.jobs[job]);
        let uri = self.devices.uri(job.plan.devices[cell.device]);
        format!("job {}, {uri}, {}", job.plan.job.name, job.policy(cell))
    }

    /// Runs a turn of `at`, of all jobs that are not done with it. Returns false if all are done.
    pub(super) fn turn(&mut self, at: usize, rtts: &mut Rtts) -> Result<bool, RunError> {
        let cell = self.cells[at];
        let due = self.jobs.iter().enumerate();
        let mut visits: Vec<_> =
            due.filter_map(|(job, run)| Some((job, run.next(at, cell)?))).collect();
        let Some((first, _)) = visits.first().copied() else { return Ok(false) };
        // The measurements of all jobs begin together.
        align_warm_ups(&mut visits, &self.jobs);
        let shown = &self.jobs[first];
        let uri = self.devices.uri(shown.plan.devices[cell.device]);
        self.progress.cell(&self.group.name(), uri, shown.policy(cell));
        loop {
            let before_ns = self.measure_floor(cell.device)?;
            let competing = self.rival.as_mut().map(|rival| {
                rival.alone += rival.programs.alone(ALONE);
                rival.programs.resume();
                rival.programs.sample()
            });
            let counts_before = self.file_counts(at, &visits);
            // A turn has a warm-up that is not measured, so power is measured over all of it.
            let meter = self.energy.as_ref();
            let powered = meter.and_then(|meter| Some((meter.read()?, Instant::now())));
            let reports = hold(cell.pm_qos).and_then(|_held| self.visit(at, &visits));
            let microwatts = powered.and_then(|powered| mean_power_uw(meter?, powered));
            let counts_after = self.file_counts(at, &visits);
            let competed = self.rival.as_mut().zip(competing).map(|(rival, before)| {
                let competed = rival.programs.sample() - before;
                rival.programs.pause();
                rival.programs.check().map(|()| competed).map_err(RunError::new)
            });
            let reports = reports?;
            let competed = competed.transpose()?;
            let after_ns = self.measure_floor(cell.device)?;
            let moved = self.probe(cell.device, rtts)?;
            for (job, reports) in &reports {
                self.report_failures(*job, at, reports);
            }
            let again = moved && self.may_repeat(at, &visits);
            for (job, _) in &visits {
                self.jobs[*job].ask_all(move |worker| worker.count_turn(at, !again))?;
            }
            if again {
                rtts.repeated += 1;
                for (_, visit) in &mut visits {
                    visit.warm_up_ns = visit.warm_up_ns.min(WARM_UP_NS);
                }
                continue;
            }
            rtts.disturbed += u64::from(moved);
            let wall_ns =
                reports.iter().flat_map(|(_, reports)| reports).map(|report| report.wall_ns).max();
            // If several jobs ran, it is not known whose energy it is.
            let energy_uj = microwatts
                .zip(wall_ns)
                .filter(|_| reports.len() == 1)
                .map(|(microwatts, wall_ns)| microwatts * wall_ns as f64 / 1e9);
            let floor_ns = before_ns.zip(after_ns).map(|(before, after)| (before + after) / 2.0);
            for ((job, before), (_, after)) in counts_before.iter().zip(&counts_after) {
                self.jobs[*job].states[at].file_counts.add_growth(before, after);
            }
            for (job, reports) in reports {
                let state = &mut self.jobs[job].states[at];
                state.count(&reports, floor_ns, energy_uj);
                state.competed += competed.unwrap_or_default();
                state.finished = reports.iter().all(|report| report.finished);
                if let Some(turn) = state.by_turn.last().copied() {
                    let plan = self.jobs[job].plan;
                    let name = cells::cell_name(plan, self.group, self.devices, cell);
                    self.progress.turned(&name, &turn);
                }
                if let Some(why) = reports.into_iter().find_map(|report| report.lost) {
                    self.lose(job, cell.device, &why);
                }
            }
            break;
        }
        Ok(true)
    }

    /// Returns the counters of the file systems of `visits`.
    fn file_counts(&self, at: usize, visits: &[(usize, Visit)]) -> Vec<(usize, FileCounts)> {
        let counts = |(job, _): &(usize, Visit)| {
            let index = self.jobs[*job].plan.devices[self.cells[at].device];
            Some((*job, self.devices.file_counts(index)?))
        };
        visits.iter().filter_map(counts).collect()
    }

    /// Runs all threads of `visits` at once.
    fn visit(
        &self,
        at: usize,
        visits: &[(usize, Visit)],
    ) -> Result<Vec<(usize, Vec<VisitReport>)>, RunError> {
        let ask = |(job, visit): &(usize, Visit)| {
            let (job, visit) = (*job, *visit);
            let threads = self.jobs[job].threads.iter();
            (
                job,
                threads
                    .map(|thread| thread.ask(move |worker| worker.visit(at, visit)))
                    .collect::<Vec<_>>(),
            )
        };
        let asked: Vec<_> = visits.iter().map(ask).collect();
        let answers = asked.into_iter().map(|(job, answers)| {
            let reports = answers.iter().map(|answer| received(answer)?.map_err(RunError::new));
            Ok((job, reports.collect::<Result<Vec<_>, RunError>>()?))
        });
        answers.collect()
    }

    /// Returns whether to repeat the turn. It is repeated a bounded number of times, since some
    /// machines are never quiet.
    fn may_repeat(&mut self, at: usize, visits: &[(usize, Visit)]) -> bool {
        let all = visits.iter().all(|(job, _)| self.jobs[*job].is_repeatable(at));
        let may = all && !self.is_stopped() && self.repeats_left > 0;
        self.repeats_left -= u64::from(may);
        may
    }

    /// Ends all turns on this job's device, of all jobs.
    pub(super) fn lose(&mut self, job: usize, device: usize, why: &str) {
        let index = self.jobs[job].plan.devices[device];
        for run in &mut self.jobs {
            for (cell, state) in self.cells.iter().zip(&mut run.states) {
                if run.plan.devices[cell.device] == index && state.lost.is_none() {
                    state.lost = Some(why.to_owned());
                }
            }
        }
        let (name, uri) = (&self.jobs[job].plan.job.name, self.devices.uri(index));
        self.progress.warning(format_args!(
            "job {name}: {uri} takes no more I/O: {why}; what was measured is kept"
        ));
    }

    /// Reports errors, once per cell and kind.
    pub(super) fn report_failures(&mut self, job: usize, at: usize, reports: &[VisitReport]) {
        let name = self.name(job, at);
        let reported = &mut self.jobs[job].states[at].reported;
        for report in reports {
            if let Some(first) = report.faults.first.as_ref().filter(|_| !reported.fault) {
                reported.fault = true;
                let message = format_args!("{name}: {first} (further errors are counted)");
                self.progress.error(message);
            }
            if let Some(first) = report.findings.first.as_ref().filter(|_| !reported.mismatch) {
                reported.mismatch = true;
                let message = format_args!("{name}: verify: {first} (further ones are counted)");
                self.progress.error(message);
            }
        }
    }

    fn measure_floor(&self, device: usize) -> Result<Option<f64>, RunError> {
        if !self.options.floor || self.is_stopped() {
            return Ok(None);
        }
        let bytes = self.group.plans[0].job.bs_max_bytes();
        // This is a rough estimate of one exchange: half a microsecond, and 8 GB/s.
        let count = (FLOOR_NS / (500 + bytes / 8)).max(200) as usize;
        received(
            &self.jobs[0].threads[0]
                .ask(move |worker| worker.floor_ns(device, bytes as usize, count)),
        )?
    }

    /// Lets the software SSDs park, and probes the cache-line time. Returns whether it has changed.
    pub(super) fn probe(&self, device: usize, rtts: &mut Rtts) -> Result<bool, RunError> {
        std::thread::sleep(PARK_PAUSE);
        let JobRun { plan, threads, .. } = &self.jobs[0];
        let Some(cpu) = self.devices.ssd_cpu(plan.devices[device]) else { return Ok(false) };
        // A line between a CPU and itself would take two turns of the scheduler.
        if self.is_stopped() || cells::thread_cpus(plan, self.group, self.devices).contains(&cpu) {
            return Ok(false);
        }
        let rtt_ns = received(&threads[0].ask(move |worker| worker.rtt_ns(cpu)))?;
        Ok(rtts.moved(rtt_ns))
    }
}

/// Returns the mean power since the counters were `before`, at `began`, in µW.
fn mean_power_uw(meter: &EnergyMeter, (before, began): (EnergyReading, Instant)) -> Option<f64> {
    let used_uj = meter.used_uj(&before, &meter.read()?);
    Some(used_uj as f64 / began.elapsed().as_secs_f64())
}

/// Limits the depth of idle CPUs' sleep to `setting`, until the returned value is dropped.
fn hold(setting: PmQosSetting) -> Result<Option<PmQos>, RunError> {
    match setting {
        PmQosSetting::AsIs | PmQosSetting::Unlimited => Ok(None),
        PmQosSetting::Held(us) => checks::hold_pm_qos(us).map(Some).map_err(RunError::new),
    }
}

/// Gives all jobs the longest warm-up, except jobs whose blocks a warm-up would change.
fn align_warm_ups(visits: &mut [(usize, Visit)], jobs: &[JobRun<'_>]) {
    let longest_ns = visits.iter().map(|(_, visit)| visit.warm_up_ns).max().unwrap_or(0);
    for (job, visit) in visits {
        visit.warm_up_ns = if jobs[*job].plan.verifies() { 0 } else { longest_ns };
    }
}
