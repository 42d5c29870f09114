//! The place of copies: below one directory, and never outside of it. Every step of a path is
//! opened relative to the directory above, without following a link. So neither the image nor a
//! concurrent change of the destination can lead outside.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use meantime_ext4::{FileType, Metadata, Timestamp};
use rustix::fs::{
    self, AtFlags, FileType as Kind, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result, fcntl_dupfd_cloexec};

use crate::failure::warn;

/// Extended attributes: names and values.
type Attributes = [(Vec<u8>, Vec<u8>)];

/// The destination.
pub(super) struct Target {
    base: OwnedFd,
    force: bool,
}

/// Counters of properties that could not be kept.
#[derive(Default)]
pub(super) struct Kept {
    owners: u64,
    attributes: u64,
    specials: u64,
    modes: u64,
}

impl Kept {
    /// Warns of what was lost.
    pub(super) fn warn(&self) {
        let attributes = "extended attributes were not kept: the destination's file system, or a \
                          missing right, forbids them";
        let modes = "files lost their set-user-ID or set-group-ID bit, since they have another \
                     owner now";
        for (count, what) in [
            (self.owners, "owners were not kept: that needs root"),
            (self.attributes, attributes),
            (self.specials, "device files were not made: that needs root"),
            (self.modes, modes),
        ] {
            if count > 0 {
                warn(format_args!("{count} {what}"));
            }
        }
    }
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = PLACE.union(OFlags::DIRECTORY);

impl Target {
    /// Opens `path`, below which copies go. The user names it, so it may be a link. With `force`,
    /// existing files are replaced.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { base: fs::open(path, flags, Mode::empty())?, force })
    }

    /// Returns the directory that `path` is in, and its name there.
    fn parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let mut fd = fcntl_dupfd_cloexec(&self.base, 0)?;
        for step in path.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(step) = step else { return Err(Errno::INVAL) };
            fd = fs::openat(&fd, step, DIRECTORY, Mode::empty())?;
        }
        Ok((fd, name))
    }

    /// Calls `make`, which creates something that must be new. With `force` an existing entry is
    /// removed first, unless it is a directory.
    fn make<T>(&self, path: &Path, make: impl Fn(&OwnedFd, &OsStr) -> Result<T>) -> Result<T> {
        let (parent, name) = self.parent(path)?;
        match make(&parent, name) {
            Err(Errno::EXIST) if self.force => {
                fs::unlinkat(&parent, name, AtFlags::empty())?;
                make(&parent, name)
            }
            made => made,
        }
    }

    /// Creates a directory that only this user can use for now. With `force` it may already exist.
    pub(super) fn make_directory(&self, path: &Path) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        if self.force && fs::openat(&parent, name, DIRECTORY, Mode::empty()).is_ok() {
            return Ok(());
        }
        self.make(path, |parent, name| fs::mkdirat(parent, name, Mode::RWXU))
    }

    /// Creates an empty file that only this user can use for now.
    pub(super) fn create(&self, path: &Path) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        self.make(path, |parent, name| fs::openat(parent, name, flags, mode)).map(File::from)
    }

    /// Removes an incomplete file.
    pub(super) fn remove(&self, path: &Path) {
        if let Ok((parent, name)) = self.parent(path) {
            let _ = fs::unlinkat(&parent, name, AtFlags::empty());
        }
    }

    /// Creates another name for `first`, which was created before.
    pub(super) fn link(&self, first: &Path, path: &Path) -> Result<()> {
        let (from, first) = self.parent(first)?;
        self.make(path, |parent, name| fs::linkat(&from, first, parent, name, AtFlags::empty()))
    }

    /// Creates a symbolic link, which is not followed here.
    pub(super) fn make_symlink(&self, path: &Path, leads_to: &Path) -> Result<()> {
        self.make(path, |parent, name| fs::symlinkat(leads_to, parent, name))
    }

    /// Creates a device, pipe or socket. Returns false if that needs rights we do not have.
    pub(super) fn make_special(
        &self,
        path: &Path,
        meta: &Metadata,
        kept: &mut Kept,
    ) -> Result<bool> {
        let kind = Kind::from_raw_mode((meta.file_type as u32) << 12);
        // The kernel looks at the number of a device only.
        let device = fs::makedev(meta.device.0, meta.device.1);
        let made = self.make(path, |parent, name| {
            fs::mknodat(parent, name, kind, Mode::RUSR | Mode::WUSR, device)
        });
        match made {
            Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => {
                kept.specials += 1;
                Ok(false)
            }
            made => made.map(|()| true),
        }
    }

    /// Sets owner, attributes, mode and times of what is complete, whatever it is.
    ///
    /// A change of owner removes capabilities and set-user-ID bits, and every change sets the times:
    /// hence this order.
    pub(super) fn finish(
        &self,
        path: &Path,
        meta: &Metadata,
        attributes: &Attributes,
        kept: &mut Kept,
    ) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        // Its descriptor stands for a link itself, or a device that is not opened. By this name the
        // kernel gets to it, and no further, whatever the last part of `path` is by then.
        let fd = fs::openat(&parent, name, PLACE, Mode::empty())?;
        let this = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        let owned = fs::chown(&this, Some(uid), Some(gid)).is_ok();
        kept.owners += u64::from(!owned);
        for (name, value) in attributes {
            let set = fs::setxattr(&this, OsStr::from_bytes(name), value, XattrFlags::empty());
            kept.attributes += u64::from(set.is_err());
        }
        if meta.file_type != FileType::Symlink {
            fs::chmod(&this, mode(meta, owned, kept))?;
        }
        let spec = |time: Timestamp| Timespec {
            tv_sec: time.seconds,
            tv_nsec: i64::from(time.nanoseconds),
        };
        let (last_access, last_modification) = (spec(meta.accessed), spec(meta.modified));
        let times = Timestamps { last_access, last_modification };
        fs::utimensat(fs::CWD, &this, &times, AtFlags::empty())
    }
}

/// Returns the mode. A program that runs as its owner must not run as another one.
fn mode(meta: &Metadata, owned: bool, kept: &mut Kept) -> Mode {
    let mode = u32::from(meta.mode) & 0o7777;
    if owned || mode & 0o6000 == 0 || meta.file_type == FileType::Directory {
        return Mode::from_raw_mode(mode);
    }
    kept.modes += 1;
    Mode::from_raw_mode(mode & 0o1777)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("leads")).unwrap();
        std::fs::write(outside.join("kept"), "old").unwrap();
        std::os::unix::fs::symlink(outside.join("kept"), inside.join("file")).unwrap();
        for force in [false, true] {
            let target = Target::open(&inside, force).unwrap();
            for path in ["leads/new", "../out/new", "/new", ".."] {
                assert!(target.create(Path::new(path)).is_err(), "{path}");
                assert!(target.make_symlink(Path::new(path), Path::new("x")).is_err(), "{path}");
            }
            assert_eq!(target.create(Path::new("file")).is_ok(), force);
            assert_eq!(target.make_directory(Path::new("leads")).is_ok(), force);
        }
        // The links are removed, their targets are not.
        assert!(inside.join("leads").symlink_metadata().unwrap().is_dir());
        assert!(inside.join("file").symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read(outside.join("kept")).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn what_is_there_stays_without_force() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "old").unwrap();
        let target = Target::open(dir.path(), false).unwrap();
        assert_eq!(target.create(Path::new("a")).err(), Some(Errno::EXIST));
        assert_eq!(target.make_directory(Path::new("a")).err(), Some(Errno::EXIST));
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"old");
    }
}
