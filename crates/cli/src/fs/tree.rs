//! `meantime fs tree`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use meantime_ext4::{Error, FileSystem, FileType};
use serde_json::{Value, json};

use super::walk::{Found, Step, Walk};
use super::{CHUNK_BYTES, failed, mount, names, resolve, type_name};
use crate::cli::TreeArgs;
use crate::failure::{FAILED, Failure};
use crate::output;
use crate::signal;

/// What was found so far.
#[derive(Default)]
struct Tree {
    /// Lines that were not printed yet.
    text: Vec<u8>,
    /// The same for JSON.
    entries: Vec<Value>,
    directories: u64,
    files: u64,
    failures: Vec<Failure>,
}

/// Runs the command.
pub(super) fn run(args: &TreeArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let at = |error| failed(&location, &error);
    let top = resolve(&fs, location.path(), true).map_err(at)?;
    if top.file_type() != FileType::Directory {
        return Err(at(Error::NotDirectory));
    }
    let path = location.path().to_owned();
    let mut tree = Tree::default();
    tree.text.extend(names::shown(path.as_os_str()));
    tree.text.push(b'\n');
    let root = Found { path, above: top.clone(), name: OsString::new(), node: top };
    tree.walk(&fs, root, args)?;
    let Tree { mut text, entries, directories, files, failures } = tree;
    if args.json {
        let mut report = names::report(&location);
        report["directories"] = json!(directories);
        report["files"] = json!(files);
        report["entries"] = entries.into();
        text = output::json_text(&report).into_bytes();
    } else {
        text.extend(format!("\n{directories} directories, {files} files\n").into_bytes());
    }
    output::print_while_read(&text)?;
    failures.iter().for_each(Failure::show);
    let code = if failures.is_empty() { 0 } else { FAILED };
    Ok(ExitCode::from(signal::exit_code().unwrap_or(code)))
}

impl Tree {
    /// Adds what is below `root`, and prints a part of it now and then.
    fn walk(&mut self, fs: &FileSystem, root: Found, args: &TreeArgs) -> Result<(), Failure> {
        let mut walk = Walk::new(fs, true);
        self.enter(&mut walk, root, args);
        while let Some(step) = walk.next()
            && !signal::stopped()
        {
            let found = match step {
                Step::Name(found) => found,
                Step::Failed(path, error) => {
                    self.fail(&path, &error);
                    continue;
                }
                Step::End(_) => continue,
            };
            let target = match found.node.file_type() {
                FileType::Symlink => fs.read_link_at(&found.node).map(Some),
                _ => Ok(None),
            };
            let target = target.inspect_err(|error| self.fail(&found.path, error)).ok().flatten();
            let target = target.map(PathBuf::into_os_string);
            let is_directory = found.node.file_type() == FileType::Directory;
            *(if is_directory { &mut self.directories } else { &mut self.files }) += 1;
            if args.json {
                self.entries.push(entry(&found, target.as_deref()));
            } else {
                line(&mut self.text, walk.has_more(), &found.name, target.as_deref());
            }
            if is_directory && args.depth.is_none_or(|most| walk.has_more().len() < most as usize) {
                self.enter(&mut walk, found, args);
            }
            if self.text.len() >= CHUNK_BYTES
                && !output::print_while_read(&std::mem::take(&mut self.text))?
            {
                break;
            }
        }
        Ok(())
    }

    fn enter(&mut self, walk: &mut Walk<'_>, found: Found, args: &TreeArgs) {
        let path = found.path.clone();
        if let Err(error) = walk.enter(found, args.all) {
            self.fail(&path, &error);
        }
    }

    fn fail(&mut self, path: &Path, error: &Error) {
        self.failures.push(failed(names::harmless(path.as_os_str()), error));
    }
}

/// Adds the line of a name; `has_more` of the directories around it.
fn line(
    text: &mut Vec<u8>,
    has_more: impl ExactSizeIterator<Item = bool>,
    name: &OsStr,
    target: Option<&OsStr>,
) {
    let last = has_more.len() - 1;
    for (at, more) in has_more.enumerate() {
        text.extend(match (at == last, more) {
            (false, true) => "│   ".as_bytes(),
            (false, false) => b"    ",
            (true, true) => "├── ".as_bytes(),
            (true, false) => "└── ".as_bytes(),
        });
    }
    text.extend(names::shown(name));
    if let Some(target) = target {
        text.extend(b" -> ");
        text.extend(names::shown(target));
    }
    text.push(b'\n');
}

fn entry(found: &Found, target: Option<&OsStr>) -> Value {
    let mut object = json!({});
    names::insert(&mut object, "path", found.path.as_os_str());
    object["ino"] = json!(found.node.ino());
    object["type"] = json!(type_name(found.node.file_type()));
    if let Some(target) = target {
        names::insert(&mut object, "target", target);
    }
    object
}
