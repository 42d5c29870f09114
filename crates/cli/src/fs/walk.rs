//! A walk through a directory tree. It does not recurse, since a tree may be deeper than a stack.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use meantime_ext4::{Corruption, Defect, Error, FileSystem, Node};

/// Something with a name.
pub(super) struct Found {
    /// Its whole path.
    pub path: PathBuf,
    /// The directory that it is in.
    pub above: Node,
    /// Its name there.
    pub name: OsString,
    /// Itself.
    pub node: Node,
}

/// A step of a walk.
pub(super) enum Step {
    /// The next name. A directory is walked if the walk is told to [enter](Walk::enter) it.
    Name(Found),
    /// The end of a directory that was entered.
    End(Found),
    /// A name whose file cannot be looked up.
    Failed(PathBuf, Error),
}

/// A walk.
pub(super) struct Walk<'a> {
    fs: &'a FileSystem,
    by_name: bool,
    /// The directories that were entered, from the outermost, and the names left in each.
    levels: Vec<(Found, std::vec::IntoIter<(u32, OsString)>)>,
    /// A directory has one name. One that occurs again would lead in a circle.
    seen: HashSet<u32>,
}

impl<'a> Walk<'a> {
    /// Begins a walk. Each directory is walked in the order of names if `by_name`, otherwise of
    /// inodes. In the latter order each block of inodes is read and changed only once, not once for
    /// each of its files.
    pub(super) fn new(fs: &'a FileSystem, by_name: bool) -> Self {
        Self { fs, by_name, levels: Vec::new(), seen: HashSet::new() }
    }

    /// Enters a directory. After an error what could be read of it is walked.
    pub(super) fn enter(&mut self, found: Found, hidden_too: bool) -> Result<(), Error> {
        let ino = found.node.ino();
        let damage = || Error::from(Corruption::new(Defect::DirectoryEntry).in_inode(ino));
        if !self.seen.insert(ino) {
            return Err(damage());
        }
        let mut names = Vec::new();
        let mut list = || -> Result<(), Error> {
            for entry in self.fs.entries(&found.node)? {
                let entry = entry?;
                match entry.name.as_bytes() {
                    b"." | b".." => continue,
                    [b'.', ..] if !hidden_too => continue,
                    name if name.is_empty() || name.contains(&b'/') || name.contains(&0) => {
                        return Err(damage());
                    }
                    _ => names.push((entry.ino, entry.name)),
                }
            }
            Ok(())
        };
        let listed = list();
        match self.by_name {
            true => names.sort_by(|one, other| one.1.cmp(&other.1)),
            false => names.sort(),
        }
        self.levels.push((found, names.into_iter()));
        listed
    }

    /// Returns the next step, or `None` at the end.
    pub(super) fn next(&mut self) -> Option<Step> {
        let (above, names) = self.levels.last_mut()?;
        let Some((_, name)) = names.next() else {
            return self.levels.pop().map(|(found, _)| Step::End(found));
        };
        let path = above.path.join(&name);
        Some(match self.fs.lookup(&above.node, &name) {
            Ok(node) => Step::Name(Found { path, above: above.node.clone(), name, node }),
            Err(error) => Step::Failed(path, error),
        })
    }
}
