//! `meantime fs`: file systems read and changed on any device, without the kernel.

mod change;
mod check;
mod extents;
mod get;
mod list;
mod mkfs;
mod mounted;
mod names;
mod progress;
mod put;
mod show;
mod trouble;
mod volume;
mod walk;

use std::process::ExitCode;

use crate::cli::{FsArgs, FsCommand};
use crate::failure::Failure;
use crate::signal;

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
