//! Returning a controller to the kernel's driver.

use std::time::Duration;

use super::address::PciAddress;
use super::attribute::attribute;
use super::driver::{DRIVER_TIMEOUT, is_vfio, not_with, release};
use super::error::PciError;
use super::function::NvmeFunction;
use super::group::{IommuGroup, NO_IOMMU_PARAMETER};
use super::node::Nodes;
use super::record::{self, Record, Stage};
use super::sysfs::Sysfs;
use super::usage::Snapshot;

/// The time that the kernel's driver may take to recreate the namespaces' block devices after its
/// probe. Enabling the controller alone may take CAP.TO, 127.5 s at most, and usually takes less
/// than one.
const DISKS_TIMEOUT: Duration = Duration::from_secs(150);

/// Time for a process that is about to close the device: a forked child before its exec, or another
/// thread that was reading the group.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The kernel's NVMe driver.
const NVME: &str = "nvme";

/// A controller that was returned to the kernel's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returned {
    /// The device.
    pub address: PciAddress,
    /// The driver that has it now; `None` if it had none before, or the device is gone.
    pub driver: Option<String>,
    /// The kernel's block devices on it.
    pub disks: Vec<String>,
    /// Whether it was returned earlier, so that this call changed nothing.
    pub was_back: bool,
}

/// Returns the controller according to `record`, and removes the record. With `choose`, a device
/// that had no driver gets the one that the kernel chooses. The call can be repeated from any point
/// that an earlier attempt reached.
pub(super) fn return_to_kernel(
    sysfs: &Sysfs,
    mut record: Record,
    choose: bool,
) -> Result<Returned, PciError> {
    let address = record.address;
    let dir = sysfs.function(address);
    let current = sysfs.driver(address);
    if current.as_deref().is_some_and(is_vfio) {
        check_idle(sysfs, address)?;
    }
    record.stage = Stage::Returning;
    record.process = super::process::ProcessId::own(sysfs);
    if let Err(error) = record.write(sysfs) {
        // Returning the device matters more, and the existing record suffices.
        tracing::warn!("{error}");
    }

    let moved = to_driver(sysfs, &record, choose);
    if let Err(error) = moved
        && dir.exists()
    {
        return Err(error);
    }
    restore_node(sysfs, &record)?;
    restore_no_iommu(sysfs, &record)?;
    let driver = sysfs.driver(address);
    let there =
        if driver.as_deref() == Some(NVME) { wait_for_disks(sysfs, &record) } else { Vec::new() };
    record.remove(sysfs)?;
    match driver {
        Some(driver) if driver == NVME && (there.len() as u32) < record.disks => {
            let there = there.len() as u32;
            Err(PciError::DisksMissing { address, driver, there, expected: record.disks })
        }
        driver => Ok(Returned { address, driver, disks: there, was_back: false }),
    }
}

/// Refuses if a process has the device open through VFIO: unbinding would block until it is closed.
fn check_idle(sysfs: &Sysfs, address: PciAddress) -> Result<(), PciError> {
    let Some(nodes) = Nodes::of(sysfs, address) else { return Ok(()) };
    if sysfs.wait(IDLE_TIMEOUT, || !sysfs.ops().is_open(&nodes.group)) {
        return Ok(());
    }
    let snapshot = Snapshot::take(sysfs);
    let mut by = snapshot.processes_with(sysfs, &nodes.group);
    by.extend(nodes.device.iter().flat_map(|node| snapshot.processes_with(sysfs, node)));
    let by = if by.is_empty() {
        "a process that cannot be seen from here".to_owned()
    } else {
        by.join(", ")
    };
    Err(PciError::Busy { address, node: nodes.group, by })
}

