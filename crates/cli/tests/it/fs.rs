//! `meantime fs`, on images that e2fsprogs made, and damaged.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use crate::common::{Ran, meantime, run, succeed};
use meantime_testkit::e2fs::{debugfs, flip, make, number_after, run_tool, tools};
use rustix::fs::XattrFlags;
use serde_json::Value;

/// Bytes that differ from place to place.
fn data(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A tree with one of everything that needs no rights.
fn plant(dir: &Path) {
    std::fs::create_dir_all(dir.join("d/e/f")).unwrap();
    std::fs::write(dir.join("hello"), "hello, world\n").unwrap();
    std::fs::write(dir.join("empty"), "").unwrap();
    std::fs::write(dir.join(".hidden"), "x").unwrap();
    std::fs::write(dir.join("d/data"), data(3 << 20)).unwrap();
    std::fs::write(dir.join("d/e/f/deep"), data(5000)).unwrap();
    std::fs::write(dir.join(OsString::from_vec(b"odd\xff\x1b[31m".to_vec())), "odd").unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(&data(8192), 10 << 20).unwrap();
    sparse.write_all_at(b"end", (64 << 20) - 3).unwrap();
    std::fs::hard_link(dir.join("d/data"), dir.join("d/same")).unwrap();
    std::os::unix::fs::symlink("d/data", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), dir.join("long-link")).unwrap();
    std::fs::set_permissions(dir.join("hello"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let _ = rustix::fs::setxattr(dir.join("hello"), "user.note", b"a note", XattrFlags::empty());
    let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_007);
    for name in ["hello", "d/data", "d/e"] {
        File::open(dir.join(name))
            .unwrap()
            .set_times(std::fs::FileTimes::new().set_modified(when))
            .unwrap();
    }
}

/// A directory with `tree` and `disk.img`; nothing if no images can be made.
fn planted(options: &[&str]) -> Option<tempfile::TempDir> {
    if !tools() {
        return None;
    }
    let dir = meantime_testkit::image::scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    plant(&tree);
    let image = dir.path().join("disk.img");
    make(&image, "32M", options, &tree);
    // mkfs leaves them out.
    debugfs(&image, true, &format!("sif /hello mtime_extra {}", 123_456_789 << 2));
    Some(dir)
}

fn json_of(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&succeed(dir, args).stdout).unwrap()
}

