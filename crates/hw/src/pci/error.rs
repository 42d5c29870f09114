//! Why a controller cannot be shown, taken or returned, and the remedies.

use std::io;
use std::path::PathBuf;

use super::address::PciAddress;

/// Why a controller could not be taken or returned. Unless it says otherwise, the state is
/// unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PciError {
    /// There is no such NVMe controller.
    #[error("{name}: {why}; {there}")]
    NoSuchDevice {
        /// The name requested.
        name: String,
        /// The function that is there instead.
        why: String,
        /// The existing controllers.
        there: String,
    },
    /// The text names no device.
    #[error(
        "{0:?} names no device: give a PCI address such as 0000:01:00.0, or the kernel's name, \
         such as /dev/nvme0"
    )]
    BadName(String),
    /// The controller's namespaces are in use.
    #[error("{address} is in use: {}; {}", uses.join(", "), if *force_helps {
        "end that, or say --force to take the device from under it"
    } else {
        "unmount it, swapoff it, or take apart what is made of it (--force does not override this)"
    })]
    InUse {
        /// The device.
        address: PciAddress,
        /// The uses, as texts.
        uses: Vec<String>,
        /// Whether [`TakeOptions::force`](super::TakeOptions::force) would override it.
        force_helps: bool,
    },
    /// It could not be determined whether the device is in use.
    #[error(
        "{address}: cannot find out whether {disk} is in use: {source}; run this where /dev has \
         the machine's disks"
    )]
    CannotTell {
        /// The device.
        address: PciAddress,
        /// The block device.
        disk: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The IOMMU cannot isolate the device from others that have kernel drivers.
    #[error(
        "{address} shares IOMMU group {group} with {}: all of a group must leave their kernel \
         drivers; {hint}",
        others.join(", ")
    )]
    GroupShared {
        /// The device.
        address: PciAddress,
        /// The group.
        group: u32,
        /// The other devices, with their drivers.
        others: Vec<String>,
        /// A remedy.
        hint: String,
    },
    /// No IOMMU is active.
    #[error(
        "{address} has no IOMMU group: the IOMMU is off or missing; switch it on in the firmware \
         (VT-d, AMD-Vi, SMMU) and boot with intel_iommu=on (Intel) or without amd_iommu=off (AMD). \
         Without an IOMMU the device can read and write all memory, the kernel's included, \
         whatever goes wrong in the program: if that is acceptable, `meantime bind \
         --unsafe-no-iommu`"
    )]
    NoIommu {
        /// The device.
        address: PciAddress,
    },
    /// The kernel has no VFIO mode without an IOMMU.
    #[error("this kernel cannot do without an IOMMU: {why}; switch the IOMMU on instead")]
    NoUnsafeMode {
        /// The missing part.
        why: String,
    },
    /// There is no `vfio-pci`.
    #[error(
        "the kernel's driver vfio-pci cannot be loaded ({why}): install the modules of the running \
         kernel, and see that vfio-pci is not blacklisted"
    )]
    NoVfio {
        /// The error of modprobe.
        why: String,
    },
    /// Permission denied.
    #[error(
        "taking a device from the kernel's driver, and giving it back, needs root: once `sudo \
         meantime bind ADDRESS --owner $USER`, and from then on the device can be used without"
    )]
    NeedsRoot,
    /// Another process of Meantime has it.
    #[error("{address} is taken by {by}, which gives it back when it ends; end it first")]
    TakenBy {
        /// The device.
        address: PciAddress,
        /// The process.
        by: String,
    },
    /// A process uses the device through VFIO.
    #[error("{address} is in use through {} by {by}; end that first", node.display())]
    Busy {
        /// The device.
        address: PciAddress,
        /// The VFIO group.
        node: PathBuf,
        /// The processes.
        by: String,
    },
    /// The device was removed.
    #[error("{address} is no longer there")]
    Gone {
        /// Its former address.
        address: PciAddress,
    },
    /// A system call failed.
    #[error("the kernel {what}: {source}; `dmesg` may say why")]
    Kernel {
        /// What was attempted.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A driver did not take the device, or did not release it.
    #[error(
        "{address} is {} and not with {wanted}; `dmesg` may say why",
        driver.as_ref().map_or("without a driver".into(), |name| format!("with the driver {name}"))
    )]
    WrongDriver {
        /// The device.
        address: PciAddress,
        /// The driver that should have it.
        wanted: String,
        /// The driver that has it.
        driver: Option<String>,
    },
    /// A wait timed out.
    #[error("gave up waiting {what}: {hint}")]
    TimedOut {
        /// The event waited for.
        what: String,
        /// A remedy.
        hint: String,
    },
    /// The device is back, but some of its namespaces are not.
    #[error(
        "{address} is back with {driver}, but of its block devices only {there} of {expected} are; \
         `dmesg` may say why, `nvme list` shows them"
    )]
    DisksMissing {
        /// The device.
        address: PciAddress,
        /// The driver.
        driver: String,
        /// The number that came back.
        there: u32,
        /// The number before.
        expected: u32,
    },
    /// The record of a device cannot be written or read.
    #[error(
        "{}: {what}; `meantime devices --repair` removes a record that is damaged",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Taking failed half-way.
    #[error("{cause}; {}", match undone {
        None => "everything was put back".to_owned(),
        Some(error) => format!(
            "and putting it back failed, too: {error}; then run `meantime devices --repair`"
        ),
    })]
    Failed {
        /// The cause.
        cause: Box<PciError>,
        /// Why the device could not be returned afterwards.
        undone: Option<Box<PciError>>,
    },
}
