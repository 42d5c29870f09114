//! The keys: the one place that knows what each is called, and whether it is obeyed.

use super::error::{JobError, Origin, Problem, shown};
use super::nearest::nearest_key;
use super::{Job, SetKey, value};

/// A key we obey.
struct Key {
    usual: &'static str,
    /// fio's other names for it.
    synonyms: &'static [&'static str],
    expected: &'static str,
    /// What it means without `=value`, if it may stand alone.
    alone: Option<&'static str>,
}

const fn key(usual: &'static str, synonyms: &'static [&'static str], expected: &'static str) -> Key {
    Key { usual, synonyms, expected, alone: None }
}

const fn flag(usual: &'static str, synonyms: &'static [&'static str]) -> Key {
    Key { usual, synonyms, expected: "1 or 0", alone: Some("1") }
}

const fn log(usual: &'static str) -> Key {
    Key { usual, synonyms: &[], expected: "the beginning of a file name", alone: Some("") }
}

const OBEYED: &[Key] = &[
    key("name", &[], "a name"),
    key("rw", &["readwrite"], "read, write, randread, randwrite, rw or randrw"),
    key("bs", &["blocksize"], "a size such as 4k, or read and write sizes such as 4k,8k"),
    key("bsrange", &["blocksize_range"], "a range such as 4k-16k, or two, for reads and writes"),
    key("bssplit", &[], "sizes with their shares, such as 4k/70:16k/30"),
    key("iodepth", &[], "a number from 1 to 1024"),
    key("iodepth_batch", &["iodepth_batch_submit"], "a number from 0 (iodepth) to 1024"),
    key("iodepth_batch_complete_min", &["iodepth_batch_complete"], "a number from 0 to 1024"),
    key("iodepth_batch_complete_max", &[], "a number from 0 to 1024"),
    key("iodepth_low", &[], "a number from 0 to 1024"),
    key("numjobs", &[], "a number from 1 to 1024"),
    key("size", &[], "a size such as 1g or 20%"),
    key("io_size", &["io_limit"], "a size such as 1g or 20%"),
    key("number_ios", &[], "a number"),
    key("offset", &[], "a size such as 1g or 20%"),
    key("runtime", &["timeout"], "a time such as 10 (seconds) or 500ms"),
    flag("time_based", &[]),
    key("ramp_time", &[], "a time such as 2 (seconds) or 500ms"),
    key("rwmixread", &[], "a percentage from 0 to 100"),
    key("rwmixwrite", &[], "a percentage from 0 to 100"),
    key("fsync", &[], "a number of writes, or 0"),
    key("fdatasync", &[], "a number of writes, or 0"),
    flag("end_fsync", &[]),
    key("sync", &[], "none, sync or dsync"),
    key("random_distribution", &[], "random, zipf:θ, pareto:h, normal:deviation, zoned:… or zoned_abs:…"),
    flag("norandommap", &[]),
    key("random_generator", &[], "tausworthe, tausworthe64 or lfsr"),
    flag("randrepeat", &[]),
    flag("allrandrepeat", &[]),
    key("randseed", &[], "a number"),
    key("thinktime", &[], "a time such as 10 (microseconds) or 1ms"),
    key("thinktime_spin", &[], "a time such as 10 (microseconds) or 1ms"),
    key("thinktime_blocks", &[], "a number of I/Os"),
    key("rate_iops", &[], "I/Os per second, such as 10k, or two, for reads and writes"),
    key("rate", &[], "bytes per second, such as 100m, or two, for reads and writes"),
    key("latency_target", &[], "a time such as 50 (microseconds) or 1ms"),
    key("latency_window", &[], "a time such as 50000 (microseconds) or 1s"),
    key("latency_percentile", &[], "a percentage such as 99.9"),
    flag("latency_run", &[]),
    flag("stonewall", &["wait_for_previous"]),
    flag("group_reporting", &[]),
    flag("new_group", &[]),
    log("write_lat_log"),
    log("write_bw_log"),
    log("write_iops_log"),
    log("write_hist_log"),
    key("log_avg_msec", &[], "milliseconds, or 0"),
    key("log_hist_msec", &[], "milliseconds, or 0"),
    key("log_hist_coarseness", &[], "a number from 0 to 6"),
    flag("log_offset", &[]),
    flag("log_max_value", &[]),
    flag("per_job_logs", &[]),
    key("verify", &[], "crc32c or none"),
    key("cpus_allowed", &[], "a list such as 0-1,3"),
    key(
        "filename",
        &[],
        "a device URI such as mem:1G?model=optane, or a file on one, such as file:disk.img:/path",
    ),
    key("direct", &[], "1 or 0"),
    key("buffered", &[], "1 or 0"),
    key("overlap", &[], "all, none, or a list of preload, pool, lazy-insert and lazy-unmap"),
    key("cache", &[], "a size such as 64m"),
    key("fadvise_hint", &[], "0 (none), 1 (by rw), random or sequential"),
    key("loops", &[], "a number"),
    flag("hipri", &[]),
    key("completion", &[], "a list such as interrupt,poll,hybrid"),
    key("competitor", &[], "tsc, walk=8m (a working set of so much) or none"),
    key("hog", &[], "a number from 0 to 64"),
    key("prio", &[], "a number from 0 (first) to 7"),
    key("prioclass", &[], "0 (none), 1 (real time), 2 (best effort) or 3 (idle)"),
    key("sched", &[], "a list of other, rr:N, fifo:N and slice:T, such as other,rr:1"),
    Key {
        alone: Some("0"),
        ..key("pm_qos", &[], "a list of times in microseconds and none, such as none,0")
    },
];

/// Keys that say the same thing in different words: what is said nearer to the job replaces what was said farther away.
const FAMILIES: &[&[&str]] = &[
    &["bs", "bsrange", "bssplit"],
    &["rate", "rate_iops"],
    &["hipri", "completion"],
    &["rwmixread", "rwmixwrite"],
    &["direct", "buffered"],
];

/// Keys that ask for what we do anyway, or for something that has no counterpart here and changes no figure.
const HARMLESS: &[&str] = &[
    "description",
    "exitall",
    "fixedbufs",
    "gtod_reduce",
    "invalidate",
    "ioengine",
    "ioscheduler",
    "kb_base",
    "log_entries",
    "registerfiles",
    "softrandommap",
    "thread",
];

/// Harmless only with this value; otherwise, why not.
const HARMLESS_IF: &[(&str, bool, &str)] = &[
    ("gtod_reduce", false, "latencies are always measured; leave it out"),
    ("exitall", false, "jobs end by themselves; give each a runtime"),
];

/// Keys of fio that would change what is measured, with what to say instead.
const REFUSED: &[(&str, &str)] = &[
    ("hipri_percentage", "say hipri or completion=poll; every I/O of a job is waited for in one way"),
    ("sqthread_poll", "say completion=poll"),
    ("filesize", "say size="),
    ("bs_unaligned", "a device takes whole blocks only; leave it out"),
    ("blocksize_unaligned", "a device takes whole blocks only; leave it out"),
    ("blockalign", "places are multiples of the smallest bs; leave it out"),
    ("fsync_on_close", "a device is not closed within a run; say end_fsync=1"),
    ("sync_file_range", "a device has no file ranges; say fsync="),
    ("percentage_random", "say two jobs, one of them random"),
    ("thinktime_blocks_type", "I/Os are counted as they complete; leave it out"),
    ("thinktime_iotime", "say thinktime_blocks="),
    ("rate_min", "a job is not ended for being slow; leave it out"),
    ("rate_iops_min", "a job is not ended for being slow; leave it out"),
    ("rate_process", "I/Os are evenly spaced; leave it out"),
    ("max_latency", "say latency_target="),
    ("startdelay", "devices and policies have their turns; say ramp_time= or stonewall"),
    ("wait_for", "say stonewall"),
    ("include", "a job file is read whole; put the sections into one file"),
    ("log_unix_epoch", "a job's measured time has gaps, in which others have their turn; leave it out"),
    ("write_iolog", "say write_lat_log= and log_offset=1"),
    ("read_iolog", "a recorded log cannot be replayed"),
];

impl Job {
    /// Sets `key` to `value` (`None`: the key stood alone). The single place that knows the keys.
    ///
    /// `Ok(Some(_))` is a warning to show: the key has no effect, or its value is worth a remark. On the command line
    /// `time-based` is `time_based`.
    pub fn set(
        &mut self,
        key: &str,
        value: Option<&str>,
        origin: &Origin,
    ) -> Result<Option<String>, JobError> {
        let key = match origin {
            Origin::CommandLine => key.replace('-', "_"),
            Origin::File { .. } => key.to_owned(),
        };
        let found = OBEYED.iter().find(|known| known.usual == key || known.synonyms.contains(&key.as_str()));
        let Some(Key { usual, expected, alone, .. }) = found else { return not_obeyed(&key, value, origin) };
        let fail = |why: String| {
            let value = shown(value.unwrap_or_default());
            JobError::new(origin, Problem::Value { key: origin.key(&key), value, why })
        };
        let text = match value.map(str::trim) {
            Some("") => alone.filter(|alone| alone.is_empty()),
            None => *alone,
            text => text,
        };
        let no_value = Problem::NoValue { key: origin.key(&key), expected };
        let text = text.ok_or_else(|| JobError::new(origin, no_value))?;
        let note = self.store(usual, text).map_err(fail)?;
        self.remember(usual, text, origin);
        Ok(note.map(|note| format!("{origin}: {}={}: {note}", origin.key(&key), shown(text))))
    }

    /// Notes that `key` was set, and forgets what it replaces.
    fn remember(&mut self, key: &'static str, text: &str, origin: &Origin) {
        if key == "name" {
            return;
        }
        self.set_keys.retain(|set| set.key != key);
        let family = FAMILIES.iter().find(|family| family.contains(&key)).copied().unwrap_or_default();
        // hipri=0 asks for nothing, so that it replaces nothing.
        let family = if key == "hipri" && !self.hipri { &[] } else { family };
        let farther = |set: &SetKey| {
            set.inherited || *origin == Origin::CommandLine && set.origin != Origin::CommandLine
        };
        // The two mix keys are one setting, as direct and buffered are: the latter replaces the former.
        let mix = key.starts_with("rwmix") || matches!(key, "direct" | "buffered");
        let replaced: Vec<&'static str> = self
            .set_keys
            .iter()
            .filter(|set| family.contains(&set.key))
            .filter(|set| mix || farther(set))
            .map(|set| set.key)
            .collect();
        for other in replaced {
            self.set_keys.retain(|set| set.key != other);
            if !mix {
                self.reset(other);
            }
        }
        if family.len() > 1 {
            // Keys of a family may share a field. It was accepted before.
            let _ = self.store(key, text);
        }
        self.set_keys.push(SetKey { key, value: text.to_owned(), origin: origin.clone(), inherited: false });
    }

    /// The job as the beginning of a section: what is set so far is from `[global]`.
    pub(super) fn inherit(&self, name: String) -> Job {
        let mut job = Job { name, ..self.clone() };
        job.set_keys.iter_mut().for_each(|set| set.inherited = true);
        job
    }
}

/// The verdict on a key we do not obey: a warning or an error.
fn not_obeyed(key: &str, value: Option<&str>, origin: &Origin) -> Result<Option<String>, JobError> {
    let written = origin.key(key);
    if let Some((_, instead)) = REFUSED.iter().find(|(refused, _)| *refused == key) {
        return Err(JobError::new(origin, Problem::Unsupported { key: written, instead }));
    }
    if !HARMLESS.contains(&key) {
        let obeyed = OBEYED.iter().flat_map(|known| std::iter::once(&known.usual).chain(known.synonyms));
        let known = obeyed.chain(HARMLESS).copied();
        let nearest = nearest_key(key, known).map(|near| origin.key(near));
        return Err(JobError::new(origin, Problem::UnknownKey { key: written, nearest }));
    }
    let text = value.map(str::trim).filter(|text| !text.is_empty());
    if text.is_none() && !(value.is_none() && matches!(key, "thread" | "exitall")) {
        return Err(JobError::new(
            origin,
            Problem::NoValue { key: written, expected: "1 or 0, or as fio has it" },
        ));
    }
    let refuse = |why: String| {
        let value = shown(text.unwrap_or_default());
        JobError::new(origin, Problem::Value { key: written.clone(), value, why })
    };
    if key == "kb_base" && text != Some("1024") {
        return Err(refuse("only 1024, fio's default, is supported".to_owned()));
    }
    if let Some((_, harmless, why)) = HARMLESS_IF.iter().find(|(named, ..)| *named == key)
        && value::boolean(text).map_err(refuse)? != *harmless
    {
        return Err(refuse((*why).to_owned()));
    }
    Ok(Some(match origin {
        Origin::File { source, line } => format!("{source}: line {line}: key {written} has no effect here"),
        Origin::CommandLine => format!("{origin}: {written} has no effect here"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obeyed_key_is_stored_or_refused_for_its_value() {
        for key in OBEYED {
            let error = Job::new("a").store(key.usual, "\u{7}").unwrap_err();
            assert_ne!(error, "not implemented", "{}", key.usual);
        }
    }

    #[test]
    fn every_key_of_a_family_can_be_reset() {
        for key in FAMILIES.iter().copied().flatten().filter(|key| !key.starts_with("rwmix")) {
            assert!(OBEYED.iter().any(|known| known.usual == *key), "{key}");
            let mut job = Job::new("a");
            let value = match *key {
                "bssplit" => "8k/100",
                "bsrange" => "8k-16k",
                "hipri" => "1",
                "completion" => "poll",
                "direct" | "buffered" => "1",
                _ => "8k",
            };
            job.store(key, value).unwrap();
            assert_ne!(job, Job::new("a"), "{key}");
            job.reset(key);
            assert_eq!(job, Job::new("a"), "{key}");
        }
    }

    #[test]
    fn near_keys() {
        let near = |key: &str| match not_obeyed(key, Some("1"), &Origin::CommandLine).unwrap_err().problem {
            Problem::UnknownKey { nearest, .. } => nearest,
            problem => panic!("{problem}"),
        };
        assert_eq!(near("io_depth").as_deref(), Some("--iodepth"));
        assert_eq!(near("SIZE").as_deref(), Some("--size"));
        assert_eq!(near("block_size").as_deref(), Some("--blocksize"));
        assert_eq!((near("x"), near("zonemode")), (None, None));
    }
}
