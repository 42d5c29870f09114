//! Adds, removes and converts the blocks of a file.

use std::ops::Range;

use super::block_map;
use super::progress::{MAX_FREED, Progress, weight};
use super::tree::{Level, Tree};
use crate::alloc::AllocHandle;
use crate::journal::{Handle, may_record_blocks};
use crate::{Corruption, Defect, Error, FileType, Result};
use meantime_ext4_format::MappedExtent;
use meantime_ext4_format::edit::{InodeEdit, NodeEdit, max_blocks};
use meantime_ext4_format::extents::LOGICAL_BLOCKS;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::journal::fast_commit::Change;

/// The exclusive upper bound of logical block numbers (EXT_MAX_BLOCKS).
pub const MAX_LOGICAL: u32 = u32::MAX;
/// The bytes of a tree's root that hold its number of entries (`eh_entries`).
const ROOT_ENTRIES: Range<usize> = 2..4;
/// Returns the end of a range of logical blocks. [`MAX_LOGICAL`] means every block that can be
/// encoded, even one beyond that bound.
fn end_of(range: &Range<u32>) -> u64 {
    if range.end == MAX_LOGICAL { LOGICAL_BLOCKS } else { u64::from(range.end) }
}

/// Returns the part of `extent` that maps `logical`, a range within it.
fn part(extent: &MappedExtent, logical: Range<u64>) -> MappedExtent {
    MappedExtent {
        logical: logical.start as u32,
        blocks: (logical.end - logical.start) as u32,
        physical: extent.physical + (logical.start - u64::from(extent.logical)),
        unwritten: extent.unwritten,
    }
}

/// Maps the allocated blocks of `extent` into a hole of `inode`'s file. Updates `i_blocks`. The
/// caller sets `i_size` and stores the inode.
///
/// # Errors
/// [`Error::NoSpace`] for nodes of the tree; [`Error::FileTooBig`]; [`Error::Unsupported`] for
/// files without extents; [`Error::Invalid`] if blocks are mapped there already; damage.
pub fn insert(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    extent: MappedExtent,
) -> Result<()> {
    let superblock = handle.superblock();
    if extent.end() > u64::from(MAX_LOGICAL) {
        return Err(Error::FileTooBig);
    }
    if !superblock.holds(extent.physical, u64::from(extent.blocks)) {
        return Err(Corruption::new(Defect::BlockPointer).in_inode(inode.ino()).into());
    }
    let mut tree = Tree::of(handle, inode)?;
    tree.count(i64::from(extent.blocks));
    tree.insert(&extent)?;
    record(handle, inode, &extent);
    Ok(())
}

/// Records for fast commits that `extent` is now mapped in the file of `inode`.
fn record(handle: &mut Handle<'_>, inode: &InodeEdit, extent: &MappedExtent) {
    let (ino, first, blocks) = (inode.ino(), extent.logical, extent.blocks);
    let range =
        Change::AddRange { ino, first, blocks, at: extent.physical, unwritten: extent.unwritten };
    record_range(handle, inode, range);
}

/// Records mapping change `range` of `inode` for fast commits if the whole tree is in the inode.
/// For a larger tree, e2fsck 1.47.0 frees the nodes when it replays one range. It then takes blocks
/// for the new nodes that it believes to be free, including those that a later range gives to a
/// file (rule 21). A tree that moved out of its inode, or back into it, has allocated or freed a
/// block.
fn record_range(handle: &mut Handle<'_>, inode: &InodeEdit, range: Change) {
    if may_record_blocks(inode) {
        handle.record(range);
    } else {
        handle.fast_ineligible();
    }
}

impl Tree<'_, '_, '_> {
    /// Inserts `extent` into the tree, and splits it where it exceeds the longest extent.
    fn insert(&mut self, extent: &MappedExtent) -> Result<()> {
        let longest = u64::from(max_blocks(extent.unwritten));
        let mut from = u64::from(extent.logical);
        while from < extent.end() {
            let end = extent.end().min(from + longest);
            self.insert_piece(&part(extent, from..end))?;
            from = end;
        }
        Ok(())
    }

    fn insert_piece(&mut self, piece: &MappedExtent) -> Result<()> {
        // Each turn but the last makes room on one level, so there are at most twice as many turns
        // as levels.
        loop {
            let path = self.descend(u64::from(piece.logical))?;
            let Some((leaf, at)) = path.last().map(|leaf| (leaf, leaf.slot)) else { return Ok(()) };
            let before = at.checked_sub(1).map_or(0, |before| leaf.node.extent(before).end());
            let after =
                if at < leaf.node.len() { u64::from(leaf.node.first(at)) } else { leaf.range.end };
            if before > u64::from(piece.logical) || after < piece.end() {
                return Err(Error::Invalid("the file has blocks there already"));
            }
            let first = leaf.node.len().checked_sub(1).map(|_| leaf.node.first(0));
            let now = self.edit(leaf.block, |node| node.put(at, piece).then(|| node.first(0)))?;
            match now {
                Some(now) if Some(now) == first => return Ok(()),
                Some(now) => return self.set_first(&path, path.len() - 1, now),
                None if self.make_room(&path, piece)? => return Ok(()),
                None => {}
            }
        }
    }
}

