//! Which crate may use which (ARCHITECTURE.md §7). The compiler refuses circles; this refuses a step
//! up that makes none.

use std::collections::BTreeSet;
use std::path::Path;

/// A crate, and the crates of this repository that its library or command may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("spec", &[]),
    ("process", &[]),
    ("hw", &["process", "spec"]),
    ("completion", &["hw", "process"]),
    ("nvme", &["hw", "process", "spec"]),
    // The software SSD, where a URI asks for one.
    ("block", &["completion", "hw", "nvme", "process", "spec", "ssd"]),
    ("ext4-format", &[]),
    ("ext4", &["block", "completion", "ext4-format", "hw", "nvme", "process"]),
    ("posix", &["block", "completion", "ext4", "hw", "nvme", "process", "spec"]),
    ("meantime", &["block", "completion", "ext4", "hw", "nvme", "posix"]),
    // It shares only the specification with the driver.
    ("ssd", &["process", "spec"]),
    ("capi", &["meantime"]),
    ("preload", &["meantime", "process"]),
    ("cli", &["meantime", "spec", "ssd"]),
];

/// The crates of this repository that `name` has as dependencies, but not for its tests.
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
