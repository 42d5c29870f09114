//! Options of `meantime fs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use meantime_completion::Policy;

use super::fs_write::{LnArgs, MkdirArgs, MkfsArgs, MvArgs, PutArgs, RmArgs, TruncateArgs};
use super::help::help;

/// Options of `fs`.
#[derive(Debug, Args)]
pub(crate) struct FsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: FsCommand,
}

/// What to do with a file system.
#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    /// List a directory
    #[command(after_long_help = help!("fs", "ls after"))]
    Ls(LsArgs),
    /// Write a file's contents to standard output
    #[command(after_long_help = help!("fs", "cat after"))]
    Cat(CatArgs),
    /// Show what an inode says: type, mode, owner, size, times, attributes
    #[command(after_long_help = help!("fs", "stat after"))]
    Stat(PlaceArgs),
    /// Copy a file, or with -r a directory, out of the file system
    #[command(long_about = help!("fs", "get about"), after_long_help = help!("fs", "get after"))]
    Get(GetArgs),
    /// Show how full the file system is
    #[command(after_long_help = help!("fs", "df after"))]
    Df(PlaceArgs),
    /// Show what the superblock says, and what the journal held
    #[command(after_long_help = help!("fs", "info after"))]
    Info(PlaceArgs),
    /// Show where a file's data are on the device
    #[command(after_long_help = help!("fs", "extents after"))]
    Extents(PlaceArgs),
    /// Look for damage, and repair nothing
    #[command(long_about = help!("fs", "check about"))]
    #[command(after_long_help = help!("fs", "check after"))]
    Check(CheckArgs),
    /// Copy a file, or with -r a directory, into the file system
    #[command(long_about = help!("fs", "put about"), after_long_help = help!("fs", "put after"))]
    Put(PutArgs),
    /// Remove a file, or with -r a directory
    #[command(after_long_help = help!("fs", "change after"))]
    Rm(RmArgs),
    /// Rename or move something
    #[command(after_long_help = help!("fs", "change after"))]
    Mv(MvArgs),
    /// Make a directory
    #[command(after_long_help = help!("fs", "change after"))]
    Mkdir(MkdirArgs),
    /// Make a link
    #[command(after_long_help = help!("fs", "change after"))]
    Ln(LnArgs),
    /// Set a file's size
    #[command(after_long_help = help!("fs", "change after"))]
    Truncate(TruncateArgs),
    /// Make an empty file system
    #[command(long_about = help!("fs", "mkfs about"), after_long_help = help!("fs", "mkfs after"))]
    Mkfs(MkfsArgs),
}

/// How the file system is mounted.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The file system's block that has the superblock to use: a backup, e.g. 32768
    #[arg(long, value_name = "BLOCK")]
    pub superblock: Option<u64>,
    /// Read on where a checksum is wrong: to rescue what can be
    #[arg(long)]
    pub ignore_checksums: bool,
    /// Memory of the page cache, e.g. 64M; at least 1M
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    pub cache: usize,
    /// How reads wait for the device: poll, interrupt, adaptive, … (see `meantime bench --help`)
    /// [default: adaptive]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
}

/// The size of a page cache, with a unit.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let bytes = meantime_block::parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| *bytes >= 1 << 20)
        .ok_or_else(|| format!("{text:?} is no size of at least 1M; e.g. 64M"))
}

/// Options of `stat`, `df`, `info` and `extents`, and some of `ls`.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The device and the path in it, e.g. file:disk.img:/etc/passwd; without a path, the root
    /// directory
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// What to list.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Mode, links, owner, group, size and time of change (UTC), too
    #[arg(short, long)]
    pub long: bool,
    /// Names that begin with a dot, too
    #[arg(short, long)]
    pub all: bool,
    /// Everything below the directory, each by its path from there
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// Options of `cat`.
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// The device and the path in it, e.g. file:disk.img:/etc/passwd
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The device and the path in it, e.g. file:disk.img:/home
    #[arg(value_name = "DEVICE:/PATH")]
    pub location: OsString,
    /// Where to: a new name, or a directory that is there, to copy into
    #[arg(value_name = "TO", default_value = ".")]
    pub to: PathBuf,
    /// Copy a directory with everything below it
    #[arg(short, long)]
    pub recursive: bool,
    /// Replace files that are there already
    #[arg(short, long)]
    pub force: bool,
    /// How to mount.
    #[command(flatten)]
    pub mount: MountArgs,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The device, e.g. file:disk.img
    #[arg(value_name = "DEVICE")]
    pub location: OsString,
    /// Print JSON instead of a line for each defect
    #[arg(long)]
    pub json: bool,
    /// The file system's block that has the superblock to use: a backup, e.g. 32768
    #[arg(long, value_name = "BLOCK")]
    pub superblock: Option<u64>,
    /// How reads wait for the device: poll, interrupt, adaptive, … (see `meantime bench --help`)
    /// [default: adaptive]
    #[arg(long, value_name = "POLICY")]
    pub completion: Option<Policy>,
}
