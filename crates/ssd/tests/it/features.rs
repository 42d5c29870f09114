//! Features, power states, retry delays, and what a reset of the NVM
//! subsystem does.

use meantime_nvme_spec::features::{
    ApstEntry, ApstTable, Arbitration, HostBehaviorSupport, NumberOfQueues, fid,
};
use meantime_nvme_spec::identify::{IdentifyController, cns};
use meantime_nvme_spec::regs::{self, Cap};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode as S;
use meantime_ssd::{FaultPlan, Medium, Model, PowerState, SsdConfig, SteppedSsd};
use meantime_testkit::host::*;
use zerocopy::{FromBytes, IntoBytes};

const MS: u64 = 1_000_000;

fn get(host: &mut Host, nsid: u32, fid: u8, sel: u8, cdw11: u32) -> u32 {
    ok(host.admin(Sqe::get_features(0, nsid, fid, sel, cdw11))).dw0.get()
}

#[test]
fn error_recovery_is_per_namespace() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(meantime_ssd::NamespaceConfig { bytes: 1 << 20, lba_bytes: 512 });
    let (_ssd, mut host) = stepped(c);
    ok(host.admin(Sqe::set_features(0, u32::MAX, fid::ERROR_RECOVERY, false, 4)));
    ok(host.admin(Sqe::set_features(0, 2, fid::ERROR_RECOVERY, false, 5)));
    assert_eq!([1, 2].map(|nsid| get(&mut host, nsid, fid::ERROR_RECOVERY, 0, 0)), [4, 5]);
    refused(
        host.admin(Sqe::set_features(0, 0, fid::ERROR_RECOVERY, false, 4)),
        S::InvalidNamespaceOrFormat,
    );
}

#[test]
fn error_recovery_of_no_namespace_is_what_all_have() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(meantime_ssd::NamespaceConfig { bytes: 1 << 20, lba_bytes: 512 });
    let (_ssd, mut host) = stepped(c.clone());
    ok(host.admin(Sqe::set_features(0, u32::MAX, fid::ERROR_RECOVERY, false, 4)));
    assert_eq!(get(&mut host, 0, fid::ERROR_RECOVERY, 0, 0), 4);
    ok(host.admin(Sqe::set_features(0, 2, fid::ERROR_RECOVERY, false, 5)));
    let ask = Sqe::get_features(0, 0, fid::ERROR_RECOVERY, 0, 0);
    refused(host.admin(ask), S::InvalidNamespaceOrFormat);
    let (_ssd, mut host) = stepped(SsdConfig { strict: true, ..c });
    refused(host.admin(ask), S::InvalidNamespaceOrFormat);
}

/// The controller's own features, as hosts ask for them.
#[test]
fn features_of_the_controller_need_no_namespace() {
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    for fid in [
        fid::ARBITRATION,
        fid::POWER_MANAGEMENT,
        fid::TEMPERATURE_THRESHOLD,
        fid::NUMBER_OF_QUEUES,
        fid::INTERRUPT_COALESCING,
        fid::INTERRUPT_VECTOR_CONFIG,
        fid::WRITE_ATOMICITY,
        fid::ASYNC_EVENT_CONFIG,
        fid::KEEP_ALIVE_TIMER,
    ] {
        get(&mut host, 0, fid, 0, 0);
    }
}

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn the_keep_alive_timer_ends_the_controller_of_a_host_that_is_silent() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    let page = host.alloc(4096);
    ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0)));
    let data = host.read(page, 4096);
    // KAS (bytes 320 and 321): 100 ms; CTRATT (bytes 96 to 99): traffic based.
    assert_eq!((&data[320..322], data[96] & 0x40), (&[1, 0][..], 0x40));
    // Off until it is set.
    ssd.clock().advance(1_000 * SECOND_NS);
    assert_eq!(get(&mut host, 0, fid::KEEP_ALIVE_TIMER, 0, 0), 0);
    ok(host.admin(Sqe::set_features(0, 0, fid::KEEP_ALIVE_TIMER, false, 1_950)));
    assert_eq!(get(&mut host, 0, fid::KEEP_ALIVE_TIMER, 0, 0), 1_950);
    host.create_queues(1, 16, None);
    for round in 0..10 {
        ssd.clock().advance(2 * SECOND_NS - 1_000_000);
        assert!(!host.csts().cfs(), "round {round}");
        // Any command will do.
        match round % 3 {
            0 => ok(host.admin(Sqe::keep_alive(0))),
            1 => ok(host.io(1, Sqe::flush(0, 1))),
            _ => ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0))),
        };
    }
    // Looked at once in each time-out, it may take two.
    ssd.clock().advance(4 * SECOND_NS);
    assert!(host.csts().cfs());
    assert_eq!(ssd.counters().fatal, 1);
    // The log's entry, once the controller is back, belongs to no command. The timer is off then.
    host.port.write32(meantime_nvme_spec::regs::CC, 0);
    host.enable();
    assert_eq!(get(&mut host, 0, fid::KEEP_ALIVE_TIMER, 0, 0), 0);
    ok(host.admin(Sqe::get_log_page(0, 0, 1, 0, false, 16, 0, page, 0)));
    let entry = host.read(page, 64);
    assert_eq!(entry[8..14], [0xff, 0xff, 0xff, 0xff, 0x19 << 1, 0]);
    ssd.clock().advance(1_000 * SECOND_NS);
    assert!(!host.csts().cfs());
}

