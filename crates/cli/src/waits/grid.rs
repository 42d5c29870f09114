//! The grid: device times and shapes, each with a model of the software SSD and a job.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use clap::ValueEnum;
use meantime_completion::Policy;
use meantime_hw::clock::parse_time_ns;
use meantime_report::waits::Cell;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::failure::{Context as _, Failure};
use crate::job::{Job, Origin};

/// The device times of the whole grid, in ns.
pub(super) const DEVICE_TIMES_NS: [u64; 7] = [2_000, 4_100, 7_300, 10_000, 20_000, 50_000, 100_000];

/// Shortest and longest permitted device time, in ns.
const DEVICE_TIME_LIMITS_NS: (u64, u64) = (100, 100_000_000);

/// The variation of the time of I/Os; what each one is in words is shown with its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Shape {
    /// 4 KiB reads that all take the same time
    Constant,
    /// 4 KiB reads, log-normal with sigma 0.25
    Lognormal,
    /// 4 KiB reads, of which one in ten takes ten times as long
    Bimodal,
    /// 4 KiB reads with 2 % writes, each of which starts a program of 600 µs on one of four channels
    Programs,
    /// reads of 512 B to 128 KiB; 128 KiB take eight times as long as 4 KiB
    Sizes,
    /// 4 KiB reads, log-normal with sigma 0.25, four in flight
    Depth4,
    /// 4 KiB, 70 % reads and 30 % writes; writes take twice as long; log-normal with sigma 0.1
    Mix7030,
}

impl Shape {
    /// All of them.
    pub(super) const ALL: [Self; 7] = [
        Self::Constant,
        Self::Lognormal,
        Self::Bimodal,
        Self::Programs,
        Self::Sizes,
        Self::Depth4,
        Self::Mix7030,
    ];

    /// Returns its name, and what it is in words.
    fn described(self) -> [String; 2] {
        let value = self.to_possible_value().unwrap_or_default();
        let words = value.get_help().map(ToString::to_string).unwrap_or_default();
        [value.get_name().to_owned(), words]
    }

    fn name(self) -> String {
        let [name, _] = self.described();
        name
    }

    /// Returns the keys of its job, besides the common ones.
    fn keys(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Constant | Self::Lognormal | Self::Bimodal => &[("rw", "randread")],
            Self::Programs => &[("rw", "randrw"), ("rwmixread", "98")],
            Self::Sizes => &[("rw", "randread"), ("bssplit", "512/20:4k/40:16k/20:64k/10:128k/10")],
            Self::Depth4 => &[("rw", "randread"), ("iodepth", "4")],
            Self::Mix7030 => &[("rw", "randrw"), ("rwmixread", "70")],
        }
    }

    /// Returns the number of I/Os in flight.
    pub(super) fn depth(self) -> usize {
        if self == Self::Depth4 { 4 } else { 1 }
    }

    fn medium(self) -> &'static str {
        // Filling the medium programs all of it, at 600 µs a block.
        if self == Self::Programs { "4M" } else { "16M" }
    }
}

/// A cell of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GridCell {
    /// The time of a 4 KiB read that nothing delays, in ns.
    pub device_ns: u64,
    /// The variation of its times.
    pub shape: Shape,
}

impl GridCell {
    /// Returns its name, e.g. `4.1us-bimodal`.
    pub(super) fn name(&self) -> String {
        format!("{}us-{}", self.device_ns as f64 / 1e3, self.shape.name())
    }

    /// Returns its description for results.
    pub(super) fn described(&self) -> Cell {
        let (name, shape) = (self.name(), self.shape.described());
        Cell { name, device_ns: self.device_ns, shape, model: self.model_text() }
    }

