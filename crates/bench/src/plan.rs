//! A job with its devices and policies.

use std::time::Duration;

use meantime_block::BlockInfo;
use meantime_completion::Policy;
use meantime_hw::SchedClass;

use super::pattern::PatternSpec;
use crate::job::{Job, JobError, Verify};

const DEFAULT_POLICIES: &str = "interrupt,poll,adaptive";

/// A job with the devices and policies it runs on.
#[derive(Debug, Clone)]
pub struct JobPlan {
    /// The job.
    pub job: Job,
    /// Indices into the run's devices.
    pub devices: Vec<usize>,
    /// Policies, one for each of the group.
    pub policies: Vec<Policy>,
    /// Scheduling classes of its threads, with one for each of the group (`None` leaves it
    /// unchanged).
    pub scheds: Vec<Option<SchedClass>>,
    /// Maximum time to measure each cell, or `None` to measure until all is transferred.
    pub runtime: Option<Duration>,
    /// Whether to continue until the runtime is over.
    pub endless: bool,
    /// The reporting group, from 0.
    pub group_id: u32,
    /// Seed of its random numbers.
    pub seed: u64,
    /// The number of entries for which a thread's log has room.
    pub log_entries_max: usize,
}

impl JobPlan {
    /// Returns whether blocks have headers, and are checked unless `do_verify=0`. These are the
    /// blocks that the job writes, or, if it only reads, those of an earlier job.
    pub fn verifies(&self) -> bool {
        self.job.verify != Verify::None && !self.job.trims()
    }

    /// Returns the part of a device on which its threads work together: offset and length in bytes.
    pub fn reach(&self, info: &BlockInfo) -> (u64, u64) {
        let align_bytes = u64::from(info.block_bytes);
        let offset_bytes = self.job.offset.resolve_bytes(info.bytes(), align_bytes);
        let rest_bytes = info.bytes().saturating_sub(offset_bytes);
        let size_bytes =
            self.job.size.map_or(rest_bytes, |size| size.resolve_bytes(info.bytes(), align_bytes));
        (offset_bytes, size_bytes)
    }

    /// Returns the part of a device on which thread `thread` works: offset and length in bytes.
    pub fn range(&self, info: &BlockInfo, thread: usize) -> (u64, u64) {
        let (offset_bytes, size_bytes) = self.reach(info);
        if !self.verifies() {
            return (offset_bytes, size_bytes);
        }
        // Each thread gets a part, because it cannot know what to expect in blocks that others
        // overwrite.
        let bs_bytes = self.job.bs_max_bytes();
        let part_bytes = size_bytes / u64::from(self.job.numjobs) / bs_bytes * bs_bytes;
        (offset_bytes + part_bytes * thread as u64, part_bytes)
    }

    /// Returns the I/Os of thread `thread` on a device.
    pub fn pattern(&self, info: &BlockInfo, thread: usize) -> PatternSpec {
        let (offset_bytes, range_bytes) = self.range(info, thread);
        // As in fio the last I/O has its full size.
        let whole_bytes = if self.job.has_varied_sizes() { 1 } else { self.job.bs_min_bytes() };
        let pass_bytes = self.job.io_size.map_or(range_bytes, |size| {
            let bytes = size.resolve_bytes(range_bytes, u64::from(info.block_bytes));
            bytes.next_multiple_of(whole_bytes)
        });
        PatternSpec {
            offset_bytes,
            range_bytes,
            pass_bytes,
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
            // Equal for every device and policy, so that all do the same.
            seed: self.seed.wrapping_add(thread as u64),
        }
    }
}

/// Returns the policies of a job.
///
/// # Errors
/// Returns an error if one is unknown, or listed twice.
pub fn policies(job: &Job) -> Result<Vec<Policy>, JobError> {
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
