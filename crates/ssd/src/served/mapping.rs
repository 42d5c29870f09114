//! Memory shared with a client in another process: our doorbells, and the client's DMA memory.
//!
//! The file after the doorbells is sealed, so no process can truncate it. A client's file may
//! shrink at any time (or lack free huge pages), after which an access to the memory raises SIGBUS.
//! A serving process installs a handler that calls [`replace_faulted`]: the mapping becomes private
//! memory of zeroes, the access is repeated, and the server disconnects that client. Without a
//! handler the process ends.

#![expect(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use meantime_nvme_spec::regs;
use meantime_nvme_spec::soft_port::{DmaRegion, DoorbellLine, DoorbellLines, Doorbells};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Size of a memory page, and of the mapping granularity, in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Offset of the doorbells in BAR0, and in their file.
const DOORBELLS_AT: u64 = regs::DOORBELLS as u64;

/// The maximum number of mappings of clients' memory in a process.
const MAPPINGS_MAX: usize = 4096;

/// Doorbells in whole pages.
struct DoorbellPages {
    base: NonNull<DoorbellLine>,
    lines: usize,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; what is in it is only accessed as
// atomics.
unsafe impl Send for DoorbellPages {}
// SAFETY: as above.
unsafe impl Sync for DoorbellPages {}

impl DoorbellLines for DoorbellPages {
    fn lines(&self) -> &[DoorbellLine] {
        // SAFETY: `bytes` mapped bytes hold as many lines; they are aligned to a page, stay mapped
        // as long as `self`, cannot be cut off (the file is sealed), and a `DoorbellLine` is an
        // atomic for which every value is valid, whatever other processes store to it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.lines) }
    }
}

impl Drop for DoorbellPages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which all references borrow `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Returns the number of bytes of the doorbells of queue identifiers `0..queues`, in whole pages.
pub(super) const fn doorbell_bytes(queues: u16) -> u64 {
    let bytes = (Doorbells::lines_for(queues) * size_of::<DoorbellLine>()) as u64;
    bytes.next_multiple_of(PAGE_BYTES)
}

/// Creates doorbells for queue identifiers `0..queues` in a memory file, at their offset in BAR0.
pub(super) fn shared_doorbells(queues: u16) -> io::Result<(Doorbells, OwnedFd)> {
    let bytes = doorbell_bytes(queues);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("meantime-doorbells", flags)?;
    rustix::fs::ftruncate(&file, DOORBELLS_AT + bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let (protection, bytes) = (ProtFlags::READ | ProtFlags::WRITE, bytes as usize);
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            MapFlags::SHARED,
            &file,
            DOORBELLS_AT,
        )
    }?;
    let base = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    let pages = DoorbellPages { base, lines: bytes / size_of::<DoorbellLine>(), bytes };
    let doorbells =
        Doorbells::in_memory(queues, Box::new(pages)).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((doorbells, file))
}

/// A client's memory, mapped for reading and writing.
pub(super) struct ClientMemory {
    /// The beginning of the mapping, which is a multiple of the file's page size.
    base: NonNull<u8>,
    /// Its length, which is whole pages of the file.
    bytes: usize,
    /// Offset of the memory in it.
    head: usize,
    slot: &'static MappingSlot,
    #[expect(dead_code, reason = "held so that the descriptor in `slot` stays open")]
    alarm: Arc<OwnedFd>,
}

// SAFETY: a mapping belongs to the process, not to a thread; it is never accessed through this.
unsafe impl Send for ClientMemory {}
// SAFETY: as above.
unsafe impl Sync for ClientMemory {}

impl ClientMemory {
    /// Maps `bytes` bytes of `file` from `offset`. `alarm`, an eventfd, is signalled when the file
    /// no longer has them.
    ///
    /// For a file of huge pages (`page_bytes`), the kernel maps, unmaps and replaces whole pages
    /// only. The mapping therefore consists of whole pages, even if the client shares less (guests
    /// have a hole below 1 MiB).
    pub(super) fn map(
        file: &OwnedFd,
        offset: u64,
        bytes: usize,
        page_bytes: u64,
        alarm: &Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let (from, head, bytes) =
            whole_pages(offset, bytes, page_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, anywhere) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let mapped =
            unsafe { rustix::mm::mmap(anywhere, bytes, protection, MapFlags::SHARED, file, from) }?;
        let base = NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let Some(slot) = MappingSlot::take(base.as_ptr().expose_provenance(), bytes, alarm) else {
            // SAFETY: mapped just above, and only known here.
            let _ = unsafe { rustix::mm::munmap(mapped, bytes) };
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        Ok(Self { base, bytes, head, slot, alarm: Arc::clone(alarm) })
    }

    /// Returns its address.
    fn addr(&self) -> usize {
        self.base.as_ptr().expose_provenance() + self.head
    }

    /// Returns the region of its first `bytes` bytes for the controller.
    ///
    /// # Panics
    /// Panics if it is smaller.
    pub(super) fn region(memory: &Arc<Self>, iova: u64, bytes: usize) -> DmaRegion {
        assert!(bytes <= memory.bytes - memory.head, "beyond the mapping");
        let addr = memory.addr();
        // SAFETY: mapped for reading and writing as long as `memory`, which the region holds.
        // Nothing in this process accesses it but the controller; what the client does to it is
        // another process's doing.
        unsafe { DmaRegion::new(iova, addr, bytes, Arc::clone(memory) as Arc<_>) }
    }
}

/// Returns the whole pages, of `page_bytes` bytes, that contain `bytes` bytes from `offset`: their
/// offset in the file, the distance to `offset`, and their length.
fn whole_pages(offset: u64, bytes: usize, page_bytes: u64) -> Option<(u64, usize, usize)> {
    let head = offset.checked_rem(page_bytes)?;
    let len = u64::try_from(bytes).ok()?.checked_add(head)?.checked_next_multiple_of(page_bytes)?;
    Some((offset - head, usize::try_from(head).ok()?, usize::try_from(len).ok()?))
}

impl Drop for ClientMemory {
    fn drop(&mut self) {
        self.slot.release();
        // SAFETY: our own mapping; using its address takes a reference to `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A slot with a client's mapping, for the SIGBUS handler.
struct MappingSlot {
    taken: AtomicBool,
    /// Address of the mapping, or 0 if the slot is free.
    start: AtomicUsize,
    end: AtomicUsize,
    alarm: AtomicI32,
}

static MAPPING_SLOTS: [MappingSlot; MAPPINGS_MAX] = [const {
    MappingSlot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        alarm: AtomicI32::new(-1),
    }
}; MAPPINGS_MAX];

