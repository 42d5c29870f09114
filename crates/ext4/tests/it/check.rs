//! The check for damage: it finds none in images of mkfs.ext4, and ends without a panic whatever
//! bytes are changed.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use meantime_block as block;
use meantime_ext4::check::{Checker, Event, Finding, Summary};
use meantime_ext4::format::{Inode, Source, SourceError, Volume, VolumeOptions};
use meantime_ext4::{Defect, FileSystem, MountOptions, NewNode};
use meantime_testkit::image::{Mounted, debugfs_write, mkfs, run, scratch, tools};

/// An image in memory.
struct Image(Vec<u8>);

/// An image, a byte offset, and the number of reads at that offset.
struct Counted(Image, u64, std::cell::Cell<usize>);

impl Source for Counted {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.2.set(self.2.get() + usize::from(offset == self.1));
        self.0.read(offset, bytes)
    }
}

impl Source for Image {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        let from = usize::try_from(offset).map_err(|_| SourceError::OutOfRange)?;
        let end = from.checked_add(bytes).ok_or(SourceError::OutOfRange)?;
        self.0.get(from..end).map(Arc::from).ok_or(SourceError::OutOfRange)
    }
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Makes an image of `mib` MiB with some of each structure. Returns `None` without e2fsprogs.
fn image(mib: u32, options: &[&str]) -> Option<Vec<u8>> {
    let (Some(mkfs), Some(e2fsck)) = (tool("mkfs.ext4"), tool("e2fsck")) else {
        println!("skipped: no e2fsprogs here");
        return None;
    };
    let dir = meantime_testkit::image::scratch();
    let (tree, file) = (dir.path().join("tree"), dir.path().join("disk.img"));
    std::fs::create_dir_all(tree.join("many/deep")).unwrap();
    for n in 0..200 {
        std::fs::write(tree.join(format!("many/a-rather-long-name-{n}")), vec![n as u8; n * 37])
            .unwrap();
    }
    let holes = std::fs::File::create(tree.join("holes")).unwrap();
    for n in 0..24 {
        std::os::unix::fs::FileExt::write_all_at(&holes, b"x", n * 65_536).unwrap();
    }
    std::os::unix::fs::symlink("y".repeat(300), tree.join("link")).unwrap();
    std::fs::hard_link(tree.join("holes"), tree.join("many/deep/holes")).unwrap();
    let run = |tool: &Path, args: &[&OsStr]| {
        let output = Command::new(tool).args(args).output().unwrap();
        assert!(output.status.code().unwrap_or(9) <= 1, "{options:?}: {output:?}");
    };
    let size = format!("{mib}M");
    let words: Vec<&OsStr> = ["-q", "-F"].iter().chain(options).map(OsStr::new).collect();
    run(
        &mkfs,
        &[&words, &["-d".as_ref(), tree.as_os_str(), file.as_ref(), size.as_ref()][..]].concat(),
    );
    run(&e2fsck, &["-fyD".as_ref(), file.as_ref()]);
    Some(std::fs::read(&file).unwrap())
}

/// Returns the findings in `bytes`, or `None` if the volume cannot be opened.
fn check(bytes: Vec<u8>) -> Option<(Summary, Vec<Finding>)> {
    let length = bytes.len() as u64;
    let volume = Volume::open(Image(bytes), length, VolumeOptions::default()).ok()?;
    let mut findings = Vec::new();
    let mut watch = |event: Event<'_>| {
        if let Event::Found(finding) = event {
            findings.push(finding.clone());
        }
        ControlFlow::Continue(())
    };
    let summary = Checker::new(&volume, &mut watch).ok()?.run().ok()?;
    Some((summary, findings))
}

