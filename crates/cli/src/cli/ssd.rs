//! Options and texts of `meantime ssd`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ssd_ctl::{self, CtlArgs};

/// Options of `ssd`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SsdArgs {
    #[command(subcommand)]
    pub command: Option<SsdCommand>,
    /// The SSD, e.g. mem:1G?model=optane or file:disk.img?create=1G
    #[arg(value_name = "URI", required = true, long_help = DEVICE)]
    pub device: Option<String>,
    /// The socket that drivers connect to; made by this command and removed at its end
    #[arg(long, value_name = "PATH", required = true, long_help = SOCKET)]
    pub socket: Option<PathBuf>,
    /// A second socket, by which `meantime ssd ctl` injects faults, cuts the power, shows counters
    #[arg(long, value_name = "PATH")]
    pub ctl: Option<PathBuf>,
    /// Permissions of the socket, in octal: who can write to it can connect
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = octal)]
    pub mode: u32,
    /// Give the socket to another user, by name or number (needs root)
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Serial number, up to 20 ASCII characters
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String>,
    /// Keep the SSD's thread looking for doorbells, whatever it costs, instead of letting it sleep
    /// when nothing happens
    #[arg(long)]
    pub never_park: bool,
    /// What to report on standard error while it runs
    #[arg(long, value_name = "WHAT", default_value = "refused", long_help = LOG)]
    pub log: SsdLog,
    /// Say in JSON when it is ready, and what it has done: an object a line
    #[arg(long)]
    pub json: bool,
}

/// What else can be done with software SSDs.
#[derive(Debug, Subcommand)]
pub(crate) enum SsdCommand {
    /// Inject faults into a running SSD, cut its power, look at its counters
    #[command(long_about = ssd_ctl::ABOUT, after_long_help = ssd_ctl::AFTER)]
    Ctl(CtlArgs),
}

/// What is reported while an SSD is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SsdLog {
    /// Nothing.
    None,
    /// Clients as they come and go, and what was refused, with the reason.
    Refused,
}

fn octal(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "three octal digits, e.g. 600 or 660".to_owned())
}

/// `ssd --help`, at the top.
pub(super) const ABOUT: &str = "\
Serves a software SSD over vfio-user: an NVMe controller behind a Unix socket, for drivers in other processes. They see a PCI Express function with \
registers, doorbells, MSI-X and DMA, as of a real SSD; this project's own driver opens it as vfio-user:PATH, SPDK's, QEMU's and Cloud Hypervisor's each in \
their way (below). Neither root nor huge pages are needed; drivers' memory has to be shared memory.

One driver at a time; the next waits until the former has gone. When a driver goes, however it goes, its memory is unmapped and the controller reset; \
the data stays for the next.";

/// `ssd URI`.
const DEVICE: &str = "\
The SSD: mem:SIZE, its medium in memory, or file:PATH, its medium a file. Parameters follow a question mark, joined by &: model, lba, vwc, namespaces \
(mem: only), mdts, boundary, cpu, queues, vectors, strict, create (file: only); see `meantime bench --help`, option --device. In a shell, quote it: ? and & mean \
something to it.";

/// `ssd --socket`.
const SOCKET: &str = "\
The socket that drivers connect to. It is made by this command, with the permissions of --mode, and removed at its end; one that a dead process has left \
is replaced. SPDK wants it to be called cntrl, and is given its directory.";

/// `ssd --log`.
const LOG: &str = "\
What to report on standard error while it runs, a line each. refused: drivers as they come and go, and every command, register or doorbell access and \
message that was refused, with the reason, at most 20 in a fifth of a second; what hosts do when they go away and is harmless is only counted, unless the \
URI says strict=1. Once, if it is so: that the SSD's thread does not get to run, and what would help. none: nothing.";

/// `ssd --help`, at the bottom.
pub(super) const AFTER: &str = "\
DRIVERS
  meantime      --device vfio-user:/run/user/1000/ssd.sock
  SPDK          spdk_nvme_perf … -r 'trtype:VFIOUSER traddr:/run/user/1000/ssd', with the socket
                at /run/user/1000/ssd/cntrl
  QEMU ≥ 10.1   -object memory-backend-memfd,id=m,size=2G,share=on -machine memory-backend=m
                -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"…\"}}'
  Cloud Hypervisor  --memory size=2G,shared=on --user-device socket=…

  Doorbells are shared memory, which the SSD's thread looks at. Where nothing happens for 2 ms it sleeps: a driver of this project wakes it, and for others it \
looks again after 50 µs, and then ever more rarely, up to 1 ms. So the first command after a pause may be seen up to 1 ms late; --never-park spares that, for \
all of a CPU.

OUTPUT
  One line on standard output when drivers can connect, and another at the end: what was done. With --json these are objects: {\"ready\": true, \"device\", \
\"socket\", \"pid\"} and {\"counters\": {…}}. It runs until SIGINT or SIGTERM; then the driver is sent away, what is cached reaches the medium, and the \
socket is removed.

EXAMPLES
  meantime ssd --socket /tmp/ssd.sock 'mem:1G?model=optane'
  meantime ssd --socket /run/ssd/cntrl --mode 660 'file:disk.img?create=8G&lba=4096'
  meantime bench --device vfio-user:/tmp/ssd.sock --rw randread --bs 4k --completion poll

EXIT STATUS
  0 ended by a signal, everything written · 1 an error (one line on standard error) · 2 the command line cannot be obeyed";
