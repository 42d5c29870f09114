//! Options of `meantime waits`.

use std::path::PathBuf;

use clap::Args;

use super::help::help;
use crate::waits::Whose;

/// Options of `waits`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitsArgs {
    /// Ways to wait to compare [default:
    /// interrupt,poll,hybrid,hybrid-bucket,hybrid-min,ehp,pas,dpas,adaptive]
    #[arg(long, value_name = "LIST", long_help = help!("waits", "--policies"))]
    pub policies: Option<String>,
    /// Device times, in µs or e.g. 500ns [default: 2,4.1,7.3,10,20,50,100]
    #[arg(long, value_name = "LIST", long_help = help!("waits", "--times"))]
    pub times: Option<String>,
    /// Shapes: constant, lognormal, bimodal, programs, sizes, depth4, mix7030 [default: all]
    #[arg(long, value_name = "LIST", long_help = help!("waits", "--shapes"))]
    pub shapes: Option<String>,
    /// Only cells whose names contain one of these words, e.g. 10us-,sizes
    #[arg(long, value_name = "WORD[,WORD…]")]
    pub filter: Option<String>,
    /// How long to measure each way to wait in each cell, in seconds or e.g. 500ms [default: 1]
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<String>,
    /// Three device times, three shapes, four ways to wait, a quarter of a second each: half a
    /// minute
    #[arg(long, long_help = help!("waits", "--quick"))]
    pub quick: bool,
    /// A second, short pass with a program that competes for the CPU: tsc or walk=BYTES
    #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "tsc")]
    #[arg(long_help = help!("waits", "--competitor"))]
    pub competitor: Option<String>,
    /// Measure nothing; simulate, with the wake costs of: bare-metal (the default), this-machine
    #[arg(long, value_enum, value_name = "WHOSE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "bare-metal", long_help = help!("waits", "--simulate"))]
    #[arg(conflicts_with_all = ["runtime", "competitor"])]
    pub simulate: Option<Whose>,
    /// With --simulate: device times from files in DIR
    #[arg(long, value_name = "DIR", requires = "simulate", long_help = help!("waits", "--replay"))]
    pub replay: Option<PathBuf>,
    /// Write everything as JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = help!("waits", "--json"))]
    pub json: Option<PathBuf>,
    /// Write a page with the latency/CPU plane of each cell to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = help!("waits", "--html"))]
    pub html: Option<PathBuf>,
}
