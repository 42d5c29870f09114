//! The transport traits: what a driver requires of a controller, however it is reached.

#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Result;
use meantime_nvme_spec::soft_port::Heartbeat;

use super::clock::Clock;
use super::event::EventFd;
use super::mmio::Doorbell;
use super::pages::Pages;

pub use super::pages::DmaLimits;

/// A user of the memory of a [`DmaHeap`](super::DmaHeap) by I/O virtual address: a controller
/// behind its transport, or the kernel.
///
/// # Safety
/// [`DmaHeap`](super::DmaHeap) relies on an implementation when it frees memory or returns it to
/// callers:
/// - The device touches only memory mapped by [`map_dma`](Self::map_dma), only after that call, and
///   only what a command, a queue or a register names.
/// - [`map_dma`](Self::map_dma) refuses a range that overlaps a mapped one: two heaps on one map
///   never share addresses.
/// - When [`unmap_dma`](Self::unmap_dma) returns `Ok`, what was mapped there is never touched
///   again. After an error the device may still use the memory.
/// - If [`lends`](Self::lends) is true, its conditions on addresses and on the `Arc` hold.
pub unsafe trait DmaMap: Send + Sync {
    /// Gives the device access to `pages` at `iova`.
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()>;
    /// Unmaps the memory at `iova`. After `Ok` the device does not access it again.
    ///
    /// # Safety
    /// The caller has mapped this memory itself, and nothing uses the address any more. A command
    /// that names it would reach what is mapped there next, which belongs to another owner.
    unsafe fn unmap_dma(&self, iova: u64) -> Result<()>;
    /// Whether the program's own memory can be mapped temporarily ([`Pages`] that own nothing),
    /// cheaply enough for a single read. If true, the device accesses memory by its address in this
    /// process at the moment of each access, and pins nothing: the memory at an address may change
    /// while it is mapped. It keeps the given `Arc` exactly as long as it may access the memory, or
    /// has yet to process the request to map it.
    fn lends(&self) -> bool {
        false
    }
    /// The requirements on memory, and the range of addresses for the device.
    fn limits(&self) -> DmaLimits;
}

/// Access to a controller: a software SSD in this process; a PCIe function; another process.
///
/// No method is on the fast path: queue pairs keep the [`Doorbell`]s and [`EventFd`]s that they were
/// given.
///
/// Registers and doorbells belong to the driver: they name the memory from which the controller
/// fetches commands and to which it writes. So writing them is unsafe, and one driver at a time has
/// the [`claim`](Self::claim). Another holder of the transport, beside the `Controller` enabled on
/// it, can only:
///
/// - read registers, which changes nothing;
/// - map its own memory, at unused addresses that no command names;
/// - redirect a vector or the events: then no thread is woken, and deadlines detect completions;
/// - release the device, which then accesses no memory and is gone.
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
///     transport.doorbell(0x1000).unwrap().write_tail(7);
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
///   touches no memory until it is enabled again. An implementation returns only the controller's
///   own answer, or all ones once the controller can touch nothing any more.
/// - [`claim`](Self::claim) always returns the same claim for one device, and another for each
///   other device.
/// - A [`Doorbell`] stays valid for as long as it is held, even after [`release`](Self::release).
/// - After a [`release`](Self::release) that gives the device up, the device reaches no memory.
pub unsafe trait Transport: DmaMap {
    /// A description of the controller's address, for messages.
    fn describe(&self) -> String;
    /// Reads a 32-bit register. Returns all ones if the device is gone.
    fn read32(&self, offset: u32) -> u32;
    /// Reads a 64-bit register. Returns all ones if the device is gone.
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
    /// The requirements of [`write32`](Self::write32) hold.
    unsafe fn write64(&self, offset: u32, value: u64);
    /// The doorbell whose register is at byte `offset` of BAR0.
    ///
    /// # Safety
    /// The requirements of [`write32`](Self::write32) hold whenever the doorbell is rung: the queue
    /// is the caller's, and each command before the tail names memory that stays with the device
    /// until the command has ended.
    unsafe fn doorbell(&self, offset: u32) -> Result<Doorbell>;
    /// Number of interrupt vectors of the controller.
    fn vectors(&self) -> u16;
    /// Creates an event for [`set_vector`](Self::set_vector).
    fn new_event(&self) -> Result<EventFd> {
        EventFd::new()
    }
    /// Makes `vector` signal `event`; `None` signals nothing.
    fn set_vector(&self, vector: u16, event: Option<&EventFd>) -> Result<()>;
    /// The clock of this device's times.
    fn clock(&self) -> Clock;
    /// Makes a thread of the transport call `handler` for events outside of any command, including
    /// those since the transport was opened. A transport without events never calls it.
    fn on_event(&self, handler: EventHandler) {
        drop(handler);
    }
    /// Gives the device up. Afterwards it accesses no memory, registers read all ones, stores to
    /// doorbells have no effect, threads that wait for an interrupt are woken, and others can take
    /// the device. Repeated calls are harmless. A transport without a device to release does
    /// nothing.
    fn release(&self) {}
    /// What is wrong between this process and the controller, as far as the transport knows, and a
    /// remedy. `None` if nothing is wrong, or if only a bus is in between. Otherwise the device may
    /// not be at fault if the controller does not work.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// The state of the device's thread; `None` if it has none, or if the state is not known. Not
    /// for the fast path: a read takes a cache line from that thread.
    fn heartbeat(&self) -> Option<Heartbeat> {
        None
    }
    /// Tells the device that this thread has seen the device's thread stand still on the same CPU.
    /// For a while, the device's thread then yields the CPU when it has nothing to do.
    fn share_cpu(&self) {}
    /// Returns what moves the entries of queue `qid`, if the device does not do that by itself.
    fn progress(&self, qid: u16) -> Option<Arc<dyn Progress>> {
        let _ = qid;
        None
    }
    /// Whether the device is a thread, usually on another core, that reads queues from memory
    /// itself.
    fn is_read_by_core(&self) -> bool {
        false
    }
    /// Whether a doorbell write costs more than a memory write, because it traps or is a message.
    /// Shadow doorbells then pay off.
    fn has_slow_doorbells(&self) -> bool {
        false
    }
}

/// A queue whose completions arrive by a socket: the thread that waits for them receives them.
pub trait Progress: Send + Sync {
    /// Sends what waits to be sent, receives what has come, and writes completion queue entries.
    /// Never blocks.
    fn progress(&self);
    /// Blocks until something has come, for at most `timeout_ns`, and then does the work of
    /// [`progress`](Self::progress). May return early.
    fn wait(&self, timeout_ns: u64);
}

/// Whether a driver uses a device; at most one does at a time.
///
/// Only the driver in this crate takes and returns it.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

impl Claim {
    /// A free claim.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes the claim; false if another driver has it.
    pub fn take(&self) -> bool {
        // Acquire: the last driver's accesses come before.
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Returns the claim.
    pub fn release(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// The former name of [`release`](Self::release).
    #[deprecated(note = "use `release`")]
    pub fn give_back(&self) {
        self.release();
    }
}

/// An event of a device outside of any command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The kernel wants the device back, because it is about to be removed or to get another
    /// driver. The kernel waits until the device is [released](Transport::release).
    Release,
    /// The device, or its bus, has reported an uncorrected error.
    Error,
    /// A doorbell was rung, but the device is gone.
    Lost,
}

/// Receives each [`DeviceEvent`].
pub type EventHandler = Box<dyn Fn(DeviceEvent) + Send + Sync>;
