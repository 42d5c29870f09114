//! The kernel's uses of a file or block device, checked before a program writes to it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use super::attribute::{DeviceNumber, attribute, device_number, link_name, names, number};
use super::disk::{SECTOR_BYTES, disk};
use super::sysfs::Sysfs;
use super::usage::{DiskUse, MadeOf, STACK_MAX, Snapshot, UseKind, is_busy, made_of, swap_paths};

/// How long the kernel may hold a disk after its last use.
const LET_GO: Duration = Duration::from_millis(300);

/// Returns why no program may write to the file or block device `path`: how the kernel uses it, and
/// a remedy; `None` if no use was found.
///
/// Checks mounts (of every mount namespace that this process may see), swap, devices made of it,
/// its partitions, and loop devices backed by the file. For a partition it also checks the whole
/// disk, but not the other partitions. For a loop device it also checks other devices that its file
/// backs, if these are in use themselves.
pub fn in_use(sysfs: &Sysfs, path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if meta.file_type().is_block_device() {
        let number = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let name = link_name(&sysfs.sys.join(format!("dev/block/{}:{}", number.0, number.1)))?;
        return of_disk(sysfs, &name, Some(number));
    }
    if meta.file_type().is_char_device() {
        let name = generic_disk(sysfs, meta.rdev())?;
        return of_disk(sysfs, &name, number_of(sysfs, &name));
    }
    of_file(sysfs, &meta)
}

/// The block device of the namespace whose generic character device (`/dev/ng0n1`) has the number
/// `rdev`, such as `nvme0n1`; `None` if no such device has that number. If the kernel does not
/// support the namespace's format, there may be no block device of that name.
pub fn generic_disk(sysfs: &Sysfs, rdev: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let name = link_name(&sysfs.sys.join(format!("dev/char/{major}:{minor}")))?;
    let (instance, namespace) = name.strip_prefix("ng")?.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let is_generic = is_number(instance)
        && is_number(namespace)
        && sysfs.sys.join("class/nvme-generic").join(&name).exists();
    // The kernel forms both names of the same two numbers (`nvme_set_disk_name` and
    // `nvme_add_ns_cdev` in drivers/nvme/host).
    is_generic.then(|| format!("nvme{instance}n{namespace}"))
}

/// The use of a block device, of one of its partitions or, for a partition, of the whole disk.
fn of_disk(sysfs: &Sysfs, name: &str, number: Option<DeviceNumber>) -> Option<String> {
    let uses = Uses { sysfs, snapshot: Snapshot::without_programs(sysfs) };
    let found = uses.of_device(name, number, 0);
    found.or_else(|| uses.of_what_holds(name, 0)).map(|found| in_words(&found))
}

/// The use of a regular file.
fn of_file(sysfs: &Sysfs, meta: &Metadata) -> Option<String> {
    let same = |path: &Path| {
        fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (meta.dev(), meta.ino()))
    };
    if swap_paths(sysfs).iter().any(|path| same(Path::new(path))) {
        return Some("it is swap space: swapoff it first".to_owned());
    }
    // Reads every mount only if a device is made of this file, which is seldom so.
    let of_it = || made_of(sysfs).into_iter().filter(|made| made.is_of_file(meta));
    let made: Vec<_> = of_it().collect();
    let snapshot = (!made.is_empty()).then(|| Snapshot::without_programs(sysfs))?;
    let uses = Uses { sysfs, snapshot };
    let used = made.iter().find_map(|made| {
        if !made.is_loop {
            return Some(format!("it is held by {}: take that apart first", made.by));
        }
        let found = uses.of_device(&made.by, number_of(sysfs, &made.by), 0)?;
        Some(format!("it is the file of {}, and {}", made.by, in_words(&found)))
    });
    // The kernel's cache of a loop device would not contain what is written here, and could
    // overwrite it. A loop device made by a mount disappears some time after that mount.
    used.or_else(|| {
        sysfs.wait(LET_GO, || of_it().next().is_none());
        let by = of_it().next()?.by;
        Some(format!("it is the file of {by}: detach that first (losetup -d /dev/{by})"))
    })
}

/// The use and a remedy, as a text.
fn in_words(found: &DiskUse) -> String {
    let advice = match found.kind {
        UseKind::Mounted { .. } => "unmount it first",
        UseKind::Swap => "swapoff it first",
        UseKind::Held { .. } => "take that apart first",
        UseKind::Exclusive | UseKind::Open { .. } => "end what uses it first",
    };
    format!("{found}: {advice}")
}

