//! The words in which closes are counted. Each open file that was taken has one.

use std::io;
use std::sync::Arc;

use meantime_process::lock::{Mutex, Rank};
use meantime_shm_rpc::closings::{Closings, WORDS};

use crate::server::lock::locked;

/// All words.
pub(super) struct Words {
    closings: Closings,
    free: Mutex<Vec<u32>>,
}

/// One word, which is freed when this is dropped.
pub(super) struct Word {
    pub(super) number: u32,
    ino: u64,
    words: Arc<Words>,
}

impl Words {
    pub(super) fn new() -> io::Result<Self> {
        let free = (0..WORDS).rev().collect();
        Ok(Self { closings: Closings::new()?, free: Mutex::new(Rank::Served, free) })
    }

    pub(super) fn closings(&self) -> &Closings {
        &self.closings
    }

    /// Takes a word for an open file of inode `ino`, if one is left.
    pub(super) fn take(words: &Arc<Self>, ino: u64) -> Option<Word> {
        let number = locked(&words.free).pop()?;
        words.closings.add_taken(ino);
        Some(Word { number, ino, words: Arc::clone(words) })
    }
}

impl Word {
    pub(super) fn note(&self) {
        self.words.closings.note(self.number);
    }

    pub(super) fn count(&self) -> u64 {
        self.words.closings.count(self.number)
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // The count never decreases, so a program's value for the last file does not fit the next
        // one.
        self.note();
        self.words.closings.remove_taken(self.ino);
        locked(&self.words.free).push(self.number);
    }
}
