//! Namespaces on the medium, and the write cache in front of it.

use meantime_nvme_spec::opcode::IoOpcode;
use meantime_nvme_spec::sqe::Sqe;

use crate::Rng;
use crate::config::SsdConfig;
use crate::medium::{Medium, MediumSpan};
use crate::uncorrectable::Uncorrectable;
use crate::vwc::{Extent, WriteCache};

/// A namespace's place on the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespace {
    /// First byte on the medium.
    offset: u64,
    /// Size in logical blocks.
    pub(crate) blocks: u64,
    /// Logarithm of the bytes per block.
    pub(crate) lba_shift: u8,
}

impl Namespace {
    /// Returns the byte offset on the medium of `nlb` blocks from `slba`, or `None` beyond the end.
    #[inline(always)]
    pub(crate) fn locate(&self, slba: u64, nlb: u64) -> Option<u64> {
        // The comparison is written so that no sum can overflow.
        (nlb <= self.blocks && slba <= self.blocks - nlb)
            .then(|| self.offset + (slba << self.lba_shift))
    }

    /// Returns the range of the `blocks` blocks from `slba` on the medium, or `None` beyond the
    /// end.
    pub(crate) fn extent(&self, slba: u64, blocks: u32) -> Option<Extent> {
        let offset = self.locate(slba, blocks.into())?;
        let len = u64::from(blocks) << self.lba_shift;
        Some(Extent { offset, len, block_bytes: self.block_bytes() })
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        1 << self.lba_shift
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks << self.lba_shift
    }
}

/// Returns whether `sqe`, an I/O command, names logical blocks in its entry.
pub(crate) fn has_blocks(sqe: &Sqe) -> bool {
    matches!(
        IoOpcode::try_from(sqe.opcode()),
        Ok(IoOpcode::Read
            | IoOpcode::Write
            | IoOpcode::WriteUncorrectable
            | IoOpcode::Compare
            | IoOpcode::WriteZeroes
            | IoOpcode::Verify)
    )
}

pub(crate) struct Store {
    medium: Medium,
    namespaces: Vec<Namespace>,
    /// Blocks that cannot be read. They last as long as this object. Writing one makes it readable
    /// permanently, so the write is treated as FUA.
    uncorrectable: Uncorrectable,
    cache: Option<WriteCache>,
    cache_enabled: bool,
    /// Whether data was written since the last flush that a power cut, of the machine or of this
    /// SSD, could lose.
    unflushed: bool,
    /// Whether writing back has failed once. The kernel reports that once and then drops the data,
    /// so from then on no written data counts as durable.
    failed: bool,
    /// Whether writes go straight to the medium and need no further step.
    write_through: bool,
}

impl Store {
    /// Creates a store. `medium` holds at least the bytes that the configuration's namespaces take.
    pub(crate) fn new(config: &SsdConfig, medium: Medium) -> Self {
        let mut offset = 0;
        let namespaces = config.namespaces.iter().map(|n| {
            let lba_shift = n.lba_bytes.trailing_zeros() as u8;
            let namespace = Namespace { offset, blocks: n.bytes >> lba_shift, lba_shift };
            offset += n.bytes;
            namespace
        });
        let namespaces = namespaces.collect();
        let atomic = u32::from(config.atomic_write_lbas);
        let cache =
            config.volatile_write_cache.then(|| WriteCache::new(config.write_cache_bytes, atomic));
        Self {
            namespaces,
            uncorrectable: Uncorrectable::default(),
            cache_enabled: cache.is_some(),
            unflushed: false,
            failed: false,
            write_through: cache.is_none() && !medium.is_read_only(),
            cache,
            medium,
        }
    }

