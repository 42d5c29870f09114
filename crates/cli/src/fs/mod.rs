//! `meantime fs`: file systems read and changed on any device, without the kernel.

mod change;
mod check;
mod extents;
mod get;
mod list;
mod mkfs;
mod names;
mod progress;
mod put;
mod show;
mod trouble;
mod volume;
mod walk;
mod write;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use meantime_block::{Access, Device, OpenOptions};
use meantime_ext4::{Error, FileSystem, FileType, MountOptions, Node};

use crate::cli::{FsArgs, FsCommand, MountArgs};
use crate::failure::{Failure, named};
use crate::location::Location;
use crate::signal;

/// Bytes read from a file at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Runs the command.
pub(crate) fn run(args: &FsArgs) -> Result<ExitCode, Failure> {
    // A device that was taken from the kernel's driver is given back before the end.
    signal::catch();
    match &args.command {
        FsCommand::Ls(args) => list::run(args),
        FsCommand::Cat(args) => show::cat(args),
        FsCommand::Stat(args) => show::stat(args),
        FsCommand::Get(args) => get::run(args),
        FsCommand::Df(args) => volume::df(args),
        FsCommand::Info(args) => volume::info(args),
        FsCommand::Extents(args) => extents::run(args),
        FsCommand::Check(args) => check::run(args),
        FsCommand::Put(args) => put::run(args),
        FsCommand::Rm(args) => change::rm(args),
        FsCommand::Mv(args) => change::mv(args),
        FsCommand::Mkdir(args) => change::mkdir(args),
        FsCommand::Ln(args) => change::ln(args),
        FsCommand::Truncate(args) => change::truncate(args),
        FsCommand::Mkfs(args) => mkfs::run(args),
    }
}

pub(crate) fn open(uri: &str, access: Access) -> Result<Device, Failure> {
    let options = OpenOptions { access, ..OpenOptions::default() };
    meantime_block::open(uri, &options).map_err(|error| named(uri, &error))
}

/// Mounts the file system on the device of `location`, and returns the parsed `location`.
fn mount(location: &OsStr, args: &MountArgs) -> Result<(FileSystem, Location), Failure> {
    let location = Location::parse(location)?;
    let options = MountOptions {
        policy: args.completion,
        cache_bytes: args.cache,
        ignore_checksums: args.ignore_checksums,
        superblock: args.superblock,
        ..MountOptions::default()
    };
    let device = open(&location.device, Access::Read)?;
    let fs = FileSystem::mount(device, &options).map_err(Failure::new)?;
    Ok((fs, location))
}

/// Returns the node that `path` leads to; through a link at its end if `follow`.
fn resolve(fs: &FileSystem, path: &Path, follow: bool) -> Result<Node, Error> {
    fs.resolve(&fs.root()?, path, follow)
}

/// Returns the failure for `error`, which occurred at `place`.
fn failed(place: impl std::fmt::Display, error: &Error) -> Failure {
    Failure::new(format_args!("{place}: {error}"))
}

/// Returns a file's type, in JSON.
fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Character => "character",
        FileType::Block => "block",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}
