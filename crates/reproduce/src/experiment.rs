//! An experiment: what a document measured, and how it is measured here.
//!
//! Each is a file, `experiments/DOCUMENT-WHAT.toml`, whose name is the experiment's. To add one,
//! write the file, and its name into the list in `load.rs`, and into `documents/inventory.csv`. A
//! test says what is wrong with it. First come the texts of the page and what the commands need:
//!
//! ```toml
//! title = "Latency by way to wait"
//! place = "latency table"           # In the document.
//! question = "How long does a small read take, by interrupt and by polling?"
//! there = """What the document measured, and on what. A line break
//!   in a text is a space."""
//! here = "How it is measured here."
//! leg = "machine"                   # If nothing is said; or guest, simulated.
//! on_a_device = true                # It needs no model of a device, and only reads.
//! inputs = ["{simulated}"]          # What the figures depend on; here, the simulator's costs.
//! cell_times = 4.0                  # Cells take so much longer, unless the run is quick.
//! disk = { size = "256M", data = "--rw write --bs 1m --size 128m" }   # An ext4 image; /data.
//! requires = [{ run = "db_bench --version", or = "db_bench is not here: install it" }]
//! prepare = ["fs put {file:text} …"] # Commands before anything is measured.
//! guest = ["6.1"]                   # Kernels whose figures of the virtual machine it uses.
//! files."wide.toml" = { model = [[512, 2600], [4096, 4700]], channels = 64 }   # See FileText.
//! ```
//!
//! # Lists
//! ```toml
//! lists.way = ["interrupt", "poll"]
//! lists.size = { "512 B" = "512", "4 KiB" = "4096" }
//! lists.bus = [{ name = "gen2", model = "fast12" }, { name = "gen3", model = "optane" }]
//! ```
//! In strings `{way}` is an entry, `{size}` is `512` with the title `{size.title}`, `512 B`, and
//! `{bus.name}` is `gen2`. What names a list is repeated for each of its entries: an element of an
//! array by its own strings, a key with its value by the key. The list that was declared last
//! varies fastest. A list of one entry is a name for it, everywhere. `for.model = { … }` repeats
//! the whole file, for experiments named `FILE-ENTRY`. `experiments/common.toml` has lists for all.
//!
//! # Steps, and what is derived
//! ```toml
//! steps."{size}" = """bench --device {ssd:dram-nvme} --completion interrupt,poll
//!   --rw randread --bs {size}"""
//! derived."{size}/saved_percent".saved = ["{size}/poll/mean_ns", "{size}/interrupt/mean_ns"]
//! ```
//! The key of a step begins the names of its figures, which `runner/values.rs` lists. Its value is a
//! command of `meantime`, or several: `bench`, `anatomy`, `waits` (simulated), `calibrate`, `run`
//! with `db_bench`; `fs` has no figures. The time for a cell is added to them. A table of steps puts
//! its key before theirs; one with `run` is a [`Step`] with more keys. In commands and files
//! `{ssd:MODEL}` is the software SSD, or the user's device; `{disk:MODEL}` the image; `{file:NAME}`
//! one of `files`, `{scratch:NAME}` any other file of the run; `{tenth:COUNT}` a count, of which a
//! quick run has a tenth. The kinds of derived quantities are those of [`Kind`]; operands are
//! figures, or numbers. A ratio, a gain or what is saved is in percent if its name says so.
//!
//! # Plot and claims
//! ```toml
//! plot.bars."{size.title}" = [
//!   { name = "{way}", here = "{size}/{way}/mean_ns", there = "latency/{way}" },
//! ]
//!
//! [[claims]]
//! text = "Polling is quicker than the interrupt"
//! here = { ratio = ["512/poll/mean_ns", "512/interrupt/mean_ns"], at_most = "there" }
//! there.ratio = ["latency/poll", "latency/interrupt"]
//! unless = "Why it may not hold on a machine of this kind."
//! ours = true                       # Our expectation, beyond what the document states.
//! ```
//! The names at `there` are keys of `documents/DOCUMENT.csv`. Plots are those of [`Plot`].

