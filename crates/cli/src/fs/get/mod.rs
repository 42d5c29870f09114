//! `meantime fs get`: files and directories, out of the file system.

mod target;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use meantime_ext4::{Corruption, Defect, Error, FileSystem, FileType, Metadata, Node};

use super::{CHUNK_BYTES, failed, mount, names, resolve};
use crate::cli::GetArgs;
use crate::failure::{FAILED, Failure};
use crate::signal;

use super::progress::Progress;
use target::{Kept, NewFile, Target};

/// Why something was not copied.
enum Trouble {
    /// It could not be read.
    Source(Error),
    /// It could not be written: where, and why.
    Target(PathBuf, rustix::io::Errno),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Source(error)
    }
}

impl Trouble {
    /// Returns whether the next file would fail, too.
    fn is_final(&self) -> bool {
        use rustix::io::Errno;
        match self {
            Self::Source(error) => matches!(error, Error::Resources(_)),
            Self::Target(_, errno) => {
                matches!(
                    *errno,
                    Errno::NOSPC
                        | Errno::DQUOT
                        | Errno::ROFS
                        | Errno::IO
                        | Errno::MFILE
                        | Errno::NFILE
                )
            }
        }
    }
}

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
    let at = |error| failed(&location, &error);
    let node = resolve(&fs, location.path(), true).map_err(at)?;
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
        kept: Kept::new(),
        buf: vec![0; CHUNK_BYTES],
    };
    let done = getter.everything(node, to, location.path());
    getter.progress.clear();
    done?;
    getter.kept.warn();
    signal::check(None)?;
    getter.progress.report();
    Ok(ExitCode::from(if getter.progress.failures > 0 { FAILED } else { 0 }))
}

/// Opens the directory to copy into, and returns the copy's name in it; an empty name: the contents
/// go there.
fn open_target(
    to: &Path,
    name: Option<OsString>,
    is_directory: bool,
    force: bool,
) -> Result<(Target, PathBuf), Failure> {
    let refused = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::new(format_args!("cannot copy to {}: {error}", path.display()))
    };
    if to.is_dir() {
        // Of the root directory, which has no name, the contents are copied.
        let target = Target::open(to, force).map_err(|error| refused(to, &error))?;
        return Ok((target, name.map(PathBuf::from).unwrap_or_default()));
    }
    if !is_directory && to.as_os_str().as_bytes().ends_with(b"/") {
        return Err(refused(to, &"there is no such directory"));
    }
    let Some(name) = to.file_name() else { return Err(refused(to, &"there is no such directory")) };
    let parent =
        to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let target = Target::open(parent, force).map_err(|error| refused(to, &error))?;
    Ok((target, PathBuf::from(name)))
}

