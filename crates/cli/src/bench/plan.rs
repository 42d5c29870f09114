//! What to run: jobs, devices and policies, checked as a whole before anything runs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use meantime::block::{BlockDevice, BlockInfo, Device, NvmeDevice};
use meantime::completion::Policy;

use super::devices::Devices;
use super::pattern::PatternSpec;
use super::run;
use crate::cli::BenchArgs;
use crate::failure::Failure;
use crate::figures;
use crate::job::{self, Job, Origin, Verify};
use crate::machine;

/// Run for so long if neither time nor size is given.
const DEFAULT_RUNTIME: Duration = Duration::from_secs(5);

const DEFAULT_POLICIES: &str = "interrupt,poll,hybrid";

/// A job with the devices and policies it is to be run on.
#[derive(Debug)]
pub struct JobPlan {
    /// The job.
    pub job: Job,
    /// Indices into [`Devices`].
    pub devices: Vec<usize>,
    /// Ways to wait.
    pub policies: Vec<Policy>,
    /// How long to measure each cell at most; `None`: until all is transferred.
    pub runtime: Option<Duration>,
    /// Whether to go on until the runtime is over.
    pub endless: bool,
}

impl JobPlan {
    /// Whether what is written is checked.
    pub fn verifies(&self) -> bool {
        self.job.verify == Verify::Crc32c && self.job.writes()
    }

    /// The part of a device that thread `thread` works on: offset and length in bytes.
    pub fn range(&self, info: &BlockInfo, thread: usize) -> (u64, u64) {
        let align_bytes = u64::from(info.block_bytes);
        let offset_bytes = self.job.offset.resolve_bytes(info.bytes(), align_bytes);
        let rest_bytes = info.bytes().saturating_sub(offset_bytes);
        let size_bytes =
            self.job.size.map_or(rest_bytes, |size| size.resolve_bytes(info.bytes(), align_bytes));
        if !self.verifies() {
            return (offset_bytes, size_bytes);
        }
        // Threads that overwrite each other's blocks could not know what to expect: a part each.
        let bs_bytes = self.job.bs_max_bytes();
        let part_bytes = size_bytes / u64::from(self.job.numjobs) / bs_bytes * bs_bytes;
        (offset_bytes + part_bytes * thread as u64, part_bytes)
    }

    /// The I/Os of thread `thread` on a device.
    pub fn pattern(&self, info: &BlockInfo, thread: usize) -> PatternSpec {
        let (offset_bytes, range_bytes) = self.range(info, thread);
        PatternSpec {
            offset_bytes,
            range_bytes,
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
            // The same for every device and policy, and in every run, so that all do the same.
            seed: 0x5eed_0000 + thread as u64,
        }
    }
}

/// The jobs of the file or of the command line, with the command line's keys on top; and what to warn of, should they run.
pub fn jobs(args: &BenchArgs) -> Result<(Vec<Job>, Vec<String>), Failure> {
    let mut warnings = Vec::new();
    let mut jobs = match &args.job_file {
        Some(path) => {
            let shown = path.display().to_string();
            let text = std::fs::read(path)
                .map_err(|error| Failure::new(format_args!("cannot read the job file {shown}: {error}")))?;
            let text = String::from_utf8(text).map_err(|_| {
                Failure::new(format_args!("the job file {shown} is not UTF-8 text: is it a fio job file?"))
            })?;
            let file = job::parse(&text, &shown)?;
            warnings.extend(file.warnings);
            file.jobs
        }
        None => vec![Job::new("")],
    };
    if args.job.name.is_some() && jobs.len() > 1 {
        let count = jobs.len();
        return Err(Failure::usage(format_args!(
            "--name would give {count} jobs of the file one name; leave it out"
        )));
    }
    let origin = Origin::CommandLine;
    for job in &mut jobs {
        let completion = args.completion.as_deref().map(|list| ("completion", list));
        let name = args.job.name.as_deref().map(|name| ("name", name));
        for (key, value) in args.job.keys().into_iter().chain(completion).chain(name) {
            warnings.extend(job.set(key, Some(value), &origin)?);
        }
        if job.name.is_empty() {
            job.name = job.rw.as_str().to_owned();
        }
        warnings.extend(job.validate()?);
        policies(job)?;
        if job.verify == Verify::Crc32c && !job.ramp_time.is_zero() {
            warnings.push(format!("job {}: ramp_time has no effect with verify", job.name));
        }
        if job.verify == Verify::Crc32c && job.numjobs > 1 {
            let (name, numjobs) = (&job.name, job.numjobs);
            warnings
                .push(format!("job {name}: with verify, its {numjobs} threads share the range, a part each"));
        }
    }
    // What the command line says is said of every job.
    let mut seen = HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    Ok((jobs, warnings))
}