use meantime_report::picture::Unit;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use toml::{Table, Value};

use crate::document::Document;
use crate::quantity::{Kind, Quantity};

/// Where an experiment is measured. Figures of different legs are never compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leg {
    /// This machine: the software SSD with the document's device as its model, and the kernel on a
    /// file.
    #[default]
    Machine,
    /// A virtual machine with QEMU's NVMe controller, where the kernel's own paths are.
    Guest,
    /// A device that the user names.
    Device,
    /// The simulator, with documented costs of waking up.
    Simulated,
}

impl Leg {
    /// The name, on the command line and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Guest => "guest",
            Self::Device => "device",
            Self::Simulated => "simulated",
        }
    }
}

/// A table or figure of a document, measured here.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name: the document's name, a hyphen, and what it is.
    pub id: String,
    /// The document.
    pub document: Document,
    /// Where it stands there: a table, a figure, a page or a slide.
    pub place: String,
    /// Its title.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// What the document measured, and on what.
    pub there: String,
    /// How it is measured here.
    pub here: String,
    /// The leg.
    #[serde(default)]
    pub leg: Leg,
    /// Whether it can be done on a device of the user's: it needs no model, and only reads.
    #[serde(default)]
    pub on_a_device: bool,
    /// Descriptions of what the figures depend on.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// The factor by which each cell takes longer than usual, unless the run is quick. It is for
    /// events that few I/Os meet.
    pub cell_times: Option<f64>,
    /// An image with a file system.
    pub disk: Option<Disk>,
    /// The requirements on the machine.
    #[serde(default)]
    pub requires: Vec<Requirement>,
    /// Files for the commands, by name.
    #[serde(default, deserialize_with = "in_order")]
    pub files: Vec<(String, FileText)>,
    /// Commands before anything is measured.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Kernels whose figures of the virtual machine it uses.
    #[serde(default)]
    pub guest: Vec<String>,
    /// The measurements, in this order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Quantities by name that are computed from figures, and from earlier quantities of this list.
    #[serde(default, deserialize_with = "in_order")]
    pub derived: Vec<(String, Quantity)>,
    /// The claims.
    pub claims: Vec<Claim>,
    /// The plot, in the document's own form.
    pub plot: Plot,
}

impl Experiment {
    /// Returns its name among results. On a device of the user's, the name includes the leg.
    pub fn key(&self) -> String {
        match self.leg {
            Leg::Device => format!("{}.device", self.id),
            _ => self.id.clone(),
        }
    }
}

/// An image in memory with an ext4 file system. It is made anew for each repetition.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Its size.
    pub size: String,
    /// The arguments of the job that writes its file `/data`, if it has one.
    pub data: Option<String>,
}

/// A requirement that a machine may not meet.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// A command that works if it is there.
    pub run: String,
    /// Why the experiment cannot be measured if not.
    pub or: String,
}

/// The text of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a text, a list of lines, or a table with `text` and `times`, `model` and \
                 `channels`, or `trace`"
)]
pub enum FileText {
    /// The text as it is.
    Text(String),
    /// Lines, which lists may repeat.
    Lines(Vec<String>),
    /// The same text many times.
    Repeated {
        /// The text.
        text: String,
        /// The number of repetitions.
        times: usize,
    },
    /// A model of a device whose reads and writes take the times of these points (bytes, ns).
    Model {
        /// The points.
        model: Vec<(u64, u64)>,
        /// The number of commands that it works on at a time.
        channels: u32,
        /// The maximum number of commands inside it, or 0 for any number.
        #[serde(default)]
        inside: u32,
    },
    /// I/Os for the simulator. Each entry has the bytes, their share in percent, and the device's
    /// time in ns.
    Trace {
        /// The mix.
        trace: Vec<(u64, u64, u64)>,
    },
}