#[test]
fn what_is_whole_is_clean() {
    for (mib, options) in [
        (32, &[][..]),
        (16, &["-b", "1024"]),
        (32, &["-b", "2048", "-O", "^metadata_csum,^64bit"]),
        (32, &["-t", "ext2"]),
        (32, &["-t", "ext3"]),
        (64, &["-O", "bigalloc", "-C", "16384"]),
        (64, &["-O", "bigalloc", "-C", "16384", "-b", "1024"]),
        (64, &["-O", "^resize_inode,meta_bg", "-b", "1024"]),
        (32, &["-O", "inline_data"]),
        (32, &["-O", "metadata_csum_seed,orphan_file"]),
        (32, &["-O", "quota,project"]),
        (32, &["-O", "sparse_super2", "-b", "1024"]),
        (32, &["-O", "^has_journal,^flex_bg", "-b", "1024"]),
        (32, &["-O", "uninit_bg,^metadata_csum", "-b", "1024"]),
        (32, &["-I", "128"]),
        (32, &["-O", "mmp"]),
        (32, &["-O", "large_dir,ea_inode"]),
        (128, &["-b", "65536"]),
    ] {
        let Some(bytes) = image(mib, options) else { return };
        let (summary, findings) =
            check(bytes).unwrap_or_else(|| panic!("{options:?} cannot be opened"));
        assert!(findings.is_empty() && summary.complete, "{options:?}: {findings:#?}");
        assert!(
            summary.directories >= 4 && summary.files >= 201 && summary.symlinks == 1,
            "{summary:?}"
        );
    }
}

/// e2fsck -n reports wrong totals, but exits with 0.
#[test]
fn wrong_totals_in_the_superblock_are_no_defect() {
    if !tools() {
        return;
    }
    for (number, what) in ["free_blocks_count 77", "free_inodes_count 7"].into_iter().enumerate() {
        let dir = scratch();
        let path = mkfs(dir.path(), &number.to_string(), "16M", &[]);
        debugfs_write(&path, &[format!("set_super_value {what}")]);
        run("e2fsck", &["-fn", path.to_str().unwrap()]);
        let (summary, findings) = check(std::fs::read(&path).unwrap()).unwrap();
        assert!(findings.is_empty() && summary.stale_totals, "{what}: {findings:#?}");
    }
}

/// Adds a key to the file system of `dir` and makes `dir` an encrypted directory (fscrypt, policy
/// version 2). Returns whether the kernel can.
fn encrypt(dir: &Path) -> bool {
    const ADD_KEY: u64 = 0xc050_6617;
    const SET_POLICY: u64 = 0x800c_6613;
    let file = std::fs::File::open(dir).unwrap();
    // `struct fscrypt_add_key_arg`: a key of 64 bytes, to be named by its identifier.
    let mut key = [0_u8; 80 + 64];
    (key[0], key[40]) = (2, 64);
    key[80..].iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
    // SAFETY: the structure is as the kernel's, with the key after it.
    if unsafe { libc::ioctl(file.as_raw_fd(), ADD_KEY, key.as_mut_ptr()) } != 0 {
        return false;
    }
    // `struct fscrypt_policy_v2`: AES-256-XTS and AES-256-CTS.
    let mut policy = [0_u8; 24];
    policy[..3].copy_from_slice(&[2, 1, 4]);
    policy[8..].copy_from_slice(&key[8..24]);
    // SAFETY: the structure is as the kernel's.
    unsafe { libc::ioctl(file.as_raw_fd(), SET_POLICY, policy.as_ptr()) == 0 }
}

#[test]
fn encrypted_directories_are_walked_without_a_key() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = mkfs(dir.path(), "image", "16M", &["-b", "1024", "-O", "encrypt"]);
    {
        let at = dir.path().join("mnt");
        let Some(_mounted) = Mounted::new(&path, &at, "noatime") else { return };
        std::fs::create_dir(at.join("secret")).unwrap();
        if !encrypt(&at.join("secret")) {
            println!("skipped: this kernel does not encrypt");
            return;
        }
        std::fs::create_dir(at.join("secret/below")).unwrap();
        // Enough names for an index.
        for number in 0..100 {
            std::fs::write(at.join(format!("secret/below/{number}")), "text").unwrap();
        }
        std::os::unix::fs::symlink("below/1", at.join("secret/link")).unwrap();
    }
    run("e2fsck", &["-fn", path.to_str().unwrap()]);
    let (summary, findings) = check(std::fs::read(&path).unwrap()).unwrap();
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!((summary.files, summary.directories), (100, 4));
}

