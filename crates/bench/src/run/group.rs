//! Jobs that run at the same time: those of a file up to the next `stonewall`.
//!
//! A group has turns like a single job. In a turn of cell i all threads of all its jobs do I/O at
//! once, each job on its i-th device and with its i-th policy.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use itertools::{Itertools as _, iproduct};
use meantime_block::BlockInfo;
use meantime_report::run::LogEntry;

use super::error::{RunError, refuse};
use crate::competitor::Kind;
use crate::job::Job;
use crate::memory;
use crate::plan::{self, JobPlan};

/// The maximum memory of all logs together, or a quarter of the available memory if that is less.
const LOGS_MAX_BYTES: u64 = 1 << 30;

/// The runtime if neither time nor size is given.
const DEFAULT_RUNTIME: Duration = Duration::from_secs(5);

/// The seed of jobs without one of their own.
const SEED: u64 = 0x5eed_0000;

/// Jobs that run at the same time.
#[derive(Debug)]
pub struct Group {
    /// The jobs. All have the same number of devices, and of policies.
    pub plans: Vec<JobPlan>,
    /// Cells that cannot be measured.
    pub(crate) left_out: Vec<Cell>,
}

/// The group's setting for idle CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PmQosSetting {
    /// There is no setting, and no mention of it.
    AsIs,
    /// Explicitly none, for comparison with a limit.
    Unlimited,
    /// A limit in µs, held during the cell's turns.
    Held(u32),
}

/// A cell of a group, as indices into each plan's devices and policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Into [`JobPlan::devices`].
    pub device: usize,
    /// Into [`JobPlan::policies`].
    pub policy: usize,
    /// Into [`JobPlan::scheds`].
    pub sched: usize,
    /// Limit on how deep idle CPUs sleep.
    pub pm_qos: PmQosSetting,
}

impl Group {
    /// Returns the group's name.
    pub fn name(&self) -> String {
        self.plans.iter().map(|plan| &plan.job.name).join(" + ")
    }

    /// Returns its devices and policies, without those that are left out.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let JobPlan { devices, policies, scheds, .. } = &self.plans[0];
        let [devices, policies, scheds] =
            [devices.len(), policies.len(), scheds.len()].map(|count| 0..count);
        iproduct!(devices, policies, scheds, self.pm_qos())
            .map(|(device, policy, sched, pm_qos)| Cell { device, policy, sched, pm_qos })
            .filter(|cell| !self.left_out.contains(cell))
            .collect()
    }

    /// Returns the number of devices and policies that are measured, each under each setting.
    pub fn cell_count(&self) -> usize {
        self.cells().len()
    }

    /// Returns the number of settings under which each device and policy is measured.
    pub(crate) fn settings(&self) -> usize {
        self.plans[0].scheds.len() * self.pm_qos().len()
    }

    /// Returns the limits on idling to compare. They apply to the machine, so they hold for all
    /// jobs of the group.
    pub(crate) fn pm_qos(&self) -> Vec<PmQosSetting> {
        let limits =
            self.plans.iter().map(|plan| &plan.job.pm_qos_us).find(|limits| !limits.is_empty());
        match limits {
            None => vec![PmQosSetting::AsIs],
            Some(limits) => limits
                .iter()
                .map(|us| us.map_or(PmQosSetting::Unlimited, PmQosSetting::Held))
                .collect(),
        }
    }

    /// Returns the programs that compete with the group's jobs, and the job that requests them.
    pub(crate) fn rivals(&self) -> Option<(&JobPlan, Kind, u32)> {
        self.plans.iter().find_map(|plan| {
            let (kind, count) = plan.job.rivals()?;
            Some((plan, kind, count))
        })
    }

    /// Returns the indices of all devices, each once.
    pub(crate) fn devices(&self) -> Vec<usize> {
        self.plans.iter().flat_map(|plan| &plan.devices).copied().sorted().dedup().collect()
    }
}

