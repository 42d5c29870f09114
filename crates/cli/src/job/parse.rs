//! The line parser: sections, comments, `key=value`.

use std::collections::HashSet;
use std::sync::Arc;

use super::error::{JobError, Origin, Problem, shown};
use super::{JOBS_MAX, Job, store};

/// A job file, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// The jobs in the order of their sections. Equal names are distinct jobs.
    pub jobs: Vec<Job>,
    /// What to tell the user although nothing is wrong, each with file and line.
    pub warnings: Vec<String>,
}

/// Where the keys of the current section go.
enum Section {
    None,
    Global,
    Job,
}

/// Reads a job file from its text; `source` names it in messages.
///
/// `[global]` gives defaults to the sections that follow it; a later `[global]` adds to and overrides an earlier one. A
/// comment is a line that begins with `;` or `#`, or what follows a blank and one of them (as fio has it).
/// Contradictions between keys are left to [`Job::validate`], since the command line may still change them.
pub fn parse(text: &str, source: &str) -> Result<JobFile, JobError> {
    let source: Arc<str> = Arc::from(source);
    let mut global = Job::new("global");
    let mut section = Section::None;
    let mut seen_here: HashSet<String> = HashSet::new();
    let mut file = JobFile { jobs: Vec::new(), warnings: Vec::new() };
    let (mut last_line, mut anything) = (1, false);

    for (index, raw) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let origin = Origin::File { source: source.clone(), line: index + 1 };
        let line = without_comment(raw).trim();
        last_line = index + 1;
        if line.is_empty() {
            continue;
        }
        anything = true;
        if line.starts_with('[') {
            seen_here.clear();
            let name = section_name(line, &origin)?;
            if name == "global" {
                section = Section::Global;
            } else {
                if file.jobs.len() == JOBS_MAX {
                    return Err(JobError::new(&origin, Problem::TooManyJobs));
                }
                section = Section::Job;
                file.jobs.push(global.inherit(name));
            }
            continue;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value.trim_start())),
            None => (line, None),
        };
        if key.is_empty() {
            return Err(JobError::new(&origin, Problem::NoKey(shown(line))));
        }
        let job = match section {
            Section::None => return Err(JobError::new(&origin, Problem::OutsideSection(shown(key)))),
            Section::Global if key == "name" => {
                file.warnings.push(format!("{origin}: name has no effect in [global]"));
                continue;
            }
            Section::Global => &mut global,
            Section::Job => match file.jobs.last_mut() {
                Some(job) => job,
                None => &mut global,
            },
        };
        if let Some(warning) = job.set(key, value, &origin)? {
            file.warnings.push(warning);
        }
        if !seen_here.insert(key.to_owned()) {
            file.warnings
                .push(format!("{origin}: {} again in this section; the last one counts", shown(key)));
        }
    }

    if file.jobs.is_empty() {
        let problem = if anything { Problem::NoJobs } else { Problem::EmptyFile };
        return Err(JobError::new(&Origin::File { source, line: last_line }, problem));
    }
    Ok(file)
}

/// The line up to a comment.
fn without_comment(line: &str) -> &str {
    let mut after_blank = true;
    for (at, c) in line.char_indices() {
        if after_blank && (c == ';' || c == '#') {
            return &line[..at];
        }
        after_blank = c.is_whitespace();
    }
    line
}

fn section_name(line: &str, origin: &Origin) -> Result<String, JobError> {
    let bad = || JobError::new(origin, Problem::Section(shown(line)));
    let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or_else(bad)?.trim();
    if name == "global" {
        return Ok(name.to_owned());
    }
    store::job_name(name).map_err(|_| bad())
}
