//! Executes operations on this crate's file system and on the kernel's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use meantime_ext4::{
    Allocate, Error, File, FileSystem, FileType, NewNode, Node, OpenOptions, RenameFlags,
    SetAttribute, SetMetadata,
};

use crate::model::{Fail, Model, content, target, value};
use crate::ops::Op;

/// This crate's file system below directory `root`.
pub(crate) struct Ours<'a> {
    pub fs: &'a FileSystem,
    pub root: &'a str,
}

/// The bytes from the beginning in which free blocks are trimmed: where the files are. Each trimmed
/// block is one more write of which a power cut may leave any part.
const TRIMMED_BYTES: u64 = 2 << 20;

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

/// Converts `error` to the model's error, or `None` if the model has no such error.
pub(crate) fn failed(error: &Error) -> Option<Fail> {
    match error {
        Error::NotFound => Some(Fail::NotFound),
        Error::Exists => Some(Fail::Exists),
        Error::NotDirectory => Some(Fail::NotDirectory),
        Error::IsDirectory => Some(Fail::IsDirectory),
        Error::NotEmpty => Some(Fail::NotEmpty),
        Error::Invalid(_) => Some(Fail::Invalid),
        Error::NoAttribute => Some(Fail::NoAttribute),
        Error::Special | Error::NotPermitted => Some(Fail::Other),
        _ => None,
    }
}

