//! Options of `meantime anatomy`.

use std::path::PathBuf;

use clap::Args;

use super::help::help;

/// Options of `anatomy`.
#[derive(Debug, Args)]
pub(crate) struct AnatomyArgs {
    /// Devices to look at, e.g. mem:256M?model=fast12; several are compared
    #[arg(long, value_name = "URI[,URI…]", value_delimiter = ',')]
    #[arg(default_value = "mem:64M?model=optane", long_help = super::help::devices())]
    pub device: Vec<String>,
    /// Ways to wait to compare: interrupt, poll, adaptive, hybrid=2us
    #[arg(long, value_name = "LIST", default_value = "interrupt,poll,adaptive")]
    #[arg(long_help = help!("anatomy", "--completion"))]
    pub completion: String,
    /// Direction and order: read, write, randread, randwrite
    #[arg(long, value_name = "KIND", default_value = "randread")]
    pub rw: String,
    /// Sizes of the I/Os to compare; k, m, g are powers of 1024
    #[arg(long, value_name = "BYTES[,BYTES…]", value_delimiter = ',', default_value = "4k")]
    pub bs: Vec<String>,
    /// How long to measure each bar, in seconds or e.g. 500ms; with a second program as long again
    /// [default: 2]
    #[arg(long, value_name = "TIME")]
    pub runtime: Option<String>,
    /// The second program on the same CPU: tsc, walk=BYTES or none
    #[arg(long, value_name = "KIND", default_value = "tsc")]
    #[arg(long_help = help!("anatomy", "--competitor"))]
    pub competitor: String,
    /// The CPU to do I/O on, and to run the second program on [default: the first that is no
    /// software SSD's]
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Write everything as JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = help!("anatomy", "--json"))]
    pub json: Option<PathBuf>,
    /// Draw the bars as an SVG picture to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Options of the second program, which `anatomy` starts by itself.
#[derive(Debug, Args)]
pub(crate) struct CompetitorArgs {
    /// Where to run.
    #[arg(long)]
    pub cpu: usize,
    /// What to do.
    #[arg(long)]
    pub kind: String,
    /// Who has started it.
    #[arg(long)]
    pub parent: i32,
}
