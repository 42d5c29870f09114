//! Small images made by e2fsprogs alone: neither root nor a mount is needed.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::process::Command;

use super::regions::Base;
use crate::e2fs;

/// Name, arguments of `mkfs.ext4`, size in KiB.
const SHAPES: &[(&str, &str, u64)] = &[
    ("default 1k", "-b 1024 -J size=1", 3072),
    ("default 4k", "-b 4096 -J size=4", 10240),
    ("seed, orphan file", "-b 1024 -J size=1 -O metadata_csum_seed,orphan_file", 3072),
    ("ext2", "-b 1024 -t ext2", 1536),
    ("ext3", "-b 2048 -t ext3 -J size=2", 8192),
    ("inline", "-b 1024 -O inline_data,^has_journal -I 512", 1536),
    ("uninit_bg", "-b 1024 -O ^metadata_csum,uninit_bg,^has_journal -I 128", 1536),
    ("bigalloc", "-b 1024 -O bigalloc,^has_journal -C 4096", 3072),
    ("meta_bg", "-b 1024 -O meta_bg,^resize_inode,^has_journal -g 512", 2048),
    ("64k", "-b 65536 -O ^has_journal", 8192),
    ("8k ea_inode", "-b 8192 -O ^has_journal,ea_inode", 4096),
];

/// Runs `command`, whose exit code may be up to `code_max`.
fn run(command: &mut Command, code_max: i32) -> Result<(), String> {
    // For reproducible images.
    let command = command.env("E2FSPROGS_FAKE_TIME", "1700000000").env("LC_ALL", "C");
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.code().is_some_and(|code| code <= code_max) {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn tree(at: &Path) -> std::io::Result<()> {
    fs::create_dir_all(at.join("d"))?;
    // Enough names for a hash tree.
    for number in 0..90 {
        File::create(at.join("d").join(format!("a name of some length, number {number}")))?;
    }
    fs::write(at.join("d/x"), "x")?;
    fs::create_dir_all(at.join("s/t/u"))?;
    symlink("t", at.join("s/link"))?;
    symlink("loop", at.join("s/loop"))?;
    symlink("t/../".repeat(60), at.join("s/longlink"))?;
    fs::write(at.join("small"), [b'a'; 100])?;
    fs::write(at.join("long"), [b'b'; 30_000])?;
    // Every second block: an extent each.
    let pieces = File::create(at.join("pieces"))?;
    for piece in 0..100u64 {
        pieces.write_all_at(&[1; 512], piece * 8192)?;
    }
    let far = File::create(at.join("far"))?;
    far.write_all_at(b"far", 70 << 20)?;
    fs::hard_link(at.join("small"), at.join("s/t/linked"))
}

/// Commands that add content after mkfs: attributes, and a log to replay.
fn commands(at: &Path, journal: bool) -> std::io::Result<String> {
    let value = at.join("value");
    fs::write(&value, [b'v'; 300])?;
    let mut commands = String::new();
    for (file, name) in [
        ("/small", "user.small"),
        ("/small", "security.other"),
        ("/long", "trusted.x"),
        ("/s", "user.directory"),
    ] {
        commands.push_str(&format!("ea_set {file} {name} a-value\n"));
    }
    commands.push_str(&format!("ea_set -f {} /long user.long\n", value.display()));
    commands.push_str("mknod pipe p\nmknod device b 8 300\n");
    if journal {
        let block = at.join("block");
        fs::write(&block, vec![b'j'; 65536])?;
        let block = block.display();
        commands.push_str(&format!(
            "jo\njw -b 2000 {block}\njw -b 2000,2001 {block}\njw -r 2001\njw -b 2002 {block}\njc\n"
        ));
    }
    Ok(commands)
}

/// All intact images, or why they cannot be made.
pub fn all(directory: &Path) -> Result<Vec<Base>, String> {
    let wrong = |error: std::io::Error| error.to_string();
    let source = directory.join("tree");
    tree(&source).map_err(wrong)?;
    let mut bases = Vec::new();
    for (name, arguments, kib) in SHAPES {
        let image = directory.join("image");
        File::create(&image).and_then(|file| file.set_len(kib << 10)).map_err(wrong)?;
        let fixed = ["-q", "-F", "-N", "160", "-U", "00000000-1111-4222-8333-444444444444"];
        let hash = ["-E", "hash_seed=00000000-1111-4222-8333-555555555555,root_owner=0:0", "-d"];
        let mut mkfs = e2fs::command("mkfs.ext4");
        run(mkfs.args(fixed).args(arguments.split(' ')).args(hash).arg(&source).arg(&image), 0)?;
        // Directories get their hash trees here; 1 means that something was changed.
        run(e2fs::command("e2fsck").args(["-fyD"]).arg(&image), 1)?;
        let script = directory.join("script");
        fs::write(&script, commands(directory, arguments.contains("-J size=1")).map_err(wrong)?)
            .map_err(wrong)?;
        run(e2fs::command("debugfs").arg("-w").arg("-f").arg(&script).arg(&image), 0)?;
        bases.push(Base::new((*name).to_owned(), fs::read(&image).map_err(wrong)?));
    }
    Ok(bases)
}
