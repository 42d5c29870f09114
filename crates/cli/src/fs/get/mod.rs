//! `meantime fs get`: files and directories, out of the file system.

mod target;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use meantime_ext4::{Error, FileSystem, FileType, Node};
use rustix::io::Errno;

use super::mounted::{CHUNK_BYTES, failed, mount, resolve};
use super::names;
use crate::cli::GetArgs;
use crate::failure::{Context as _, FAILED, Failure};
use crate::signal;

use super::progress::Progress;
use super::trouble::Trouble;
use super::walk::{Found, Step, Walk};
use target::{Kept, Target};

/// Errors of the destination that the next file would have, too.
const FINAL: [Errno; 6] =
    [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO, Errno::MFILE, Errno::NFILE];

/// The source, the destination, and the progress of a copy.
struct Getter<'a> {
    fs: &'a FileSystem,
    target: Target,
    progress: Progress,
    /// The copy of the first link of an inode with several links.
    links: HashMap<u32, PathBuf>,
    kept: Kept,
    buf: Vec<u8>,
}

/// Runs the command.
pub(super) fn run(args: &GetArgs) -> Result<ExitCode, Failure> {
    let (fs, location) = mount(&args.location, &args.mount)?;
    let node = resolve(&fs, location.path(), true).context(&location)?;
    let is_directory = node.file_type() == FileType::Directory;
    if is_directory && !args.recursive {
        return Err(Failure::new(format_args!("{location}: is a directory: copy it with -r")));
    }
    let name = location.path().file_name().map(ToOwned::to_owned);
    let (target, to) = open_target(&args.to, name, is_directory, args.force)?;
    let mut getter = Getter {
        fs: &fs,
        target,
        progress: Progress::new((!is_directory).then(|| node.metadata().size)),
        links: HashMap::new(),
        kept: Kept::default(),
        buf: vec![0; CHUNK_BYTES],
    };
    let (path, name) = (location.path().to_owned(), OsString::new());
    let done = getter.everything(Found { path, above: node.clone(), name, node }, &to);
    getter.progress.clear();
    done?;
    getter.kept.warn();
    signal::check(None)?;
    getter.progress.report();
    Ok(ExitCode::from(if getter.progress.failures > 0 { FAILED } else { 0 }))
}

/// Opens the directory to copy into, and returns the copy's name in it. If the name is empty, the
/// contents are copied into the directory itself.
fn open_target(
    to: &Path,
    name: Option<OsString>,
    is_directory: bool,
    force: bool,
) -> Result<(Target, PathBuf), Failure> {
    let shown = to.display();
    let missing =
        || Failure::new(format_args!("cannot copy to {shown}: there is no such directory"));
    let open = |dir| Target::open(dir, force).context(format_args!("cannot copy to {shown}"));
    if to.is_dir() {
        // The root directory has no name, so its contents are copied.
        return Ok((open(to)?, name.map(PathBuf::from).unwrap_or_default()));
    }
    if !is_directory && to.as_os_str().as_bytes().ends_with(b"/") {
        return Err(missing());
    }
    let name = to.file_name().ok_or_else(missing)?;
    let parent =
        to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((open(parent)?, PathBuf::from(name)))
}

