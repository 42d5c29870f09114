//! Finds contradictions between keys.

use super::error::{JobError, JobErrors, Problem, shown};
use super::{Extent, Job, Verify};

/// The contradictions, each with the key whose line to name, and the error.
#[derive(Default)]
pub(super) struct Contradictions(Vec<(&'static str, String)>);

impl Contradictions {
    /// Adds `what` at `key` if `is_wrong`.
    pub(super) fn add_if(&mut self, is_wrong: bool, key: &'static str, what: impl Into<String>) {
        if is_wrong {
            self.0.push((key, what.into()));
        }
    }
}

const TIMED: &str = "a trace has the times of its I/Os";

/// Keys without effect on a job with a trace, which tells what they do.
const TRACED: &[&str] = &[
    "rw",
    "rwmixread",
    "rwmixwrite",
    "bs",
    "bssplit",
    "size",
    "offset",
    "io_size",
    "norandommap",
    "randrepeat",
    "randseed",
];

/// Two keys of one section that contradict each other, and why.
const ONE_OF: &[(&str, &str, &str)] = &[
    ("read_iolog", "rate", TIMED),
    ("read_iolog", "rate_iops", TIMED),
    ("read_iolog", "thinktime", TIMED),
    ("read_iolog", "loops", "a trace is replayed once"),
    ("read_iolog", "time_based", "a trace is replayed once"),
    ("read_iolog", "verify", "a trace does not tell what was written"),
    ("bs", "bssplit", "both say how large blocks are"),
    ("rate", "rate_iops", "both say how fast to go"),
    ("competitor", "hog", "both say what wants the same CPU"),
];

impl Job {
    /// Returns whether the job runs until its runtime ends. `time_based` decides. Without that key
    /// an amount ends the job, and a runtime beside the amount is an upper limit, as in fio. A
    /// runtime without an amount is the duration of the job.
    pub fn is_time_based(&self) -> bool {
        let has_amount =
            self.size.or(self.io_size).is_some() || self.number_ios.is_some() || self.loops > 1;
        self.time_based.unwrap_or(!has_amount)
    }

    /// Checks for keys that contradict each other, once the file and the command line were read.
    /// Returns warnings about keys that have no effect in this combination.
    pub fn validate(&self) -> Result<Vec<String>, JobErrors> {
        let mut wrong = Contradictions::default();
        self.check_pairs(&mut wrong);
        self.check_parts(&mut wrong);
        if self.verify != Verify::None {
            self.check_verify(&mut wrong);
        }
        self.check_range(&mut wrong);
        if wrong.0.is_empty() {
            return Ok(self.warnings());
        }
        let error = |(key, what)| {
            let job = shown(&self.name);
            JobError::new(self.origin_of(key), Problem::Contradiction { job, what })
        };
        Err(JobErrors(wrong.0.into_iter().map(error).collect()))
    }

    /// Checks for keys that exclude each other, and keys that exclude `rw`.
    fn check_pairs(&self, wrong: &mut Contradictions) {
        for (one, other, why) in ONE_OF.iter().copied() {
            let later = if self.is_own(other) { other } else { one };
            let what = format!("{one} and {other} contradict each other: {why}; leave one out");
            wrong.add_if(self.says(one) && self.says(other), later, what);
        }
        for (key, _, is_strict) in self.idle_keys() {
            let rw = self.rw.as_str();
            let what = format!(
                "{key} is about writes, and rw={rw} writes nothing; leave it out, or use rw=write"
            );
            wrong.add_if(is_strict && self.says(key) && self.is_own(key), key, what);
        }
    }

    /// Checks for keys that need other keys, or other values of them.
    fn check_parts(&self, wrong: &mut Contradictions) {
        wrong.add_if(
            self.time_based == Some(true) && self.runtime.is_none(),
            "time_based",
            "time_based needs runtime=; it says how long to go on",
        );
        wrong.add_if(
            self.pace.thinktime_spin > self.pace.thinktime && self.says("thinktime"),
            "thinktime_spin",
            "thinktime_spin is a part of thinktime, and is longer",
        );
        if let (Some(least), Some(most)) = (self.batch.complete_min, self.batch.complete_max) {
            let what = format!(
                "iodepth_batch_complete_max={most} is less than \
                 iodepth_batch_complete_min={least}; make it larger"
            );
            wrong.add_if(most < least, "iodepth_batch_complete_max", what);
        }
        let is_unread = self.replay.log.is_some() && self.trace.is_none();
        wrong.add_if(is_unread, "read_iolog", "read_iolog is not read by this command");
        let policies = self.completion.as_deref().unwrap_or("poll");
        wrong.add_if(
            self.hipri && policies.trim() != "poll",
            if self.is_own("completion") { "completion" } else { "hipri" },
            format!(
                "hipri means completion=poll, and completion={}; leave one out",
                shown(policies)
            ),
        );
    }

    /// Checks for settings that cannot be verified.
    fn check_verify(&self, wrong: &mut Contradictions) {
        let keys = &self.verify_keys;
        if let Some(bytes) = keys.interval_bytes {
            let block_bytes = self.bs_max_bytes();
            let what = format!(
                "verify_interval={bytes} does not divide bs={block_bytes} evenly; make it a part \
                 of a block"
            );
            wrong.add_if(!block_bytes.is_multiple_of(bytes), "verify_interval", what);
        }
        let is_pattern = matches!(self.verify, Verify::Pattern | Verify::PatternHdr);
        wrong.add_if(
            is_pattern && keys.payload.is_none(),
            "verify",
            "verify=pattern needs verify_pattern=; it says what blocks hold",
        );
        let has_interval = keys.interval_bytes.is_some() && self.is_own("verify_interval");
        wrong.add_if(
            self.verify == Verify::Pattern && has_interval,
            "verify_interval",
            "verify=pattern has no headers to repeat; leave verify_interval out",
        );
        let rw = self.rw.as_str();
        let what = format!("verify with rw={rw} has nothing to say of trims; leave it out");
        wrong.add_if(self.trims(), "verify", what);
        wrong.add_if(
            self.has_varied_sizes(),
            "bssplit",
            "verify checks blocks of one size; use bs=, or leave verify out",
        );
        wrong.add_if(
            self.random.norandommap && self.rw.is_random(),
            "norandommap",
            "verify writes each block once before it checks, and norandommap writes some more \
             often; leave one out",
        );
        let (read_bytes, write_bytes) = (self.bs_read_bytes, self.bs_write_bytes);
        let what = format!(
            "verify checks blocks as they were written: reads of {read_bytes} and writes of \
             {write_bytes} bytes do not match; use one bs"
        );
        wrong.add_if(self.reads() && read_bytes != write_bytes, "bs", what);
    }

    /// Checks whether the job's part of the device is possible.
    fn check_range(&self, wrong: &mut Contradictions) {
        let block_bytes = self.bs_max_bytes();
        match (self.offset, self.size) {
            (offset, Some(Extent::Bytes(size_bytes))) => {
                let what =
                    format!("size={size_bytes} is smaller than one block of {block_bytes} bytes");
                wrong.add_if(size_bytes < block_bytes, "size", what);
                let overflows =
                    matches!(offset, Extent::Bytes(at) if at.checked_add(size_bytes).is_none());
                wrong.add_if(overflows, "offset", "offset + size does not fit in 64 bits");
            }
            (Extent::Percent(offset), Some(Extent::Percent(size))) => {
                let what =
                    format!("offset={offset}% and size={size}% reach past the end of the device");
                wrong.add_if(u16::from(offset) + u16::from(size) > 100, "offset", what);
            }
            _ => {}
        }
    }

    /// Returns whether the key was set in this section or on the command line, not in `[global]`.
    fn is_own(&self, key: &str) -> bool {
        self.set_keys.iter().any(|set| set.key == key && !set.inherited)
    }

    /// Returns warnings about the unused rest of the range, and about keys without effect here.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |key: &str, what: String| {
            let (origin, job) = (self.origin_of(key), shown(&self.name));
            warnings.push(format!("{origin}: job {job}: {what}"));
        };
        if let Some(Extent::Bytes(size_bytes)) = self.size
            && let left_bytes @ 1.. = size_bytes % self.bs_max_bytes()
        {
            let what =
                format!("size is not a multiple of bs; the last {left_bytes} bytes are left out");
            warn("size", what);
        }
        for key in TRACED.iter().filter(|key| self.trace.is_some() && self.is_set(key)) {
            warn(key, format!("{key} has no effect with read_iolog"));
        }
        for (key, why, is_strict) in self.idle_keys() {
            if self.trace.is_some() && TRACED.contains(&key) {
                continue;
            }
            // A strict key with its default value needs no warning.
            if !is_strict || self.says(key) {
                warn(key, format!("{key} has no effect {why}"));
            }
        }
        if self.batch.submit.is_some_and(|submit| submit > self.iodepth) {
            let depth = self.iodepth;
            warn("iodepth_batch", format!("iodepth_batch has no effect beyond iodepth={depth}"));
        }
        warnings
    }
}
