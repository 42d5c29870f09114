//! Changing a file system by name.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::alloc::Allocator;
use super::background;
use super::by_path::Last;
use super::error::{Error, Unsupported};
use super::file::File;
use super::fs::FileSystem;
use super::inode::shared::Inode;
use super::inode::{Mount, Node};
use super::journal::{Handle, JournalThread};
use super::ops::names::{self, Unlinked, Unused};
use super::ops::{Name, Progress, rename};
use super::ops::{attributes, orphans};
use super::options::{NewNode, OpenOptions, RenameFlags, SetAttribute};
use meantime_ext4_format::FileType;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::path::LINKS_MAX;

/// EXT4_IMMUTABLE_FL and others.
const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;
const ENCRYPTED: u32 = 0x800;
const VERITY: u32 = 0x10_0000;
const INLINE_DATA: u32 = 0x1000_0000;

/// What has lost its last name, if anything has.
enum LostName {
    /// Nothing.
    None,
    /// That inode: it is deleted with its last node.
    Last(Node),
    /// Nobody had it: so it was deleted, or most of it.
    Deleted(Arc<Inode>, Progress),
}

impl FileSystem {
    /// Whether it is mounted for writing.
    pub fn is_writable(&self) -> bool {
        self.mount.options.write
    }

    /// Ends the mount: everything is written, and the journal empty. Files and nodes that are still
    /// there are of no more use for writing.
    ///
    /// # Errors
    /// What could not be written; the mount has ended all the same.
    pub fn unmount(self) -> Result<(), Error> {
        let mount = &*self.mount;
        let Some(writer) = &mount.writer else { return Ok(()) };
        writer.stop_background();
        let written = mount.write_back_all();
        // What no name leads to, and somebody has still.
        let deleted = mount.delete_orphans();
        writer.end();
        let superblock = writer.journal.change(|handle| {
            orphans::set_present(handle, false)?;
            writer.allocator.write_superblock_counts(handle)
        });
        let mut io = mount.contexts.take()?;
        let closed = writer.journal.close(&mut io);
        drop(io);
        // Last: whoever sees it may mount it.
        let released = match writer.protection() {
            Some(protection) if closed.is_ok() => protection.release(),
            Some(protection) => {
                protection.stop();
                Ok(())
            }
            None => Ok(()),
        };
        written.and(deleted).and(superblock.map(drop)).and(closed).and(released)
    }

    /// Makes everything durable that was done so far (`sync`).
    ///
    /// # Errors
    /// What could not be written.
    pub fn sync(&self) -> Result<(), Error> {
        self.mount.sync_all()
    }

    /// Whether times of reading are noted from now on, as the mount's options say, or not at all:
    /// without them, nothing is written unless somebody changes something.
    pub fn note_access_times(&self, is_on: bool) {
        self.mount.access_unnoted.store(!is_on, Ordering::Relaxed);
    }

    /// One turn of what the mount's own thread does. True: there is more to be done.
    ///
    /// # Errors
    /// The device.
    pub fn background_step(&self) -> Result<bool, Error> {
        self.mount.background_step()
    }

    /// A mount for writing begins: what was being deleted when it last ended is.
    pub(super) fn begin_writing(&self) -> Result<(), Error> {
        let mount = &self.mount;
        let Some(writer) = &mount.writer else { return Ok(()) };
        let orphan = |handle: &mut Handle<'_>, _: &Allocator| orphans::set_present(handle, true);
        if let Some(protection) = writer.protection() {
            let watched = Arc::downgrade(mount);
            protection.watch(move |error| {
                let mount = watched.upgrade();
                if let Some(writer) = mount.as_ref().and_then(|mount| mount.writer.as_ref()) {
                    writer.journal.fail(error);
                }
            })?;
        }
        mount.delete_orphans()?;
        mount.change(orphan)?;
        if mount.options.background {
            writer.set_background(background::start(mount));
        }
        if !mount.options.commit_overlap.direct {
            let mount = Arc::downgrade(mount);
            writer.set_journal_thread(JournalThread::start(move |upto| {
                Some(mount.upgrade()?.commit_whole(upto).is_ok())
            }));
        }
        Ok(())
    }

