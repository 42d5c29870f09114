//! Copies of blocks that are about to be changed again.
//!
//! Nothing of a block that has been published is changed in place: readers have it, and so has the
//! journal. A change begins with copies, on the way of whoever waits for it. Files that grow change
//! the same few blocks each time: so they are copied for the next change as soon as there is a gap,
//! while the device is at work, and their copies are in the CPU's cache by then.

use std::collections::BTreeMap;
use std::sync::Arc;

/// So many blocks are copied at most: what changes more of them is no small change that somebody
/// waits for.
const SPARES_MOST: usize = 8;

/// What the last change made of blocks, and copies of that.
#[derive(Debug, Default)]
pub(super) struct Spares {
    last: BTreeMap<u64, Arc<[u8]>>,
    copies: Copies,
}

/// Blocks, each with its copy, which nobody else has.
#[derive(Debug, Default)]
pub struct Copies(Vec<Pair>);

#[derive(Debug)]
struct Pair {
    of: Arc<[u8]>,
    copy: Arc<[u8]>,
}

impl Spares {
    /// The last change has made `blocks` what they are.
    pub(super) fn changed(&mut self, blocks: BTreeMap<u64, Arc<[u8]>>) {
        self.last = blocks;
    }

    /// The copies there are, for a change.
    pub(super) fn take(&mut self) -> Copies {
        std::mem::take(&mut self.copies)
    }

    /// What is worth copying.
    pub(super) fn wanted(&self) -> Vec<Arc<[u8]>> {
        let is_small = self.copies.0.is_empty() && self.last.len() <= SPARES_MOST;
        self.last.values().filter(|_| is_small).cloned().collect()
    }

    /// There are `copies`.
    pub(super) fn put(&mut self, copies: Copies) {
        self.copies = copies;
    }
}

impl Copies {
    /// Copies of `blocks`. Work for the gap.
    pub(super) fn of(blocks: Vec<Arc<[u8]>>) -> Self {
        let pair = |of: Arc<[u8]>| Pair { copy: Arc::from(&of[..]), of };
        Self(blocks.into_iter().map(pair).collect())
    }

    /// A copy of `block`, if there is one of what it is now; else itself.
    pub(super) fn instead_of(&mut self, block: Arc<[u8]>) -> Arc<[u8]> {
        match self.0.iter().position(|pair| Arc::ptr_eq(&pair.of, &block)) {
            Some(at) => self.0.swap_remove(at).copy,
            None => block,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_of_what_the_block_is_now() {
        let block = |byte| Arc::<[u8]>::from([byte; 4]);
        let (old, new) = (block(1), block(1));
        let mut spares = Spares::default();
        spares.changed(BTreeMap::from([(7, Arc::clone(&old))]));
        spares.put(Copies::of(spares.wanted()));
        assert!(spares.wanted().is_empty());
        let mut copies = spares.take();
        // The same bytes, but another change's.
        assert!(Arc::ptr_eq(&copies.instead_of(Arc::clone(&new)), &new));
        let mut copy = copies.instead_of(Arc::clone(&old));
        assert!(!Arc::ptr_eq(&copy, &old));
        Arc::get_mut(&mut copy).expect("nobody else has it")[0] = 2;
        assert_eq!((old[0], copy[0]), (1, 2));
        // Each is given once.
        assert!(Arc::ptr_eq(&copies.instead_of(Arc::clone(&old)), &old));
    }

    #[test]
    fn nothing_is_copied_of_what_changes_much() {
        let mut spares = Spares::default();
        let blocks = (0..=SPARES_MOST as u64).map(|number| (number, Arc::from([0; 4])));
        spares.changed(blocks.collect());
        assert!(spares.wanted().is_empty());
    }
}
