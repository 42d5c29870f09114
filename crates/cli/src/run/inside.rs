//! The process that becomes the program, in namespaces of its own, where the file system is
//! mounted.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use meantime_mount::namespace;
use rustix::stdio::dup2_stdin;

use super::library;
use super::mounted::{STARTING, words};
use crate::cli::RunArgs;
use crate::failure::{Context as _, FAILED, Failure};

/// The shells' exit code for a program that does not exist.
const NOT_FOUND: u8 = 127;
/// The shells' exit code for a program that cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// Becomes the program when the mount answers. Standard input is the socket until then.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    // This process has just started, and has one thread.
    let options = words(args)?.options;
    // The library is looked for before this process has other mounts: in a chroot the kernel names
    // this command by the path outside from then on.
    let library = args.shared_memory.as_ref().map(|_| library::find()).transpose()?;
    let entered = namespace::enter(Path::new(&args.at), &options, rustix::stdio::stdin())
        .map_err(Failure::new)?;
    let Some(stdin) = entered.wait().context(STARTING)? else {
        // The other process has printed why.
        return Ok(ExitCode::from(FAILED));
    };
    dup2_stdin(&stdin).map_err(std::io::Error::from).context(STARTING)?;
    drop(stdin);
    let Some((name, rest)) = args.program.split_first() else {
        return Err(Failure::usage("no program given"));
    };
    let mut command = Command::new(name);
    command.args(rest);
    if let (Some(socket), Some(library)) = (&args.shared_memory, &library) {
        let mount = std::fs::metadata(&args.at).context(STARTING)?;
        command.env(meantime_shm_rpc::VARIABLE, format!("{}:{socket}", mount.dev()));
        command.env("LD_PRELOAD", library::preloaded(library));
    }
    // `exec` returns only if it fails.
    Err(cannot_start(name, &command.exec()))
}

fn cannot_start(name: &OsStr, error: &std::io::Error) -> Failure {
    let shown = name.display();
    let is_missing = error.kind() == std::io::ErrorKind::NotFound;
    if is_missing && !name.as_encoded_bytes().contains(&b'/') {
        let text = format_args!("{shown}: there is no such program in PATH");
        return Failure::new(text).with_code(NOT_FOUND);
    }
    let code = if is_missing { NOT_FOUND } else { CANNOT_EXECUTE };
    Failure::new(format_args!("{shown}: {error}")).with_code(code)
}