/// A measurement.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The prefix of the names of its figures.
    pub name: String,
    /// Commands, one after the other.
    pub run: Vec<String>,
    /// The text on the page if one of the commands fails, with {message} for the reason. Without
    /// this text the experiment fails.
    pub may_fail: Option<String>,
    /// The text that the message of such a failure contains.
    #[serde(default)]
    pub saying: String,
    /// The command that runs in place of one that failed.
    pub instead: Option<String>,
}

/// The expectation of a claim about its quantity.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Between these.
    Within(f64, f64),
    /// At most the document's own.
    AtMostThere,
    /// At least the document's own.
    AtLeastThere,
}

/// A claim of the document about an experiment's figures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The claim, in a sentence.
    pub text: String,
    /// The quantity here.
    pub here: Quantity,
    /// The quantity in the document, if it has a number.
    pub there: Option<Quantity>,
    /// The expectation.
    pub expect: Expect,
    /// Why it may not hold on a machine of this kind.
    #[serde(default)]
    pub unless: String,
    /// Whether it is our expectation, beyond what the document states.
    #[serde(default)]
    pub ours: bool,
}

/// A bar, or a point of a line.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Its name, or its place on the axis.
    pub name: String,
    /// The quantity that is measured here, or `None` if only the document has a number.
    pub here: Option<Quantity>,
    /// Whether the standard deviation is drawn as a whisker, instead of the samples' range.
    #[serde(default)]
    pub deviation: bool,
    /// The document's number.
    pub there: Option<Quantity>,
}

impl Mark {
    /// Returns the name of the standard deviation to draw.
    pub fn deviation(&self) -> Option<String> {
        let here = self.here.as_ref().filter(|here| self.deviation && here.kind == Kind::Value)?;
        here.operands[0].strip_suffix("mean_ns").map(|name| format!("{name}sd_ns"))
    }
}

/// Marks that belong together, with a name: a group of bars, a stack, a line.
pub(crate) type Series = (String, Vec<Mark>);

/// A plot. Its unit is that of its first mark.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Plot {
    /// Groups of bars.
    Bars(#[serde(deserialize_with = "in_order")] Vec<Series>),
    /// Bars made of parts.
    Stacks(#[serde(deserialize_with = "in_order")] Vec<Series>),
    /// Lines over numbers. The marks' names are these numbers.
    Lines {
        /// The title of the axis.
        axis: String,
        /// Whether the axis is linear. It is logarithmic if not.
        #[serde(default)]
        linear: bool,
        /// The lines.
        #[serde(deserialize_with = "in_order")]
        series: Vec<Series>,
    },
    /// Shares of I/Os that take longer than a time, from curves with these names.
    Exceedance(#[serde(deserialize_with = "in_order")] Vec<(String, String)>),
    /// Shares of I/Os that take no longer than a time, from curves with these names.
    Distribution(#[serde(deserialize_with = "in_order")] Vec<(String, String)>),
}

impl Plot {
    /// Returns its series. Plots of curves have none.
    pub fn series(&self) -> &[Series] {
        match self {
            Self::Bars(series) | Self::Stacks(series) | Self::Lines { series, .. } => series,
            Self::Exceedance(_) | Self::Distribution(_) => &[],
        }
    }

    /// Returns the marks of all series.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.series().iter().flat_map(|(_, marks)| marks)
    }

    /// Returns its unit.
    pub fn unit(&self) -> Unit {
        let of = |mark: &Mark| mark.here.as_ref().map(Quantity::unit);
        self.marks().find_map(of).unwrap_or_default()
    }

    /// Returns the names of its curves.
    pub fn curves(&self) -> &[(String, String)] {
        match self {
            Self::Exceedance(curves) | Self::Distribution(curves) => curves,
            _ => &[],
        }
    }
}

/// Reads a table in the order in which it is written.
fn in_order<'de, D, T>(deserializer: D) -> Result<Vec<(String, T)>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let table = Table::deserialize(deserializer)?;
    let entry = |(key, value): (String, Value)| Ok((key, T::deserialize(value)?));
    table.into_iter().map(entry).collect::<Result<_, toml::de::Error>>().map_err(D::Error::custom)
}
