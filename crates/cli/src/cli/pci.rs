//! Options and texts of `meantime devices`, `bind` and `unbind`.

use clap::Args;

/// Options of `devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// After a crash: give back to the kernel what its program can give back no more
    #[arg(long, long_help = REPAIR)]
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
    #[arg(long, value_name = "USER", long_help = OWNER)]
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

/// `devices --help`, at the top.
pub(super) const DEVICES_ABOUT: &str = "\
Shows every NVMe controller on PCI: model, size, the driver in charge, its IOMMU group and what else is in it, and what uses it: mounts (those \
of containers, too), swap, devices made of it, programs. Changes nothing without --repair.";

/// `devices --repair`.
const REPAIR: &str = "\
First gives back to the kernel's driver what its program can give back no more: controllers whose program was killed, that a `bind` or `unbind` left \
half-way, or that have no driver at all. What is bound, and what a living program uses, is left alone. Needs root. Can be repeated.";

/// `devices --help`, at the bottom.
pub(super) const DEVICES_AFTER: &str = "\
OUTPUT
  A row for each controller:

    address       PCI domain, bus, device and function
    name          the kernel's name, while its driver has the controller
    model         model, and below it the PCIe link and the NUMA node
    size          of all namespaces together, and how many there are
    driver        what drives it: nvme is the kernel, vfio-pci is user space
    IOMMU group   its number, and the others in it: all of a group must leave their kernel drivers. none: the IOMMU is off
    used by       what keeps it from being taken, by block device. \"open in\" only warns: --force overrides it. Or who took it

  With --json an object with devices, and with --repair repaired.

EXAMPLES
  meantime devices
  meantime devices --json
  sudo meantime devices --repair

EXIT STATUS
  0 shown, or repaired · 1 something could not be repaired (a line each on standard error) · 2 the command line cannot be obeyed";

/// `bind --help`, at the top.
pub(super) const BIND_ABOUT: &str = "\
Hands an NVMe controller to user space (vfio-pci), until `meantime unbind` or the next boot. The kernel's block devices of it go away for that time.

Refuses what is mounted, swapped on, or part of something else, and what shares its IOMMU group with a device that a kernel driver has; then nothing is \
changed. If something fails half-way, everything is put back.

Needed only to use a controller without being root, or by several programs in turn: a program that is root and opens vfio:ADDRESS takes the \
controller by itself, and gives it back when it ends.";

/// `bind --owner`.
const OWNER: &str = "\
The user that may use it from then on, by name or number, without being root. All that is written to or read from the SSD goes through memory that is locked: \
that user's RLIMIT_MEMLOCK (`ulimit -l`) must allow it.";

/// `bind --help`, at the bottom.
pub(super) const BIND_AFTER: &str = "\
OUTPUT
  What was done, and how to go on.

EXAMPLES
  sudo meantime bind 0000:01:00.0 --owner $USER
  meantime bench jobs/qd1.fio --device vfio:0000:01:00.0
  sudo meantime unbind 0000:01:00.0

EXIT STATUS
  0 bound, or it was before · 1 an error (one line on standard error), and everything is as it was · 2 the command line cannot be obeyed · 130 Ctrl-C, and \
everything is as it was";

/// `unbind --help`, at the top.
pub(super) const UNBIND_ABOUT: &str = "\
Gives an NVMe controller back to the driver that had it before `meantime bind`, or to the one that the kernel chooses, and waits until its block devices are \
there again.";

/// `unbind --help`, at the bottom.
pub(super) const UNBIND_AFTER: &str = "\
OUTPUT
  The driver that has it, and the block devices.

EXAMPLES
  sudo meantime unbind 0000:01:00.0

EXIT STATUS
  0 it is with the kernel · 1 an error (one line on standard error) · 2 the command line cannot be obeyed";
