//! Options of `meantime reproduce`.

use std::path::PathBuf;

use clap::Args;

use super::help::help;

/// Options of `reproduce`.
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// Experiments, or documents for all of theirs [default: everything]
    #[arg(value_name = "NAME", long_help = help!("reproduce", "NAME"))]
    pub names: Vec<String>,
    /// List the experiments, and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Three short repetitions of each experiment instead of nine longer ones
    #[arg(long)]
    pub quick: bool,
    /// A device to measure as well, e.g. vfio:0000:01:00.0; only reads are done on it
    #[arg(long, value_name = "URI", long_help = help!("reproduce", "--device"))]
    pub device: Option<String>,
    /// What was measured in a virtual machine; its experiments are shown as well
    #[arg(long, value_name = "FILE", long_help = help!("reproduce", "--guest"))]
    pub guest: Option<PathBuf>,
    /// Where results are kept, so that a run that was cut off goes on
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    #[arg(long_help = help!("reproduce", "--results"))]
    pub results: PathBuf,
    /// Measure again what DIR already has
    #[arg(long)]
    pub anew: bool,
    /// Write the page to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", default_value = "out/reproduce.html")]
    pub html: PathBuf,
    /// Write all figures and verdicts as JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the claims with their verdicts as Markdown to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}
