//! What ARCHITECTURE.md §1 and §4 promise for a device that misbehaves: what the caller sees, when,
//! and that buffers come back and data stays right. On the stepped SSD, so that "when" is exact.
//! Nothing is repeated here, so that what each rung of the ladder leaves behind can be seen;
//! `retries.rs` has what comes of repeating.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelError, ChannelOptions, IoErrorKind, NvmeChannel, SubmitError,
    Ticket,
};
use meantime_completion::Policy;
use meantime_nvme::{CommandError, Error};
use meantime_ssd::{Fault, FaultPlan};
use meantime_testkit::faults::{ALWAYS, always, ppm, refusing};
use meantime_testkit::rig::{
    GRACE_NS, MS, OVERDUE_NS, Rig, in_flight_late, in_flight_lost, kind, late, nothing_leaks, open,
    put, read_of, ssd, verify, write_of,
};
use meantime_testkit::{quick, rig};

/// An admin command that is not answered.
const ADMIN_NS: u64 = 51 * MS;
/// CAP.TO of the SSD.
const READY_NS: u64 = 2_000 * MS;

const STUCK: FaultPlan = always(Fault::StuckAdmin);
const DEAD: FaultPlan = STUCK.with(ppm(Fault::NeverReady, ALWAYS));

#[test]
fn late_but_before_the_deadline_is_success() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..1, 1);
    let ticket = in_flight_late(&rig, &mut channel, 0, MS);
    let (done, took_ns) = rig.timed(|| channel.wait(ticket));
    assert!(done.result.is_ok() && (MS..MS + MS / 2).contains(&took_ns), "{took_ns}");
    rig::holds(&done.buf.expect("the buffer"), 512, 0, 1);
    assert_eq!((channel.counters().polled.late, channel.counters().polled.aborts), (0, 0));
}

#[test]
fn rung_1_finds_a_completion_that_was_missed() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..1, 1);
    // A reading of the clock every 0.5 ms: a thread that is descheduled most of the time. The
    // completion comes in the very reading which finds its command overdue.
    rig.ssd.set_tick_ns(MS / 2);
    channel.set_spin_budget_ns(u64::MAX);
    let ticket = in_flight_late(&rig, &mut channel, 0, 2 * MS + 3 * MS / 4);
    let (done, took_ns) = rig.timed(|| channel.wait(ticket));
    assert!(done.result.is_ok() && took_ns < 2 * OVERDUE_NS, "{:?} {took_ns}", done.result);
    rig::holds(&done.buf.expect("the buffer"), 512, 0, 1);
    let counters = channel.counters().polled;
    assert_eq!((counters.late, counters.aborts), (1, 0));
}

#[test]
fn rung_2_aborts_and_the_queue_goes_on() {
    for policy in [Policy::Poll, Policy::HybridFixed(10_000), Policy::Interrupt] {
        let rig = Rig::once(ssd("optane"));
        let before = rig.device.heap().allocated_bytes();
        let mut channel = rig.channel(4);
        channel.set_policy(policy).expect("it has both queues");
        put(&mut channel, 0..64, 1);
        let victim = in_flight_late(&rig, &mut channel, 0, 1_000 * MS);
        let neighbour = in_flight_late(&rig, &mut channel, 1, MS);
        let (done, took_ns) = rig.timed(|| channel.wait(victim));
        assert_eq!(kind(&done), CommandError::TimedOut, "{policy}");
        assert!((2 * MS..OVERDUE_NS + GRACE_NS).contains(&took_ns), "{policy}: {took_ns}");
        assert!(done.buf.is_some(), "the buffer is free");
        channel.wait(neighbour).result.expect("untouched");
        let lane = channel.counters();
        let lane =
            if policy == Policy::Interrupt { lane.interrupt.expect("there") } else { lane.polled };
        assert_eq!((lane.aborts, lane.recreations, lane.strays), (1, 0, 0), "{policy}");
        verify(&mut channel, 0..64, 1);
        drop(done);
        nothing_leaks(rig, vec![channel], before);
    }
}

