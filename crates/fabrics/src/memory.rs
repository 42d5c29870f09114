//! The driver's memory, by the addresses that commands name: rings, lists, data.
//!
//! The driver uses the same memory at the same time, under NVMe's rules: it accesses entries by
//! atomics, and a buffer only while no command names it. So nothing here makes a reference to the
//! memory. Every access looks the address up anew, under a lock that [`Memory::unmap`] takes as
//! well. After an unmapping, nothing reaches the memory.

#![expect(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use meantime_hw::pages::Pages;
use meantime_hw::{HwError, Result};
use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::sqe::Sqe;

/// A mapped region.
struct Region {
    iova: u64,
    pages: Arc<Pages>,
}

impl Region {
    fn end(&self) -> u64 {
        self.iova + self.pages.len() as u64
    }
}

/// All mapped regions.
#[derive(Default)]
pub(crate) struct Memory(RwLock<Vec<Region>>);

/// The regions while none can be unmapped.
pub(crate) struct Mapped<'a>(RwLockReadGuard<'a, Vec<Region>>);

/// The memory at an address is not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotMapped;

/// A range of the driver's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) iova: u64,
    pub(crate) len: u32,
}

impl Memory {
    fn write(&self) -> RwLockWriteGuard<'_, Vec<Region>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a region.
    pub(crate) fn map(&self, iova: u64, pages: &Arc<Pages>) -> Result<()> {
        let mut regions = self.write();
        let bytes = pages.len();
        let refused = |what: &str| HwError::DmaMap { iova, bytes, what: what.to_owned() };
        let end = iova.checked_add(bytes as u64).ok_or_else(|| refused("it wraps around"))?;
        let at = regions.partition_point(|region| region.iova < iova);
        let overlaps = at > 0 && regions[at - 1].end() > iova
            || regions.get(at).is_some_and(|next| next.iova < end);
        if overlaps {
            return Err(refused("it overlaps what is mapped"));
        }
        regions.insert(at, Region { iova, pages: Arc::clone(pages) });
        Ok(())
    }

    /// Removes a region. No thread reaches it afterwards.
    pub(crate) fn unmap(&self, iova: u64) {
        self.write().retain(|region| region.iova != iova);
    }

