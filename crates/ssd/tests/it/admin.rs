//! Enable, reset, registers and admin commands, rule by rule.

use meantime_nvme_spec::features::{InterruptVectorConfig, NumberOfQueues, fid};
use meantime_nvme_spec::identify::{
    ActiveNamespaceList, IdentifyController, IdentifyNamespace, cns, vwc,
};
use meantime_nvme_spec::log::{ErrorLogEntry, FirmwareSlotLog, SmartLog, lid};
use meantime_nvme_spec::regs::{self, Aqa, Cap};
use meantime_nvme_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_nvme_spec::status::StatusCode as S;
use meantime_ssd::{Fault, Medium, NamespaceConfig, SsdConfig, SteppedSsd};
use meantime_testkit::faults::always;
use meantime_testkit::host::*;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

fn fresh() -> (SteppedSsd, Host) {
    let ssd = SteppedSsd::new(config(1 << 20, 512), Medium::dram(1 << 20).unwrap(), 1).unwrap();
    let host = Host::new(ssd.port());
    (ssd, host)
}

#[test]
fn registers_after_power_on() {
    let (_ssd, host) = fresh();
    let cap = Cap(host.port.read64(regs::CAP));
    assert_eq!(cap.max_queue_entries(), 1024);
    assert!(cap.cqr() && cap.to() >= 1 && cap.dstrd() == 5);
    assert_eq!((cap.mpsmin(), cap.mpsmax(), cap.css()), (0, 0, 1));
    assert_eq!(host.port.read32(regs::CAP), cap.0 as u32);
    assert_eq!(host.port.read32(regs::CAP + 4), (cap.0 >> 32) as u32);
    assert_eq!(host.port.read32(regs::VS), 0x0001_0400);
    assert_eq!(host.port.read32(regs::CC), 0);
    assert_eq!(host.csts().0, 0);
    assert_eq!(host.port.read32(regs::PMRCAP), 0);
}

#[test]
fn a_bad_enable_is_fatal() {
    type Break = fn(&mut Host) -> regs::Cc;
    let cases: [(&str, Break); 9] = [
        ("MPS", |_| Host::cc().with_mps(1)),
        ("CSS", |_| Host::cc().with_css(6)),
        ("AMS", |_| Host::cc().with_ams(2)),
        ("IOSQES", |_| Host::cc().with_iosqes(7)),
        ("IOCQES", |_| Host::cc().with_iocqes(5)),
        ("AQA", |h| {
            h.port.write32(regs::AQA, 0);
            Host::cc()
        }),
        ("alignment", |h| {
            h.port.write64(regs::ASQ, BASE + 64);
            Host::cc()
        }),
        ("ASQ not mapped", |h| {
            h.port.write64(regs::ASQ, 0x5000_0000_0000);
            Host::cc()
        }),
        ("ACQ not mapped", |h| {
            h.port.write32(regs::ACQ + 4, 0x7777);
            Host::cc()
        }),
    ];
    for (name, break_it) in cases {
        let (ssd, mut host) = fresh();
        host.prepare_admin(32);
        let cc = break_it(&mut host);
        host.port.write32(regs::CC, cc.0);
        host.run_until_idle();
        assert!(host.csts().cfs() && !host.csts().rdy(), "{name}: {:?}", host.csts());
        assert_eq!(ssd.counters().fatal, 1, "{name}");
        assert!(!ssd.refusals().is_empty(), "{name}");
        // A reset heals it.
        host.port.write32(regs::CC, 0);
        assert_eq!(host.csts().0, 0, "{name}");
        host.enable();
        ok(host.admin(Sqe::abort(0, 0, 77)));
    }
}

