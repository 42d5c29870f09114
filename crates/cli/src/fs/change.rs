//! `meantime fs rm`, `mv`, `mkdir`, `ln` and `truncate`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use meantime_ext4::{Error, FileSystem, FileType, NewNode, OpenOptions, RenameFlags};

use super::mounted::{change, destination, failed, find, parent, resolve};
use super::names;
use super::walk::{Found, Step, Walk};
use crate::cli::{LnArgs, MkdirArgs, MvArgs, RmArgs, TruncateArgs};
use crate::failure::{Context as _, Failure};
use crate::signal;

/// Returns a new inode that belongs to the user that runs this.
fn new_node(mode: u16) -> NewNode {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    NewNode { mode, uid, gid, umask: 0 }
}

/// Runs `rm`.
pub(super) fn rm(args: &RmArgs) -> Result<ExitCode, Failure> {
    change(&args.location, &args.mount, |fs, location| {
        let (above, name) = parent(fs, location.path()).context(location)?;
        let Some(node) = find(fs, &above, &name).context(location)? else {
            let missing = failed(location, &Error::NotFound);
            return if args.force { Ok(()) } else { Err(missing) };
        };
        if node.file_type() != FileType::Directory {
            return fs.unlink(&above, &name).context(location);
        }
        if !args.recursive {
            return Err(Failure::new(format_args!(
                "{location}: is a directory: remove it with -r"
            )));
        }
        remove_all(fs, Found { path: location.path().to_owned(), above, name, node })
    })
}

/// Removes a directory and everything below it, from the innermost outwards.
fn remove_all(fs: &FileSystem, top: Found) -> Result<(), Failure> {
    let mut walk = Walk::new(fs, false);
    let path = top.path.clone();
    walk.enter(top, true).context(names::harmless(&path))?;
    while let Some(step) = walk.next()
        && !signal::stopped()
    {
        match step {
            Step::Name(found) if found.node.file_type() == FileType::Directory => {
                let path = found.path.clone();
                walk.enter(found, true).context(names::harmless(&path))?;
            }
            Step::Name(Found { path, above, name, .. }) => {
                fs.unlink(&above, &name).context(names::harmless(&path))?;
            }
            Step::End(Found { path, above, name, .. }) => {
                fs.rmdir(&above, &name).context(names::harmless(&path))?;
            }
            Step::Failed(path, error) => return Err(failed(names::harmless(&path), &error)),
        }
    }
    Ok(())
}

/// Runs `mv`.
pub(super) fn mv(args: &MvArgs) -> Result<ExitCode, Failure> {
    absolute(&args.to)?;
    change(&args.location, &args.mount, |fs, location| {
        let to = names::harmless(&args.to);
        let (old, old_name) = parent(fs, location.path()).context(location)?;
        fs.lookup(&old, &old_name).context(location)?;
        let (new, new_name, _) = destination(fs, &args.to, &old_name).context(&to)?;
        let flags = RenameFlags { no_replace: args.no_clobber, ..RenameFlags::default() };
        fs.rename_at(&old, &old_name, &new, &new_name, flags).context(to)
    })
}

fn absolute(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().as_bytes().starts_with(b"/") {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "{}: a path in the file system begins with a slash",
        names::harmless(path)
    )))
}

/// Runs `mkdir`.
pub(super) fn mkdir(args: &MkdirArgs) -> Result<ExitCode, Failure> {
    change(&args.location, &args.mount, |fs, location| {
        if !args.parents {
            let (above, name) = parent(fs, location.path()).context(location)?;
            return fs.mkdir(&above, &name, &new_node(args.mode)).map(drop).context(location);
        }
        let mut path = PathBuf::from("/");
        let mut node = fs.root().context(location)?;
        let mut steps = location.path().components().peekable();
        while let Some(step) = steps.next() {
            match step {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => path.push(name),
                Component::ParentDir | Component::Prefix(_) => {
                    let why = Error::Invalid("`..` is no place to make directories on the way");
                    return Err(failed(location, &why));
                }
            }
            let shown = names::harmless(&path);
            let name = path.file_name().unwrap_or_default();
            node = match find(fs, &node, name).context(&shown)? {
                // A link may lead to a directory.
                Some(_) => fs.resolve(&node, name, true).context(&shown)?,
                None => {
                    let mode = if steps.peek().is_none() { args.mode } else { 0o755 };
                    fs.mkdir(&node, name, &new_node(mode)).context(&shown)?
                }
            };
            if node.file_type() != FileType::Directory {
                return Err(failed(shown, &Error::NotDirectory));
            }
        }
        Ok(())
    })
}

/// Runs `ln`.
pub(super) fn ln(args: &LnArgs) -> Result<ExitCode, Failure> {
    if !args.symbolic {
        absolute(Path::new(&args.target))?;
    }
    change(&args.location, &args.mount, |fs, location| {
        let (above, name) = parent(fs, location.path()).context(location)?;
        if args.symbolic {
            let made = fs.symlink_at(&above, &name, &args.target, &new_node(0o777));
            return made.map(drop).context(location);
        }
        let (there, target) = parent(fs, Path::new(&args.target)).context(location)?;
        let node = fs.lookup(&there, &target).context(names::harmless(&args.target))?;
        fs.link(&node, &above, &name).context(location)
    })
}

/// Runs `truncate`.
pub(super) fn truncate(args: &TruncateArgs) -> Result<ExitCode, Failure> {
    change(&args.location, &args.mount, |fs, location| {
        let node = match resolve(fs, location.path(), true) {
            Ok(node) => node,
            Err(Error::NotFound) if args.no_create => return Ok(()),
            Err(Error::NotFound) => {
                let (above, name) = parent(fs, location.path()).context(location)?;
                fs.create(&above, &name, &new_node(0o644)).context(location)?
            }
            Err(error) => return Err(failed(location, &error)),
        };
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = fs.open_node_with(&node, &options).context(location)?;
        file.set_len(args.size).context(location)
    })
}
