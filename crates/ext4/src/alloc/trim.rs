//! Finds free blocks that a trim may name.

use std::ops::Range;

use super::Allocator;
use super::zones::blocks_in;
use crate::journal::{Handle, first_not_reusable};
use crate::{Corruption, Defect, Result};
use meantime_ext4_format::edit::bitmap;

impl Allocator {
    /// Finds the first run of at least `least` blocks within `bits` of group `number` that could be
    /// allocated now: its blocks are free, and do not wait for a commit. This stays true while
    /// `handle` exists.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    pub(crate) fn free_run(
        &self,
        handle: &Handle<'_>,
        number: u32,
        bits: Range<u32>,
        least: u32,
    ) -> Result<Option<Range<u64>>> {
        let Some((_, bitmap)) = self.free_bits(handle, number)? else { return Ok(None) };
        let start = self.superblock().group_start(number);
        let end = bits.end.min(blocks_in(self.superblock(), number));
        let mut at = bits.start;
        while at < end {
            let free = bitmap::free_run(&bitmap, at..end);
            if free.is_empty() {
                break;
            }
            at = free.end;
            let mut rest = start + u64::from(free.start)..start + u64::from(free.end);
            while rest.end - rest.start >= u64::from(least.max(1)) {
                let held = first_not_reusable(handle, rest.clone());
                let run = rest.start..held.as_ref().map_or(rest.end, |held| held.start);
                if run.end - run.start >= u64::from(least.max(1)) {
                    if let Some(own) = self.zones.within(run.clone()).next() {
                        // The bitmap is damaged: it says that blocks of the file system's own are
                        // free.
                        let wrong = Corruption::new(Defect::BlockUnmarked);
                        return Err(wrong.in_block(own.start).into());
                    }
                    return Ok(Some(run));
                }
                rest.start = held.map_or(rest.end, |held| held.end);
            }
        }
        Ok(None)
    }
}
