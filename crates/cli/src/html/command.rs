//! `meantime report`: a page from the JSON of earlier runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use super::{build, page, text};
use crate::cli::ReportArgs;
use crate::failure::Failure;
use crate::output::{self, HtmlTarget};

/// No report is so large; a disk image named by mistake is.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// Runs the command.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    for (at, file) in args.files.iter().enumerate() {
        let same = |other: &PathBuf| is_same_file(file, other);
        if args.files[..at].iter().any(same) {
            return Err(Failure::usage(format_args!("{} is named twice", file.display())));
        }
        if !args.text && is_same_file(file, &args.html) {
            return Err(Failure::usage(format_args!(
                "the report would replace {}, which it is made from; give --html another file",
                file.display()
            )));
        }
    }
    let mut files = Vec::with_capacity(args.files.len());
    for file in &args.files {
        files.push((Some(file.display().to_string()), read(file)?));
    }
    let report = build::report(&files).map_err(Failure::new)?;
    let table = text::text(&report);
    if args.text {
        output::print(&table)?;
        return Ok(ExitCode::SUCCESS);
    }
    let target = HtmlTarget::prepare(&args.html)?;
    target.write(&page::page(&report))?;
    match &target {
        HtmlTarget::Stdout => eprint!("{table}"),
        HtmlTarget::File(path) => {
            output::print(&format!("{table}\nReport: {}\n", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("cannot read {}: {error}", path.display()))
    };
    let meta = std::fs::metadata(path).map_err(|error| refused(&error))?;
    if meta.is_dir() {
        return Err(refused(&"it is a directory; name the JSON files in it"));
    }
    if meta.len() > FILE_MAX_BYTES {
        return Err(refused(&format_args!("{} bytes are too many for a report", meta.len())));
    }
    let bytes = output::read_up_to(path, FILE_MAX_BYTES).map_err(|error| refused(&error))?;
    parse(&bytes).map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))
}

/// The JSON in `bytes`. fio mixes its warnings with it, and its text may follow
/// (`--output-format=json,normal`).
fn parse(bytes: &[u8]) -> Result<Value, String> {
    const WANTED: &str =
        "expected the JSON of `meantime bench --json` or of `fio --output-format=json`";
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(format!("the file is empty: {WANTED}"));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(format!("this is no text: {WANTED}"));
    };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let is_json = text.starts_with(['{', '[', '"']);
    let begin = if is_json { 0 } else { text.find("\n{").map_or(0, |at| at + 1) };
    let first = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>().next();
    let Some(value) = first else { return Err(format!("the file is empty: {WANTED}")) };
    value.map_err(|error| {
        let line = text.lines().next().unwrap_or("");
        let begins: String = line.chars().take(40).collect();
        if error.is_eof() {
            format!(
                "the JSON ends in its middle (line {}): was the run or a copy cut off?",
                error.line()
            )
        } else {
            format!("this is no JSON ({error}): {WANTED}, found a text that begins with {begins:?}")
        }
    })
}
