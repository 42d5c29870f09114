//! Whether the kernel has mounted what we are about to write to.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::block::Uri;

/// Who else has the file system on the device of `uri` mounted, for people; `None`: nobody, as far as can be seen from here.
///
/// Looked at are mounts of the kernel, in the caller's own mount namespace: of a block device or any partition of it, and of a loop device that has the
/// image for its file. (Two of us are kept apart by a lock on the file.)
pub fn mounted_elsewhere(uri: &Uri) -> Option<String> {
    let (Uri::File { path, .. } | Uri::Kernel { path, .. }) = uri else { return None };
    let metadata = fs::metadata(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let devices = if metadata.file_type().is_block_device() {
        vec![of_number(metadata.rdev())]
    } else {
        loops_of(metadata.dev(), metadata.ino())
    };
    devices.iter().flatten().find_map(|device| mount_of(device, &mounts))
}

/// What the kernel tells of a block device.
fn of_number(rdev: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// The loop devices that have file `ino` of device `dev`.
fn loops_of(dev: u64, ino: u64) -> Vec<Option<PathBuf>> {
    let Ok(all) = fs::read_dir("/sys/block") else { return Vec::new() };
    let has_it = |device: &PathBuf| {
        let Ok(backing) = fs::read_to_string(device.join("loop/backing_file")) else { return false };
        let same = fs::metadata(backing.trim_end_matches('\n'));
        same.is_ok_and(|backing| (backing.dev(), backing.ino()) == (dev, ino))
    };
    let devices = all.flatten().map(|entry| entry.path()).filter(has_it);
    devices.map(|device| fs::canonicalize(device).ok()).collect()
}

/// Where `device`, or a partition of it, is mounted according to `mounts` (`/proc/self/mountinfo`).
fn mount_of(device: &Path, mounts: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let number = fields.nth(2)?;
        let place = fields.nth(1)?;
        let mounted = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
        let name = mounted.file_name()?.to_string_lossy().into_owned();
        mounted.starts_with(device).then(|| format!("/dev/{name} is mounted on {place}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_systems_of_this_machine_are_in_use() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let device = |line: &str| {
            let number = line.split(' ').nth(2)?.to_owned();
            fs::canonicalize(format!("/sys/dev/block/{number}")).ok()
        };
        let Some(device) = mounts.lines().find_map(device) else {
            println!("skipped: nothing that is mounted here is on a block device");
            return;
        };
        assert!(mount_of(&device, &mounts).unwrap().contains("is mounted on /"));
        assert_eq!(mount_of(Path::new("/sys/devices/virtual/nothing"), &mounts), None);
        assert_eq!(mounted_elsewhere(&"mem:1M".parse().unwrap()), None);
    }
}
