//! The transport to a controller that another process serves over vfio-user: SPDK's target, QEMU's,
//! and this project's software SSD.
//!
//! Memory is shared by its file. Doorbells are stores where the server shares them, and otherwise
//! messages, which is correct but slow. Registers use messages: they are slow on hardware too.
//! Interrupts are eventfds.
//!
//! **A faulty server.** An invalid reply, or one that misses its deadline, ends the connection, and
//! the device is gone: registers read all ones. The server may still write to the buffers of
//! commands that were in flight, so they are not reused until the server's process is known to have
//! ended ([`DmaMap::unmap_dma`] is `Ok` then).
//!
//! **If a server truncates its doorbells' file**, stores to it have no effect (see
//! [`sigbus`](super::sigbus)).

#![expect(unsafe_code)]

mod bar;
mod config;
mod connection;
mod device;
mod error;
mod peer;
mod region_access;
mod socket;
#[cfg(test)]
mod tests;
mod version;

pub use error::UserError;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meantime_nvme_spec::regs::DOORBELLS;
use meantime_nvme_spec::vfio_user::{
    Command, DmaMap as WireDmaMap, DmaUnmap, SetIrqs, dma, irq, region,
};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::clock::Clock;
use super::event::EventFd;
use super::mmio::{Doorbell, WriteDoorbell};
use super::pages::Pages;
use super::transport::{Claim, DmaLimits, DmaMap, Transport};
use super::{HwError, Result};
use bar::Bar0;
use config::{Config, Msix};
use connection::Connection;
use socket::{Socket, deadline_after};

/// Options of a connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserOptions {
    /// The longest time for the server to answer, and to accept us as its client, in ns.
    pub timeout_ns: u64,
}

impl Default for UserOptions {
    fn default() -> Self {
        Self { timeout_ns: 10_000_000_000 }
    }
}

/// A controller behind a vfio-user socket.
pub struct UserTransport {
    connection: Arc<Connection>,
    limits: DmaLimits,
    /// Whether 64-bit registers can be read and written in one access.
    wide: bool,
    bar: Bar0,
    bar_bytes: u64,
    interrupts: Option<Interrupts>,
    claim: Claim,
    /// The DMA mappings: I/O virtual address → bytes.
    mapped: Mutex<BTreeMap<u64, u64>>,
}

/// MSI-X.
struct Interrupts {
    msix: Msix,
    vectors: u16,
    /// `None` while MSI-X is off.
    installed: Mutex<Option<EventFd>>,
}

impl UserTransport {
    /// Connects to the socket at `path` (or named `cntrl` in the directory `path`), resets the
    /// controller and prepares it for a driver.
    ///
    /// # Errors
    /// Returns [`HwError::VfioUser`], which gives the cause and a remedy.
    pub fn connect(path: &Path, options: &UserOptions) -> Result<Self> {
        let path = if path.is_dir() { path.join("cntrl") } else { path.to_owned() };
        let timeout = Duration::from_nanos(options.timeout_ns);
        let socket = Socket::connect(&path, deadline_after(timeout)).map_err(|errno| {
            let (source, advice) = (errno.into(), advice(errno));
            UserError::Connect { path: path.clone(), source, advice }
        })?;
        Ok(Self::attach(Connection::new(socket, format!("vfio-user:{}", path.display()), timeout))?)
    }

    /// Resets the controller behind `stream`, a connected socket, and prepares it for a driver.
    /// Messages call the server `name`.
    ///
    /// # Errors
    /// Returns [`HwError::VfioUser`], which gives the cause and a remedy.
    pub fn over(stream: UnixStream, name: String, options: &UserOptions) -> Result<Self> {
        let socket = Socket::connected(OwnedFd::from(stream))
            .map_err(|errno| UserError::Socket { server: name.clone(), source: errno.into() })?;
        Ok(Self::attach(Connection::new(socket, name, Duration::from_nanos(options.timeout_ns)))?)
    }

    fn attach(connection: Connection) -> error::Result<Self> {
        let takes = version::negotiate(&connection)?;
        let device = device::device(&connection)?;
        if device.resets {
            match connection.request(Command::DeviceReset, &[], None, 0) {
                // The driver disables the controller, which has the same effect.
                Err(error @ UserError::Refused { .. }) => {
                    tracing::warn!(%error, "going on without a reset")
                }
                result => drop(result?),
            }
        }
        let space = device::region(&connection, region::CONFIG)?;
        if space.bytes < meantime_nvme_spec::pci::CONFIG_BYTES as u64 {
            return Err(
                connection.unusable(format!("{} bytes of configuration space", space.bytes))
            );
        }
        let config = Config::prepare(&connection, takes.max_data_xfer_bytes)?;
        let registers = device::region(&connection, region::BAR0)?;
        // Room for the registers, and at least the admin queue's two doorbells.
        if registers.bytes < u64::from(DOORBELLS) + 8 {
            return Err(
                connection.unusable(format!("its BAR0 has {} bytes, too few", registers.bytes))
            );
        }
        let bar = Bar0::map(&connection, &registers, config.parked_offset)?;
        let interrupts = match config.msix {
            None => None,
            Some(msix) => {
                let vectors =
                    device::msix_vectors(&connection, &device)?.min(msix.vectors.into()) as u16;
                (vectors > 0).then(|| Interrupts { msix, vectors, installed: Mutex::new(None) })
            }
        };
        let limits =
            DmaLimits { shared: true, max_regions: takes.max_dma_maps, ..DmaLimits::default() };
        let wide = takes.max_data_xfer_bytes >= 8;
        let bar_bytes = registers.bytes;
        Ok(Self {
            connection: Arc::new(connection),
            limits,
            wide,
            bar,
            bar_bytes,
            interrupts,
            claim: Claim::new(),
            mapped: Mutex::default(),
        })
    }

