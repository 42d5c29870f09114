//! e2fsprogs, and other programs that tests start.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of `program`: e2fsprogs may be in root's PATH only.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let roots = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let dirs = std::env::split_paths(&path).chain(roots);
    dirs.map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A command for `program`.
///
/// With its own PATH the program would be started by fork instead of `posix_spawn`, and a test with
/// images in its memory would spend most of its time copying page tables.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.env("DEBUGFS_PAGER", "__none__");
    command
}

/// Whether `program` exists; prints a message if not.
pub fn has(program: &str) -> bool {
    let found = find(program).is_some();
    if !found {
        println!("skipped: there is no {program} here (`make setup-test` installs it)");
    }
    found
}

/// Whether e2fsprogs exist; prints a message if not.
pub fn tools() -> bool {
    ["mkfs.ext4", "debugfs", "e2fsck", "dumpe2fs", "tune2fs"].into_iter().all(has)
}

/// Runs `program`. Returns its exit code, and all its output.
pub fn run_tool(program: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = command(program).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// The output of `program`, which must end with one of `codes`.
pub fn run_for(program: &str, args: &[&str], codes: &[i32]) -> String {
    let output = command(program).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        code.is_some_and(|code| codes.contains(&code)),
        "{program} {args:?}: {code:?} {errors} {text}"
    );
    text
}

/// The output of `program`, which must succeed.
pub fn run(program: &str, args: &[&str]) -> String {
    run_for(program, args, &[0])
}

/// A new file system in `dir`.
pub fn mkfs(dir: &Path, name: &str, size: &str, args: &[&str]) -> PathBuf {
    let image = dir.join(name);
    let mut all = vec!["-q", "-F"];
    all.extend(args);
    all.extend([image.to_str().unwrap(), size]);
    run("mkfs.ext4", &all);
    image
}

/// Makes `image` of `size` with the content of `from`.
pub fn make(image: &Path, size: &str, options: &[&str], from: &Path) {
    let (image, from) = (image.to_str().unwrap(), from.to_str().unwrap());
    run("mkfs.ext4", &[&["-q", "-F"][..], options, &["-d", from, image, size]].concat());
}

/// The output of debugfs for `request`; with `write`, it may change the image.
pub fn debugfs(image: &Path, write: bool, request: &str) -> String {
    let mut command = command("debugfs");
    if write {
        command.arg("-w");
    }
    // (Its name and version go to stderr.)
    let output = command.arg("-R").arg(request).arg(image).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Several writing requests in one run: debugfs writes group descriptors only when it exits.
pub fn debugfs_write(image: &Path, requests: &[String]) {
    let script = image.with_extension("debugfs");
    std::fs::write(&script, requests.join("\n")).unwrap();
    run("debugfs", &["-w", "-f", script.to_str().unwrap(), image.to_str().unwrap()]);
}

/// The number that follows `key` in `text`.
pub fn number_after(text: &str, key: &str) -> u64 {
    let rest =
        text.split_once(key).unwrap_or_else(|| panic!("no {key:?} in {text}")).1.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{key:?}: {rest}"))
}

/// Inverts the byte at `offset`.
pub fn flip(image: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[!byte[0]], offset).unwrap();
}
