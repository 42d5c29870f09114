//! Suites of other projects, if an environment variable names them.

use std::path::{Path, PathBuf};
use std::process::Command;

use meantime_mount::Options;
use meantime_testkit::image::Mounted;
use meantime_testkit::{e2fs, setting};

use crate::served::{Served, by_each_way};
use crate::way::Way;

by_each_way!(pjdfstest, fsx, fsstress);

/// Runs pjdfstest. `MEANTIME_PJDFSTEST` is the directory of a built one. `MEANTIME_PJDFSTEST_PARTS`
/// are its tests to run, separated by spaces; all by default.
fn pjdfstest(way: Way) {
    let Some(suite) = std::env::var_os("MEANTIME_PJDFSTEST").map(PathBuf::from) else {
        return println!("skipped: MEANTIME_PJDFSTEST names no pjdfstest that was built");
    };
    if !e2fs::has("prove") {
        return;
    }
    // Every test needs a root directory that other users can reach.
    let options = Options { allow_other: true, ..Options::default() };
    let Some(served) = Served::by(way, "512M", &options) else { return };
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
    println!("{said}\n{:?}", served.data_calls());
    served.end();
}

/// Lists the current directory on standard output: names with their attributes, the extended ones,
/// too, and checksums of the files' contents.
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
    let list = |dir: &Path| {
        let output = Command::new("sh").args(["-c", LISTED]).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ours = served.used(list);
    served.unmount();
    e2fs::run("e2fsck", &["-fn", served.image.to_str().unwrap()]);
    let at = served.beside("kernel");
    let Some(_mounted) = Mounted::new(&served.image, &at, "ro") else { return };
    let theirs = list(&at);
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
    let lines = ours.lines().count();
    println!("{lines} lines about names, attributes and contents are the kernel's, too");
}

/// One process changes a file in every way, and knows its expected content. It runs with mappings
/// and copies, which leave the file to the kernel until it is closed, and without them.
/// `MEANTIME_FSX_OPERATIONS` is the number of operations for each of three seeds.
fn fsx(way: Way) {
    let Some(fsx) = xfstests("fsx") else { return };
    let operations = setting("MEANTIME_FSX_OPERATIONS").unwrap_or(20_000).to_string();
    let Some(served) = Served::by(way, "512M", &Options::default()) else { return };
    let logs = served.beside("logs");
    std::fs::create_dir(&logs).unwrap();
    for (kind, options) in [("all", &[][..]), ("no maps, no copies", &["-R", "-W", "-E"])] {
        let before = served.data_calls();
        for seed in ["1", "2", "3"] {
            let said = served.run_for(3600, |command| {
                command.arg(&fsx).args(["-q", "-N", &operations, "-S", seed, "-l", "1048576"]);
                command.args(["-c", "200", "-P"]).arg(&logs).args(options);
                command.arg(format!("file{seed}"));
            });
            println!("{kind}, seed {seed}: {said}");
        }
        if kind == "all" {
            println!("{:?}", served.data_calls().since(before));
        } else {
            served.went_their_way(kind, before);
        }
    }
    end_as_the_kernel_sees_it(served);
}

/// Runs eight processes at once. `MEANTIME_FSSTRESS_OPERATIONS` is the number of operations of
/// each.
fn fsstress(way: Way) {
    let Some(fsstress) = xfstests("fsstress") else { return };
    let operations = setting("MEANTIME_FSSTRESS_OPERATIONS").unwrap_or(500).to_string();
    let Some(served) = Served::by(way, "2G", &Options::default()) else { return };
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
    println!("{said}\n{:?}", served.data_calls());
    end_as_the_kernel_sees_it(served);
}
