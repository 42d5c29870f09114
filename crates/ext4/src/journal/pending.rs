//! Committed blocks that are not in place yet.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::sequence::Sequence;
use super::transaction::Transaction;

/// Committed blocks that have to be written in place.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// For each block, its content as of the last commit that changed it, and that commit.
    blocks: BTreeMap<u64, (Arc<[u8]>, Sequence)>,
    /// The number of these blocks for each transaction.
    counts: BTreeMap<Sequence, usize>,
    /// Blocks that are being written in place.
    under_way: BTreeSet<u64>,
    /// Blocks that were written in place, and that the device may still lose with its cache.
    unflushed: BTreeSet<u64>,
    /// The transaction up to which freed blocks are released when the in-place writes complete. One
    /// of these blocks may be among those that are written.
    release: Option<Sequence>,
    /// Block contents from before the last commits, for reuse of their memory.
    replaced: Vec<Arc<[u8]>>,
}

/// The maximum number of replaced blocks that are kept.
const REPLACED_MOST: usize = 64;

impl Pending {
    /// Counts one block less for transaction `sequence`.
    fn fewer(&mut self, sequence: Sequence) {
        if let Entry::Occupied(mut count) = self.counts.entry(sequence) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Takes the block contents from before the last commits. Others may still have references to
    /// them.
    pub(super) fn take_replaced(&mut self) -> Vec<Arc<[u8]>> {
        std::mem::take(&mut self.replaced)
    }

    fn remove(&mut self, block: u64) {
        if let Some((_, sequence)) = self.blocks.remove(&block) {
            self.fewer(sequence);
        }
    }

    /// Records that `transaction` has committed. Returns the transaction up to which freed blocks
    /// may be released at once, or `None` if they are released when the in-place writes
    /// [complete](Self::end_writes).
    pub(super) fn committed(&mut self, transaction: Transaction) -> Option<Sequence> {
        let sequence = transaction.sequence;
        for block in &transaction.revoked {
            self.remove(*block);
        }
        if !transaction.blocks.is_empty() {
            self.counts.insert(sequence, transaction.blocks.len());
        }
        for (block, content) in transaction.blocks {
            if let Some((content, before)) = self.blocks.insert(block, (content, sequence)) {
                self.fewer(before);
                if self.replaced.len() < REPLACED_MOST {
                    self.replaced.push(content);
                }
            }
        }
        // Rule 10: in-place writes of these blocks are under way.
        let late = transaction.revoked.iter().any(|block| self.under_way.contains(block));
        if late || self.release.is_some() {
            self.release = Some(sequence);
            return None;
        }
        Some(sequence)
    }

    /// Takes up to `most` blocks of transactions up to `upto`, from block `from` on, to be written
    /// in place now, and marks them as being written.
    pub(super) fn send(&mut self, from: u64, upto: Sequence, most: usize) -> Vec<(u64, Arc<[u8]>)> {
        let batch: Vec<_> = self
            .blocks
            .range(from..)
            .filter(|(_, (_, sequence))| *sequence <= upto)
            .take(most)
            .map(|(block, (content, _))| (*block, Arc::clone(content)))
            .collect();
        self.under_way.extend(batch.iter().map(|(block, _)| *block));
        batch
    }

    /// Ends the in-place writes of `batch`, which is in place if `written`. Returns what may be
    /// released now (rule 10).
    pub(super) fn end_writes(
        &mut self,
        batch: &[(u64, Arc<[u8]>)],
        written: bool,
    ) -> Option<Sequence> {
        for (block, content) in batch {
            self.under_way.remove(block);
            let same =
                self.blocks.get(block).is_some_and(|(newest, _)| Arc::ptr_eq(newest, content));
            if written && same {
                self.remove(*block);
                self.unflushed.insert(*block);
            }
        }
        self.release.take()
    }

    /// Records that a FLUSH succeeded which began after the last in-place write
    /// [ended](Self::end_writes).
    pub(super) fn flushed(&mut self) {
        self.unflushed.clear();
    }

    /// Returns the oldest transaction with a block that is not in place.
    pub(super) fn oldest(&self) -> Option<Sequence> {
        self.counts.keys().next().copied()
    }

    /// Returns whether the last committed content of `block` is not in place, or not durable there.
    pub(super) fn has(&self, block: u64) -> bool {
        self.blocks.contains_key(&block) || self.unflushed.contains(&block)
    }

    /// Returns whether this is so for any of `blocks`.
    pub(super) fn has_any(&self, blocks: RangeInclusive<u64>) -> bool {
        self.blocks.range(blocks.clone()).next().is_some()
            || self.unflushed.range(blocks).next().is_some()
    }

    /// Returns how many blocks are not in place.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
