//! `meantime mount` and `umount`.

use std::path::Path;
use std::process::Command;

use meantime_testkit::e2fs;
use meantime_testkit::image::scratch;

use crate::common::{meantime, run, succeed};

/// Makes a directory with an image and an empty directory; `None`, with a message, where mounting
/// is not permitted.
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

/// Runs `script` in `dir`, for at most a minute: a mount that does not answer fails the test.
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
    assert!(refused.stderr.contains(" (meantime) has a lock on it"), "{refused:?}");
    // The message names the process that uses the mount.
    let mut user = Command::new("sleep").arg("60").current_dir(dir.join("at")).spawn().unwrap();
    let refused = run(dir, &["umount", "at"]);
    let named = format!("used by process {} (sleep)", user.id());
    assert!(refused.code == Some(1) && refused.stderr.contains(&named), "{refused:?}");
    user.kill().unwrap();
    user.wait().unwrap();
    // Everything is written when `umount` returns.
    succeed(dir, &["umount", "at"]);
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/file"]).stdout, "text\n");
    let refused = run(dir, &["umount", "at"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("nothing"), "{refused:?}");
}

#[test]
fn top_looks_at_a_mount() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let run = |args: &[&str]| {
        let output = meantime(dir, args).env("XDG_RUNTIME_DIR", dir).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let device = format!("file:{}?model=null", dir.join("disk.img").display());
    run(&["mount", &device, "at"]);
    sh(dir, "for n in 1 2 3; do echo $n > at/file; sync at/file; done");
    let pid = sh(dir, "pgrep -f \"mount file:$PWD/disk.img.*--announce\"");
    let seen = run(&["top", pid.trim(), "--once", "--json", "--interval", "0.2"]);
    let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
    assert!(!seen["queues"].as_array().unwrap().is_empty(), "{seen}");
    run(&["umount", "at"]);
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
    // (It is unmounted, but its process still writes the rest.)
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
        (&["mount", "--repair", "at"], 1, "nothing is mounted"),
        (&["mount", "--repair", "/proc"], 1, "proc"),
    ] {
        let ran = run(dir, args);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(code), 1), "{ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
}

/// Without /dev/fuse; and for a user without fusermount3.
#[test]
fn where_nothing_can_be_mounted_it_is_said_what_reads_files() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    if !e2fs::has("unshare") || !e2fs::has("setpriv") {
        return;
    }
    let command = env!("CARGO_BIN_EXE_meantime");
    // A device without a driver, which only this command sees.
    let hidden = "mount -t tmpfs none /mnt; mknod /mnt/fuse c 10 254; \
                  mount --bind /mnt/fuse /dev/fuse; umount -l /mnt; exec";
    let user = "chmod 755 .; chmod 666 disk.img; chown 12345 at; PATH=/none exec \
                $(command -v setpriv) --reuid 12345 --regid 12345 --clear-groups";
    for (before, arguments, part) in [
        (hidden, "mount file:disk.img at", "/dev/fuse: No such device"),
        (hidden, "run --device file:disk.img --at $PWD/at -- true", "/dev/fuse: No such device"),
        (user, "mount file:disk.img at", "fusermount3, which is not here"),
    ] {
        let script = format!("{before} {command} {arguments}");
        let args = ["-m", "sh", "-e", "-c", &script];
        let output = Command::new("unshare").args(args).current_dir(dir).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(part), "{script}: {said}");
        for other in ["`meantime fs get`", "`meantime fs cat`", "fsspec"] {
            assert!(said.contains(other), "{script}: no {other} in {said}");
        }
    }
}

#[test]
fn repair_removes_dead_mounts_and_no_others() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let device = format!("file:{}?model=null", dir.join("disk.img").display());
    // (The shell itself does not match: its command line has `$PWD` unexpanded.)
    let kill = || {
        let server = "pgrep -f \"mount file:$PWD/disk.img.*--announce\"";
        sh(
            dir,
            &format!("kill -KILL $({server}); while {server} > /dev/null; do sleep 0.02; done"),
        );
    };
    // (Without a dead mount there is nothing to remove.)
    succeed(dir, &["mount", "--repair", &device, "at"]);
    sh(dir, "echo durable > at/file; sync at/file");
    let refused = run(dir, &["mount", "--repair", "at"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("not ended"), "{refused:?}");
    kill();
    let refused = run(dir, &["mount", &device, "at"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("umount -l"), "{refused:?}");
    assert!(refused.stderr.contains("--repair"), "{refused:?}");
    succeed(dir, &["mount", "--repair", &device, "at", "-o", "noatime"]);
    assert_eq!(sh(dir, "cat at/file"), "durable\n");
    // Also if a process has its working directory there.
    let mut inside = Command::new("sleep").arg("60").current_dir(dir.join("at")).spawn().unwrap();
    kill();
    succeed(dir, &["mount", "--repair", "at"]);
    assert_eq!(std::fs::read_dir(dir.join("at")).unwrap().count(), 0);
    inside.kill().unwrap();
    inside.wait().unwrap();
}

/// mount(8) and umount(8), in a mount namespace where /sbin is ours.
#[test]
fn a_line_of_fstab_mounts_by_the_helper() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    if !e2fs::has("unshare") || !e2fs::has("mount") {
        return;
    }
    let script = format!(
        r#"
        mount -t tmpfs none /sbin
        for name in mount umount; do ln -s '{}' /sbin/$name.fuse.meantime; done
        words=noauto,users,exec,noatime,nofail,_netdev,x-systemd.requires=a.service,comment=b
        echo "file:$PWD/disk.img $PWD/at fuse.meantime $words 0 0" > fstab
        mount -T "$PWD/fstab" "$PWD/at"
        grep "$PWD/at" /proc/mounts
        echo text > at/file
        mount -T "$PWD/fstab" -o remount,strictatime "$PWD/at" 2>&1 || echo $?
        umount "$PWD/at"
        mount -v -t fuse.meantime -o ro "file:$PWD/disk.img" "$PWD/at"
        cat at/file
        umount at
        # What mount(8) asks of a helper.
        mount -f -t fuse.meantime "file:$PWD/disk.img" "$PWD/at"
        mount -s -t fuse.meantime -o colour=red "file:$PWD/disk.img" at && umount at
        mount -t fuse.meantime -o colour=red "file:$PWD/disk.img" "$PWD/at" 2>&1 || echo $?
        mount -t fuse.meantime "file:$PWD/none.img" "$PWD/at" 2>&1 || echo $?
        /sbin/mount.fuse.meantime "file:$PWD/disk.img" at -N /proc/1/ns/mnt 2>&1 || echo $?
        "#,
        env!("CARGO_BIN_EXE_meantime")
    );
    std::fs::write(dir.join("script"), script).unwrap();
    let output = sh(dir, "unshare -m sh -e script");
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].contains("nosuid,nodev,") && !lines[0].contains("noexec"), "{output}");
    for (line, part) in [
        (1, "times of reading"),
        (2, "32"),
        (3, "mounted on"),
        (4, "text"),
        (5, "no such option"),
        (6, "1"),
        (7, "none.img"),
        (8, "32"),
        (9, "nsenter"),
        (10, "1"),
    ] {
        assert!(lines.get(line).is_some_and(|line| line.contains(part)), "{line} {part}: {output}");
    }
    assert_eq!(lines.len(), 11, "{output}");
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
}