    /// Makes an inode by `work`, which has name `name` in `parent` then.
    fn make(
        &self,
        parent: &Node,
        name: &OsStr,
        work: impl Fn(&mut Handle<'_>, &Allocator, &[u8]) -> Result<u32, Error>,
    ) -> Result<Node, Error> {
        let name = name.as_bytes();
        let names_before = Cell::new(0);
        let node = self.mount.change(|handle, allocator| {
            names_before.set(self.mount.names_changed());
            let ino = work(handle, allocator, name)?;
            // Nobody can know the new one yet: whom it is found for had the one that had its number
            // before.
            self.mount.forget_node(ino);
            // Before anybody can take its name away: it is not deleted while there is a node of it.
            self.made(handle, ino)
        })?;
        self.mount.nodes.keep(node.ino(), Arc::clone(&node.inode), 1);
        self.mount.learn_name(parent.ino(), name, node.ino(), names_before.get());
        Ok(node)
    }

    /// Takes a name from an inode by `work`; with its last one it is deleted, as soon as nobody has
    /// it any more: by the same change, if nobody has.
    fn take_name(
        &self,
        work: impl Fn(&mut Handle<'_>, &Allocator, Unused<'_>) -> Result<Option<Unlinked>, Error>,
    ) -> Result<LostName, Error> {
        let mount = &self.mount;
        // Set while a change is under way, which may fail.
        let ended: Cell<Option<Arc<Inode>>> = Cell::new(None);
        let restore = || ended.take().iter().for_each(|inode| mount.end_deletion(inode));
        let lost = mount.change(|handle, allocator| {
            // By an attempt for which there was no space.
            restore();
            let unused = |ino| {
                let inode = mount.end_unused(ino);
                let is_unused = inode.is_some();
                ended.set(inode);
                is_unused
            };
            let Some(unlinked) = work(handle, allocator, &unused)?.filter(|lost| lost.is_last)
            else {
                return Ok(None);
            };
            if unlinked.is_unused {
                let progress = Mount::delete_ended(handle, allocator, unlinked.ino)?;
                return Ok(Some(Err(progress)));
            }
            // A node, before anybody can see that it has none: so there is somebody to delete it,
            // and what has its number is it.
            Ok(Some(Ok(self.losing(unlinked.ino)?)))
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

    /// Something may have lost its last name.
    fn lost_name(&self, lost: LostName) {
        match lost {
            LostName::None => {}
            LostName::Last(node) => {
                // It has no others: it is nobody's parent any more.
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
        work: impl Fn(&mut Handle<'_>, &Allocator, &mut InodeEdit) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.mount.change(|handle, allocator| {
            let mut inode = handle.load_inode(node.ino())?;
            if inode.flags() & (IMMUTABLE | APPEND_ONLY) != 0 {
                return Err(Error::NotPermitted);
            }
            work(handle, allocator, &mut inode)?;
            handle.store_inode(&inode, false)?;
            if inode.file_type() == Some(FileType::Regular) {
                // Attributes among what was changed are seen to by themselves.
                handle.fast_eligible();
            }
            Ok(())
        })
    }

    /// Makes file `name` in `parent`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoSpace`], … as `open(2)`.
    pub fn create(&self, parent: &Node, name: &OsStr, new: &NewNode) -> Result<Node, Error> {
        self.make(parent, name, |handle, allocator, name| {
            names::create(handle, allocator, parent.ino(), name, new)
        })
    }

    /// Makes directory `name` in `parent`.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn mkdir(&self, parent: &Node, name: &OsStr, new: &NewNode) -> Result<Node, Error> {
        self.make(parent, name, |handle, allocator, name| {
            names::mkdir(handle, allocator, parent.ino(), name, new)
        })
    }

    /// Makes a device, pipe or socket `name` in `parent`; `device`: major and minor number of a
    /// device.
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
        self.make(parent, name, |handle, allocator, name| {
            names::mknod(handle, allocator, parent.ino(), name, new, file_type, device)
        })
    }

    /// Makes symbolic link `name` in `parent`, which leads to `target`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink_at(
        &self,
        parent: &Node,
        name: &OsStr,
        target: &OsStr,
        new: &NewNode,
    ) -> Result<Node, Error> {
        self.make(parent, name, |handle, allocator, name| {
            names::symlink(handle, allocator, parent.ino(), name, target.as_bytes(), new)
        })
    }

    /// Gives `node` a further name: `name` in `parent`.
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn link(&self, node: &Node, parent: &Node, name: &OsStr) -> Result<(), Error> {
        let writable = node.inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        // One that was deleted does not come back.
        if writable.is_unlinked() && !writable.is_nameless() {
            return Err(Error::NotFound);
        }
        let name = name.as_bytes();
        let names_before = Cell::new(0);
        self.mount.change(|handle, allocator| {
            names_before.set(self.mount.names_changed());
            if handle.load_inode(node.ino())?.links() == 0 && !writable.is_nameless() {
                return Err(Error::NotFound);
            }
            names::link(handle, allocator, node.ino(), parent.ino(), name)
        })?;
        self.mount.learn_name(parent.ino(), name, node.ino(), names_before.get());
        Ok(())
    }

    /// Takes `name` out of `parent`; a file without names is deleted when nobody has it open any
    /// more.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn unlink(&self, parent: &Node, name: &OsStr) -> Result<(), Error> {
        let name = name.as_bytes();
        let lost = self.take_name(|handle, _, unused| {
            names::unlink(handle, parent.ino(), name, unused).map(Some)
        })?;
        self.mount.forget_name(parent.ino(), name);
        self.lost_name(lost);
        Ok(())
    }

    /// Takes the empty directory `name` out of `parent`.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn rmdir(&self, parent: &Node, name: &OsStr) -> Result<(), Error> {
        let name = name.as_bytes();
        let lost = self.take_name(|handle, _, unused| {
            names::rmdir(handle, parent.ino(), name, unused).map(Some)
        })?;
        self.mount.forget_name(parent.ino(), name);
        self.lost_name(lost);
        Ok(())
    }

