//! Physical region pages, which describe a command's data (NVMe Base 1.4 §4.3).

use std::sync::atomic::{AtomicU64, Ordering};

use meantime_hw::dma::{DMA_PAGE, Iova};

/// Entries of one list page. Lists are not chained: a command is split before it would need a
/// second page.
pub(crate) const LIST_ENTRIES: usize = DMA_PAGE / 8;

/// The most data that one command can describe with one list page, whatever its first offset: PRP1
/// may cover less than a page, so one page less than PRP1 plus a full list.
pub const MAX_BYTES: usize = LIST_ENTRIES * DMA_PAGE;

const PAGE: u64 = DMA_PAGE as u64;

/// Describes the `len` bytes at `data`, which are contiguous in the controller's address space, and
/// returns (PRP1, PRP2).
///
/// Two pages or fewer need no list. Otherwise entries from the second page on are written to
/// `list`, which the controller sees at `list_iova`.
#[inline(always)]
pub fn fill(data: Iova, len: u32, list: &[AtomicU64; LIST_ENTRIES], list_iova: Iova) -> (u64, u64) {
    let first = data.0;
    // The end of PRP1's page; only PRP1 may have an offset.
    let second = (first & !(PAGE - 1)) + PAGE;
    let end = first + u64::from(len);
    if end <= second {
        (first, 0)
    } else if end <= second + PAGE {
        (first, second)
    } else {
        fill_list(second, end, list);
        (first, list_iova.0)
    }
}

/// Whether the data spans more than two pages.
pub(crate) fn needs_list(data: Iova, len: u32) -> bool {
    data.0 % PAGE + u64::from(len) > 2 * PAGE
}

#[inline(never)]
fn fill_list(second: u64, end: u64, list: &[AtomicU64; LIST_ENTRIES]) {
    let pages = (end - second).div_ceil(PAGE) as usize;
    // A command longer than MAX_BYTES would be a bug of the driver, and would make the device read
    // beyond the list.
    assert!(pages <= LIST_ENTRIES, "a command of {pages} pages does not fit one PRP list");
    for (index, entry) in list[..pages].iter().enumerate() {
        // Relaxed: the doorbell's Release makes the list visible (ARCHITECTURE.md §2, rule 4).
        entry.store((second + index as u64 * PAGE).to_le(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Box<[AtomicU64; LIST_ENTRIES]> {
        let entries: Vec<AtomicU64> = (0..LIST_ENTRIES).map(|_| AtomicU64::new(0)).collect();
        entries.into_boxed_slice().try_into().unwrap()
    }

    #[test]
    fn one_page() {
        assert_eq!(fill(Iova(0x1000), 512, &list(), Iova(0x9000)), (0x1000, 0));
        assert_eq!(fill(Iova(0x1000), 4096, &list(), Iova(0x9000)), (0x1000, 0));
        assert_eq!(fill(Iova(0x1e00), 512, &list(), Iova(0x9000)), (0x1e00, 0));
    }

    #[test]
    fn two_pages() {
        assert_eq!(fill(Iova(0x1000), 8192, &list(), Iova(0x9000)), (0x1000, 0x2000));
        assert_eq!(fill(Iova(0x1004), 4096, &list(), Iova(0x9000)), (0x1004, 0x2000));
    }

    #[test]
    fn a_list() {
        let list = list();
        assert_eq!(fill(Iova(0x1000), 3 * 4096, &list, Iova(0x9000)), (0x1000, 0x9000));
        assert_eq!(list[0].load(Ordering::Relaxed), 0x2000);
        assert_eq!(list[1].load(Ordering::Relaxed), 0x3000);
        assert_eq!(list[2].load(Ordering::Relaxed), 0);
        // The longest command, from a page's last dword.
        assert_eq!(fill(Iova(0x1ffc), MAX_BYTES as u32, &list, Iova(0x9000)).1, 0x9000);
        assert_eq!(list[LIST_ENTRIES - 1].load(Ordering::Relaxed), 0x2000 + 511 * 4096);
    }
}
