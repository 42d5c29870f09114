//! A job's workload, from fio's keys.

use serde_json::{Map, Value};

use crate::figures;

/// A job's keys that decide what is measured. Jobs with equal keys can be compared, whatever their
/// names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Workload {
    rw: String,
    bs: String,
    depth: String,
    threads: String,
    reads_percent: String,
}

impl Workload {
    /// Builds the workload from `job options`, with `global options` as defaults.
    pub(crate) fn new(options: &Map<String, Value>, global: &Map<String, Value>) -> Self {
        let get = |names: &[&str]| {
            let found =
                names.iter().find_map(|name| options.get(*name).or_else(|| global.get(*name)));
            found.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let rw = get(&["rw", "readwrite"]).unwrap_or_else(|| "read".to_owned());
        let rw = match rw.trim() {
            "readwrite" => "rw",
            rw => rw,
        };
        let bs = match get(&["bssplit"]) {
            Some(split) => format!("mixed sizes ({split})"),
            None => size_words(&get(&["bs", "blocksize"]).unwrap_or_else(|| "4k".to_owned())),
        };
        let mixed = matches!(rw, "rw" | "randrw");
        Self {
            rw: rw.to_owned(),
            bs,
            depth: get(&["iodepth"]).unwrap_or_else(|| "1".to_owned()),
            threads: get(&["numjobs"]).unwrap_or_else(|| "1".to_owned()),
            reads_percent: if mixed {
                get(&["rwmixread"]).unwrap_or_else(|| "50".to_owned())
            } else {
                String::new()
            },
        }
    }

    /// `4 KiB random reads`.
    pub(crate) fn words(&self) -> String {
        let what = match self.rw.as_str() {
            "read" => "sequential reads".to_owned(),
            "randread" => "random reads".to_owned(),
            "write" => "sequential writes".to_owned(),
            "randwrite" => "random writes".to_owned(),
            "rw" => format!("sequential reads and writes ({} % reads)", self.reads_percent),
            "randrw" => format!("random reads and writes ({} % reads)", self.reads_percent),
            other => other.to_owned(),
        };
        format!("{} {what}", self.bs)
    }

    /// Returns whether one thread does it.
    pub(crate) fn is_single_threaded(&self) -> bool {
        self.threads == "1"
    }

    /// `queue depth 1, 4 threads`.
    pub(crate) fn setting(&self) -> String {
        let threads =
            if self.threads == "1" { String::new() } else { format!(", {} threads", self.threads) };
        format!("queue depth {}{threads}", self.depth)
    }
}

/// Formats `4k` as `4 KiB`; text that is not a size stays as it is.
fn size_words(text: &str) -> String {
    let sizes: Vec<String> = text
        .split(',')
        .map(|size| {
            let size = size.trim();
            let digits = size.trim_end_matches(|c: char| !c.is_ascii_digit());
            let shift = match size[digits.len()..].to_ascii_lowercase().as_str() {
                "" | "b" => 0,
                "k" | "kb" | "kib" => 10,
                "m" | "mb" | "mib" => 20,
                "g" | "gb" | "gib" => 30,
                _ => return size.to_owned(),
            };
            let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift));
            bytes.map_or_else(
                || size.to_owned(),
                |bytes| figures::bytes(bytes).replace(" bytes", " B"),
            )
        })
        .collect();
    sizes.join(" / ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(options: Value) -> Workload {
        Workload::new(options.as_object().unwrap(), &Map::new())
    }

    #[test]
    fn in_words() {
        let one = workload(json!({"rw": "randread", "bs": "4k"}));
        assert_eq!(one.words(), "4 KiB random reads");
        assert_eq!(one.setting(), "queue depth 1");
        assert_eq!(
            one,
            workload(json!({"bs": "4096", "rw": "randread", "iodepth": "1", "runtime": "3"}))
        );
        let other = workload(
            json!({"readwrite": "readwrite", "bs": "4k,8k", "numjobs": "2", "rwmixread": "70"}),
        );
        assert_eq!(other.words(), "4 KiB / 8 KiB sequential reads and writes (70 % reads)");
        assert_eq!(other.setting(), "queue depth 1, 2 threads");
        assert_eq!(
            workload(json!({"bs": "99999999999999999999g", "rw": "trim"})).words(),
            "99999999999999999999g trim"
        );
        assert_eq!(workload(json!({})).words(), "4 KiB sequential reads");
    }
}
