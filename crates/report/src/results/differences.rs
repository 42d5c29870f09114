//! Differences that prevent a comparison of results of several files: shown before anything else.

use askama::Template;
use itertools::Itertools as _;

use super::model::{Job, LeftOut, MACHINE, Report, Run, Source, device_name};
use super::read::printable;
use crate::figures::{median, wrapped};
use crate::view;

/// The maximum number of results that one warning names.
const NAMED_MAX: usize = 4;

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
        let all = self.differences().into_iter();
        all.map(|difference| format!("\n{}\n", wrapped(&difference, width))).collect()
    }

    /// Returns the same, a line for each.
    pub(crate) fn differences(&self) -> Vec<String> {
        warnings(self).into_iter().map(|(what, so)| format!("{what} {so}")).collect()
    }
}

/// Returns all warnings: each is a difference and its consequence.
pub(super) fn warnings(report: &Report) -> Vec<(String, String)> {
    let text = view::render(&Warnings { report });
    let parts = text.lines().filter_map(|line| line.rsplit_once('|'));
    parts.map(|(what, so)| (what.to_owned(), so.to_owned())).collect()
}

/// The warnings, each a line: the difference, and after a bar its consequence.
#[derive(Template)]
#[template(path = "warnings.txt", escape = "none")]
struct Warnings<'a> {
    report: &'a Report,
}

impl Source {
    fn is_silent(&self) -> bool {
        self.fact("cpu").is_none()
    }

    fn is_interrupted(&self) -> bool {
        self.fact("interrupted") == Some("yes")
    }
}

impl Warnings<'_> {
    fn differ(&self, name: &str) -> bool {
        !self.report.sources.iter().filter_map(|source| source.fact(name)).all_equal()
    }

    /// Returns the fact of each source that has it.
    fn told(&self, name: &str) -> String {
        let value = |value: &str| if value.is_empty() { "none" } else { value }.to_owned();
        let of = |(at, source): (usize, &Source)| {
            Some(format!("{}: {}", self.label(at), value(source.fact(name)?)))
        };
        printable(&self.report.sources.iter().enumerate().filter_map(of).unique().join("; "))
    }

    /// Returns the file's label, or its side of a change.
    fn label(&self, at: usize) -> &str {
        match self.report.before {
            Some(before) if at < before => "before",
            Some(_) => "after",
            None => &self.report.sources[at].label,
        }
    }

    /// Returns the median times of the machine before and after a change, with their names, if they
    /// differ by more than a tenth.
    fn drifted(&self) -> Vec<(&'static str, String)> {
        let Some(before) = self.report.before else { return Vec::new() };
        let rtt = |source: &Source| source.fact("cacheline_rtt_ns")?.parse().ok();
        let rtts = self.report.sources.iter().enumerate();
        let rtts: Vec<(usize, f64)> = rtts.filter_map(|(at, of)| Some((at, rtt(of)?))).collect();
        let floors = self.report.jobs.iter().flat_map(Job::runs);
        let floors = floors.filter_map(|run| Some((run.source, run.floor_ns?))).collect();
        let times = [("cache-line times", rtts), ("floors", floors)].into_iter();
        let told = times.filter_map(|(name, times)| {
            let (from, to): (Vec<_>, Vec<_>) = times.into_iter().partition(|(at, _)| *at < before);
            let of =
                |side: Vec<(usize, f64)>| median(&side.iter().map(|(_, ns)| *ns).collect_vec());
            let (from_ns, to_ns) = (of(from)?, of(to)?);
            let differ = (to_ns / from_ns).ln().abs() > 1.1f64.ln();
            differ.then(|| (name, format!("before: {from_ns:.0} ns; after: {to_ns:.0} ns")))
        });
        told.collect()
    }

    fn machines(&self) -> String {
        MACHINE.into_iter().filter(|name| self.differ(name)).map(|name| self.told(name)).join(" – ")
    }

    fn labels(&self, of: fn(&Source) -> bool) -> String {
        let those = self.report.sources.iter().enumerate().filter(|(_, source)| of(source));
        printable(&those.map(|(at, _)| self.label(at)).unique().join(", "))
    }

    fn failed(&self) -> u64 {
        self.report.jobs.iter().flat_map(Job::runs).map(|run| run.errors).sum()
    }

    /// Finds polling threads that used little CPU, although no program was meant to compete with
    /// them.
    fn starved(&self) -> String {
        const ENOUGH_PERCENT: f64 = 90.0;
        // The kernel counts CPU time by its ticks.
        const MEASURABLE_MS: f64 = 100.0;
        let starved = |job: &Job, run: &Run| {
            let alone = run.way == "poll" && run.competitor_percent.is_none() && !run.is_paced;
            let long = run.latency.n > 0 && run.runtime_ms >= MEASURABLE_MS;
            // The sum of all threads.
            let threads = f64::from(run.workload.threads);
            let percent = run.cpu_percent.filter(|sum| *sum < ENOUGH_PERCENT * threads)?;
            let (device, label) = (device_name(&run.device), &run.label);
            let counts = alone && long;
            counts.then(|| format!("{} on {device}, {label}: {percent:.0} %", job.name))
        };
        let of_job = |job: &'_ Job| job.runs().filter_map(|run| starved(job, run)).collect_vec();
        let mut all = self.report.jobs.iter().flat_map(of_job).collect_vec();
        let more = all.len().saturating_sub(NAMED_MAX);
        all.truncate(NAMED_MAX);
        all.extend((more > 0).then(|| format!("and {more} more")));
        printable(&all.join(", "))
    }
}
