//! `meantime ssd`: software SSDs.

mod ctl;

use crate::cli::{SsdArgs, SsdCommand};
use crate::failure::Failure;
use std::process::ExitCode;

/// Runs the command.
pub fn run(args: &SsdArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        SsdCommand::Ctl(args) => ctl::run(args),
    }
}
