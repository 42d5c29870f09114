//! Metadata from the device, a bounded number of them kept.

use std::sync::{Arc, OnceLock};

use super::contexts::IoContexts;
use super::direct;
use super::newest::Newest;
use crate::bounded::Bounded;
use crate::error::Error;
use meantime_completion::Policy;
use meantime_ext4_format::{IoFailure, Source, SourceError};

/// Smaller things are read, and kept, with their neighbours: inodes above all.
const WINDOW_BYTES: u64 = 4096;
/// So much of a table is read at once by who goes through it, in bytes: a request costs as much as
/// transferring about this.
const AHEAD_BYTES: u64 = 64 << 10;

/// The metadata of a mounted device, as they are now: with what was changed and has not reached its
/// place. Cloning is cheap.
#[derive(Clone)]
pub struct DeviceSource(Arc<Inner>);

struct Inner {
    contexts: Arc<IoContexts>,
    policy: Option<Policy>,
    cache_bytes: usize,
    /// By byte offset and length. Never older than the device; older than `newest`, perhaps.
    kept: Bounded<(u64, usize), Arc<[u8]>>,
    newest: Newest,
    /// Log2 of the file system's block size, once anything may be changed.
    block_bits: OnceLock<u32>,
}

impl DeviceSource {
    /// Metadata through `contexts`, of which `cache_bytes` are kept.
    pub(crate) fn new(
        contexts: Arc<IoContexts>,
        policy: Option<Policy>,
        cache_bytes: usize,
    ) -> Self {
        let (kept, newest) = (Bounded::new(cache_bytes), Newest::default());
        Self(Arc::new(Inner {
            contexts,
            policy,
            cache_bytes,
            kept,
            newest,
            block_bits: OnceLock::new(),
        }))
    }

    /// The same device, of which nothing was read yet.
    pub(crate) fn anew(&self) -> Self {
        Self::new(Arc::clone(&self.0.contexts), self.0.policy, self.0.cache_bytes)
    }

    /// From now on there may be newer blocks, of `1 << block_bits` bytes.
    pub(crate) fn activate(&self, block_bits: u32) {
        let _ = self.0.block_bits.set(block_bits);
        self.0.newest.activate();
    }

    /// What is newer than on the device.
    pub fn newest(&self) -> &Newest {
        &self.0.newest
    }

