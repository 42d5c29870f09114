//! A seeded tree, written through the kernel.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags, fallocate,
};
use rustix::fs::{lsetxattr, makedev, mknodat, utimensat};

use super::names;
use super::shape::Shape;
use crate::Rng;

/// The amount of content.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Number of items made one by one.
    pub steps: u64,
    /// Names in the largest directory.
    pub names: u64,
    /// Extents of the most fragmented file.
    pub pieces: u64,
}

/// Writes the tree of `rng` to the file system mounted at `root`.
pub struct Writer<'a> {
    rng: &'a mut Rng,
    shape: &'a Shape,
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Operations refused for lack of room.
    pub refused: u64,
}

impl<'a> Writer<'a> {
    pub fn new(rng: &'a mut Rng, shape: &'a Shape, root: &Path) -> Self {
        Self { rng, shape, directories: vec![root.to_owned()], files: Vec::new(), refused: 0 }
    }

    /// The result, unless the file system has no room or does not support it; other errors are the
    /// test's mistake.
    fn allow<T, E: Into<io::Error>>(&mut self, result: Result<T, E>, what: &Path) -> Option<T> {
        match result.map_err(Into::into) {
            Ok(value) => Some(value),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let refusals = [
                    libc::ENOSPC,
                    libc::EMLINK,
                    libc::EEXIST,
                    libc::EOPNOTSUPP,
                    libc::EFBIG,
                    libc::E2BIG,
                    libc::ERANGE,
                    libc::EOVERFLOW,
                ];
                assert!(refusals.contains(&errno), "{}: {error}", what.display());
                self.refused += 1;
                None
            }
        }
    }

    fn directory(&mut self) -> PathBuf {
        // Newer directories are chosen more often, to make deep trees.
        let count = self.directories.len() as u64;
        let at = self.rng.below(count).max(self.rng.below(count));
        self.directories[at as usize].clone()
    }

    fn place(&mut self) -> PathBuf {
        let directory = self.directory();
        let path = directory.join(names::name(self.rng));
        // Keeps paths below the kernel's limit.
        if path.as_os_str().len() < 3000 {
            path
        } else {
            self.directories[0].join(names::name(self.rng))
        }
    }

    /// Writes everything.
    pub fn write(&mut self, amount: Amount) {
        for _ in 0..amount.steps {
            self.step();
        }
        self.fragmented(amount.pieces);
        self.large_directory(amount.names);
        for _ in 0..amount.steps / 3 {
            self.change();
        }
        for _ in 0..amount.steps / 6 {
            self.remove();
        }
        for _ in 0..amount.steps / 6 {
            self.step();
        }
    }

    /// Makes one item.
    pub fn step(&mut self) {
        let path = self.place();
        match self.rng.below(20) {
            0..4 => {
                if self.allow(fs::create_dir(&path), &path).is_some() {
                    self.directories.push(path);
                }
            }
            4..7 => self.link(&path),
            7 | 8 => self.symlink(&path),
            9 => self.special(&path),
            _ => self.file(&path),
        }
    }

    fn link(&mut self, path: &Path) {
        if self.files.is_empty() {
            return;
        }
        let to = self.files[self.rng.below(self.files.len() as u64) as usize].clone();
        let made = fs::hard_link(&to, path);
        if self.allow(made, path).is_some() {
            self.files.push(path.to_owned());
        }
    }

    /// Makes dangling links, of lengths that fit in an inode and that do not; and some that lead to
    /// a file, perhaps to themselves.
    fn symlink(&mut self, path: &Path) {
        let (target, path) = match self.files.last() {
            Some(file) if self.rng.one_in(3) => {
                let name = file.file_name().expect("a file has a name");
                let (up, down) = (
                    file.parent().expect("a directory"),
                    file.with_file_name(names::name(self.rng)),
                );
                let around = match (self.rng.below(3), up.file_name()) {
                    (0, Some(own)) if up != self.directories[0] => {
                        Path::new("..").join(own).join(name)
                    }
                    (1, _) => Path::new(".//.").join(name),
                    _ => PathBuf::from(name),
                };
                (
                    if self.rng.one_in(6) {
                        PathBuf::from(down.file_name().expect("one"))
                    } else {
                        around
                    },
                    down,
                )
            }
            _ => {
                let length = if self.rng.one_in(2) {
                    1 + self.rng.below(70)
                } else {
                    1 + self.rng.below(1000)
                };
                let text = "a-place/".repeat(length.div_ceil(8) as usize);
                (PathBuf::from(&text[..length as usize]), path.to_owned())
            }
        };
        let made = symlink(&target, &path);
        if self.allow(made, &path).is_some() {
            self.files.push(path);
        }
    }

    fn special(&mut self, path: &Path) {
        let (major, minor) = (self.rng.below(4096) as u32, self.rng.below(1 << 20) as u32);
        let small = self.rng.one_in(2);
        let device =
            if small { makedev(major & 0xff, minor & 0xff) } else { makedev(major, minor) };
        let (kind, device) = match self.rng.below(4) {
            0 => (FileType::Fifo, 0),
            1 => (FileType::Socket, 0),
            2 => (FileType::CharacterDevice, device),
            _ => (FileType::BlockDevice, device),
        };
        let made = mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device);
        if self.allow(made, path).is_some() {
            self.files.push(path.to_owned());
        }
    }

    fn file(&mut self, path: &Path) {
        let made = OpenOptions::new().create_new(true).read(true).write(true).open(path);
        let Some(file) = self.allow(made, path) else { return };
        self.files.push(path.to_owned());
        let block = self.shape.block_bytes;
        match self.rng.below(12) {
            0 => {}
            // Lengths around the limit of an inode.
            1..4 => {
                let bytes = 1 + self.rng.below(180);
                self.put(&file, path, 0, bytes);
            }
            4..6 => {
                let bytes = 1 + self.rng.below(32 * block);
                self.put(&file, path, 0, bytes);
            }
            6 => {
                for _ in 0..1 + self.rng.below(6) {
                    let at = self.rng.below(200 * block);
                    let bytes = 1 + self.rng.below(5 * block);
                    self.put(&file, path, at, bytes);
                }
            }
            7 => self.far(&file, path),
            8 | 9 => self.set_aside(&file, path),
            10 => {
                let bytes = 1 + self.rng.below(20 * block);
                self.put(&file, path, 0, bytes);
                let cut = file.set_len(self.rng.below(40 * block));
                self.allow(cut, path);
            }
            _ => {
                let bytes = 8 * block + self.rng.below(20 * block);
                self.put(&file, path, 0, bytes);
                for _ in 0..1 + self.rng.below(3) {
                    let (at, bytes) = (self.rng.below(10 * block), 1 + self.rng.below(6 * block));
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let punched = fallocate(&file, hole, at, bytes);
                    self.allow(punched, path);
                }
            }
        }
    }

    fn put(&mut self, file: &File, path: &Path, at: u64, bytes: u64) {
        let bytes = names::bytes(self.rng, bytes as usize);
        let written = file.write_all_at(&bytes, at);
        self.allow(written, path);
    }

    /// Writes bytes at large offsets, beyond 4 GiB for example.
    fn far(&mut self, file: &File, path: &Path) {
        for _ in 0..1 + self.rng.below(4) {
            // Up to the reach of a block map with triple indirect blocks of 1 KiB; extents of 1 KiB
            // blocks reach 4 TiB.
            let limit: u64 = if self.shape.extents { 1 << 41 } else { 1 << 33 };
            let at =
                if self.rng.one_in(2) { self.rng.below(limit) } else { self.rng.below(6 << 30) };
            let bytes = 1 + self.rng.below(9000);
            self.put(file, path, at, bytes);
        }
    }

    /// Preallocates blocks, partly written, partly beyond the end.
    fn set_aside(&mut self, file: &File, path: &Path) {
        let block = self.shape.block_bytes;
        for _ in 0..1 + self.rng.below(3) {
            let (at, bytes) = (self.rng.below(100 * block), 1 + self.rng.below(60 * block));
            let flags = match self.rng.below(3) {
                0 => FallocateFlags::KEEP_SIZE,
                1 => FallocateFlags::ZERO_RANGE,
                _ => FallocateFlags::empty(),
            };
            let set = fallocate(file, flags, at, bytes);
            self.allow(set, path);
        }
        for _ in 0..self.rng.below(4) {
            let (at, bytes) = (self.rng.below(120 * block), 1 + self.rng.below(3 * block));
            self.put(file, path, at, bytes);
        }
    }

    /// One file with enough extents for inner nodes in its tree, or indirect blocks in its map.
    fn fragmented(&mut self, pieces: u64) {
        let path = self.place();
        let made = OpenOptions::new().create_new(true).read(true).write(true).open(&path);
        let Some(file) = self.allow(made, &path) else { return };
        let block = self.shape.block_bytes;
        let data = names::bytes(self.rng, block as usize);
        // From the end: the tree splits differently than when appending.
        let backwards = self.rng.one_in(2);
        for piece in 0..pieces {
            let at = if backwards { pieces - 1 - piece } else { piece } * 2;
            let mut data = data.clone();
            data[..8].copy_from_slice(&at.to_le_bytes());
            let written = file.write_all_at(&data, at * block);
            if self.allow(written, &path).is_none() {
                break;
            }
        }
        self.files.push(path);
    }

    fn large_directory(&mut self, count: u64) {
        let path = self.place();
        if self.allow(fs::create_dir(&path), &path).is_none() {
            return;
        }
        let mut linked = path.join("first");
        let made = File::create(&linked);
        self.allow(made, &linked);
        let long = self.rng.one_in(3);
        for number in 0..count {
            let length = if long { 120 } else { 8 };
            let name = path.join(format!("{:0length$x}", self.rng.next() ^ number));
            let ok = if number % 3000 == 2999 || number % 50 == 0 {
                let made = File::create(&name);
                linked.clone_from(&name);
                self.allow(made, &name).is_some()
            } else {
                let made = fs::hard_link(&linked, &name);
                self.allow(made, &name).is_some()
            };
            if !ok && number > 10 {
                break;
            }
            if self.rng.one_in(7) {
                let removed = fs::remove_file(&name);
                if removed.is_ok() && name == linked {
                    linked = path.join("first");
                }
            }
        }
        self.directories.push(path);
    }

    fn any(&mut self) -> Option<PathBuf> {
        if self.files.is_empty() || self.rng.one_in(4) {
            return Some(
                self.directories[self.rng.below(self.directories.len() as u64) as usize].clone(),
            );
        }
        let path = self.files[self.rng.below(self.files.len() as u64) as usize].clone();
        path.symlink_metadata().is_ok().then_some(path)
    }

    /// Changes the metadata of one item.
    pub fn change(&mut self) {
        let Some(path) = self.any() else { return };
        let link = path.is_symlink();
        match self.rng.below(5) {
            0 if !link => {
                let mode = self.rng.below(0o10000) as u32;
                let set = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
                self.allow(set, &path);
            }
            1 => {
                let high = self.rng.one_in(2);
                let id = |rng: &mut Rng| rng.below(if high { 1 << 31 } else { 1 << 16 }) as u32;
                let (owner, group) = (id(self.rng), id(self.rng));
                let set = lchown(&path, Some(owner), Some(group));
                self.allow(set, &path);
            }
            2 => {
                let time = |rng: &mut Rng| {
                    // 1901 to 2446, the range of large inodes; small ones end in 2038, where the
                    // kernel clamps it.
                    let seconds = match rng.below(3) {
                        0 => -(rng.below(1 << 31) as i64),
                        1 => rng.below(1 << 31) as i64,
                        _ => rng.below(0x3_7fff_ffff) as i64,
                    };
                    Timespec { tv_sec: seconds, tv_nsec: rng.below(1_000_000_000) as _ }
                };
                let times =
                    Timestamps { last_access: time(self.rng), last_modification: time(self.rng) };
                let set = utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
                self.allow(set, &path);
            }
            _ => {
                for _ in 0..1 + self.rng.below(4) {
                    self.attribute(&path, link);
                }
            }
        }
    }

    fn attribute(&mut self, path: &Path, link: bool) {
        let length = match self.rng.below(6) {
            0 => 0,
            1 => self.rng.below(self.shape.block_bytes),
            2 if self.shape.name.contains("ea_inode") => self.rng.below(60_000),
            _ => self.rng.below(60),
        };
        let value = names::bytes(self.rng, length as usize);
        let plain = path.is_file() || path.is_dir();
        let (name, value) = match self.rng.below(6) {
            0 => ("trusted.meantime".to_owned(), value),
            1 => ("security.meantime".to_owned(), value),
            2 if !link => ("system.posix_acl_access".to_owned(), self.acl()),
            3 if path.is_dir() && !link => ("system.posix_acl_default".to_owned(), self.acl()),
            _ if plain && !link => (format!("user.{}", self.rng.below(30)), value),
            _ => (format!("trusted.{}", "t".repeat(1 + self.rng.below(200) as usize)), value),
        };
        let set = lsetxattr(path, name.as_str(), &value, XattrFlags::empty());
        self.allow(set, path);
    }

    /// An access control list for `setxattr`: owner, some users and groups, group, mask, others.
    fn acl(&mut self) -> Vec<u8> {
        let mut acl = 2u32.to_le_bytes().to_vec();
        let mut entry = |tag: u16, permissions: u64, id: u32| {
            acl.extend(tag.to_le_bytes());
            acl.extend((permissions as u16 & 7).to_le_bytes());
            acl.extend(id.to_le_bytes());
        };
        entry(1, self.rng.next(), u32::MAX);
        let users = self.rng.below(4) as u32;
        (0..users).for_each(|user| entry(2, u64::from(user), 1000 * user + 1));
        entry(4, self.rng.next(), u32::MAX);
        (0..users).for_each(|group| entry(8, u64::from(group), 70_000 * group + 1));
        entry(16, self.rng.next(), u32::MAX);
        entry(32, self.rng.next(), u32::MAX);
        acl
    }

    /// Removes or moves one item.
    pub fn remove(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let at = self.rng.below(self.files.len() as u64) as usize;
        let path = self.files.swap_remove(at);
        if self.rng.one_in(2) {
            let _ = fs::remove_file(&path);
            return;
        }
        let to = self.place();
        let moved = fs::rename(&path, &to);
        if moved.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EISDIR)) {
            return;
        }
        if self.allow(moved, &to).is_some() {
            self.files.push(to);
        }
    }
}
