//! `meantime fs ls`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use meantime_ext4::{Error, FileSystem, FileType, Metadata, Node};
use serde_json::{Value, json};

use super::walk::{Found, Step, Walk};
use super::{failed, mount, names, resolve, type_name};
use crate::cli::LsArgs;
use crate::failure::{Context as _, FAILED, Failure};
use crate::output::{end, json_text};
use crate::signal;

/// A listed name.
struct Listed {
    name: OsString,
    ino: u32,
    file_type: Option<FileType>,
    /// With `--long`: its metadata, and a link's target.
    more: Option<(Metadata, Option<OsString>)>,
}

/// Runs the command.
pub(super) fn run(args: &LsArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let mut failures = Vec::new();
    let listed = list(&fs, location.path(), args, &mut failures);
    let listed = listed.context(&location)?;
    let ended = if args.json {
        let mut report = names::report(&location);
        report["entries"] = listed.iter().map(entry_json).collect();
        end(json_text(&report).as_bytes())
    } else {
        end(&if args.long { long(&listed) } else { short(&listed) })
    }?;
    failures.iter().for_each(Failure::show);
    Ok(if failures.is_empty() { ended } else { ExitCode::from(FAILED) })
}

/// Lists what `path` leads to; with `--recursive` adds what cannot be read below it to `failures`.
fn list(
    fs: &FileSystem,
    path: &std::path::Path,
    args: &LsArgs,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Listed>, Error> {
    // A link to a directory is followed, as by ls; with --long it is shown itself unless it ends in
    // a slash.
    let follow = !args.long || path.as_os_str().as_bytes().ends_with(b"/");
    let node = resolve(fs, path, follow)?;
    if node.file_type() != FileType::Directory {
        let more = args.long.then(|| more(fs, &node)).transpose()?;
        let name = path.as_os_str().to_owned();
        return Ok(vec![Listed { name, ino: node.ino(), file_type: Some(node.file_type()), more }]);
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
        let child = (args.long || entry.file_type.is_none())
            .then(|| fs.lookup(&node, &entry.name))
            .transpose()?;
        listed.push(Listed {
            ino: entry.ino,
            file_type: entry.file_type.or(child.as_ref().map(Node::file_type)),
            more: child.filter(|_| args.long).map(|child| more(fs, &child)).transpose()?,
            name: entry.name,
        });
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

/// Returns the metadata of `node`, and a link's target.
fn more(fs: &FileSystem, node: &Node) -> Result<(Metadata, Option<OsString>), Error> {
    let is_link = node.file_type() == FileType::Symlink;
    let target = is_link.then(|| fs.read_link_at(node)).transpose()?;
    Ok((node.metadata(), target.map(OsString::from)))
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
        let (path, node) = (found.path.clone(), &found.node);
        let more = args.long.then(|| more(fs, node)).transpose();
        let (ino, file_type, name) = (node.ino(), node.file_type(), path.clone().into());
        match more {
            Ok(more) => listed.push(Listed { name, ino, file_type: Some(file_type), more }),
            Err(error) => fail(path.clone(), error),
        }
        if file_type == FileType::Directory {
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
        let size = match meta.file_type {
            FileType::Character | FileType::Block => {
                format!("{}, {}", meta.device.0, meta.device.1)
            }
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
    object["type"] = json!(one.file_type.map(type_name));
    if let Some((meta, target)) = &one.more {
        super::show::insert(&mut object, meta);
        if let Some(target) = target {
            names::insert(&mut object, "target", target);
        }
    }
    object
}
