//! Changes of a file system by name.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::alloc::AllocHandle;
use super::background;
use super::by_path::Last;
use super::error::{Error, Result, Unsupported};
use super::file::File;
use super::file::write::Writeback;
use super::fs::FileSystem;
use super::inode::shared::Inode;
use super::inode::{Mount, Node};
use super::journal::JournalThread;
use super::ops::names::{self, Unlinked, Unused};
use super::ops::{Name, Progress, rename};
use super::ops::{attributes, orphans};
use super::options::{NewNode, OpenOptions, RenameFlags, SetAttribute};
use meantime_ext4_format::FileType;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::path::LINKS_MAX;

/// The inode that lost its last name, if any.
enum LostName {
    /// No inode lost its last name.
    None,
    /// This inode did, and is deleted when its last node is dropped.
    Last(Node),
    /// This inode did and was unused: it was deleted, at least in part.
    Deleted(Arc<Inode>, Progress),
}

impl FileSystem {
    /// Whether the file system is mounted for writing.
    pub fn is_writable(&self) -> bool {
        self.mount.options.write
    }

    /// Ends the mount: writes everything and empties the journal. Remaining files and nodes can no
    /// longer be written.
    ///
    /// # Errors
    /// The first failure; the mount has ended all the same.
    pub fn unmount(self) -> Result<()> {
        let mount = &*self.mount;
        let Some(rw_mount) = &mount.rw_mount else { return Ok(()) };
        rw_mount.stop_background();
        let written = Writeback::of(mount).and_then(|back| back.write_back_all());
        // Inodes without names that are still referenced.
        let deleted = mount.delete_orphans();
        rw_mount.end();
        let superblock = rw_mount.journal.change(|handle| {
            orphans::set_present(handle, false)?;
            rw_mount.allocator.write_superblock_counts(handle)
        });
        let closed = mount.contexts.take().and_then(|mut io| rw_mount.journal.close(&mut io));
        // The protection is released last, because another host may then mount the file system.
        let released = match rw_mount.protection() {
            Some(protection) if closed.is_ok() => protection.release(),
            Some(protection) => {
                protection.stop();
                Ok(())
            }
            None => Ok(()),
        };
        written.and(deleted).and(superblock.map(drop)).and(closed).and(released)
    }

    /// Makes all earlier changes durable (`sync`).
    ///
    /// # Errors
    /// The first failure.
    pub fn sync(&self) -> Result<()> {
        // A mount for reading has nothing to write.
        Writeback::of(&self.mount).map_or(Ok(()), |back| back.sync_everything())
    }

    /// Sets whether access times are noted from now on, as the mount's options say. Without them,
    /// the mount writes nothing unless something changes.
    pub fn note_access_times(&self, is_on: bool) {
        self.mount.accesses.set_noted(is_on);
    }

    /// Does one round of the background thread's work. Returns whether there is more to do.
    ///
    /// # Errors
    /// A device error.
    pub fn background_step(&self) -> Result<bool> {
        background::step(&self.mount)
    }

    /// Begins a mount for writing, and deletes the orphans that the last mount left.
    pub(super) fn begin_writing(&self) -> Result<()> {
        let mount = &self.mount;
        let Some(rw_mount) = &mount.rw_mount else { return Ok(()) };
        let orphan = |handle: &mut AllocHandle<'_, '_>| orphans::set_present(handle, true);
        if let Some(protection) = rw_mount.protection() {
            let watched = Arc::downgrade(mount);
            protection.watch(move |error| {
                let mount = watched.upgrade();
                if let Some(rw_mount) = mount.as_ref().and_then(|mount| mount.rw_mount.as_ref()) {
                    rw_mount.journal.fail(error);
                }
            })?;
        }
        mount.delete_orphans()?;
        mount.change(orphan)?;
        if mount.options.background {
            rw_mount.set_background(background::start(mount));
        }
        if !mount.options.commit_overlap.caller_commits {
            let mount = Arc::downgrade(mount);
            rw_mount.set_journal_thread(JournalThread::start(move |upto| {
                Some(mount.upgrade()?.rw_mount.as_ref()?.commit_whole(upto).is_ok())
            }));
        }
        Ok(())
    }

