//! Options of `meantime devices`, `bind` and `unbind`.

use clap::Args;

use super::help::help;

/// Options of `devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// After a crash: give back to the kernel what its program can give back no more
    #[arg(long, long_help = help!("devices", "--repair"))]
    pub repair: bool,
}

/// Options of `bind`.
#[derive(Debug, Args)]
pub(crate) struct BindArgs {
    /// The controller: 0000:01:00.0, 01:00.0, nvme0 or /dev/nvme0n1; several of one IOMMU group
    /// together
    #[arg(value_name = "ADDRESS", required = true)]
    pub devices: Vec<String>,
    /// The user that may use it from then on, without being root
    #[arg(long, value_name = "USER", long_help = help!("bind", "--owner"))]
    pub owner: Option<String>,
    /// Also if a process has it open; never if it is mounted, swapped on or held
    #[arg(long)]
    pub force: bool,
    /// Also without an IOMMU: a wrong address in a command can then overwrite any memory of this
    /// machine
    #[arg(long)]
    pub unsafe_no_iommu: bool,
}

/// Options of `unbind`.
#[derive(Debug, Args)]
pub(crate) struct UnbindArgs {
    /// The controller, as `meantime devices` shows it: 0000:01:00.0 or 01:00.0
    #[arg(value_name = "ADDRESS", required = true)]
    pub devices: Vec<String>,
}
