//! Where results go: stdout, which may be a closed pipe, and files, which appear whole or
//! not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;

/// Prints results to stdout. A reader that has gone (`meantime bench | head`) is no error: the rest
/// is dropped.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// The same of what need not be UTF-8: names of files.
pub(crate) fn print_bytes(text: &[u8]) -> Result<(), Failure> {
    print_while_read(text).map(drop)
}

/// The same; false if the reader has gone, and there is no use in going on.
pub(crate) fn print_while_read(text: &[u8]) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::new(format_args!("cannot write the results to standard output: {error}")))
        }
        Ok(()) => Ok(true),
    }
}

/// How wide text may be that is a table: as wide as the terminal it goes to, 120 columns in a file
/// or pipe. COLUMNS overrides both, as it does for other programs.
pub(crate) fn columns() -> usize {
    const ELSEWHERE: usize = 120;
    const LEAST: usize = 40;
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let size = io::stdout().is_terminal().then(ratatui::crossterm::terminal::size)?;
        size.ok().map(|(columns, _)| usize::from(columns))
    };
    told.or_else(of_terminal).filter(|columns| *columns > 0).unwrap_or(ELSEWHERE).max(LEAST)
}

/// The JSON text of `value`, for people and programs.
pub(crate) fn json_text(value: &Value) -> String {
    // A `Value` always has a text.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Where the JSON goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonTarget {
    /// Standard output; the text goes to stderr then.
    Stdout,
    /// A file, replaced as a whole.
    File(PathBuf),
}

impl JsonTarget {
    /// `-` or a path. A path that cannot be written is found now, not after the run.
    pub(crate) fn prepare(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        prepare_file(path, "the JSON", "--json")?;
        Ok(Self::File(path.to_owned()))
    }

    /// Writes `value`: a file has the old contents or the new, never a part.
    pub(crate) fn write(&self, value: &Value) -> Result<(), Failure> {
        let text = json_text(value);
        match self {
            Self::Stdout => print(&text),
            Self::File(path) => write_file(path, text.as_bytes()).map_err(|error| {
                Failure::new(format_args!("cannot write the JSON to {}: {error}", path.display()))
            }),
        }
    }
}

/// A file for something else than JSON, replaced as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileTarget {
    path: PathBuf,
    what: &'static str,
}

impl FileTarget {
    /// `path`, which the option `option` names for `what`. One that cannot be written is found now,
    /// not after the run.
    pub(crate) fn prepare(path: &Path, what: &'static str, option: &str) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Err(Failure::usage(format_args!(
                "{option}: {what} goes to a file, not to standard output"
            )));
        }
        prepare_file(path, what, option)?;
        Ok(Self { path: path.to_owned(), what })
    }

    /// Writes `text`: the file has the old contents or the new, never a part.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let Self { path, what } = self;
        write_file(path, text.as_bytes()).map_err(|error| {
            Failure::new(format_args!("cannot write {what} to {}: {error}", path.display()))
        })
    }
}

/// Where the HTML report goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HtmlTarget {
    /// Standard output; the text goes to stderr then.
    Stdout,
    /// A file, replaced as a whole.
    File(PathBuf),
}

impl HtmlTarget {
    /// As [`JsonTarget::prepare`].
    pub(crate) fn prepare(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        prepare_file(path, "the report", "--html")?;
        Ok(Self::File(path.to_owned()))
    }

    /// Writes `page`: a file has the old contents or the new, never a part.
    pub(crate) fn write(&self, page: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => print(page),
            Self::File(path) => write_file(path, page.as_bytes()).map_err(|error| {
                Failure::new(format_args!("cannot write the report to {}: {error}", path.display()))
            }),
        }
    }
}

/// Finds out whether `path` can be written; changes nothing.
fn prepare_file(path: &Path, what: &str, option: &str) -> Result<(), Failure> {
    let refused = |error: io::Error| {
        Failure::new(format_args!(
            "cannot write {what} to {}: {error}; give {option} another file",
            path.display()
        ))
    };
    can_replace(path).map_err(refused)
}

/// Whether `path` can be written: found before the run, not after it.
pub(crate) fn can_replace(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        // A file must be ours to write although it will be replaced; devices and pipes are written
        // in place.
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

/// All of a file or pipe, unless it has more than `bytes_max`.
pub(crate) fn read_up_to(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Something that is there and no regular file: `/dev/null`, a named pipe.
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

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, |out| out.write_all(bytes))
}

/// Has `write` write to `path`: a file has the old contents or the new, never a part.
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
        let target = JsonTarget::prepare(&path).unwrap();
        assert!(!path.exists());
        target.write(&serde_json::json!({"a": 1})).unwrap();
        JsonTarget::prepare(&path).unwrap().write(&serde_json::json!({"a": 2})).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("\"a\": 2"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_found_before() {
        let dir = tempfile::tempdir().unwrap();
        assert!(JsonTarget::prepare(dir.path()).is_err());
        assert!(JsonTarget::prepare(&dir.path().join("no/such/dir.json")).is_err());
        assert_eq!(JsonTarget::prepare(Path::new("-")).unwrap(), JsonTarget::Stdout);
        JsonTarget::prepare(Path::new("/dev/null")).unwrap().write(&Value::Null).unwrap();
    }
}
