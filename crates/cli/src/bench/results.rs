//! From what the threads counted to a result as it is reported.

use meantime::completion::Policy;

use super::plan::JobPlan;
use super::schedule::{CellState, median, spread};
use super::tally::Tally;
use super::usage::Usage;
use super::worker::Totals;
use crate::report::RunResult;

/// The result of one device and policy, from its threads' totals.
pub fn result(
    plan: &JobPlan,
    uri: &str,
    policy: Policy,
    state: &CellState,
    threads: Vec<Totals>,
) -> RunResult {
    let (mut tally, mut usage) = (Tally::default(), Usage::default());
    let (mut errors, mut verify_errors, mut checked) = (0, 0, 0);
    let (mut waits, mut sleeps, mut oversleeps, mut fallbacks, mut strays) = (0, 0, 0, 0, 0);
    for totals in threads {
        tally.merge(&totals.tally);
        usage += totals.usage;
        errors += totals.faults.errors;
        verify_errors += totals.findings.errors;
        checked += totals.findings.checked;
        let counters = totals.counters;
        for gap in [counters.polled_waits, counters.interrupt_waits] {
            waits += gap.waits;
            sleeps += gap.sleeps;
            oversleeps += gap.oversleeps;
            fallbacks += gap.fallbacks;
        }
        strays += counters.polled.strays + counters.interrupt.map_or(0, |queue| queue.strays);
    }
    let of_wall = |ns: u64| if state.wall_ns == 0 { 0.0 } else { ns as f64 * 100.0 / state.wall_ns as f64 };
    let mut extra = Vec::new();
    let mut add = |name: &str, figure: f64| extra.push((name.to_owned(), figure));
    if sleeps > 0 {
        // Of all waits, the warm-ups' included.
        add("slept_percent", sleeps as f64 * 100.0 / waits as f64);
        add("overslept_percent", oversleeps as f64 * 100.0 / waits as f64);
    }
    for (name, count) in [("fallbacks", fallbacks), ("strays", strays)] {
        if count > 0 {
            add(name, count as f64);
        }
    }
    if plan.verifies() {
        add("verified_blocks", checked as f64);
    }
    if !state.ratios.is_empty() {
        add("floor_pairs", state.ratios.len() as f64);
    }
    RunResult {
        job_name: plan.job.name.clone(),
        device: uri.to_owned(),
        completion: policy.to_string(),
        options: plan.job.fio_options(),
        iodepth: plan.job.iodepth,
        numjobs: plan.job.numjobs,
        iodepth_levels: Some(tally.depths),
        read: tally.read,
        write: tally.write,
        runtime_ns: state.wall_ns,
        usr_cpu_percent: of_wall(usage.user_ns),
        sys_cpu_percent: of_wall(usage.system_ns),
        ctx_switches: usage.switches,
        major_faults: usage.major_faults,
        minor_faults: usage.minor_faults,
        floor_ns: median(&state.floors_ns),
        floor_ratio: median(&state.ratios),
        floor_ratio_spread: spread(&state.ratios),
        // A device that refused the next I/O has failed, too.
        errors: errors.max(u64::from(state.lost.is_some())),
        verify_errors,
        extra,
    }
}
