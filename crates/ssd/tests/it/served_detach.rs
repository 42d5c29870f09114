//! Hosts that go away as others' do: they end their event requests on their own side and use the
//! identifiers again, and free the memory of queues whether those could be deleted or not.

use std::time::{Duration, Instant};

use meantime_ssd::served::Event;
use meantime_ssd::{Model, SsdConfig};
use meantime_testkit::by_hand::*;
use meantime_testkit::served::Rig;
use meantime_testkit::wire;

/// The maximum time of any wait.
const LONGEST: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 1_000;
const INVALID_QUEUE: u16 = 0x101;
const CID_CONFLICT: u16 = 0x003;
const CFS: u32 = 2;

fn attach(rig: &Rig) -> Host {
    let mut host = in_time("attach", || Host::with_regions(rig.client()));
    in_time("enable", || host.enable());
    host
}

/// A model whose reads and writes take `ns`.
fn taking(ns: u64) -> Model {
    Model { channels: 4, read: vec![(4096, ns)], write: vec![(4096, ns)], ..Model::null() }
}

/// Returns what `action` returns. It must not take longer than [`LONGEST`].
#[track_caller]
fn in_time<T>(what: &str, action: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = action();
    assert!(start.elapsed() < LONGEST, "{what} took {:?}", start.elapsed());
    done
}

/// Submits `n` event requests, and returns their identifiers.
fn ask_for_events(host: &mut Host, n: usize) -> Vec<u16> {
    let cids = (0..n).map(|_| {
        let sqe = host.command(0x0c, 0, 0);
        host.put(0, &sqe);
        u16_at(&sqe, 2)
    });
    let cids = cids.collect();
    host.ring(0);
    cids
}

/// Deletes I/O queue 1 of a kind (0: submission, 4: completion) by a command with this identifier,
/// or a fresh one.
fn delete(host: &mut Host, opcode: u8, cid: Option<u16>) -> u16 {
    let mut sqe = host.command(opcode, 0, 0);
    if let Some(cid) = cid {
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    }
    sqe[40] = 1;
    in_time("a deletion", || host.run(0, sqe))
}

fn unmap_queues(host: &mut Host) {
    let answer = in_time("unmapping", || host.client.unmap(IO_QUEUES.0, IO_QUEUES.1));
    assert_eq!(answer.error, 0);
}

/// Requests a shutdown and waits until it is complete. Then disables the controller and frees all
/// memory.
fn shut_down(host: &mut Host) {
    host.client.write(0, 0x14, &wire![0x0046_4001u32]);
    in_time("shutdown", || while host.csts() >> 2 & 3 != 2 {});
    host.client.write(0, 0x14, &wire![0x0046_0000u32]);
    in_time("disabling", || while host.csts() & 1 != 0 {});
    assert_eq!(host.client.ask(DMA_UNMAP, &wire![24u32, 2u32, 0u64, 0u64], &[]).error, 0);
}