#[test]
fn what_must_not_change_while_enabled() {
    let changes: [fn(&Host); 5] = [
        |h| h.port.write32(regs::CC, Host::cc().with_css(6).0),
        |h| h.port.write32(regs::CC, Host::cc().with_mps(1).0),
        |h| h.port.write32(regs::CC, Host::cc().with_iosqes(5).0),
        |h| h.port.write32(regs::AQA, Aqa::new(16, 16).0),
        |h| h.port.write64(regs::ASQ, BASE),
    ];
    for change in changes {
        let (ssd, host) = stepped(config(1 << 20, 512));
        change(&host);
        assert!(host.csts().cfs());
        assert!(ssd.counters().bad_registers >= 1);
    }
    let (ssd, host) = stepped(config(1 << 20, 512));
    host.port.write32(regs::VS, 1);
    host.port.write32(regs::CSTS, 2);
    assert!(host.csts().rdy() && !host.csts().cfs());
    assert_eq!(ssd.counters().bad_registers, 2);
}

#[test]
fn reset_and_shutdown() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 16, None);
    host.port.write32(regs::CC, Host::cc().with_shn(regs::shn::NORMAL).0);
    assert_eq!(host.csts().shst(), regs::shst::COMPLETE);
    host.port.write32(regs::CC, 0);
    assert_eq!(host.csts().0, 0);
    assert_eq!(ssd.counters().resets, 1);
    // The queues are gone, the doorbells zero.
    assert!(
        (0..host.bells.len()).all(|i| host
            .bells
            .get(i)
            .unwrap()
            .load(std::sync::atomic::Ordering::Relaxed)
            == 0)
    );
    host.enable();
    refused(host.admin(Sqe::delete_io_sq(0, 1)), S::InvalidQueueIdentifier);
}

#[test]
fn ready_takes_its_time_or_never_comes() {
    let mut c = config(1 << 20, 512);
    c.ready_after_ns = 5_000_000;
    let ssd = SteppedSsd::new(c, Medium::dram(1 << 20).unwrap(), 1).unwrap();
    let mut host = Host::new(ssd.port());
    host.prepare_admin(8);
    host.port.write32(regs::CC, Host::cc().0);
    let clock = ssd.clock();
    clock.advance(4_900_000);
    assert!(!host.csts().rdy());
    clock.advance(200_000);
    assert!(host.csts().rdy());

    let mut c = config(1 << 20, 512);
    c.faults = always(Fault::NeverReady);
    let ssd = SteppedSsd::new(c, Medium::dram(1 << 20).unwrap(), 1).unwrap();
    let mut host = Host::new(ssd.port());
    host.prepare_admin(8);
    host.port.write32(regs::CC, Host::cc().0);
    ssd.clock().advance(60_000_000_000);
    assert_eq!(host.csts().0, 0);
}

#[test]
fn commands_and_doorbells_before_enable() {
    let (ssd, mut host) = fresh();
    host.prepare_admin(16);
    host.submit(0, &Sqe::abort(1, 0, 0));
    host.run_until_idle();
    assert!(host.poll(0).is_none());
    host.port.write32(regs::CC, Host::cc().0);
    host.run_until_idle();
    assert!(host.poll(0).is_none(), "the doorbell from before is void");
    assert!(ssd.counters().stray_doorbells >= 1);
}

