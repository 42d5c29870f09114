//! Where the kernel presents a device: its IOMMU group, its nodes, the other devices of the group.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{Result, VfioError};
use crate::pci::PciAddress;

/// The driver that hands devices to user space.
const VFIO_PCI: &str = "vfio-pci";
/// The driver of PCI Express bridges, which do not count in a group.
const PORT_DRIVER: &str = "pcieport";

/// An NVMe controller bound to vfio-pci.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceNodes {
    pub(super) address: PciAddress,
    /// The IOMMU group.
    pub(super) group: u32,
    /// The node of the group, `/dev/vfio/N`.
    pub(super) group_node: PathBuf,
    /// The device's own node, `/dev/vfio/devices/vfioN`, if the kernel has such (Linux 6.6 with
    /// IOMMUFD).
    pub(super) device_node: Option<PathBuf>,
}

impl DeviceNodes {
    /// Looks for `address` under `root`, which is `/` except in tests.
    pub(super) fn find(root: &Path, address: PciAddress, allow_no_iommu: bool) -> Result<Self> {
        let device = root.join("sys/bus/pci/devices").join(address.to_string());
        if !device.exists() {
            return Err(VfioError::NoDevice { have: controllers(root) });
        }
        let class = read(&device.join("class"));
        if !class.starts_with("0x0108") {
            return Err(VfioError::NotNvme { class, have: controllers(root) });
        }
        let group =
            link_name(&device.join("iommu_group")).and_then(|name| name.parse::<u32>().ok());
        let nodes = root.join("dev/vfio");
        // Before the driver: without a group vfio-pci does not take a device, and asking for that
        // would not help.
        let Some(group) = group else { return Err(no_iommu(allow_no_iommu)) };
        match link_name(&device.join("driver")) {
            Some(driver) if driver == VFIO_PCI => {}
            driver => return Err(VfioError::NotBound { address, driver }),
        }
        // In this mode the kernel makes up groups.
        if read(&groups(root, group).join("name")) == "vfio-noiommu" {
            return Err(no_iommu(allow_no_iommu));
        }
        let names = fs::read_dir(device.join("vfio-dev")).into_iter().flatten().flatten();
        let device_node = names
            .map(|entry| nodes.join("devices").join(entry.file_name()))
            .find(|node| node.exists());
        Ok(Self { address, group, group_node: nodes.join(group.to_string()), device_node })
    }
}

fn no_iommu(asked_for_without: bool) -> VfioError {
    if asked_for_without { VfioError::NoIommuMode } else { VfioError::NoIommu }
}

/// The other devices of `group` that keep it from being used, with their drivers.
pub(super) fn strangers(root: &Path, group: u32) -> String {
    let devices = sorted(&groups(root, group).join("devices"));
    let mut strangers = Vec::new();
    for name in devices {
        let driver = link_name(&root.join("sys/bus/pci/devices").join(&name).join("driver"));
        match driver {
            Some(driver) if driver != VFIO_PCI && driver != PORT_DRIVER => {
                strangers.push(format!("{name} ({driver})"));
            }
            _ => {}
        }
    }
    if strangers.is_empty() {
        "devices that sysfs does not show".into()
    } else {
        strangers.join(", ")
    }
}

/// The NVMe controllers of the machine, with their drivers.
fn controllers(root: &Path) -> String {
    let devices = root.join("sys/bus/pci/devices");
    let nvme = sorted(&devices)
        .into_iter()
        .filter(|name| read(&devices.join(name).join("class")).starts_with("0x0108"));
    let named: Vec<String> = nvme
        .map(|name| match link_name(&devices.join(&name).join("driver")) {
            Some(driver) => format!("{name} ({driver})"),
            None => format!("{name} (no driver)"),
        })
        .collect();
    if named.is_empty() { "none".into() } else { named.join(", ") }
}

fn groups(root: &Path, group: u32) -> PathBuf {
    root.join("sys/kernel/iommu_groups").join(group.to_string())
}

fn sorted(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The contents of a small file; empty if it cannot be read.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The last part of what a link points to.
fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
            symlink(format!("../../../kernel/iommu_groups/{group}"), path.join("iommu_group"))
                .unwrap();
            let devices = groups(root, group).join("devices");
            fs::create_dir_all(&devices).unwrap();
            symlink("../../../../devices", devices.join(address)).unwrap();
        }
    }

    fn find(root: &tempfile::TempDir, address: &str) -> Result<DeviceNodes> {
        DeviceNodes::find(root.path(), address.parse().unwrap(), false)
    }

    #[test]
    fn finds_the_group_and_the_nodes() {
        let root = machine();
        let nodes = find(&root, "0000:01:00.0").unwrap();
        assert_eq!((nodes.group, nodes.device_node.clone()), (7, None));
        assert_eq!(nodes.group_node, root.path().join("dev/vfio/7"));
        let vfio_dev = root.path().join("sys/bus/pci/devices/0000:01:00.0/vfio-dev/vfio3");
        fs::create_dir_all(vfio_dev).unwrap();
        // Known to sysfs, but there is no node yet.
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
        // The kernel's made-up group.
        fs::write(groups(root.path(), 7).join("name"), "vfio-noiommu\n").unwrap();
        assert!(matches!(find(&root, "0000:01:00.0"), Err(VfioError::NoIommu)));
        let asked = DeviceNodes::find(root.path(), "0000:01:00.0".parse().unwrap(), true);
        assert!(matches!(asked, Err(VfioError::NoIommuMode)));
    }

    #[test]
    fn names_the_devices_that_make_a_group_unusable() {
        let root = machine();
        assert_eq!(strangers(root.path(), 7), "0000:01:00.1 (e1000e)");
        assert!(strangers(root.path(), 99).contains("sysfs"));
    }
}
