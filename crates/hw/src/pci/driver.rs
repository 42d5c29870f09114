//! The driver of a function: which one it is, and waiting until it releases the function.

use std::time::Duration;

use super::address::PciAddress;
use super::error::PciError;
use super::sysfs::Sysfs;

/// The driver that gives user space access to a PCI function.
pub(crate) const VFIO_PCI: &str = "vfio-pci";

/// Time for a driver to bind to or release a device after the kernel has accepted the request.
pub(super) const DRIVER_TIMEOUT: Duration = Duration::from_secs(10);

/// `vfio-pci`, or a variant of it.
pub(super) fn is_vfio(driver: &str) -> bool {
    driver == VFIO_PCI || driver.ends_with("vfio-pci") || driver.ends_with("_vfio_pci")
}

/// Unbinds the function from its driver.
pub(super) fn release(sysfs: &Sysfs, address: PciAddress) -> Result<(), PciError> {
    let dir = sysfs.function(address);
    let former = sysfs.driver(address);
    sysfs.write(&dir.join("driver/unbind"), &format!("{address}\n"))?;
    if sysfs.wait(DRIVER_TIMEOUT, || sysfs.driver(address) != former || !dir.exists()) {
        return Ok(());
    }
    Err(not_with(sysfs, address, "no driver"))
}

/// The error when another driver than `wanted` has the device.
pub(super) fn not_with(sysfs: &Sysfs, address: PciAddress, wanted: &str) -> PciError {
    if !sysfs.function(address).exists() {
        return PciError::Gone { address };
    }
    PciError::WrongDriver { address, wanted: wanted.to_owned(), driver: sysfs.driver(address) }
}
