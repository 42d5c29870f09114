//! The mapping of the doorbells in a device's BAR0.

#![expect(unsafe_code)]

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use meantime_nvme_spec::regs::DOORBELLS;

use super::error::{Result, VfioError};
use super::region::Region;
use crate::doorbells::Window;
use crate::event::EventFd;
use crate::mmio::Doorbell;

/// The granularity of mappings.
const PAGE: u64 = 4096;
/// Further doorbells belong to queues that are never created: 65,536 queues with the usual stride,
/// 128 with the largest.
const MAX_BYTES: u64 = 32 << 20;
/// The doorbells of the admin queue.
const LEAST_BYTES: u64 = 8;

/// Maps the doorbells in `bar` of `device`; `lost` is signalled when they no longer exist.
pub(super) fn map(device: BorrowedFd<'_>, bar: &Region, lost: EventFd) -> Result<Arc<Window>> {
    let first = u64::from(DOORBELLS);
    check(bar)?;
    let bytes = bar.mappable_from(first, bar.size.min(first + MAX_BYTES));
    if bytes < LEAST_BYTES {
        let what = format!(
            "the doorbells (from byte {first} on) cannot be mapped; they share a page with the \
             MSI-X table?"
        );
        return Err(VfioError::Bar { what });
    }
    // Whole pages: if a BAR ends within a page and the kernel offers to map it, the BAR has that
    // page to itself.
    let len = bytes.next_multiple_of(PAGE) as usize;
    let window = Window::map(device, bar.offset + first, len, first, Some(lost));
    window.map(Arc::new).map_err(VfioError::os("cannot map the doorbells"))
}

/// The doorbell at byte `offset` of BAR0, if it is mapped.
pub(super) fn doorbell(window: &Arc<Window>, offset: u32) -> Option<Doorbell> {
    let cell = window.cell(offset)?;
    let owner = Arc::clone(window) as Arc<dyn Any + Send + Sync>;
    // SAFETY: aligned as checked. The range stays mapped until the window is dropped, whether it is
    // device memory still or was replaced, and the window is the owner.
    Some(unsafe { Doorbell::mapped(cell, owner) })
}

/// Checks that BAR0 can be that of an NVMe controller.
fn check(bar: &Region) -> Result<()> {
    let least = u64::from(DOORBELLS) + LEAST_BYTES;
    let what = if bar.size == 0 {
        "the device has none".to_owned()
    } else if bar.size < least {
        format!("it has {} bytes, registers and the admin queue's doorbells take {least}", bar.size)
    } else if !bar.readable || !bar.writable {
        "it cannot be read and written".to_owned()
    } else if bar.mappable.is_empty() {
        format!(
            "the kernel does not let its {} bytes be mapped (they share a page with another \
             device?)",
            bar.size
        )
    } else {
        return Ok(());
    };
    Err(VfioError::Bar { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, OwnedFd};

    /// A file in place of a device.
    fn device(bytes: u64) -> OwnedFd {
        let file = rustix::fs::memfd_create("bar", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, bytes).unwrap();
        file
    }

    fn bar(size: u64, mappable: Vec<(u64, u64)>) -> Region {
        Region { offset: 0, size, readable: true, writable: true, mappable }
    }

    fn refusal(region: &Region) -> String {
        map(device(1 << 16).as_fd(), region, EventFd::new().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn bars_of_odd_size_are_refused() {
        assert!(refusal(&bar(0, vec![])).contains("none"));
        assert!(refusal(&bar(4096, vec![(0, 4096)])).contains("4096 bytes"));
        assert!(refusal(&bar(4103, vec![(0, 4103)])).contains("take 4104"));
        assert!(refusal(&bar(0x4000, vec![])).contains("mapped"));
        assert!(refusal(&bar(0x4000, vec![(0, 0x1000), (0x2000, 0x4000)])).contains("MSI-X"));
        assert!(
            refusal(&Region { writable: false, ..bar(0x4000, vec![(0, 0x4000)]) })
                .contains("written")
        );
    }

    #[test]
    fn doorbells_are_stores_at_their_offset() {
        let file = device(0x3000);
        let window =
            map(file.as_fd(), &bar(0x3000, vec![(0, 0x2000)]), EventFd::new().unwrap()).unwrap();
        doorbell(&window, 0x1004).unwrap().write_tail(7);
        let mut seen = [0; 4];
        rustix::io::pread(&file, &mut seen, 0x1004).unwrap();
        assert_eq!(seen, [7, 0, 0, 0]);
        for outside in [0, 0xffc, 0x1002, 0x2000, u32::MAX] {
            assert!(doorbell(&window, outside).is_none(), "{outside:#x}");
        }
        // Given up: the doorbell has no effect, and the file stays unchanged.
        let bell = doorbell(&window, 0x1000).unwrap();
        window.detach().unwrap();
        bell.write_tail(9);
        rustix::io::pread(&file, &mut seen, 0x1000).unwrap();
        assert_eq!(seen, [0; 4]);
        assert!(!window.is_lost());
    }

    #[test]
    fn a_store_to_a_lost_page_is_detected() {
        let file = device(0x3000);
        let lost = EventFd::new().unwrap();
        let window = map(file.as_fd(), &bar(0x3000, vec![(0, 0x3000)]), lost.clone()).unwrap();
        let bell = doorbell(&window, 0x2000).unwrap();
        bell.write_tail(1);
        assert!(!window.is_lost() && !lost.take());
        rustix::fs::ftruncate(&file, 0x1000).unwrap();
        bell.write_tail(2);
        assert!(window.is_lost() && lost.take());
        // The same on every page, after the replacement.
        doorbell(&window, 0x1000).unwrap().write_tail(3);
    }
}
