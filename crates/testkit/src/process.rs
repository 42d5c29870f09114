//! Tests in separate processes, independent of the test runner.

use std::process::Command;

/// Runs the test `name`, given with its modules, again in a separate process, prepared by
/// `prepare`. Returns true in that process.
pub fn in_own_process(name: &str, prepare: impl FnOnce(&mut Command)) -> bool {
    const MARK: &str = "MEANTIME_IN_OWN_PROCESS";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("our own name"));
    command.args(["--exact", name, "--test-threads=1", "--nocapture"]).env(MARK, "1");
    prepare(&mut command);
    let output = command.output().expect("a process");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}: {}", output.status, text.join("\n"));
    // A renamed test would run nothing, and pass.
    assert!(text[0].contains("1 passed"), "{name} did not run: {}", text[0]);
    false
}
