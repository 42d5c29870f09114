//! The blocks of an inode: checks that each is claimed once, and counts all of them.

use std::path::Path;
use std::rc::Rc;

use super::{Checker, Step, Stop};
use crate::block_map::DIRECT;
use crate::extents::{self, Node, NodePlace};
use crate::inode::flags;
use crate::structures::words;
use crate::xattr::{self, Value};
use crate::{Corruption, Defect, Error, FileType};
use crate::{Inode, Source, features};

/// The counted blocks of an inode, with the first and the last of them.
#[derive(Default)]
pub(super) struct Blocks {
    /// The number of clusters, which are the units of the bitmaps.
    clusters: u64,
    /// The cluster counted last: with `bigalloc` adjacent blocks may share one.
    last: Option<u64>,
    /// The last written logical block.
    last_written: Option<u64>,
    /// Number of written logical blocks.
    written: u64,
    /// The cluster counted first.
    first: Option<u64>,
}

/// A part of an extent tree.
#[derive(Default)]
pub(super) struct Part {
    blocks: Blocks,
    /// Whether a part of it could not be read.
    is_broken: bool,
    /// The defects of its nodes, and the block of each.
    defects: Vec<(Defect, Option<u64>)>,
}

impl Part {
    /// Appends `next`, which follows all earlier parts.
    fn join(&mut self, next: &Self, has_clusters: bool) {
        let (all, more) = (&mut self.blocks, &next.blocks);
        let goes_on = has_clusters && more.first.is_some() && more.first == all.last;
        all.clusters += more.clusters - u64::from(goes_on);
        all.written += more.written;
        all.first = all.first.or(more.first);
        all.last = more.last.or(all.last);
        all.last_written = more.last_written.or(all.last_written);
        self.is_broken |= next.is_broken;
        self.defects.extend_from_slice(&next.defects);
    }
}

