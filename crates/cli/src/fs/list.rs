//! `meantime fs ls`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use meantime_ext4::{Entry, Error, FileSystem, FileType, Metadata, Node};
use serde_json::{Value, json};

use super::mounted::{failed, mount, resolve};
use super::names;
use super::walk::{Found, Step, Walk};
use crate::cli::LsArgs;
use crate::failure::{Context as _, FAILED, Failure};
use crate::output::{end, json_text};
use crate::signal;

/// A listed name.
struct Listed {
    name: OsString,
    ino: u32,
    file_type: Option<FileType>,
    /// The metadata and a link's target, with `--long`.
    more: Option<(Metadata, Option<OsString>)>,
}

/// Runs the command.
pub(super) fn run(args: &LsArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.place.location, &args.place.mount)?;
    let mut failures = Vec::new();
    let listed = list(&fs, location.path(), args, &mut failures);
    let listed = listed.context(&location)?;
    let ended = if args.place.json {
        let mut report = names::report(&location);
        report["entries"] = listed.iter().map(entry_json).collect();
        end(json_text(&report).as_bytes())
    } else {
        end(&if args.long { long(&listed) } else { short(&listed) })
    }?;
    failures.iter().for_each(Failure::show);
    Ok(if failures.is_empty() { ended } else { ExitCode::from(FAILED) })
}

/// Lists what `path` leads to. With `--recursive`, adds everything below that cannot be read to
/// `failures`.
fn list(
    fs: &FileSystem,
    path: &std::path::Path,
    args: &LsArgs,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Listed>, Error> {
    // A link to a directory is followed, as ls does. With --long the link itself is shown unless it
    // ends in a slash.
    let follow = !args.long || path.as_os_str().as_bytes().ends_with(b"/");
    let node = resolve(fs, path, follow)?;
    if node.file_type() != FileType::Directory {
        return Ok(vec![Listed::new(fs, path.into(), &node, args.long)?]);
    }
    let mut listed = Vec::new();
    if args.recursive {
        return below(fs, node, args, failures);
    }
    for entry in fs.entries(&node)? {
        let entry = entry?;
        if !args.all && entry.name.as_bytes().starts_with(b".") {
            continue;
        }
        if signal::stopped() {
            break;
        }
        listed.push(if args.long || entry.file_type.is_none() {
            let child = fs.lookup(&node, &entry.name)?;
            Listed::new(fs, entry.name, &child, args.long)?
        } else {
            let Entry { name, ino, file_type, .. } = entry;
            Listed { name, ino, file_type, more: None }
        });
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

impl Listed {
    /// Reads the type of `node`, and if `long` also its metadata and a link's target.
    fn new(fs: &FileSystem, name: OsString, node: &Node, long: bool) -> Result<Self, Error> {
        let (ino, file_type) = (node.ino(), node.file_type());
        let is_link = long && file_type == FileType::Symlink;
        let target = is_link.then(|| fs.read_link_at(node)).transpose()?.map(OsString::from);
        let more = long.then(|| (node.metadata(), target));
        Ok(Self { name, ino, file_type: Some(file_type), more })
    }
}

/// Lists everything below `node`, by its path from there.
fn below(
    fs: &FileSystem,
    node: Node,
    args: &LsArgs,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Listed>, Error> {
    let mut listed = Vec::new();
    let mut walk = Walk::new(fs, true);
    let name = OsString::new();
    walk.enter(Found { path: PathBuf::new(), above: node.clone(), name, node }, args.all)?;
    let mut fail = |path: PathBuf, error| {
        failures.push(failed(names::harmless(&path), &error));
    };
    while let Some(step) = walk.next()
        && !signal::stopped()
    {
        let found = match step {
            Step::Name(found) => found,
            Step::Failed(path, error) => {
                fail(path, error);
                continue;
            }
            Step::End(_) => continue,
        };
        let path = found.path.clone();
        match Listed::new(fs, path.clone().into(), &found.node, args.long) {
            Ok(one) => listed.push(one),
            Err(error) => fail(path.clone(), error),
        }
        if found.node.file_type() == FileType::Directory {
            walk.enter(found, args.all).unwrap_or_else(|error| fail(path, error));
        }
    }
    Ok(listed)
}

fn short(listed: &[Listed]) -> Vec<u8> {
    let mut text = Vec::new();
    for one in listed {
        text.extend(names::shown(&one.name));
        text.push(b'\n');
    }
    text
}

fn long(listed: &[Listed]) -> Vec<u8> {
    let mut rows: Vec<([String; 6], Vec<u8>)> = Vec::new();
    for one in listed {
        let Some((meta, target)) = &one.more else { continue };
        let (major, minor) = meta.device;
        let size = match meta.file_type {
            FileType::Character | FileType::Block => format!("{major}, {minor}"),
            _ => meta.size.to_string(),
        };
        let mut name = names::shown(&one.name);
        if let Some(target) = target {
            name.extend(b" -> ");
            name.extend(names::shown(target));
        }
        let mode = names::mode(meta.file_type, meta.mode);
        let (links, uid, gid) =
            (meta.links.to_string(), meta.uid.to_string(), meta.gid.to_string());
        rows.push(([mode, links, uid, gid, size, names::minute(meta.modified)], name));
    }
    let width = |column: usize| rows.iter().map(|(row, _)| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = Vec::new();
    for (row, name) in &rows {
        for (column, width) in row.iter().zip(widths) {
            text.extend(format!("{column:>width$} ").into_bytes());
        }
        text.extend(name);
        text.push(b'\n');
    }
    text
}

fn entry_json(one: &Listed) -> Value {
    let mut object = json!({});
    names::insert(&mut object, "name", &one.name);
    object["ino"] = json!(one.ino);
    object["type"] = json!(one.file_type.map(names::type_name));
    if let Some((meta, target)) = &one.more {
        super::show::insert(&mut object, meta);
        if let Some(target) = target {
            names::insert(&mut object, "target", target);
        }
    }
    object
}
