//! `meantime fs put`: files and directories, into the file system.

mod source;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use meantime_ext4::{
    Error, FileSystem, FileType, NewNode, Node, OpenOptions, RenameFlags, SetAttribute,
    SetMetadata, SetTime, Timestamp,
};

use super::mounted::{CHUNK_BYTES, change, destination, failed, find};
use super::names;
use super::progress::Progress;
use super::trouble::Trouble;
use crate::cli::PutArgs;
use crate::failure::{Context as _, FAILED, Failure, warn};
use crate::signal;
use source::Stretches;

/// Something to copy: its source and destination.
struct Item {
    from: PathBuf,
    metadata: Metadata,
    above: Node,
    name: OsString,
    /// The destination's path, for messages.
    to: PathBuf,
}

/// The state of a copy.
struct Putter<'a> {
    fs: &'a FileSystem,
    force: bool,
    progress: Progress,
    /// The copies of files with several names, by device and inode of the source.
    links: HashMap<(u64, u64), Node>,
    /// Attributes that could not be kept.
    attributes: u64,
    buf: Vec<u8>,
}

/// Runs the command.
pub(super) fn run(args: &PutArgs) -> Result<ExitCode, Failure> {
    let shown = names::harmless(&args.from);
    // The user's own path may be a link. Links below it are not followed.
    let metadata = std::fs::metadata(&args.from).context(&shown)?;
    if metadata.is_dir() && !args.recursive {
        return Err(Failure::new(format_args!("{shown}: is a directory: copy it with -r")));
    }
    let mut failures = 0;
    let code = change(&args.location, &args.mount, |fs, location| {
        let own = args.from.canonicalize().context(&shown)?;
        let own = own.file_name().unwrap_or_default();
        let (above, name, to) = destination(fs, location.path(), own).context(location)?;
        let mut putter = Putter {
            fs,
            force: args.force,
            progress: Progress::new(metadata.is_file().then_some(metadata.len())),
            links: HashMap::new(),
            attributes: 0,
            buf: vec![0; CHUNK_BYTES],
        };
        let from = args.from.clone();
        let done = putter.everything(Item { from, metadata, above, name, to });
        putter.progress.clear();
        done?;
        if putter.attributes > 0 {
            let what = "extended attributes were not kept: the file system has no room for them, \
                        or cannot have them";
            warn(format_args!("{} {what}", putter.attributes));
        }
        failures = putter.progress.failures;
        putter.progress.report();
        Ok(())
    })?;
    Ok(if failures > 0 { ExitCode::from(FAILED) } else { code })
}

