//! Writes past the page cache.

use std::ops::Range;
use std::sync::{Arc, RwLockReadGuard};

use super::super::cache::PAGE_BYTES;
use super::super::error::Error;
use super::super::file::File;
use super::super::live::Live;
use super::super::read::cached::PAGE;
use super::super::read::place::Extents;
use crate::completion::Policy;

/// How often a reader tries to find nothing dirty, before it keeps writers off.
const TRIES: u32 = 16;

impl File {
    /// Writes `data` from byte `offset` on, to the device. The caller is the file's writer.
    pub(super) fn write_direct(
        &self,
        data: &[u8],
        offset: u64,
        policy: Option<Policy>,
    ) -> Result<usize, Error> {
        let _ = policy;
        let written = self.write_cached(data, offset)?;
        let node = self.node();
        let end = offset + written as u64;
        node.mount.settle(&node.known, offset / PAGE..end.div_ceil(PAGE_BYTES as u64))?;
        Ok(written)
    }

    /// The extents of the bytes `range`, none of whose pages is newer than the disk; and that stays so for blocks that they have.
    pub(in crate::ext4) fn settled_extents<'a>(
        &self,
        live: &'a Live,
        range: Range<u64>,
    ) -> Result<(RwLockReadGuard<'a, ()>, Arc<Extents>), Error> {
        let node = self.node();
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let mut tries = 0;
        loop {
            // Then it is the last turn: nobody makes anything dirty.
            let _writer = (tries >= TRIES).then(|| live.write());
            node.mount.settle(&node.known, pages.clone())?;
            let guard = live.keep_blocks();
            let extents = self.extents_of(range.start, range.end)?;
            let there = live.pages();
            let newer = there.dirty.range(pages.clone()).next().is_some()
                || there.in_flight.range(pages.clone()).next().is_some();
            if !newer || tries >= TRIES {
                return Ok((guard, extents));
            }
            tries += 1;
        }
    }
}