/// Unmaps and frees blocks `range` of the file, from the end, with tree nodes that become empty.
/// [`MAX_LOGICAL`] as the end means all blocks. Updates `i_blocks`; the caller stores the inode.
///
/// Returns [`Progress::More`] once it has added `budget` blocks to what `handle` changes. The
/// caller then calls it again for the same range in another change. The file is sound after each
/// change.
///
/// # Errors
/// [`Error::NoSpace`], only where an extent is cut in two; damage.
pub fn remove(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    range: Range<u32>,
    budget: usize,
) -> Result<Progress> {
    let end = end_of(&range);
    if range.is_empty() {
        return Ok(Progress::Done);
    }
    // Logged copies of metadata blocks must not be replayed over their next content.
    let metadata =
        inode.file_type() != Some(FileType::Regular) || inode.flags() & flags::EA_INODE != 0;
    if inode.flags() & flags::INLINE_DATA != 0 {
        return Err(Error::Invalid("the inode's content is not in blocks"));
    }
    if inode.flags() & flags::EXTENTS == 0 {
        return block_map::remove(handle, inode, u64::from(range.start)..end, metadata, budget);
    }
    let mut removal = Removal {
        metadata,
        tree: Tree::of(handle, inode)?,
        range: u64::from(range.start)..end,
        limit: 0,
        freed: 0,
    };
    removal.limit = weight(removal.tree.handle) + budget.max(1);
    let mut progress = Progress::Done;
    while removal.leaf()? {
        if removal.is_spent() {
            progress = removal.rest()?;
            break;
        }
    }
    let any = removal.freed > 0;
    removal.tree.collapse()?;
    if progress == Progress::More {
        // Blocks past the file's end may remain.
        handle.fast_ineligible();
    } else if any && inode.block_area()[ROOT_ENTRIES] == [0; 2] {
        // e2fsck 1.47.0 builds a broken tree from ranges that follow an empty tree, unless they are
        // at the file's beginning.
        handle.fast_ineligible();
    } else if any {
        let blocks = (end - u64::from(range.start)).min(u64::from(u32::MAX - range.start)) as u32;
        let gone = Change::DelRange { ino: inode.ino(), first: range.start, blocks };
        record_range(handle, inode, gone);
    }
    Ok(progress)
}

/// Frees the blocks past the file's size.
pub(super) fn remove_past_end(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    budget: usize,
) -> Result<Progress> {
    let blocks = inode.size().div_ceil(u64::from(handle.superblock().block_bytes()));
    let from = u32::try_from(blocks).unwrap_or(MAX_LOGICAL);
    remove(handle, inode, from..MAX_LOGICAL, budget)
}

struct Removal<'t, 'h, 'a> {
    tree: Tree<'t, 'h, 'a>,
    range: Range<u64>,
    metadata: bool,
    /// The weight at which the removal stops.
    limit: usize,
    freed: usize,
}

impl Removal<'_, '_, '_> {
    fn is_spent(&self) -> bool {
        self.freed >= MAX_FREED || weight(self.tree.handle) >= self.limit
    }

    /// Returns [`Progress::More`] if blocks of the range are still mapped.
    fn rest(&self) -> Result<Progress> {
        let path = self.tree.descend(self.range.end - 1)?;
        let last = path.last().and_then(|leaf| Some(leaf.node.extent(leaf.slot.checked_sub(1)?)));
        let left = last.is_some_and(|last| last.end() > self.range.start);
        Ok(if left { Progress::More } else { Progress::Done })
    }

    /// Frees blocks of the last leaf that maps any of the range. Returns `false` if none does.
    fn leaf(&mut self) -> Result<bool> {
        let path = self.tree.descend(self.range.end - 1)?;
        let Some(leaf) = path.last() else { return Ok(false) };
        let mut bytes = Vec::from(leaf.node.as_bytes());
        let mut node = NodeEdit::of(&mut bytes[..]).map_err(Corruption::new)?;
        let first = (!node.is_empty()).then(|| node.first(0));
        let (mut slot, mut gone, mut rest) = (leaf.slot, leaf.slot..leaf.slot, None);
        let mut any = false;
        while let Some(at) = slot.checked_sub(1) {
            let extent = node.extent(at);
            let mut from = self.range.start.max(u64::from(extent.logical));
            let to = self.range.end.min(extent.end());
            if from >= to {
                break;
            }
            if any && self.is_spent() {
                break;
            }
            if self.metadata {
                let left = self.limit.saturating_sub(weight(self.tree.handle)).max(1);
                from = from.max(to.saturating_sub(left as u64));
            }
            self.free(&part(&extent, from..to))?;
            any = true;
            let (before, after) = (u64::from(extent.logical)..from, to..extent.end());
            match (before.is_empty(), after.is_empty()) {
                (true, true) => gone.start = at,
                (true, false) => node.set_extent(at, &part(&extent, after)),
                (false, _) => {
                    node.set_extent(at, &part(&extent, before));
                    rest = (!after.is_empty()).then(|| part(&extent, after));
                    // The other extents are before the range, or are left for another change.
                    break;
                }
            }
            slot = at;
        }
        if !any {
            return Ok(false);
        }
        // An extent cut at its beginning follows the removed ones, and stays.
        if gone.start < gone.end {
            let kept = gone.end - 1;
            if u64::from(node.first(kept)) >= self.range.end {
                gone.end = kept;
            }
            node.remove(gone);
        }
        self.write_back(&path, leaf, first, &bytes)?;
        if let Some(rest) = rest {
            self.tree.insert(&rest)?;
        }
        Ok(true)
    }

    fn write_back(
        &mut self,
        path: &[Level],
        leaf: &Level,
        first: Option<u32>,
        bytes: &[u8],
    ) -> Result<()> {
        let node = NodeEdit::of(bytes).map_err(Corruption::new)?;
        if node.is_empty() && leaf.block.is_some() {
            return self.tree.remove_leaf(path);
        }
        self.tree.edit(leaf.block, |there| there.copy_from(&node))?;
        match (!node.is_empty()).then(|| node.first(0)) {
            Some(now) if Some(now) != first => self.tree.set_first(path, path.len() - 1, now),
            _ => Ok(()),
        }
    }

    /// Frees the blocks of `extent`.
    fn free(&mut self, extent: &MappedExtent) -> Result<()> {
        let blocks = extent.physical..extent.physical + u64::from(extent.blocks);
        self.freed += 1;
        self.tree.handle.allocator.free_blocks(self.tree.handle, blocks.clone())?;
        if self.metadata {
            blocks.for_each(|block| self.tree.handle.forget(block));
        }
        self.tree.count(-i64::from(extent.blocks));
        Ok(())
    }
}

