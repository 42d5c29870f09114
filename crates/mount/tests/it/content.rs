//! File content: write, read, truncate, preallocate, map, copy.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};

use meantime_ext4::MountOptions;
use meantime_mount::Options;
use meantime_testkit::e2fs;
use rustix::fs::{FallocateFlags, fallocate};

use crate::served::Served;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn what_is_written_is_read_also_past_the_caches_and_after_a_remount() {
    let options = Options::default();
    let Some(mut served) = Served::new("128M", &options) else { return };
    served.used(|dir| {
        fs::write(dir.join("large"), pattern(5_000_001)).unwrap();
        assert!(fs::read(dir.join("large")).unwrap() == pattern(5_000_001));
        let direct = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_DIRECT)
            .open(dir.join("direct"))
            .unwrap();
        let data = pattern(1 << 20);
        direct.write_all_at(&data, 4096).unwrap();
        let mut read = vec![0; data.len()];
        direct.read_exact_at(&mut read, 4096).unwrap();
        assert!(read == data);
        assert!(fs::read(dir.join("direct")).unwrap()[4096..] == data);
        // Cached and direct accesses see the same data.
        let cached = File::options().write(true).open(dir.join("direct")).unwrap();
        cached.write_all_at(b"cached", 8192).unwrap();
        let mut read = [0; 512];
        direct.read_exact_at(&mut read, 8192).unwrap();
        assert_eq!(&read[..6], b"cached");
        direct.write_all_at(&[1; 4096], 8192).unwrap();
        File::open(dir.join("direct")).unwrap().read_exact_at(&mut read, 8192).unwrap();
        assert_eq!(read, [1; 512]);
        for sync in [libc::O_SYNC, libc::O_DSYNC] {
            let mut options = File::options();
            options.append(true).create(true).custom_flags(sync);
            options.open(dir.join("synced")).unwrap().write_all(b"durable").unwrap();
        }
        cached.sync_all().unwrap();
        cached.sync_data().unwrap();
        File::open(dir).unwrap().sync_all().unwrap();
    });
    served.unmount();
    let write = MountOptions { write: true, ..MountOptions::default() };
    assert!(served.mount(&options, &write));
    served.used(|dir| {
        assert!(fs::read(dir.join("large")).unwrap() == pattern(5_000_001));
        assert_eq!(fs::read(dir.join("synced")).unwrap(), b"durabledurable");
        assert_eq!(fs::metadata(dir.join("direct")).unwrap().len(), 4096 + (1 << 20));
    });
    served.end();
}

#[test]
fn appends_go_to_the_end() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let path = dir.join("log");
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let mut log = File::options().append(true).create(true).open(&path).unwrap();
                std::thread::spawn(move || {
                    for n in 0..200 {
                        log.write_all(format!("{thread} {n:05}\n").as_bytes()).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 800);
        for thread in 0..4 {
            let own: Vec<_> = text
                .lines()
                .filter_map(|line| line.strip_prefix(&format!("{thread} ")))
                .map(|n| n.parse::<u32>().unwrap())
                .collect();
            assert_eq!(own, (0..200).collect::<Vec<_>>());
        }
        // O_APPEND can be switched while the file is open.
        let mut file = File::options().append(true).read(true).open(&path).unwrap();
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        rustix::fs::fcntl_setfl(&file, flags & !rustix::fs::OFlags::APPEND).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(b"X").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 800 * 8);
        assert!(fs::read_to_string(&path).unwrap().starts_with('X'));
    });
    served.end();
}

#[test]
fn files_are_cut_off_set_aside_and_full_of_holes() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    served.used(|dir| {
        let path = dir.join("sparse");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&pattern(20_000), 1 << 20).unwrap();
        let seek = |whence: SeekFrom| (&file).seek(whence);
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
        assert_eq!(data, 1 << 20);
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(1 << 20)).unwrap();
        assert!((1 << 20) < hole && hole <= (1 << 20) + 20_480, "{hole}");
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(1 << 30));
        assert_eq!(end, Err(rustix::io::Errno::NXIO));
        assert_eq!(seek(SeekFrom::End(0)).unwrap(), (1 << 20) + 20_000);
        // Punches a hole into content that the kernel has cached.
        let mut read = vec![9; 8192];
        file.read_exact_at(&mut read, 1 << 20).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 1 << 20, 4096).unwrap();
        file.read_exact_at(&mut read, 1 << 20).unwrap();
        assert!(read[..4096] == [0; 4096] && read[4096..] == pattern(8192)[4096..]);
        fallocate(&file, FallocateFlags::ZERO_RANGE, (1 << 20) + 4096, 4096).unwrap();
        file.read_exact_at(&mut read, 1 << 20).unwrap();
        assert!(read == [0; 8192]);
        fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), (1 << 20) + 20_000);
        assert!(metadata.blocks() >= (8 << 20) / 512, "{}", metadata.blocks());
        fallocate(&file, FallocateFlags::empty(), 0, 9 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 9 << 20);
        let refused = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
        // After truncation and extension the bytes are zeroes.
        file.write_all_at(&[5; 10_000], 0).unwrap();
        file.set_len(5_000).unwrap();
        file.set_len(10_000).unwrap();
        let content = fs::read(&path).unwrap();
        assert!(content[..5_000] == [5; 5_000] && content[5_000..] == [0; 5_000]);
        let before = file.metadata().unwrap().mtime_nsec();
        File::options().write(true).truncate(true).open(&path).unwrap();
        let after = file.metadata().unwrap();
        assert!(after.len() == 0 && after.mtime_nsec() != before);
        let error = file.write_all_at(b"x", 1 << 44).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    });
    served.end();
}

