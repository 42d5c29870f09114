//! The model of a report: results of one file or several, sorted into jobs and devices.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use serde::Deserialize;

use super::latency::Latency;
use super::workload::Workload;
use crate::plot::Style;
use crate::run::SeriesPoint;

/// The content of one page.
#[derive(Debug, Default)]
pub struct Report {
    /// The files, or the one run.
    pub(crate) sources: Vec<Source>,
    /// Results by job.
    pub(crate) jobs: Vec<Job>,
    /// Devices and policies that could not be measured.
    pub(crate) left_out: Vec<LeftOut>,
    /// The number of files from before a change, if the others are from after it.
    pub(crate) before: Option<usize>,
}

/// A file of results.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    /// The label of its results where there are several files.
    pub label: String,
    /// The file's path, if the source is a file.
    pub path: Option<String>,
    /// The command line, if it is known.
    pub command: Option<String>,
    /// Facts with their names: the program and its end time, then the machine's facts.
    pub facts: Vec<(String, String)>,
}

/// The facts that identify a machine.
pub(crate) const MACHINE: [&str; 3] = ["cpu", "cpus", "virtual_machine"];

impl Source {
    /// A fact of the machine.
    pub(crate) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether fio wrote it.
    pub(crate) fn is_fio(&self) -> bool {
        self.fact("tool").is_some_and(|tool| tool.starts_with("fio"))
    }

    /// Returns whether both may come from one machine, that is, whether their known facts agree.
    pub(crate) fn is_machine_of(&self, other: &Self) -> bool {
        MACHINE.iter().all(|name| match (self.fact(name), other.fact(name)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        })
    }
}

/// A device and policy that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct LeftOut {
    /// Index of the source.
    #[serde(skip)]
    pub source: usize,
    /// The device's URI.
    pub device: String,
    /// The policy.
    #[serde(rename = "completion")]
    pub way: String,
    /// The reason.
    pub why: String,
}

/// Results of one workload.
#[derive(Debug)]
pub(crate) struct Job {
    /// The jobs' names, without repetition.
    pub name: String,
    /// The job's workload.
    pub workload: Workload,
    /// Its devices, each with its results.
    pub blocks: Vec<Block>,
}

/// Results that can be compared with each other: one job, one device, one machine.
#[derive(Debug)]
pub(crate) struct Block {
    /// The device's URI.
    pub device: String,
    /// The storage below the device, from the file, or by its kind.
    pub medium: String,
    /// The source that identifies the machine, or `None` if all results are of one machine.
    pub machine: Option<usize>,
    /// The results; the others are compared with the first.
    pub runs: Vec<Run>,
}

const SOFTWARE: &str = "software SSD";

impl Job {
    /// Returns the results of all its devices.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.blocks.iter().flat_map(|block| &block.runs)
    }

    /// Returns whether one of its devices is another one than the first.
    pub(crate) fn has_other_devices(&self) -> bool {
        self.blocks.iter().any(|block| block.medium != self.blocks[0].medium)
    }

    /// Returns whether there is a device with several results.
    pub(crate) fn compares(&self) -> bool {
        self.blocks.iter().any(|block| block.runs.len() > 1)
    }

    /// Returns what a reader needs to interpret its figures.
    pub(crate) fn caveats(&self) -> impl Iterator<Item = &'static str> {
        self.runs().flat_map(|run| &run.caveats).copied().unique()
    }

    /// Returns whether programs competed for the CPU.
    pub(crate) fn has_rivals(&self) -> bool {
        self.runs().any(|run| run.competitor_percent.is_some())
    }

    /// Returns whether figures have a spread of turns.
    pub(crate) fn has_turns(&self) -> bool {
        self.runs().any(|run| run.spread.mean.is_some())
    }

    /// Returns whether latency over time is known.
    pub(crate) fn has_series(&self) -> bool {
        self.runs().any(|run| !run.series.is_empty())
    }
}

/// Describes the kind of device behind a URI.
pub(crate) fn device_kind(uri: &str) -> &'static str {
    match uri.split_once(':').map_or("", |(scheme, _)| scheme) {
        "mem" | "file" => SOFTWARE,
        "kernel" => "through the kernel",
        "vfio" => "PCIe SSD",
        "vfio-user" => "controller served by another process",
        _ => "unknown kind of device",
    }
}

