//! The threads of a job, with their channels and buffers for each cell.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use meantime_block::{BlockInfo, ChannelOptions};
use meantime_hw::cpu;
use meantime_nvme::QueueClass;
use meantime_report::run::Settings;

use super::devices::Devices;
use super::error::RunError;
use super::floor::DeviceFloor;
use super::group::{self, Cell, Group, PmQosSetting};
use super::logs::Log;
use super::thread::WorkerThread;
use super::watch::{Watch, WatchedCell};
use super::worker::{CellWork, Task, Work, Worker};
use crate::pattern::{Pattern, PatternSpec};
use crate::plan::JobPlan;
use crate::replay::Replay;
use crate::shape::Shape;
use crate::trim::Trims;
use crate::varied::{Varied, VariedSpec};
use crate::verify::{Course, Rules, Verified};

/// Returns the CPUs of a job's threads. These are the ones that the job sets, and otherwise all
/// except those of the group's software SSDs, if any is left. With a competing program, it is that
/// program's CPU.
pub fn thread_cpus(plan: &JobPlan, group: &Group, devices: &Devices) -> Vec<usize> {
    match group.rivals() {
        Some((of, ..)) => any_cpus(of, group, devices).into_iter().take(1).collect(),
        None => any_cpus(plan, group, devices),
    }
}

fn any_cpus(plan: &JobPlan, group: &Group, devices: &Devices) -> Vec<usize> {
    if !plan.job.cpus_allowed.is_empty() {
        return plan.job.cpus_allowed.iter().map(|cpu| *cpu as usize).collect();
    }
    let taken: Vec<usize> =
        group.devices().into_iter().filter_map(|index| devices.ssd_cpu(index)).collect();
    let allowed = cpu::allowed();
    let free: Vec<usize> = allowed.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
    if free.is_empty() { allowed } else { free }
}

/// Starts the threads of a job, which `stop` ends. With `floor`, one of them also measures the
/// floor. `watch` sees their I/Os.
pub(crate) fn start_threads(
    plan: &JobPlan,
    group: &Group,
    devices: &Devices,
    floor: bool,
    stop: &'static AtomicBool,
    watch: Option<&Watch>,
) -> Result<Vec<WorkerThread>, RunError> {
    let cpus = thread_cpus(plan, group, devices);
    let cells = group.cells();
    let watched = watch.map(|watch| {
        let cells = cells.iter().map(|cell| watched_cell(plan, group, devices, *cell));
        watch.add(cells.collect(), plan.job.numjobs)
    });
    let mut threads = Vec::new();
    for thread in 0..plan.job.numjobs as usize {
        let mut works = Vec::with_capacity(cells.len());
        for (index, cell) in cells.iter().enumerate() {
            works.push(cell_work(plan, devices, *cell, [index, thread], stop)?);
        }
        let mut slots = Vec::with_capacity(plan.devices.len());
        for (device, index) in plan.devices.iter().enumerate() {
            // Any of the device's channels can allocate for all of them.
            let Some(work) = works.iter().find(|work| work.slots == device) else { continue };
            let (depth, bytes) = (plan.job.iodepth as usize, plan.job.bs_max_bytes() as usize);
            slots.push(
                work.channel
                    .slots(depth, bytes)
                    .map_err(|error| RunError::of_device(devices.uri(*index), &error))?,
            );
        }
        let mut floors = Vec::new();
        for index in plan.devices.iter().filter(|_| floor && thread == 0) {
            let kind = devices.floor_kind(*index, &plan.job);
            let cpu = kind.cpu(devices.ssd_cpu(*index), &cpus, &cpu::allowed());
            let bytes = devices.floor_bytes(*index, &plan.job);
            let started = DeviceFloor::start(kind, bytes, cpu);
            floors.push(started.map_err(|error| RunError::new(format_args!("--floor: {error}")))?);
        }
        let name = format!("meantime-job{thread}");
        let watched = watched.as_ref().map(|watched| Arc::clone(&watched[thread]));
        let worker = Worker::new(works, slots, floors, watched);
        let thread = WorkerThread::start(&name, worker, cpus.clone(), plan.job.io_priority())?;
        threads.push(thread);
    }
    Ok(threads)
}

