//! The volatile write cache.
//!
//! The medium always holds the data that a read must return, so reads never look anything up. The
//! cache keeps what a power cut would undo: in order, the writes that are not on the non-volatile
//! medium yet (*log*), each with the content that it replaced. A power cut undoes them from the
//! last to the first and then repeats a random subset, each atomic unit whole, because a real
//! device may have written any of them back before it died. Seen from outside this is a cache in
//! front of the medium. FLUSH drops the log, which is cheap.

use std::collections::VecDeque;

use crate::Rng;
use crate::medium::Medium;

/// The number of buffers of dropped writes that are kept for the next ones, and the size of the
/// largest of them.
const SPARES_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 256 << 10;

/// One write, of whole blocks.
struct Logged {
    offset: u64,
    block_bytes: u32,
    /// The content that it replaced.
    replaced: Vec<u8>,
    /// The number of first bytes that are already on the non-volatile medium: whole atomic units,
    /// or all.
    written_back: usize,
    /// Whether it was written with FUA, so that a power cut never loses it.
    durable: bool,
    /// Whether a power cut may lose a part of each atomic unit. This injects a fault.
    torn: bool,
}

/// The range of a write: whole blocks of one namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) block_bytes: u32,
}

pub(crate) struct WriteCache {
    log: VecDeque<Logged>,
    /// The number of bytes of the log that are not written back, and of those that a power cut may
    /// lose.
    log_bytes: u64,
    unflushed_bytes: u64,
    capacity_bytes: u64,
    /// The power-fail atomic unit, in blocks.
    atomic_blocks: u32,
    spares: Vec<Vec<u8>>,
}

impl WriteCache {
    pub(crate) fn new(capacity_bytes: u64, atomic_blocks: u32) -> Self {
        Self {
            log: VecDeque::new(),
            log_bytes: 0,
            unflushed_bytes: 0,
            capacity_bytes,
            atomic_blocks,
            spares: Vec::new(),
        }
    }

    /// Returns whether a write is larger than the cache.
    pub(crate) fn too_large(&self, len: u64) -> bool {
        len > self.capacity_bytes
    }

    /// Performs `write`, which changes exactly `extent` of the medium. With `durable` it survives a
    /// power cut.
    pub(crate) fn write(
        &mut self,
        medium: &Medium,
        extent: Extent,
        durable: bool,
        write: impl FnOnce(),
    ) {
        let Extent { offset, len, block_bytes } = extent;
        if durable && self.log.is_empty() {
            // There is no unflushed data underneath, so the write goes straight to the medium.
            write();
            return;
        }
        let mut replaced = self.spares.pop().unwrap_or_default();
        replaced.resize(len as usize, 0);
        medium.span(offset, len as usize).read(&mut replaced);
        write();
        self.log_bytes += len;
        self.unflushed_bytes += if durable { 0 } else { len };
        let logged =
            Logged { offset, block_bytes, replaced, written_back: 0, durable, torn: false };
        self.log.push_back(logged);
        while self.log_bytes > self.capacity_bytes {
            self.evict();
        }
    }

    /// Writes the oldest atomic unit back.
    fn evict(&mut self) {
        let Some(oldest) = self.log.front_mut() else { return };
        let unit = oldest.block_bytes as usize * self.atomic_blocks as usize;
        let part = unit.min(oldest.replaced.len() - oldest.written_back);
        oldest.written_back += part;
        self.log_bytes -= part as u64;
        self.unflushed_bytes -= if oldest.durable { 0 } else { part as u64 };
        if oldest.written_back == oldest.replaced.len()
            && let Some(oldest) = self.log.pop_front()
        {
            keep(&mut self.spares, oldest);
        }
    }

    /// Makes all completed writes non-volatile.
    pub(crate) fn flush(&mut self) {
        self.log.drain(..).for_each(|logged| keep(&mut self.spares, logged));
        (self.log_bytes, self.unflushed_bytes) = (0, 0);
    }

