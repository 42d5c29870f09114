//! Runs the real command.

#![allow(dead_code)] // Each test file uses its part.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The command, in `dir`, with its output caught.
pub fn meantime(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meantime"));
    command.current_dir(dir).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a command left.
#[derive(Debug)]
pub struct Ran {
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
pub fn run(dir: &Path, args: &[&str]) -> Ran {
    meantime(dir, args).output().unwrap().into()
}

/// Runs to a successful end.
pub fn succeed(dir: &Path, args: &[&str]) -> Ran {
    let ran = run(dir, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {ran:#?}");
    ran
}

/// The names of the files in `dir`.
pub fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The JSON in a file.
pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
