//! Checks jobs against their devices before anything runs.

mod machine;

use itertools::Itertools as _;
use meantime_block::{BlockDevice as _, BlockInfo, KernelEngine, NvmeDevice, Uri};

use super::devices::Devices;
use super::error::{RunError, refuse};
use super::group::Group;
use super::target::Target;
use crate::plan::JobPlan;

pub(crate) use machine::hold_pm_qos;

/// Checks groups that have turns one after the other. All their queues and buffers are there at the
/// same time.
///
/// # Errors
/// Returns the first job, device or setting that cannot be run, with the reason.
pub fn check(groups: &[Group], devices: &Devices, floor: bool) -> Result<(), RunError> {
    groups.iter().try_for_each(|group| check_group(group, devices, floor))?;
    for index in groups.iter().flat_map(Group::devices).unique() {
        if let Some(device) = devices.get(index).as_nvme() {
            check_queues(groups, index, device)?;
        }
    }
    machine::check_memory(groups, devices, floor)
}

fn check_group(group: &Group, devices: &Devices, floor: bool) -> Result<(), RunError> {
    for plan in &group.plans {
        for index in &plan.devices {
            let device = devices.get(*index);
            check_ranges(plan, device.info())?;
            check_writable(plan, device, devices.is_mounted(*index))?;
            check_depth(plan, device)?;
        }
        machine::check_cpus(&plan.job)?;
    }
    check_overlaps(group, devices)?;
    machine::check_settings(group, devices)?;
    if floor {
        machine::check_floor(group, devices)?;
    }
    Ok(())
}

/// On a device that does one I/O at a time, a depth would only be a queue in this process.
fn check_depth(plan: &JobPlan, device: &Target) -> Result<(), RunError> {
    let (uri, depth) = (&device.info().uri, plan.job.iodepth);
    let instead = match (device, uri.parse()) {
        (Target::File(_), _) => "several threads (numjobs), or the device itself",
        (_, Ok(Uri::Kernel { kernel, .. })) if kernel.engine == KernelEngine::Preadv2 => {
            "engine=io_uring"
        }
        _ => return Ok(()),
    };
    if depth > 1 {
        refuse!(plan.job, "iodepth={depth}: {uri} does one I/O at a time; use {instead}");
    }
    Ok(())
}

fn check_writable(plan: &JobPlan, device: &Target, mounted: bool) -> Result<(), RunError> {
    if !plan.job.changes() {
        return Ok(());
    }
    let why = match device {
        Target::File(_) if plan.job.trims() => Some(
            "a file has no blocks to deallocate; rw=trim and its kind are for devices".to_owned(),
        ),
        Target::File(_) if plan.policies.len() > 1 => Some(format!(
            "a file is written and synced by its file system's one way to wait, and the job \
             compares {}; say completion=poll, or run it once for each",
            plan.policies.len()
        )),
        Target::File(_) => None,
        Target::Device(_) if mounted => Some(
            "its file system is mounted in this run, and would be overwritten under way".to_owned(),
        ),
        Target::Device(device) => device.read_only().map(str::to_owned),
    };
    let no_trims = || {
        let nvme = device.as_nvme().filter(|_| plan.job.trims())?;
        let why = "the device cannot deallocate blocks (Dataset Management); rw=trim and its kind \
                   need that";
        (!nvme.controller().has_deallocate()).then(|| why.to_owned())
    };
    if let Some(why) = why.or_else(no_trims) {
        refuse!(plan.job, "{} cannot be written: {why}", device.info().uri);
    }
    Ok(())
}

/// Checks that the job's places are whole blocks of the device, and within it.
pub(crate) fn check_ranges(plan: &JobPlan, info: &BlockInfo) -> Result<(), RunError> {
    let job = &plan.job;
    let (uri, block_bytes, device_bytes) = (&info.uri, u64::from(info.block_bytes), info.bytes());
    let ios = job.trace.iter().flat_map(|trace| trace.ios());
    for (_, offset_bytes, bytes, line) in ios {
        let what = match offset_bytes + bytes {
            end if end > device_bytes => format!("which has {device_bytes} bytes"),
            _ if (offset_bytes | bytes).is_multiple_of(block_bytes) => continue,
            _ => format!("whose blocks have {block_bytes} bytes"),
        };
        let log = job.replay.log.as_deref().unwrap_or_default();
        refuse!(
            job,
            "{log}: line {line}: {bytes} bytes at {offset_bytes} cannot be replayed on {uri}, \
             {what}"
        );
    }
    let (offset_bytes, part_bytes) = plan.range(info, 0);
    let whole_bytes = job.size.map(|size| size.resolve_bytes(device_bytes, block_bytes));
    let (read, write) = (job.sizes_of(0), job.sizes_of(1));
    let sizes = [
        ("bs", read.min_bytes(), job.reads()),
        ("bs", read.step_bytes(), job.reads()),
        ("bs", write.min_bytes(), job.changes()),
        ("bs", write.step_bytes(), job.changes()),
        ("offset", offset_bytes, true),
        ("size", whole_bytes.unwrap_or(0), true),
    ];
    let odd = sizes.iter().find(|(_, bytes, used)| *used && !bytes.is_multiple_of(block_bytes));
    if let Some((key, bytes, _)) = odd {
        refuse!(job, "{key}={bytes} is not a multiple of the {block_bytes}-byte blocks of {uri}");
    }
    if offset_bytes >= device_bytes {
        refuse!(job, "offset={offset_bytes} is not within {uri}, which has {device_bytes} bytes");
    }
    if let Some(bytes) = whole_bytes.filter(|bytes| *bytes > device_bytes - offset_bytes) {
        refuse!(
            job,
            "offset={offset_bytes} and size={bytes} reach beyond the end of {uri}, which has \
             {device_bytes} bytes"
        );
    }
    let bs_bytes = job.bs_max_bytes();
    if part_bytes < bs_bytes {
        refuse!(
            job,
            "bs={bs_bytes} is more than the {part_bytes} bytes a thread has of {uri}; give a \
             smaller bs"
        );
    }
    let pass_bytes = plan.pattern(info, 0).pass_bytes;
    if pass_bytes < bs_bytes {
        refuse!(
            job,
            "io_size={pass_bytes} is less than one block of {bs_bytes} bytes; give a larger one"
        );
    }
    Ok(())
}