#[test]
fn identify() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(NamespaceConfig { bytes: 2 << 20, lba_bytes: 4096 });
    c.volatile_write_cache = true;
    c.optimal_io_boundary_lbas = 256;
    let (_ssd, mut host) = stepped(c);
    let page = host.alloc(8192);

    ok(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page, 0)));
    let id = IdentifyController::read_from_bytes(&host.read(page, 4096)).unwrap();
    assert_eq!((id.serial(), id.model()), ("MEANTIME0001", "Meantime software SSD"));
    assert_eq!((id.sqes, id.cqes, id.nn.get()), (0x66, 0x44, 2));
    assert_eq!(id.mdts_bytes(0), Some(1 << 20));
    assert_eq!(id.vwc & vwc::PRESENT, vwc::PRESENT);
    assert_eq!(id.aerl, 3);

    for (nsid, blocks, lba_bytes) in [(1, 2048, 512), (2, 512, 4096)] {
        // Across a page border, so that PRP2 is needed.
        ok(host.admin(Sqe::identify(0, nsid, cns::NAMESPACE, 0, page + 2048, page + 4096)));
        let ns = IdentifyNamespace::read_from_bytes(&host.read(page + 2048, 4096)).unwrap();
        assert_eq!((ns.nsze.get(), ns.ncap.get()), (blocks, blocks));
        assert_eq!(ns.lba_format_in_use().unwrap().block_bytes(), Some(lba_bytes));
        assert_eq!((ns.dlfeat & 7, ns.noiob.get()), (1, 256));
    }
    ok(host.admin(Sqe::identify(0, 0, cns::ACTIVE_NAMESPACE_LIST, 0, page, 0)));
    let list = ActiveNamespaceList::read_from_bytes(&host.read(page, 4096)).unwrap();
    assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2]);
    ok(host.admin(Sqe::identify(0, 1, cns::ACTIVE_NAMESPACE_LIST, 0, page, 0)));
    let list = ActiveNamespaceList::read_from_bytes(&host.read(page, 4096)).unwrap();
    assert_eq!(list.iter().collect::<Vec<_>>(), [2]);
    ok(host.admin(Sqe::identify(0, 2, cns::NAMESPACE_ID_DESCRIPTORS, 0, page, 0)));
    assert_eq!(host.read(page, 2), [2, 16]);

    for nsid in [0, 3, NSID_BROADCAST] {
        refused(
            host.admin(Sqe::identify(0, nsid, cns::NAMESPACE, 0, page, 0)),
            S::InvalidNamespaceOrFormat,
        );
    }
    let (list, descriptors) = (cns::ACTIVE_NAMESPACE_LIST, cns::NAMESPACE_ID_DESCRIPTORS);
    refused(
        host.admin(Sqe::identify(0, NSID_BROADCAST - 1, list, 0, page, 0)),
        S::InvalidNamespaceOrFormat,
    );
    refused(host.admin(Sqe::identify(0, 9, descriptors, 0, page, 0)), S::InvalidNamespaceOrFormat);
    for cns in [4, 7, 0x1c, 0xff] {
        refused(host.admin(Sqe::identify(0, 1, cns, 0, page, 0)), S::InvalidFieldInCommand);
    }
    // The data pointer is checked here as well.
    refused(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page + 2, 0)), S::PrpOffsetInvalid);
    refused(
        host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, page + 4, 0)),
        S::InvalidFieldInCommand,
    );
    refused(host.admin(Sqe::identify(0, 0, cns::CONTROLLER, 0, 0x1000, 0)), S::DataTransferError);
}

