//! Size, owner, permissions and times changed together, and flags, compared with the kernel's ext4.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use meantime_ext4::format::inode::flags;
use meantime_ext4::{
    Error, FileSystem, MountOptions, OpenOptions, SetAttribute, SetMetadata, SetTime, Timestamp,
};
use rustix::fs::{AtFlags, CWD, IFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};

use meantime_testkit::filled::Image;
use meantime_testkit::image::{
    Mounted, mkfs, mount_after_kernel, run, run_for, scratch, tools, writable,
};

const NOTHING: SetMetadata = SetMetadata {
    size: None,
    mode: None,
    uid: None,
    gid: None,
    accessed: None,
    modified: None,
    drop_privileges: false,
};

fn to(seconds: i64, nanoseconds: u32) -> Option<SetTime> {
    Some(SetTime::To(Timestamp { seconds, nanoseconds }))
}

/// The changes. Each but the last ones is one system call of the kernel.
fn cases() -> Vec<(&'static str, SetMetadata)> {
    let times =
        SetMetadata { accessed: to(1_000_000, 5), modified: to(-3, 999_999_999), ..NOTHING };
    let mut cases = vec![
        ("mode", SetMetadata { mode: Some(0o2741), ..NOTHING }),
        ("user", SetMetadata { uid: Some(70_000), ..NOTHING }),
        ("group", SetMetadata { gid: Some(80_000), ..NOTHING }),
        ("both", SetMetadata { uid: Some(1), gid: Some(2), ..NOTHING }),
        ("times", times),
        ("accessed", SetMetadata { modified: None, ..times }),
        ("modified", SetMetadata { accessed: None, ..times }),
        ("late", SetMetadata { modified: to(10_000_000_000, 1), ..NOTHING }),
        ("nothing", NOTHING),
    ];
    for (name, bytes) in [("empty", 0), ("shorter", 5000), ("same", 9000), ("longer", 20_000)] {
        cases.push((name, SetMetadata { size: Some(bytes), ..NOTHING }));
    }
    let all =
        SetMetadata { size: Some(100), mode: Some(0o6755), uid: Some(5), gid: Some(6), ..times };
    cases.push(("all", all));
    cases.push(("larger", SetMetadata { size: Some(30_000), ..all }));
    cases
}

fn fill(root: &Path) {
    for who in ["kernel", "ours"] {
        for (name, _) in cases() {
            let path = root.join(format!("{who}-{name}"));
            fs::write(&path, [7; 9000]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6775)).unwrap();
            let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            rustix::fs::setxattr(&path, "security.capability", &capability, XattrFlags::empty())
                .unwrap();
        }
    }
}

fn by_kernel(path: &Path, set: &SetMetadata) {
    let time = |time: Option<SetTime>| match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(to)) => Timespec { tv_sec: to.seconds, tv_nsec: to.nanoseconds.into() },
    };
    if let Some(bytes) = set.size {
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
    }
    if set.uid.is_some() || set.gid.is_some() {
        std::os::unix::fs::chown(path, set.uid, set.gid).unwrap();
    }
    if let Some(mode) = set.mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode.into())).unwrap();
    }
    if set.accessed.is_some() || set.modified.is_some() {
        let times =
            Timestamps { last_access: time(set.accessed), last_modification: time(set.modified) };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
    }
}

/// The resulting attributes that do not depend on the time of the change.
fn seen(path: &Path, set: &SetMetadata) -> String {
    let metadata = path.metadata().unwrap();
    let time = |set: Option<SetTime>, seconds: i64, nanoseconds: i64| {
        matches!(set, Some(SetTime::To(_))).then_some((seconds, nanoseconds))
    };
    let capability = rustix::fs::getxattr(path, "security.capability", &mut [0; 100][..]);
    format!(
        "{:o} {}:{} {} bytes, {:?} {:?}, {capability:?}, {:?}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.size(),
        time(set.accessed, metadata.atime(), metadata.atime_nsec()),
        time(set.modified, metadata.mtime(), metadata.mtime_nsec()),
        fs::read(path).unwrap().iter().map(|byte| u64::from(*byte)).sum::<u64>(),
    )
}

#[test]
fn what_is_set_is_what_the_kernel_sets() {
    if !tools() {
        return;
    }
    let dir = scratch();
    for shape in [&["-b", "4096"][..], &["-b", "1024", "-I", "128", "-O", "^metadata_csum"]] {
        let image = mkfs(dir.path(), "setattr.img", "16M", shape);
        let at = dir.path().join("mnt");
        {
            let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
            fill(&at);
            for (name, set) in cases() {
                by_kernel(&at.join(format!("kernel-{name}")), &set);
            }
        }
        let fs = mount_after_kernel(&image, &writable());
        for (name, set) in cases() {
            let path = format!("/ours-{name}");
            let node = fs.resolve(&fs.root().unwrap(), &path, true).unwrap();
            let before = node.metadata();
            let after = fs.set_metadata(&node, &set).unwrap();
            assert_eq!(after, node.metadata(), "{name}");
            // Small inodes store seconds only.
            if after.created.is_some() || set == NOTHING {
                assert_eq!(after.changed > before.changed, set != NOTHING, "{name}");
            }
        }
        fs.unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
        let Some(_mounted) = Mounted::new(&image, &at, "ro") else { return };
        for (name, set) in cases() {
            let [kernels, ours] =
                ["kernel", "ours"].map(|who| seen(&at.join(format!("{who}-{name}")), &set));
            assert_eq!(ours, kernels, "{name} {shape:?}");
        }
        drop(_mounted);
        fs::remove_file(&image).unwrap();
    }
}

