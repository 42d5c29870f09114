//! File systems that are mounted, to read or change them, and what there is at a path.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use meantime_block::{Access, Device, OpenOptions};
use meantime_ext4::{Error, FileSystem, FileType, MountOptions, Node};

use crate::cli::{MountArgs, WriteArgs};
use crate::failure::{Context as _, Failure, named};
use crate::location::Location;
use crate::partitions::with_file_system;
use crate::signal;

/// Bytes read from a file at once.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

pub(super) fn open(uri: &str, access: Access) -> Result<Device, Failure> {
    let options = OpenOptions { access, ..OpenOptions::default() };
    meantime_block::open(uri, &options).map_err(|error| named(uri, &error))
}

/// Mounts the file system on the device of `location`, and returns the parsed `location`.
pub(super) fn mount(location: &OsStr, args: &MountArgs) -> Result<(FileSystem, Location), Failure> {
    let location = Location::parse(location)?;
    let options = MountOptions {
        policy: args.completion,
        cache_bytes: args.cache,
        ignore_checksums: args.ignore_checksums,
        superblock: args.superblock,
        ..MountOptions::default()
    };
    let device = with_file_system(open(&location.device, Access::Read)?)?;
    let fs = FileSystem::mount(device, &options).map_err(Failure::new)?;
    Ok((fs, location))
}

/// Calls `work` to change the file system on the device of `location`. It is unmounted in any case,
/// so all completed changes are durable.
pub(super) fn change(
    location: &OsStr,
    args: &WriteArgs,
    work: impl FnOnce(&FileSystem, &Location) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let location = Location::parse(location)?;
    let options = MountOptions {
        policy: args.completion,
        cache_bytes: args.cache,
        write: true,
        on_wait: Some(crate::mount::tell_of_wait),
        ..MountOptions::default()
    };
    let device = with_file_system(open(&location.device, Access::ReadWrite)?)?;
    let fs = FileSystem::mount(device, &options).map_err(Failure::new)?;
    let done = work(&fs, &location);
    let ended = fs.unmount().context(&location.device);
    // The error of `work` is more useful than the one that follows from it.
    done.and(ended)?;
    Ok(ExitCode::from(signal::exit_code().unwrap_or(0)))
}

/// Returns the node that `path` leads to. A link at its end is followed if `follow`.
pub(super) fn resolve(fs: &FileSystem, path: &Path, follow: bool) -> Result<Node, Error> {
    fs.resolve(&fs.root()?, path, follow)
}

/// Returns the failure for `error`, which occurred at `place`.
pub(super) fn failed(place: impl std::fmt::Display, error: &Error) -> Failure {
    Failure::new(format_args!("{place}: {error}"))
}

/// Returns the directory that `path` is in, and its name there.
pub(super) fn parent(fs: &FileSystem, path: &Path) -> Result<(Node, OsString), Error> {
    let name = path.file_name().ok_or(Error::Invalid("a name is missing, or it is `..`"))?;
    let above = path.parent().unwrap_or(Path::new("/"));
    let parent = resolve(fs, above, true)?;
    if parent.file_type() != FileType::Directory {
        return Err(Error::NotDirectory);
    }
    Ok((parent, name.to_owned()))
}

/// Returns the destination of something named `name` that is to be at `path`: the directory, the
/// name there, and the whole path. If `path` is an existing directory, the destination is inside
/// it.
pub(super) fn destination(
    fs: &FileSystem,
    path: &Path,
    name: &OsStr,
) -> Result<(Node, OsString, PathBuf), Error> {
    match resolve(fs, path, true) {
        Ok(node) if node.file_type() == FileType::Directory => {
            Ok((node, name.to_owned(), path.join(name)))
        }
        Ok(_) | Err(Error::NotFound) => {
            parent(fs, path).map(|(above, name)| (above, name, path.to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// Returns the node with that name, or `None` if there is none.
pub(super) fn find(fs: &FileSystem, parent: &Node, name: &OsStr) -> Result<Option<Node>, Error> {
    match fs.lookup(parent, name) {
        Ok(node) => Ok(Some(node)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
