//! More bytes typed by hand from the specification's tables: SGLs, shadow doorbells, the controller
//! memory buffer, arbitration, power states, Host Behavior Support, the error log.

use meantime_nvme_spec::dbbuf;
use meantime_nvme_spec::features::{ApstEntry, ApstTable, Arbitration, HostBehaviorSupport};
use meantime_nvme_spec::identify::{IdentifyController, PowerStateDescriptor};
use meantime_nvme_spec::log::ErrorLogEntry;
use meantime_nvme_spec::regs;
use meantime_nvme_spec::sgl::{SglDescriptor, SglKind, psdt};
use meantime_nvme_spec::sqe::{Sqe, qprio};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

#[test]
fn sgl_descriptors() {
    // Base 1.4 §4.4: address 7:0, length 11:8, reserved 14:12, identifier 15 (type in its upper
    // half).
    let block = SglDescriptor::data_block(0x1122_3344_5566_7788, 0x0001_0203);
    assert_eq!(
        block.as_bytes(),
        [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x03, 0x02, 0x01, 0, 0, 0, 0, 0x00]
    );
    assert_eq!((block.kind(), block.sub_type()), (Ok(SglKind::DataBlock), 0));
    let segment = SglDescriptor::segment(0x1000, 3);
    assert_eq!(segment.as_bytes(), [0, 0x10, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0x20]);
    assert_eq!(
        SglDescriptor::last_segment(0x1000, 256).as_bytes()[8..],
        [0, 0x10, 0, 0, 0, 0, 0, 0x30]
    );
    let of = |identifier| {
        let mut d = SglDescriptor::data_block(0, 0);
        d.identifier = identifier;
        (d.kind().ok(), d.sub_type())
    };
    assert_eq!(of(0x40), (Some(SglKind::KeyedDataBlock), 0));
    assert_eq!(of(0x5a), (Some(SglKind::TransportDataBlock), 0xa));
    assert_eq!(of(0xf1), (Some(SglKind::VendorSpecific), 1));
    assert_eq!(of(0x61), (None, 1));
}

#[test]
fn a_command_with_an_sgl() {
    // PSDT 01b is CDW0 15:14, hence byte 1 = 40h; SGL1 fills bytes 24 to 39.
    let sqe = Sqe::read(7, 1, 0, 8, 0, 0).with_sgl(SglDescriptor::last_segment(0x12_3456_7000, 2));
    let bytes = sqe.as_bytes();
    assert_eq!(bytes[..4], [0x02, 0x40, 7, 0]);
    assert_eq!(bytes[24..40], [0, 0x70, 0x56, 0x34, 0x12, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0x30]);
    assert_eq!((sqe.psdt(), sqe.cid()), (psdt::SGL, 7));
    assert_eq!(sqe.sgl1(), SglDescriptor::last_segment(0x12_3456_7000, 2));
}

#[test]
fn shadow_doorbells_lie_as_registers_do() {
    // Base 1.4 §5.7: entry n at n × (4 << DSTRD), SQ0 tail, CQ0 head, SQ1 tail, …
    assert_eq!((dbbuf::sq_tail_offset(0, 0), dbbuf::cq_head_offset(0, 0)), (0, 4));
    assert_eq!((dbbuf::sq_tail_offset(1, 0), dbbuf::cq_head_offset(1, 0)), (8, 0xc));
    assert_eq!((dbbuf::sq_tail_offset(3, 4), dbbuf::cq_head_offset(3, 4)), (0x180, 0x1c0));
    assert_eq!([0, 4, 5, 8, 9, 15].map(dbbuf::queues_per_page), [512, 32, 16, 2, 1, 0]);
    for (qid, dstrd) in [(0, 0), (5, 4), (15, 5)] {
        assert_eq!(
            dbbuf::sq_tail_offset(qid, dstrd) as u32 + 0x1000,
            regs::sq_tail_doorbell(qid, dstrd),
            "{qid}"
        );
        assert_eq!(
            dbbuf::cq_head_offset(qid, dstrd) as u32 + 0x1000,
            regs::cq_head_doorbell(qid, dstrd)
        );
    }
}

