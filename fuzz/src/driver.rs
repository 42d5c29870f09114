//! The driver's side of a completion ring: the fuzzer is a device that writes arbitrary entries
//! while commands are staged, reaped, swept and failed. A model that reads the same entries says
//! what must come of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Input, ahead};
use meantime_hw::dma::Iova;
use meantime_hw::soft::SoftTransport;
use meantime_hw::{DmaHeap, Transport};
use meantime_nvme::fuzzing::Rig;
use meantime_nvme::prp::MAX_BYTES;
use meantime_nvme::queue::MAX_SLOTS;
use meantime_nvme::{Command, CommandError, Op, Outcome, QueueCounters};
use meantime_nvme_spec::cqe::{Cqe, phase_of_high_word};
use meantime_nvme_spec::regs::{cq_head_doorbell, sq_tail_doorbell};
use meantime_nvme_spec::soft_port::{Doorbells, SOFT_DSTRD, SoftPort};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};

/// Operations of one input.
const OPERATIONS: usize = 1024;

const QIDS: [u16; 3] = [1, 2, 3];

/// Memory and doorbells of an SSD that never moves, so that there is none but the fuzzer's.
struct Bench {
    heap: DmaHeap,
    transport: Arc<dyn Transport>,
    bells: Arc<Doorbells>,
}

impl Bench {
    fn new() -> Self {
        let config = SsdConfig { max_io_queues: 3, ..SsdConfig::with_namespace(4096, 512) };
        let medium = Medium::dram(4096).expect("a medium");
        let port: Arc<dyn SoftPort> = SteppedSsd::new(config, medium, 1).expect("an SSD").port();
        let bells = port.doorbells();
        // SAFETY: the SSD never moves: whoever rings, it touches nothing.
        let transport = Arc::new(unsafe { SoftTransport::new(port, "fuzz".into(), None) });
        Self { heap: DmaHeap::new(transport.clone()), transport, bells }
    }
}

thread_local! {
    static BENCH: Bench = Bench::new();
}

/// A command in flight, as the model knows it.
#[derive(Clone, Copy)]
struct Live {
    requester: u16,
    /// When the first sweep met it, in ns.
    met_ns: Option<u64>,
}

/// What the driver must think.
struct Model {
    qid: u16,
    entries: u32,
    assigned: u16,
    report_batches: bool,
    /// By tag: the CID that the slot's command has, or had.
    cids: Vec<Option<u16>>,
    live: Vec<Option<Live>>,
    sq_tail: u32,
    cq_head: u32,
    phase: bool,
    counters: QueueCounters,
    sqes: *const AtomicU64,
    cqes: *const AtomicU64,
}

impl Model {
    fn cell(&self, entry: u32, half: usize) -> &AtomicU64 {
        assert!(entry < self.entries && half < 2);
        // SAFETY: within the completion ring, which lives as long as the rig, and is only accessed
        // as atomics.
        unsafe { &*self.cqes.add(entry as usize * 2 + half) }
    }

    fn sqe(&self, entry: u32) -> Sqe {
        assert!(entry < self.entries);
        // SAFETY: within the submission ring; as in `cell`.
        let words = |i| unsafe { &*self.sqes.add(entry as usize * 8 + i) }.load(Ordering::Relaxed);
        Sqe::from_words(std::array::from_fn(words))
    }

    fn live_count(&self) -> usize {
        self.live.iter().flatten().count()
    }

    /// A command was staged for `requester`: learns its CID from the ring.
    fn staged(&mut self, requester: u16, opcode: u8) {
        let sqe = self.sqe(self.sq_tail);
        assert_eq!(sqe.opcode(), opcode);
        let tag = usize::from(sqe.cid() % MAX_SLOTS);
        assert!(tag < self.live.len(), "a tag beyond the queue");
        assert!(self.live[tag].is_none(), "a slot given to two commands");
        if let Some(before) = self.cids[tag].replace(sqe.cid()) {
            assert_eq!(sqe.cid(), before.wrapping_add(MAX_SLOTS), "not the next generation");
        }
        self.live[tag] = Some(Live { requester, met_ns: None });
        self.sq_tail = (self.sq_tail + 1) % self.entries;
        self.counters.staged += 1;
    }

