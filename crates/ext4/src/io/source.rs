//! Metadata from the device, with a bounded cache.

use std::sync::{Arc, OnceLock};

use super::contexts::IoContexts;
use super::direct;
use super::newer_blocks::NewerBlocks;
use crate::bounded::Bounded;
use crate::error::Error;
use meantime_completion::Policy;
use meantime_ext4_format::{Checked, IoFailure, Source, SourceError};

/// Smaller structures, above all inodes, are read and cached together with their neighbours.
const WINDOW_BYTES: u64 = 4096;
/// Bytes of a table read at once in a sequential walk: a request costs about as much as
/// transferring this many.
const AHEAD_BYTES: u64 = 64 << 10;

/// The current metadata of a mounted device, including changes that are not in place yet. Cheap to
/// clone.
#[derive(Clone)]
pub struct DeviceSource(Arc<Inner>);

struct Inner {
    contexts: Arc<IoContexts>,
    policy: Option<Policy>,
    cache_bytes: usize,
    /// The cached metadata by byte offset and length. They are never older than the device, but may
    /// be older than `newer_blocks`.
    kept: Bounded<(u64, usize), Arc<[u8]>>,
    newer_blocks: NewerBlocks,
    /// Log2 of the file system's block size, once anything may be changed.
    block_bits: OnceLock<u32>,
}

/// The part of a [`DeviceSource`] that is in memory. Reading anything else fails, and notes what is
/// missing.
pub(crate) struct InMemory<'a> {
    source: &'a DeviceSource,
    missing: OnceLock<Missing>,
}

/// The first bytes that were not in memory, perhaps of a table that ends at byte `end`.
#[derive(Debug)]
struct Missing {
    offset: u64,
    bytes: usize,
    end: u64,
}

/// Reads a [`DeviceSource`]. If it is to read no device, it notes what is not in memory.
struct Reader<'a> {
    inner: &'a Inner,
    missing: Option<&'a OnceLock<Missing>>,
}

impl DeviceSource {
    /// Returns the metadata of the device of `contexts`, of which `cache_bytes` are cached.
    pub(crate) fn new(
        contexts: Arc<IoContexts>,
        policy: Option<Policy>,
        cache_bytes: usize,
    ) -> Self {
        let (kept, newer_blocks) = (Bounded::new(cache_bytes), NewerBlocks::default());
        Self(Arc::new(Inner {
            contexts,
            policy,
            cache_bytes,
            kept,
            newer_blocks,
            block_bits: OnceLock::new(),
        }))
    }

    /// Returns the same device with an empty cache.
    pub(crate) fn anew(&self) -> Self {
        Self::new(Arc::clone(&self.0.contexts), self.0.policy, self.0.cache_bytes)
    }

    /// Declares that there may be newer blocks, of `1 << block_bits` bytes, from now on.
    pub(crate) fn activate(&self, block_bits: u32) {
        let _ = self.0.block_bits.set(block_bits);
        self.0.newer_blocks.activate();
    }

    /// Returns the blocks that are newer than on the device.
    pub fn newer_blocks(&self) -> &NewerBlocks {
        &self.0.newer_blocks
    }

    /// Records that `written` are in place: those without a newer content are cached as other
    /// metadata are.
    pub(crate) fn written_in_place<'a>(
        &self,
        written: impl IntoIterator<Item = (u64, &'a Arc<[u8]>)>,
    ) {
        let mut blocks = self.0.newer_blocks.write();
        for (block, content) in written {
            // This includes blocks with a newer content, because the cache must not be older than
            // the device.
            self.update(block, content);
            blocks.written_in_place(block, content);
        }
    }

    /// Sets the cached content of `block`. The caller has the newer blocks locked for writing.
    fn update(&self, block: u64, content: &Arc<[u8]>) {
        let offset = block * content.len() as u64;
        let window = offset - offset % WINDOW_BYTES;
        let key = (offset, content.len());
        if content.len() as u64 >= WINDOW_BYTES {
            self.0.kept.update(&key, |_| Arc::clone(content));
            self.0.kept.keep(key, Arc::clone(content), content.len());
            return;
        }
        let device_bytes = self.0.contexts.info().bytes();
        let at = (offset - window) as usize;
        self.0.kept.update(&(window, WINDOW_BYTES.min(device_bytes - window) as usize), |all| {
            let mut all = all.to_vec();
            if let Some(part) = all.get_mut(at..at + content.len()) {
                part.copy_from_slice(content);
            }
            all.into()
        });
    }