#[test]
fn creating_and_deleting_queues() {
    let mut c = config(1 << 20, 512);
    (c.max_io_queues, c.vectors, c.max_queue_entries) = (4, 3, 256);
    let (_ssd, mut host) = stepped(c);
    let m = host.alloc(4096 * 8);
    let cq = |qid, entries, prp, vector| Sqe::create_io_cq(0, qid, entries, prp, vector);
    let sq = |qid, entries, prp, cqid| Sqe::create_io_sq(0, qid, entries, prp, cqid, 0);

    refused(host.admin(cq(0, 16, m, None)), S::InvalidQueueIdentifier);
    refused(host.admin(cq(5, 16, m, None)), S::InvalidQueueIdentifier);
    refused(host.admin(cq(1, 257, m, None)), S::InvalidQueueSize);
    let mut one = cq(1, 2, m, None);
    one.cdw10 = U32::new(1);
    refused(host.admin(one), S::InvalidQueueSize);
    let mut scattered = cq(1, 16, m, None);
    scattered.cdw11 = U32::new(0);
    refused(host.admin(scattered), S::InvalidFieldInCommand);
    refused(host.admin(cq(1, 16, m + 16, None)), S::PrpOffsetInvalid);
    refused(host.admin(cq(1, 16, m, Some(3))), S::InvalidInterruptVector);
    refused(host.admin(cq(1, 16, 0x9000_0000_0000, None)), S::DataTransferError);
    ok(host.admin(cq(1, 16, m, Some(2))));
    refused(host.admin(cq(1, 16, m, None)), S::InvalidQueueIdentifier);

    refused(host.admin(sq(0, 16, m, 1)), S::InvalidQueueIdentifier);
    refused(host.admin(sq(1, 16, m + 4096, 0)), S::InvalidQueueIdentifier);
    refused(host.admin(sq(1, 16, m + 4096, 9)), S::InvalidQueueIdentifier);
    refused(host.admin(sq(1, 16, m + 4096, 2)), S::CompletionQueueInvalid);
    refused(host.admin(sq(1, 257, m + 4096, 1)), S::InvalidQueueSize);
    ok(host.admin(sq(1, 16, m + 4096, 1)));
    ok(host.admin(sq(2, 16, m + 8192, 1)));
    refused(host.admin(sq(1, 16, m + 4096, 1)), S::InvalidQueueIdentifier);

    refused(host.admin(Sqe::delete_io_cq(0, 0)), S::InvalidQueueIdentifier);
    refused(host.admin(Sqe::delete_io_cq(0, 3)), S::InvalidQueueIdentifier);
    refused(host.admin(Sqe::delete_io_cq(0, 1)), S::InvalidQueueDeletion);
    refused(host.admin(Sqe::delete_io_sq(0, 0)), S::InvalidQueueIdentifier);
    refused(host.admin(Sqe::delete_io_sq(0, 4)), S::InvalidQueueIdentifier);
    ok(host.admin(Sqe::delete_io_sq(0, 1)));
    refused(host.admin(Sqe::delete_io_cq(0, 1)), S::InvalidQueueDeletion);
    ok(host.admin(Sqe::delete_io_sq(0, 2)));
    ok(host.admin(Sqe::delete_io_cq(0, 1)));
    ok(host.admin(cq(1, 16, m, None)));
}

#[test]
fn queue_creation_needs_entry_sizes() {
    let (_ssd, mut host) = fresh();
    host.prepare_admin(8);
    host.port.write32(regs::CC, regs::Cc(0).with_en(true).0);
    host.wait_csts(|c| c.rdy());
    let m = host.alloc(8192);
    refused(host.admin(Sqe::create_io_cq(0, 1, 16, m, None)), S::InvalidQueueSize);
    host.port.write32(regs::CC, Host::cc().0);
    ok(host.admin(Sqe::create_io_cq(0, 1, 16, m, None)));
    ok(host.admin(Sqe::create_io_sq(0, 1, 16, m + 4096, 1, 0)));
    host.port.write32(regs::CC, Host::cc().with_iosqes(0).0);
    assert!(host.csts().cfs(), "not with queues about");
}

