//! Counts how often each open file was closed, and which files are taken.
//!
//! A program's descriptor can be closed without the client's knowledge, and its number used again.
//! The kernel tells the owner of each `close` before it returns (FUSE's `FLUSH`), and the owner
//! counts it here, in a page that clients only read. A client compares the count before it uses its
//! information about a descriptor. So *nothing is done to a file whose descriptor was closed before
//! the call began*.
//!
//! After these words there are counts of the open files that clients have taken, by inode number.
//! A client that finds 0 there can leave a file to the kernel without asking the owner, because no
//! other client takes the shared-memory path to it. Several files may have the same count.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::memory::Mapping;
use crate::sync::{AtomicU64, Ordering};

/// Number of words. Open files for which none is left are left to the kernel.
pub const WORDS: u32 = 16_384;
const WORD_BYTES: usize = size_of::<u64>();
/// Number of counts of taken files, after the words.
const TAKEN: u64 = 1024;
const BYTES: usize = (WORDS as usize + TAKEN as usize) * WORD_BYTES;

/// Returns the place of the count of inode `ino`.
fn taken_at(ino: u64) -> usize {
    // This is Fibonacci hashing, whose upper bits are well mixed.
    let number = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TAKEN.ilog2());
    (WORDS as usize + number as usize) * WORD_BYTES
}

/// The owner's side.
#[derive(Debug)]
pub struct Closings {
    memory: Mapping,
    for_clients: OwnedFd,
}

impl Closings {
    /// Makes the words.
    ///
    /// # Errors
    /// The errors of memfd_create(2) and mmap(2).
    pub fn new() -> io::Result<Self> {
        let (memory, for_clients) = Mapping::new("meantime-closings", BYTES, true)?;
        Ok(Self { memory, for_clients })
    }

    /// Returns the descriptor for clients.
    pub fn for_clients(&self) -> &OwnedFd {
        &self.for_clients
    }

    /// Counts a close of the file of `word`, before it is answered.
    ///
    /// # Panics
    /// Panics if there is no such word.
    pub fn note(&self, word: u32) {
        // Release: a thread that learns of the close from the program's own synchronisation, and
        // then loads the word, sees the new count.
        self.word(word).fetch_add(1, Ordering::Release);
    }

    /// Returns the count of `word`.
    ///
    /// # Panics
    /// Panics if there is no such word.
    pub fn count(&self, word: u32) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    /// Counts an open file of inode `ino` that a client takes, before the client is told.
    pub fn add_taken(&self, ino: u64) {
        let count: &AtomicU64 = self.memory.at(taken_at(ino));
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that an open file of inode `ino`, which a client had taken, is closed.
    pub fn remove_taken(&self, ino: u64) {
        let count: &AtomicU64 = self.memory.at(taken_at(ino));
        count.fetch_sub(1, Ordering::Relaxed);
    }

    fn word(&self, word: u32) -> &AtomicU64 {
        assert!(word < WORDS, "no such word");
        self.memory.at(word as usize * WORD_BYTES)
    }
}

/// A client's side.
#[derive(Debug)]
pub struct ClosingsView {
    memory: Mapping,
}

impl ClosingsView {
    /// Maps the words that the owner passed as `memory`.
    ///
    /// # Errors
    /// The errors of mmap(2); `InvalidData` if the memory does not hold such words.
    pub fn new(memory: &OwnedFd) -> io::Result<Self> {
        Ok(Self { memory: Mapping::of(memory.as_fd(), BYTES, true)? })
    }

    /// Returns the count of `word`, or `None` if there is no such word.
    #[inline]
    pub fn count(&self, word: u32) -> Option<u64> {
        let word: Option<&AtomicU64> =
            (word < WORDS).then(|| self.memory.at(word as usize * WORD_BYTES));
        word.map(|word| word.load(Ordering::Acquire))
    }

    /// Returns whether an open file of inode `ino` may be taken now.
    pub fn may_be_taken(&self, ino: u64) -> bool {
        let count: &AtomicU64 = self.memory.at(taken_at(ino));
        count.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sees_what_was_closed_and_cannot_change_it() {
        let ours = Closings::new().unwrap();
        let theirs = ClosingsView::new(ours.for_clients()).unwrap();
        ours.note(WORDS - 1);
        ours.note(WORDS - 1);
        assert_eq!((ours.count(WORDS - 1), theirs.count(WORDS - 1)), (2, Some(2)));
        assert_eq!((theirs.count(0), theirs.count(WORDS)), (Some(0), None));
        assert!(Mapping::of(ours.for_clients().as_fd(), BYTES, false).is_err());
    }

    #[test]
    fn a_client_sees_what_is_taken() {
        let ours = Closings::new().unwrap();
        let theirs = ClosingsView::new(ours.for_clients()).unwrap();
        for ino in [0, 12, 8193, u64::MAX] {
            assert!(!theirs.may_be_taken(ino));
            ours.add_taken(ino);
            ours.add_taken(ino);
            ours.remove_taken(ino);
            assert!(theirs.may_be_taken(ino));
            ours.remove_taken(ino);
            assert!(!theirs.may_be_taken(ino));
        }
        assert!((0..WORDS).all(|word| theirs.count(word) == Some(0)));
    }
}
