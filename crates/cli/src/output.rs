//! The output of results: stdout, which may be a closed pipe, and files, which appear whole or not
//! at all.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use meantime_report::results::Report;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use crate::cli::TableArgs;
use crate::failure::{Context as _, Failure};
use crate::signal;

/// Prints results to stdout. A closed pipe (`meantime bench | head`) is not an error: the rest is
/// dropped.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_while_read(text.as_bytes()).map(drop)
}

/// Prints bytes that need not be UTF-8, such as file names. Returns false if the reader has closed
/// the pipe, so that further output is useless.
pub(crate) fn print_while_read(text: &[u8]) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.context("cannot write the results to standard output").map(|()| true),
    }
}

/// Prints the whole output of a command, unless a signal stopped it meanwhile.
pub(crate) fn end(text: &[u8]) -> Result<ExitCode, Failure> {
    signal::check(None)?;
    print_while_read(text).map(|_| ExitCode::SUCCESS)
}

/// Returns the width of tables: that of the terminal, 120 columns in a file or pipe. COLUMNS
/// overrides both, as it does for other programs.
pub(crate) fn columns() -> usize {
    const ELSEWHERE: usize = 120;
    const LEAST: usize = 40;
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    told.or_else(of_terminal).filter(|columns| *columns > 0).unwrap_or(ELSEWHERE).max(LEAST)
}

/// Returns the JSON text of `value`, indented.
pub(crate) fn json_text(value: &Value) -> String {
    // A `Value` can always be formatted.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// The target of a result: a file, which is replaced as a whole, or standard output (`-`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The file, or `None` for standard output.
    pub file: Option<PathBuf>,
    what: &'static str,
}

impl Target {
    /// Prepares `path`, given by option `option` for `what`. A path that cannot be written is found
    /// now, not after the run.
    pub(crate) fn prepare(path: &Path, what: &'static str, option: &str) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self { file: None, what });
        }
        can_replace(path).map_err(|error| {
            Failure::new(format_args!(
                "cannot write {what} to {}: {error}; give {option} another file",
                path.display()
            ))
        })?;
        Ok(Self { file: Some(path.to_owned()), what })
    }

    /// Writes `text`. A file has either the old contents or the new, never a part.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let Some(path) = &self.file else { return print(text) };
        let written = replace(path, |out| out.write_all(text.as_bytes()));
        written.context(format_args!("cannot write {} to {}", self.what, path.display()))
    }
}

/// The JSON and the page that a command writes on request, beside its text.
pub(crate) struct Outputs {
    json: Option<Target>,
    html: Option<Target>,
    tables: Tables,
    /// Where the text goes instead of standard output, and what has been printed so far.
    text: Option<(Target, RefCell<String>)>,
}

/// The table of results as a command writes it for other programs.
#[derive(Default)]
pub(crate) struct Tables {
    csv: Option<Target>,
    markdown: Option<Target>,
}

impl Tables {
    /// Prepares the targets of the options `--csv` and `--markdown`.
    pub(crate) fn prepare(args: &TableArgs) -> Result<Self, Failure> {
        let target = |path: &Option<PathBuf>, what, option| {
            path.as_deref().map(|path| Target::prepare(path, what, option)).transpose()
        };
        let csv = target(&args.csv, "the CSV", "--csv")?;
        let markdown = target(&args.markdown, "the Markdown", "--markdown")?;
        Ok(Self { csv, markdown })
    }

    /// Returns whether one of them uses standard output.
    pub(crate) fn take_stdout(&self) -> bool {
        is_stdout(&self.csv) || is_stdout(&self.markdown)
    }

    /// Writes the requested ones.
    pub(crate) fn write(&self, report: &Report) -> Result<(), Failure> {
        self.csv.as_ref().map_or(Ok(()), |target| target.write(&report.csv()))?;
        self.markdown.as_ref().map_or(Ok(()), |target| target.write(&report.markdown()))
    }
}

/// Fails if two options name the same target.
pub(crate) fn check_distinct(options: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    for (at, (other, path)) in options.iter().enumerate() {
        let Some(path) = path else { continue };
        let Some((one, _)) = options[..at].iter().find(|(_, one)| one.as_ref() == Some(path))
        else {
            continue;
        };
        let place = if *path == Path::new("-") { "standard output" } else { "the same file" };
        return Err(Failure::usage(format_args!(
            "{one} and {other} cannot both go to {place}; give one of them another file"
        )));
    }
    Ok(())
}

impl Outputs {
    /// Prepares the targets of the options `--json` and `--html`.
    pub(crate) fn prepare(json: Option<&Path>, html: Option<&Path>) -> Result<Self, Failure> {
        Self::prepare_as(json, html, ["the report", "--html"])
    }

