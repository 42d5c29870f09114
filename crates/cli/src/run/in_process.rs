//! `meantime run --private`: the program reads the files itself, through a preloaded library.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use meantime_posix::MountPoint;
use meantime_posix::settings::Settings;

use super::{device, program};
use crate::cli::RunArgs;
use crate::failure::{Failure, warn};

/// The library's file name.
const LIBRARY: &str = "libmeantime_preload.so";
/// The variable that names another library.
const LIBRARY_VARIABLE: &str = "MEANTIME_PRELOAD";

/// Becomes the program.
pub(super) fn run(args: &RunArgs, mount_point: MountPoint) -> Result<ExitCode, Failure> {
    let device = device::for_programs(&args.device)?;
    let settings =
        Settings { device, mount_point, cache_bytes: args.cache, policy: args.completion };
    let library = library()?;
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
    command.env("LD_PRELOAD", preloaded(&library));
    // `exec` returns only if it fails.
    let error = command.exec();
    Err(Failure::new(format_args!("{}: {error}", path.display()))
        .with_code(program::CANNOT_EXECUTE))
}

/// Returns the value of LD_PRELOAD: our library first, since other ones may want to see the calls
/// that ours passes on.
fn preloaded(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// Returns the library's path: the variable's, else beside this command, or where it is installed.
fn library() -> Result<PathBuf, Failure> {
    let found = match std::env::var_os(LIBRARY_VARIABLE) {
        Some(path) => {
            let path = PathBuf::from(path);
            if !path.is_file() {
                return Err(Failure::new(format_args!(
                    "{LIBRARY_VARIABLE}={}: no such file",
                    path.display()
                )));
            }
            path
        }
        None => {
            let command = std::env::current_exe().map_err(|error| {
                Failure::new(format_args!("finding this command's own file: {error}"))
            })?;
            let beside = command.parent().unwrap_or(Path::new("/"));
            let places = ["", "deps", "../lib/meantime"];
            let places = places.map(|place| beside.join(place).join(LIBRARY));
            places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
                Failure::new(format_args!(
                    "{LIBRARY} is not beside {} nor in ../lib/meantime: build it (`make build`), \
                     or name it by {LIBRARY_VARIABLE}",
                    command.display()
                ))
            })?
        }
    };
    let path = found
        .canonicalize()
        .map_err(|error| Failure::new(format_args!("{}: {error}", found.display())))?;
    if path.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b':') {
        let place = path.display();
        return Err(Failure::new(format_args!(
            "{place}: LD_PRELOAD cannot hold a path with a space or a colon; put the library \
             elsewhere and name it by {LIBRARY_VARIABLE}"
        )));
    }
    Ok(path)
}
