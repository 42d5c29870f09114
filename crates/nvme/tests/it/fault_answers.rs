//! Each fault that a device can be ordered to have (docs/faults.md), and the driver's answer: what
//! the caller saw, how long it took, that data stayed right, that no buffer was written to once it
//! had come back, and that the counters tell. On the stepped SSD, so that times are exact.

use std::sync::atomic::Ordering;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, Done, IoErrorKind, NvmeChannel, Request,
    SubmitError, Ticket,
};
use meantime_nvme::CommandError;
use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{
    Fault, FaultControl as _, FaultHits, FaultRule, OpcodeSet, Rng, SsdConfig, When,
};
use meantime_testkit::rig::{
    GRACE_NS, MS, OVERDUE_NS, Rig, US, fill, holds, kind, nothing_leaks, open, put, read_of,
    rig_options, ssd, verify, write_of,
};
use meantime_testkit::{quick, rig};

/// How often a command is sent again, unless told otherwise.
const RETRIES: u64 = 4;

/// Upper limit for a command that the device answers at once, when polling.
const AT_ONCE_NS: u64 = 100 * US;
/// The first three steps of recovery: noticing the time-out, aborting, creating the queue anew.
const LADDER_NS: u64 = OVERDUE_NS + GRACE_NS + MS / 4;

/// Blocks that hold version 1 before anything goes wrong.
const WRITTEN: std::ops::Range<u64> = 0..64;

struct Case {
    rig: Rig,
    channel: NvmeChannel,
    allocated_before: usize,
    resting: Vec<(meantime_hw::DmaBuf, u8)>,
}

impl Case {
    fn new() -> Self {
        Self::on(ssd("optane"))
    }

    fn on(config: SsdConfig) -> Self {
        let rig = Rig::new(config);
        let allocated_before = rig.device.heap().allocated_bytes();
        let mut channel = rig.channel(8);
        put(&mut channel, WRITTEN, 1);
        Self { rig, channel, allocated_before, resting: Vec::new() }
    }

    fn order(&self, fault: Fault, when: When) {
        self.rig.ssd.add_fault(FaultRule::new(fault, when)).expect("room for a rule");
    }

    fn submit(&mut self, request: Request) -> Ticket {
        self.channel.submit(request).expect("room")
    }

    fn read(&mut self, lba: u64) -> Ticket {
        let request = read_of(&self.channel, lba..lba + 1);
        self.submit(request)
    }

    fn write(&mut self, lba: u64, version: u64) -> Ticket {
        let request = write_of(&self.channel, lba..lba + 1, version);
        self.submit(request)
    }

    /// How it ended, and how long that took in ns. Its buffer, which came back, is written over;
    /// no device may write to it again.
    fn end(&mut self, ticket: Ticket) -> (Done, u64) {
        let Self { rig, channel, .. } = self;
        rig.timed(|| channel.wait(ticket))
    }

    /// The buffer that came back lies where it is, and no device may write to it.
    fn rest(&mut self, done: Done) {
        let mut buf = done.buf.expect("the buffer came back");
        let canary = 0x5a ^ self.resting.len() as u8;
        buf.fill(canary);
        self.resting.push((buf, canary));
    }

    fn hits(&self) -> u64 {
        self.rig.ssd.faults().iter().map(|FaultHits { hits, .. }| hits).sum()
    }

    /// The device goes on, nothing that it was late with comes over a buffer, and nothing leaks.
    fn over(mut self) {
        let clock = self.channel.clock().clone();
        for _ in 0..20 {
            clock.sleep_ns(MS);
            self.channel.poll();
        }
        for (buf, canary) in self.resting.drain(..) {
            assert!(
                buf.iter().all(|&byte| byte == canary),
                "a buffer was written to after it came back"
            );
        }
        let Self { rig, channel, allocated_before, .. } = self;
        nothing_leaks(rig, vec![channel], allocated_before);
    }