#[test]
fn whoever_watches_can_end_it() {
    let Some(bytes) = image(16, &["-b", "1024"]) else { return };
    let length = bytes.len() as u64;
    let volume = Volume::open(Image(bytes), length, VolumeOptions::default())
        .unwrap_or_else(|_| panic!("it is sound"));
    let mut told = 0;
    let mut watch = |_: Event<'_>| {
        told += 1;
        ControlFlow::Break(())
    };
    let summary = Checker::new(&volume, &mut watch).unwrap().run().unwrap();
    assert!(!summary.complete && told == 1, "{summary:?}, told {told} times");
}

/// Without checksums, changed bytes reach the code after them.
#[test]
fn changed_bytes_are_no_panic() {
    for (options, rounds) in [
        (&["-b", "1024", "-O", "^metadata_csum"][..], 150),
        (&["-t", "ext3", "-b", "1024"], 100),
        (&["-b", "1024"], 50),
    ] {
        let Some(whole) = image(8, &[options, &["-J", "size=1"]].concat()) else { return };
        // Only bytes that are not zero: changes elsewhere have no effect.
        let places: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
        let mut state = 0x6d65_616e_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let mut found = 0;
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 40 {
                let at = places[random() % places.len()];
                bytes[at] = random() as u8;
            }
            found += check(bytes).map_or(0, |(_, findings)| usize::from(!findings.is_empty()));
        }
        assert!(found > rounds / 10, "{options:?}: {found} of {rounds}");
    }
}

/// An image to be damaged, with a volume to locate its structures.
struct Scene {
    bytes: Vec<u8>,
    volume: Volume<Image>,
}

/// Offsets in bytes: in the superblock, and in an inode.
const FEATURES_AT: usize = 1024 + 0x5C;
const LAST_ORPHAN_AT: usize = 1024 + 0xE8;
const LINKS_AT: usize = 0x1A;
const SIZE_AT: usize = 0x04;
const DELETED_AT: usize = 0x14;
const BLOCKS_AT: usize = 0x1C;
const AREA_AT: usize = 0x28;
const SIZE_HIGH_AT: usize = 0x6C;
const ATTRIBUTES_HIGH_AT: usize = 0x76;

impl Scene {
    fn new(bytes: &[u8]) -> Self {
        let volume =
            Volume::open(Image(bytes.to_vec()), bytes.len() as u64, VolumeOptions::default());
        Self { bytes: bytes.to_vec(), volume: volume.unwrap_or_else(|_| panic!("it is sound")) }
    }

    fn inode(&self, path: &str) -> Inode {
        let mut inode = self.volume.inode(2).unwrap();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let (ino, _) = self.volume.lookup(&inode, name.as_bytes()).unwrap().unwrap();
            inode = self.volume.inode(ino).unwrap();
        }
        inode
    }

    /// The byte offset of inode `ino`.
    fn place(&self, ino: u32) -> usize {
        let (block, at) = self.volume.inode_place(ino).unwrap();
        block as usize * self.volume.block_bytes() + at
    }

    fn word(&mut self, at: usize) -> &mut [u8; 4] {
        self.bytes[at..].first_chunk_mut().unwrap()
    }

    fn change(&mut self, at: usize, change: impl FnOnce(u32) -> u32) {
        let word = self.word(at);
        *word = change(u32::from_le_bytes(*word)).to_le_bytes();
    }

    /// Changes a field of the inode of `path`.
    fn field(&mut self, path: &str, at: usize, change: impl FnOnce(u32) -> u32) {
        let place = self.place(self.inode(path).ino());
        self.change(place + at, change);
    }

    /// The byte offsets of the resize inode's block of pointers and of the first block it points
    /// to.
    fn resize(&self) -> (usize, usize) {
        let inode = self.volume.inode(7).unwrap();
        let four = inode.block_area()[52..56].first_chunk().unwrap();
        let table = u32::from_le_bytes(*four) as usize * self.volume.block_bytes();
        let pointers = self.bytes[table..]
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes(four.try_into().unwrap()));
        let (at, first) = pointers.enumerate().find(|(_, pointer)| *pointer != 0).unwrap();
        (table + at * 4, first as usize * self.volume.block_bytes())
    }

    /// Renames a directory entry to a name of the same length.
    fn rename(&mut self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        // The name follows its length and the type of a file.
        let entry = [&[from.len() as u8, 1], from.as_bytes()].concat();
        let at = self.bytes.windows(entry.len()).position(|bytes| bytes == entry).unwrap();
        self.bytes[at + 2..at + entry.len()].copy_from_slice(to.as_bytes());
    }
}

