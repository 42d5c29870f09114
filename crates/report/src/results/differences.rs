//! Differences that prevent a comparison of results of several files: shown before anything else.

use itertools::Itertools as _;

use super::model::{Job, LeftOut, Report, Source, device_name};
use crate::figures::wrapped;

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
    ("kernel", "Different kernels", "A kernel decides what sleeping and waking up cost."),
    ("revision", "Different revisions of Meantime", "Make sure that nothing else differs."),
    ("governor", "Different frequency governors", "Clock rates may have differed."),
    ("isolcpus", "Different isolated CPUs", "Other programs may have disturbed one run only."),
    ("dma_pages", "Different pages of DMA memory", "Address translation costs differ."),
];

impl Report {
    /// Returns the table that `bench` prints, the differences that prevent a comparison of its
    /// rows, and what could not be measured.
    pub fn text(&self, width: usize) -> String {
        let left_out = self.left_out.iter().map(|LeftOut { device, way, why, .. }| {
            let line = format!("Not measured: {}, {way}: {why}", device_name(device));
            format!("\n{}\n", wrapped(&line, width))
        });
        self.table(width) + &self.warnings(width) + &left_out.collect::<String>()
    }

    /// Returns the differences that prevent a comparison of the results, a paragraph for each.
    pub fn warnings(&self, width: usize) -> String {
        let all = warnings(self).into_iter();
        all.map(|Warning { what, so }| format!("\n{}\n", wrapped(&format!("{what} {so}"), width)))
            .collect()
    }
}

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
    if report.jobs.iter().any(Job::has_other_devices) {
        warn(
            "Different kinds of devices.".to_owned(),
            "A software SSD, a file and a PCIe SSD take different times by themselves: compare \
             ways to wait on one device, not devices with each other.",
        );
    }
    let starved = starved(report);
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
    for (job, run) in report.jobs.iter().flat_map(|job| job.runs().map(move |run| (job, run))) {
        let alone = run.way == "poll" && run.competitor_percent.is_none() && !run.is_paced;
        let long = run.latency.n > 0 && run.runtime_ms >= MEASURABLE_MS;
        let percent = run.cpu_percent.filter(|percent| *percent < ENOUGH_PERCENT);
        let counts = alone && long && run.workload.is_single_threaded;
        if let Some(percent) = percent.filter(|_| counts) {
            let device = device_name(&run.device);
            all.push(format!("{} on {device}, {}: {percent:.0} %", job.name, run.label));
        }
    }
    if all.len() > NAMED_MAX {
        let more = all.len() - NAMED_MAX;
        all.truncate(NAMED_MAX);
        all.push(format!("and {more} more"));
    }
    all
}
