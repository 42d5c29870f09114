//! Trims free blocks (`FITRIM`): rule 22 of docs/ordering.md.

use std::ops::Range;
use std::time::Duration;

use super::error::{Error, Result, Unsupported};
use super::fs::FileSystem;
use super::io::{IoContext, write_set};
use meantime_block::{Request, RequestError, SubmitError};

/// The most bytes, and the most runs of blocks, trimmed while metadata changes are excluded.
const STEP_BYTES: u64 = 64 << 20;
const STEP_RUNS: usize = 32;

/// The pause between two steps, for other threads' changes.
const PAUSE: Duration = Duration::from_micros(100);

impl FileSystem {
    /// Trims free blocks (Dataset Management, or a kernel device's equivalent): runs of at least
    /// `min_bytes` within the bytes `range` of the file system. Returns the number of bytes
    /// trimmed. Skips blocks freed by a transaction that is not durable yet; a [`sync`](Self::sync)
    /// before includes them. Metadata can be changed between steps of 64 MiB.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot trim; [`Error::Invalid`] for a range after the
    /// end, or for a `min_bytes` longer than any run; damage, or a device error: some blocks may
    /// then have been trimmed.
    pub fn trim(&self, range: Range<u64>, min_bytes: u64) -> Result<u64> {
        let mount = &*self.mount;
        mount.for_writing()?;
        let superblock = mount.volume.superblock();
        let shift = mount.block_shift;
        let first = range.start.div_ceil(1 << shift).max(superblock.group_start(0));
        let end = (range.end >> shift).min(superblock.blocks());
        if first >= superblock.blocks() || range.start >= range.end {
            return Err(Error::Invalid("no block of the file system is in the range"));
        }
        let least = min_bytes.div_ceil(1 << shift);
        let least = u32::try_from(least)
            .ok()
            .filter(|least| u64::from(*least) <= superblock.blocks_per_group());
        let least = least.ok_or(Error::Invalid("no run of free blocks can be as long as that"))?;
        let (mut at, mut trimmed) = (first, 0);
        while at < end {
            let number = superblock.group_of(at);
            let start = superblock.group_start(number);
            let group_end = (start + superblock.blocks_per_group()).min(end);
            let (next, blocks) = self.trim_some(number, start, at..group_end, least)?;
            (at, trimmed) = (next, trimmed + blocks);
            // Let threads that wait to change metadata go first: without the pause, this thread
            // could take the lock again at once.
            if blocks > 0 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(trimmed << shift)
    }

    /// Trims some of `blocks` of group `number`, which begins at `start`. Returns the block up to
    /// which it looked, and the number of blocks trimmed.
    fn trim_some(
        &self,
        number: u32,
        start: u64,
        blocks: Range<u64>,
        least: u32,
    ) -> Result<(u64, u64)> {
        let mount = &*self.mount;
        let most = STEP_BYTES >> mount.block_shift;
        mount.change(|handle| {
            let (mut runs, mut at, mut count) = (Vec::new(), blocks.start, 0);
            while at < blocks.end && runs.len() < STEP_RUNS && count < most {
                let bits = (at - start) as u32..(blocks.end - start) as u32;
                let Some(mut run) = handle.allocator.free_run(handle, number, bits, least)? else {
                    at = blocks.end;
                    break;
                };
                // (The rest of the run is long enough itself, or is part of the next step's
                // search.)
                if run.end - run.start > most + u64::from(least) {
                    run.end = run.start + most;
                }
                at = run.end;
                count += run.end - run.start;
                runs.push(run);
            }
            // Rule 22: none of these blocks is allocated while the handle exists, nor before the
            // device has answered.
            if !runs.is_empty() {
                let mut io = mount.contexts.take_or_spare()?;
                let done = discard(&mut io, &runs, mount.block_shift);
                // Wait for all requests, even if one failed.
                let mut failed = done.err();
                while let Some((done, _)) = io.wait_oldest(write_set) {
                    failed = failed.or(done.result.err().map(Error::from_io));
                }
                failed.map_or(Ok(()), Err)?;
            }
            Ok((at, count))
        })
    }
}

/// Asks the device to discard the blocks `runs`, of `1 << shift` bytes.
fn discard(io: &mut IoContext, runs: &[Range<u64>], shift: u32) -> Result<()> {
    io.may_write()?;
    let per_block = (1 << shift) / u64::from(io.block_bytes);
    for run in runs {
        let (lba, count) = (run.start * per_block, (run.end - run.start) * per_block);
        let request = Request::deallocate(lba, count);
        io.submit(write_set, request, 0..0).map_err(|(rejected, _)| match rejected.error {
            SubmitError::Unsupported(what) => Unsupported {
                what: format!("the device does not have {what}"),
                advice: "it needs no trim, or has no way to be told",
            }
            .into(),
            error => Error::from(RequestError::from(error)),
        })?;
    }
    Ok(())
}
