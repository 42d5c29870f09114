use std::path::Path;
use std::sync::Arc;

use meantime_hw::pci::{Sysfs, System, scan};

use super::{facts, table};

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn link(root: &Path, path: &str, target: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(target, path).unwrap();
}

/// A machine with an SSD that the kernel uses and that shares its group, one that is bound, and one
/// without a driver.
fn machine(root: &Path) -> Sysfs {
    for (at, group) in
        [("0000:01:00.0", 7), ("0000:02:00.0", 8), ("0000:03:00.0", 9), ("0000:01:00.1", 7)]
    {
        let dir = format!("sys/bus/pci/devices/{at}");
        let class = if at.ends_with('1') { "0x020000\n" } else { "0x010802\n" };
        put(root, &format!("{dir}/class"), class);
        put(root, &format!("{dir}/vendor"), "0x144d\n");
        put(root, &format!("{dir}/device"), "0xa80c\n");
        put(root, &format!("{dir}/driver_override"), "(null)\n");
        put(root, &format!("{dir}/numa_node"), "1\n");
        for (file, text) in [
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "4"),
            ("max_link_width", "4"),
        ] {
            put(root, &format!("{dir}/{file}"), text);
        }
        put(root, &format!("sys/kernel/iommu_groups/{group}/devices/{at}"), "");
        link(
            root,
            &format!("{dir}/iommu_group"),
            &format!("../../../../kernel/iommu_groups/{group}"),
        );
    }
    let first = "sys/bus/pci/devices/0000:01:00.0";
    link(root, &format!("{first}/driver"), "../../drivers/nvme");
    put(root, &format!("{first}/nvme/nvme0/model"), "Fast SSD 1TB   \n");
    put(root, &format!("{first}/nvme/nvme0/nvme0n1/size"), "");
    put(root, "sys/class/block/nvme0n1/size", "2000409264\n");
    put(root, "sys/class/block/nvme0n1/dev", "259:0\n");
    put(root, "proc/self/mountinfo", "30 1 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n");
    link(root, "sys/bus/pci/devices/0000:01:00.1/driver", "../../drivers/e1000e");
    link(root, "sys/bus/pci/devices/0000:02:00.0/driver", "../../drivers/vfio-pci");
    put(root, "proc/sys/kernel/random/boot_id", "b\n");
    let record = r#"{"address": {"domain": 0, "bus": 2, "device": 0, "function": 0},
        "stage": "taken", "process": {"pid": 4, "start_ticks": 1}, "boot_id": "b",
        "persistent": true, "disks": 1, "owner_uid": 1000, "model": "Other"}"#;
    put(root, "run/meantime/pci/0000:02:00.0", record);
    Sysfs::at(root, Arc::new(System::default()))
}

#[test]
fn the_table_says_what_is_there_and_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let functions = scan(&machine(root.path()));
    let text = table::text(&functions, false, true);
    let lines: Vec<&str> = text.lines().collect();
    let first =
        lines.iter().position(|line| line.trim_start().starts_with("0000:01:00.0")).unwrap();
    let row = lines[first].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row, "0000:01:00.0 nvme0 Fast SSD 1TB 953.9 GiB nvme 7 nvme0n1: mounted at /data");
    let below = lines[first + 1].split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(below, "8.0 GT/s ×4 (of 16.0 GT/s ×4), NUMA node 1 with 0000:01:00.1 (e1000e)");
    for words in [
        "Other",
        "vfio-pci  8",
        "bound, for user 1000",
        "PCI device 144d:a80c",
        "Left half-way: 0000:03:00.0. `sudo meantime devices --repair`",
        "`sudo meantime unbind 0000:02:00.0`",
        "for root to see",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    assert!(!text.contains("To use one"), "none is free: {text}");
    assert!(!table::text(&functions, true, true).contains("for root to see"));
}

#[test]
fn without_any_a_software_ssd_is_suggested() {
    let text = table::text(&[], true, true);
    assert!(text.contains("No NVMe controller") && text.contains("--device mem:1G"), "{text}");
    assert!(table::text(&[], true, false).contains("/sys/bus/pci is not there"));
    assert_eq!(facts::report(&[], None).to_string(), r#"{"devices":[]}"#);
}

#[test]
fn the_json_has_all_of_it() {
    let root = tempfile::tempdir().unwrap();
    let report = facts::report(&scan(&machine(root.path())), Some(&[]));
    let first = &report["devices"][0];
    assert_eq!(first["address"], "0000:01:00.0");
    assert_eq!(first["bytes"], 2_000_409_264u64 * 512);
    assert_eq!(first["uses"][0]["kind"], "mounted");
    assert_eq!(first["uses"][0]["forbids"], true);
    assert_eq!(first["iommu_group"]["others"][0]["driver"], "e1000e");
    assert_eq!(report["devices"][1]["taker"]["uid"], 1000);
    assert_eq!(report["devices"][2]["driver"], serde_json::Value::Null);
    assert_eq!(report["repaired"], serde_json::json!([]));
}
