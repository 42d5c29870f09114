//! Why a device cannot be reached through VFIO, and the remedies.

use std::io;
use std::path::PathBuf;

use crate::pci::PciAddress;

/// The obstacle. The address of the device is in the enclosing [`HwError::Vfio`](crate::HwError).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no such PCI function.
    #[error("there is no such PCI device; NVMe controllers of this machine: {have}")]
    NoDevice {
        /// The existing ones, with their drivers.
        have: String,
    },
    /// It is not an NVMe controller.
    #[error(
        "this is not an NVMe controller (PCI class {class}; 0x0108.. is); NVMe controllers of this \
         machine: {have}"
    )]
    NotNvme {
        /// The class code, as the kernel shows it.
        class: String,
        /// The existing NVMe controllers.
        have: String,
    },
    /// Another driver is bound to it, or none.
    #[error(
        "{} has this device, not vfio-pci: `meantime bind {address}` hands it over (and `meantime \
         unbind {address}` back)",
        .driver.as_ref().map_or("no driver".into(), |driver| format!("the driver `{driver}`"))
    )]
    NotBound {
        /// The device.
        address: PciAddress,
        /// The driver in charge.
        driver: Option<String>,
    },
    /// No IOMMU protects memory from the device.
    #[error(
        "no IOMMU translates for this device: boot with intel_iommu=on (Intel) or enable the IOMMU \
         in the firmware (AMD-Vi, VT-d); in a virtual machine, give it one. Without, the device \
         could write anywhere in memory"
    )]
    NoIommu,
    /// VFIO's no-IOMMU mode was requested.
    #[error(
        "VFIO's no-IOMMU mode is not supported: I/O addresses would be physical ones, a wrong one \
         overwrites any memory of the machine, and chunks of DMA memory would have to be \
         contiguous in it. Boot with intel_iommu=on or enable the IOMMU in the firmware instead"
    )]
    NoIommuMode,
    /// The kernel has no VFIO.
    #[error(
        "cannot open {}: {source}; load the modules: `modprobe vfio-pci vfio_iommu_type1`",
        path.display()
    )]
    NoVfio {
        /// The file to open.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel's VFIO lacks a feature.
    #[error("the kernel's VFIO lacks {what}")]
    Lacks {
        /// The feature, and a remedy.
        what: &'static str,
    },
    /// Other devices of its IOMMU group have other drivers.
    #[error(
        "IOMMU group {group} can only be used as a whole, and other drivers have {others}: bind \
         those to vfio-pci as well, or unbind them; or put the SSD into a slot with a group of its \
         own"
    )]
    GroupNotViable {
        /// The group.
        group: u32,
        /// The other devices and their drivers.
        others: String,
    },
    /// Another process uses it.
    #[error(
        "another process uses this device ({path} is busy): end it first; `fuser -v {path}` names \
         it",
        path = path.display()
    )]
    InUse {
        /// The busy file.
        path: PathBuf,
    },
    /// This process has it open.
    #[error("this process has this device open already: share the one that it has")]
    OpenHere,
    /// This user has no permission to open it.
    #[error(
        "no permission to open {}: run `meantime bind {address} --owner USER` once as root, or run \
         this as root", path.display()
    )]
    Permission {
        /// The device.
        address: PciAddress,
        /// The file to open.
        path: PathBuf,
    },
    /// The IOMMU cannot isolate the device's interrupts.
    #[error(
        "the kernel refuses the device for want of interrupt remapping: boot without intremap=off, \
         enable it (x2APIC, VT-d) in the firmware, or, if you trust the device, load \
         vfio_iommu_type1 with allow_unsafe_interrupts=1"
    )]
    UnsafeInterrupts,
    /// BAR0 is not an NVMe controller's.
    #[error("its BAR0 cannot be used: {what}")]
    Bar {
        /// What is wrong with it.
        what: String,
    },
    /// The kernel does not let the device respond.
    #[error(
        "its {what} could not be switched on (command register {command:#06x}): reset or \
         power-cycle the device"
    )]
    Command {
        /// The bits that could not be set.
        what: &'static str,
        /// The command register of the configuration space.
        command: u16,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// What was attempted, and a remedy.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl VfioError {
    /// For `map_err`: a system call that failed.
    pub(super) fn os(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { what, source }
    }
}

/// A `Result` of this transport, before the device's address is added.
pub(super) type Result<T> = std::result::Result<T, VfioError>;
