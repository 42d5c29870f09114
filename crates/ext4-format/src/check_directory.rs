//! Checks a whole directory: that every block is sound, and that every name is where its hash says
//! (e2fsprogs: `e2fsck/pass2.c`).

use std::collections::HashSet;

use super::directory::{Block, Directory};
use super::dirent::Dirents;
use super::htree::{IndexNode, is_between};
use super::inode::Inode;
use super::source::Source;
use super::volume::Volume;
use crate::error::{Defect, Result};

/// A part of the tree that is still to be checked.
struct Subtree {
    /// Block of the directory.
    logical: u32,
    /// The number of levels of nodes below the root's entry that led here, including this one; 0
    /// for a leaf.
    levels: usize,
    /// The lowest hash.
    low: u32,
    /// The upper bound, or `None` if there is none. Its lowest bit is set if that hash itself may
    /// occur here, too.
    high: Option<u32>,
}

impl<S: Source> Volume<S> {
    /// Checks directory `dir` completely: that each block is readable and sound, and that it begins
    /// with `.` and `..`. If the directory has a hash tree, also checks that the tree's entries are
    /// in order, that it points to each block once, and that each name is where its hash is looked
    /// up.
    ///
    /// # Errors
    /// The first defect; [`Error::NotDirectory`](crate::Error::NotDirectory), or an error of the
    /// source.
    pub fn check_index(&self, dir: &Inode) -> Result<()> {
        let ino = dir.ino();
        let dir = Directory::open(self, dir)?;
        if dir.blocks == 0 || self.replayed().names(ino).is_some() {
            // The directory is in its inode, or has replayed names that are in no block, so it is
            // read as a whole.
            self.entries(dir.inode, 0)?;
            return Ok(());
        }
        let first = dir.block(0)?.map_err(|_| dir.corrupt(Defect::DirectoryEntry, None))?;
        let mut dots = Dirents::new(&first.bytes, dir.shape);
        for name in [&b"."[..], b".."] {
            let entry = dots.next().and_then(Result::ok).filter(|entry| {
                entry.name == name && entry.ino != 0 && (name == b".." || entry.ino == ino)
            });
            entry.ok_or_else(|| dir.corrupt(Defect::DirectoryEntry, Some(first.number)))?;
        }
        if dir.is_indexed { check_tree(&dir) } else { check_blocks(&dir) }
    }
}

/// Checks the names of a block. `is_right` says whether a name belongs there.
fn check_names<S: Source>(
    dir: &Directory<'_, S>,
    block: &Block,
    is_right: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    for entry in Dirents::new(&block.bytes, dir.shape) {
        let entry = entry.map_err(|defect| dir.corrupt(defect, Some(block.number)))?;
        if entry.ino != 0 && !is_right(entry.name) {
            return Err(dir.corrupt(Defect::HashTree, Some(block.number)));
        }
    }
    Ok(())
}

fn check_blocks<S: Source>(dir: &Directory<'_, S>) -> Result<()> {
    for logical in 0..dir.blocks {
        let block = dir.block(logical)?.map_err(|_| dir.corrupt(Defect::DirectoryEntry, None))?;
        check_names(dir, &block, |_| true)?;
    }
    Ok(())
}

fn check_tree<S: Source>(dir: &Directory<'_, S>) -> Result<()> {
    let (root, number) = dir.root()?;
    let kind = dir
        .hash_kind(root.hash_version)
        .ok_or_else(|| dir.corrupt(Defect::HashTree, Some(number)))?;
    let mut seen = HashSet::from([0]);
    let mut left = Vec::new();
    push_children(
        dir,
        &root.node,
        number,
        &Subtree { logical: 0, levels: root.levels + 1, low: 0, high: None },
        &mut left,
    )?;
    while let Some(subtree) = left.pop() {
        let bad = |number| dir.corrupt(Defect::HashTree, number);
        if subtree.logical >= dir.blocks || !seen.insert(subtree.logical) {
            return Err(bad(None));
        }
        let block = dir.block(subtree.logical)?.map_err(|_| bad(None))?;
        if subtree.levels == 0 {
            if block.is_index {
                return Err(bad(Some(block.number)));
            }
            let Subtree { low, high, .. } = subtree;
            check_names(dir, &block, |name| is_between(dir.hash(kind, name), low, high))?;
        } else {
            let number = block.number;
            let node = IndexNode::parse(block.bytes, dir.shape).map_err(|_| bad(Some(number)))?;
            push_children(dir, &node, number, &subtree, &mut left)?;
        }
    }
    if seen.len() == dir.blocks as usize {
        Ok(())
    } else {
        Err(dir.corrupt(Defect::HashTree, None))
    }
}

/// Adds the children of `node`, which is the top of `subtree`, in order.
fn push_children<S: Source>(
    dir: &Directory<'_, S>,
    node: &IndexNode,
    number: u64,
    subtree: &Subtree,
    left: &mut Vec<Subtree>,
) -> Result<()> {
    for index in 0..node.count() {
        let low = if index == 0 { subtree.low } else { node.hash(index) };
        let high = if index + 1 < node.count() { Some(node.hash(index + 1)) } else { subtree.high };
        if high.is_some_and(|high| high < low) {
            return Err(dir.corrupt(Defect::HashTree, Some(number)));
        }
        left.push(Subtree { logical: node.child(index), levels: subtree.levels - 1, low, high });
    }
    Ok(())
}
