//! Images of ext4 file systems that mkfs.ext4 made of a directory, mounted here.

#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use meantime_block::{self as block, OpenOptions};
use meantime_ext4::{FileSystem, MountOptions};

/// An image, in a directory that goes with it.
pub(crate) struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// An image made by mkfs.ext4 with `options`, of what `fill` puts into a directory. `None`, and
    /// a word about it: there is no mkfs.ext4.
    pub(crate) fn make(options: &[&str], megabytes: u32, fill: impl FnOnce(&Path)) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fill(&root);
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-d"])
            .arg(&root)
            .args(options)
            .arg(dir.path().join("image"))
            .arg(format!("{megabytes}M"))
            .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
            .output();
        let Ok(made) = made else {
            println!("skipped: there is no mkfs.ext4 (package e2fsprogs)");
            return None;
        };
        assert!(made.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr));
        fs::remove_dir_all(&root).unwrap();
        Some(Self { dir })
    }

    /// The image is `image`; whatever else is to go with it may have another name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounts it on a device that takes no time, and is otherwise as `query` says.
    pub(crate) fn mount(&self, query: &str, options: &MountOptions) -> FileSystem {
        let uri = format!("file:{}?model=null{query}", self.path("image").display());
        let device = block::open(&uri, &OpenOptions::default()).unwrap();
        FileSystem::mount(device, options).unwrap()
    }

    /// e2fsck has nothing to say.
    pub(crate) fn check(&self) {
        let output = Command::new("e2fsck").arg("-fn").arg(self.path("image")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "e2fsck: {said}");
    }

    /// What debugfs has of file `name`.
    pub(crate) fn dump(&self, name: &str) -> Vec<u8> {
        let to = self.path("dumped");
        let request = format!("dump {name} {}", to.display());
        let output = Command::new("debugfs")
            .arg("-R")
            .arg(request)
            .arg(self.path("image"))
            .output()
            .unwrap();
        assert!(output.status.success());
        fs::read(to).unwrap()
    }
}

/// xorshift64: quick, where what is done is to take longer than choosing it.
pub(crate) struct Random(pub u64);

impl Random {
    /// 0 to `n` − 1.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
