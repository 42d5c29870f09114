//! What the library does inside of other people's programs: programs in C that do what a program
//! may do with its descriptors, stacks and children, below `meantime run`.

use std::path::{Path, PathBuf};

use crate::common::Ran;
use crate::image::{AT, Image, tool};
use crate::shared_memory_path::{library, most_short};
use meantime_testkit::e2fs::has;

/// The program `name`, compiled in the image's directory; `None` without a compiler.
fn compiled(image: &Image, name: &str, more: &[&str]) -> Option<PathBuf> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    if !has(&compiler) {
        return None;
    }
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/inside").join(format!("{name}.c"));
    let program = image.path().join(name);
    let mut args =
        vec!["-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-o"];
    args.extend([program.to_str().unwrap(), source.to_str().unwrap()]);
    args.extend(more);
    tool(image.path(), &compiler, &args);
    Some(program)
}

fn ran(image: &Image, program: &Path, arguments: &[&str]) -> Ran {
    let mut command = image.command();
    command.arg(program).arg(AT).arg(image.path().join("src")).args(arguments);
    command.output().unwrap().into()
}

/// Runs program `name` with each of `arguments`. At least `short` of its calls take the
/// shared-memory path.
fn each(name: &str, arguments: &[&[&str]], short: u64) {
    let Some(image) = Image::tree() else { return };
    let Some(program) = compiled(&image, name, &[]) else { return };
    for arguments in arguments {
        let ran = ran(&image, &program, arguments);
        assert_eq!(ran.code, Some(0), "{name} {arguments:?}: {ran:#?}");
        assert!(most_short(&ran) >= short, "{name} {arguments:?}: {ran:#?}");
    }
}

#[test]
fn our_descriptors_are_not_in_the_way() {
    each(
        "descriptors",
        &[&["closefrom"], &["close_range"], &["each"], &["dup2"], &["onto"], &["few"]],
        200,
    );
    // It has no shared-memory path from then on.
    each("descriptors", &[&["unshare"]], 0);
}

#[test]
fn children_past_fork_take_the_fuse_path() {
    each("children", &[&[]], 400);
}

#[test]
fn handlers_open_files_on_small_stacks() {
    each("stack", &[&["8192", "theirs"], &["16384", "theirs"], &["32768", "ours"]], 0);
}

#[test]
fn threads_that_read_can_be_cancelled() {
    each("cancel", &[&[]], 200);
}

/// A program that runs with more rights than its user does not believe its user's environment.
#[test]
fn a_program_with_more_rights_takes_the_fuse_path() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let Some(image) = Image::tree() else { return };
    // Linked with it: for such a program the loader ignores LD_PRELOAD.
    let directory = format!("-Wl,-rpath,{}", image.path().display());
    let named = image.path().join("libmeantime_intercept.so");
    std::fs::copy(library(), &named).unwrap();
    let linked = ["-Wl,--no-as-needed", named.to_str().unwrap(), &directory];
    let Some(program) = compiled(&image, "secure", &linked) else { return };
    let usual = ran(&image, &program, &["0"]);
    assert!(usual.code == Some(0) && most_short(&usual) >= 200, "{usual:#?}");
    // The group of nobody: not this process's own.
    chown(&program, None, Some(65_534)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o2755)).unwrap();
    let secure = ran(&image, &program, &["1"]);
    assert!(secure.code == Some(0) && most_short(&secure) == 0, "{secure:#?}");
}
