//! The display and the names of controllers.

use super::super::{PciError, TakeOptions, UseKind, bind, resolve, scan};
use super::sim::{ADDRESS, Sim, address};

#[test]
fn a_controller_with_all_its_attributes() {
    let (sim, _) = Sim::with_ssd();
    sim.add_other("0000:00:01.0", Some(7), 0x0006_0400, Some("pcieport"));
    sim.add_other("0000:01:00.1", Some(7), 0x0004_0300, Some("snd_hda_intel"));
    let function = sim.only();
    assert_eq!(function.address, address(ADDRESS));
    assert_eq!((function.vendor_id, function.device_id), (0x1b36, 0x0010));
    assert_eq!(function.controller.as_deref(), Some("nvme0"));
    let identity = [&function.model, &function.serial, &function.firmware];
    assert_eq!(identity.map(|text| text.as_deref().unwrap()), ["Made-up SSD", "S0", "1.0"]);
    assert_eq!((function.driver.as_deref(), function.driver_override), (Some("nvme"), None));
    assert_eq!(function.numa_node, None);
    let link = function.link.clone().unwrap();
    assert_eq!((link.speed.as_str(), link.width, link.max_width), ("8.0 GT/s PCIe", 4, Some(4)));
    let group = function.group.clone().unwrap();
    assert_eq!((group.number, group.no_iommu), (7, false));
    assert_eq!(
        group.others_in_words(),
        ["0000:01:00.1 (snd_hda_intel)"],
        "bridges are not in the way"
    );
    let disks: Vec<_> = function
        .disks
        .iter()
        .map(|disk| (disk.name.as_str(), disk.bytes, disk.partitions.len()))
        .collect();
    assert_eq!(disks, [("nvme0n1", 1 << 20, 2), ("nvme0n2", 1 << 20, 0)]);
    assert_eq!(function.disks[0].partitions[1].number, Some((259, 2)));
    assert_eq!((function.uses, function.taker), (vec![], None));
}

/// The uses of the SSD of `sim`, as texts.
fn uses(sim: &std::sync::Arc<Sim>) -> Vec<String> {
    sim.only().uses.iter().map(ToString::to_string).collect()
}

#[test]
fn mounts_are_seen_by_device_by_name_and_in_other_namespaces() {
    let (sim, _) = Sim::with_ssd();
    let own = "30 1 259:1 / /data\\040x rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n\
               31 1 0:50 / /b rw - btrfs /dev/disk/by-id/x rw\n\
               32 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
    sim.put("proc/self/mountinfo", own);
    sim.link("proc/self/ns/mnt", "mnt:[1]");
    sim.link("dev/disk/by-id/x", "../../nvme0n2");
    for (pid, namespace) in [(50, 1), (60, 2), (61, 2)] {
        sim.process(pid, "postgres", 1);
        sim.link(&format!("proc/{pid}/ns/mnt"), &format!("mnt:[{namespace}]"));
        sim.put(&format!("proc/{pid}/mountinfo"), "9 1 259:2 / /var rw - xfs /dev/root rw\n");
    }
    assert_eq!(
        uses(&sim),
        [
            "nvme0n1p1 is mounted at /data x",
            "nvme0n1p2 is mounted at /var for process 60 (postgres)",
            "nvme0n2 is mounted at /b"
        ]
    );
    assert!(sim.only().uses.iter().all(|one| one.forbids()));
}

#[test]
fn swap_holders_loops_and_targets_are_seen() {
    let (sim, _) = Sim::with_ssd();
    sim.put(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/nvme0n1p1   partition 9 0 -2\n/dev/dm-1 partition 9 0 -3\n",
    );
    for (name, number) in [("dm-0", (253, 0)), ("dm-1", (253, 1)), ("loop3", (7, 3))] {
        sim.disk(name, number);
    }
    sim.put("sys/class/block/dm-0/dm/name", "vg-root\n");
    sim.put("sys/class/block/nvme0n1/nvme0n1p2/holders/dm-0", "");
    sim.put("sys/class/block/dm-0/holders/dm-1", "");
    sim.put("proc/self/mountinfo", "30 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n");
    sim.put("sys/class/block/loop3/loop/backing_file", "/dev/nvme0n2\n");
    sim.put("sys/kernel/config/nvmet/subsystems/t/namespaces/1/device_path", "/dev/nvme0n2\n");
    sim.put("sys/kernel/config/nvmet/subsystems/t/namespaces/1/enable", "1\n");
    sim.put("sys/kernel/config/nvmet/subsystems/t/namespaces/2/device_path", "/dev/nvme0n1\n");
    sim.put("sys/kernel/config/nvmet/subsystems/t/namespaces/2/enable", "0\n");
    assert_eq!(
        uses(&sim),
        [
            "nvme0n1p1 is swap space",
            "nvme0n1p2 is held by dm-0 (vg-root), mounted at /, held by dm-1, swap space",
            "nvme0n2 is held by loop3",
            "nvme0n2 is held by NVMe target t",
        ]
    );
}