/// Returns the groups of `jobs`, each of which comes with its devices' indices.
pub fn groups(jobs: Vec<(Job, Vec<usize>)>) -> Result<Vec<Group>, RunError> {
    let mut groups: Vec<Group> = Vec::new();
    let mut group_id = 0;
    for (at, (job, devices)) in jobs.into_iter().enumerate() {
        group_id += u32::from(at > 0 && (job.stonewall || job.new_group));
        let policies = plan::policies(&job)?;
        let endless = job.is_time_based();
        let runtime = job.runtime.or(endless.then_some(DEFAULT_RUNTIME));
        let seed = match (job.random.randseed, job.random.randrepeat) {
            (Some(seed), _) => seed,
            (None, true) => SEED,
            (None, false) => unix_ns(),
        };
        // Jobs of a file have different seeds, as in fio. The first one has that of a single job.
        let seed = seed.wrapping_add((at as u64) << 32);
        let begins = job.stonewall || groups.is_empty();
        let scheds = match &job.scheds[..] {
            [] => vec![None],
            scheds => scheds.iter().copied().map(Some).collect(),
        };
        let plan = JobPlan {
            job,
            devices,
            policies,
            scheds,
            runtime,
            endless,
            group_id,
            seed,
            log_entries_max: 0,
        };
        match groups.last_mut() {
            Some(group) if !begins => group.plans.push(plan),
            _ => groups.push(Group { plans: vec![plan], left_out: Vec::new() }),
        }
    }
    for group in &mut groups {
        align(group, "completion", "ways to wait", |plan| &mut plan.policies)?;
        align(group, "sched", "scheduling classes", |plan| &mut plan.scheds)?;
        check_shared(group)?;
    }
    share_log_memory(&mut groups);
    Ok(groups)
}

/// Returns the groups that have turns one after the other: those of a sweep, else each by itself.
pub fn batches(groups: &[Group]) -> impl Iterator<Item = &[Group]> {
    groups.chunk_by(|_, next| next.plans[0].job.point > 0)
}

