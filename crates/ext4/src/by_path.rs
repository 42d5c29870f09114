//! Changes by path, as those of `std::fs`, for who does not hold nodes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use super::error::Error;
use super::fs::FileSystem;
use super::inode::Node;
use super::options::{NewNode, RenameFlags};
use meantime_ext4_format::FileType;
use meantime_ext4_format::path::PATH_BYTES_MAX;

/// Permissions of what is made.
const DIRECTORY_MODE: u16 = 0o755;
const LINK_MODE: u16 = 0o777;

/// What is made belongs to user and group 0, as what [`open_with`](FileSystem::open_with) makes.
fn new_node(mode: u16) -> NewNode {
    NewNode { mode, uid: 0, gid: 0, umask: 0 }
}

/// What a path ends in, as Linux tells it apart (`LAST_NORM`, …). `std::path` leaves a dot out, and
/// slashes at the end.
pub(super) enum Last<'p> {
    /// A name, and whether a slash comes after it: then only a directory can have it.
    Name(&'p OsStr, bool),
    /// There is no name, but slashes.
    Root,
    Dot,
    DotDot,
}

impl<'p> Last<'p> {
    /// What comes before the last part of `path`, and that part.
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
    /// Makes directory `path`, with mode 755. It belongs to user and group 0.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (parent, Last::Name(name, _)) = self.place(path.as_ref())? else {
            return Err(Error::Exists);
        };
        self.mkdir(&parent, name, &new_node(DIRECTORY_MODE)).map(drop)
    }

    /// Makes directory `path`, and those above it that are not there, as
    /// [`create_dir`](Self::create_dir). It may be there already.
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
                    Err(Error::NotFound) => {
                        match self.mkdir(&at, name, &new_node(DIRECTORY_MODE)) {
                            // Another thread was faster.
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

    /// Removes file `path`, or the link, if it is one.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<(), Error> {
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
    /// As `rmdir(2)`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        match self.place(path.as_ref())? {
            (parent, Last::Name(name, _)) => self.rmdir(&parent, name),
            (_, Last::Root) => Err(Error::Busy),
            (_, Last::Dot) => {
                Err(Error::Invalid("a directory is removed by its name, and `.` is none"))
            }
            (_, Last::DotDot) => Err(Error::NotEmpty),
        }
    }

    /// Makes `from` `to` in one step; a file or an empty directory that is there is replaced.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename_path(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Error> {
        let (from, to) = (self.place(from.as_ref())?, self.place(to.as_ref())?);
        let (old_parent, Last::Name(old_name, old_slash)) = from else { return Err(Error::Busy) };
        let (new_parent, Last::Name(new_name, new_slash)) = to else { return Err(Error::Busy) };
        if (old_slash || new_slash)
            && self.resolve(&old_parent, old_name, false)?.file_type() != FileType::Directory
        {
            return Err(Error::NotDirectory);
        }
        self.rename(&old_parent, old_name, &new_parent, new_name, RenameFlags::default())
    }

    /// Gives the file `original` a further name, `link`. A symbolic link gets one itself.
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn hard_link(
        &self,
        original: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> Result<(), Error> {
        let node = self.resolve(&self.root()?, original, false)?;
        let (parent, name) = self.new_place(link.as_ref())?;
        self.link(&node, &parent, name)
    }

    /// Makes symbolic link `link`, which leads to `target`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink_path(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> Result<(), Error> {
        let (parent, name) = self.new_place(link.as_ref())?;
        self.symlink(&parent, name, target.as_ref().as_os_str(), &new_node(LINK_MODE)).map(drop)
    }

    /// The directory that `path` is in, from the root, and what it ends in.
    fn place<'p>(&self, path: &'p Path) -> Result<(Node, Last<'p>), Error> {
        self.place_from(&self.root()?, path)
    }

    /// The same for a path that, without a slash at its beginning, leads on from directory `from`.
    pub(super) fn place_from<'p>(
        &self,
        from: &Node,
        path: &'p Path,
    ) -> Result<(Node, Last<'p>), Error> {
        match path.as_os_str().len() {
            0 => return Err(Error::NotFound),
            bytes if bytes > PATH_BYTES_MAX => return Err(Error::NameTooLong),
            _ => {}
        }
        let (before, last) = Last::of(path);
        // (It ends in a slash: it is a directory.)
        let parent = match before.as_os_str().is_empty() {
            true => from.clone(),
            false => self.resolve(from, before, true)?,
        };
        Ok((parent, last))
    }

    /// The same for what is to be made there, and is no directory.
    fn new_place<'p>(&self, path: &'p Path) -> Result<(Node, &'p OsStr), Error> {
        match self.place(path)? {
            (parent, Last::Name(name, false)) => Ok((parent, name)),
            (parent, Last::Name(name, true)) => {
                self.resolve(&parent, name, false).and(Err(Error::Exists))
            }
            _ => Err(Error::Exists),
        }
    }
}
