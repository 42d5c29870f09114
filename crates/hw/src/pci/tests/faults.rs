//! A kernel that does not do what was requested.

use super::super::{PciError, TakeOptions, bind, repair, take, unbind};
use super::sim::{ADDRESS, Fault, Sim, address};

/// Checks that taking fails with these words, and leaves the machine unchanged.
fn fails(fault: Fault, words: &[&str]) {
    let (sim, sysfs) = Sim::with_ssd();
    sim.fault(fault.clone());
    let owned = TakeOptions { owner: Some((1, 1)), ..Default::default() };
    let error = bind(&sysfs, address(ADDRESS), &owned).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{fault:?}: {error}");
    }
    sim.assert_untouched();
}

#[test]
fn a_failure_half_way_is_rolled_back() {
    let back = "everything was put back";
    fails(Fault::ProbeFails("vfio-pci"), &["without a driver and not with vfio-pci", back]);
    fails(Fault::Keeps("nvme"), &["with the driver nvme and not with no driver", back]);
    fails(Fault::NoNode, &["dev/vfio/7 to appear", "devtmpfs", back]);
    fails(Fault::Refuses("unbind"), &["refused", "unbind", "dmesg", back]);
}

#[test]
fn a_kernel_without_vfio() {
    let (sim, sysfs) = Sim::with_ssd();
    sim.forget_module("vfio-pci");
    let error = take(&sysfs, address(ADDRESS), &TakeOptions::default()).unwrap_err().to_string();
    assert!(error.contains("modprobe: exit status: 1") && error.contains("blacklisted"), "{error}");
    sim.assert_untouched();
}

#[test]
fn a_failed_rollback_is_left_for_repair() {
    let (sim, sysfs) = Sim::with_ssd();
    sim.fault(Fault::ProbeFails("vfio-pci"));
    sim.fault(Fault::ProbeFails("nvme"));
    let error = bind(&sysfs, address(ADDRESS), &TakeOptions::default()).unwrap_err().to_string();
    assert!(error.contains("putting it back failed") && error.contains("--repair"), "{error}");
    assert_eq!(sim.only().driver, None);
    // This process lives, but will not try again.
    sim.no_faults();
    sim.die_at(0);
    assert!(sysfs.ops().create(sim.root(), "").is_err());
    sim.live_on();
    let repaired = repair(&sysfs).unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(repaired[0].outcome.as_ref().unwrap().driver.as_deref(), Some("nvme"));
    sim.assert_untouched();
}

#[test]
fn a_driver_or_disks_that_do_not_come_back_are_errors() {
    let (sim, sysfs) = Sim::with_ssd();
    bind(&sysfs, address(ADDRESS), &TakeOptions::default()).unwrap();
    sim.fault(Fault::ProbeFails("nvme"));
    let error = unbind(&sysfs, address(ADDRESS)).unwrap_err();
    assert!(matches!(error, PciError::WrongDriver { .. }), "{error}");
    sim.no_faults();
    unbind(&sysfs, address(ADDRESS)).unwrap();
    sim.assert_untouched();

    let (sim, sysfs) = Sim::with_ssd();
    let taken = take(&sysfs, address(ADDRESS), &TakeOptions::default()).unwrap();
    sim.fault(Fault::DiskMissing);
    let error = taken.return_to_kernel().unwrap_err().to_string();
    assert!(error.contains("only 1 of 2"), "{error}");
    assert_eq!(sim.only().taker, None, "nothing is left to be done for the device");
    assert!(repair(&sysfs).unwrap().is_empty());
}

#[test]
fn a_device_that_is_pulled_out_leaves_nothing() {
    for step in 0..40 {
        let (sim, sysfs) = Sim::with_ssd();
        sim.die_at(u32::MAX);
        sim.fault(Fault::VanishesAt(step));
        let options = TakeOptions { owner: Some((1, 1)), ..Default::default() };
        let taken = take(&sysfs, address(ADDRESS), &options);
        if let Ok(taken) = taken {
            let _ = taken.return_to_kernel();
        }
        let gone = !sysfs.function(address(ADDRESS)).exists();
        let left = super::super::attribute::names(&sim.root().join("run/meantime/pci"));
        assert_eq!(left, ["lock"], "step {step}");
        if !gone {
            assert!(step > 12, "the device was never pulled out");
            return;
        }
    }
    panic!("more steps than expected");
}
