//! Operations on names by path, as in `std::fs`. `path_content.rs` reads and writes content by
//! path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::error::{Error, Result};
use super::fs::FileSystem;
use super::inode::Node;
use super::inode::setattr::SetMetadata;
use super::options::{NewNode, RenameFlags};
use meantime_ext4_format::path::{LINKS_MAX, PATH_BYTES_MAX};
use meantime_ext4_format::{FileType, ROOT_INO};

/// The permissions of new directories and links.
const DIRECTORY_MODE: u16 = 0o755;
const LINK_MODE: u16 = 0o777;

/// New inodes belong to user and group 0, as with [`open_with`](FileSystem::open_with).
fn new_node(mode: u16) -> NewNode {
    NewNode { mode, uid: 0, gid: 0, umask: 0 }
}

/// Treats a name that another thread removed as removed.
fn gone(removed: Result<()>) -> Result<()> {
    if removed == Err(Error::NotFound) { Ok(()) } else { removed }
}

/// The last component of a path, by the kernel's kinds (`LAST_NORM`, …). `std::path` drops a final
/// dot and trailing slashes.
pub(super) enum Last<'p> {
    /// A name, and whether a slash follows it: it must then be a directory's.
    Name(&'p OsStr, bool),
    /// No name, only slashes.
    Root,
    Dot,
    DotDot,
}

impl<'p> Last<'p> {
    /// Splits `path` before its last component.
    fn of(path: &'p Path) -> (&'p Path, Self) {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let begin =
            bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let last = match &bytes[begin..end] {
            b"" => Self::Root,
            b"." => Self::Dot,
            b".." => Self::DotDot,
            name => Self::Name(OsStr::from_bytes(name), end < bytes.len()),
        };
        (Path::new(OsStr::from_bytes(&bytes[..begin])), last)
    }
}