    /// Returns the number of bytes that a power cut could lose.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes
    }

    /// Injects a fault: a power cut may tear the last write, which is the `len` bytes at `offset`.
    pub(crate) fn mark_torn(&mut self, offset: u64, len: u64) {
        if let Some(last) = self.log.back_mut()
            && last.offset == offset
            && last.replaced.len() as u64 == len
        {
            last.torn = true;
        }
    }

    /// Applies a loss of power: any subset of the unflushed writes is lost. Returns the numbers of
    /// atomic units that were lost, and torn.
    pub(crate) fn power_cut(&mut self, medium: &Medium, rng: &mut Rng) -> (u64, u64) {
        // Each buffer afterwards holds what its write wrote.
        let mut written = Vec::new();
        for Logged { offset, replaced, written_back, .. } in self.log.iter_mut().rev() {
            let undone = &mut replaced[*written_back..];
            let span = || medium.span(*offset + *written_back as u64, undone.len());
            written.resize(undone.len(), 0);
            span().read(&mut written);
            span().write(undone);
            undone.copy_from_slice(&written);
        }
        let (mut lost, mut torn) = (0, 0);
        for logged in &self.log {
            let unit = logged.block_bytes as usize * self.atomic_blocks as usize;
            let mut at = logged.offset + logged.written_back as u64;
            for part in logged.replaced[logged.written_back..].chunks(unit) {
                if logged.torn && !logged.durable {
                    let kept = 1 + rng.below(part.len() as u64 - 1) as usize;
                    medium.span(at, kept).write(&part[..kept]);
                    torn += 1;
                } else if logged.durable || rng.next_u64() & 1 == 0 {
                    medium.span(at, part.len()).write(part);
                } else {
                    lost += 1;
                }
                at += part.len() as u64;
            }
        }
        self.flush();
        (lost, torn)
    }
}

/// Keeps the buffer of a write that has left the log.
fn keep(spares: &mut Vec<Vec<u8>>, logged: Logged) {
    if spares.len() < SPARES_MAX && logged.replaced.capacity() <= SPARE_BYTES_MAX {
        spares.push(logged.replaced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = 512;

    fn put(
        cache: &mut WriteCache,
        medium: &Medium,
        lba: u64,
        blocks: u64,
        byte: u8,
        durable: bool,
    ) {
        let extent = Extent { offset: lba * 512, len: blocks * 512, block_bytes: BLOCK };
        cache.write(medium, extent, durable, || {
            medium.span(extent.offset, extent.len as usize).fill(byte);
        });
    }

    fn byte(medium: &Medium, lba: u64) -> u8 {
        let mut block = [0; 512];
        medium.span(lba * 512, 512).read(&mut block);
        assert!(block.iter().all(|&b| b == block[0]), "a block is never torn");
        block[0]
    }

    #[test]
    fn a_power_cut_loses_a_subset_of_what_was_not_flushed() {
        let mut seen = [false; 4];
        for seed in 0..64 {
            let medium = Medium::dram(1 << 20).unwrap();
            let mut cache = WriteCache::new(1 << 20, 1);
            put(&mut cache, &medium, 0, 2, 1, false);
            cache.flush();
            put(&mut cache, &medium, 0, 2, 2, false);
            put(&mut cache, &medium, 7, 1, 3, true);
            assert_eq!(byte(&medium, 0), 2, "reads see the newest data");
            cache.power_cut(&medium, &mut Rng::new(seed));
            let found = (byte(&medium, 0), byte(&medium, 1));
            assert!((1..=2).contains(&found.0) && (1..=2).contains(&found.1));
            seen[usize::from(found.0 - 1) * 2 + usize::from(found.1 - 1)] = true;
            assert_eq!(byte(&medium, 7), 3, "FUA survives");
        }
        assert_eq!(seen, [true; 4], "every subset occurs");
    }

    #[test]
    fn atomic_units_are_not_torn_even_where_writes_overlap() {
        for seed in 0..64 {
            let medium = Medium::dram(1 << 20).unwrap();
            let mut cache = WriteCache::new(1 << 20, 8);
            put(&mut cache, &medium, 0, 8, 1, false);
            put(&mut cache, &medium, 4, 8, 2, false);
            cache.power_cut(&medium, &mut Rng::new(seed));
            let found: Vec<u8> = (0..12).map(|lba| byte(&medium, lba)).collect();
            let states = [
                [0; 12],
                [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0],
                [0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2],
                [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2],
            ];
            assert!(states.iter().any(|s| s[..] == found[..]), "{found:?}");
        }
    }

    #[test]
    fn fua_over_unflushed_data_survives_with_what_came_after_in_order() {
        for seed in 0..32 {
            let medium = Medium::dram(1 << 20).unwrap();
            let mut cache = WriteCache::new(1 << 20, 1);
            put(&mut cache, &medium, 0, 1, 1, false);
            put(&mut cache, &medium, 0, 1, 2, true);
            put(&mut cache, &medium, 0, 1, 3, false);
            cache.power_cut(&medium, &mut Rng::new(seed));
            assert!((2..=3).contains(&byte(&medium, 0)));
        }
    }

    #[test]
    fn a_full_cache_writes_its_oldest_back() {
        let medium = Medium::dram(1 << 20).unwrap();
        let mut cache = WriteCache::new(4 * 512, 1);
        for lba in 0..8 {
            put(&mut cache, &medium, lba, 1, 9, false);
        }
        assert_eq!(cache.unflushed_bytes(), 4 * 512);
        for seed in 0..8 {
            cache.power_cut(&medium, &mut Rng::new(seed));
            assert!((0..4).all(|lba| byte(&medium, lba) == 9));
        }
    }
}