/// A name, a change, and whether a defect is one that the change causes.
type Damage = (&'static str, fn(&mut Scene), fn(Defect) -> bool);

fn each_is_found(whole: &[u8], damages: &[Damage]) {
    assert_eq!(check(whole.to_vec()).unwrap().1, [], "it is whole");
    for (what, damage, is_it) in damages {
        let mut scene = Scene::new(whole);
        damage(&mut scene);
        assert!(scene.bytes != whole, "{what}");
        let (_, findings) =
            check(scene.bytes).unwrap_or_else(|| panic!("{what}: it cannot be opened"));
        let found = findings.iter().any(|finding| is_it(finding.corruption.defect));
        assert!(found, "{what}: {findings:?}");
    }
}

const SIZE: fn(Defect) -> bool = |defect| defect == Defect::InodeField("size");
const COUNT: fn(Defect) -> bool = |defect| defect == Defect::BlockCount;
const SUPERBLOCK: fn(Defect) -> bool = |defect| matches!(defect, Defect::SuperblockField(_));
const RESIZE: fn(Defect) -> bool = |defect| defect == Defect::ResizeInode;

/// Fields that contradict others and are not covered by a checksum.
#[test]
fn each_field_that_is_wrong_is_found() {
    let options = ["-b", "1024", "-O", "^metadata_csum,^dir_index,^64bit,^uninit_bg"];
    let Some(whole) = image(24, &options) else { return };
    let damages: [Damage; 23] = [
        ("an unknown feature", |s| s.change(FEATURES_AT, |bits| bits | 1 << 31), SUPERBLOCK),
        (
            "one that hinders writing",
            |s| s.change(FEATURES_AT + 8, |bits| bits | 1 << 29),
            SUPERBLOCK,
        ),
        ("a journal nobody knows of", |s| s.change(FEATURES_AT, |bits| bits & !4), SUPERBLOCK),
        ("a pointer of the resize inode", |s| s.change(s.resize().0, |block| block + 1), RESIZE),
        ("one more", |s| s.change(s.resize().0 - 4, |_| 99), RESIZE),
        ("a pointer to a copy", |s| s.change(s.resize().1, |block| block ^ 4), RESIZE),
        ("one more to a copy", |s| s.change(s.resize().1 + 1020, |_| 99), RESIZE),
        ("its blocks", |s| s.change(s.place(7) + BLOCKS_AT, |count| count + 2), COUNT),
        ("a file's blocks", |s| s.field("holes", BLOCKS_AT, |count| count + 2), COUNT),
        ("a directory's", |s| s.field("many", BLOCKS_AT, |count| count - 2), COUNT),
        ("the journal's", |s| s.change(s.place(8) + BLOCKS_AT, |count| count + 2), COUNT),
        ("a file that is too short", |s| s.field("holes", SIZE_AT, |_| 5000), SIZE),
        ("longer than any", |s| s.field("holes", SIZE_HIGH_AT, |_| 0x1000), SIZE),
        ("a directory with more blocks", |s| s.field("many", SIZE_AT, |size| size - 1024), SIZE),
        ("with fewer", |s| s.field("many", SIZE_AT, |size| size + 1024), SIZE),
        (
            "a link with less text",
            |s| s.field("link", SIZE_AT, |size| size - 1),
            |defect| defect == Defect::SymbolicLink,
        ),
        (
            "two files of one name",
            |s| s.rename("a-rather-long-name-11", "a-rather-long-name-10"),
            |defect| defect == Defect::DuplicateName,
        ),
        (
            "deleted, and in use",
            |s| s.field("holes", DELETED_AT, |_| 5),
            |defect| defect == Defect::InodeField("deletion time"),
        ),
        (
            "half of a pointer",
            |s| s.field("holes", ATTRIBUTES_HIGH_AT, |word| word | 2),
            |defect| defect == Defect::InodeField("attribute block"),
        ),
        (
            "orphans of no crash",
            |s| {
                let ino = s.inode("holes").ino();
                s.change(LAST_ORPHAN_AT, |_| ino);
            },
            |defect| defect == Defect::OrphansLeft,
        ),
        (
            "a group that was never written",
            |s| s.change(2 * 1024 + 0x12, |flags| flags | 1),
            |defect| matches!(defect, Defect::GroupField(_)),
        ),
        (
            "a bad block that there is not",
            |s| s.change(s.place(1) + AREA_AT, |_| 0xFF_FFFF),
            |defect| defect == Defect::BlockPointer,
        ),
        ("an inode in use that nobody knows of", lost_inode, |defect| {
            defect == Defect::InodeUnmarked
        }),
    ];
    each_is_found(&whole, &damages);
}

/// Turns a free inode into a file without a name.
fn lost_inode(scene: &mut Scene) {
    let ino = (12..).find(|ino| scene.volume.inode(*ino).unwrap().is_free()).unwrap();
    let at = scene.place(ino);
    scene.bytes[at..at + 2].copy_from_slice(&0x81A4_u16.to_le_bytes());
    scene.bytes[at + LINKS_AT] = 1;
}

/// The checksums of free inodes are checked, too.
#[test]
fn a_free_inode_with_a_wrong_checksum_is_found() {
    let Some(made) = image(16, &["-b", "1024"]) else { return };
    // A free inode that was in use before.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), made).unwrap();
    let remove = ["-w", "-R", "rm many/a-rather-long-name-7"].map(OsStr::new);
    let debugfs =
        Command::new(tool("debugfs").unwrap()).args(remove).arg(file.path()).output().unwrap();
    assert!(debugfs.status.success(), "{debugfs:?}");
    let whole = std::fs::read(file.path()).unwrap();
    let damage: Damage = ("a byte of it", lost_inode, |defect| defect == Defect::InodeChecksum);
    each_is_found(&whole, &[damage]);
}

/// Quota files are compared with the actual usage.
#[test]
fn a_wrong_quota_is_found() {
    let Some(whole) = image(32, &["-O", "quota,^metadata_csum"]) else { return };
    /// Byte `at` of the user quota file, as an offset in the image.
    fn quota(scene: &Scene, at: usize) -> usize {
        let file = scene.volume.inode(3).unwrap();
        let block_bytes = scene.volume.block_bytes();
        let run = scene.volume.run_at(&file, (at / block_bytes) as u64).unwrap();
        run.physical as usize * block_bytes + at % block_bytes
    }
    // The first entry is in block 5, after the header and the four levels of the tree.
    let damages: [Damage; 4] = [
        (
            "bytes",
            |s| s.change(quota(s, 5 * 1024 + 16 + 48), |bytes| bytes + 4096),
            |defect| defect == Defect::QuotaUsage,
        ),
        (
            "inodes",
            |s| s.change(quota(s, 5 * 1024 + 16 + 24), |inodes| inodes + 1),
            |defect| defect == Defect::QuotaUsage,
        ),
        (
            "whose it is",
            |s| s.change(quota(s, 5 * 1024 + 16), |id| id + 1),
            |defect| defect == Defect::QuotaUsage,
        ),
        (
            "its beginning",
            |s| s.change(quota(s, 0), |magic| magic + 1),
            |defect| defect == Defect::QuotaFile,
        ),
    ];
    each_is_found(&whole, &damages);
}

/// `whole` after `work`.
fn changed(whole: &[u8], work: impl FnOnce(&FileSystem)) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), whole).unwrap();
    let uri = format!("file:{}", file.path().display());
    let device: block::Device = block::open(&uri, &block::OpenOptions::default()).unwrap();
    let fs = FileSystem::mount(device, &MountOptions { write: true, ..MountOptions::default() })
        .unwrap();
    work(&fs);
    fs.unmount().unwrap();
    std::fs::read(file.path()).unwrap()
}

