//! Options of `meantime mount` and `meantime umount`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser};

use super::help::help;

/// Options of `mount`.
#[derive(Debug, Default, Args)]
// With --repair there may be no device: the one place that is given is the directory then.
#[command(allow_missing_positional = true)]
pub(crate) struct KernelMountArgs {
    /// The device with the ext4 file system, e.g. file:disk.img
    #[arg(value_name = "DEVICE", long_help = help!("mount", "DEVICE"))]
    pub device: Option<String>,
    /// The directory at which it is mounted
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS", long_help = help!("mount", "-o"))]
    pub options: Vec<String>,
    /// Stay in the foreground until it is unmounted
    #[arg(short, long)]
    pub foreground: bool,
    /// Serve what is counted for Prometheus, e.g. at 127.0.0.1:9100 or unix:/run/meantime.sock
    #[arg(long, value_name = "ADDR", long_help = help!("top", "--metrics"))]
    pub metrics: Option<String>,
    /// Remove a mount whose server was killed first
    #[arg(long, long_help = help!("mount", "--repair"))]
    pub repair: bool,
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

/// What mount(8) gives to the program that mounts a type of file system for it
/// (`mount.fuse.meantime`). What it does not, it leaves out.
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.meantime", disable_help_flag = true)]
pub(crate) struct MountHelperArgs {
    pub source: String,
    pub dir: PathBuf,
    #[arg(short = 'o')]
    pub options: Vec<String>,
    /// Only look whether it could be mounted.
    #[arg(short = 'f')]
    pub fake: bool,
    /// Unknown options are ignored.
    #[arg(short = 's')]
    pub sloppy: bool,
    #[arg(short = 'v')]
    pub verbose: bool,
    /// No entry in /etc/mtab: there is none.
    #[arg(short = 'n')]
    pub no_mtab: bool,
    #[arg(short = 'N')]
    pub namespace: Option<OsString>,
    #[arg(short = 't')]
    pub kind: Option<OsString>,
}

/// The same for umount(8) (`umount.fuse.meantime`).
#[derive(Debug, Parser)]
#[command(name = "umount.fuse.meantime", disable_help_flag = true)]
pub(crate) struct UmountHelperArgs {
    pub dir: PathBuf,
    #[arg(short = 'f')]
    pub force: bool,
    #[arg(short = 'l')]
    pub lazy: bool,
    #[arg(short = 'n')]
    pub no_mtab: bool,
    /// Mount for reading if it cannot be unmounted: it is an error instead.
    #[arg(short = 'r')]
    pub read_only: bool,
    #[arg(short = 'v')]
    pub verbose: bool,
    #[arg(short = 'N')]
    pub namespace: Option<OsString>,
    #[arg(short = 't')]
    pub kind: Option<OsString>,
}
