//! Images of ext4 file systems, made and damaged by e2fsprogs.

#![allow(dead_code)] // Each test file uses its part.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where e2fsprogs are, which are not in everybody's PATH.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Whether images can be made; says so if not.
pub(crate) fn can_make_images() -> bool {
    let there =
        ["mkfs.ext4", "debugfs", "e2fsck", "tune2fs"].iter().all(|name| tool(name).is_some());
    if !there {
        println!("skipped: no e2fsprogs here");
    }
    there
}

/// Runs a tool; its exit code and output.
pub(crate) fn run_tool(name: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(tool(name).unwrap())
        .args(args)
        .env("DEBUGFS_PAGER", "__none__")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// `image` of `size` with everything that is in `from`.
pub(crate) fn make(image: &Path, size: &str, options: &[&str], from: &Path) {
    let (image, from) = (image.to_str().unwrap(), from.to_str().unwrap());
    let args = [&["-q", "-F"][..], options, &["-d", from, image, size]].concat();
    let (code, text) = run_tool("mkfs.ext4", &args);
    assert_eq!(code, Some(0), "{args:?}: {text}");
}

/// What debugfs says to `command`; with `write`, it may change the image.
pub(crate) fn debugfs(image: &Path, write: bool, command: &str) -> String {
    let image = image.to_str().unwrap();
    let mut args = vec!["-R", command, image];
    if write {
        args.insert(0, "-w");
    }
    // (Its name and version go to stderr.)
    let output = Command::new(tool("debugfs").unwrap())
        .args(args)
        .env("DEBUGFS_PAGER", "__none__")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number that follows `key` in `text`.
pub(crate) fn number_after(text: &str, key: &str) -> u64 {
    let rest =
        text.split_once(key).unwrap_or_else(|| panic!("no {key:?} in {text}")).1.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{key:?}: {rest}"))
}

/// Inverts the byte at `offset`.
pub(crate) fn flip(image: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}
