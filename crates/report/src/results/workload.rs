//! A job's workload, from fio's keys.

use itertools::Itertools as _;
use serde_json::{Map, Value};

use crate::figures;

/// The keys that decide what a job measures. Equal workloads can be compared, whatever their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    /// `4 KiB random reads`.
    pub words: String,
    /// `queue depth 1, 4 threads`.
    pub setting: String,
    /// The number of threads, or 0 if it is not known.
    pub threads: u32,
}

impl Workload {
    /// Builds the workload from a job's options.
    pub(crate) fn new(options: &Map<String, Value>) -> Self {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let get = |names: &[&str]| names.iter().find_map(|name| options.get(*name)).map(text);
        let or = |names: &[&str], usual: &str| get(names).unwrap_or_else(|| usual.to_owned());
        let sizes = match get(&["bssplit"]) {
            Some(split) => format!("mixed sizes ({split})"),
            None => size_words(&or(&["bs", "blocksize"], "4k")),
        };
        let mixed =
            |order| format!("{order} reads and writes ({} % reads)", or(&["rwmixread"], "50"));
        let what = match or(&["rw", "readwrite"], "read").trim() {
            "read" => "sequential reads".to_owned(),
            "randread" => "random reads".to_owned(),
            "write" => "sequential writes".to_owned(),
            "randwrite" => "random writes".to_owned(),
            "rw" | "readwrite" => mixed("sequential"),
            "randrw" => mixed("random"),
            other => other.to_owned(),
        };
        let numjobs = or(&["numjobs"], "1");
        let threads = match numjobs.as_str() {
            "1" => String::new(),
            threads => format!(", {threads} threads"),
        };
        Self {
            words: format!("{sizes} {what}"),
            setting: format!("queue depth {}{threads}", or(&["iodepth"], "1")),
            threads: numjobs.parse().unwrap_or(0),
        }
    }
}

/// Formats `4k` as `4 KiB`; text that is not a size stays as it is.
fn size_words(text: &str) -> String {
    let words = |size: &str| {
        let bytes = size_bytes(size);
        bytes.map_or(size.to_owned(), |bytes| figures::bytes(bytes).replace(" bytes", " B"))
    };
    text.split(',').map(|size| words(size.trim())).join(" / ")
}

/// Returns what `4k` means, or a number without a unit.
pub(super) fn size_bytes(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match size[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(options: Value) -> Workload {
        Workload::new(options.as_object().unwrap())
    }

    #[test]
    fn in_words() {
        let one = workload(json!({"rw": "randread", "bs": "4k"}));
        assert_eq!(one.words, "4 KiB random reads");
        assert_eq!(one.setting, "queue depth 1");
        assert_eq!(
            one,
            workload(json!({"bs": "4096", "rw": "randread", "iodepth": "1", "runtime": "3"}))
        );
        let other = workload(
            json!({"readwrite": "readwrite", "bs": "4k,8k", "numjobs": "2", "rwmixread": "70"}),
        );
        assert_eq!(other.words, "4 KiB / 8 KiB sequential reads and writes (70 % reads)");
        assert_eq!(other.setting, "queue depth 1, 2 threads");
        assert_eq!(
            workload(json!({"bs": "99999999999999999999g", "rw": "trim"})).words,
            "99999999999999999999g trim"
        );
        assert_eq!(workload(json!({})).words, "4 KiB sequential reads");
    }
}
