//! `meantime run --private`: the program reads the files itself, through a preloaded library.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use meantime_posix::MountPoint;
use meantime_posix::settings::Settings;

use super::library::Library;
use super::{device, library, program};
use crate::cli::RunArgs;
use crate::failure::{Failure, warn};

/// Becomes the program.
pub(super) fn run(args: &RunArgs, mount_point: MountPoint) -> Result<ExitCode, Failure> {
    let device = device::for_programs(&args.device)?;
    let settings =
        Settings { device, mount_point, cache_bytes: args.cache, policy: args.completion };
    let library = Library::PRIVATE.find()?;
    let Some((name, rest)) = args.program.split_first() else {
        return Err(Failure::usage("no program given"));
    };
    let path = program::find(name, &settings.mount_point)?;
    if let Some(reason) = program::not_reached(&path) {
        warn(format_args!("{}: {reason}; it sees no files of {}", path.display(), args.device));
    }
    // Reports errors of device and file system here; in the program they could only be an errno.
    drop(settings.mount().map_err(|error| {
        let text = error.to_string();
        if text.contains(&settings.device) || text.contains(&args.device) {
            Failure::new(text)
        } else {
            Failure::new(format_args!("{}: {text}", args.device))
        }
    })?);
    let mut command = Command::new(&path);
    command.arg0(name).args(rest).envs(settings.to_environment());
    command.env("LD_PRELOAD", library::preloaded(&library));
    // `exec` returns only if it fails.
    let error = command.exec();
    Err(Failure::new(format_args!("{}: {error}", path.display()))
        .with_code(program::CANNOT_EXECUTE))
}
