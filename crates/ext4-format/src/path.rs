//! Resolves a path to an inode (`path_resolution(7)`).

use super::dirent::NAME_BYTES_MAX;
use super::source::Source;
use super::superblock::ROOT_INO;
use super::volume::Volume;
use crate::FileType;
use crate::error::{Error, Result};

/// The longest path, in bytes (`PATH_MAX` without its NUL).
pub const PATH_BYTES_MAX: usize = 4095;
/// The maximum number of symbolic links in a path (`MAXSYMLINKS`).
pub const LINKS_MAX: usize = 40;

/// A directory tree, as far as path resolution needs it.
pub trait Names {
    /// The error of a look-up.
    type Error: From<Error>;

    /// Returns the root directory's inode number.
    fn root(&self) -> u32;

    /// Returns the inode of `name` in directory `dir`, and its type.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotDirectory`] if `dir` is not a directory; damage, or an
    /// error of the source.
    fn child(&self, dir: u32, name: &[u8]) -> Result<(u32, FileType), Self::Error>;

    /// Returns whether inode `ino` is a directory.
    ///
    /// # Errors
    /// Damage, or an error of the source.
    fn is_directory(&self, ino: u32) -> Result<bool, Self::Error>;

    /// Returns the target of symbolic link `ino`.
    ///
    /// # Errors
    /// Damage, or an error of the source.
    fn link_text(&self, ino: u32) -> Result<Vec<u8>, Self::Error>;
}

/// Resolves `path` to an inode, from directory `from` on, or from the root if it begins with a
/// slash. Follows a link at its end if `follow` is set, or a slash comes after it.
///
/// # Errors
/// The errors of `stat(2)`.
pub fn resolve<N: Names>(names: &N, from: u32, path: &[u8], follow: bool) -> Result<u32, N::Error> {
    if path.is_empty() {
        return Err(Error::NotFound.into());
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(Error::NameTooLong.into());
    }
    if path.contains(&0) {
        return Err(Error::Invalid("a path cannot contain a NUL").into());
    }
    let mut links = 0;
    let mut current = if path[0] == b'/' { names.root() } else { from };
    // The rest of the path, with each link replaced by its target.
    let mut rest = path.to_vec();
    loop {
        let begin = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
        let end = rest[begin..]
            .iter()
            .position(|byte| *byte == b'/')
            .map_or(rest.len(), |bytes| begin + bytes);
        let name = &rest[begin..end];
        let is_last = end == rest.len();
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::NameTooLong.into());
        }
        let next = if name.is_empty() || name == b"." {
            // A trailing slash or dot requires a directory.
            if !names.is_directory(current)? {
                return Err(Error::NotDirectory.into());
            }
            current
        } else if name == b".." && current == names.root() {
            current
        } else {
            let (ino, file_type) = names.child(current, name)?;
            if file_type == FileType::Symlink && (follow || !is_last) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::Loop.into());
                }
                let text = names.link_text(ino)?;
                match text.first() {
                    None => return Err(Error::NotFound.into()),
                    Some(b'/') => current = names.root(),
                    Some(_) => {}
                }
                rest.splice(..end, text);
                continue;
            }
            ino
        };
        if is_last {
            return Ok(next);
        }
        current = next;
        rest.drain(..end);
    }
}

impl<S: Source> Names for Volume<S> {
    type Error = Error;

    fn root(&self) -> u32 {
        ROOT_INO
    }

    fn child(&self, dir: u32, name: &[u8]) -> Result<(u32, FileType)> {
        let (ino, file_type) =
            self.lookup(&self.linked_inode(dir)?, name)?.ok_or(Error::NotFound)?;
        let file_type = match file_type {
            Some(file_type) => file_type,
            None => self.linked_inode(ino)?.file_type(),
        };
        Ok((ino, file_type))
    }

    fn is_directory(&self, ino: u32) -> Result<bool> {
        Ok(self.linked_inode(ino)?.file_type() == FileType::Directory)
    }

    fn link_text(&self, ino: u32) -> Result<Vec<u8>> {
        self.read_link(&self.linked_inode(ino)?)
    }
}

