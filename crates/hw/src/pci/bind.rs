//! Binding a controller to `vfio-pci` permanently, and unbinding it.

use std::path::PathBuf;

use super::address::PciAddress;
use super::driver::is_vfio;
use super::error::PciError;
use super::node::Nodes;
use super::process;
use super::record::{Lock, Record, Stage};
use super::return_to_kernel::{self, Returned};
use super::sysfs::Sysfs;
use super::take::{TakeOptions, check_rights, function, give_node, take_locked};

/// A controller that stays with `vfio-pci` until it is unbound, or the machine reboots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The device.
    pub address: PciAddress,
    /// Its node, `/dev/vfio/N`.
    pub node: PathBuf,
    /// Its former driver, if any.
    pub former_driver: Option<String>,
    /// Whether it was with `vfio-pci` before.
    pub was_bound: bool,
}

/// Binds the controller at `address` to `vfio-pci`, and gives its node to the owner in `options`.
/// If the controller is bound already, this only sets the owner.
///
/// # Errors
/// Fails if the controller is in use or not alone in its IOMMU group, or if the kernel refuses. The
/// former state is then restored.
pub fn bind(sysfs: &Sysfs, address: PciAddress, options: &TakeOptions) -> Result<Bound, PciError> {
    function(sysfs, address)?;
    let _lock = Lock::acquire(sysfs)?;
    let is_bound = function(sysfs, address)?.driver.as_deref().is_some_and(is_vfio);
    let record = Record::read(sysfs, address)?.filter(|record| record.is_of_this_boot(sysfs));
    let taken_for_use = record.as_ref().is_some_and(|record| !record.is_permanent());
    if is_bound && !taken_for_use {
        return adopt(sysfs, address, record, options);
    }
    let (record, nodes) = take_locked(sysfs, address, options, true)?;
    Ok(Bound { address, node: nodes.group, former_driver: record.former_driver, was_bound: false })
}

/// Records a controller that is already with `vfio-pci`, whichever program bound it.
fn adopt(
    sysfs: &Sysfs,
    address: PciAddress,
    record: Option<Record>,
    options: &TakeOptions,
) -> Result<Bound, PciError> {
    check_rights(sysfs, address)?;
    let nodes = Nodes::wait(sysfs, address)?;
    let mut record = match record {
        Some(record) => record,
        None => {
            let mut record = Record::before(sysfs, &function(sysfs, address)?, true);
            record.stage = Stage::Taken;
            // The program that bound it to vfio-pci left no record of the former driver.
            (record.former_driver, record.former_override) = (None, None);
            record
        }
    };
    match options.owner {
        Some(owner) => give_node(sysfs, &mut record, &nodes, owner)?,
        None => record.write(sysfs)?,
    }
    Ok(Bound { address, node: nodes.group, former_driver: record.former_driver, was_bound: true })
}

/// Returns the controller at `address` to its former driver or, if that is unknown, to the one that
/// the kernel chooses.
///
/// # Errors
/// Fails if a process uses the controller through VFIO, or if its driver does not take it back.
pub fn unbind(sysfs: &Sysfs, address: PciAddress) -> Result<Returned, PciError> {
    function(sysfs, address)?;
    let _lock = Lock::acquire(sysfs)?;
    check_rights(sysfs, address)?;
    let record = match Record::read(sysfs, address)? {
        Some(record) if !record.is_of_this_boot(sysfs) => {
            record.remove(sysfs)?;
            None
        }
        other => other,
    };
    if let Some(record) = record {
        if !record.is_permanent() && !record.is_abandoned(sysfs) {
            let by = process::in_words(sysfs, record.process.pid);
            return Err(PciError::TakenBy { address, by });
        }
        return return_to_kernel::return_to_kernel(sysfs, record, true);
    }
    let function = function(sysfs, address)?;
    if !is_astray(sysfs, address) && !function.driver.as_deref().is_some_and(is_vfio) {
        let disks = function.disks.into_iter().map(|disk| disk.name).collect();
        return Ok(Returned { address, driver: function.driver, disks, was_back: true });
    }
    return_to_kernel::return_to_kernel(sysfs, without_record(sysfs, address)?, true)
}

/// Whether the device is neither with a kernel driver nor with `vfio-pci`, or its override keeps it
/// from going back to one.
pub(super) fn is_astray(sysfs: &Sysfs, address: PciAddress) -> bool {
    let kept_for_vfio = sysfs.driver_override(address).is_some_and(|name| is_vfio(&name));
    match sysfs.driver(address) {
        None => true,
        Some(driver) => kept_for_vfio && !is_vfio(&driver),
    }
}

/// Makes a record for a device that has none.
pub(super) fn without_record(sysfs: &Sysfs, address: PciAddress) -> Result<Record, PciError> {
    let mut record = Record::before(sysfs, &function(sysfs, address)?, false);
    record.former_driver = record.former_driver.filter(|driver| !is_vfio(driver));
    record.former_override = None;
    record.disks = 0;
    Ok(record)
}
