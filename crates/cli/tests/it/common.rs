//! Runs the real command.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The command, in `dir`, with its output caught.
pub(crate) fn meantime(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meantime"));
    command
        .current_dir(dir)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs to the end.
pub(crate) fn run(dir: &Path, args: &[&str]) -> Ran {
    meantime(dir, args).output().unwrap().into()
}

/// Runs to a successful end.
pub(crate) fn succeed(dir: &Path, args: &[&str]) -> Ran {
    let ran = run(dir, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {ran:#?}");
    ran
}

/// Waits until `child` catches SIGINT, which it does before it begins with anything.
pub(crate) fn await_handler(child: &mut Child) {
    let status = format!("/proc/{}/status", child.id());
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        if u64::from_str_radix(mask.trim(), 16).unwrap_or(0) & 1 << 1 != 0 {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        assert!(start.elapsed() < Duration::from_secs(60), "it catches no SIGINT");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs it until SIGINT, some time after it has begun. What it had measured until then has to be
/// `enough`: where it has not got far, once more for longer.
pub(crate) fn interrupted(dir: &Path, args: &[&str], enough: impl Fn(&Ran) -> bool) -> Ran {
    let mut last = None;
    for seconds in [2, 6, 30] {
        let mut child = meantime(dir, args).spawn().unwrap();
        await_handler(&mut child);
        std::thread::sleep(Duration::from_secs(seconds));
        let start = Instant::now();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ran: Ran = child.wait_with_output().unwrap().into();
        assert!(start.elapsed() < Duration::from_secs(60), "it goes on: {ran:?}");
        assert_eq!(ran.code, Some(130), "{ran:?}");
        if enough(&ran) {
            return ran;
        }
        last = Some(ran);
    }
    panic!("too little was measured: {last:#?}");
}

/// The names of the files in `dir`.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The JSON in a file.
pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
