//! Path resolution: to an inode of the file system, or out of it.
//!
//! As in a kernel's mount, a link with an absolute target begins at the machine's root, not at the
//! file system's, and `..` of the root is the parent directory of the mount point.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::mountpoint::next_part;
use super::{Errno, Posix};
use meantime_ext4::{Error, FileType, Node};

/// The most links in one path (path_resolution(7)).
pub(super) const MAX_LINKS: u32 = 40;
/// The longest name, in bytes.
const NAME_MAX: usize = 255;

/// An inode with its path from the root: empty for the root itself, otherwise `/a/b`, without
/// links.
#[derive(Clone)]
pub struct Found {
    node: Node,
    path: Vec<u8>,
}

/// The result of resolving a path.
pub enum ResolvedPath {
    /// An existing file.
    Found(Found),
    /// A missing name in an existing directory (ENOENT, unless it is to be created).
    Missing {
        /// The directory.
        parent: Found,
        /// The missing name.
        name: Vec<u8>,
    },
    /// A path outside of the file system: absolute on the machine; it may lead back here.
    Outside(Vec<u8>),
}

impl Found {
    /// The inode.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The path from the root.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.node.file_type() == FileType::Directory
    }
}

impl ResolvedPath {
    /// The existing file.
    ///
    /// # Errors
    /// ENOENT if there is none. [`ResolvedPath::Outside`] counts as missing: callers have handled
    /// it before.
    pub fn found(self) -> Result<Found, Errno> {
        match self {
            Self::Found(found) => Ok(found),
            Self::Missing { .. } | Self::Outside(_) => Err(Errno(libc::ENOENT)),
        }
    }
}

impl Posix {
    /// The root.
    pub(super) fn root(&self) -> Result<Found, Errno> {
        Ok(Found { node: self.fs()?.root()?, path: Vec::new() })
    }

    /// Resolves `path` from the root of the file system (also if it begins with a slash). `follow`:
    /// also resolves the last part if it is a link.
    ///
    /// # Errors
    /// As path_resolution(7).
    pub fn find_from_root(&self, path: &[u8], follow: bool) -> Result<ResolvedPath, Errno> {
        self.find(self.root()?, path, follow)
    }

    /// Resolves `path` from directory `start` (also if it begins with a slash). `follow`: also
    /// resolves the last part if it is a link.
    ///
    /// # Errors
    /// As path_resolution(7).
    pub fn find(&self, start: Found, path: &[u8], follow: bool) -> Result<ResolvedPath, Errno> {
        if path.len() >= libc::PATH_MAX as usize {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        let mut at = start;
        // The rest of the path; a link's target is inserted before it.
        let mut rest = path.to_vec();
        let (mut pos, mut links) = (0, 0);
        while let Some((name, after)) = next_part(&rest[pos..]) {
            if !at.is_directory() {
                return Err(Errno(libc::ENOTDIR));
            }
            if name.len() > NAME_MAX {
                return Err(Errno(libc::ENAMETOOLONG));
            }
            if name == b".." {
                if at.path.is_empty() {
                    return Ok(ResolvedPath::Outside(joined(self.mount.parent(), after)));
                }
                let node = self.fs()?.lookup(&at.node, OsStr::new(".."))?;
                at.node = node;
                pop(&mut at.path);
                pos = rest.len() - after.len();
                continue;
            }
            // A trailing slash requires a directory, so a link is followed in any case.
            let is_last = next_part(after).is_none();
            let must_be_directory = !after.is_empty();
            let node = match self.fs()?.lookup(&at.node, OsStr::from_bytes(name)) {
                Ok(node) => node,
                Err(Error::NotFound) if is_last => {
                    return Ok(ResolvedPath::Missing { parent: at, name: name.to_vec() });
                }
                Err(error) => return Err(error.into()),
            };
            if node.file_type() == FileType::Symlink && (!is_last || follow || must_be_directory) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno(libc::ELOOP));
                }
                let target = self.fs()?.read_link_at(&node)?.into_os_string().into_vec();
                if target.is_empty() {
                    return Err(Errno(libc::ENOENT));
                }
                let target = joined(&target, after);
                if target.len() >= libc::PATH_MAX as usize {
                    return Err(Errno(libc::ENAMETOOLONG));
                }
                if target[0] == b'/' {
                    return Ok(ResolvedPath::Outside(target));
                }
                (rest, pos) = (target, 0);
                continue;
            }
            if must_be_directory && node.file_type() != FileType::Directory {
                return Err(Errno(libc::ENOTDIR));
            }
            at.node = node;
            at.path.push(b'/');
            at.path.extend_from_slice(name);
            pos = rest.len() - after.len();
        }
        // "/." and "/" after it.
        if pos < rest.len() && !at.is_directory() {
            return Err(Errno(libc::ENOTDIR));
        }
        Ok(ResolvedPath::Found(at))
    }
}

/// Joins two paths. `after` is empty or begins with a slash.
fn joined(before: &[u8], after: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(before.len() + after.len());
    path.extend_from_slice(before);
    path.extend_from_slice(after);
    path
}

/// Removes the last name.
fn pop(path: &mut Vec<u8>) {
    let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    path.truncate(end);
}