    /// As [`Case::over`]; what was written before is there.
    fn over_and_right(mut self) {
        self.rig.ssd.clear_faults();
        verify(&mut self.channel, WRITTEN, 1);
        self.over();
    }
}

const fn io(opcode: IoOpcode) -> When {
    When { opcodes: Some(OpcodeSet::io(&[opcode])), ..When::ALWAYS }
}

const fn once(opcode: IoOpcode) -> When {
    When { times: Some(1), ..io(opcode) }
}

const fn admin(opcode: AdminOpcode) -> When {
    When { opcodes: Some(OpcodeSet::admin(&[opcode])), ..When::ALWAYS }
}

// ---- statuses

#[test]
fn a_status_with_dnr_ends_the_command_at_once() {
    let mut case = Case::new();
    let status = Status::from_code(StatusCode::InternalError).with_dnr();
    case.order(Fault::Status(status), When { lbas: Some((3, 3)), ..When::ALWAYS });
    for request in [
        read_of(&case.channel, 3..4),
        write_of(&case.channel, 3..4, 2),
        Request::write_zeroes(3, 1),
        read_of(&case.channel, 0..8),
    ] {
        let ticket = case.submit(request);
        let (done, took_ns) = case.end(ticket);
        assert_eq!(kind(&done), CommandError::Status(status));
        assert!(took_ns < AT_ONCE_NS, "{took_ns}");
        if done.buf.is_some() {
            case.rest(done);
        }
    }
    assert_eq!((case.hits(), case.rig.ssd.counters().injected_errors), (4, 4));
    case.over_and_right();
}

#[test]
fn statuses_of_flush_and_deallocate_are_told() {
    let mut case = Case::new();
    let status = Status::new(7, 0x42).with_dnr();
    let opcodes = OpcodeSet::io(&[IoOpcode::Flush, IoOpcode::DatasetManagement]);
    case.order(Fault::Status(status), When { opcodes: Some(opcodes), ..When::ALWAYS });
    for request in [Request::flush(), Request::deallocate(3, 4)] {
        let ticket = case.submit(request);
        let (done, took_ns) = case.end(ticket);
        assert_eq!(kind(&done), CommandError::Status(status));
        assert!(
            took_ns < AT_ONCE_NS
                && done.result.unwrap_err().to_string().contains("vendor specific")
        );
    }
    case.over_and_right();
}

#[test]
fn a_status_without_dnr_is_tried_again() {
    for code in
        [StatusCode::InternalError, StatusCode::CommandInterrupted, StatusCode::NamespaceNotReady]
    {
        let mut case = Case::new();
        let when = When { times: Some(2), ..When::ALWAYS };
        case.order(Fault::Status(Status::from_code(code)), when);
        let ticket = case.write(70, 2);
        let (done, took_ns) = case.end(ticket);
        done.result.expect("written at the third try");
        assert!(took_ns < OVERDUE_NS, "{took_ns}");
        assert_eq!(case.rig.ssd.counters().injected_errors, 2);
        case.rest(done);
        verify(&mut case.channel, 70..71, 2);
        case.over_and_right();
    }
}

#[test]
fn a_status_that_stays_is_the_callers_after_the_last_try() {
    let mut case = Case::new();
    let status = Status::from_code(StatusCode::InternalError);
    case.order(Fault::Status(status), io(IoOpcode::Read));
    let ticket = case.read(3);
    let (done, took_ns) = case.end(ticket);
    assert_eq!(kind(&done), CommandError::Status(status));
    assert!(took_ns < LADDER_NS, "{took_ns}");
    assert_eq!(case.hits(), 1 + RETRIES);
    case.rest(done);
    case.over_and_right();
}

/// With or without retries: the answer is the device's, and comes in bounded time.
#[test]
fn a_status_that_stays_is_told_in_bounded_time() {
    for code in
        [StatusCode::InternalError, StatusCode::UnrecoveredReadError, StatusCode::DataTransferError]
    {
        let mut case = Case::new();
        let status = Status::from_code(code);
        case.order(Fault::Status(status), io(IoOpcode::Read));
        let ticket = case.read(3);
        let (done, took_ns) = case.end(ticket);
        assert_eq!(kind(&done), CommandError::Status(status));
        assert!(
            took_ns < LADDER_NS && (1..=1 + RETRIES).contains(&case.hits()),
            "{took_ns} {}",
            case.hits()
        );
        case.rest(done);
        case.over_and_right();
    }
}

