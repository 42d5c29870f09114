//! Resolves paths, using the mount's cached inodes and names.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::{Error, Result};
use super::fs::FileSystem;
use super::inode::Node;
use meantime_ext4_format::FileType;
use meantime_ext4_format::ROOT_INO;
use meantime_ext4_format::path::{Names, resolve};

/// A path resolution. It keeps the nodes that it has passed, because the number of an inode is not
/// reused while a node of it exists.
struct Way<'a> {
    fs: &'a FileSystem,
    passed: RefCell<Vec<Node>>,
}

impl Way<'_> {
    fn node(&self, ino: u32) -> Result<Node> {
        let passed = self.passed.borrow().iter().find(|node| node.ino() == ino).cloned();
        passed.map_or_else(|| self.fs.linked(ino), Ok)
    }
}

impl Names for Way<'_> {
    type Error = Error;

    fn root(&self) -> u32 {
        ROOT_INO
    }

    fn child(&self, dir: u32, name: &[u8]) -> Result<(u32, FileType)> {
        let node = self.fs.lookup(&self.node(dir)?, OsStr::from_bytes(name))?;
        let found = (node.ino(), node.file_type());
        self.passed.borrow_mut().push(node);
        Ok(found)
    }

    fn is_directory(&self, ino: u32) -> Result<bool> {
        Ok(self.node(ino)?.file_type() == FileType::Directory)
    }

    fn link_text(&self, ino: u32) -> Result<Vec<u8>> {
        let link = self.node(ino)?;
        let mount = &self.fs.mount;
        let snapshot = link.inode.snapshot(&mount.volume)?;
        Ok(mount.consistent(|| mount.volume.read_link(&snapshot.on_disk))?)
    }
}

impl FileSystem {
    pub(super) fn walk(&self, from: &Node, path: &Path, follow: bool) -> Result<Node> {
        // An open directory stays usable even if it has no name.
        let way = Way { fs: self, passed: RefCell::new(vec![from.clone()]) };
        way.node(resolve(&way, from.ino(), path.as_os_str().as_bytes(), follow)?)
    }
}