#[test]
fn rung_3_recreates_the_queue_and_leaves_others_alone() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let rig = Rig::once(ssd("optane"));
        let before = rig.device.heap().allocated_bytes();
        let (mut channel, mut other) = (rig.channel(4), rig.channel(4));
        channel.set_policy(policy).expect("it has both queues");
        put(&mut channel, 0..64, 1);
        let resets = rig.ssd.counters().resets;
        let elsewhere = in_flight_late(&rig, &mut other, 2, OVERDUE_NS + GRACE_NS);
        let victim = in_flight_lost(&rig, &mut channel, 0);
        let (done, took_ns) = rig.timed(|| channel.wait(victim));
        assert_eq!(kind(&done), CommandError::TimedOut, "{policy}");
        assert!((2 * MS..OVERDUE_NS + GRACE_NS + MS / 4).contains(&took_ns), "{policy}: {took_ns}");
        assert!(done.buf.is_some());
        let lane = channel.counters();
        let lane =
            if policy == Policy::Interrupt { lane.interrupt.expect("there") } else { lane.polled };
        assert_eq!((lane.aborts, lane.recreations), (1, 1), "{policy}");
        other.wait(elsewhere).result.expect("another queue");
        assert_eq!(rig.ssd.counters().resets, resets, "no reset was needed");
        verify(&mut channel, 0..64, 1);
        verify(&mut other, 0..64, 1);
        assert_eq!(other.counters().polled.recreations, 0);
        drop(done);
        nothing_leaks(rig, vec![channel, other], before);
    }
}

/// §4, step 3: "what was in flight on that queue fails with `TimedOut` (the command itself) or
/// `Reset` (its neighbours)".
#[test]
fn rung_3_tells_neighbours_reset() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(4);
    let victim = in_flight_lost(&rig, &mut channel, 0);
    let neighbour = in_flight_late(&rig, &mut channel, 1, 1_000 * MS);
    let lost_too = in_flight_lost(&rig, &mut channel, 2);
    let ended = [victim, neighbour, lost_too].map(|ticket| kind(&channel.wait(ticket)));
    let timed_out = ended.iter().filter(|&&kind| kind == CommandError::TimedOut).count();
    let reset = ended.iter().filter(|&&kind| kind == CommandError::Reset).count();
    // Which of the overdue is the victim is the driver's choice.
    assert!(timed_out >= 1 && timed_out + reset == 3, "{ended:?}");
}

