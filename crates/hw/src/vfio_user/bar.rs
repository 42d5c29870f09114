//! The doorbells of BAR0 that the server shares.

#![expect(unsafe_code)]

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use meantime_nvme_spec::regs::DOORBELLS;
use meantime_nvme_spec::soft_port::DoorbellCell;
use rustix::fs::{FileType, fstat, fstatfs};

use super::connection::Connection;
use super::device::{Area, Region};
use super::error::Result;
use crate::doorbells::Window;
use crate::mmio::{Doorbell, Wake, WriteDoorbell};

/// No driver uses doorbells beyond this: 65,536 queues, 128 bytes from one doorbell to the next.
const LAST_DOORBELL: u64 = DOORBELLS as u64 + (16 << 20);

/// File system magic numbers (statfs(2)).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// Maps `area`, which begins at `from` in `file`.
fn map(file: &OwnedFd, from: u64, area: &Area) -> io::Result<Window> {
    let stat = fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a file in memory"));
    }
    // A FUSE server could delay a store for ever. Huge pages are only mapped and replaced as a
    // whole.
    if let FUSE_SUPER_MAGIC | HUGETLBFS_MAGIC = fstatfs(file)?.f_type {
        return Err(io::Error::other("a file that another program serves, or of huge pages"));
    }
    // Accesses beyond the end of the file raise SIGBUS, against which the window is guarded: the
    // server may still truncate the file.
    let end = from + area.bytes;
    if u64::try_from(stat.st_size).unwrap_or(0) < end {
        let what = format!("the file ends at {:#x}, the area at {end:#x}", stat.st_size);
        return Err(io::Error::other(what));
    }
    let bytes = usize::try_from(area.bytes).map_err(io::Error::other)?;
    Window::map(file, from, bytes, area.offset, None)
}

/// The mapped parts of BAR0.
#[derive(Debug)]
pub(super) struct Bar0 {
    windows: Vec<Arc<Window>>,
    /// Offset of the word that shows whether the server's thread has parked.
    parked: Option<u32>,
}

impl Bar0 {
    /// Maps the mappable doorbells of `region`. `parked` is the offset of the word in which the
    /// server's thread shows that it has parked, if it may park.
    pub(super) fn map(
        connection: &Connection,
        region: &Region,
        parked: Option<u32>,
    ) -> Result<Self> {
        let useful = |area: &&Area| {
            area.offset < LAST_DOORBELL && area.offset + area.bytes > u64::from(DOORBELLS)
        };
        let mut windows = Vec::new();
        for area in region.areas.iter().filter(useful) {
            let area = Area { bytes: area.bytes.min(LAST_DOORBELL - area.offset), ..*area };
            let file = region.files.get(area.file).or(region.files.first());
            let file = file.ok_or_else(|| connection.protocol("an area to map, and no file"))?;
            let window = map(file, region.file_offset + area.offset, &area).map_err(|error| {
                connection.unusable(format!(
                    "its doorbells at {:#x} of BAR0 cannot be mapped: {error}",
                    area.offset
                ))
            })?;
            windows.push(Arc::new(window));
        }
        let bar = Self { windows, parked };
        if let Some(parked) = parked
            && bar.cell(parked).is_none()
        {
            // Its parking could not be seen, but messages always wake it.
            tracing::warn!(
                server = connection.server(),
                parked,
                "its doorbells are not mapped: where it says that it sleeps is not"
            );
            return Ok(Self { windows: Vec::new(), parked: None });
        }
        Ok(bar)
    }

    /// Whether the doorbell at `offset` is mapped.
    pub(super) fn has(&self, offset: u32) -> bool {
        self.cell(offset).is_some()
    }

    fn cell(&self, offset: u32) -> Option<(NonNull<DoorbellCell>, &Arc<Window>)> {
        self.windows.iter().find_map(|window| Some((window.cell(offset)?, window)))
    }

    /// The doorbell at `offset`, written by `message` unless it is mapped.
    pub(super) fn doorbell(&self, offset: u32, message: Arc<dyn WriteDoorbell>) -> Doorbell {
        let Some((cell, window)) = self.cell(offset) else { return Doorbell::by_message(message) };
        let owner = Arc::clone(window) as Arc<dyn Any + Send + Sync>;
        let Some((parked, memory)) = self.parked.and_then(|parked| self.cell(parked)) else {
            // SAFETY: `cell` is aligned and in `window`, which `owner` keeps mapped.
            return unsafe { Doorbell::mapped(cell, owner) };
        };
        let owner = Arc::new((Arc::clone(window), Arc::clone(memory)));
        let waker = Arc::new(Waker { cell, _window: Arc::clone(window), message });
        // SAFETY: both are aligned, and each in one of the windows that `owner` keeps mapped.
        unsafe { Doorbell::parking(cell, parked, waker, owner) }
    }
}

/// Sends a doorbell again in a message.
struct Waker {
    cell: NonNull<DoorbellCell>,
    _window: Arc<Window>,
    message: Arc<dyn WriteDoorbell>,
}

// SAFETY: the cell is an atomic in a window that is kept mapped; nothing is bound to a thread.
unsafe impl Send for Waker {}
// SAFETY: as above.
unsafe impl Sync for Waker {}

impl Wake for Waker {
    fn wake(&self) {
        // SAFETY: mapped, since `_window` is.
        let value = unsafe { self.cell.as_ref() }.load(Ordering::Relaxed);
        // The value stored by this thread, or whatever the server has put into its own doorbell.
        self.message.write(value);
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn what_cannot_be_replaced_is_not_mapped() {
        let area = Area { offset: 0x1000, bytes: 0x1000, file: 0 };
        let file = |flags| {
            let file = memfd_create("bar", MemfdFlags::CLOEXEC | flags)?;
            ftruncate(&file, 2 << 20)?;
            Ok::<_, io::Error>(file)
        };
        assert!(map(&file(MemfdFlags::empty()).unwrap(), 0x1000, &area).is_ok());
        // Creating such a file needs no page; some kernels have no huge pages at all.
        if let Ok(huge) = file(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) {
            let refusal = map(&huge, 0, &area).unwrap_err().to_string();
            assert!(refusal.contains("huge pages"), "{refusal}");
        }
    }
}
