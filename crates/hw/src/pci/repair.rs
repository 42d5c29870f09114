//! Repair after a crash: returns controllers to the kernel's driver whose process is gone.

use super::address::PciAddress;
use super::attribute::names;
use super::bind::{is_astray, without_record};
use super::driver::is_vfio;
use super::error::PciError;
use super::function;
use super::record::{self, Lock, Record, Stage};
use super::return_to_kernel::{self, Returned};
use super::sysfs::Sysfs;

/// A finding, and its result.
#[derive(Debug)]
pub struct Repaired {
    /// The device.
    pub address: PciAddress,
    /// The problem found, as a text.
    pub found: String,
    /// The device's state now, or why it could not be repaired.
    pub outcome: Result<Returned, PciError>,
}

/// Returns every controller whose taker died, or that was left without a driver. Leaves controllers
/// alone that are bound permanently or taken by a living process. The call can be repeated; it does
/// not find repaired controllers again.
///
/// # Errors
/// Fails if permission is missing.
pub fn repair(sysfs: &Sysfs) -> Result<Vec<Repaired>, PciError> {
    let _lock = Lock::acquire(sysfs)?;
    for name in names(&record::dir(sysfs)).into_iter().filter(|name| name.starts_with('.')) {
        // A temporary file is a record that was never finished; no change had been made.
        let _ = sysfs.ops().remove(&record::dir(sysfs).join(name));
    }
    let mut addresses = function::addresses(sysfs);
    addresses.extend(record::addresses(sysfs));
    addresses.sort();
    addresses.dedup();
    Ok(addresses.into_iter().filter_map(|address| repair_one(sysfs, address)).collect())
}

fn repair_one(sysfs: &Sysfs, address: PciAddress) -> Option<Repaired> {
    let driver = sysfs.driver(address);
    let with_vfio = driver.as_deref().is_some_and(is_vfio);
    let is_there = sysfs.function(address).exists();
    let (record, found) = match Record::read(sysfs, address) {
        Ok(Some(record)) if !record.is_of_this_boot(sysfs) => {
            return Some(forget(sysfs, address, "a record of an earlier boot".to_owned()));
        }
        Ok(Some(record)) if record.is_abandoned(sysfs) => {
            let did = match record.stage {
                Stage::Taking => "was interrupted while taking it",
                Stage::Taken => "took it and died",
                Stage::Returning => "was interrupted while giving it back",
            };
            let found = format!("process {} {did}", record.process.pid);
            (record, found)
        }
        // A process has it, or it is bound as intended.
        Ok(Some(record)) if !record.is_permanent() || with_vfio => return None,
        Ok(Some(record)) => (record, "it was bound, and is no longer with vfio-pci".to_owned()),
        Err(error) if is_there && (with_vfio || is_astray(sysfs, address)) => {
            (without_record(sysfs, address).ok()?, error.to_string())
        }
        Err(error) => return Some(forget(sysfs, address, error.to_string())),
        Ok(None) if is_there && is_astray(sysfs, address) => {
            let found = match driver {
                None => "it has no driver".to_owned(),
                Some(driver) => {
                    format!("it is with {driver}, and would go to vfio-pci when that lets go")
                }
            };
            (without_record(sysfs, address).ok()?, found)
        }
        Ok(None) => return None,
    };
    Some(Repaired {
        address,
        found,
        outcome: return_to_kernel::return_to_kernel(sysfs, record, true),
    })
}

/// Removes a record without a device to repair.
fn forget(sysfs: &Sysfs, address: PciAddress, found: String) -> Repaired {
    let outcome = record::remove(sysfs, address).and_then(|()| {
        if is_astray(sysfs, address) && sysfs.function(address).exists() {
            return return_to_kernel::return_to_kernel(
                sysfs,
                without_record(sysfs, address)?,
                true,
            );
        }
        Ok(Returned { address, driver: sysfs.driver(address), disks: Vec::new(), was_back: true })
    });
    Repaired { address, found, outcome }
}
