//! What keeps results of several files from being compared, said before anything else.

use super::model::{Job, Report, Source, device_name};

/// A difference, and what follows from it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Warning {
    /// What differs.
    pub what: String,
    /// What that means.
    pub so: String,
}

/// So many results are named in one warning.
const NAMED_MAX: usize = 4;

/// All there is to say.
pub(super) fn warnings(report: &Report) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |what: String, so: &str| warnings.push(Warning { what, so: so.to_owned() });
    let sources = &report.sources;
    let told = |name: &str| {
        let of = |source: &Source| {
            source.fact(name).map(|value| format!("{}: {}", source.label, or_none(value)))
        };
        sources.iter().filter_map(of).collect::<Vec<_>>().join("; ")
    };
    let differs = |name: &str| {
        let mut values = sources.iter().filter_map(|source| source.fact(name));
        values.next().is_some_and(|first| values.any(|other| other != first))
    };
    if ["cpu", "cpus", "virtual_machine"].iter().any(|name| differs(name)) {
        let names = ["cpu", "cpus", "virtual_machine"].into_iter().filter(|name| differs(name));
        let told: Vec<String> = names.map(told).collect();
        warn(
            format!("Different machines ({}).", told.join(" – ")),
            "Their results are not comparable: they are kept apart below.",
        );
    }
    let named = [
        (
            "kernel",
            "Different kernels",
            "A kernel decides what sleeping and waking up cost: differences may be its doing.",
        ),
        (
            "revision",
            "Different revisions of Meantime",
            "If that is what you want to compare, make sure that nothing else differs.",
        ),
        ("governor", "Different frequency governors", "Clock rates may have differed."),
        (
            "isolcpus",
            "Different isolated CPUs",
            "Other programs may have disturbed one run and not the other.",
        ),
        ("dma_pages", "Different pages of DMA memory", "Address translation costs differ."),
    ];
    for (name, what, so) in named {
        if differs(name) {
            warn(format!("{what} ({}).", told(name)), so);
        }
    }
    let silent: Vec<&str> = sources
        .iter()
        .filter(|source| source.fact("cpu").is_none())
        .map(|source| source.label.as_str())
        .collect();
    if sources.len() > 1 && !silent.is_empty() {
        warn(
            format!("Unknown machine ({}).", silent.join(", ")),
            "fio's JSON does not tell where it was made: make sure that it was the same machine.",
        );
    }
    if sources.iter().any(|source| source.fact("interrupted") == Some("yes")) {
        let of = |source: &&Source| source.fact("interrupted") == Some("yes");
        let labels: Vec<&str> =
            sources.iter().filter(of).map(|source| source.label.as_str()).collect();
        let which =
            labels.iter().filter(|label| !label.is_empty()).copied().collect::<Vec<_>>().join(", ");
        let which = if which.is_empty() { String::new() } else { format!(" ({which})") };
        warn(format!("Ended early{which}."), "The results are those measured until then.");
    }
    let other_devices =
        |job: &Job| job.blocks.iter().any(|block| block.is_other_device_than(&job.blocks[0]));
    if report.jobs.iter().any(other_devices) {
        warn(
            "Different kinds of devices.".to_owned(),
            "A software SSD, a file and a PCIe SSD take different times by themselves: compare ways to wait on one \
             device, not devices with each other.",
        );
    }
    let mut starved = starved(report);
    if starved.len() > NAMED_MAX {
        let more = starved.len() - NAMED_MAX;
        starved.truncate(NAMED_MAX);
        starved.push(format!("and {more} more"));
    }
    if !starved.is_empty() {
        warn(
            format!("Polling did not get its CPU ({}).", starved.join(", ")),
            "A thread that polls needs all of one; something else ran on its core, and its time is in the latencies. \
             Repeat it on a quiet machine.",
        );
    }
    let failed: u64 = report
        .jobs
        .iter()
        .flat_map(|job| &job.blocks)
        .flat_map(|block| &block.runs)
        .map(|run| run.errors)
        .sum();
    if failed > 0 {
        warn(
            format!("{failed} errors."),
            "The tables say where; latencies may be those of failed I/Os.",
        );
    }
    warnings
}

/// Polling threads that used little CPU, where nobody was told to compete with them.
fn starved(report: &Report) -> Vec<String> {
    const ENOUGH_PERCENT: f64 = 90.0;
    // The kernel counts CPU time by its ticks.
    const MEASURABLE_MS: f64 = 100.0;
    let mut all = Vec::new();
    for job in report.jobs.iter().filter(|job| job.workload.is_single_threaded()) {
        for block in &job.blocks {
            let polls = block
                .runs
                .iter()
                .filter(|run| run.way == "poll" && run.competitor_percent.is_none());
            for run in polls
                .filter(|run| run.latency.n > 0 && !run.is_paced && run.runtime_ms >= MEASURABLE_MS)
            {
                if let Some(percent) = run.cpu_percent.filter(|percent| *percent < ENOUGH_PERCENT) {
                    let device = device_name(&block.device);
                    all.push(format!("{} on {device}, {}: {percent:.0} %", job.name, run.label));
                }
            }
        }
    }
    all
}

fn or_none(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}
