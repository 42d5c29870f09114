//! The transport to a PCIe SSD, through Linux's VFIO.
//!
//! vfio-pci gives a process access to the device's configuration space, BARs and interrupts, and
//! the IOMMU confines its DMA to the process's mappings: no root is needed once the device is bound
//! and given to a user. The parts:
//!
//! - registers by `pread` and `pwrite` on the device's file: while memory decoding is off, or the
//!   device is gone, they fail with an error, where a load from a mapping would raise SIGBUS. They
//!   are not on the fast path;
//! - doorbells by stores to a mapping (`window`), guarded by [`sigbus`](super::sigbus);
//! - an IOMMU container for each device (`space`);
//! - interrupts by eventfd (`interrupts`);
//! - a thread that sleeps until the kernel wants the device back (`watch`).
//!
//! The kernel resets the function when its file is first opened, and again when it is closed,
//! however the process ends. Another reset here would only take 100 ms each time. If a device
//! cannot be reset, the driver disables it before and after its use.
//!
//! 64-bit registers are accessed as two of 32 bits, the lower first (NVMe Base 1.4 §3.1 allows
//! both): kernels before 6.11 split a `pread` of eight bytes anyhow, and some controllers accept
//! nothing else. No register is read while it may change between the halves.

#![expect(unsafe_code)]

mod error;
mod interrupts;
mod ioctl;
mod nodes;
mod region;
mod space;
mod uapi;
mod watch;
mod window;

use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meantime_nvme_spec::pci::{command, offset};
use meantime_nvme_spec::regs::GONE;

pub use error::VfioError;

use self::error::Result as VfioResult;
use self::interrupts::Vectors;
use self::nodes::DeviceNodes;
use self::region::Region;
use self::space::{AddressSpace, Entered};
use self::uapi::DeviceInfo;
use self::watch::{Events, Watch};
use super::clock::Clock;
use super::doorbells::Window;
use super::event::EventFd;
use super::mmio::Doorbell;
use super::pages::{Pages, memlock_limit};
use super::pci::{PciAddress, Sysfs};
use super::transport::{Claim, DmaLimits, DmaMap, EventHandler, Transport};
use super::{HwError, Result};

/// How to open a device.
#[derive(Debug, Clone, Copy)]
pub struct VfioOptions {
    /// The most interrupt vectors to use. Where the kernel cannot add vectors later, all are
    /// allocated when the device is opened, though none is used before a queue needs it. One more
    /// than I/O queues is enough.
    pub max_vectors: u16,
    /// Whether VFIO's no-IOMMU mode was requested. **The device could then overwrite any memory of
    /// the machine.** The mode is not supported: with this option the error gives the reason,
    /// instead of how to get an IOMMU.
    pub allow_no_iommu: bool,
}

impl Default for VfioOptions {
    fn default() -> Self {
        Self { max_vectors: 65, allow_no_iommu: false }
    }
}

/// A PCIe SSD bound to vfio-pci.
///
/// When it is dropped, or [released](Transport::release), the device can access no memory any more,
/// its descriptors are closed, and the kernel resets it.
pub struct VfioTransport {
    // Before `shared`: its thread refers to it.
    watch: Watch,
    shared: Arc<Shared>,
    claim: Claim,
}