impl Ours<'_> {
    fn path(&self, name: &str) -> PathBuf {
        Path::new("/").join(self.root).join(name)
    }

    fn node(&self, name: &str) -> Result<Node, Error> {
        self.fs.resolve(&self.fs.root()?, self.path(name), false)
    }

    /// The parent directory and the last component of `name`.
    fn place<'n>(&self, name: &'n str) -> Result<(Node, &'n OsStr), Error> {
        let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
        Ok((self.fs.resolve(&self.fs.root()?, self.path(above), true)?, OsStr::new(last)))
    }

    fn file(&self, name: &str) -> Result<File, Error> {
        let node = self.node(name)?;
        match node.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Special),
        }
        self.fs.open_node_with(
            &node,
            &OpenOptions { read: true, write: true, ..OpenOptions::default() },
        )
    }

    fn write(
        &self,
        name: &str,
        at: u64,
        bytes: u64,
        id: u32,
        options: &OpenOptions,
    ) -> Result<(), Error> {
        self.file(name)?;
        let options = OpenOptions { write: true, ..*options };
        let file = self.fs.open_node_with(&self.node(name)?, &options)?;
        let written = file.write_at(&content(id, at, bytes), at)?;
        assert_eq!(written as u64, bytes, "a short write");
        Ok(())
    }

    /// Executes `op` with the identity that `model` gives it.
    pub(crate) fn apply(&self, op: &Op, model: &Model) -> Result<(), Error> {
        let fs = self.fs;
        let id = model.next_id();
        match *op {
            Op::Create(name) => {
                let (dir, last) = self.place(name)?;
                fs.create(&dir, last, &NEW).map(drop)
            }
            Op::Mkdir(name) => {
                let (dir, last) = self.place(name)?;
                fs.mkdir(&dir, last, &NewNode { mode: 0o755, ..NEW }).map(drop)
            }
            Op::Symlink(name) => {
                let (dir, last) = self.place(name)?;
                fs.symlink_at(&dir, last, OsStr::new(&target(name)), &NEW).map(drop)
            }
            Op::Link(old, new) => {
                let node = self.node(old)?;
                let (dir, last) = self.place(new)?;
                fs.link(&node, &dir, last)
            }
            Op::Unlink(name) => {
                let (dir, last) = self.place(name)?;
                fs.unlink(&dir, last)
            }
            Op::Rmdir(name) => {
                let (dir, last) = self.place(name)?;
                fs.rmdir(&dir, last)
            }
            Op::Rename(old, new) | Op::Exchange(old, new) => {
                let (from, old) = self.place(old)?;
                // Path resolution fails here, before the other path is examined.
                if from.file_type() != FileType::Directory {
                    return Err(Error::NotDirectory);
                }
                let (to, new) = self.place(new)?;
                let exchange = matches!(op, Op::Exchange(..));
                fs.rename_at(
                    &from,
                    old,
                    &to,
                    new,
                    RenameFlags { exchange, ..RenameFlags::default() },
                )
            }
            Op::Mode(name, mode) => {
                let node = self.not_link(name)?;
                fs.set_metadata(&node, &SetMetadata { mode: Some(mode), ..SetMetadata::default() })
                    .map(drop)
            }
            Op::Attribute(name, bytes) => {
                let node = self.not_link(name)?;
                fs.set_attribute(&node, b"user.x", &value(bytes), SetAttribute::Any)
            }
            Op::RemoveAttribute(name) => {
                let node = self.not_link(name)?;
                fs.remove_attribute(&node, b"user.x")
            }
            Op::Write(name, at, bytes) => self.write(name, at, bytes, id, &OpenOptions::default()),
            Op::Direct(name, at, bytes) => self.write(
                name,
                at,
                bytes,
                id,
                &OpenOptions { direct: true, ..OpenOptions::default() },
            ),
            Op::WriteSync(name, at, bytes) => self.write(
                name,
                at,
                bytes,
                id,
                &OpenOptions { sync: true, ..OpenOptions::default() },
            ),
            Op::Append(name, bytes) => {
                self.file(name)?;
                let size = model.size(name).unwrap_or(0);
                let options = OpenOptions { write: true, append: true, ..OpenOptions::default() };
                let file = fs.open_node_with(&self.node(name)?, &options)?;
                let at = file.append(&content(id, size, bytes))?;
                assert_eq!(at, size, "appended elsewhere");
                Ok(())
            }
            Op::Truncate(name, size) => self.file(name)?.set_len(size),
            Op::Set(name, mode, size) => {
                self.file(name)?;
                let (mode, size) = (Some(mode), Some(size));
                let set = SetMetadata { mode, size, ..SetMetadata::default() };
                fs.set_metadata(&self.node(name)?, &set).map(drop)
            }
            Op::Punch(name, at, bytes) => self.file(name)?.allocate(at, bytes, Allocate::Punch),
            Op::Zero(name, at, bytes) => self.file(name)?.allocate(at, bytes, Allocate::Zero),
            Op::Keep(name, at, bytes) => self.file(name)?.allocate(at, bytes, Allocate::KeepSize),
            Op::Extend(name, at, bytes) => self.file(name)?.allocate(at, bytes, Allocate::Extend),
            Op::Read(name) => {
                let file = self.file(name)?;
                let expected = model.read(name).unwrap_or_default();
                let mut found = vec![0xEE; expected.len() + 10];
                let read = file.read_at(&mut found, 0)?;
                found.truncate(read);
                let differs =
                    (0..read.max(expected.len())).find(|at| found.get(*at) != expected.get(*at));
                assert_eq!(
                    differs,
                    None,
                    "{name}: a byte that is not what was written: {read} bytes of {}",
                    expected.len()
                );
                Ok(())
            }
            Op::Fsync(name) => fs.sync_node(&self.not_link(name)?),
            Op::Fdatasync(name) => {
                let node = self.not_link(name)?;
                match node.file_type() {
                    FileType::Directory => fs.sync_node(&node),
                    _ => self.file(name)?.sync_data(),
                }
            }
            Op::Sync => fs.sync(),
            Op::Step => fs.background_step().map(drop),
            Op::Trim => fs.trim(0..TRIMMED_BYTES, 0).map(drop),
            // The owner of the device remounts.
            Op::Remount => Ok(()),
        }
    }

    fn not_link(&self, name: &str) -> Result<Node, Error> {
        let node = self.node(name)?;
        if node.file_type() == FileType::Symlink { Err(Error::Special) } else { Ok(node) }
    }
}

/// The kernel's file system, mounted at `root`, to validate the model.
pub(crate) struct Kernels<'a> {
    pub root: &'a Path,
}