// ---- completions that do not come, or late

/// Faults that take a completion away, once.
const SILENT: [Fault; 2] = [Fault::LostCompletion, Fault::WrongPhase];

#[test]
fn a_completion_that_never_comes_is_given_up_in_bounded_time() {
    for fault in SILENT {
        let mut case = Case::new();
        case.order(fault, io(IoOpcode::Read));
        let ticket = case.read(3);
        let (done, took_ns) = case.end(ticket);
        assert!(
            [CommandError::TimedOut, CommandError::Reset].iter().any(|error| kind(&done) == *error),
            "{fault:?}"
        );
        let tries = case.hits();
        assert!((1..=1 + RETRIES).contains(&tries), "{fault:?}: {tries}");
        assert!(
            (2 * MS..LADDER_NS * tries).contains(&took_ns),
            "{fault:?}: {took_ns}, {tries} tries"
        );
        let counters = case.channel.counters().polled;
        assert_eq!(
            (counters.aborts, counters.recreations, counters.strays),
            (tries, tries, 0),
            "{fault:?}"
        );
        case.rest(done);
        case.over_and_right();
    }
}

#[test]
fn a_command_whose_completion_was_lost_is_sent_again() {
    for fault in SILENT {
        let mut case = Case::new();
        case.order(fault, When::ONCE);
        let victim = case.write(70, 2);
        let neighbours = [case.read(5), case.write(71, 3)];
        let (done, took_ns) = case.end(victim);
        done.result.expect("written");
        assert!((2 * MS..LADDER_NS).contains(&took_ns), "{fault:?}: {took_ns}");
        case.rest(done);
        for ticket in neighbours {
            let (done, took_ns) = case.end(ticket);
            done.result.expect("sent again too");
            assert!(took_ns < MS, "{fault:?}: {took_ns}");
            case.rest(done);
        }
        assert_eq!((case.hits(), case.channel.counters().polled.recreations), (1, 1), "{fault:?}");
        verify(&mut case.channel, 70..71, 2);
        verify(&mut case.channel, 71..72, 3);
        case.over_and_right();
    }
}

/// After an entry with the wrong phase nothing of that queue is seen, though it was done: no data
/// is lost by that, and no buffer taken back too early.
#[test]
fn a_wrong_phase_takes_its_neighbours_with_it_but_no_data() {
    let mut case = Case::new();
    case.order(Fault::WrongPhase, When::ONCE);
    let tickets = [case.write(70, 2), case.write(71, 2), case.read(5), case.write(72, 2)];
    for (n, ticket) in tickets.into_iter().enumerate() {
        let (done, took_ns) = case.end(ticket);
        assert!(took_ns < LADDER_NS, "{n}: {took_ns}");
        let ended = done.result.map_err(|error| error.kind);
        assert!(
            matches!(
                ended,
                Ok(()) | Err(IoErrorKind::Command(CommandError::TimedOut | CommandError::Reset))
            ),
            "{n}: {ended:?}"
        );
        case.rest(done);
    }
    let counters = case.channel.counters().polled;
    assert_eq!((counters.recreations, counters.strays), (1, 0));
    assert_eq!(case.rig.ssd.counters().injected_bad_phase, 1);
    verify(&mut case.channel, 70..73, 2);
    case.over_and_right();
}

#[test]
fn late_within_the_deadline_is_success() {
    let mut case = Case::new();
    case.order(Fault::LateCompletion(MS), When::ONCE);
    let ticket = case.read(3);
    let (done, took_ns) = case.end(ticket);
    assert!(done.result.is_ok() && (MS..MS + MS / 2).contains(&took_ns), "{took_ns}");
    holds(done.buf.as_deref().expect("the buffer"), 512, 3, 1);
    assert_eq!(
        (case.rig.ssd.counters().injected_late, case.channel.counters().polled.aborts),
        (1, 0)
    );
    case.rest(done);
    case.over_and_right();
}

