//! The soft transport's interface: what a driver and a software SSD in the same process share
//! instead of a PCIe link.
//!
//! It carries exactly what a PCIe function offers: registers, doorbells, DMA mappings and interrupt
//! vectors. Registers are accessed by calls, because they are slow on real hardware too. Doorbells
//! are shared memory, each in a cache line of its own. ARCHITECTURE.md, "Parking", explains the
//! protocol that wakes an SSD's thread which has parked; `crates/ssd/tests/loom_parking.rs` checks
//! it with loom.

use std::any::Any;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// CAP.DSTRD of a soft controller: the stride is 4 << 5 = 128 bytes, a [`DoorbellLine`] each, so
/// that no two doorbells share a cache line.
pub const SOFT_DSTRD: u8 = 5;

/// A doorbell register (loom's atomic under `cfg(loom)`).
pub type DoorbellCell = AtomicU32;

/// One doorbell, alone in its cache line (two lines, since adjacent lines are prefetched in pairs).
#[repr(C, align(128))]
pub struct DoorbellLine(AtomicU32);

#[cfg(not(loom))]
const _: () = assert!(size_of::<DoorbellLine>() == 4 << SOFT_DSTRD);

impl DoorbellLine {
    /// A doorbell at 0.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// Where the lines of the doorbells are: on the heap, or in memory shared with another process.
pub trait DoorbellLines: Send + Sync {
    /// The lines: always the same ones.
    fn lines(&self) -> &[DoorbellLine];
}

impl DoorbellLines for Box<[DoorbellLine]> {
    fn lines(&self) -> &[DoorbellLine] {
        self
    }
}

/// The doorbell registers of a soft controller, shared by driver and SSD.
///
/// Index `2 * qid` is the submission queue's tail, `2 * qid + 1` the completion queue's head (NVMe
/// Base 1.4 §3.1.24 and §3.1.25). One more line follows the last doorbell. It holds the flag that
/// is set while the SSD's thread is parked.
pub struct Doorbells {
    lines: Box<dyn DoorbellLines>,
    /// The number of lines that are doorbells.
    len: usize,
}

impl Doorbells {
    /// Doorbells for queue identifiers `0..queues`.
    pub fn new(queues: u16) -> Self {
        let lines: Box<[DoorbellLine]> =
            (0..Self::lines_for(queues)).map(|_| DoorbellLine::new()).collect();
        Self { len: usize::from(queues) * 2, lines: Box::new(lines) }
    }

    /// Doorbells for queue identifiers `0..queues` in the caller's memory; `None` unless it has the
    /// number of lines that [`lines_for`](Self::lines_for) returns.
    pub fn in_memory(queues: u16, lines: Box<dyn DoorbellLines>) -> Option<Self> {
        let enough = lines.lines().len() >= Self::lines_for(queues);
        enough.then_some(Self { len: usize::from(queues) * 2, lines })
    }

    /// The number of lines that the doorbells of queue identifiers `0..queues` take, including the
    /// flag of a parked thread.
    #[must_use]
    pub const fn lines_for(queues: u16) -> usize {
        queues as usize * 2 + 1
    }

    /// The doorbell at `index`, or `None` beyond the last queue.
    pub fn get(&self, index: usize) -> Option<&AtomicU32> {
        self.lines.lines()[..self.len].get(index).map(|line| &line.0)
    }

    /// The submission queue tail doorbell of queue `qid`.
    pub fn sq_tail(&self, qid: u16) -> Option<&AtomicU32> {
        self.get(usize::from(qid) * 2)
    }

    /// The completion queue head doorbell of queue `qid`.
    pub fn cq_head(&self, qid: u16) -> Option<&AtomicU32> {
        self.get(usize::from(qid) * 2 + 1)
    }

