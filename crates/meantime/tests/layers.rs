//! The ranks of the layers (ARCHITECTURE.md §7): no module uses one above it, driver and software SSD share only `spec`, and
//! `unsafe` stays where hardware or the C ABI is.

use std::path::{Path, PathBuf};

/// Lowest first.
const RANKS: [&str; 6] = ["hw", "nvme", "completion", "block", "ext4", "posix"];

/// Files that may contain `unsafe`, relative to the repository.
const UNSAFE: &[&str] = &[
    // A software SSD's port, whose only user is its transport.
    "crates/meantime/src/block/open.rs",
    "crates/meantime/src/hw/clock.rs",
    "crates/meantime/src/hw/cpu.rs",
    "crates/meantime/src/hw/dma.rs",
    "crates/meantime/src/hw/floor.rs",
    "crates/meantime/src/hw/ioprio.rs",
    "crates/meantime/src/hw/mmio.rs",
    "crates/meantime/src/hw/numa.rs",
    "crates/meantime/src/hw/pages.rs",
    "crates/meantime/src/hw/pause.rs",
    "crates/meantime/src/hw/scatter.rs",
    "crates/meantime/src/hw/sched.rs",
    "crates/meantime/src/hw/sigbus.rs",
    "crates/meantime/src/hw/soft.rs",
    // Doubles of the transports.
    "crates/meantime/src/hw/testing.rs",
    // What a transport promises, and who promises it.
    "crates/meantime/src/hw/transport.rs",
    "crates/meantime/src/hw/uring.rs",
    "crates/meantime/src/hw/user_memory.rs",
    "crates/meantime/src/hw/vfio/ioctl.rs",
    "crates/meantime/src/hw/vfio/mod.rs",
    "crates/meantime/src/hw/vfio/window.rs",
    "crates/meantime/src/hw/vfio_user/bar.rs",
    "crates/meantime/src/hw/vfio_user/mod.rs",
    "crates/meantime/src/hw/vfio_user/peer.rs",
    "crates/meantime/src/hw/view.rs",
    // What is written to a controller's registers.
    "crates/meantime/src/nvme/registers.rs",
    "crates/meantime/src/nvme/ring.rs",
    "crates/meantime/src/nvme/shadow.rs",
    "crates/meantime/tests",
    "crates/meantime/benches",
    "crates/capi/src",
    "crates/capi/tests",
    "crates/capi/benches",
    "crates/cli/src/bench/usage.rs",
    "crates/cli/src/competitor/shared.rs",
    "crates/cli/src/signal.rs",
    "crates/cli/src/ssd/sigbus.rs",
    "crates/preload/src",
    "crates/process/src",
    "crates/ssd/src/hostmem.rs",
    "crates/ssd/src/medium.rs",
    "crates/ssd/src/served/mapping.rs",
    // The promise of the seam.
    "crates/ssd/src/stepped.rs",
    "crates/ssd/src/threaded.rs",
    "crates/ssd/src/sys.rs",
    "crates/ssd/benches",
    // Declarations only: the contract of the seam.
    "crates/spec/src/seam.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && entry.file_name().is_some_and(|name| name != "target") {
            rust_files(&entry, files);
        } else if entry.extension().is_some_and(|ext| ext == "rs") {
            files.push(entry);
        }
    }
}

/// The code of a file: comments, and what follows `#[cfg(test)]`, do not count.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Modules of the crate named after `crate::`, grouped ones included.
fn used_modules(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let list = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or_default(),
            None => rest,
        };
        for part in list.split(',') {
            let name: String =
                part.trim().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            used.push(name);
            if !rest.starts_with('{') {
                break;
            }
        }
    }
    used
}

#[test]
fn no_module_uses_one_above_it() {
    let src = root().join("crates/meantime/src");
    for (rank, layer) in RANKS.iter().enumerate() {
        let mut files = Vec::new();
        rust_files(&src.join(layer), &mut files);
        assert!(!files.is_empty(), "layer {layer} is empty");
        for file in files {
            for used in used_modules(&code(&file)) {
                if let Some(other) = RANKS.iter().position(|name| *name == used) {
                    assert!(other <= rank, "{} uses crate::{used}, which is above {layer}", file.display());
                }
            }
        }
    }
}

#[test]
fn driver_and_ssd_share_only_the_specification() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let ssd = read("crates/ssd/Cargo.toml");
    assert!(!ssd.lines().any(|line| line.starts_with("meantime.") || line.starts_with("meantime ")));
    let spec = read("crates/spec/Cargo.toml");
    assert!(!spec.contains("meantime-ssd") && !spec.contains("meantime.workspace"));
    // The driver knows the SSD in one place, where a URI asks for one.
    let mut files = Vec::new();
    rust_files(&root().join("crates/meantime/src"), &mut files);
    for file in files.iter().filter(|file| code(file).contains("meantime_ssd")) {
        assert!(file.ends_with("block/open.rs"), "{} uses the software SSD", file.display());
    }
}

/// Ours run in other people's programs: `meantime_process::thread` has them block the program's signals.
#[test]
fn threads_are_started_in_one_way() {
    let mut files = Vec::new();
    for krate in ["meantime", "ssd", "preload", "capi"] {
        rust_files(&root().join("crates").join(krate).join("src"), &mut files);
    }
    files.retain(|file| {
        !file.ends_with("tests.rs") && !file.components().any(|part| part.as_os_str() == "tests")
    });
    for file in files {
        let code = code(&file);
        let code = code.split("\nmod tests {").next().unwrap_or_default();
        let own = ["thread::spawn(", "thread::Builder", "scope.spawn("]
            .iter()
            .find(|way| code.match_indices(*way).any(|(at, _)| !code[..at].ends_with("meantime_process::")));
        assert!(own.is_none(), "{}: {own:?}, not meantime_process::thread::spawn", file.display());
    }
}

#[test]
fn unsafe_is_confined() {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    for file in files {
        let relative = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if relative.ends_with("tests/layers.rs") {
            continue;
        }
        let code = code(&file);
        let has_unsafe = ["{", "fn", "impl", "extern", "trait"]
            .iter()
            .any(|next| code.contains(&format!("unsafe {next}")));
        let allowed = UNSAFE.iter().any(|path| relative.starts_with(path)) || relative.contains("/tests/");
        assert!(
            !has_unsafe || allowed,
            "{relative} has unsafe code: it belongs in hw, nvme/registers.rs, nvme/ring.rs or ssd/hostmem.rs; or extend the list with a reason"
        );
    }
}
