//! The transport traits: what a driver needs of a PCIe function, however it is reached.

#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Result;
use super::clock::Clock;
use super::event::EventFd;
use super::mmio::Doorbell;
use super::pages::Pages;

/// What does I/O on the memory of a [`DmaHeap`](super::DmaHeap), by I/O virtual address: a
/// controller behind its transport, or the kernel.
///
/// # Safety
/// [`DmaHeap`](super::DmaHeap) relies on an implementation when it frees memory or gives it back to
/// callers:
/// - The device touches only memory mapped by [`map_dma`](Self::map_dma), only after that call, and
///   only what a command, a queue or a register names.
/// - [`map_dma`](Self::map_dma) refuses a range that overlaps a mapped one: two heaps on one map
///   never share addresses.
/// - When [`unmap_dma`](Self::unmap_dma) returns `Ok`, what was mapped there is never touched
///   again. After an error the device may still use the memory.
/// - If [`lends`](Self::lends) is true, its conditions on addresses and on the `Arc` hold.
pub unsafe trait DmaMap: Send + Sync {
    /// Lets the device reach `pages` at `iova`.
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()>;
    /// Unmaps what was mapped at `iova`. When it returns `Ok` the device will not touch it again.
    ///
    /// # Safety
    /// The caller has mapped this memory itself, and nothing uses the address any more. A command
    /// that names it would reach what is mapped there next, which belongs to another owner.
    unsafe fn unmap_dma(&self, iova: u64) -> Result<()>;
    /// Whether the program's own memory can be mapped for a while ([`Pages`] that own nothing), at
    /// a cost that pays for a read. If true, the device reaches memory by its address in this
    /// process at the moment of each access, and pins nothing: what is at an address may change
    /// while it is mapped. It keeps the given `Arc` exactly as long as it may reach the memory, or
    /// has yet to process the request to map it.
    fn lends(&self) -> bool {
        false
    }
    /// What the memory must be, and where the device may see it.
    fn limits(&self) -> DmaLimits;
}

/// What memory for DMA must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaLimits {
    /// Locked in memory before the device may reach it.
    pub lock: bool,
    /// Of a file that can be handed to another process ([`Pages::file`]).
    pub shared: bool,
    /// The first I/O virtual address to use.
    pub iova_first: u64,
    /// The last I/O virtual address to use.
    pub iova_last: u64,
    /// How many mappings there can be at a time.
    pub max_regions: usize,
}

impl Default for DmaLimits {
    /// Private memory, unlocked. The first address is above 4 GiB, clear of the x86 MSI window at
    /// 0xFEE0_0000, and never equal to an address of this process, so that mixing up the two is
    /// found out.
    fn default() -> Self {
        let (iova_first, iova_last) = (0x1_0000_0000, u64::MAX);
        Self { lock: false, shared: false, iova_first, iova_last, max_regions: usize::MAX }
    }
}

