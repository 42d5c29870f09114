//! Options of `meantime bench`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, ValueHint};
use meantime_report::compare::Condition;

use super::help::help;
use crate::job;

/// What `meantime bench` is to do.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A fio job file; without one, the job options below say what to do
    #[arg(value_name = "JOB.fio", long_help = job_file())]
    pub job_file: Option<PathBuf>,

    /// Devices to measure, e.g. mem:1G?model=optane; several are compared
    #[arg(long, value_name = "URI[,URI…]", value_delimiter = ',')]
    #[arg(long_help = super::help::devices())]
    pub device: Vec<String>,

    /// Ways to wait to compare: interrupt, poll, adaptive, hybrid=2us
    #[arg(long, value_name = "LIST", long_help = help!("bench", "--completion"))]
    pub completion: Option<String>,

    /// Measure, in the same run, what no protocol between two cores can beat
    #[arg(long, long_help = help!("bench", "--floor"))]
    pub floor: bool,

    /// Write the results as fio's JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = help!("bench", "--json"))]
    pub json: Option<PathBuf>,

    /// Write a report of the results as one HTML page to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = help!("bench", "--html"))]
    pub html: Option<PathBuf>,

    /// The table for other programs.
    #[command(flatten)]
    pub tables: TableArgs,

    /// As fio has it: where the results go instead of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// As fio has it: the form of these results
    #[arg(long, value_name = "FORMAT", default_value = "normal")]
    pub output_format: OutputFormat,

    /// How often each device and policy has its turn within a job
    #[arg(long, value_name = "N", long_help = help!("bench", "--rounds"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub rounds: Option<u32>,

    /// Compare with another build of this command, by runs of both in turns
    #[arg(long, value_name = "PROGRAM", long_help = help!("bench", "--against"))]
    #[arg(conflicts_with_all = ["html", "metrics", "csv", "markdown"], value_hint = ValueHint::ExecutablePath)]
    pub against: Option<PathBuf>,

    /// With --against: end with status 3 if a figure has changed by more than this: 'p99>+5%'
    #[arg(long, value_name = "CONDITION", requires = "against")]
    #[arg(long_help = help!("compare", "--fail-if"))]
    pub fail_if: Vec<Condition>,

    /// Serve what is counted for Prometheus, e.g. at 127.0.0.1:9100 or unix:/run/meantime.sock
    #[arg(long, value_name = "ADDR", long_help = help!("top", "--metrics"))]
    pub metrics: Option<String>,

    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,

    /// How often to say how far the run is and what it has come to, where standard error is no
    /// terminal, e.g. 30s; SIGUSR1 asks for it at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    pub status_interval: Duration,

    /// Print a line for each I/O while the run goes on: job, operation, size, place, latency
    #[arg(long, long_help = help!("bench", "--each"))]
    #[arg(conflicts_with = "against")]
    pub each: bool,

    /// Draw a histogram of the latencies while the run goes on, each second anew
    #[arg(long, long_help = help!("bench", "--live"))]
    #[arg(conflicts_with_all = ["against", "quiet"])]
    pub live: bool,

    /// Serve no control socket: `meantime top` cannot look at this run
    #[arg(long, long_help = help!("bench", "--no-control"))]
    pub no_control: bool,

    /// The job's keys as options.
    #[command(flatten)]
    pub job: JobArgs,
}

/// The form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text and a table
    Normal,
    /// JSON
    Json,
    /// JSON, which has the histograms in any case
    #[value(name = "json+")]
    JsonPlus,
}

impl BenchArgs {
    /// Returns the options with those of fio as ours: its JSON is that of `--json`.
    pub(crate) fn with_fios(mut self) -> Self {
        if self.output_format != OutputFormat::Normal && self.json.is_none() {
            self.json = Some(self.output.take().unwrap_or_else(|| PathBuf::from("-")));
        }
        self
    }
}

/// A time with its unit, or in seconds as fio has it.
fn interval(text: &str) -> Result<Duration, String> {
    let with_unit = if text.ends_with('s') { text.to_owned() } else { format!("{text}s") };
    let ns = meantime_hw::clock::parse_time_ns(&with_unit).filter(|ns| *ns > 0);
    ns.map(Duration::from_nanos).ok_or_else(|| "a time such as 30s or 500ms".to_owned())
}

/// Options of the commands that show results as a table.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// Write the table as CSV, with unrounded figures, to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the table as Markdown to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Help of the argument JOB.fio.
fn job_file() -> String {
    let keys = job::subjects();
    let differences = help!("bench", "JOB.fio");
    format!("A fio job file. Obeyed, with fio's meaning and units, are:\n\n{keys}\n\n{differences}")
}

/// The option that carries keys which have none of their own.
pub(super) const OTHER_KEYS: &str = "job-key";

/// fio's keys as options: those that `job::options` lists, and [`OTHER_KEYS`] for the others.
/// They are stored and checked by `Job::set`, the one place that knows them.
#[derive(Debug)]
pub(crate) struct JobArgs {
    /// The job's name in the output.
    pub name: Option<String>,
    keys: Vec<(String, Option<String>)>,
}

impl JobArgs {
    /// The keys given, with their values, `name` excepted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.keys.iter().map(|(key, value)| (key.as_str(), value.as_deref()))
    }
}

impl Args for JobArgs {
    fn augment_args(command: Command) -> Command {
        let command = command
            .next_help_heading("Job options (fio's keys; they override the job file's)")
            .args(job::options().map(option));
        // Any other of fio's keys, as `job_keys` hands them on: KEY or KEY=VALUE.
        let others = Arg::new(OTHER_KEYS).long(OTHER_KEYS).action(ArgAction::Append);
        command.arg(others.hide(true))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn option(key: job::KeyOption) -> Arg {
    let arg = Arg::new(key.name).long(key.name.replace('_', "-"));
    let arg = arg.value_name(key.value_name).help(key.help);
    match key.alone {
        Some(value) => arg.num_args(0..=1).default_missing_value(value).require_equals(true),
        None => arg,
    }
}

impl FromArgMatches for JobArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |key: &str| matches.get_one::<String>(key).cloned();
        let own = job::options().map(|key| key.name).filter(|key| *key != "name");
        let own = own
            .filter_map(|key| Some((matches.index_of(key)?, (key.to_owned(), Some(value(key)?)))));
        let others = matches.get_many::<String>(OTHER_KEYS).into_iter().flatten();
        let others = others.map(|other| match other.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (other.clone(), None),
        });
        let places = matches.indices_of(OTHER_KEYS).into_iter().flatten();
        // In the order of the command line: of two that say the same the later counts.
        let keys: BTreeMap<_, _> = own.chain(places.zip(others)).collect();
        Ok(Self { name: value("name"), keys: keys.into_values().collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