    /// Makes `old_name` in `old_parent` `new_name` in `new_parent`, in one step.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub fn rename_at(
        &self,
        old_parent: &Node,
        old_name: &OsStr,
        new_parent: &Node,
        new_name: &OsStr,
        flags: RenameFlags,
    ) -> Result<(), Error> {
        let old = Name { parent: old_parent.ino(), name: old_name.as_bytes() };
        let new = Name { parent: new_parent.ino(), name: new_name.as_bytes() };
        let owner = NewNode::default();
        let moved = Cell::new([None; 2]);
        let names_before = Cell::new(0);
        let lost = self.take_name(|handle, allocator, unused| {
            names_before.set(self.mount.names_changed());
            let how = (flags, &owner);
            let renamed = rename(handle, allocator, old, new, how, unused)?;
            if let Some(whiteout) = renamed.whiteout {
                self.mount.forget_node(whiteout);
            }
            moved.set([Some(renamed.ino), renamed.exchanged]);
            Ok(renamed.replaced)
        })?;
        // (What stays where it is under both names has the new one, too.)
        match moved.get()[0] {
            Some(ino) => self.mount.learn_name(new.parent, new.name, ino, names_before.get()),
            None => self.mount.forget_name(new.parent, new.name),
        }
        self.mount.forget_name(old.parent, old.name);
        // A directory has another parent, perhaps.
        for ino in moved.get().into_iter().flatten() {
            self.mount.forget_name(ino, b"..");
        }
        self.lost_name(lost);
        Ok(())
    }

    /// Makes a file without a name (O_TMPFILE), on the file system of `parent`; it is deleted when
    /// nobody has it open, unless it is [linked](Self::link) before.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn tmpfile(&self, parent: &Node, new: &NewNode) -> Result<Node, Error> {
        let node = self.mount.change(|handle, allocator| {
            let ino = names::tmpfile(handle, allocator, parent.ino(), new)?;
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
        self.change_inode(node, |handle, allocator, inode| {
            attributes::set(handle, allocator, inode, name, value, how)
        })
    }

    /// Removes attribute `name` of `node`.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], … as `removexattr(2)`.
    pub fn remove_attribute(&self, node: &Node, name: &[u8]) -> Result<(), Error> {
        self.change_inode(node, |handle, allocator, inode| {
            attributes::remove(handle, allocator, inode, name)
        })
    }

    /// Makes `node` durable: content and metadata of a file, names in a directory (`fsync`).
    ///
    /// # Errors
    /// What could not be written.
    pub fn sync_node(&self, node: &Node) -> Result<(), Error> {
        self.mount.fsync(&node.inode, false)
    }

    /// Opens the file at `path` as `options` say. A file that is made belongs to user and group 0.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File, Error> {
        if !options.create && !options.create_new {
            return self.open_node_with(&self.resolve(&self.root()?, path, true)?, options);
        }
        let (mut from, mut path) = (self.root()?, path.as_ref().to_owned());
        for _ in 0..=LINKS_MAX {
            let (parent, name) = match self.place_from(&from, &path)? {
                (parent, Last::Name(name, false)) => (parent, name),
                _ if options.create_new => return Err(Error::Exists),
                // What is made here is no directory.
                _ => return Err(Error::IsDirectory),
            };
            let new = NewNode { mode: options.mode, uid: 0, gid: 0, umask: 0 };
            let node = match self.resolve(&parent, name, !options.create_new) {
                Ok(_) if options.create_new => return Err(Error::Exists),
                Err(Error::NotFound) => match self.create(&parent, name, &new) {
                    // Another thread was faster; or it is a link to what is not there.
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
            // The file is made where the link leads to.
            let target = self.read_link_at(&node)?;
            (from, path) = (parent, target);
        }
        Err(Error::Loop)
    }

    /// Opens `node` as `options` say; it is there, whatever they say of making it.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open_node_with(&self, node: &Node, options: &OpenOptions) -> Result<File, Error> {
        let options = OpenOptions { write: options.write || options.append, ..*options };
        if options.write || options.truncate {
            self.mount.writer()?;
            let metadata = node.metadata();
            if metadata.file_type == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            if metadata.flags & IMMUTABLE != 0
                || (metadata.flags & APPEND_ONLY != 0 && !options.append)
            {
                return Err(Error::NotPermitted);
            }
            if metadata.flags & (INLINE_DATA | ENCRYPTED | VERITY) != 0 {
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