#[test]
fn features() {
    let mut c = config(1 << 20, 512);
    (c.max_io_queues, c.vectors, c.volatile_write_cache) = (8, 4, true);
    let (_ssd, mut host) = stepped(c);
    let get = |fid, cdw11| Sqe::get_features(0, 1, fid, 0, cdw11);
    let set = |fid, cdw11| Sqe::set_features(0, 0, fid, false, cdw11);

    assert_eq!(
        ok(host.admin(get(fid::NUMBER_OF_QUEUES, 0))).dw0.get(),
        NumberOfQueues::new(8, 8).0
    );
    let granted = ok(host.admin(set(fid::NUMBER_OF_QUEUES, NumberOfQueues::new(3, 100).0)));
    assert_eq!(granted.dw0.get(), NumberOfQueues::new(3, 8).0);
    refused(host.admin(set(fid::NUMBER_OF_QUEUES, 0xffff)), S::InvalidFieldInCommand);
    let m = host.alloc(4096);
    let cq = host.alloc(4096);
    ok(host.admin(Sqe::create_io_cq(0, 4, 16, cq, None)));
    refused(host.admin(Sqe::create_io_sq(0, 4, 16, m, 4, 0)), S::InvalidQueueIdentifier);
    refused(host.admin(set(fid::NUMBER_OF_QUEUES, 0)), S::CommandSequenceError);

    for (feature, value) in [
        (fid::ARBITRATION, 3),
        (fid::POWER_MANAGEMENT, 0),
        (fid::ERROR_RECOVERY, 5),
        (fid::VOLATILE_WRITE_CACHE, 0),
        (fid::VOLATILE_WRITE_CACHE, 1),
        (fid::INTERRUPT_COALESCING, 0x0102),
        (fid::WRITE_ATOMICITY, 1),
        (fid::ASYNC_EVENT_CONFIG, 2),
    ] {
        let nsid = u32::from(feature == fid::ERROR_RECOVERY);
        ok(host.admin(Sqe::set_features(0, nsid, feature, false, value)));
        assert_eq!(ok(host.admin(get(feature, 0))).dw0.get(), value, "feature {feature:#x}");
    }
    let disabled = InterruptVectorConfig(0).with_iv(2).with_cd(true).0;
    ok(host.admin(set(fid::INTERRUPT_VECTOR_CONFIG, disabled)));
    assert_eq!(ok(host.admin(get(fid::INTERRUPT_VECTOR_CONFIG, 2))).dw0.get(), disabled);
    assert_eq!(ok(host.admin(get(fid::INTERRUPT_VECTOR_CONFIG, 1))).dw0.get(), 1);
    refused(host.admin(get(fid::INTERRUPT_VECTOR_CONFIG, 4)), S::InvalidFieldInCommand);
    assert_eq!(ok(host.admin(get(fid::TEMPERATURE_THRESHOLD, 0))).dw0.get(), 343);

    refused(host.admin(set(fid::POWER_MANAGEMENT, 1)), S::InvalidFieldInCommand);
    refused(host.admin(set(fid::TEMPERATURE_THRESHOLD, 3 << 16)), S::InvalidFieldInCommand);
    refused(host.admin(set(fid::ERROR_RECOVERY, 1)), S::InvalidNamespaceOrFormat);
    refused(
        host.admin(Sqe::set_features(0, 1, fid::ERROR_RECOVERY, false, 1 << 16)),
        S::InvalidFieldInCommand,
    );
    refused(
        host.admin(Sqe::set_features(0, 1, fid::ARBITRATION, false, 0)),
        S::FeatureNotNamespaceSpecific,
    );
    refused(
        host.admin(Sqe::set_features(0, 0, fid::NUMBER_OF_QUEUES, true, 0)),
        S::FeatureIdentifierNotSaveable,
    );
    refused(host.admin(Sqe::get_features(0, 0, fid::ARBITRATION, 4, 0)), S::InvalidFieldInCommand);
    for feature in [0, 3, 0x0c, 0x0e, 0x80, 0xc0] {
        refused(host.admin(get(feature, 0)), S::InvalidFieldInCommand);
        refused(host.admin(set(feature, 0)), S::InvalidFieldInCommand);
    }
    // Values do not outlive a reset.
    host.port.write32(regs::CC, 0);
    host.enable();
    assert_eq!(ok(host.admin(get(fid::INTERRUPT_COALESCING, 0))).dw0.get(), 0);
}

#[test]
fn a_controller_without_a_cache_has_no_such_feature() {
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    refused(
        host.admin(Sqe::get_features(0, 0, fid::VOLATILE_WRITE_CACHE, 0, 0)),
        S::InvalidFieldInCommand,
    );
    refused(
        host.admin(Sqe::set_features(0, 0, fid::VOLATILE_WRITE_CACHE, false, 1)),
        S::InvalidFieldInCommand,
    );
}