struct Shared {
    address: PciAddress,
    limits: DmaLimits,
    window: Arc<Window>,
    /// `None` once the device was given up.
    open: Mutex<Option<Open>>,
    /// Dropped after the device was given up and its descriptors were closed.
    keeper: Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

/// The kernel objects that the transport holds.
struct Open {
    device: OwnedFd,
    registers: Region,
    config: Region,
    vectors: Vectors,
    space: Arc<AddressSpace>,
    window: usize,
    /// The DMA mappings: I/O virtual address → bytes.
    mapped: BTreeMap<u64, u64>,
}

impl VfioTransport {
    /// Opens the NVMe controller at `address`, which must be bound to vfio-pci. Resets it, enables
    /// its memory decoding and bus mastering, and sets up its interrupt vectors.
    ///
    /// # Errors
    /// Returns [`HwError::Vfio`], which gives the obstacle and a remedy.
    pub fn open(address: PciAddress, options: &VfioOptions) -> Result<Self> {
        let failed = |why| HwError::Vfio { address, why: Box::new(why) };
        let nodes = DeviceNodes::find(&Sysfs::default(), address, options.allow_no_iommu)
            .map_err(failed)?;
        let events = Events::new()?;
        let entered = AddressSpace::enter(&nodes).map_err(failed)?;
        let limits = DmaLimits {
            // Mapping pins the pages. Locking would count them twice.
            lock: false,
            shared: false,
            iova_first: entered.first,
            iova_last: entered.last,
            max_regions: entered.space.mappings_left() as usize,
        };
        let Entered { space, device, window: number, .. } = entered;
        let (window, open) = match Open::prepare(device, &space, number, options, &events) {
            Ok(parts) => parts,
            Err(why) => {
                space.free_window(number);
                return Err(failed(why));
            }
        };
        let shared = Arc::new(Shared {
            address,
            limits,
            window,
            open: Mutex::new(Some(open)),
            keeper: Mutex::default(),
        });
        let watched = Arc::clone(&shared);
        let watch =
            Watch::start(events, Box::new(move || watched.release())).map_err(|source| {
                shared.release();
                failed(VfioError::Os { what: "cannot start a thread to watch the device", source })
            })?;
        Ok(Self { watch, shared, claim: Claim::new() })
    }

    /// Holds `keeper`, and drops it once the device was given up and all its descriptors are
    /// closed. Its drop returns the device to the kernel's driver.
    #[must_use]
    pub fn keeping(self, keeper: Box<dyn Any + Send + Sync>) -> Self {
        *self.shared.keeper() = Some(keeper);
        self
    }
}

impl Open {
    fn prepare(
        device: OwnedFd,
        space: &Arc<AddressSpace>,
        number: usize,
        options: &VfioOptions,
        events: &Events,
    ) -> VfioResult<(Arc<Window>, Self)> {
        let fd = device.as_fd();
        let mut info = DeviceInfo { argsz: DeviceInfo::BYTES, ..Default::default() };
        ioctl::structure(fd, uapi::DEVICE_GET_INFO, &mut info)
            .map_err(VfioError::os("the device does not describe itself"))?;
        if info.flags & uapi::DEVICE_PCI == 0 || info.num_regions <= uapi::CONFIG_REGION {
            return Err(VfioError::Lacks { what: "the regions of a PCI device" });
        }
        let config = Region::of(fd, uapi::CONFIG_REGION)?;
        let registers = Region::of(fd, uapi::BAR0_REGION)?;
        // The kernel has just reset it.
        if info.flags & uapi::DEVICE_RESETS == 0 {
            tracing::debug!("the device cannot be reset: it is as it was left");
        }
        switch_on(fd, &config)?;
        let window = window::map(fd, &registers, events.lost.clone())?;
        let vectors = Vectors::enable(fd, options.max_vectors)?;
        if !interrupts::listen(fd, uapi::REQ_IRQ, &events.request) {
            tracing::warn!(
                "the kernel cannot ask for this device: its removal waits until it is closed"
            );
        }
        // Root complex integrated devices lack this interrupt.
        interrupts::listen(fd, uapi::ERR_IRQ, &events.error);
        let (space, mapped) = (Arc::clone(space), BTreeMap::new());
        let open = Self { device, registers, config, vectors, space, window: number, mapped };
        Ok((window, open))
    }