/// The URIs of a job's devices.
pub fn uris(job: &Job, args: &BenchArgs) -> Result<Vec<String>, Failure> {
    let uris: Vec<String> = match (&args.device[..], &job.filename) {
        ([], Some(uri)) => vec![uri.clone()],
        ([], None) => {
            let what =
                "give --device URI (e.g. --device mem:256M?model=optane), or filename= in the job file";
            return Err(Failure::usage(format_args!("job {}: no device; {what}", job.name)));
        }
        (uris, _) => uris.iter().map(|uri| uri.trim().to_owned()).collect(),
    };
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
fn policies(job: &Job) -> Result<Vec<Policy>, Failure> {
    let list = job.completion.as_deref().unwrap_or(DEFAULT_POLICIES);
    let fail = |what: String| match job.origin_of("completion") {
        Some(origin @ Origin::File { .. }) => Failure::new(format_args!("{origin}: completion={what}")),
        _ => Failure::usage(format_args!("--completion: {what}")),
    };
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

/// Everything about one job, checked against its devices.
pub fn plan(job: Job, devices: &Devices, indices: Vec<usize>, floor: bool) -> Result<JobPlan, Failure> {
    let policies = policies(&job)?;
    // A size alone says when to end; nothing at all means a while; a runtime is an upper limit unless time_based.
    let nothing_given = job.runtime.is_none() && job.size.is_none();
    let runtime = if nothing_given { Some(DEFAULT_RUNTIME) } else { job.runtime };
    let endless = nothing_given || job.time_based;
    let plan = JobPlan { job, devices: indices, policies, runtime, endless };
    for index in &plan.devices {
        let device = devices.get(*index);
        check_ranges(&plan, device.info())?;
        check_policies(&plan, device)?;
        if let Device::Nvme(device) = device {
            check_queues(&plan, device)?;
        }
    }
    check_cpus(&plan.job)?;
    if floor {
        check_floor(&plan, devices)?;
    }
    check_memory(&plan, devices, floor)?;
    Ok(plan)
}

/// An error in the job named `name`.
fn wrong(name: &str, what: std::fmt::Arguments<'_>) -> Failure {
    Failure::new(format_args!("job {name}: {what}"))
}

fn check_ranges(plan: &JobPlan, info: &BlockInfo) -> Result<(), Failure> {
    let job = &plan.job;
    let (uri, block_bytes, device_bytes) = (&info.uri, u64::from(info.block_bytes), info.bytes());
    let (offset_bytes, part_bytes) = plan.range(info, 0);
    let whole_bytes = job.size.map(|size| size.resolve_bytes(device_bytes, block_bytes));
    let sizes = [
        ("bs", job.bs_read_bytes, job.reads()),
        ("bs", job.bs_write_bytes, job.writes()),
        ("offset", offset_bytes, true),
        ("size", whole_bytes.unwrap_or(0), true),
    ];
    let odd = sizes.iter().find(|(_, bytes, used)| *used && !bytes.is_multiple_of(block_bytes));
    if let Some((key, bytes, _)) = odd {
        return Err(wrong(
            &job.name,
            format_args!("{key}={bytes} is not a multiple of the {block_bytes}-byte blocks of {uri}"),
        ));
    }
    if offset_bytes >= device_bytes {
        return Err(wrong(
            &job.name,
            format_args!("offset={offset_bytes} is not within {uri}, which has {device_bytes} bytes"),
        ));
    }
    if let Some(size_bytes) = whole_bytes.filter(|size_bytes| *size_bytes > device_bytes - offset_bytes) {
        return Err(wrong(
            &job.name,
            format_args!(
                "offset={offset_bytes} and size={size_bytes} reach beyond the end of {uri}, which has {device_bytes} bytes"
            ),
        ));
    }
    let bs_bytes = job.bs_max_bytes();
    if part_bytes < bs_bytes {
        return Err(wrong(
            &job.name,
            format_args!(
                "bs={bs_bytes} is more than the {part_bytes} bytes a thread has of {uri}; give a smaller bs"
            ),
        ));
    }
    Ok(())
}

/// That the device can be waited for by every policy.
fn check_policies(plan: &JobPlan, device: &Device) -> Result<(), Failure> {
    let asked = plan.policies.iter().try_for_each(|policy| device.can_wait(*policy));
    asked.map_err(|error| wrong(&plan.job.name, format_args!("{error}")))
}

fn check_queues(plan: &JobPlan, device: &NvmeDevice) -> Result<(), Failure> {
    let job = &plan.job;
    let (uri, controller) = (&device.info().uri, device.controller());
    let depth_max = u32::from(controller.max_queue_entries()) - 1;
    if job.iodepth > depth_max {
        return Err(wrong(
            &job.name,
            format_args!("iodepth={} is more than {uri} can take; at most {depth_max}", job.iodepth),
        ));
    }
    let numjobs = job.numjobs as usize;
    let interrupts = plan.policies.iter().filter(|policy| policy.wants_interrupt()).count();
    // Each thread has a polled queue pair per policy, and one with a vector for interrupts.
    let queues = numjobs * (plan.policies.len() + interrupts);
    let (queues_max, vectors) =
        (usize::from(controller.info().io_queues), usize::from(controller.info().vectors));
    if queues > queues_max {
        return Err(wrong(
            &job.name,
            format_args!(
                "{numjobs} threads × {} policies need {queues} queue pairs and {uri} has {queues_max}; \
                 use fewer threads or policies, or queues=",
                plan.policies.len()
            ),
        ));
    }
    // Vector 0 is the admin queue's.
    if numjobs * interrupts >= vectors.max(1) && interrupts > 0 {
        return Err(wrong(
            &job.name,
            format_args!(
                "interrupt needs {} interrupt vectors and {uri} has {}; use polled policies, fewer threads, or vectors=",
                numjobs * interrupts,
                vectors.saturating_sub(1)
            ),
        ));
    }
    Ok(())
}

fn check_cpus(job: &Job) -> Result<(), Failure> {
    let allowed = meantime::hw::cpu::allowed();
    match job.cpus_allowed.iter().find(|cpu| !allowed.contains(&(**cpu as usize))) {
        None => Ok(()),
        Some(cpu) => Err(wrong(
            &job.name,
            format_args!("cpus_allowed: this process may not use CPU {cpu}; it may use {allowed:?}"),
        )),
    }
}

/// Two spinning threads on one CPU would measure the scheduler.
fn check_floor(plan: &JobPlan, devices: &Devices) -> Result<(), Failure> {
    let cpus = run::thread_cpus(plan, devices);
    for index in &plan.devices {
        if devices.ssd_cpu(*index).is_none_or(|cpu| cpus == [cpu]) {
            let what = "the job's threads and the software SSD would share one; give each a CPU (cpus_allowed, cpu=)";
            return Err(wrong(&plan.job.name, format_args!("--floor needs two CPUs: {what}")));
        }
    }
    Ok(())
}

/// Better an error than the kernel's OOM killer.
fn check_memory(plan: &JobPlan, devices: &Devices, floor: bool) -> Result<(), Failure> {
    let job = &plan.job;
    let per_device =
        job.bs_max_bytes().saturating_mul(u64::from(job.iodepth)).saturating_mul(u64::from(job.numjobs));
    let buffers_bytes = per_device.saturating_mul(plan.devices.len() as u64);
    let floors_bytes = if floor { devices.floor_bytes(&plan.devices) } else { 0 };
    let Some(available_bytes) = machine::available_bytes() else { return Ok(()) };
    if buffers_bytes.saturating_add(floors_bytes) <= available_bytes {
        return Ok(());
    }
    let floors =
        if floor { format!(" and {} for the floor", figures::bytes(floors_bytes)) } else { String::new() };
    Err(wrong(
        &job.name,
        format_args!(
            "bs × iodepth × numjobs needs {} of buffers{floors}, and {} of memory are available; make one of them smaller",
            figures::bytes(buffers_bytes),
            figures::bytes(available_bytes)
        ),
    ))
}

/// Two names for one file would be two SSDs on one medium.
pub fn check_files(files: &[(String, PathBuf)]) -> Result<(), Failure> {
    // A file that is yet to be created is known by its directory.
    let new = |path: &Path| {
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(std::fs::canonicalize(directory).ok()?.join(path.file_name()?))
    };
    let identity =
        |path: &PathBuf| std::fs::canonicalize(path).ok().or_else(|| new(path)).unwrap_or_default();
    for (at, (uri, path)) in files.iter().enumerate() {
        if let Some((other, _)) = files[..at].iter().find(|(_, other)| identity(other) == identity(path)) {
            let what = "a medium belongs to one SSD; use one URI for it, or a copy of the file";
            return Err(Failure::new(format_args!("{other} and {uri} are the same file: {what}")));
        }
    }
    Ok(())
}