/// Restores override and driver.
fn to_driver(sysfs: &Sysfs, record: &Record, choose: bool) -> Result<(), PciError> {
    let address = record.address;
    let dir = sysfs.function(address);
    if !dir.exists() {
        return Ok(());
    }
    let wanted = record.former_driver.as_deref();
    // Restoring an override that named vfio-pci would bind the device to that again.
    let former_override = record.former_override.as_deref().filter(|name| !is_vfio(name));
    if sysfs.driver_override(address).as_deref() != former_override {
        let text = format!("{}\n", former_override.unwrap_or_default());
        sysfs.write(&dir.join("driver_override"), &text)?;
    }
    if sysfs
        .driver(address)
        .is_some_and(|driver| is_vfio(&driver) && Some(driver.as_str()) != wanted)
    {
        release(sysfs, address)?;
    }
    if sysfs.driver(address).is_some() || (wanted.is_none() && !choose) {
        return Ok(());
    }
    match wanted {
        Some(driver) if sysfs.has_driver(driver) => {}
        // If it fails, the check below finds it.
        Some(driver) => drop(sysfs.ops().load_module(driver)),
        None => {
            let alias = attribute(&dir.join("modalias"));
            drop(alias.map(|alias| sysfs.ops().load_module(&alias)));
        }
    }
    sysfs.write(&sysfs.bus().join("drivers_probe"), &format!("{address}\n"))?;
    let is_back = || match (sysfs.driver(address), wanted) {
        (Some(driver), Some(wanted)) => driver == wanted,
        (driver, _) => driver.is_some(),
    };
    sysfs.wait(DRIVER_TIMEOUT, || is_back() || !dir.exists());
    if is_back() { Ok(()) } else { Err(not_with(sysfs, address, wanted.unwrap_or(NVME))) }
}

/// Waits until all block devices are back, or the driver has given up. Returns those that are back.
fn wait_for_disks(sysfs: &Sysfs, record: &Record) -> Vec<String> {
    let disks = || {
        let function = NvmeFunction::of(sysfs, record.address)?;
        function.driver.as_ref()?;
        let node = |name: &String| sysfs.dev.join(name).exists();
        Some(function.disks.into_iter().map(|disk| disk.name).filter(node).collect::<Vec<_>>())
    };
    sysfs.wait(DISKS_TIMEOUT, || disks().is_none_or(|disks| disks.len() as u32 >= record.disks));
    disks().unwrap_or_default()
}

/// Restores the node's owner, if the node still exists: other devices of the group may be with
/// VFIO.
fn restore_node(sysfs: &Sysfs, record: &Record) -> Result<(), PciError> {
    let Some((node, owner)) = record.node.as_ref().filter(|(node, _)| node.exists()) else {
        return Ok(());
    };
    let others = others(sysfs, record);
    if others.iter().any(|other| other.node.as_ref().is_some_and(|(theirs, _)| theirs == node)) {
        return Ok(());
    }
    let failed = |source| PciError::Kernel {
        what: format!("keeps the owner of {}", node.display()),
        source,
    };
    sysfs.ops().set_owner(node, *owner).map_err(failed)
}

/// Restores VFIO's parameter, unless another device needs it; in that case that device's record
/// keeps the former value.
fn restore_no_iommu(sysfs: &Sysfs, record: &Record) -> Result<(), PciError> {
    let Some(was) = &record.no_iommu_was else { return Ok(()) };
    let without =
        |other: &Record| IommuGroup::of(sysfs, other.address).is_some_and(|group| group.no_iommu);
    if let Some(mut heir) = others(sysfs, record).into_iter().find(without) {
        if heir.no_iommu_was.is_none() {
            heir.no_iommu_was = Some(was.clone());
            heir.write(sysfs)?;
        }
        return Ok(());
    }
    let parameter = sysfs.sys.join(NO_IOMMU_PARAMETER);
    if attribute(&parameter).is_some_and(|now| now != *was) {
        sysfs.write(&parameter, &format!("{was}\n"))?;
    }
    Ok(())
}

/// The records of other devices.
fn others(sysfs: &Sysfs, record: &Record) -> Vec<Record> {
    let others = record::addresses(sysfs).into_iter().filter(|other| *other != record.address);
    others.filter_map(|other| Record::read(sysfs, other).ok().flatten()).collect()
}
