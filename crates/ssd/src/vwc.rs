//! The volatile write cache.
//!
//! The medium always holds the data that a read must return, so reads never look anything up. The
//! cache keeps what a power cut would undo: for each block with unflushed data its content on the
//! non-volatile medium (*base*), and, in order, the writes that are not there yet (*log*). A power
//! cut restores every base and then replays a random subset of the log, each of its writes whole,
//! as a real device may have written any of them back before it died. Seen from outside this is a
//! cache in front of the medium; FLUSH drops the log, which is cheap.

use std::collections::{HashMap, VecDeque};

use crate::Rng;
use crate::medium::Medium;

/// One write of at most the atomic unit, whole blocks.
struct Logged {
    offset: u64,
    block_bytes: u32,
    data: Box<[u8]>,
    /// Written with FUA: a power cut never loses it.
    durable: bool,
    /// Fault injection: a power cut may lose a part of it.
    torn: bool,
}

/// A block's content on the non-volatile medium, and the number of logged writes that cover it.
struct Base {
    data: Box<[u8]>,
    writes: u32,
}

/// The range of a write: whole blocks of one namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) block_bytes: u32,
}

pub(crate) struct WriteCache {
    /// By byte offset on the medium. Never iterated in an order that matters.
    base: HashMap<u64, Base>,
    log: VecDeque<Logged>,
    log_bytes: u64,
    capacity_bytes: u64,
    /// Power-fail atomic unit, in blocks.
    atomic_blocks: u32,
}

fn read(medium: &Medium, offset: u64, len: usize) -> Box<[u8]> {
    let mut data = vec![0; len].into_boxed_slice();
    medium.span(offset, len).read(&mut data);
    data
}

impl WriteCache {
    pub(crate) fn new(capacity_bytes: u64, atomic_blocks: u32) -> Self {
        Self {
            base: HashMap::new(),
            log: VecDeque::new(),
            log_bytes: 0,
            capacity_bytes,
            atomic_blocks,
        }
    }

    /// Whether a write is larger than the cache.
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
        let block = u64::from(block_bytes);
        let mut blocks = (0..len / block).map(|i| offset + i * block);
        if durable && !blocks.clone().any(|at| self.base.contains_key(&at)) {
            // No unflushed data underneath: straight to the medium.
            write();
            return;
        }
        blocks.by_ref().for_each(|at| {
            let fresh = || Base { data: read(medium, at, block_bytes as usize), writes: 0 };
            self.base.entry(at).or_insert_with(fresh);
        });
        write();
        let unit = block * u64::from(self.atomic_blocks);
        let mut at = 0;
        while at < len {
            let part = unit.min(len - at);
            let data = read(medium, offset + at, part as usize);
            for covered in (0..part / block).map(|i| offset + at + i * block) {
                if let Some(base) = self.base.get_mut(&covered) {
                    base.writes += 1;
                }
            }
            self.log_bytes += part;
            self.log.push_back(Logged {
                offset: offset + at,
                block_bytes,
                data,
                durable,
                torn: false,
            });
            at += part;
        }
        while self.log_bytes > self.capacity_bytes {
            self.evict();
        }
    }

    /// Writes the oldest logged write back.
    fn evict(&mut self) {
        let Some(oldest) = self.log.pop_front() else { return };
        self.log_bytes -= oldest.data.len() as u64;
        for (i, data) in oldest.data.chunks_exact(oldest.block_bytes as usize).enumerate() {
            let at = oldest.offset + i as u64 * u64::from(oldest.block_bytes);
            let Some(base) = self.base.get_mut(&at) else { continue };
            base.writes -= 1;
            if base.writes == 0 {
                self.base.remove(&at);
            } else {
                base.data.copy_from_slice(data);
            }
        }
    }

    /// Makes all completed writes non-volatile.
    pub(crate) fn flush(&mut self) {
        self.base.clear();
        self.log.clear();
        self.log_bytes = 0;
    }

    /// Bytes that a power cut could lose.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Fault injection: a power cut may tear the last write, which is the `len` bytes at `offset`.
    pub(crate) fn mark_torn(&mut self, offset: u64, len: u64) {
        let mut left = len;
        for logged in self.log.iter_mut().rev() {
            if left == 0 || logged.offset.wrapping_sub(offset) >= len {
                break;
            }
            logged.torn = true;
            left = left.saturating_sub(logged.data.len() as u64);
        }
    }

    /// Power fails: any subset of the unflushed writes is lost. Returns the numbers of writes lost,
    /// and torn.
    pub(crate) fn power_cut(&mut self, medium: &Medium, rng: &mut Rng) -> (u64, u64) {
        for (&at, base) in &self.base {
            medium.span(at, base.data.len()).write(&base.data);
        }
        let (mut lost, mut torn) = (0, 0);
        for logged in &self.log {
            if logged.torn && !logged.durable {
                let kept = 1 + rng.below(logged.data.len() as u64 - 1) as usize;
                medium.span(logged.offset, kept).write(&logged.data[..kept]);
                torn += 1;
            } else if logged.durable || rng.next_u64() & 1 == 0 {
                medium.span(logged.offset, logged.data.len()).write(&logged.data);
            } else {
                lost += 1;
            }
        }
        self.flush();
        (lost, torn)
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
        let block = read(medium, lba * 512, 512);
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