    /// Whether the connection was closed.
    pub fn is_gone(&self) -> bool {
        self.connection.is_gone()
    }

    fn read<const N: usize>(&self, offset: u32) -> [u8; N] {
        let mut bytes = [0; N];
        match region_access::read(&self.connection, region::BAR0, offset.into(), &mut bytes) {
            Ok(()) => bytes,
            Err(error) => {
                tracing::debug!(%error, offset, "a register reads as all ones");
                [0xff; N]
            }
        }
    }

    fn write(&self, offset: u32, bytes: &[u8]) {
        if let Err(error) =
            region_access::write(&self.connection, region::BAR0, offset.into(), bytes)
        {
            // The code that waits for the register's effect will time out.
            tracing::warn!(%error, offset, "a register was not written");
        }
    }

    /// Makes `vectors` from `first` on signal `event`.
    fn set_irqs(&self, first: u16, event: &EventFd) -> error::Result<()> {
        let flags = irq::SET_DATA_EVENTFD | irq::SET_ACTION_TRIGGER;
        // One at a time: a message carries as many descriptors as it names vectors, and a server
        // may accept only one.
        let ask = set_irqs(flags, first.into(), 1);
        self.connection
            .request(Command::DeviceSetIrqs, &[ask.as_bytes()], Some(event.as_fd()), 0)
            .map(drop)
    }

    fn mapped(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a mapping; false if it would overlap another.
    fn reserve(&self, iova: u64, bytes: u64) -> bool {
        let mut mapped = self.mapped();
        let before = mapped.range(..iova.saturating_add(bytes)).next_back();
        let is_free = before.is_none_or(|(other, len)| other.saturating_add(*len) <= iova);
        if is_free {
            mapped.insert(iova, bytes);
        }
        is_free
    }
}

fn set_irqs(flags: u32, start: u32, count: u32) -> SetIrqs {
    SetIrqs {
        argsz: (size_of::<SetIrqs>() as u32).into(),
        flags: flags.into(),
        index: irq::MSIX.into(),
        start: start.into(),
        count: count.into(),
    }
}

/// A hint for a socket that cannot be connected to.
fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "start the server first, e.g. `meantime ssd --socket PATH`",
        Errno::CONNREFUSED => "no process listens there any more: start the server again",
        Errno::ACCESS | Errno::PERM => {
            "it takes write access to the socket: ask its owner, or see the server's options"
        }
        Errno::AGAIN => {
            "the server takes one client at a time, and others wait already: end them, or serve \
             another socket"
        }
        Errno::NAMETOOLONG => "a socket's path has at most 107 bytes: use a shorter one",
        Errno::PROTOTYPE => "it is a socket of another kind than vfio-user's",
        _ => "see that it is a vfio-user socket",
    }
}

// SAFETY: the server reaches only memory whose descriptor it was given. `unmap_dma` is `Ok` when
// the server has confirmed that it let go, or when its process has ended. (A server that confirms
// and still accesses the memory is like a device that ignores its IOMMU, ARCHITECTURE.md §1.)
unsafe impl DmaMap for UserTransport {
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()> {
        let bytes = pages.len();
        let refused = |what: String| HwError::DmaMap { iova, bytes, what };
        let file = pages.file().ok_or_else(|| refused("memory that cannot be shared".into()))?;
        let ask = WireDmaMap {
            argsz: (size_of::<WireDmaMap>() as u32).into(),
            // Without both, some servers accept the mapping, and fail later.
            flags: (dma::READABLE | dma::WRITABLE).into(),
            offset: 0.into(),
            iova: iova.into(),
            len: (bytes as u64).into(),
        };
        // Not every server checks for overlaps.
        if !self.reserve(iova, bytes as u64) {
            return Err(refused("it overlaps memory that is mapped already".into()));
        }
        let answer =
            self.connection.request(Command::DmaMap, &[ask.as_bytes()], Some(file.as_fd()), 0);
        answer.map(drop).map_err(|error| {
            self.mapped().remove(&iova);
            match error {
                UserError::Refused { .. } => refused(error.to_string()),
                error => error.into(),
            }
        })
    }

