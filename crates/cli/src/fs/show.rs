//! `meantime fs cat` and `stat`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

use meantime_ext4::{Advice, FileType, Metadata};
use serde_json::{Value, json};

use super::mounted::{CHUNK_BYTES, failed, mount, resolve};
use super::names;
use crate::cli::{CatArgs, PlaceArgs};
use crate::facts::{self, Fact, facts, rows};
use crate::failure::{Context as _, Failure};
use crate::figures;
use crate::output::{end, json_text, print_while_read};
use crate::signal;

/// Runs `cat`.
pub(super) fn cat(args: &CatArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let file = fs.open(location.path()).context(&location)?;
    if file.metadata().file_type == FileType::Directory {
        return Err(failed(location, &meantime_ext4::Error::IsDirectory));
    }
    // It is read once, in order.
    file.advise(0, 0, Advice::Sequential).context(&location)?;
    let (mut buf, mut offset) = (vec![0; CHUNK_BYTES], 0);
    while !signal::stopped() {
        let bytes = file.read_at(&mut buf, offset).context(&location)?;
        if bytes == 0 || !print_while_read(&buf[..bytes])? {
            break;
        }
        offset += bytes as u64;
    }
    Ok(ExitCode::from(signal::exit_code().unwrap_or(0)))
}

/// Runs `stat`.
pub(super) fn stat(args: &PlaceArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let node = resolve(&fs, location.path(), false).context(&location)?;
    let meta = node.metadata();
    let is_link = meta.file_type == FileType::Symlink;
    let target = is_link.then(|| fs.read_link_at(&node)).transpose().context(&location)?;
    let attributes = fs.attributes(&node).context(&location)?;
    if args.json {
        let mut object = names::report(&location);
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
    let mut text = names::shown(location.path().as_os_str());
    if let Some(target) = &target {
        text.extend(b" -> ");
        text.extend(names::shown(target.as_os_str()));
    }
    let mut facts = facts_of(&meta);
    for (name, value) in &attributes {
        let shown = match names::text_or_hex(value) {
            ("text", text) => format!("\"{text}\""),
            (_, hex) => format!("0x{hex}"),
        };
        let name = names::harmless(OsStr::from_bytes(name));
        facts.push(Fact::new("Attribute", "", Value::Null, [format!("{name} = {shown}")]));
    }
    text.extend(format!("\n{}", rows(&facts)).into_bytes());
    end(&text)
}

/// Adds the metadata of a file to `object`.
pub(super) fn insert(object: &mut Value, meta: &Metadata) {
    for (key, value) in facts::object(&facts_of(meta)).as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

fn facts_of(meta: &Metadata) -> Vec<Fact> {
    let mode = format!("{:04o}", meta.mode & 0o7777);
    let mode_words = format!("{mode} ({})", names::mode(meta.file_type, meta.mode));
    let created = meta.created.map(names::time_json);
    let mut facts = facts! {
        "Type", "type": names::type_name(meta.file_type);
        "Size", "size_bytes": meta.size
            => format!("{} bytes ({})", meta.size, figures::bytes(meta.size));
        "Blocks", "blocks_512": meta.blocks_512 => format!("{} of 512 bytes", meta.blocks_512);
        "Block size", "block_bytes": meta.block_bytes;
        "Inode", "ino": meta.ino;
        "Generation", "generation": meta.generation;
        "Links", "links": meta.links;
        "Mode", "mode": mode => mode_words;
        "Owner", "uid": meta.uid;
        "Group", "gid": meta.gid;
        "Project", "project": meta.project;
        "Flags", "flags": meta.flags
            => format!("{:#x} ({})", meta.flags, names::flags(meta.flags));
        "Access", "accessed": names::time_json(meta.accessed) => names::time(meta.accessed);
        "Modify", "modified": names::time_json(meta.modified) => names::time(meta.modified);
        "Change", "changed": names::time_json(meta.changed) => names::time(meta.changed);
        "Birth", "created": created => meta.created.map_or_else(|| "–".to_owned(), names::time);
    };
    if matches!(meta.file_type, FileType::Character | FileType::Block) {
        let (major, minor) = meta.device;
        facts.extend(facts! {
            "Device", "device_number": [major, minor] => format!("{major}, {minor}");
        });
    }
    facts
}