/// A way to reach a controller: a software SSD in this process; a PCIe function; another process.
///
/// No method is on the path of an I/O: queue pairs keep the [`Doorbell`]s and [`EventFd`]s they
/// were given.
///
/// Registers and doorbells belong to the driver: they say where the controller fetches commands and
/// where it writes. So writing them is unsafe, and one driver at a time has the
/// [`claim`](Self::claim). A holder of a transport beside the `Controller` that was enabled on it
/// can:
///
/// - read registers, which changes nothing;
/// - map memory of its own, where nothing is mapped and no command leads;
/// - redirect a vector or the events: no thread is woken then, and deadlines detect what has
///   completed;
/// - release the device, which then reaches no memory and is gone.
///
/// ```compile_fail
/// fn point_it_elsewhere(transport: &dyn meantime_hw::Transport) {
///     transport.write64(0x30, 0x1_0000_0000); // ACQ: where completions go.
/// }
/// ```
/// ```compile_fail
/// fn enable_it(transport: &dyn meantime_hw::Transport) {
///     transport.write32(0x14, 0x0046_0001); // CC.EN
/// }
/// ```
/// ```compile_fail
/// fn ring(transport: &dyn meantime_hw::Transport) {
///     transport.doorbell(0x1000).unwrap().ring_tail(7);
/// }
/// ```
/// ```compile_fail
/// fn pull_memory_away(transport: &dyn meantime_hw::Transport) {
///     transport.unmap_dma(0x1_0000_0000).unwrap();
/// }
/// ```
/// ```
/// fn look(transport: &dyn meantime_hw::Transport) -> u32 {
///     transport.read32(0x1c)
/// }
/// ```
///
/// # Safety
/// - CSTS.RDY = 0, read from [`read32`](Self::read32), means that the controller has stopped: it
///   touches no memory until it is enabled again. Only the controller's own answer may be given, or
///   all ones once it can touch nothing any more.
/// - [`claim`](Self::claim) is always the same one for one device, and no other device's.
/// - A [`Doorbell`] stays valid for as long as it is held, [`release`](Self::release) or not.
/// - After a [`release`](Self::release) that gives the device up it reaches no memory.
pub unsafe trait Transport: DmaMap {
    /// Where the controller is, for messages.
    fn describe(&self) -> String;
    /// Reads a 32-bit register. All ones if the device is gone.
    fn read32(&self, offset: u32) -> u32;
    /// Reads a 64-bit register. All ones if the device is gone.
    fn read64(&self, offset: u32) -> u64;
    /// The claim on the device.
    fn claim(&self) -> &Claim;
    /// Writes a 32-bit register.
    ///
    /// # Safety
    /// The caller has [claimed](Self::claim) the transport, or no driver has. What the controller
    /// then does touches only memory that the caller owns: queues that the registers name stay in
    /// place, unused by anything else, until CSTS.RDY is 0 or the memory was unmapped.
    unsafe fn write32(&self, offset: u32, value: u32);
    /// Writes a 64-bit register.
    ///
    /// # Safety
    /// As for [`write32`](Self::write32).
    unsafe fn write64(&self, offset: u32, value: u64);
    /// The doorbell whose register is at byte `offset` of BAR0.
    ///
    /// # Safety
    /// As for [`write32`](Self::write32), whenever it is rung: the queue is the caller's, and each
    /// command before the tail names memory that stays with the device until the command has ended.
    unsafe fn doorbell(&self, offset: u32) -> Result<Doorbell>;
    /// How many interrupt vectors the controller has.
    fn vectors(&self) -> u16;
    /// An event that [`set_vector`](Self::set_vector) takes.
    fn new_event(&self) -> Result<EventFd> {
        EventFd::new()
    }
    /// Has `vector` signal `event`, or nothing.
    fn set_vector(&self, vector: u16, event: Option<&EventFd>) -> Result<()>;
    /// The clock that this device's time is measured by.
    fn clock(&self) -> Clock;
    /// Has a thread of the transport call `handler` for events outside of any command, including
    /// those since the transport was opened. A transport without events never calls it.
    fn on_event(&self, handler: EventHandler) {
        drop(handler);
    }
    /// Gives the device up: afterwards it reaches no memory, registers read all ones, stores to
    /// doorbells have no effect, threads that wait for an interrupt are woken, and others can take
    /// the device. Harmless if repeated. A transport with nothing to give back does nothing.
    fn release(&self) {}
    /// Whether a write to a doorbell costs more than one to memory, since it traps or is a message:
    /// shadow doorbells pay then.
    fn has_slow_doorbells(&self) -> bool {
        false
    }
}

/// Whether a driver uses a device: at most one does at a time.
///
/// Only the driver in this crate takes it, and gives it back.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

impl Claim {
    /// The claim of a device that no driver uses yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the claim; false if another driver has it.
    pub fn take(&self) -> bool {
        // Acquire: whatever the last driver did comes before.
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Gives the claim back.
    pub fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// An event of a device outside of any command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The kernel asks for it: it is about to be removed, or to get another driver. The kernel
    /// waits until it was [released](Transport::release).
    Release,
    /// It, or its bus, has reported an error that was not corrected.
    Error,
    /// A doorbell was rung, but the device is no longer there.
    Lost,
}

/// Receives each [`DeviceEvent`].
pub type EventHandler = Box<dyn Fn(DeviceEvent) + Send + Sync>;
