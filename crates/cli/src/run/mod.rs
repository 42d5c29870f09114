//! `meantime run`: runs a program that finds the file system of a device at a directory.

pub(crate) mod holders;
mod inside;
mod library;
mod mounted;

use std::process::ExitCode;

use crate::cli::RunArgs;
use crate::failure::Failure;

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    if args.inside { inside::run(args) } else { mounted::run(args) }
}
