//! Options of `meantime mount` and `meantime umount`.

use std::path::PathBuf;

use clap::Args;

use super::help::help;

/// Options of `mount`.
#[derive(Debug, Args)]
pub(crate) struct KernelMountArgs {
    /// The device with the ext4 file system, e.g. file:disk.img
    #[arg(value_name = "DEVICE", long_help = help!("mount", "DEVICE"))]
    pub device: String,
    /// The directory at which it is mounted
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS", long_help = help!("mount", "-o"))]
    pub options: Vec<String>,
    /// Stay in the foreground until it is unmounted
    #[arg(short, long)]
    pub foreground: bool,
    /// (For the process in the background: says on stdout when the mount answers.)
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub announce: bool,
}

/// Options of `umount`.
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// The directory at which it is mounted
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
