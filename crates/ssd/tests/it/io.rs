//! I/O commands and data pointers, rule by rule. Each runs with the `null` model, where plain
//! commands take the short path, and with `optane`, where none does.

use std::sync::atomic::Ordering;

use meantime_nvme_spec::dsm::DsmRange;
use meantime_nvme_spec::features::fid;
use meantime_nvme_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_nvme_spec::status::StatusCode as S;
use meantime_ssd::{
    Fault, FaultPlan, FaultRule, Model, NamespaceConfig, Rng, SsdConfig, SteppedSsd, When,
};
use meantime_testkit::faults::{always, corrupt_reads, ppm, with_statuses};
use meantime_testkit::host::*;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

fn both(test: impl Fn(SteppedSsd, Host)) {
    both_with(config(4 << 20, 512), test);
}

fn both_with(config: SsdConfig, test: impl Fn(SteppedSsd, Host)) {
    for model in ["null", "optane"] {
        let (ssd, mut host) = stepped(SsdConfig {
            model: Model::named(model).unwrap(),
            mdts_bytes: 4 << 20,
            ..config.clone()
        });
        host.create_queues(1, 64, None);
        test(ssd, host);
    }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Writes `data` at `iova` by one write, reads it back to another place.
fn round_trip(
    host: &mut Host,
    lba: u64,
    bytes: usize,
    prp: impl Fn(u64) -> (u64, u64),
    area: u64,
    first: u64,
) {
    let data = pattern(bytes, lba);
    let (prp1, prp2) = prp(area);
    let nlb = (bytes / 512) as u32;
    host.write(area + first, &data);
    ok(host.io(1, Sqe::write(0, 1, lba, nlb, prp1, prp2, false)));
    host.write(area + first, &vec![0xee; bytes]);
    ok(host.io(1, Sqe::read(0, 1, lba, nlb, prp1, prp2)));
    assert_eq!(host.read(area + first, bytes), data);
}

#[test]
fn data_pointers_that_are_right() {
    both(|_ssd, mut host| {
        let area = host.alloc(2 << 20);
        // One block at any dword.
        round_trip(&mut host, 3, 512, |a| (a, 0), area, 0);
        round_trip(&mut host, 3, 512, |a| (a + 1236, 0), area, 1236);
        // Two pieces: PRP2 is the second page.
        round_trip(&mut host, 8, 512, |a| (a + 3840, a + 4096), area, 3840);
        round_trip(&mut host, 8, 4096, |a| (a + 512, a + 4096), area, 512);
        round_trip(&mut host, 8, 8192, |a| (a, a + 4096), area, 0);
        // A list of pages, behind a first page with an offset, at an offset in its own page.
        let list = host.alloc(4096);
        for i in 0..32u64 {
            host.write(list + 1000 + i * 8, &(area + (i + 1) * 4096).to_le_bytes());
        }
        round_trip(&mut host, 100, 65536, |a| (a + 2048, list + 1000), area, 2048);
        round_trip(&mut host, 100, 12288, |a| (a, list + 1000), area, 0);
        // A list that is chained: 1 MiB wants 255 further pages, the first list has room for 10 and
        // a pointer.
        let (first, second) = (host.alloc(4096), host.alloc(4096));
        for i in 0..10u64 {
            host.write(first + 4096 - 88 + i * 8, &(area + (i + 1) * 4096).to_le_bytes());
        }
        host.write(first + 4096 - 8, &second.to_le_bytes());
        for i in 10..255u64 {
            host.write(second + (i - 10) * 8, &(area + (i + 1) * 4096).to_le_bytes());
        }
        round_trip(&mut host, 2048, 1 << 20, |a| (a, first + 4096 - 88), area, 0);
        // The last entry of a list page is data when nothing follows.
        let tail = host.alloc(4096);
        host.write(tail + 4080, &(area + 4096).to_le_bytes());
        host.write(tail + 4088, &(area + 8192).to_le_bytes());
        round_trip(&mut host, 64, 12288, |a| (a, tail + 4080), area, 0);
    });
}

#[test]
fn data_pointers_that_are_wrong() {
    both(|ssd, mut host| {
        let area = host.alloc(64 * 4096);
        let list = host.alloc(4096);
        let read = |nlb, prp1, prp2| Sqe::read(0, 1, 0, nlb, prp1, prp2);
        for offset in [1, 2, 3, 511] {
            refused(host.io(1, read(1, area + offset, 0)), S::PrpOffsetInvalid);
        }
        // PRP2 needed and missing, or with an offset.
        refused(host.io(1, read(8, area + 512, 0)), S::InvalidFieldInCommand);
        refused(host.io(1, read(16, area, 0)), S::InvalidFieldInCommand);
        refused(host.io(1, read(16, area, area + 4096 + 512)), S::PrpOffsetInvalid);
        refused(host.io(1, read(24, area, 0)), S::InvalidFieldInCommand);
        refused(host.io(1, read(24, area, list + 4)), S::PrpOffsetInvalid);
        // The wrong entries of a list are zero, one with an offset, and one that is not mapped.
        host.write(list, &(area + 4096).to_le_bytes());
        refused(host.io(1, read(24, area, list)), S::InvalidFieldInCommand);
        host.write(list + 8, &(area + 8192 + 4).to_le_bytes());
        refused(host.io(1, read(24, area, list)), S::PrpOffsetInvalid);
        host.write(list + 8, &0x7000_0000_0000_u64.to_le_bytes());
        let errors = ssd.counters().dma_errors;
        refused(host.io(1, read(24, area, list)), S::DataTransferError);
        // A chain pointer with an offset.
        host.write(list + 4088, &(area + 8).to_le_bytes());
        refused(host.io(1, read(24, area, list + 4088)), S::PrpOffsetInvalid);
        // The memory is not mapped at all, or only in part, at the arena's end.
        refused(host.io(1, read(1, 0x1000, 0)), S::DataTransferError);
        refused(host.io(1, read(1, u64::MAX - 511, 0)), S::DataTransferError);
        let end = BASE + host.arena.bytes() as u64;
        refused(host.io(1, read(1, end, 0)), S::DataTransferError);
        refused(host.io(1, read(16, end - 4096, end)), S::DataTransferError);
        refused(host.io(1, read(24, area, end)), S::DataTransferError);
        assert_eq!(ssd.counters().dma_errors, errors + 6);
        ok(host.io(1, read(8, area, 0)));
    });
}

#[test]
fn a_refused_write_writes_nothing() {
    both(|_ssd, mut host| {
        let area = host.alloc(4 * 4096);
        let list = host.alloc(4096);
        host.write(list, &(area + 4096).to_le_bytes());
        host.write(area, &[9; 8192]);
        // The second list entry is zero.
        refused(host.io(1, Sqe::write(0, 1, 0, 24, area, list, false)), S::InvalidFieldInCommand);
        ok(host.io(1, Sqe::read(0, 1, 0, 8, area, 0)));
        assert_eq!(host.read(area, 4096), [0; 4096]);
    });
}

#[test]
fn ranges_and_fields() {
    let mut c = config(1 << 20, 512);
    c.namespaces.push(NamespaceConfig { bytes: 1 << 20, lba_bytes: 4096 });
    both_with(c, |ssd, mut host| {
        let area = host.alloc(8192);
        ok(host.io(1, Sqe::read(0, 1, 2047, 1, area, 0)));
        ok(host.io(1, Sqe::read(0, 2, 255, 1, area, 0)));
        for (nsid, slba, nlb) in [
            (1, 2048, 1),
            (1, 2047, 2),
            (1, u64::MAX, 1),
            (1, u64::MAX - 1, 8),
            (2, 256, 1),
            (2, u64::MAX / 4096, 2),
        ] {
            refused(host.io(1, Sqe::read(0, nsid, slba, nlb, area, 0)), S::LbaOutOfRange);
            refused(host.io(1, Sqe::write(0, nsid, slba, nlb, area, 0, false)), S::LbaOutOfRange);
            refused(
                host.io(1, Sqe::write_zeroes(0, nsid, slba, nlb, false, false)),
                S::LbaOutOfRange,
            );
            refused(host.io(1, Sqe::verify(0, nsid, slba, nlb)), S::LbaOutOfRange);
        }
        for nsid in [0, 3, 1000, NSID_BROADCAST] {
            refused(host.io(1, Sqe::read(0, nsid, 0, 1, area, 0)), S::InvalidNamespaceOrFormat);
        }
        refused(host.io(1, Sqe::flush(0, 3)), S::InvalidNamespaceOrFormat);
        ok(host.io(1, Sqe::flush(0, 1)));
        ok(host.io(1, Sqe::flush(0, NSID_BROADCAST)));
        // FUSE has its reserved value, or half a pair; then PSDT is wrong.
        for (bits, code) in [
            (3 << 8, S::InvalidFieldInCommand),
            (1 << 8, S::CommandAbortedMissingFused),
            (2 << 8, S::CommandAbortedMissingFused),
            (1 << 15, S::InvalidFieldInCommand),
        ] {
            let mut sqe = Sqe::read(0, 1, 0, 1, area, 0);
            sqe.cdw0 = U32::new(sqe.cdw0.get() | bits);
            refused(host.io(1, sqe), code);
        }
        for opcode in [0x03, 0x0d, 0x19, 0x80, 0xff] {
            refused(host.io(1, Sqe::new(opcode, 0, 1)), S::InvalidCommandOpcode);
        }
        assert!(ssd.counters().refused > 30);
    });
}

#[test]
fn mdts() {
    let c = SsdConfig { mdts_bytes: 8192, ..config(1 << 20, 512) };
    for model in ["null", "optane"] {
        let (_ssd, mut host) =
            stepped(SsdConfig { model: Model::named(model).unwrap(), ..c.clone() });
        host.create_queues(1, 16, None);
        let area = host.alloc(4 * 4096);
        ok(host.io(1, Sqe::read(0, 1, 0, 16, area, area + 4096)));
        refused(host.io(1, Sqe::read(0, 1, 0, 17, area, area + 4096)), S::InvalidFieldInCommand);
        // Nothing is transferred by these.
        ok(host.io(1, Sqe::write_zeroes(0, 1, 0, 64, false, false)));
        ok(host.io(1, Sqe::verify(0, 1, 0, 64)));
    }
}

#[test]
fn compare_zeroes_and_deallocate() {
    both(|_ssd, mut host| {
        let area = host.alloc(8192);
        let ranges = host.alloc(4096);
        let data = pattern(4096, 5);
        host.write(area, &data);
        ok(host.io(1, Sqe::write(0, 1, 16, 8, area, 0, false)));
        ok(host.io(1, Sqe::compare(0, 1, 16, 8, area, 0)));
        host.write(area + 4095, &[data[4095] ^ 1]);
        refused(host.io(1, Sqe::compare(0, 1, 16, 8, area, 0)), S::CompareFailure);

        ok(host.io(1, Sqe::write_zeroes(0, 1, 17, 2, true, false)));
        ok(host.io(1, Sqe::read(0, 1, 16, 8, area, 0)));
        let found = host.read(area, 4096);
        assert_eq!(found[..512], data[..512]);
        assert_eq!(found[512..1536], [0; 1024]);
        assert_eq!(found[1536..], data[1536..]);

        let list = [DsmRange::new(16, 1), DsmRange::new(0, 0), DsmRange::new(23, 1)];
        host.write(ranges, list.as_bytes());
        ok(host.io(1, Sqe::dsm_deallocate(0, 1, 3, ranges, 0)));
        ok(host.io(1, Sqe::read(0, 1, 16, 8, area, 0)));
        let found = host.read(area, 4096);
        assert_eq!(found[..1536], [0; 1536]);
        assert_eq!(found[1536..3584], data[1536..3584]);
        assert_eq!(found[3584..], [0; 512]);

        // If one of the ranges is bad, nothing is deallocated.
        let list = [DsmRange::new(20, 1), DsmRange::new(8191, 2)];
        host.write(ranges, list.as_bytes());
        refused(host.io(1, Sqe::dsm_deallocate(0, 1, 2, ranges, 0)), S::LbaOutOfRange);
        // Without the attribute the command is only advice.
        let mut advice = Sqe::dsm_deallocate(0, 1, 1, ranges, 0);
        advice.cdw11 = U32::new(0);
        ok(host.io(1, advice));
        ok(host.io(1, Sqe::read(0, 1, 20, 1, area, 0)));
        assert_eq!(host.read(area, 512), data[2048..2560]);
    });
}

#[test]
fn deallocating_everything_gives_memory_back_and_reads_zero() {
    both(|_ssd, mut host| {
        let area = host.alloc(4096);
        let ranges = host.alloc(4096);
        host.write(area, &[1; 512]);
        for lba in [0, 5000, 8191] {
            ok(host.io(1, Sqe::write(0, 1, lba, 1, area, 0, false)));
        }
        host.write(ranges, DsmRange::new(1, 8191).as_bytes());
        ok(host.io(1, Sqe::dsm_deallocate(0, 1, 1, ranges, 0)));
        for (lba, byte) in [(0, 1), (5000, 0), (8191, 0)] {
            ok(host.io(1, Sqe::read(0, 1, lba, 1, area, 0)));
            assert_eq!(host.read(area, 512), [byte; 512]);
        }
    });
}

#[test]
fn reused_identifiers() {
    // Within one batch.
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    for cid in [1, 2, 1, 3] {
        host.put(1, &Sqe::read(cid, 1, 0, 1, area, 0));
    }
    host.ring(1);
    let found: Vec<_> =
        (0..4).map(|_| host.wait(1)).map(|c| (c.cid.get(), c.status().is_success())).collect();
    assert_eq!(found, [(1, true), (2, true), (1, false), (3, true)]);
    assert_eq!(ssd.counters().cid_conflicts, 1);
    // While one is pending.
    let (ssd, mut host) =
        stepped(SsdConfig { model: Model::named("nand").unwrap(), ..config(1 << 20, 512) });
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    host.submit(1, &Sqe::read(7, 1, 0, 1, area, 0));
    host.run_until_idle();
    host.submit(1, &Sqe::read(7, 1, 0, 1, area, 0));
    refused(host.wait(1), S::CommandIdConflict);
    assert_eq!(ok(host.wait(1)).cid.get(), 7);
    assert_eq!(ssd.counters().cid_conflicts, 1);
    // Free again.
    host.submit(1, &Sqe::read(7, 1, 0, 1, area, 0));
    ok(host.wait(1));
}

#[test]
fn a_full_completion_queue_holds_commands_back() {
    both(|ssd, mut host| {
        // Eight completion entries for sixty-four submission entries.
        let (sq, cq) = (host.alloc(4096), host.alloc(4096));
        ok(host.admin(Sqe::create_io_cq(0, 2, 8, cq, None)));
        ok(host.admin(Sqe::create_io_sq(0, 2, 64, sq, 2, 0)));
        let (sq_entries, cq_entries) = (64, 8);
        host.queues.push(Queue {
            qid: 2,
            sq_iova: sq,
            cq_iova: cq,
            sq_entries,
            cq_entries,
            tail: 0,
            head: 0,
            phase: true,
        });
        let area = host.alloc(4096);
        for cid in 0..40 {
            host.put(2, &Sqe::read(cid, 1, 0, 1, area, 0));
        }
        host.ring(2);
        let mut next = 0;
        while next < 40 {
            ssd.clock().advance(1_000_000);
            let mut batch = 0;
            while let Some(cqe) = host.peek(2) {
                assert!(cqe.sqhd.get() <= next + 7, "fetched no more than it can complete");
                assert!(cqe.status().is_success());
                next += 1;
                batch += 1;
            }
            assert!(batch == 7 || next == 40, "{batch} completions into a queue of eight");
            ssd.clock().advance(1_000_000);
            assert!(host.peek(2).is_none());
            host.ring_head(2);
        }
    });
}

#[test]
fn bad_doorbells_are_not_followed() {
    both(|ssd, mut host| {
        let area = host.alloc(4096);
        for value in [64, 65, 0xffff, u32::MAX] {
            host.bells.sq_tail(1).unwrap().store(value, Ordering::Release);
            ssd.clock().advance(10_000);
            assert!(host.poll(1).is_none());
        }
        assert_eq!(ssd.counters().bad_doorbells, 4);
        ok(host.io(1, Sqe::read(0, 1, 0, 1, area, 0)));
        // A head beyond the queue, and one beyond what was written.
        for (n, value) in [(5, 64), (6, 3)] {
            host.bells.cq_head(1).unwrap().store(value, Ordering::Release);
            ssd.clock().advance(10_000);
            assert_eq!(ssd.counters().bad_doorbells, n);
        }
        host.ring_head(1);
        ok(host.io(1, Sqe::read(0, 1, 0, 1, area, 0)));
        assert_eq!(ssd.counters().bad_doorbells, 6);
        // This write is a register call.
        host.port.write32(0x1000 + 64 * 500, 1);
        assert_eq!(ssd.counters().stray_doorbells, 1);
    });
}

#[test]
fn several_queues_take_turns() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    ok(host.admin(Sqe::set_features(0, 0, fid::ARBITRATION, false, 1)));
    let area = host.alloc(4096);
    for qid in 1..=3 {
        host.create_queues(qid, 64, None);
        for cid in 0..20 {
            host.put(qid, &Sqe::read(cid, 1, 0, 1, area, 0));
        }
    }
    for qid in 1..=3 {
        host.ring(qid);
    }
    // A burst of 2^1 each per turn.
    for turn in 1..=5 {
        ssd.clock().now_ns();
        for qid in 1..=3u16 {
            let q = host.queue(qid);
            let at = (q.cq_iova - BASE) as usize;
            let written = (0..64)
                .take_while(|i| host.arena.word(at + i * 16 + 8).load(Ordering::Relaxed) != 0)
                .count();
            assert_eq!(written, turn * 2, "queue {qid}, turn {turn}");
        }
    }
}

