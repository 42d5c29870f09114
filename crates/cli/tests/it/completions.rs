//! Tab in real shells, on a terminal.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Ran, run, succeed};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A directory with an image, a job and a file of another kind.
fn scene() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["fs", "mkfs", "file:disk.img?create=16M"]);
    succeed(dir.path(), &["fs", "mkdir", "-p", "file:disk.img:/usr/share"]);
    succeed(dir.path(), &["fs", "mkdir", "file:disk.img:/a b"]);
    std::fs::write(dir.path().join("my job.fio"), "").unwrap();
    std::fs::write(dir.path().join("my.txt"), "").unwrap();
    succeed(dir.path(), &["fs", "put", "my.txt", "file:disk.img:/usr/share/passwd"]);
    dir
}

/// Types lines, each with a Tab at its end, and returns what is there then.
fn tab(shell: &str, setup: &str, dir: &Path, lines: &[&str]) -> Vec<String> {
    let command = Path::new(env!("CARGO_BIN_EXE_meantime")).parent().unwrap();
    let path = format!("{}:{}", command.display(), std::env::var("PATH").unwrap());
    let setup =
        setup.replace("COMPLETIONS", repository().join("crates/cli/completions").to_str().unwrap());
    let output = Command::new(repository().join("scripts/tab.py"))
        .args(["--setup", &setup, shell, "--"])
        .args(lines)
        .current_dir(dir)
        .env("PATH", path)
        .output()
        .unwrap();
    let ran = Ran::from(output);
    assert_eq!(ran.code, Some(0), "{shell} (`make setup-test` installs it): {ran:#?}");
    ran.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn the_command_prints_the_scripts() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, file) in
        [("bash", "meantime.bash"), ("zsh", "_meantime"), ("fish", "meantime.fish")]
    {
        let path = repository().join("crates/cli/completions").join(file);
        let printed = succeed(dir.path(), &["completions", shell]).stdout;
        assert_eq!(printed, std::fs::read_to_string(path).unwrap(), "{shell}");
    }
}

/// What all shells complete alike.
const ALIKE: &[(&str, &str)] = &[
    ("meantime dev", "meantime devices "),
    ("meantime bench --device me", "meantime bench --device mem:"),
    ("meantime bench --device mem:1G\\?mod", "meantime bench --device mem:1G\\?model="),
    ("meantime bench --device mem:1G\\?model=op", "meantime bench --device mem:1G\\?model=optane "),
    ("meantime bench --device 'mem:1G?model=op", "meantime bench --device 'mem:1G?model=optane' "),
    ("meantime bench --device=file:di", "meantime bench --device=file:disk.img "),
    ("meantime bench --completion poll,ad", "meantime bench --completion poll,adaptive "),
    ("meantime bench my", "meantime bench my\\ job.fio "),
    ("meantime fs ls file:d", "meantime fs ls file:disk.img:/"),
    ("meantime fs ls file:disk.img:/a", "meantime fs ls file:disk.img:/a\\ b/"),
    ("meantime fs ls file:disk.img:/us", "meantime fs ls file:disk.img:/usr/"),
    (
        "meantime fs cat file:disk.img:/usr/share/p",
        "meantime fs cat file:disk.img:/usr/share/passwd ",
    ),
];

fn completes_as(shell: &str, setup: &str, own: &[(&str, &str)]) {
    let dir = scene();
    let cases: Vec<_> = ALIKE.iter().chain(own).collect();
    let typed: Vec<&str> = cases.iter().map(|(typed, _)| *typed).collect();
    let lines = tab(shell, setup, dir.path(), &typed);
    assert_eq!(lines.len(), cases.len());
    for ((typed, wanted), line) in cases.iter().zip(lines) {
        assert_eq!(line, *wanted, "{shell}: {typed}");
    }
}

#[test]
fn bash_completes() {
    completes_as(
        "bash",
        ". COMPLETIONS/meantime.bash",
        &[
            // Several candidates are shown, of what follows the last colon.
            ("meantime fs ls file:disk.img:/", "/a\\ b/ /lost+found/ /usr/"),
            ("meantime bench --device vf", "meantime bench --device vfio"),
            // A quote stays open where more is to follow.
            ("meantime bench --device 'me", "meantime bench --device 'mem:"),
        ],
    );
}

#[test]
fn zsh_completes() {
    completes_as(
        "zsh",
        "fpath=(COMPLETIONS $fpath); autoload -U compinit; compinit -u -D",
        &[("meantime bench --device 'me", "meantime bench --device 'mem:")],
    );
}

#[test]
fn fish_completes() {
    let dir = scene();
    let typed = ["meantime dev", "meantime bench --device me", "meantime fs ls file:disk.img:/us"];
    let wanted =
        ["meantime devices ", "meantime bench --device mem:", "meantime fs ls file:disk.img:/usr/"];
    assert_eq!(tab("fish", "source COMPLETIONS/meantime.fish", dir.path(), &typed), wanted);
}

/// The candidates as zsh gets them, without their help.
fn candidates(dir: &Path, words: &[&str]) -> String {
    let ran = run(dir, &[&["complete", "zsh", "--", "meantime"], words].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{words:?}");
    let values = ran.stdout.lines().map(|line| line.split('\t').next().unwrap_or_default());
    values.collect::<Vec<_>>().join(" ")
}

#[test]
fn options_are_offered_to_who_begins_one() {
    let dir = scene();
    assert_eq!(
        candidates(dir.path(), &["fs", "ls", "file:disk.img:/usr/"]),
        "file:disk.img:/usr/share/"
    );
    assert!(candidates(dir.path(), &["fs", ""]).starts_with("ls cat stat"));
    assert_eq!(candidates(dir.path(), &["info", "--js"]), "--json");
    assert_eq!(candidates(dir.path(), &["ssd", "ctl", "x", "po"]), "power-cut");
    // What is not there, or not so, is completed by nothing, in silence.
    for words in [
        &["info", "--device", "nfs:"][..],
        &["fs", "ls", "file:no.img:/"],
        &["fs", "ls", "file:my.txt:/"],
    ] {
        assert_eq!(candidates(dir.path(), words), "", "{words:?}");
    }
}

/// An image is read whatever its state, and nothing else is opened: a pipe would block.
#[test]
fn only_regular_files_are_opened() {
    let dir = scene();
    let made = Command::new("mkfifo").arg(dir.path().join("pipe.img")).status().unwrap();
    assert!(made.success());
    let begun = Instant::now();
    for place in ["file:pipe.img:/", "kernel:/dev/null:/", "kernel:/dev/zero:/"] {
        assert_eq!(candidates(dir.path(), &["fs", "ls", place]), "", "{place}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30));

    let trace = dir.path().join("trace");
    let traced = Command::new("strace")
        .args(["-f", "-e", "trace=open,openat,connect,unlink", "-o"])
        .arg(&trace)
        .args([env!("CARGO_BIN_EXE_meantime"), "complete", "zsh", "--", "meantime", "fs", "ls"])
        .arg("file:disk.img:/u")
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(traced.stdout).unwrap(), "file:disk.img:/usr/\n");
    let calls = std::fs::read_to_string(trace).unwrap();
    assert!(
        calls.lines().any(|call| call.contains("disk.img") && call.contains("O_RDONLY")),
        "{calls}"
    );
    for call in calls.lines().filter(|call| call.contains("open")) {
        assert!(
            !call.contains("O_RDWR") && !call.contains("O_WRONLY") && !call.contains("\"/dev/"),
            "{call}"
        );
    }
    assert!(!calls.contains("connect("), "{calls}");
}
