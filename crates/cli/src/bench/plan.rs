//! What to run: jobs, devices and policies, checked as a whole before anything runs.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use meantime_block::BlockInfo;
use meantime_completion::Policy;
use meantime_hw::SchedClass;

use super::pattern::PatternSpec;
use super::target::Wanted;
use crate::cli::BenchArgs;
use crate::failure::Failure;
use crate::job::{
    self, Ignored, Job, JobError, JobErrors, JobFile, Note, Origin, Verify, ZoneMode,
};
use crate::output;

/// Run for so long if neither time nor size is given.
pub(crate) const DEFAULT_RUNTIME: Duration = Duration::from_secs(5);

/// The largest job file.
const JOB_FILE_MAX_BYTES: u64 = 16 << 20;

const DEFAULT_POLICIES: &str = "interrupt,poll,hybrid,adaptive";

/// A job with the devices and policies it is to be run on.
#[derive(Debug, Clone)]
pub(crate) struct JobPlan {
    /// The job.
    pub job: Job,
    /// Indices into the run's devices.
    pub devices: Vec<usize>,
    /// Ways to wait, one for each policy of the group.
    pub policies: Vec<Policy>,
    /// Scheduling classes of its threads, one for each of the group (`None`: as they are).
    pub scheds: Vec<Option<SchedClass>>,
    /// How long to measure each cell at most; `None`: until all is transferred.
    pub runtime: Option<Duration>,
    /// Whether to go on until the runtime is over.
    pub endless: bool,
    /// The reporting group, from 0.
    pub group_id: u32,
    /// What its random numbers begin with.
    pub seed: u64,
    /// A log of one thread has room for so many entries.
    pub log_entries_max: usize,
}

impl JobPlan {
    /// Whether blocks have headers, and are checked unless `do_verify=0`: those that the job
    /// writes, or, if it only reads, those of a job before.
    pub(crate) fn verifies(&self) -> bool {
        self.job.verify != Verify::None && !self.job.trims()
    }

    /// Whether a turn that is not counted would change what the next one does.
    pub(crate) fn is_stateful(&self) -> bool {
        self.verifies() || self.job.zones.mode() == ZoneMode::Zbd && self.job.changes()
    }

    /// The part of a device that the job works on: offset and length in bytes.
    pub(crate) fn whole_range(&self, info: &BlockInfo) -> (u64, u64) {
        let align_bytes = u64::from(info.block_bytes);
        let offset_bytes = self.job.offset.resolve_bytes(info.bytes(), align_bytes);
        let rest_bytes = info.bytes().saturating_sub(offset_bytes);
        let size_bytes = self
            .job
            .range()
            .map_or(rest_bytes, |size| size.resolve_bytes(info.bytes(), align_bytes));
        (offset_bytes, size_bytes)
    }

    /// The part of a device that thread `thread` works on: offset and length in bytes.
    pub(crate) fn range(&self, info: &BlockInfo, thread: usize) -> (u64, u64) {
        let (offset_bytes, size_bytes) = self.whole_range(info);
        let align_bytes = u64::from(info.block_bytes);
        let step_bytes = self.job.places.offset_increment.resolve_bytes(info.bytes(), align_bytes);
        if step_bytes > 0 {
            let offset_bytes =
                offset_bytes.saturating_add(step_bytes.saturating_mul(thread as u64));
            let rest_bytes = info.bytes().saturating_sub(offset_bytes);
            let size_bytes = if self.job.range().is_some() { size_bytes } else { rest_bytes };
            // A thread must not verify blocks that another thread writes.
            return (
                offset_bytes,
                if self.verifies() { size_bytes.min(step_bytes) } else { size_bytes },
            );
        }
        if !self.verifies() {
            return (offset_bytes, size_bytes);
        }
        // Threads that overwrite each other's blocks could not know what to expect: a part each.
        let bs_bytes = self.job.bs_max_bytes();
        let part_bytes = size_bytes / u64::from(self.job.numjobs) / bs_bytes * bs_bytes;
        (offset_bytes + part_bytes * thread as u64, part_bytes)
    }

