//! The jobs' requirements on the machine: CPUs, rights, memory.

use std::thread::JoinHandle;

use meantime_hw::{PmQos, SchedClass, cpu, pm_qos};
use meantime_report::figures;

use crate::job::Job;
use crate::memory;
use crate::plan::JobPlan;
use crate::run::cells;
use crate::run::devices::Devices;
use crate::run::error::{RunError, refuse};
use crate::run::floor::FloorKind;
use crate::run::group::{Group, PmQosSetting};

pub(super) fn check_cpus(job: &Job) -> Result<(), RunError> {
    let allowed = meantime_hw::cpu::allowed();
    if let Some(cpu) = job.cpus_allowed.iter().find(|cpu| !allowed.contains(&(**cpu as usize))) {
        refuse!(job, "cpus_allowed: this process may not use CPU {cpu}; it may use {allowed:?}");
    }
    Ok(())
}

/// Finds missing rights before anything runs.
pub(super) fn check_settings(group: &Group, devices: &Devices) -> Result<(), RunError> {
    for plan in &group.plans {
        for class in plan.scheds.iter().flatten() {
            check_class(plan, group, devices, *class)?;
        }
    }
    for setting in group.pm_qos() {
        if let PmQosSetting::Held(us) = setting {
            hold_pm_qos(us).map_err(|what| RunError::of_job(&group.plans[0].job.name, what))?;
        }
    }
    Ok(())
}

fn check_class(
    plan: &JobPlan,
    group: &Group,
    devices: &Devices,
    class: SchedClass,
) -> Result<(), RunError> {
    // On a thread of its own, which ends with the class if it cannot be restored.
    let try_it = move || class.apply_to_this_thread().map(drop);
    let tried = meantime_process::thread::spawn("meantime-try", try_it);
    match tried.map(JoinHandle::join) {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => refuse!(plan.job, "sched={class}: {error}"),
        _ => refuse!(plan.job, "sched={class}: cannot be tried"),
    }
    let cpus = cells::thread_cpus(plan, group, devices);
    let mut ssd_cpus = group.devices().into_iter().filter_map(|index| devices.ssd_cpu(index));
    if let Some(cpu) = ssd_cpus.find(|cpu| cpus.contains(cpu) && class.is_real_time()) {
        refuse!(
            plan.job,
            "sched={class}: on CPU {cpu} the job's threads would keep the software SSD's from \
             running; give each a CPU (cpus_allowed, cpu=)"
        );
    }
    Ok(())
}

/// Sets the limit on idling.
pub(crate) fn hold_pm_qos(us: u32) -> Result<PmQos, String> {
    let held = PmQos::hold(i32::try_from(us).unwrap_or(i32::MAX));
    held.map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                "it needs root, or the right to write to that file (a udev rule can give it)"
            }
            std::io::ErrorKind::NotFound => {
                "this kernel has no CPU idle management (CONFIG_CPU_IDLE), or a container hides \
                 the file"
            }
            _ => "leave pm_qos out",
        };
        format!("pm_qos={us}: {}: {error}; {what}", pm_qos::CPU_DMA_LATENCY)
    })
}

/// Two spinning threads on one CPU would measure the scheduler.
pub(super) fn check_floor(group: &Group, devices: &Devices) -> Result<(), RunError> {
    let [plan] = &group.plans[..] else {
        refuse!(
            group.plans[0].job,
            "--floor: the floor is that of one job at a time; put stonewall into every job but the \
             first"
        );
    };
    let cpus = cells::thread_cpus(plan, group, devices);
    for index in &plan.devices {
        let kind = devices.floor_kind(*index, &plan.job);
        if kind.cpu(devices.ssd_cpu(*index), &cpus, &cpu::allowed()).is_some() {
            continue;
        }
        let (other, remedy) = match kind {
            FloorKind::Cores => ("the software SSD", "give each a CPU (cpus_allowed, cpu=)"),
            FloorKind::Tcp { .. } => ("what answers them", "let this process use two"),
        };
        refuse!(
            plan.job,
            "--floor needs two CPUs: the job's threads and {other} would share one; {remedy}"
        );
    }
    Ok(())
}

/// Returns an error rather than meeting the kernel's OOM killer.
pub(super) fn check_memory(
    groups: &[Group],
    devices: &Devices,
    floor: bool,
) -> Result<(), RunError> {
    let (mut buffers_bytes, mut largest) = (0u64, (0, &groups[0].plans[0]));
    for plan in groups.iter().flat_map(|group| &group.plans) {
        let job = &plan.job;
        let counts = [job.iodepth.into(), job.numjobs.into(), plan.devices.len() as u64];
        let bytes = counts.into_iter().fold(job.bs_max_bytes(), u64::saturating_mul);
        buffers_bytes = buffers_bytes.saturating_add(bytes);
        if bytes > largest.0 {
            largest = (bytes, plan);
        }
    }
    // Only the first job of a group measures the floor.
    let firsts = groups.iter().filter(|_| floor).map(|group| &group.plans[0]);
    let floors_bytes = firsts
        .flat_map(|first| first.devices.iter().map(|index| devices.floor_bytes(*index, &first.job)))
        .fold(0, u64::saturating_add);
    let Some(available_bytes) = memory::available_bytes() else { return Ok(()) };
    if buffers_bytes.saturating_add(floors_bytes) <= available_bytes {
        return Ok(());
    }
    let floors = match floor {
        true => format!(" and {} for the floor", figures::bytes(floors_bytes)),
        false => String::new(),
    };
    let [needed, available] = [buffers_bytes, available_bytes].map(figures::bytes);
    refuse!(
        largest.1.job,
        "bs × iodepth × numjobs needs {needed} of buffers{floors}, and {available} of memory are \
         available; make one of them smaller"
    );
}