/// A command that cannot be fetched, here because the completion queue is full, restarts the timer
/// too, but only once.
#[test]
fn commands_that_wait_to_be_fetched_keep_a_controller_alive() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 4, None);
    ok(host.admin(Sqe::set_features(0, 0, fid::KEEP_ALIVE_TIMER, false, 2_000)));
    let flush = |host: &mut Host| {
        let cid = host.cid();
        host.submit(1, &Sqe::flush(cid, 1));
    };
    // Submits as many commands as there is room for completions, which stay there.
    (0..3).for_each(|_| flush(&mut host));
    host.run_until_idle();
    for round in 0..3 {
        let fetched = ssd.counters().cqes;
        flush(&mut host);
        ssd.clock().advance(2 * SECOND_NS);
        assert_eq!(ssd.counters().cqes, fetched, "round {round}");
        assert!(!host.csts().cfs(), "round {round}");
    }
    ssd.clock().advance(4 * SECOND_NS);
    assert!(host.csts().cfs(), "they still wait, and no more came");
    assert_eq!(ssd.counters().fatal, 1);
}

#[test]
fn a_thread_that_sleeps_hears_the_keep_alive_timer() {
    let (ssd, mut host) = threaded(config(1 << 20, 512));
    ok(host.admin(Sqe::set_features(0, 0, fid::KEEP_ALIVE_TIMER, false, 100)));
    host.wait_csts(|csts| csts.cfs());
    assert_eq!(ssd.counters().fatal, 1);
}

#[test]
fn a_host_that_has_shut_down_need_not_be_heard_of() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    ok(host.admin(Sqe::set_features(0, 0, fid::KEEP_ALIVE_TIMER, false, 100)));
    host.port.write32(meantime_nvme_spec::regs::CC, Host::cc().with_shn(1).0);
    ssd.clock().advance(1_000 * SECOND_NS);
    assert!(!host.csts().cfs());
}

/// Structures of 2.0 that hosts ask for, whatever VS says: bytes typed from the specification.
#[test]
fn identify_knows_the_nvm_command_set() {
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    let page = host.alloc(4096);
    let ask = |nsid, cns, csi: u32| {
        let mut sqe = Sqe::identify(0, nsid, cns, 0, page, 0);
        sqe.cdw11.set(csi << 24);
        sqe
    };
    for (nsid, cns) in [(1, 0x05), (0, 0x06)] {
        host.write(page, &[0xff; 4096]);
        ok(host.admin(ask(nsid, cns, 0)));
        assert!(host.read(page, 4096).iter().all(|byte| *byte == 0), "no limits, no storage tags");
        refused(host.admin(ask(nsid, cns, 2)), S::InvalidFieldInCommand);
    }
    host.write(page, &[0xff; 4096]);
    ok(host.admin(ask(1, 0x08, 0)));
    // NSTAT: ready.
    let data = host.read(page, 4096);
    assert!(data.iter().enumerate().all(|(at, byte)| *byte == u8::from(at == 14)));
    refused(host.admin(ask(2, 0x05, 0)), S::InvalidNamespaceOrFormat);
    refused(host.admin(ask(2, 0x08, 0)), S::InvalidNamespaceOrFormat);
}