#[test]
fn late_beyond_the_deadline_is_aborted() {
    let mut case = Case::new();
    case.order(Fault::LateCompletion(10 * MS), io(IoOpcode::Read));
    let ticket = case.read(3);
    let (done, took_ns) = case.end(ticket);
    assert_eq!(kind(&done), CommandError::TimedOut);
    let tries = case.hits();
    assert!(
        (1..=1 + RETRIES).contains(&tries) && took_ns < LADDER_NS * tries,
        "{tries}: {took_ns}"
    );
    let counters = case.channel.counters().polled;
    assert_eq!((counters.aborts, counters.recreations), (tries, 0), "the queue goes on");
    case.rest(done);
    case.over_and_right();
}

#[test]
fn late_beyond_the_deadline_once_is_sent_again() {
    let mut case = Case::new();
    case.order(Fault::LateCompletion(10 * MS), When::ONCE);
    let ticket = case.write(70, 2);
    let (done, took_ns) = case.end(ticket);
    done.result.expect("written");
    assert!((2 * MS..LADDER_NS).contains(&took_ns), "{took_ns}");
    case.rest(done);
    verify(&mut case.channel, 70..71, 2);
    case.over_and_right();
}

// ---- completions that are nonsense

#[test]
fn duplicates_and_strays_are_counted_and_nothing_else() {
    for fault in [Fault::DuplicateCqe, Fault::StrayCqe] {
        let mut case = Case::new();
        case.order(fault, When { every: 3, ..When::ALWAYS });
        for n in 0..60 {
            let ticket = if n % 2 == 0 { case.write(64 + n, n + 1) } else { case.read(n) };
            let (done, took_ns) = case.end(ticket);
            done.result.expect("as ever");
            assert!(took_ns < AT_ONCE_NS, "{fault:?}: {took_ns}");
            if n % 2 == 1 {
                holds(done.buf.as_deref().expect("the buffer"), 512, n, 1);
            }
            case.rest(done);
        }
        (0..60).step_by(2).for_each(|n| verify(&mut case.channel, 64 + n..65 + n, n + 1));
        case.channel.clock().sleep_ns(MS);
        case.channel.poll();
        let counters = case.channel.counters().polled;
        let injected = case.rig.ssd.counters().injected_strays;
        assert!(
            injected >= 30 && counters.strays == injected,
            "{fault:?}: {injected} {counters:?}"
        );
        assert_eq!(
            (counters.aborts, counters.recreations, counters.bad_sqhd),
            (0, 0, 0),
            "{fault:?}"
        );
        case.over_and_right();
    }
}

#[test]
fn a_wrong_sq_head_is_counted_and_nothing_else() {
    let mut case = Case::new();
    case.order(Fault::WrongSqhd(0xffff), When::ALWAYS);
    for n in 0..60 {
        let ticket = case.write(64 + n, n);
        let (done, took_ns) = case.end(ticket);
        done.result.expect("as ever");
        assert!(took_ns < AT_ONCE_NS, "{took_ns}");
        case.rest(done);
    }
    let counters = case.channel.counters().polled;
    assert_eq!((counters.bad_sqhd, case.rig.ssd.counters().injected_bad_sqhd), (60, 60));
    assert_eq!((counters.strays, counters.aborts, counters.recreations), (0, 0, 0));
    case.over_and_right();
}

// ---- the controller

