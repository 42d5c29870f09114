//! Memory for DMA: huge pages if available, otherwise ordinary pages; anonymous, or of a file that
//! another process can map as well.

#![expect(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};

use super::{HwError, Result};

/// The size of a huge page on x86-64, and the granularity of [`Pages`].
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// The kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// 2 MiB pages from the kernel's reserved pool.
    Huge,
    /// Ordinary memory that the kernel was advised to back with 2 MiB pages.
    Advised,
}

impl PageKind {
    /// A description, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Huge => "2 MiB pages (reserved)",
            Self::Advised => "4 KiB pages (transparent huge pages advised)",
        }
    }
}

/// Requirements on memory for DMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaLimits {
    /// Whether it must be locked before the device may access it.
    pub lock: bool,
    /// Whether it must be of a file that another process can map ([`Pages::file`]).
    pub shared: bool,
    /// The first I/O virtual address to use.
    pub iova_first: u64,
    /// The last I/O virtual address to use.
    pub iova_last: u64,
    /// The most mappings at a time.
    pub max_regions: usize,
}

impl Default for DmaLimits {
    /// Private memory, unlocked. The first address is above 4 GiB, clear of the x86 MSI window at
    /// 0xFEE0_0000, and never equal to an address of this process, so that confusing the two is
    /// detected.
    fn default() -> Self {
        let (iova_first, iova_last) = (0x1_0000_0000, u64::MAX);
        Self { lock: false, shared: false, iova_first, iova_last, max_regions: usize::MAX }
    }
}

/// A mapping of zeroed, faulted-in memory, aligned to 2 MiB; or whole pages of a caller's memory,
/// lent for a read.
#[derive(Debug)]
pub struct Pages {
    addr: NonNull<c_void>,
    len: usize,
    kind: PageKind,
    /// The mapped file, from offset 0; `None` if the memory is anonymous.
    file: Option<Arc<OwnedFd>>,
    /// Whether to unmap it on drop; a caller's memory is not unmapped.
    owned: bool,
}

// SAFETY: `Pages` only owns the mapping; `DmaHeap` decides which owner may access which bytes.
unsafe impl Send for Pages {}
// SAFETY: as above; no method touches the memory.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least `bytes` (rounded up to 2 MiB), as `limits` requires.
    ///
    /// # Errors
    /// Returns [`HwError::Map`] if there is no memory, or [`HwError::Lock`], which names the limit,
    /// if locking is refused.
    pub fn map(bytes: usize, limits: &DmaLimits) -> Result<Self> {
        let len = bytes
            .checked_next_multiple_of(HUGE_PAGE)
            .ok_or_else(|| HwError::Map { bytes, source: io::ErrorKind::OutOfMemory.into() })?;
        let pages = match Self::map_huge(len, limits.shared) {
            Some(pages) => pages,
            None => Self::map_advised(len, limits.shared)?,
        };
        // A forked child must not share these pages: of a page that both processes have, the first
        // to write gets a copy, and the device would go on with the other one. SAFETY: the range is
        // our own mapping; the advice does not change its contents.
        let _ = unsafe { madvise(pages.addr.as_ptr(), len, Advice::LinuxDontFork) };
        if limits.lock {
            // SAFETY: the range is our own mapping.
            unsafe { mlock(pages.addr.as_ptr(), len) }.map_err(|errno| HwError::Lock {
                bytes: len,
                limit: memlock_limit(),
                source: errno.into(),
            })?;
        }
        Ok(pages)
    }

    /// The `len` bytes at `addr`, which belong to a caller: see `user_memory`.
    pub(super) fn of_another(addr: NonNull<u8>, len: usize) -> Self {
        Self { addr: addr.cast(), len, kind: PageKind::Advised, file: None, owned: false }
    }

    fn map_huge(len: usize, shared: bool) -> Option<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // MAP_HUGETLB reserves at once, so a pool that is too small fails here, not at the first
        // access. The same holds for mapping a file of huge pages.
        let (addr, file) = if shared {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
            let file = file_of(len, flags).ok()?;
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that only we
            // have.
            let addr = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, &file, 0) }.ok()?;
            (addr, Some(Arc::new(file)))
        } else {
            let flags =
                MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB | MapFlags::POPULATE;
            // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
            (unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }.ok()?, None)
        };
        Some(Self { addr: NonNull::new(addr)?, len, kind: PageKind::Huge, file, owned: true })
    }

    fn map_advised(len: usize, shared: bool) -> Result<Self> {
        let failed = |source: io::Error| HwError::Map { bytes: len, source };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let spacious =
            len.checked_add(HUGE_PAGE).ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice, one huge page
        // longer than needed.
        let raw =
            unsafe { mmap_anonymous(std::ptr::null_mut(), spacious, prot, MapFlags::PRIVATE) }
                .map_err(|errno| failed(errno.into()))?;
        let start = (raw as usize).next_multiple_of(HUGE_PAGE);
        let head = start - raw as usize;
        let addr = raw.wrapping_byte_add(head);
        // SAFETY: both ranges lie inside the mapping just made, before and after the part that is
        // kept; nothing refers to them.
        unsafe {
            if head > 0 {
                let _ = munmap(raw, head);
            }
            let _ = munmap(addr.wrapping_byte_add(len), spacious - head - len);
        }
        let mut pages = Self {
            addr: NonNull::new(addr).ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?,
            len,
            kind: PageKind::Advised,
            file: None,
            owned: true,
        };
        if shared {
            let file = file_of(len, MemfdFlags::CLOEXEC).map_err(failed)?;
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: exactly over the mapping just made, which only we know.
            unsafe { mmap(addr, len, prot, flags, &file, 0) }
                .map_err(|errno| failed(errno.into()))?;
            pages.file = Some(Arc::new(file));
        }
        // SAFETY: the range is our own mapping; the advice does not change its contents.
        let _ = unsafe { madvise(addr, len, Advice::LinuxHugepage) };
        // Faults pages in now, not in the middle of an I/O.
        // SAFETY: as above; populating only faults pages in.
        match unsafe { madvise(addr, len, Advice::LinuxPopulateWrite) } {
            Ok(()) => {}
            // Accessing a page that cannot be allocated would end the process.
            Err(errno @ (Errno::NOMEM | Errno::FAULT)) => return Err(failed(errno.into())),
            // Kernels before 5.14: touch each page.
            Err(_) => {
                for offset in (0..len).step_by(4096) {
                    // SAFETY: inside the mapping, which only we know.
                    unsafe { addr.cast::<u8>().add(offset).write_volatile(0) };
                }
            }
        }
        Ok(pages)
    }

    /// The mapped file, from offset 0; only if sharing was requested.
    pub fn file(&self) -> Option<&Arc<OwnedFd>> {
        self.file.as_ref()
    }

    /// The address of the first byte.
    pub fn addr(&self) -> usize {
        self.addr.as_ptr() as usize
    }

    /// A pointer to the first byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.addr.cast()
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The kind of memory.
    pub fn kind(&self) -> PageKind {
        self.kind
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: the mapping is ours, and reaching it takes a reference to `self`.
        let _ = unsafe { munmap(self.addr.as_ptr(), self.len) };
    }
}