    /// Creates an inode with name `name` in `parent` by `work`.
    fn make(
        &self,
        parent: &Node,
        name: &OsStr,
        work: impl Fn(&mut AllocHandle<'_, '_>, &[u8]) -> Result<u32>,
    ) -> Result<Node> {
        let name = name.as_bytes();
        let names_before = Cell::new(0);
        let node = self.mount.change(|handle| {
            names_before.set(self.mount.names_changed());
            let ino = work(handle, name)?;
            // The new inode is not visible yet: a cached node of this number is that of its
            // previous owner.
            self.mount.forget_node(ino);
            // The node is made before another thread can remove the name: an inode is not deleted
            // while it has a node.
            self.made(handle, ino)
        })?;
        self.mount.nodes.keep(node.ino(), Arc::clone(&node.inode), 1);
        self.mount.learn_name(parent.ino(), name, node.ino(), names_before.get());
        Ok(node)
    }

    /// Removes a name from an inode by `work`. An inode that loses its last name is deleted when it
    /// is no longer in use. If it is unused already, the same change deletes it.
    fn take_name(
        &self,
        work: impl Fn(&mut AllocHandle<'_, '_>, Unused<'_>) -> Result<Option<Unlinked>>,
    ) -> Result<LostName> {
        let mount = &self.mount;
        // This is set while a change is under way, because the change may fail.
        let ended: Cell<Option<Arc<Inode>>> = Cell::new(None);
        let restore = || ended.take().iter().for_each(|inode| mount.end_deletion(inode));
        let take = |handle: &mut AllocHandle<'_, '_>| {
            let unused = |ino| {
                let inode = mount.end_unused(ino);
                let is_unused = inode.is_some();
                ended.set(inode);
                is_unused
            };
            let Some(unlinked) = work(handle, &unused)?.filter(|lost| lost.is_last) else {
                return Ok(None);
            };
            if unlinked.is_unused {
                let progress = Mount::delete_ended(handle, unlinked.ino)?;
                return Ok(Some(Err(progress)));
            }
            // Take a node before other threads can see that the inode has no name: dropping it
            // deletes the inode, and until then its number is not reused.
            Ok(Some(Ok(self.losing(unlinked.ino)?)))
        };
        // A failed attempt is undone before others can see it, and any earlier one before the next.
        let lost = mount.change(|handle| {
            restore();
            take(handle).inspect_err(|_| restore())
        });
        match lost {
            Ok(None) => Ok(LostName::None),
            Ok(Some(Ok(node))) => Ok(LostName::Last(node)),
            Ok(Some(Err(progress))) => {
                Ok(ended.take().map_or(LostName::None, |inode| LostName::Deleted(inode, progress)))
            }
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Completes the removal of a name, which may have been an inode's last.
    fn lost_name(&self, lost: LostName) {
        match lost {
            LostName::None => {}
            LostName::Last(node) => {
                // A directory without a name is no parent any more.
                if node.file_type() == FileType::Directory {
                    self.mount.forget_name(node.ino(), b".");
                    self.mount.forget_name(node.ino(), b"..");
                }
            }
            LostName::Deleted(inode, Progress::Done) => self.mount.end_deletion(&inode),
            LostName::Deleted(inode, Progress::More) => self.mount.delete_rest(&inode),
        }
    }

    /// Changes the inode of `node` by `work`.
    fn change_inode(
        &self,
        node: &Node,
        work: impl Fn(&mut AllocHandle<'_, '_>, &mut InodeEdit) -> Result<()>,
    ) -> Result<()> {
        self.mount.change(|handle| {
            let mut inode = handle.load_inode(node.ino())?;
            if inode.flags() & (flags::IMMUTABLE | flags::APPEND) != 0 {
                return Err(Error::NotPermitted);
            }
            work(handle, &mut inode)?;
            handle.store_inode(&inode, false)?;
            if inode.file_type() == Some(FileType::Regular) {
                // Changed attributes are detected when the inode is stored or encoded.
                handle.fast_eligible();
            }
            Ok(())
        })
    }

    /// Creates file `name` in `parent`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`] and the other errors of `open(2)`.
    pub fn create(&self, parent: &Node, name: &OsStr, new: &NewNode) -> Result<Node> {
        self.make(parent, name, |handle, name| names::create(handle, parent.ino(), name, new))
    }

    /// Creates directory `name` in `parent`.
    ///
    /// # Errors
    /// The errors of `mkdir(2)`.
    pub fn mkdir(&self, parent: &Node, name: &OsStr, new: &NewNode) -> Result<Node> {
        self.make(parent, name, |handle, name| names::mkdir(handle, parent.ino(), name, new))
    }

    /// Creates a device, pipe or socket `name` in `parent`. For a device, `device` is its major and
    /// minor number.
    ///
    /// # Errors
    /// The errors of `mknod(2)`.
    pub fn mknod(
        &self,
        parent: &Node,
        name: &OsStr,
        new: &NewNode,
        file_type: FileType,
        device: (u32, u32),
    ) -> Result<Node> {
        self.make(parent, name, |handle, name| {
            names::mknod(handle, parent.ino(), name, new, file_type, device)
        })
    }

    /// Creates symbolic link `name` to `target` in `parent`.
    ///
    /// # Errors
    /// The errors of `symlink(2)`.
    pub fn symlink_at(
        &self,
        parent: &Node,
        name: &OsStr,
        target: &OsStr,
        new: &NewNode,
    ) -> Result<Node> {
        self.make(parent, name, |handle, name| {
            names::symlink(handle, parent.ino(), name, target.as_bytes(), new)
        })
    }

    /// Adds name `name` in `parent` to `node`.
    ///
    /// # Errors
    /// The errors of `link(2)`.
    pub fn link(&self, node: &Node, parent: &Node, name: &OsStr) -> Result<()> {
        let writable = node.inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        // A deleted inode must not get a name again.
        if writable.is_unlinked() && !writable.is_nameless() {
            return Err(Error::NotFound);
        }
        let name = name.as_bytes();
        let names_before = Cell::new(0);
        self.mount.change(|handle| {
            names_before.set(self.mount.names_changed());
            if handle.load_inode(node.ino())?.links() == 0 && !writable.is_nameless() {
                return Err(Error::NotFound);
            }
            names::link(handle, node.ino(), parent.ino(), name)
        })?;
        self.mount.learn_name(parent.ino(), name, node.ino(), names_before.get());
        Ok(())
    }

    /// Removes `name` from `parent`. A file without names is deleted when it is no longer open.
    ///
    /// # Errors
    /// The errors of `unlink(2)`.
    pub fn unlink(&self, parent: &Node, name: &OsStr) -> Result<()> {
        let name = name.as_bytes();
        let lost = self.take_name(|handle, unused| {
            names::unlink(handle, parent.ino(), name, unused).map(Some)
        })?;
        self.mount.forget_name(parent.ino(), name);
        self.lost_name(lost);
        Ok(())
    }

    /// Removes the empty directory `name` from `parent`.
    ///
    /// # Errors
    /// The errors of `rmdir(2)`.
    pub fn rmdir(&self, parent: &Node, name: &OsStr) -> Result<()> {
        let name = name.as_bytes();
        let lost = self.take_name(|handle, unused| {
            names::rmdir(handle, parent.ino(), name, unused).map(Some)
        })?;
        self.mount.forget_name(parent.ino(), name);
        self.lost_name(lost);
        Ok(())
    }

    /// Renames `old_name` in `old_parent` to `new_name` in `new_parent` atomically.
    ///
    /// # Errors
    /// The errors of `renameat2(2)`.
    pub fn rename_at(
        &self,
        old_parent: &Node,
        old_name: &OsStr,
        new_parent: &Node,
        new_name: &OsStr,
        flags: RenameFlags,
    ) -> Result<()> {
        let old = Name { parent: old_parent.ino(), name: old_name.as_bytes() };
        let new = Name { parent: new_parent.ino(), name: new_name.as_bytes() };
        let owner = NewNode::default();
        let moved = Cell::new([None; 2]);
        let names_before = Cell::new(0);
        let lost = self.take_name(|handle, unused| {
            names_before.set(self.mount.names_changed());
            let how = (flags, &owner);
            let renamed = rename(handle, old, new, how, unused)?;
            if let Some(whiteout) = renamed.whiteout {
                self.mount.forget_node(whiteout);
            }
            moved.set([Some(renamed.ino), renamed.exchanged]);
            Ok(renamed.replaced)
        })?;
        // If both names are of one inode, both stay, and the new one still leads to that inode.
        match moved.get()[0] {
            Some(ino) => self.mount.learn_name(new.parent, new.name, ino, names_before.get()),
            None => self.mount.forget_name(new.parent, new.name),
        }
        self.mount.forget_name(old.parent, old.name);
        // A moved directory may have another parent.
        for ino in moved.get().into_iter().flatten() {
            self.mount.forget_name(ino, b"..");
        }
        self.lost_name(lost);
        Ok(())
    }

    /// Creates a file without a name (O_TMPFILE) on the file system of `parent`. It is deleted when
    /// it is no longer open, unless it is [linked](Self::link) before.
    ///
    /// # Errors
    /// The errors of `open(2)`.
    pub fn tmpfile(&self, parent: &Node, new: &NewNode) -> Result<Node> {
        let node = self.mount.change(|handle| {
            let ino = names::tmpfile(handle, parent.ino(), new)?;
            self.mount.forget_node(ino);
            let node = self.made(handle, ino)?;
            if let Some(writable) = &node.inode.writable {
                writable.set_nameless();
            }
            Ok(node)
        })?;
        self.mount.nodes.keep(node.ino(), Arc::clone(&node.inode), 1);
        Ok(node)
    }

    /// Sets attribute `name` (the full name, such as `user.x`) of `node`.
    ///
    /// # Errors
    /// The errors of `setxattr(2)`.
    pub fn set_attribute(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<()> {
        self.change_inode(node, |handle, inode| attributes::set(handle, inode, name, value, how))
    }

    /// Removes attribute `name` of `node`.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] and the other errors of `removexattr(2)`.
    pub fn remove_attribute(&self, node: &Node, name: &[u8]) -> Result<()> {
        self.change_inode(node, |handle, inode| attributes::remove(handle, inode, name))
    }

    /// Makes `node` durable: a file's content and metadata, or a directory's names (`fsync`).
    ///
    /// # Errors
    /// The first failure.
    pub fn sync_node(&self, node: &Node) -> Result<()> {
        Writeback::of(&self.mount)?.fsync(&node.inode, false)
    }

    /// Opens the file at `path` with `options`. A file that is created belongs to user and group 0.
    ///
    /// # Errors
    /// The errors of `open(2)`.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        if !options.create && !options.create_new {
            return self.open_node_with(&self.resolve(&self.root()?, path, true)?, options);
        }
        let (mut from, mut path) = (self.root()?, path.as_ref().to_owned());
        for _ in 0..=LINKS_MAX {
            let (parent, name) = match self.place_from(&from, &path)? {
                (parent, Last::Name(name, false)) => (parent, name),
                _ if options.create_new => return Err(Error::Exists),
                // Only files are created here.
                _ => return Err(Error::IsDirectory),
            };
            let new = NewNode { mode: options.mode, uid: 0, gid: 0, umask: 0 };
            let node = match self.resolve(&parent, name, !options.create_new) {
                Ok(_) if options.create_new => return Err(Error::Exists),
                Err(Error::NotFound) => match self.create(&parent, name, &new) {
                    // Another thread created it first, or it is a dangling link.
                    Err(Error::Exists) if !options.create_new => {
                        self.resolve(&parent, name, false)?
                    }
                    made => made?,
                },
                found => found?,
            };
            if node.file_type() != FileType::Symlink {
                return self.open_node_with(&node, options);
            }
            // The file is created at the link's target.
            let target = self.read_link_at(&node)?;
            (from, path) = (parent, target);
        }
        Err(Error::Loop)
    }

    /// Opens `node` with `options`; their options for creation are ignored.
    ///
    /// # Errors
    /// The errors of `open(2)`.
    pub fn open_node_with(&self, node: &Node, options: &OpenOptions) -> Result<File> {
        let options = OpenOptions { write: options.write || options.append, ..*options };
        if options.write || options.truncate {
            self.mount.for_writing()?;
            let metadata = node.metadata();
            if metadata.file_type == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            if metadata.flags & flags::IMMUTABLE != 0
                || (metadata.flags & flags::APPEND != 0 && !options.append)
            {
                return Err(Error::NotPermitted);
            }
            if metadata.flags & (flags::INLINE_DATA | flags::ENCRYPT | flags::VERITY) != 0 {
                let what = format!(
                    "writing to a file with inline data, encryption or verity (inode {})",
                    metadata.ino
                );
                return Err(Unsupported { what, advice: "write to it with Linux" }.into());
            }
        }
        let file = File::open(node.clone(), options)?;
        if options.truncate && options.write && file.size() > 0 {
            file.set_len(0)?;
        }
        Ok(file)
    }
}