#[test]
fn ranges_are_copied_inside() {
    let Some(served) = Served::new("128M", &Options::default()) else { return };
    served.used(|dir| {
        fs::write(dir.join("from"), pattern(3 << 20)).unwrap();
        let (from, to) =
            (File::open(dir.join("from")).unwrap(), File::create(dir.join("to")).unwrap());
        let (mut at, mut to_at, mut left) = (1000, 5, 2 << 20);
        while left > 0 {
            let copied =
                rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), left);
            left -= copied.unwrap();
        }
        let copy = fs::read(dir.join("to")).unwrap();
        assert!(copy[..5] == [0; 5] && copy[5..] == pattern(3 << 20)[1000..1000 + (2 << 20)]);
    });
    served.end();
}

#[test]
fn mapped_files_are_files() {
    let Some(served) = Served::new("64M", &Options::default()) else { return };
    if !e2fs::has("python3") {
        return;
    }
    let script = r#"
import mmap, os
with open("mapped", "w+b") as f:
    f.truncate(1 << 20)
    m = mmap.mmap(f.fileno(), 1 << 20)
    m[5000:5005] = b"hello"
    m.flush()
    assert os.pread(f.fileno(), 5, 5000) == b"hello"
    os.pwrite(f.fileno(), b"world", 100000)
    assert m[100000:100005] == b"world"
    m[-1:] = b"!"
    m.close()
# By a file that is open for appending, too: pages go where they belong.
fd = os.open("mapped", os.O_RDWR | os.O_APPEND)
m = mmap.mmap(fd, 4096)
m[0:3] = b"abc"
m.flush()
os.write(fd, b"end")
assert os.fstat(fd).st_size == (1 << 20) + 3
with open("mapped", "rb") as f:
    private = mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    private[0:3] = b"xyz"
"#;
    fs::write(served.beside("mapped.py"), script).unwrap();
    served.sh("python3 ../mapped.py");
    // Executes a program on the mount.
    served.sh("cp /bin/true program; ./program");
    let mut served = served;
    served.unmount();
    let content = served.unmounted().read("/mapped").unwrap();
    assert_eq!(content.len(), (1 << 20) + 3);
    assert_eq!((&content[..3], &content[5000..5005]), (&b"abc"[..], &b"hello"[..]));
    assert_eq!(&content[100_000..100_005], b"world");
    assert_eq!(&content[(1 << 20) - 1..], b"!end");
}

#[test]
fn a_full_file_system_says_so_and_goes_on() {
    let Some(served) = Served::new("16M", &Options::default()) else { return };
    served.used(|dir| {
        let mut file = File::create(dir.join("fill")).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[1; 65_536]) {
                break error;
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        file.sync_all().unwrap();
        let written = file.metadata().unwrap().len();
        assert!(written > 4 << 20, "{written}");
        fs::remove_file(dir.join("fill")).unwrap();
        drop(file);
        // The kernel does not wait for the answer to RELEASE: the file is deleted soon after close.
        let begun = Instant::now();
        while let Err(error) = fs::write(dir.join("small"), b"fits") {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            assert!(begun.elapsed() < Duration::from_secs(30), "no room again");
        }
    });
    served.end();
}

/// The serving process changes files through the library. The kernel keeps what it has cached, here
/// for an hour, until it is notified.
#[test]
fn changes_past_the_kernel_are_seen_once_it_is_told() {
    let options = Options { timeout: Duration::from_secs(3600), ..Options::default() };
    let Some(served) = Served::new("64M", &options) else { return };
    // Returns the number of bytes that are not 0, the size, the mode, and whether `new` exists.
    let seen = || {
        served.used(|dir| {
            let bytes = fs::read(dir.join("file")).unwrap();
            let changed = bytes.iter().filter(|byte| **byte != 0).count();
            let mode = fs::metadata(dir.join("file")).unwrap().mode() & 0o777;
            (changed, bytes.len(), mode, dir.join("new").exists())
        })
    };
    served.sh("head -c 20000 /dev/zero > file; chmod 600 file");
    assert_eq!(seen(), (0, 20_000, 0o600, false));
    let mount = served.mounted();
    let fs = mount.file_system();
    let write = meantime_ext4::OpenOptions { write: true, ..Default::default() };
    let file = fs.open_with("file", &write).unwrap();
    let ino = file.node().ino();
    file.write_at(&[7; 3000], 17_000).unwrap();
    let root = fs.root().unwrap();
    fs.create(&root, "new".as_ref(), &meantime_ext4::NewNode::default()).unwrap();
    assert_eq!(seen(), (0, 20_000, 0o600, false), "the kernel keeps what it knows");

    mount.content_changed(ino, 17_000..20_000).unwrap();
    mount.name_changed(root.ino(), "new".as_ref()).unwrap();
    assert_eq!(seen(), (3000, 20_000, 0o600, true));
    file.write_at(&[7; 100], 20_000).unwrap();
    mount.content_changed(ino, 20_000..20_100).unwrap();
    assert_eq!(seen(), (3100, 20_100, 0o600, true));
    fs.set_permissions("file", 0o640).unwrap();
    mount.attributes_changed(ino).unwrap();
    assert_eq!(seen(), (3100, 20_100, 0o640, true));
    // A notice for an inode that the kernel does not know is no error.
    mount.content_changed(4_000_000, 0..u64::MAX).unwrap();
    drop(file);
    served.end();
}