    /// Takes the command with `cid` out, if it is in flight.
    fn end(&mut self, cid: u16) -> Option<Live> {
        let tag = usize::from(cid % MAX_SLOTS);
        if *self.cids.get(tag)? != Some(cid) {
            return None;
        }
        let live = self.live[tag].take();
        self.counters.ended += u64::from(live.is_some());
        live
    }

    fn has_entry(&self) -> bool {
        phase_of_high_word(self.cell(self.cq_head, 1).load(Ordering::Acquire)) == self.phase
    }

    /// Takes one entry and says what must come of it.
    fn take(&mut self) -> Option<(u16, Outcome)> {
        let cqe = Cqe::from_words(
            [0, 1].map(|half| self.cell(self.cq_head, half).load(Ordering::Acquire)),
        );
        self.cq_head += 1;
        if self.cq_head == self.entries {
            (self.cq_head, self.phase) = (0, !self.phase);
        }
        self.counters.bad_sqhd += u64::from(u32::from(cqe.sqhd.get()) >= self.entries);
        let live = if cqe.sqid.get() == self.qid { self.end(cqe.cid.get()) } else { None };
        let Some(live) = live else {
            self.counters.strays += 1;
            return None;
        };
        let status = cqe.status();
        let outcome =
            if status.is_success() { Ok(cqe.dw0.get()) } else { Err(CommandError::Status(status)) };
        Some((live.requester, outcome))
    }
}

/// The device: writes the next entry, or any.
fn write_cqe(input: &mut Input<'_>, model: &Model, device: &mut (u32, bool)) {
    let how = input.u8();
    let tag = usize::from(input.u8()) % model.cids.len();
    let known = model.cids[tag].unwrap_or(tag as u16);
    let cid = match how & 7 {
        0..=3 => known,
        4 => known.wrapping_sub(MAX_SLOTS),
        5 => known.wrapping_add(MAX_SLOTS),
        // The first that is in flight.
        6 => model
            .live
            .iter()
            .position(Option::is_some)
            .and_then(|tag| model.cids[tag])
            .unwrap_or(known),
        _ => input.u16(),
    };
    let sqid = if how & 8 == 0 { model.qid } else { input.u16() };
    let sqhd = if how & 16 == 0 { 0 } else { input.u16() };
    let (entry, phase) = match how >> 5 {
        // As a device does.
        0..=5 => *device,
        // Anywhere, with any phase.
        _ => (u32::from(input.u16()) % model.entries, how & 32 != 0),
    };
    let status = if how & 0xe0 == 0x20 { Status(input.u16() & 0x7fff) } else { Status(0) };
    let [low, high] = Cqe::new(u32::from(how), sqhd, sqid, cid, status, phase).to_words();
    model.cell(entry, 0).store(low, Ordering::Relaxed);
    model.cell(entry, 1).store(high, Ordering::Release);
    if how >> 5 <= 5 {
        device.0 += 1;
        if device.0 == model.entries {
            *device = (0, !device.1);
        }
    }
}

fn command(input: &mut Input<'_>) -> Command {
    let op = input.pick(&[Op::Read, Op::Write, Op::Flush, Op::WriteZeroes, Op::Deallocate]);
    Command {
        op,
        nsid: 1,
        // Within one command's limits, which is the caller's part.
        data_bytes: (u32::from(input.u16()) << 6).min((MAX_BYTES - 4096) as u32),
        slba: u64::from(input.u8()),
        nlb: u32::from(input.u8()) + 1,
        data: Iova(0x7000_0000 + u64::from(input.u8() & 15) * 256),
        second: Iova(0),
        fua: false,
    }
}

