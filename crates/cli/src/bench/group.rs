//! Jobs that run at the same time: those of a file up to the next `stonewall`.
//!
//! A group has its turns as one job would: in a turn of cell i all threads of all its jobs do I/O at once, each job on
//! its i-th device and by its i-th policy.

use std::time::{SystemTime, UNIX_EPOCH};

use meantime::completion::Policy;

use super::devices::Devices;
use super::plan::{self, DEFAULT_RUNTIME, JobPlan};
use crate::competitor::Kind;
use crate::failure::Failure;
use crate::job::Job;
use crate::machine;
use crate::report::LogEntry;

/// All logs together take so much memory at most, or a quarter of what is available.
const LOGS_MAX_BYTES: u64 = 1 << 30;

/// The seed of jobs without one of their own.
const SEED: u64 = 0x5eed_0000;

/// Jobs that run at the same time.
#[derive(Debug)]
pub struct Group {
    /// The jobs. Each has as many devices as the others, and as many policies.
    pub plans: Vec<JobPlan>,
    /// Cells that cannot be measured.
    pub left_out: Vec<Cell>,
}

/// A cell of a group: indices into each plan's devices and policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Into [`JobPlan::devices`].
    pub device: usize,
    /// Into [`JobPlan::policies`].
    pub policy: usize,
}

impl Group {
    /// What the group is called.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.plans.iter().map(|plan| plan.job.name.as_str()).collect();
        names.join(" + ")
    }

    /// Its devices and policies, but for those that are left out.
    pub fn cells(&self) -> Vec<Cell> {
        let first = &self.plans[0];
        let policies = first.policies.len();
        (0..first.devices.len())
            .flat_map(|device| (0..policies).map(move |policy| Cell { device, policy }))
            .filter(|cell| !self.left_out.contains(cell))
            .collect()
    }

    /// The program that competes with the group's jobs, and the job that wants it.
    pub fn competitor(&self) -> Option<(&JobPlan, Kind)> {
        self.plans.iter().find_map(|plan| Some((plan, plan.job.competitor?)))
    }

    /// The indices of all devices, each once.
    pub fn devices(&self) -> Vec<usize> {
        let mut devices: Vec<usize> =
            self.plans.iter().flat_map(|plan| plan.devices.iter().copied()).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }
}

/// The groups of `jobs`, each of which has its devices' indices beside it.
pub fn groups(jobs: Vec<(Job, Vec<usize>)>) -> Result<Vec<Group>, Failure> {
    let unrepeated = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut groups: Vec<Group> = Vec::new();
    let mut group_id = 0;
    for (at, (job, devices)) in jobs.into_iter().enumerate() {
        group_id += u32::from(at > 0 && (job.stonewall || job.new_group));
        let policies = plan::policies(&job)?;
        // A size alone says when to end; nothing at all means a while; a runtime is an upper limit unless time_based.
        let nothing_given =
            job.runtime.is_none() && job.size.is_none() && job.io_size.is_none() && job.number_ios.is_none();
        let runtime = if nothing_given { Some(DEFAULT_RUNTIME) } else { job.runtime };
        let endless = nothing_given || job.time_based;
        let seed = match (job.random.randseed, job.random.randrepeat) {
            (Some(seed), _) => seed,
            (None, true) => SEED,
            (None, false) => unrepeated,
        };
        // Jobs of a file differ, as in fio; the first one's is that of a job by itself.
        let seed = seed.wrapping_add((at as u64) << 32);
        let begins = job.stonewall || groups.is_empty();
        let plan = JobPlan { job, devices, policies, runtime, endless, group_id, seed, log_entries_max: 0 };
        match groups.last_mut() {
            Some(group) if !begins => group.plans.push(plan),
            _ => groups.push(Group { plans: vec![plan], left_out: Vec::new() }),
        }
    }
    for group in &mut groups {
        align_policies(group)?;
        check_competitors(group)?;
    }
    share_log_memory(&mut groups);
    Ok(groups)
}