    /// The same, where the page is something else by another option.
    pub(crate) fn prepare_as(
        json: Option<&Path>,
        page: Option<&Path>,
        [what, option]: [&'static str; 2],
    ) -> Result<Self, Failure> {
        check_distinct(&[("--json", json), (option, page)])?;
        let json = json.map(|path| Target::prepare(path, "the JSON", "--json")).transpose()?;
        let html = page.map(|path| Target::prepare(path, what, option)).transpose()?;
        Ok(Self { json, html, tables: Tables::default(), text: None })
    }

    /// Adds tables.
    pub(crate) fn with(self, tables: Tables) -> Self {
        Self { tables, ..self }
    }

    /// Has the text go to a file, if there is one.
    pub(crate) fn with_text(self, path: Option<&Path>) -> Result<Self, Failure> {
        let target = path.filter(|path| *path != Path::new("-"));
        let target = target.map(|path| Target::prepare(path, "the results", "--output"));
        let text = target.transpose()?.map(|target| (target, RefCell::default()));
        Ok(Self { text, ..self })
    }

    /// Writes the requested tables.
    pub(crate) fn write_tables(&self, report: &Report) -> Result<(), Failure> {
        self.tables.write(report)
    }

    /// Returns whether one of them uses standard output.
    pub(crate) fn take_stdout(&self) -> bool {
        is_stdout(&self.json) || is_stdout(&self.html) || self.tables.take_stdout()
    }

    /// Prints text, to standard error if standard output is taken.
    pub(crate) fn show(&self, text: &str) -> Result<(), Failure> {
        if let Some((_, all)) = &self.text {
            all.borrow_mut().push_str(text);
            return Ok(());
        }
        if self.take_stdout() {
            eprint!("{text}");
            return Ok(());
        }
        print(text)
    }

    /// Writes the requested outputs, also those after one that fails.
    pub(crate) fn write(
        &self,
        json: impl FnOnce() -> Value,
        page: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let json = self.json.as_ref().map_or(Ok(()), |target| target.write(&json_text(&json())));
        let text = self.text.as_ref().map_or(Ok(()), |(target, text)| {
            let text = text.borrow();
            // What has been measured is not lost where there is no room for it.
            target.write(&text).or_else(|failure| print(&text).and(Err(failure)))
        });
        let page = self.html.as_ref().map_or(Ok(()), |target| target.write(&page()));
        json.and(text).and(page)
    }
}

fn is_stdout(target: &Option<Target>) -> bool {
    target.as_ref().is_some_and(|target| target.file.is_none())
}

/// Returns a table without borders except a line below the header.
pub(crate) fn bare_table() -> Table {
    let mut table = Table::new();
    table.load_preset("     ─             ");
    table
}

/// Returns the lines of `table`, without trailing spaces.
pub(crate) fn table_lines(table: &Table) -> Vec<String> {
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Returns the lines of a table of figures. Names are to the left, figures to the right, `gap`
/// apart.
pub(crate) fn figure_lines(mut table: Table, gap: u16) -> Vec<String> {
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at == 0 { 0 } else { gap }, 0));
        column.set_cell_alignment(if at == 0 { CellAlignment::Left } else { CellAlignment::Right });
    }
    table_lines(&table)
}

/// Returns a progress bar of `length`, or a spinner. It is invisible unless standard error is a
/// terminal.
pub(crate) fn progress_bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    set_style(&bar, template);
    bar
}

/// Sets what a bar looks like.
pub(crate) fn set_style(bar: &ProgressBar, template: &str) {
    // Templates are constants. The default look is good enough without one.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸ "));
    }
}

/// Checks before the run that `path` can be written.
pub(crate) fn can_replace(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // A file must be writable for us although it will be replaced. Devices and pipes are
        // written in place.
        Ok(_) => drop(OpenOptions::new().append(true).open(path)?),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    if !is_special(path) {
        let (temporary, _) = create_beside(path)?;
        std::fs::remove_file(temporary)?;
    }
    Ok(())
}

/// Reads a whole file or pipe. Fails if it has more than `bytes_max`.
pub(crate) fn read_up_to(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Returns whether the path is something other than a regular file: `/dev/null`, a named pipe.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.is_file())
}

fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    Ok((temporary, file))
}

/// Calls `write` to write to `path`. A file has either the old contents or the new, never a part.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let buffered = |file: File| -> io::Result<File> {
        let mut out = io::BufWriter::with_capacity(1 << 18, file);
        write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)
    };
    if is_special(path) {
        return buffered(OpenOptions::new().write(true).open(path)?).map(drop);
    }
    let (temporary, file) = create_beside(path)?;
    let written = buffered(file)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        let outputs = Outputs::prepare(Some(&path), None).unwrap();
        assert!(!path.exists());
        let write = |a: u32| outputs.write(|| serde_json::json!({ "a": a }), String::new);
        write(1).unwrap();
        write(2).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("\"a\": 2"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_found_before() {
        let dir = tempfile::tempdir().unwrap();
        let prepare = |path: &Path| Target::prepare(path, "the JSON", "--json");
        assert!(prepare(dir.path()).is_err());
        assert!(prepare(&dir.path().join("no/such/dir.json")).is_err());
        assert_eq!(prepare(Path::new("-")).unwrap().file, None);
        prepare(Path::new("/dev/null")).unwrap().write("null\n").unwrap();
    }
}
