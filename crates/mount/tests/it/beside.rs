//! What programs see on a mount, beside the kernel's ext4 where it can be mounted: the same calls
//! on both, on file systems made alike.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::fchown;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use meantime_ext4::MountOptions;
use meantime_mount::Options;
use meantime_testkit::image::{self, Mounted};
use rustix::fs::{
    Advice, Dir, FallocateFlags, IFlags, OFlags, SeekFrom, XattrFlags, fadvise, fallocate,
    fcntl_setfl, fsetxattr, fstatvfs, ioctl_getflags, ioctl_setflags, seek,
};

use crate::served::Served;
use crate::way::Way;

/// The operations, each with its result.
type Seen = Vec<(&'static str, String)>;

/// Does `what` on both, and compares. Where the kernel's ext4 cannot be mounted, nothing is done.
fn alike(mkfs: &[&str], what: fn(&Path) -> Seen) {
    let file_system = MountOptions { write: true, ..MountOptions::default() };
    let Some(served) = Served::with("64M", mkfs, &Options::default(), &file_system) else { return };
    let scratch = image::scratch();
    let image = image::mkfs(scratch.path(), "kernel", "64M", mkfs);
    let at = scratch.path().join("at");
    let Some(mounted) = Mounted::new(&image, &at, "relatime") else { return };
    let theirs = what(&at);
    drop(mounted);
    assert_eq!(served.used(what), theirs, "{mkfs:?}");
    served.end();
}

fn said<T>(result: Result<T, impl Into<io::Error>>) -> String {
    match result.map_err(Into::into) {
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn open(path: &Path, flags: OFlags) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).custom_flags(flags.bits() as i32);
    options.open(path).unwrap()
}

#[test]
fn reads_that_are_not_to_be_noted_are_not() {
    alike(&[], |dir| {
        let accessed = |path: &Path| {
            let found = std::fs::metadata(path).unwrap();
            (found.atime(), found.atime_nsec())
        };
        let (file, sub) = (dir.join("file"), dir.join("sub"));
        std::fs::write(&file, [7; 10_000]).unwrap();
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(sub.join("name"), b"").unwrap();
        let mut seen = Seen::new();
        for (what, flags) in [("not noted", OFlags::NOATIME), ("noted", OFlags::empty())] {
            std::thread::sleep(Duration::from_millis(20));
            let before = (accessed(&file), accessed(&sub));
            let mut options = File::options();
            options.read(true).custom_flags(flags.bits() as i32);
            let opened = options.open(&file).unwrap();
            opened.sync_all().unwrap();
            fadvise(&opened, 0, None, Advice::DontNeed).unwrap();
            opened.read_exact_at(&mut [0; 100], 5000).unwrap();
            let listed = Dir::read_from(options.open(&sub).unwrap()).unwrap().count();
            let changed = (accessed(&file) != before.0, accessed(&sub) != before.1);
            seen.push((what, format!("{listed} names, {changed:?}")));
        }
        seen
    });
}

#[test]
fn times_are_whole_seconds_where_inodes_have_no_room() {
    for inode_bytes in ["128", "256"] {
        alike(&["-I", inode_bytes], |dir| {
            let path = dir.join("file");
            let whole = |what| {
                let found = std::fs::metadata(&path).unwrap();
                let all = [found.atime_nsec(), found.mtime_nsec(), found.ctime_nsec()];
                (what, format!("{}", all == [0; 3]))
            };
            let file = open(&path, OFlags::empty());
            let mut seen = vec![whole("made")];
            file.write_all_at(&[1; 5000], 0).unwrap();
            seen.push(whole("written"));
            file.read_exact_at(&mut [0; 10], 0).unwrap();
            seen.push(whole("read"));
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(5_000_000_007))
                .unwrap();
            let modified = std::fs::metadata(&path).unwrap();
            seen.push(("set", format!("{} {}", modified.mtime(), modified.mtime_nsec())));
            seen
        });
    }
}

#[test]
fn a_hole_may_be_smaller_than_a_page() {
    for block_bytes in ["1024", "2048", "4096"] {
        alike(&["-b", block_bytes], |dir| {
            let file = open(&dir.join("file"), OFlags::empty());
            let mut seen = Seen::new();
            for (what, range) in [
                ("one block", 1024..2048),
                ("two", 2048..4096),
                ("of two pages", 7168..9216),
                ("parts", 12_800..14_848),
                ("a page and more", 15_360..21_000),
                ("the end", 39_000..50_000),
            ] {
                file.write_all_at(&[7; 40_000], 0).unwrap();
                file.sync_all().unwrap();
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let (from, bytes) = (range.start, range.end - range.start);
                fallocate(&file, flags, from, bytes).unwrap();
                let mut content = vec![0; 40_000];
                file.read_exact_at(&mut content, 0).unwrap();
                let first = content.iter().position(|byte| *byte == 0);
                let zeroes = content.iter().filter(|byte| **byte == 0).count();
                let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
                let data = seek(&file, SeekFrom::Data(hole)).unwrap_or(0);
                let blocks = file.metadata().unwrap().blocks();
                seen.push((what, format!("{first:?} {zeroes} {hole}-{data} {blocks}")));
            }
            seen
        });
    }
}