#[test]
fn log_pages() {
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    let page = host.alloc(8192);
    let log = |lid, dwords, offset| {
        Sqe::get_log_page(0, NSID_BROADCAST, lid, 0, false, dwords, offset, page, 0)
    };

    // The controller's, by either number (1.4 §5.14.1.2).
    ok(host.admin(Sqe::get_log_page(0, 0, lid::SMART, 0, false, 128, 0, page, 0)));
    ok(host.admin(log(lid::SMART, 128, 0)));
    let smart = SmartLog::read_from_bytes(&host.read(page, 512)).unwrap();
    assert_eq!((smart.critical_warning, smart.composite_temperature.get()), (0, 310));
    ok(host.admin(log(lid::FIRMWARE_SLOT, 128, 0)));
    let slots = FirmwareSlotLog::read_from_bytes(&host.read(page, 512)).unwrap();
    assert_eq!((slots.afi, slots.revision(1)), (1, Some(env!("CARGO_PKG_VERSION"))));

    refused(host.admin(Sqe::new(0x10, 0, 0)), S::InvalidCommandOpcode);
    ok(host.admin(log(lid::ERROR_INFORMATION, 32, 0)));
    let entries = host.read(page, 128);
    let newest = ErrorLogEntry::read_from_bytes(&entries[..64]).unwrap();
    assert!(newest.status().is(S::InvalidCommandOpcode) && newest.error_count.get() == 1);
    assert_eq!(ErrorLogEntry::read_from_bytes(&entries[64..]).unwrap().error_count.get(), 0);
    // A part of a page, at an offset.
    ok(host.admin(log(lid::SMART, 128, 0)));
    let whole = host.read(page, 512);
    ok(host.admin(log(lid::SMART, 4, 32)));
    assert_eq!(host.read(page, 16), whole[32..48]);

    refused(host.admin(log(lid::SMART, 4, 2)), S::InvalidFieldInCommand);
    refused(host.admin(log(lid::SMART, 4, 1024)), S::InvalidFieldInCommand);
    refused(host.admin(log(lid::SMART, 1 << 20, 0)), S::InvalidFieldInCommand);
    refused(host.admin(log(0x0d, 4, 0)), S::InvalidLogPage);
    refused(host.admin(log(0xc0, 4, 0)), S::InvalidLogPage);
    let one = Sqe::get_log_page(0, 1, lid::SMART, 0, false, 4, 0, page, 0);
    refused(host.admin(one), S::InvalidFieldInCommand);
}

#[test]
fn unknown_admin_commands_and_fields() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    for opcode in [0x03, 0x0d, 0x10, 0x7c, 0x84, 0xc0, 0xff] {
        refused(host.admin(Sqe::new(opcode, 0, 0)), S::InvalidCommandOpcode);
    }
    let mut fused = Sqe::abort(0, 0, 1);
    fused.cdw0 = U32::new(fused.cdw0.get() | 1 << 8);
    refused(host.admin(fused), S::InvalidFieldInCommand);
    let mut sgl = Sqe::abort(0, 0, 1);
    sgl.cdw0 = U32::new(sgl.cdw0.get() | 1 << 14);
    refused(host.admin(sgl), S::InvalidFieldInCommand);
    assert_eq!(ssd.counters().refused, 9);
    assert_eq!(ssd.refusals().len(), 9);
}