    fn unmap(&mut self, iova: u64) -> Result<()> {
        let Some(&bytes) = self.mapped.get(&iova) else { return Ok(()) };
        self.space.unmap(iova, bytes).map_err(|error| HwError::DmaMap {
            iova,
            bytes: bytes as usize,
            what: format!("the mapping cannot be undone: {error}"),
        })?;
        self.mapped.remove(&iova);
        Ok(())
    }
}

/// Enables memory decoding and bus mastering, and disables INTx, since MSI-X is used.
fn switch_on(fd: std::os::fd::BorrowedFd<'_>, config: &Region) -> VfioResult<()> {
    let failed = || VfioError::os("the configuration space cannot be accessed");
    let register = offset::COMMAND as u32;
    let read = || config.read(fd, register).map(u16::from_le_bytes);
    let wanted = command::MEMORY | command::BUS_MASTER | command::INTX_DISABLE;
    let value = read().map_err(failed())? | wanted;
    config.write(fd, register, &value.to_le_bytes()).map_err(failed())?;
    let command = read().map_err(failed())?;
    for (bit, what) in
        [(command::MEMORY, "memory decoding"), (command::BUS_MASTER, "bus mastering")]
    {
        // All ones: the device is gone.
        if command == u16::MAX || command & bit == 0 {
            return Err(VfioError::Command { what, command });
        }
    }
    Ok(())
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        // The state is consistent between any two statements.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Box<dyn Any + Send + Sync>>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the device up, as [`Transport::release`] describes.
    fn release(&self) {
        let mut state = self.lock();
        let Some(mut open) = state.take() else { return };
        let fd = open.device.as_fd();
        let register = offset::COMMAND as u32;
        // All ones: the device is gone.
        if let Ok(command) = open.config.read(fd, register).map(u16::from_le_bytes)
            && command != u16::MAX
        {
            let _ =
                open.config.write(fd, register, &(command & !command::BUS_MASTER).to_le_bytes());
        }
        let iovas: Vec<u64> = open.mapped.keys().copied().collect();
        // A remaining mapping is undone when the container is closed, unless another device of the
        // group keeps it open.
        let stuck = iovas.into_iter().filter_map(|iova| open.unmap(iova).err()).count();
        if stuck == 0 {
            open.space.free_window(open.window);
        } else {
            tracing::error!(device = %self.address, stuck, "DMA mappings could not be undone");
        }
        if let Err(error) = self.window.detach() {
            tracing::error!(
                %error,
                "the doorbells stay mapped: the kernel waits for this process to end"
            );
        }
        // Waiting threads check, and find the device gone.
        open.vectors.signal_all();
        tracing::debug!(device = %self.address, "released");
        drop(open);
        drop(state);
        let keeper = self.keeper().take();
        drop(keeper);
    }

    fn read32(&self, offset: u32) -> u32 {
        let state = self.lock();
        let Some(open) = state.as_ref().filter(|_| !self.window.is_lost()) else { return GONE };
        open.registers.read(open.device.as_fd(), offset).map_or(GONE, u32::from_le_bytes)
    }

    fn write32(&self, offset: u32, value: u32) {
        let state = self.lock();
        let Some(open) = state.as_ref().filter(|_| !self.window.is_lost()) else { return };
        // A failure shows in the next register read.
        let _ = open.registers.write(open.device.as_fd(), offset, &value.to_le_bytes());
    }
}

// SAFETY: the IOMMU, which the kernel programs, lets the device reach what is mapped and nothing
// else; an unmapping is `Ok` when the kernel has flushed it, or has closed the device. (Without an
// IOMMU, which only `no-iommu=1` allows, the device itself must be trusted.)
unsafe impl DmaMap for VfioTransport {
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()> {
        let mut state = self.shared.lock();
        let open = state.as_mut().ok_or(HwError::Gone)?;
        let bytes = pages.len();
        open.space
            .map(iova, pages.addr() as u64, bytes as u64)
            .map_err(|error| refused(iova, bytes, error))?;
        open.mapped.insert(iova, bytes as u64);
        Ok(())
    }

    unsafe fn unmap_dma(&self, iova: u64) -> Result<()> {
        // A device that was given up accesses no memory.
        self.shared.lock().as_mut().map_or(Ok(()), |open| open.unmap(iova))
    }

