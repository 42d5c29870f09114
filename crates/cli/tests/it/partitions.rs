//! Partitions of a disk: which are listed, which is taken, and that the others stay as they are.

use std::path::Path;
use std::process::Command;

use meantime_testkit::e2fs::{mkfs, run as tool, tools};

use crate::common::{Ran, run, succeed};

const MIB: usize = 1 << 20;
/// Where the partitions of [`disk`] begin and how large they are, in MiB.
const FIRST: (usize, usize) = (1, 8);
const SECOND: (usize, usize) = (9, 20);
const DISK_MIB: usize = 30;

/// A disk with a GPT of two partitions, with ext4 in those for which that is said, and other bytes
/// in every other block. `None` if the tools are not there.
fn disk(dir: &Path, with_ext4: [bool; 2]) -> Option<Vec<u8>> {
    let path = dir.join("disk.img");
    let noise = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let mut bytes: Vec<u8> = (0..DISK_MIB * MIB).map(|at| noise(at / 8) as u8).collect();
    bytes[..MIB].fill(0);
    for ((first, size), has_ext4) in [FIRST, SECOND].into_iter().zip(with_ext4) {
        if has_ext4 {
            let image = mkfs(dir, "part.img", &format!("{size}M"), &["-L", "inside"]);
            bytes[first * MIB..][..size * MIB].copy_from_slice(&std::fs::read(image).unwrap());
        } else {
            // No signature of anything.
            bytes[first * MIB..][..128 << 10].fill(0);
        }
    }
    std::fs::write(&path, bytes).unwrap();
    let script = format!(
        "label: gpt\nstart={}, size={}, name=one\nstart={}, size={}, name=\"the data\"\n",
        FIRST.0 * 2048,
        FIRST.1 * 2048,
        SECOND.0 * 2048,
        SECOND.1 * 2048
    );
    partitioned(dir, &script).then(|| std::fs::read(path).unwrap())
}

/// Whether sfdisk has made the table of `script` on the disk.
fn partitioned(dir: &Path, script: &str) -> bool {
    std::fs::write(dir.join("script"), script).unwrap();
    let input = std::fs::File::open(dir.join("script")).unwrap();
    let mut command = Command::new("/sbin/sfdisk");
    command.arg("--quiet").arg(dir.join("disk.img")).stdin(input);
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn info_says_what_lies_on_a_disk_without_a_table() {
    let dir = tempfile::tempdir().unwrap();
    if !tools() {
        return;
    }
    mkfs(dir.path(), "whole.img", "8M", &["-L", "inside"]);
    let ran = succeed(dir.path(), &["info", "--device", "file:whole.img"]);
    assert!(ran.stdout.contains("On the whole of it\n  holds      ext4\n"), "{ran:#?}");
    let ran = succeed(dir.path(), &["info", "--device", "file:whole.img", "--json"]);
    assert!(ran.stdout.contains("\"fs_label\": \"inside\""), "{ran:#?}");
    let ran = succeed(dir.path(), &["info", "--device", "mem:1M"]);
    assert!(!ran.stdout.contains("On the whole"), "{ran:#?}");
}

/// A table by sfdisk's script, in which ext4 is at [`SECOND`]; the number of that partition; and a
/// block of 512 bytes that is damaged, counted from the end if negative.
const TABLES: [(&str, u32, Option<isize>); 4] = [
    ("label: gpt\nstart=2048, size=2048\nstart=18432, size=40960\n", 2, Some(1)),
    ("label: gpt\nstart=2048, size=2048\nstart=18432, size=40960\n", 2, Some(-1)),
    ("label: dos\nstart=2048, size=2048, type=c\nstart=18432, size=40960\n", 2, None),
    (
        "label: dos\nstart=2048, size=2048, type=c\nstart=8192, size=53248, type=5\n\
         start=18432, size=40960, type=83\n",
        5,
        None,
    ),
];

#[test]
fn a_file_system_in_every_kind_of_table_is_mounted_and_written() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = dir.path();
    let is_root = rustix::process::geteuid().is_root();
    let mounts = is_root && std::fs::File::open("/dev/fuse").is_ok();
    std::fs::write(dir.join("in"), vec![7; 3 * MIB]).unwrap();
    std::fs::create_dir(dir.join("at")).unwrap();
    let (first, size) = SECOND;
    for (script, number, damaged) in TABLES {
        if !tools() {
            return;
        }
        let path = dir.join("disk.img");
        let mut bytes = vec![0xa5; DISK_MIB * MIB];
        bytes[..MIB].fill(0);
        let image = mkfs(dir, "part.img", &format!("{size}M"), &[]);
        bytes[first * MIB..][..size * MIB].copy_from_slice(&std::fs::read(image).unwrap());
        std::fs::write(&path, bytes).unwrap();
        if !partitioned(dir, script) {
            return;
        }
        let mut before = std::fs::read(&path).unwrap();
        if let Some(block) = damaged {
            let at = block.rem_euclid(before.len() as isize / 512) as usize * 512;
            before[at..at + 512].fill(0x11);
            std::fs::write(&path, &before).unwrap();
        }
        let put = succeed(dir, &["fs", "put", "in", "file:disk.img:/put", "--force"]);
        assert!(put.stderr.contains(&format!("partition {number}")), "{script}: {}", put.stderr);
        if mounts {
            succeed(dir, &["mount", "file:disk.img", "at"]);
            std::fs::copy(dir.join("in"), dir.join("at/copied")).unwrap();
            succeed(dir, &["umount", "at"]);
        }
        let after = std::fs::read(&path).unwrap();
        let (begin, end) = (first * MIB, (first + size) * MIB);
        assert!(after[..begin] == before[..begin] && after[end..] == before[end..], "{script}");
        std::fs::write(dir.join("part.img"), &after[begin..end]).unwrap();
        tool("e2fsck", &["-fn", dir.join("part.img").to_str().unwrap()]);
        let uri = format!("file:disk.img?partition={number}");
        let list = succeed(dir, &["fs", "ls", &uri]).stdout;
        assert!(list.contains("put") && (!mounts || list.contains("copied")), "{list}");
    }
}

