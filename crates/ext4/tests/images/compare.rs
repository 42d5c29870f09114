//! Compares this file system with the kernel's on the same image.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use meantime_block::{OpenOptions, open};
use meantime_ext4::check::Event;
use meantime_ext4::{
    Error, FileSystem, FileType, Metadata, MountError, MountOptions, Overlap, ReadOptions,
    SegmentKind,
};

use crate::kernel;
use meantime_testkit::Rng;

/// Counts of what was compared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub images: u64,
    pub recovered: u64,
    pub names: u64,
    pub inodes: u64,
    pub attributes: u64,
    pub reads: u64,
    pub bytes: u64,
    pub segments: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.images += other.images;
        self.recovered += other.recovered;
        self.names += other.names;
        self.inodes += other.inodes;
        self.attributes += other.attributes;
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.segments += other.segments;
    }
}

/// Mounts `image` with this crate and random options.
pub(crate) fn mount(image: &Path, rng: &mut Rng) -> Result<FileSystem, MountError> {
    let uri = format!("file:{}?model=null", image.display());
    let device = open(&uri, &OpenOptions::default()).expect("the image is a device");
    let bits = rng.next();
    let overlap = Overlap {
        preload: bits & 1 != 0,
        pool: bits & 2 != 0,
        lazy_insert: bits & 4 != 0,
        lazy_unmap: bits & 8 != 0,
    };
    let options = MountOptions {
        // Small caches evict all the time.
        cache_bytes: [1 << 20, 4 << 20, 64 << 20][rng.below(3) as usize],
        overlap: if rng.one_in(3) { Overlap::ALL } else { overlap },
        read_ahead_bytes: [0, 64 << 10, 512 << 10][rng.below(3) as usize],
        channels: 1 + rng.below(2) as usize,
        ..MountOptions::default()
    };
    FileSystem::mount(device, &options)
}

/// Checks that this crate's check finds no defect in what the kernel wrote.
pub(crate) fn check(fs: &FileSystem) {
    let mut found = Vec::new();
    let summary = fs.check(&mut |event| {
        if let Event::Found(finding) = event {
            found.push(finding.to_string());
        }
        ControlFlow::Continue(())
    });
    assert!(summary.expect("a check").complete && found.is_empty(), "{found:#?}");
}

