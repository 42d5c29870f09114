//! Host memory that the SSD may reach, laid out so that reaching beyond it is a segmentation fault:
//! guard pages around each region, and no access at all to a region that is not mapped into the
//! SSD.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use meantime_nvme_spec::soft_port::{DmaRegion, SoftPort};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

pub const PAGE: u64 = 4096;

/// Upper half of the queue region's IOVA. No dword of any other memory ever has this value (see
/// [`tame`]), so that no data pointer can lead into the queues behind the model's back.
const RINGS_HIGH: u32 = 0x5a3c_9e17;

/// The region of the queues: its first byte.
pub const RINGS: u64 = (RINGS_HIGH as u64) << 32 | 0xb4d2_0000;

/// Index of the queue region.
pub const RINGS_INDEX: usize = 0;

/// IOVA, length, and offset of the first byte within its first page of memory: the queues; data;
/// data that continues the former at another place in memory and ends within a page; data at an
/// address at which no queue can lie.
const LAYOUT: [(u64, usize, usize); REGIONS] = [
    (RINGS, 10 << 12, 0),
    (DATA, 8 << 12, 0),
    (DATA + (8 << 12), (2 << 12) + 512, 4096 - 512),
    (MISALIGNED, (2 << 12) - 4, 4),
];

pub const REGIONS: usize = 4;
pub const DATA: u64 = 0x1_0000_0000;
pub const MISALIGNED: u64 = 0x2_0000_0000;

/// What the bytes around a region hold that share a page with it.
const CANARY: u8 = 0xa5;

/// A number from the input, made harmless: it does not lead to the queues.
pub fn tame(value: u64) -> u64 {
    let is = |half: u64| half as u32 == RINGS_HIGH;
    if is(value) || is(value >> 32) { DATA } else { value }
}

struct Region {
    iova: u64,
    len: usize,
    host: *mut u8,
    /// The pages that hold it.
    pages: *mut u8,
    pages_len: usize,
    /// Whether it is mapped into the SSD.
    mapped: bool,
    accessible: Cell<bool>,
}

pub struct Memory {
    regions: [Region; REGIONS],
}

impl Memory {
    pub fn new() -> Self {
        let spans = LAYOUT.map(|(_, len, offset)| (offset + len).next_multiple_of(4096));
        let total = spans.iter().map(|span| span + 2 * 4096).sum();
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), total, ProtFlags::empty(), MapFlags::PRIVATE)
                .expect("mmap")
        };
        let mut at = base.cast::<u8>();
        let regions = std::array::from_fn(|i| {
            let (iova, len, offset) = LAYOUT[i];
            let pages = at.wrapping_add(4096);
            at = pages.wrapping_add(spans[i] + 4096);
            let host = pages.wrapping_add(offset);
            let accessible = Cell::new(false);
            let region =
                Region { iova, len, host, pages, pages_len: spans[i], mapped: false, accessible };
            region.protect(true);
            // SAFETY: the region's pages, which nobody else knows yet.
            unsafe { std::ptr::write_bytes(pages, CANARY, spans[i]) };
            region
        });
        Self { regions }
    }

    /// All zero, as before the first use, and nothing mapped.
    pub fn reset(&mut self) {
        for region in &mut self.regions {
            region.protect(true);
            // SAFETY: within the region, which no SSD has mapped any more.
            unsafe { std::ptr::write_bytes(region.host, 0, region.len) };
            region.mapped = false;
        }
    }

    pub fn is_mapped(&self, index: usize) -> bool {
        self.regions[index].mapped
    }

    /// Maps region `index` into the SSD, if it will have it.
    pub fn map(&mut self, index: usize, port: &dyn SoftPort) {
        let region = &mut self.regions[index];
        if region.mapped {
            return;
        }
        region.protect(true);
        let host_addr = region.host.expose_provenance();
        // SAFETY: mapped as long as the process lives. The host reads and writes it by atomics and
        // raw copies; it is made inaccessible only once the SSD must have let go of it, which is
        // what is tested.
        let dma = unsafe { DmaRegion::new(region.iova, host_addr, region.len, Arc::new(())) };
        region.mapped = port.map_dma(dma).is_ok();
        region.protect(region.mapped);
    }

    /// Takes region `index` back. It stays accessible to the caller until [`Memory::close`].
    pub fn unmap(&mut self, index: usize, port: &dyn SoftPort) {
        if std::mem::take(&mut self.regions[index].mapped) {
            port.unmap_dma(self.regions[index].iova).expect("it was mapped");
        }
    }

    /// Makes what is not mapped inaccessible.
    pub fn close(&self) {
        self.regions.iter().for_each(|region| region.protect(region.mapped));
    }

    /// Makes everything inaccessible while `during` runs: the SSD must have let go of all of it.
    pub fn close_all(&self, during: impl FnOnce()) {
        self.regions.iter().for_each(|region| region.protect(false));
        during();
        self.close();
    }

    /// The `words` integers of eight bytes at `iova`, if an accessible region has them all.
    pub fn words(&self, iova: u64, words: usize) -> Option<&[AtomicU64]> {
        let len = words * 8;
        let (region, offset) =
            self.regions.iter().filter(|region| region.accessible.get()).find_map(|region| {
                let offset = usize::try_from(iova.checked_sub(region.iova)?).ok()?;
                (offset < region.len && len <= region.len - offset).then_some((region, offset))
            })?;
        let at = region.host.wrapping_add(offset).cast::<AtomicU64>();
        // SAFETY: within an accessible region, by the checks above; only accessed as atomics, or by
        // the SSD's raw copies on this very thread.
        at.is_aligned().then(|| unsafe { std::slice::from_raw_parts(at, words) })
    }

    pub fn store(&self, iova: u64, words: &[u64]) -> bool {
        let Some(cells) = self.words(iova, words.len()) else { return false };
        for (cell, word) in cells.iter().zip(words) {
            cell.store(*word, Ordering::Relaxed);
        }
        true
    }

    pub fn load<const N: usize>(&self, iova: u64) -> Option<[u64; N]> {
        let cells = self.words(iova, N)?;
        Some(std::array::from_fn(|i| cells[i].load(Ordering::Acquire)))
    }

    /// Panics if a byte next to a region was written.
    pub fn check_canaries(&self) {
        for region in &self.regions {
            region.protect(true);
            // SAFETY: the region's pages, now accessible, in the part that nobody writes.
            let around = unsafe {
                let before = region.host.offset_from_unsigned(region.pages);
                let after = region.pages_len - before - region.len;
                let end = region.host.add(region.len);
                [
                    std::slice::from_raw_parts(region.pages, before),
                    std::slice::from_raw_parts(end, after),
                ]
            };
            assert!(
                around.concat().iter().all(|&byte| byte == CANARY),
                "the SSD wrote beyond a region"
            );
        }
    }
}

impl Region {
    fn protect(&self, accessible: bool) {
        if self.accessible.replace(accessible) == accessible {
            return;
        }
        let flags = if accessible {
            MprotectFlags::READ | MprotectFlags::WRITE
        } else {
            MprotectFlags::empty()
        };
        // SAFETY: pages of our own mapping; nothing holds a reference to them.
        unsafe { mprotect(self.pages.cast::<c_void>(), self.pages_len, flags).expect("mprotect") }
    }
}
