//! What the library does inside of other people's programs: programs in C that do what a program
//! may do with its descriptors, signals, stacks and children, below `meantime run --private`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Ran;
use crate::image::{AT, Image, library, tool};
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

/// Runs program `name` with each of `arguments`, waiting by interrupt: the way that has the most
/// descriptors.
fn each(name: &str, arguments: &[&[&str]]) {
    let Some(image) = Image::tree() else { return };
    let Some(program) = compiled(&image, name, &[]) else { return };
    run_each(&image, &program, name, arguments);
}

fn run_each(image: &Image, program: &Path, name: &str, arguments: &[&[&str]]) {
    let source = image.path().join("src");
    for arguments in arguments {
        let options = [
            "run",
            "--private",
            "--device",
            "file:d.img",
            "--at",
            AT,
            "--completion",
            "interrupt",
            "--",
        ];
        let mut command = crate::common::meantime(image.path(), &options);
        command
            .env("MEANTIME_PRELOAD", library())
            .arg(program)
            .arg(AT)
            .arg(&source)
            .args(*arguments);
        let ran: Ran = command.output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{name} {arguments:?}: {ran:#?}");
    }
}

#[test]
fn our_descriptors_are_not_in_the_way() {
    each(
        "descriptors",
        &[&["closefrom"], &["close_range"], &["each"], &["dup2"], &["onto"], &["few"]],
    );
}

#[test]
fn a_shell_redirects_to_any_number() {
    let Some(image) = Image::new(|src| {
        for file in 0..20 {
            let lines: String = (0..2_000).map(|line| format!("{file} {line}\n")).collect();
            std::fs::write(src.join(format!("f{file}")), lines).unwrap();
        }
    }) else {
        return;
    };
    if !has("bash") {
        return;
    }
    let redirections: String = (3..10).map(|fd| format!("exec {fd}>log{fd}\n")).collect();
    let script = format!(
        "mapfile -t lines < {AT}/f0\n{redirections}for f in {{1..19}}; do mapfile -t lines < {AT}/f$f\n\
         [ ${{#lines[@]}} = 2000 ] && [ \"${{lines[1999]}}\" = \"$f 1999\" ] || exit 9; done\ncat log?"
    );
    let options = [
        "run",
        "--private",
        "--device",
        "file:d.img",
        "--at",
        AT,
        "--completion",
        "interrupt",
        "--",
    ];
    let mut command = crate::common::meantime(image.path(), &options);
    command.env("MEANTIME_PRELOAD", library()).args(["bash", "-c", &script]);
    let ran: Ran = command.output().unwrap().into();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:#?}");
}

#[test]
fn our_threads_take_no_signals() {
    each("signals", &[&[]]);
}

#[test]
fn children_without_our_threads_are_told() {
    each("children", &[&[]]);
}

#[test]
fn handlers_open_files_on_small_stacks() {
    each("stack", &[&["8192", "theirs"], &["16384", "theirs"], &["32768", "theirs"]]);
}

#[test]
fn threads_that_read_can_be_cancelled() {
    each("cancel", &[&[]]);
}

#[test]
fn a_constructor_under_dlopen_does_not_hang() {
    let Some(image) = Image::tree() else { return };
    let name = "constructor";
    let shared = ["-shared", "-fPIC", "-DLIBRARY"];
    let Some(library) = compiled(&image, name, &shared) else { return };
    let loaded = library.with_extension("so");
    std::fs::rename(library, &loaded).unwrap();
    let Some(program) = compiled(&image, name, &["-ldl"]) else { return };
    run_each(&image, &program, name, &[&[loaded.to_str().unwrap()]]);
}

#[test]
fn calls_past_the_functions_are_seen() {
    each("syscalls", &[&[]]);
}

/// A program that runs with more rights than its user does not believe its user's environment.
#[test]
fn a_program_with_more_rights_sees_nothing() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let Some(image) = Image::tree() else { return };
    let directory = format!("-Wl,-rpath,{}", image.path().display());
    let named = image.path().join("libmeantime_preload.so");
    std::fs::copy(library(), &named).unwrap();
    let Some(program) = compiled(&image, "secure", &[named.to_str().unwrap(), &directory]) else {
        return;
    };
    let run = |is_secure: &str| {
        let device = format!("file:{}?ro=1", image.path().join("d.img").display());
        let mut command = Command::new(&program);
        command.env("MEANTIME_RUN_DEVICE", device).env("MEANTIME_RUN_AT", AT).args([AT, is_secure]);
        command.status().unwrap().code()
    };
    assert_eq!(run("0"), Some(10));
    // Any group but this process's own will do: root may give a file to every one, others to those
    // they are in.
    let own = rustix::process::getegid();
    let mut groups = rustix::process::getgroups().unwrap();
    if rustix::process::geteuid().is_root() {
        groups.push(rustix::process::Gid::from_raw(65_534));
    }
    let Some(group) = groups.into_iter().find(|&group| group != own) else {
        println!("skipped: this user is in one group only");
        return;
    };
    chown(&program, None, Some(group.as_raw())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o2755)).unwrap();
    assert_eq!(run("1"), Some(11));
}