const PLAIN: [&str; 4] =
    ["-b", "1024", "-O", "^metadata_csum,^dir_index,^64bit,^uninit_bg,^extent"];

/// A path is reported while it is usable. Otherwise each of many deep directories would have its
/// own.
#[test]
fn deep_directories_have_short_paths() {
    let options = ["-b", "1024", "-O", "^metadata_csum,^dir_index,^64bit,^uninit_bg"];
    let Some(whole) = image(24, &options) else { return };
    let mut deepest = 0;
    let whole = changed(&whole, |fs| {
        let mut at = fs.root().unwrap();
        for _ in 0..60 {
            let new = NewNode { mode: 0o755, uid: 0, gid: 0, umask: 0 };
            at = fs.mkdir(&at, OsStr::new(&"n".repeat(200)), &new).unwrap();
        }
        deepest = at.ino();
    });
    assert_eq!(check(whole.clone()).unwrap().1, []);
    let mut scene = Scene::new(&whole);
    let at = scene.place(deepest);
    scene.change(at + BLOCKS_AT, |count| count + 2);
    let (summary, findings) = check(scene.bytes).unwrap();
    let finding =
        findings.iter().find(|finding| finding.corruption.defect == Defect::BlockCount).unwrap();
    let path = finding.path.as_ref().unwrap();
    assert_eq!(finding.corruption.ino, Some(deepest));
    assert!(
        path.as_os_str().len() < 5000 && path.to_str().unwrap().starts_with('<'),
        "{}",
        path.display()
    );
    assert!(path.ends_with("n".repeat(200)) && summary.directories > 60, "{summary:?}");
}

