//! Contradictions between keys.

use super::error::{JobError, JobErrors, Origin, Problem, shown};
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

impl Job {
    /// Whether it goes on until its runtime ends. If a job does not say, how much it is to do ends
    /// it and a runtime beside that is an upper limit, as in fio; without, the runtime is how long
    /// to go on: a person who names a device does not count its blocks.
    pub fn is_time_based(&self) -> bool {
        let sizes = [self.size, self.filesize, self.io_size];
        let says_how_much =
            sizes.iter().any(Option::is_some) || self.number_ios.is_some() || self.loops > 1;
        let says_how_much = says_how_much || self.fill_device && self.writes();
        self.time_based.unwrap_or(!says_how_much)
    }

    /// Looks for keys that contradict each other, once the file and the command line have been
    /// read. Returns warnings: keys that will have no effect in this combination.
    pub fn validate(&self) -> Result<Vec<String>, JobErrors> {
        let mut wrong = self.contradictions();
        self.check_verify(&mut wrong);
        self.check_zones(&mut wrong);
        let mut warnings = Vec::new();
        self.check_range(&mut wrong, &mut warnings);
        if wrong.is_empty() {
            self.warn_of_idle_keys(&mut warnings);
            return Ok(warnings);
        }
        let error = |(key, what): Wrong| {
            let origin = self.origin_of(key).unwrap_or(&Origin::CommandLine);
            JobError::new(origin, Problem::Contradiction { job: shown(&self.name), what })
        };
        Err(JobErrors(wrong.into_iter().map(error).collect()))
    }

    /// What cannot be verified.
    fn check_verify(&self, wrong: &mut Vec<Wrong>) {
        let mut fail = |key: &'static str, what: String| wrong.push((key, what));
        if self.verify == Verify::None {
            return;
        }
        let interval_bytes = self.verify_keys.interval_bytes;
        if let Some(bytes) =
            interval_bytes.filter(|bytes| !self.bs_max_bytes().is_multiple_of(*bytes))
        {
            let block_bytes = self.bs_max_bytes();
            let what = format!(
                "verify_interval={bytes} does not divide bs={block_bytes} evenly; make it a part of a block"
            );
            fail("verify_interval", what);
        }
        let is_pattern = matches!(self.verify, Verify::Pattern | Verify::PatternHdr);
        if is_pattern && self.verify_keys.payload.is_none() {
            fail(
                "verify",
                "verify=pattern needs verify_pattern=; it says what blocks hold".to_owned(),
            );
        }
        if self.verify == Verify::Pattern
            && interval_bytes.is_some()
            && self.is_own("verify_interval")
        {
            let what = "verify=pattern has no headers to repeat; leave verify_interval out";
            fail("verify_interval", what.to_owned());
        }
        if self.trims() {
            fail(
                "verify",
                format!(
                    "verify with rw={} has nothing to say of trims; leave it out",
                    self.rw.as_str()
                ),
            );
        }
        if self.has_varied_sizes() {
            let key = if self.is_set("bssplit") { "bssplit" } else { "bsrange" };
            fail(key, "verify checks blocks of one size; use bs=, or leave verify out".to_owned());
        }
        if self.rw.is_random() {
            let key = match (&self.random.distribution, self.random.norandommap) {
                (Distribution::Uniform, false) => None,
                (Distribution::Uniform, true) => Some("norandommap"),
                _ => Some("random_distribution"),
            };
            if let Some(key) = key {
                let what = format!(
                    "verify writes each block once before it checks, and {key} writes some more often; leave one out"
                );
                fail(key, what);
            }
        }
        if self.places.run > 1 {
            fail(
                "rw",
                "verify writes each block once before it checks; leave the number after rw out"
                    .to_owned(),
            );
        }
        if self.align_bytes(1).is_some() {
            fail(
                "blockalign",
                "verify writes each block once before it checks; leave it out".to_owned(),
            );
        }
        if !self.places.skip_bytes.unsigned_abs().is_multiple_of(self.bs_write_bytes) {
            fail(
                "rw",
                "verify checks whole blocks: what rw adds must be a multiple of bs".to_owned(),
            );
        }
        if self.reads() && self.bs_read_bytes != self.bs_write_bytes {
            let what = format!(
                "verify checks blocks as they were written: reads of {} and writes of {} bytes do not match; use one bs",
                self.bs_read_bytes, self.bs_write_bytes
            );
            fail("bs", what);
        }
    }

    /// Whether the job's part of the device can be one.
    fn check_range(&self, wrong: &mut Vec<Wrong>, warnings: &mut Vec<String>) {
        let mut fail = |key: &'static str, what: String| wrong.push((key, what));
        let block_bytes = self.bs_max_bytes();
        if let Some(Extent::Bytes(size_bytes)) = self.range() {
            if size_bytes < block_bytes {
                fail(
                    "size",
                    format!("size={size_bytes} is smaller than one block of {block_bytes} bytes"),
                );
            }
            if size_bytes >= block_bytes && size_bytes % block_bytes != 0 {
                let left_bytes = size_bytes % block_bytes;
                let what = format!(
                    "size is not a multiple of bs; the last {left_bytes} bytes are left out"
                );
                warnings.push(self.warning("size", &what));
            }
            if let Extent::Bytes(offset_bytes) = self.offset
                && offset_bytes.checked_add(size_bytes).is_none()
            {
                fail("offset", "offset + size does not fit in 64 bits".to_owned());
            }
        }
        if let (Extent::Percent(offset), Some(Extent::Percent(size))) = (self.offset, self.range())
            && u16::from(offset) + u16::from(size) > 100
        {
            fail(
                "offset",
                format!("offset={offset}% and size={size}% reach past the end of the device"),
            );
        }
    }

