//! `meantime run`: a program, its children, and a mount that only they see.
//!
//! This process serves the mount, and is the program's parent. The program starts as this command
//! again (`inside`), which enters namespaces of its own, mounts there, and waits until the mount
//! answers. When the last process in the namespaces has ended, the kernel unmounts. If some
//! processes go on after the program, a signal to this process ends them, or at last the mount.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use meantime_block::Uri;
use meantime_ext4::FileSystem;
use meantime_mount::{Mount, Words, namespace};
use rustix::process::Pid;
use rustix::rand::{GetRandomFlags, getrandom};

use super::holders::{Holders, Place};
use super::library;
use crate::cli::RunArgs;
use crate::failure::{Context as _, Failure, warn};
use crate::{metrics, mount, signal};

/// The operation that an error names until the program runs.
pub(super) const STARTING: &str = "starting";

/// How long children may outlive the program before a message says so.
const LEFT_BEHIND: Duration = Duration::from_secs(1);
/// How long the end of a mount may take to be seen here.
const END_SEEN: Duration = Duration::from_millis(50);
/// The longest time between two checks for a signal.
const LOOK: Duration = Duration::from_millis(200);

/// Parses the mount's options.
pub(super) fn words(args: &RunArgs) -> Result<Words, Failure> {
    let mut words = mount::words(&args.device, &args.options)?;
    // Only the program sees the mount; the kernel checks access by owners and modes.
    words.options.allow_other = true;
    words.options.shared_memory_limit = args.shared_memory_limit.map(|bytes| bytes as u64);
    let file_system = &mut words.file_system;
    file_system.cache_bytes = args.cache.unwrap_or(file_system.cache_bytes);
    file_system.policy = args.completion.or(file_system.policy);
    Ok(words)
}

/// Refuses devices that cannot have a file system.
fn check(uri: &str) -> Result<(), Failure> {
    match uri.parse::<Uri>().map_err(Failure::usage)? {
        Uri::Mem { .. } => Err(Failure::usage(format_args!(
            "{uri}: memory begins empty in each process, without a file system; e.g. file:disk.img"
        ))),
        Uri::File { soft, .. } if soft.create_bytes.is_some() => Err(Failure::usage(format_args!(
            "{uri}: a new file has no file system; leave create= out"
        ))),
        _ => Ok(()),
    }
}

/// Returns a name that no other socket has, and that none guesses.
fn socket_name() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).context("random numbers")?;
    let random = u128::from_ne_bytes(bytes);
    Ok(format!("meantime-{}-{random:032x}", std::process::id()))
}

/// Runs the program, and serves its mount.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let mut words = words(args)?;
    if !args.no_shared_memory {
        match library::find() {
            Ok(_) => words.options.shared_memory = Some(socket_name()?),
            Err(why) => {
                why.show();
                warn("the program's data go through the kernel, which takes longer");
            }
        }
    }
    check(&args.device)?;
    let at = Path::new(&args.at);
    if !at.is_absolute() || at.parent().is_none() {
        return Err(Failure::usage(format_args!(
            "--at {}: not the absolute path of a directory below /; e.g. /mnt/meantime",
            at.display()
        )));
    }
    let (ours, theirs) = namespace::sockets().context(STARTING)?;
    signal::catch_for_child();
    // The program's process starts while the device is being opened.
    let mut program =
        Program(inside(args, words.options.shared_memory.as_deref(), theirs).context(STARTING)?);
    signal::forward_to(program.pid());
    let _control = mount::control();
    let endpoint = metrics::serve(args.metrics.as_deref())?;
    let fs = mount::open(&args.device, &words)?;
    let device = match namespace::entered(&ours) {
        Ok(Some(device)) => device,
        // The process has printed why.
        Ok(None) => return nothing_written(fs, program.wait()),
        Err(error) => return nothing_written(fs, Err(error).context(STARTING)),
    };
    let place = Place::of(program.pid());
    let mount = match Mount::in_namespace(fs.clone(), at, &words.options, device) {
        Ok(mount) => mount,
        Err(error) => return nothing_written(fs, Err(Failure::new(error))),
    };
    drop(fs);
    let published = mount::metrics::publish(&mount);
    // If the process was killed in the meantime, `wait` sees it at once.
    let _ = namespace::begin(&ours, std::io::stdin());
    drop(ours);
    let code = program.wait();
    let is_over = wait_for_others(&mount, place.as_ref(), Duration::from_secs(args.grace));
    drop((endpoint, published));
    if is_over {
        mount.unmount().map_err(|(_, error)| Failure::new(error))?;
    } else {
        end_by_force(mount, place.as_ref())?;
    }
    code
}

