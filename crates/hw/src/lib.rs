//! Hardware, and the kernel's interfaces to it: memory, doorbells, clocks, interrupts, and the
//! transports that reach a controller.
//!
//! # What it is for
//! The layers above are safe code over this crate's bounds-checked interfaces. It knows registers
//! and addresses, and of NVMe commands only how the kernel takes them (`uring`).
//!
//! # What it owns
//! - Memory that a device may reach. A [`DmaBuf`] is a range of a [`DmaHeap`], to which it
//!   returns when it is dropped. Arenas outlive their users by reference count.
//! - The mapping of a device's doorbells, and its interrupts.
//! - The exclusive use of a controller by one driver: a [`Claim`].
//!
//! # What it promises
//! - Safe code cannot write a register or a doorbell, because these name the memory that the
//!   controller accesses. A map refuses addresses that are mapped already.
//! - A doorbell is stored with Release (`mmio`). A doorbell whose device vanished does not crash
//!   the program: the SIGBUS handler makes the mapping ordinary memory, and registers read all
//!   ones.
//! - DMA memory and doorbells are not in a forked child (MADV_DONTFORK).
//!
//! # Parts, in reading order
//! ```text
//!   transport               Transport, DmaMap: what a driver needs of a device
//!   pages, dma, scatter,    memory for DMA: huge pages if there are any, the heap, requests over
//!     user_memory, view       scattered pages, memory that is lent for one read, pages of a cache
//!   mmio, doorbells         doorbells, and the mappings that hold them
//!   event, futex            an interrupt's other end
//!   soft                    transport: a software SSD in this process
//!   vfio/                   transport: a PCIe SSD
//!   vfio_user/              transport: a controller of another process
//!   sigbus                  stores to device memory that is gone
//!   pci/                    NVMe controllers in sysfs: shown, taken, returned, repaired
//!   uring                   the kernel as the other side: registered memory, io_uring
//!   clock, counter, sleep,  time, ways to let it pass
//!     pause, kernel_time
//!   cpu, sched, ioprio,     what a thread may use, and how the kernel treats
//!     pm_qos, usage           it; what it has used
//!   energy                  what the processors have used
//! ```
//!
//! # PCIe devices
//! Registers are accessed by `pread` and `pwrite` on the device's file, which fail where a load
//! from a mapping would raise SIGBUS. Only doorbells are mapped. Each device has its own IOMMU
//! container. MSI-X is enabled once with all vectors. The kernel resets the function when its file
//! is first opened and when it is closed, however the process ends.
//!
//! `pci` writes a record of each change before it makes it (`/run/meantime/pci/ADDRESS`, by rename,
//! with pid, start time and boot). An unfinished record seen under the lock is abandoned, because a
//! living process finishes its work under the lock. The disks are held exclusively until the
//! kernel's driver is gone. Unbinding, drop, roll-back and repair share one procedure that returns
//! a controller, which can start from any point. It refuses while the group is open, because the
//! kernel would block.
//!
//! `pci::in_use` is called wherever a `file:` or `kernel:` device is opened for writing. It checks
//! mounts of every visible mount namespace, swap, holders, the partitions, and the same for each
//! loop device backed by the file. A loop device identifies that file by device and inode number
//! (LOOP_GET_STATUS64); only if it cannot be opened, the file's name is compared. For a partition
//! the whole disk is checked, but not the other partitions; for a loop device, other devices with
//! the same bytes. An unused loop device forbids nothing.

#![deny(unsafe_code)]

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("Meantime runs on x86-64; on AArch64 it compiles, and was not tested with a device");

pub mod clock;
mod counter;
pub mod cpu;
pub mod dma;
mod doorbells;
pub mod energy;
mod error;
pub mod event;
pub mod futex;
pub mod ioprio;
mod kernel_time;
pub mod mmio;
pub mod mountinfo;
pub mod pages;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_pause.rs")]
mod pause;
pub mod pci;
pub mod pm_qos;
pub mod scatter;
pub mod sched;
pub mod sigbus;
pub mod sleep;
pub mod soft;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod uring;
pub mod usage;
pub mod user_memory;
pub mod vfio;
pub mod vfio_user;
pub mod view;

pub use clock::Clock;
pub use dma::{DmaBuf, DmaHeap};
pub use error::{HwError, Result};
pub use event::EventFd;
pub use futex::Futex;
pub use ioprio::IoPriority;
pub use mmio::{Doorbell, Wake, WriteDoorbell};
pub(crate) use pause::UserWait;
pub use pci::PciAddress;
pub use pm_qos::PmQos;
pub use scatter::DmaPages;
pub use sched::{SchedClass, SchedError};
pub use sleep::{SleepMethod, Sleeper};
pub use transport::{Claim, DeviceEvent, DmaLimits, DmaMap, EventHandler, Progress, Transport};
pub use usage::ThreadUsage;
pub use vfio::{VfioError, VfioOptions, VfioTransport};
pub use vfio_user::{UserError, UserOptions, UserTransport};
pub use view::PageCell;

/// The former name of [`SleepMethod`].
#[deprecated(note = "use `SleepMethod`")]
pub type SleepWay = SleepMethod;
