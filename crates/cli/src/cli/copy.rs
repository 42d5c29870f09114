//! Options of `meantime copy`.

use clap::Args;

/// Options of `copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The device to read, e.g. file:disk.img, or - for standard input
    #[arg(value_name = "FROM")]
    pub from: String,
    /// The device to write, or - for standard output
    #[arg(value_name = "TO")]
    pub to: String,
    /// Overwrite a device on which a partition table, a file system or the like lies
    #[arg(long)]
    pub force: bool,
}