impl Getter<'_> {
    /// Copies `top` to `to`, and everything below it. Reports what cannot be read, and copies the
    /// rest.
    fn everything(&mut self, top: Found, to: &Path) -> Result<(), Failure> {
        let begin = top.path.clone();
        let to_of = |found: &Found| match found.path.strip_prefix(&begin) {
            Ok(inside) if !inside.as_os_str().is_empty() => to.join(inside),
            _ => to.to_owned(),
        };
        let mut walk = Walk::new(self.fs, false);
        let mut step = Some(Step::Name(top));
        while let Some(this) = step
            && !signal::stopped()
        {
            match this {
                Step::Name(found) => {
                    let (to, shown) = (to_of(&found), found.path.clone());
                    self.progress.show(&shown);
                    let done = if found.node.file_type() == FileType::Directory {
                        self.directory(&to).and_then(|()| Ok(walk.enter(found, true)?))
                    } else {
                        self.leaf(&found.node, &to)
                    };
                    self.count(done, &shown, &to)?;
                }
                Step::Failed(shown, error) => self.count(Err(error.into()), &shown, to)?,
                // New entries change a directory's times, and need write permission: so it is
                // finished after what is in it.
                Step::End(found) => {
                    let to = to_of(&found);
                    let kept = self.finish(&found.node, &to);
                    self.count(kept, &found.path, &to)?;
                }
            }
            step = walk.next();
        }
        Ok(())
    }

    fn directory(&mut self, to: &Path) -> Result<(), Trouble> {
        if !to.as_os_str().is_empty() {
            self.target.make_directory(to)?;
        }
        Ok(())
    }

    /// Gives the copy at `to` all that `node` has except its data.
    fn finish(&mut self, node: &Node, to: &Path) -> Result<(), Trouble> {
        // The destination's own directory is the user's, unless it is a copy.
        if !to.as_os_str().is_empty() {
            let attributes = self.fs.attributes(node)?;
            self.target.finish(to, &node.metadata(), &attributes, &mut self.kept)?;
        }
        Ok(())
    }

    /// Copies anything but a directory.
    fn leaf(&mut self, node: &Node, to: &Path) -> Result<(), Trouble> {
        let meta = node.metadata();
        if meta.links > 1
            && let Some(first) = self.links.get(&meta.ino)
        {
            self.target.link(first, to)?;
            self.progress.files += 1;
            return Ok(());
        }
        let copied = match meta.file_type {
            FileType::Regular => {
                let new = self.target.create(to)?;
                self.contents(node, &new)
            }
            FileType::Symlink => {
                let leads_to = self.fs.read_link_at(node)?;
                self.target.make_symlink(to, &leads_to)?;
                Ok(())
            }
            _ if self.target.make_special(to, &meta, &mut self.kept)? => Ok(()),
            _ => return Ok(()),
        };
        let finished = copied.and_then(|()| self.finish(node, to));
        if finished.is_err() || signal::stopped() {
            // A part of a file could be taken for the whole.
            self.target.remove(to);
        }
        finished?;
        if meta.links > 1 {
            self.links.insert(meta.ino, to.to_owned());
        }
        self.progress.files += 1;
        Ok(())
    }

    /// Copies the data of `node`. Holes stay holes.
    fn contents(&mut self, node: &Node, new: &File) -> Result<(), Trouble> {
        let file = self.fs.open_node(node)?;
        let size = file.size();
        for segment in file.segments()? {
            if !segment.kind.is_data() {
                continue;
            }
            let (mut offset, end) =
                (segment.offset, segment.offset.saturating_add(segment.bytes).min(size));
            while offset < end && !signal::stopped() {
                let bytes = (end - offset).min(self.buf.len() as u64) as usize;
                let bytes = file.read_at(&mut self.buf[..bytes], offset)?;
                if bytes == 0 {
                    break;
                }
                new.write_all_at(&self.buf[..bytes], offset)?;
                offset += bytes as u64;
                self.progress.copied(bytes, offset);
            }
        }
        Ok(new.set_len(size)?)
    }

    /// Reports the trouble with `shown`, which is copied to `to`. Returns an error if the copy
    /// cannot go on, because the next file would fail, too.
    fn count(&mut self, done: Result<(), Trouble>, shown: &Path, to: &Path) -> Result<(), Failure> {
        let Err(trouble) = done else { return Ok(()) };
        let to = names::harmless(to);
        let (failure, is_final) = match trouble {
            Trouble::Inside(error) => {
                (failed(names::harmless(shown), &error), matches!(error, Error::Resources(_)))
            }
            Trouble::Outside(error) if error.kind() == ErrorKind::AlreadyExists => {
                let what = "is there already: --force replaces what is there";
                (Failure::new(format_args!("{to} {what}")), false)
            }
            Trouble::Outside(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                let is_final = FINAL.contains(&errno);
                (Failure::new(format_args!("cannot write {to}: {error}")), is_final)
            }
        };
        self.progress.failed(failure, is_final)
    }
}