#[test]
fn asynchronous_events() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    for cid in 100..104 {
        host.submit(0, &Sqe::async_event_request(cid));
    }
    host.run_until_idle();
    assert!(host.poll(0).is_none(), "held");
    refused(host.admin(Sqe::async_event_request(0)), S::AsynchronousEventRequestLimitExceeded);

    // A doorbell value beyond the queue: error event, information 01h, cleared by log 01h.
    host.create_queues(1, 16, None);
    let bell = |v| host.bells.sq_tail(1).unwrap().store(v, std::sync::atomic::Ordering::Release);
    bell(16);
    let event = host.wait(0);
    assert_eq!((event.cid.get(), event.dw0.get()), (100, 0x0001_0100));
    assert_eq!(ssd.counters().bad_doorbells, 1);
    // Masked until the log has been read.
    host.bells.sq_tail(1).unwrap().store(4000, std::sync::atomic::Ordering::Release);
    ssd.clock().advance(1000);
    assert!(host.poll(0).is_none());
    assert_eq!(ssd.counters().bad_doorbells, 2);
    let page = host.alloc(4096);
    let log = |lid, rae| Sqe::get_log_page(0, 0, lid, 0, rae, 16, 0, page, 0);
    ok(host.admin(log(lid::ERROR_INFORMATION, true)));
    ssd.clock().advance(1000);
    assert!(host.poll(0).is_none(), "RAE retains it");
    let cid = host.cid();
    let mut read = log(lid::ERROR_INFORMATION, false);
    read.set_cid(cid);
    host.submit(0, &read);
    let (a, b) = (host.wait(0), host.wait(0));
    let mut cids = [a.cid.get(), b.cid.get()];
    cids.sort_unstable();
    assert_eq!(cids, [cid, 101]);

    // A doorbell of a queue that does not exist: information 00h.
    ok(host.admin(log(lid::ERROR_INFORMATION, false)));
    host.bells.sq_tail(9).unwrap().store(3, std::sync::atomic::Ordering::Release);
    ssd.clock().advance(1000);
    let event = host.wait(0);
    assert_eq!((event.cid.get(), event.dw0.get()), (102, 0x0001_0000));
    assert_eq!(ssd.counters().stray_doorbells, 1);

    // A temperature beyond its threshold, once asked for.
    ok(host.admin(Sqe::set_features(0, 0, fid::TEMPERATURE_THRESHOLD, false, 300)));
    ssd.clock().advance(1000);
    assert!(host.poll(0).is_none(), "not asked for");
    host.submit(0, &Sqe::set_features(55, 0, fid::ASYNC_EVENT_CONFIG, false, 2));
    let (a, b) = (host.wait(0), host.wait(0));
    let event = if a.cid.get() == 103 { a } else { b };
    assert_eq!((event.cid.get(), event.dw0.get()), (103, 0x0002_0101));
    ok(host.admin(log(lid::SMART, false)));
    assert_eq!(host.read(page, 1), [2]);
}

#[test]
fn an_event_request_can_be_aborted() {
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    host.submit(0, &Sqe::async_event_request(9));
    host.submit(0, &Sqe::abort(10, 0, 9));
    let (a, b) = (host.wait(0), host.wait(0));
    assert_eq!((a.cid.get(), b.cid.get()), (9, 10));
    assert!(a.status().is(S::CommandAbortedByRequest));
    assert_eq!(ok(b).dw0.get() & 1, 0);
    assert_eq!(ok(host.admin(Sqe::abort(0, 0, 9))).dw0.get() & 1, 1, "no longer there");
    assert_eq!(ok(host.admin(Sqe::abort(0, 77, 1))).dw0.get() & 1, 1, "no such queue");
}

#[test]
fn reused_admin_identifier() {
    let (ssd, mut host) = stepped(SsdConfig { strict: true, ..config(1 << 20, 512) });
    host.submit(0, &Sqe::async_event_request(9));
    host.submit(0, &Sqe::abort(9, 0, 1));
    refused(host.wait(0), S::CommandIdConflict);
    assert_eq!(ssd.counters().cid_conflicts, 1);
}

#[test]
fn an_event_request_makes_way_for_a_command_of_its_identifier() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.submit(0, &Sqe::async_event_request(9));
    host.submit(0, &Sqe::async_event_request(10));
    host.submit(0, &Sqe::abort(9, 0, 1));
    assert_eq!(ok(host.wait(0)).cid.get(), 9);
    // One request is left, which is told of the event; a second event finds none.
    host.submit(0, &Sqe::async_event_request(10));
    ok(host.admin(Sqe::set_features(0, 0, fid::TEMPERATURE_THRESHOLD, false, 300)));
    host.submit(0, &Sqe::set_features(7, 0, fid::ASYNC_EVENT_CONFIG, false, 2));
    let (a, b) = (ok(host.wait(0)), ok(host.wait(0)));
    assert_eq!((a.cid.get(), a.dw0.get(), b.cid.get()), (10, 0x0002_0101, 7));
    ssd.clock().advance(1_000_000);
    assert!(host.poll(0).is_none(), "the identifier is completed once");
    let counters = ssd.counters();
    assert_eq!((counters.cid_conflicts, counters.refused), (2, 0));
    let refusals = ssd.refusals();
    let told = refusals
        .iter()
        .filter(|refusal| refusal.tolerated)
        .map(|refusal| (refusal.qid, refusal.cid));
    assert_eq!(told.collect::<Vec<_>>(), [(0, Some(9)), (0, Some(10))]);
}