    /// Access to what is mapped now.
    pub(crate) fn mapped(&self) -> Mapped<'_> {
        Mapped(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Mapped<'_> {
    /// Finds the `len` bytes at `iova`, if one region has them all.
    fn find(&self, iova: u64, len: usize) -> std::result::Result<NonNull<u8>, NotMapped> {
        let at = self.0.partition_point(|region| region.iova <= iova);
        let region = at.checked_sub(1).and_then(|at| self.0.get(at)).ok_or(NotMapped)?;
        let offset = (iova - region.iova) as usize;
        if offset > region.pages.len() || len > region.pages.len() - offset {
            return Err(NotMapped);
        }
        // SAFETY: inside the region, as just checked.
        Ok(unsafe { region.pages.as_ptr().add(offset) })
    }

    /// The `N` words at `iova`, which must be a multiple of 8.
    fn words<const N: usize>(&self, iova: u64) -> std::result::Result<&[AtomicU64; N], NotMapped> {
        let at = self.find(iova, N * 8)?.cast::<[AtomicU64; N]>();
        if !at.is_aligned() {
            return Err(NotMapped);
        }
        // SAFETY: mapped while `self` holds the lock, and aligned. Both sides access rings and
        // lists as atomics.
        Ok(unsafe { at.as_ref() })
    }

    /// A word of a list of addresses.
    pub(crate) fn word(&self, iova: u64) -> std::result::Result<u64, NotMapped> {
        Ok(self.words::<1>(iova)?[0].load(Ordering::Relaxed))
    }

    /// Reads the entry at `iova` of a submission queue. Must follow an acquiring load of its tail.
    pub(crate) fn sqe(&self, iova: u64) -> std::result::Result<Sqe, NotMapped> {
        let words = self.words::<8>(iova)?;
        Ok(Sqe::from_words(std::array::from_fn(|index| words[index].load(Ordering::Relaxed))))
    }

    /// Writes an entry of a completion queue at `iova`. The half with the phase comes last, and
    /// after everything before (ARCHITECTURE.md §2, rule 2).
    pub(crate) fn post(&self, iova: u64, cqe: &Cqe) -> std::result::Result<(), NotMapped> {
        let words = self.words::<2>(iova)?;
        let [low, high] = cqe.to_words();
        words[0].store(low, Ordering::Relaxed);
        words[1].store(high, Ordering::Release);
        Ok(())
    }

    /// Copies `bytes` to `iova`.
    pub(crate) fn store(&self, iova: u64, bytes: &[u8]) -> std::result::Result<(), NotMapped> {
        let to = self.find(iova, bytes.len())?;
        // SAFETY: mapped while `self` holds the lock. The buffer is the command's until it has
        // ended: no other code accesses it. `bytes` does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies the bytes at `iova`.
    pub(crate) fn load(&self, iova: u64, bytes: &mut [u8]) -> std::result::Result<(), NotMapped> {
        let from = self.find(iova, bytes.len())?;
        // SAFETY: as for `store`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Continues the CRC32C `crc` with the bytes of `piece`.
    pub(crate) fn crc(&self, crc: u32, piece: Piece) -> std::result::Result<u32, NotMapped> {
        let mut crc = crc;
        // The bytes are copied, since no reference is made to the driver's memory.
        let mut copy = [0; 512];
        let (mut iova, mut left) = (piece.iova, piece.len as usize);
        while left > 0 {
            let part = left.min(copy.len());
            self.load(iova, &mut copy[..part])?;
            crc = crc32c::crc32c_append(crc, &copy[..part]);
            (iova, left) = (iova + part as u64, left - part);
        }
        Ok(crc)
    }
}

/// The most ranges of one system call.
pub(crate) const RANGES_MAX: usize = 64;

/// Ranges of memory for one system call: the driver's, while they are mapped, and our own.
pub(crate) struct Ranges<'a> {
    mapped: &'a Mapped<'a>,
    ranges: [MaybeUninit<libc::iovec>; RANGES_MAX],
    count: usize,
    bytes: usize,
    /// Stands for the borrowed memory.
    own: std::marker::PhantomData<&'a mut [u8]>,
}

impl<'a> Ranges<'a> {
    pub(crate) fn new(mapped: &'a Mapped<'a>) -> Self {
        let ranges = [const { MaybeUninit::uninit() }; RANGES_MAX];
        Self { mapped, ranges, count: 0, bytes: 0, own: std::marker::PhantomData }
    }

    /// Whether no further range fits.
    pub(crate) fn is_full(&self) -> bool {
        self.count == RANGES_MAX
    }

    /// All their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn add(&mut self, at: *mut u8, len: usize) {
        self.ranges[self.count].write(libc::iovec { iov_base: at.cast(), iov_len: len });
        self.count += 1;
        self.bytes += len;
    }

    /// Adds the driver's memory.
    ///
    /// # Panics
    /// Panics if they are full.
    pub(crate) fn piece(&mut self, piece: Piece) -> std::result::Result<(), NotMapped> {
        let at = self.mapped.find(piece.iova, piece.len as usize)?;
        self.add(at.as_ptr(), piece.len as usize);
        Ok(())
    }

    /// Adds memory to receive into.
    ///
    /// # Panics
    /// Panics if they are full.
    pub(crate) fn buffer(&mut self, buffer: &'a mut [u8]) {
        self.add(buffer.as_mut_ptr(), buffer.len());
    }

    /// Adds memory to send, which only [`send`](Self::send) may use.
    ///
    /// # Panics
    /// Panics if they are full.
    pub(crate) fn bytes_to_send(&mut self, bytes: &'a [u8]) {
        self.add(bytes.as_ptr().cast_mut(), bytes.len());
    }

    fn header(&mut self) -> libc::msghdr {
        // SAFETY: all zeroes is a valid header, without name and control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.ranges.as_mut_ptr().cast();
        // The type of this field depends on the C library.
        header.msg_iovlen = self.count as _;
        header
    }

    /// Sends from the ranges, without blocking. Returns how many bytes were taken.
    pub(crate) fn send(mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let header = self.header();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the first `count` ranges are initialised. They are ours, borrowed, or mapped
        // while `mapped` holds the lock; the kernel only reads them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Receives into the ranges, without blocking. Returns how many bytes have come; 0 if the other
    /// side has closed.
    pub(crate) fn receive(mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut header = self.header();
        // SAFETY: as for `send`; those of ours are borrowed for writing, and the driver's are
        // buffers of commands in flight, which only the device accesses.
        let came = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) };
        usize::try_from(came).map_err(|_| io::Error::last_os_error())
    }
}
