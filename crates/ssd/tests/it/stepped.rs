//! The stepped SSD: one seed, one run; and nothing the host writes makes it panic or forget a
//! command.

use std::collections::HashMap;

use meantime_nvme_spec::regs;
use meantime_nvme_spec::sqe::{Sqe, qprio};
use meantime_ssd::{Fault, FaultPlan, Medium, Model, PowerState, Rng, SsdConfig, SteppedSsd};
use meantime_testkit::faults::{ppm, with_statuses};
use meantime_testkit::host::*;
use proptest::prelude::*;

/// Runs a mixed load and writes down what is seen of it.
fn trace(seed: u64) -> Vec<(u64, u16, u16, u64)> {
    let plan = with_statuses(FaultPlan::NONE, 50_000)
        .with(ppm(Fault::LostCompletion, 2_000))
        .with(ppm(Fault::LateCompletion(500_000), 20_000))
        .with(ppm(Fault::StrayCqe, 10_000));
    let c = SsdConfig {
        model: Model::named("nand").unwrap(),
        volatile_write_cache: true,
        faults: plan,
        stamps: true,
        ..config(1 << 20, 512)
    };
    let ssd = SteppedSsd::new(c, Medium::dram(1 << 20).unwrap(), seed).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(1, 64, None);
    host.create_queues(2, 64, None);
    let area = host.alloc(4096);
    let clock = ssd.clock();
    // The host's choices are the same for every seed.
    let mut rng = Rng::new(99);
    let mut trace = Vec::new();
    for cid in 0..1500 {
        let qid = 1 + (rng.below(2) as u16);
        let lba = rng.below(2048);
        let sqe = match rng.below(4) {
            0 => Sqe::write(cid, 1, lba, 1, area, 0, rng.below(8) == 0),
            1 if cid % 16 == 0 => Sqe::flush(cid, 1),
            _ => Sqe::read(cid, 1, lba, 1, area, 0),
        };
        host.submit(qid, &sqe);
        let until = clock.now_ns() + rng.below(100_000);
        while clock.now_ns() < until {
            for qid in 1..=2 {
                while let Some(cqe) = host.poll(qid) {
                    trace.push((ssd.peek_ns(), qid, cqe.cid.get(), u64::from(cqe.status().bits())));
                }
            }
        }
    }
    let lost = ssd.power_cut(&mut rng);
    trace.push((ssd.peek_ns(), 0, 0, lost));
    let stamps = ssd.stamps().unwrap();
    for i in 0..stamps.written() {
        let s = stamps.get(i).unwrap();
        trace.push((s.seen_ns, s.qid, s.cid, s.written_ns));
    }
    trace
}

#[test]
fn one_seed_one_run() {
    let first = trace(1);
    assert!(first.len() > 2500, "{}", first.len());
    assert_eq!(first, trace(1));
    assert_ne!(first, trace(2));
}

#[test]
fn a_reading_moves_the_clock() {
    let (ssd, _host) = stepped(config(1 << 20, 512));
    let clock = ssd.clock();
    let a = clock.now_ns();
    assert_eq!(clock.now_ns(), a + 50);
    ssd.set_tick_ns(7);
    assert_eq!(clock.now_ns(), a + 57);
    clock.advance(1000);
    assert_eq!(ssd.peek_ns(), a + 1057);
}

#[test]
fn unplugged_it_reads_all_ones() {
    let (ssd, host) = stepped(config(1 << 20, 512));
    ssd.unplug();
    assert!(host.csts().is_gone());
    host.port.write32(meantime_nvme_spec::regs::CC, 0);
    host.port.unmap_dma(BASE).unwrap();
}

