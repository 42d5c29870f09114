//! Options of `meantime qualify`.

use std::path::PathBuf;

use clap::Args;

use super::help::help;

/// Options of `qualify`.
#[derive(Debug, Args)]
pub(crate) struct QualifyArgs {
    /// The device to try, e.g. vfio:0000:01:00.0
    #[arg(value_name = "DEVICE", long_help = help!("qualify", "DEVICE"))]
    pub device: String,
    /// Overwrite data on the device, too: the serial number says which device is meant
    #[arg(long, value_name = "SERIAL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "", long_help = help!("qualify", "--destroy"))]
    pub destroy: Option<String>,
    /// Leave out what resets the controller
    #[arg(long)]
    pub no_reset: bool,
    /// With --destroy: cut the device's power by COMMAND, and look what is there
    #[arg(long, value_name = "COMMAND", requires = "destroy")]
    #[arg(long_help = help!("qualify", "--power-cycle"))]
    pub power_cycle: Option<String>,
    /// How long each latency and each rate is measured, in seconds or e.g. 500ms
    #[arg(long, value_name = "TIME", default_value = "1")]
    pub runtime: String,
    /// How long a command may take before it counts as lost, in seconds or e.g. 500ms
    #[arg(long, value_name = "TIME", default_value = "5")]
    pub timeout: String,
    /// Put the serial number into the report
    #[arg(long)]
    pub serial: bool,
    /// Write the report as JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report as a page to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// (For the process that is killed while it writes.)
    #[arg(long, value_name = "SEED", hide = true)]
    pub write_until_killed: Option<u64>,
}
