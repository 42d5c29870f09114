//! Images and disks that the kernel uses are not written by any command, and can be read; what may
//! only be read, too.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, meantime, run, succeed};
use meantime_testkit::e2fs;

/// On a file system with direct I/O.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// `p.img` in `dir`: an ext4 file system with file `f`.
fn image(dir: &Path) -> PathBuf {
    let (image, tree) = (dir.join("p.img"), dir.join("tree"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), vec![7; 64 << 10]).unwrap();
    e2fs::make(&image, "16M", &[], &tree);
    image
}

/// What a tool prints, if it succeeds.
fn tool(name: &str, args: &[&str]) -> Option<String> {
    let output =
        Command::new(name).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// A loop device on an image, until it is dropped.
struct Loop(String);

impl Loop {
    /// `None`, said so, if this may not be done.
    fn new(image: &Path) -> Option<Self> {
        Self::by(tool("losetup", &["--find", "--show", image.to_str().unwrap()]))
    }

    fn by(device: Option<String>) -> Option<Self> {
        if device.is_none() {
            println!("skipped: no loop device");
        }
        device.map(Self)
    }

    /// `loop3`.
    fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }

    /// Gives it partitions 1 and 2, of 8 MiB each.
    fn split(&self) -> Option<[String; 2]> {
        let part = |number: &str, begin: &str| {
            let added = tool("addpart", &[&self.0, number, begin, "16384"]);
            let part = added
                .map(|_| format!("{}p{number}", self.0))
                .filter(|node| Path::new(node).exists());
            if part.is_none() {
                println!("skipped: no partitions");
            }
            part
        };
        Some([part("1", "2048")?, part("2", "18432")?])
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The kernel leaves partitions that were added by hand.
        let _ = tool("partx", &["--delete", &self.0]);
        let _ = tool("losetup", &["--detach", &self.0]);
    }
}

