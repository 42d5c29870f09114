//! Tells the command its revision, which every result carries.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // HEAD changes at a checkout, its log at a commit too. A path that does not exist would cause a
    // rebuild every time.
    for path in ["../../.git/HEAD", "../../.git/logs/HEAD"] {
        if Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let revision = output.ok().filter(|output| output.status.success());
    let revision = revision.and_then(|output| String::from_utf8(output.stdout).ok());
    // The package's version is used without git or outside a clone.
    let revision = revision.as_deref().map(str::trim).filter(|revision| !revision.is_empty());
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo:rustc-env=MEANTIME_REVISION={}", revision.unwrap_or(version));
    let version =
        revision.map_or_else(|| version.to_owned(), |revision| format!("{version} ({revision})"));
    println!("cargo:rustc-env=MEANTIME_VERSION={version}");
}
