//! Names: create, look up, list, rename, remove.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt as _, FileTypeExt as _, MetadataExt as _, symlink};

use meantime_mount::Options;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::served::Served;

#[test]
fn names_are_made_found_changed_and_removed() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        fs::create_dir_all(dir.join("a/b/c")).unwrap();
        fs::write(dir.join("a/file"), b"content").unwrap();
        assert_eq!(fs::read(dir.join("a/file")).unwrap(), b"content");
        fs::hard_link(dir.join("a/file"), dir.join("a/b/second")).unwrap();
        let both = [dir.join("a/file"), dir.join("a/b/second")].map(fs::metadata);
        let [first, second] = both.map(Result::unwrap);
        assert_eq!((first.ino(), first.nlink()), (second.ino(), 2));
        symlink("b/second", dir.join("a/link")).unwrap();
        assert_eq!(fs::read_link(dir.join("a/link")).unwrap().to_str(), Some("b/second"));
        assert_eq!(fs::read(dir.join("a/link")).unwrap(), b"content");
        fs::rename(dir.join("a/b"), dir.join("moved")).unwrap();
        assert_eq!(fs::read(dir.join("moved/second")).unwrap(), b"content");
        assert!(fs::metadata(dir.join("a/link")).is_err(), "it leads to where nothing is");
        let error = fs::remove_dir(dir.join("a")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTEMPTY));
        fs::remove_file(dir.join("a/file")).unwrap();
        assert_eq!(fs::metadata(dir.join("moved/second")).unwrap().nlink(), 1);
        let long = "n".repeat(256);
        let error = File::create(dir.join(&long)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
        File::create(dir.join(&long[1..])).unwrap();
        fs::remove_dir_all(dir.join("moved")).unwrap();
        assert_eq!(fs::metadata(dir).unwrap().ino(), 2, "as ext4 counts");
    });
    served.end();
}

#[test]
fn large_directories_are_listed_whole_while_they_change() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let dir = dir.join("large");
        fs::create_dir(&dir).unwrap();
        let name = |n: u32| format!("a name of some length, number {n}");
        for n in 0..3000 {
            File::create(dir.join(name(n))).unwrap();
        }
        let names: BTreeSet<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3000);
        // An entry that is there all the time is listed once, with its own inode number.
        let mut seen = BTreeSet::new();
        for (at, entry) in fs::read_dir(&dir).unwrap().enumerate() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
            assert!(seen.insert(entry.file_name()), "twice: {entry:?}");
            if at % 3 == 0 {
                fs::remove_file(entry.path()).unwrap();
                File::create(dir.join(format!("new {at}"))).unwrap();
            }
        }
        let missing: Vec<_> = names.difference(&seen).collect();
        assert!(missing.is_empty(), "{missing:?}");
    });
    served.end();
}

#[test]
fn renames_exchange_replace_or_refuse() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let (one, two) = (dir.join("one"), dir.join("two"));
        fs::write(&one, b"1").unwrap();
        fs::create_dir(&two).unwrap();
        renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE).unwrap();
        assert!(one.is_dir() && fs::read(&two).unwrap() == b"1");
        fs::write(dir.join("three"), b"3").unwrap();
        let refused = renameat_with(CWD, &two, CWD, dir.join("three"), RenameFlags::NOREPLACE);
        assert_eq!(refused, Err(rustix::io::Errno::EXIST));
        renameat_with(CWD, &two, CWD, dir.join("three"), RenameFlags::WHITEOUT).unwrap();
        assert_eq!(fs::read(dir.join("three")).unwrap(), b"1");
        let whiteout = fs::symlink_metadata(&two).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    });
    served.end();
}

#[test]
fn devices_pipes_and_sockets_have_names() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.sh("mknod null c 1 3; mknod far b 259 70000; mkfifo pipe; echo x > null");
    assert_eq!(
        served.sh("stat -c '%F %t %T' null far pipe"),
        "character special file 1 3\nblock special file 103 11170\nfifo 0 0"
    );
    served.sh("(echo through > pipe &) ; test \"$(cat pipe)\" = through");
    served.end();
}

#[test]
fn what_has_no_name_lives_as_long_as_it_is_open() {
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    let free = served.unmounted_usage();
    served.used(|dir| {
        let path = dir.join("gone");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"another").unwrap();
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == [7; 100_000]);
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all(b"more").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"another");
        fs::remove_file(&path).unwrap();
        // An O_TMPFILE file gets its first name.
        let mut nameless =
            File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(dir).unwrap();
        nameless.write_all(b"nameless").unwrap();
        let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&nameless));
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(CWD, own, CWD, dir.join("named"), follow).unwrap();
        drop(nameless);
        assert_eq!(fs::read(dir.join("named")).unwrap(), b"nameless");
        fs::remove_file(dir.join("named")).unwrap();
        drop(File::options().write(true).custom_flags(libc::O_TMPFILE).open(dir).unwrap());
        // A removed directory is empty, and nothing can be created in it.
        fs::create_dir(dir.join("d")).unwrap();
        let open = File::open(dir.join("d")).unwrap();
        fs::remove_dir(dir.join("d")).unwrap();
        let made = rustix::fs::mkdirat(&open, "x", rustix::fs::Mode::RWXU);
        assert_eq!(made, Err(rustix::io::Errno::NOENT));
    });
    let mut served = served;
    served.unmount();
    let usage = served.unmounted().usage().unwrap();
    assert_eq!((usage.free_inodes, usage.free_blocks), free, "nothing is left");
    meantime_testkit::e2fs::run("e2fsck", &["-fn", served.image.to_str().unwrap()]);
}

impl Served {
    /// Returns free inodes and blocks as `statfs` reports them.
    fn unmounted_usage(&self) -> (u64, u64) {
        self.used(|dir| {
            let usage = rustix::fs::statvfs(dir).unwrap();
            assert_eq!((usage.f_namemax, usage.f_frsize), (255, usage.f_bsize));
            (usage.f_ffree, usage.f_bfree)
        })
    }
}