    fn limits(&self) -> DmaLimits {
        self.shared.limits
    }
}

/// The error that the kernel refuses a DMA mapping.
fn refused(iova: u64, bytes: usize, source: std::io::Error) -> HwError {
    let what = match source.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM) => {
            return HwError::Lock { bytes, limit: memlock_limit(), source };
        }
        Some(libc::ENOSPC) => {
            "it takes no more mappings: raise vfio_iommu_type1's dma_entry_limit, or use fewer \
             buffers"
                .into()
        }
        Some(libc::EINVAL) => format!("the IOMMU does not translate these addresses ({source})"),
        _ => source.to_string(),
    };
    HwError::DmaMap { iova, bytes, what }
}

// SAFETY: registers are the device's; all ones are read once it was given up, which disables and
// unmaps it first. Doorbells hold the window, which stays mapped, by memory in its place if the
// device is gone.
unsafe impl Transport for VfioTransport {
    fn describe(&self) -> String {
        format!("vfio:{}", self.shared.address)
    }

    fn read32(&self, offset: u32) -> u32 {
        self.shared.read32(offset)
    }

    fn read64(&self, offset: u32) -> u64 {
        let low = self.shared.read32(offset);
        let high = self.shared.read32(offset.saturating_add(4));
        u64::from(high) << 32 | u64::from(low)
    }

    fn claim(&self) -> &Claim {
        &self.claim
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        self.shared.write32(offset, value);
    }

    unsafe fn write64(&self, offset: u32, value: u64) {
        self.shared.write32(offset, value as u32);
        self.shared.write32(offset.saturating_add(4), (value >> 32) as u32);
    }

    unsafe fn doorbell(&self, offset: u32) -> Result<Doorbell> {
        let size = match self.shared.lock().as_ref() {
            Some(open) => open.registers.size,
            None => return Err(HwError::Gone),
        };
        window::doorbell(&self.shared.window, offset).ok_or_else(|| HwError::Missing {
            what: format!(
                "doorbell at offset {offset:#x}: its BAR0 has {size:#x} bytes; use fewer queues"
            ),
        })
    }

    fn vectors(&self) -> u16 {
        self.shared.lock().as_ref().map_or(0, |open| open.vectors.count())
    }

    fn set_vector(&self, vector: u16, event: Option<&EventFd>) -> Result<()> {
        let mut state = self.shared.lock();
        let Open { device, vectors, .. } = state.as_mut().ok_or(HwError::Gone)?;
        vectors.set(device.as_fd(), vector, event)
    }

    fn clock(&self) -> Clock {
        Clock::real()
    }

    fn on_event(&self, handler: EventHandler) {
        self.watch.set_handler(handler);
    }

    fn release(&self) {
        self.shared.release();
    }
}

impl Drop for VfioTransport {
    fn drop(&mut self) {
        self.shared.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn refusals_say_what_to_do() {
        let text =
            |errno| refused(1 << 32, 8 << 20, io::Error::from_raw_os_error(errno)).to_string();
        for errno in [libc::ENOMEM, libc::EPERM] {
            let text = text(errno);
            assert!(text.contains("RLIMIT_MEMLOCK is") && text.contains("ulimit -l"), "{text}");
        }
        assert!(text(libc::ENOSPC).contains("dma_entry_limit"));
        assert!(text(libc::EINVAL).contains("0x100000000"));
    }

    #[test]
    fn a_missing_device_is_an_error() {
        let address = "fffe:ff:1f.7".parse().unwrap();
        let error =
            VfioTransport::open(address, &VfioOptions::default()).err().unwrap().to_string();
        assert!(error.starts_with("fffe:ff:1f.7: there is no such PCI device"), "{error}");
    }

    /// A file in place of the configuration space.
    #[test]
    fn a_command_register_that_ignores_writes_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(256).unwrap();
        let config =
            Region { offset: 0, size: 256, readable: true, writable: true, mappable: Vec::new() };
        switch_on(file.as_fd(), &config).unwrap();
        assert_eq!(config.read(file.as_fd(), 4).unwrap(), [0x06, 0x04]);
        config.write(file.as_fd(), 4, &[0xff, 0xff]).unwrap();
        assert!(matches!(switch_on(file.as_fd(), &config), Err(VfioError::Command { .. })));
    }
}