/// Checks what comes of one input.
pub fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let shape = input.u8();
    let entries = match shape & 3 {
        0 => 2 + u16::from(input.u8() & 15),
        1 => 2 + u16::from(input.u8()),
        2 => [2, 4, 8, 16][usize::from(shape >> 6)],
        _ => input.pick(&[1025, 1024, 512, 33]),
    };
    let assigned = if shape & 4 == 0 { 0 } else { u16::from(input.u8()) % entries };
    let report_batches = shape & 8 != 0;
    let qid = input.pick(&QIDS);
    BENCH.with(|bench| {
        for index in 0..bench.bells.len() {
            bench.bells.get(index).expect("a doorbell").store(0, Ordering::Relaxed);
        }
        // SAFETY: as in `Bench::new`.
        let doorbell = |offset| unsafe { bench.transport.doorbell(offset) }.expect("a doorbell");
        let doorbells = (
            doorbell(sq_tail_doorbell(qid, SOFT_DSTRD)),
            doorbell(cq_head_doorbell(qid, SOFT_DSTRD)),
        );
        let mut rig = Rig::new(&bench.heap, doorbells, qid, entries, assigned, report_batches)
            .expect("memory");
        let slots = usize::from(entries) - 1;
        let mut model = Model {
            qid,
            entries: u32::from(entries),
            assigned,
            report_batches,
            cids: vec![None; slots],
            live: vec![None; slots],
            sq_tail: 0,
            cq_head: 0,
            phase: true,
            counters: QueueCounters::default(),
            sqes: rig.sq().cast(),
            cqes: rig.cq().cast(),
        };
        let bells = (
            bench.bells.sq_tail(qid).expect("a doorbell"),
            bench.bells.cq_head(qid).expect("a doorbell"),
        );
        // Where the device writes next, and with which phase.
        let mut device = (0, true);
        let mut requester = 0u16;
        let mut now_ns = 0u64;
        for _ in 0..OPERATIONS {
            if input.is_empty() {
                break;
            }
            let operation = input.u8();
            match operation & 15 {
                0..=2 => {
                    requester = requester.wrapping_add(1);
                    let command = command(&mut input);
                    let room = rig.free_tags() > 0;
                    assert_eq!(rig.stage(requester, &command), room);
                    if room {
                        model.staged(requester, command.op as u8);
                    }
                }
                3 => {
                    let slot = u16::from(input.u8());
                    if slot < assigned && model.live[usize::from(slot)].is_none() {
                        requester = requester.wrapping_add(1);
                        let command = command(&mut input);
                        rig.stage_assigned(slot, requester, &command);
                        model.staged(requester, command.op as u8);
                    }
                }
                4 => {
                    requester = requester.wrapping_add(1);
                    let (room, opcode) = (rig.free_tags() > 0, input.u8());
                    assert_eq!(rig.stage_raw(requester, Sqe::new(opcode, input.u16(), 0)), room);
                    if room {
                        model.staged(requester, opcode);
                    }
                }
                5 => {
                    if operation & 16 == 0 {
                        rig.pair.ring_doorbell()
                    } else {
                        rig.pair.ring_now()
                    }
                    assert_eq!(bells.0.load(Ordering::Relaxed), model.sq_tail);
                }
                6..=9 => write_cqe(&mut input, &model, &mut device),
                10 | 11 => reap(
                    &mut input,
                    &mut rig,
                    &mut model,
                    &mut device,
                    operation & 16 != 0,
                    bells.1,
                ),
                12 => {
                    let expected = if model.has_entry() { Some(model.take()) } else { None };
                    let got = rig.pair.reap_one(|requester, result| {
                        (requester, result.map_err(CommandError::Status))
                    });
                    assert_eq!(got, expected.flatten());
                }
                13 => {
                    now_ns = now_ns.saturating_add(u64::from(input.u32()) << 4);
                    sweep(&mut rig, &mut model, now_ns, u64::from(input.u16()) << 12);
                }
                14 => fail_all(&mut input, &mut rig, &mut model),
                _ => {
                    if model.live_count() == 0 {
                        rig.reset_rings();
                        (model.sq_tail, model.cq_head, model.phase) = (0, 0, true);
                        device = (0, true);
                        // As the controller does, which does not know the queue any more.
                        bells.0.store(0, Ordering::Relaxed);
                        bells.1.store(0, Ordering::Relaxed);
                    }
                }
            }
            compare(&rig, &model, bells.1.load(Ordering::Relaxed));
        }
        // Whatever was written, every command comes back, once.
        rig.fail_all(None, CommandError::Reset, &mut |_, _| model.counters.ended += 1);
        assert_eq!(model.counters.ended, model.counters.staged);
        assert_eq!(rig.pair.in_flight(), 0);
        assert_eq!(rig.pair.counters(), model.counters);
    });
}