#[test]
fn exclusive_use_is_reported_only_if_unexplained_and_open_files_only_warn() {
    let (sim, _) = Sim::with_ssd();
    sim.claim_for_other("nvme0n1");
    sim.claim_for_other("nvme0n2");
    sim.put("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n1 partition 9 0 -2\n");
    sim.process(70, "smartd", 1);
    sim.link("proc/70/fd/3", "/dev/nvme0");
    sim.link("proc/70/fd/4", "/var/lib/c/dev/nvme0n1p1");
    sim.link("proc/70/fd/5", "socket:[1]");
    sim.link("proc/70/fd/6", "/dev/ng0n2");
    assert_eq!(
        uses(&sim),
        [
            "nvme0n1 is swap space",
            "nvme0n1p1 is open in process 70 (smartd)",
            "nvme0n2 is in exclusive use",
            "ng0n2 is open in process 70 (smartd)",
            "nvme0 is open in process 70 (smartd)",
        ]
    );
    let open = |kind: &UseKind| matches!(kind, UseKind::Open { .. });
    assert!(sim.only().uses.iter().all(|one| one.forbids() != open(&one.kind)));
}

#[test]
fn disks_of_a_subsystem_with_several_controllers() {
    let sim = Sim::new();
    sim.add("0000:01:00.0", Some(1), &[]);
    sim.add("0000:02:00.0", Some(2), &[]);
    sim.disk("nvme0n1", (259, 0));
    sim.put("sys/bus/pci/devices/0000:01:00.0/nvme/nvme0/nvme0c0n1/size", "1");
    sim.put("sys/bus/pci/devices/0000:02:00.0/nvme/nvme0/nvme0c1n1/size", "1");
    sim.put("proc/self/mountinfo", "30 1 259:0 / /m rw - ext4 /dev/nvme0n1 rw\n");
    for function in scan(&sim.sysfs()) {
        assert_eq!(function.disks[0].name, "nvme0n1");
        assert_eq!(function.uses.len(), 1, "by either path");
    }
    let error = resolve(&sim.sysfs(), "/dev/nvme0n1").unwrap_err().to_string();
    assert!(error.contains("several controllers") && error.contains("0000:02:00.0"), "{error}");
}

#[test]
fn names_that_people_give() {
    let (sim, sysfs) = Sim::with_ssd();
    sim.link("dev/disk/by-id/nvme-S0", "../../nvme0n2");
    for name in [
        "0000:01:00.0",
        "01:00.0",
        "vfio:0000:01:00.0",
        "nvme0",
        "/dev/nvme0",
        "nvme0n1",
        "/dev/nvme0n1p2",
        "/dev/ng0n2",
        "/dev/disk/by-id/nvme-S0",
    ] {
        assert_eq!(resolve(&sysfs, name).unwrap(), address(ADDRESS), "{name}");
    }
    sim.add_other("0000:00:02.0", None, 0x0003_0000, None);
    for (name, word) in [
        ("0000:09:00.0", "no such PCI device; there are 0000:01:00.0 (nvme0, Made-up SSD)"),
        ("0000:00:02.0", "no NVMe controller (class 03:00)"),
        ("nvme7", "there are 0000:01:00.0"),
        ("/dev/sda", "names no device"),
        ("", "names no device"),
        ("0000:01:00", "names no device"),
    ] {
        let error = resolve(&sysfs, name).unwrap_err().to_string();
        assert!(error.contains(word), "{name}: {error}");
    }
    let none = Sim::new();
    let error = resolve(&none.sysfs(), "01:00.0").unwrap_err().to_string();
    assert!(error.contains("no NVMe controller on PCI") && error.contains("mem:1G"), "{error}");
    assert_eq!(scan(&none.sysfs()), []);
}

#[test]
fn a_bound_controller_is_still_listed() {
    let (sim, sysfs) = Sim::with_ssd();
    let options = TakeOptions { owner: Some((1000, 1000)), ..Default::default() };
    bind(&sysfs, address(ADDRESS), &options).unwrap();
    let function = sim.only();
    assert_eq!(function.model.as_deref(), Some("Made-up SSD"));
    let taker = function.taker.unwrap();
    assert_eq!((taker.persistent, taker.unfinished, taker.uid), (true, false, Some(1000)));
    assert!(matches!(resolve(&sysfs, "nvme0"), Err(PciError::NoSuchDevice { .. })));
}
