//! `meantime run`: a program, those that it starts, and a mount that only they see.
//!
//! This process serves the mount, and is the program's parent. The program begins as this same
//! command once more (`inside`), which goes into namespaces of its own, mounts there, and waits
//! until the mount answers. When the last process in them has ended, the kernel unmounts.

use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use meantime_ext4::FileSystem;
use meantime_mount::{Mount, Words, namespace};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::device;
use crate::cli::RunArgs;
use crate::failure::{FAILED, Failure, warn};
use crate::{mount, signal};

/// How long what the program has started may go on after it before that is worth a message.
const LEFT_BEHIND: Duration = Duration::from_secs(1);
/// The longest time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(200);

/// What the options say of the mount.
pub(super) fn words(args: &RunArgs) -> Result<Words, Failure> {
    let mut words = Words::default();
    words.options.source.clone_from(&args.device);
    // Nobody else sees it. What a program may do there, the kernel decides by owners and modes.
    words.options.allow_other = true;
    for options in &args.options {
        words.obey(options).map_err(Failure::usage)?;
    }
    let file_system = &mut words.file_system;
    file_system.cache_bytes = args.cache.unwrap_or(file_system.cache_bytes);
    file_system.policy = args.completion.or(file_system.policy);
    Ok(words)
}

/// Runs the program, and serves its mount.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let words = words(args)?;
    device::check(&args.device)?;
    let at = Path::new(&args.at);
    if !at.is_absolute() || at.parent().is_none() {
        return Err(Failure::usage(format_args!(
            "--at {}: not the absolute path of a directory below /; e.g. /mnt/meantime",
            at.display()
        )));
    }
    let failed = |error: std::io::Error| Failure::new(format_args!("starting: {error}"));
    let (ours, theirs) = namespace::sockets().map_err(failed)?;
    signal::catch_for_child();
    // It begins while the device is being opened.
    let mut program = Program(inside(args, theirs).map_err(failed)?);
    signal::forward_to(program.pid());
    let fs = mount::open(&args.device, &words)?;
    let device = match namespace::entered(&ours) {
        Ok(Some(device)) => device,
        // It has said why.
        Ok(None) => return nothing_written(fs, program.wait()),
        Err(error) => return nothing_written(fs, Err(failed(error))),
    };
    let names = program.names();
    let mount = match Mount::in_namespace(fs.clone(), at, &words.options, device) {
        Ok(mount) => mount,
        Err(error) => return nothing_written(fs, Err(Failure::new(error))),
    };
    drop(fs);
    // If it has been killed in the meantime, that is seen at once.
    let _ = namespace::begin(&ours, std::io::stdin());
    drop(ours);
    let code = program.wait();
    wait_for_others(&mount, names.as_deref());
    mount.unmount().map_err(|(_, error)| Failure::new(error))?;
    code
}

/// No program has used it: what unmounting finds is of no use to anybody.
fn nothing_written(fs: FileSystem, end: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    let _ = fs.unmount();
    end
}

/// This command once more, with `socket` as its standard input.
fn inside(args: &RunArgs, socket: OwnedFd) -> std::io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("meantime").args(["run", "--inside", "--device", &args.device, "--at"]);
    command.arg(&args.at);
    for options in &args.options {
        command.args(["-o", options]);
    }
    command.arg("--").args(&args.program).stdin(Stdio::from(socket)).spawn()
}

/// The program's process. Dropped before it has begun, it ends: its socket is closed.
struct Program(Child);

impl Program {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Its mount namespace, by which those that it starts are known.
    fn names(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/ns/mnt", self.0.id())).ok()
    }

    /// Waits until it has ended: the exit code a shell has for that.
    fn wait(&mut self) -> Result<ExitCode, Failure> {
        // Signals are passed on until it has ended, and not any more when its number is free.
        let until_it_ends = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waited = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.pid()), until_it_ends));
        signal::forward_to_none();
        let status = waited.map_err(std::io::Error::from).and_then(|_| self.0.wait());
        let status = status
            .map_err(|error| Failure::new(format_args!("waiting for the program: {error}")))?;
        Ok(ExitCode::from(code(status)))
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// Waits until nobody sees the mount any more: what the program has started may still write. A
/// signal ends that, too.
fn wait_for_others(mount: &Mount, names: Option<&Path>) {
    if mount.wait(LEFT_BEHIND) {
        return;
    }
    let others = || names.map(with_names).unwrap_or_default();
    let listed: Vec<_> = others().iter().map(ToString::to_string).collect();
    warn(format_args!(
        "the program has ended; what it started goes on and has the file system still (process {}); \
         it is waited for, and Ctrl-C or SIGTERM ends it",
        listed.join(", ")
    ));
    while !mount.wait(LOOK) {
        if signal::take().is_some() {
            for process in others() {
                let _ = kill_process(process, Signal::TERM);
            }
        }
    }
}

/// The processes whose mount namespace is `names`.
fn with_names(names: &Path) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let all = entries.filter_map(|entry| number(entry.ok()?));
    let is_there = |pid: &i32| {
        std::fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|other| other == names)
    };
    all.filter(is_there).filter_map(Pid::from_raw).collect()
}
