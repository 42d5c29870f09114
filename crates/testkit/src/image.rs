//! Images of ext4 file systems, made by e2fsprogs, and filled by the kernel where possible.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use std::time::{Duration, Instant};

use crate::e2fs;
pub use crate::e2fs::{debugfs_write, mkfs, run, run_for, tools};
use meantime_block::{self as block, Device};
use meantime_ext4::check::Event;
use meantime_ext4::format::{
    Inode, OpenFailure, RunState, Source, SourceError, Volume, VolumeOptions,
};
use meantime_ext4::{FileSystem, MountError, MountOptions, OpenOptions};

/// An image file, with a count of its reads.
pub struct Image {
    file: std::fs::File,
    pub reads: AtomicUsize,
}

impl Source for Image {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.reads.fetch_add(1, Relaxed);
        let mut buf = vec![0; bytes];
        self.file.read_exact_at(&mut buf, offset).map_err(|_| SourceError::OutOfRange)?;
        Ok(buf.into())
    }
}

pub fn try_open(path: &Path, options: VolumeOptions) -> Result<Volume<Image>, OpenFailure> {
    let file = std::fs::File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    Volume::open(Image { file, reads: AtomicUsize::new(0) }, bytes, options)
}

pub fn open_with(path: &Path, options: VolumeOptions) -> Volume<Image> {
    try_open(path, options).unwrap()
}

pub fn open(path: &Path) -> Volume<Image> {
    open_with(path, VolumeOptions::default())
}

/// Free memory required to keep images there, in bytes.
const ROOM_BYTES: u64 = 1 << 30;

/// A temporary directory, in memory if possible: e2fsprogs sync their writes, for which a test on a
/// disk would wait.
pub fn scratch() -> tempfile::TempDir {
    let memory = "/dev/shm";
    let has_room = rustix::fs::statvfs(memory)
        .is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM_BYTES);
    let dir = if has_room { tempfile::tempdir_in(memory).ok() } else { None };
    dir.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// Options to open files for reading and writing.
pub const READ_WRITE: OpenOptions = OpenOptions {
    read: true,
    write: true,
    create: false,
    create_new: false,
    truncate: false,
    append: false,
    direct: false,
    no_access_time: false,
    sync: false,
    dsync: false,
    mode: 0,
};

/// The image `path` as a device without delays.
pub fn device(path: &Path) -> Device {
    let uri = format!("file:{}?model=null", path.display());
    block::open(&uri, &block::OpenOptions::default()).unwrap()
}

/// Mounts image `path` with Meantime.
pub fn try_mount(path: &Path, options: &MountOptions) -> Result<FileSystem, MountError> {
    FileSystem::mount(device(path), options)
}

pub fn mount(path: &Path, options: &MountOptions) -> FileSystem {
    try_mount(path, options).unwrap()
}

/// The same after the kernel has released the image: its loop device remains for a moment after the
/// unmount.
pub fn mount_after_kernel(path: &Path, options: &MountOptions) -> FileSystem {
    let begun = Instant::now();
    loop {
        match try_mount(path, options) {
            Ok(fs) => return fs,
            Err(MountError::InUse { .. }) if begun.elapsed() < Duration::from_secs(30) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks that our check finds no defects in `fs`.
pub fn clean(fs: &FileSystem, what: &str) {
    let mut found = Vec::new();
    let summary = fs.check(&mut |event| {
        if let Event::Found(finding) = event {
            found.push(finding.to_string());
        }
        ControlFlow::Continue(())
    });
    assert!(summary.unwrap().complete && found.is_empty(), "{what}: {found:#?}");
}

/// Options of writable mounts, with a small cache, and without background work.
pub fn writable() -> MountOptions {
    MountOptions { write: true, background: false, cache_bytes: 4 << 20, ..MountOptions::default() }
}

/// A file system mounted by the kernel until it is dropped.
pub struct Mounted(PathBuf, PathBuf);

impl Mounted {
    /// `None`, with a message, if this is not permitted or not possible.
    pub fn new(image: &Path, at: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let options = format!("loop,{options}");
        let args = ["-t", "ext4", "-o", &options, image.to_str().unwrap(), at.to_str().unwrap()];
        let output = e2fs::command("mount").args(args).output();
        if output.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned(), image.to_owned()));
        }
        println!("skipped: no mount on a loop device ({output:?})");
        None
    }

    /// Everything is at least in the journal afterwards.
    pub fn sync(&self) {
        run("sync", &["-f", self.0.to_str().unwrap()]);
    }
}

/// Waits until no loop device has `image`: as long as another test has a copy of the namespace, the
/// file system is mounted there, and not all of it is written.
fn wait_until_released(image: &Path) {
    let is_used = || {
        let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let mut files = devices.map(|device| device.path().join("loop/backing_file"));
        files.any(|file| {
            std::fs::read_to_string(file).is_ok_and(|name| Path::new(name.trim_end()) == image)
        })
    };
    let begun = Instant::now();
    while is_used() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process that another thread is starting holds this one's files until its exec: the
        // mount is busy for a moment.
        for _ in 0..200 {
            let ended = e2fs::command("umount").arg(&self.0).output();
            if ended.is_ok_and(|output| output.status.success()) {
                return wait_until_released(&self.1);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = e2fs::command("umount").arg("-l").arg(&self.0).status();
    }
}

/// The names in directory `ino`, with their inodes; checks that each can be looked up.
pub fn names(volume: &Volume<Image>, ino: u32) -> BTreeMap<Vec<u8>, u32> {
    let dir = volume.linked_inode(ino).unwrap();
    let mut found = BTreeMap::new();
    let mut cookie = 0;
    loop {
        let some = volume.entries(&dir, cookie).unwrap();
        let Some(last) = some.last() else { break };
        assert!(last.cookie > cookie);
        cookie = last.cookie;
        for entry in some {
            assert_eq!(
                found.insert(entry.name.clone(), entry.ino),
                None,
                "{}",
                entry.name.escape_ascii()
            );
        }
    }
    for (name, ino) in &found {
        let looked_up = volume.lookup(&dir, name).unwrap();
        assert_eq!(looked_up.map(|(ino, _)| ino), Some(*ino), "{}", name.escape_ascii());
    }
    volume.check_index(&dir).unwrap();
    found
}

/// The content of a file, block by block.
pub fn content(volume: &Volume<Image>, inode: &Inode) -> Vec<u8> {
    let block_bytes = volume.block_bytes() as u64;
    let mut content = vec![0; inode.size() as usize];
    let mut logical = 0_u64;
    while logical.saturating_mul(block_bytes) < inode.size() {
        let run = volume.run_at(inode, logical).unwrap();
        let written = if run.state == RunState::Written { run.blocks } else { 0 };
        for n in 0..written {
            let at = ((logical + n) * block_bytes) as usize;
            let Some(room) = content.get_mut(at..).filter(|room| !room.is_empty()) else { break };
            let bytes = volume.block(run.physical + n).unwrap();
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
        }
        logical = logical.saturating_add(run.blocks);
    }
    content
}
