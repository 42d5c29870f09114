//! `meantime fs ls`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use meantime_ext4::{Error, FileSystem, FileType, Metadata, Node};
use serde_json::{Value, json};

use super::{failed, mount, names, resolve, type_name};
use crate::cli::LsArgs;
use crate::failure::Failure;
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
    let listed = list(&fs, location.path(), args).map_err(|error| failed(&location, &error))?;
    if !args.json {
        return end(&if args.long { long(&listed) } else { short(&listed) });
    }
    let mut report = names::report(&location);
    report["entries"] = listed.iter().map(entry_json).collect();
    end(json_text(&report).as_bytes())
}

fn list(fs: &FileSystem, path: &std::path::Path, args: &LsArgs) -> Result<Vec<Listed>, Error> {
    // A link to a directory is followed, as by ls; with --long it is shown itself unless it ends in
    // a slash.
    let follow = !args.long || path.as_os_str().as_bytes().ends_with(b"/");
    let node = resolve(fs, path, follow)?;
    let more = |node: &Node| -> Result<_, Error> {
        let target =
            (node.file_type() == FileType::Symlink).then(|| fs.read_link_at(node)).transpose()?;
        Ok((node.metadata(), target.map(OsString::from)))
    };
    if node.file_type() != FileType::Directory {
        let more = args.long.then(|| more(&node)).transpose()?;
        let name = path.as_os_str().to_owned();
        return Ok(vec![Listed { name, ino: node.ino(), file_type: Some(node.file_type()), more }]);
    }
    let mut listed = Vec::new();
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
            more: child.filter(|_| args.long).map(|child| more(&child)).transpose()?,
            name: entry.name,
        });
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
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