#[test]
fn rung_4_resets_the_controller_when_a_deletion_is_not_answered() {
    let rig = Rig::once(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let (mut channel, mut other) = (rig.channel(4), rig.channel(4));
    put(&mut channel, 0..64, 1);
    let resets = rig.ssd.counters().resets;
    let victim = in_flight_lost(&rig, &mut channel, 0);
    // Its deadline begins; the others' later.
    channel.clock().sleep_ns(MS / 2);
    channel.poll();
    channel.clock().sleep_ns(MS);
    let neighbour = in_flight_late(&rig, &mut channel, 1, 1_000 * MS);
    let elsewhere = in_flight_late(&rig, &mut other, 2, 1_000 * MS);
    // The admin queue hangs until the controller is disabled.
    rig.ssd.set_faults(STUCK);
    let cured = rig.ssd.clone();
    rig.meddling.on_disable(move || cured.set_faults(FaultPlan::NONE));
    let (victim, took_ns) = rig.timed(|| channel.wait(victim));
    assert_eq!(kind(&victim), CommandError::TimedOut);
    assert!(took_ns < OVERDUE_NS + 2 * ADMIN_NS + GRACE_NS + MS, "{took_ns}");
    assert_eq!(kind(&channel.wait(neighbour)), CommandError::Reset);
    let (done, took_ns) = rig.timed(|| other.wait(elsewhere));
    assert_eq!(kind(&done), CommandError::Reset);
    assert!(done.buf.is_some() && took_ns < MS, "{took_ns}");
    assert_eq!(rig.ssd.counters().resets, resets + 1);
    verify(&mut channel, 0..64, 1);
    verify(&mut other, 0..64, 1);
    drop((victim, done));
    nothing_leaks(rig, vec![channel, other], before);
}

/// A rig whose controller does not come back from its reset, with what was in flight on two
/// channels.
fn given_up(refuses_unmap: bool) -> (Rig, NvmeChannel, NvmeChannel, usize) {
    let rig = Rig::once(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let (mut channel, mut other) = (rig.channel(4), rig.channel(4));
    rig.meddling.refuses_unmap.store(refuses_unmap, Ordering::Relaxed);
    let victim = in_flight_lost(&rig, &mut channel, 0);
    let elsewhere = in_flight_late(&rig, &mut other, 2, 100_000 * MS);
    rig.ssd.set_faults(DEAD);
    let (done, took_ns) = rig.timed(|| channel.wait(victim));
    let memory_released = !refuses_unmap;
    assert_eq!(kind(&done), CommandError::Gone { memory_released });
    assert_eq!(done.buf.is_some(), memory_released);
    assert!(took_ns < OVERDUE_NS + 2 * ADMIN_NS + GRACE_NS + READY_NS + 10 * MS, "{took_ns}");
    let (done, took_ns) = rig.timed(|| other.wait(elsewhere));
    assert_eq!(kind(&done), CommandError::Gone { memory_released });
    assert_eq!(done.buf.is_some(), memory_released);
    assert!(took_ns < MS, "{took_ns}");
    (rig, channel, other, before)
}

#[test]
fn rung_5_gives_the_controller_up_and_the_buffers_back() {
    let (rig, channel, other, before) = given_up(false);
    drop((channel, other));
    assert!(rig.device.heap().allocated_bytes() <= before);
    assert_eq!(rig.device.heap().quarantined_bytes(), 0);
}

#[test]
fn rung_5_returns_all_memory_to_the_system() {
    let (rig, channel, other, before) = given_up(false);
    nothing_leaks(rig, vec![channel, other], before);
}

#[test]
fn rung_5_quarantines_what_cannot_be_unmapped() {
    let (rig, channel, other, _) = given_up(true);
    assert!(rig.device.heap().quarantined_bytes() >= 2 * 4096, "the two buffers");
    let before = rig.device.heap().quarantined_bytes();
    drop((channel, other));
    // Rings are memory that the device may write to as well.
    assert!(rig.device.heap().quarantined_bytes() > before);
    let Rig { controller, device, meddling, .. } = rig;
    drop((controller, device));
    assert!(meddling.mappings_alive() > 0, "what the device may write to is never unmapped");
}

#[test]
fn after_the_end_a_submission_fails_at_once() {
    let (rig, mut channel, mut other, _) = given_up(false);
    for channel in [&mut channel, &mut other] {
        for policy in [Policy::Poll, Policy::Interrupt] {
            let request = read_of(channel, 0..1).policy(policy);
            let (result, took_ns) = rig.timed(|| channel.submit(request));
            assert!(took_ns < MS, "{took_ns}");
            let rejected = result.expect_err("the device is gone");
            assert!(matches!(rejected.error, SubmitError::Lost(_)), "{}", rejected.error);
            assert!(rejected.request.buf.is_some());
        }
    }
    let error = rig.device.channel(&ChannelOptions::default()).err().expect("no channel");
    assert!(matches!(error, ChannelError::Nvme(Error::Gone)), "{error}");
}

#[test]
fn a_fatal_status_is_found_and_reset_once() {
    let rig = Rig::once(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let (mut channel, mut other) = (rig.channel(4), rig.channel(4));
    put(&mut channel, 0..64, 1);
    let resets = rig.ssd.counters().resets;
    let pending = in_flight_late(&rig, &mut channel, 1, 100 * MS);
    let elsewhere = in_flight_late(&rig, &mut other, 2, 100 * MS);
    let request = read_of(&channel, 3..4);
    let fatal = rig.submit_with_faults(always(Fault::FatalStatus), &mut channel, request);
    let (done, took_ns) = rig.timed(|| channel.wait(fatal));
    assert_eq!(kind(&done), CommandError::Reset);
    assert!(took_ns < MS, "found well before the deadline: {took_ns}");
    assert_eq!(kind(&channel.wait(pending)), CommandError::Reset);
    assert_eq!(kind(&other.wait(elsewhere)), CommandError::Reset);
    verify(&mut channel, 0..64, 1);
    verify(&mut other, 0..64, 1);
    assert_eq!(rig.ssd.counters().resets, resets + 1);
    drop(done);
    nothing_leaks(rig, vec![channel, other], before);
}

#[test]
fn a_device_that_vanishes_is_noticed_on_every_channel() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let rig = Rig::once(ssd("optane"));
        let before = rig.device.heap().allocated_bytes();
        let mut channels = vec![rig.channel(4), rig.channel(4)];
        let tickets: Vec<Ticket> = channels
            .iter_mut()
            .flat_map(|channel| {
                channel.set_policy(policy).expect("it has both queues");
                [0, 1].map(|lba| in_flight_late(&rig, channel, lba, MS))
            })
            .collect();
        rig.ssd.unplug();
        for (n, ticket) in tickets.into_iter().enumerate() {
            let (done, took_ns) = rig.timed(|| channels[n / 2].wait(ticket));
            assert_eq!(kind(&done), CommandError::Gone { memory_released: true }, "{policy}");
            assert!(done.buf.is_some() && took_ns < OVERDUE_NS, "{policy}: {took_ns}");
        }
        drop(channels);
        assert!(rig.device.heap().allocated_bytes() <= before);
    }
}

#[test]
fn a_channel_of_a_vanished_device_is_dropped_in_bounded_time() {
    let rig = Rig::once(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let mut channel = rig.channel(4);
    let ticket = in_flight_late(&rig, &mut channel, 0, MS);
    rig.ssd.unplug();
    let ((), took_ns) = rig.timed(|| drop(channel));
    assert!(took_ns < OVERDUE_NS + MS, "{took_ns}");
    assert!(rig.device.heap().allocated_bytes() <= before);
    drop(ticket);
}

#[test]
fn what_can_be_wrong_at_open_says_what_and_how_long() {
    type Prepare = fn(&meantime_ssd::SteppedSsd);
    let cases: [(Prepare, &[&str], u64); 3] = [
        (|ssd| ssd.unplug(), &["gone"], MS),
        (
            |ssd| ssd.set_faults(always(Fault::NeverReady)),
            &["CAP.TO", "2000 ms", "CSTS"],
            2 * READY_NS + MS,
        ),
        (|ssd| ssd.set_faults(STUCK), &["did not answer Identify", "50 ms"], ADMIN_NS + MS),
    ];
    for (prepare, words, bound_ns) in cases {
        let (ssd, meddling, opened) = open(rig::ssd("null"), quick(), prepare);
        let error = opened.err().expect("it cannot come up").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(ssd.peek_ns() < bound_ns, "{words:?}: {}", ssd.peek_ns());
        assert_eq!(meddling.mappings_alive(), 0, "{words:?}: memory left behind");
    }
}

#[test]
fn a_reset_elsewhere_finds_a_channel_idle() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    rig.controller.reset_now();
    for policy in [Policy::Poll, Policy::Interrupt] {
        let request = read_of(&channel, 0..8).policy(policy);
        let ticket = channel.submit(request).expect("the queue is recreated");
        channel.wait(ticket).result.expect("nothing was in flight");
    }
    verify(&mut channel, 0..8, 1);
    let counters = channel.counters();
    assert_eq!(
        (counters.polled.recreations, counters.interrupt.expect("there").recreations),
        (1, 1)
    );
}

#[test]
fn a_reset_elsewhere_fails_what_is_in_flight() {
    for policy in [Policy::Poll, Policy::HybridFixed(5_000), Policy::Interrupt] {
        let rig = Rig::once(ssd("optane"));
        let mut channel = rig.channel(4);
        put(&mut channel, 0..8, 1);
        let request = read_of(&channel, 0..8).policy(policy);
        let ticket = rig.submit_with_faults(late(100 * MS), &mut channel, request);
        // While it waits, or before that: both.
        let controller = Arc::clone(&rig.controller);
        if policy == Policy::Poll {
            controller.reset_now();
        } else {
            rig.meddling.on_sleep(move || controller.reset_now());
        }
        let (done, took_ns) = rig.timed(|| channel.wait(ticket));
        assert_eq!(kind(&done), CommandError::Reset, "{policy}");
        assert!(done.buf.is_some() && took_ns < MS, "{policy}: {took_ns}");
        verify(&mut channel, 0..8, 1);
    }
}

#[test]
fn a_reset_elsewhere_while_requests_are_collected() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    channel.plug();
    let tickets = [0, 2].map(|lba| {
        let request = read_of(&channel, lba..lba + 1);
        channel.submit(request).expect("room")
    });
    rig.controller.reset_now();
    let request = read_of(&channel, 4..5);
    let after = channel.submit(request).expect("room");
    channel.unplug();
    for ticket in tickets {
        // Never sent, or failed with the queue: either is true.
        let done = channel.wait(ticket);
        assert!(done.result.is_ok() || kind(&done) == CommandError::Reset, "{:?}", done.result);
    }
    channel.wait(after).result.expect("collected after the reset");
    verify(&mut channel, 0..8, 1);
}

