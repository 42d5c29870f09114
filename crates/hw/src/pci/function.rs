//! NVMe controllers on PCI: properties, driver, and disks.

use std::path::Path;

use serde::Serialize;

use super::address::PciAddress;
use super::group::IommuGroup;
use super::record::{Record, Taker};
use super::sysfs::{DeviceNumber, Sysfs, attribute, device_number, names, number};
use super::usage::{DiskUse, Snapshot};

/// Base class and sub-class of non-volatile memory (PCI Code and ID Assignment Specification: 01h,
/// 08h).
pub(super) const NVME_CLASS: u16 = 0x0108;

/// The unit of a disk's size in sysfs, regardless of its logical block size
/// (Documentation/ABI/stable/sysfs-block).
pub(super) const SECTOR_BYTES: u64 = 512;

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
    /// Its IOMMU group. `None`: no IOMMU is active.
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

/// A block device of the kernel: a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelDisk {
    /// E.g. `nvme0n1`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Its device number.
    #[serde(skip)]
    pub number: Option<DeviceNumber>,
    /// Its partitions.
    pub partitions: Vec<KernelPartition>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelPartition {
    /// E.g. `nvme0n1p1`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Its device number.
    #[serde(skip)]
    pub number: Option<DeviceNumber>,
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
            function.uses = snapshot.uses(sysfs, function);
        }
    }
    functions
}

/// The addresses of the NVMe controllers.
pub fn addresses(sysfs: &Sysfs) -> Vec<PciAddress> {
    let found = names(&sysfs.bus().join("devices"));
    let found = found.iter().filter_map(|name| name.parse().ok());
    found.filter(|address| class(sysfs, *address) == Some(NVME_CLASS)).collect()
}

/// Base class and sub-class of a function; `None` if it does not exist.
pub(super) fn class(sysfs: &Sysfs, address: PciAddress) -> Option<u16> {
    Some((number(&sysfs.function(address).join("class"))? >> 8) as u16)
}

impl NvmeFunction {
    /// The controller at `address`, without its uses. `None` if there is no NVMe controller.
    pub(super) fn of(sysfs: &Sysfs, address: PciAddress) -> Option<Self> {
        if class(sysfs, address)? != NVME_CLASS {
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

/// Whether `name` is `prefix` followed by a number.
pub(super) fn digits_after(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The block device for a directory's name: `nvme0n1` → itself, and the hidden path `nvme0c1n1` of
/// a controller in a subsystem with several → `nvme0n1`. (The first number may be the subsystem's,
/// not the controller's.)
fn disk_name(name: &str) -> Option<String> {
    let (front, namespace) =
        name.rsplit_once('n').filter(|(front, _)| front.len() > "nvm".len())?;
    let (front, path) =
        front.rsplit_once('c').map_or((front, None), |(front, path)| (front, Some(path)));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (digits_after(front, "nvme") && is_number(namespace) && path.is_none_or(is_number))
        .then(|| format!("{front}n{namespace}"))
}

fn disks(sysfs: &Sysfs, controller: &Path) -> Vec<KernelDisk> {
    let mut found: Vec<String> =
        names(controller).iter().filter_map(|name| disk_name(name)).collect();
    found.sort();
    found.dedup();
    found.into_iter().filter_map(|name| disk(sysfs, name)).collect()
}

/// A block device and its partitions, from sysfs.
pub(super) fn disk(sysfs: &Sysfs, name: String) -> Option<KernelDisk> {
    let dir = sysfs.sys.join("class/block").join(&name);
    let sized =
        |dir: &Path| number(&dir.join("size")).map(|sectors| sectors.saturating_mul(SECTOR_BYTES));
    let numbered = |dir: &Path| attribute(&dir.join("dev")).and_then(|text| device_number(&text));
    let partitions =
        names(&dir).into_iter().filter(|part| dir.join(part).join("partition").exists());
    let partitions = partitions.map(|part| KernelPartition {
        bytes: sized(&dir.join(&part)).unwrap_or(0),
        number: numbered(&dir.join(&part)),
        name: part,
    });
    Some(KernelDisk {
        bytes: sized(&dir)?,
        number: numbered(&dir),
        partitions: partitions.collect(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::disk_name;

    #[test]
    fn disks_by_their_names() {
        for (name, disk) in [
            ("nvme0n1", Some("nvme0n1")),
            ("nvme12n34", Some("nvme12n34")),
            ("nvme0c3n2", Some("nvme0n2")),
            ("nvme0", None),
            ("nvme0n", None),
            ("nvme0n1p1", None),
            ("nvmen1", None),
            ("nvme0cn1", None),
            ("ng0n1", None),
            ("hwmon1", None),
            ("n1", None),
            ("", None),
        ] {
            assert_eq!(disk_name(name).as_deref(), disk, "{name}");
        }
    }
}
