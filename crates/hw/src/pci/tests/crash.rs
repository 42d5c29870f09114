//! kill -9 at every point.

use super::super::Sysfs;
use super::super::{TakeOptions, bind, repair, take, unbind};
use super::sim::{ADDRESS, Sim, address};
use std::sync::Arc;

/// A machine in the state left by `prepare`.
fn machine(no_iommu: bool) -> (Arc<Sim>, Sysfs) {
    if !no_iommu {
        return Sim::with_ssd();
    }
    let sim = Sim::new();
    sim.add(ADDRESS, None, &[("nvme0n1", 2), ("nvme0n2", 0)]);
    sim.put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
    let sysfs = sim.sysfs();
    (sim, sysfs)
}

/// Kills `work` before each of its changes, and repairs. Returns the number of changes.
fn killed_everywhere(
    no_iommu: bool,
    prepare: fn(&Sysfs),
    work: fn(&Sysfs),
    bound_is_right: bool,
) -> u32 {
    for step in 0..100 {
        let (sim, sysfs) = machine(no_iommu);
        prepare(&sysfs);
        sim.die_at(step);
        work(&sysfs);
        if !sim.is_dead() {
            return step;
        }
        sim.live_on();
        let before = sim.only();
        let repaired = repair(&sysfs).unwrap();
        for one in &repaired {
            assert!(one.outcome.is_ok(), "killed before {step}: {one:?}");
        }
        let after = sim.only();
        if bound_is_right && before.taker.as_ref().is_some_and(|taker| !taker.unfinished) {
            // Not begun, or done: bound as intended.
            assert_eq!(after, before, "killed before {step}");
            assert_eq!(after.driver.as_deref(), Some("vfio-pci"));
            unbind(&sysfs, address(ADDRESS)).unwrap();
        }
        sim.assert_untouched();
        assert!(repair(&sysfs).unwrap().is_empty(), "once is enough");
    }
    panic!("it never ends");
}

fn options() -> TakeOptions {
    TakeOptions { owner: Some((1000, 1000)), unsafe_no_iommu: true, ..Default::default() }
}

#[test]
fn while_taking_and_using() {
    for no_iommu in [false, true] {
        let steps = killed_everywhere(
            no_iommu,
            |_| {},
            |sysfs| {
                drop(
                    take(sysfs, address(ADDRESS), &options())
                        .and_then(|taken| taken.return_to_kernel()),
                )
            },
            false,
        );
        assert!(steps >= 18, "{steps}");
    }
}

#[test]
fn while_binding() {
    for no_iommu in [false, true] {
        let steps = killed_everywhere(
            no_iommu,
            |_| {},
            |sysfs| drop(bind(sysfs, address(ADDRESS), &options())),
            true,
        );
        assert!(steps >= 12, "{steps}");
    }
}

#[test]
fn while_unbinding() {
    for no_iommu in [false, true] {
        let steps = killed_everywhere(
            no_iommu,
            |sysfs| drop(bind(sysfs, address(ADDRESS), &options()).unwrap()),
            |sysfs| drop(unbind(sysfs, address(ADDRESS))),
            true,
        );
        assert!(steps >= 6, "{steps}");
    }
}

#[test]
fn while_repairing() {
    let left_half_way = |sysfs: &Sysfs| {
        std::mem::forget(take(sysfs, address(ADDRESS), &options()).unwrap());
        std::fs::remove_dir_all(sysfs.proc.join(std::process::id().to_string())).unwrap();
        std::fs::create_dir_all(sysfs.proc.join(std::process::id().to_string())).unwrap();
    };
    let steps = killed_everywhere(false, left_half_way, |sysfs| drop(repair(sysfs)), false);
    assert!(steps >= 6, "{steps}");
}

#[test]
fn by_hand_or_by_other_tools() {
    // Unbound, and an override left.
    let (sim, sysfs) = Sim::with_ssd();
    let dir = sysfs.function(address(ADDRESS));
    sysfs.ops().write(&dir.join("driver_override"), "vfio-pci\n").unwrap();
    let repaired = repair(&sysfs).unwrap();
    assert!(repaired[0].found.contains("would go to vfio-pci"), "{repaired:?}");
    sim.assert_untouched();
    sysfs.ops().write(&dir.join("driver/unbind"), ADDRESS).unwrap();
    assert_eq!(repair(&sysfs).unwrap()[0].found, "it has no driver");
    sim.assert_untouched();
    // A record that cannot be parsed, and one from another boot.
    for (text, words) in [
        (r#"{"stage": "taken"}"#, "missing field `address`"),
        (
            r#"{"address": {"domain": 0, "bus": 1, "device": 0, "function": 0}, "stage": "taken",
                "process": {"pid": 1, "start_ticks": 1}, "boot_id": "other", "persistent": true,
                "disks": 9}"#,
            "earlier boot",
        ),
    ] {
        sim.put(&format!("run/meantime/pci/{ADDRESS}"), text);
        let repaired = repair(&sysfs).unwrap();
        assert!(repaired[0].found.contains(words) && repaired[0].outcome.is_ok(), "{repaired:?}");
        sim.assert_untouched();
    }
    // A record of a device that is gone.
    sim.put("run/meantime/pci/0000:05:00.0", "x");
    assert_eq!(repair(&sysfs).unwrap().len(), 1);
    sim.assert_untouched();
}

#[test]
fn the_number_of_a_dead_process_may_be_reused() {
    let (sim, sysfs) = Sim::with_ssd();
    std::mem::forget(take(&sysfs, address(ADDRESS), &options()).unwrap());
    sim.process(std::process::id(), "another", 555);
    let function = sim.only();
    assert!(function.taker.is_some_and(|taker| taker.unfinished));
    // A process has the node open and so uses the device: it is not taken away.
    sim.hold_node("7", true);
    assert!(repair(&sysfs).unwrap()[0].outcome.is_err());
    sim.hold_node("7", false);
    // The next process that takes it repairs it first.
    drop(take(&sysfs, address(ADDRESS), &options()).unwrap());
    sim.assert_untouched();
}
