//! The names of a device: its PCI address, or the kernel's name for the controller or for a
//! namespace.

use std::fs;
use std::path::Path;

use super::address::PciAddress;
use super::attribute::attribute;
use super::disk::digits_after;
use super::error::PciError;
use super::function::{NvmeFunction, addresses};
use super::sysfs::{NVME_CLASS, Sysfs};

/// The NVMe controller that `text` names: `0000:01:00.0`, `01:00.0`, `vfio:01:00.0`, `nvme0`,
/// `/dev/nvme0n1`, a partition, or a link to any of these.
///
/// # Errors
/// Fails if it names none; the error lists the existing controllers.
pub fn resolve(sysfs: &Sysfs, text: &str) -> Result<PciAddress, PciError> {
    let text = text.strip_prefix("vfio:").unwrap_or(text);
    if let Ok(address) = text.parse() {
        return match sysfs.class(address) {
            Some(NVME_CLASS) => Ok(address),
            _ => Err(no_such(sysfs, address)),
        };
    }
    let name = match text.strip_prefix('/') {
        // Resolved as a real path, even if a test moves the roots.
        Some(_) => sysfs.node_name(Path::new(text)).or_else(|| {
            let real = fs::canonicalize(Path::new(text)).ok()?;
            Some(real.file_name()?.to_str()?.to_owned())
        }),
        None => Some(text.to_owned()),
    };
    let name = name.filter(|name| name.starts_with("nvme") || name.starts_with("ng"));
    let name = name.ok_or_else(|| PciError::BadName(text.to_owned()))?;
    by_name(sysfs, &name)
}

fn by_name(sysfs: &Sysfs, name: &str) -> Result<PciAddress, PciError> {
    let not_there =
        |why: String| PciError::NoSuchDevice { name: name.to_owned(), why, there: there(sysfs) };
    if digits_after(name, "nvme") {
        // For a controller over a network this file has other content.
        let of = attribute(&sysfs.sys.join("class/nvme").join(name).join("address"));
        if let Some(address) =
            of.and_then(|text| text.parse().ok()).filter(|address| sysfs.class(*address).is_some())
        {
            return Ok(address);
        }
    }
    let disk =
        if name.starts_with("ng") { name.replacen("ng", "nvme", 1) } else { name.to_owned() };
    let has = |function: &NvmeFunction| {
        function.controller.as_deref() == Some(name)
            || function.disks.iter().any(|one| {
                one.name == disk || one.partitions.iter().any(|partition| partition.name == disk)
            })
    };
    let functions =
        addresses(sysfs).into_iter().filter_map(|address| NvmeFunction::of(sysfs, address));
    let found: Vec<PciAddress> = functions.filter(has).map(|function| function.address).collect();
    match found[..] {
        [address] => Ok(address),
        [] => Err(not_there("the kernel has no NVMe controller on PCI by that name".to_owned())),
        _ => {
            Err(not_there("several controllers lead to it; give the PCI address of one".to_owned()))
        }
    }
}

/// The error that there is no NVMe controller at `address`, with the function that is there.
pub(super) fn no_such(sysfs: &Sysfs, address: PciAddress) -> PciError {
    let why = match sysfs.class(address) {
        Some(class) => {
            format!("it is no NVMe controller (class {:02x}:{:02x})", class >> 8, class & 0xff)
        }
        None => "there is no such PCI device".to_owned(),
    };
    PciError::NoSuchDevice { name: address.to_string(), why, there: there(sysfs) }
}

/// The existing controllers.
fn there(sysfs: &Sysfs) -> String {
    let functions =
        addresses(sysfs).into_iter().filter_map(|address| NvmeFunction::of(sysfs, address));
    let names: Vec<String> = functions.map(|function| function.in_words()).collect();
    match names.len() {
        0 => "this machine has no NVMe controller on PCI (a software SSD is always there: mem:1G)"
            .to_owned(),
        _ => format!("there are {}", names.join(", ")),
    }
}

impl NvmeFunction {
    /// `0000:01:00.0 (nvme0, Samsung SSD 990)`.
    pub fn in_words(&self) -> String {
        let known: Vec<&str> =
            self.controller.iter().chain(&self.model).map(String::as_str).collect();
        match known.is_empty() {
            true => self.address.to_string(),
            false => format!("{} ({})", self.address, known.join(", ")),
        }
    }
}