#[test]
fn a_fatal_status_is_found_long_before_the_deadline() {
    let mut case = Case::new();
    let resets = case.rig.ssd.counters().resets;
    case.order(Fault::FatalStatus, When { from: 3, times: Some(1), ..When::ALWAYS });
    let tickets = [case.write(70, 2), case.read(5), case.write(71, 3), case.read(6)];
    for ticket in tickets {
        let (done, took_ns) = case.end(ticket);
        assert!(took_ns < MS, "{took_ns}");
        done.result.expect("sent again");
        case.rest(done);
    }
    let counters = case.rig.ssd.counters();
    assert_eq!((counters.fatal, counters.resets), (1, resets + 1));
    verify(&mut case.channel, 70..71, 2);
    verify(&mut case.channel, 71..72, 3);
    case.over_and_right();
}

#[test]
fn removal_ends_everything_and_gives_the_buffers_back() {
    for refuses_unmap in [false, true] {
        let mut case = Case::new();
        case.rig.meddling.refuses_unmap.store(refuses_unmap, Ordering::Relaxed);
        case.order(Fault::LateCompletion(MS), When::ALWAYS);
        case.order(Fault::SurpriseRemoval, When { from: 3, ..When::ALWAYS });
        let tickets = [case.read(5), case.write(70, 2), case.read(6)];
        for ticket in tickets {
            let (done, took_ns) = case.end(ticket);
            assert!(took_ns < OVERDUE_NS, "{took_ns}");
            assert_eq!(kind(&done), CommandError::Gone { memory_released: !refuses_unmap });
            assert_eq!(done.buf.is_some(), !refuses_unmap);
            if done.buf.is_some() {
                case.rest(done);
            }
        }
        let request = read_of(&case.channel, 0..1);
        let Case { rig, channel, .. } = &mut case;
        let (rejected, took_ns) = rig.timed(|| channel.submit(request).expect_err("gone"));
        assert!(
            took_ns < AT_ONCE_NS && matches!(rejected.error, SubmitError::Lost(_)),
            "{took_ns}"
        );
        assert!(rejected.request.buf.is_some());
        let quarantined = case.rig.device.heap().quarantined_bytes();
        assert!(
            if refuses_unmap { quarantined >= 3 * 4096 } else { quarantined == 0 },
            "{quarantined}"
        );
        drop(rejected);
        if !refuses_unmap {
            case.over();
        }
    }
}

/// A device that comes back after it was removed is opened anew.
#[test]
fn a_device_that_is_plugged_in_again_holds_what_it_held() {
    let mut case = Case::new();
    case.order(Fault::SurpriseRemoval, When::ONCE);
    let ticket = case.read(5);
    let (done, _) = case.end(ticket);
    assert_eq!(kind(&done), CommandError::Gone { memory_released: true });
    drop(done);
    let Case { rig, channel, .. } = case;
    drop(channel);
    let Rig { ssd, controller, device, .. } = rig;
    drop((controller, device));
    ssd.plug();
    // SAFETY: the port's last user is gone.
    let transport =
        unsafe { meantime_hw::soft::SoftTransport::new(ssd.port(), "again".into(), None) };
    let controller = meantime_nvme::Controller::enable(std::sync::Arc::new(transport), quick());
    let device = meantime_testkit::device(&controller.expect("it is back"));
    let mut channel = device
        .channel(&ChannelOptions { depth: 4, ..ChannelOptions::default() })
        .expect("a channel");
    verify(&mut channel, WRITTEN, 1);
}

#[test]
fn a_controller_that_does_not_come_back_is_given_up_after_cap_to() {
    let mut case = Case::new();
    case.order(Fault::FatalStatus, When::ONCE);
    case.order(Fault::NeverReady, When::ALWAYS);
    let ticket = case.write(70, 2);
    let (done, took_ns) = case.end(ticket);
    assert_eq!(kind(&done), CommandError::Gone { memory_released: true });
    // CAP.TO is 2 s; once to become ready, once to become disabled.
    assert!((2_000 * MS..4_010 * MS).contains(&took_ns), "{took_ns}");
    case.rest(done);
    case.over();
}