/// A walk over both file systems.
pub(crate) struct Comparison<'a> {
    ours: &'a FileSystem,
    /// The root of the kernel's mount.
    root: &'a Path,
    rng: &'a mut Rng,
    /// Inodes whose content was compared already.
    done: HashSet<u64>,
    pub tally: Tally,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(ours: &'a FileSystem, root: &'a Path, rng: &'a mut Rng) -> Self {
        Self {
            ours,
            root,
            rng,
            done: HashSet::new(),
            tally: Tally { images: 1, ..Tally::default() },
        }
    }

    /// Compares everything below the root. Panics at the first difference.
    pub(crate) fn tree(&mut self) {
        let mut directories = vec![PathBuf::new()];
        self.node(Path::new(""));
        while let Some(directory) = directories.pop() {
            for name in self.directory(&directory) {
                let path = directory.join(name);
                if self.node(&path) {
                    directories.push(path);
                }
            }
        }
    }

    /// Compares `statfs`. `exact` says that the kernel's mount had nothing to clean up.
    pub(crate) fn usage(&mut self, exact: bool) {
        let kernel = rustix::fs::statfs(self.root).expect("statfs");
        let ours = self.ours.usage().expect("usage");
        assert_eq!(u64::from(ours.block_bytes), kernel.f_bsize as u64, "block size");
        assert_eq!(
            (ours.blocks, ours.inodes),
            (kernel.f_blocks, kernel.f_files),
            "blocks and inodes in all"
        );
        if exact {
            let free = (ours.free_blocks, ours.available_blocks, ours.free_inodes);
            assert_eq!(
                free,
                (kernel.f_bfree, kernel.f_bavail, kernel.f_ffree),
                "free blocks, available, inodes"
            );
        }
    }

    fn directory(&mut self, path: &Path) -> Vec<OsString> {
        let shown = path.display();
        let mut theirs: BTreeMap<OsString, (u64, FileType)> = BTreeMap::new();
        for entry in fs::read_dir(self.root.join(path)).expect("a directory") {
            let entry = entry.expect("an entry");
            let kind = file_type(entry.file_type().expect("a type"));
            theirs.insert(entry.file_name(), (std::os::unix::fs::DirEntryExt::ino(&entry), kind));
        }
        let node = self
            .ours
            .resolve(&self.ours.root().expect("a root"), Path::new("/").join(path), true)
            .expect("a directory");
        let entries = self.ours.entries(&node).expect("entries");
        let entries: Vec<_> =
            entries.map(|entry| entry.unwrap_or_else(|error| panic!("{shown}: {error}"))).collect();
        let mut dots = 0;
        let mut ours: BTreeMap<OsString, u64> = BTreeMap::new();
        for entry in &entries {
            if entry.name == "." || entry.name == ".." {
                dots += 1;
                let ino = fs::metadata(self.root.join(path).join(&entry.name)).expect("stat").ino();
                // `..` of the kernel's root is in another file system.
                if entry.name == "." || path != Path::new("") {
                    assert_eq!(u64::from(entry.ino), ino, "{shown}: {:?}", entry.name);
                }
                continue;
            }
            let their = theirs.get(&entry.name);
            let (_, kind) =
                their.unwrap_or_else(|| panic!("{shown}: the kernel has no {:?}", entry.name));
            assert!(
                entry.file_type.is_none_or(|ours| ours == *kind),
                "{shown}: {:?}: {entry:?} {kind:?}",
                entry.name
            );
            assert!(
                ours.insert(entry.name.clone(), u64::from(entry.ino)).is_none(),
                "{shown}: {:?} twice",
                entry.name
            );
        }
        assert_eq!(dots, 2, "{shown}: . and ..");
        let inodes: BTreeMap<OsString, u64> =
            theirs.into_iter().map(|(name, (ino, _))| (name, ino)).collect();
        assert_eq!(ours, inodes, "{shown}: names");
        self.tally.names += ours.len() as u64;

        // From a cookie in the middle, the rest follows.
        if entries.len() > 2 {
            let from = self.rng.below(entries.len() as u64 - 1) as usize;
            let mut again = self.ours.entries(&node).expect("entries");
            again.seek(entries[from].cookie);
            let rest: Vec<_> = again.map(|entry| entry.expect("an entry")).collect();
            assert!(
                rest == entries[from..] || rest == entries[from + 1..],
                "{shown}: after seeking to {from}"
            );
        }
        for _ in 0..3 {
            let name = meantime_testkit::lab::names::name(self.rng);
            if !ours.contains_key(&name) {
                let found = self.ours.lookup(&node, &name).map(|node| node.ino());
                assert_eq!(found, Err(Error::NotFound), "{shown}: {name:?}");
            }
        }
        for name in ours.keys() {
            let found = self.ours.lookup(&node, name).map(|node| u64::from(node.ino()));
            assert_eq!(found, Ok(ours[name]), "{shown}: {name:?}");
        }
        ours.into_keys().collect()
    }

    /// Compares one inode. Returns whether it is a directory.
    fn node(&mut self, path: &Path) -> bool {
        let shown = path.display();
        let full = self.root.join(path);
        let theirs = fs::symlink_metadata(&full).expect("lstat");
        let root = self.ours.root().expect("a root");
        let node = self
            .ours
            .resolve(&root, Path::new("/").join(path), false)
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        let ours = node.metadata();
        assert_eq!(fields(&ours), kernel_fields(&theirs), "{shown}: {FIELDS}");
        assert_eq!(ours.file_type, file_type(theirs.file_type()), "{shown}");
        let kind = ours.file_type;
        if kind == FileType::Symlink {
            self.follow(path);
        }
        if !self.done.insert(theirs.ino()) {
            return false;
        }
        self.tally.inodes += 1;
        if kind == FileType::Symlink {
            assert_eq!(
                self.ours.read_link_at(&node),
                Ok(fs::read_link(&full).expect("readlink")),
                "{shown}"
            );
        }
        assert_eq!(ours.created, kernel::created(&full), "{shown}: created");
        let attributes =
            self.ours.attributes(&node).unwrap_or_else(|error| panic!("{shown}: {error}"));
        let theirs = kernel::attributes(&full).expect("attributes");
        self.tally.attributes += theirs.len() as u64;
        assert_eq!(lengths(&attributes), lengths(&theirs), "{shown}: names of attributes");
        assert!(attributes == theirs, "{shown}: values of attributes");
        if matches!(kind, FileType::Regular | FileType::Directory) {
            let file = File::open(&full).expect("open");
            // The flags that the kernel shows: EXT4_FL_USER_VISIBLE.
            const VISIBLE: u32 = 0x705b_dfff;
            let (flags, generation) = kernel::flags(&file);
            assert_eq!(
                (ours.flags & VISIBLE, ours.generation),
                (flags & VISIBLE, generation),
                "{shown}: flags"
            );
            if kind == FileType::Regular {
                self.content(path, &file);
            }
        }
        kind == FileType::Directory
    }

    /// Compares the resolution of a link, which may be dangling. In the kernel's mount, an absolute
    /// link leads out of it.
    fn follow(&mut self, path: &Path) {
        let mut at = self.root.join(path);
        for _ in 0..40 {
            match fs::read_link(&at) {
                Ok(target) if target.is_absolute() => return,
                Ok(target) => at = at.parent().unwrap_or(&at).join(target),
                Err(_) => break,
            }
        }
        let theirs = fs::metadata(self.root.join(path));
        let ours = self.ours.metadata(Path::new("/").join(path));
        match (theirs, ours) {
            (Ok(theirs), Ok(ours)) => {
                assert_eq!(fields(&ours), kernel_fields(&theirs), "{}", path.display())
            }
            (Err(theirs), Err(ours)) => {
                let errno = match ours {
                    Error::NotFound => libc::ENOENT,
                    Error::NotDirectory => libc::ENOTDIR,
                    Error::Loop => libc::ELOOP,
                    Error::NameTooLong => libc::ENAMETOOLONG,
                    other => panic!("{}: {other}, where the kernel says {theirs}", path.display()),
                };
                assert_eq!(theirs.raw_os_error(), Some(errno), "{}", path.display());
            }
            (theirs, ours) => panic!("{}: {theirs:?} {ours:?}", path.display()),
        }
    }

    fn content(&mut self, path: &Path, theirs: &File) {
        let shown = path.display();
        let ours = self
            .ours
            .open(Path::new("/").join(path))
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        let size = theirs.metadata().expect("fstat").len();
        assert_eq!(ours.size(), size, "{shown}: size");

        // Done before any read, because the kernel treats cached pages as data.
        let stretches = kernel::data(theirs);
        let mut at = 0;
        for (begin, end) in &stretches {
            assert_eq!(ours.seek_data(at), Ok(*begin), "{shown}: data after {at}");
            assert_eq!(ours.seek_hole(*begin), Ok(*end), "{shown}: hole after {begin}");
            at = *end;
        }
        assert!(matches!(ours.seek_data(at), Err(Error::NotFound)), "{shown}: no data after {at}");
        if let Ok(extents) = kernel::extents(theirs) {
            let segments = ours.segments().unwrap_or_else(|error| panic!("{shown}: {error}"));
            let mut end = 0;
            for segment in &segments {
                assert_eq!(segment.offset, end, "{shown}: segments without gaps");
                end = segment.offset + segment.bytes;
            }
            assert!(end >= size, "{shown}: segments up to {end} of {size}");
            let pieces = segments.iter().filter(|segment| segment.kind != SegmentKind::Hole);
            let pieces =
                kernel::join(pieces.map(|piece| (piece.offset, piece.bytes, piece.kind)).collect());
            // The length of an inline extent in the inode is reported differently.
            let inline = pieces.iter().any(|piece| piece.2 == SegmentKind::Inline);
            assert!(inline || pieces == extents, "{shown}: {pieces:?}\nthe kernel: {extents:?}");
            self.tally.segments += segments.len() as u64;
        }

        // Ranges of data with their surroundings. Ranges near each other are merged.
        let mut wide: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in stretches {
            let (begin, end) = (begin.saturating_sub(5000), end.saturating_add(5000));
            match wide.last_mut().filter(|last| begin < last.1 + (64 << 10)) {
                Some(last) => last.1 = end,
                None => wide.push((begin, end)),
            }
        }
        for (begin, end) in wide {
            self.stretch(path, &ours, theirs, begin, end);
        }
        // Anywhere, also beyond the end.
        for _ in 0..6 {
            let at = self.rng.below(size + 5000);
            let bytes = 1 + self.rng.below(20_000);
            self.read(path, &ours, theirs, at, bytes as usize);
        }
    }

    /// Reads all of a range, in pieces of random lengths.
    fn stretch(
        &mut self,
        path: &Path,
        ours: &meantime_ext4::File,
        theirs: &File,
        begin: u64,
        end: u64,
    ) {
        let mut at = begin;
        // At random places, or in order, as read-ahead expects.
        if self.rng.one_in(2) {
            for _ in 0..(end - begin).div_ceil(65536).min(8) {
                let from = begin + self.rng.below(end - begin);
                self.read(path, ours, theirs, from, 4096);
            }
        }
        while at < end {
            let bytes = match self.rng.below(4) {
                0 => 1 + self.rng.below(5000),
                1 => 4096,
                2 => 1 + self.rng.below(1 << 18),
                _ => 1 + self.rng.below(40_000),
            };
            self.read(path, ours, theirs, at, bytes as usize);
            at += bytes;
        }
    }

    fn read(
        &mut self,
        path: &Path,
        ours: &meantime_ext4::File,
        theirs: &File,
        at: u64,
        bytes: usize,
    ) {
        let (at, bytes) = if self.rng.one_in(2) {
            (at / 512 * 512, bytes.next_multiple_of(512))
        } else {
            (at, bytes)
        };
        let mut expected = vec![0x5a; bytes];
        let mut length = 0;
        while length < bytes {
            match theirs
                .read_at(&mut expected[length..], at + length as u64)
                .expect("the kernel reads")
            {
                0 => break,
                more => length += more,
            }
        }
        let direct = self.rng.one_in(3);
        // With any alignment.
        let lead = self.rng.below(8) as usize * 512 / if self.rng.one_in(2) { 512 } else { 1 };
        let mut buf = vec![0xa5; lead + bytes];
        let options = ReadOptions { direct, ..ReadOptions::default() };
        let read = ours.read_at_with(&mut buf[lead..], at, &options);
        let context = || format!("{}: {bytes} bytes at {at}, direct {direct}", path.display());
        assert_eq!(read, Ok(length), "{}", context());
        let differs =
            buf[lead..lead + length].iter().zip(&expected[..length]).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{}: the first wrong byte", context());
        assert!(
            buf[lead + length..].iter().all(|byte| *byte == 0xa5),
            "{}: beyond what was read",
            context()
        );
        self.tally.reads += 1;
        self.tally.bytes += length as u64;
    }
}

