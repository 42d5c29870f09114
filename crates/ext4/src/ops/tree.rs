//! Walks paths through a file's extent tree, and adds and removes nodes.

use std::ops::Range;
use std::sync::Arc;

use crate::alloc::{AllocHandle, Want};
use crate::journal::Handle;
use crate::{Corruption, Defect, Error, Result, Unsupported};
use meantime_ext4_format::MappedExtent;
use meantime_ext4_format::edit::{InodeEdit, NodeEdit};
use meantime_ext4_format::extents::{MAX_DEPTH, NodePlace};
use meantime_ext4_format::inode::flags;

/// A node on the path to a logical block.
#[derive(Debug)]
pub(super) struct Level {
    /// The block of the node, or `None` if the node is in the inode.
    pub(super) block: Option<u64>,
    /// The logical blocks that the node covers.
    pub(super) range: Range<u64>,
    /// In an index, the entry that the path follows; in a leaf, the first entry after the block.
    pub(super) slot: usize,
    /// The node's content.
    pub(super) node: NodeEdit<Arc<[u8]>>,
}

/// An extent tree being changed.
pub(super) struct Tree<'t, 'h, 'a> {
    pub(super) handle: &'t mut AllocHandle<'h, 'a>,
    pub(super) inode: &'t mut InodeEdit,
}

fn wrong(inode: &InodeEdit, defect: Defect, block: Option<u64>) -> Error {
    let corruption = Corruption::new(defect).in_inode(inode.ino());
    block.map_or(corruption, |block| corruption.in_block(block)).into()
}

/// Returns the path from the root of `inode`'s extent tree to the leaf of block `logical`, each
/// node checked.
pub(super) fn descend(handle: &Handle<'_>, inode: &InodeEdit, logical: u64) -> Result<Vec<Level>> {
    let volume = handle.volume();
    let mut levels = Vec::with_capacity(usize::from(MAX_DEPTH) + 1);
    let (mut block, mut place) = (None, NodePlace::root());
    // Each step goes down one level, and the root's depth is at most 5.
    loop {
        let bytes = match block {
            None => Arc::from(&inode.block_area()[..]),
            Some(block) => handle.block(block)?,
        };
        let below = {
            // The root has no checksum.
            let seed = block.map_or(0, |_| inode.checksum_seed(handle.superblock()));
            let owner = (inode.ino(), seed);
            let checked = volume.checked_node(owner, &bytes, block, place.clone())?;
            checked.child_near(logical)
        };
        let node = NodeEdit::of(bytes).map_err(|defect| wrong(inode, defect, block))?;
        let after = node.slot_after(logical);
        let Some((slot, child, next)) = below else {
            levels.push(Level { block, range: place.range, slot: after, node });
            return Ok(levels);
        };
        levels.push(Level { block, range: place.range, slot, node });
        (block, place) = (Some(child), next);
    }
}

impl<'t, 'h, 'a> Tree<'t, 'h, 'a> {
    /// Returns the tree of `inode`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has none.
    pub(super) fn of(
        handle: &'t mut AllocHandle<'h, 'a>,
        inode: &'t mut InodeEdit,
    ) -> Result<Self> {
        if inode.flags() & flags::EXTENTS == 0 || inode.flags() & flags::INLINE_DATA != 0 {
            return Err(Unsupported {
                what: format!("giving blocks to a file without extents (inode {})", inode.ino()),
                advice: "convert it with Linux (chattr +e)",
            }
            .into());
        }
        Ok(Self { handle, inode })
    }

    fn wrong(&self, defect: Defect, block: Option<u64>) -> Error {
        wrong(self.inode, defect, block)
    }

    /// Returns the path from the root to the leaf of block `logical`, with each node checked.
    pub(super) fn descend(&self, logical: u64) -> Result<Vec<Level>> {
        descend(self.handle, self.inode, logical)
    }

    /// Changes the node in `block`, or the root in the inode. The node was checked before.
    pub(super) fn edit<T>(
        &mut self,
        block: Option<u64>,
        work: impl FnOnce(&mut NodeEdit<&mut [u8]>) -> T,
    ) -> Result<T> {
        let wrong = |defect| Corruption::new(defect);
        let Some(block) = block else {
            let mut node = NodeEdit::of(&mut self.inode.block_area_mut()[..]).map_err(wrong)?;
            return Ok(work(&mut node));
        };
        let superblock = self.handle.superblock();
        let seed = superblock.has_checksums().then(|| self.inode.checksum_seed(superblock));
        let mut node = NodeEdit::of(self.handle.edit(block)?).map_err(wrong)?;
        let result = work(&mut node);
        if let Some(seed) = seed {
            node.seal(seed);
        }
        Ok(result)
    }

    /// Adds `added`, which may be negative, to the file's block count.
    pub(super) fn count(&mut self, added: i64) {
        let superblock = self.handle.superblock();
        let blocks = self.inode.blocks(superblock).saturating_add_signed(added);
        self.inode.set_blocks(superblock, blocks);
    }

