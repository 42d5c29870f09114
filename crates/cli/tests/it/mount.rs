//! `meantime mount` and `umount`.

use std::path::Path;
use std::process::Command;

use meantime_testkit::e2fs;
use meantime_testkit::image::scratch;

use crate::common::{run, succeed};

/// A directory with an image in it, and an empty directory; `None`, with a message, where mounting
/// may not be done.
fn prepared() -> Option<tempfile::TempDir> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || std::fs::File::open("/dev/fuse").is_err() {
        println!("skipped: not root, or no /dev/fuse");
        return None;
    }
    if !e2fs::tools() {
        return None;
    }
    let dir = scratch();
    e2fs::mkfs(dir.path(), "disk.img", "64M", &[]);
    std::fs::create_dir(dir.path().join("at")).unwrap();
    Some(dir)
}

/// Runs `script` in `dir`, for a minute at most: a mount that does not answer fails the test.
fn sh(dir: &Path, script: &str) -> String {
    let output = Command::new("timeout")
        .args(["-s", "KILL", "60", "sh", "-e", "-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_mount_is_in_the_background_until_it_is_unmounted() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let ran = succeed(dir, &["mount", "file:disk.img?model=null", "at", "-o", "noatime,nodev"]);
    assert_eq!((&*ran.stdout, &*ran.stderr), ("", ""));
    assert_eq!(sh(dir, "echo text > at/file; cat at/file; stat -f -c %T at"), "text\nfuseblk\n");
    let line = sh(dir, "grep fuse.meantime /proc/mounts | grep \"$PWD/at\"");
    assert!(line.starts_with("file:disk.img?model=null ") && line.contains("nodev"), "{line}");
    // Neither the directory nor the device is free.
    let refused = run(dir, &["mount", "file:disk.img", "at"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("nonempty"), "{refused:?}");
    std::fs::create_dir(dir.join("other")).unwrap();
    let refused = run(dir, &["mount", "file:disk.img", "other"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("in use"), "{refused:?}");
    // Everything is written when it returns.
    succeed(dir, &["umount", "at"]);
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/file"]).stdout, "text\n");
    let refused = run(dir, &["umount", "at"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("nothing"), "{refused:?}");
}

#[test]
fn a_signal_unmounts_and_a_killed_mount_is_recovered() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let server = |signal: &str| {
        let line =
            format!("pgrep -f \"mount file:$PWD/disk.img.*--announce\" | xargs kill -{signal}");
        sh(dir, &line);
    };
    let device = format!("file:{}?model=null", dir.join("disk.img").display());
    succeed(dir, &["mount", &device, "at"]);
    sh(dir, "echo text > at/file");
    server("TERM");
    sh(dir, "while grep -q \"$PWD/at\" /proc/mounts; do sleep 0.02; done");
    // (It is unmounted, and the process writes what is left.)
    let image = dir.join("disk.img");
    sh(dir, "while pgrep -f \"mount file:$PWD/disk.img\" > /dev/null; do sleep 0.02; done");
    e2fs::run("e2fsck", &["-fn", image.to_str().unwrap()]);
    succeed(dir, &["mount", &device, "at"]);
    sh(dir, "echo durable > at/second; sync at/second");
    server("KILL");
    succeed(dir, &["umount", "at"]);
    succeed(dir, &["mount", &device, "at"]);
    assert_eq!(sh(dir, "cat at/file at/second"), "text\ndurable\n");
    succeed(dir, &["umount", "at"]);
    e2fs::run("e2fsck", &["-fn", image.to_str().unwrap()]);
}

#[test]
fn what_cannot_be_mounted_is_refused_in_one_line() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    std::fs::write(dir.join("junk"), vec![7; 1 << 20]).unwrap();
    for (args, code, part) in [
        (&["mount", "file:disk.img", "none"][..], 1, "mkdir"),
        (&["mount", "file:none.img", "at"], 1, "none.img"),
        (&["mount", "file:junk", "at"], 1, "no ext4"),
        (&["mount", "file:disk.img", "at", "-o", "colour=red"], 2, "no such option"),
        (&["mount", "file:disk.img"], 2, "DIR"),
    ] {
        let ran = run(dir, args);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(code), 1), "{ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
}