/// The error's line.
fn refused(dir: &Path, args: &[&str], code: i32) -> String {
    let ran = run(dir, args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    ran.stderr
}

#[test]
fn what_is_there_is_shown() {
    let Some(dir) = planted(&[]) else { return };
    let dir = dir.path();
    let names = succeed_bytes(dir, &["fs", "ls", "file:disk.img"]);
    let lines: Vec<&[u8]> = names.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines[..4], [&b"d"[..], b"empty", b"hello", b"link"]);
    assert!(lines.contains(&&b"odd\xff\x1b[31m"[..]));
    let listed = json_of(dir, &["fs", "ls", "-la", "--json", "file:disk.img:/"]);
    let entry = |name: &str| {
        listed["entries"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap()
    };
    assert_eq!(
        (&entry("hello")["size_bytes"], &entry("hello")["mode"]),
        (&13.into(), &"0640".into())
    );
    assert_eq!(entry("link")["target"], "d/data");
    assert!(entry(".")["type"] == "directory" && entry(".hidden")["links"] == 1);
    let odd = |entry: &&Value| entry["name_hex"] == "6f6464ff1b5b33316d";
    assert_eq!(listed["entries"].as_array().unwrap().iter().filter(odd).count(), 1);
    let long = succeed(dir, &["fs", "ls", "-l", "file:disk.img:/d"]).stdout;
    assert!(
        long.starts_with("-rw") && long.contains(" 2 ") && long.contains("2001-09-09 01:46 data\n"),
        "{long}"
    );

    assert_eq!(succeed(dir, &["fs", "cat", "file:disk.img:/hello"]).stdout, "hello, world\n");
    let through_link = meantime(dir, &["fs", "cat", "file:disk.img:/link"]).output().unwrap();
    assert!(through_link.status.success() && through_link.stdout == data(3 << 20));

    let stat = json_of(dir, &["fs", "stat", "--json", "file:disk.img:/hello"]);
    assert_eq!(
        (&stat["type"], &stat["modified"]["nanoseconds"]),
        (&"file".into(), &123_456_789.into())
    );
    assert!(
        succeed(dir, &["fs", "stat", "file:disk.img:/link"]).stdout.contains("/link -> d/data")
    );

    let below = succeed(dir, &["fs", "ls", "-R", "file:disk.img:/d"]).stdout;
    assert_eq!(below, "data\ne\ne/f\ne/f/deep\nsame\n");
    let below = json_of(dir, &["fs", "ls", "--json", "-aR", "file:disk.img"]);
    let names = |name: &str| {
        below["entries"].as_array().unwrap().iter().filter(|entry| entry["name"] == name).count()
    };
    assert_eq!([".hidden", "d/e", "e"].map(names), [1, 1, 0]);

    let df = json_of(dir, &["fs", "df", "--json", "file:disk.img"]);
    assert!(df["blocks"].as_u64().unwrap() > df["free_blocks"].as_u64().unwrap());
    assert!(succeed(dir, &["fs", "df", "file:disk.img"]).stdout.contains("inodes"));
    let info = json_of(dir, &["fs", "info", "--json", "file:disk.img"]);
    assert!(
        info["features"].as_array().unwrap().contains(&"extent".into()) && info["clean"] == true
    );
    assert!(succeed(dir, &["fs", "info", "file:disk.img"]).stdout.contains("State"));

    let extents = json_of(dir, &["fs", "extents", "--json", "file:disk.img:/sparse"]);
    let extents = extents["extents"].as_array().unwrap();
    let kinds: Vec<&str> = extents.iter().map(|extent| extent["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["hole", "data", "hole", "data"]);
    assert_eq!(extents[1]["offset_bytes"], 10 << 20);
    assert!(succeed(dir, &["fs", "extents", "file:disk.img:/sparse"]).stdout.contains("hole"));
}

/// As `diff -r` and more: contents, kinds, modes, times.
fn same(a: &Path, b: &Path) {
    let names = |dir: &Path| {
        let mut names: Vec<OsString> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name != "lost+found");
        names.sort();
        names
    };
    assert_eq!(names(a), names(b), "{}", a.display());
    for name in names(a) {
        let (a, b) = (a.join(&name), b.join(&name));
        let (meta_a, meta_b) = (a.symlink_metadata().unwrap(), b.symlink_metadata().unwrap());
        let facts =
            |meta: &std::fs::Metadata| (meta.mode(), meta.mtime(), meta.nlink(), meta.uid());
        assert_eq!(facts(&meta_a), facts(&meta_b), "{}", a.display());
        if meta_a.is_dir() {
            same(&a, &b);
        } else if meta_a.is_symlink() {
            assert_eq!(std::fs::read_link(&a).unwrap(), std::fs::read_link(&b).unwrap());
        } else {
            assert!(std::fs::read(&a).unwrap() == std::fs::read(&b).unwrap(), "{}", a.display());
        }
    }
}

#[test]
fn a_copy_is_the_same() {
    let Some(dir) = planted(&[]) else { return };
    let dir = dir.path();
    if !rustix::process::geteuid().is_root() {
        println!("skipped: owners are kept by root only");
        return;
    }
    let ran = succeed(dir, &["fs", "get", "-r", "file:disk.img", "copy"]);
    assert!(ran.stderr.lines().last().unwrap().starts_with("meantime: copied"), "{}", ran.stderr);
    same(&dir.join("tree"), &dir.join("copy"));
    assert_eq!(dir.join("copy/hello").metadata().unwrap().mtime_nsec(), 123_456_789);
    let (sparse, ino) = (dir.join("copy/sparse").metadata().unwrap(), |name: &str| {
        dir.join("copy").join(name).metadata().unwrap().ino()
    });
    assert!(
        sparse.len() == 64 << 20 && sparse.blocks() * 512 < 1 << 20,
        "{} blocks",
        sparse.blocks()
    );
    assert_eq!(ino("d/data"), ino("d/same"));
    let mut value = [0; 16];
    if rustix::fs::getxattr(dir.join("tree/hello"), "user.note", &mut value).is_ok() {
        assert_eq!(rustix::fs::getxattr(dir.join("copy/hello"), "user.note", &mut value), Ok(6));
        assert_eq!(&value[..6], b"a note");
    }
}

#[test]
fn nothing_is_overwritten_unless_that_is_wanted() {
    let Some(dir) = planted(&[]) else { return };
    let dir = dir.path();
    std::fs::write(dir.join("hello"), "mine").unwrap();
    let line = refused(dir, &["fs", "get", "file:disk.img:/hello"], 1);
    assert!(line.contains("hello") && line.contains("--force"), "{line}");
    assert_eq!(std::fs::read(dir.join("hello")).unwrap(), b"mine");
    succeed(dir, &["fs", "get", "--force", "file:disk.img:/hello"]);
    assert_eq!(std::fs::read(dir.join("hello")).unwrap(), b"hello, world\n");
    // A link in the destination is replaced, not followed.
    std::fs::write(dir.join("outside"), "mine").unwrap();
    std::fs::create_dir(dir.join("to")).unwrap();
    std::os::unix::fs::symlink("../outside", dir.join("to/hello")).unwrap();
    std::os::unix::fs::symlink("..", dir.join("to/d")).unwrap();
    // The image has a link of that name.
    std::fs::write(dir.join("to/link"), "mine").unwrap();
    run(dir, &["fs", "get", "-r", "file:disk.img", "to"]);
    assert!(!dir.join("e").exists() && !dir.join("data").exists());
    assert_eq!(std::fs::read(dir.join("to/link")).unwrap(), b"mine");
    succeed(dir, &["fs", "get", "-rf", "file:disk.img", "to"]);
    assert_eq!(std::fs::read(dir.join("outside")).unwrap(), b"mine");
    assert!(!dir.join("e").exists() && dir.join("to/d/e/f/deep").is_file());
    assert!(refused(dir, &["fs", "get", "file:disk.img:/d"], 1).contains("-r"));
}

#[test]
fn bad_input_is_refused_by_name() {
    let Some(dir) = planted(&[]) else { return };
    let dir = dir.path();
    for (args, words) in [
        (["fs", "cat", "file:disk.img:/none"], "no such file"),
        (["fs", "cat", "file:disk.img:/d"], "is a directory"),
        (["fs", "cat", "file:disk.img:/hello/x"], "not a directory"),
        (["fs", "extents", "file:disk.img:/d/none"], "no such file"),
        (["fs", "ls", "file:none.img:/"], "none.img"),
        (["fs", "info", "mem:1M"], "no ext4"),
    ] {
        let line = refused(dir, &args, 1);
        assert!(line.contains(words), "{args:?}: {line}");
    }
    for args in [["fs", "ls", "disk.img:/"], ["fs", "check", "file:disk.img:/d"]] {
        refused(dir, &args, 2);
    }
    // An incompatible feature that nobody knows.
    let image = dir.join("disk.img");
    let whole = std::fs::read(&image).unwrap();
    debugfs(&image, true, "ssv feature_incompat 0x80000242");
    let line = refused(dir, &["fs", "ls", "file:disk.img"], 1);
    assert!(line.contains("FEATURE_I31"), "{line}");
    assert!(refused(dir, &["fs", "check", "file:disk.img"], 8).contains("FEATURE_I31"));
    // An image that was cut off.
    std::fs::write(&image, &whole[..16 << 20]).unwrap();
    assert!(refused(dir, &["fs", "ls", "file:disk.img"], 1).contains("cut off"));
}

#[test]
fn a_damaged_superblock_has_backups() {
    // Blocks of 1 KiB: groups, and so backups, are small.
    let Some(dir) = planted(&["-b", "1024"]) else { return };
    let dir = dir.path();
    flip(&dir.join("disk.img"), 1024 + 0x78);
    let line = refused(dir, &["fs", "ls", "file:disk.img"], 1);
    assert!(line.contains("--superblock 8193"), "{line}");
    let names = succeed_bytes(dir, &["fs", "ls", "--superblock", "8193", "file:disk.img"]);
    assert!(names.starts_with(b"d\n"));
    let found = check(dir, 4);
    assert!(found.iter().any(|kind| kind == "superblock-checksum"), "{found:?}");
}

fn succeed_bytes(dir: &Path, args: &[&str]) -> Vec<u8> {
    let output = meantime(dir, args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    output.stdout
}

/// The kinds of defects that `check` finds, by its JSON; its lines have the same.
fn check(dir: &Path, code: i32) -> Vec<String> {
    let ran = run(dir, &["fs", "check", "--json", "file:disk.img"]);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["clean"], code == 0, "{report}");
    let kinds: Vec<String> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kind"].as_str().unwrap().to_owned())
        .collect();
    let text = run(dir, &["fs", "check", "file:disk.img"]);
    assert_eq!(text.code, Some(code));
    let lines: Vec<&str> = text.stdout.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(lines[..kinds.len()], kinds, "{}", text.stdout);
    kinds
}

#[test]
fn what_is_whole_is_clean() {
    for options in [
        &[][..],
        &["-b", "1024"],
        &["-b", "2048", "-O", "^metadata_csum,^64bit"],
        &["-t", "ext2"],
        &["-t", "ext3"],
        &["-O", "bigalloc", "-C", "16384"],
        &["-O", "^resize_inode,meta_bg"],
        &["-O", "inline_data"],
        &["-O", "metadata_csum_seed,orphan_file"],
        &["-O", "quota,project"],
        &["-O", "sparse_super2", "-b", "1024"],
        &["-O", "^has_journal,^flex_bg", "-b", "1024"],
        &["-I", "128"],
        &["-O", "mmp"],
        &["-b", "65536"],
    ] {
        if !tools() {
            return;
        }
        let dir = meantime_testkit::image::scratch();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        plant(&tree);
        // Enough names for a hash tree.
        std::fs::create_dir(tree.join("many")).unwrap();
        for n in 0..300 {
            File::create(tree.join(format!("many/a-rather-long-name-{n}"))).unwrap();
        }
        let image = dir.path().join("disk.img");
        let size = if options.contains(&"65536") { "256M" } else { "64M" };
        make(&image, size, options, &tree);
        let (_, text) = run_tool("e2fsck", &["-fyD", image.to_str().unwrap()]);
        let theirs = run_tool("e2fsck", &["-fn", image.to_str().unwrap()]).0;
        assert_eq!(theirs, Some(0), "{options:?}: {text}");
        let ran = run(dir.path(), &["fs", "check", "file:disk.img"]);
        assert_eq!(ran.code, Some(0), "{options:?}: {ran:?}");
    }
}

/// What is done to an image, and the kind of defect that has to be found then.
type Damage = (&'static str, &'static [&'static str], fn(&Path));

/// Where inode `path` is, in bytes.
fn inode_place(image: &Path, path: &str) -> u64 {
    let text = debugfs(image, false, &format!("imap {path}"));
    let at = u64::from_str_radix(text.split("offset 0x").nth(1).unwrap().trim(), 16).unwrap();
    number_after(&text, "located at block") * 4096 + at
}

fn first_block(image: &Path, path: &str) -> u64 {
    let text = debugfs(image, false, &format!("blocks {path}"));
    text.lines().last().unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// One for each class.
const DAMAGES: &[Damage] = &[
    ("an inode", &["inode-checksum"], |image| flip(image, inode_place(image, "/hello") + 8)),
    ("a directory block", &["directory-checksum"], |image| {
        flip(image, first_block(image, "/d") * 4096 + 4000);
    }),
    ("an extent block", &["extent-checksum"], |image| {
        let text = debugfs(image, false, "dump_extents -n /many-extents");
        let block = text
            .lines()
            .filter_map(|line| line.split_whitespace().rev().nth(1)?.parse::<u64>().ok())
            .next();
        flip(image, block.unwrap_or_else(|| panic!("{text}")) * 4096 + 100);
    }),
    ("a hash tree", &["hash-tree-checksum"], |image| {
        flip(image, first_block(image, "/many") * 4096 + 44)
    }),
    ("an attribute block", &["attribute-checksum"], |image| {
        flip(
            image,
            number_after(&debugfs(image, false, "stat /attributes"), "File ACL:") * 4096 + 40,
        );
    }),
    ("a group descriptor", &["group-checksum"], |image| flip(image, 4096 + 12)),
    ("a block bitmap", &["bitmap-checksum"], |image| {
        let text = debugfs(image, false, "stats");
        flip(image, number_after(&text, "block bitmap at") * 4096 + 100);
    }),
    ("an inode bitmap", &["bitmap-checksum"], |image| {
        let text = debugfs(image, false, "stats");
        flip(image, number_after(&text, "inode bitmap at") * 4096 + 100);
    }),
    ("a link count", &["link-count"], |image| {
        debugfs(image, true, "sif /hello links_count 7");
    }),
    ("a block count", &["block-count"], |image| {
        debugfs(image, true, "sif /hello blocks 80");
    }),
    ("a size", &["inode-field"], |image| {
        debugfs(image, true, "sif /d/data size 5000");
    }),
    ("a block that is marked free", &["block-unmarked"], |image| {
        debugfs(image, true, &format!("freeb {}", first_block(image, "/hello")));
    }),
    ("a block that is marked used", &["block-leaked"], |image| {
        debugfs(image, true, "setb 8000");
    }),
    ("an inode that is marked free", &["inode-unmarked"], |image| {
        debugfs(image, true, "freei /hello");
    }),
    ("an inode that is marked used", &["inode-leaked"], |image| {
        debugfs(image, true, "seti <2000>");
    }),
    ("a name that is lost", &["inode-unreachable"], |image| {
        debugfs(image, true, "unlink /hello");
    }),
    ("a directory with two names", &["directory-names"], |image| {
        debugfs(image, true, "ln /d/e /second");
    }),
    ("an inode that is cleared", &["inode-free"], |image| {
        debugfs(image, true, "clri /hello");
    }),
    ("a block with two owners", &["block-shared"], |image| {
        // The second extent word of the inode's tree is where its first extent leads.
        let block = first_block(image, "/hello").to_string();
        debugfs(image, true, "sif /empty2 block[0] 0x0001f30a");
        debugfs(image, true, "sif /empty2 block[1] 0x00000004");
        debugfs(image, true, "sif /empty2 block[3] 0");
        debugfs(image, true, "sif /empty2 block[4] 1");
        debugfs(image, true, &format!("sif /empty2 block[5] {block}"));
        debugfs(image, true, "sif /empty2 blocks 8");
        debugfs(image, true, "sif /empty2 size 4096");
    }),
    ("a count", &["free-count"], |image| {
        debugfs(image, true, "set_bg 0 free_inodes_count 17");
        debugfs(image, true, "set_bg 0 checksum calc");
    }),
];

#[test]
fn damage_is_found() {
    if !tools() {
        return;
    }
    let dir = meantime_testkit::image::scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    plant(&tree);
    std::fs::write(tree.join("empty2"), "").unwrap();
    std::fs::create_dir(tree.join("many")).unwrap();
    for n in 0..300 {
        File::create(tree.join(format!("many/a-rather-long-name-{n}"))).unwrap();
    }
    let many = File::create(tree.join("many-extents")).unwrap();
    for n in 0..32 {
        many.write_all_at(&[1], n * 16384).unwrap();
    }
    std::fs::write(tree.join("attributes"), "").unwrap();
    let whole = dir.path().join("whole.img");
    make(&whole, "64M", &["-b", "4096"], &tree);
    run_tool("e2fsck", &["-fyD", whole.to_str().unwrap()]);
    let value = dir.path().join("value");
    std::fs::write(&value, [b'v'; 200]).unwrap();
    debugfs(&whole, true, &format!("ea_set -f {} /attributes user.large", value.display()));
    assert_ne!(number_after(&debugfs(&whole, false, "stat /attributes"), "File ACL:"), 0);
    let image = dir.path().join("disk.img");
    let mut missed = Vec::new();
    for (what, kinds, damage) in DAMAGES {
        std::fs::copy(&whole, &image).unwrap();
        damage(&image);
        let (theirs, text) = run_tool("e2fsck", &["-fn", image.to_str().unwrap()]);
        if theirs == Some(0) {
            missed.push(format!("{what} is no damage to e2fsck: {text}"));
            continue;
        }
        let found = check(dir.path(), 4);
        if !kinds.iter().all(|kind| found.iter().any(|one| one == kind)) {
            missed.push(format!("{what}: {found:?}\ne2fsck: {text}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn ctrl_c_ends_a_check() {
    let Some(dir) = planted(&[]) else { return };
    // Every command takes a second longer: it is at work for minutes.
    let plan = "[[fault]]\nfault = \"late-completion\"\nby = \"1s\"\nopcode = \"read\"\n";
    std::fs::write(dir.path().join("slow.toml"), plan).unwrap();
    let mut child =
        meantime(dir.path(), &["fs", "check", "file:disk.img?faults=slow.toml"]).spawn().unwrap();
    crate::common::await_handler(&mut child);
    assert!(
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()
    );
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(32), "{ran:?}");
}