#[test]
fn a_thousand_hosts_attach_and_go_away() {
    // Completions take their time, so that some commands are in flight when their queue ends.
    let model = taking(30_000);
    let rig = Rig::new(SsdConfig { model, ..SsdConfig::with_namespace(1 << 20, 512) });
    for round in 0..ROUNDS {
        let mut host = attach(&rig);
        let cids = ask_for_events(&mut host, 4);
        in_time("Identify", || host.identify());
        in_time("creating queues", || host.create_queues(None));
        let write = host.transfer(1, u64::from(round % 8), IOVA + DATA as u64);
        assert_eq!(in_time("a write", || host.run(1, write)), 0);
        for lba in 0..3 {
            let read = host.transfer(2, lba, IOVA + DATA as u64 + 4096);
            host.put(1, &read);
        }
        host.ring(1);
        let in_order = round % 4 == 0 || round % 4 == 3;
        if in_order {
            assert_eq!(delete(&mut host, 0x00, Some(cids[0])), 0);
            assert_eq!(delete(&mut host, 0x04, Some(cids[1])), 0);
        }
        if round % 4 != 3 {
            unmap_queues(&mut host);
        }
        if !in_order {
            // The host behaves as if it had not noticed.
            host.ring(1);
        }
        match round % 4 {
            // Both are gone: deleting them is late, but no error.
            1 => {
                assert_eq!(delete(&mut host, 0x00, Some(cids[2])), 0);
                assert_eq!(delete(&mut host, 0x04, Some(cids[3])), 0);
                assert_eq!(delete(&mut host, 0x04, None), INVALID_QUEUE, "deleted once");
            }
            // The rest of the controller goes on: other queues, of the same identifiers, in the
            // same place.
            2 => {
                host.client.map_part(&host.memory, DATA as u64 / 2, IO_QUEUES.0, IO_QUEUES.1);
                host.forget_queues();
                in_time("creating queues", || host.create_queues(None));
                let read = host.transfer(2, 0, IOVA + DATA as u64);
                assert_eq!(in_time("a read", || host.run(1, read)), 0);
            }
            _ => {}
        }
        in_time("Identify", || host.identify());
        assert_eq!(host.csts() & CFS, 0, "round {round}");
        in_time("shutting down", || shut_down(&mut host));
        drop(host);
        loop {
            match rig.events.recv_timeout(LONGEST).expect("the end of the connection does not come")
            {
                Event::Connected { .. } => {}
                Event::Ended { why: None } => break,
                other => panic!("round {round}: {other:?}"),
            }
        }
    }
    let counters = rig.ssd.counters();
    assert_eq!(counters.fatal, 0);
    assert_eq!(counters.ended_queues, u64::from(ROUNDS / 4) * 4);
    assert_eq!(counters.cid_conflicts, u64::from(ROUNDS / 4) * 6);
    // The queue that was deleted twice, and nothing else.
    assert_eq!(counters.refused, u64::from(ROUNDS / 4));
    let refusals = rig.ssd.refusals();
    let rule = |refusal: &&meantime_ssd::Refusal| !refusal.tolerated && refusal.status.is_none();
    assert_eq!(refusals.iter().filter(rule).map(|r| r.reason).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_strict_one_refuses_and_stops() {
    let rig = Rig::new(SsdConfig { strict: true, ..SsdConfig::with_namespace(1 << 20, 512) });
    let mut host = attach(&rig);
    let cids = ask_for_events(&mut host, 2);
    host.create_queues(None);
    assert_eq!(delete(&mut host, 0x00, Some(cids[0])), CID_CONFLICT);
    assert_eq!(host.csts() & CFS, 0);
    unmap_queues(&mut host);
    assert_eq!(host.csts() & CFS, CFS);
    let counters = rig.ssd.counters();
    assert_eq!((counters.fatal, counters.ended_queues, counters.cid_conflicts), (1, 0, 1));
    assert!(rig.ssd.refusals().iter().all(|refusal| !refusal.tolerated));
}

#[test]
fn what_is_in_flight_of_an_ended_submission_queue_is_aborted() {
    let model = taking(3_600_000_000_000);
    let rig = Rig::new(SsdConfig { model, ..SsdConfig::with_namespace(1 << 20, 512) });
    let mut host = attach(&rig);
    // The completion queue stays.
    assert_eq!(host.client.unmap(IO_QUEUES.0, IO_QUEUES.1).error, 0);
    let (sq, half) = (IO_QUEUES.0, IO_QUEUES.1 / 2);
    host.client.map_part(&host.memory, 0x2000, sq, half);
    host.client.map_part(&host.memory, 0x3000, sq + half, half);
    host.create_queues(None);
    let read = host.transfer(2, 0, IOVA + DATA as u64);
    host.put(1, &read);
    host.ring(1);
    let start = Instant::now();
    while rig.ssd.counters().reads == 0 {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(in_time("unmapping", || host.client.unmap(sq, half)).error, 0);
    let cqe = in_time("its abort", || host.wait(1));
    assert_eq!((u16_at(&cqe, 12), u16_at(&cqe, 14) >> 1 & 0x7ff), (u16_at(&read, 2), 0x008));
    host.ring(1);
    assert_eq!(delete(&mut host, 0x00, None), 0);
    assert_eq!(delete(&mut host, 0x04, None), 0);
    assert_eq!((host.csts() & CFS, rig.ssd.counters().ended_queues), (0, 1));
}

#[test]
fn without_its_admin_queue_it_has_to_be_reset() {
    let rig = Rig::new(SsdConfig::with_namespace(1 << 20, 512));
    let mut host = attach(&rig);
    host.create_queues(None);
    assert_eq!(host.client.unmap(IOVA, IO_QUEUES.0 - IOVA).error, 0);
    assert_eq!(host.csts() & CFS, CFS);
    // The controller was shut down: no command is pending.
    let mut host = {
        drop(host);
        attach(&rig)
    };
    host.client.write(0, 0x14, &wire![0x0046_4001u32]);
    while host.csts() >> 2 & 3 != 2 {}
    assert_eq!(host.client.unmap(IOVA, IO_QUEUES.0 - IOVA).error, 0);
    assert_eq!(host.csts() & CFS, 0);
    assert_eq!(rig.ssd.counters().fatal, 1);
}
