//! Taking, binding and giving back without faults, and refusals.

use std::time::Duration;

use super::super::ops::NodeOwner;
use super::super::{PciError, TakeOptions, bind, repair, take, unbind};
use super::sim::{ADDRESS, Fault, Sim, address};

fn options() -> TakeOptions {
    TakeOptions::default()
}

#[test]
fn taken_for_the_time_of_use() {
    let (sim, sysfs) = Sim::with_ssd();
    let taken = take(&sysfs, address(ADDRESS), &options()).unwrap();
    assert_eq!(taken.node(), sim.root().join("dev/vfio/7"));
    assert!(taken.will_return_to_kernel());
    let function = sim.only();
    assert_eq!(function.driver.as_deref(), Some("vfio-pci"));
    assert!(
        function.taker.is_some_and(|taker| taker.alive && !taker.persistent && !taker.unfinished)
    );
    assert_eq!(
        sim.log(),
        [
            "load vfio-pci",
            "load vfio_iommu_type1",
            "create record",
            "record taking",
            "write driver_override vfio-pci",
            "write unbind 0000:01:00.0",
            "write drivers_probe 0000:01:00.0",
            "create record",
            "record taken",
        ],
        "it is written down before anything is touched"
    );
    assert!(repair(&sysfs).unwrap().is_empty(), "what a living process has is left alone");
    assert!(matches!(take(&sysfs, address(ADDRESS), &options()), Err(PciError::TakenBy { .. })));
    assert!(matches!(bind(&sysfs, address(ADDRESS), &options()), Err(PciError::TakenBy { .. })));
    assert!(matches!(unbind(&sysfs, address(ADDRESS)), Err(PciError::TakenBy { .. })));
    drop(taken);
    sim.assert_untouched();
    let given =
        take(&sysfs, address(ADDRESS), &options()).unwrap().return_to_kernel().unwrap().unwrap();
    assert_eq!((given.driver.as_deref(), given.disks.len()), (Some("nvme"), 2));
    sim.assert_untouched();
}

#[test]
fn a_process_about_to_close_it_is_waited_for() {
    let (sim, sysfs) = Sim::with_ssd();
    let taken = take(&sysfs, address(ADDRESS), &options()).unwrap();
    sim.hold_node_for("7", Duration::from_millis(300));
    assert!(taken.return_to_kernel().is_ok());
    sim.assert_untouched();
    // Not permanently.
    let taken = take(&sysfs, address(ADDRESS), &options()).unwrap();
    sim.hold_node_for("7", Duration::from_secs(5));
    assert!(matches!(taken.return_to_kernel(), Err(PciError::Busy { .. })));
}

#[test]
fn bound_until_unbound() {
    let (sim, sysfs) = Sim::with_ssd();
    let owned = TakeOptions { owner: Some((1000, 100)), ..Default::default() };
    let bound = bind(&sysfs, address(ADDRESS), &owned).unwrap();
    assert_eq!((bound.former_driver.as_deref(), bound.was_bound), (Some("nvme"), false));
    let owner = NodeOwner { uid: 1000, gid: 100, mode: 0o600 };
    assert_eq!(sim.owner_of("dev/vfio/7"), Some(owner));
    // Its taker may die: the binding stays.
    sim.die_at(0);
    assert!(sysfs.ops().create(sim.root(), "").is_err());
    sim.live_on();
    assert!(repair(&sysfs).unwrap().is_empty());
    // Using it changes nothing, and another owner can be set.
    sim.log();
    let taken = take(&sysfs, address(ADDRESS), &options()).unwrap();
    assert!(!taken.will_return_to_kernel());
    assert_eq!(taken.return_to_kernel().unwrap(), None);
    assert_eq!(sim.log(), Vec::<String>::new());
    let other = TakeOptions { owner: Some((1001, 100)), ..Default::default() };
    assert!(bind(&sysfs, address(ADDRESS), &other).unwrap().was_bound);
    assert_eq!(sim.owner_of("dev/vfio/7").unwrap().uid, 1001);
    // Refused while a process uses it.
    sim.hold_node("7", true);
    sim.process(80, "fio", 1);
    sim.link("proc/80/fd/5", "/dev/vfio/7");
    let error = unbind(&sysfs, address(ADDRESS)).unwrap_err().to_string();
    assert!(error.contains("process 80 (fio)"), "{error}");
    sim.hold_node("7", false);
    let given = unbind(&sysfs, address(ADDRESS)).unwrap();
    assert_eq!((given.driver.as_deref(), given.was_back), (Some("nvme"), false));
    sim.assert_untouched();
    assert!(unbind(&sysfs, address(ADDRESS)).unwrap().was_back);
    sim.assert_untouched();
}

