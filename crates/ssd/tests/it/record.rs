//! What a power cut may leave: of histories made by hand all states and no others, and of a real
//! run none that the SSD's own power cut does not agree with.

use std::collections::BTreeSet;

use meantime_nvme_spec::dsm::DsmRange;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{Fault, FaultPlan, FaultRule, Medium, Model, Rng, SsdConfig, SteppedSsd, When};
use meantime_testkit::host::*;
use meantime_testkit::power_cut::{CutOptions, Event, History};
use zerocopy::IntoBytes;

const LBA: usize = 512;

fn block(byte: u8) -> [u8; LBA] {
    [byte; LBA]
}

/// The first byte of each of the first `blocks` blocks, in every state after `at` events; all of a
/// block is the same.
fn states(history: &History, at: usize, blocks: usize, options: &CutOptions) -> BTreeSet<Vec<u8>> {
    let base = vec![0; 64 * LBA];
    let cut = history.cut(&base, at, options);
    let mut rng = Rng::new(1);
    let mut found = BTreeSet::new();
    let mut hashes = BTreeSet::new();
    for state in cut.states(1 << 16, &mut rng) {
        let bytes = state.on(&base);
        found.insert((0..blocks).map(|block| bytes[block * LBA]).collect::<Vec<_>>());
        assert!(hashes.insert(state.hash()), "one hash, one state");
        assert!(
            bytes.chunks(LBA).all(|block| block.iter().all(|byte| *byte == block[0])),
            "a torn block"
        );
    }
    assert_eq!(found.len() as u64, cut.count(), "none comes twice");
    found
}

fn set(all: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    all.iter().map(|state| state.to_vec()).collect()
}

const VOLATILE: CutOptions =
    CutOptions { volatile: true, unit_bytes: LBA, flushes: true, fua: true, strict: true };
const DURABLE: CutOptions = CutOptions { volatile: false, ..VOLATILE };