    /// Returns the model of its device.
    pub(super) fn model_text(&self) -> String {
        let base = self.device_ns;
        let source = "an even grid to compare ways to wait: times of no particular device";
        let begin = format!("name = \"{}\"\nsource = \"{source}\"\n", self.name());
        let one_point = format!("read = [[4096, {base}]]\nwrite = [[4096, {base}]]\n");
        let rest = match self.shape {
            Shape::Constant => format!("channels = 4\n{one_point}"),
            Shape::Lognormal | Shape::Depth4 => {
                format!("channels = 4\n{one_point}jitter = {{ lognormal = {{ sigma = 0.25 }} }}\n")
            }
            Shape::Bimodal => {
                let extra_ns = base * 9;
                format!(
                    "channels = 4\n{one_point}slow = {{ probability = 0.1, extra_ns = {extra_ns} \
                     }}\n"
                )
            }
            // Stripes are as long as the pieces by which the medium is filled, so that filling
            // keeps all channels busy.
            Shape::Programs => format!(
                "channels = 4\nselect = \"stripe\"\nstripe_bytes = 262144\n{one_point}\
                 nand = {{ program_bytes = 4096, program_ns = 600000, programs_per_erase = \
                 1000000, erase_ns = 0, buffered_programs = 64 }}\n"
            ),
            Shape::Sizes => {
                let points =
                    format!("[[512, {}], [4096, {base}], [131072, {}]]", base * 9 / 10, base * 8);
                format!("channels = 4\nread = {points}\nwrite = {points}\n")
            }
            Shape::Mix7030 => format!(
                "channels = 4\nread = [[4096, {base}]]\nwrite = [[4096, {}]]\njitter = {{ \
                 lognormal = {{ sigma = 0.1 }} }}\n",
                base * 2
            ),
        };
        begin + &rest
    }

    /// Returns the URI of its device, whose model is in the file `model`.
    pub(super) fn uri(&self, model: &str) -> String {
        format!("mem:{}?model={model}", self.shape.medium())
    }

    /// Returns its job, which runs each of `policies` for `runtime`, optionally with a competing
    /// program.
    pub(super) fn job(
        &self,
        policies: &[Policy],
        runtime: Duration,
        competitor: Option<&str>,
    ) -> Result<Job, Failure> {
        let list: Vec<String> = policies.iter().map(Policy::to_string).collect();
        let (list, runtime) = (list.join(","), format!("{}us", runtime.as_micros()));
        let mut job = Job::new(&self.name());
        let common =
            [("runtime", runtime.as_str()), ("time_based", "1"), ("completion", list.as_str())];
        let competitor = competitor.map(|kind| ("competitor", kind));
        for (key, value) in common.iter().chain(self.shape.keys()).chain(&competitor) {
            job.set(key, Some(value), &Origin::CommandLine)?;
        }
        job.validate()?;
        Ok(job)
    }
}

/// A model as a file that exists only in this process, until it is dropped.
#[derive(Debug)]
pub(super) struct ModelFile(File);

impl ModelFile {
    /// Creates the file of the model of `cell`.
    pub(super) fn create(cell: &GridCell) -> Result<Self, Failure> {
        let create = || -> std::io::Result<File> {
            let mut file = File::from(memfd_create("meantime-model", MemfdFlags::CLOEXEC)?);
            file.write_all(cell.model_text().as_bytes())?;
            Ok(file)
        };
        let what = format_args!("cannot keep the model of {} in memory", cell.name());
        create().map(Self).context(what)
    }

