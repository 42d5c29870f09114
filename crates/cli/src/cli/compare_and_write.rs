//! Options of `meantime compare-and-write`.

use std::path::PathBuf;

use clap::Args;

/// Options of `compare-and-write`.
#[derive(Debug, Args)]
pub(crate) struct CompareAndWriteArgs {
    /// The device, e.g. vfio-user:/tmp/ssd.sock or file:disk.img
    #[arg(long, value_name = "URI")]
    pub device: String,
    /// The first logical block; the device's first is 0
    #[arg(long, value_name = "N")]
    pub lba: u64,
    /// What is expected to be there: a file of whole blocks, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub expect: PathBuf,
    /// What to write if it is there: a file of the same length, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub write: PathBuf,
    /// If something else is there, put it into FILE: what to expect the next time
    #[arg(long, value_name = "FILE")]
    pub found: Option<PathBuf>,
}