/// Where the search for a free slot begins. It is used to take a slot, and never by the handler.
static NEXT: Mutex<usize> = Mutex::new(0);

impl MappingSlot {
    fn take(start: usize, bytes: usize, alarm: &Arc<OwnedFd>) -> Option<&'static Self> {
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        for step in 0..MAPPINGS_MAX {
            let at = (*next + step) % MAPPINGS_MAX;
            let slot = &MAPPING_SLOTS[at];
            if !slot.taken.swap(true, Ordering::Acquire) {
                *next = at + 1;
                slot.end.store(start + bytes, Ordering::SeqCst);
                slot.alarm.store(alarm.as_raw_fd(), Ordering::SeqCst);
                slot.start.store(start, Ordering::SeqCst);
                return Some(slot);
            }
        }
        None
    }

    fn release(&self) {
        self.start.store(0, Ordering::SeqCst);
        self.taken.store(false, Ordering::Release);
    }
}

/// Is called by a SIGBUS handler with the address of the fault. If the address lies in a client's
/// memory, replaces the memory by zeroes, so that the access can be repeated, and signals the
/// server. Otherwise returns false, because the fault is not ours. The function is
/// async-signal-safe.
pub fn replace_faulted(address: usize) -> bool {
    for slot in &MAPPING_SLOTS {
        let start = slot.start.load(Ordering::SeqCst);
        let end = slot.end.load(Ordering::SeqCst);
        let alarm = slot.alarm.load(Ordering::SeqCst);
        // The slot of the mapping that faulted does not change meanwhile, since the faulting thread
        // keeps the mapping. Another slot may be reused between the loads. In that case its start
        // has changed, or every value is the new mapping's.
        if start == 0
            || address < start
            || address >= end
            || slot.start.load(Ordering::SeqCst) != start
        {
            continue;
        }
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: replaces exactly the mapping that this place stands for, which is ours and only
        // accessed by raw copies and atomics, for which the new memory is as good; mmap(2) is a
        // bare system call, and so allowed in a signal handler.
        let replaced = unsafe { rustix::mm::mmap_anonymous(at, end - start, protection, flags) };
        // SAFETY: the descriptor is open as long as the place is taken.
        let alarm = unsafe { BorrowedFd::borrow_raw(alarm) };
        let _ = rustix::io::write(alarm, &1u64.to_ne_bytes());
        return replaced.is_ok();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn doorbells_are_where_bar0_has_them_and_cannot_be_cut_off() {
        let (doorbells, file) = shared_doorbells(65).unwrap();
        assert_eq!(doorbell_bytes(65), 5 * 4096);
        doorbells.sq_tail(3).unwrap().store(0x1234_5678, Ordering::Relaxed);
        doorbells.parking().announce();
        let mut bytes = [0; 4];
        rustix::io::pread(&file, &mut bytes, 0x1000 + 6 * 128).unwrap();
        assert_eq!(bytes, 0x1234_5678u32.to_le_bytes());
        rustix::io::pread(&file, &mut bytes, 0x1000 + 130 * 128).unwrap();
        assert_eq!(bytes, [1, 0, 0, 0]);
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 1 << 20).is_err());
        assert_eq!(rustix::fs::fstat(file.as_fd()).unwrap().st_size, 0x1000 + 5 * 4096);
    }

    #[test]
    fn a_fault_is_found_and_replaced() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let alarm = Arc::new(rustix::event::eventfd(0, flags).unwrap());
        let memory = ClientMemory::map(&file, 0, 8192, PAGE_BYTES, &alarm).unwrap();
        rustix::io::pwrite(&file, &[7], 4096).unwrap();
        let byte = memory.base.as_ptr().wrapping_add(4096);
        // SAFETY: within the mapping.
        assert_eq!(unsafe { byte.read_volatile() }, 7);
        assert!(!replace_faulted(memory.addr() - 1) && !replace_faulted(memory.addr() + 8192));
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert!(replace_faulted(memory.addr() + 4096));
        // SAFETY: as above; without the replacement this would be the fault.
        assert_eq!(unsafe { byte.read_volatile() }, 0);
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&*alarm, &mut count), Ok(8));
        let addr = memory.addr();
        drop(memory);
        assert!(!replace_faulted(addr));
    }
    #[test]
    fn only_whole_large_pages_are_mapped() {
        const HUGE: u64 = 2 << 20;
        assert_eq!(whole_pages(0, 0xa_0000, HUGE), Some((0, 0, 2 << 20)));
        assert_eq!(whole_pages(0xc_0000, 0x14_0000, HUGE), Some((0, 0xc_0000, 2 << 20)));
        assert_eq!(whole_pages(0x3f_f000, 0x2000, HUGE), Some((0x20_0000, 0x1f_f000, 4 << 20)));
        assert_eq!(whole_pages(0x3000, 0x2000, PAGE_BYTES), Some((0x3000, 0, 0x2000)));
        assert_eq!(
            whole_pages(u64::MAX - 0xfff, 0x1000, HUGE),
            Some((u64::MAX - 0x1f_ffff, 0x1f_f000, 2 << 20))
        );
        assert_eq!(whole_pages(0x1000, usize::MAX, HUGE), None);
        assert_eq!(whole_pages(0, 4096, 0), None);

        // This is the same with a file of ordinary pages, so that no huge page is needed.
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 2 * HUGE).unwrap();
        rustix::io::pwrite(&file, &[7], 0xc_0000).unwrap();
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let alarm = Arc::new(rustix::event::eventfd(0, flags).unwrap());
        let memory = ClientMemory::map(&file, 0xc_0000, 0x1000, HUGE, &alarm).unwrap();
        let start = memory.addr() - 0xc_0000;
        let byte = std::ptr::with_exposed_provenance::<u8>(memory.addr());
        // SAFETY: within the mapping.
        assert_eq!(unsafe { byte.read_volatile() }, 7);
        // The replacement covers exactly the mapping.
        assert!(!replace_faulted(start - 1) && !replace_faulted(start + HUGE as usize));
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert!(replace_faulted(start + HUGE as usize - 1));
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read_volatile() }, 0);
        drop(memory);
        assert!(!replace_faulted(start));
    }
}
