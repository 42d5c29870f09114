//! BAR0's doorbells, as far as the server shares them.

#![expect(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use meantime_spec::regs::DOORBELLS;
use meantime_spec::seam::DoorbellCell;
use rustix::fs::{FileType, fstat, fstatfs};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::connection::Connection;
use super::device::{Area, Region};
use super::error::Result;
use crate::mmio::{Doorbell, Wake, WriteDoorbell};
use crate::sigbus::{self, Guard};

/// Beyond this there are no doorbells that a driver would use: 65,536 queues, 128 bytes from one
/// doorbell to the next.
const LAST_DOORBELL: u64 = DOORBELLS as u64 + (16 << 20);

/// File systems, by statfs(2).
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// An area of BAR0 that is mapped.
#[derive(Debug)]
struct Window {
    addr: NonNull<c_void>,
    bytes: usize,
    /// Where in BAR0 it begins.
    offset: u64,
    /// Answers for stores beyond the end of a file that the server makes shorter. `None` only while
    /// it is dropped.
    guard: Option<Guard>,
}

// SAFETY: a window only owns the mapping, whose bytes are reached as atomics.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `area`, which begins at `from` in `file`.
    fn map(file: &OwnedFd, from: u64, area: &Area) -> io::Result<Self> {
        let stat = fstat(file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("not a file in memory"));
        }
        // A program behind a file system could keep a store waiting for ever. Huge pages are
        // mapped, and replaced, as a whole only.
        if let FUSE_SUPER_MAGIC | HUGETLBFS_MAGIC = fstatfs(file)?.f_type {
            return Err(io::Error::other("a file that another program serves, or of huge pages"));
        }
        // Beyond the end of its file a mapping is a trap (SIGBUS). One that is made shorter later
        // still is: see `guard`.
        let end = from + area.bytes;
        if u64::try_from(stat.st_size).unwrap_or(0) < end {
            let what = format!("the file ends at {:#x}, the area at {end:#x}", stat.st_size);
            return Err(io::Error::other(what));
        }
        let bytes = usize::try_from(area.bytes).map_err(io::Error::other)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let addr =
            unsafe { mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, from) }?;
        let addr = NonNull::new(addr).ok_or(io::ErrorKind::OutOfMemory)?;
        // A forked child would ring them as well.
        // SAFETY: our own mapping, which the advice does not change.
        let _ = unsafe { madvise(addr.as_ptr(), bytes, Advice::LinuxDontFork) };
        let mut window = Self { addr, bytes, offset: area.offset, guard: None };
        // SAFETY: our own mapping, used for doorbells only.
        let guard = unsafe { sigbus::guard(addr, bytes, None) }.map_err(io::Error::other)?;
        window.guard = Some(guard);
        Ok(window)
    }

    /// The register at `offset` of BAR0, if it is in this window and aligned.
    fn cell(&self, offset: u32) -> Option<NonNull<DoorbellCell>> {
        const CELL_BYTES: usize = size_of::<u32>();
        let at = usize::try_from(u64::from(offset).checked_sub(self.offset)?).ok()?;
        let inside = at.is_multiple_of(CELL_BYTES) && at.checked_add(CELL_BYTES)? <= self.bytes;
        // SAFETY: `at` is inside the mapping.
        inside.then(|| unsafe { self.addr.byte_add(at) }.cast())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // First: afterwards the range is no longer ours.
        self.guard = None;
        // SAFETY: the mapping is ours, and reaching it takes a reference to `self`.
        let _ = unsafe { munmap(self.addr.as_ptr(), self.bytes) };
    }
}

/// What of BAR0 is mapped.
#[derive(Debug)]
pub(super) struct Bar0 {
    windows: Vec<Arc<Window>>,
    /// Where the word is that says whether the server's thread has parked.
    parked: Option<u32>,
}

impl Bar0 {
    /// Maps the doorbells of `region` that can be. `parked` is where the server's thread says that
    /// it has parked, if it may.
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
            let window =
                Window::map(file, region.file_offset + area.offset, &area).map_err(|error| {
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
            // It would sleep, and we would not see it: messages always wake it.
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

    /// The doorbell at `offset`, if it is mapped; else `message` again, which sends it.
    pub(super) fn doorbell<W: WriteDoorbell + 'static>(
        &self,
        offset: u32,
        message: W,
    ) -> std::result::Result<Doorbell, W> {
        let Some((cell, window)) = self.cell(offset) else { return Err(message) };
        let owner = Arc::clone(window) as Arc<dyn Any + Send + Sync>;
        let Some((parked, home)) = self.parked.and_then(|parked| self.cell(parked)) else {
            // SAFETY: `cell` is aligned and in `window`, which `owner` keeps mapped.
            return Ok(unsafe { Doorbell::mapped(cell, owner) });
        };
        let owner = Arc::new((Arc::clone(window), Arc::clone(home)));
        let waker = Arc::new(Waker { cell, _window: Arc::clone(window), message });
        // SAFETY: both are aligned, and each in one of the windows that `owner` keeps mapped.
        Ok(unsafe { Doorbell::parking(cell, parked, waker, owner) })
    }
}

/// Sends a doorbell once more, by message.
struct Waker<W> {
    cell: NonNull<DoorbellCell>,
    _window: Arc<Window>,
    message: W,
}

// SAFETY: the cell is an atomic in a window that is kept mapped; nothing is bound to a thread.
unsafe impl<W: Send> Send for Waker<W> {}
// SAFETY: as above.
unsafe impl<W: Sync> Sync for Waker<W> {}

impl<W: WriteDoorbell> Wake for Waker<W> {
    fn wake(&self) {
        // SAFETY: mapped, since `_window` is.
        let value = unsafe { self.cell.as_ref() }.load(Ordering::Relaxed);
        // What this thread has stored; or whatever the server has put there, which is its own
        // doorbell.
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
        assert!(Window::map(&file(MemfdFlags::empty()).unwrap(), 0x1000, &area).is_ok());
        // It takes no page to make such a file; some kernels have none at all.
        if let Ok(huge) = file(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) {
            let refusal = Window::map(&huge, 0, &area).unwrap_err().to_string();
            assert!(refusal.contains("huge pages"), "{refusal}");
        }
    }
}
