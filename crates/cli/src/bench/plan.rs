//! The plan of a run: jobs, devices and policies, checked as a whole before anything runs.

use std::collections::HashSet;
use std::path::Path;

use meantime_bench::plan::policies;
use meantime_bench::run::{HowUsed, HowWritten, MountedToWrite, Wanted};
use meantime_ext4::Advice;

use crate::cli::BenchArgs;
use crate::failure::{Context as _, Failure};
use crate::job::{
    self, Extent, Hint, Ignored, Job, JobErrors, JobFile, Note, Origin, Sweep, Verify,
};
use crate::location::Location;
use crate::output;

/// The maximum size of a job file.
const JOB_FILE_MAX_BYTES: u64 = 16 << 20;

/// The maximum size of a trace.
const TRACE_MAX_BYTES: u64 = 1 << 30;

/// Returns the jobs of the file or of the command line, with the command line's keys on top, and
/// warnings about them.
///
/// # Errors
/// Returns all errors at once, in the file and on the command line. A job whose section has errors
/// is not validated as a whole, since contradictions would be a guess.
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
    let sweep = Sweep::of(args.job.keys()).map_err(Failure::usage)?;
    let completion = args.completion.as_deref().map(|list| ("completion", Some(list)));
    let name = args.job.name.as_deref().map(|name| ("name", Some(name)));
    let keys = args.job.keys().filter(|(key, _)| !sweep.sets(key)).chain(completion).chain(name);
    let keys: Vec<_> = keys.collect();
    for mut job in std::mem::take(&mut file.jobs) {
        keys.iter().for_each(|(key, value)| set(&mut job, key, *value, &mut file));
        file.jobs.push(job);
    }
    for mut job in sweep.expand(&std::mem::take(&mut file.jobs)) {
        for (key, value) in job.sweep.clone() {
            set(&mut job, key, Some(&value), &mut file);
        }
        if !job.is_faulty
            && let Err(error) = job.read_trace(|path| output::read_up_to(path, TRACE_MAX_BYTES))
        {
            file.errors.push(error);
            job.is_faulty = true;
        }
        let unnamed = job.name.is_empty();
        if unnamed {
            job.name = job.rw.as_str().to_owned();
        }
        if let (true, Some(uri)) = (args.device.is_empty(), plain_file(&job)) {
            let name = &job.name;
            file.warnings.push(format!(
                "job {name}: its file is opened as {uri}, without a page cache unless direct=0"
            ));
            job.filename = Some(uri);
            job.file.direct = None;
        }
        for (key, value) in job.sweep.iter().filter(|(key, _)| !unnamed || *key != "rw") {
            job.name += &format!(" {key}={value}");
        }
        if !job.is_faulty {
            match check(&job) {
                Ok(more) => file.warnings.extend(more),
                Err(JobErrors(more)) => file.errors.extend(more),
            }
        }
        file.jobs.push(job);
    }
    // The jobs of a sweep have the same keys, except those that it varies.
    let mut seen = Vec::new();
    file.errors.retain(|error| {
        !seen.contains(error) && {
            seen.push(error.clone());
            true
        }
    });
    if !file.errors.is_empty() {
        return Err(JobErrors(file.errors).into());
    }
    let mut warnings = file.warnings;
    if !file.ignored.is_empty() {
        warnings.push(Ignored::line(&file.ignored));
    }
    // A warning about the command line occurs once for each job.
    let mut seen = HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    Ok((file.jobs, warnings))
}

/// Sets a key of the command line.
fn set(job: &mut Job, key: &str, value: Option<&str>, file: &mut JobFile) {
    match job.set(key, value, &Origin::CommandLine) {
        Ok(Some(Note::Remark(remark))) => file.warnings.push(remark),
        Ok(Some(Note::Ignored(ignored))) => file.ignored.push(ignored),
        Ok(None) => {}
        Err(error) => {
            file.errors.push(error);
            job.is_faulty = true;
        }
    }
}

