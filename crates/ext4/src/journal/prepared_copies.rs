//! Copies of blocks that are about to be changed again.
//!
//! A published block is never changed in place: readers and the journal have references to it. A
//! change begins with copies, while its caller waits. A growing file changes the same few blocks
//! each time. So these are copied for the next change while the device works, and the copies are in
//! the CPU's cache by then.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of blocks that are copied. A change of more blocks is not a small change with
/// a waiting caller.
const PREPARED_MOST: usize = 8;

/// The blocks of the last change, and copies of them.
#[derive(Debug, Default)]
pub(super) struct PreparedCopies {
    last: BTreeMap<u64, Arc<[u8]>>,
    copies: Copies,
}

/// The maximum number of unused blocks whose memory is kept.
const ROOM_MOST: usize = 64;

/// Blocks with an exclusively owned copy of each, and memory for further copies.
#[derive(Debug, Default)]
pub struct Copies {
    pairs: Vec<Pair>,
    /// Memory for further copies, exclusively owned. Memory that was just in use is in the CPU's
    /// cache, and needs no call of the allocator.
    room: Vec<Arc<[u8]>>,
}

#[derive(Debug)]
struct Pair {
    of: Arc<[u8]>,
    copy: Arc<[u8]>,
}

impl PreparedCopies {
    /// Records the contents of `blocks` after the last change.
    pub(super) fn changed(&mut self, blocks: BTreeMap<u64, Arc<[u8]>>) {
        self.last = blocks;
    }

    /// Takes the copies for a change.
    pub(super) fn take(&mut self) -> Copies {
        std::mem::take(&mut self.copies)
    }

    /// Ends a change. Keeps its unused copies `left`, and the contents `replaced` by it.
    pub(super) fn recycle(&mut self, left: Copies, replaced: Vec<Arc<[u8]>>) {
        let mut room = left.room;
        for mut block in replaced {
            // Readers and commits may still have references to it.
            if room.len() < ROOM_MOST && Arc::get_mut(&mut block).is_some() {
                room.push(block);
            }
        }
        self.copies.room = room;
    }

    /// Returns the blocks worth copying.
    pub(super) fn wanted(&self) -> Vec<Arc<[u8]>> {
        let is_small = self.copies.pairs.is_empty() && self.last.len() <= PREPARED_MOST;
        self.last.values().filter(|_| is_small).cloned().collect()
    }

    /// Sets the copies.
    pub(super) fn put(&mut self, copies: Copies) {
        self.copies.pairs = copies.pairs;
    }
}

impl Copies {
    /// Copies `blocks`, into the memory of those of `old` that have no other reference. Runs while
    /// the device works.
    pub(super) fn of(blocks: Vec<Arc<[u8]>>, old: Vec<Arc<[u8]>>) -> Self {
        let mut copies = Self { pairs: Vec::with_capacity(blocks.len()), room: old };
        copies.room.retain_mut(|old| Arc::get_mut(old).is_some());
        for of in blocks {
            let copy = copies.copy(&of).unwrap_or_else(|| Arc::from(&of[..]));
            copies.pairs.push(Pair { of, copy });
        }
        copies
    }

    /// Returns an exclusively owned block of `bytes` bytes with arbitrary content.
    fn room(&mut self, bytes: usize) -> Option<Arc<[u8]>> {
        self.room.pop().filter(|room| room.len() == bytes)
    }

    /// Returns a copy of `block`, if memory is kept for one.
    fn copy(&mut self, block: &[u8]) -> Option<Arc<[u8]>> {
        let mut copy = self.room(block.len())?;
        Arc::get_mut(&mut copy)?.copy_from_slice(block);
        Some(copy)
    }

    /// Returns a block of `bytes` zeroes.
    pub(super) fn zeroes(&mut self, bytes: usize) -> Arc<[u8]> {
        let mut room = self.room(bytes);
        if let Some(all) = room.as_mut().and_then(Arc::get_mut) {
            all.fill(0);
        }
        room.unwrap_or_else(|| std::iter::repeat_n(0, bytes).collect())
    }

    /// Returns a copy of the current `block`, if there is one or memory is kept for one. Otherwise
    /// returns `block` itself.
    pub(super) fn instead_of(&mut self, block: Arc<[u8]>) -> Arc<[u8]> {
        if let Some(at) = self.pairs.iter().position(|pair| Arc::ptr_eq(&pair.of, &block)) {
            return self.pairs.swap_remove(at).copy;
        }
        self.copy(&block).unwrap_or(block)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