/// Reaps, while the device may go on writing.
fn reap(
    input: &mut Input<'_>,
    rig: &mut Rig,
    model: &mut Model,
    device: &mut (u32, bool),
    concurrently: bool,
    bell: &std::sync::atomic::AtomicU32,
) {
    let mut taken = 0;
    let mut handed_out = 0;
    let count = rig.pair.reap(|requester, outcome| {
        // What the driver took to get here, the model takes now.
        let expected = loop {
            assert!(
                taken < model.entries && model.has_entry(),
                "{requester} was handed out for no entry"
            );
            taken += 1;
            if let Some(done) = model.take() {
                break done;
            }
        };
        assert_eq!((requester, outcome), expected);
        handed_out += 1;
        if concurrently {
            for _ in 0..input.u8() & 7 {
                write_cqe(input, model, device);
            }
        }
    });
    assert_eq!(count, handed_out);
    // What came last may all have been strays.
    while taken < model.entries && model.has_entry() {
        taken += 1;
        assert_eq!(model.take(), None, "a completion was passed over");
    }
    // What was taken is given back soon; at once, if that was asked for.
    let behind = ahead(bell.load(Ordering::Relaxed), model.cq_head, model.entries);
    let bound = if model.report_batches && handed_out > 0 { 0 } else { model.entries / 4 };
    assert!(behind <= bound, "{behind} entries of {} not given back", model.entries);
}

fn sweep(rig: &mut Rig, model: &mut Model, now_ns: u64, timeout_ns: u64) {
    let found = rig.sweep(now_ns, timeout_ns);
    // Times are kept in µs, of 32 bits: sharp to two of them, for what is in flight for no longer
    // than that.
    const SLACK_NS: u64 = 2_000;
    let mut must = None;
    for (tag, live) in model.live.iter_mut().enumerate() {
        let Some(live) = live else { continue };
        let Some(met_ns) = live.met_ns else {
            live.met_ns = Some(now_ns);
            assert_ne!(found, model.cids[tag], "overdue when it was first met");
            continue;
        };
        let age_ns = now_ns - met_ns;
        if found == model.cids[tag] {
            assert!(age_ns + SLACK_NS >= timeout_ns, "{age_ns} ns are not {timeout_ns}");
        }
        if age_ns >= timeout_ns + SLACK_NS && age_ns < (1 << 32) * 1_000 - SLACK_NS {
            must = model.cids[tag];
        }
    }
    match found {
        Some(cid) => assert!(rig.is_busy(cid), "a command that is not in flight is overdue"),
        None => assert_eq!(must, None, "nothing is overdue"),
    }
}

fn fail_all(input: &mut Input<'_>, rig: &mut Rig, model: &mut Model) {
    let how = input.u8();
    let victim = (how & 1 != 0).then(|| {
        let known = model.cids[usize::from(how >> 3) % model.cids.len()];
        if how & 2 != 0 { input.u16() } else { known.unwrap_or(0) }
    });
    let error = if how & 4 == 0 {
        CommandError::Reset
    } else {
        CommandError::Gone { memory_released: true }
    };
    let mut failed = Vec::new();
    rig.fail_all(victim, error, &mut |requester, outcome| failed.push((requester, outcome)));
    for tag in 0..model.live.len() {
        let Some(cid) = model.cids[tag] else { continue };
        let Some(live) = model.end(cid) else { continue };
        let expected = Err(if victim == Some(cid) { CommandError::TimedOut } else { error });
        let is_its = |end: &(u16, _)| end.0 == live.requester;
        let at = failed.iter().position(is_its).expect("every command fails");
        assert_eq!(failed.swap_remove(at).1, expected);
    }
    assert!(failed.is_empty(), "{failed:?}: not in flight");
}

/// What holds after every operation.
fn compare(rig: &Rig, model: &Model, head: u32) {
    assert_eq!(rig.pair.counters(), model.counters);
    let live = model.live_count();
    assert_eq!(usize::from(rig.pair.in_flight()), live);
    let assigned = usize::from(model.assigned);
    let busy = model.live[assigned..].iter().flatten().count();
    assert_eq!(
        rig.free_tags(),
        model.live.len() - assigned - busy,
        "a slot is lost, or there twice"
    );
    assert_eq!(rig.pair.has_completion(), model.has_entry());
    assert!(head < model.entries, "a head beyond the queue");
    for cid in model.cids.iter().flatten() {
        let is_live = model.live[usize::from(cid % MAX_SLOTS)].is_some();
        assert_eq!(rig.is_busy(*cid), is_live);
    }
}
