//! Options of `meantime run`.

use std::ffi::OsString;

use clap::Args;
use meantime_completion::Policy;

use super::fs::bytes;
use super::help::help;

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The device with the ext4 file system, e.g. file:disk.img
    #[arg(long, value_name = "URI", long_help = help!("run", "--device"))]
    pub device: String,
    /// The directory at which the program finds the file system
    #[arg(long, value_name = "DIRECTORY", default_value = meantime_posix::DEFAULT_MOUNT_POINT)]
    #[arg(long_help = help!("run", "--at"))]
    pub at: OsString,
    /// Memory for the page cache of each process, e.g. 64M [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub cache: Option<usize>,
    /// How reads wait for the device (see `meantime bench --help`) [default: poll]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
    /// The program, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}
