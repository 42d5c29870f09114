//! The kernel's block devices on a controller: their names, sizes and partitions.

use std::path::Path;

use serde::Serialize;

use super::attribute::{DeviceNumber, attribute, device_number, names, number};
use super::sysfs::Sysfs;

/// The unit of a disk's size in sysfs, regardless of its logical block size
/// (Documentation/ABI/stable/sysfs-block).
pub(super) const SECTOR_BYTES: u64 = 512;

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

/// Whether `name` is `prefix` followed by a number.
pub(super) fn digits_after(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The block device for a directory's name: `nvme0n1` → itself, and the hidden path `nvme0c1n1` of
/// a controller in a subsystem with several → `nvme0n1`. The first number may be the subsystem's,
/// not the controller's.
fn disk_name(name: &str) -> Option<String> {
    let (front, namespace) =
        name.rsplit_once('n').filter(|(front, _)| front.len() > "nvm".len())?;
    let (front, path) =
        front.rsplit_once('c').map_or((front, None), |(front, path)| (front, Some(path)));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (digits_after(front, "nvme") && is_number(namespace) && path.is_none_or(is_number))
        .then(|| format!("{front}n{namespace}"))
}

/// The block devices of a controller, from its directory.
pub(super) fn disks(sysfs: &Sysfs, controller: &Path) -> Vec<KernelDisk> {
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