/// Words of an SQE that are wrong in interesting ways more often than random ones would be.
fn sqe() -> impl Strategy<Value = Sqe> {
    let opcode = prop_oneof![
        6 => prop::sample::select(vec![0u8, 1, 2, 4, 5, 8, 9, 0x0c]),
        1 => any::<u8>(),
    ];
    // 40h: an SGL.
    let flags = prop_oneof![7 => Just(0u8), 2 => Just(0x40), 1 => any::<u8>()];
    let nsid = prop_oneof![8 => Just(1u32), 1 => Just(u32::MAX), 1 => any::<u32>()];
    let page = (0..64u64).prop_map(|n| BASE + (8 << 20) + n * PAGE);
    let prp = prop_oneof![
        6 => page.clone(),
        2 => (page, 0..4096u64).prop_map(|(p, o)| p + o),
        1 => Just(0u64),
        1 => any::<u64>(),
    ];
    let slba = prop_oneof![6 => 0..2048u64, 1 => 2040..2056u64, 1 => any::<u64>()];
    let dw12 = prop_oneof![6 => 0..40u32, 1 => any::<u32>()];
    (opcode, flags, nsid, prp.clone(), prp, slba, dw12, any::<u64>()).prop_map(
        |(opcode, flags, nsid, prp1, prp2, slba, dw12, rest)| {
            let cdw0 = u64::from(opcode) | u64::from(flags) << 8;
            let dw12 = u64::from(dw12) | (rest & 0xffff_ffff) << 32;
            Sqe::from_words([
                cdw0 | u64::from(nsid) << 32,
                rest,
                rest,
                prp1,
                prp2,
                slba,
                dw12,
                rest,
            ])
        },
    )
}

/// The same on the admin queue; it may create and delete queues and set features as it likes.
fn admin_sqe() -> impl Strategy<Value = Sqe> {
    let opcode = prop::sample::select(vec![
        0u8, 1, 2, 4, 5, 6, 8, 9, 0x0a, 0x0c, 0x18, 0x7c, 0x80, 0x84, 0xff,
    ]);
    let dw10 = prop_oneof![4 => 0..16u32, 3 => (0..8u32, 0..70u32).prop_map(|(q, s)| s << 16 | q), 1 => any::<u32>()];
    let dw11 = prop_oneof![4 => 0..8u32, 3 => (0..8u32, 0..8u32).prop_map(|(a, b)| a << 16 | b | 1), 1 => any::<u32>()];
    (opcode, dw10, dw11, sqe()).prop_map(|(opcode, dw10, dw11, sqe)| {
        let mut words = sqe.to_words();
        words[0] = words[0] & !0xff | u64::from(opcode);
        words[5] = u64::from(dw10) | u64::from(dw11) << 32;
        Sqe::from_words(words)
    })
}