/// Unmounts. No program has used the file system, so an error of unmounting does not matter.
fn nothing_written(fs: FileSystem, end: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    let _ = fs.unmount();
    end
}

/// Starts this command again, with `socket` as its standard input.
fn inside(args: &RunArgs, name: Option<&str>, socket: OwnedFd) -> std::io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("meantime").args(["run", "--inside", "--device", &args.device, "--at"]);
    command.arg(&args.at);
    for options in &args.options {
        command.args(["-o", options]);
    }
    if let Some(name) = name {
        command.args(["--shared-memory", name]);
    }
    command.arg("--").args(&args.program).stdin(Stdio::from(socket)).spawn()
}

/// The program's process. Dropped before the program begins, it ends because its socket is closed.
struct Program(Child);

impl Program {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Waits until it has ended. Returns the exit code that a shell would return.
    fn wait(&mut self) -> Result<ExitCode, Failure> {
        signal::wait(&mut self.0).map(ExitCode::from).context("waiting for the program")
    }
}

/// Waits until no process has the mount any more, since the program's children may still write. A
/// signal sends them SIGTERM. After `grace`, or with a second signal, it returns false: the mount
/// has to be ended.
fn wait_for_others(mount: &Mount, place: Option<&Place>, grace: Duration) -> bool {
    if mount.wait(LEFT_BEHIND) {
        return true;
    }
    // The number of a mount is reused as soon as the mount has ended. Processes that were found
    // then may have nothing to do with this mount.
    let holders = || {
        let found = place.map_or(Holders::default(), Place::holders);
        if mount.wait(END_SEEN) { Holders::default() } else { found }
    };
    let seconds = grace.as_secs();
    warn(format_args!(
        "the program has ended; what it started goes on and has the file system still ({}); it is \
         waited for. Ctrl-C or SIGTERM has it ended, by SIGTERM; {seconds} s later, or with a second \
         signal, the mount ends",
        holders()
    ));
    let mut deadline: Option<Instant> = None;
    while !mount.wait(LOOK) {
        let is_signalled = signal::take().is_some_and(signal::is_an_end);
        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match deadline {
            Some(_) if is_signalled || is_over => return false,
            None if is_signalled => {
                let asked = holders().end();
                let whom = if asked.is_empty() { "nobody".into() } else { asked.to_string() };
                warn(format_args!(
                    "SIGTERM was sent to {whom}; the mount ends in {seconds} s, or with a second \
                     signal"
                ));
                deadline = Some(Instant::now() + grace);
            }
            _ => {}
        }
    }
    true
}

/// Ends a mount that others have still.
fn end_by_force(mount: Mount, place: Option<&Place>) -> Result<(), Failure> {
    // The end may hang, for example if the device does not answer.
    signal::let_the_next_kill();
    let holders = place.map_or(Holders::default(), Place::holders);
    warn(format_args!(
        "the mount ends; who has it gets errors from now on (ENOTCONN; {holders}): what was written \
         is written to the device, but for mapped files since their last msync, which is lost"
    ));
    mount.unmount_by_force().map_err(Failure::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_without_a_file_system_are_refused() {
        for uri in ["file:d.img?model=optane", "kernel:d.img", "vfio-user:s", "vfio:0000:01:00.0"] {
            check(uri).unwrap();
        }
        for uri in ["mem:64M", "file:d.img?create=1M", "disk.img", "file:d.img?modle=x"] {
            assert!(check(uri).is_err(), "{uri}");
        }
    }
}