#[test]
fn a_controller_that_was_slow_once_comes_up_the_next_time() {
    // `times` counts enablings.
    let (ssd, _, opened) = open(ssd("null"), quick(), |ssd| {
        ssd.add_fault(FaultRule::new(Fault::NeverReady, When::ONCE)).expect("room");
    });
    let error = opened.err().expect("not ready").to_string();
    assert!(error.contains("CAP.TO"), "{error}");
    // SAFETY: the port's last user is gone.
    let transport =
        unsafe { meantime_hw::soft::SoftTransport::new(ssd.port(), "again".into(), None) };
    meantime_nvme::Controller::enable(std::sync::Arc::new(transport), quick())
        .map(drop)
        .expect("ready now");
}

// ---- data

/// How many bits differ.
fn differing_bits(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

fn expected(lba: u64, blocks: u64, version: u64) -> Vec<u8> {
    let mut data = vec![0; blocks as usize * 512];
    fill(&mut data, 512, lba, version);
    data
}

#[test]
fn corrupted_reads_are_what_verifying_finds() {
    for bits in [1, 8, 4096] {
        let mut case = Case::new();
        case.order(Fault::CorruptRead(bits), once(IoOpcode::Read));
        let request = read_of(&case.channel, 2..18);
        let ticket = case.submit(request);
        let (done, took_ns) = case.end(ticket);
        done.result.expect("nothing that a driver could see");
        assert!(took_ns < AT_ONCE_NS, "{took_ns}");
        let read = done.buf.as_deref().expect("the buffer");
        assert_eq!(differing_bits(read, &expected(2, 16, 1)), bits);
        assert_eq!(case.rig.ssd.counters().injected_corruptions, 1);
        case.rest(done);
        case.over_and_right();
    }
}

#[test]
fn corrupted_writes_are_what_verifying_finds_and_neighbours_are_left() {
    for (volatile_write_cache, bits) in [(false, 1), (true, 9)] {
        let mut case = Case::on(SsdConfig { volatile_write_cache, ..ssd("optane") });
        case.order(Fault::CorruptWrite(bits), once(IoOpcode::Write));
        let request = write_of(&case.channel, 70..78, 2);
        let ticket = case.submit(request);
        let (done, took_ns) = case.end(ticket);
        done.result.expect("nothing that a driver could see");
        assert!(took_ns < AT_ONCE_NS, "{took_ns}");
        case.rest(done);
        for _ in 0..2 {
            let request = read_of(&case.channel, 70..78);
            let ticket = case.submit(request);
            let (done, _) = case.end(ticket);
            let read = done.buf.as_deref().expect("the buffer");
            assert_eq!(differing_bits(read, &expected(70, 8, 2)), bits, "it is on the medium so");
            case.rest(done);
            // And stays so when power fails after a flush.
            let ticket = case.submit(Request::flush());
            case.end(ticket).0.result.expect("flushed");
        }
        verify(&mut case.channel, 69..70, 0);
        verify(&mut case.channel, 78..79, 0);
        case.over_and_right();
    }
}

#[test]
fn a_torn_write_is_old_and_new_within_a_block_unless_it_was_flushed() {
    let mut torn = 0;
    for seed in 0..16 {
        let config =
            SsdConfig { volatile_write_cache: true, atomic_write_lbas: 8, ..ssd("optane") };
        let mut case = Case::on(config);
        let ticket = case.submit(Request::flush());
        case.end(ticket).0.result.expect("flushed");
        case.order(Fault::TornWrite, When { lbas: Some((16, 23)), ..io(IoOpcode::Write) });
        for (lbas, flushed) in [(0..8, true), (16..24, true), (16..24, false)] {
            put(&mut case.channel, lbas, if flushed { 2 } else { 3 });
            if flushed {
                let ticket = case.submit(Request::flush());
                case.end(ticket).0.result.expect("flushed");
            }
        }
        case.rig.ssd.power_cut(&mut Rng::new(seed));
        assert_eq!(case.rig.ssd.counters().injected_tears, 1);
        // The driver finds the controller disabled, and enables it again. (A command meanwhile may
        // fail.)
        let ticket = case.read(40);
        let (done, took_ns) = case.end(ticket);
        assert!(
            took_ns < MS && (done.result.is_ok() || kind(&done) == CommandError::Reset),
            "{took_ns}"
        );
        case.rest(done);
        verify(&mut case.channel, 0..8, 2);
        verify(&mut case.channel, 8..16, 1);
        let request = read_of(&case.channel, 16..24);
        let ticket = case.submit(request);
        let (done, _) = case.end(ticket);
        let read = done.buf.as_deref().expect("the buffer");
        let (old, new) = (expected(16, 8, 2), expected(16, 8, 3));
        let kept = read.iter().zip(&new).take_while(|(a, b)| a == b).count();
        // Not all of it, though a write of this size is said to be atomic; the rest is as it was.
        assert!(
            kept > 0 && kept < read.len() && read[kept..] == old[kept..],
            "seed {seed}: {kept}"
        );
        torn += u32::from(kept % 512 != 0);
        case.rest(done);
        verify(&mut case.channel, 24..64, 1);
        case.over();
    }
    assert!(torn > 8, "within blocks too: {torn}");
}

// ---- the admin queue

#[test]
fn a_slow_admin_queue_makes_opening_slow_and_nothing_else() {
    let mut case = Case::new();
    case.order(Fault::SlowAdmin(5 * MS), When::ALWAYS);
    let Case { rig, .. } = &mut case;
    let (mut other, took_ns) = rig.timed(|| rig.channel(4));
    // Two queues, of two commands each.
    assert!((4 * 5 * MS..4 * 5 * MS + 5 * MS).contains(&took_ns), "{took_ns}");
    let ((), took_ns) = rig.timed(|| verify(&mut other, 0..8, 1));
    assert!(took_ns < AT_ONCE_NS, "I/O queues are not: {took_ns}");
    // Recovery needs the admin queue: it is slower by as much, and takes no further steps.
    case.order(Fault::LostCompletion, once(IoOpcode::Read));
    let resets = case.rig.ssd.counters().resets;
    let ticket = case.read(3);
    let (done, took_ns) = case.end(ticket);
    done.result.expect("sent again");
    assert!(took_ns < LADDER_NS + 5 * 6 * MS, "{took_ns}");
    assert_eq!(case.rig.ssd.counters().resets, resets);
    case.rest(done);
    case.rig.ssd.clear_faults();
    drop(other);
    case.over_and_right();
}

#[test]
fn an_admin_queue_that_is_too_slow_is_named_with_the_time() {
    let (_, meddling, opened) = open(ssd("null"), rig_options(2 * MS), |ssd| {
        let rule = FaultRule::new(Fault::SlowAdmin(1_000 * MS), When::ALWAYS);
        ssd.add_fault(rule).expect("room");
    });
    let error = opened.err().expect("too slow").to_string();
    assert!(error.contains("Identify") && error.contains("50 ms"), "{error}");
    assert_eq!(meddling.mappings_alive(), 0);
}

#[test]
fn a_stuck_admin_queue_costs_a_reset_and_is_bounded() {
    let mut case = Case::new();
    let resets = case.rig.ssd.counters().resets;
    // Abort, and the deletion after it; the reset cures it.
    case.order(Fault::StuckAdmin, When { times: Some(2), ..When::ALWAYS });
    case.order(Fault::LostCompletion, once(IoOpcode::Write));
    let ticket = case.write(70, 2);
    let (done, took_ns) = case.end(ticket);
    done.result.expect("sent again");
    assert!(took_ns < OVERDUE_NS + 2 * 51 * MS + MS, "{took_ns}");
    assert_eq!(case.rig.ssd.counters().resets, resets + 1);
    case.rest(done);
    case.over_and_right();
}

#[test]
fn what_the_admin_queue_refuses_is_named_and_the_next_try_works() {
    for opcode in [AdminOpcode::CreateIoCq, AdminOpcode::CreateIoSq] {
        let mut case = Case::new();
        let status = Status::from_code(StatusCode::InternalError).with_dnr();
        case.order(Fault::Status(status), admin(opcode));
        let options = ChannelOptions { depth: 4, ..ChannelOptions::default() };
        let Case { rig, .. } = &mut case;
        let (opened, took_ns) = rig.timed(|| rig.device.channel(&options));
        let error = opened.err().expect("refused").to_string();
        assert!(error.contains(opcode.name()) && error.contains("Internal Error"), "{error}");
        assert!(took_ns < MS, "{took_ns}");
        rig.ssd.clear_faults();
        verify(&mut rig.channel(4), 0..8, 1);
        case.over_and_right();
    }
}

/// One answer without DNR does not cost the device: a reset sets features and creates queues again.
#[test]
fn what_the_admin_queue_refuses_for_a_moment_is_asked_for_again() {
    for opcode in [AdminOpcode::SetFeatures, AdminOpcode::CreateIoCq, AdminOpcode::CreateIoSq] {
        for times in [1, 3] {
            let mut case = Case::new();
            let status = Status::from_code(StatusCode::InternalError);
            case.order(Fault::Status(status), When { times: Some(times), ..admin(opcode) });
            case.rig.controller.reset_now();
            let ticket = case.read(5);
            let (done, _) = case.end(ticket);
            assert_eq!(
                done.result.is_ok(),
                times < 4 || opcode != AdminOpcode::SetFeatures,
                "{opcode} {times}"
            );
            case.rest(done);
            case.rig.ssd.clear_faults();
            if times < 4 {
                case.over_and_right();
            }
        }
    }
}

/// What a controller says of itself is not trusted.
#[test]
fn corrupted_identify_data_are_refused_or_harmless() {
    let mut refused = 0;
    for seed in 0..200 {
        let (ssd, meddling, opened) = open(ssd("null"), quick(), |ssd| {
            let rule = FaultRule::new(Fault::CorruptRead(64), admin(AdminOpcode::Identify));
            ssd.set_faults(meantime_ssd::FaultPlan { seed, ..meantime_ssd::FaultPlan::only(rule) });
        });
        assert!(ssd.counters().injected_corruptions > 0);
        match opened {
            Ok(controller) => drop(controller),
            Err(_) => refused += 1,
        }
        assert_eq!(meddling.mappings_alive(), 0);
    }
    println!("{refused} of 200 refused");
}

// ---- a device's name

#[test]
fn a_plan_comes_with_the_devices_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plan.toml");
    let text = "[[fault]]\nfault = 'status'\nstatus = 'access-denied'\ndnr = true\nopcode = 'read'\nlba = 3";
    std::fs::write(&path, text).unwrap();
    let options = meantime_block::OpenOptions::default();
    let uri = format!("mem:1M?faults={}", path.display());
    let device = meantime_block::open(&uri, &options).expect("opened");
    let mut channel = device.channel(&ChannelOptions::default()).expect("a channel");
    for lba in [2, 3] {
        let request = read_of(&channel, lba..lba + 1);
        let ticket = channel.submit(request).expect("room");
        let done = channel.wait(ticket);
        let denied = Status::from_code(StatusCode::AccessDenied).with_dnr();
        let denied = CommandError::Status(denied).into();
        assert_eq!(
            done.result.map_err(|error| error.kind),
            if lba == 3 { Err(denied) } else { Ok(()) }
        );
    }
    std::fs::write(&path, "[[fault]]\nfault = 'no-completion'").unwrap();
    let error = meantime_block::open(&uri, &options).err().expect("a bad plan").to_string();
    assert!(error.contains("plan.toml") && error.contains("line 2"), "{error}");
    let error = meantime_block::open("mem:1M?faults=/nowhere/x.toml", &options)
        .err()
        .expect("none")
        .to_string();
    assert!(error.contains("/nowhere/x.toml"), "{error}");
    let error =
        meantime_block::open("mem:1M?faults=", &options).err().expect("no name").to_string();
    assert!(error.contains("faults="), "{error}");
    let _ = rig::US;
}
