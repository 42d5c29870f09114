//! `meantime fs cat` and `stat`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use meantime_ext4::{Advice, FileType, Metadata};
use serde_json::{Value, json};

use super::{CHUNK_BYTES, failed, mount, names, resolve, type_name};
use crate::cli::{CatArgs, PlaceArgs};
use crate::failure::Failure;
use crate::figures;
use crate::output::{end, json_text};
use crate::signal;

/// Runs `cat`.
pub(super) fn cat(args: &CatArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let at = |error| failed(&location, &error);
    let file = fs.open(location.path()).map_err(at)?;
    if file.metadata().file_type == FileType::Directory {
        return Err(at(meantime_ext4::Error::IsDirectory));
    }
    // It is read once, in order.
    file.advise(0, 0, Advice::Sequential).map_err(at)?;
    let mut stdout = io::stdout().lock();
    let mut buf = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while !signal::stopped() {
        let bytes = file.read_at(&mut buf, offset).map_err(at)?;
        if bytes == 0 {
            break;
        }
        match stdout.write_all(&buf[..bytes]) {
            // The reader that closed the pipe has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            written => written.map_err(|error| not_written(&error))?,
        }
        offset += bytes as u64;
    }
    match stdout.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(not_written(&error)),
        _ => Ok(ExitCode::from(signal::exit_code().unwrap_or(0))),
    }
}

fn not_written(error: &io::Error) -> Failure {
    Failure::new(format_args!("cannot write the file to standard output: {error}"))
}

/// Runs `stat`.
pub(super) fn stat(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let at = |error| failed(&location, &error);
    let node = resolve(&fs, location.path(), false).map_err(at)?;
    let meta = node.metadata();
    let target = match meta.file_type {
        FileType::Symlink => Some(fs.read_link_at(&node).map_err(at)?),
        _ => None,
    };
    let attributes = fs.attributes(&node).map_err(at)?;
    if args.json {
        let mut object = names::report(&location);
        object["ino"] = json!(meta.ino);
        object["type"] = json!(type_name(meta.file_type));
        insert(&mut object, &meta);
        if let Some(target) = &target {
            names::insert(&mut object, "target", target.as_os_str());
        }
        let attributes = attributes.iter().map(|(name, value)| {
            let name = String::from_utf8_lossy(name);
            let (key, text) = names::text_or_hex(value);
            json!({ "name": name, "bytes": value.len(), key: text })
        });
        object["attributes"] = attributes.collect();
        return end(json_text(&object).as_bytes());
    }
    let mut text = b"   File: ".to_vec();
    text.extend(names::shown(location.path().as_os_str()));
    if let Some(target) = &target {
        text.extend(b" -> ");
        text.extend(names::shown(target.as_os_str()));
    }
    let mut line =
        |name: &str, value: String| text.extend(format!("\n{name:>7}: {value}").into_bytes());
    line("Type", type_name(meta.file_type).to_owned());
    match meta.file_type {
        FileType::Character | FileType::Block => {
            line("Device", format!("{}, {}", meta.device.0, meta.device.1))
        }
        _ => line("Size", format!("{} bytes ({})", meta.size, figures::bytes(meta.size))),
    }
    line(
        "Blocks",
        format!(
            "{} of 512 bytes; the file system's have {} bytes",
            meta.blocks_512, meta.block_bytes
        ),
    );
    line("Inode", format!("{}, generation {}, {} link(s)", meta.ino, meta.generation, meta.links));
    line(
        "Mode",
        format!("{:04o} ({})", meta.mode & 0o7777, names::mode(meta.file_type, meta.mode)),
    );
    line("Owner", format!("uid {}, gid {}, project {}", meta.uid, meta.gid, meta.project));
    line("Flags", format!("{:#x} ({})", meta.flags, names::flags(meta.flags)));
    line("Access", names::time(meta.accessed));
    line("Modify", names::time(meta.modified));
    line("Change", names::time(meta.changed));
    line("Birth", meta.created.map_or_else(|| "–".to_owned(), names::time));
    for (name, value) in &attributes {
        let shown = match names::text_or_hex(value) {
            ("text", text) => format!("\"{text}\""),
            (_, hex) => format!("0x{hex}"),
        };
        let name = names::harmless(std::ffi::OsStr::new(&*String::from_utf8_lossy(name)));
        line("Attr", format!("{name} = {shown}"));
    }
    text.push(b'\n');
    end(&text)
}

/// Adds the metadata of an inode, except its number and type.
pub(super) fn insert(object: &mut Value, meta: &Metadata) {
    for (key, value) in [
        ("mode", json!(format!("{:04o}", meta.mode & 0o7777))),
        ("links", json!(meta.links)),
        ("uid", json!(meta.uid)),
        ("gid", json!(meta.gid)),
        ("project", json!(meta.project)),
        ("size_bytes", json!(meta.size)),
        ("blocks_512", json!(meta.blocks_512)),
        ("block_bytes", json!(meta.block_bytes)),
        ("generation", json!(meta.generation)),
        ("flags", json!(meta.flags)),
        ("accessed", names::time_json(meta.accessed)),
        ("modified", names::time_json(meta.modified)),
        ("changed", names::time_json(meta.changed)),
        ("created", meta.created.map_or(Value::Null, names::time_json)),
    ] {
        object[key] = value;
    }
    if matches!(meta.file_type, FileType::Character | FileType::Block) {
        object["device_number"] = json!([meta.device.0, meta.device.1]);
    }
}
