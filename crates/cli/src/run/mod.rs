//! `meantime run`: runs a program that finds the file system of a device at a directory.

mod device;
pub(crate) mod holders;
mod in_process;
mod inside;
mod library;
mod mounted;
mod program;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use meantime_posix::MountPoint;

use crate::cli::RunArgs;
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    if args.private {
        let mount_point = MountPoint::new(args.at.as_bytes()).map_err(Failure::usage)?;
        in_process::run(args, mount_point)
    } else if args.inside {
        inside::run(args)
    } else {
        mounted::run(args)
    }
}

/// Returns `name` as an absolute path, relative to this command's working directory.
fn absolute(name: &OsStr) -> Result<PathBuf, Failure> {
    std::path::absolute(name)
        .map_err(|error| Failure::new(format_args!("{}: {error}", name.display())))
}