    /// Returns a source that reads this one from memory only.
    pub(crate) fn in_memory(&self) -> InMemory<'_> {
        InMemory { source: self, missing: OnceLock::new() }
    }

    fn reader<'a>(&'a self, missing: Option<&'a OnceLock<Missing>>) -> Reader<'a> {
        Reader { inner: &self.0, missing }
    }
}

impl Reader<'_> {
    /// Returns the bytes of `key`, which are within the device. They are cached if no block has
    /// been removed from the newer blocks since `departures` was read. If the bytes before them are
    /// cached, and they belong to a table that continues up to `end`, more of it is read.
    fn fetch(
        &self,
        key: (u64, usize),
        end: u64,
        departures: Option<u64>,
    ) -> Result<Arc<[u8]>, SourceError> {
        let (offset, piece) = key;
        if let Some(bytes) = self.inner.kept.get(&key) {
            return Ok(bytes);
        }
        if let Some(missing) = self.missing {
            let _ = missing.set(Missing { offset, bytes: piece, end });
            return Err(SourceError::Resources("metadata that are not in memory".to_owned()));
        }
        let ahead = end.saturating_sub(offset).min(AHEAD_BYTES) as usize / piece * piece;
        if ahead > piece
            && let Some(before) = offset.checked_sub(piece as u64)
            && self.inner.kept.get(&(before, piece)).is_some()
            && let Ok(bytes) = self.read_lasting(offset, ahead, piece, departures)
        {
            return Ok(bytes);
        }
        // An error further on does not concern this caller.
        self.read_lasting(offset, piece, piece, departures)
    }

    /// Reads `bytes` bytes from the device, and caches each `piece` of them. Returns the first.
    fn read_lasting(
        &self,
        offset: u64,
        bytes: usize,
        piece: usize,
        departures: Option<u64>,
    ) -> Result<Arc<[u8]>, SourceError> {
        let Inner { contexts, policy, kept, newer_blocks, .. } = self.inner;
        let mut all = vec![0; bytes];
        direct::read_bytes(contexts, offset, &mut all, *policy).map_err(|error| match error {
            Error::Io(error) => SourceError::Io(IoFailure::new(error)),
            other => SourceError::Resources(other.to_string()),
        })?;
        // The lock is held until they are cached.
        let blocks = departures.map(|_| newer_blocks.read());
        if blocks.as_ref().map(|blocks| blocks.departures()) != departures {
            all.truncate(piece);
            return Ok(all.into());
        }
        let mut pieces = all.chunks_exact(piece).zip((offset..).step_by(piece));
        let mut keep =
            || pieces.next().map(|(bytes, at)| kept.keep((at, piece), bytes.into(), piece));
        let first = keep().ok_or(SourceError::OutOfRange)?;
        while keep().is_some() {}
        Ok(first)
    }

    /// Returns `bytes` bytes from `offset` on, as they are on the device now or were when
    /// `departures` was read. They may belong to a table that ends at `end`.
    fn read_device(
        &self,
        offset: u64,
        bytes: usize,
        end: u64,
        departures: Option<u64>,
    ) -> Result<Arc<[u8]>, SourceError> {
        let device_bytes = self.inner.contexts.info().bytes();
        let window = offset - offset % WINDOW_BYTES;
        let inside = (offset - window) as usize;
        if bytes as u64 >= WINDOW_BYTES || inside as u64 + bytes as u64 > WINDOW_BYTES {
            return self.fetch((offset, bytes), end, departures);
        }
        let all = self.fetch(
            (window, WINDOW_BYTES.min(device_bytes - window) as usize),
            end,
            departures,
        )?;
        if all.len() == bytes { Ok(all) } else { Ok(all[inside..inside + bytes].into()) }
    }

    /// Returns the current content of `block`, and whether a completed change made it. If so, it
    /// has its checksum.
    fn read_block(&self, block: u64, block_bytes: usize, end: u64) -> Result<Checked, SourceError> {
        loop {
            let departures = {
                let blocks = self.inner.newer_blocks.read();
                if let Some(newer) = blocks.get(block) {
                    return Ok((Arc::clone(newer), true));
                }
                blocks.departures()
            };
            let found =
                self.read_device(block * block_bytes as u64, block_bytes, end, Some(departures))?;
            let blocks = self.inner.newer_blocks.read();
            if let Some(newer) = blocks.get(block) {
                return Ok((Arc::clone(newer), true));
            }
            // The block may have been changed, written in place and removed during the read. Try
            // again in that case.
            if blocks.departures() == departures {
                return Ok((found, false));
            }
        }
    }

    /// Checks that `bytes` bytes from byte `offset` on are on the device.
    #[inline]
    fn check_range(&self, offset: u64, bytes: usize) -> Result<(), SourceError> {
        let device_bytes = self.inner.contexts.info().bytes();
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= device_bytes => Ok(()),
            _ => Err(SourceError::OutOfRange),
        }
    }

    /// Reads a part of a table, as [`Source::read_table`] does, where blocks may be newer than the
    /// device's.
    #[cold]
    #[inline(never)]
    fn read_newer(
        &self,
        offset: u64,
        bytes: usize,
        end: u64,
        block_bits: u32,
    ) -> Result<Arc<[u8]>, SourceError> {
        let block_bytes = 1usize << block_bits;
        let at = (offset as usize) & (block_bytes - 1);
        let last = (offset + bytes.max(1) as u64 - 1) >> block_bits;
        let mut all = Vec::with_capacity((bytes + at).next_multiple_of(block_bytes));
        for block in offset >> block_bits..=last {
            all.extend_from_slice(&self.read_block(block, block_bytes, end)?.0);
        }
        all.get(at..at + bytes).map(Arc::from).ok_or(SourceError::OutOfRange)
    }
}