impl Putter<'_> {
    /// Copies `top`, and everything below it. Reports what cannot be read, and copies the rest.
    fn everything(&mut self, top: Item) -> Result<(), Failure> {
        let mut left = vec![top];
        // Directories get their times when they are complete.
        let mut made: Vec<(Item, Node)> = Vec::new();
        while let Some(item) = left.pop() {
            if signal::stopped() {
                return Ok(());
            }
            self.progress.show(&item.from);
            if !item.metadata.is_dir() {
                let copied = self.leaf(&item);
                self.count(copied, &item)?;
                continue;
            }
            match self.directory(&item, &mut left) {
                Ok(node) => made.push((item, node)),
                Err(trouble) => self.count(Err(trouble), &item)?,
            }
        }
        // New entries change a directory's times.
        while let Some((item, node)) = made.pop() {
            let kept = self.finish(&item, &node);
            self.count(kept, &item)?;
        }
        Ok(())
    }

    /// Creates a directory, and lists the contents to copy.
    fn directory(&mut self, item: &Item, left: &mut Vec<Item>) -> Result<Node, Trouble> {
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(&item.from)? {
            let path = entry?.path();
            let metadata = std::fs::symlink_metadata(&path)?;
            inside.push((path, metadata));
        }
        let Item { above, name, .. } = item;
        let node = match find(self.fs, above, name)? {
            Some(node) if self.force && node.file_type() == FileType::Directory => node,
            Some(_) => return Err(Error::Exists.into()),
            None => {
                self.fs.mkdir(above, name, &NewNode { mode: 0o700, uid: 0, gid: 0, umask: 0 })?
            }
        };
        for (from, metadata) in inside {
            let name = from.file_name().map(ToOwned::to_owned).unwrap_or_default();
            let to = item.to.join(&name);
            left.push(Item { from, metadata, above: node.clone(), name, to });
        }
        Ok(node)
    }

    /// Copies anything but a directory. An existing file stays until the new one is complete.
    fn leaf(&mut self, item: &Item) -> Result<(), Trouble> {
        match find(self.fs, &item.above, &item.name)? {
            None => drop(self.make(item, &item.name)?),
            Some(_) if !self.force => return Err(Error::Exists.into()),
            Some(there) if there.file_type() == FileType::Directory => {
                return Err(Error::IsDirectory.into());
            }
            Some(_) => self.replace(item)?,
        }
        Ok(())
    }

    /// Creates the file under a temporary name, and renames it when it is on the disk.
    fn replace(&mut self, item: &Item) -> Result<(), Trouble> {
        let Item { above, name, .. } = item;
        // The name is new: only this process changes the file system, and a file that a crash has
        // left has the name of an earlier time.
        let now = UNIX_EPOCH.elapsed().unwrap_or_default();
        let temporary = OsString::from(format!(".meantime-put-{}", now.as_nanos()));
        let made = self.make(item, &temporary).and_then(|made| {
            let Some(node) = made else { return Ok(()) };
            self.fs.sync_node(&node)?;
            Ok(self.fs.rename_at(above, &temporary, above, name, RenameFlags::default())?)
        });
        // The file is incomplete, or it is a link to the inode that already has `name`.
        if find(self.fs, above, &temporary)?.is_some() {
            self.fs.unlink(above, &temporary)?;
        }
        made
    }

    /// Creates `name`, which does not exist. Returns `None` if the user has stopped it, and nothing
    /// was created.
    fn make(&mut self, item: &Item, name: &OsStr) -> Result<Option<Node>, Trouble> {
        let Item { from, metadata, above, .. } = item;
        let key = (metadata.dev(), metadata.ino());
        if let Some(first) = self.links.get(&key) {
            self.fs.link(first, above, name)?;
            self.progress.files += 1;
            return Ok(Some(first.clone()));
        }
        // Only root can use the file until it is complete.
        let new = NewNode { mode: 0o600, uid: 0, gid: 0, umask: 0 };
        let kind = metadata.file_type();
        let node = if kind.is_file() {
            let node = self.fs.create(above, name, &new)?;
            let copied = self.contents(from, &node);
            if copied.is_err() || signal::stopped() {
                // A part of a file could be taken for the whole.
                self.fs.unlink(above, name)?;
                return copied.map(|()| None);
            }
            node
        } else if kind.is_symlink() {
            let target = std::fs::read_link(from)?;
            self.fs.symlink_at(above, name, target.as_os_str(), &new)?
        } else {
            let file_type = match kind {
                kind if kind.is_fifo() => FileType::Fifo,
                kind if kind.is_socket() => FileType::Socket,
                kind if kind.is_block_device() => FileType::Block,
                _ => FileType::Character,
            };
            let device = metadata.rdev();
            let device = (rustix::fs::major(device), rustix::fs::minor(device));
            self.fs.mknod(above, name, &new, file_type, device)?
        };
        self.finish(item, &node)?;
        if metadata.nlink() > 1 {
            self.links.insert(key, node.clone());
        }
        self.progress.files += 1;
        Ok(Some(node))
    }

    /// Copies the data of `from`. Holes stay holes.
    fn contents(&mut self, from: &Path, node: &Node) -> Result<(), Trouble> {
        let mut source = Stretches::open(from)?;
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = self.fs.open_node_with(node, &options)?;
        while let Some((mut offset, end)) = source.next()? {
            while offset < end && !signal::stopped() {
                let bytes = (end - offset).min(self.buf.len() as u64) as usize;
                let bytes = source.read(&mut self.buf[..bytes], offset)?;
                if bytes == 0 {
                    break;
                }
                let mut written = 0;
                while written < bytes {
                    match file.write_at(&self.buf[written..bytes], offset + written as u64)? {
                        0 => return Err(Error::NoSpace.into()),
                        some => written += some,
                    }
                }
                offset += bytes as u64;
                self.progress.copied(bytes, offset);
            }
        }
        // A hole at the end.
        let bytes = source.bytes()?;
        if file.size() < bytes {
            file.set_len(bytes)?;
        }
        Ok(())
    }

    /// Sets owner, attributes, mode and times.
    fn finish(&mut self, Item { from, metadata, .. }: &Item, node: &Node) -> Result<(), Trouble> {
        let fs = self.fs;
        // First, since a change of owner removes privileges from the attributes.
        let owner = SetMetadata {
            uid: Some(metadata.uid()),
            gid: Some(metadata.gid()),
            ..SetMetadata::default()
        };
        fs.set_metadata(node, &owner)?;
        let is_link = metadata.file_type().is_symlink();
        for (name, value) in source::attributes(from)? {
            match fs.set_attribute(node, name.as_bytes(), &value, SetAttribute::Any) {
                Ok(()) => {}
                // The file's data fit, or they would have failed before.
                Err(
                    Error::NoSpace
                    | Error::Unsupported(_)
                    | Error::NotPermitted
                    | Error::Range
                    | Error::TooBig,
                ) => {
                    self.attributes += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let time = |seconds, nanoseconds: i64| {
            Some(SetTime::To(Timestamp { seconds, nanoseconds: nanoseconds as u32 }))
        };
        let rest = SetMetadata {
            mode: (!is_link).then_some((metadata.mode() & 0o7777) as u16),
            accessed: time(metadata.atime(), metadata.atime_nsec()),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            ..SetMetadata::default()
        };
        fs.set_metadata(node, &rest)?;
        Ok(())
    }

    /// Reports the trouble with `item`, under the name of the side where it occurred. Returns an
    /// error if the copy cannot go on, because the next file would fail, too.
    fn count(&mut self, done: Result<(), Trouble>, item: &Item) -> Result<(), Failure> {
        let Err(trouble) = done else { return Ok(()) };
        let (from, to) = (names::harmless(&item.from), names::harmless(&item.to));
        let failure = match &trouble {
            Trouble::Outside(error) => Failure::new(format_args!("{from}: {error}")),
            Trouble::Inside(Error::Exists) => {
                Failure::new(format_args!("{to}: is there already: --force replaces what is there"))
            }
            Trouble::Inside(Error::IsDirectory) => Failure::new(format_args!(
                "{to}: is a directory there: remove it first (meantime fs rm -r)"
            )),
            Trouble::Inside(error) => failed(format_args!("{from}: not copied to {to}"), error),
        };
        let is_final = matches!(
            trouble,
            Trouble::Inside(
                Error::NoSpace
                    | Error::Aborted
                    | Error::Taken(_)
                    | Error::ReadOnly
                    | Error::Io(_)
                    | Error::Resources(_)
            )
        );
        self.progress.failed(failure, is_final)
    }
}
