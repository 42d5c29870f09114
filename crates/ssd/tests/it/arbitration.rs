//! Exact tests of the arbitration between queues, in virtual time.

use meantime_nvme_spec::features::{Arbitration, fid};
use meantime_nvme_spec::regs::{self, Cap, ams};
use meantime_nvme_spec::sgl::SglDescriptor;
use meantime_nvme_spec::sqe::{Sqe, qprio};
use meantime_ssd::{Medium, Model, SsdConfig, SteppedSsd};
use meantime_testkit::host::*;

const US: u64 = 1_000;

/// One unit, which takes 10 µs for 4 KiB and 80 µs for 128 KiB, and at most `inside` commands in
/// the device.
fn model(inside: u32) -> Model {
    let text = format!(
        "name = \"one\"\nsource = \"a test\"\nchannels = 1\ninside = {inside}\n\
         read = [[4096, 10000], [131072, 80000]]\nwrite = [[4096, 10000]]"
    );
    Model::parse(&text).unwrap()
}

fn rig(model: Model, weighted: bool) -> (SteppedSsd, Host) {
    let mut c: SsdConfig = config(1 << 20, 4096);
    (c.model, c.stamps) = (model, true);
    let ssd = SteppedSsd::new(c, Medium::dram(1 << 20).unwrap(), 1).unwrap();
    let mut host = Host::new(ssd.port());
    assert_eq!(Cap(host.port.read64(regs::CAP)).ams(), 1);
    host.prepare_admin(32);
    let mechanism = if weighted { ams::WEIGHTED_ROUND_ROBIN } else { ams::ROUND_ROBIN };
    host.port.write32(regs::CC, Host::cc().with_ams(mechanism).0);
    host.wait_csts(|csts| csts.rdy());
    (ssd, host)
}

fn arbitrate(host: &mut Host, value: Arbitration) {
    ok(host.admin(Sqe::set_features(0, 0, fid::ARBITRATION, false, value.0)));
}

/// The device time of a single 4 KiB read on an urgent queue that comes 1 µs after 32 reads of 128
/// KiB on each of `bulk` low queues.
fn beside_bulk(inside: u32, weighted: bool, burst: u8, bulk: u16) -> u64 {
    let (ssd, mut host) = rig(model(inside), weighted);
    arbitrate(&mut host, Arbitration(0).with_ab(burst).with_hpw(7).with_mpw(3));
    let area = host.alloc(1 << 17);
    for qid in 1..=bulk {
        host.create_queues_of(qid, 64, qprio::LOW);
        for cid in 0..32 {
            host.put(
                qid,
                &Sqe::read(cid, 1, 0, 32, 0, 0).with_sgl(SglDescriptor::data_block(area, 1 << 17)),
            );
        }
    }
    let urgent = bulk + 1;
    host.create_queues_of(urgent, 64, qprio::URGENT);
    for qid in 1..=bulk {
        host.ring(qid);
    }
    host.run_until_idle();
    ssd.clock().advance(US);
    let begun = ssd.peek_ns();
    host.submit(urgent, &Sqe::read(1, 1, 0, 1, area, 0));
    let stamps = ssd.stamps().unwrap();
    let mut seen = 0;
    loop {
        ssd.clock().advance(US);
        while seen < stamps.written() {
            let stamp = stamps.get(seen).unwrap();
            if stamp.qid == urgent {
                return stamp.written_ns - begun;
            }
            seen += 1;
        }
        assert!(ssd.peek_ns() - begun < 100_000 * US);
    }
}

