//! Changing a file system by name.

use std::ffi::OsStr;
use std::path::Path;

use super::error::Error;
use super::file::File;
use super::fs::{FileSystem, Node};
use super::metadata::{FileType, Timestamp};
use super::options::{NewNode, OpenOptions, RenameFlags, SetAttribute};

const LATER: Error = Error::Invalid("not yet");

impl FileSystem {
    /// Whether it is mounted for writing.
    pub fn is_writable(&self) -> bool {
        self.mount.options.write
    }

    /// Ends the mount: everything is written, and the journal empty. Files and nodes that are still there are of no more use for writing.
    ///
    /// # Errors
    /// What could not be written; the mount has ended all the same.
    pub fn unmount(self) -> Result<(), Error> {
        Ok(())
    }

    /// Makes everything durable that was done so far (`sync`).
    ///
    /// # Errors
    /// What could not be written.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    /// One turn of what the mount's own thread does. True: there is more to be done.
    ///
    /// # Errors
    /// The device.
    pub fn background_step(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Makes file `name` in `parent`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], … as `open(2)`.
    pub fn create(&self, parent: &Node, name: &OsStr, new: &NewNode) -> Result<Node, Error> {
        let _ = (parent, name, new);
        Err(LATER)
    }

    /// Makes directory `name` in `parent`.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn mkdir(&self, parent: &Node, name: &OsStr, new: &NewNode) -> Result<Node, Error> {
        let _ = (parent, name, new);
        Err(LATER)
    }

    /// Makes a device, pipe or socket `name` in `parent`; `device`: major and minor number of a device.
    ///
    /// # Errors
    /// As `mknod(2)`.
    pub fn mknod(
        &self,
        parent: &Node,
        name: &OsStr,
        new: &NewNode,
        file_type: FileType,
        device: (u32, u32),
    ) -> Result<Node, Error> {
        let _ = (parent, name, new, file_type, device);
        Err(LATER)
    }

    /// Makes symbolic link `name` in `parent`, which leads to `target`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink(&self, parent: &Node, name: &OsStr, target: &OsStr, new: &NewNode) -> Result<Node, Error> {
        let _ = (parent, name, target, new);
        Err(LATER)
    }

    /// Gives `node` a further name: `name` in `parent`.
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn link(&self, node: &Node, parent: &Node, name: &OsStr) -> Result<(), Error> {
        let _ = (node, parent, name);
        Err(LATER)
    }

    /// Takes `name` out of `parent`; a file without names is deleted when nobody has it open any more.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn unlink(&self, parent: &Node, name: &OsStr) -> Result<(), Error> {
        let _ = (parent, name);
        Err(LATER)
    }

    /// Takes the empty directory `name` out of `parent`.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn rmdir(&self, parent: &Node, name: &OsStr) -> Result<(), Error> {
        let _ = (parent, name);
        Err(LATER)
    }

    /// Makes `old_name` in `old_parent` `new_name` in `new_parent`, in one step.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub fn rename(
        &self,
        old_parent: &Node,
        old_name: &OsStr,
        new_parent: &Node,
        new_name: &OsStr,
        flags: RenameFlags,
    ) -> Result<(), Error> {
        let _ = (old_parent, old_name, new_parent, new_name, flags);
        Err(LATER)
    }

    /// Makes a file without a name (O_TMPFILE), on the file system of `parent`; it is deleted when nobody has it open, unless it is
    /// [linked](Self::link) before.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn tmpfile(&self, parent: &Node, new: &NewNode) -> Result<Node, Error> {
        let _ = (parent, new);
        Err(LATER)
    }

    /// Sets the permissions of `node`.
    ///
    /// # Errors
    /// As `chmod(2)`.
    pub fn set_mode(&self, node: &Node, mode: u16) -> Result<(), Error> {
        let _ = (node, mode);
        Err(LATER)
    }

    /// Sets the owner and group of `node`; `None` leaves one as it is.
    ///
    /// # Errors
    /// As `chown(2)`.
    pub fn set_owner(&self, node: &Node, uid: Option<u32>, gid: Option<u32>) -> Result<(), Error> {
        let _ = (node, uid, gid);
        Err(LATER)
    }

    /// Sets the times of the last read and of the last change of the content; `None` leaves one as it is.
    ///
    /// # Errors
    /// As `utimensat(2)`.
    pub fn set_times(
        &self,
        node: &Node,
        accessed: Option<Timestamp>,
        modified: Option<Timestamp>,
    ) -> Result<(), Error> {
        let _ = (node, accessed, modified);
        Err(LATER)
    }

    /// Sets attribute `name` (in full: `user.x`) of `node`.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub fn set_attribute(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<(), Error> {
        let _ = (node, name, value, how);
        Err(LATER)
    }

    /// Removes attribute `name` of `node`.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], … as `removexattr(2)`.
    pub fn remove_attribute(&self, node: &Node, name: &[u8]) -> Result<(), Error> {
        let _ = (node, name);
        Err(LATER)
    }

    /// Makes `node` durable: content and metadata of a file, names in a directory (`fsync`).
    ///
    /// # Errors
    /// What could not be written.
    pub fn sync_node(&self, node: &Node) -> Result<(), Error> {
        let _ = node;
        Err(LATER)
    }

    /// Opens the file at `path` as `options` say. A file that is made belongs to user and group 0.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File, Error> {
        let node = self.resolve(&self.root()?, path, true)?;
        self.open_node_with(&node, options)
    }

    /// Opens `node` as `options` say; it is there, whatever they say of making it.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_node_with(&self, node: &Node, options: &OpenOptions) -> Result<File, Error> {
        let _ = options;
        self.open_node(node)
    }
}
