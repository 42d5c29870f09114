//! The line parser: sections, comments, `key=value`.

use std::collections::HashSet;
use std::sync::Arc;

use super::error::{JobError, Origin, Problem, shown};
use super::keys::{Ignored, Note};
use super::variables::{Environment, replaced};
use super::{JOBS_MAX, Job, value};

/// The content of a job file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// The jobs in the order of their sections. Equal names are distinct jobs.
    pub jobs: Vec<Job>,
    /// Warnings, each with file and line.
    pub warnings: Vec<String>,
    /// Keys without effect.
    pub ignored: Vec<Ignored>,
    /// All errors, in the order of the lines. The jobs lack these keys.
    pub errors: Vec<JobError>,
}

/// The section that receives the keys.
enum Section {
    None,
    Global,
    Job,
    /// A section with a wrong header, which was reported.
    Nowhere,
}

struct Parser<'a> {
    environment: Environment<'a>,
    global: Job,
    section: Section,
    seen_here: HashSet<String>,
    file: JobFile,
}

/// Reads a job file from its text. Messages name it `source`.
///
/// `[global]` sets defaults for the sections that follow it. A later `[global]` adds to an earlier
/// one and overrides it. A comment is a line that begins with `;` or `#`, or text after a blank and
/// one of them (as in fio). [`Job::validate`] checks for contradictions between keys, since the
/// command line may still change them.
pub fn parse(text: &str, source: &str) -> JobFile {
    parse_in(text, source, &|name| std::env::var(name).ok())
}

/// Reads a job file with the variables of `environment`.
pub(super) fn parse_in(text: &str, source: &str, environment: Environment<'_>) -> JobFile {
    let source: Arc<str> = Arc::from(source);
    let mut parser = Parser {
        environment,
        global: Job::new("global"),
        section: Section::None,
        seen_here: HashSet::new(),
        file: JobFile::default(),
    };
    let (mut last_line, mut anything) = (1, false);
    for (index, raw) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let origin = Origin::File { source: source.clone(), line: index + 1 };
        let line = without_comment(raw).trim();
        last_line = index + 1;
        anything |= !line.is_empty();
        let read = match line {
            "" => Ok(()),
            header if header.starts_with('[') => parser.header(header, &origin),
            line => parser.key(line, &origin),
        };
        if let Err(error) = read {
            let full = error.problem == Problem::TooManyJobs;
            parser.file.errors.push(error);
            if full {
                break;
            }
        }
    }
    let mut file = parser.file;
    if file.jobs.is_empty() && file.errors.is_empty() {
        let problem = if anything { Problem::NoJobs } else { Problem::EmptyFile };
        file.errors.push(JobError::new(&Origin::File { source, line: last_line }, problem));
    }
    file
}

impl Parser<'_> {
    /// Parses `[name]`.
    fn header(&mut self, line: &str, origin: &Origin) -> Result<(), JobError> {
        self.seen_here.clear();
        self.section = Section::Nowhere;
        let name = section_name(line, origin)?;
        if name == "global" {
            self.section = Section::Global;
            return Ok(());
        }
        if self.file.jobs.len() == JOBS_MAX {
            return Err(JobError::new(origin, Problem::TooManyJobs));
        }
        self.section = Section::Job;
        self.file.jobs.push(self.global.inherit(name));
        Ok(())
    }

    /// Parses `key=value` or `key`.
    fn key(&mut self, line: &str, origin: &Origin) -> Result<(), JobError> {
        let fail = |problem: Problem| Err(JobError::new(origin, problem));
        let line = replaced(line, self.environment)
            .map_err(|why| JobError::new(origin, Problem::Variable(why)))?;
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key.trim_end(), Some(value.trim_start())),
            None => (line.as_str(), None),
        };
        if key.is_empty() {
            return fail(Problem::NoKey(shown(&line)));
        }
        let file = &mut self.file;
        let job = match (&self.section, file.jobs.last_mut()) {
            (Section::None, _) => return fail(Problem::OutsideSection(shown(key))),
            (Section::Nowhere, _) => return Ok(()),
            (Section::Global, _) if key == "name" => {
                file.warnings.push(format!("{origin}: name has no effect in [global]"));
                return Ok(());
            }
            (Section::Job, Some(job)) => job,
            (Section::Global | Section::Job, _) => &mut self.global,
        };
        match job.set(key, value, origin) {
            Ok(Some(Note::Remark(remark))) => file.warnings.push(remark),
            Ok(Some(Note::Ignored(ignored))) => file.ignored.push(ignored),
            Ok(None) => {}
            Err(error) => {
                job.is_faulty = true;
                return Err(error);
            }
        }
        if !self.seen_here.insert(key.to_owned()) {
            let again =
                format!("{origin}: {} again in this section; the last one counts", shown(key));
            file.warnings.push(again);
        }
        Ok(())
    }
}

/// Returns the line up to a comment.
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
    let name =
        line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or_else(bad)?.trim();
    if name == "global" {
        return Ok(name.to_owned());
    }
    value::job_name(name).map_err(|_| bad())
}
