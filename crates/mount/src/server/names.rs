//! Serves names: look-up, creation, renaming and removal.

use std::ffi::OsStr;

use meantime_ext4::{Errno, Error, FileType, Node, RenameFlags};

use super::answer::{Answer, Served};
use super::attributes::device_of;
use super::state::{Server, ino, new_node};
use crate::fuse::Request;
use crate::fuse::wire::{
    CreateIn, EntryOut, LinkIn, MkDirIn, MkNodIn, OpenOut, Rename2In, RenameIn,
};

impl Server {
    pub(super) fn lookup(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let name = request.name()?;
        let parent = ino(request.header.nodeid);
        let found = match name.as_encoded_bytes() {
            b"." | b".." => self.lookup_dots(parent, name),
            _ => self.lookups.lookup(parent, name),
        };
        match found {
            Ok(node) => answer.put_as(&self.entry(&node)),
            // The kernel may cache that the name does not exist.
            Err(Error::NotFound) if !self.serving.timeout.is_zero() => {
                let (entry_valid, entry_valid_nsec) = self.timeout();
                answer.put_as(&EntryOut { entry_valid, entry_valid_nsec, ..EntryOut::default() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks up `.` or `..`, which the kernel does to open by handle (NFS, `open_by_handle_at`).
    /// The kernel need not have looked up `parent` before.
    fn lookup_dots(&self, parent: u32, name: &OsStr) -> Result<Node, Error> {
        let mut node = match self.lookups.get(parent) {
            Err(Error::Stale) => self.fs.inode(parent)?,
            known => known?,
        };
        if name == ".." {
            node = self.fs.lookup(&node, name)?;
        }
        self.lookups.count(&node);
        Ok(node)
    }

    /// Answers with `node`, which was created or got a name.
    fn tell(&self, node: &Node, answer: &mut Answer) -> Result<(), Errno> {
        self.changed()?;
        self.lookups.count(node);
        answer.put_as(&self.entry(node))
    }

    pub(super) fn symlink(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let (name, target) = (request.name()?, request.name()?);
        let new = new_node(&request.header, 0o777, 0);
        let node = self.fs.symlink_at(&self.node(request)?, name, target, &new)?;
        self.tell(&node, answer)
    }

    pub(super) fn mknod(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let make: MkNodIn = request.take()?;
        let name = request.name()?;
        let new = new_node(&request.header, make.mode, make.umask);
        let parent = self.node(request)?;
        let file_type = match make.mode & libc::S_IFMT {
            0 | libc::S_IFREG => None,
            libc::S_IFCHR => Some(FileType::Character),
            libc::S_IFBLK => Some(FileType::Block),
            libc::S_IFIFO => Some(FileType::Fifo),
            libc::S_IFSOCK => Some(FileType::Socket),
            _ => return Err(Errno(libc::EINVAL)),
        };
        let node = match file_type {
            None => self.fs.create(&parent, name, &new)?,
            Some(file_type) => {
                self.fs.mknod(&parent, name, &new, file_type, device_of(make.rdev))?
            }
        };
        self.tell(&node, answer)
    }

    pub(super) fn mkdir(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let make: MkDirIn = request.take()?;
        let name = request.name()?;
        let new = new_node(&request.header, make.mode, make.umask);
        let node = self.fs.mkdir(&self.node(request)?, name, &new)?;
        self.tell(&node, answer)
    }

    pub(super) fn unlink(&self, request: &mut Request<'_>) -> Served {
        let name = request.name()?;
        self.fs.unlink(&self.node(request)?, name)?;
        self.changed()
    }

    pub(super) fn rmdir(&self, request: &mut Request<'_>) -> Served {
        let name = request.name()?;
        self.fs.rmdir(&self.node(request)?, name)?;
        self.changed()
    }

    pub(super) fn rename(&self, request: &mut Request<'_>) -> Served {
        let RenameIn { newdir } = request.take()?;
        self.rename_with(request, newdir, 0)
    }

    pub(super) fn rename2(&self, request: &mut Request<'_>) -> Served {
        let Rename2In { newdir, flags, .. } = request.take()?;
        self.rename_with(request, newdir, flags)
    }

    fn rename_with(&self, request: &mut Request<'_>, newdir: u64, flags: u32) -> Served {
        let (old_name, new_name) = (request.name()?, request.name()?);
        let (old_parent, new_parent) = (self.node(request)?, self.lookups.get(ino(newdir))?);
        let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
        if flags & !known != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let flags = RenameFlags {
            no_replace: flags & libc::RENAME_NOREPLACE != 0,
            exchange: flags & libc::RENAME_EXCHANGE != 0,
            whiteout: flags & libc::RENAME_WHITEOUT != 0,
        };
        self.fs.rename_at(&old_parent, old_name, &new_parent, new_name, flags)?;
        self.changed()
    }

    pub(super) fn link(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let LinkIn { oldnodeid } = request.take()?;
        let name = request.name()?;
        let node = self.lookups.get(ino(oldnodeid))?;
        self.fs.link(&node, &self.node(request)?, name)?;
        self.tell(&node, answer)
    }

    pub(super) fn create(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let create: CreateIn = request.take()?;
        let name = request.name()?;
        let new = new_node(&request.header, create.mode, create.umask);
        let parent = self.node(request)?;
        let flags = create.flags as i32;
        let node = match self.fs.create(&parent, name, &new) {
            Ok(node) => {
                let opened = self.open_node(&node, flags & !libc::O_TRUNC, None)?;
                return self.tell_opened(&node, opened, answer);
            }
            // The kernel found no such name, and another of its requests has created it since.
            Err(Error::Exists) if flags & libc::O_EXCL == 0 => self.fs.lookup(&parent, name)?,
            Err(error) => return Err(error.into()),
        };
        let opened = self.open_node(&node, flags, None)?;
        self.tell_opened(&node, opened, answer)
    }

    pub(super) fn tmpfile(&self, request: &mut Request<'_>, answer: &mut Answer) -> Served {
        let create: CreateIn = request.take()?;
        let new = new_node(&request.header, create.mode, create.umask);
        let node = self.fs.tmpfile(&self.node(request)?, &new)?;
        let opened = self.open_node(&node, create.flags as i32 & !libc::O_TRUNC, None)?;
        self.tell_opened(&node, opened, answer)
    }

    fn tell_opened(&self, node: &Node, opened: OpenOut, answer: &mut Answer) -> Result<(), Errno> {
        self.tell(node, answer)?;
        answer.put_as(&opened)
    }
}