#[test]
fn one_that_others_gave_to_vfio_is_used_and_can_be_unbound() {
    let (sim, sysfs) = Sim::with_ssd();
    bind(&sysfs, address(ADDRESS), &options()).unwrap();
    std::fs::remove_file(sim.root().join("run/meantime/pci").join(ADDRESS)).unwrap();
    drop(take(&sysfs, address(ADDRESS), &options()).unwrap());
    assert_eq!(sim.only().driver.as_deref(), Some("vfio-pci"), "it is not ours to give back");
    assert!(repair(&sysfs).unwrap().is_empty());
    assert!(bind(&sysfs, address(ADDRESS), &options()).unwrap().was_bound);
    assert!(sim.only().taker.is_some());
    unbind(&sysfs, address(ADDRESS)).unwrap();
    assert_eq!(sim.only().driver.as_deref(), Some("nvme"));
    bind(&sysfs, address(ADDRESS), &options()).unwrap();
    std::fs::remove_file(sim.root().join("run/meantime/pci").join(ADDRESS)).unwrap();
    unbind(&sysfs, address(ADDRESS)).unwrap();
    sim.assert_untouched();
}

#[test]
fn what_is_in_use_is_not_taken() {
    let forced = TakeOptions { force: true, ..Default::default() };
    type Case = (&'static str, fn(&Sim), bool);
    let cases: [Case; 5] = [
        (
            "mounted at /m",
            |sim| sim.put("proc/self/mountinfo", "30 1 259:2 / /m rw - ext4 x rw\n"),
            false,
        ),
        ("swap space", |sim| sim.put("proc/swaps", "Filename\n/dev/nvme0n2 p 9 0 -2\n"), false),
        ("held by md0", |sim| sim.put("sys/class/block/nvme0n2/holders/md0", ""), false),
        ("nvme0n2 is in exclusive use", |sim| sim.claim_for_other("nvme0n2"), false),
        (
            "open in process 7 (dd)",
            |sim| (sim.process(7, "dd", 1), sim.link("proc/7/fd/1", "/dev/nvme0n1")).1,
            true,
        ),
    ];
    for (words, use_it, force_helps) in cases {
        let (sim, sysfs) = Sim::with_ssd();
        use_it(&sim);
        for options in [&options(), &forced] {
            let taken = take(&sysfs, address(ADDRESS), options);
            if force_helps && options.force {
                drop(taken.unwrap());
            } else {
                let error = taken.unwrap_err().to_string();
                assert!(error.contains(words), "{error}");
                assert_eq!(error.contains("say --force"), force_helps, "{error}");
                assert_eq!(sim.log(), Vec::<String>::new(), "nothing was touched");
            }
            sim.assert_untouched();
        }
    }
}

#[test]
fn a_disk_that_cannot_be_inspected_is_not_taken() {
    let (sim, sysfs) = Sim::with_ssd();
    std::fs::remove_file(sim.root().join("dev/nvme0n2")).unwrap();
    let error = take(&sysfs, address(ADDRESS), &options()).unwrap_err();
    assert!(matches!(&error, PciError::CannotTell { disk, .. } if disk == "nvme0n2"), "{error}");
    assert_eq!(sim.log(), Vec::<String>::new());
}

#[test]
fn a_group_is_taken_as_a_whole_or_not_at_all() {
    let (sim, sysfs) = Sim::with_ssd();
    sim.add_other("0000:00:01.0", Some(7), 0x0006_0400, Some("pcieport"));
    sim.add_other("0000:01:00.1", Some(7), 0x0004_0300, None);
    drop(take(&sysfs, address(ADDRESS), &options()).unwrap());
    sim.add_other("0000:01:00.2", Some(7), 0x0002_0000, Some("e1000e"));
    sim.log();
    let error = take(&sysfs, address(ADDRESS), &options()).unwrap_err().to_string();
    for words in ["group 7", "0000:01:00.2 (driver e1000e)", "another slot"] {
        assert!(error.contains(words), "{error}");
    }
    assert!(!error.contains("01:00.1") && !error.contains("pcieport"), "{error}");
    assert_eq!(sim.log(), Vec::<String>::new());
}

#[test]
fn two_ssds_of_one_group_are_bound_together() {
    let (sim, sysfs) = Sim::with_ssd();
    let other = "0000:02:00.0";
    sim.add(other, Some(7), &[("nvme1n1", 0)]);
    let error = bind(&sysfs, address(ADDRESS), &options()).unwrap_err().to_string();
    assert!(error.contains("`meantime bind 0000:01:00.0 0000:02:00.0`"), "{error}");
    let both = vec![address(ADDRESS), address(other)];
    let together =
        TakeOptions { together: both.clone(), owner: Some((5, 5)), ..Default::default() };
    for one in &both {
        bind(&sysfs, *one, &together).unwrap();
    }
    unbind(&sysfs, both[0]).unwrap();
    assert_eq!(sim.owner_of("dev/vfio/7").unwrap().uid, 5, "the other is still its owner's");
    unbind(&sysfs, both[1]).unwrap();
    assert!(
        super::super::scan(&sysfs)
            .iter()
            .all(|function| function.driver.as_deref() == Some("nvme"))
    );
}

#[test]
fn without_an_iommu_only_if_asked_for() {
    let sim = Sim::new();
    sim.add(ADDRESS, None, &[("nvme0n1", 2), ("nvme0n2", 0)]);
    let sysfs = sim.sysfs();
    let error = take(&sysfs, address(ADDRESS), &options()).unwrap_err().to_string();
    for words in ["intel_iommu=on", "amd_iommu", "firmware", "all memory", "--unsafe-no-iommu"] {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(sim.log(), Vec::<String>::new());
    let reckless = TakeOptions { unsafe_no_iommu: true, ..Default::default() };
    let error = take(&sysfs, address(ADDRESS), &reckless).unwrap_err().to_string();
    assert!(
        error.contains("CONFIG_VFIO_NOIOMMU") && error.contains("everything was put back"),
        "{error}"
    );
    sim.put("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
    let taken = take(&sysfs, address(ADDRESS), &reckless).unwrap();
    assert!(taken.node().ends_with("vfio/noiommu-0"));
    drop(taken);
    sim.assert_untouched();
}

#[test]
fn rights_are_asked_for_before_anything_is_done() {
    let (sim, sysfs) = Sim::with_ssd();
    sim.fault(Fault::Refuses("everything"));
    for error in [
        take(&sysfs, address(ADDRESS), &options()).map(drop).unwrap_err(),
        bind(&sysfs, address(ADDRESS), &options()).map(drop).unwrap_err(),
        unbind(&sysfs, address(ADDRESS)).map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("sudo meantime bind ADDRESS --owner"), "{error}");
    }
    assert_eq!(sim.log(), Vec::<String>::new());
}

#[test]
fn one_without_a_driver_stays_so_when_it_was_taken_for_use() {
    let (sim, sysfs) = Sim::with_ssd();
    let ops = sysfs.ops();
    ops.write(&sysfs.function(address(ADDRESS)).join("driver/unbind"), ADDRESS).unwrap();
    drop(take(&sysfs, address(ADDRESS), &options()).unwrap());
    assert_eq!(sim.only().driver, None);
    // On an explicit request, it gets the kernel's driver.
    unbind(&sysfs, address(ADDRESS)).unwrap();
    sim.assert_untouched();
}