    /// Returns namespace `nsid`, counted from 1.
    #[inline(always)]
    pub(crate) fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.namespaces.get((nsid as usize).wrapping_sub(1))
    }

    /// Returns whether all namespaces are write protected, since their medium is.
    pub(crate) fn write_protected(&self) -> bool {
        self.medium.is_read_only()
    }

    pub(crate) fn namespace_count(&self) -> u32 {
        self.namespaces.len() as u32
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.namespaces.iter().map(Namespace::bytes).sum()
    }

    /// Returns whether writes go straight to the medium, complete there, and need not be announced
    /// to the cache. Returns false for a read-only medium.
    #[inline(always)]
    pub(crate) fn write_through(&self) -> bool {
        self.write_through
    }

    #[inline(always)]
    pub(crate) fn span(&self, offset: u64, len: usize) -> MediumSpan<'_> {
        self.medium.span(offset, len)
    }

    /// Performs `write` on the medium, which changes exactly `extent` of it. Returns false if the
    /// medium failed.
    pub(crate) fn write(&mut self, extent: Extent, fua: bool, write: impl FnOnce(&Medium)) -> bool {
        let fua = self.uncorrectable.clear(extent.offset, extent.len) || fua;
        let medium = &self.medium;
        match self.cache.as_mut().filter(|_| self.cache_enabled) {
            Some(cache) if cache.too_large(extent.len) => {
                // A cache may write back at any time. Here it writes back everything, and this
                // write bypasses it.
                cache.flush();
                write(medium);
            }
            Some(cache) => cache.write(medium, extent, fua, || write(medium)),
            None => write(medium),
        }
        if self.cache.is_none() {
            return true;
        }
        // A file's own volatile cache is the kernel's page cache, which stays on when ours is
        // disabled.
        let durable = fua || !self.cache_enabled;
        let stored = !durable || self.sync();
        self.unflushed |= !durable || !stored;
        stored
    }

    /// Makes the medium's content durable. Returns false if it failed, now or before.
    fn sync(&mut self) -> bool {
        self.failed = self.failed || !self.medium.sync();
        !self.failed
    }

    /// Makes `extent` read as zeroes.
    pub(crate) fn zero(&mut self, extent: Extent, fua: bool) -> bool {
        let mut zeroed = false;
        let stored =
            self.write(extent, fua, |medium| zeroed = medium.zero(extent.offset, extent.len));
        stored && zeroed
    }

    /// Marks `extent`, so that reads fail until it is written.
    pub(crate) fn mark_uncorrectable(&mut self, extent: Extent) {
        self.uncorrectable.mark(extent.offset, extent.len);
    }

    /// Returns the offset on the medium of the first byte of `extent` that cannot be read.
    pub(crate) fn first_uncorrectable(&self, extent: Extent) -> Option<u64> {
        self.uncorrectable.first_in(extent.offset, extent.len)
    }

    /// Returns whether there are blocks that cannot be read.
    pub(crate) fn has_uncorrectable(&self) -> bool {
        !self.uncorrectable.is_empty()
    }

    /// Writes all completed data to the medium. Returns false if the medium failed.
    pub(crate) fn flush(&mut self) -> bool {
        let synced = self.sync();
        if synced {
            self.unflushed = false;
            if let Some(cache) = &mut self.cache {
                cache.flush();
            }
        }
        synced
    }

    /// Makes the data that a read with FUA returns durable. Returns false if the medium failed.
    pub(crate) fn flush_for_read(&mut self) -> bool {
        self.cache.is_none() || !(self.unflushed || self.failed) || self.flush()
    }

    #[inline(always)]
    pub(crate) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Switches the cache on or off. Switching it off first writes everything back. Returns false
    /// if the medium failed.
    pub(crate) fn enable_cache(&mut self, on: bool) -> bool {
        if !on && !self.flush() {
            return false;
        }
        self.cache_enabled = on && self.cache.is_some();
        let through = self.cache.is_none() || (!self.cache_enabled && self.medium.path().is_none());
        self.write_through = through && !self.medium.is_read_only();
        true
    }

    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, WriteCache::unflushed_bytes)
    }

    /// Injects a fault: a power cut may tear the last write, which is the `len` bytes at `offset`.
    pub(crate) fn mark_torn(&mut self, offset: u64, len: u64) {
        if let Some(cache) = &mut self.cache {
            cache.mark_torn(offset, len);
        }
    }

    /// Applies a loss of power. Returns the numbers of unflushed writes that were lost, and torn.
    pub(crate) fn power_cut(&mut self, rng: &mut Rng) -> (u64, u64) {
        self.cache.as_mut().map_or((0, 0), |cache| cache.power_cut(&self.medium, rng))
    }
}