/// A function that changes an open file, with its name. It returns the result as text.
type Change = (&'static str, fn(&File) -> String);

const CHANGES: [Change; 11] = [
    ("write", |file| said(file.write_at(b"x", 5))),
    ("write behind the end", |file| said(file.write_at(b"x", 100_000))),
    ("truncate", |file| said(file.set_len(10))),
    ("grow", |file| said(file.set_len(200_000))),
    ("fallocate", |file| said(fallocate(file, FallocateFlags::empty(), 0, 4096))),
    ("punch", |file| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        said(fallocate(file, flags, 0, 4096))
    }),
    ("mode", |file| said(file.set_permissions(Permissions::from_mode(0o640)))),
    ("owner", |file| said(fchown(file.as_fd(), Some(1), Some(1)))),
    ("times", |file| said(file.set_modified(SystemTime::UNIX_EPOCH))),
    ("attribute", |file| said(fsetxattr(file, "user.a", b"1", XattrFlags::empty()))),
    ("sync", |file| said(file.sync_all())),
];

/// Makes each change by a descriptor that was opened with `opened` before the file got `flags`.
fn changes_after(dir: &Path, opened: OFlags, flags: IFlags) -> Seen {
    let mut seen = Seen::new();
    for (number, (what, change)) in CHANGES.iter().enumerate() {
        let path = dir.join(number.to_string());
        std::fs::write(&path, [7; 20_000]).unwrap();
        let file = open(&path, opened);
        let before = ioctl_getflags(&file).unwrap();
        ioctl_setflags(&file, before | flags).unwrap();
        seen.push((what, change(&file)));
        ioctl_setflags(&file, before).unwrap();
        seen.push((what, change(&file)));
        let size = file.metadata().unwrap().len();
        seen.push((what, format!("size {size}")));
        std::fs::remove_file(path).unwrap();
    }
    seen
}

#[test]
fn an_open_file_that_becomes_immutable_is_changed_by_nothing() {
    alike(&[], |dir| changes_after(dir, OFlags::empty(), IFlags::IMMUTABLE));
}

#[test]
fn an_open_file_that_becomes_append_only_is_only_appended_to() {
    alike(&[], |dir| changes_after(dir, OFlags::APPEND, IFlags::APPEND));
}

/// That F_SETFL succeeds is the kernel's doing, and only its own ext4 is asked.
#[test]
fn a_descriptor_that_appends_no_more_writes_nothing_to_an_append_only_file() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let path = dir.join("file");
        std::fs::write(&path, [7; 20_000]).unwrap();
        let file = open(&path, OFlags::APPEND);
        let before = ioctl_getflags(&file).unwrap();
        for is_set_first in [true, false] {
            if is_set_first {
                ioctl_setflags(&file, before | IFlags::APPEND).unwrap();
            }
            fcntl_setfl(&file, OFlags::empty()).unwrap();
            ioctl_setflags(&file, before | IFlags::APPEND).unwrap();
            let error = file.write_at(b"x", 5).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{is_set_first}");
            fcntl_setfl(&file, OFlags::APPEND).unwrap();
            file.write_at(b"x", 5).unwrap();
            ioctl_setflags(&file, before).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 20_002);
    });
    served.end();
}

#[test]
fn direct_calls_are_refused_by_offset_and_length() {
    alike(&["-b", "4096"], |dir| {
        let path = dir.join("file");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let file = open(&path, OFlags::DIRECT);
        let mut memory = vec![0_u8; 64 << 10];
        let begin = memory.as_ptr().align_offset(4096);
        let mut seen = Seen::new();
        for (what, at, bytes) in [
            ("aligned", 4096, 4096),
            ("sectors", 512, 512),
            ("odd offset", 100, 4096),
            ("odd length", 4096, 1000),
            ("over the end", 98_304, 4096),
            ("odd over the end", 98_304, 1696),
        ] {
            let read = file.read_at(&mut memory[begin..begin + bytes], at);
            seen.push((what, said(read)));
            seen.push((what, said(file.write_at(&memory[begin..begin + bytes], at))));
        }
        seen
    });
}

#[test]
fn statvfs_names_the_flags_of_the_mount() {
    alike(&[], |dir| {
        let flags = fstatvfs(File::open(dir).unwrap()).unwrap().f_flag;
        vec![("flags", format!("{:?}", flags.bits() & (libc::ST_NOATIME | libc::ST_RDONLY)))]
    });
}

#[test]
fn the_label_can_be_asked_for() {
    alike(&["-L", "a label"], |dir| {
        let mut label = [7_u8; 256];
        // SAFETY: the kernel writes at most the size in the number, 256 bytes, to `label`.
        let asked = unsafe {
            libc::ioctl(File::open(dir).unwrap().as_raw_fd(), 0x8100_9431, label.as_mut_ptr())
        };
        // ext4 writes 17 bytes of the label.
        let text = label.split(|byte| *byte == 0).next().unwrap();
        vec![("label", format!("{asked} {:?}", String::from_utf8_lossy(text)))]
    });
}

/// FUSE passes on neither syncfs(2) nor sync_file_range(2); the shared-memory path's library sends
/// the former.
#[test]
fn syncfs_makes_everything_durable_by_the_shared_memory_path_only() {
    for (way, commits) in [(Way::Fuse, false), (Way::SharedMemory, true)] {
        let Some(served) = Served::by(way, "64M", &Options::default()) else { return };
        let counted = || served.mounted().file_system().journal_counters().unwrap().commits;
        served.mounted().file_system().sync().unwrap();
        let before = counted();
        served.sh("mkdir new; echo text > new/file; sync -f new/file; sync -f new");
        // A commit may also be due by time.
        assert!(counted() > before || !commits, "{way:?}");
        if commits {
            let before = counted();
            served.sh("sync -f new");
            assert_eq!(counted(), before, "everything was durable");
        }
        served.end();
    }
}
