//! The attributes that the kernel caches are the file system's.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use meantime_mount::Options;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, StatxFlags, XattrFlags, copy_file_range, fallocate,
    ioctl_getflags, ioctl_setflags, removexattr, setxattr, statx,
};

use crate::served::Served;

/// Type and mode, links, owner, size, blocks, times.
#[derive(Debug, PartialEq)]
struct Attributes(u16, u32, [u32; 2], u64, u64, [(i64, u32); 3]);

fn attributes(path: &Path, how: AtFlags) -> Attributes {
    let found = statx(CWD, path, how, StatxFlags::BASIC_STATS).unwrap();
    let times = [found.stx_atime, found.stx_mtime, found.stx_ctime];
    Attributes(
        found.stx_mode,
        found.stx_nlink,
        [found.stx_uid, found.stx_gid],
        found.stx_size,
        found.stx_blocks,
        times.map(|time| (time.tv_sec, time.tv_nsec)),
    )
}

/// A change and its name.
type Change = (&'static str, fn(&Path));

const CHANGES: &[Change] = &[
    ("written", |dir| fs::write(dir.join("file"), [1; 10_000]).unwrap()),
    ("read", |dir| drop(fs::read(dir.join("file")).unwrap())),
    ("synced", |dir| File::open(dir.join("file")).unwrap().sync_all().unwrap()),
    ("written in the middle", |dir| open(dir).write_all_at(&[2; 100], 5000).unwrap()),
    ("written past the caches", |dir| {
        let mut options = File::options();
        let file = options.write(true).custom_flags(libc::O_DIRECT).open(dir.join("file"));
        let bytes = vec![3_u8; 3 * 4096];
        let begin = bytes.as_ptr().align_offset(4096);
        file.unwrap().write_all_at(&bytes[begin..begin + 4096], 8192).unwrap();
    }),
    ("cut off", |dir| open(dir).set_len(123).unwrap()),
    ("given room", |dir| fallocate(open(dir), FallocateFlags::empty(), 0, 1 << 20).unwrap()),
    ("with a hole", |dir| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(open(dir), flags, 4096, 8192).unwrap();
    }),
    ("of another mode", |dir| {
        fs::set_permissions(dir.join("file"), Permissions::from_mode(0o4751)).unwrap();
    }),
    ("of another owner", |dir| chown(dir.join("file"), Some(7), Some(8)).unwrap()),
    ("of another time", |dir| {
        open(dir).set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(5)).unwrap();
    }),
    ("with another name", |dir| fs::hard_link(dir.join("file"), dir.join("link")).unwrap()),
    ("without it", |dir| fs::remove_file(dir.join("link")).unwrap()),
    ("renamed", |dir| {
        fs::rename(dir.join("file"), dir.join("moved")).unwrap();
        fs::rename(dir.join("moved"), dir.join("file")).unwrap();
    }),
    ("with an attribute", |dir| {
        setxattr(dir.join("file"), "user.a", b"value", XattrFlags::empty()).unwrap();
    }),
    ("without an attribute", |dir| removexattr(dir.join("file"), "user.a").unwrap()),
    ("not to be dumped", |dir| {
        let file = open(dir);
        ioctl_setflags(&file, ioctl_getflags(&file).unwrap() | IFlags::NODUMP).unwrap();
    }),
    ("copied to", |dir| {
        fs::write(dir.join("other"), [4; 20_000]).unwrap();
        let other = File::open(dir.join("other")).unwrap();
        assert!(copy_file_range(&other, None, open(dir), None, 20_000).unwrap() > 0);
    }),
    ("emptied", |dir| drop(File::create(dir.join("file")).unwrap())),
    ("beside a directory", |dir| fs::create_dir(dir.join("directory")).unwrap()),
    ("listed", |dir| assert_eq!(fs::read_dir(dir).unwrap().count(), 3)),
    ("beside one that is gone", |dir| fs::remove_dir(dir.join("directory")).unwrap()),
];

fn open(dir: &Path) -> File {
    File::options().read(true).write(true).open(dir.join("file")).unwrap()
}

#[test]
fn attributes_that_the_kernel_keeps_are_those_of_the_file() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|root| {
        let dir = root.join("dir");
        fs::create_dir(&dir).unwrap();
        for (change, make) in CHANGES {
            make(&dir);
            for path in [dir.join("file"), dir.clone()] {
                let kept = attributes(&path, AtFlags::empty());
                let fresh = attributes(&path, AtFlags::STATX_FORCE_SYNC);
                assert_eq!(kept, fresh, "{change}: {}", path.display());
            }
            // The pause makes times differ from one change to the next.
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    served.end();
}

#[test]
fn a_name_that_is_not_there_is_there_when_it_is_made() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let is_there = |name: &str| fs::metadata(dir.join(name)).is_ok();
        for name in ["file", "linked", "renamed", "directory"] {
            assert!(!is_there(name) && !is_there(name));
        }
        fs::write(dir.join("file"), b"text").unwrap();
        fs::hard_link(dir.join("file"), dir.join("linked")).unwrap();
        fs::create_dir(dir.join("directory")).unwrap();
        assert!(is_there("file") && is_there("linked") && is_there("directory"));
        fs::rename(dir.join("file"), dir.join("renamed")).unwrap();
        assert!(is_there("renamed") && !is_there("file"));
        fs::remove_file(dir.join("renamed")).unwrap();
        assert!(!is_there("renamed") && is_there("linked"));
    });
    served.end();
}