#[test]
fn after_a_remount_for_reading_all_is_written_and_nothing_more() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let helper = dir.join("mount.fuse.meantime");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_meantime"), &helper).unwrap();
    // (Some of the options that mount(8) adds are the kernel's.)
    let remount = |words: &str| {
        let line = format!(
            "./mount.fuse.meantime file:disk.img at -o \
             rw,noexec,user_id=0,group_id=0,remount,{words} 2>&1 || echo $?"
        );
        sh(dir, &line)
    };
    succeed(dir, &["mount", "file:disk.img?model=null", "at", "-o", "noexec,commit=3600"]);
    sh(dir, "echo text > at/file; exec 3> at/open; ./mount.fuse.meantime x at -o remount,ro || :");
    assert_eq!(remount("ro"), "");
    // The device has everything now, and does not change any more.
    let image = std::fs::read(dir.join("disk.img")).unwrap();
    sh(dir, "cp disk.img copy.img; cat at/file > /dev/null; ls at > /dev/null; sleep 0.2");
    let journal = run(dir, &["fs", "cat", "file:copy.img?ro=1:/file"]);
    assert_eq!(journal.stdout, "text\n", "{journal:?}");
    assert_eq!(sh(dir, "echo more 2>/dev/null > at/more || echo refused"), "refused\n");
    assert!(remount("colour=red").contains("no such option"));
    assert!(remount("sync").contains("cannot be changed"));
    assert_eq!(remount("ro"), "");
    assert!(std::fs::read(dir.join("disk.img")).unwrap() == image, "something was written");
    assert_eq!(remount("rw,noatime"), "");
    sh(dir, "echo more > at/more; grep \"$PWD/at\" /proc/mounts | grep -q noexec");
    succeed(dir, &["umount", "at"]);
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/more"]).stdout, "more\n");
    // A read-only mount cannot be made writable.
    succeed(dir, &["mount", "file:disk.img", "at", "-o", "ro"]);
    assert!(remount("rw").contains("for reading"));
    succeed(dir, &["umount", "at"]);
}

/// Another mount namespace has a copy of the mount, as a container may: a signal ends it all the
/// same, and everything is written.
#[test]
fn a_copy_in_another_namespace_keeps_no_signal_from_ending_a_mount() {
    let Some(dir) = prepared() else { return };
    let dir = dir.path();
    let device = format!("file:{}?model=null", dir.join("disk.img").display());
    succeed(dir, &["mount", &device, "at"]);
    sh(dir, "echo text > at/file");
    // (It lets go of other tests' mounts.)
    let script = "cut -d' ' -f2,3 /proc/mounts | grep 'fuse.meantime$' | cut -d' ' -f1 | \
                  grep -v \"^$0$\" | xargs -r -n 1 umount -l; exec sleep 100";
    let at = dir.canonicalize().unwrap().join("at");
    let mut other =
        Command::new("unshare").args(["-m", "sh", "-c", script]).arg(at).spawn().unwrap();
    let server = "pgrep -f \"mount file:$PWD/disk.img.*--announce\"";
    // (Until it has its namespace.)
    let names = format!("readlink /proc/{}/ns/mnt", other.id());
    sh(
        dir,
        &format!(
            "while [ \"$({names})\" = \"$(readlink /proc/self/ns/mnt)\" ]; do sleep 0.01; done"
        ),
    );
    sh(dir, &format!("kill -TERM $({server}); while {server} > /dev/null; do sleep 0.02; done"));
    other.kill().unwrap();
    other.wait().unwrap();
    e2fs::run("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()]);
    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/file"]).stdout, "text\n");
}
