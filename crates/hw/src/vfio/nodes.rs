//! The kernel's files for a device: its IOMMU group, its nodes, the other devices of the group.

use std::path::PathBuf;

use super::error::{Result, VfioError};
use crate::pci::{self, IommuGroup, Nodes, PciAddress, Sysfs, VFIO_PCI, attribute};

/// An NVMe controller bound to vfio-pci.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceNodes {
    pub(super) address: PciAddress,
    pub(super) group: IommuGroup,
    /// The node of the group, `/dev/vfio/N`.
    pub(super) group_node: PathBuf,
    /// The device's own node, `/dev/vfio/devices/vfioN`, if the kernel provides one (Linux 6.6 with
    /// IOMMUFD).
    pub(super) device_node: Option<PathBuf>,
}

impl DeviceNodes {
    /// Looks for `address`.
    pub(super) fn find(sysfs: &Sysfs, address: PciAddress, allow_no_iommu: bool) -> Result<Self> {
        let device = sysfs.function(address);
        if !device.exists() {
            return Err(VfioError::NoDevice { have: controllers(sysfs) });
        }
        let class = attribute(&device.join("class")).unwrap_or_default();
        if !class.starts_with("0x0108") {
            return Err(VfioError::NotNvme { class, have: controllers(sysfs) });
        }
        let no_iommu = match allow_no_iommu {
            true => VfioError::NoIommuMode,
            false => VfioError::NoIommu,
        };
        // Before the driver check: without a group vfio-pci does not take a device, so advice to
        // bind it would not help.
        let Some(group) = IommuGroup::of(sysfs, address) else { return Err(no_iommu) };
        match sysfs.driver(address) {
            Some(driver) if driver == VFIO_PCI => {}
            driver => return Err(VfioError::NotBound { address, driver }),
        }
        // In this mode the kernel creates pseudo groups.
        if group.no_iommu {
            return Err(no_iommu);
        }
        let nodes = Nodes::in_group(sysfs, address, &group);
        Ok(Self { address, group, group_node: nodes.group, device_node: nodes.device })
    }

    /// The other devices that prevent the use of the group, with their drivers.
    pub(super) fn others_in_the_way(&self) -> String {
        let others: Vec<String> = self.group.in_the_way().map(ToString::to_string).collect();
        match others.is_empty() {
            true => "devices that sysfs does not show".into(),
            false => others.join(", "),
        }
    }
}

/// The NVMe controllers of the machine, with their drivers.
fn controllers(sysfs: &Sysfs) -> String {
    let named = pci::addresses(sysfs).into_iter().map(|address| {
        let driver = sysfs.driver(address);
        format!("{address} ({})", driver.as_deref().unwrap_or("no driver"))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { "none".into() } else { named.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::pci::System;

    /// A machine with an SSD in group 7 beside a network card, and one without an IOMMU.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), "0000:01:00.0", "0x010802", Some("vfio-pci"), Some(7));
        device(root.path(), "0000:01:00.1", "0x020000", Some("e1000e"), Some(7));
        device(root.path(), "0000:00:1c.0", "0x060400", Some("pcieport"), Some(7));
        device(root.path(), "0000:02:00.0", "0x010802", Some("nvme"), Some(8));
        device(root.path(), "0000:03:00.0", "0x010802", Some("nvme"), None);
        device(root.path(), "0000:04:00.0", "0x010802", None, Some(9));
        root
    }

    fn device(root: &Path, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let path = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("class"), format!("{class}\n")).unwrap();
        if let Some(driver) = driver {
            symlink(format!("../../../../bus/pci/drivers/{driver}"), path.join("driver")).unwrap();
        }
        if let Some(group) = group {
            let link = format!("../../../../kernel/iommu_groups/{group}");
            symlink(link, path.join("iommu_group")).unwrap();
            let devices = group_dir(root, group).join("devices");
            fs::create_dir_all(&devices).unwrap();
            symlink("../../../../devices", devices.join(address)).unwrap();
        }
    }

    fn group_dir(root: &Path, group: u32) -> PathBuf {
        root.join("sys/kernel/iommu_groups").join(group.to_string())
    }

    fn find_with(root: &tempfile::TempDir, address: &str, no_iommu: bool) -> Result<DeviceNodes> {
        let sysfs = Sysfs::at(root.path(), Arc::new(System::default()));
        DeviceNodes::find(&sysfs, address.parse().unwrap(), no_iommu)
    }

    fn find(root: &tempfile::TempDir, address: &str) -> Result<DeviceNodes> {
        find_with(root, address, false)
    }

    #[test]
    fn finds_the_group_and_the_nodes() {
        let root = machine();
        let nodes = find(&root, "0000:01:00.0").unwrap();
        assert_eq!((nodes.group.number, nodes.device_node.clone()), (7, None));
        assert_eq!(nodes.group_node, root.path().join("dev/vfio/7"));
        let vfio_dev = root.path().join("sys/bus/pci/devices/0000:01:00.0/vfio-dev/vfio3");
        fs::create_dir_all(vfio_dev).unwrap();
        // Known to sysfs, but without a node yet.
        assert_eq!(find(&root, "0000:01:00.0").unwrap().device_node, None);
        let node = root.path().join("dev/vfio/devices/vfio3");
        fs::create_dir_all(&node).unwrap();
        assert_eq!(find(&root, "0000:01:00.0").unwrap().device_node, Some(node));
    }

    #[test]
    fn errors_list_the_controllers_that_exist() {
        let root = machine();
        let text = find(&root, "0000:09:00.0").unwrap_err().to_string();
        assert!(
            text.contains("0000:02:00.0 (nvme)") && text.contains("0000:04:00.0 (no driver)"),
            "{text}"
        );
        assert!(!text.contains("e1000e"), "{text}");
        let text = find(&root, "0000:01:00.1").unwrap_err().to_string();
        assert!(text.contains("0x020000") && text.contains("0000:01:00.0 (vfio-pci)"), "{text}");
        let empty = tempfile::tempdir().unwrap();
        assert!(find(&empty, "0000:01:00.0").unwrap_err().to_string().ends_with(": none"));
    }

    #[test]
    fn errors_name_the_driver_in_charge() {
        let root = machine();
        let text = find(&root, "0000:02:00.0").unwrap_err().to_string();
        assert!(
            text.contains("the driver `nvme`") && text.contains("`meantime bind 0000:02:00.0`"),
            "{text}"
        );
        assert!(matches!(
            find(&root, "0000:04:00.0"),
            Err(VfioError::NotBound { driver: None, .. })
        ));
    }

    #[test]
    fn without_an_iommu_it_says_how_to_get_one() {
        let root = machine();
        assert!(find(&root, "0000:03:00.0").unwrap_err().to_string().contains("intel_iommu=on"));
        // The kernel's pseudo group.
        fs::write(group_dir(root.path(), 7).join("name"), "vfio-noiommu\n").unwrap();
        assert!(matches!(find(&root, "0000:01:00.0"), Err(VfioError::NoIommu)));
        let asked = find_with(&root, "0000:01:00.0", true);
        assert!(matches!(asked, Err(VfioError::NoIommuMode)));
    }

    #[test]
    fn names_the_devices_that_make_a_group_unusable() {
        let root = machine();
        let mut nodes = find(&root, "0000:01:00.0").unwrap();
        assert_eq!(nodes.others_in_the_way(), "0000:01:00.1 (e1000e)");
        nodes.group.others.clear();
        assert!(nodes.others_in_the_way().contains("sysfs"));
    }
}