/// A few blocks can claim any directory size: such a directory is not read.
#[test]
fn a_directory_that_is_larger_than_the_file_system_is_not_read() {
    let Some(whole) = image(24, &PLAIN) else { return };
    let mut scene = Scene::new(&whole);
    let inode = scene.inode("many");
    let names = u32::from_le_bytes(*inode.block_area()[4..].first_chunk().unwrap());
    // The last blocks are free: one points to the other 256 times, which points to the names as
    // often.
    let last = (whole.len() / 1024 - 1) as u32;
    for (block, pointer) in [(last, last - 1), (last - 1, names)] {
        scene.bytes[block as usize * 1024..][..1024]
            .copy_from_slice(&pointer.to_le_bytes().repeat(256));
    }
    scene.field("many", AREA_AT + 12 * 4, |_| last - 1);
    scene.field("many", AREA_AT + 13 * 4, |_| last);
    scene.field("many", SIZE_AT, |_| (12 + 256 + 256 * 256) * 1024);
    let length = scene.bytes.len() as u64;
    let volume = Volume::open(Image(scene.bytes), length, VolumeOptions::default());
    let volume = volume.unwrap_or_else(|_| panic!("it can be opened"));
    let (mut steps, mut is_told) = (0, false);
    let mut watch = |event: Event<'_>| {
        match event {
            Event::Found(finding) => {
                is_told |= finding.corruption.defect == Defect::InodeField("size")
            }
            Event::Progress { .. } => steps += 1,
        }
        ControlFlow::Continue(())
    };
    let summary = Checker::new(&volume, &mut watch).unwrap().run().unwrap();
    assert!(summary.complete && is_told);
    assert!(steps < 10_000, "{steps} times 16 steps for 24,576 blocks");
}