fn refused(dir: &Path, args: &[&str]) -> String {
    let Ran { code, stderr, .. } = run(dir, args);
    assert_eq!(code, Some(1), "{args:?}: {stderr}");
    stderr
}

#[test]
fn the_only_file_system_on_a_disk_is_taken() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = dir.path();
    let Some(before) = tools().then(|| disk(dir, [false, true])).flatten() else { return };
    let listed = succeed(dir, &["info", "--device", "file:disk.img", "--json"]);
    let info: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let partitions = &info["partitions"];
    assert_eq!(partitions["table"], "GPT");
    let second = &partitions["partitions"][1];
    assert_eq!((&second["number"], &second["label"]), (&2.into(), &"the data".into()));
    assert_eq!((&second["holds"], &second["fs_label"]), (&"ext4".into(), &"inside".into()));
    assert_eq!(second["bytes"], SECOND.1 * MIB);
    let words = succeed(dir, &["info", "--device", "file:disk.img"]).stdout;
    assert!(words.contains("Partitions (GPT)") && words.contains("the data"), "{words}");

    // By the whole disk, which is said, and by each of the names.
    std::fs::write(dir.join("in"), vec![7; 3 * MIB]).unwrap();
    let put = succeed(dir, &["fs", "put", "in", "file:disk.img:/by-disk"]);
    assert!(put.stderr.contains("partition 2"), "{}", put.stderr);
    let uuid = format!("uuid:{}", second["uuid"].as_str().unwrap());
    for (n, name) in ["2", "label:the%20data", &uuid].iter().enumerate() {
        let to = format!("file:disk.img?partition={name}:/by-name-{n}");
        let put = succeed(dir, &["fs", "put", "in", &to]);
        assert!(!put.stderr.contains("partition"), "{}", put.stderr);
    }
    let list = succeed(dir, &["fs", "ls", "kernel:disk.img?direct=0&partition=2"]).stdout;
    for name in ["by-disk", "by-name-0", "by-name-1", "by-name-2"] {
        assert!(list.contains(name), "{list}");
    }

    let after = std::fs::read(dir.join("disk.img")).unwrap();
    let (first, end) = (SECOND.0 * MIB, (SECOND.0 + SECOND.1) * MIB);
    assert!(after[..first] == before[..first] && after[end..] == before[end..]);
    std::fs::write(dir.join("part.img"), &after[first..end]).unwrap();
    let part = dir.join("part.img");
    tool("e2fsck", &["-fn", part.to_str().unwrap()]);

    // mkfs never guesses.
    let why = refused(dir, &["fs", "mkfs", "file:disk.img"]);
    assert!(why.contains("a partition table (GPT)"), "{why}");
    assert!(std::fs::read(dir.join("disk.img")).unwrap() == after);
}

#[test]
fn of_several_file_systems_one_is_named() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = dir.path();
    if !tools() || disk(dir, [true, true]).is_none() {
        return;
    }
    let why = refused(dir, &["fs", "ls", "file:disk.img"]);
    for part in ["partition 1 \"one\" (ext4)", "partition 2 \"the data\" (ext4)", "?partition=N"] {
        assert!(why.contains(part), "{why}");
    }
    succeed(dir, &["fs", "ls", "file:disk.img?partition=1"]);
    disk(dir, [false, false]).unwrap();
    let why = refused(dir, &["fs", "ls", "file:disk.img"]);
    assert!(why.contains("no partition of it ext4"), "{why}");
    let why = refused(dir, &["fs", "ls", "file:disk.img?partition=3"]);
    assert!(why.contains('1') && why.contains("the data"), "{why}");
}

#[test]
fn what_lies_on_a_device_is_not_overwritten() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = dir.path();
    let Some(before) = tools().then(|| disk(dir, [true, false])).flatten() else { return };
    std::fs::write(dir.join("in.img"), vec![9; MIB]).unwrap();
    let bench = |uri: &str, rw: &str| {
        let way = if uri.starts_with("kernel:") { "interrupt" } else { "poll" };
        let args = ["bench", "--rw", rw, "--size", "1M", "--completion", way, "--device", uri];
        run(dir, &args)
    };
    for (uri, what) in [
        ("file:disk.img", "a partition table (GPT)"),
        ("kernel:disk.img?direct=0", "a partition table (GPT)"),
        ("file:disk.img?partition=1", "an ext2, ext3 or ext4 file system"),
    ] {
        let ran = bench(uri, "randwrite");
        assert!(ran.code != Some(0) && ran.stderr.contains(what), "{uri}: {ran:?}");
        assert!(ran.stderr.contains("overwrite=1"), "{}", ran.stderr);
        let why = refused(dir, &["copy", "file:in.img", uri]);
        assert!(why.contains(what), "{why}");
    }
    assert!(std::fs::read(dir.join("disk.img")).unwrap() == before);
    assert_eq!(bench("file:disk.img", "randread").code, Some(0));
    // There is nothing on the second partition.
    assert_eq!(bench("file:disk.img?partition=2&inline=1", "randwrite").code, Some(0));
    assert_eq!(bench("file:disk.img?partition=1&inline=1&overwrite=1", "write").code, Some(0));
    succeed(dir, &["copy", "file:in.img", "file:disk.img", "--force"]);
    assert!(std::fs::read(dir.join("disk.img")).unwrap()[..MIB] == vec![9; MIB]);
}