    /// The part of a device that its threads work on together: offset and length in bytes.
    pub(crate) fn reach(&self, info: &BlockInfo) -> (u64, u64) {
        let (offset_bytes, _) = self.range(info, 0);
        let ends = (0..self.job.numjobs as usize).map(|thread| {
            let (offset_bytes, bytes) = self.range(info, thread);
            offset_bytes.saturating_add(bytes)
        });
        (offset_bytes, ends.max().unwrap_or(offset_bytes) - offset_bytes)
    }

    /// How much is transferred in one loop over a range.
    fn pass_bytes(&self, range_bytes: u64, align_bytes: u64) -> u64 {
        let Some(size) = self.job.amount() else { return range_bytes };
        let bytes = size.resolve_bytes(range_bytes, align_bytes);
        // As in fio the last I/O is a whole one.
        if self.job.has_varied_sizes() {
            bytes
        } else {
            bytes.next_multiple_of(self.job.bs_min_bytes())
        }
    }

    /// The I/Os of thread `thread` on a device.
    pub(crate) fn pattern(&self, info: &BlockInfo, thread: usize) -> PatternSpec {
        let (offset_bytes, range_bytes) = self.range(info, thread);
        let align_bytes = u64::from(info.block_bytes);
        PatternSpec {
            offset_bytes,
            range_bytes,
            pass_bytes: self.pass_bytes(range_bytes, align_bytes),
            block_shift: info.block_bytes.trailing_zeros(),
            bs_read_bytes: self.job.bs_read_bytes,
            bs_write_bytes: self.job.bs_write_bytes,
            random: self.job.rw.is_random(),
            read_percent: match (self.job.reads(), self.job.writes()) {
                (true, false) => 100,
                (false, _) => 0,
                _ => self.job.rwmixread_percent,
            },
            passes: if self.endless { None } else { Some(self.job.loops) },
            // The same for every device and policy, so that all do the same.
            seed: self.seed.wrapping_add(thread as u64),
        }
    }
}

/// The jobs of the file or of the command line, with the command line's keys on top; and what to
/// warn of, should they run.
///
/// # Errors
/// All that is wrong, in the file and on the command line, at once. A job whose section has errors
/// is not looked at as a whole: what contradicts what would be a guess.
pub(crate) fn jobs(args: &BenchArgs) -> Result<(Vec<Job>, Vec<String>), Failure> {
    let mut file = match &args.job_file {
        Some(path) => read_file(path)?,
        None => JobFile { jobs: vec![Job::new("")], ..JobFile::default() },
    };
    if args.job.name.is_some() && file.jobs.len() > 1 {
        let count = file.jobs.len();
        return Err(Failure::usage(format_args!(
            "--name would give {count} jobs of the file one name; leave it out"
        )));
    }
    let origin = Origin::CommandLine;
    for job in &mut file.jobs {
        let completion = args.completion.as_deref().map(|list| ("completion", Some(list)));
        let name = args.job.name.as_deref().map(|name| ("name", Some(name)));
        for (key, value) in args.job.keys().chain(completion).chain(name) {
            match job.set(key, value, &origin) {
                Ok(Some(Note::Remark(remark))) => file.warnings.push(remark),
                Ok(Some(Note::Ignored(ignored))) => file.ignored.push(ignored),
                Ok(None) => {}
                Err(error) => {
                    file.errors.push(error);
                    job.is_faulty = true;
                }
            }
        }
        if job.name.is_empty() {
            job.name = job.rw.as_str().to_owned();
        }
        job.settle_zones();
        if !job.is_faulty {
            match check(job) {
                Ok(more) => file.warnings.extend(more),
                Err(JobErrors(more)) => file.errors.extend(more),
            }
        }
    }
    if !file.errors.is_empty() {
        return Err(JobErrors(file.errors).into());
    }
    // As in fio: one job's `exitall` applies to every job.
    if file.jobs.iter().any(|job| job.exitall.is_some()) {
        file.jobs.iter_mut().for_each(|job| job.exitall = Some(job.exit_what));
    }
    let mut warnings = file.warnings;
    if !file.ignored.is_empty() {
        warnings.push(Ignored::line(&file.ignored));
    }
    // What the command line says is said of every job.
    let mut seen = HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    Ok((file.jobs, warnings))
}