/// One job on one device with one policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    /// Index of the source.
    pub source: usize,
    /// The job's name.
    pub job: String,
    pub workload: Workload,
    /// The device's URI.
    pub device: String,
    /// The storage below the device, if it is known.
    pub medium: Option<String>,
    /// Its group: jobs of one group ran at the same time.
    pub group: Option<u64>,
    /// The completion policy, or the engine for fio's results.
    pub way: String,
    /// The label within its block: the policy, and the source if there are several.
    pub label: String,
    /// The style of its curve and marker.
    pub style: Style,
    /// Reads and writes together, from submission to having seen the completion.
    pub latency: Latency,
    /// How much the turns' figures differ.
    pub spread: Spread,
    /// The values of a sweep that its job has, by key.
    pub sweep: BTreeMap<String, String>,
    /// Reads and writes apart, where there were both.
    pub directions: Vec<Run>,
    /// I/Os per second.
    pub iops: f64,
    /// User and system time over wall time, in percent.
    pub cpu_percent: Option<f64>,
    /// The latency that the slowest one in 6,000 reached.
    pub slowest_ns: Option<f64>,
    /// The lower bound that no protocol can beat.
    pub floor_ns: Option<f64>,
    /// The ratio of the median latency to it.
    pub floor_ratio: Option<f64>,
    /// The mean of its device's first result, if that is another one.
    pub first_ns: Option<f64>,
    /// The mean of this policy in the first file that has it, if that is another one.
    pub before_ns: Option<f64>,
    /// The share of its lone speed that a competing program kept.
    pub competitor_percent: Option<f64>,
    /// Energy of the processors for each I/O, in µJ.
    pub energy_uj_per_io: Option<f64>,
    /// Whether a rate, a pause or a latency target deliberately slows it down.
    pub is_paced: bool,
    /// The duration of the measurement.
    pub runtime_ms: f64,
    /// I/Os that failed, and blocks that differed from what was written.
    pub errors: u64,
    /// Latency over time.
    pub series: Vec<SeriesPoint>,
    /// Notes that a reader needs to interpret these figures.
    pub caveats: Vec<&'static str>,
}

/// Standard deviations of the turns' figures, each in percent of their mean. `None` with fewer than
/// two turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spread {
    pub mean: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub iops: Option<f64>,
    pub cpu: Option<f64>,
}

impl Run {
    /// Returns whether both ran at the same time, as different jobs.
    pub(crate) fn ran_beside(&self, other: &Self) -> bool {
        self.source == other.source
            && self.job != other.job
            && self.group.is_some()
            && self.group == other.group
    }

    /// Returns whether both are the same job on the same device with the same policy.
    pub(crate) fn is_cell_of(&self, other: &Self) -> bool {
        let Self { job, workload, device, way, .. } = other;
        (&self.job, &self.workload, &self.device, &self.way) == (job, workload, device, way)
    }

    /// Returns I/Os per second for each percent of a CPU.
    pub(crate) fn iops_per_cpu_percent(&self) -> Option<f64> {
        self.cpu_percent.filter(|percent| *percent > 0.0).map(|percent| self.iops / percent)
    }

    /// Returns the mean, unless there were no I/Os.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.latency.n > 0).then_some(self.latency.mean_ns)
    }
}

/// Returns the device without the part that all software SSDs have: `optane` of
/// `mem:1G?model=optane`.
pub(crate) fn device_name(uri: &str) -> String {
    if device_kind(uri) != SOFTWARE {
        return uri.to_owned();
    }
    let parameters = uri.split_once('?').map_or("", |(_, parameters)| parameters);
    let model = parameters.split('&').find_map(|pair| pair.strip_prefix("model="));
    model.map_or_else(|| uri.to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_in_words() {
        assert_eq!(device_name("mem:1G?lba=512&model=optane"), "optane");
        assert_eq!(device_name("mem:1G"), "mem:1G");
        assert_eq!(device_name("kernel:/dev/x?model=y"), "kernel:/dev/x?model=y");
        assert_eq!(device_kind("vfio-user:/run/x"), "controller served by another process");
        assert_eq!(device_kind("nonsense"), "unknown kind of device");
    }

    #[test]
    fn machines() {
        let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let one = Source { facts: vec![fact("cpu", "a"), fact("cpus", "2")], ..Source::default() };
        let other =
            Source { facts: vec![fact("cpu", "b"), fact("cpus", "2")], ..Source::default() };
        assert!(one.is_machine_of(&one) && one.is_machine_of(&Source::default()));
        assert!(!one.is_machine_of(&other));
    }
}