impl<S: Source> Volume<S> {
    /// Resolves `path` in this file system, as [`resolve`] does.
    ///
    /// # Errors
    /// The errors of `stat(2)`.
    pub fn resolve(&self, from: u32, path: &[u8], follow: bool) -> Result<u32> {
        resolve(self, from, path, follow)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Names by directory and name; link targets.
    #[derive(Default)]
    struct Tree {
        names: HashMap<(u32, &'static str), (u32, FileType)>,
        links: HashMap<u32, String>,
    }

    impl Names for Tree {
        type Error = Error;

        fn root(&self) -> u32 {
            2
        }

        fn child(&self, dir: u32, name: &[u8]) -> Result<(u32, FileType)> {
            if !self.is_directory(dir)? {
                return Err(Error::NotDirectory);
            }
            self.names
                .get(&(dir, std::str::from_utf8(name).unwrap()))
                .copied()
                .ok_or(Error::NotFound)
        }

        fn is_directory(&self, ino: u32) -> Result<bool> {
            Ok(ino < 10)
        }

        fn link_text(&self, ino: u32) -> Result<Vec<u8>> {
            Ok(self.links[&ino].clone().into_bytes())
        }
    }

    fn tree() -> Tree {
        let mut tree = Tree::default();
        for (dir, name, ino) in [(2, "a", 3), (3, "b", 4), (3, "..", 2), (4, "..", 3), (2, "..", 2)]
        {
            tree.names.insert((dir, name), (ino, FileType::Directory));
        }
        tree.names.insert((4, "file"), (20, FileType::Regular));
        let links = [
            (4, "up", "../b/file"),
            (4, "top", "/a"),
            (4, "self", "self"),
            (4, "slash", "../b/"),
            (4, "dead", "nowhere"),
            (4, "to-file-slash", "file/"),
        ];
        for (ino, (dir, name, text)) in (30..).zip(links) {
            tree.names.insert((dir, name), (ino, FileType::Symlink));
            tree.links.insert(ino, text.to_owned());
        }
        for n in 0..41_u32 {
            let name = String::leak(format!("l{n}"));
            tree.names.insert((2, name), (100 + n, FileType::Symlink));
            let text = if n == 0 { "a".to_owned() } else { format!("l{}", n - 1) };
            tree.links.insert(100 + n, text);
        }
        tree
    }

    #[test]
    fn paths_resolve_as_in_linux() {
        let tree = tree();
        let follow = |path: &str| resolve(&tree, 4, path.as_bytes(), true);
        let expected = [
            ("/", Ok(2)),
            ("//", Ok(2)),
            ("/..", Ok(2)),
            ("/../a/../a/b", Ok(4)),
            (".", Ok(4)),
            ("./", Ok(4)),
            ("..", Ok(3)),
            ("file", Ok(20)),
            ("file/", Err(Error::NotDirectory)),
            ("file/.", Err(Error::NotDirectory)),
            ("file/..", Err(Error::NotDirectory)),
            ("file/x", Err(Error::NotDirectory)),
            ("missing", Err(Error::NotFound)),
            ("missing/x", Err(Error::NotFound)),
            ("", Err(Error::NotFound)),
            ("up", Ok(20)),
            ("up/", Err(Error::NotDirectory)),
            ("top", Ok(3)),
            ("top/b//up", Ok(20)),
            ("slash", Ok(4)),
            ("slash/file", Ok(20)),
            ("to-file-slash", Err(Error::NotDirectory)),
            ("self", Err(Error::Loop)),
            ("dead", Err(Error::NotFound)),
            ("/l39", Ok(3)),
            ("/l40", Err(Error::Loop)),
            ("a\0b", Err(Error::Invalid("a path cannot contain a NUL"))),
        ];
        for (path, result) in expected {
            assert_eq!(follow(path), result, "{path}");
        }
        let stay = |path: &str| resolve(&tree, 4, path.as_bytes(), false);
        assert_eq!(stay("up"), Ok(30));
        assert_eq!(stay("self"), Ok(32));
        assert_eq!(stay("top/"), Ok(3));
        assert_eq!(stay("up/"), Err(Error::NotDirectory));
        assert_eq!(stay("top/b/top"), Ok(31));
    }

    #[test]
    fn lengths_of_names_and_paths_are_limited() {
        let tree = tree();
        let name = |bytes: usize| resolve(&tree, 4, &vec![b'n'; bytes], true);
        assert_eq!(name(255), Err(Error::NotFound));
        assert_eq!(name(256), Err(Error::NameTooLong));
        assert_eq!(resolve(&tree, 4, &[b'/'; 4095], true), Ok(2));
        assert_eq!(resolve(&tree, 4, &[b'/'; 4096], true), Err(Error::NameTooLong));
    }
}