fn model() -> impl Strategy<Value = &'static str> {
    prop::sample::select(Model::names().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_io_command_gets_exactly_one_completion(
        model in model(),
        vwc in any::<bool>(),
        commands in prop::collection::vec((sqe(), 0..3u8, any::<bool>()), 1..300),
        lists in prop::collection::vec(any::<u64>(), 64),
        (inside, weighted, sleepy) in (prop::sample::select(vec![0, 0, 1, 5]), 0..2u8, any::<bool>()),
    ) {
        let mut c = SsdConfig { volatile_write_cache: vwc, ..config(1 << 20, 512) };
        c.model = Model { inside, ..Model::named(model).unwrap() };
        if sleepy {
            let asleep = PowerState { enlat_us: 50, exlat_us: 3000, non_operational: true, ..c.power_states[0] };
            c.power_states.push(asleep);
            c.apst_idle_ms = Some(1);
        }
        let (ssd, mut host) = stepped(c);
        host.port.write32(regs::CC, 0);
        host.prepare_admin(32);
        host.port.write32(regs::CC, Host::cc().with_ams(weighted).0);
        host.wait_csts(|csts| csts.rdy());
        host.create_queues_of(1, 32, qprio::LOW);
        host.create_queues_of(2, 16, qprio::HIGH);
        // What PRP lists may find: some valid, some not.
        for (i, entry) in lists.iter().enumerate() {
            let entry = if entry % 4 == 0 { *entry } else { BASE + (8 << 20) + entry % 64 * PAGE };
            for page in 0..64 {
                host.write(BASE + (8 << 20) + page * PAGE + i as u64 * 64, &entry.to_le_bytes());
            }
        }
        let clock = ssd.clock();
        let mut outstanding: HashMap<(u16, u16), ()> = HashMap::new();
        let mut per_queue = [0u32; 3];
        let mut next = 0u16;
        let mut seen = 0;
        let total = commands.len();
        for (mut sqe, wait, second) in commands {
            let qid = if second { 2 } else { 1 };
            while per_queue[usize::from(qid)] >= host.queue(qid).sq_entries - 1 {
                clock.advance(100_000);
                while let Some(cqe) = host.poll(qid) {
                    prop_assert!(outstanding.remove(&(qid, cqe.cid.get())).is_some());
                    per_queue[usize::from(qid)] -= 1;
                    seen += 1;
                }
            }
            sqe.set_cid(next);
            outstanding.insert((qid, next), ());
            per_queue[usize::from(qid)] += 1;
            next = next.wrapping_add(1);
            host.submit(qid, &sqe);
            for _ in 0..wait {
                clock.now_ns();
            }
        }
        for _ in 0..1000 {
            clock.advance(1_000_000);
            for qid in 1..=2 {
                while let Some(cqe) = host.poll(qid) {
                    prop_assert!(outstanding.remove(&(qid, cqe.cid.get())).is_some());
                    seen += 1;
                }
            }
            if outstanding.is_empty() {
                break;
            }
        }
        prop_assert!(outstanding.is_empty(), "{:?}", outstanding);
        clock.advance(1_000_000_000);
        prop_assert!(host.poll(1).is_none() && host.poll(2).is_none());
        prop_assert_eq!(seen, total);
        let c = ssd.counters();
        prop_assert_eq!((c.bad_doorbells, c.stray_doorbells, c.cid_conflicts, c.fatal), (0, 0, 0, 0));
    }

    #[test]
    fn every_admin_command_gets_at_most_one_completion(
        commands in prop::collection::vec(admin_sqe(), 1..200),
        bells in prop::collection::vec((0..20usize, any::<u32>()), 0..20),
        registers in prop::collection::vec((0..0x60u32, any::<u32>()), 0..4),
    ) {
        let mut c = SsdConfig { max_io_queues: 8, vectors: 4, ..config(1 << 20, 512) };
        c.shadow_doorbells = true;
        let (ssd, mut host) = stepped(c);
        let clock = ssd.clock();
        let mut held = 0;
        let mut answered = 0;
        let total = commands.len();
        for (i, mut sqe) in commands.into_iter().enumerate() {
            sqe.set_cid(i as u16);
            let is_event_request = sqe.opcode() == 0x0c && sqe.fuse() == 0 && sqe.psdt() == 0;
            host.submit(0, &sqe);
            clock.advance(1000);
            let mut own = false;
            while let Some(cqe) = host.poll(0) {
                if cqe.cid.get() == i as u16 {
                    prop_assert!(!own);
                    own = true;
                } else {
                    held -= 1;
                }
                answered += 1;
            }
            if !own {
                prop_assert!(is_event_request, "command {i} was not answered");
                held += 1;
                prop_assert!(held <= 4);
            }
        }
        prop_assert_eq!(answered + held, total);
        // From here on anything goes, as long as it does not panic.
        for (bell, value) in bells {
            if let Some(cell) = host.bells.get(bell) {
                cell.store(value % 100, std::sync::atomic::Ordering::Release);
            }
            clock.advance(10_000);
        }
        for (offset, value) in registers {
            host.port.write32(offset, value);
            host.port.write64(offset, u64::from(value) << 7);
            clock.advance(10_000);
        }
    }
}

#[test]
fn the_end_of_time_is_no_overflow() {
    let mut c = config(1 << 20, 512);
    c.model = meantime_ssd::Model::named("nand").unwrap();
    let (ssd, mut host) = stepped(c);
    host.create_queues(1, 16, None);
    let area = host.alloc(4096);
    ssd.clock().advance(u64::MAX);
    ok(host.io(1, Sqe::write(0, 1, 0, 8, area, 0, false)));
    ok(host.io(1, Sqe::read(0, 1, 0, 8, area, 0)));
    ok(host.io(1, Sqe::write_zeroes(0, 1, 0, 8, false, false)));
    ok(host.io(1, Sqe::flush(0, 1)));
}