/// Repeats a single value of a job for every cell.
fn align<T: Clone>(
    group: &mut Group,
    key: &str,
    what: &str,
    list: impl Fn(&mut JobPlan) -> &mut Vec<T>,
) -> Result<(), RunError> {
    let most = group.plans.iter_mut().map(|plan| list(plan).len()).max().unwrap_or(0);
    for at in 0..group.plans.len() {
        let values = list(&mut group.plans[at]);
        match &values[..] {
            [one] => *values = vec![one.clone(); most],
            values if values.len() != most => {
                let count = values.len();
                let other = group.plans.iter_mut().position(|plan| list(plan).len() == most);
                let other = other.map_or("", |other| group.plans[other].job.name.as_str());
                refuse!(
                    group.plans[at].job,
                    "{key} lists {count} {what}, and job {other}, which runs at the same time, \
                     {most}; list as many, or one, or use stonewall"
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the shared settings, because there is one CPU to compete for, and one machine to be idle.
fn check_shared(group: &Group) -> Result<(), RunError> {
    let one_of = |key: &str, differs: &dyn Fn(&Job, &Job) -> bool| {
        for (at, plan) in group.plans.iter().enumerate() {
            if let Some(other) =
                group.plans[..at].iter().find(|other| differs(&plan.job, &other.job))
            {
                refuse!(
                    plan.job,
                    "{key} differs from that of job {}, which runs at the same time; give one, or \
                     use stonewall",
                    other.job.name
                );
            }
        }
        Ok(())
    };
    one_of("competitor or hog", &|one, other| {
        one.rivals().zip(other.rivals()).is_some_and(|(one, other)| one != other)
    })?;
    one_of("pm_qos", &|one, other| {
        let [one, other] = [one, other].map(|job| &job.pm_qos_us);
        !one.is_empty() && !other.is_empty() && one != other
    })
}

/// Returns the time since 1970, for seeds that differ from those of earlier runs. Blocks that such
/// a run wrote are then not taken for this one's.
pub(super) fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn share_log_memory(groups: &mut [Group]) {
    let available_bytes = memory::available_bytes().map_or(u64::MAX, |bytes| bytes / 4);
    let entries = LOGS_MAX_BYTES.min(available_bytes) / size_of::<LogEntry>() as u64;
    // One log for each thread and cell.
    let logs: u64 = groups
        .iter()
        .map(|group| {
            let logging = group.plans.iter().filter(|plan| plan.job.logs.lat.is_some());
            let threads: u64 = logging.map(|plan| u64::from(plan.job.numjobs)).sum();
            threads * group.cells().len() as u64
        })
        .sum();
    let share = (entries / logs.max(1)) as usize;
    for plan in groups.iter_mut().flat_map(|group| &mut group.plans) {
        plan.log_entries_max = share;
    }
}

/// Returns the maximum number of I/Os that thread `thread` of a job does on a device, if that ends
/// it.
pub(crate) fn ios_max(plan: &JobPlan, info: &BlockInfo, thread: usize) -> Option<u64> {
    if plan.job.trace.is_some() {
        return plan.job.number_ios;
    }
    let spec = plan.pattern(info, thread);
    let by_amount =
        crate::pattern::Pattern::total_bytes(&spec).map(|bytes| bytes / plan.job.bs_min_bytes());
    // Each place is trimmed, and then written.
    let each = 1 + u64::from(plan.job.trims() && plan.job.writes());
    [by_amount.map(|ios| ios * each), plan.job.number_ios].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use meantime_completion::Policy;

    use super::*;

    fn grouped(text: &str) -> Result<Vec<Group>, RunError> {
        let jobs = crate::job::parse(text, "t.fio").jobs;
        groups(jobs.into_iter().map(|job| (job, vec![0])).collect())
    }

    #[test]
    fn a_stonewall_divides() {
        let text =
            "[global]\ncompletion=poll\n[a]\nstonewall\n[b]\n[c]\nnew_group\n[d]\nstonewall\n[e]\n";
        let groups = grouped(text).unwrap();
        let names: Vec<String> = groups.iter().map(Group::name).collect();
        assert_eq!(names, ["a + b + c", "d + e"]);
        let ids: Vec<u32> =
            groups.iter().flat_map(|group| &group.plans).map(|plan| plan.group_id).collect();
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
    fn settings_are_compared_within_a_policy() {
        let text = "[a]\ncompletion=interrupt,poll\nsched=other,rr:1\npm_qos=none,0\n[b]\n\
                    completion=poll\nhog=2\n";
        let groups = grouped(text).unwrap();
        let cells = groups[0].cells();
        assert_eq!((cells.len(), groups[0].settings()), (8, 4));
        // Cells with and without a limit are next to each other.
        assert_eq!(cells[0].pm_qos, PmQosSetting::Unlimited);
        assert_eq!(cells[1], Cell { pm_qos: PmQosSetting::Held(0), ..cells[0] });
        assert_eq!(groups[0].plans[1].scheds, [None; 2]);
        assert_eq!(groups[0].rivals().map(|(_, kind, count)| (kind, count)), Some((Kind::Tsc, 2)));
        assert_eq!(grouped("[a]\n").unwrap()[0].pm_qos(), [PmQosSetting::AsIs]);
        for (one, other) in [
            ("sched=other,rr:1", "sched=rr:1,rr:2,rr:3"),
            ("pm_qos=0", "pm_qos=none"),
            ("hog=1", "hog=2"),
            ("hog=1", "competitor=8m"),
        ] {
            let text = |between: &str| format!("[a]\n{one}\n[b]\n{between}{other}\n");
            assert!(grouped(&text("")).is_err(), "{one}, {other}");
            assert!(grouped(&text("stonewall\n")).is_ok(), "{one}, {other}");
        }
        assert!(grouped("[a]\nhog=1\n[b]\ncompetitor=tsc\n").is_ok());
    }

    #[test]
    fn what_ends_a_job() {
        let plan =
            |keys: &str| grouped(&format!("[a]\n{keys}\n")).unwrap().remove(0).plans.remove(0);
        for (keys, runtime, endless) in [
            ("", Some(DEFAULT_RUNTIME), true),
            ("size=1m", None, false),
            ("number_ios=9", None, false),
            ("size=1m\nruntime=3", Some(std::time::Duration::from_secs(3)), false),
            ("runtime=3", Some(std::time::Duration::from_secs(3)), true),
            ("runtime=3\ntime_based=0", Some(std::time::Duration::from_secs(3)), false),
            ("runtime=3\nloops=2", Some(std::time::Duration::from_secs(3)), false),
            ("runtime=3\nnumber_ios=9", Some(std::time::Duration::from_secs(3)), false),
            ("io_size=1m\nruntime=3\ntime_based", Some(std::time::Duration::from_secs(3)), true),
        ] {
            let plan = plan(keys);
            assert_eq!((plan.runtime, plan.endless), (runtime, endless), "{keys}");
        }
    }

    #[test]
    fn a_seed_decides_the_places() {
        let plan =
            |keys: &str| grouped(&format!("[a]\n{keys}\n")).unwrap().remove(0).plans.remove(0);
        assert_ne!(plan("randrepeat=0").seed, plan("").seed);
        assert_eq!(plan("randseed=7\nrandrepeat=0").seed, 7);
        assert_eq!(plan("randseed=7").seed, 7);
    }
}
