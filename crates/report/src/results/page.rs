//! The page: findings first, then a section for each job, then the conditions of the measurement.

use askama::Template;
use itertools::Itertools as _;

use super::model::{Job, Report, Source, device_name};
use super::{differences, headline, maps, plots, sweep, tables};
use crate::{machine, view};

#[derive(Template)]
#[template(path = "results.html")]
struct Page<'a> {
    generator: &'a str,
    title: String,
    report: &'a Report,
}

impl Report {
    /// Returns the page, which is one file; `generator` is the program that makes it.
    pub fn page(&self, generator: &str) -> String {
        view::render(&Page { generator, title: title(self), report: self })
    }
}

fn title(report: &Report) -> String {
    let blocks = report.jobs.iter().flat_map(|job| &job.blocks);
    let devices: Vec<String> = blocks.map(|block| device_name(&block.device)).unique().collect();
    let more = match devices.len().saturating_sub(3) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("I/O latency: {}{more}", devices.iter().take(3).join(", "))
}

impl Page<'_> {
    fn has_several(&self) -> bool {
        self.report.sources.len() > 1
    }

    /// Returns the names of the jobs that ran at the same time.
    fn beside(&self, job: &Job) -> String {
        let runs = self.report.jobs.iter().flat_map(Job::runs);
        let beside = runs.filter(|run| job.runs().any(|ours| ours.ran_beside(run)));
        beside.map(|run| &run.job).unique().join(", ")
    }

    /// Describes where, with which tool, and when a file's results were measured.
    fn line(&self, source: &Source) -> String {
        let utc = if source.is_fio() { "" } else { " UTC" };
        let fact = |name: &str| source.fact(name).map(str::to_owned);
        let revision = fact("revision").map_or(String::new(), |revision| format!(" ({revision})"));
        let label = self.has_several().then(|| source.label.clone());
        let time = fact("time").map(|time| format!("{time}{utc}"));
        let tool = fact("tool").unwrap_or_default() + &revision;
        label.into_iter().chain(time).chain(machine::described(fact)).chain([tool]).join(" · ")
    }
}

/// The titles of facts, one per line. Facts without a title are shown elsewhere. Facts that are not
/// listed appear under their own name.
const FACTS: &str = include_str!("../../templates/facts.txt");

/// Returns the facts of the machines. Each has its name, whether files differ in it, and its value
/// in each file.
fn facts(report: &Report) -> Vec<(String, bool, Vec<String>)> {
    let sources = &report.sources;
    let told = sources.iter().flat_map(|source| &source.facts).map(|(name, _)| name.as_str());
    let titles = || FACTS.lines().filter_map(|line| line.split_once(':'));
    let names = titles().map(|(name, _)| name).chain(told).unique();
    let fact = |name: &str| {
        let title = titles().find(|(known, _)| *known == name);
        let title = title.map_or(name.replace('_', " "), |(_, title)| title.trim().to_owned());
        let values: Vec<_> = sources.iter().map(|source| source.fact(name)).collect();
        let differs = values.iter().any(|value| value.is_some() && *value != values[0]);
        let known = !title.is_empty() && values.iter().any(Option::is_some);
        let words = |value| match value {
            None => "not told",
            Some("") => "none",
            Some(value) => value,
        };
        let values = values.into_iter().map(|value| words(value).to_owned()).collect();
        known.then_some((title, differs, values))
    };
    names.filter_map(fact).collect()
}

/// Returns the commands that produced each file and the page.
fn commands(report: &Report) -> Vec<String> {
    let several = report.sources.len() > 1;
    let runs = report.sources.iter().filter_map(|Source { label, command, .. }| match several {
        true => Some(format!("# {label}\n{}", command.as_ref()?)),
        false => command.clone(),
    });
    let files = report.sources.iter().filter_map(|source| source.path.as_deref());
    let files = files.map(machine::shell_word).join(" ");
    let page = (!files.is_empty()).then(|| format!("meantime report {files}"));
    runs.chain(page).collect()
}