/// Creates a memory file of `len` bytes with a sealed size: otherwise a process that gets it could
/// truncate it, and accessing our buffers would end this process (SIGBUS).
fn file_of(len: usize, flags: MemfdFlags) -> io::Result<OwnedFd> {
    let file = memfd_create("meantime-dma", flags | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// RLIMIT_MEMLOCK, for an error message.
pub(crate) fn memlock_limit() -> String {
    match getrlimit(Resource::Memlock).current {
        None => "unlimited (so a container or cgroup limit is in the way)".into(),
        Some(bytes) => format!("{} KiB", bytes / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_writable() {
        let pages = Pages::map(3 << 20, &DmaLimits::default()).unwrap();
        assert_eq!(pages.len(), 4 << 20);
        assert_eq!(pages.addr() % HUGE_PAGE, 0);
        let last = pages.len() - 1;
        // SAFETY: inside the mapping, which only this test knows.
        unsafe {
            assert_eq!(pages.as_ptr().add(last).read(), 0);
            pages.as_ptr().add(last).write(7);
        }
    }

    #[test]
    fn too_much_is_an_error_not_a_panic() {
        for shared in [false, true] {
            let limits = DmaLimits { shared, ..DmaLimits::default() };
            assert!(matches!(Pages::map(usize::MAX - 10, &limits), Err(HwError::Map { .. })));
            assert!(matches!(Pages::map(1 << 46, &limits), Err(HwError::Map { .. })));
        }
    }

    #[test]
    fn shared_memory_is_seen_through_its_file() {
        let limits = DmaLimits { shared: true, ..DmaLimits::default() };
        let pages = Pages::map(1 << 20, &limits).unwrap();
        assert_eq!((pages.len(), pages.addr() % HUGE_PAGE), (HUGE_PAGE, 0));
        // SAFETY: inside the mapping, which only this test knows.
        unsafe { pages.as_ptr().add(5000).write(7) };
        let mut byte = [0];
        rustix::io::pread(pages.file().unwrap(), &mut byte, 5000).unwrap();
        assert_eq!(byte, [7]);
        assert!(Pages::map(1, &DmaLimits::default()).unwrap().file().is_none());
        // A process that has the file cannot truncate our memory.
        for len in [0, 4096, 2 * HUGE_PAGE as u64] {
            assert!(ftruncate(pages.file().unwrap(), len).is_err(), "{len}");
        }
    }
}
