//! Changes by path, as those of `std::fs`, for who does not hold nodes.

use std::ffi::OsStr;
use std::path::{Component, Path};

use super::error::Error;
use super::fs::{FileSystem, Node};
use super::options::{NewNode, RenameFlags};
use meantime_ext4_format::FileType;

/// Permissions of what is made.
const DIRECTORY_MODE: u16 = 0o755;
const LINK_MODE: u16 = 0o777;

/// What is made belongs to user and group 0, as what [`open_with`](FileSystem::open_with) makes.
fn new_node(mode: u16) -> NewNode {
    NewNode { mode, uid: 0, gid: 0, umask: 0 }
}

impl FileSystem {
    /// Makes directory `path`, with mode 755. It belongs to user and group 0.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (parent, name) = self.place(path.as_ref())?;
        self.mkdir(&parent, name, &new_node(DIRECTORY_MODE)).map(drop)
    }

    /// Makes directory `path`, and those above it that are not there, as [`create_dir`](Self::create_dir).
    /// It may be there already.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let mut at = self.root()?;
        for part in path.as_ref().components() {
            at = match part {
                Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
                Component::ParentDir => self.resolve(&at, "..", true)?,
                Component::Normal(name) => match self.resolve(&at, name, true) {
                    Err(Error::NotFound) => match self.mkdir(&at, name, &new_node(DIRECTORY_MODE)) {
                        // Another thread was faster.
                        Err(Error::Exists) => self.resolve(&at, name, true)?,
                        made => made?,
                    },
                    found => found?,
                },
            };
            if at.file_type() != FileType::Directory {
                return Err(Error::NotDirectory);
            }
        }
        Ok(())
    }

    /// Removes file `path`, or the link, if it is one.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (parent, name) = self.place(path.as_ref())?;
        self.unlink(&parent, name)
    }

    /// Removes the empty directory `path`.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (parent, name) = self.place(path.as_ref())?;
        self.rmdir(&parent, name)
    }

    /// Makes `from` `to` in one step; a file or an empty directory that is there is replaced.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename_path(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Error> {
        let (old_parent, old_name) = self.place(from.as_ref())?;
        let (new_parent, new_name) = self.place(to.as_ref())?;
        self.rename(&old_parent, old_name, &new_parent, new_name, RenameFlags::default())
    }

    /// Gives the file `original` a further name, `link`. A symbolic link gets one itself.
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<(), Error> {
        let node = self.resolve(&self.root()?, original, false)?;
        let (parent, name) = self.place(link.as_ref())?;
        self.link(&node, &parent, name)
    }

    /// Makes symbolic link `link`, which leads to `target`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink_path(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<(), Error> {
        let (parent, name) = self.place(link.as_ref())?;
        self.symlink(&parent, name, target.as_ref().as_os_str(), &new_node(LINK_MODE)).map(drop)
    }

    /// The directory that `path` is in, from the root, and its name there.
    fn place<'p>(&self, path: &'p Path) -> Result<(Node, &'p OsStr), Error> {
        let name = path.file_name().ok_or(Error::Invalid("a name is missing, or it is `..`"))?;
        let parent = self.resolve(&self.root()?, path.parent().unwrap_or(Path::new("/")), true)?;
        if parent.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        Ok((parent, name))
    }
}