fn mounted(image: &Image) -> FileSystem {
    image.mount("", &MountOptions { write: true, background: false, ..MountOptions::default() })
}

fn image() -> Option<Image> {
    Image::make(&[], 64, |root: &Path| {
        fs::write(root.join("file"), [7; 9000]).unwrap();
        fs::write(root.join("large"), vec![7; 20 << 20]).unwrap();
        fs::create_dir(root.join("dir")).unwrap();
    })
}

/// All changes are one, even if blocks are freed in several steps: the device has all of it or
/// nothing at any time.
#[test]
fn a_crash_leaves_all_of_it_or_nothing() {
    let Some(image) = image() else { return };
    let fs = mounted(&image);
    let root = fs.root().unwrap();
    let node = fs.lookup(&root, "large".as_ref()).unwrap();
    let file =
        fs.open_node_with(&node, &OpenOptions { write: true, ..OpenOptions::default() }).unwrap();
    // This makes its times newer than those on the disk.
    file.write_at(&[8; 100], 50).unwrap();
    let set = SetMetadata {
        size: Some(1234),
        mode: Some(0o4711),
        uid: Some(9),
        accessed: to(1, 2),
        modified: to(3, 4),
        ..NOTHING
    };
    let before = fs.journal_counters().unwrap();
    let after = fs.set_metadata(&node, &set).unwrap();
    assert_eq!((after.size, after.mode & 0o7777, after.uid), (1234, 0o4711, 9));
    assert_eq!(after.modified, Timestamp { seconds: 3, nanoseconds: 4 });
    assert_eq!(fs.journal_counters().unwrap(), before, "nothing was committed for it alone");
    fs.sync_node(&node).unwrap();
    // The copy is of a mount that was not ended.
    let copy = fs::read(image.path("image")).unwrap();
    drop((file, node, root));
    fs.unmount().unwrap();
    image.check();
    fs::write(image.path("image"), copy).unwrap();
    let fs = mounted(&image);
    let left = fs.metadata("/large").unwrap();
    assert_eq!(left, after);
    fs.unmount().unwrap();
    image.check();
}

#[test]
fn what_may_not_be_changed_is_not() {
    let Some(image) = image() else { return };
    let fs = mounted(&image);
    let root = fs.root().unwrap();
    let file = fs.lookup(&root, "file".as_ref()).unwrap();
    let now = SetMetadata { accessed: Some(SetTime::Now), modified: Some(SetTime::Now), ..NOTHING };
    let mode = SetMetadata { mode: Some(0o600), ..NOTHING };
    let size = SetMetadata { size: Some(10), ..NOTHING };
    let old = fs.flags(&file);
    for (flag, touched) in [(flags::APPEND, Ok(())), (flags::IMMUTABLE, Err(Error::NotPermitted))] {
        let before = fs.set_flags(&file, old | flag).unwrap();
        assert_eq!(before.flags & flag, flag);
        for set in [mode, size, SetMetadata { uid: Some(1), ..now }] {
            assert_eq!(fs.set_metadata(&file, &set), Err(Error::NotPermitted), "{set:?}");
        }
        assert_eq!(file.metadata(), before);
        assert_eq!(fs.set_metadata(&file, &now).map(drop), touched);
        let set = fs.set_attribute(&file, b"user.a", b"x", SetAttribute::Any);
        assert_eq!(set, Err(Error::NotPermitted));
        fs.set_flags(&file, old).unwrap();
    }
    // No other flag of an inode that stays immutable can change.
    fs.set_flags(&file, old | flags::IMMUTABLE).unwrap();
    let more = old | flags::IMMUTABLE | flags::NOATIME;
    assert_eq!(fs.set_flags(&file, more), Err(Error::NotPermitted));
    fs.set_flags(&file, old).unwrap();
    // Only files have a size to set.
    let dir = fs.lookup(&root, "dir".as_ref()).unwrap();
    assert_eq!(fs.set_metadata(&dir, &size), Err(Error::IsDirectory));
    assert_eq!(fs.set_metadata(&root, &mode).unwrap().mode & 0o7777, 0o600);
    // A change of the size by a caller without privileges clears the set-ID bits.
    fs.set_metadata(&file, &SetMetadata { mode: Some(0o6775), ..NOTHING }).unwrap();
    let size = SetMetadata { drop_privileges: true, ..size };
    assert_eq!(fs.set_metadata(&file, &size).unwrap().mode & 0o7777, 0o775);
    drop((root, file, dir));
    fs.unmount().unwrap();
    image.check();
    let fs = image.mount("", &MountOptions::default());
    let file = fs.lookup(&fs.root().unwrap(), "file".as_ref()).unwrap();
    assert_eq!(fs.set_metadata(&file, &mode), Err(Error::ReadOnly));
}

