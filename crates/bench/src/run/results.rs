//! Converts the threads' counters into a result for the report.

use meantime_block::ChannelCounters;
use meantime_completion::{GapCounters, Policy};
use meantime_hw::ThreadUsage;
use meantime_nvme::QueueCounters;
use meantime_report::figures::median;
use meantime_report::run::{LogRows, RunResult, Settings};

use super::schedule::{CellState, spread};
use super::tally::Tally;
use super::worker::Totals;
use crate::competitor::Sample;
use crate::plan::JobPlan;

/// The result of one job on one device with one policy.
pub struct JobResult {
    /// The job.
    pub plan: JobPlan,
    /// The device.
    pub uri: String,
    /// The storage below the device.
    pub(crate) medium: String,
    /// The speed of a competing program alone, if there was one.
    pub(crate) alone: Option<Sample>,
    /// Size of the device's logical blocks in bytes.
    pub block_bytes: u64,
    /// The policy.
    pub policy: Policy,
    /// The conditions of the threads.
    pub(crate) settings: Settings,
    /// The cell's index, if other jobs ran at the same time.
    pub(crate) cell: Option<usize>,
    /// The jobs that ran beside this one, by number, each with its name and its policy.
    pub(crate) beside: Vec<(usize, String)>,
    /// Number of threads, including those of jobs that are reported with it.
    pub(crate) numjobs: u32,
    /// The state after all turns.
    pub(crate) state: CellState,
    /// The totals by thread.
    pub(crate) threads: Vec<Totals>,
}

/// Adds `result` to the others, or merges it into one of them, if `group_reporting` is set. As in
/// fio, a merged result has the first job's name.
pub(crate) fn add(results: &mut Vec<JobResult>, mut result: JobResult) {
    let reported_with = |other: &&mut JobResult| {
        let together = other.plan.job.group_reporting && result.plan.job.group_reporting;
        together && other.plan.group_id == result.plan.group_id && other.cell == result.cell
    };
    match results.iter_mut().rev().find(reported_with) {
        Some(first) if result.cell.is_some() => {
            first.numjobs += result.numjobs;
            // This keeps the jobs that ran beside both, which are neither of the two merged ones.
            first.beside.retain(|other| result.beside.contains(other));
            first.state.wall_ns = first.state.wall_ns.max(result.state.wall_ns);
            first.state.lost = first.state.lost.take().or(result.state.lost);
            // These are of one of the jobs only.
            first.state.by_turn.clear();
            first.threads.append(&mut result.threads);
        }
        _ => results.push(result),
    }
}

impl JobResult {
    /// Returns whether the job had a turn, even without I/O, or a part of one.
    pub(crate) fn has_begun(&self) -> bool {
        let done = |totals: &Totals| totals.counted.tally.ios() + totals.faults.errors;
        let is_any = self.threads.iter().any(|totals| done(totals) > 0);
        self.state.turns > 0 || self.state.lost.is_some() || is_any
    }

    /// Returns the logs, by thread.
    pub fn take_logs(&mut self) -> Vec<Option<LogRows>> {
        self.threads.iter_mut().map(|totals| totals.log.take()).collect()
    }

    /// Returns the driver's counters, by thread.
    pub fn counters(&self) -> Vec<ChannelCounters> {
        self.threads.iter().map(|totals| totals.counters).collect()
    }

