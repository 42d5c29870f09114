//! The content of a file system.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use meantime_ext4::{Error, FileSystem, FileType};

/// The type of an inode, with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    Symlink(Vec<u8>),
    File(Vec<u8>),
    Special,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inode {
    pub kind: Kind,
    pub mode: u16,
    pub links: u32,
    /// `user.x`.
    pub attribute: Option<Vec<u8>>,
}

/// All names below a root (which is ""), with their inodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tree {
    pub names: BTreeMap<String, u64>,
    pub inodes: BTreeMap<u64, Inode>,
}

/// The directory that mkfs creates, which is skipped.
const LOST_AND_FOUND: &str = "lost+found";

fn joined(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") }
}

impl Tree {
    /// The tree of `fs` below `root`.
    pub(crate) fn ours(fs: &FileSystem, root: &str) -> Result<Self, Error> {
        let mut tree = Self::default();
        let top = fs.resolve(&fs.root()?, Path::new("/").join(root), false)?;
        let mut nodes = vec![(String::new(), top)];
        while let Some((path, node)) = nodes.pop() {
            let ino = u64::from(node.ino());
            tree.names.insert(path.clone(), ino);
            if tree.inodes.contains_key(&ino) {
                continue;
            }
            let metadata = node.metadata();
            let mut links = metadata.links;
            let kind = match node.file_type() {
                FileType::Directory => Kind::Directory,
                FileType::Symlink => {
                    Kind::Symlink(fs.read_link_at(&node)?.as_os_str().as_bytes().to_vec())
                }
                FileType::Regular => {
                    let file = fs.open_node(&node)?;
                    let mut content = vec![0; file.size() as usize];
                    let read = file.read_at(&mut content, 0)?;
                    assert_eq!(read, content.len(), "{path}: a short read");
                    Kind::File(content)
                }
                _ => Kind::Special,
            };
            let attribute = match fs.attribute(&node, b"user.x") {
                Ok(value) => Some(value),
                Err(Error::NoAttribute) => None,
                Err(error) => return Err(error),
            };
            if kind == Kind::Directory {
                for entry in fs.entries(&node)? {
                    let entry = entry?;
                    let name = entry.name.to_str().expect("a name of ours").to_owned();
                    if path.is_empty() && name == LOST_AND_FOUND {
                        links -= 1;
                        continue;
                    }
                    if name == "." || name == ".." {
                        continue;
                    }
                    let child = fs.lookup(&node, &entry.name)?;
                    assert_eq!(child.ino(), entry.ino, "{path}/{name}");
                    nodes.push((joined(&path, &name), child));
                }
            }
            let inode = Inode { kind, mode: metadata.mode & 0o7777, links, attribute };
            tree.inodes.insert(ino, inode);
        }
        Ok(tree)
    }

    /// The kernel's tree below directory `root`.
    pub(crate) fn kernels(root: &Path) -> std::io::Result<Self> {
        let mut tree = Self::default();
        let mut paths = vec![(String::new(), PathBuf::from(root))];
        while let Some((path, full)) = paths.pop() {
            let metadata = std::fs::symlink_metadata(&full)?;
            let ino = metadata.ino();
            tree.names.insert(path.clone(), ino);
            if tree.inodes.contains_key(&ino) {
                continue;
            }
            let file_type = metadata.file_type();
            let mut links = metadata.nlink() as u32;
            let kind = if file_type.is_dir() {
                for entry in std::fs::read_dir(&full)? {
                    let name = entry?.file_name();
                    let name = name.to_str().expect("a name of ours");
                    if path.is_empty() && name == LOST_AND_FOUND {
                        links -= 1;
                        continue;
                    }
                    paths.push((joined(&path, name), full.join(name)));
                }
                Kind::Directory
            } else if file_type.is_symlink() {
                Kind::Symlink(std::fs::read_link(&full)?.as_os_str().as_bytes().to_vec())
            } else if file_type.is_file() {
                Kind::File(std::fs::read(&full)?)
            } else {
                Kind::Special
            };
            let mut value = vec![0; 65_536];
            let attribute = match rustix::fs::lgetxattr(&full, "user.x", &mut value[..]) {
                Ok(bytes) => Some(value[..bytes].to_vec()),
                Err(_) => None,
            };
            let mode = (metadata.permissions().mode() & 0o7777) as u16;
            tree.inodes.insert(ino, Inode { kind, mode, links, attribute });
        }
        Ok(tree)
    }

    /// Describes a difference, if there is one.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self.names != other.names {
            return Some(format!("names {:?} and {:?}", self.names, other.names));
        }
        let differs = |(ino, inode): &(&u64, &Inode)| other.inodes.get(ino) != Some(*inode);
        let (ino, inode) = self.inodes.iter().find(differs)?;
        let name = self.names.iter().find(|(_, found)| *found == ino).map(|(name, _)| name);
        let short = |inode: &Inode| match &inode.kind {
            Kind::File(content) => format!(
                "a file of {} bytes, sum {:x}, {:o}, {} links, {:?}",
                content.len(),
                crc32c::crc32c(content),
                inode.mode,
                inode.links,
                inode.attribute.as_ref().map(Vec::len)
            ),
            _ => format!("{inode:?}"),
        };
        Some(format!(
            "{name:?}: {} and {}",
            short(inode),
            other.inodes.get(ino).map_or_else(String::new, short)
        ))
    }
}