#[test]
fn fewer_completion_queues_than_submission_queues() {
    let mut c = config(1 << 20, 512);
    (c.max_io_queues, c.max_io_completion_queues) = (6, Some(2));
    let (_ssd, mut host) = stepped(c);
    let granted = ok(host.admin(Sqe::set_features(
        0,
        0,
        fid::NUMBER_OF_QUEUES,
        false,
        NumberOfQueues::new(64, 64).0,
    )));
    assert_eq!(granted.dw0.get(), NumberOfQueues::new(6, 2).0);
    host.create_queues(2, 16, None);
    let sq = host.alloc(4096);
    refused(host.admin(Sqe::create_io_cq(0, 3, 16, sq, None)), S::InvalidQueueIdentifier);
    ok(host.admin(Sqe::create_io_sq(0, 6, 16, sq, 2, 0)));
    let more = host.alloc(4096);
    refused(host.admin(Sqe::create_io_sq(0, 7, 16, more, 2, 0)), S::InvalidQueueIdentifier);
}

/// 0 and 1 operational; 2 takes 1 ms to enter and 3 ms to leave.
fn states() -> Vec<PowerState> {
    let state = |max_power_10mw, enlat_us, exlat_us, non_operational| PowerState {
        max_power_10mw,
        enlat_us,
        exlat_us,
        non_operational,
    };
    vec![state(800, 0, 0, false), state(450, 0, 0, false), state(5, 1000, 3000, true)]
}

/// A read's device time after `idle_ns` without commands.
fn read_after(ssd: &SteppedSsd, host: &mut Host, area: u64, idle_ns: u64) -> u64 {
    ssd.clock().advance(idle_ns);
    let before = ssd.peek_ns();
    let cid = host.cid();
    host.submit(1, &Sqe::read(cid, 1, 0, 8, area, 0));
    ssd.clock().advance(20 * MS);
    ok(host.wait(1));
    let stamps = ssd.stamps().unwrap();
    let stamp = stamps.get(stamps.written() - 1).unwrap();
    stamp.written_ns - before
}

#[test]
fn an_idle_ssd_is_late_unless_told_not_to_sleep() {
    for model in ["null", "optane"] {
        let mut c = config(1 << 20, 512);
        (c.power_states, c.apst_idle_ms, c.stamps) = (states(), Some(100), true);
        c.model = Model {
            jitter: Default::default(),
            slow: Default::default(),
            ..Model::named(model).unwrap()
        };
        let (ssd, mut host) = stepped(c);
        host.create_queues(1, 16, None);
        let (area, page) = (host.alloc(4096), host.alloc(4096));
        let service = read_after(&ssd, &mut host, area, 0);
        assert_eq!(read_after(&ssd, &mut host, area, 50 * MS), service, "awake");
        assert_eq!(get(&mut host, 0, fid::POWER_MANAGEMENT, 0, 0), 0);
        assert_eq!(read_after(&ssd, &mut host, area, 110 * MS), service + 3 * MS, "{model}: EXLAT");
        ssd.clock().advance(200 * MS);
        assert_eq!(get(&mut host, 0, fid::POWER_MANAGEMENT, 0, 0), 2, "asleep, and says so");
        // The first thing that wants low latency turns it off.
        host.write(page, ApstTable::default().as_bytes());
        let off = Sqe::set_features(0, 0, fid::AUTONOMOUS_POWER_STATE_TRANSITION, false, 0)
            .with_prps(page, 0);
        ok(host.admin(off));
        assert_eq!(read_after(&ssd, &mut host, area, 500 * MS), service, "off");
        // A state that the host chose.
        ok(host.admin(Sqe::set_features(0, 0, fid::POWER_MANAGEMENT, false, 2)));
        assert_eq!(read_after(&ssd, &mut host, area, MS), service + 3 * MS);
        assert_eq!(read_after(&ssd, &mut host, area, MS), service, "and stays awake");
    }
}