fn watched_cell(plan: &JobPlan, group: &Group, devices: &Devices, cell: Cell) -> WatchedCell {
    let info = devices.get(plan.devices[cell.device]).info();
    WatchedCell {
        name: cell_name(plan, group, devices, cell),
        block_bytes: u64::from(info.block_bytes),
    }
}

/// Returns the job, the device, the policy and the settings.
pub(crate) fn cell_name(plan: &JobPlan, group: &Group, devices: &Devices, cell: Cell) -> String {
    let (device, policy) = (plan.devices[cell.device], plan.policies[cell.policy]);
    let (uri, words) = (devices.uri(device), settings(plan, group, cell).words());
    format!("{}, {uri}, {policy}{words}", plan.job.name)
}

/// Returns the conditions of a job's threads in `cell`.
pub(crate) fn settings(plan: &JobPlan, group: &Group, cell: Cell) -> Settings {
    Settings {
        sched: plan.scheds[cell.sched].map(|class| class.to_string()),
        pm_qos: match cell.pm_qos {
            PmQosSetting::AsIs => None,
            PmQosSetting::Unlimited => Some("none".to_owned()),
            PmQosSetting::Held(us) => Some(us.to_string()),
        },
        hogs: group.rivals().map_or(0, |(plan, ..)| plan.job.hogs),
    }
}

fn cell_work(
    plan: &JobPlan,
    devices: &Devices,
    cell: Cell,
    [index, thread]: [usize; 2],
    stop: &'static AtomicBool,
) -> Result<CellWork, RunError> {
    let (job, device) = (&plan.job, plan.devices[cell.device]);
    let policy = plan.policies[cell.policy];
    // Channels are created here, for threads that are not yet started.
    let class = job.io_priority().map(QueueClass::of);
    let options =
        ChannelOptions { depth: job.iodepth as u16, policy: Some(policy), interrupt: None, class };
    let channel = devices
        .get(device)
        .channel(&options)
        .map_err(|error| RunError::of_device(devices.uri(device), &error))?;
    let task = task(plan, channel.info(), [index, thread]);
    Ok(CellWork::new(channel, cell.device, plan.scheds[cell.sched], task, stop))
}

/// Returns what thread `thread` does in cell `index`, on a device.
pub(super) fn task(plan: &JobPlan, info: &BlockInfo, [index, thread]: [usize; 2]) -> Task {
    let job = &plan.job;
    let spec = plan.pattern(info, thread);
    let work = if plan.verifies() {
        let seed = group::unix_ns() ^ (index as u64) << 32 ^ thread as u64 ^ plan.seed;
        let rules = Rules::of(job);
        Work::Verified(Box::new(Verified::new(
            course(plan, spec),
            rules,
            &spec,
            job.iodepth as usize,
            seed,
        )))
    } else {
        unverified(plan, spec)
    };
    let warm_up = unverified(plan, PatternSpec { passes: None, seed: !spec.seed, ..spec });
    let ios_max = group::ios_max(plan, info, thread).map_or(usize::MAX, |ios| ios as usize);
    let entries_max = plan.log_entries_max.min(ios_max);
    let log = job.logs.lat.is_some().then(|| Log::new(job.logs.avg_ms, entries_max));
    let shape = Shape::of(job, !spec.seed);
    Task { work, warm_up, shape, log, number_ios: job.number_ios }
}

fn course(plan: &JobPlan, spec: PatternSpec) -> Course {
    if let Some(trace) = &plan.job.trace {
        let repeats = spec.passes.is_none();
        return Course::Replay(Box::new(Replay::new(Arc::clone(trace), spec.block_shift, repeats)));
    }
    match VariedSpec::of(&plan.job, spec) {
        Some(spec) => Course::Varied(Box::new(Varied::new(spec))),
        None => Course::Plain(Box::new(Pattern::new(spec))),
    }
}

fn unverified(plan: &JobPlan, spec: PatternSpec) -> Work {
    if plan.job.trims() {
        return Work::Trims(Box::new(Trims::new(course(plan, spec), plan.job.writes())));
    }
    Work::Course(course(plan, spec))
}