const FIELDS: &str = "ino, mode, links, uid, gid, size, blocks, device, atime, mtime, ctime";
type Fields = ([u64; 7], (u32, u32), [(i64, u32); 3]);

fn fields(of: &Metadata) -> Fields {
    let numbers = [
        of.ino.into(),
        of.mode.into(),
        of.links.into(),
        of.uid.into(),
        of.gid.into(),
        of.size,
        of.blocks_512,
    ];
    (
        numbers,
        of.device,
        [of.accessed, of.modified, of.changed].map(|time| (time.seconds, time.nanoseconds)),
    )
}

fn kernel_fields(of: &fs::Metadata) -> Fields {
    let numbers = [
        of.ino(),
        of.mode().into(),
        of.nlink(),
        of.uid().into(),
        of.gid().into(),
        of.size(),
        of.blocks(),
    ];
    let device = (rustix::fs::major(of.rdev()), rustix::fs::minor(of.rdev()));
    let times = [
        (of.atime(), of.atime_nsec()),
        (of.mtime(), of.mtime_nsec()),
        (of.ctime(), of.ctime_nsec()),
    ];
    (numbers, device, times.map(|(seconds, nanoseconds)| (seconds, nanoseconds as u32)))
}

fn file_type(of: fs::FileType) -> FileType {
    match of {
        of if of.is_dir() => FileType::Directory,
        of if of.is_symlink() => FileType::Symlink,
        of if of.is_fifo() => FileType::Fifo,
        of if of.is_socket() => FileType::Socket,
        of if of.is_char_device() => FileType::Character,
        of if of.is_block_device() => FileType::Block,
        _ => FileType::Regular,
    }
}

/// Names with the lengths of their values, for assertion messages.
fn lengths(of: &[(Vec<u8>, Vec<u8>)]) -> Vec<(String, usize)> {
    of.iter()
        .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.len()))
        .collect()
}