    unsafe fn unmap_dma(&self, iova: u64) -> Result<()> {
        let len = self.mapped().get(&iova).copied();
        let len = len.ok_or(HwError::Missing { what: format!("DMA mapping at {iova:#x}") })?;
        let ask = DmaUnmap {
            argsz: (size_of::<DmaUnmap>() as u32).into(),
            flags: 0.into(),
            iova: iova.into(),
            len: len.into(),
        };
        let most = size_of::<DmaUnmap>();
        match self.connection.request(Command::DmaUnmap, &[ask.as_bytes()], None, most) {
            Ok(_) => {}
            Err(error @ UserError::Refused { .. }) => {
                return Err(HwError::DmaMap { iova, bytes: len as usize, what: error.to_string() });
            }
            // The end of the connection proves nothing about the mapping; only the end of the
            // process does.
            Err(_) if self.connection.has_ended() => {}
            Err(error) => return Err(error.into()),
        }
        self.mapped().remove(&iova);
        Ok(())
    }

    fn limits(&self) -> DmaLimits {
        self.limits
    }
}

// SAFETY: registers are the server's answers; all ones are read once the connection is over.
// Doorbells hold their mapping, or the connection that carries their messages.
unsafe impl Transport for UserTransport {
    fn describe(&self) -> String {
        self.connection.server().to_owned()
    }

    fn is_read_by_core(&self) -> bool {
        true
    }

    fn read32(&self, offset: u32) -> u32 {
        u32::from_le_bytes(self.read(offset))
    }

    fn read64(&self, offset: u32) -> u64 {
        if self.wide {
            return u64::from_le_bytes(self.read(offset));
        }
        u64::from(self.read32(offset)) | u64::from(self.read32(offset + 4)) << 32
    }

    fn claim(&self) -> &Claim {
        &self.claim
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    unsafe fn write64(&self, offset: u32, value: u64) {
        if self.wide {
            return self.write(offset, &value.to_le_bytes());
        }
        // The lower half first (NVMe Base 1.4 §3.1).
        self.write(offset, &(value as u32).to_le_bytes());
        self.write(offset + 4, &((value >> 32) as u32).to_le_bytes());
    }

    unsafe fn doorbell(&self, offset: u32) -> Result<Doorbell> {
        let inside = offset >= DOORBELLS
            && offset.is_multiple_of(4)
            && u64::from(offset) + 4 <= self.bar_bytes;
        if !inside {
            return Err(HwError::Missing { what: format!("doorbell at offset {offset:#x}") });
        }
        let message = MessageDoorbell { connection: Arc::clone(&self.connection), offset };
        Ok(self.bar.doorbell(offset, Arc::new(message)))
    }

    fn has_slow_doorbells(&self) -> bool {
        // Doorbells that are not mapped are messages.
        !self.bar.has(DOORBELLS)
    }

    fn vectors(&self) -> u16 {
        self.interrupts.as_ref().map_or(0, |interrupts| interrupts.vectors)
    }

    fn set_vector(&self, vector: u16, event: Option<&EventFd>) -> Result<()> {
        let interrupts = self.interrupts.as_ref().filter(|interrupts| vector < interrupts.vectors);
        let interrupts = interrupts
            .ok_or_else(|| HwError::Missing { what: format!("interrupt vector {vector}") })?;
        let mut installed = interrupts.installed.lock().unwrap_or_else(PoisonError::into_inner);
        // Once MSI-X is on, some servers treat a vector without an eventfd as an error (SPDK's sets
        // CSTS.CFS), and the admin queue has one although it is polled. So a vector that should
        // signal nothing signals an unread eventfd, and MSI-X stays on.
        match (installed.as_ref(), event) {
            (None, None) => return Ok(()),
            (Some(_), Some(event)) => self.set_irqs(vector, event)?,
            (Some(unread), None) => self.set_irqs(vector, unread)?,
            (None, Some(event)) => {
                let unread = EventFd::new()?;
                if vector != 0 {
                    self.set_irqs(0, &unread)?;
                }
                self.set_irqs(vector, event)?;
                interrupts.msix.enable(&self.connection, true)?;
                *installed = Some(unread);
            }
        }
        Ok(())
    }

    fn clock(&self) -> Clock {
        Clock::real()
    }
}

impl Drop for UserTransport {
    fn drop(&mut self) {
        let Some(interrupts) = &mut self.interrupts else { return };
        let installed =
            interrupts.installed.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if installed.is_some() && !self.connection.is_gone() {
            // In some servers the setting outlasts the connection.
            let _ = interrupts.msix.enable(&self.connection, false);
            let off = set_irqs(irq::SET_DATA_NONE | irq::SET_ACTION_TRIGGER, 0, 0);
            let _ = self.connection.request(Command::DeviceSetIrqs, &[off.as_bytes()], None, 0);
        }
    }
}

/// A doorbell by message.
struct MessageDoorbell {
    connection: Arc<Connection>,
    offset: u32,
}

impl WriteDoorbell for MessageDoorbell {
    fn write(&self, value: u32) {
        // Returns when the server has stored the value, so a later store to a shared doorbell
        // cannot be overtaken or undone. A refusal cannot be reported here; the command's deadline
        // detects it.
        let value = value.to_le_bytes();
        if let Err(error) =
            region_access::write(&self.connection, region::BAR0, self.offset.into(), &value)
        {
            tracing::warn!(%error, offset = self.offset, "a doorbell was not rung");
        }
    }
}