    /// Each of `written` is in its place now: what of them is not newer still is kept as other
    /// metadata are.
    pub(crate) fn settle<'a>(&self, written: impl IntoIterator<Item = (u64, &'a Arc<[u8]>)>) {
        let mut blocks = self.0.newest.write();
        for (block, content) in written {
            // Even one that is newer still: what is kept must not be older than the device.
            self.update(block, content);
            blocks.settle(block, content);
        }
    }

    /// What is kept of block `block` is `content`. Who calls has the newest blocks to itself.
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

    /// The bytes of `key`, which are within the device. They are kept if no block has left the
    /// newest since `departures` were counted. If those before them are kept, and they are of a
    /// table that goes on up to `end`, more of it is read.
    fn fetch(
        &self,
        key: (u64, usize),
        end: u64,
        departures: Option<u64>,
    ) -> Result<Arc<[u8]>, SourceError> {
        let (offset, piece) = key;
        if let Some(bytes) = self.0.kept.get(&key) {
            return Ok(bytes);
        }
        let ahead = end.saturating_sub(offset).min(AHEAD_BYTES) as usize / piece * piece;
        if ahead > piece
            && let Some(before) = offset.checked_sub(piece as u64)
            && self.0.kept.get(&(before, piece)).is_some()
            && let Ok(bytes) = self.read_lasting(offset, ahead, piece, departures)
        {
            return Ok(bytes);
        }
        // What cannot be read further on is no concern of who asks for this.
        self.read_lasting(offset, piece, piece, departures)
    }

    /// Reads `bytes` bytes from the device, and keeps each `piece` of them; the first one.
    fn read_lasting(
        &self,
        offset: u64,
        bytes: usize,
        piece: usize,
        departures: Option<u64>,
    ) -> Result<Arc<[u8]>, SourceError> {
        let Inner { contexts, policy, kept, newest, .. } = &*self.0;
        let mut all = vec![0; bytes];
        direct::read_bytes(contexts, offset, &mut all, *policy).map_err(|error| match error {
            Error::Io(error) => SourceError::Io(IoFailure::new(error)),
            other => SourceError::Resources(other.to_string()),
        })?;
        // Held while they are put where others find them.
        let blocks = departures.map(|_| newest.read());
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

    /// `bytes` bytes from `offset` on, as the device has them, or had them when `departures` were
    /// counted; of a table up to `end`, perhaps.
    fn read_device(
        &self,
        offset: u64,
        bytes: usize,
        end: u64,
        departures: Option<u64>,
    ) -> Result<Arc<[u8]>, SourceError> {
        let device_bytes = self.0.contexts.info().bytes();
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

    /// Block `block` as it is now, and whether it was changed in memory: by a change that was
    /// complete, so that it has its checksum.
    fn read_block(
        &self,
        block: u64,
        block_bytes: usize,
        end: u64,
    ) -> Result<(Arc<[u8]>, bool), SourceError> {
        loop {
            let departures = {
                let blocks = self.0.newest.read();
                if let Some(newer) = blocks.get(block) {
                    return Ok((Arc::clone(newer), true));
                }
                blocks.departures()
            };
            let found =
                self.read_device(block * block_bytes as u64, block_bytes, end, Some(departures))?;
            let blocks = self.0.newest.read();
            if let Some(newer) = blocks.get(block) {
                return Ok((Arc::clone(newer), true));
            }
            // Changed, written and settled while it was being read, perhaps: then once more.
            if blocks.departures() == departures {
                return Ok((found, false));
            }
        }
    }

    /// Fails if `bytes` bytes from byte `offset` on are not all on the device.
    #[inline]
    fn check_range(&self, offset: u64, bytes: usize) -> Result<(), SourceError> {
        let device_bytes = self.0.contexts.info().bytes();
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= device_bytes => Ok(()),
            _ => Err(SourceError::OutOfRange),
        }
    }

    /// The same as [`Source::read_table`], where blocks may be newer than the device's.
    #[cold]
    #[inline(never)]
    fn read_newest(
        &self,
        offset: u64,
        bytes: usize,
        end: u64,
        block_bits: u32,
    ) -> Result<Arc<[u8]>, SourceError> {
        let block_bytes = 1usize << block_bits;
        let at = (offset as usize) & (block_bytes - 1);
        if at == 0 && bytes == block_bytes {
            return Ok(self.read_block(offset >> block_bits, block_bytes, end)?.0);
        }
        let last = (offset + bytes.max(1) as u64 - 1) >> block_bits;
        let mut all = Vec::with_capacity((bytes + at).next_multiple_of(block_bytes));
        for block in offset >> block_bits..=last {
            all.extend_from_slice(&self.read_block(block, block_bytes, end)?.0);
        }
        all.get(at..at + bytes).map(Arc::from).ok_or(SourceError::OutOfRange)
    }
}

impl std::fmt::Debug for DeviceSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceSource")
            .field("device", &self.0.contexts.info().uri)
            .finish_non_exhaustive()
    }
}

impl Source for DeviceSource {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        self.read_table(offset, bytes, 0)
    }

    fn read_table(&self, offset: u64, bytes: usize, end: u64) -> Result<Arc<[u8]>, SourceError> {
        self.check_range(offset, bytes)?;
        match self.0.block_bits.get() {
            Some(block_bits) if self.0.newest.is_active() => {
                self.read_newest(offset, bytes, end, *block_bits)
            }
            _ => self.read_device(offset, bytes, end, None),
        }
    }

    fn read_checked(
        &self,
        offset: u64,
        bytes: usize,
        end: u64,
    ) -> Result<(Arc<[u8]>, bool), SourceError> {
        match self.0.block_bits.get() {
            Some(bits) if bytes == 1 << bits && offset & (bytes as u64 - 1) == 0 => {
                self.check_range(offset, bytes)?;
                self.read_block(offset >> bits, bytes, end)
            }
            _ => Ok((self.read_table(offset, bytes, end)?, false)),
        }
    }
}