impl Getter<'_> {
    /// Copies `top`, known as `shown`, to `to`, and everything below it. Reports what cannot be
    /// read, and copies the rest.
    fn everything(&mut self, top: Node, to: PathBuf, shown: &Path) -> Result<(), Failure> {
        // A directory has one name. One that occurs again would lead in a circle.
        let mut seen = HashSet::new();
        let mut left = vec![(top, to, shown.to_owned())];
        let mut made: Vec<(Node, PathBuf, PathBuf)> = Vec::new();
        while let Some((node, to, shown)) = left.pop() {
            if signal::stopped() {
                return Ok(());
            }
            self.progress.show(&shown);
            if node.file_type() != FileType::Directory {
                let copied = self.leaf(&node, &to);
                self.count(copied, &shown)?;
                continue;
            }
            if !seen.insert(node.ino()) {
                let damage = Corruption::new(Defect::DirectoryEntry).in_inode(node.ino());
                self.count(Err(Trouble::Source(damage.into())), &shown)?;
                continue;
            }
            let entered =
                if to.as_os_str().is_empty() { Ok(()) } else { self.target.make_directory(&to) };
            if let Err(errno) = entered {
                self.count(Err(Trouble::Target(to, errno)), &shown)?;
                continue;
            }
            let listed = self.list(&node, &to, &shown, &mut left);
            self.count(listed.map_err(Trouble::Source), &shown)?;
            made.push((node, to, shown));
        }
        // New entries change a directory's times, and need write permission: so directories are
        // finished from the innermost outwards.
        while let Some((node, to, shown)) = made.pop() {
            // The destination's own directory is the user's, unless it is a copy.
            if !to.as_os_str().is_empty() {
                let attributes = self.fs.attributes(&node);
                let kept = attributes.map_err(Trouble::Source).and_then(|attributes| {
                    let kept = self.target.finish_directory(
                        &to,
                        &node.metadata(),
                        &attributes,
                        &mut self.kept,
                    );
                    kept.map_err(|errno| Trouble::Target(to, errno))
                });
                self.count(kept, &shown)?;
            }
        }
        Ok(())
    }

    /// Lists the contents of directory `node`, to be copied later. Reports damage; an impossible
    /// name is damage.
    fn list(
        &mut self,
        node: &Node,
        to: &Path,
        shown: &Path,
        left: &mut Vec<(Node, PathBuf, PathBuf)>,
    ) -> Result<(), Error> {
        let mut failures = Vec::new();
        for entry in self.fs.entries(node)? {
            let entry = entry?;
            let name = entry.name.as_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                return Err(Corruption::new(Defect::DirectoryEntry).in_inode(node.ino()).into());
            }
            match self.fs.lookup(node, &entry.name) {
                Ok(child) => left.push((child, to.join(&entry.name), shown.join(&entry.name))),
                Err(error) => failures.push((shown.join(&entry.name), error)),
            }
        }
        for (path, error) in failures {
            self.say(&path, &error);
        }
        Ok(())
    }

    /// Copies anything but a directory.
    fn leaf(&mut self, node: &Node, to: &Path) -> Result<(), Trouble> {
        let meta = node.metadata();
        let at = |errno| Trouble::Target(to.to_owned(), errno);
        if meta.links > 1
            && let Some(first) = self.links.get(&meta.ino)
        {
            self.target.link(first, to).map_err(at)?;
            self.progress.files += 1;
            return Ok(());
        }
        let attributes = self.fs.attributes(node)?;
        match meta.file_type {
            FileType::Regular => {
                let mut new = self.target.create(to).map_err(at)?;
                let copied = self.contents(node, &mut new, to);
                let finished = copied
                    .and_then(|()| new.finish(&meta, &attributes, &mut self.kept).map_err(at));
                if finished.is_err() || signal::stopped() {
                    // A part of a file could be taken for the whole.
                    self.target.remove(to);
                }
                finished?;
            }
            FileType::Symlink => {
                let leads_to = self.fs.read_link_at(node)?;
                self.target.make_symlink(to, &leads_to).map_err(at)?;
                self.target.finish_special(to, &meta, &attributes, &mut self.kept).map_err(at)?;
            }
            _ => {
                if !self.target.make_special(to, &meta, &mut self.kept).map_err(at)? {
                    return Ok(());
                }
                self.target.finish_special(to, &meta, &attributes, &mut self.kept).map_err(at)?;
            }
        }
        if meta.links > 1 {
            self.links.insert(meta.ino, to.to_owned());
        }
        self.progress.files += 1;
        Ok(())
    }

    /// Copies the data of `node`; holes stay holes.
    fn contents(&mut self, node: &Node, new: &mut NewFile, to: &Path) -> Result<(), Trouble> {
        let file = self.fs.open_node(node)?;
        let size = file.size();
        let at = |errno| Trouble::Target(to.to_owned(), errno);
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
                new.write_at(&self.buf[..bytes], offset).map_err(at)?;
                offset += bytes as u64;
                self.progress.copied(bytes, offset);
            }
        }
        new.set_size(size).map_err(at)
    }

    /// Reports the trouble with `shown`. Returns an error if the copy cannot go on.
    fn count(&mut self, done: Result<(), Trouble>, shown: &Path) -> Result<(), Failure> {
        let Err(trouble) = done else { return Ok(()) };
        if trouble.is_final() {
            return Err(match &trouble {
                Trouble::Source(error) => failed(names::harmless(shown.as_os_str()), error),
                Trouble::Target(path, errno) => refused(path, *errno),
            });
        }
        match &trouble {
            Trouble::Source(error) => self.say(shown, error),
            Trouble::Target(path, errno) => self.progress.failed(&refused(path, *errno)),
        }
        Ok(())
    }

    fn say(&mut self, shown: &Path, error: &Error) {
        self.progress.failed(&failed(names::harmless(shown.as_os_str()), error));
    }
}

fn refused(path: &Path, errno: rustix::io::Errno) -> Failure {
    let path = names::harmless(path.as_os_str());
    match errno {
        rustix::io::Errno::EXIST => {
            Failure::new(format_args!("{path} is there already: --force replaces what is there"))
        }
        errno => Failure::new(format_args!("cannot write {path}: {}", std::io::Error::from(errno))),
    }
}

/// Returns the times of `meta`, in the form for a copy.
fn times(meta: &Metadata) -> rustix::fs::Timestamps {
    let spec = |time: meantime_ext4::Timestamp| rustix::fs::Timespec {
        tv_sec: time.seconds,
        tv_nsec: i64::from(time.nanoseconds),
    };
    rustix::fs::Timestamps {
        last_access: spec(meta.accessed),
        last_modification: spec(meta.modified),
    }
}
