//! Order and cookies equal those of `getdents64` on the same image.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use meantime_ext4::format::{ROOT_INO, Volume};
use meantime_ext4::{Entry, FileSystem, FileType, MountOptions};
use rustix::fs::{RawDir, SeekFrom, seek};

use super::collide;
use meantime_testkit::Rng;
use meantime_testkit::image::{
    Image, Mounted, debugfs_write, mkfs, mount_after_kernel, open, run, run_for, scratch, tools,
};

/// The kernel's end cookie of a directory that it lists by hashes.
const END: u64 = i64::MAX as u64;

/// The names from `from` on, each with the cookie of the next.
fn by_kernel(dir: &File, from: u64) -> Vec<(Vec<u8>, u64)> {
    seek(dir.as_fd(), SeekFrom::Start(from)).expect("a cookie is a place to seek to");
    let mut buf = vec![MaybeUninit::uninit(); 8192];
    let mut all = Vec::new();
    let mut entries = RawDir::new(dir.as_fd(), &mut buf);
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_bytes().to_vec(), entry.next_entry_cookie()));
    }
    all
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn sorted(names: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = names.into_iter().filter(|name| !is_dot(name)).collect();
    names.sort();
    names
}

/// Compares directory `path` of `fs` with the kernel's below `root`. Returns the number of names.
fn compare(fs: &FileSystem, root: &Path, path: &str, rng: &mut Rng) -> usize {
    let dir = File::open(root.join(path)).unwrap();
    let theirs = by_kernel(&dir, 0);
    let node = fs.resolve(&fs.root().unwrap(), Path::new("/").join(path), true).unwrap();
    let ours: Vec<Entry> = fs.entries(&node).unwrap().map(Result::unwrap).collect();
    let by_hash = theirs.last().unwrap().1 == END;
    assert_eq!(ours.last().unwrap().cookie == END, by_hash, "{path}: listed by hashes");

    // `.` and `..` come first here. In a directory without an index, the kernel has them at their
    // hashes.
    assert_eq!(
        (ours[0].name.as_bytes(), ours[1].name.as_bytes()),
        (&b"."[..], &b".."[..]),
        "{path}"
    );
    let place = |at: usize| if at == 0 { 0 } else { theirs[at - 1].1 };
    let places: BTreeMap<&[u8], u64> =
        theirs.iter().enumerate().map(|(at, (name, _))| (name.as_slice(), place(at))).collect();
    assert_eq!(places.len(), theirs.len(), "{path}: the kernel has each name once");
    let mut unlike = 0;
    let names = &ours[2..];
    for (at, entry) in names.iter().enumerate() {
        let (own, next) = (
            places[entry.name.as_bytes()],
            names.get(at + 1).map_or(END, |next| places[next.name.as_bytes()]),
        );
        if !by_hash {
            continue;
        }
        assert!(own <= next, "{path}: order at {:?}", entry.name);
        if entry.cookie != next {
            // At the end of a leaf, the next leaf's first hash is known, but none of its names.
            assert!(
                entry.cookie << 32 == 0 && entry.cookie > own && entry.cookie < next,
                "{path}: {entry:?} {next:x}"
            );
            unlike += 1;
        }
    }
    if by_hash {
        assert!(
            unlike <= names.len() / 2,
            "{path}: {unlike} of {} cookies are others",
            names.len()
        );
    } else {
        let order: Vec<_> = theirs.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(
            ours.iter().map(|entry| entry.name.as_bytes().to_vec()).collect::<Vec<_>>(),
            order,
            "{path}"
        );
    }
    // The kernel continues from this crate's cookies alike, and this crate from the kernel's.
    for _ in 0..12 {
        let from = ours[rng.below(ours.len() as u64) as usize].cookie;
        let rest = |from| {
            let mut entries = fs.entries(&node).unwrap();
            // A listing that has begun knows how long the directory was then.
            entries.next();
            entries.seek(from);
            sorted(entries.map(|entry| entry.unwrap().name.into_encoded_bytes()))
        };
        assert_eq!(
            rest(from),
            sorted(by_kernel(&dir, from).into_iter().map(|(name, _)| name)),
            "{path}: {from:x}"
        );
        let from = theirs[rng.below(theirs.len() as u64) as usize].1;
        assert_eq!(
            rest(from),
            sorted(by_kernel(&dir, from).into_iter().map(|(name, _)| name)),
            "{path}: {from:x}"
        );
        // Programs seek to positions that they were never given, too. The kernel refuses those
        // after a directory that is listed block by block.
        if !by_hash {
            continue;
        }
        let most = if rng.one_in(2) { END } else { 1 << 32 };
        let from = 1 + rng.below(most - 1);
        let without_dots = |mut names: Vec<Vec<u8>>| {
            names.retain(|name| !is_dot(name));
            names
        };
        assert_eq!(
            without_dots(rest(from)),
            without_dots(sorted(by_kernel(&dir, from).into_iter().map(|(name, _)| name))),
            "{path}: {from:x}"
        );
    }
    names.len()
}

