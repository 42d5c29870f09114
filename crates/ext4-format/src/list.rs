//! Lists directories in the order of their names' hashes, where the kernel does so
//! (`fs/ext4/dir.c`: `is_dx_dir`, `ext4_dx_readdir`; `fs/ext4/namei.c`: `ext4_htree_fill_tree`).
//!
//! A byte position is invalid once a leaf was split, which moves its names. A full hash stays valid
//! for as long as the directory exists, in whatever block its names are. So cookies are full hashes
//! even before there is an index: also in an inline directory, and in a directory of one block,
//! which may get an index at any time.

use std::collections::HashSet;

use super::directory::{Directory, DirectoryEntry, Miss};
use super::hash::HashKind;
use super::htree::is_between;
use super::inode::Inode;
use super::source::Source;
use super::volume::Volume;
use crate::error::Result;

/// The cookie after all names (`EXT4_HTREE_EOF_64BIT`).
const END: u64 = i64::MAX as u64;
/// Cookies from here on are hashes; lower ones are bytes of a directory.
const HASHES: u64 = 1 << 32;

/// Returns the cookie of a hash and a minor hash (`hash2pos`).
fn place((hash, minor): (u32, u32)) -> u64 {
    u64::from(hash >> 1) << 32 | u64::from(minor)
}

/// Returns the hash in the cookie `place`.
fn hash_of(place: u64) -> u32 {
    ((place >> 32) as u32) << 1
}

/// Names between two cookies, in no order. Here the `cookie` of each is its own position.
struct Portion {
    kind: HashKind,
    names: Vec<DirectoryEntry>,
    end: u64,
}

impl<S: Source> Volume<S> {
    /// Returns names in directory `dir` from `cookie` on (0, or an entry's), about as many as in
    /// one block, or none at the end.
    ///
    /// Where the kernel lists by hashes this function does too, with the same cookies: with the
    /// feature `dir_index`, in directories that have an index, or one block, or are inline. Then a
    /// name that exists throughout is returned exactly once, whatever is added, removed and renamed
    /// meanwhile. Names with the same full hash share a position, and their cookies, except for the
    /// last one's, lead back to the first of them. `.` and `..` come first. Any other directory is
    /// read block by block, as by [`entries`](Self::entries), and so is one with a malformed index;
    /// its names after the first `bytes` bytes are left out.
    ///
    /// # Errors
    /// [`Error::NotDirectory`](crate::Error::NotDirectory); damage, or an error of the source.
    /// [`Defect::HashTree`](crate::Defect::HashTree) if the index is valid at the start but leads
    /// nowhere later, or to names that belong elsewhere.
    pub fn list(&self, dir: &Inode, cookie: u64, bytes: u64) -> Result<Vec<DirectoryEntry>> {
        let dir = Directory::open(self, dir)?;
        let changed = self.replayed().names(dir.inode.ino());
        let mut from = cookie;
        while from < END {
            let Some(Portion { kind, mut names, end }) = dir.portion(from)? else {
                return if from < bytes { self.entries(dir.inode, from) } else { Ok(Vec::new()) };
            };
            if let Some(changed) = changed {
                names.retain(|entry| !changed.contains_key(&entry.name));
                names.extend(changed.iter().filter_map(|(name, now)| {
                    let ((ino, file_type), cookie) = ((*now)?, dir.place_of(kind, name));
                    let entry = || DirectoryEntry { name: name.clone(), ino, file_type, cookie };
                    (from..end).contains(&cookie).then(entry)
                }));
            }
            if names.is_empty() {
                from = end;
                continue;
            }
            names.sort_by_key(|entry| entry.cookie);
            let mut next = end;
            for entry in names.iter_mut().rev() {
                next = std::mem::replace(&mut entry.cookie, next);
            }
            return Ok(names);
        }
        Ok(Vec::new())
    }
}

impl<S: Source> Directory<'_, S> {
    /// Returns the position of `name` in hash order.
    fn place_of(&self, kind: HashKind, name: &[u8]) -> u64 {
        match name {
            b"." => place((0, 0)),
            b".." => place((2, 0)),
            _ => place(self.full_hash(kind, name)),
        }
    }

    /// Replaces the cookies of `names` by their own positions.
    fn put_in_places(&self, kind: HashKind, names: &mut [DirectoryEntry]) {
        for entry in names {
            entry.cookie = self.place_of(kind, &entry.name);
        }
    }

    /// Returns the names from `from` on, or `None` if the directory is not listed by hashes, so
    /// that a cookie is a byte.
    fn portion(&self, from: u64) -> Result<Option<Portion>> {
        if self.is_indexed {
            return match self.portion_of_tree(from) {
                Ok(portion) => Ok(Some(portion)),
                // All byte cookies lead to the first leaf, so the result is the same for each. No
                // caller then has a hash cookie.
                Err(Miss::Malformed) if from < HASHES => Ok(None),
                Err(miss) => Err(self.no_way_around(miss)),
            };
        }
        let Some(kind) = self.default_hash_kind() else { return Ok(None) };
        let mut names = if self.inode.is_inline() {
            self.inline_entries(0)?
        } else if self.blocks == 1 {
            let mut names = Vec::new();
            if let Ok(block) = self.block(0)? {
                self.collect(&block.bytes, 0, Some(block.number), 0, &mut names)?;
            }
            names
        } else {
            return Ok(None);
        };
        self.put_in_places(kind, &mut names);
        names.retain(|entry| entry.cookie >= from);
        Ok(Some(Portion { kind, names, end: END }))
    }

    /// Returns the names of the leaf that contains `from`, and of the following leaves that
    /// continue its last hash.
    fn portion_of_tree(&self, from: u64) -> Result<Portion, Miss> {
        let mut path = self.descend(|_| hash_of(from))?;
        let kind = path.kind;
        let mut names = Vec::new();
        if from <= place((2, 0)) {
            // `.` and `..` are in the root.
            let root = self.block(0)?.map_err(|_| Miss::Malformed)?;
            self.collect(&root.bytes, 0, Some(root.number), 0, &mut names)?;
            if !names.iter().map(|entry| entry.name.as_slice()).eq([&b"."[..], b".."]) {
                return Err(Miss::Malformed);
            }
            self.put_in_places(kind, &mut names);
        }
        // Each block is at most one leaf. Without this check, a walk over a tree that refers to the
        // same leaf repeatedly would never end.
        let mut leaves = HashSet::new();
        loop {
            let leaf = self.leaf(path.leaf().ok_or(Miss::Malformed)?)?;
            if !leaves.insert(leaf.number) {
                return Err(Miss::Malformed);
            }
            let ((low, high), next) = (path.range().ok_or(Miss::Malformed)?, path.next());
            let old = names.len();
            self.collect(&leaf.bytes, 0, Some(leaf.number), 0, &mut names)?;
            self.put_in_places(kind, &mut names[old..]);
            if !names[old..].iter().all(|entry| is_between(hash_of(entry.cookie), low, high)) {
                return Err(Miss::Malformed);
            }
            match next {
                Some((hash, depth)) if hash & 1 == 1 => self.go_on(&mut path, depth)?,
                _ => {
                    let end = next.map_or(END, |(hash, _)| place((hash, 0)));
                    names.retain(|entry| entry.cookie >= from);
                    return if end > from {
                        Ok(Portion { kind, names, end })
                    } else {
                        Err(Miss::Malformed)
                    };
                }
            }
        }
    }
}