#[test]
fn abort_takes_a_pending_command_out() {
    let (_ssd, mut host) =
        stepped(SsdConfig { model: Model::named("nand").unwrap(), ..config(1 << 20, 512) });
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    for cid in 20..23 {
        host.submit(1, &Sqe::read(cid, 1, 0, 1, area, 0));
    }
    host.run_until_idle();
    assert!(host.poll(1).is_none());
    assert_eq!(ok(host.admin(Sqe::abort(0, 1, 21))).dw0.get() & 1, 0);
    let aborted = host.poll(1).unwrap();
    assert_eq!(aborted.cid.get(), 21);
    assert!(aborted.status().is(S::CommandAbortedByRequest));
    assert_eq!(ok(host.admin(Sqe::abort(0, 1, 21))).dw0.get() & 1, 1);
    assert_eq!((ok(host.wait(1)).cid.get(), ok(host.wait(1)).cid.get()), (20, 22));
    assert_eq!(ok(host.admin(Sqe::abort(0, 1, 20))).dw0.get() & 1, 1);
}

#[test]
fn deleting_a_queue_aborts_what_is_pending() {
    let (ssd, mut host) =
        stepped(SsdConfig { model: Model::named("nand").unwrap(), ..config(1 << 20, 512) });
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    for cid in 20..25 {
        host.submit(1, &Sqe::read(cid, 1, 0, 1, area, 0));
    }
    host.run_until_idle();
    ok(host.admin(Sqe::delete_io_sq(0, 1)));
    for cid in 20..25 {
        let cqe = host.poll(1).unwrap();
        assert_eq!(cqe.cid.get(), cid);
        assert!(cqe.status().is(S::CommandAbortedSqDeletion));
    }
    ssd.clock().advance(1_000_000_000);
    assert!(host.poll(1).is_none());
    ok(host.admin(Sqe::delete_io_cq(0, 1)));
}

