//! Transactions: each is the sum of many changes, until it commits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::changes::Changes;
use super::fast::Unrecorded;
use super::ordered::Ordered;
use super::prepared_copies::PreparedCopies;
use super::sequence::Sequence;

/// Changes that commit together.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) sequence: Sequence,
    /// The contents of blocks at the transaction's end.
    pub(super) blocks: BTreeMap<u64, Arc<[u8]>>,
    /// Metadata blocks that it freed. Older transactions' copies of them must not be replayed.
    pub(super) revoked: BTreeSet<u64>,
    /// Data that have to be on the device before it commits.
    pub(super) ordered: Arc<Ordered>,
    /// Whether it has any change. A change without blocks may have data or freed blocks that wait
    /// for the transaction.
    pub(super) used: bool,
    /// What no fast commit has described yet.
    pub(super) unrecorded: Unrecorded,
}

impl Transaction {
    pub(super) fn new(sequence: Sequence) -> Self {
        Self {
            sequence,
            blocks: BTreeMap::new(),
            revoked: BTreeSet::new(),
            ordered: Arc::default(),
            used: false,
            unrecorded: Unrecorded::default(),
        }
    }

    /// Returns how many blocks it would have with `changes`, at most.
    pub(super) fn blocks_with(&self, changes: &Changes) -> usize {
        let new = changes.blocks.keys().filter(|block| !self.blocks.contains_key(block)).count();
        self.blocks.len() + new
    }

    /// Returns how many revoked blocks it would have with `changes`, at most.
    pub(super) fn revoked_with(&self, changes: &Changes) -> usize {
        self.revoked.len() + changes.forgotten.len()
    }

    /// Adds `changes`, which follow all that were added before. Returns the contents that they
    /// replace in this transaction.
    pub(super) fn merge(&mut self, changes: &Changes) -> Vec<Arc<[u8]>> {
        let mut replaced = Vec::with_capacity(changes.blocks.len());
        self.used = true;
        self.unrecorded.merge(changes);
        for block in &changes.forgotten {
            self.blocks.remove(block);
            // Rule 9: replay must not overwrite the block's next content with an older copy.
            self.revoked.insert(*block);
        }
        for (block, content) in &changes.blocks {
            // The block is metadata again, so replay needs the copy in this transaction.
            self.revoked.remove(block);
            replaced.extend(self.blocks.insert(*block, Arc::clone(content)));
        }
        replaced
    }
}

/// The transactions that have not committed.
pub(super) struct Open {
    /// The closed transactions, oldest first.
    pub(super) closed: VecDeque<Transaction>,
    /// The transaction to which changes are added.
    pub(super) running: Transaction,
    /// The number of changes so far.
    pub(super) changes: u64,
    /// Copies for the next change.
    pub(super) prepared: PreparedCopies,
}

impl Open {
    /// Returns the state before the first commit.
    pub(super) fn new() -> Self {
        Self {
            closed: VecDeque::new(),
            running: Transaction::new(Sequence(1)),
            changes: 0,
            prepared: PreparedCopies::default(),
        }
    }

    /// Closes the running transaction and begins the next.
    pub(super) fn close(&mut self) {
        let next = Transaction::new(Sequence(self.running.sequence.0 + 1));
        self.closed.push_back(std::mem::replace(&mut self.running, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_block_counts() {
        let content = |byte| Arc::from([byte; 2]);
        let changes = |blocks: &[(u64, u8)], forgotten: &[u64]| Changes {
            blocks: blocks.iter().map(|(block, byte)| (*block, content(*byte))).collect(),
            forgotten: forgotten.iter().copied().collect(),
            ..Changes::default()
        };
        let mut transaction = Transaction::new(Sequence(1));
        transaction.merge(&changes(&[(1, 1), (2, 1)], &[]));
        let next = changes(&[(2, 2), (4, 2)], &[1, 3]);
        assert_eq!((transaction.blocks_with(&next), transaction.revoked_with(&next)), (3, 2));
        transaction.merge(&next);
        transaction.merge(&changes(&[(3, 3)], &[]));
        let blocks: Vec<_> =
            transaction.blocks.iter().map(|(block, content)| (*block, content[0])).collect();
        assert_eq!(blocks, [(2, 2), (3, 3), (4, 2)]);
        assert_eq!(transaction.revoked, BTreeSet::from([1]));
    }
}