fn number_of(sysfs: &Sysfs, name: &str) -> Option<DeviceNumber> {
    device_number(&attribute(&sysfs.sys.join("class/block").join(name).join("dev"))?)
}

/// The state of the machine at one moment.
struct Uses<'a> {
    sysfs: &'a Sysfs,
    snapshot: Snapshot,
}

impl Uses<'_> {
    /// The use of block device `name`, of a partition of it, or of a loop device on one of these.
    fn of_device(&self, name: &str, number: Option<DeviceNumber>, depth: u32) -> Option<DiskUse> {
        let dir = self.sysfs.sys.join("class/block").join(name);
        let mut devices = vec![(name.to_owned(), number, dir.clone())];
        for part in disk(self.sysfs, name.to_owned()).into_iter().flat_map(|disk| disk.partitions) {
            let dir = dir.join(&part.name);
            devices.push((part.name, part.number, dir));
        }
        for (device, number, dir) in &devices {
            if let Some(first) = self.of_one(device, *number, dir, depth) {
                return Some(first);
            }
        }
        // The kernel releases a disk some time after its last mount has gone.
        let node = self.sysfs.dev.join(name);
        let is_held = || is_busy(self.sysfs.ops().claim(&node).as_ref());
        let held = !self.sysfs.wait(LET_GO, || !is_held());
        held.then(|| DiskUse { device: name.to_owned(), kind: UseKind::Exclusive })
    }

    /// The use of a disk or a partition itself.
    fn of_one(
        &self,
        device: &str,
        number: Option<DeviceNumber>,
        dir: &Path,
        depth: u32,
    ) -> Option<DiskUse> {
        let mut uses = Vec::new();
        self.snapshot.uses_of_device(self.sysfs, device, number, dir, &mut uses);
        uses.into_iter().next().or_else(|| self.of_what_is_made(device, number, depth))
    }

    /// The use of what holds the same bytes: the disk that contains partition `name`, or the file
    /// or device that backs loop device `name`.
    fn of_what_holds(&self, name: &str, depth: u32) -> Option<DiskUse> {
        if depth == STACK_MAX {
            return None;
        }
        let block = self.sysfs.sys.join("class/block");
        let dir = fs::canonicalize(block.join(name)).ok()?;
        if dir.join("partition").exists() {
            let (whole_dir, whole) = (dir.parent()?, dir.parent()?.file_name()?.to_str()?);
            let found = self.of_one(whole, number_of(self.sysfs, whole), whole_dir, depth);
            return found.or_else(|| self.of_what_holds(whole, depth + 1));
        }
        let made = self.snapshot.made_of().iter().find(|made| made.is_loop && made.by == name)?;
        let beside = self.snapshot.made_of().iter();
        let mut beside = beside.filter(|other| {
            other.by != made.by && other.is_beside(made) && self.overlap(&other.by, &made.by)
        });
        if let Some(found) = beside.find_map(|other| self.of_made(name, other, depth)) {
            return Some(found);
        }
        let beneath = names(&block).into_iter().find(|beneath| {
            made.is_of_device(self.sysfs, beneath, number_of(self.sysfs, beneath))
        })?;
        let found = self.of_device(&beneath, number_of(self.sysfs, &beneath), depth + 1);
        found.or_else(|| self.of_what_holds(&beneath, depth + 1))
    }

    /// The use of a device that is made of `device` without being its holder.
    fn of_what_is_made(
        &self,
        device: &str,
        number: Option<DeviceNumber>,
        depth: u32,
    ) -> Option<DiskUse> {
        let made = self.snapshot.made_of().iter();
        let mut made = made.filter(|made| made.is_of_device(self.sysfs, device, number));
        made.find_map(|made| self.of_made(device, made, depth))
    }

    /// Whether two loop devices on one file overlap, as far as is known.
    fn overlap(&self, one: &str, other: &str) -> bool {
        let part = |name: &str| {
            let dir = self.sysfs.sys.join("class/block").join(name);
            let begin = number(&dir.join("loop/offset"))?;
            Some(
                begin
                    ..begin.saturating_add(number(&dir.join("size"))?.saturating_mul(SECTOR_BYTES)),
            )
        };
        let (Some(one), Some(other)) = (part(one), part(other)) else { return true };
        one.start < other.end && other.start < one.end
    }

    /// The use of `made`, which is made of `device`.
    fn of_made(&self, device: &str, made: &MadeOf, depth: u32) -> Option<DiskUse> {
        if !made.is_loop || depth == STACK_MAX {
            let kind = UseKind::Held { by: made.by.clone() };
            return Some(DiskUse { device: device.to_owned(), kind });
        }
        self.of_device(&made.by, number_of(self.sysfs, &made.by), depth + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::super::ops::System;
    use super::*;

    /// A machine made of files: loop0 with one partition.
    struct Machine {
        root: tempfile::TempDir,
        image: PathBuf,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let machine = Self { image: root.path().join("disk .img"), root };
            fs::write(&machine.image, [0; 512]).unwrap();
            machine.put("sys/class/block/loop0/dev", "7:0\n");
            machine.put("sys/class/block/loop0/size", "1\n");
            machine.put(
                "sys/class/block/loop0/loop/backing_file",
                &format!("{}\n", machine.image.display()),
            );
            machine.put("sys/class/block/loop0/loop0p1/dev", "259:7\n");
            machine.put("sys/class/block/loop0/loop0p1/size", "1\n");
            machine.put("sys/class/block/loop0/loop0p1/partition", "1\n");
            let (part, link) = ("loop0/loop0p1", machine.path("sys/class/block/loop0p1"));
            symlink(part, link).unwrap();
            machine
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn put(&self, name: &str, text: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), text).unwrap();
        }

        fn mount(&self, number: &str) {
            let line = format!("36 35 {number} / /mnt rw - ext4 /dev/none rw\n");
            self.put("proc/self/mountinfo", &line);
        }

        fn in_use(&self) -> Option<String> {
            in_use(&Sysfs::at(self.root.path(), Arc::new(System::default())), &self.image)
        }
    }

    /// /dev/null stands for the character device: any number will do.
    #[test]
    fn a_generic_device_is_its_disk() {
        let machine = Machine::new();
        let sysfs = Sysfs::at(machine.root.path(), Arc::new(System::default()));
        let null = fs::metadata("/dev/null").unwrap().rdev();
        let there = |target: &str| {
            let link = machine.path("sys/dev/char/1:3");
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&link);
            symlink(format!("../../devices/nvme/nvme0/{target}"), link).unwrap();
            generic_disk(&sysfs, null)
        };
        assert_eq!(there("ng0n12"), None, "not of that class");
        machine.put("sys/class/nvme-generic/ng0n12/dev", "1:3\n");
        machine.put("sys/class/nvme-generic/ngn1/dev", "1:3\n");
        assert_eq!(there("ngn1"), None);
        assert_eq!(there("nvme0"), None);
        assert_eq!(there("ng0n12").as_deref(), Some("nvme0n12"));
        machine.put("sys/class/block/nvme0n12/dev", "259:9\n");
        machine.put("sys/class/block/nvme0n12/size", "8\n");
        assert_eq!(in_use(&sysfs, Path::new("/dev/null")), None);
        machine.mount("259:9");
        let why = in_use(&sysfs, Path::new("/dev/null")).unwrap();
        assert!(why.contains("/mnt") && why.contains("unmount"), "{why}");
    }

    #[test]
    fn a_loop_device_that_nothing_uses() {
        let machine = Machine::new();
        let found = machine.in_use().unwrap();
        assert_eq!(found, "it is the file of loop0: detach that first (losetup -d /dev/loop0)");
        // Another one is mounted.
        machine.mount("7:1");
        assert_eq!(machine.in_use().unwrap(), found);
    }

    #[test]
    fn a_loop_device_that_is_mounted() {
        let machine = Machine::new();
        machine.mount("7:0");
        let found = machine.in_use().unwrap();
        assert_eq!(
            found,
            "it is the file of loop0, and loop0 is mounted at /mnt: unmount it first"
        );
        // Also by another name of the file.
        let other = machine.path("other");
        fs::hard_link(&machine.image, &other).unwrap();
        let sysfs = Sysfs::at(machine.root.path(), Arc::new(System::default()));
        assert!(in_use(&sysfs, &other).is_some());
        let copy = machine.path("copy");
        fs::copy(&machine.image, &copy).unwrap();
        assert_eq!(in_use(&sysfs, &copy), None);
    }

    #[test]
    fn a_partition_of_a_loop_device() {
        let machine = Machine::new();
        machine.mount("259:7");
        let found = machine.in_use().unwrap();
        assert!(found.contains("loop0, and loop0p1 is mounted at /mnt"), "{found}");
    }

    fn of_partition(machine: &Machine) -> Option<DiskUse> {
        let sysfs = Sysfs::at(machine.root.path(), Arc::new(System::default()));
        let uses = Uses { snapshot: Snapshot::without_programs(&sysfs), sysfs: &sysfs };
        uses.of_device("loop0p1", Some((259, 7)), 0).or_else(|| uses.of_what_holds("loop0p1", 0))
    }

    #[test]
    fn what_uses_the_whole_disk_uses_its_partition_and_what_is_beside_it_does_not() {
        let machine = Machine::new();
        machine.put("sys/class/block/loop0/loop0p2/dev", "259:8\n");
        machine.put("sys/class/block/loop0/loop0p2/size", "1\n");
        machine.put("sys/class/block/loop0/loop0p2/partition", "2\n");
        machine.mount("259:8");
        assert_eq!(of_partition(&machine), None);
        machine.mount("7:0");
        assert_eq!(of_partition(&machine).unwrap().to_string(), "loop0 is mounted at /mnt");
        machine.mount("0:1");
        machine.put("sys/class/block/loop1/dev", "7:1\n");
        machine.put("sys/class/block/loop1/loop/backing_file", "/dev/loop0\n");
        assert_eq!(of_partition(&machine), None);
        machine.mount("7:1");
        assert_eq!(of_partition(&machine).unwrap().to_string(), "loop1 is mounted at /mnt");
        machine.mount("0:1");
        fs::create_dir_all(machine.path("sys/class/block/loop0/holders/dm-3")).unwrap();
        assert_eq!(of_partition(&machine).unwrap().to_string(), "loop0 is held by dm-3");
    }

    #[test]
    fn loop_devices_of_one_file() {
        let machine = Machine::new();
        let image = format!("{}\n", machine.image.display());
        machine.put("sys/class/block/loop0/loop/offset", "0\n");
        machine.put("sys/class/block/loop1/dev", "7:1\n");
        machine.put("sys/class/block/loop1/size", "1\n");
        machine.put("sys/class/block/loop1/loop/backing_file", &image);
        machine.put("sys/class/block/loop1/loop/offset", "511\n");
        machine.mount("7:1");
        assert_eq!(of_partition(&machine).unwrap().to_string(), "loop1 is mounted at /mnt");
        machine.put("sys/class/block/loop1/loop/offset", "512\n");
        assert_eq!(of_partition(&machine), None);
    }

    #[test]
    fn swap_and_holders() {
        let machine = Machine::new();
        let name = machine.image.to_str().unwrap().replace(' ', "\\040");
        machine
            .put("proc/swaps", &format!("Filename Type Size Used Priority\n{name} file 8 0 -2\n"));
        assert!(machine.in_use().unwrap().contains("swapoff"));
        machine.put("proc/swaps", "Filename Type Size Used Priority\n");
        fs::create_dir_all(machine.path("sys/class/block/loop0/holders/dm-3")).unwrap();
        machine.put("sys/class/block/dm-3/dm/name", "vg-root\n");
        let found = machine.in_use().unwrap();
        assert!(found.contains("loop0 is held by dm-3 (vg-root)"), "{found}");
    }

    #[test]
    fn a_loop_device_on_a_loop_device() {
        let machine = Machine::new();
        machine.put("sys/class/block/loop1/dev", "7:1\n");
        machine.put("sys/class/block/loop1/loop/backing_file", "/dev/loop0p1\n");
        machine.mount("7:1");
        let found = machine.in_use().unwrap();
        assert!(found.contains("file of loop0, and loop1 is mounted at /mnt"), "{found}");
    }

    #[test]
    fn a_name_that_the_target_serves() {
        let machine = Machine::new();
        let dir = "sys/kernel/config/nvmet/subsystems/nqn.a/namespaces/1";
        machine.put(&format!("{dir}/enable"), "1\n");
        machine.put(&format!("{dir}/device_path"), &format!("{}\n", machine.image.display()));
        assert!(machine.in_use().unwrap().contains("held by NVMe target nqn.a"));
    }
}
