//! Builds the model from parsed files: sorts jobs by workload, devices within them, and gives each
//! policy a look.

use itertools::Itertools as _;
use serde_json::Value;

use super::model::{Block, Job, Report, Run, Source, device_kind};
use super::read::{Parsed, read};
use super::workload::Workload;
use crate::plot::{Style, looks};

/// Policies in the order in which they are shown.
const KNOWN_WAYS: [&str; 4] = ["interrupt", "poll", "hybrid", "adaptive"];

impl Report {
    /// Builds a report of `files`: each a path, if the JSON comes from a file, and its JSON. The
    /// error has the path, unless there is only one file.
    pub fn new(files: &[(Option<String>, Value)]) -> Result<Self, String> {
        let mut report = Self::default();
        let mut all: Vec<(Workload, String, Run)> = Vec::new();
        for (at, (path, json)) in files.iter().enumerate() {
            let named = |error: String| {
                path.as_ref().map_or(error.clone(), |path| format!("{path}: {error}"))
            };
            let Parsed { mut source, runs, left_out } = read(json).map_err(named)?;
            source.path.clone_from(path);
            report.sources.push(source);
            report.left_out.extend(left_out.into_iter().map(|mut one| {
                one.source = at;
                one
            }));
            all.extend(runs.into_iter().map(|(workload, device, mut run)| {
                run.source = at;
                (workload, device, run)
            }));
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

/// Sets the label and the look of each run within its block.
fn label_runs(all: &mut [(Workload, String, Run)], sources: &[Source]) {
    let mut ways: Vec<String> = all.iter().map(|(_, _, run)| run.way.clone()).unique().collect();
    for (_, _, run) in all.iter_mut() {
        run.label = match sources {
            [_] => run.way.clone(),
            _ => format!("{} · {}", run.way, sources[run.source].label),
        };
    }
    ways.sort_by_key(|way| {
        KNOWN_WAYS.iter().position(|known| known == way).unwrap_or(KNOWN_WAYS.len())
    });
    let looks = looks(&ways);
    for (_, _, run) in all.iter_mut() {
        let at = ways.iter().position(|way| *way == run.way).unwrap_or(0);
        run.style = Style { way: looks.get(at).copied().unwrap_or(0), source: run.source };
    }
}

fn jobs(all: Vec<(Workload, String, Run)>, sources: &[Source]) -> Vec<Job> {
    // Jobs of one file with the same workload but different names differ in something else.
    let ambiguous: Vec<bool> = all
        .iter()
        .map(|(workload, _, run)| {
            all.iter().any(|(other, _, theirs)| {
                other == workload && theirs.source == run.source && theirs.job != run.job
            })
        })
        .collect();
    let one_machine = sources.iter().all(|source| source.is_machine_of(&sources[0]));
    let mut jobs: Vec<(bool, Job)> = Vec::new();
    for ((workload, device, run), ambiguous) in all.into_iter().zip(ambiguous) {
        let same = |(named, job): &(bool, Job)| {
            job.workload == workload && (!(ambiguous || *named) || job.name == run.job)
        };
        let at = jobs.iter().position(same).unwrap_or_else(|| {
            let job = Job { name: run.job.clone(), workload: workload.clone(), blocks: Vec::new() };
            jobs.push((ambiguous, job));
            jobs.len() - 1
        });
        let job = &mut jobs[at].1;
        if !job.name.split(" / ").any(|name| name == run.job) {
            job.name = format!("{} / {}", job.name, run.job);
        }
        add(job, device, run, sources, one_machine);
    }
    let mut jobs: Vec<Job> = jobs.into_iter().map(|(_, job)| job).collect();
    for block in jobs.iter_mut().flat_map(|job| &mut job.blocks) {
        // Puts runs of the same policy from several files next to each other.
        let ways: Vec<String> = block.runs.iter().map(|run| run.way.clone()).collect();
        block.runs.sort_by_key(|run| ways.iter().position(|way| *way == run.way));
    }
    jobs
}

fn add(job: &mut Job, device: String, mut run: Run, sources: &[Source], one_machine: bool) {
    let source = &sources[run.source];
    let is_ours = |block: &Block| {
        block.device == device
            && block.machine.is_none_or(|machine| sources[machine].is_machine_of(source))
    };
    let at = job.blocks.iter().position(is_ours).unwrap_or_else(|| {
        let machine = (!one_machine).then_some(run.source);
        let medium = device_kind(&device).to_owned();
        job.blocks.push(Block { medium, device, machine, runs: Vec::new() });
        job.blocks.len() - 1
    });
    let block = &mut job.blocks[at];
    // fio does not report the medium: another run on the same device provides it for all.
    if let Some(medium) = &run.medium {
        block.medium.clone_from(medium);
    }
    // The same workload again in one file: threads that fio reports apart, or a job of the same
    // name.
    let again = block
        .runs
        .iter()
        .filter(|other| other.way == run.way && other.source == run.source)
        .count();
    if again > 0 {
        run.label = format!("{} #{}", run.label, again + 1);
    }
    block.runs.push(run);
}