#[test]
fn stuck_admin_commands_never_complete() {
    let mut c = config(1 << 20, 512);
    c.faults = always(Fault::StuckAdmin);
    let (ssd, mut host) = stepped(c);
    host.submit(0, &Sqe::abort(1, 0, 1));
    ssd.clock().advance(1_000_000_000);
    assert!(host.poll(0).is_none());
    assert_eq!(ssd.counters().admin_commands, 1);
}

#[test]
fn unmapping_a_queue_is_fatal() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 16, None);
    host.port.unmap_dma(BASE).unwrap();
    assert!(host.csts().cfs());
    host.submit(1, &Sqe::flush(1, 1));
    ssd.clock().advance(1000);
    assert!(host.poll(1).is_none());
}

/// An SSD whose admin queues have two entries, of which one can be in use.
fn smallest_admin_queue() -> (SteppedSsd, Host) {
    let (ssd, mut host) = fresh();
    host.prepare_admin(2);
    host.port.write32(regs::CC, Host::cc().0);
    host.wait_csts(|csts| csts.rdy());
    (ssd, host)
}

#[test]
fn an_event_never_takes_the_entry_of_the_command_that_caused_it() {
    let (ssd, mut host) = smallest_admin_queue();
    host.submit(0, &Sqe::async_event_request(100));
    host.run_until_idle();
    ok(host.admin(Sqe::set_features(0, 0, fid::TEMPERATURE_THRESHOLD, false, 300)));
    // The command that asks for the event completes first; the event follows when there is room.
    host.submit(0, &Sqe::set_features(7, 0, fid::ASYNC_EVENT_CONFIG, false, 2));
    ssd.clock().advance(1_000_000);
    assert_eq!(ok(host.peek(0).unwrap()).cid.get(), 7);
    ssd.clock().advance(1_000_000);
    assert!(host.peek(0).is_none(), "no room yet");
    host.ring_head(0);
    let event = host.wait(0);
    assert_eq!((event.cid.get(), event.dw0.get()), (100, 0x0002_0101));

    // The same with a stray doorbell, found when its queue is created, and with an Abort of a
    // request.
    host.submit(0, &Sqe::async_event_request(101));
    host.run_until_idle();
    let m = host.alloc(4096);
    host.bells.cq_head(1).unwrap().store(3, std::sync::atomic::Ordering::Release);
    host.submit(0, &Sqe::create_io_cq(8, 1, 16, m, None));
    let (a, b) = (ok(host.wait(0)), ok(host.wait(0)));
    assert_eq!((a.cid.get(), b.cid.get(), b.dw0.get()), (8, 101, 0x0001_0000));
    host.submit(0, &Sqe::async_event_request(102));
    host.run_until_idle();
    assert_eq!(ok(host.admin(Sqe::abort(0, 0, 102))).dw0.get() & 1, 1, "no room to say so");
    // And with an event that reading its log lets out again.
    host.bells.cq_head(2).unwrap().store(3, std::sync::atomic::Ordering::Release);
    ssd.clock().advance(1_000_000);
    assert!(host.peek(0).is_none(), "masked");
    host.submit(0, &Sqe::get_log_page(9, 0, lid::ERROR_INFORMATION, 0, false, 16, 0, m, 0));
    let (a, b) = (ok(host.wait(0)), ok(host.wait(0)));
    assert_eq!((a.cid.get(), b.cid.get(), b.dw0.get()), (9, 102, 0x0001_0000));
}

#[test]
fn identifiers_are_not_said_to_be_unique() {
    // Every SSD has the same serial number unless it is given another.
    let (_ssd, mut host) = stepped(config(1 << 20, 512));
    let page = host.alloc(4096);
    ok(host.admin(Sqe::identify(0, 1, cns::NAMESPACE, 0, page, 0)));
    assert_eq!(IdentifyNamespace::read_from_bytes(&host.read(page, 4096)).unwrap().nsfeat, 0);
}
