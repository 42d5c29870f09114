//! Blocks of the file system and pages of the cache: either may be the larger.

use std::ops::Range;

use crate::cache::PAGE;

/// Sizes of the file system's blocks and the cache's pages in terms of each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Units {
    /// Log2 of the block size.
    pub(crate) shift: u32,
    /// Blocks in a page, at least 1.
    pub(crate) per_page: u64,
    /// Pages in a block, at least 1.
    pub(crate) per_block: u64,
}

impl Units {
    /// Returns the units for blocks of `1 << shift` bytes.
    pub(crate) fn new(shift: u32) -> Self {
        let (per_page, per_block) = ((PAGE >> shift).max(1), (1u64 << shift >> 12).max(1));
        Self { shift, per_page, per_block }
    }

    /// Returns the larger of a block and a page, in bytes.
    pub(crate) fn unit(&self) -> u64 {
        PAGE.max(1 << self.shift)
    }

    /// Returns the pages of the block that has page `index`: only that page, unless blocks are
    /// larger.
    pub(crate) fn block_pages(&self, index: u64) -> Range<u64> {
        let first = index / self.per_block * self.per_block;
        first..first + self.per_block
    }

    /// Returns all pages of the blocks that have pages of `range`.
    pub(crate) fn whole_blocks(&self, range: Range<u64>) -> Range<u64> {
        let end = range.end.checked_next_multiple_of(self.per_block).unwrap_or(u64::MAX);
        self.block_pages(range.start).start..end
    }

    /// Returns the blocks that have the bytes `range`.
    pub(crate) fn blocks(&self, range: Range<u64>) -> Range<u64> {
        range.start >> self.shift..range.end.div_ceil(1 << self.shift)
    }

    /// Returns the mask of those blocks of page `index` that are in `blocks`, the first one in bit
    /// 0.
    pub(crate) fn mask(&self, index: u64, blocks: &Range<u64>) -> u8 {
        if self.per_page == 1 {
            return 1;
        }
        let first = index * self.per_page;
        (0..self.per_page)
            .filter(|n| blocks.contains(&(first + n)))
            .fold(0, |mask, n| mask | 1 << n)
    }
}