/// A mount of the kernel's, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &str, at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mounted = tool("mount", &["-t", "ext4", device, at.to_str().unwrap()]);
        if mounted.is_none() {
            println!("skipped: nothing can be mounted");
        }
        mounted.map(|_| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Busy for a moment, if another process is just being started.
        for _ in 0..500 {
            if tool("umount", &[self.0.to_str().unwrap()]).is_some() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Every command that writes to `device`.
fn writers(device: &str) -> Vec<Vec<String>> {
    let bench =
        |rw: &str| format!("bench --device {device} --rw {rw} --size 64k --completion interrupt");
    let mut all = vec![
        bench("randwrite"),
        bench("randrw"),
        format!("copy mem:1M {device}"),
        format!("fs mkfs --force {device}"),
        format!("fs mkdir {device}:/new"),
        format!("fs rm -r {device}:/lost+found"),
    ];
    // Those of software SSDs.
    if device.starts_with("file:") {
        all.push(format!("ssd --socket s.sock {device}"));
        all.push(format!(
            "anatomy --device {device} --rw randwrite --runtime 50ms --competitor none"
        ));
    }
    all.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

fn run_all(dir: &Path, commands: &[Vec<String>]) -> Vec<Ran> {
    let words = |line: &Vec<String>| line.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let each = commands.iter().map(|line| {
        println!("{}", words(line));
        run(dir, &line.iter().map(String::as_str).collect::<Vec<_>>())
    });
    each.collect()
}

#[test]
fn what_is_mounted_is_written_by_nobody() {
    if !e2fs::tools() {
        return;
    }
    let dir = directory();
    let image = image(dir.path());
    std::fs::hard_link(&image, dir.path().join("other.img")).unwrap();
    let Some(device) = Loop::new(&image) else { return };
    let Some(mounted) = Mounted::new(&device.0, &dir.path().join("mnt")) else { return };
    let place = dir.path().join("mnt");
    let before = std::fs::read(&image).unwrap();
    let kernel = format!("kernel:{}", device.0);
    for uri in ["file:p.img", "file:other.img", "kernel:p.img", &kernel] {
        for ran in run_all(dir.path(), &writers(uri)) {
            let said =
                format!("{} is mounted at {}: unmount it first", device.name(), place.display());
            assert!(ran.code == Some(1) && ran.stderr.contains(&said), "{ran:#?}");
        }
    }
    assert!(std::fs::read(&image).unwrap() == before, "the image was written to");
    // Reading goes on.
    for uri in ["file:p.img", &kernel] {
        assert!(succeed(dir.path(), &["fs", "ls", &format!("{uri}:/")]).stdout.contains("f\n"));
        let bench = [
            "bench",
            "--device",
            uri,
            "--rw",
            "randread",
            "--size",
            "64k",
            "--completion",
            "interrupt",
        ];
        succeed(dir.path(), &bench);
        assert_eq!(
            meantime(dir.path(), &["copy", uri, "-"]).output().unwrap().stdout.len(),
            16 << 20
        );
    }
    drop(mounted);
    // The loop device has a cache of its own: only by it the file is written.
    for uri in ["file:p.img", "file:other.img", "kernel:p.img"] {
        for ran in run_all(dir.path(), &writers(uri)) {
            let said = format!("losetup -d {}", device.0);
            // (Another test's new mount namespace may have the mount for a moment.)
            let is_refused = ran.stderr.contains(&said) || ran.stderr.contains("is mounted at");
            assert!(ran.code == Some(1) && is_refused, "{ran:#?}");
        }
    }
    succeed(dir.path(), &["fs", "mkdir", &format!("{kernel}:/by-kernel")]);
    drop(device);
    succeed(dir.path(), &["fs", "mkdir", "file:p.img:/by-file"]);
    let (code, text) = e2fs::run_tool("e2fsck", &["-fn", image.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
}

/// `uri` is written by no command, since `user` is mounted.
fn assert_refused(dir: &Path, uri: &str, user: &str) {
    for command in writers(uri) {
        let said = format!("{user} is mounted at ");
        for ran in run_all(dir, &[command]) {
            assert!(ran.code == Some(1) && ran.stderr.contains(&said), "{uri}: {ran:#?}");
        }
    }
}

#[test]
fn a_mounted_image_is_known_without_its_name() {
    if !e2fs::tools() {
        return;
    }
    let dir = directory();
    let image = image(dir.path());
    std::fs::hard_link(&image, dir.path().join("other.img")).unwrap();
    let place = dir.path().join("mnt");
    let Some(device) = Loop::new(&image) else { return };
    let Some(mounted) = Mounted::new(&device.0, &place) else { return };
    std::fs::rename(&image, dir.path().join("new.img")).unwrap();
    assert_refused(dir.path(), "file:new.img", device.name());
    // The name that the loop device was made with is no more.
    std::fs::remove_file(dir.path().join("new.img")).unwrap();
    assert_refused(dir.path(), "file:other.img", device.name());
    assert_refused(dir.path(), "kernel:other.img", device.name());
    drop((mounted, device));
    succeed(dir.path(), &["fs", "mkdir", "file:other.img:/d"]);
    // A name that leads elsewhere here: in the mount namespace of who made the loop device, another
    // directory is there.
    std::fs::remove_dir(&place).unwrap();
    let (inside, here) = (dir.path().join("inside"), dir.path().display());
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("other.img"), "another file").unwrap();
    let line =
        format!("mount --bind {here} {0} && losetup --find --show {0}/other.img", inside.display());
    let Some(device) = Loop::by(tool("unshare", &["--mount", "sh", "-c", &line])) else { return };
    let Some(_mounted) = Mounted::new(&device.0, &place) else { return };
    assert_refused(dir.path(), "file:other.img", device.name());
}

#[test]
fn a_disk_and_its_partitions() {
    if !e2fs::tools() {
        return;
    }
    let dir = directory();
    let (disk, place) = (dir.path().join("disk.img"), dir.path().join("mnt"));
    std::fs::File::create(&disk).unwrap().set_len(24 << 20).unwrap();
    let Some(device) = Loop::new(&disk) else { return };
    let Some(parts) = device.split() else { return };
    for part in &parts {
        assert_eq!(e2fs::run_tool("mkfs.ext4", &["-q", part]).0, Some(0));
    }
    let Some(mounted) = Mounted::new(&parts[0], &place) else { return };
    let [first, second] = parts.each_ref().map(|part| format!("kernel:{part}"));
    for uri in ["file:disk.img", &format!("kernel:{}", device.0), &first] {
        assert_refused(dir.path(), uri, &format!("{}p1", device.name()));
    }
    // Beside it.
    succeed(dir.path(), &["fs", "mkdir", &format!("{second}:/d")]);
    drop(mounted);
    succeed(dir.path(), &["fs", "mkdir", &format!("{first}:/d")]);
    // The whole disk is used by what is made of it, which the kernel lets others write beside.
    let Some(above) = Loop::new(Path::new(&device.0)) else { return };
    succeed(dir.path(), &["fs", "mkdir", &format!("{first}:/e")]);
    assert_eq!(e2fs::run_tool("mkfs.ext4", &["-q", "-F", &above.0]).0, Some(0));
    std::fs::remove_dir(&place).unwrap();
    let Some(_mounted) = Mounted::new(&above.0, &place) else { return };
    for uri in ["file:disk.img", &format!("kernel:{}", device.0), &first, &second] {
        assert_refused(dir.path(), uri, above.name());
    }
}

/// Virtual disks and most SSDs have no queues to poll.
#[test]
fn a_disk_without_queues_to_poll_is_waited_for_all_the_same() {
    if !e2fs::tools() {
        return;
    }
    let dir = directory();
    let image = image(dir.path());
    let Some(device) = Loop::new(&image) else { return };
    let uri = format!("kernel:{}", device.0);
    let place = format!("{uri}:/");
    assert!(succeed(dir.path(), &["fs", "ls", &place]).stdout.contains("f\n"));
    assert!(
        succeed(dir.path(), &["fs", "ls", "--completion", "interrupt", &place])
            .stdout
            .contains("f\n")
    );
    succeed(dir.path(), &["fs", "check", &uri]);
    succeed(dir.path(), &["fs", "mkdir", "--completion", "interrupt", &format!("{uri}:/d")]);
    let refused = run(dir.path(), &["fs", "ls", "--completion", "poll", &place]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("cannot wait by poll"),
        "{refused:?}"
    );
    let file = format!("{uri}:/f");
    let bench =
        ["bench", "--device", &file, "--rw", "randread", "--bs", "4k", "--size", "64k", "--direct"];
    let ran = succeed(dir.path(), &[&bench[..], &["--completion", "interrupt"]].concat());
    assert!(ran.stdout.contains("interrupt"), "{ran:?}");
}

/// Runs it as nobody, if this is root.
fn as_nobody(dir: &Path, args: &[&str]) -> Ran {
    let mut command = meantime(dir, args);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    command.output().unwrap().into()
}

#[test]
fn what_may_only_be_read_is_read() {
    if !e2fs::tools() {
        return;
    }
    // Below a directory that everybody can enter, for nobody.
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (image, tree) = (dir.path().join("p.img"), dir.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), "text\n".repeat(1000)).unwrap();
    e2fs::make(&image, "8M", &[], &tree);
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o444)).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_meantime"));
    let reachable = binary
        .ancestors()
        .skip(1)
        .all(|dir| std::fs::metadata(dir).is_ok_and(|meta| meta.permissions().mode() & 0o001 != 0));
    if rustix::process::geteuid().is_root() && !reachable {
        println!("skipped: nobody cannot reach {}", binary.display());
        return;
    }
    for args in [
        &["fs", "ls", "file:p.img:/"][..],
        &["fs", "cat", "file:p.img:/f"],
        &["fs", "check", "file:p.img"],
        &["fs", "info", "file:p.img"],
        &["info", "--device", "file:p.img"],
        &["copy", "file:p.img", "mem:8M"],
        &[
            "bench",
            "--device",
            "file:p.img",
            "--rw",
            "randread",
            "--size",
            "64k",
            "--completion",
            "poll",
        ],
        &["bench", "--device", "file:p.img:/f", "--rw", "read", "--bs", "512", "--size", "512"],
    ] {
        let ran = as_nobody(dir.path(), args);
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:#?}");
    }
    for args in [
        &["fs", "mkdir", "file:p.img:/d"][..],
        &["fs", "mkfs", "--force", "file:p.img"],
        &["copy", "mem:8M", "file:p.img"],
        &[
            "bench",
            "--device",
            "file:p.img",
            "--rw",
            "randwrite",
            "--size",
            "64k",
            "--completion",
            "poll",
        ],
    ] {
        let ran = as_nobody(dir.path(), args);
        let said = ran.stderr.contains("cannot be written: this process may not write it");
        assert!(
            ran.code == Some(1) && said && ran.stderr.lines().count() == 1,
            "{args:?}: {ran:#?}"
        );
    }
}

/// Those who only read it do not keep each other out.
#[test]
fn readers_share_an_image() {
    let dir = directory();
    std::fs::write(dir.path().join("p.img"), vec![3; 1 << 20]).unwrap();
    let args = [
        "bench",
        "--device",
        "file:p.img",
        "--rw",
        "randread",
        "--runtime",
        "1",
        "--completion",
        "poll",
    ];
    let children: Vec<_> = (0..2).map(|_| meantime(dir.path(), &args).spawn().unwrap()).collect();
    for child in children {
        let ran: Ran = child.wait_with_output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{ran:#?}");
    }
}
