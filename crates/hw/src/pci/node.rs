//! The device node of a VFIO group, and its owner.

use std::path::PathBuf;
use std::time::Duration;

use super::address::PciAddress;
use super::attribute::names;
use super::error::PciError;
use super::group::IommuGroup;
use super::ops::NodeOwner;
use super::sysfs::Sysfs;

/// Time for the node to appear after the driver has the device: devtmpfs creates it at once, a
/// container's manager may not.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for udev to set owner and mode of a new node, which overwrites earlier settings.
const UDEV_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the owner has to stay unchanged, where there is udev.
const UDEV_QUIET: Duration = Duration::from_millis(250);

/// The VFIO nodes of a function bound to `vfio-pci`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// `/dev/vfio/N`, or `/dev/vfio/noiommu-N`.
    pub group: PathBuf,
    /// `/dev/vfio/devices/vfioN`, with iommufd (Linux 6.6).
    pub device: Option<PathBuf>,
}

impl Nodes {
    /// The paths of its nodes, whether or not they exist yet; `None` if the function is in no
    /// group.
    pub(super) fn of(sysfs: &Sysfs, address: PciAddress) -> Option<Self> {
        Some(Self::in_group(sysfs, address, &IommuGroup::of(sysfs, address)?))
    }

    /// The paths of the nodes of a function in `group`.
    pub(crate) fn in_group(sysfs: &Sysfs, address: PciAddress, group: &IommuGroup) -> Self {
        let prefix = if group.no_iommu { "noiommu-" } else { "" };
        // Documentation/ABI/testing/sysfs-devices-vfio-dev; the node exists only with
        // VFIO_DEVICE_CDEV.
        let device = names(&sysfs.function(address).join("vfio-dev")).into_iter().next();
        let device = device
            .map(|name| sysfs.dev.join("vfio/devices").join(name))
            .filter(|path| path.exists());
        Self { group: sysfs.dev.join("vfio").join(format!("{prefix}{}", group.number)), device }
    }

    /// Waits for the node of the group.
    pub(super) fn wait(sysfs: &Sysfs, address: PciAddress) -> Result<Self, PciError> {
        let there = || Self::of(sysfs, address).is_some_and(|nodes| nodes.group.exists());
        sysfs.wait(NODE_TIMEOUT, there);
        let nodes = Self::of(sysfs, address).ok_or(PciError::NoIommu { address })?;
        if nodes.group.exists() {
            return Ok(nodes);
        }
        Err(PciError::TimedOut {
            what: format!("for {} to appear", nodes.group.display()),
            hint: "is /dev the kernel's (devtmpfs), and not a container's own?".to_owned(),
        })
    }

    /// Gives the nodes to `owner`, and checks that udev does not change it.
    pub(super) fn give_to(&self, sysfs: &Sysfs, owner: NodeOwner) -> Result<(), PciError> {
        let ops = sysfs.ops();
        for node in self.device.iter().chain([&self.group]) {
            let failed = |source| PciError::Kernel {
                what: format!("does not let {} be given to user {}", node.display(), owner.uid),
                source,
            };
            ops.set_owner(node, owner).map_err(failed)?;
            if !sysfs.run.join("udev/control").exists() {
                continue;
            }
            let end = ops.now() + UDEV_TIMEOUT;
            let mut quiet_since = ops.now();
            while ops.now() < end && ops.now() < quiet_since + UDEV_QUIET {
                ops.pause(Duration::from_millis(10));
                if sysfs.run.join("udev/queue").exists() {
                    quiet_since = ops.now();
                } else if ops.owner(node).map_err(failed)? != owner {
                    ops.set_owner(node, owner).map_err(failed)?;
                    quiet_since = ops.now();
                }
            }
        }
        Ok(())
    }
}
