//! `meantime fs mkfs`, and what changes a file system, against e2fsck and `fs get`.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use crate::common::{run, succeed};
use meantime_testkit::e2fs::{self, make, run_tool, tools};
use serde_json::Value;

/// e2fsck has nothing to say of `image`.
fn fsck(image: &Path) {
    if !tools() {
        return;
    }
    let (code, text) = run_tool("e2fsck", &["-fn", image.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
}

/// The one line of the error.
fn refused(dir: &Path, args: &[&str]) -> String {
    let ran = run(dir, args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    ran.stderr
}

/// A directory with an image of `bytes` bytes of garbage at both ends.
fn garbage(bytes: u64) -> tempfile::TempDir {
    let dir = meantime_testkit::image::scratch();
    let file = File::create(dir.path().join("disk.img")).unwrap();
    file.set_len(bytes).unwrap();
    for at in [0, bytes - (8 << 20)] {
        file.write_all_at(&vec![0xA5; 8 << 20], at).unwrap();
    }
    dir
}

#[test]
fn what_mkfs_makes_is_in_order() {
    for (mib, options) in [
        (64, &[][..]),
        (
            64,
            &[
                "-b",
                "4K",
                "-L",
                "a label",
                "-O",
                "metadata_csum_seed,orphan_file,fast_commit,^64bit",
            ],
        ),
        (600, &["-I", "512", "-i", "64K", "-J", "8M", "-m", "1", "--zero"]),
        (64, &["-b", "64K", "-J", "64M"]),
    ] {
        let bytes = if options.contains(&"64K") { 400 << 20 } else { mib << 20 };
        let dir = garbage(bytes);
        let mut args = vec!["fs", "mkfs", "--json"];
        args.extend(options);
        args.push("file:disk.img");
        let ran = succeed(dir.path(), &args);
        let made: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(made["blocks"].as_u64().unwrap() * made["block_bytes"].as_u64().unwrap() <= bytes);
        fsck(&dir.path().join("disk.img"));
        let info: Value = serde_json::from_str(
            &succeed(dir.path(), &["fs", "info", "--json", "file:disk.img"]).stdout,
        )
        .unwrap();
        assert_eq!((&info["uuid"], &info["clean"]), (&made["uuid"], &true.into()));
        let check = succeed(dir.path(), &["fs", "check", "file:disk.img"]);
        assert!(!check.stdout.is_empty());
        let why = refused(dir.path(), &["fs", "mkfs", "file:disk.img"]);
        assert!(why.contains("ext4 file system") && why.contains("--force"), "{why}");
        succeed(dir.path(), &["fs", "mkfs", "--force", "file:disk.img"]);
        fsck(&dir.path().join("disk.img"));
    }
}

#[test]
fn the_kernel_mounts_what_mkfs_makes() {
    let dir = garbage(64 << 20);
    let image = dir.path().join("disk.img");
    succeed(dir.path(), &["fs", "mkfs", "-O", "orphan_file", "file:disk.img"]);
    let at = dir.path().join("at");
    std::fs::create_dir(&at).unwrap();
    let mount =
        e2fs::command("mount").args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(&at).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: no mount on a loop device");
        return;
    }
    let made =
        std::fs::create_dir(at.join("d")).and_then(|()| std::fs::write(at.join("d/f"), "text"));
    // What is mounted is left alone.
    let put = run(dir.path(), &["fs", "mkdir", "file:disk.img:/new"]);
    let mkfs = run(dir.path(), &["fs", "mkfs", "--force", "file:disk.img"]);
    let info = run(dir.path(), &["fs", "info", "file:disk.img"]);
    // Busy for a moment, if another test is just starting a process.
    let ended =
        || e2fs::command("umount").arg(&at).output().is_ok_and(|output| output.status.success());
    let waited = || std::thread::sleep(std::time::Duration::from_millis(10));
    assert!((0..500).any(|_| {
        ended() || {
            waited();
            false
        }
    }));
    made.unwrap();
    for ran in [put, mkfs] {
        assert!(ran.code == Some(1) && ran.stderr.contains("is mounted at"), "{ran:?}");
    }
    assert!(info.stdout.contains("is mounted at"), "{info:?}");
    fsck(&image);
    assert_eq!(succeed(dir.path(), &["fs", "cat", "file:disk.img:/d/f"]).stdout, "text");
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A name, its mode, size, time of change in seconds and nanoseconds, and content.
type Thing = (String, u32, u64, i64, i64, Vec<u8>);

/// Everything below `dir`: path, mode, size, time, and what is in it.
fn everything(dir: &Path, below: &Path, all: &mut Vec<Thing>) {
    for entry in std::fs::read_dir(dir.join(below)).unwrap() {
        let path = below.join(entry.unwrap().file_name());
        let full = dir.join(&path);
        let metadata = std::fs::symlink_metadata(&full).unwrap();
        let (content, size) = if metadata.is_file() {
            (std::fs::read(&full).unwrap(), metadata.len())
        } else if metadata.is_symlink() {
            (
                std::fs::read_link(&full).unwrap().into_os_string().into_encoded_bytes(),
                metadata.len(),
            )
        } else {
            (Vec::new(), 0)
        };
        // Those of links are set by reading them.
        let times = (metadata.mtime(), metadata.mtime_nsec());
        all.push((path.to_str().unwrap().into(), metadata.mode(), size, times.0, times.1, content));
        if metadata.is_dir() {
            everything(dir, &path, all);
        }
    }
    all.sort();
}

#[test]
fn what_is_put_is_what_comes_back() {
    let dir = garbage(64 << 20);
    let at = dir.path();
    let tree = at.join("tree");
    std::fs::create_dir_all(tree.join("d/e/f")).unwrap();
    std::fs::write(tree.join("hello"), "hello, world\n").unwrap();
    std::fs::write(tree.join("empty"), "").unwrap();
    std::fs::write(tree.join("d/data"), data(3 << 20)).unwrap();
    std::fs::write(tree.join("d/e/f/odd"), data(5001)).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(200 << 20).unwrap();
    sparse.write_all_at(&data(8192), 100 << 20).unwrap();
    std::fs::hard_link(tree.join("d/data"), tree.join("d/same")).unwrap();
    std::os::unix::fs::symlink("d/data", tree.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), tree.join("long-link")).unwrap();
    std::fs::set_permissions(tree.join("hello"), std::fs::Permissions::from_mode(0o4640)).unwrap();
    for number in 0..300 {
        std::fs::write(tree.join(format!("d/e/file-{number:04}")), format!("{number}")).unwrap();
    }
    let _ = rustix::fs::setxattr(
        tree.join("hello"),
        "user.note",
        b"a note",
        rustix::fs::XattrFlags::empty(),
    );
    let when = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 123_456_789);
    for name in ["hello", "d/data", "d/e", "d"] {
        File::open(tree.join(name))
            .unwrap()
            .set_times(std::fs::FileTimes::new().set_modified(when))
            .unwrap();
    }

    succeed(at, &["fs", "mkfs", "file:disk.img"]);
    refused(at, &["fs", "put", "tree", "file:disk.img:/"]);
    let put = succeed(at, &["fs", "put", "-r", "tree", "file:disk.img:/"]);
    assert!(put.stderr.contains("copied 30"), "{put:?}");
    fsck(&at.join("disk.img"));
    let again = run(at, &["fs", "put", "-r", "tree", "file:disk.img:/"]);
    assert!(again.code == Some(1) && again.stderr.contains("--force"), "{again:?}");
    succeed(at, &["fs", "put", "-rf", "tree", "file:disk.img:/"]);
    fsck(&at.join("disk.img"));
    std::fs::create_dir(at.join("back")).unwrap();
    succeed(at, &["fs", "get", "-r", "file:disk.img:/tree", "back"]);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    everything(&tree, Path::new(""), &mut before);
    everything(&at.join("back/tree"), Path::new(""), &mut after);
    // A link's own times are not kept by everything.
    for all in [&mut before, &mut after] {
        all.iter_mut()
            .filter(|file| file.1 & 0o170_000 == 0o120_000)
            .for_each(|file| (file.3, file.4) = (0, 0));
    }
    assert_eq!(before.len(), after.len());
    for (before, after) in before.iter().zip(&after) {
        assert!(
            before == after,
            "{:?} {:?}",
            (&before.0, before.1, before.2, before.3),
            (&after.0, after.1, after.2, after.3)
        );
    }
    let same = |name: &str| std::fs::metadata(at.join("back/tree").join(name)).unwrap();
    assert_eq!(same("d/data").ino(), same("d/same").ino());
    assert!(same("sparse").blocks() < 10_000);
    let extents = succeed(at, &["fs", "extents", "file:disk.img:/tree/sparse"]).stdout;
    assert!(extents.contains("hole"), "{extents}");
    let stat = succeed(at, &["fs", "stat", "file:disk.img:/tree/hello"]).stdout;
    let has_attributes =
        rustix::fs::getxattr(tree.join("hello"), "user.note", &mut [0; 16][..]).is_ok();
    assert!(!has_attributes || stat.contains("user.note"), "{stat}");
}

/// What is replaced is there until the new one is complete.
#[test]
fn what_cannot_be_put_leaves_what_was_there() {
    let dir = garbage(64 << 20);
    let at = dir.path();
    succeed(at, &["fs", "mkfs", "file:disk.img"]);
    std::fs::create_dir(at.join("from")).unwrap();
    std::fs::write(at.join("from/file"), data(3 << 20)).unwrap();
    std::fs::hard_link(at.join("from/file"), at.join("from/second")).unwrap();
    succeed(at, &["fs", "put", "-r", "from", "file:disk.img:/"]);
    std::fs::write(at.join("file"), data(100 << 20)).unwrap();
    let full = run(at, &["fs", "put", "-f", "file", "file:disk.img:/from/file"]);
    assert_eq!(full.code, Some(1), "{full:?}");
    let inside = || {
        let _ = std::fs::remove_dir_all(at.join("back"));
        succeed(at, &["fs", "get", "-r", "file:disk.img:/from", "back"]);
        let mut names: Vec<_> = std::fs::read_dir(at.join("back"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["file", "second"]);
        std::fs::read(at.join("back/file")).unwrap()
    };
    assert!(inside() == data(3 << 20), "what was there is there");
    fsck(&at.join("disk.img"));
    // It goes where the old one was, and only there.
    std::fs::write(at.join("file"), data(5000)).unwrap();
    succeed(at, &["fs", "put", "-f", "file", "file:disk.img:/from/file"]);
    assert!(inside() == data(5000));
    assert!(std::fs::read(at.join("back/second")).unwrap() == data(3 << 20));
    // Names of the same file stay so.
    succeed(at, &["fs", "put", "-rf", "from", "file:disk.img:/"]);
    assert!(inside() == data(3 << 20));
    let same = |name: &str| std::fs::metadata(at.join("back").join(name)).unwrap().ino();
    assert_eq!(same("file"), same("second"));
    fsck(&at.join("disk.img"));
}

#[test]
fn names_are_made_moved_and_removed() {
    let dir = garbage(32 << 20);
    let at = dir.path();
    succeed(at, &["fs", "mkfs", "file:disk.img"]);
    let fs = |args: &[&str]| succeed(at, &[&["fs"][..], args].concat()).stdout;
    fs(&["mkdir", "-p", "-m", "750", "file:disk.img:/a/b/c"]);
    fs(&["mkdir", "-p", "file:disk.img:/a/b/c"]);
    assert!(refused(at, &["fs", "mkdir", "file:disk.img:/a"]).contains("exists"));
    std::fs::write(at.join("text"), "a line of text\n".repeat(7000)).unwrap();
    fs(&["put", "text", "file:disk.img:/a/b/c"]);
    fs(&["put", "text", "file:disk.img:/a/other"]);
    fs(&["ln", "/a/other", "file:disk.img:/hard"]);
    fs(&["ln", "-s", "a/other", "file:disk.img:/soft"]);
    fs(&["mv", "file:disk.img:/a/b/c/text", "/moved"]);
    fs(&["mv", "file:disk.img:/a/b", "/"]);
    assert!(refused(at, &["fs", "mv", "-n", "file:disk.img:/moved", "/hard"]).contains("exists"));
    fs(&["mv", "file:disk.img:/moved", "/hard"]);
    fs(&["truncate", "-s", "10", "file:disk.img:/a/other"]);
    fs(&["truncate", "-s", "1M", "file:disk.img:/new"]);
    fs(&["truncate", "-c", "-s", "1M", "file:disk.img:/nothing"]);
    assert_eq!(fs(&["ls", "file:disk.img:/"]), "a\nb\nhard\nlost+found\nnew\nsoft\n");
    assert_eq!(fs(&["cat", "file:disk.img:/soft"]), "a line of ");
    assert_eq!(fs(&["cat", "file:disk.img:/hard"]).len(), 105_000);
    assert_eq!(fs(&["ls", "file:disk.img:/b/c"]), "");
    fsck(&at.join("disk.img"));
    assert!(refused(at, &["fs", "rm", "file:disk.img:/a"]).contains("-r"));
    fs(&["rm", "-r", "file:disk.img:/a"]);
    fs(&["rm", "-r", "file:disk.img:/b"]);
    for name in ["hard", "new", "soft"] {
        fs(&["rm", &format!("file:disk.img:/{name}")]);
    }
    refused(at, &["fs", "rm", "file:disk.img:/soft"]);
    fs(&["rm", "-f", "file:disk.img:/soft"]);
    assert_eq!(fs(&["ls", "file:disk.img:/"]), "lost+found\n");
    fsck(&at.join("disk.img"));
}

/// The examples of `meantime fs --help`, as they stand there, one after the other.
#[test]
fn the_examples_of_the_help_work_as_typed() {
    if !tools() {
        return;
    }
    let dir = meantime_testkit::image::scratch();
    let tree = dir.path().join("tree");
    for path in ["etc", "home/me", "srv", "site"] {
        std::fs::create_dir_all(tree.join(path)).unwrap();
    }
    std::fs::write(tree.join("etc/passwd"), "root:x:0:0\n").unwrap();
    std::fs::write(tree.join("home/me/notes"), "notes").unwrap();
    std::fs::rename(tree.join("site"), dir.path().join("site")).unwrap();
    std::fs::write(dir.path().join("site/index.html"), "<p>").unwrap();
    make(&dir.path().join("disk.img"), "32M", &[], &tree);
    let help = succeed(dir.path(), &["fs", "--help"]).stdout;
    let examples = help.split("EXAMPLES").nth(1).unwrap().split("EXIT STATUS").next().unwrap();
    let ours = Path::new(env!("CARGO_BIN_EXE_meantime")).parent().unwrap();
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap());
    let mut count = 0;
    for line in examples.lines().map(str::trim).filter(|line| line.starts_with("meantime ")) {
        let ran = Command::new("sh")
            .args(["-c", line])
            .current_dir(dir.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        count += 1;
    }
    assert!(count >= 6, "{count}: {examples}");
}

/// What is there already is named, not what was to be copied.
#[test]
fn put_names_the_side_that_the_trouble_is_with() {
    if !tools() {
        return;
    }
    let dir = meantime_testkit::image::scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("d/sub")).unwrap();
    std::fs::write(tree.join("b"), "old").unwrap();
    std::fs::write(tree.join("d/sub/c"), "old").unwrap();
    make(&dir.path().join("disk.img"), "16M", &[], &tree);
    std::fs::write(dir.path().join("a"), "new").unwrap();
    std::fs::create_dir_all(dir.path().join("from/sub")).unwrap();
    std::fs::write(dir.path().join("from/sub/c"), "new").unwrap();
    for (args, named, advice) in [
        (&["a", "file:disk.img:/b"][..], "/b: is there already", "--force"),
        (&["a", "file:disk.img:/d/sub/c"], "/d/sub/c: is there already", "--force"),
        (&["-r", "from/sub", "file:disk.img:/d"], "/d/sub: is there already", "--force"),
        (&["--force", "from/sub/c", "file:disk.img:/d/sub/c/x"], "/d/sub/c/x: not a dir", ""),
    ] {
        let ran = run(dir.path(), &[&["fs", "put"], args].concat());
        assert_ne!(ran.code, Some(0), "{args:?}");
        let said = ran.stderr.to_lowercase();
        assert!(said.contains(named) && said.contains(advice), "{args:?}: {}", ran.stderr);
    }
}

/// Other programs keep 32 bits of a time, 16 of an owner, 8 of a device, or take 1970 for no time.
#[test]
fn rare_times_modes_and_devices_are_kept_both_ways() {
    let dir = garbage(64 << 20);
    let (at, tree) = (dir.path(), dir.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    let seconds = [0, -1, -315_619_200, 4_102_444_800, 7_258_118_400];
    for (number, seconds) in seconds.into_iter().enumerate() {
        let path = tree.join(format!("time{number}"));
        std::fs::write(&path, "x").unwrap();
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 500_000_000 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
    }
    std::fs::write(tree.join("program"), "x").unwrap();
    let mode = std::fs::Permissions::from_mode(0o6751);
    std::fs::set_permissions(tree.join("program"), mode).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(tree.join("time0"), Some(100_000), Some(70_000)).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            tree.join("device"),
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::from_raw_mode(0o600),
            rustix::fs::makedev(300, 70_000),
        )
        .unwrap();
    }
    succeed(at, &["fs", "mkfs", "file:disk.img"]);
    succeed(at, &["fs", "put", "-r", "tree", "file:disk.img:/"]);
    fsck(&at.join("disk.img"));
    let listed = succeed(at, &["fs", "ls", "-l", "file:disk.img:/tree"]).stdout;
    assert!(listed.lines().any(|line| line.starts_with("-rwsr-s--x")), "{listed}");
    succeed(at, &["fs", "get", "-r", "file:disk.img:/tree", "back"]);
    for name in std::fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().file_name()) {
        let [before, after] = [tree.join(&name), at.join("back").join(&name)]
            .map(|path| std::fs::symlink_metadata(&path).unwrap_or_else(|_| panic!("{path:?}")));
        let of = |it: &std::fs::Metadata| (it.mtime(), it.mtime_nsec(), it.mode(), it.rdev());
        assert_eq!(of(&before), of(&after), "{name:?}");
        let owners = |it: &std::fs::Metadata| (it.uid(), it.gid());
        assert!(!is_root || owners(&before) == owners(&after), "{name:?}");
    }
}

#[test]
fn a_file_system_that_is_refused_leaves_no_file() {
    let dir = meantime_testkit::image::scratch();
    let too_long = "12345678901234567";
    for option in [["-L", too_long], ["-b", "3K"]] {
        let args = [&["fs", "mkfs"], &option[..], &["file:new.img?create=32M"]].concat();
        let why = refused(dir.path(), &args);
        assert!(why.contains("file:new.img"), "{why}");
        assert!(!dir.path().join("new.img").exists(), "{option:?}");
    }
}
