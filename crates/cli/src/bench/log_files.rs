//! The files of `write_lat_log` and related keys: `NAME_lat.N.log`, where N counts the threads of
//! all results from 1.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use meantime_bench::run::{Group, JobResult};

use crate::failure::{Failure, warn};
use crate::job::{Job, LogKeys, LogName};
use crate::output;
use meantime_report::run::{LogKind, LogRows, LogStyle, write_log};

/// The log of one thread.
struct Part {
    rows: LogRows,
    style: LogStyle,
    /// The file of each kind.
    files: Vec<(LogKind, PathBuf)>,
}

/// The logs of a run.
#[derive(Default)]
pub(super) struct LogFiles {
    threads: usize,
    parts: Vec<Part>,
}

/// Returns the kinds of log that `keys` request, with the beginnings of their names.
fn kinds<'a>(keys: &'a LogKeys, job: &'a Job) -> Vec<(LogKind, &'a str)> {
    let of = |name: &'a Option<LogName>, kinds: &[LogKind]| -> Vec<(LogKind, &'a str)> {
        let name = name.as_ref().map(|name| match name {
            LogName::OfJob => job.name.as_str(),
            LogName::Named(name) => name,
        });
        name.into_iter().flat_map(|name| kinds.iter().map(move |kind| (*kind, name))).collect()
    };
    let mut all = of(&keys.lat, &[LogKind::Slat, LogKind::Clat, LogKind::Lat]);
    all.extend(of(&keys.bw, &[LogKind::Bw]));
    all.extend(of(&keys.iops, &[LogKind::Iops]));
    all.extend(of(&keys.hist, &[LogKind::Hist]));
    all
}

fn path(kind: LogKind, name: &str, number: Option<usize>) -> PathBuf {
    let number = number.map_or(String::new(), |number| format!(".{number}"));
    PathBuf::from(format!("{name}_{}{number}.log", kind.suffix()))
}

/// Returns all files that the logs of `groups` may be in, each once.
pub(super) fn paths(groups: &[Group]) -> Vec<PathBuf> {
    let threads = |group: &Group| {
        let numjobs: usize = group.plans.iter().map(|plan| plan.job.numjobs as usize).sum();
        group.cell_count() * numjobs
    };
    let most: usize = groups.iter().map(threads).sum();
    let mut all = Vec::new();
    for plan in groups.iter().flat_map(|group| &group.plans) {
        for (kind, name) in kinds(&plan.job.logs, &plan.job) {
            match plan.job.logs.per_job {
                true => all.extend((1..=most).map(|number| path(kind, name, Some(number)))),
                false => all.push(path(kind, name, None)),
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Checks that the files can be written, before anything runs.
pub(super) fn prepare(groups: &[Group]) -> Result<(), Failure> {
    for plan in groups.iter().flat_map(|group| &group.plans) {
        for (kind, name) in kinds(&plan.job.logs, &plan.job) {
            let path = path(kind, name, plan.job.logs.per_job.then_some(1));
            output::can_replace(&path)
                .map_err(|error| failed(&path, &error, "; give the log another name"))?;
        }
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error, advice: &str) -> Failure {
    Failure::new(format_args!("cannot write the log {}: {error}{advice}", path.display()))
}

impl LogFiles {
    /// Takes the logs of `result`. Returns the line with the names of its files, if it has any.
    pub(super) fn add(&mut self, result: &mut JobResult) -> String {
        let first = self.threads + 1;
        let logs = result.take_logs();
        self.threads += logs.len();
        let (job, keys) = (&result.plan.job, &result.plan.job.logs);
        let kinds = kinds(keys, job);
        if kinds.is_empty() {
            return String::new();
        }
        let style = LogStyle {
            offset: keys.offset,
            max_value: keys.max_value,
            avg_ms: keys.avg_ms,
            hist_coarseness: keys.hist_coarseness,
            block_bytes: result.block_bytes,
            ioprio: job.usual_priority_bits(),
            prio: keys.prio,
        };
        let mut dropped = 0;
        for (number, rows) in (first..).zip(logs) {
            let Some(rows) = rows else { continue };
            dropped += rows.dropped;
            let file = |(kind, name): &(LogKind, &str)| {
                (*kind, path(*kind, name, keys.per_job.then_some(number)))
            };
            self.parts.push(Part { rows, style, files: kinds.iter().map(file).collect() });
        }
        if dropped > 0 {
            warn(format_args!(
                "job {}: the logs of {} with {} lack the last {dropped} I/Os, for which there was \
                 no memory; set log_avg_msec=",
                job.name, result.uri, result.policy
            ));
        }
        let mut line = String::from("  logs         : ");
        let mut names: Vec<String> = Vec::new();
        for (kind, name) in &kinds {
            let which = if keys.per_job { ".N" } else { "" };
            names.push(format!("{name}_{}{which}.log", kind.suffix()));
        }
        line += &names.join(", ");
        if keys.per_job {
            let last = self.threads;
            let numbers =
                if first == last { first.to_string() } else { format!("{first} to {last}") };
            let _ = write!(line, "; N={numbers}");
        }
        line + "\n"
    }

    /// Writes all files, each as a whole.
    pub(super) fn write(self) -> Result<(), Failure> {
        let mut files: BTreeMap<&PathBuf, Vec<(LogKind, &Part)>> = BTreeMap::new();
        for part in &self.parts {
            for (kind, path) in &part.files {
                files.entry(path).or_default().push((*kind, part));
            }
        }
        for (path, parts) in files {
            let write = |out: &mut dyn std::io::Write| {
                parts
                    .iter()
                    .try_for_each(|(kind, part)| write_log(out, &part.rows, *kind, part.style))
            };
            output::replace(path, write).map_err(|error| failed(path, &error, ""))?;
        }
        Ok(())
    }
}
