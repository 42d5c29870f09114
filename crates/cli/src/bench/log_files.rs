//! The files of `write_lat_log`: `NAME_lat.N.log`, `NAME_clat.N.log` and `NAME_slat.N.log`, where N
//! counts the threads of all results from 1.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use meantime_bench::run::{Group, JobResult};
use meantime_report::run::{LogKind, LogRows, LogStyle, write_log};

use crate::failure::{Failure, warn};
use crate::job::{Job, LogName};
use crate::output;

/// The log of one thread.
struct Part {
    rows: LogRows,
    style: LogStyle,
    name: String,
    number: usize,
}

/// The logs of a run.
#[derive(Default)]
pub(super) struct LogFiles {
    threads: usize,
    parts: Vec<Part>,
}

/// Returns the beginning of the names of the job's logs, if it has any.
fn name_of(job: &Job) -> Option<&str> {
    match job.logs.lat.as_ref()? {
        LogName::OfJob => Some(&job.name),
        LogName::Named(name) => Some(name),
    }
}

fn path(kind: LogKind, name: &str, number: usize) -> PathBuf {
    PathBuf::from(format!("{name}_{}.{number}.log", kind.suffix))
}

fn names(groups: &[Group]) -> impl Iterator<Item = &str> {
    groups.iter().flat_map(|group| &group.plans).filter_map(|plan| name_of(&plan.job))
}

/// Returns all files that the logs of `groups` may be in, each once.
pub(super) fn paths(groups: &[Group]) -> Vec<PathBuf> {
    let threads = |group: &Group| {
        let numjobs: usize = group.plans.iter().map(|plan| plan.job.numjobs as usize).sum();
        group.cell_count() * numjobs
    };
    let most: usize = groups.iter().map(threads).sum();
    let names: BTreeSet<&str> = names(groups).collect();
    let kinds = names.into_iter().flat_map(|name| LogKind::ALL.map(|kind| (kind, name)));
    kinds.flat_map(|(kind, name)| (1..=most).map(move |number| path(kind, name, number))).collect()
}

/// Checks that the files can be written, before anything runs.
pub(super) fn prepare(groups: &[Group]) -> Result<(), Failure> {
    let [.., lat] = LogKind::ALL;
    for name in names(groups) {
        let path = path(lat, name, 1);
        output::can_replace(&path)
            .map_err(|error| failed(&path, &error, "; give the log another name"))?;
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
        let job = &result.plan.job;
        let Some(name) = name_of(job) else { return String::new() };
        let style = LogStyle {
            offset: job.logs.offset,
            block_bytes: result.block_bytes,
            real_time: job.is_real_time(),
        };
        let mut dropped = 0;
        for (number, rows) in (first..).zip(logs) {
            let Some(rows) = rows else { continue };
            dropped += rows.dropped;
            self.parts.push(Part { rows, style, name: name.to_owned(), number });
        }
        if dropped > 0 {
            warn(format_args!(
                "job {}: the logs of {} with {} lack the last {dropped} I/Os, for which there was \
                 no memory; set log_avg_msec=",
                job.name, result.uri, result.policy
            ));
        }
        let files = LogKind::ALL.map(|kind| format!("{name}_{}.N.log", kind.suffix)).join(", ");
        let numbers = match self.threads {
            last if last == first => last.to_string(),
            last => format!("{first} to {last}"),
        };
        format!("  logs         : {files}; N={numbers}\n")
    }

    /// Writes all files, each as a whole.
    pub(super) fn write(self) -> Result<(), Failure> {
        for Part { rows, style, name, number } in &self.parts {
            for kind in LogKind::ALL {
                let path = path(kind, name, *number);
                output::replace(&path, |out| write_log(out, rows, kind, *style))
                    .map_err(|error| failed(&path, &error, ""))?;
            }
        }
        Ok(())
    }
}
