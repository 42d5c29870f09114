//! The allowed dependencies between crates (ARCHITECTURE.md §7). The compiler refuses cycles; this
//! test also refuses upward dependencies without a cycle, and threads started otherwise than by
//! `process`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A crate, and the crates of this repository that its library or command may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("nvme-auth", &[]),
    ("nvme-spec", &[]),
    ("process", &[]),
    ("shm-rpc", &[]),
    ("random", &[]),
    ("hw", &["nvme-spec", "process"]),
    ("completion", &["hw", "process"]),
    // Experiments: for programs and tests, never used by the library.
    ("baselines", &["completion", "hw", "process", "random"]),
    ("nvme", &["hw", "nvme-spec", "process"]),
    ("fabrics", &["hw", "nvme-auth", "nvme-spec", "process"]),
    ("partitions", &[]),
    // The software SSD, for URIs that name one.
    (
        "block",
        &[
            "completion",
            "fabrics",
            "hw",
            "nvme",
            "nvme-auth",
            "nvme-spec",
            "partitions",
            "process",
            "ssd",
        ],
    ),
    ("ext4-format", &[]),
    ("ext4", &["block", "completion", "ext4-format", "hw", "nvme", "partitions", "process"]),
    ("mount", &["completion", "ext4", "process", "shm-rpc"]),
    ("meantime", &["block", "completion", "ext4", "hw", "nvme"]),
    // It shares with the driver only the specification, and crates that know neither.
    ("ssd", &["nvme-auth", "nvme-spec", "process", "random"]),
    ("capi", &["baselines", "block", "completion", "hw", "nvme"]),
    ("fio-engine", &["baselines", "block", "completion", "hw", "nvme"]),
    ("python", &["block", "completion", "ext4", "hw", "process"]),
    ("intercept", &["process", "shm-rpc"]),
    // For tests only.
    (
        "testkit",
        &[
            "block",
            "completion",
            "ext4",
            "hw",
            "nvme",
            "nvme-spec",
            "partitions",
            "process",
            "random",
            "ssd",
        ],
    ),
    // Results and pages: it makes no measurements.
    ("report", &[]),
    ("qualify", &["block", "completion", "hw", "nvme", "nvme-spec", "process", "random", "report"]),
    // It runs the command, and uses nothing of what it measures.
    ("reproduce", &["report"]),
    (
        "bench",
        &["baselines", "block", "completion", "ext4", "hw", "nvme", "process", "random", "report"],
    ),
    (
        "cli",
        &[
            "baselines",
            "bench",
            "block",
            "completion",
            "ext4",
            "hw",
            "mount",
            "nvme",
            "nvme-spec",
            "process",
            "qualify",
            "random",
            "report",
            "reproduce",
            "shm-rpc",
            "ssd",
        ],
    ),
];

/// The dependencies of `name` among this repository's crates, without those of its tests.
fn used(crates: &Path, name: &str) -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
    let mut section = "";
    let mut used = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") && !section.contains("dev-dependencies") {
            let key = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if key == "meantime" {
                used.insert(key.to_owned());
            } else if let Some(other) = key.strip_prefix("meantime-") {
                used.insert(other.to_owned());
            }
        }
    }
    used
}

#[test]
fn a_crate_uses_only_those_beneath_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let there: BTreeSet<String> = std::fs::read_dir(crates)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let known: BTreeSet<String> = MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(there, known, "every crate has a place in the table");
    for (name, may) in MAY_USE {
        for other in used(crates, name) {
            assert!(may.contains(&other.as_str()), "{name} uses {other}");
        }
    }
}

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            rust_files(&entry, files);
        } else if entry.extension().is_some_and(|ext| ext == "rs") {
            files.push(entry);
        }
    }
}

/// The code of a file without its comments and its tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The library runs in other programs' processes: `meantime_process::thread` makes its threads
/// block the program's signals.
#[test]
fn threads_are_started_in_one_way() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    // The command is a program itself; `process` implements the spawning.
    for (name, _) in MAY_USE.iter().filter(|(name, _)| !["cli", "process"].contains(name)) {
        rust_files(&crates.join(name).join("src"), &mut files);
    }
    files.retain(|file| {
        let is_test = |part: &std::ffi::OsStr| {
            part == "tests" || part == "loom_model.rs" || part == "tests.rs"
        };
        !file.components().any(|part| is_test(part.as_os_str()))
    });
    assert!(files.len() > 200, "{}", files.len());
    for file in files {
        let code = code(&file);
        let own = ["thread::spawn(", "thread::Builder", "scope.spawn("].iter().find(|way| {
            code.match_indices(*way).any(|(at, _)| !code[..at].ends_with("meantime_process::"))
        });
        assert!(own.is_none(), "{}: {own:?}, not meantime_process::thread::spawn", file.display());
    }
}