/// With clusters, several inodes may share a block: a tree node is read for one of them, and its
/// defects are reported for each.
#[test]
fn a_tree_that_many_inodes_share_is_read_once() {
    let options = ["-O", "bigalloc,^metadata_csum,^uninit_bg", "-C", "16384", "-b", "1024"];
    let Some(whole) = image(64, &options) else { return };
    let mut scene = Scene::new(&whole);
    let holes = scene.inode("holes");
    let node = u32::from_le_bytes(*holes.block_area()[16..].first_chunk().unwrap());
    let at = u64::from(node) * 1024;
    assert_eq!(scene.bytes[at as usize..][..2], [0x0A, 0xF3], "the node below the inode");
    for n in 0..100 {
        let place = scene.place(scene.inode(&format!("many/a-rather-long-name-{n}")).ino());
        scene.bytes[place + AREA_AT..][..60].copy_from_slice(holes.block_area());
    }
    let reads = |bytes: &[u8]| {
        let image = Counted(Image(bytes.to_vec()), at, std::cell::Cell::new(0));
        let volume = Volume::open(image, bytes.len() as u64, VolumeOptions::default());
        let volume = volume.unwrap_or_else(|_| panic!("it can be opened"));
        let mut findings = Vec::new();
        let mut watch = |event: Event<'_>| {
            if let Event::Found(finding) = event {
                findings.push(finding.corruption.defect);
            }
            ControlFlow::Continue(())
        };
        assert!(Checker::new(&volume, &mut watch).unwrap().run().unwrap().complete);
        (volume.source().2.get(), findings)
    };
    let found = |findings: &[Defect], defect| findings.iter().filter(|it| **it == defect).count();
    let (alone, findings) = reads(&whole);
    assert_eq!((alone, findings), (1, Vec::new()));
    let (shared, findings) = reads(&scene.bytes);
    // The files are shorter than what their tree maps as written, and claim to have one cluster.
    let size = Defect::InodeField("size");
    assert_eq!((found(&findings, Defect::BlockCount), found(&findings, size)), (100, 100));
    assert_eq!(shared, 1);
    // A defect of a node is reported for each inode.
    scene.bytes[at as usize] ^= 1;
    let (shared, findings) = reads(&scene.bytes);
    assert_eq!((found(&findings, Defect::ExtentHeader), shared), (101, 1));
}

/// When very many names are repeated, not each of them is reported.
#[test]
fn so_many_names_that_are_there_twice_are_told() {
    let Some(whole) =
        image(24, &["-b", "1024", "-O", "^metadata_csum,^dir_index,^64bit,^uninit_bg"])
    else {
        return;
    };
    let whole = changed(&whole, |fs| {
        fs.create_dir("twice").unwrap();
        for first in ["one-", "two-"] {
            for n in 0..1200 {
                fs.symlink("x", format!("twice/{first}{n:04}")).unwrap();
            }
        }
    });
    let mut scene = Scene::new(&whole);
    let count = scene.bytes.windows(4).filter(|four| four == b"two-").count();
    assert!(count >= 1200, "{count}");
    for at in 0..scene.bytes.len() - 4 {
        if &scene.bytes[at..at + 4] == b"two-" {
            scene.bytes[at..at + 4].copy_from_slice(b"one-");
        }
    }
    let (summary, findings) = check(scene.bytes).unwrap();
    let twice = findings
        .iter()
        .filter(|finding| finding.corruption.defect == Defect::DuplicateName)
        .count();
    assert!(summary.complete && twice == 1000, "{twice}");
}

/// The user quota file claims to be larger than the disk.
#[test]
fn a_quota_file_that_is_larger_than_the_file_system_is_not_read() {
    let options = ["-b", "1024", "-O", "^metadata_csum,quota"];
    let Some(whole) = image(24, &options) else { return };
    let mut scene = Scene::new(&whole);
    let at = scene.place(3);
    scene.change(at + SIZE_AT, |_| 1 << 30);
    let (_, findings) = check(scene.bytes).unwrap();
    let is_told = |finding: &Finding| finding.corruption.defect == Defect::QuotaFile;
    assert!(findings.iter().any(is_told), "{findings:?}");
}
