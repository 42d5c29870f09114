//! `meantime report`: a page from the JSON of earlier runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use meantime_report::results::{Report, parse};
use serde_json::Value;

use crate::cli::ReportArgs;
use crate::failure::{Context as _, Failure};
use crate::machine::PROGRAM;
use crate::output::{self, Target};

/// The maximum size of a file. No report is this large, but a disk image named by mistake is.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let replaced = args.files.iter().find(|file| !args.text && is_same_file(file, &args.html));
    if let Some(file) = replaced {
        return Err(Failure::usage(format_args!(
            "the report would replace {}, which it is made from; give --html another file",
            file.display()
        )));
    }
    let files = read_all(&args.files)?;
    let report = Report::new(&files).map_err(Failure::new)?;
    let table = report.text(output::columns());
    if args.text {
        return output::end(table.as_bytes());
    }
    let target = Target::prepare(&args.html, "the report", "--html")?;
    target.write(&report.page(PROGRAM))?;
    match &target.file {
        None => eprint!("{table}"),
        Some(path) => output::print(&format!("{table}\nReport: {}\n", path.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads files, each once, with their paths.
pub(crate) fn read_all(files: &[PathBuf]) -> Result<Vec<(Option<String>, Value)>, Failure> {
    for (at, file) in files.iter().enumerate() {
        if files[..at].iter().any(|other| is_same_file(file, other)) {
            return Err(Failure::usage(format_args!("{} is named twice", file.display())));
        }
    }
    files.iter().map(|file| Ok((Some(file.display().to_string()), read(file)?))).collect()
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let shown = path.display();
    let bytes = output::read_up_to(path, FILE_MAX_BYTES);
    parse(&bytes.context(format_args!("cannot read {shown}"))?).context(shown)
}
