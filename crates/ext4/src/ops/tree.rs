//! Ways through a file's extent tree, and nodes that come and go.

use std::ops::Range;
use std::sync::Arc;

use crate::alloc::{Allocator, Want};
use crate::journal::Handle;
use crate::{Corruption, Defect, Error, Unsupported};
use meantime_ext4_format::MappedExtent;
use meantime_ext4_format::edit::{InodeEdit, NodeEdit};
use meantime_ext4_format::extents::{MAX_DEPTH, NodePlace};
use meantime_ext4_format::inode::flags;

/// A node on the way to a block of the file.
#[derive(Debug)]
pub(super) struct Level {
    /// Where the node is; `None`: in the inode.
    pub(super) block: Option<u64>,
    /// The blocks of the file that it is responsible for.
    pub(super) range: Range<u64>,
    /// In an index, the entry that leads on; in a leaf, the first one that begins behind the block.
    pub(super) slot: usize,
    /// Its content.
    pub(super) node: NodeEdit<Arc<[u8]>>,
}

/// A file's extent tree that is being changed.
pub(super) struct Tree<'t, 'h> {
    pub(super) handle: &'t mut Handle<'h>,
    pub(super) allocator: &'t Allocator,
    pub(super) inode: &'t mut InodeEdit,
}

fn wrong(inode: &InodeEdit, defect: Defect, block: Option<u64>) -> Error {
    let corruption = Corruption::new(defect).in_inode(inode.ino());
    block.map_or(corruption, |block| corruption.in_block(block)).into()
}

/// The way to block `logical` of the file of `inode`, which has an extent tree, from the root to a
/// leaf. Each node was checked.
pub(super) fn descend(
    handle: &Handle<'_>,
    inode: &InodeEdit,
    logical: u64,
) -> Result<Vec<Level>, Error> {
    let volume = handle.volume();
    let mut levels = Vec::with_capacity(usize::from(MAX_DEPTH) + 1);
    let (mut block, mut place) = (None, NodePlace::root());
    // Each step is one level down, and the root is at most at level 5.
    loop {
        let bytes = match block {
            None => Arc::from(&inode.block_area()[..]),
            Some(block) => handle.block(block)?,
        };
        let below = {
            // (The root has no checksum.)
            let seed = block.map_or(0, |_| inode.checksum_seed(handle.superblock()));
            let owner = (inode.ino(), seed);
            let checked = volume.checked_node(owner, &bytes, block, place.clone())?;
            checked.child_near(logical)
        };
        let node = NodeEdit::of(bytes).map_err(|defect| wrong(inode, defect, block))?;
        let behind = node.slot_behind(logical);
        let Some((slot, child, next)) = below else {
            levels.push(Level { block, range: place.range, slot: behind, node });
            return Ok(levels);
        };
        levels.push(Level { block, range: place.range, slot, node });
        (block, place) = (Some(child), next);
    }
}

impl<'t, 'h> Tree<'t, 'h> {
    /// The tree of `inode`.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: it has none.
    pub(super) fn of(
        handle: &'t mut Handle<'h>,
        allocator: &'t Allocator,
        inode: &'t mut InodeEdit,
    ) -> Result<Self, Error> {
        if inode.flags() & flags::EXTENTS == 0 || inode.flags() & flags::INLINE_DATA != 0 {
            return Err(Unsupported {
                what: format!("giving blocks to a file without extents (inode {})", inode.ino()),
                advice: "convert it with Linux (chattr +e)",
            }
            .into());
        }
        Ok(Self { handle, allocator, inode })
    }

    fn wrong(&self, defect: Defect, block: Option<u64>) -> Error {
        wrong(self.inode, defect, block)
    }

    /// The way to block `logical` of the file, from the root to a leaf. Each node was checked.
    pub(super) fn descend(&self, logical: u64) -> Result<Vec<Level>, Error> {
        descend(self.handle, self.inode, logical)
    }

    /// Changes the node in `block`, or that in the inode, which is there and was checked.
    pub(super) fn edit<T>(
        &mut self,
        block: Option<u64>,
        work: impl FnOnce(&mut NodeEdit<&mut [u8]>) -> T,
    ) -> Result<T, Error> {
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

    /// Has the file `added` more blocks, or fewer.
    pub(super) fn count(&mut self, added: i64) {
        let superblock = self.handle.superblock();
        let blocks = self.inode.blocks(superblock).saturating_add_signed(added);
        self.inode.set_blocks(superblock, blocks);
    }

    /// A new node without entries, `depth` levels above the leaves, for a file that has data in
    /// block `near`.
    fn new_node(&mut self, depth: u16, parent: Option<u64>, near: u64) -> Result<u64, Error> {
        let superblock = self.handle.superblock();
        // Beside other nodes, or else at the beginning of the group: not where the data will go on.
        let first = superblock.group_start(0);
        let group = near.saturating_sub(first) / superblock.blocks_per_group();
        let goal =
            parent.map_or(first + group * superblock.blocks_per_group(), |parent| parent + 1);
        let want = Want {
            ino: self.inode.ino(),
            goal: Some(goal),
            blocks: 1,
            reservation: None,
            metadata: true,
            node: true,
        };
        let block = self.allocator.blocks(self.handle, want)?.start;
        NodeEdit::format(self.handle.create(block)?, depth);
        self.count(1);
        Ok(block)
    }

    /// Frees the block of a node that is not a part of the tree any more.
    fn free_node(&mut self, block: u64) -> Result<(), Error> {
        self.allocator.free_blocks(self.handle, block..block + 1)?;
        self.handle.forget(block);
        self.count(-1);
        Ok(())
    }

    /// The node `at` on the way begins with block `first` of the file now: says so in those above.
    pub(super) fn set_first(&mut self, path: &[Level], at: usize, first: u32) -> Result<(), Error> {
        for level in path[..at].iter().rev() {
            self.edit(level.block, |node| node.set_first(level.slot, first))?;
            if level.slot != 0 {
                break;
            }
        }
        Ok(())
    }

    /// Makes room in a full leaf, the last on the way, for `extent` behind those before slot
    /// `slot`. One node is split, or the tree grows by a level: there may be no room in the leaf
    /// yet. `true`: `extent` has been put into a leaf of its own.
    pub(super) fn make_room(
        &mut self,
        path: &[Level],
        extent: &MappedExtent,
    ) -> Result<bool, Error> {
        let leaf = path.len() - 1;
        // The one above the node to be split has room for another entry.
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
            // Who always adds at the end leaves full nodes behind.
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

    /// The root's entries move to a node of their own.
    fn grow(&mut self, root: &Level, near: u64) -> Result<(), Error> {
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

    /// Takes the last node on the way, which is empty now, out of the tree, and those above that
    /// have nothing else.
    pub(super) fn remove_leaf(&mut self, path: &[Level]) -> Result<(), Error> {
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

    /// The root takes the entries of its only child, if it has room for them.
    pub(super) fn collapse(&mut self) -> Result<(), Error> {
        loop {
            let area = *self.inode.block_area();
            let root = NodeEdit::of(&area[..]).map_err(Corruption::new)?;
            if root.depth() == 0 || root.len() != 1 {
                return Ok(());
            }
            // Checked on the way.
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
