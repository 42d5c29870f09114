//! The engine in the fio of this machine, and where it refuses to work.

mod devices;
mod errors;
mod hosts;
mod io;
mod versions;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The engine that was built for this test, beside it.
fn engine() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libmeantime_fio.so")
}

/// The option that names it. (Each further `--name` of a command line begins without any.)
fn engine_option() -> String {
    format!("--ioengine=external:{}", engine().display())
}

/// A directory for files, in memory.
fn scratch() -> tempfile::TempDir {
    meantime_testkit::image::scratch()
}

/// What fio said.
struct Ran {
    code: Option<i32>,
    /// Its JSON, if a job began.
    json: Value,
    /// All else that it said.
    said: String,
}

impl Ran {
    /// The job `n`, which had no error.
    fn job(&self, n: usize) -> &Value {
        assert_eq!(self.code, Some(0), "{}", self.said);
        let job = &self.json["jobs"][n];
        assert_eq!(job["error"], 0, "{}", self.said);
        job
    }

    /// Asserts that the run failed, and that fio said `what`.
    fn refused(&self, what: &str) {
        assert_ne!(self.code, Some(0), "{}", self.said);
        assert!(self.said.contains(what), "{what:?} is not in {}", self.said);
    }
}

fn output(command: &mut Command) -> Output {
    match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{command:?}: {error}: install it, e.g. by `make setup-test`"),
    }
}

/// A command that runs the program `fio` with the engine. Each line of `options` is one.
fn command(fio: &Path, options: &str) -> Command {
    let mut command = Command::new(fio);
    // (fio would leave files where it runs.)
    command.args(["--name=job", &engine_option(), "--verify_state_save=0"]);
    command.arg("--output-format=json");
    command.args(options.lines().map(str::trim).filter(|line| !line.is_empty()));
    command
}

fn run(fio: &Path, options: &str) -> Ran {
    let output = output(&mut command(fio, options));
    let text = String::from_utf8_lossy(&output.stdout);
    // Notes stand before it.
    let (notes, json) = text.split_at(text.find("{\n").unwrap_or(text.len()));
    let json = if json.is_empty() { Value::Null } else { serde_json::from_str(json).unwrap() };
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    let _ = write!(said, "{notes}");
    Ran { code: output.status.code(), json, said }
}

/// Runs the fio of this machine. Each line of `options` is one; jobs are threads.
fn fio(options: &str) -> Ran {
    run(Path::new("fio"), &format!("--thread=1\n{options}"))
}
