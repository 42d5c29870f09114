//! Checks directories, and everything they name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::repeated::NameHashes;
use super::{Checker, Step};
use crate::inode::flags;
use crate::path::PATH_BYTES_MAX;
use crate::{Defect, FileType};
use crate::{DirectoryEntry, Inode, ROOT_INO, Source};

impl<S: Source> Checker<'_, S> {
    /// Checks the root directory, and everything below it.
    pub(super) fn names_from_root(&mut self) -> Step {
        let root = self.volume.inode(ROOT_INO);
        let path = Path::new("/");
        let Some(root) = self.sound(root, Some(ROOT_INO), Some(path))? else { return Ok(()) };
        if root.file_type() != FileType::Directory || root.is_free() {
            return self.wrong(Defect::InodeField("type"), ROOT_INO, Some(path));
        }
        self.seen.insert(u64::from(ROOT_INO));
        self.visit(&root, Some(path))?;
        self.below(root, path.to_owned(), Some(ROOT_INO))
    }

    /// Checks directory `top`, whose inode was visited, and everything below it. `parent` is its
    /// parent, if known.
    pub(super) fn below(&mut self, top: Inode, path: PathBuf, parent: Option<u32>) -> Step {
        // Each entry is a directory: its number, its parent's path, its name, and its parent.
        let mut left = vec![(top.ino(), Rc::<Path>::from(path), OsString::new(), parent)];
        while let Some((ino, above, name, parent)) = left.pop() {
            let path: Rc<Path> = match above.as_os_str().len() + name.len() {
                _ if name.is_empty() => above,
                // The directory is too deep to be reached by a path.
                PATH_BYTES_MAX.. => unnamed(ino).into(),
                _ => above.join(name).into(),
            };
            let Some(directory) = self.inode(ino, Some(&path))? else { continue };
            let directory = directory.with_stored_names();
            let blocks = self.blocks_within(&directory).unwrap_or(u64::MAX);
            let Some(blocks_left) = self.directory_blocks.checked_sub(blocks) else {
                self.wrong(Defect::InodeField("size"), ino, Some(&path))?;
                continue;
            };
            self.directory_blocks = blocks_left;
            let mut cookie = 0;
            let mut names = NameHashes::default();
            loop {
                let entries = self.volume.entries(&directory, cookie);
                let Some(entries) = self.sound(entries, Some(ino), Some(&path))? else { break };
                // Cookies increase, so the loop ends.
                let Some(next) =
                    entries.last().map(|last| last.cookie).filter(|next| *next > cookie)
                else {
                    break;
                };
                cookie = next;
                for entry in entries {
                    self.tick()?;
                    names.add(&entry.name);
                    let dots = match entry.name.as_slice() {
                        b"." => Some(Some(ino)),
                        b".." => Some(parent),
                        _ => None,
                    };
                    if let Some(expected) = dots {
                        self.links.add_name(entry.ino);
                        if expected.is_some_and(|expected| expected != entry.ino) {
                            self.wrong(Defect::DirectoryParent, ino, Some(&path))?;
                        }
                        continue;
                    }
                    let below = match directory.has_encrypted_names() {
                        // The entry's bytes are not a name that a program has given.
                        true => unnamed(entry.ino),
                        false => path.join(OsStr::from_bytes(&entry.name)),
                    };
                    let Some(file_type) = self.named(entry.ino, ino, &below)? else { continue };
                    if directory.has_encrypted_names() && !self.is_encrypted(&entry) {
                        self.wrong(Defect::DirectoryEntry, entry.ino, Some(&below))?;
                    }
                    if entry.file_type.is_some_and(|says| says != file_type.0) {
                        self.wrong(Defect::DirectoryEntry, ino, Some(&path))?;
                    }
                    match file_type {
                        (FileType::Directory, true) if directory.has_encrypted_names() => {
                            left.push((entry.ino, below.into(), OsString::new(), Some(ino)));
                        }
                        (FileType::Directory, true) => {
                            let name = OsString::from_vec(entry.name);
                            left.push((entry.ino, Rc::clone(&path), name, Some(ino)));
                        }
                        // A directory has only one name.
                        (FileType::Directory, false) => {
                            self.wrong(Defect::DirectoryNames, entry.ino, Some(&below))?;
                        }
                        _ => {}
                    }
                }
            }
            self.repeated_names(&directory, &path, names)?;
            if directory.has(flags::INDEX) {
                self.sound(self.volume.check_index(&directory), Some(ino), Some(&path))?;
            }
        }
        Ok(())
    }

    /// Returns whether `entry` can be that of an encrypted directory. There, a name is at least a
    /// block of the cipher, and files, directories and links below it are encrypted, too.
    fn is_encrypted(&self, entry: &DirectoryEntry) -> bool {
        const NAME_BYTES_MIN: usize = 16;
        entry.name.len() >= NAME_BYTES_MIN
            && self.volume.inode(entry.ino).is_ok_and(|inode| {
                inode.has(flags::ENCRYPT)
                    || !matches!(
                        inode.file_type(),
                        FileType::Regular | FileType::Directory | FileType::Symlink
                    )
            })
    }

    /// Handles a name of `ino`. Returns its type, and whether it is new, or `None` if the inode
    /// cannot be read or is not in use.
    fn named(&mut self, ino: u32, directory: u32, path: &Path) -> Step<Option<(FileType, bool)>> {
        let superblock = self.volume.superblock();
        if ino == 0 || ino > superblock.inodes() || ino < superblock.first_ino() && ino != ROOT_INO
        {
            return self.wrong(Defect::InodeNumber, directory, path.parent()).map(|()| None);
        }
        self.links.add_name(ino);
        let is_new = self.seen.insert(u64::from(ino));
        let Some(inode) = (match is_new {
            true => self.inode(ino, Some(path))?,
            // The inode's defect was reported when it was first reached.
            false => match self.volume.inode(ino) {
                Err(crate::Error::Corrupt(_)) => None,
                inode => self.sound(inode, Some(ino), Some(path))?,
            },
        }) else {
            return Ok(None);
        };
        if inode.is_free() {
            return self.wrong(Defect::InodeFree, ino, Some(path)).map(|()| None);
        }
        if is_new {
            self.visit(&inode, Some(path))?;
        }
        Ok(Some((inode.file_type(), is_new)))
    }

    /// Counts directory `ino`, if its group's count includes it or did so before fast commits.
    fn count_directory(&mut self, ino: u32) {
        if !self.is_changed_by_replay(ino) {
            let group = (ino - 1) / self.volume.superblock().inodes_per_group();
            *self.directories.entry(group).or_default() += 1;
        }
    }

    /// Checks `inode`, except for the content of directories.
    pub(super) fn visit(&mut self, inode: &Inode, path: Option<&Path>) -> Step {
        let ino = inode.ino();
        self.tick()?;
        self.summary.inodes += 1;
        let links = self.links.of(ino);
        links.says = inode.metadata().links.try_into().unwrap_or(u16::MAX);
        links.is_directory = inode.file_type() == FileType::Directory;
        match inode.file_type() {
            FileType::Directory => {
                self.summary.directories += 1;
                self.count_directory(ino);
            }
            FileType::Regular => self.summary.files += 1,
            FileType::Symlink => self.summary.symlinks += 1,
            _ => self.summary.others += 1,
        }
        self.fields_of(inode, path)?;
        self.blocks_of(inode, path, false)?;
        self.sound(self.volume.attributes(inode), Some(ino), path)?;
        match inode.file_type() {
            FileType::Symlink => {
                self.sound(self.volume.whole_link(inode), Some(ino), path)?;
            }
            FileType::Regular if inode.is_inline() => {
                self.sound(self.volume.inline_data(inode), Some(ino), path)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Compares each inode's link count with its names.
    pub(super) fn link_counts(&mut self) -> Step {
        let many =
            self.volume.superblock().features().names().iter().any(|name| name == "dir_nlink");
        let differ: Vec<u32> = self
            .links
            .iter()
            .filter(|(ino, links)| links.says > 0 && self.seen.contains(u64::from(*ino)))
            // A directory with too many links for the field has a count of 1, which stays when
            // there are fewer links.
            .filter(|(_, links)| !(links.is_directory && many && links.says == 1))
            .filter(|(_, links)| u32::from(links.says) != links.found)
            .map(|(ino, _)| ino)
            .collect();
        for ino in differ {
            self.wrong(Defect::LinkCount, ino, None)?;
        }
        Ok(())
    }
}

/// Returns the displayed name of an inode without a name.
pub(super) fn unnamed(ino: u32) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(format!("<{ino}>").as_bytes()))
}