    /// Returns further figures, by name with unit.
    fn extra(&self, ios: u64, wall_ns: u64) -> Vec<(String, f64)> {
        let all = || self.threads.iter().map(|totals| totals.counters);
        let waits = |of: fn(GapCounters) -> u64| -> u64 {
            all().flat_map(|one| [one.polled_waits, one.interrupt_waits]).map(of).sum()
        };
        let queues = |of: fn(QueueCounters) -> u64| -> u64 {
            all().flat_map(|one| [Some(one.polled), one.interrupt]).flatten().map(of).sum()
        };
        let mut extra = Vec::new();
        let mut add = |name: &str, figure: f64| extra.push((name.to_owned(), figure));
        let sleeps = waits(|gap| gap.sleeps);
        if sleeps > 0 {
            // Percentages of all waits, including those of warm-ups.
            let percent = |count: u64| count as f64 * 100.0 / waits(|gap| gap.waits) as f64;
            add("slept_percent", percent(sleeps));
            add("overslept_percent", percent(waits(|gap| gap.oversleeps)));
        }
        let counts = [
            ("fallbacks", waits(|gap| gap.fallbacks)),
            ("strays", queues(|queue| queue.strays)),
            ("retries", queues(|queue| queue.retries)),
            ("requeued", queues(|queue| queue.requeued)),
        ];
        let counts = counts.into_iter().chain(self.state.file_counts.figures());
        for (name, count) in counts.filter(|(_, count)| *count > 0) {
            add(name, count as f64);
        }
        if self.plan.verifies() {
            let checked = self.threads.iter().map(|totals| totals.findings.checked);
            add("verified_blocks", checked.sum::<u64>() as f64);
        }
        if self.alone.is_some() && self.state.competed.at_ns > 0 {
            // This is Tu of FAST'12: the share of an I/O's time during which the competitors ran,
            // by their own clock.
            let share_percent = self.state.competed.share_percent();
            add("competitor_share_percent", share_percent);
            if ios > 0 {
                add("competitor_ns_per_io", share_percent / 100.0 * wall_ns as f64 / ios as f64);
            }
        }
        if !self.state.ratios.is_empty() {
            add("floor_pairs", self.state.ratios.len() as f64);
        }
        extra
    }

    /// Returns the result for the report.
    pub fn into_result(self) -> RunResult {
        let Self { ref plan, ref state, ref threads, .. } = self;
        let wall_ns = state.wall_ns;
        let (mut tally, mut usage) = (Tally::default(), ThreadUsage::default());
        for Totals { counted, .. } in threads {
            tally.merge(&counted.tally);
            usage += counted.usage;
        }
        let errors: u64 = threads.iter().map(|totals| totals.faults.errors).sum();
        let ios = tally.ios();
        let extra = self.extra(ios, wall_ns);
        let of_wall = |ns: u64| if wall_ns == 0 { 0.0 } else { ns as f64 * 100.0 / wall_ns as f64 };
        let [mut read, mut write, mut trim] = tally.directions;
        [read.rates, write.rates, trim.rates] = tally.series.rates(wall_ns);
        RunResult {
            job_name: plan.job.name.clone(),
            sweep: plan
                .job
                .sweep
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.clone()))
                .collect(),
            group_id: plan.group_id,
            cell: self.cell,
            beside: self.beside.into_iter().map(|(_, name)| name).collect(),
            device: self.uri,
            medium: self.medium,
            completion: self.policy.to_string(),
            settings: self.settings,
            options: plan.job.fio_options(),
            iodepth: plan.job.iodepth,
            numjobs: self.numjobs,
            iodepth_levels: Some(tally.depths),
            batch_levels: [tally.submits, tally.completes],
            flushes: tally.flushes.map(|flushes| *flushes).unwrap_or_default(),
            series: tally.series.points(),
            turns: state.by_turn.clone(),
            read,
            write,
            trim,
            runtime_ns: wall_ns,
            usr_cpu_percent: of_wall(usage.user_ns),
            sys_cpu_percent: of_wall(usage.system_ns),
            ctx_switches: usage.switches,
            major_faults: usage.major_faults,
            minor_faults: usage.minor_faults,
            competitor_percent: self.alone.and_then(|alone| kept_percent(&state.competed, &alone)),
            energy_uj_per_io: state.energy_uj.filter(|_| ios > 0).map(|uj| uj / ios as f64),
            floor_ns: median(&state.floors_ns),
            floor_ratio: median(&state.ratios),
            floor_ratio_spread: spread(&state.ratios),
            // A device that refused the next I/O is an error, too.
            errors: errors.max(u64::from(state.lost.is_some())),
            verify_errors: threads.iter().map(|totals| totals.findings.errors).sum(),
            extra,
        }
    }
}

/// Returns the share of its lone speed that a competing program kept.
fn kept_percent(competed: &Sample, alone: &Sample) -> Option<f64> {
    let (speed, lone) = (competed.work_per_second(), alone.work_per_second());
    (lone > 0.0 && competed.at_ns > 0).then(|| speed * 100.0 / lone)
}