    /// Set in this section or on the command line, not in `[global]`.
    fn is_own(&self, key: &str) -> bool {
        self.set_keys.iter().any(|set| set.key == key && !set.inherited)
    }

    /// The contradictions that one key has with another.
    fn contradictions(&self) -> Vec<Wrong> {
        let mut wrong: Vec<Wrong> = Vec::new();
        if self.cmdprio.percent != [0; 2] && self.is_set("cmdprio_bssplit") {
            let what = "cmdprio_percentage and cmdprio_bssplit contradict each other: both say which I/Os have a \
                        priority of their own; leave one out";
            wrong.push(("cmdprio_bssplit", what.to_owned()));
        }
        if !self.cpus_allowed.is_empty() && !self.numa.cpu_nodes.is_empty() {
            let what = "cpus_allowed and numa_cpu_nodes contradict each other: both say where threads run; \
                        leave one out";
            wrong.push(("numa_cpu_nodes", what.to_owned()));
        }
        for (one, other, why) in ONE_OF.iter().copied() {
            if self.says(one) && self.says(other) {
                let later = if self.is_own(other) { other } else { one };
                wrong.push((
                    later,
                    format!("{one} and {other} contradict each other: {why}; leave one out"),
                ));
            }
        }
        for (key, ..) in self.idle_keys().into_iter().filter(|(.., is_strict)| *is_strict) {
            if self.says(key) && self.is_own(key) {
                let rw = self.rw.as_str();
                wrong.push((
                    key,
                    format!(
                        "{key} is about writes, and rw={rw} writes nothing; leave it out, or use rw=write"
                    ),
                ));
            }
        }
        if self.time_based == Some(true) && self.runtime.is_none() {
            wrong.push((
                "time_based",
                "time_based needs runtime=; it says how long to go on".to_owned(),
            ));
        }
        if self.steady.is_some() {
            if self.steady_window.is_zero() {
                let what = "steadystate needs steadystate_duration=; it says how long the speed must be steady";
                wrong.push(("steadystate", what.to_owned()));
            }
            if !(self.is_time_based() && self.runtime.is_some()) {
                let what = "steadystate ends a job that goes on until then; say runtime= and time_based as well";
                wrong.push(("steadystate", what.to_owned()));
            }
        }
        if self.latency_target.target.is_some() && self.iodepth == 1 {
            let what = "latency_target finds the deepest queue that keeps it, and iodepth=1 leaves no choice; \
                        give iodepth= the most to try";
            wrong.push(("latency_target", what.to_owned()));
        }
        if self.pace.thinktime_spin > self.pace.thinktime && self.says("thinktime") {
            wrong.push((
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
            wrong.push(("iodepth_batch_complete_max", what));
        }
        if let Some(low) = self.batch.low.filter(|low| *low > self.iodepth) {
            let what =
                format!("iodepth_low={low} is more than iodepth={}; make it smaller", self.iodepth);
            wrong.push(("iodepth_low", what));
        }
        if self.hipri
            && self.completion.as_deref().is_some_and(|policies| policies.trim() != "poll")
        {
            let policies = shown(self.completion.as_deref().unwrap_or_default());
            let key = if self.is_own("completion") { "completion" } else { "hipri" };
            wrong.push((
                key,
                format!("hipri means completion=poll, and completion={policies}; leave one out"),
            ));
        }
        if self.logs.hist.is_some() && self.logs.hist_ms == 0 {
            let what =
                "write_hist_log needs log_hist_msec=; it says how much time a histogram covers";
            wrong.push(("write_hist_log", what.to_owned()));
        }
        wrong
    }

    /// Keys that will do nothing here.
    fn warn_of_idle_keys(&self, warnings: &mut Vec<String>) {
        let mut idle = |key: &str, why: &str| {
            warnings.push(self.warning(key, &format!("{key} has no effect {why}")));
        };
        for (key, why, is_strict) in self.idle_keys() {
            // What asks for nothing is nothing to be warned of.
            if !is_strict || self.says(key) {
                idle(key, &why);
            }
        }
        if self.batch.submit.is_some_and(|submit| submit > self.iodepth) {
            idle("iodepth_batch", &format!("beyond iodepth={}", self.iodepth));
        }
    }

    fn warning(&self, key: &str, what: &str) -> String {
        let origin = self.origin_of(key).unwrap_or(&Origin::CommandLine);
        format!("{origin}: job {}: {what}", shown(&self.name))
    }
}
