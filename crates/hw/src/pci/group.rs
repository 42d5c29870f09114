//! IOMMU groups: functions that can only be taken together.

use std::fmt;

use super::address::PciAddress;
use super::attribute::{attribute, link_name, names};
use super::driver::is_vfio;
use super::sysfs::{NVME_CLASS, Sysfs};

/// VFIO's switch for devices without an IOMMU, below `/sys/module`.
/// Documentation/driver-api/vfio.rst; CONFIG_VFIO_NOIOMMU.
pub(super) const NO_IOMMU_PARAMETER: &str = "module/vfio/parameters/enable_unsafe_noiommu_mode";

/// The IOMMU group of a function: devices that the IOMMU cannot isolate from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IommuGroup {
    /// Its number, as in `/dev/vfio/N`.
    pub number: u32,
    /// Whether VFIO made it for a device without an IOMMU.
    pub no_iommu: bool,
    /// The other functions in it, without bridges.
    pub others: Vec<GroupMember>,
}

/// A function that shares a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Its PCI address.
    pub address: PciAddress,
    /// Base class and sub-class, e.g. 0x0108.
    pub class: u16,
    /// The driver in charge.
    pub driver: Option<String>,
}

/// Base class and sub-class of a PCI-to-PCI bridge (PCI Code and ID Assignment Specification): VFIO
/// accepts any driver on it.
const PCI_BRIDGE_CLASS: u16 = 0x0604;

impl IommuGroup {
    /// The group of a function; `None` if no IOMMU is active.
    pub fn of(sysfs: &Sysfs, address: PciAddress) -> Option<Self> {
        let link = sysfs.function(address).join("iommu_group");
        let group = link_name(&link)?.parse().ok()?;
        let others = names(&link.join("devices"));
        let others =
            others.iter().filter_map(|name| name.parse().ok()).filter(|other| *other != address);
        let others = others.map(|other| GroupMember {
            address: other,
            class: sysfs.class(other).unwrap_or(0),
            driver: sysfs.driver(other),
        });
        Some(Self {
            number: group,
            no_iommu: attribute(&link.join("name")).is_some_and(|name| name == "vfio-noiommu"),
            others: others.filter(|other| other.class != PCI_BRIDGE_CLASS).collect(),
        })
    }

    /// The other functions that have a kernel driver.
    pub fn in_the_way(&self) -> impl Iterator<Item = &GroupMember> {
        self.others.iter().filter(|other| other.is_in_the_way())
    }
}

/// `0000:01:00.1 (snd_hda_intel)`.
impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.driver.as_deref().unwrap_or("no driver"))
    }
}

impl GroupMember {
    /// Whether its driver keeps the group from VFIO. Drivers with `driver_managed_dma` do not.
    pub fn is_in_the_way(&self) -> bool {
        match self.driver.as_deref() {
            None | Some("pci-stub" | "pcieport") => false,
            Some(driver) => !is_vfio(driver),
        }
    }

    /// Whether it is an NVMe controller as well.
    pub(crate) fn is_nvme(&self) -> bool {
        self.class == NVME_CLASS
    }
}