#[test]
fn a_reset_elsewhere_while_parts_wait_for_room() {
    let mut config = ssd("optane");
    config.mdts_bytes = 8192;
    let rig = Rig::once(config);
    let mut channel = rig.channel(2);
    put(&mut channel, 0..4096, 1);
    // 128 commands each: the first is half sent, the second not at all.
    let tickets = [0, 2048].map(|lba| {
        let request = write_of(&channel, lba..lba + 2048, 2);
        channel.submit(request).expect("room")
    });
    rig.controller.reset_now();
    let [first, second] = tickets;
    assert_eq!(kind(&channel.wait(first)), CommandError::Reset);
    channel.wait(second).result.expect("none of it had been sent");
    verify(&mut channel, 2048..4096, 2);
    assert_eq!(channel.in_flight(), 0);
}

/// Another thread resets the controller just while this one is on the ladder.
#[test]
fn a_reset_elsewhere_during_the_ladder_does_not_lose_the_queue() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    let victim = in_flight_lost(&rig, &mut channel, 0);
    // All spinning, so that the first sleep is the one in which the aborted command is waited for.
    channel.set_spin_budget_ns(u64::MAX);
    let controller = Arc::clone(&rig.controller);
    rig.meddling.on_sleep(move || controller.reset_now());
    let done = channel.wait(victim);
    assert!(
        [CommandError::TimedOut, CommandError::Reset].map(IoErrorKind::from).contains(&kind(&done))
    );
    for _ in 0..3 {
        verify(&mut channel, 0..8, 1);
    }
}

