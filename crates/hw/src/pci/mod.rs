//! NVMe controllers on PCI as the kernel sees them (sysfs), and how they move from the kernel's
//! driver to user space and back.
//!
//! [`scan`] lists the controllers and their uses. [`bind`] hands a controller to `vfio-pci` until
//! [`unbind`]; [`take`] does so for as long as the [`Taken`] lives. Each records a change before it
//! makes it (`/run/meantime/pci/ADDRESS`), so that [`repair`] can return a controller if the
//! process that took it was killed at any point.
//!
//! Paths and files of sysfs: the kernel's Documentation/ABI/testing/sysfs-bus-pci,
//! sysfs-kernel-iommu_groups, sysfs-nvme; Documentation/driver-api/vfio.rst.

mod address;
mod attribute;
mod bind;
mod disk;
mod driver;
mod error;
mod function;
mod group;
mod in_use;
mod loops;
mod node;
mod ops;
mod process;
mod record;
mod repair;
mod resolve;
mod return_to_kernel;
mod sysfs;
mod take;
mod usage;

#[cfg(test)]
mod tests;

pub use address::{PciAddress, PciAddressError};
pub use attribute::DeviceNumber;
pub(crate) use attribute::attribute;
pub use bind::{Bound, bind, unbind};
pub use disk::{KernelDisk, KernelPartition};
pub(crate) use driver::VFIO_PCI;
pub use error::PciError;
pub use function::{NvmeFunction, PcieLink, addresses, scan};
pub use group::{GroupMember, IommuGroup};
pub use in_use::{generic_disk, in_use};
pub use loops::LoopFile;
pub(crate) use node::Nodes;
pub use ops::{Claim, NodeOwner, SysfsOps, System};
pub use repair::{Repaired, repair};
pub use resolve::resolve;
pub use return_to_kernel::Returned;
pub use sysfs::Sysfs;
pub use take::{TakeOptions, Taken, take};
pub use usage::{DiskUse, UseKind};

pub use record::Taker;

/// The former name of [`Returned`].
#[deprecated(note = "use `Returned`")]
pub type GivenBack = Returned;