    /// Allocates an empty node, `depth` levels above the leaves, for a file with data in block
    /// `near`.
    fn new_node(&mut self, depth: u16, parent: Option<u64>, near: u64) -> Result<u64> {
        let superblock = self.handle.superblock();
        // The node goes near other nodes, or else to the start of the group, where the data will
        // not continue.
        let first = superblock.group_start(0);
        let group = near.saturating_sub(first) / superblock.blocks_per_group();
        let goal =
            parent.map_or(first + group * superblock.blocks_per_group(), |parent| parent + 1);
        let want = Want::node(self.inode.ino(), Some(goal));
        let block = self.handle.allocator.blocks(self.handle, want)?.start;
        NodeEdit::format(self.handle.create(block)?, depth);
        self.count(1);
        Ok(block)
    }

    /// Frees the block of a node that was removed from the tree.
    fn free_node(&mut self, block: u64) -> Result<()> {
        self.handle.allocator.free_blocks(self.handle, block..block + 1)?;
        self.handle.forget(block);
        self.count(-1);
        Ok(())
    }

    /// Updates the nodes above node `at` of `path`, which now begins with logical block `first`.
    pub(super) fn set_first(&mut self, path: &[Level], at: usize, first: u32) -> Result<()> {
        for level in path[..at].iter().rev() {
            self.edit(level.block, |node| node.set_first(level.slot, first))?;
            if level.slot != 0 {
                break;
            }
        }
        Ok(())
    }

    /// Makes room in the full leaf at the end of `path` for `extent`, which belongs at the leaf's
    /// `slot`. Splits one node, or adds a level to the tree, so the leaf itself may still be full.
    /// Returns `true` if it put `extent` into a new leaf.
    pub(super) fn make_room(&mut self, path: &[Level], extent: &MappedExtent) -> Result<bool> {
        let leaf = path.len() - 1;
        // The parent of the node to be split has room for another entry.
        let Some(above) = path[..leaf].iter().rposition(|level| !level.node.is_full()) else {
            self.grow(&path[0], extent.physical)?;
            return Ok(false);
        };
        let (parent, level) = (&path[above], &path[above + 1]);
        let (len, depth) = (level.node.len(), level.node.depth());
        let block = self.new_node(depth, level.block, extent.physical)?;
        let appended = above + 1 == leaf && level.slot == len && extent.end() <= level.range.end;
        let first = if appended {
            self.edit(Some(block), |new| new.insert_extent(0, extent))?;
            extent.logical
        } else {
            // Split off only the last entry when a file grows at its end: nodes stay full.
            let at = if above + 1 < leaf && level.slot + 1 == len { len - 1 } else { len / 2 };
            if at == 0 {
                return Err(self.wrong(Defect::ExtentHeader, level.block));
            }
            let mut moved = self.handle.block(block)?;
            let mut new = NodeEdit::of(Arc::make_mut(&mut moved)).map_err(Corruption::new)?;
            self.edit(level.block, |node| node.move_from(at, &mut new))?;
            self.edit(Some(block), |node| new.move_from(0, node))?;
            level.node.first(at)
        };
        self.edit(parent.block, |node| node.insert_child(parent.slot + 1, first, block))?;
        Ok(appended)
    }

    /// Moves the root's entries to a new node.
    fn grow(&mut self, root: &Level, near: u64) -> Result<()> {
        let depth = root.node.depth();
        if depth >= MAX_DEPTH || root.node.is_empty() {
            return Err(self.wrong(Defect::ExtentHeader, None));
        }
        let block = self.new_node(depth, None, near)?;
        let mut area = *self.inode.block_area();
        let mut old = NodeEdit::of(&mut area[..]).map_err(Corruption::new)?;
        let first = old.first(0);
        self.edit(Some(block), |node| old.move_from(0, node))?;
        self.edit(None, |node| {
            node.remove(0..node.len());
            node.set_depth(depth + 1);
            node.insert_child(0, first, block);
        })
    }

    /// Removes the empty leaf at the end of `path` from the tree, with the nodes above it that have
    /// no other child.
    pub(super) fn remove_leaf(&mut self, path: &[Level]) -> Result<()> {
        for (at, level) in path.iter().enumerate().rev() {
            if at + 1 == path.len() {
                let Some(block) = level.block else { return Ok(()) };
                self.free_node(block)?;
                continue;
            }
            self.edit(level.block, |node| node.remove(level.slot..level.slot + 1))?;
            if level.node.len() > 1 {
                if level.slot == 0 {
                    self.set_first(path, at, level.node.first(1))?;
                }
                return Ok(());
            }
            match level.block {
                Some(block) => self.free_node(block)?,
                None => self.edit(None, |node| node.set_depth(0))?,
            }
        }
        Ok(())
    }

    /// Moves the entries of the root's only child into the root while they fit.
    pub(super) fn collapse(&mut self) -> Result<()> {
        loop {
            let area = *self.inode.block_area();
            let root = NodeEdit::of(&area[..]).map_err(Corruption::new)?;
            if root.depth() == 0 || root.len() != 1 {
                return Ok(());
            }
            // `descend` checks the child.
            let path = self.descend(0)?;
            let Some(child) = path.get(1) else { return Ok(()) };
            let Some(block) = child.block.filter(|_| child.node.len() <= root.capacity()) else {
                return Ok(());
            };
            let mut bytes = Vec::from(&self.handle.block(block)?[..]);
            let mut old = NodeEdit::of(&mut bytes[..]).map_err(Corruption::new)?;
            self.edit(None, |node| {
                node.remove(0..1);
                node.set_depth(old.depth());
                old.move_from(0, node);
            })?;
            self.free_node(block)?;
        }
    }
}