fn check_queues(groups: &[Group], index: usize, device: &NvmeDevice) -> Result<(), RunError> {
    let (uri, controller) = (&device.info().uri, device.controller());
    let depth_max = u32::from(device.max_depth());
    // Each setting has its own cell, with its own channels.
    let settings = groups[0].settings();
    let (mut threads, mut queues, mut interrupts) = (0, 0, 0);
    let plans = || groups.iter().flat_map(|group| &group.plans);
    let users = || plans().filter(|plan| plan.devices.contains(&index));
    for plan in users() {
        let (job, numjobs) = (&plan.job, plan.job.numjobs as usize);
        if job.iodepth > depth_max {
            let depth = job.iodepth;
            let entries = controller.max_queue_entries();
            refuse!(
                job,
                "iodepth={depth} is more than {uri} can take: at most {depth_max}, as its queues \
                 have {entries} entries, of which one stays empty and one is for parts of split \
                 requests; use more threads (numjobs)"
            );
        }
        let waiting =
            plan.policies.iter().filter(|policy| policy.wants_interrupt()).count() * settings;
        threads += numjobs;
        interrupts += numjobs * waiting;
        // Each thread has a polled queue pair per policy, and one with a vector for interrupts.
        queues += numjobs * (plan.policies.len() * settings + waiting);
    }
    let Some(first) = users().next() else { return Ok(()) };
    // Other controllers have the queues that they have.
    let is_soft = matches!(uri.parse(), Ok(Uri::Mem { .. } | Uri::File { .. }));
    let of_ssd = |parameter: &str| if is_soft { format!("{parameter}, ") } else { String::new() };
    let (queues_max, vectors) =
        (usize::from(controller.info().io_queues), usize::from(controller.info().vectors));
    if queues > queues_max {
        let policies = first.policies.len();
        let settings = match settings {
            1 => String::new(),
            settings => format!(" × {settings} settings (sched, pm_qos)"),
        };
        let stonewall = match groups {
            [group] if group.plans.len() == 1 => "",
            [_] => "stonewall between jobs, ",
            _ => "a smaller sweep, ",
        };
        refuse!(
            first.job,
            "{threads} threads × {policies} policies{settings} need {queues} queue pairs \
             (interrupt takes two) and {uri} has {queues_max}; use {}fewer threads or policies",
            [stonewall, &of_ssd("queues=")].concat()
        );
    }
    // Vector 0 is the admin queue's.
    if interrupts >= vectors.max(1) && interrupts > 0 {
        refuse!(
            first.job,
            "interrupt needs {interrupts} interrupt vectors and {uri} has {}; use {}polled policies \
             or fewer threads",
            vectors.saturating_sub(1),
            of_ssd("vectors=")
        );
    }
    Ok(())
}

/// Checks that no other job overwrites the blocks that a job verifies.
fn check_overlaps(group: &Group, devices: &Devices) -> Result<(), RunError> {
    for plan in group.plans.iter().filter(|plan| plan.verifies()) {
        let others = group.plans.iter().filter(|other| !std::ptr::eq(*other, plan));
        for other in others.filter(|other| other.job.changes()) {
            let pairs = itertools::iproduct!(&plan.devices, &other.devices);
            for (index, theirs) in pairs.filter(|(one, other)| devices.are_same(**one, **other)) {
                let ([from, to], [other_from, other_to]) = [(plan, index), (other, theirs)]
                    .map(|(plan, index)| plan.reach(devices.get(*index).info()))
                    .map(|(offset_bytes, bytes)| [offset_bytes, offset_bytes + bytes])
                    .into();
                if from < other_to && other_from < to {
                    refuse!(
                        plan.job,
                        "verify, while job {} writes to the same blocks; use stonewall, or other \
                         offsets and sizes",
                        other.job.name
                    );
                }
            }
        }
    }
    Ok(())
}
