//! The transport seam: what a driver needs of a PCIe function, however it is reached.

#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Result;
use super::clock::Clock;
use super::event::EventFd;
use super::mmio::Doorbell;
use super::pages::Pages;

/// Whoever does I/O on the memory of a [`DmaHeap`](super::DmaHeap), by I/O virtual address: a
/// controller behind its transport, or the kernel.
///
/// # Safety
/// [`DmaHeap`](super::DmaHeap) frees memory, and gives it back to callers, by what an
/// implementation says:
/// - The other side touches nothing but memory mapped by [`map_dma`](Self::map_dma), of that only
///   what it was given a command, a queue or a register for, and none of it before that call.
/// - [`map_dma`](Self::map_dma) refuses addresses of which any is mapped already: two heaps on one
///   map never have the same ones.
/// - When [`unmap_dma`](Self::unmap_dma) returns `Ok`, nothing of what was mapped there is touched
///   any more, by nobody. An error says nothing: the memory stays the other side's then.
/// - If [`lends`](Self::lends) is true, what it says of addresses and of the `Arc` holds.
pub unsafe trait DmaMap: Send + Sync {
    /// Lets the other side reach `pages` at `iova`.
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()>;
    /// Takes back what was mapped at `iova`. When it returns `Ok` the other side will not touch it
    /// again.
    ///
    /// # Safety
    /// The caller has mapped this memory itself, and nothing goes by the address any more. Commands
    /// that name it would reach whatever is mapped there next, which somebody else believes to be
    /// his own.
    unsafe fn unmap_dma(&self, iova: u64) -> Result<()>;
    /// Whether memory of the program's own can be mapped for a while ([`Pages`] that own nothing),
    /// at a cost that a read can bear. Who says so reaches memory by its address in this process at
    /// the moment of each access, and pins nothing: what is at an address may change while it is
    /// mapped. And it keeps the `Arc` it was given for exactly as long as it may reach the memory,
    /// or has yet to deal with a mapping that was asked for.
    fn lends(&self) -> bool {
        false
    }
    /// What the memory must be, and where the other side may see it.
    fn limits(&self) -> DmaLimits;
}

/// What memory for DMA must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaLimits {
    /// Locked before the other side may reach it.
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
/// Registers and doorbells are the driver's: they say where the controller fetches commands and
/// where it writes. So what writes them is unsafe, and one driver at a time has the
/// [`claim`](Self::claim). Whoever keeps a transport beside the `Controller` that was enabled on it
/// can do this much:
///
/// - read registers, which changes nothing;
/// - map memory of its own, where nothing is mapped and no command leads;
/// - direct a vector or the events elsewhere: nobody is woken then, and deadlines find out what has
///   completed;
/// - release the device, which reaches no memory then, and is gone.
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
    /// Who drives the device, if anybody does.
    fn claim(&self) -> &Claim;
    /// Writes a 32-bit register.
    ///
    /// # Safety
    /// The caller has [claimed](Self::claim) the transport, or nobody has. What the controller does
    /// in consequence touches only memory that is the caller's to give: queues that it is told of
    /// stay where they are, and nobody else uses them, until CSTS.RDY is 0, or memory was taken
    /// back.
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
    /// Has `handler` called, from a thread of the transport's, for whatever happens outside of any
    /// command; also for what has happened since the transport was opened. A transport to which
    /// nothing happens never calls it.
    fn on_event(&self, handler: EventHandler) {
        drop(handler);
    }
    /// Gives the device up: afterwards it reaches no memory, registers read all ones, doorbells go
    /// nowhere, whoever waits for an interrupt is woken, and nothing keeps others from taking the
    /// device. Harmless if repeated. A transport of which nothing has to be given back does
    /// nothing.
    fn release(&self) {}
    /// Whether a write to a doorbell costs more than one to memory, since it traps or is a message:
    /// shadow doorbells pay then.
    fn has_slow_doorbells(&self) -> bool {
        false
    }
}

/// Whether somebody drives a device: at most one driver does at a time.
///
/// Only the driver in this crate takes it, and gives it back.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

impl Claim {
    /// That of a device that nobody drives yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether the caller drives the device from now on; false if somebody does already.
    pub fn take(&self) -> bool {
        // Acquire: whatever the last driver did comes before.
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Who took it drives the device no more.
    pub fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What happens to a device outside of any command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// It is asked for: it is about to be removed, or to get another driver. Who asks waits until
    /// it was [released](Transport::release).
    Release,
    /// It, or its bus, has reported an error that was not corrected.
    Error,
    /// A doorbell was rung where there is no device any more.
    Lost,
}

/// Whom to tell of a [`DeviceEvent`].
pub type EventHandler = Box<dyn Fn(DeviceEvent) + Send + Sync>;
