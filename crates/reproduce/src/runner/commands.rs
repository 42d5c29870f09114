//! Commands as processes.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{RunError, Runner};
use crate::guest::{Boot, Guest};

/// The time after which a command counts as hung. No command of an experiment takes this long.
const LIMIT: Duration = Duration::from_secs(600);
/// Time for a command to end by itself when the run is to stop.
const GRACE: Duration = Duration::from_secs(10);
/// Time between two looks at a command. Each look takes a CPU from what is measured.
const LOOK: Duration = Duration::from_millis(50);

/// Starts commands, and remembers their command lines.
#[derive(Debug)]
pub struct Commands<'a> {
    program: PathBuf,
    stop: &'a AtomicBool,
    lines: Vec<String>,
    guest: Option<Guest>,
}

impl<'a> Commands<'a> {
    /// Creates a runner that starts `program`, the `meantime` command, until `stop` is set. `guest`
    /// has the figures of a virtual machine.
    pub fn new(program: PathBuf, stop: &'a AtomicBool, guest: Option<Guest>) -> Self {
        Self { program, stop, lines: Vec::new(), guest }
    }

    /// Returns how many boots of the virtual machine there are.
    pub fn boots(&self) -> usize {
        self.guest.as_ref().map_or(0, Guest::boots)
    }

    /// Returns the command lines since the last call, each once.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn output(&mut self, mut command: Command, line: String) -> Result<String, RunError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let failed = |message: String| RunError::Failed { command: line.clone(), message };
        let io = |error: std::io::Error| failed(error.to_string());
        // The output goes to files: a pipe would fill up unless a thread read it.
        let [mut out, mut message] =
            [tempfile::tempfile().map_err(io)?, tempfile::tempfile().map_err(io)?];
        command.stdin(Stdio::null());
        command.stdout(out.try_clone().map_err(io)?).stderr(message.try_clone().map_err(io)?);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                RunError::Missing(format!("there is no {:?} here", command.get_program()))
            }
            _ => failed(error.to_string()),
        })?;
        let status = self.wait(&mut child);
        let (out, message) = (text(&mut out).map_err(io)?, text(&mut message).map_err(io)?);
        if self.stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        match status {
            Err(message) => Err(failed(message)),
            Ok(true) => {
                if !self.lines.contains(&line) {
                    self.lines.push(line);
                }
                Ok(out)
            }
            Ok(false) => Err(failed(message.trim().to_owned())),
        }
    }

    /// Waits until `child` has ended. Ends it after a limit, or when the run is to stop and it does
    /// not stop by itself, as it does by Ctrl-C.
    fn wait(&self, child: &mut Child) -> Result<bool, String> {
        let mut limit = Instant::now() + LIMIT;
        let mut stops = false;
        loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Ok(status.success());
            }
            if !stops && self.stop.load(Ordering::Relaxed) {
                (stops, limit) = (true, Instant::now() + GRACE);
            }
            if Instant::now() > limit {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {} s", LIMIT.as_secs()));
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn text(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Runner for Commands<'_> {
    fn json(&mut self, args: &[String]) -> Result<Value, RunError> {
        let line = format!("meantime {}", args.join(" "));
        let mut command = Command::new(&self.program);
        command.args(args).arg("--json");
        // These two print JSON instead of text; the others write it to the given file, here `-`.
        if !["calibrate", "info"].contains(&args[0].as_str()) {
            command.arg("-");
        }
        let out = self.output(command, line.clone())?;
        serde_json::from_str(&out).map_err(|error| RunError::Failed {
            command: line,
            message: format!("its output is no JSON: {error}"),
        })
    }

    fn text(&mut self, program: &str, args: &[String]) -> Result<String, RunError> {
        let mut command = match program {
            "meantime" => Command::new(&self.program),
            other => Command::new(other),
        };
        command.args(args);
        self.output(command, format!("{program} {}", args.join(" ")))
    }

    fn guest(&mut self, kernel: &str, at: usize) -> Result<Boot, RunError> {
        let guest = self.guest.as_ref().ok_or_else(|| {
            RunError::Missing("no figures of a virtual machine: `make reproduce` has them".into())
        })?;
        let boot = guest.boot(kernel, at).ok_or_else(|| {
            RunError::Missing(format!("the virtual machine had no boot of Linux {kernel}"))
        })?;
        if !self.lines.contains(&guest.command) {
            self.lines.push(guest.command.clone());
        }
        Ok(boot)
    }
}