#[test]
fn the_register_is_rung_when_the_event_index_is_passed() {
    use dbbuf::must_ring;
    // (event index, new, old)
    assert!(must_ring(4, 5, 4), "the controller knows of 4 and sleeps");
    assert!(must_ring(4, 9, 4));
    assert!(must_ring(6, 9, 4), "passed on the way");
    assert!(!must_ring(9, 9, 4), "reached is not passed");
    assert!(!must_ring(3, 9, 4), "passed before");
    assert!(!must_ring(0xffff, 9, 4), "a controller that polls");
    assert!(must_ring(0xffff, 0, 31), "and is told once around");
    assert!(must_ring(31, 0, 31), "asleep at the last entry");
    assert!(must_ring(0, 1, 0) && must_ring(7, 8, 7) && must_ring(7, 0, 7) && must_ring(9, 2, 8));
    assert!(!must_ring(7, 7, 5) && !must_ring(3, 3, 3) && !must_ring(9, 8, 7));
    assert!(must_ring(30, 2, 30));
    assert!(must_ring(31, 2, 30));
    assert!(must_ring(0xffff, 0, 0xffff), "a queue of 65536");
    // If the event index is the value the controller saw last, every other value is announced.
    for (old, new) in (0..64).flat_map(|old| (0..64).map(move |new| (old, new))) {
        assert_eq!(must_ring(old, new, old), old != new);
    }
}

#[test]
fn arbitration() {
    // 1.4 §5.21.1.1: HPW 31:24, MPW 23:16, LPW 15:8, AB 2:0.
    let value = Arbitration(0x0703_0102);
    assert_eq!((value.burst(), value.weights()), (Some(4), [8, 4, 2]));
    assert_eq!((Arbitration(7).burst(), Arbitration(7).weights()), (None, [1, 1, 1]));
    assert_eq!(
        Sqe::create_io_sq(0, 1, 2, 0, 1, qprio::LOW).cdw11.get(),
        0x1_0007,
        "QPRIO is CDW11 2:1"
    );
    assert_eq!((qprio::URGENT, qprio::HIGH, qprio::MEDIUM), (0, 1, 2));
    assert_eq!((regs::ams::WEIGHTED_ROUND_ROBIN, regs::CAP_AMS_WEIGHTED_ROUND_ROBIN), (1, 1));
}

#[test]
fn host_behavior_support() {
    let data = HostBehaviorSupport::new(true);
    assert_eq!(data.as_bytes().len(), 512);
    assert_eq!(data.as_bytes()[0], 1);
    assert!(data.as_bytes()[1..].iter().all(|&b| b == 0));
    assert_eq!(HostBehaviorSupport::default().acre, 0);
}

#[test]
fn retry_delays() {
    // CRDT1 at bytes 129:128.
    let mut bytes = [0; 4096];
    bytes[128..134].copy_from_slice(&[1, 0, 0x0a, 0, 0x2c, 0x01]);
    let controller = IdentifyController::read_from_bytes(&bytes).expect("4096 bytes");
    let IdentifyController { crdt1, crdt2, crdt3, .. } = controller;
    assert_eq!([crdt1, crdt2, crdt3].map(|delay| delay.get()), [1, 10, 300]);
}

#[test]
fn power_states() {
    // MP 1:0, flags 3 (NOPS bit 1), ENLAT 7:4, EXLAT 11:8.
    let state = PowerStateDescriptor::new(0x1234, 5, 0x0708, true);
    assert_eq!(state.as_bytes()[..12], [0x34, 0x12, 0, 2, 5, 0, 0, 0, 8, 7, 0, 0]);
    assert!(state.non_operational());
    let mut controller = IdentifyController::new_zeroed();
    controller.npss = 200;
    assert_eq!(controller.power_states().count(), 32, "no more than there is room for");
    controller.npss = 2;
    assert_eq!(controller.power_states().count(), 3);
    // 1.4 §5.21.1.12: ITPS 7:3, ITPT 31:8, eight bytes each.
    let mut table = ApstTable::default();
    table.entries[1] = ApstEntry::new(3, 0x01_0203);
    assert_eq!(table.as_bytes()[8..16], [0x18, 3, 2, 1, 0, 0, 0, 0]);
}

#[test]
fn error_log_locations() {
    // 15:11 reserved, 10:8 bit, 7:0 byte.
    assert_eq!(ErrorLogEntry::location(40, 3), 0x0328);
    let mut entry = ErrorLogEntry::default();
    entry.parameter_error_location.set(0x0328);
    assert_eq!(entry.as_bytes()[14..16], [0x28, 3]);
    assert_eq!(entry.parameter(), Some((40, 3)));
    entry.parameter_error_location.set(ErrorLogEntry::NO_LOCATION);
    assert_eq!(entry.parameter(), None);
}