impl Kernels<'_> {
    pub(crate) fn apply(&self, op: &Op, model: &Model) -> std::io::Result<()> {
        use std::fs;
        use std::io::{Error as IoError, ErrorKind};
        use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};

        use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};

        let at = |name: &str| self.root.join(name);
        let id = model.next_id();
        let file = |name: &str, flags: i32| {
            if !fs::symlink_metadata(at(name))?.is_file() {
                return Err(IoError::from(ErrorKind::InvalidInput));
            }
            fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(at(name))
        };
        let not_link = |name: &str| match fs::symlink_metadata(at(name))?.is_symlink() {
            true => Err(IoError::from(ErrorKind::InvalidInput)),
            false => Ok(at(name)),
        };
        let allocate = |name: &str, offset, bytes, flags| {
            Ok(rustix::fs::fallocate(file(name, 0)?, flags, offset, bytes)?)
        };
        let write = |name: &str, offset: u64, bytes: u64, flags| {
            file(name, flags)?.write_all_at(&content(id, offset, bytes), offset)
        };
        match *op {
            Op::Create(name) => fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(at(name))
                .map(drop),
            Op::Mkdir(name) => fs::create_dir(at(name)),
            Op::Symlink(name) => std::os::unix::fs::symlink(target(name), at(name)),
            Op::Link(old, new) => fs::hard_link(at(old), at(new)),
            Op::Unlink(name) => fs::remove_file(at(name)),
            Op::Rmdir(name) => fs::remove_dir(at(name)),
            Op::Rename(old, new) => fs::rename(at(old), at(new)),
            Op::Exchange(old, new) => {
                Ok(rustix::fs::renameat_with(CWD, at(old), CWD, at(new), RenameFlags::EXCHANGE)?)
            }
            Op::Mode(name, mode) => {
                fs::set_permissions(not_link(name)?, fs::Permissions::from_mode(u32::from(mode)))
            }
            Op::Attribute(name, bytes) => Ok(rustix::fs::setxattr(
                not_link(name)?,
                "user.x",
                &value(bytes),
                XattrFlags::empty(),
            )?),
            Op::RemoveAttribute(name) => Ok(rustix::fs::removexattr(not_link(name)?, "user.x")?),
            // Direct writes are not aligned for O_DIRECT here, so they are buffered.
            Op::Write(name, offset, bytes) | Op::Direct(name, offset, bytes) => {
                write(name, offset, bytes, 0)
            }
            Op::WriteSync(name, offset, bytes) => write(name, offset, bytes, libc::O_SYNC),
            Op::Append(name, bytes) => {
                let size = file(name, 0)?.metadata()?.len();
                write(name, size, bytes, 0)
            }
            Op::Truncate(name, size) => file(name, 0)?.set_len(size),
            Op::Set(name, mode, size) => {
                let file = file(name, 0)?;
                file.set_len(size)?;
                file.set_permissions(fs::Permissions::from_mode(u32::from(mode)))
            }
            Op::Punch(name, offset, bytes) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                allocate(name, offset, bytes, flags)
            }
            Op::Zero(name, offset, bytes) => {
                allocate(name, offset, bytes, FallocateFlags::ZERO_RANGE)
            }
            Op::Keep(name, offset, bytes) => {
                allocate(name, offset, bytes, FallocateFlags::KEEP_SIZE)
            }
            Op::Extend(name, offset, bytes) => {
                allocate(name, offset, bytes, FallocateFlags::empty())
            }
            Op::Read(name) => {
                file(name, 0)?;
                assert_eq!(Some(fs::read(at(name))?), model.read(name), "{name}");
                Ok(())
            }
            Op::Fsync(name) => fs::File::open(not_link(name)?)?.sync_all(),
            Op::Fdatasync(name) => fs::File::open(not_link(name)?)?.sync_data(),
            Op::Sync | Op::Remount => {
                let root = fs::File::open(self.root)?;
                Ok(rustix::fs::syncfs(root)?)
            }
            Op::Step | Op::Trim => Ok(()),
        }
    }
}
