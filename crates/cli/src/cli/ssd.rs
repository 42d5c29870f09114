//! Options of `meantime ssd`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::help::help;

/// Options of `ssd`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SsdArgs {
    #[command(subcommand)]
    pub command: Option<SsdCommand>,
    /// The SSD, e.g. mem:1G?model=optane or file:disk.img?create=1G
    #[arg(value_name = "URI", required = true, long_help = help!("ssd", "URI"))]
    pub device: Option<String>,
    /// The socket that drivers connect to; made by this command and removed at its end
    #[arg(long, value_name = "PATH", long_help = help!("ssd", "--socket"))]
    pub socket: Option<PathBuf>,
    /// Serve over NVMe/TCP instead, at this address, e.g. 127.0.0.1:4420
    #[arg(
        long,
        value_name = "ADDR[:PORT]",
        conflicts_with_all = ["socket", "mode", "owner"],
        long_help = help!("ssd", "--tcp")
    )]
    pub tcp: Option<String>,
    /// NQN of the subsystem that --tcp serves
    #[arg(long, value_name = "NQN", requires = "tcp")]
    pub nqn: Option<String>,
    /// With --tcp: only hosts with this NQN may connect; may be repeated
    #[arg(long, value_name = "NQN", requires = "tcp")]
    pub host: Vec<String>,
    /// With --tcp: only hosts with a line in this file may connect, and have to prove that they
    /// know their key (DH-HMAC-CHAP)
    #[arg(long, value_name = "FILE", requires = "tcp", long_help = help!("ssd", "--dhchap-keys"))]
    pub dhchap_keys: Option<PathBuf>,
    /// With --tcp: serve hosts that prove nothing at an address that others than this machine can
    /// reach
    #[arg(long, alias = "allow", requires = "tcp")]
    pub allow_insecure: bool,
    /// With --tcp: faults of the network to inject, e.g. delay=2ms,drop=1/1000
    #[arg(long, value_name = "PLAN", requires = "tcp", long_help = help!("ssd", "--net-faults"))]
    pub net_faults: Option<String>,
    /// A second socket, by which `meantime ssd ctl` injects faults, cuts the power, shows counters
    #[arg(long, value_name = "PATH")]
    pub ctl: Option<PathBuf>,
    /// Serve what is counted for Prometheus, e.g. at 127.0.0.1:9100 or unix:/run/meantime.sock
    #[arg(long, value_name = "ADDR", long_help = help!("top", "--metrics"))]
    pub metrics: Option<String>,
    /// Permissions of the socket, in octal: who can write to it can connect
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = octal)]
    pub mode: u32,
    /// Give the socket to another user, by name or number (needs root)
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// Serial number, up to 20 ASCII characters
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String>,
    /// Keep the SSD's thread looking for work, whatever it costs, instead of letting it sleep when
    /// nothing happens
    #[arg(long)]
    pub never_park: bool,
    /// What to report on standard error while it runs
    #[arg(long, value_name = "WHAT", default_value = "refused", long_help = help!("ssd", "--log"))]
    pub log: SsdLog,
    /// Say in JSON when it is ready, and what it has done: an object a line
    #[arg(long)]
    pub json: bool,
}

/// What else can be done with software SSDs.
#[derive(Debug, Subcommand)]
pub(crate) enum SsdCommand {
    /// Inject faults into a running SSD, cut its power, look at its counters
    #[command(long_about = help!("ssd", "ctl about"), after_long_help = help!("ssd", "ctl after"))]
    Ctl(CtlArgs),
}

/// Options of `ssd ctl`.
#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The SSD's control socket
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// What to say, e.g. faults add lost-completion opcode=read times=1
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub words: Vec<String>,
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
