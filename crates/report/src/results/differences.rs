//! Differences that prevent a comparison of results of several files: shown before anything else.

use itertools::Itertools as _;

use super::model::{Job, Report, Source, device_name};

/// A difference and its consequence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Warning {
    /// The difference.
    pub what: String,
    /// The consequence.
    pub so: String,
}

/// The maximum number of results that one warning names.
const NAMED_MAX: usize = 4;

/// The facts that identify a machine.
const MACHINE: [&str; 3] = ["cpu", "cpus", "virtual_machine"];

/// Other facts that may differ, with the consequence.
const FACTS: [(&str, &str, &str); 5] = [
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

/// Returns all warnings.
pub(super) fn warnings(report: &Report) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |what: String, so: &str| warnings.push(Warning { what, so: so.to_owned() });
    let sources = &report.sources;
    let told = |name: &str| {
        let value = |value: &str| if value.is_empty() { "none" } else { value }.to_owned();
        let of = |source: &Source| Some(format!("{}: {}", source.label, value(source.fact(name)?)));
        sources.iter().filter_map(of).join("; ")
    };
    let differs = |name: &str| !sources.iter().filter_map(|source| source.fact(name)).all_equal();
    let labels = |of: &dyn Fn(&Source) -> bool| {
        sources.iter().filter(|source| of(source)).map(|source| &source.label).join(", ")
    };
    if MACHINE.into_iter().any(differs) {
        let told = MACHINE.into_iter().filter(|name| differs(name)).map(told).join(" – ");
        warn(
            format!("Different machines ({told})."),
            "Their results are not comparable: they are kept apart below.",
        );
    }
    for (name, what, so) in FACTS.into_iter().filter(|(name, ..)| differs(name)) {
        warn(format!("{what} ({}).", told(name)), so);
    }
    let silent = |source: &Source| source.fact("cpu").is_none();
    if sources.len() > 1 && sources.iter().any(silent) {
        warn(
            format!("Unknown machine ({}).", labels(&silent)),
            "fio's JSON does not tell where it was made: make sure that it was the same machine.",
        );
    }
    let interrupted = |source: &Source| source.fact("interrupted") == Some("yes");
    if sources.iter().any(interrupted) {
        // A single run has no label.
        let which = match labels(&interrupted) {
            which if which.is_empty() => which,
            which => format!(" ({which})"),
        };
        warn(format!("Ended early{which}."), "The results are those measured until then.");
    }
    let other_devices =
        |job: &Job| job.blocks.iter().any(|block| block.is_other_device_than(&job.blocks[0]));
    if report.jobs.iter().any(other_devices) {
        warn(
            "Different kinds of devices.".to_owned(),
            "A software SSD, a file and a PCIe SSD take different times by themselves: compare \
             ways to wait on one device, not devices with each other.",
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
            "A thread that polls needs all of one; something else ran on its core, and its time is \
             in the latencies. Repeat it on a quiet machine.",
        );
    }
    let failed: u64 = report.jobs.iter().flat_map(Job::runs).map(|run| run.errors).sum();
    if failed > 0 {
        warn(
            format!("{failed} errors."),
            "The tables say where; latencies may be those of failed I/Os.",
        );
    }
    warnings
}

/// Finds polling threads that used little CPU, although no program was meant to compete with them.
fn starved(report: &Report) -> Vec<String> {
    const ENOUGH_PERCENT: f64 = 90.0;
    // The kernel counts CPU time by its ticks.
    const MEASURABLE_MS: f64 = 100.0;
    let mut all = Vec::new();
    for job in report.jobs.iter().filter(|job| job.workload.is_single_threaded()) {
        for (block, run) in
            job.blocks.iter().flat_map(|block| block.runs.iter().map(move |run| (block, run)))
        {
            let alone = run.way == "poll" && run.competitor_percent.is_none() && !run.is_paced;
            let long = run.latency.n > 0 && run.runtime_ms >= MEASURABLE_MS;
            let percent = run.cpu_percent.filter(|percent| *percent < ENOUGH_PERCENT);
            if let Some(percent) = percent.filter(|_| alone && long) {
                let device = device_name(&block.device);
                all.push(format!("{} on {device}, {}: {percent:.0} %", job.name, run.label));
            }
        }
    }
    all
}
