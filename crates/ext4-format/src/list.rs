//! Directories listed in the order of their names' hashes, where the kernel does so
//! (`fs/ext4/dir.c`: `is_dx_dir`, `ext4_dx_readdir`; `fs/ext4/namei.c`: `ext4_htree_fill_tree`).
//!
//! A place in a block means nothing once a leaf was split: its names are elsewhere. A full hash is
//! where its names are for as long as the directory lives, in whatever block. So places are full
//! hashes, from before there is an index: in a directory of one block, too, which may get one any
//! time, and in one that is in its inode.

use std::collections::HashSet;

use super::directory::{Directory, DirectoryEntry, Miss};
use super::hash::HashKind;
use super::htree::is_between;
use super::inode::Inode;
use super::source::Source;
use super::volume::Volume;
use crate::error::Result;

/// The place behind all names (`EXT4_HTREE_EOF_64BIT`).
const END: u64 = i64::MAX as u64;
/// From this place on, bytes of a directory are not meant.
const HASHES: u64 = 1 << 32;

/// The place of names with a hash and a minor hash (`hash2pos`).
fn place((hash, minor): (u32, u32)) -> u64 {
    u64::from(hash >> 1) << 32 | u64::from(minor)
}

/// The hash of names from `place` on.
fn hash_of(place: u64) -> u32 {
    ((place >> 32) as u32) << 1
}

/// Names between two places, in no order. For now each one's `cookie` is its own place.
struct Stretch {
    kind: HashKind,
    names: Vec<DirectoryEntry>,
    end: u64,
}

impl<S: Source> Volume<S> {
    /// Names in directory `dir` from `cookie` on (0, or an entry's), about as many as there are in
    /// one block; none at the end.
    ///
    /// Where the kernel goes by hashes it is done here, too, with the same cookies: with the
    /// feature `dir_index`, in directories that have an index, or one block, or are in their
    /// inodes. A name that is there from the first call to the last comes once then, whatever is
    /// added, removed and renamed meanwhile. Names of one full hash have one place: their cookies,
    /// but for the last one's, lead back to the first of them. `.` and `..` come first. Any other
    /// directory is read block after block, as [`entries`](Self::entries) does; so is one with an
    /// index that cannot be made out.
    ///
    /// # Errors
    /// [`Error::NotDirectory`](crate::Error::NotDirectory); damage, or the device.
    /// [`Defect::HashTree`](crate::Defect::HashTree) if the index was good for a beginning,
    /// and then leads nowhere, or to names that belong elsewhere.
    pub fn list(&self, dir: &Inode, cookie: u64) -> Result<Vec<DirectoryEntry>> {
        let dir = Directory::open(self, dir)?;
        let changed = self.replayed().names(dir.inode.ino());
        let mut from = cookie;
        while from < END {
            let Some(Stretch { kind, mut names, end }) = dir.stretch(from)? else {
                return self.entries(dir.inode, from);
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
    /// Where `name` is in the order of hashes.
    fn place_of(&self, kind: HashKind, name: &[u8]) -> u64 {
        match name {
            b"." => place((0, 0)),
            b".." => place((2, 0)),
            _ => place(self.full_hash(kind, name)),
        }
    }

    /// Replaces the cookies of `names` by their own places.
    fn put_in_places(&self, kind: HashKind, names: &mut [DirectoryEntry]) {
        for entry in names {
            entry.cookie = self.place_of(kind, &entry.name);
        }
    }

    /// The names from place `from` on; `None`: the directory is not listed by hashes, and a cookie
    /// is a byte.
    fn stretch(&self, from: u64) -> Result<Option<Stretch>> {
        if self.is_indexed {
            return match self.stretch_of_tree(from) {
                Ok(stretch) => Ok(Some(stretch)),
                // All cookies that are bytes lead to the same leaf, the first, so that this comes
                // out the same for each. No caller has a cookie of a hash then.
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
        Ok(Some(Stretch { kind, names, end: END }))
    }

    /// The names of the leaf that place `from` is in, and of those after it in which its last hash
    /// goes on.
    fn stretch_of_tree(&self, from: u64) -> Result<Stretch, Miss> {
        let mut path = self.descend(|_| hash_of(from))?;
        let kind = path.kind;
        let mut names = Vec::new();
        if from <= place((2, 0)) {
            // `.` and `..` are with the root.
            let root = self.block(0)?.map_err(|_| Miss::Malformed)?;
            self.collect(&root.bytes, 0, Some(root.number), 0, &mut names)?;
            if !names.iter().map(|entry| entry.name.as_slice()).eq([&b"."[..], b".."]) {
                return Err(Miss::Malformed);
            }
            self.put_in_places(kind, &mut names);
        }
        // Each block is one leaf at most: a tree that leads to the same one again and again would
        // have no end, and names without number.
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
                        Ok(Stretch { kind, names, end })
                    } else {
                        Err(Miss::Malformed)
                    };
                }
            }
        }
    }
}
