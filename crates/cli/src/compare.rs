//! `meantime compare`: what a change made faster or slower, by the JSON of runs before and after.

use std::path::PathBuf;
use std::process::ExitCode;

use meantime_report::compare::{Comparison, Condition, Judged};

use crate::cli::CompareArgs;
use crate::failure::{FAILED, FORBIDDEN, Failure};
use crate::{output, report};

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let side = |list: &Option<String>, all: &[PathBuf]| -> Vec<PathBuf> {
        let list = list.iter().flat_map(|list| list.split(',')).map(PathBuf::from);
        list.chain(all.iter().cloned()).collect()
    };
    let before = side(&args.before, &args.all_before);
    let after = side(&args.after, &args.all_after);
    let mut files = report::read_all(&[&before[..], &after].concat())?;
    let after = files.split_off(before.len());
    let comparison = Comparison::new(&files, &after, false).map_err(Failure::new)?;
    let text = match (args.json, args.markdown) {
        (true, _) => output::json_text(&comparison.json()),
        (_, true) => comparison.markdown(),
        _ => comparison.text(output::columns()),
    };
    output::print(&text)?;
    Ok(judge(&comparison, &args.fail_if))
}

/// Judges a comparison by the conditions of `--fail-if`.
pub(crate) fn judge(comparison: &Comparison, conditions: &[Condition]) -> ExitCode {
    let Judged { met, unclear, unknown } = comparison.judge(conditions);
    met.iter().for_each(|line| eprintln!("meantime: --fail-if {line}"));
    unclear.iter().for_each(|line| {
        eprintln!(
            "meantime: --fail-if {line} is beyond the limit, but not clearly: repeat it with more \
             runs"
        );
    });
    unknown.iter().for_each(|line| eprintln!("meantime: --fail-if cannot judge {line}"));
    match (met.is_empty(), unknown.is_empty()) {
        (false, _) => ExitCode::from(FORBIDDEN),
        (true, false) => ExitCode::from(FAILED),
        (true, true) => ExitCode::SUCCESS,
    }
}
