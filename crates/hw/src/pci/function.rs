//! NVMe controllers on PCI: properties, driver, and disks.

use std::path::Path;

use serde::Serialize;

use super::address::PciAddress;
use super::attribute::{attribute, names, number};
use super::disk::{KernelDisk, digits_after, disks};
use super::group::IommuGroup;
use super::record::{Record, Taker};
use super::sysfs::{NVME_CLASS, Sysfs};
use super::usage::{DiskUse, Snapshot};

/// An NVMe controller on PCI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeFunction {
    /// Its PCI address.
    pub address: PciAddress,
    /// PCI vendor.
    pub vendor_id: u16,
    /// PCI device.
    pub device_id: u16,
    /// The kernel's name for it, `nvme0`, while the kernel's driver has it.
    pub controller: Option<String>,
    /// Model, from the kernel's driver, or as recorded when it was taken.
    pub model: Option<String>,
    /// Serial number, likewise.
    pub serial: Option<String>,
    /// Firmware revision, likewise.
    pub firmware: Option<String>,
    /// The driver in charge.
    pub driver: Option<String>,
    /// The only driver allowed to bind to it, if set.
    pub driver_override: Option<String>,
    /// Its IOMMU group; `None` if no IOMMU is active.
    pub group: Option<IommuGroup>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// Its PCIe link.
    pub link: Option<PcieLink>,
    /// The kernel's block devices on it, one per namespace.
    pub disks: Vec<KernelDisk>,
    /// Their uses, as far as this process can see.
    pub uses: Vec<DiskUse>,
    /// The process that took it by [`bind`](super::bind) or [`take`](super::take).
    pub taker: Option<Taker>,
}

/// A PCIe link as trained, and its maximum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PcieLink {
    /// E.g. `8.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub width: u32,
    /// The highest speed of the device.
    pub max_speed: Option<String>,
    /// The most lanes of the device.
    pub max_width: Option<u32>,
}

/// Every NVMe controller on PCI, with its uses.
pub fn scan(sysfs: &Sysfs) -> Vec<NvmeFunction> {
    let mut functions: Vec<_> = addresses(sysfs)
        .into_iter()
        .filter_map(|address| NvmeFunction::of(sysfs, address))
        .collect();
    if functions.iter().any(|function| function.controller.is_some()) {
        let snapshot = Snapshot::take(sysfs);
        for function in &mut functions {
            function.uses = snapshot.uses(sysfs, function.controller.as_deref(), &function.disks);
        }
    }
    functions
}

/// The addresses of the NVMe controllers.
pub fn addresses(sysfs: &Sysfs) -> Vec<PciAddress> {
    let found = names(&sysfs.bus().join("devices"));
    let found = found.iter().filter_map(|name| name.parse().ok());
    found.filter(|address| sysfs.class(*address) == Some(NVME_CLASS)).collect()
}

impl NvmeFunction {
    /// The controller at `address`, without its uses. `None` if there is no NVMe controller.
    pub(super) fn of(sysfs: &Sysfs, address: PciAddress) -> Option<Self> {
        if sysfs.class(address)? != NVME_CLASS {
            return None;
        }
        let dir = sysfs.function(address);
        let id = |name: &str| number(&dir.join(name)).unwrap_or(0) as u16;
        let controllers = dir.join("nvme");
        let controller = names(&controllers).into_iter().find(|name| digits_after(name, "nvme"));
        let record = Record::read(sysfs, address).ok().flatten();
        let identity = |name: &str, kept: fn(&Record) -> Option<String>| match &controller {
            Some(controller) => attribute(&controllers.join(controller).join(name)),
            None => record.as_ref().and_then(kept),
        };
        Some(Self {
            address,
            vendor_id: id("vendor"),
            device_id: id("device"),
            model: identity("model", |record| record.model.clone()),
            serial: identity("serial", |record| record.serial.clone()),
            firmware: identity("firmware_rev", |record| record.firmware.clone()),
            driver: sysfs.driver(address),
            driver_override: sysfs.driver_override(address),
            group: IommuGroup::of(sysfs, address),
            numa_node: number(&dir.join("numa_node")).and_then(|node| node.try_into().ok()),
            link: link(&dir),
            disks: controller
                .as_ref()
                .map(|name| disks(sysfs, &controllers.join(name)))
                .unwrap_or_default(),
            uses: Vec::new(),
            taker: record.map(|record| record.taker(sysfs)),
            controller,
        })
    }

    /// The total size of its namespaces, if the kernel has them.
    pub fn bytes(&self) -> Option<u64> {
        let sum = self.disks.iter().fold(0u64, |sum, disk| sum.saturating_add(disk.bytes));
        (!self.disks.is_empty()).then_some(sum)
    }
}

fn link(dir: &Path) -> Option<PcieLink> {
    let width = |name: &str| number(&dir.join(name)).and_then(|lanes| lanes.try_into().ok());
    Some(PcieLink {
        speed: attribute(&dir.join("current_link_speed")).filter(|speed| speed != "Unknown")?,
        width: width("current_link_width").filter(|lanes| *lanes > 0)?,
        max_speed: attribute(&dir.join("max_link_speed")).filter(|speed| speed != "Unknown"),
        max_width: width("max_link_width").filter(|lanes| (1..255).contains(lanes)),
    })
}