fn read_file(path: &Path) -> Result<JobFile, Failure> {
    let shown = path.display().to_string();
    let text = output::read_up_to(path, JOB_FILE_MAX_BYTES)
        .context(format_args!("cannot read the job file {shown}"))?;
    let text = String::from_utf8(text).map_err(|_| {
        Failure::new(format_args!("the job file {shown} is not UTF-8 text: is it a fio job file?"))
    })?;
    Ok(job::parse(&text, &shown))
}

/// Returns warnings about a complete job.
fn check(job: &Job) -> Result<Vec<String>, JobErrors> {
    let (mut warnings, mut errors) = match job.validate() {
        Ok(warnings) => (warnings, Vec::new()),
        Err(JobErrors(errors)) => (Vec::new(), errors),
    };
    errors.extend(policies(job).err());
    if !errors.is_empty() {
        return Err(JobErrors(errors));
    }
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

/// Returns the device that a plain path of fio's jobs names: that file or disk, with the kernel's
/// own stack. A file that is not there is made with the job's size.
fn plain_file(job: &Job) -> Option<String> {
    let path = job.filename.as_deref().filter(|name| !name.contains(':') && !name.is_empty())?;
    let mut parameters = Vec::new();
    if job.file.direct == Some(false) {
        parameters.push("direct=0".to_owned());
    }
    if let (false, Some(Extent::Bytes(bytes))) = (Path::new(path).exists(), job.size) {
        parameters.push(format!("create={}", bytes.next_multiple_of(4096)));
    }
    let joint = if parameters.is_empty() { "" } else { "?" };
    Some(format!("kernel:{path}{joint}{}", parameters.join("&")))
}

/// Returns the URIs of a job's devices.
fn uris(job: &Job, args: &BenchArgs) -> Result<Vec<String>, Failure> {
    let uris: Vec<String> = match (&args.device[..], &job.filename) {
        ([], Some(uri)) => vec![uri.clone()],
        ([], None) => {
            let what = "give --device URI (e.g. --device mem:256M?model=optane), or filename= in \
                        the job file";
            return Err(Failure::usage(format_args!("job {}: no device; {what}", job.name)));
        }
        (uris, _) => uris.to_vec(),
    };
    distinct(&uris)
}

/// Returns the targets of a job's I/O.
pub(crate) fn wanted(job: &Job, args: &BenchArgs) -> Result<Vec<Wanted>, Failure> {
    uris(job, args)?.iter().map(|uri| wanted_of(job, uri)).collect()
}

/// Returns the target that `uri` is for `job`.
fn wanted_of(job: &Job, uri: &str) -> Result<Wanted, Failure> {
    // Errors in a URI are reported when it is opened.
    let Ok(Location { device, path }) = Location::parse(uri.as_ref()) else {
        return Ok(Wanted::device(uri));
    };
    let keys = &job.file;
    let Some(path) = path else {
        if keys.direct == Some(false) {
            return Err(Failure::new(format_args!(
                "job {}: there is no page cache over {uri}; say direct=1 or leave it out, or name \
                 a file in a file system, as {uri}:/path",
                job.name
            )));
        }
        return Ok(Wanted::device(uri));
    };
    let advice = match keys.hint {
        Hint::None => Advice::Normal,
        Hint::Random => Advice::Random,
        Hint::ByPattern if job.rw.is_random() => Advice::Random,
        Hint::Sequential | Hint::ByPattern => Advice::Sequential,
    };
    // A job that compares several policies is refused elsewhere.
    let policy = policies(job).ok().and_then(|policies| policies.first().copied());
    let written = policy.filter(|_| job.writes()).map(|policy| HowWritten {
        mount: MountedToWrite {
            commit_overlap: keys.commit_overlap,
            fast_commit: keys.fast_commit,
            policy,
        },
        data_only: job.syncing.fdatasync > 0 && job.syncing.fsync == 0,
        grows_to_bytes: job.extends_to_bytes(),
    });
    let how = HowUsed {
        direct: keys.direct == Some(true),
        overlap: keys.overlap,
        cache_bytes: keys.cache_bytes,
        advice,
        times_deferrable: keys.times_deferrable,
        written,
    };
    Ok(Wanted { uri: uri.to_owned(), device, file: Some((path, how)) })
}

/// Returns the URIs of a list. None may be empty or occur twice.
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
