//! Builds the model from parsed files: sorts jobs by workload, devices within them, and gives each
//! policy a look.

use itertools::Itertools as _;
use serde_json::Value;

use super::model::{Block, Job, Report, Run, Source, device_kind};
use super::read::read;
use crate::plot::Style;

impl Report {
    /// Builds a report of `files`: each is its JSON, and its path if the JSON comes from a file. An
    /// error begins with that path.
    pub fn new(files: &[(Option<String>, Value)]) -> Result<Self, String> {
        let mut report = Self::default();
        let mut all = Vec::new();
        for (at, (path, json)) in files.iter().enumerate() {
            let file = || path.as_ref().map_or(String::new(), |path| format!("{path}: "));
            let (source, runs, left_out) = read(at, path, json).map_err(|error| file() + &error)?;
            report.sources.push(source);
            // Several jobs, or those of a sweep, may lack the same.
            report.left_out.extend(left_out.into_iter().unique());
            all.extend(runs);
        }
        label_sources(&mut report.sources);
        label_runs(&mut all, &report.sources);
        report.jobs = jobs(all, &report.sources);
        Ok(report)
    }
}

/// Labels files by their names without the common parts.
fn label_sources(sources: &mut [Source]) {
    let paths: Vec<String> =
        sources.iter().map(|source| source.path.clone().unwrap_or_default()).collect();
    let stem = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.strip_suffix(".json").unwrap_or(name).to_owned()
    };
    for (at, source) in sources.iter_mut().enumerate() {
        let short = stem(&paths[at]);
        let unique = paths.iter().filter(|path| stem(path) == short).count() == 1;
        source.label = if unique && !short.is_empty() { short } else { paths[at].clone() };
    }
}

/// Sets the label and the style of each run.
fn label_runs(all: &mut [Run], sources: &[Source]) {
    let ways: Vec<String> = all.iter().map(|run| run.way.clone()).unique().collect();
    for run in all {
        run.label = match sources {
            [_] => run.way.clone(),
            _ => format!("{} · {}", run.way, sources[run.source].label),
        };
        run.style = Style::of(&ways, &run.way).in_file(run.source);
    }
}

fn jobs(all: Vec<Run>, sources: &[Source]) -> Vec<Job> {
    // Jobs of one file with the same workload but different names differ in something else.
    let is_ambiguous = |run: &Run| {
        let alike = |of: &&Run| of.workload == run.workload && of.source == run.source;
        all.iter().filter(alike).any(|other| other.job != run.job)
    };
    let ambiguous: Vec<bool> = all.iter().map(is_ambiguous).collect();
    let one_machine = sources.iter().all(|source| source.is_machine_of(&sources[0]));
    let mut jobs: Vec<(bool, Job)> = Vec::new();
    for (run, ambiguous) in all.into_iter().zip(ambiguous) {
        let same = |(named, job): &(bool, Job)| {
            job.workload == run.workload && (!(ambiguous || *named) || job.name == run.job)
        };
        let at = jobs.iter().position(same).unwrap_or_else(|| {
            let (name, workload) = (run.job.clone(), run.workload.clone());
            jobs.push((ambiguous, Job { name, workload, blocks: Vec::new() }));
            jobs.len() - 1
        });
        let job = &mut jobs[at].1;
        if !job.name.split(" / ").any(|name| name == run.job) {
            job.name = format!("{} / {}", job.name, run.job);
        }
        add(job, run, sources, one_machine);
    }
    let mut jobs: Vec<Job> = jobs.into_iter().map(|(_, job)| job).collect();
    for block in jobs.iter_mut().flat_map(|job| &mut job.blocks) {
        // Puts runs of the same policy from several files next to each other.
        let ways: Vec<String> = block.runs.iter().map(|run| run.way.clone()).collect();
        block.runs.sort_by_key(|run| ways.iter().position(|way| *way == run.way));
        for at in 1..block.runs.len() {
            let (before, rest) = block.runs.split_at_mut(at);
            let run = &mut rest[0];
            run.first_ns = before[0].mean_ns();
            let same = before.iter().find(|other| other.way == run.way);
            run.before_ns = same.filter(|of| of.source != run.source).and_then(Run::mean_ns);
        }
    }
    jobs
}

fn add(job: &mut Job, mut run: Run, sources: &[Source], one_machine: bool) {
    let source = &sources[run.source];
    let is_ours = |block: &Block| {
        block.device == run.device
            && block.machine.is_none_or(|machine| sources[machine].is_machine_of(source))
    };
    let at = job.blocks.iter().position(is_ours).unwrap_or_else(|| {
        let machine = (!one_machine).then_some(run.source);
        let (device, medium) = (run.device.clone(), device_kind(&run.device).to_owned());
        job.blocks.push(Block { medium, device, machine, runs: Vec::new() });
        job.blocks.len() - 1
    });
    let block = &mut job.blocks[at];
    // fio does not report the medium: another run on the same device provides it for all.
    if let Some(medium) = &run.medium {
        block.medium.clone_from(medium);
    }
    // The same workload may occur again in one file: fio reports threads apart, or a job has the
    // same name.
    let same = |other: &&Run| other.way == run.way && other.source == run.source;
    let again = block.runs.iter().filter(same).count();
    if again > 0 {
        run.label = format!("{} #{}", run.label, again + 1);
    }
    block.runs.push(run);
}
