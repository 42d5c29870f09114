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
    #[arg(long, value_name = "DIRECTORY", default_value = "/mnt/meantime")]
    #[arg(long_help = help!("run", "--at"))]
    pub at: OsString,
    /// Options of the mount, separated by commas (see `meantime mount --help`)
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// (For the process that becomes the program: it is started with a socket on stdin.)
    #[arg(long, hide = true)]
    pub inside: bool,
    /// Send the program's data through the kernel, too, rather than by shared memory
    #[arg(long, alias = "no-short", long_help = help!("run", "--no-shared-memory"))]
    pub no_shared_memory: bool,
    /// (The name of the socket at which the process of --inside asks for the shared-memory path.)
    #[arg(long, hide = true, requires = "inside", value_name = "NAME")]
    pub shared_memory: Option<String>,
    /// Memory for the page cache, e.g. 64M [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub cache: Option<usize>,
    /// How long what goes on after the program has to end after a signal, before the mount does
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    #[arg(long_help = help!("run", "--grace"))]
    pub grace: u64,
    /// Memory shared with the program, and copies of it, in all [default: a quarter of --cache, and
    /// 16M at least]
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "no_shared_memory")]
    #[arg(long_help = help!("run", "--shared-memory-limit"))]
    pub shared_memory_limit: Option<usize>,
    /// How reads wait for the device (see `meantime bench --help`) [default: adaptive]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
    /// Serve what is counted for Prometheus, e.g. at 127.0.0.1:9100 or unix:/run/meantime.sock
    #[arg(long, value_name = "ADDR", long_help = help!("top", "--metrics"))]
    pub metrics: Option<String>,
    /// The program, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}