impl Source for Reader<'_> {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.read_table(offset, bytes, 0)
    }

    fn read_checked(&self, offset: u64, bytes: usize, end: u64) -> Result<Checked, SourceError> {
        self.check_range(offset, bytes)?;
        match self.inner.block_bits.get() {
            Some(bits) if bytes == 1 << bits && offset & (bytes as u64 - 1) == 0 => {
                self.read_block(offset >> bits, bytes, end)
            }
            Some(bits) if self.inner.newer_blocks.is_active() => {
                Ok((self.read_newer(offset, bytes, end, *bits)?, false))
            }
            _ => Ok((self.read_device(offset, bytes, end, None)?, false)),
        }
    }
}

impl Source for DeviceSource {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.reader(None).read(offset, bytes)
    }

    fn read_checked(&self, offset: u64, bytes: usize, end: u64) -> Result<Checked, SourceError> {
        self.reader(None).read_checked(offset, bytes, end)
    }
}

impl InMemory<'_> {
    /// Returns whether anything was missing.
    pub(crate) fn is_missing(&self) -> bool {
        self.missing.get().is_some()
    }

    /// Reads what was missing from the device, into the cache. Returns whether that succeeded.
    pub(crate) fn read_missing(&self) -> bool {
        self.missing.get().is_some_and(|Missing { offset, bytes, end }| {
            self.source.read_table(*offset, *bytes, *end).is_ok()
        })
    }
}

impl Source for InMemory<'_> {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.source.reader(Some(&self.missing)).read(offset, bytes)
    }

    fn read_checked(&self, offset: u64, bytes: usize, end: u64) -> Result<Checked, SourceError> {
        self.source.reader(Some(&self.missing)).read_checked(offset, bytes, end)
    }
}

impl std::fmt::Debug for DeviceSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSource")
            .field("device", &self.0.contexts.info().uri)
            .finish_non_exhaustive()
    }
}