#[test]
fn stray_and_repeated_completions_are_counted_and_harmless() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(32);
    let plan = FaultPlan::only(ppm(Fault::StrayCqe, ALWAYS / 2))
        .with(ppm(Fault::DuplicateCqe, ALWAYS / 2));
    rig.ssd.set_faults(plan);
    for version in 1..20 {
        let tickets: Vec<_> = (0..32)
            .map(|lba| {
                let request = write_of(&channel, lba..lba + 1, version);
                channel.submit(request).expect("room")
            })
            .collect();
        tickets.into_iter().for_each(|ticket| channel.wait(ticket).result.expect("written"));
        verify(&mut channel, 0..32, version);
    }
    channel.clock().sleep_ns(MS);
    channel.poll();
    let injected = rig.ssd.counters().injected_strays;
    assert!(injected > 300, "{injected}");
    assert_eq!(channel.counters().polled.strays, injected);
}

#[test]
fn status_errors_come_once_by_their_name() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(4);
    let (mut retryable, mut final_ones) = (0, 0);
    for n in 1..=100 {
        let request = read_of(&channel, 0..1);
        let ticket = rig.submit_with_faults(refusing(n), &mut channel, request);
        let error = channel.wait(ticket).result.expect_err("injected");
        let IoErrorKind::Command(CommandError::Status(status)) = error.kind else {
            panic!("{error}")
        };
        let (name, text) = (status.code().expect("a known status").name(), error.to_string());
        assert!(text.contains(name) && text.contains("read at LBA 0"), "{text}");
        assert_eq!(text.contains("do not retry"), status.dnr(), "{text}");
        if status.dnr() {
            final_ones += 1
        } else {
            retryable += 1
        }
        assert_eq!(
            rig.ssd.counters().injected_errors,
            n,
            "nothing is retried behind the caller's back"
        );
    }
    assert!(retryable > 10 && final_ones > 10);
}
