//! `meantime mount`, which mounts a file system of ours in the kernel, and `meantime umount`.
//!
//! A background mount is served by a second process, started before any thread or device exists. It
//! reports over its standard output, a pipe to the first process, when the mount answers. Earlier
//! errors it prints itself on standard error, and the first process exits with its exit code.

mod ending;
mod helper;
pub(crate) mod metrics;
mod remount;
mod repair;

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use meantime_block::control::{self, ControlServer};
use meantime_block::{Access, OpenError, OpenOptions};
use meantime_ext4::FileSystem;
use meantime_mount::{Mount, ServeError, Words};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::cli::KernelMountArgs;
use crate::failure::{Context as _, Failure, named, warn};
use crate::partitions::with_file_system;
use crate::signal;

pub(crate) use ending::{KIND, umount};
pub(crate) use helper::run as as_helper;

/// The longest time between two checks for a signal. A signal just before a wait begins does not
/// end this wait.
const LOOK: Duration = Duration::from_secs(1);
/// The line that the background process writes to the pipe when the mount answers.
const READY: &[u8] = b"ready\n";

/// Runs `mount`.
pub(crate) fn mount(args: &KernelMountArgs) -> Result<ExitCode, Failure> {
    if args.repair && !args.announce {
        repair::clear(&args.dir, args.device.is_some())?;
    }
    let Some(device) = &args.device else {
        if args.repair {
            return Ok(ExitCode::SUCCESS);
        }
        return Err(Failure::usage(
            "a device and a directory are needed: meantime mount DEVICE DIR, e.g. meantime mount \
             file:disk.img /mnt",
        ));
    };
    let words = words(device, &args.options)?;
    Mount::check(&args.dir, &words.options).map_err(Failure::new)?;
    if args.foreground || args.announce {
        serve(args, device, &words)
    } else {
        in_background(args, device)
    }
}

/// Parses the options of a mount of `device`.
pub(crate) fn words(device: &str, options: &[String]) -> Result<Words, Failure> {
    let mut words = Words::default();
    device.clone_into(&mut words.options.source);
    for options in options {
        words.obey(options).map_err(Failure::usage)?;
    }
    Ok(words)
}

/// Starts this command again in the background, and waits until the mount answers.
fn in_background(args: &KernelMountArgs, device: &str) -> Result<ExitCode, Failure> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("meantime")
        .args(["mount", device])
        .arg(&args.dir)
        .args(args.options.iter().flat_map(|options| ["-o", options]))
        .args(args.metrics.iter().flat_map(|address| ["--metrics", address]))
        .arg("--announce")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting")?;
    let mut said = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut said).context("starting")?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    // The child has printed why.
    let status = child.wait().context("starting")?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code > 0 => Err(Failure::ended(None, code)),
        _ => Err(Failure::new(format_args!("the process that serves the mount ended: {status}"))),
    }
}

/// Mounts, and serves the mount until it ends.
fn serve(args: &KernelMountArgs, device: &str, words: &Words) -> Result<ExitCode, Failure> {
    if args.announce {
        // A session of its own, so that this process survives the terminal.
        let _ = rustix::process::setsid();
    }
    signal::catch();
    let _control = control();
    let endpoint = crate::metrics::serve(args.metrics.as_deref())?;
    let fs = open(device, words)?;
    let mount = match Mount::new(fs.clone(), &args.dir, &words.options) {
        Ok(mount) => mount,
        Err(error) => {
            // No program has written to the file system yet, so an error of unmounting does not
            // matter.
            let _ = fs.unmount();
            return Err(Failure::new(error));
        }
    };
    let published = metrics::publish(&mount);
    let _held = ending::hold(mount.dir());
    let remounts = remount::listen(mount.dir());
    // If the first process is gone, it was interrupted, and the mount ends again.
    if !args.announce || announce() {
        let asked = remounts.as_ref().map(|listener| listener.as_fd());
        while !mount.wait_beside(asked, LOOK) && !signal::stopped() {
            if let Some(listener) = &remounts {
                remount::serve(listener, &fs, words);
            }
        }
    }
    drop((endpoint, published, fs));
    end(mount)?;
    Ok(ExitCode::SUCCESS)
}

/// Lets `meantime top` find this process while the result lives.
pub(crate) fn control() -> Option<ControlServer> {
    let served = control::own_path().and_then(|path| control::serve(&path));
    served
        .inspect_err(|error| {
            warn(format_args!("`meantime top` cannot look at this process: {error}"));
        })
        .ok()
}

/// Says why a mount takes so long: it watches whether another machine has the file system mounted.
pub(crate) fn tell_of_wait(most: Duration) {
    warn(format_args!(
        "waiting for up to {} s whether somebody else has mounted it: it was not unmounted (mmp)",
        most.as_secs()
    ));
}

/// Opens `device`, and mounts its file system in this process, not yet in the kernel.
pub(crate) fn open(device: &str, words: &Words) -> Result<FileSystem, Failure> {
    let mut file_system = words.file_system.clone();
    // A channel for each thread that may want one.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    file_system.channels = file_system.channels.max(cpus + 2);
    // The other half is for those who wait for the answers.
    file_system.pollers = (cpus / 2).max(1);
    file_system.on_wait = Some(tell_of_wait);
    let access = if file_system.write { Access::ReadWrite } else { Access::Read };
    let access = OpenOptions { access, ..OpenOptions::default() };
    let device = meantime_block::open(device, &access).map_err(|error| match error {
        OpenError::ReadOnly { .. } => Failure::new(format_args!("{error}; -o ro reads it")),
        error => named(device, &error),
    })?;
    let device = with_file_system(device)?;
    FileSystem::mount(device, &file_system).map_err(Failure::new)
}

/// Reports to the first process that the mount answers, and leaves the working directory and the
/// standard streams. Returns false if the first process is gone.
fn announce() -> bool {
    let said = std::io::stdout().write_all(READY).and_then(|()| std::io::stdout().flush());
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(null.as_fd());
        let _ = dup2_stdout(null.as_fd());
        let _ = dup2_stderr(null.as_fd());
    }
    said.is_ok()
}

/// Ends the mount after an unmount from outside, or a signal.
fn end(mount: Mount) -> Result<(), Failure> {
    match mount.unmount() {
        Ok(()) => Ok(()),
        Err((Some(mount), ServeError::Busy { .. })) => {
            let dir = mount.dir().display();
            warn(format_args!("{dir} is in use; what uses it has errors from now on"));
            mount.unmount_by_force().map_err(Failure::new)
        }
        Err((Some(mount), _)) => mount.unmount_by_force().map_err(Failure::new),
        Err((None, error)) => Err(Failure::new(error)),
    }
}
