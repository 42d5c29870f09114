//! Options of `meantime top`.

use clap::Args;

use super::help::help;

/// Options of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The process to look at [default: the one there is; of several, a list to choose from]
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Print one table and end, instead of one after another
    #[arg(long)]
    pub once: bool,
    /// With --once: JSON instead of a table
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Draw histograms of the times of I/Os below the table
    #[arg(long, conflicts_with = "json", long_help = help!("top", "--histogram"))]
    pub histogram: bool,
    /// Have a queue wait by another policy, e.g. 3=hybrid-min or all=adaptive:cpu=30; can be
    /// repeated
    #[arg(long, value_name = "QUEUE=POLICY", long_help = help!("top", "--set"))]
    pub set: Vec<String>,
    /// Print what all processes have counted, for Prometheus, and end
    #[arg(long, conflicts_with_all = ["once", "json", "histogram", "set", "interval"])]
    #[arg(long_help = help!("top", "--prometheus"))]
    pub prometheus: bool,
    /// With --prometheus: serve it instead, e.g. at 127.0.0.1:9100 or unix:/run/meantime.sock
    #[arg(long, value_name = "ADDR", requires = "prometheus")]
    #[arg(long_help = help!("top", "--listen"))]
    pub listen: Option<String>,
    /// Time between two looks, in seconds [default: 1, with --once 0.5]
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<f64>,
}