/// Sets each flag alone on a file, a directory and a pipe. The kernel cannot be asked for a
/// pipe's.
#[test]
fn flags_are_those_of_the_kernel() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let image = mkfs(dir.path(), "flags.img", "16M", &["-b", "4096", "-O", "project,quota,^quota"]);
    let at = dir.path().join("mnt");
    // These flags need more than the bit: casefold, direct access, journalled data, extents.
    let more = 0x4000_0000 | 0x200_0000 | flags::JOURNAL_DATA | flags::EXTENTS;
    let all: Vec<u32> = (0..32).map(|bit| 1 << bit).filter(|flag| flag & more == 0).collect();
    let mut expected = Vec::new();
    {
        let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
        for kind in ["file", "dir"] {
            for flag in &all {
                for who in ["kernel", "ours"] {
                    let path = at.join(format!("{who}-{kind}-{flag:x}"));
                    match kind {
                        "file" => fs::write(&path, b"content").unwrap(),
                        _ => fs::create_dir(&path).unwrap(),
                    }
                }
                let file = fs::File::open(at.join(format!("kernel-{kind}-{flag:x}"))).unwrap();
                let before = rustix::fs::ioctl_getflags(&file).unwrap();
                let new = before | IFlags::from_bits_retain(*flag);
                let done = rustix::fs::ioctl_setflags(&file, new).is_ok();
                let after = rustix::fs::ioctl_getflags(&file).unwrap();
                expected.push((kind, *flag, done, after.bits()));
                rustix::fs::ioctl_setflags(&file, before).unwrap();
            }
        }
    }
    let fs = mount_after_kernel(&image, &writable());
    let root = fs.root().unwrap();
    for (kind, flag, done, after) in expected {
        let name = format!("ours-{kind}-{flag:x}");
        let node = fs.lookup(&root, name.as_ref()).unwrap();
        let before = fs.flags(&node);
        let set = fs.set_flags(&node, before | flag);
        assert_eq!((set.is_ok(), fs.flags(&node)), (done, after), "{name}: {set:?}");
        fs.set_flags(&node, before).unwrap();
        if flag == 1 {
            assert_eq!(fs.set_project(&node, 7_000_000).unwrap().project, 7_000_000);
        }
    }
    drop(root);
    fs.unmount().unwrap();
    run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
}

/// New inodes inherit their directory's project, and inodes of other projects are refused.
#[test]
fn projects_are_given_as_the_kernel_gives_them() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let image = mkfs(dir.path(), "project.img", "16M", &["-b", "4096", "-O", "project"]);
    let at = dir.path().join("mnt");
    {
        let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
        for who in ["kernel", "ours"] {
            let root = at.join(who);
            fs::create_dir_all(root.join("dir/full")).unwrap();
            fs::create_dir(root.join("empty")).unwrap();
            fs::write(root.join("file"), b"7").unwrap();
            run("chattr", &["-p", "7", "+P", root.join("dir").to_str().unwrap()]);
            fs::write(root.join("dir/full/x"), b"x").unwrap();
        }
        let root = at.join("kernel");
        let errno = |done: std::io::Result<()>| done.map_err(|error| error.raw_os_error());
        let cross = Err(Some(libc::EXDEV));
        assert_eq!(errno(fs::hard_link(root.join("file"), root.join("dir/a"))), cross);
        assert_eq!(errno(fs::rename(root.join("file"), root.join("dir/a"))), cross);
        assert_eq!(errno(fs::rename(root.join("empty"), root.join("dir/full"))), cross);
        fs::create_dir(root.join("dir/new")).unwrap();
        fs::write(root.join("dir/new/file"), b"").unwrap();
        fs::rename(root.join("dir/new/file"), root.join("out")).unwrap();
    }
    let fs = mount_after_kernel(&image, &writable());
    let root = |name: &str| format!("/ours/{name}");
    let cross = Err(Error::CrossDevice);
    assert_eq!(fs.hard_link(root("file"), root("dir/a")), cross);
    assert_eq!(fs.rename(root("file"), root("dir/a")), cross);
    assert_eq!(fs.rename(root("empty"), root("dir/full")), cross);
    fs.create_dir(root("dir/new")).unwrap();
    fs.write(root("dir/new/file"), b"").unwrap();
    fs.rename(root("dir/new/file"), root("out")).unwrap();
    for name in ["dir", "dir/new", "out", "file", "empty", "dir/full"] {
        let [kernels, ours] = ["/kernel/", "/ours/"].map(|who| {
            let metadata = fs.metadata(format!("{who}{name}")).unwrap();
            (metadata.project, metadata.flags & flags::PROJINHERIT)
        });
        assert_eq!(ours, kernels, "{name}");
    }
    assert_eq!(fs.metadata(root("out")).unwrap().project, 7);
    fs.unmount().unwrap();
    run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
}