    /// Returns the path by which this process can open it.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Returns all cells of these times and shapes whose names contain one of the words of `filter`.
pub(super) fn cells(
    times_ns: &[u64],
    shapes: &[Shape],
    filter: Option<&str>,
) -> Result<Vec<GridCell>, Failure> {
    let all = times_ns.iter().flat_map(|device_ns| {
        shapes.iter().map(|shape| GridCell { device_ns: *device_ns, shape: *shape })
    });
    // Without a filter the only word is empty, and every name contains it.
    let filter = filter.unwrap_or_default();
    let words: Vec<&str> = filter.split(',').map(str::trim).collect();
    let wanted = |cell: &GridCell| words.iter().any(|word| cell.name().contains(word));
    let cells: Vec<GridCell> = all.filter(wanted).collect();
    if cells.is_empty() {
        let like = GridCell { device_ns: times_ns[0], shape: shapes[0] }.name();
        return Err(Failure::usage(format_args!(
            "--filter {filter:?} leaves no cell; names are like {like} (see --help for times and \
             shapes)"
        )));
    }
    Ok(cells)
}

/// Parses a list of device times such as `2,4.1us,0.1ms`. A bare number is in µs.
pub(super) fn parse_times(list: &str) -> Result<Vec<u64>, Failure> {
    let (least, most) = DEVICE_TIME_LIMITS_NS;
    parse_list("--times", list, |text| {
        parse_time_ns(text).filter(|ns| (least..=most).contains(ns)).ok_or_else(|| {
            format!(
                "{text:?} is no device time: use e.g. 7.3 (µs), 500ns or 1ms, from 100ns to 100ms"
            )
        })
    })
}

/// Parses a list of shapes.
pub(super) fn parse_shapes(list: &str) -> Result<Vec<Shape>, Failure> {
    parse_list("--shapes", list, |name| {
        Shape::from_str(name, false).map_err(|_| {
            format!("{name:?} is no shape: use {}", Shape::ALL.map(Shape::name).join(", "))
        })
    })
}

pub(super) fn parse_list<T: PartialEq>(
    option: &str,
    list: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    for text in list.split(',').map(str::trim) {
        let item = parse(text).map_err(|what| Failure::usage(format_args!("{option}: {what}")))?;
        if items.contains(&item) {
            return Err(Failure::usage(format_args!("{option}: {text} is listed twice")));
        }
        items.push(item);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use meantime_block::OpenOptions;

    use super::*;

    #[test]
    fn the_whole_grid_has_49_cells_with_names_of_their_own() {
        let cells = cells(&DEVICE_TIMES_NS, &Shape::ALL, None).unwrap();
        assert_eq!(cells.len(), 49);
        let names: HashSet<String> = cells.iter().map(GridCell::name).collect();
        assert_eq!(names.len(), 49);
        for name in ["2us-constant", "4.1us-bimodal", "7.3us-programs", "100us-mix7030"] {
            assert!(names.contains(name), "{names:?}");
        }
    }

    #[test]
    fn models_parse_and_jobs_are_valid() {
        let policies = [Policy::Poll, Policy::ADAPTIVE];
        for cell in cells(&DEVICE_TIMES_NS, &Shape::ALL, None).unwrap() {
            let model = ModelFile::create(&cell).unwrap();
            let opened = meantime_block::open(&cell.uri(&model.path()), &OpenOptions::default());
            assert!(opened.is_ok(), "{}: {}", cell.name(), opened.err().unwrap());
            let job = cell.job(&policies, Duration::from_millis(250), Some("tsc")).unwrap();
            assert_eq!(job.runtime, Some(Duration::from_millis(250)));
            assert!(job.time_based == Some(true) && job.competitor.is_some());
            assert_eq!(job.completion.as_deref(), Some("poll,adaptive"));
            assert_eq!(job.iodepth, if cell.shape == Shape::Depth4 { 4 } else { 1 });
            assert_eq!(job.has_varied_sizes(), cell.shape == Shape::Sizes);
            assert_eq!(job.writes(), matches!(cell.shape, Shape::Programs | Shape::Mix7030));
        }
    }

    #[test]
    fn a_filter_takes_any_of_its_words() {
        let names = |filter| {
            cells(&[2_000, 20_000], &Shape::ALL, Some(filter))
                .map(|cells| cells.iter().map(GridCell::name).collect::<Vec<_>>())
        };
        assert_eq!(names("20us-c,2us-sizes").unwrap(), ["2us-sizes", "20us-constant"]);
        assert_eq!(names("bimodal").unwrap().len(), 2);
        assert!(names("nothing").is_err());
    }

    #[test]
    fn lists() {
        assert_eq!(parse_times("2, 4.1us,500ns,0.1ms").unwrap(), [2_000, 4_100, 500, 100_000]);
        for wrong in ["", "2,2us", "1ns", "1s", "x", "-1", "9999ms"] {
            assert!(parse_times(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_shapes("sizes, depth4").unwrap(), [Shape::Sizes, Shape::Depth4]);
        assert!(parse_shapes("sizes,sizes").is_err() && parse_shapes("round").is_err());
    }
}
