//! `meantime fs tree`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use meantime_ext4::{Corruption, Defect, Error, FileSystem, FileType, Node};
use serde_json::{Value, json};

use super::{failed, mount, names, resolve, type_name};
use crate::cli::TreeArgs;
use crate::failure::{FAILED, Failure};
use crate::output;
use crate::signal;

/// A directory that is being shown.
struct Level {
    path: PathBuf,
    node: Node,
    names: std::vec::IntoIter<(OsString, Node)>,
}

/// The output for each name: its path, the lines before it, and whether it is its directory's last.
struct Shown<'a> {
    path: &'a Path,
    name: &'a OsString,
    node: &'a Node,
    target: Option<OsString>,
    open: &'a [bool],
}

/// Runs the command.
pub(super) fn run(args: &TreeArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let at = |error| failed(&location, &error);
    let top = resolve(&fs, location.path(), true).map_err(at)?;
    if top.file_type() != FileType::Directory {
        return Err(at(Error::NotDirectory));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut entries: Vec<Value> = Vec::new();
    let (mut directories, mut files) = (0u64, 0u64);
    let mut failures = Vec::new();
    let printed = (|| {
        if !args.json {
            out.write_all(&names::shown(location.path().as_os_str()))?;
            out.write_all(b"\n")?;
        }
        walk(&fs, top, location.path(), args, |shown| {
            match shown {
                Ok(shown) => {
                    if shown.node.file_type() == FileType::Directory {
                        directories += 1
                    } else {
                        files += 1
                    }
                    if args.json { entries.push(entry(&shown)) } else { line(&mut out, &shown)? }
                }
                Err((path, error)) => {
                    failures.push(failed(names::harmless(path.as_os_str()), &error))
                }
            }
            Ok(())
        })?;
        if args.json {
            let mut report = names::report(&location);
            report["directories"] = json!(directories);
            report["files"] = json!(files);
            report["entries"] = std::mem::take(&mut entries).into();
            out.write_all(output::json_text(&report).as_bytes())?;
        } else {
            writeln!(out, "\n{directories} directories, {files} files")?;
        }
        out.flush()
    })();
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Failure::new(format_args!(
                "cannot write the results to standard output: {error}"
            )));
        }
        _ => {}
    }
    failures.iter().for_each(Failure::show);
    let code = if failures.is_empty() { 0 } else { FAILED };
    Ok(ExitCode::from(signal::exit_code().unwrap_or(code)))
}

/// Calls `show` for everything below `top`, names in the order of their bytes, and for errors.
fn walk(
    fs: &FileSystem,
    top: Node,
    path: &Path,
    args: &TreeArgs,
    mut show: impl FnMut(Result<Shown<'_>, (&Path, Error)>) -> io::Result<()>,
) -> io::Result<()> {
    // A directory has one name. One that occurs again would lead in a circle.
    let mut seen = HashSet::from([top.ino()]);
    let mut levels = Vec::new();
    let enter = |levels: &mut Vec<Level>, node: Node, path: &Path| -> Result<(), Error> {
        let names = children(fs, &node, args.all)?.into_iter();
        levels.push(Level { path: path.to_owned(), node, names });
        Ok(())
    };
    if let Err(error) = enter(&mut levels, top, path) {
        show(Err((path, error)))?;
    }
    while let Some(level) = levels.last_mut() {
        if signal::stopped() {
            break;
        }
        let Some((name, node)) = level.names.next() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(&name);
        let target = match node.file_type() {
            FileType::Symlink => fs.read_link_at(&node).map(|target| Some(target.into_os_string())),
            _ => Ok(None),
        };
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                show(Err((&path, error)))?;
                None
            }
        };
        let open: Vec<bool> =
            levels.iter().map(|level| !level.names.as_slice().is_empty()).collect();
        show(Ok(Shown { path: &path, name: &name, node: &node, target, open: &open }))?;
        let deeper = args.depth.is_none_or(|depth| levels.len() < depth as usize);
        if node.file_type() == FileType::Directory && deeper {
            let entered = if seen.insert(node.ino()) {
                enter(&mut levels, node, &path)
            } else {
                Err(Corruption::new(Defect::DirectoryEntry)
                    .in_inode(levels[levels.len() - 1].node.ino())
                    .into())
            };
            if let Err(error) = entered {
                show(Err((&path, error)))?;
            }
        }
    }
    Ok(())
}

/// Returns the contents of a directory by name, without itself and its parent.
fn children(fs: &FileSystem, node: &Node, all: bool) -> Result<Vec<(OsString, Node)>, Error> {
    let mut children = Vec::new();
    for entry in fs.entries(node)? {
        let entry = entry?;
        let name = entry.name.as_bytes();
        if name == b"." || name == b".." || !all && name.starts_with(b".") {
            continue;
        }
        let child = fs.lookup(node, &entry.name)?;
        children.push((entry.name, child));
    }
    children.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(children)
}

fn line(out: &mut impl io::Write, shown: &Shown<'_>) -> io::Result<()> {
    let Some((last, before)) = shown.open.split_last() else { return Ok(()) };
    for open in before {
        out.write_all(if *open { "│   ".as_bytes() } else { b"    " })?;
    }
    out.write_all(if *last { "├── ".as_bytes() } else { "└── ".as_bytes() })?;
    out.write_all(&names::shown(shown.name))?;
    if let Some(target) = &shown.target {
        out.write_all(b" -> ")?;
        out.write_all(&names::shown(target))?;
    }
    out.write_all(b"\n")
}

fn entry(shown: &Shown<'_>) -> Value {
    let mut object = json!({});
    names::insert(&mut object, "path", shown.path.as_os_str());
    object["ino"] = json!(shown.node.ino());
    object["type"] = json!(type_name(shown.node.file_type()));
    if let Some(target) = &shown.target {
        names::insert(&mut object, "target", target);
    }
    object
}
