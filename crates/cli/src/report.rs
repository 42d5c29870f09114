//! `meantime report`: a page from the JSON of earlier runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use meantime_report::results::{Report, parse};
use serde_json::Value;

use crate::cli::{ReportArgs, TableArgs};
use crate::failure::{Context as _, Failure};
use crate::machine::PROGRAM;
use crate::output::{self, Tables, Target};

/// The maximum size of a file. No report is this large, but a disk image named by mistake is.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let html = (!args.text).then_some(&*args.html);
    let TableArgs { csv, markdown } = &args.tables;
    let targets =
        [("--html", html), ("--csv", csv.as_deref()), ("--markdown", markdown.as_deref())];
    output::check_distinct(&targets)?;
    for (option, target) in targets {
        let is_replaced = |file: &&PathBuf| target.is_some_and(|of| is_same_file(file, of));
        if let Some(file) = args.files.iter().find(is_replaced) {
            return Err(Failure::usage(format_args!(
                "the report would replace {}, which it is made from; give {option} another file",
                file.display()
            )));
        }
    }
    let files = read_all(&args.files)?;
    let report = Report::new(&files).map_err(Failure::new)?;
    let table = report.text(output::columns());
    let tables = Tables::prepare(&args.tables)?;
    if args.text && !tables.take_stdout() {
        tables.write(&report)?;
        return output::end(table.as_bytes());
    }
    let page = html.map(|path| Target::prepare(path, "the report", "--html")).transpose()?;
    page.as_ref().map_or(Ok(()), |target| target.write(&report.page(PROGRAM)))?;
    tables.write(&report)?;
    match page.as_ref().and_then(|page| page.file.as_ref()) {
        Some(path) if !tables.take_stdout() => {
            output::print(&format!("{table}\nReport: {}\n", path.display()))?;
        }
        _ => eprint!("{table}"),
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
