//! The page: findings first, then a section for each job, then the conditions of the measurement.

use askama::Template;
use itertools::Itertools as _;

use super::differences::{self, Warning};
use super::headline::{self, Finding};
use super::model::{Job, LeftOut, Report, Source, device_name};
use super::{plots, read, tables};
use crate::view::{self, Figure, Table};

#[derive(Template)]
#[template(path = "results.html")]
struct Page<'a> {
    generator: &'a str,
    title: String,
    report: &'a Report,
    warnings: Vec<Warning>,
    findings: Vec<Finding>,
    jobs: Vec<Section<'a>>,
    facts: Vec<Fact>,
    commands: Vec<String>,
}

/// A job.
struct Section<'a> {
    job: &'a Job,
    table: Table,
    notes: Vec<(bool, String)>,
    figures: Vec<Figure>,
}

/// A fact of the machines: its name, and its value in each file.
struct Fact {
    name: String,
    differs: bool,
    values: Vec<String>,
}

impl Report {
    /// Returns the page, which is one file; `generator` is the program that makes it.
    pub fn page(&self, generator: &str) -> String {
        let sections = self.jobs.iter().map(|job| Section {
            job,
            table: tables::table(self, job),
            notes: tables::notes(self, job),
            figures: plots::figures(self, job),
        });
        view::page(&Page {
            generator,
            title: title(self),
            report: self,
            warnings: differences::warnings(self),
            findings: headline::findings(self),
            jobs: sections.collect(),
            facts: facts(self),
            commands: commands(self),
        })
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

    /// Describes where, with which tool, and when a file's results were measured.
    fn line(&self, source: &Source) -> String {
        let utc = if source.is_fio() { "" } else { " UTC" };
        let cpus = source.fact("cpus").map_or(String::new(), |cpus| format!(", {cpus} CPUs"));
        let revision =
            source.fact("revision").map_or(String::new(), |revision| format!(" ({revision})"));
        let parts = [
            self.has_several().then(|| source.label.clone()),
            source.time.as_ref().map(|time| format!("{time}{utc}")),
            source.fact("cpu").map(|cpu| format!("{cpu}{cpus}")),
            source.fact("kernel").map(|kernel| format!("Linux {kernel}")),
            (source.fact("virtual_machine") == Some("yes")).then(|| "virtual machine".to_owned()),
            Some(format!("{}{revision}", source.tool.replacen('-', " ", 1))),
        ];
        parts.iter().flatten().join(" · ")
    }

    /// Describes a device and policy that could not be measured, and names the file.
    fn what(&self, one: &LeftOut) -> String {
        let source = match self.has_several() {
            true => format!(" ({})", self.report.sources[one.source].label),
            false => String::new(),
        };
        format!("{}, {}{source}:", one.device, one.way)
    }

    fn is_ours(&self) -> bool {
        self.report.sources.iter().any(|source| !source.is_fio())
    }

    fn is_fios(&self) -> bool {
        self.report.sources.iter().any(Source::is_fio)
    }
}

/// Titles of facts. Facts with an empty title are shown elsewhere, facts that are not listed under
/// their own name.
const FACTS: [(&str, &str); 15] = [
    ("cpu", "CPU"),
    ("cpus", "CPUs usable"),
    ("virtual_machine", "virtual machine"),
    ("kernel", "Linux"),
    ("governor", "frequency governor"),
    ("isolcpus", "CPUs kept from the scheduler"),
    ("dma_pages", "pages of DMA memory"),
    ("cacheline_rtt_ns", "cache line there and back, ns (median)"),
    ("turns_repeated", "turns repeated because the CPUs moved"),
    ("turns_disturbed", "turns counted although the CPUs moved"),
    ("interrupted", "ended early"),
    ("version", ""),
    ("revision", "revision"),
    ("command", ""),
    ("left_out", ""),
];

fn facts(report: &Report) -> Vec<Fact> {
    let fact = |name: &str, of: &dyn Fn(&Source) -> Option<String>| -> Option<Fact> {
        let values: Vec<Option<String>> = report.sources.iter().map(of).collect();
        let known = values.iter().any(Option::is_some);
        let differs = values.iter().any(|value| value.is_some() && *value != values[0]);
        let words = |value: Option<String>| match value {
            None => "not told".to_owned(),
            Some(value) if value.is_empty() => "none".to_owned(),
            Some(value) => value,
        };
        let values = values.into_iter().map(words).collect();
        known.then(|| Fact { name: name.to_owned(), differs, values })
    };
    let told =
        report.sources.iter().flat_map(|source| &source.facts).map(|(name, _)| name.as_str());
    let names = FACTS.iter().map(|(name, _)| *name).chain(told).unique();
    let named = names.filter_map(|name| {
        let words = FACTS.iter().find(|(known, _)| *known == name).map(|(_, words)| *words);
        let words = words.map_or_else(|| name.replace('_', " "), str::to_owned);
        fact(&words, &|source| source.fact(name).map(str::to_owned)).filter(|_| !words.is_empty())
    });
    let measured = fact("measured by", &|source| Some(source.tool.replacen('-', " ", 1)));
    measured.into_iter().chain(fact("ended", &|source| source.time.clone())).chain(named).collect()
}

/// Returns the commands that produced each file and the page.
fn commands(report: &Report) -> Vec<String> {
    let several = report.sources.len() > 1;
    let label = |source: &Source| match several {
        true => format!("# {}\n", source.label),
        false => String::new(),
    };
    let runs = report.sources.iter().filter_map(|source| {
        source.command.as_ref().map(|command| format!("{}{command}", label(source)))
    });
    let files = report.sources.iter().filter_map(|source| source.path.as_deref());
    let files = files.map(read::shell_word).join(" ");
    let page = (!files.is_empty()).then(|| format!("meantime report {files}"));
    runs.chain(page).collect()
}