impl FileSystem {
    /// Creates directory `path` with mode 755, owned by user and group 0.
    ///
    /// # Errors
    /// The errors of `mkdir(2)`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, Last::Name(name, _)) = self.place(path.as_ref())? else {
            return Err(Error::Exists);
        };
        self.mkdir(&parent, name, &new_node(DIRECTORY_MODE)).map(drop)
    }

    /// Creates directory `path` and its missing parents, with mode 755 and owned by user and group
    /// 0. The directory may exist already.
    ///
    /// # Errors
    /// The errors of `mkdir(2)`.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut at = self.root()?;
        for part in path.as_ref().components() {
            at = match part {
                Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
                Component::ParentDir => self.resolve(&at, "..", true)?,
                Component::Normal(name) => match self.resolve(&at, name, true) {
                    Err(Error::NotFound) => {
                        match self.mkdir(&at, name, &new_node(DIRECTORY_MODE)) {
                            // Another thread created it first.
                            Err(Error::Exists) => self.resolve(&at, name, true)?,
                            made => made?,
                        }
                    }
                    found => found?,
                },
            };
            if at.file_type() != FileType::Directory {
                return Err(Error::NotDirectory);
            }
        }
        Ok(())
    }

    /// Removes file `path`, or the link itself if it is one.
    ///
    /// # Errors
    /// The errors of `unlink(2)`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        match self.place(path.as_ref())? {
            (parent, Last::Name(name, false)) => self.unlink(&parent, name),
            (parent, Last::Name(name, true)) => {
                match self.resolve(&parent, name, false)?.file_type() {
                    FileType::Directory => Err(Error::IsDirectory),
                    _ => Err(Error::NotDirectory),
                }
            }
            _ => Err(Error::IsDirectory),
        }
    }

    /// Removes the empty directory `path`.
    ///
    /// # Errors
    /// The errors of `rmdir(2)`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        match self.place(path.as_ref())? {
            (parent, Last::Name(name, _)) => self.rmdir(&parent, name),
            (_, Last::Root) => Err(Error::Busy),
            (_, Last::Dot) => {
                Err(Error::Invalid("a directory is removed by its name, and `.` is none"))
            }
            (_, Last::DotDot) => Err(Error::NotEmpty),
        }
    }

    /// Renames `from` to `to` atomically. Replaces an existing file or empty directory.
    ///
    /// # Errors
    /// The errors of `rename(2)`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (self.place(from.as_ref())?, self.place(to.as_ref())?);
        let (old_parent, Last::Name(old_name, old_slash)) = from else { return Err(Error::Busy) };
        let (new_parent, Last::Name(new_name, new_slash)) = to else { return Err(Error::Busy) };
        if (old_slash || new_slash)
            && self.resolve(&old_parent, old_name, false)?.file_type() != FileType::Directory
        {
            return Err(Error::NotDirectory);
        }
        self.rename_at(&old_parent, old_name, &new_parent, new_name, RenameFlags::default())
    }

    /// Adds the name `link` to file `original`. A symbolic link is not followed.
    ///
    /// # Errors
    /// The errors of `link(2)`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let node = self.resolve(&self.root()?, original, false)?;
        let (parent, name) = self.new_place(link.as_ref())?;
        self.link(&node, &parent, name)
    }

    /// Creates symbolic link `link` to `original`.
    ///
    /// # Errors
    /// The errors of `symlink(2)`.
    pub fn symlink(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.new_place(link.as_ref())?;
        self.symlink_at(&parent, name, original.as_ref().as_os_str(), &new_node(LINK_MODE))
            .map(drop)
    }

    /// Returns the target of symbolic link `path`.
    ///
    /// # Errors
    /// The errors of `readlink(2)`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.read_link_at(&self.resolve(&self.root()?, path, false)?)
    }

    /// Sets the permissions of `path` to the lowest twelve bits of `mode`. Follows links.
    ///
    /// # Errors
    /// The errors of `chmod(2)`.
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u16) -> Result<()> {
        let node = self.resolve(&self.root()?, path, true)?;
        let set = SetMetadata { mode: Some(mode), ..SetMetadata::default() };
        self.set_metadata(&node, &set).map(drop)
    }

    /// Whether `path` exists. Follows links.
    ///
    /// # Errors
    /// Damage, or a device error.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.resolve(&self.root()?, path, true) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns `path` from the root, without links and dots.
    ///
    /// # Errors
    /// The errors of `realpath(3)`.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        // This fails if any part of the path cannot be followed.
        let mut node = self.resolve(&self.root()?, path.as_ref(), true)?;
        if node.file_type() == FileType::Directory {
            return self.path_of(node);
        }
        let (mut from, mut path) = (self.root()?, path.as_ref().to_owned());
        for _ in 0..=LINKS_MAX {
            // A directory was returned above.
            let (parent, Last::Name(name, _)) = self.place_from(&from, &path)? else {
                return Err(Error::NotFound);
            };
            node = self.resolve(&parent, name, false)?;
            if node.file_type() != FileType::Symlink {
                return Ok(self.path_of(parent)?.join(name));
            }
            let target = self.read_link_at(&node)?;
            (from, path) = (parent, target);
        }
        Err(Error::Loop)
    }

    /// The path of directory `node` from the root.
    fn path_of(&self, mut node: Node) -> Result<PathBuf> {
        let mut names = Vec::new();
        while node.ino() != ROOT_INO {
            let above = self.lookup(&node, OsStr::new(".."))?;
            let name = self.entries(&above)?.find_map(|entry| match entry {
                Ok(entry) if entry.name == "." || entry.name == ".." => None,
                Ok(entry) => (entry.ino == node.ino()).then_some(Ok(entry.name)),
                Err(error) => Some(Err(error)),
            });
            // The directory was just moved or removed.
            names.push(name.ok_or(Error::NotFound)??);
            node = above;
        }
        Ok(Path::new("/").join(names.iter().rev().collect::<PathBuf>()))
    }

    /// Removes directory `path` with everything in it. Links in it are removed, not followed; a
    /// link as `path` is refused.
    ///
    /// # Errors
    /// The errors of `unlink(2)` and `rmdir(2)`; part of the content may have been removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, Last::Name(name, _)) = self.place(path.as_ref())? else {
            // `remove_dir` returns the reason.
            return self.remove_dir(path);
        };
        let top = self.resolve(&parent, name, false)?;
        if top.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        // The directories being emptied, each with its parent and its name there.
        let mut open = vec![(parent, name.to_owned(), self.entries(&top)?)];
        while let Some((_, _, entries)) = open.last_mut() {
            let dir = entries.node.clone();
            match entries.next_with_node().transpose()? {
                Some((entry, _)) if entry.name == "." || entry.name == ".." => {}
                Some((entry, node)) => {
                    let node = node.map_or_else(|| self.lookup(&dir, &entry.name), Ok)?;
                    if node.file_type() == FileType::Directory {
                        let inside = self.entries(&node)?;
                        open.push((dir, entry.name, inside));
                    } else {
                        gone(self.unlink(&dir, &entry.name))?;
                    }
                }
                None => {
                    let Some((parent, name, _)) = open.pop() else { break };
                    gone(self.rmdir(&parent, &name))?;
                }
            }
        }
        Ok(())
    }

    /// Finds the parent directory of `path`, from the root, and its last component.
    fn place<'p>(&self, path: &'p Path) -> Result<(Node, Last<'p>)> {
        self.place_from(&self.root()?, path)
    }

    /// Finds the parent directory of `path` and its last component. A relative path starts at
    /// directory `from`.
    pub(super) fn place_from<'p>(&self, from: &Node, path: &'p Path) -> Result<(Node, Last<'p>)> {
        match path.as_os_str().len() {
            0 => return Err(Error::NotFound),
            bytes if bytes > PATH_BYTES_MAX => return Err(Error::NameTooLong),
            _ => {}
        }
        let (before, last) = Last::of(path);
        // The part before ends in a slash, so it resolves to a directory.
        let parent = match before.as_os_str().is_empty() {
            true => from.clone(),
            false => self.resolve(from, before, true)?,
        };
        Ok((parent, last))
    }

    /// Finds the parent directory and the new name that `path` gives to something that is not a
    /// directory.
    fn new_place<'p>(&self, path: &'p Path) -> Result<(Node, &'p OsStr)> {
        match self.place(path)? {
            (parent, Last::Name(name, false)) => Ok((parent, name)),
            (parent, Last::Name(name, true)) => {
                self.resolve(&parent, name, false).and(Err(Error::Exists))
            }
            _ => Err(Error::Exists),
        }
    }
}
