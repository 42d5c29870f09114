//! Contradictions between keys.

use super::error::{JobError, Origin, Problem, shown};
use super::{Distribution, Extent, Job, Verify};

/// A contradiction: the key whose line to name, and what is wrong.
type Wrong = (&'static str, String);

/// The first is a contradiction, said with both keys, unless they are of different sections.
const ONE_OF: &[(&str, &str, &str)] = &[
    ("bs", "bsrange", "both say how large blocks are"),
    ("bs", "bssplit", "both say how large blocks are"),
    ("bsrange", "bssplit", "both say how large blocks are"),
    ("rate", "rate_iops", "both say how fast to go"),
    ("rate_iops", "latency_target", "one says how fast to go, the other finds it out"),
    ("rate", "latency_target", "one says how fast to go, the other finds it out"),
    ("thinktime", "latency_target", "pauses would be taken for the device's limit"),
    ("verify", "latency_target", "the search ends before all is written"),
    ("competitor", "hog", "both say what wants the same CPU"),
];

/// Keys that do nothing without another one.
const NEEDS: &[(&str, &str)] = &[
    ("thinktime_spin", "thinktime"),
    ("thinktime_blocks", "thinktime"),
    ("latency_window", "latency_target"),
    ("latency_percentile", "latency_target"),
    ("latency_run", "latency_target"),
    ("log_hist_msec", "write_hist_log"),
    ("log_hist_coarseness", "write_hist_log"),
    ("iodepth_batch_complete_max", "iodepth_batch_complete_min"),
];

impl Job {
    /// Looks for keys that contradict each other, once the file and the command line have been read. Returns
    /// warnings: keys that will have no effect in this combination.
    pub fn validate(&self) -> Result<Vec<String>, JobError> {
        let fail = |key: &str, what: String| {
            let origin = self.origin_of(key).unwrap_or(&Origin::CommandLine);
            Err(JobError::new(origin, Problem::Contradiction { job: shown(&self.name), what }))
        };
        if let Some((key, what)) = self.contradiction() {
            return fail(key, what);
        }
        if self.time_based == Some(true) && self.runtime.is_none() {
            return fail("time_based", "time_based needs runtime=; it says how long to go on".to_owned());
        }
        if self.verify == Verify::Crc32c && !self.writes() {
            let rw = self.rw.as_str();
            let what = format!(
                "verify with rw={rw} would check what a former write left, and this job writes nothing; \
                 use rw=write, randwrite, rw or randrw, or leave verify out"
            );
            return fail("verify", what);
        }
        if self.verify == Verify::Crc32c && self.has_varied_sizes() {
            let key = if self.is_set("bssplit") { "bssplit" } else { "bsrange" };
            return fail(key, "verify checks blocks of one size; use bs=, or leave verify out".to_owned());
        }
        if self.verify == Verify::Crc32c && self.rw.is_random() {
            let key = match (&self.random.distribution, self.random.norandommap) {
                (Distribution::Uniform, false) => None,
                (Distribution::Uniform, true) => Some("norandommap"),
                _ => Some("random_distribution"),
            };
            if let Some(key) = key {
                let what = format!(
                    "verify writes each block once before it checks, and {key} writes some more often; leave one out"
                );
                return fail(key, what);
            }
        }
        if self.verify == Verify::Crc32c && self.io_size.is_some() {
            return fail("io_size", "verify goes by size=; leave io_size out".to_owned());
        }
        if self.verify == Verify::Crc32c && self.reads() && self.bs_read_bytes != self.bs_write_bytes {
            let what = format!(
                "verify checks blocks as they were written: reads of {} and writes of {} bytes do not match; use one bs",
                self.bs_read_bytes, self.bs_write_bytes
            );
            return fail("bs", what);
        }
        let mut warnings = Vec::new();
        let block_bytes = self.bs_max_bytes();
        if let Some(Extent::Bytes(size_bytes)) = self.size {
            if size_bytes < block_bytes {
                return fail(
                    "size",
                    format!("size={size_bytes} is smaller than one block of {block_bytes} bytes"),
                );
            }
            if size_bytes % block_bytes != 0 {
                let left_bytes = size_bytes % block_bytes;
                let what = format!("size is not a multiple of bs; the last {left_bytes} bytes are left out");
                warnings.push(self.warning("size", &what));
            }
            if let Extent::Bytes(offset_bytes) = self.offset
                && offset_bytes.checked_add(size_bytes).is_none()
            {
                return fail("offset", "offset + size does not fit in 64 bits".to_owned());
            }
        }
        if let (Extent::Percent(offset), Some(Extent::Percent(size))) = (self.offset, self.size)
            && u16::from(offset) + u16::from(size) > 100
        {
            return fail(
                "offset",
                format!("offset={offset}% and size={size}% reach past the end of the device"),
            );
        }
        self.warn_of_idle_keys(&mut warnings);
        Ok(warnings)
    }

    /// Whether `key` was set, here or in `[global]`, and asks for something.
    fn says(&self, key: &str) -> bool {
        let asks = match key {
            "rate" => self.pace.rate_bytes.iter().any(Option::is_some),
            "rate_iops" => self.pace.rate_iops.iter().any(Option::is_some),
            "latency_target" => self.latency_target.target.is_some(),
            "thinktime" => !self.pace.thinktime.is_zero(),
            "verify" => self.verify == Verify::Crc32c,
            "competitor" => self.competitor.is_some(),
            "hog" => self.hogs > 0,
            _ => true,
        };
        asks && self.is_set(key)
    }

    /// Set in this section or on the command line, not in `[global]`.
    fn is_own(&self, key: &str) -> bool {
        self.set_keys.iter().any(|set| set.key == key && !set.inherited)
    }

    /// The first contradiction that one key has with another.
    fn contradiction(&self) -> Option<Wrong> {
        for (one, other, why) in ONE_OF.iter().copied() {
            if self.says(one) && self.says(other) {
                let later = if self.is_own(other) { other } else { one };
                return Some((
                    later,
                    format!("{one} and {other} contradict each other: {why}; leave one out"),
                ));
            }
        }
        let syncing = [
            ("fsync", self.syncing.fsync > 0),
            ("fdatasync", self.syncing.fdatasync > 0),
            ("sync", self.syncing.fua),
            ("end_fsync", self.syncing.end_fsync),
        ];
        for (key, asks) in syncing {
            if asks && !self.writes() && self.is_own(key) {
                let rw = self.rw.as_str();
                return Some((
                    key,
                    format!(
                        "{key} is about writes, and rw={rw} writes nothing; leave it out, or use rw=write"
                    ),
                ));
            }
        }
        if self.latency_target.target.is_some() && self.iodepth == 1 {
            let what = "latency_target finds the deepest queue that keeps it, and iodepth=1 leaves no choice; \
                        give iodepth= the most to try";
            return Some(("latency_target", what.to_owned()));
        }
        if self.pace.thinktime_spin > self.pace.thinktime && self.says("thinktime") {
            return Some((
                "thinktime_spin",
                "thinktime_spin is a part of thinktime, and is longer".to_owned(),
            ));
        }
        if let (Some(least), Some(most)) = (self.batch.complete_min, self.batch.complete_max)
            && most < least
        {
            let what = format!(
                "iodepth_batch_complete_max={most} is less than iodepth_batch_complete_min={least}; make it larger"
            );
            return Some(("iodepth_batch_complete_max", what));
        }
        if let Some(low) = self.batch.low.filter(|low| *low > self.iodepth) {
            let what = format!("iodepth_low={low} is more than iodepth={}; make it smaller", self.iodepth);
            return Some(("iodepth_low", what));
        }
        if self.hipri && self.completion.as_deref().is_some_and(|policies| policies.trim() != "poll") {
            let policies = shown(self.completion.as_deref().unwrap_or_default());
            let key = if self.is_own("completion") { "completion" } else { "hipri" };
            return Some((
                key,
                format!("hipri means completion=poll, and completion={policies}; leave one out"),
            ));
        }
        if self.logs.hist.is_some() && self.logs.hist_ms == 0 {
            let what = "write_hist_log needs log_hist_msec=; it says how much time a histogram covers";
            return Some(("write_hist_log", what.to_owned()));
        }
        None
    }

    /// Keys that will do nothing here.
    fn warn_of_idle_keys(&self, warnings: &mut Vec<String>) {
        let mut idle = |key: &str, why: String| {
            if self.is_set(key) {
                warnings.push(self.warning(key, &format!("{key} has no effect {why}")));
            }
        };
        let rw = self.rw.as_str();
        for key in ["rwmixread", "rwmixwrite"] {
            if !self.rw.is_mixed() {
                idle(key, format!("with rw={rw}; only rw and randrw mix"));
            }
        }
        for key in ["random_distribution", "norandommap", "random_generator"] {
            if !self.rw.is_random() {
                idle(key, format!("with rw={rw}, which is not random"));
            }
        }
        for key in ["fsync", "fdatasync", "sync", "end_fsync"] {
            if !self.writes() && self.is_set(key) && !self.is_own(key) {
                idle(key, format!("with rw={rw}, which writes nothing"));
            }
        }
        for (key, needed) in NEEDS {
            if !self.says(needed) {
                idle(key, format!("without {needed}="));
            }
        }
        for key in ["log_avg_msec", "log_offset", "log_max_value"] {
            if !self.logs.has_values() {
                idle(key, "without write_lat_log=, write_bw_log= or write_iops_log=".to_owned());
            }
        }
        if !self.logs.any() {
            idle("per_job_logs", "without a log".to_owned());
        }
        if self.batch.submit.is_some_and(|submit| submit > self.iodepth) {
            idle("iodepth_batch", format!("beyond iodepth={}", self.iodepth));
        }
    }

    fn warning(&self, key: &str, what: &str) -> String {
        let origin = self.origin_of(key).unwrap_or(&Origin::CommandLine);
        format!("{origin}: job {}: {what}", shown(&self.name))
    }
}