/// A job with one policy has it in every cell.
fn align_policies(group: &mut Group) -> Result<(), Failure> {
    let Some(most) = group.plans.iter().map(|plan| plan.policies.len()).max() else { return Ok(()) };
    for at in 0..group.plans.len() {
        match group.plans[at].policies.len() {
            1 => {
                let policy: Policy = group.plans[at].policies[0];
                group.plans[at].policies = vec![policy; most];
            }
            policies if policies != most => {
                let other = group.plans.iter().find(|plan| plan.policies.len() == most);
                let other = other.map_or("", |plan| plan.job.name.as_str());
                return Err(Failure::new(format_args!(
                    "job {}: completion lists {policies} ways to wait, and job {other}, which runs at the same time, \
                     {most}; list as many, or one, or use stonewall",
                    group.plans[at].job.name
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// There is one CPU to compete for.
fn check_competitors(group: &Group) -> Result<(), Failure> {
    let Some((first, kind)) = group.competitor() else { return Ok(()) };
    let other = group.plans.iter().find(|plan| plan.job.competitor.is_some_and(|other| other != kind));
    match other {
        Some(other) => Err(Failure::new(format_args!(
            "job {}: competitor differs from that of job {}, which runs at the same time; give one, or use stonewall",
            other.job.name, first.job.name
        ))),
        None => Ok(()),
    }
}

fn share_log_memory(groups: &mut [Group]) {
    let available_bytes = machine::available_bytes().map_or(u64::MAX, |bytes| bytes / 4);
    let entries = LOGS_MAX_BYTES.min(available_bytes) / size_of::<LogEntry>() as u64;
    let plans = || groups.iter().flat_map(|group| &group.plans).filter(|plan| plan.job.logs.any());
    let logs: u64 = plans()
        .map(|plan| plan.devices.len() as u64 * plan.policies.len() as u64 * u64::from(plan.job.numjobs))
        .sum();
    let share = (entries / logs.max(1)) as usize;
    for plan in groups.iter_mut().flat_map(|group| &mut group.plans) {
        plan.log_entries_max = share;
    }
}

/// How many I/Os thread `thread` of a job does on a device at most, if it ends by that.
pub fn ios_max(plan: &JobPlan, devices: &Devices, index: usize, thread: usize) -> Option<u64> {
    use meantime::block::BlockDevice as _;
    let spec = plan.pattern(devices.get(index).info(), thread);
    let by_amount = super::pattern::Pattern::total_bytes(&spec).map(|bytes| bytes / plan.job.bs_min_bytes());
    [by_amount, plan.job.number_ios].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(text: &str) -> Result<Vec<Group>, Failure> {
        let jobs = crate::job::parse(text, "t.fio").unwrap().jobs;
        groups(jobs.into_iter().map(|job| (job, vec![0])).collect())
    }

    #[test]
    fn a_stonewall_divides() {
        let text = "[global]\ncompletion=poll\n[a]\nstonewall\n[b]\n[c]\nnew_group\n[d]\nstonewall\n[e]\n";
        let groups = grouped(text).unwrap();
        let names: Vec<String> = groups.iter().map(Group::name).collect();
        assert_eq!(names, ["a + b + c", "d + e"]);
        let ids: Vec<u32> = groups.iter().flat_map(|group| &group.plans).map(|plan| plan.group_id).collect();
        assert_eq!(ids, [0, 0, 1, 2, 2]);
        let seeds: std::collections::HashSet<u64> =
            groups.iter().flat_map(|group| &group.plans).map(|plan| plan.seed).collect();
        assert_eq!(seeds.len(), 5);
    }

    #[test]
    fn one_policy_is_for_all_cells() {
        let groups = grouped("[a]\ncompletion=interrupt,poll\n[b]\nhipri\n").unwrap();
        assert_eq!(groups[0].plans[1].policies, [Policy::Poll; 2]);
        assert_eq!(groups[0].cells().len(), 2);
        assert!(grouped("[a]\ncompletion=interrupt,poll\n[b]\n").is_err());
        assert!(grouped("[a]\ncompletion=interrupt,poll\n[b]\nstonewall\n").is_ok());
    }

    #[test]
    fn what_ends_a_job() {
        let plan = |keys: &str| grouped(&format!("[a]\n{keys}\n")).unwrap().remove(0).plans.remove(0);
        for (keys, runtime, endless) in [
            ("", Some(DEFAULT_RUNTIME), true),
            ("size=1m", None, false),
            ("number_ios=9", None, false),
            ("size=1m\nruntime=3", Some(std::time::Duration::from_secs(3)), false),
            ("io_size=1m\nruntime=3\ntime_based", Some(std::time::Duration::from_secs(3)), true),
        ] {
            let plan = plan(keys);
            assert_eq!((plan.runtime, plan.endless), (runtime, endless), "{keys}");
        }
        assert_ne!(plan("randrepeat=0").seed, plan("").seed);
        assert_eq!(plan("randseed=7\nrandrepeat=0").seed, 7);
    }
}