impl<S: Source> Checker<'_, S> {
    /// The cluster of `block`.
    pub(super) fn cluster(&self, block: u64) -> u64 {
        let superblock = self.volume.superblock();
        let within = block.saturating_sub(superblock.group_start(0));
        within / u64::from(superblock.cluster_blocks())
    }

    /// Claims `blocks` blocks from `start` on for `ino`, or for the file system itself.
    pub(super) fn claim(
        &mut self,
        start: u64,
        blocks: u64,
        ino: Option<u32>,
        path: Option<&Path>,
    ) -> Step {
        if blocks == 0 {
            return Ok(());
        }
        let superblock = self.volume.superblock();
        let begin = superblock.group_start(0);
        // A cluster may hold blocks of several users.
        let may_share = superblock.cluster_blocks() > 1
            || superblock.features().has_ro_compat(features::ro_compat::SHARED_BLOCKS);
        let first = self.cluster(start);
        let count = self.cluster(start.saturating_add(blocks - 1)) - first + 1;
        if ino.is_none() {
            self.own.insert_run(first, count);
        }
        let (new, old) = self.used.insert_run(first, count);
        self.summary.blocks += new * u64::from(superblock.cluster_blocks());
        // The defect is reported once per run, because the following blocks will be shared as well.
        if let Some(old) = old.filter(|_| !may_share) {
            let mut shared =
                Corruption::new(Defect::BlockShared).in_block((begin + old).max(start));
            shared.ino = ino;
            self.found(shared, path)?;
        }
        for _ in 0..blocks.div_ceil(4096) {
            self.tick()?;
        }
        Ok(())
    }

    fn add(&mut self, counted: &mut Blocks, start: u64, blocks: u64) {
        if blocks == 0 {
            return;
        }
        let (first, last) = (self.cluster(start), self.cluster(start + blocks - 1));
        // Where sharing is possible, a file may have the same block twice; a cluster has several
        // blocks.
        let goes_on = self.volume.superblock().cluster_blocks() > 1 && counted.last == Some(first);
        counted.clusters += last - first + 1 - u64::from(goes_on);
        counted.last = Some(last);
        counted.first.get_or_insert(first);
    }

    /// Claims the blocks of `inode`, and compares them with its block count and size. The list of
    /// bad blocks has no count to compare.
    pub(super) fn blocks_of(&mut self, inode: &Inode, path: Option<&Path>, is_list: bool) -> Step {
        let mut counted = Blocks::default();
        let mut whole = true;
        if inode.has_blocks() {
            whole = if self.is_changed_by_replay(inode.ino()) {
                self.replayed_extents_of(inode, path)?
            } else if inode.has(flags::EXTENTS) {
                self.extents_of(inode, path, &mut counted)?
            } else {
                self.map_of(inode, path, &mut counted)?
            };
        }
        if inode.attribute_block() != 0 {
            counted.clusters += 1;
            self.attribute_block(inode, path)?;
        }
        let values = self.value_clusters(inode)?;
        self.account(inode, values.map_or(0, |(inodes, _)| inodes));
        // The blocks of an unreadable tree are unknown, and so are those that a replay would add.
        let (Some((_, values)), true) =
            (values, whole && !is_list && !self.is_changed_by_replay(inode.ino()))
        else {
            return Ok(());
        };
        let superblock = self.volume.superblock();
        let (ino, block_bytes) = (inode.ino(), u64::from(superblock.block_bytes()));
        let cluster_512 = u64::from(superblock.cluster_blocks()) * (block_bytes / 512);
        // Attribute values in separate inodes count as well.
        let found_512 = counted.clusters.saturating_add(values).saturating_mul(cluster_512);
        if found_512 != inode.metadata().blocks_512 {
            self.wrong(Defect::BlockCount, ino, path)?;
        }
        if !inode.is_free() && self.is_wrong_size(inode, &counted) {
            self.wrong(Defect::InodeField("size"), ino, path)?;
        }
        Ok(())
    }

    /// Returns whether the size of `inode` contradicts its blocks (`check_blocks`).
    fn is_wrong_size(&self, inode: &Inode, counted: &Blocks) -> bool {
        let block_bytes = u64::from(self.volume.superblock().block_bytes());
        let (size, end) = (inode.size(), counted.last_written.map_or(0, |last| last + 1));
        if inode.file_type() == FileType::Directory && inode.has_blocks() {
            // Every block is written. Some may be preallocated past the end.
            let blocks = size / block_bytes;
            let kept = u64::from(self.raw.prealloc_dir_blocks);
            return !size.is_multiple_of(block_bytes)
                || blocks == 0
                || counted.written < blocks
                || !(blocks..=blocks + kept).contains(&end);
        }
        let pointers = block_bytes / 4;
        let most = if inode.has(flags::EXTENTS) {
            1 << 32
        } else {
            DIRECT as u64 + pointers + pointers.pow(2) + pointers.pow(3)
        };
        // Written data lies before the end of the file.
        let beyond =
            counted.last_written.is_some_and(|last| size < last.saturating_mul(block_bytes));
        let too_large = inode.file_type() == FileType::Regular && size.div_ceil(block_bytes) > most;
        beyond && !inode.has(flags::VERITY) || too_large
    }

    /// Returns the number of `inode`'s attributes with values in separate inodes, and the clusters
    /// charged for those, or `None` if they are unknown.
    fn value_clusters(&mut self, inode: &Inode) -> Step<Option<(u64, u64)>> {
        let volume = self.volume;
        let block = match inode.attribute_block() {
            0 => None,
            number => match volume.attribute_block(inode.ino(), number) {
                Ok(block) => Some(block),
                Err(error @ Error::Source(_)) => return Err(Stop::Failed(error)),
                // The defect is reported when the attributes are read.
                Err(_) => return Ok(None),
            },
        };
        let body = xattr::in_inode(inode.body_attributes());
        let (Ok(mut all), Ok(others)) =
            (body, block.as_ref().map_or(Ok(Vec::new()), |block| xattr::in_block(block)))
        else {
            return Ok(None);
        };
        all.extend(others);
        let superblock = volume.superblock();
        let cluster_bytes =
            u64::from(superblock.cluster_blocks()) * u64::from(superblock.block_bytes());
        let (mut inodes, mut clusters) = (0, 0);
        for attribute in all {
            let Value::Inode { ino, bytes } = attribute.value else { continue };
            let Ok(value) = volume.inode(ino) else { return Ok(None) };
            inodes += 1;
            // Values made by Lustre are not charged.
            let is_lustre = value.metadata().modified.seconds as u32 == inode.ino()
                && value.metadata().generation == inode.metadata().generation;
            clusters += if is_lustre { 0 } else { (bytes as u64).div_ceil(cluster_bytes) };
        }
        Ok(Some((inodes, clusters)))
    }

    /// Claims an extent tree. Returns whether all of it could be read.
    fn extents_of(
        &mut self,
        inode: &Inode,
        path: Option<&Path>,
        counted: &mut Blocks,
    ) -> Step<bool> {
        let mut tree = Part::default();
        let root = (None, inode.block_area().as_slice(), NodePlace::root());
        for child in self.node(inode, path, root, &mut tree)? {
            self.subtree(inode, path, child, &mut tree)?;
        }
        *counted = tree.blocks;
        Ok(!tree.is_broken)
    }

    /// Claims the subtree whose top node is in `block`, and appends it to `above`.
    fn subtree(
        &mut self,
        inode: &Inode,
        path: Option<&Path>,
        (block, place): (u64, NodePlace),
        above: &mut Part,
    ) -> Step {
        let (ino, volume) = (inode.ino(), self.volume);
        let has_clusters = volume.superblock().cluster_blocks() > 1;
        let guarded = volume.superblock().has_checksums();
        self.tick()?;
        // The block is claimed before it is read, so a circular tree ends at a block that is
        // shared.
        if !has_clusters && self.used.contains(self.cluster(block)) {
            above.is_broken = true;
            return self.claim(block, 1, Some(ino), path);
        }
        // A cluster may be shared. So that a node with many parents is read only once, the result
        // is kept for the others. Checksums belong to one inode's nodes, so no other inode gets
        // below the first one.
        let may_share = has_clusters && !guarded;
        if let Some((known, part)) = self.parts.get(&block).filter(|_| may_share) {
            let (is_same, part) = (*known == place, Rc::clone(part));
            if !is_same {
                above.is_broken = true;
                let shared = Corruption::new(Defect::BlockShared).in_inode(ino).in_block(block);
                return self.found(shared, path);
            }
            for (defect, block) in part.defects.iter().copied() {
                self.found(Corruption { defect, ino: Some(ino), block }, path)?;
            }
            above.join(&part, has_clusters);
            return Ok(());
        }
        let mut part = Part::default();
        // The node has its own cluster. The extent before it may continue in that cluster.
        part.blocks.clusters = 1;
        self.claim(block, 1, Some(ino), path)?;
        match self.block(block, Some(ino), path)? {
            None => part.is_broken = true,
            Some(bytes)
                if guarded
                    && extents::checksum_is_right(inode.checksum_seed(), &bytes) == Some(false) =>
            {
                part.is_broken = true;
                let wrong = Corruption::new(Defect::ExtentChecksum).in_inode(ino).in_block(block);
                self.found(wrong, path)?;
            }
            Some(bytes) => {
                let node = (Some(block), &*bytes, place.clone());
                for child in self.node(inode, path, node, &mut part)? {
                    self.subtree(inode, path, child, &mut part)?;
                }
            }
        }
        above.join(&part, has_clusters);
        if may_share {
            self.parts.insert(block, (place, Rc::new(part)));
        }
        Ok(())
    }

    /// Claims the extents of one node, and the nodes below it.
    fn node(
        &mut self,
        inode: &Inode,
        path: Option<&Path>,
        (block, bytes, place): (Option<u64>, &[u8], NodePlace),
        part: &mut Part,
    ) -> Step<Vec<(u64, NodePlace)>> {
        let ino = Some(inode.ino());
        let node = match Node::parse(self.volume.superblock(), bytes, place) {
            Ok(node) => node,
            Err(defect) => {
                part.is_broken = true;
                part.defects.push((defect, block));
                self.found(Corruption { defect, ino, block }, path)?;
                return Ok(Vec::new());
            }
        };
        for extent in node.extents() {
            let blocks = u64::from(extent.blocks);
            self.add(&mut part.blocks, extent.physical, blocks);
            self.claim(extent.physical, blocks, ino, path)?;
            if !extent.unwritten {
                part.blocks.written += blocks;
                part.blocks.last_written =
                    Some(u64::from(extent.logical) + blocks.saturating_sub(1));
            }
        }
        Ok(node.children().collect())
    }

    /// Claims a block map. Returns whether all of it could be read.
    fn map_of(&mut self, inode: &Inode, path: Option<&Path>, counted: &mut Blocks) -> Step<bool> {
        let (ino, volume) = (inode.ino(), self.volume);
        let per_block = u64::from(volume.superblock().block_bytes() / 4);
        let mut whole = true;
        // Each entry is a pointer, the levels of pointers below it, and its first logical block.
        let mut left: Vec<(u64, u32, u64)> = Vec::new();
        let mut logical = 0u64;
        for (at, block) in words(inode.block_area()).iter().enumerate() {
            let levels = at.saturating_sub(DIRECT - 1) as u32;
            left.push((block.get().into(), levels, logical));
            logical = logical.saturating_add(per_block.saturating_pow(levels));
        }
        left.reverse();
        while let Some((block, levels, logical)) = left.pop() {
            if block == 0 {
                continue;
            }
            self.tick()?;
            if !volume.superblock().holds(block, 1) {
                let wrong = Corruption::new(Defect::BlockPointer).in_inode(ino).in_block(block);
                self.found(wrong, path)?;
                whole = false;
                continue;
            }
            let was_used = self.used.contains(self.cluster(block));
            self.add(counted, block, 1);
            self.claim(block, 1, Some(ino), path)?;
            if levels == 0 {
                counted.written += 1;
                counted.last_written =
                    Some(counted.last_written.map_or(logical, |last| last.max(logical)));
                continue;
            }
            if was_used {
                // The map may be circular.
                whole = false;
                continue;
            }
            let Some(bytes) = self.block(block, Some(ino), path)? else {
                whole = false;
                continue;
            };
            let span = per_block.saturating_pow(levels - 1);
            let below = words(&bytes).iter().map(|block| u64::from(block.get())).enumerate().rev();
            left.extend(below.filter(|(_, block)| *block != 0).map(|(at, block)| {
                (block, levels - 1, logical.saturating_add(span.saturating_mul(at as u64)))
            }));
        }
        Ok(whole)
    }

    /// Claims the attribute block of `inode`, which other inodes may share.
    fn attribute_block(&mut self, inode: &Inode, path: Option<&Path>) -> Step {
        let block = inode.attribute_block();
        if let Some((_, found)) = self.shared.get_mut(&block) {
            *found += 1;
            return Ok(());
        }
        self.claim(block, 1, Some(inode.ino()), path)?;
        // Its other defects are found when the attributes are read.
        let says = match self.volume.block(block) {
            Ok(bytes) => xattr::references(&bytes).unwrap_or(0),
            Err(error @ Error::Source(_)) => return Err(Stop::Failed(error)),
            Err(_) => 0,
        };
        self.shared.insert(block, (says, 1));
        Ok(())
    }

    /// Checks the reference counts of attribute blocks.
    pub(super) fn attribute_references(&mut self) -> Step {
        let mut wrong: Vec<u64> = Vec::new();
        wrong.extend(
            self.shared.iter().filter(|(_, (says, found))| says != found).map(|(block, _)| *block),
        );
        wrong.sort_unstable();
        for block in wrong {
            self.found(Corruption::new(Defect::AttributeReferences).in_block(block), None)?;
        }
        Ok(())
    }
}