#[test]
fn taking_memory_away_fails_what_is_in_flight_to_it() {
    let (ssd, mut host) =
        stepped(SsdConfig { model: Model::named("nand").unwrap(), ..config(1 << 20, 512) });
    host.create_queues(1, 16, None);
    let other = Arena::new(8192);
    host.port.map_dma(Arena::region(&other, 0x9000_0000)).unwrap();
    let area = host.alloc(4096);
    host.submit(1, &Sqe::read(1, 1, 0, 1, 0x9000_0000, 0));
    host.submit(1, &Sqe::read(2, 1, 0, 1, area, 0));
    host.run_until_idle();
    host.port.unmap_dma(0x9000_0000).unwrap();
    let (a, b) = (host.wait(1), host.wait(1));
    let (lost, kept) = if a.cid.get() == 1 { (a, b) } else { (b, a) };
    refused(lost, S::DataTransferError);
    ok(kept);
    assert_eq!(ssd.counters().dma_errors, 1);
    refused(host.io(1, Sqe::read(0, 1, 0, 1, 0x9000_0000, 0)), S::DataTransferError);
}

#[test]
fn faults() {
    let plan = with_statuses(FaultPlan::NONE, 110_000)
        .with(ppm(Fault::LostCompletion, 10_000))
        .with(ppm(Fault::LateCompletion(1_000_000), 50_000))
        .with(ppm(Fault::StrayCqe, 20_000))
        .with(ppm(Fault::DuplicateCqe, 20_000))
        .with(corrupt_reads(20_000));
    let (ssd, mut host) = stepped(SsdConfig { faults: plan, ..config(1 << 20, 512) });
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    let (mut errors, mut successes, mut cqes, mut retryable) = (0, 0, 0, 0);
    for cid in 0..5000 {
        host.submit(1, &Sqe::read(cid, 1, 0, 1, area, 0));
        ssd.clock().advance(2_000_000);
        while let Some(cqe) = host.poll(1) {
            cqes += 1;
            if cqe.cid.get() != cid {
                continue;
            }
            if cqe.status().is_success() {
                successes += 1;
            } else {
                errors += 1;
                retryable += u32::from(!cqe.status().dnr());
            }
        }
    }
    let c = ssd.counters();
    assert!((400..600).contains(&c.injected_errors), "{c:?}");
    assert!((25..90).contains(&c.injected_losses), "{c:?}");
    assert!((170..340).contains(&c.injected_late), "{c:?}");
    assert!((130..280).contains(&c.injected_strays), "{c:?}");
    assert!((50..160).contains(&c.injected_corruptions), "{c:?}");
    assert_eq!(cqes, 5000 - c.injected_losses + c.injected_strays);
    assert!(errors > 400 && retryable > 100 && retryable < errors && successes > 4000);

    // A lost command stays outstanding until its queue is deleted.
    ssd.set_faults(always(Fault::LostCompletion));
    host.submit(1, &Sqe::read(6000, 1, 0, 1, area, 0));
    ssd.clock().advance(1_000_000_000);
    assert!(host.poll(1).is_none());
    assert_eq!(ok(host.admin(Sqe::abort(0, 1, 6000))).dw0.get() & 1, 1);
    ssd.set_faults(FaultPlan::NONE);
    host.submit(1, &Sqe::read(6000, 1, 0, 1, area, 0));
    refused(host.wait(1), S::CommandIdConflict);
    ok(host.admin(Sqe::delete_io_sq(0, 1)));
    ok(host.admin(Sqe::delete_io_cq(0, 1)));
    host.queues.pop();
    host.create_queues(1, 64, None);
    host.submit(1, &Sqe::read(6000, 1, 0, 1, area, 0));
    ok(host.wait(1));

    let third = When { from: 3, ..When::ALWAYS };
    ssd.set_faults(FaultPlan::only(FaultRule::new(Fault::FatalStatus, third)));
    for cid in 0..3 {
        host.submit(1, &Sqe::read(cid, 1, 0, 1, area, 0));
        host.run_until_idle();
    }
    assert!(host.csts().cfs());
    assert!(host.poll(1).is_some() && host.poll(1).is_some() && host.poll(1).is_none());
}

#[test]
fn the_models_time_is_what_the_host_sees() {
    for (model, bytes, low, high) in [
        ("fast12", 4096, 2900, 3000),
        ("fast12", 512, 1500, 1600),
        ("dram-nvme", 512, 2600, 2700),
        ("optane", 4096, 6800, 7800),
    ] {
        let (ssd, mut host) =
            stepped(SsdConfig { model: Model::named(model).unwrap(), ..config(1 << 20, 512) });
        host.create_queues(1, 64, None);
        ssd.set_tick_ns(10);
        let area = host.alloc(4096);
        for _ in 0..10 {
            ssd.clock().advance(100_000);
            let start = ssd.peek_ns();
            ok(host.io(1, Sqe::read(0, 1, 0, bytes / 512, area, 0)));
            let took = ssd.peek_ns() - start;
            assert!((low..=high).contains(&took), "{model}: {took} ns");
        }
    }
}
