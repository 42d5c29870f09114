//! The log: its blocks, and a cursor in it.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::layout::{Header, MAGIC, Superblock};
use crate::error::{Error, Result};

/// The blocks of a journal, by number.
pub(super) trait Log {
    /// Returns block `index`.
    fn block(&self, index: u32) -> Result<Arc<[u8]>>;

    /// Handles the wrong checksum of block `index`, which recovery needs. Returns an error, or
    /// nothing if wrong checksums are ignored.
    fn wrong_checksum(&self, index: u32) -> Result<()>;

    /// Returns the error that block `index` is inconsistent.
    fn malformed(&self, index: u32) -> Error;
}

/// A block with a journal header.
pub(super) struct Control {
    /// Its number in the journal.
    pub(super) index: u32,
    /// `JBD2_*_BLOCK`
    pub(super) kind: u32,
    pub(super) block: Arc<[u8]>,
}

/// A position in the log. It ends after one round, also in a circular log.
pub(super) struct Cursor<'a> {
    superblock: &'a Superblock,
    at: u32,
    left: u32,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(superblock: &'a Superblock) -> Self {
        Self { superblock, at: superblock.start, left: superblock.last - superblock.first }
    }

    /// Returns the number of the next block, and advances.
    pub(super) fn step(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = if at + 1 == self.superblock.last { self.superblock.first } else { at + 1 };
        Some(at)
    }

    /// Skips `count` blocks.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.step().map(drop))
    }

    /// Returns the next block, if it belongs to transaction `sequence`.
    pub(super) fn next_of(&mut self, log: &impl Log, sequence: u32) -> Result<Option<Control>> {
        let Some(index) = self.step() else { return Ok(None) };
        let block = log.block(index)?;
        let Ok((header, _)) = Header::ref_from_prefix(&block) else { return Ok(None) };
        let is_next = header.magic.get() == MAGIC && header.sequence.get() == sequence;
        Ok(is_next.then(|| Control {
            index,
            kind: header.blocktype.get(),
            block: Arc::clone(&block),
        }))
    }
}
