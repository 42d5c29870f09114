//! fio's own example job files: those that do what a job here can do run, and docs/fio.md says why
//! the others do not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, meantime};

/// What they run on.
const DEVICE: &[&str] = &["--device", "mem:64M?inline=1"];

/// What cuts the examples short. `--direct` since a device has no page cache.
const SHORT: &[&str] =
    &["--completion", "poll", "--direct", "1", "--size", "4m", "--runtime", "200ms"];

/// Variables that some take from the environment.
const VARIABLES: &[(&str, &str)] =
    &[("FIO_RW", "randread"), ("FIO_IODEPTH", "4"), ("FIO_BS", "8k")];

/// The engines of fio's that do what a job here does, beside none at all.
const ENGINES: &[&str] =
    &["sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring", "mmap", "posixaio"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The examples, in order.
fn examples() -> Vec<PathBuf> {
    let script = root().join("scripts/fio-examples.sh");
    let output = Command::new(&script)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "fio's examples are needed, which `make setup-test` fetches: {stderr}"
    );
    let dir = std::fs::read_dir(stdout.trim()).unwrap();
    let mut files: Vec<PathBuf> = dir.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "fio"));
    files.sort();
    assert!(files.len() >= 86, "fio 3.33 has 86, fio 3.41 has 99: {}", files.len());
    files
}

fn ran(example: &Path) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let example = example.to_str().unwrap();
    let args: Vec<&str> = ["bench", example].iter().chain(DEVICE).chain(SHORT).copied().collect();
    meantime(dir.path(), &args).envs(VARIABLES.iter().copied()).output().unwrap().into()
}

/// Why an example is refused: each reason once, with what it is the reason for.
fn reasons(stderr: &str) -> String {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for line in stderr.lines() {
        let engine = line
            .split_once("fio's engine ")
            .and_then(|(_, rest)| rest.split_once(" is not supported: it "));
        let key = line
            .split_once("fio's key ")
            .and_then(|(_, rest)| rest.split_once(" is not supported: "));
        let (of, why) = match (engine, key) {
            (Some((engine, does)), _) => {
                (format!("`ioengine={engine}`"), format!("the engine {does}"))
            }
            // Without the command, which names this example.
            (_, Some((key, why))) if why.contains("with our engine") => {
                (format!("`{key}`"), "left to fio".to_owned())
            }
            (_, Some((key, why))) => (format!("`{key}`"), why.to_owned()),
            _ => {
                let line = line.strip_prefix("meantime: ").unwrap_or(line);
                match line.split_once(".fio:").and_then(|(_, line)| line.split_once(": ")) {
                    Some((_, what)) => {
                        let (key, why) = what.split_once(": ").unwrap_or((what, ""));
                        (format!("`{key}`"), why.to_owned())
                    }
                    None => (String::new(), line.to_owned()),
                }
            }
        };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, keys)) if keys.contains(&of) => {}
            Some((_, keys)) => keys.push(of),
            None => reasons.push((why, vec![of])),
        }
    }
    // An engine that does something else is reason enough.
    if let Some(engine) = reasons.iter().position(|(_, of)| of[0].starts_with("`ioengine=")) {
        reasons = vec![reasons.swap_remove(engine)];
    }
    let reason = |(why, of): &(String, Vec<String>)| match of.join(", ") {
        of if of.is_empty() => why.clone(),
        of => format!("{of}: {why}"),
    };
    reasons.iter().map(reason).collect::<Vec<_>>().join("; ")
}

/// The engines that an example names.
fn engines(text: &str) -> BTreeSet<&str> {
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ioengine")?.trim().strip_prefix('='));
    lines.filter_map(|value| value.split_whitespace().next()).collect()
}

#[test]
fn the_examples_run_or_are_refused_for_a_reason() {
    let examples = examples();
    // Of an older fio the examples are fewer, and some have other keys.
    let is_listed =
        examples.iter().any(|path| path.components().any(|part| part.as_os_str() == "fio-3.41"));
    let mut table = String::from("| example | here |\n|---|---|\n");
    for example in examples {
        let name = example.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&example).unwrap();
        let ran = ran(&example);
        let here = match ran.code {
            Some(0) => "runs".to_owned(),
            _ => reasons(&ran.stderr),
        };
        // A refusal names a key or engine of fio's: no example has a slip in it.
        assert!(!ran.stderr.contains("unknown key"), "{name}: {}", ran.stderr);
        assert!(ran.code == Some(0) || ran.stdout.is_empty(), "{name}: it began to run: {ran:?}");
        let alike = engines(&text).iter().all(|engine| ENGINES.contains(engine));
        assert!(alike || here != "runs" || text.contains("=null"), "{name}: {here}");
        table += &format!("| {name} | {here} |\n");
    }
    let path = root().join("docs/fio.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- examples -->\n", "<!-- /examples -->\n");
    let (before, rest) = document.split_once(begin).unwrap();
    let (there, after) = rest.split_once(end).unwrap();
    if std::env::var_os("MEANTIME_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    if is_listed {
        assert_eq!(there, table, "docs/fio.md is not true; write it anew with MEANTIME_BLESS=1");
        return;
    }
    for row in table.lines().filter(|row| row.ends_with("| runs |")) {
        let name = row.split('|').nth(1).unwrap_or_default();
        assert!(
            there.contains(row) || !there.contains(&format!("|{name}|")),
            "docs/fio.md refuses{name}"
        );
    }
}