#[test]
fn an_urgent_read_beside_bulk_waits_for_one_command_instead_of_all() {
    const NO_LIMIT: u8 = Arbitration::NO_LIMIT;
    // The bulk read in service ends at 80 µs, 79 µs after the single read came. The single read
    // then takes 10.
    assert_eq!(beside_bulk(1, true, NO_LIMIT, 1), 89 * US);
    assert_eq!(beside_bulk(1, true, NO_LIMIT, 4), 89 * US);
    // By round robin without a limit on bursts all 32 come first. By turns of one, one of each
    // queue comes first.
    assert_eq!(beside_bulk(1, false, NO_LIMIT, 1), (32 * 80 - 1 + 10) * US);
    assert_eq!(beside_bulk(1, false, 0, 1), 89 * US);
    assert_eq!(beside_bulk(1, false, 0, 4), (4 * 80 - 1 + 10) * US);
    assert_eq!(beside_bulk(1, false, 2, 4), (4 * 4 * 80 - 1 + 10) * US, "bursts of 2^2");
    // A device that takes everything leaves nothing to arbitrate.
    assert_eq!(beside_bulk(0, true, NO_LIMIT, 1), (32 * 80 - 1 + 10) * US);
    // Four commands are inside and served in order, so the three behind the first come before, too.
    assert_eq!(beside_bulk(4, true, NO_LIMIT, 1), (4 * 80 - 1 + 10) * US);
}

/// The queues in the order their commands were served.
fn order(weighted: bool, value: Arbitration, queues: &[(u16, u8)], each: u16) -> Vec<u16> {
    let (ssd, mut host) = rig(model(1), weighted);
    arbitrate(&mut host, value);
    let area = host.alloc(4096);
    for &(qid, class) in queues {
        host.create_queues_of(qid, 64, class);
        for cid in 0..each {
            host.put(qid, &Sqe::read(cid, 1, 0, 1, area, 0));
        }
    }
    for &(qid, _) in queues {
        host.ring(qid);
    }
    ssd.clock().advance(10_000 * US);
    let stamps = ssd.stamps().unwrap();
    assert_eq!(stamps.written(), u64::from(each) * queues.len() as u64, "nobody starves for ever");
    (0..stamps.written()).map(|i| stamps.get(i).unwrap().qid).collect()
}

#[test]
fn classes_take_turns_by_weight_and_urgent_comes_first() {
    let queues = [
        (1, qprio::LOW),
        (2, qprio::MEDIUM),
        (3, qprio::HIGH),
        (4, qprio::URGENT),
        (5, qprio::URGENT),
    ];
    // Weights 3, 2 and 1; bursts of one: the urgent ones alternate, then rounds of 3, 2, 1 until a
    // class has nothing left.
    let value = Arbitration(0).with_hpw(2).with_mpw(1).with_lpw(0).with_ab(0);
    let served = order(true, value, &queues, 6);
    assert_eq!(served[..12], [4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5]);
    assert_eq!(served[12..24], [3, 3, 3, 2, 2, 1, 3, 3, 3, 2, 2, 1]);
    assert_eq!(served[24..], [2, 2, 1, 1, 1, 1]);
    // Bursts bound what one queue takes of its class's turn.
    let value = Arbitration(0).with_hpw(3).with_ab(1);
    let two = [(1, qprio::HIGH), (2, qprio::HIGH), (3, qprio::LOW)];
    assert_eq!(order(true, value, &two, 4), [1, 1, 2, 2, 3, 1, 1, 2, 2, 3, 3, 3]);
    // Without weighted round robin QPRIO has no effect.
    let value = Arbitration(0).with_hpw(2).with_ab(1);
    assert_eq!(order(false, value, &queues[..3], 4), [1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn weighted_round_robin_on_a_device_without_a_model() {
    let mut c = config(1 << 20, 512);
    c.max_io_queues = 4;
    let ssd = SteppedSsd::new(c, Medium::dram(1 << 20).unwrap(), 1).unwrap();
    let mut host = Host::new(ssd.port());
    for weighted in [1, 0, 1] {
        host.prepare_admin(32);
        host.port.write32(regs::CC, Host::cc().with_ams(weighted).0);
        host.wait_csts(|csts| csts.rdy());
        let area = host.alloc(4096);
        for qid in 1..=4 {
            host.create_queues_of(qid, 64, qid as u8 - 1);
            for cid in 0..50 {
                host.put(
                    qid,
                    &Sqe::write(cid, 1, u64::from(qid) * 64 + u64::from(cid), 1, area, 0, false),
                );
            }
            host.ring(qid);
        }
        host.run_until_idle();
        for qid in 1..=4 {
            for cid in 0..50 {
                assert_eq!(ok(host.wait(qid)).cid.get(), cid);
            }
        }
        host.port.write32(regs::CC, 0);
    }
}
