//! Suites of other projects, if an environment variable names them.

use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Writes what is in the current directory to standard output: names with their attributes, the
/// extended ones, too, and checksums of what is in files.
const LISTED: &str = r"
find . -path ./lost+found -prune -o -printf '%p %y %m %n %U %G %s %T@ %l\n' | LC_ALL=C sort
getfattr -R -h -d -m - -e hex . 2>&1 | LC_ALL=C sort
find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
";

/// Returns the program `name` of a built xfstests, whose directory `MEANTIME_XFSTESTS` names.
fn xfstests(name: &str) -> Option<PathBuf> {
    let Some(suite) = std::env::var_os("MEANTIME_XFSTESTS").map(PathBuf::from) else {
        println!("skipped: MEANTIME_XFSTESTS names no xfstests that was built");
        return None;
    };
    Some(suite.join("ltp").join(name))
}

/// Unmounts, and compares what is there with what the kernel's ext4 finds in the image.
fn end_as_the_kernel_sees_it(mut served: Served) {
    let ours = served.beside("ours");
    let theirs = served.beside("theirs");
    let list = |dir: &Path, list: &Path| {
        let (dir, list) = (dir.display(), list.display());
        format!("cd '{dir}'\n( {LISTED} ) >'{list}'\ncd /\n")
    };
    served.sh(&list(&served.dir(), &ours));
    served.unmount();
    let image = served.image.display();
    e2fs::run("e2fsck", &["-fn", &image.to_string()]);
    let at = served.beside("kernel");
    std::fs::create_dir(&at).unwrap();
    let script = format!(
        "mount -o ro,loop '{image}' '{at}'\n{}umount '{at}'\ndiff '{}' '{}' | head -n 20",
        list(&at, &theirs),
        ours.display(),
        theirs.display(),
        at = at.display(),
    );
    // (A mount of a namespace of its own is in nobody's way.)
    let output = Command::new("unshare").args(["-m", "sh", "-e", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let differences = String::from_utf8_lossy(&output.stdout);
    assert!(differences.is_empty(), "the mount's (<), the kernel's (>):\n{differences}");
    let lines = std::fs::read_to_string(&ours).unwrap().lines().count();
    println!("{lines} lines about names, attributes and contents are the kernel's, too");
}

/// One process changes a file in every way, by mmap, too, and knows what has to be in it.
/// `MEANTIME_FSX_OPERATIONS`: how often, for each of three seeds.
#[test]
fn fsx() {
    let Some(fsx) = xfstests("fsx") else { return };
    let operations =
        std::env::var("MEANTIME_FSX_OPERATIONS").unwrap_or_else(|_| String::from("20000"));
    let Some(served) = Served::new("512M", &Options::default()) else { return };
    let logs = served.beside("logs");
    std::fs::create_dir(&logs).unwrap();
    for seed in ["1", "2", "3"] {
        let said = served.run_for(3600, |command| {
            command.arg(&fsx).args(["-q", "-N", &operations, "-S", seed, "-l", "1048576", "-P"]);
            command.arg(&logs).arg(format!("file{seed}"));
        });
        println!("seed {seed}: {said}");
    }
    end_as_the_kernel_sees_it(served);
}

/// Eight processes at once. `MEANTIME_FSSTRESS_OPERATIONS`: of each.
#[test]
fn fsstress() {
    let Some(fsstress) = xfstests("fsstress") else { return };
    let operations =
        std::env::var("MEANTIME_FSSTRESS_OPERATIONS").unwrap_or_else(|_| String::from("500"));
    let Some(served) = Served::new("2G", &Options::default()) else { return };
    served.sh("mkdir stress");
    let said = served.run_for(3600, |command| {
        command.arg(&fsstress).args([
            "-d",
            "stress",
            "-p",
            "8",
            "-n",
            &operations,
            "-s",
            "20261126",
        ]);
    });
    println!("{said}");
    end_as_the_kernel_sees_it(served);
}
