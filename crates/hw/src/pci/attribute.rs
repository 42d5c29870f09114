//! The contents of single files, links and directories of sysfs.

use std::fs;
use std::path::Path;

/// Major and minor number of a block device.
pub type DeviceNumber = (u32, u32);

/// The one line of a file of sysfs. `None` if it cannot be read or is empty.
pub(crate) fn attribute(path: &Path) -> Option<String> {
    // Device data (model, serial number) may contain any bytes, and files of sysfs are a page at
    // most.
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text).trim().replace(|c: char| c.is_control(), " ");
    (!text.is_empty()).then_some(text)
}

/// A number from sysfs, hexadecimal if it begins with `0x`.
pub(super) fn number(path: &Path) -> Option<u64> {
    let text = attribute(path)?;
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The last component of a link's target.
pub(super) fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

/// The names in a directory, sorted; empty if there is no such directory.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// `259:3`.
pub(super) fn device_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
