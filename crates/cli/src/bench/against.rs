//! `bench --against`: runs of another program and of this one in pairs, compared.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use meantime_report::compare::Comparison;
use meantime_report::figures::wrapped;
use meantime_report::results::parse;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Pid;
use serde_json::Value;

use super::{clash, plan};
use crate::cli::BenchArgs;
use crate::compare::judge;
use crate::failure::{Context as _, Failure, warn};
use crate::output::{self, Outputs};
use crate::signal;

/// The usual number of pairs.
const PAIRS: u32 = 10;

/// The options that are for the pairs, not for the single run.
const OF_PAIRS: [&str; 4] = ["--against", "--rounds", "--json", "--fail-if"];

/// Runs the command.
pub(super) fn run(args: &BenchArgs, other: &Path) -> Result<ExitCode, Failure> {
    // What is wrong for this program is said before any run.
    let (jobs, warnings) = plan::jobs(args)?;
    let wanted = jobs.iter().map(|job| plan::wanted(job, args)).collect::<Result<Vec<_>, _>>()?;
    let devices = wanted.iter().flatten().flat_map(|wanted| clash::files_of(&wanted.device));
    let inputs: Vec<PathBuf> = args.job_file.iter().cloned().chain(devices).collect();
    clash::check(&inputs, &clash::named([("--json", &args.json), ("--html", &None)]))?;
    let outputs = Outputs::prepare(args.json.as_deref(), None)?;
    warnings.iter().for_each(warn);
    signal::catch_for_child();

    let words = words_of_one(std::env::args_os().skip(1));
    let name = other.display().to_string();
    // This program stays the same even if its file is replaced meanwhile.
    let programs = [(other, &*name), (Path::new("/proc/self/exe"), "this program")];
    let pairs = args.rounds.unwrap_or(PAIRS);
    let template = "{bar:25} run {pos} of {len}  {elapsed} of {duration}  {wide_msg}";
    let bar = output::progress_bar(Some(2 * u64::from(pairs)), template);
    let mut sides = [Vec::new(), Vec::new()];
    let mut ended = None;
    'pairs: for pair in 0..pairs {
        let mut both = [Value::Null, Value::Null];
        // ABBA: what drifts steadily hits both alike.
        for side in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            bar.set_message(programs[side].1.to_owned());
            bar.tick();
            match one(programs[side], &words).inspect_err(|_| bar.finish_and_clear())? {
                Ok(json) => both[side] = json,
                Err(code) => {
                    ended = Some(code);
                    break 'pairs;
                }
            }
            bar.inc(1);
        }
        for (side, (name, json)) in sides.iter_mut().zip(["before", "after"].into_iter().zip(both))
        {
            side.push((Some(format!("{name} {}", pair + 1)), json));
        }
    }
    bar.finish_and_clear();
    let done = sides[0].len();
    let note = format!("ended by a signal after {done} of {pairs} pairs");
    if done == 0
        && let Some(code) = ended
    {
        return Err(Failure::ended(Some(&note), code));
    }
    let comparison = Comparison::new(&sides[0], &sides[1], true).map_err(Failure::new)?;
    let what = format!("Before: {name}. After: this program. {done} pairs of runs.");
    let columns = output::columns();
    outputs.show(&format!("{}\n\n{}", wrapped(&what, columns), comparison.text(columns)))?;
    outputs.write(|| comparison.json(), String::new)?;
    match ended {
        Some(code) => Err(Failure::ended(Some(&note), code)),
        None => Ok(judge(&comparison, &args.fail_if)),
    }
}

/// Runs `program` once. Returns its JSON, or its exit code if a signal ended it.
fn one((program, name): (&Path, &str), words: &[OsString]) -> Result<Result<Value, u8>, Failure> {
    if let Some(code) = signal::exit_code() {
        return Ok(Err(code));
    }
    let (mut json, mut errors) = (Vec::new(), String::new());
    let mut run = || {
        // Its text goes to a file in memory, which is never full as a pipe may be.
        let mut text = File::from(memfd_create("meantime-bench", MemfdFlags::CLOEXEC)?);
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(text.try_clone()?);
        let mut child = command.spawn()?;
        signal::forward_to(Pid::from_child(&child));
        let read = child.stdout.take().map(|mut stdout| stdout.read_to_end(&mut json));
        let code = signal::wait(&mut child)?;
        read.transpose()?;
        text.rewind()?;
        text.read_to_string(&mut errors).map(|_| code)
    };
    let code: u8 = run().context(name)?;
    let is_an_end = code.checked_sub(128).is_some_and(|of| signal::is_an_end(of.into()));
    if is_an_end {
        return Ok(Err(code));
    }
    if code != 0 {
        let errors = errors.lines().filter_map(|line| line.strip_prefix("meantime: "));
        let status = format!("it ended with status {code}");
        let errors: Vec<&str> = errors.chain([&*status]).collect();
        return Err(Failure::new(format_args!("{name}: {}", errors.join("; "))));
    }
    parse(&json).context(name).map(Ok)
}

/// Returns the words of the command line for a single run, whose JSON goes to standard output.
fn words_of_one(mut all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = all.by_ref().take(1).collect();
    words.extend(["--rounds", "1", "--json", "-"].map(OsString::from));
    while let Some(word) = all.next() {
        let text = word.to_string_lossy().replace('_', "-");
        let name = text.split_once('=').map_or(&*text, |(name, _)| name);
        if !OF_PAIRS.contains(&name) {
            words.push(word);
        } else if name == text {
            // Its value is the next word.
            all.next();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_run_has_the_other_options() {
        let of = |line: &str| {
            let words = words_of_one(line.split(' ').map(OsString::from));
            let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
            words.join(" ")
        };
        assert_eq!(
            of("bench j.fio --against ../old --rounds=3 --json a.json --fail_if p99>+5% --bs 4k"),
            "bench --rounds 1 --json - j.fio --bs 4k"
        );
    }
}
