//! From a path to an inode, by the inodes and names that the mount knows already.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::Error;
use super::format::ROOT_INO;
use super::format::path::{Names, resolve};
use super::fs::{FileSystem, Node};
use super::metadata::FileType;

impl Names for FileSystem {
    fn root(&self) -> u32 {
        ROOT_INO
    }

    fn child(&self, dir: u32, name: &[u8]) -> Result<(u32, FileType), Error> {
        let node = self.lookup(&self.linked(dir)?, OsStr::from_bytes(name))?;
        Ok((node.ino(), node.file_type()))
    }

    fn is_directory(&self, ino: u32) -> Result<bool, Error> {
        Ok(self.linked(ino)?.file_type() == FileType::Directory)
    }

    fn link_text(&self, ino: u32) -> Result<Vec<u8>, Error> {
        let link = self.linked(ino)?;
        let state = link.known.state(&self.mount)?;
        self.mount.consistent(|| self.volume().read_link(&state.inode))
    }
}

impl FileSystem {
    pub(super) fn walk(&self, from: &Node, path: &Path, follow: bool) -> Result<Node, Error> {
        // (Whoever has the directory open keeps it, though its last name may be gone.)
        let ino = resolve(self, from.ino(), path.as_os_str().as_bytes(), follow)?;
        if ino == from.ino() { Ok(from.clone()) } else { self.linked(ino) }
    }
}