#[test]
fn without_a_cache_what_is_complete_is_there() {
    let mut history = History::default();
    let a = history.begin_write(0, &block(1), false);
    let b = history.begin_write(512, &block(2), false);
    history.push(Event::WriteDone(b));
    history.push(Event::WriteDone(a));
    assert_eq!(states(&history, 0, 2, &DURABLE), set(&[&[0, 0]]));
    assert_eq!(states(&history, 1, 2, &DURABLE), set(&[&[0, 0], &[1, 0]]));
    assert_eq!(states(&history, 2, 2, &DURABLE), set(&[&[0, 0], &[1, 0], &[0, 2], &[1, 2]]));
    assert_eq!(states(&history, 3, 2, &DURABLE), set(&[&[0, 2], &[1, 2]]));
    assert_eq!(states(&history, 4, 2, &DURABLE), set(&[&[1, 2]]));
    assert_eq!(states(&history, 4, 2, &VOLATILE).len(), 4);
    assert_eq!(history.turning_points(false).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(history.turning_points(true).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_flush_covers_what_was_complete_when_it_began() {
    let mut history = History::default();
    let a = history.begin_write(0, &block(1), false);
    history.push(Event::WriteDone(a));
    let b = history.begin_write(512, &block(2), false);
    let flush = history.begin_flush();
    history.push(Event::WriteDone(b));
    let before = history.len();
    history.push(Event::FlushDone(flush));
    assert_eq!(states(&history, before, 2, &VOLATILE).len(), 4);
    assert_eq!(states(&history, before + 1, 2, &VOLATILE), set(&[&[1, 0], &[1, 2]]));
    // A device that forgets flushes can be distinguished from one that does not.
    let broken = CutOptions { flushes: false, ..VOLATILE };
    assert_eq!(states(&history, before + 1, 2, &broken).len(), 4);
    assert_eq!(history.turning_points(true).collect::<Vec<_>>(), [before, before + 1]);
}

#[test]
fn forced_unit_access_is_there_alone() {
    let mut history = History::default();
    let a = history.begin_write(0, &block(1), false);
    history.push(Event::WriteDone(a));
    let b = history.begin_write(512, &block(2), true);
    assert_eq!(states(&history, 3, 2, &VOLATILE).len(), 4);
    history.push(Event::WriteDone(b));
    assert_eq!(states(&history, 4, 2, &VOLATILE), set(&[&[0, 2], &[1, 2]]));
    let broken = CutOptions { fua: false, ..VOLATILE };
    assert_eq!(states(&history, 4, 2, &broken).len(), 4);
}

#[test]
fn over_each_other_they_come_in_their_order_or_any_if_they_have_none() {
    let mut history = History::default();
    let a = history.begin_write(0, &block(1), false);
    history.push(Event::WriteDone(a));
    let b = history.begin_write(0, &block(2), true);
    let c = history.begin_write(0, &block(3), false);
    history.push(Event::WriteDone(c));
    assert_eq!(states(&history, history.len(), 1, &VOLATILE), set(&[&[0], &[1], &[2], &[3]]));
    history.push(Event::WriteDone(b));
    // B is durable, so the state before it is gone. C may be under or over it, or lost.
    assert_eq!(states(&history, history.len(), 1, &VOLATILE), set(&[&[2], &[3]]));
    // Nothing is lost, but the order of b and c is open.
    assert_eq!(states(&history, history.len(), 1, &DURABLE), set(&[&[2], &[3]]));
    let d = history.begin_write(0, &block(4), true);
    history.push(Event::WriteDone(d));
    assert_eq!(states(&history, history.len(), 1, &VOLATILE), set(&[&[4]]));
}

#[test]
fn a_failed_write_may_be_there_until_something_else_is() {
    let mut history = History::default();
    let a = history.begin_write(0, &block(1), true);
    history.push(Event::WriteDone(a));
    let b = history.begin_write(0, &block(2), true);
    history.push(Event::WriteFailed(b));
    let flush = history.begin_flush();
    history.push(Event::FlushDone(flush));
    for options in [VOLATILE, DURABLE] {
        assert_eq!(states(&history, history.len(), 1, &options), set(&[&[1], &[2]]));
    }
    let c = history.begin_write(0, &block(3), true);
    history.push(Event::WriteDone(c));
    for options in [VOLATILE, DURABLE] {
        assert_eq!(states(&history, history.len(), 1, &options), set(&[&[3]]));
    }
}

#[test]
fn a_write_that_is_answered_with_an_error_is_recorded_with_its_data() {
    let (ssd, mut host) = stepped(config(1 << 20, 512));
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    host.write(area, &block(7));
    let recorder = ssd.record();
    let status = Status::from_code(StatusCode::WriteFault);
    ssd.set_faults(FaultPlan::only(FaultRule::new(Fault::Status(status), When::ONCE)));
    host.submit(1, &Sqe::write(1, 1, 0, 1, area, 0, false));
    ssd.run_until_idle();
    assert!(host.poll(1).is_some_and(|cqe| !cqe.status().is_success()));
    let history = History::from(recorder.take());
    assert_eq!(history.events().collect::<Vec<_>>(), [Event::WriteBegun(0), Event::WriteFailed(0)]);
    assert_eq!(*history.writes()[0].data, block(7));
    assert!(ssd.contents()[..512].iter().all(|byte| *byte == 0), "it was not executed");
}

#[test]
fn writes_are_torn_at_units_and_not_within() {
    let mut history = History::default();
    let both = [block(1), block(2)].concat();
    let _ = history.begin_write(0, &both, false);
    assert_eq!(states(&history, 1, 2, &VOLATILE).len(), 4);
    let whole = CutOptions { unit_bytes: 1024, ..VOLATILE };
    assert_eq!(states(&history, 1, 2, &whole), set(&[&[0, 0], &[1, 2]]));
    // One more, of the second block only.
    let _ = history.begin_write(512, &block(3), false);
    let found = states(&history, 2, 2, &whole);
    assert_eq!(found, set(&[&[0, 0], &[1, 2], &[0, 3], &[1, 3]]));
    // Across a unit's border.
    let mut history = History::default();
    let _ = history.begin_write(512, &both, false);
    assert_eq!(states(&history, 1, 3, &whole).len(), 4);
}

#[test]
fn what_has_the_same_content_is_the_same_state() {
    let mut history = History::default();
    let _ = history.begin_write(0, &block(0), false);
    let _ = history.begin_write(512, &block(1), false);
    let _ = history.begin_write(512, &block(1), false);
    assert_eq!(states(&history, 3, 2, &VOLATILE), set(&[&[0, 0], &[0, 1]]));
}

#[test]
fn one_turn_has_no_order() {
    // A flush that was rung before the completion could be seen does not cover the write: it was
    // taken in the same turn in which the completion was posted.
    let config = SsdConfig {
        model: Model::named("optane").unwrap(),
        volatile_write_cache: true,
        ..config(1 << 20, 512)
    };
    let (ssd, mut host) = stepped(config);
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    host.write(area, &block(7));
    let recorder = ssd.record();
    let clock = ssd.clock();
    host.submit(1, &Sqe::write(1, 1, 0, 1, area, 0, false));
    clock.now_ns();
    // The SSD runs next long after both.
    ssd.set_tick_ns(1_000_000);
    host.submit(1, &Sqe::flush(2, 1));
    clock.now_ns();
    clock.now_ns();
    assert!(host.poll(1).is_some() && host.poll(1).is_some());
    let history = History::from(recorder.take());
    let events: Vec<_> = history.events().collect();
    let expected =
        [Event::WriteBegun(0), Event::WriteDone(0), Event::FlushBegun(0), Event::FlushDone(0)];
    assert_eq!(events, expected);
    assert_eq!(states(&history, 4, 1, &VOLATILE), set(&[&[0], &[7]]));
    assert_eq!(states(&history, 4, 1, &CutOptions { strict: false, ..VOLATILE }), set(&[&[7]]));
}

#[test]
fn a_buffer_that_changes_under_the_device_is_seen() {
    let config = SsdConfig { model: Model::named("optane").unwrap(), ..config(1 << 20, 512) };
    let (ssd, mut host) = stepped(config);
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    host.write(area, &block(7));
    let recorder = ssd.record();
    host.submit(1, &Sqe::write(1, 1, 0, 1, area, 0, false));
    ssd.run_until_idle();
    host.write(area, &block(8));
    ssd.clock().advance(1_000_000);
    assert!(host.poll(1).is_some());
    let history = History::from(recorder.take());
    assert!(history.writes()[0].changed.is_some());
    assert_eq!(states(&history, history.len(), 1, &DURABLE), set(&[&[7], &[8]]));
}

#[test]
fn the_list_of_a_deallocation_is_not_taken_for_data() {
    let config = SsdConfig { model: Model::named("optane").unwrap(), ..config(1 << 20, 512) };
    let (ssd, mut host) = stepped(config);
    host.create_queues(1, 64, None);
    let area = host.alloc(4096);
    host.write(area, DsmRange::new(0, 2).as_bytes());
    let recorder = ssd.record();
    host.submit(1, &Sqe::dsm_deallocate(1, 1, 1, area, 0));
    ssd.run_until_idle();
    ssd.clock().advance(10_000_000);
    assert!(host.poll(1).is_some());
    let history = History::from(recorder.take());
    assert!(history.writes()[0].changed.is_none());
    assert_eq!(states(&history, history.len(), 2, &DURABLE), set(&[&[0, 0]]));
}

#[test]
fn more_than_can_be_looked_at_is_sampled() {
    let mut history = History::default();
    for n in 0..40 {
        let _ = history.begin_write(n * 512, &block(1 + n as u8), false);
    }
    for n in 0..20 {
        let _ = history.begin_write(0, &block(100 + n), false);
    }
    let base = vec![0; 64 * LBA];
    let cut = history.cut(&base, history.len(), &VOLATILE);
    let mut rng = Rng::new(3);
    let hashes: BTreeSet<u64> = cut.states(1000, &mut rng).map(|state| state.hash()).collect();
    assert!(hashes.len() > 700, "{}", hashes.len());
    assert!(hashes.contains(&cut.newest().hash()) && hashes.contains(&cut.oldest().hash()));
    let first: BTreeSet<u8> = cut.states(4000, &mut rng).map(|state| state.on(&base)[0]).collect();
    assert!(first.len() > 10, "each of many was the last: {first:?}");
}

/// A mixed load on a real SSD: what its own power cut leaves is among the states, and every one of
/// a small history is reached.
#[test]
fn the_power_cut_of_the_ssd_leaves_one_of_them() {
    let mut reached = BTreeSet::new();
    let mut all = BTreeSet::new();
    for seed in 0..300 {
        let config = SsdConfig {
            model: Model::named("optane").unwrap(),
            volatile_write_cache: true,
            ..config(64 << 10, 512)
        };
        let ssd = SteppedSsd::new(config, Medium::dram(64 << 10).unwrap(), 5).unwrap();
        let mut host = Host::new(ssd.port());
        host.enable();
        host.create_queues(1, 64, None);
        let area = host.alloc(4096);
        let recorder = ssd.record();
        let wait = |host: &mut Host| {
            while host.poll(1).is_none() {
                ssd.clock().advance(1000)
            }
        };
        for (cid, (lba, byte, fua)) in
            [(0, 1, false), (1, 2, false), (0, 3, true), (2, 4, false), (1, 5, false)]
                .into_iter()
                .enumerate()
        {
            host.write(area, &block(byte));
            host.submit(1, &Sqe::write(cid as u16, 1, lba, 1, area, 0, fua));
            wait(&mut host);
            if byte == 2 {
                host.submit(1, &Sqe::flush(77, 1));
                wait(&mut host);
            }
        }
        let history = History::from(recorder.take());
        ssd.power_cut(&mut Rng::new(seed));
        let mut found = Vec::new();
        host.enable();
        host.create_queues(1, 64, None);
        for lba in 0..3 {
            host.submit(1, &Sqe::read(9, 1, lba, 1, area, 0));
            wait(&mut host);
            found.push(host.read(area, 1)[0]);
        }
        all = states(&history, history.len(), 3, &VOLATILE);
        assert!(all.contains(&found), "{found:?} of {all:?}");
        reached.insert(found);
    }
    assert_eq!(reached, all);
}
