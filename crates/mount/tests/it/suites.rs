//! Suites of other projects, if an environment variable names them.

use std::path::PathBuf;

use meantime_mount::Options;
use meantime_testkit::e2fs;

use crate::served::Served;

/// `MEANTIME_PJDFSTEST`: the directory of a built pjdfstest. `MEANTIME_PJDFSTEST_PARTS`: its tests
/// to run, separated by spaces; all by default.
#[test]
fn pjdfstest() {
    let Some(suite) = std::env::var_os("MEANTIME_PJDFSTEST").map(PathBuf::from) else {
        return println!("skipped: MEANTIME_PJDFSTEST names no pjdfstest that was built");
    };
    if !e2fs::has("prove") {
        return;
    }
    // Every test needs a root directory that other users can reach.
    let options = Options { allow_other: true, ..Options::default() };
    let Some(served) = Served::new("512M", &options) else { return };
    served.sh("chmod 755 .. .");
    let parts = std::env::var("MEANTIME_PJDFSTEST_PARTS").unwrap_or_default();
    let tests = suite.join("tests");
    let tests: Vec<_> = match parts.split_whitespace().collect::<Vec<_>>() {
        parts if parts.is_empty() => vec![tests],
        parts => parts.iter().map(|part| tests.join(part)).collect(),
    };
    let said = served.run_for(3600, |command| {
        command.args(["prove", "-r"]).args(tests);
    });
    println!("{said}");
    served.end();
}