#[test]
fn power_states_that_are_refused() {
    let (_ssd, mut host) = stepped(SsdConfig { power_states: states(), ..config(1 << 20, 512) });
    let page = host.alloc(4096);
    refused(
        host.admin(Sqe::set_features(0, 0, fid::POWER_MANAGEMENT, false, 3)),
        S::InvalidFieldInCommand,
    );
    let mut table = ApstTable::default();
    table.entries[0] = ApstEntry::new(1, 5);
    host.write(page, table.as_bytes());
    let set = Sqe::set_features(0, 0, fid::AUTONOMOUS_POWER_STATE_TRANSITION, false, 1)
        .with_prps(page, 0);
    refused(host.admin(set), S::InvalidFieldInCommand);
    table.entries[0] = ApstEntry::new(2, 5);
    host.write(page, table.as_bytes());
    ok(host.admin(set));
    let (other, fid) = (page + 1024, fid::AUTONOMOUS_POWER_STATE_TRANSITION);
    assert_eq!(ok(host.admin(Sqe::get_features(0, 0, fid, 0, 0).with_prps(other, 0))).dw0.get(), 1);
    assert_eq!(host.read(other, 256), table.as_bytes());
    ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0)));
    let id = IdentifyController::read_from_bytes(&host.read(page, 4096)).unwrap();
    let seen: Vec<_> =
        id.power_states().map(|s| (s.max_power_100uw(), s.non_operational())).collect();
    assert_eq!((id.apsta, seen), (1, vec![(80_000, false), (45_000, false), (500, true)]));
}

#[test]
fn impossible_power_states_are_named() {
    let one = states()[0];
    let asleep = PowerState { non_operational: true, ..one };
    let stronger = PowerState { max_power_10mw: 900, ..one };
    for (power_states, apst_idle_ms, problem) in [
        (vec![], None, "0 power states"),
        (vec![one; 33], None, "33 power states"),
        (vec![asleep], None, "state 0 is non-operational"),
        (vec![one, stronger], None, "more power"),
        (vec![one], Some(5), "needs a non-operational"),
        (vec![one, asleep], Some(0), "not within"),
    ] {
        let c = SsdConfig { power_states, apst_idle_ms, ..config(1 << 20, 512) };
        let error = SteppedSsd::new(c, Medium::dram(1 << 20).unwrap(), 1).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn host_behavior_support() {
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    let page = host.alloc(4096);
    let set = Sqe::set_features(0, 0, fid::HOST_BEHAVIOR_SUPPORT, false, 0).with_prps(page, 0);
    let get = Sqe::get_features(0, 0, fid::HOST_BEHAVIOR_SUPPORT, 0, 0).with_prps(page + 512, 0);
    host.write(page, HostBehaviorSupport::new(true).as_bytes());
    ok(host.admin(set));
    ok(host.admin(get));
    assert_eq!(host.read(page + 512, 512), HostBehaviorSupport::new(true).as_bytes());
    host.write(page, &[2]);
    refused(host.admin(set), S::InvalidFieldInCommand);
    host.port.write32(regs::CC, 0);
    host.enable();
    ok(host.admin(get));
    assert_eq!(host.read(page + 512, 1), [0], "a reset forgets it");
    ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0)));
    let id = IdentifyController::read_from_bytes(&host.read(page, 4096)).unwrap();
    assert_eq!([id.crdt1, id.crdt2, id.crdt3].map(|delay| delay.get()), [1, 10, 50]);
}

#[test]
fn a_reset_of_the_subsystem() {
    let (ssd, mut host) = stepped(SsdConfig { faults: FaultPlan::NONE, ..config(1 << 20, 512) });
    assert!(Cap(host.port.read64(regs::CAP)).nssrs());
    host.create_queues(1, 16, None);
    host.port.write32(regs::NSSR, 0x1234_5678);
    assert!(host.csts().rdy() && !host.csts().nssro(), "any other value has no effect");
    host.port.write32(regs::NSSR, 0x4e56_4d65);
    assert_eq!(host.csts().0, regs::Csts(0).with_nssro(true).0);
    assert_eq!([regs::CC, regs::AQA, regs::NSSR].map(|r| host.port.read32(r)), [0; 3]);
    assert_eq!((host.port.read64(regs::ASQ), ssd.counters().resets), (0, 1));
    host.enable();
    refused(host.admin(Sqe::delete_io_sq(0, 1)), S::InvalidQueueIdentifier);
    host.port.write32(regs::CC, 0);
    assert!(host.csts().nssro(), "a controller reset leaves it");
    host.port.write32(regs::CSTS, 1 << 4);
    assert_eq!((host.csts().0, ssd.counters().bad_registers), (0, 0));
    let burst = Arbitration(0).with_ab(2);
    host.enable();
    ok(host.admin(Sqe::set_features(0, 0, fid::ARBITRATION, false, burst.0)));
}
