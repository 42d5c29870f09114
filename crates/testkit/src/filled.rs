//! Images of ext4 file systems made by mkfs.ext4 from a directory, mounted by Meantime.

use std::fs;
use std::path::{Path, PathBuf};

use crate::e2fs;
use meantime_block::{self as block, OpenOptions};
use meantime_ext4::{FileSystem, MountOptions};

/// An image, in a directory that is removed with it.
pub struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// An image made by mkfs.ext4 with `options`, from the directory filled by `fill`. `None`, with
    /// a message, without mkfs.ext4.
    pub fn make(options: &[&str], megabytes: u32, fill: impl FnOnce(&Path)) -> Option<Self> {
        if !e2fs::has("mkfs.ext4") {
            return None;
        }
        let dir = crate::image::scratch();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fill(&root);
        e2fs::make(&dir.path().join("image"), &format!("{megabytes}M"), options, &root);
        fs::remove_dir_all(&root).unwrap();
        Some(Self { dir })
    }

    /// A path in its directory: the image is `image`; further files may have other names.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounts it on a device without delays, configured by `query`.
    pub fn mount(&self, query: &str, options: &MountOptions) -> FileSystem {
        let uri = format!("file:{}?model=null{query}", self.path("image").display());
        let device = block::open(&uri, &OpenOptions::default()).unwrap();
        FileSystem::mount(device, options).unwrap()
    }

    /// Checks that e2fsck finds no errors.
    pub fn check(&self) {
        let output = e2fs::command("e2fsck").arg("-fn").arg(self.path("image")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "e2fsck: {text}");
    }

    /// The content of file `name` according to debugfs.
    pub fn dump(&self, name: &str) -> Vec<u8> {
        let to = self.path("dumped");
        let request = format!("dump {name} {}", to.display());
        let output = e2fs::command("debugfs")
            .arg("-R")
            .arg(request)
            .arg(self.path("image"))
            .output()
            .unwrap();
        assert!(output.status.success());
        fs::read(to).unwrap()
    }
}
