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

/// The memory of so many blocks is kept at most that nobody has any more.
const ROOM_MOST: usize = 64;

/// Blocks, each with its copy, which nobody else has; and memory for further copies.
#[derive(Debug, Default)]
pub struct Copies {
    pairs: Vec<Pair>,
    /// Nobody else has these. Memory that was just in use is in the CPU's cache, and costs no call
    /// of the allocator's.
    room: Vec<Arc<[u8]>>,
}

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

    /// A change is done: `left` was not needed for it, and each of `replaced` is not what its block
    /// is any more.
    pub(super) fn give_back(&mut self, left: Copies, replaced: Vec<Arc<[u8]>>) {
        let mut room = left.room;
        for mut block in replaced {
            // Whoever reads it, or commits it, has it still.
            if room.len() < ROOM_MOST && Arc::get_mut(&mut block).is_some() {
                room.push(block);
            }
        }
        self.copies.room = room;
    }

    /// What is worth copying.
    pub(super) fn wanted(&self) -> Vec<Arc<[u8]>> {
        let is_small = self.copies.pairs.is_empty() && self.last.len() <= SPARES_MOST;
        self.last.values().filter(|_| is_small).cloned().collect()
    }

    /// There are `copies`.
    pub(super) fn put(&mut self, copies: Copies) {
        self.copies.pairs = copies.pairs;
    }
}

impl Copies {
    /// Copies of `blocks`, in the memory of those of `old` that nobody else has. Work for the gap.
    pub(super) fn of(blocks: Vec<Arc<[u8]>>, old: Vec<Arc<[u8]>>) -> Self {
        let mut copies = Self { pairs: Vec::with_capacity(blocks.len()), room: old };
        copies.room.retain_mut(|old| Arc::get_mut(old).is_some());
        for of in blocks {
            let copy = copies.copy(&of).unwrap_or_else(|| Arc::from(&of[..]));
            copies.pairs.push(Pair { of, copy });
        }
        copies
    }

    /// Room for `bytes` bytes, with anything in it, which nobody else has.
    fn room(&mut self, bytes: usize) -> Option<Arc<[u8]>> {
        self.room.pop().filter(|room| room.len() == bytes)
    }

    /// A copy of `block`, if there is room for one.
    fn copy(&mut self, block: &[u8]) -> Option<Arc<[u8]>> {
        let mut copy = self.room(block.len())?;
        Arc::get_mut(&mut copy)?.copy_from_slice(block);
        Some(copy)
    }

    /// A block of `bytes` zeroes.
    pub(super) fn zeroes(&mut self, bytes: usize) -> Arc<[u8]> {
        let mut room = self.room(bytes);
        if let Some(all) = room.as_mut().and_then(Arc::get_mut) {
            all.fill(0);
        }
        room.unwrap_or_else(|| std::iter::repeat_n(0, bytes).collect())
    }

    /// A copy of `block`, if there is one of what it is now, or room for one; else itself.
    pub(super) fn instead_of(&mut self, block: Arc<[u8]>) -> Arc<[u8]> {
        if let Some(at) = self.pairs.iter().position(|pair| Arc::ptr_eq(&pair.of, &block)) {
            return self.pairs.swap_remove(at).copy;
        }
        self.copy(&block).unwrap_or(block)
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
        spares.put(Copies::of(spares.wanted(), Vec::new()));
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
    fn the_memory_of_what_nobody_has_is_used_again() {
        let block = |byte| Arc::<[u8]>::from([byte; 4]);
        let mut spares = Spares::default();
        let (read, replaced) = (block(1), block(2));
        let place = replaced.as_ptr();
        spares.give_back(Copies::default(), vec![Arc::clone(&read), replaced]);
        let mut copies = spares.take();
        let (first, second) = (copies.instead_of(Arc::clone(&read)), copies.zeroes(4));
        assert_eq!((first.as_ptr(), &first[..], &second[..]), (place, &[1; 4][..], &[0; 4][..]));
        assert!(Arc::ptr_eq(&copies.instead_of(Arc::clone(&read)), &read));
    }

    #[test]
    fn copies_are_in_the_memory_of_what_is_old() {
        let block = |byte| Arc::<[u8]>::from([byte; 4]);
        let (read, old) = (block(1), block(2));
        let place = old.as_ptr();
        let copies = Copies::of(vec![block(3), block(4)], vec![Arc::clone(&read), old]);
        let [first, second] = &copies.pairs[..] else { panic!("{copies:?}") };
        assert_eq!((first.copy.as_ptr(), &first.copy[..]), (place, &[3; 4][..]));
        assert_eq!((&second.copy[..], &read[..]), (&[4; 4][..], &[1; 4][..]));
    }

    #[test]
    fn nothing_is_copied_of_what_changes_much() {
        let mut spares = Spares::default();
        let blocks = (0..=SPARES_MOST as u64).map(|number| (number, Arc::from([0; 4])));
        spares.changed(blocks.collect());
        assert!(spares.wanted().is_empty());
    }
}