/// Makes directories `d{count}` with names of up to `most` bytes, some of which are not ASCII.
fn fill(root: &Path, counts: &[usize], most: usize) {
    let file = root.join("file");
    std::fs::write(&file, b"content").unwrap();
    for count in counts {
        let dir = root.join(format!("d{count}"));
        std::fs::create_dir(&dir).unwrap();
        for n in 0..*count {
            let mut name = format!("{n}-").into_bytes();
            let filler = if n % 3 == 0 { 0xe0 + (n % 16) as u8 } else { b'a' + (n % 26) as u8 };
            name.resize((n * 7 % most).max(name.len()), filler);
            std::fs::hard_link(&file, dir.join(OsStr::from_bytes(&name))).unwrap();
        }
    }
}

const COUNTS: [usize; 7] = [0, 1, 2, 5, 12, 300, 2500];

/// Each batch of [`Volume::list`] is about one leaf and reads a few blocks; neither grows with the
/// directory.
fn check_batches(volume: &Volume<Image>, path: &str) {
    use std::sync::atomic::Ordering::Relaxed;
    let ino = volume.resolve(ROOT_INO, path.as_bytes(), true).unwrap();
    let dir = volume.linked_inode(ino).unwrap();
    let before = volume.source().reads.load(Relaxed);
    let (mut cookie, mut batches) = (0, 0);
    while let Some(last) = volume.list(&dir, cookie, u64::MAX).unwrap().pop() {
        let names = volume.list(&dir, cookie, u64::MAX).unwrap().len();
        assert!(names <= volume.block_bytes() / 12 + 2, "{names} names at once");
        (cookie, batches) = (last.cookie, batches + 1);
    }
    let reads = volume.source().reads.load(Relaxed) - before;
    assert!(reads <= (batches + 1) * 2 * 5, "{path}: {reads} blocks read for {batches} parts");
}

#[test]
fn order_and_cookies_are_the_kernels() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let mut rng = Rng::new(1);
    // Options of mkfs, hash, s_flags (1: signed characters, 2: unsigned characters).
    let shapes: [(&[&str], &str, u32); 9] = [
        (&["-b", "1024"], "half_md4", 1),
        (&["-b", "1024"], "half_md4", 2),
        (&["-b", "1024"], "tea", 1),
        (&["-b", "1024"], "tea", 2),
        (&["-b", "1024"], "legacy", 1),
        (&["-b", "1024"], "legacy", 2),
        (&["-b", "4096", "-I", "512", "-O", "inline_data"], "half_md4", 1),
        (&["-b", "1024", "-O", "^dir_index"], "half_md4", 1),
        (&["-b", "1024", "-O", "^metadata_csum,large_dir,^filetype"], "half_md4", 1),
    ];
    for (args, hash, flags) in shapes {
        let image = mkfs(dir.path(), "order.img", "32M", args);
        run("tune2fs", &["-E", &format!("hash_alg={hash}"), image.to_str().unwrap()]);
        debugfs_write(&image, &[format!("set_super_value flags {flags}")]);
        let at = dir.path().join("mnt");
        {
            let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
            fill(&at, &COUNTS, 60);
            if hash == "legacy" {
                std::fs::create_dir(at.join("same")).unwrap();
                for name in collide::names(14) {
                    std::fs::hard_link(
                        at.join("file"),
                        at.join("same").join(OsStr::from_bytes(&name)),
                    )
                    .unwrap();
                }
            }
        }
        let fs = mount_after_kernel(&image, &MountOptions::default());
        let Some(_mounted) = Mounted::new(&image, &at, "ro") else { return };
        for count in COUNTS {
            assert_eq!(
                compare(&fs, &at, &format!("d{count}"), &mut rng),
                count,
                "{args:?} {hash} {flags}"
            );
        }
        compare(&fs, &at, "", &mut rng);
        if hash == "legacy" {
            let htree = run("debugfs", &["-R", "htree_dump /same", image.to_str().unwrap()]);
            assert!(htree.lines().filter(|line| line.contains("Entry #")).count() > 2, "{htree}");
            assert_eq!(compare(&fs, &at, "same", &mut rng), 14);
        }
        drop(fs);
        if !args.contains(&"^dir_index") {
            check_batches(&open(&image), "/d2500");
        }
        std::fs::remove_file(&image).unwrap();
    }
}

/// Directories of many blocks without an index on a file system with the feature, and the same
/// directories with an index of two levels.
#[test]
fn with_and_without_an_index() {
    if !tools() {
        return;
    }
    let (dir, mut rng) = (scratch(), Rng::new(2));
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree, &[40, 3000], 250);
    let image = mkfs(dir.path(), "plain.img", "32M", &["-b", "1024", "-d", tree.to_str().unwrap()]);
    let at = dir.path().join("mnt");
    for levels in [None, Some(1)] {
        if levels.is_some() {
            // Exit code 1 means that the file system was changed.
            run_for("e2fsck", &["-fyD", image.to_str().unwrap()], &[0, 1]);
            let htree = run("debugfs", &["-R", "htree_dump /d3000", image.to_str().unwrap()]);
            assert!(htree.contains("Indirect levels: 1"), "{}", &htree[..300]);
        }
        let fs = mount_after_kernel(&image, &MountOptions::default());
        let Some(_mounted) = Mounted::new(&image, &at, "ro") else { return };
        for count in [40, 3000] {
            assert_eq!(compare(&fs, &at, &format!("d{count}"), &mut rng), count);
        }
        assert_eq!(fs.metadata("/d40").unwrap().file_type, FileType::Directory);
    }
    check_batches(&open(&image), "/d3000");
}