    /// How many doorbells there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no doorbell at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The flag that is set while the SSD's thread is parked.
    pub fn parking(&self) -> Parking<'_> {
        Parking::of(&self.lines.lines()[self.len].0)
    }
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbells").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Whether the SSD's thread sleeps, and must be woken after a doorbell.
///
/// Store-buffer litmus test (Dekker): the submitter stores a doorbell and then loads `parked`; the
/// SSD stores `parked` and then loads the doorbells. With a full fence between the two on both
/// sides at least one of them sees the other's store, so a doorbell is never left unseen by a
/// thread that sleeps.
#[derive(Clone, Copy)]
pub struct Parking<'a>(&'a AtomicU32);

impl<'a> Parking<'a> {
    /// The flag in `cell`: 1 while the thread is parked, or about to park.
    #[inline(always)]
    pub fn of(cell: &'a AtomicU32) -> Self {
        Self(cell)
    }

    /// Where the flag is.
    pub fn cell(self) -> &'a AtomicU32 {
        self.0
    }

    /// The submitter's half, called after it stored a doorbell: returns whether it must wake the
    /// thread.
    #[inline(always)]
    pub fn must_wake(self) -> bool {
        // The doorbell store must be visible before `parked` is read; only a full fence orders a
        // store with a later load.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The SSD's half: announces that its thread is about to sleep. After this call the thread
    /// looks at all its work once more, and sleeps only if there is none.
    pub fn announce(self) {
        self.0.store(1, Ordering::Relaxed);
        // `parked` must be visible before the doorbells are read again.
        fence(Ordering::SeqCst);
    }

    /// Announces that the SSD's thread is awake again.
    pub fn retract(self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Host memory that the controller may reach by DMA. The holder of a region may have the controller
/// read and write there.
#[derive(Clone)]
pub struct DmaRegion {
    iova: u64,
    host_addr: usize,
    len: usize,
    keepalive: Arc<dyn Any + Send + Sync>,
}

impl DmaRegion {
    /// The `len` bytes at `host_addr` of this process, which the controller is to see at `iova`.
    /// `keepalive` is held for as long as the controller may touch them.
    ///
    /// # Safety
    /// As long as this region, a clone of it, or a mapping made of it ([`SoftPort::map_dma`])
    /// exists:
    /// - the bytes are mapped in this process for reading and writing; `keepalive` may ensure that;
    /// - the controller may read and write any of them at any moment, from any thread, as its
    ///   commands, queues and registers say. So while a command names a byte, no reference to it
    ///   may exist, and it may only be accessed by atomics or raw copies. All code that can give
    ///   such a command must observe this.
    #[expect(unsafe_code, reason = "the contract of DMA is a promise of the caller's")]
    pub unsafe fn new(
        iova: u64,
        host_addr: usize,
        len: usize,
        keepalive: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { iova, host_addr, len, keepalive }
    }

    /// First I/O virtual address.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Where the same bytes are in this process.
    #[must_use]
    pub fn host_addr(&self) -> usize {
        self.host_addr
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What keeps the memory mapped in this process.
    #[must_use]
    pub fn keepalive(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.keepalive
    }
}

impl fmt::Debug for DmaRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaRegion {{ iova: {:#x}, len: {:#x} }}", self.iova, self.len)
    }
}

/// Why a call of a [`SoftPort`] was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The region overlaps one that is mapped already.
    #[error("the DMA region overlaps one that is mapped already")]
    Overlap,
    /// No such mapping.
    #[error("no such DMA mapping")]
    NotMapped,
    /// There is no room for a further mapping.
    #[error("too many DMA regions")]
    TooManyRegions,
    /// No such interrupt vector.
    #[error("no such interrupt vector")]
    NoSuchVector,
    /// The SSD has ended.
    #[error("the software SSD has ended")]
    Gone,
    /// The SSD did not answer in time; it may still carry out the request.
    #[error("the software SSD did not answer in time")]
    Unresponsive,
}

/// A receiver of interrupts in the controller's process that needs no descriptor.
pub trait Signal: Send + Sync {
    /// Reports an interrupt. It does not wait.
    fn signal(&self);
}

/// What an interrupt vector signals.
#[derive(Clone)]
pub enum Interrupt {
    /// An eventfd, possibly of another process.
    EventFd(Arc<OwnedFd>),
    /// Something in this process.
    Local(Arc<dyn Signal>),
}

impl From<Arc<OwnedFd>> for Interrupt {
    fn from(event: Arc<OwnedFd>) -> Self {
        Self::EventFd(event)
    }
}

/// A software SSD as its driver uses it: the calls that stand for one PCIe function.
///
/// None of these is on the path of an I/O, except [`SoftPort::wake`] when the SSD's thread has
/// parked.
///
/// # Safety
/// Drivers reuse memory on the strength of these promises, which an implementation keeps:
/// - It touches no memory but that of regions mapped by [`map_dma`](Self::map_dma), and of those
///   only what a command, a queue or a register names.
/// - Once [`unmap_dma`](Self::unmap_dma) has returned `Ok`, or [`PortError::Gone`], it touches
///   the region no more and has dropped its `keepalive`. After any other error it holds the
///   `keepalive` for as long as it may still touch the region.
#[expect(unsafe_code, reason = "what memory is freed by is a promise of the implementation's")]
pub unsafe trait SoftPort: Send + Sync + 'static {
    /// Reads a 32-bit controller register. A device that is gone reads all ones.
    fn read32(&self, offset: u32) -> u32;
    /// Reads a 64-bit controller register.
    fn read64(&self, offset: u32) -> u64;
    /// Writes a 32-bit controller register; returns when the controller has noticed it.
    fn write32(&self, offset: u32, value: u32);
    /// Writes a 64-bit controller register; returns when the controller has noticed it.
    fn write64(&self, offset: u32, value: u64);
    /// The doorbells.
    fn doorbells(&self) -> Arc<Doorbells>;
    /// Lets the controller reach `region`.
    fn map_dma(&self, region: DmaRegion) -> Result<(), PortError>;
    /// Unmaps the region that begins at `iova`. When the call has returned `Ok`, the controller no
    /// longer touches that region.
    fn unmap_dma(&self, iova: u64) -> Result<(), PortError>;
    /// How many interrupt vectors there are.
    fn vectors(&self) -> u16;
    /// Signals `event` for `vector` from now on; `None` signals nothing.
    fn set_vector(&self, vector: u16, event: Option<Interrupt>) -> Result<(), PortError>;
    /// Wakes the SSD's thread if it has parked.
    fn wake(&self);
    /// The clock of a stepped SSD; `None` for an SSD that runs in real time.
    fn virtual_clock(&self) -> Option<Arc<dyn VirtualClock>>;
    /// The SSD itself, if a driver that waits has to run it; `None` for an SSD with a thread.
    fn stepping(&self) -> Option<Arc<dyn Stepping>> {
        None
    }
    /// The state of the SSD's thread; `None` if it has none, or if the state is not known.
    fn heartbeat(&self) -> Option<Heartbeat> {
        None
    }
    /// Tells the SSD that the driver's thread has seen the SSD's thread stand still on the same
    /// CPU. For a while, the SSD's thread then yields the CPU whenever it has nothing to do,
    /// instead of spinning.
    fn share_cpu(&self) {}
}

/// The state of an SSD's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Grows as long as the thread runs and has work.
    pub turns: u64,
    /// The CPU on which it last ran.
    pub cpu: u32,
}

/// An SSD without a thread, in real time: it works when a driver that waits for it says so.
pub trait Stepping: Send + Sync {
    /// Lets the SSD do what is due.
    fn step(&self);
    /// The time until something is due, in ns; `None` if nothing is in flight.
    fn idle_for_ns(&self) -> Option<u64>;
}

/// A clock that moves only when it is used. A stepped SSD works while it moves, so that a driver
/// which waits by this clock makes the device progress, on one thread and in an order that the seed
/// fixes.
pub trait VirtualClock: Send + Sync {
    /// The time in ns. Each reading moves the clock by one tick, and lets the device work up to
    /// there.
    fn now_ns(&self) -> u64;
    /// Moves the clock by `delta_ns`, while the device works.
    fn advance(&self, delta_ns: u64);
}