/// Marks the mapped blocks of `range` written, or, if `written` is false, unwritten, so that they
/// read as zeroes. Holes stay holes. The caller stores the inode.
///
/// # Errors
/// The errors of [`insert`].
pub fn set_written(
    handle: &mut AllocHandle<'_, '_>,
    inode: &mut InodeEdit,
    range: Range<u32>,
    written: bool,
) -> Result<()> {
    let end = end_of(&range);
    let mut tree = Tree::of(handle, inode)?;
    let mut from = u64::from(range.start);
    let mut converted = Vec::new();
    while from < end {
        from = tree.convert(from..end, written, &mut converted)?;
    }
    tree.collapse()?;
    if !has_room(inode) && !converted.is_empty() {
        handle.fast_ineligible();
    }
    converted.iter().for_each(|piece| record(handle, inode, piece));
    Ok(())
}

/// Returns whether replay of a fast commit can split one more extent, as the kernel's replay does
/// before it joins them again.
fn has_room(inode: &InodeEdit) -> bool {
    // A deeper tree would need room in each leaf, which is not examined.
    NodeEdit::of(&inode.block_area()[..])
        .is_ok_and(|root| root.depth() == 0 && root.len() < root.capacity())
}

impl Tree<'_, '_, '_> {
    /// Converts the first extent in `range` that is not converted yet, and adds the result to
    /// `converted`. Returns where to continue.
    fn convert(
        &mut self,
        range: Range<u64>,
        written: bool,
        converted: &mut Vec<MappedExtent>,
    ) -> Result<u64> {
        let path = self.descend(range.start)?;
        let Some(leaf) = path.last() else { return Ok(range.end) };
        let before =
            leaf.slot.checked_sub(1).filter(|at| leaf.node.extent(*at).end() > range.start);
        let at = before.unwrap_or(leaf.slot);
        if at >= leaf.node.len() {
            return Ok(leaf.range.end);
        }
        let extent = leaf.node.extent(at);
        let from = range.start.max(u64::from(extent.logical));
        if from >= range.end || extent.unwritten != written {
            return Ok(extent.end());
        }
        let to = range.end.min(extent.end()).min(from + u64::from(max_blocks(!written)));
        let piece = MappedExtent { unwritten: !written, ..part(&extent, from..to) };
        converted.push(piece);
        let (ahead, after) = (u64::from(extent.logical)..from, to..extent.end());
        if ahead.is_empty() && after.is_empty() {
            // Converting a whole extent needs no room, and there may be none. Written data become
            // visible in this way.
            let now = self.edit(leaf.block, |node| {
                node.remove(at..at + 1);
                node.put(at, &piece);
                node.first(0)
            })?;
            if now != leaf.node.first(0) {
                self.set_first(&path, path.len() - 1, now)?;
            }
            return Ok(to);
        }
        let kept = part(&extent, if ahead.is_empty() { after.clone() } else { ahead.clone() });
        self.edit(leaf.block, |node| node.set_extent(at, &kept))?;
        if ahead.is_empty() && at == 0 {
            self.set_first(&path, path.len() - 1, kept.logical)?;
        }
        self.insert(&piece)?;
        if !ahead.is_empty() && !after.is_empty() {
            self.insert(&part(&extent, after))?;
        }
        Ok(to)
    }
}