fn read_file(path: &Path) -> Result<JobFile, Failure> {
    let shown = path.display().to_string();
    let text = output::read_up_to(path, JOB_FILE_MAX_BYTES)
        .map_err(|error| Failure::new(format_args!("cannot read the job file {shown}: {error}")))?;
    let text = String::from_utf8(text).map_err(|_| {
        Failure::new(format_args!("the job file {shown} is not UTF-8 text: is it a fio job file?"))
    })?;
    Ok(job::parse(&text, &shown))
}

/// What to warn of in a job that is complete.
fn check(job: &Job) -> Result<Vec<String>, JobErrors> {
    let warnings = job.validate();
    let policies = policies(job).err();
    let mut warnings = match (warnings, policies) {
        (Ok(warnings), None) => warnings,
        (Err(JobErrors(mut errors)), policies) => {
            errors.extend(policies);
            return Err(JobErrors(errors));
        }
        (Ok(_), Some(error)) => return Err(JobErrors(vec![error])),
    };
    let name = &job.name;
    if job.verify != Verify::None && !job.ramp_time.is_zero() {
        warnings.push(format!("job {name}: ramp_time has no effect with verify"));
    }
    if job.verify != Verify::None && job.numjobs > 1 {
        let numjobs = job.numjobs;
        warnings.push(format!(
            "job {name}: with verify, its {numjobs} threads share the range, a part each"
        ));
    }
    Ok(warnings)
}

/// The URIs of a job's devices.
fn uris(job: &Job, args: &BenchArgs) -> Result<Vec<String>, Failure> {
    let uris: Vec<String> = match (&args.device[..], &job.filename) {
        ([], Some(uri)) => vec![uri.clone()],
        ([], None) => {
            let what = "give --device URI (e.g. --device mem:256M?model=optane), or filename= in the job file";
            return Err(Failure::usage(format_args!("job {}: no device; {what}", job.name)));
        }
        (uris, _) => uris.to_vec(),
    };
    distinct(&uris)
}

/// What a job does I/O on.
pub(crate) fn wanted(job: &Job, args: &BenchArgs) -> Result<Vec<Wanted>, Failure> {
    uris(job, args)?.iter().map(|uri| Wanted::of(job, uri)).collect()
}

/// The URIs of a list, each of which is to be there and to be there once.
pub(crate) fn distinct(uris: &[String]) -> Result<Vec<String>, Failure> {
    let uris: Vec<String> = uris.iter().map(|uri| uri.trim().to_owned()).collect();
    for (at, uri) in uris.iter().enumerate() {
        if uri.is_empty() {
            return Err(Failure::usage("--device: an empty URI in the list"));
        }
        if uris[..at].contains(uri) {
            return Err(Failure::usage(format_args!(
                "device {uri} is named twice; compare it with another one"
            )));
        }
    }
    Ok(uris)
}

/// The policies of a job.
///
/// # Errors
/// One is unknown, or listed twice.
pub(crate) fn policies(job: &Job) -> Result<Vec<Policy>, JobError> {
    let default = if job.hipri { "poll" } else { DEFAULT_POLICIES };
    let list = job.completion.as_deref().unwrap_or(default);
    let fail = |what: String| job.error_of("completion", what);
    let mut policies = Vec::new();
    for name in list.split(',').map(str::trim) {
        let policy: Policy = name.parse().map_err(|error| fail(format!("{error}")))?;
        if policies.contains(&policy) {
            return Err(fail(format!("{policy} is listed twice")));
        }
        policies.push(policy);
    }
    Ok(policies)
}
