//! What is repeated, how often, and what the caller sees of it: nothing, or the last error. On the
//! stepped SSD, whose time is exact.

use std::sync::Arc;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, IoErrorKind, NvmeChannel, Request, Ticket,
};
use meantime_completion::Policy;
use meantime_nvme::retry::{Verdict, verdict};
use meantime_nvme::{CommandError, ControllerOptions};
use meantime_nvme_spec::opcode::AdminOpcode;
use meantime_nvme_spec::status::Status;
use meantime_ssd::{
    Fault, FaultControl as _, FaultPlan, FaultRule, OpcodeSet, Rng, SsdConfig, SteppedSsd, When,
};
use meantime_testkit::faults::{ALWAYS, always, refusing, with_statuses};
use meantime_testkit::port::Meddling;
use meantime_testkit::quick;
use meantime_testkit::rig::{
    LOST, MS, OVERDUE_NS, Rig, US, holds, in_flight_late, in_flight_lost, kind, late,
    nothing_leaks, put, read_of, ssd, verify, write_of,
};

fn status_of(kind: IoErrorKind) -> Status {
    let IoErrorKind::Command(CommandError::Status(status)) = kind else {
        panic!("{kind} is no status")
    };
    status
}

fn cached(volatile: bool) -> SsdConfig {
    SsdConfig { volatile_write_cache: volatile, ..ssd("optane") }
}

fn flush(channel: &mut NvmeChannel) -> Result<(), IoErrorKind> {
    let ticket = channel.submit(Request::flush()).expect("room");
    channel.wait(ticket).result.map_err(|error| error.kind)
}

#[test]
fn a_status_that_allows_it_is_repeated_after_a_pause() {
    let (mut repeated, mut told) = (0, 0);
    for seed in 0..100 {
        let first = {
            let rig = Rig::once(ssd("optane"));
            let mut channel = rig.channel(4);
            let request = read_of(&channel, 0..1);
            let ticket = rig.submit_with_faults(refusing(seed), &mut channel, request);
            status_of(kind(&channel.wait(ticket)))
        };
        let rig = Rig::new(ssd("optane"));
        let mut channel = rig.channel(4);
        put(&mut channel, 0..1, 1);
        let request = read_of(&channel, 0..1);
        let ticket = rig.submit_with_faults(refusing(seed), &mut channel, request);
        let (done, took_ns) = rig.timed(|| channel.wait(ticket));
        let counters = channel.counters().polled;
        if verdict(first) == Verdict::Retry {
            repeated += 1;
            assert_eq!(done.result, Ok(()), "{first}");
            holds(&done.buf.expect("the buffer"), 512, 0, 1);
            assert!((10 * US..60 * US).contains(&took_ns), "{took_ns}");
            assert_eq!((counters.retries, counters.requeued, counters.ended), (1, 0, 2));
        } else {
            told += 1;
            assert_eq!(status_of(kind(&done)), first);
            assert_eq!(counters.retries, 0);
        }
    }
    assert!(repeated > 10 && told > 10, "{repeated} {told}");
}

#[test]
fn tries_are_bounded_and_the_last_error_is_told() {
    let mut used_up = 0;
    for seed in 0..400 {
        let rig = Rig::new(ssd("optane"));
        let mut channel = rig.channel(4);
        rig.ssd.set_faults(refusing(seed));
        let request = read_of(&channel, 0..1);
        let ticket = channel.submit(request).expect("room");
        let (done, took_ns) = rig.timed(|| channel.wait(ticket));
        let last = status_of(kind(&done));
        let (tries, retries) =
            (rig.ssd.counters().injected_errors, channel.counters().polled.retries);
        assert_eq!(tries, retries + 1);
        assert!(tries <= 5);
        if verdict(last) == Verdict::Retry {
            used_up += 1;
            // 10 + 40 + 160 + 640 µs.
            assert!(tries == 5 && (850 * US..MS).contains(&took_ns), "{tries} {took_ns}");
        }
        assert!(done.buf.is_some());
        assert_eq!(channel.in_flight(), 0);
    }
    assert!(used_up > 5, "{used_up}");
}

/// A slot's next command has all its tries, whatever became of the one before.
#[test]
fn each_command_has_its_own_tries() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(1);
    // More commands than a slot has generations.
    for n in 0..200 {
        let before = channel.counters().polled.retries;
        rig.ssd.set_faults(refusing(n));
        let request = read_of(&channel, 0..1);
        let ticket = channel.submit(request).expect("room");
        let last = status_of(kind(&channel.wait(ticket)));
        let retries = channel.counters().polled.retries - before;
        assert!(
            verdict(last) != Verdict::Retry || retries == 4,
            "command {n}: {last} after {retries}"
        );
    }
}

#[test]
fn others_go_on_during_a_pause() {
    for policy in [Policy::Poll, Policy::HybridFixed(3_000), Policy::Interrupt] {
        let rig = Rig::new(ssd("optane"));
        let mut channel = rig.channel(8);
        channel.set_policy(policy).expect("it has both queues");
        put(&mut channel, 0..8, 1);
        let mut waited = 0;
        for seed in 0..20 {
            let request = read_of(&channel, 0..1);
            let refused = rig.submit_with_faults(refusing(seed), &mut channel, request);
            channel.clock().sleep_ns(20 * US);
            // Takes the refusal, without ending anything if it is to be repeated.
            let pending = channel.poll() == 0;
            let request = read_of(&channel, 1..2);
            let other = channel.submit(request).expect("room");
            let (done, took_ns) = rig.timed(|| channel.wait(other));
            done.result.expect("nothing is wrong with this one");
            assert!(took_ns < 25 * US, "{policy}: {took_ns}");
            let done = channel.wait(refused);
            assert_eq!(done.result.is_ok(), pending, "{policy}: {:?}", done.result);
            waited += u64::from(pending);
        }
        assert!(waited > 3);
        assert_eq!(channel.in_flight(), 0);
    }
}

#[test]
fn the_deadline_counts_over_all_tries() {
    let mut late_ones = 0;
    for seed in 0..100 {
        // Time for 10 + 40 µs, not for 160 more.
        let rig = Rig::with(ssd("null"), ControllerOptions { io_timeout_ns: 150 * US, ..quick() });
        let mut channel = rig.channel(4);
        rig.ssd.set_faults(refusing(seed));
        let request = read_of(&channel, 0..1);
        let ticket = channel.submit(request).expect("room");
        let (done, took_ns) = rig.timed(|| channel.wait(ticket));
        let last = status_of(kind(&done));
        assert!(took_ns < 150 * US, "{took_ns}");
        if verdict(last) == Verdict::Retry {
            late_ones += 1;
            assert_eq!(channel.counters().polled.retries, 2);
        }
    }
    assert!(late_ones > 3);
}

#[test]
fn only_the_part_that_failed_is_repeated() {
    let mut config = ssd("optane");
    config.mdts_bytes = 8192;
    let mut repeated = 0;
    for seed in 0..60 {
        let rig = Rig::new(config.clone());
        let mut channel = rig.channel(4);
        // 16 parts.
        let request = write_of(&channel, 0..256, seed + 1);
        rig.ssd.set_faults(with_statuses(FaultPlan { seed, ..FaultPlan::NONE }, 60_000));
        let ticket = channel.submit(request).expect("room");
        let done = channel.wait(ticket);
        rig.ssd.set_faults(FaultPlan::NONE);
        if done.result.is_err() {
            continue;
        }
        let retries = channel.counters().polled.retries;
        let counters = rig.ssd.counters();
        assert_eq!(counters.injected_errors, retries);
        // Whether the SSD counts those that it refused or not.
        let tries = [16, 16 + counters.injected_errors];
        assert!(tries.contains(&counters.writes), "{counters:?}");
        repeated += retries;
        verify(&mut channel, 0..256, seed + 1);
    }
    assert!(repeated > 10, "{repeated}");
}

#[test]
fn what_was_lost_with_its_queue_is_put_back() {
    for policy in [Policy::Poll, Policy::HybridFixed(10_000), Policy::Interrupt] {
        let rig = Rig::new(ssd("optane"));
        let before = rig.device.heap().allocated_bytes();
        let mut channel = rig.channel(8);
        channel.set_policy(policy).expect("it has both queues");
        put(&mut channel, 0..64, 1);
        let victim = in_flight_lost(&rig, &mut channel, 0);
        let request = write_of(&channel, 1..2, 2);
        let neighbour = rig.submit_with_faults(LOST, &mut channel, request);
        let slow = in_flight_late(&rig, &mut channel, 2, 1_000 * MS);
        let (done, took_ns) = rig.timed(|| channel.wait(victim));
        assert_eq!(done.result, Ok(()), "{policy}");
        holds(&done.buf.expect("the buffer"), 512, 0, 1);
        assert!((2 * MS..OVERDUE_NS + MS / 2).contains(&took_ns), "{policy}: {took_ns}");
        let wrote = channel.wait(neighbour);
        assert_eq!(wrote.result, Ok(()), "{policy}");
        channel.wait(slow).result.expect("put back too");
        let lane = channel.counters();
        let lane =
            if policy == Policy::Interrupt { lane.interrupt.expect("there") } else { lane.polled };
        assert!(
            lane.requeued >= 2 && lane.recreations == 1 && lane.strays == 0,
            "{policy}: {lane:?}"
        );
        verify(&mut channel, 0..1, 1);
        verify(&mut channel, 1..2, 2);
        drop(wrote);
        nothing_leaks(rig, vec![channel], before);
    }
}

#[test]
fn a_command_that_is_always_lost_times_out_in_the_end() {
    let rig = Rig::new(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let mut channel = rig.channel(4);
    rig.ssd.set_faults(LOST);
    let request = read_of(&channel, 0..1);
    let ticket = channel.submit(request).expect("room");
    let (done, took_ns) = rig.timed(|| channel.wait(ticket));
    rig.ssd.set_faults(FaultPlan::NONE);
    assert_eq!(kind(&done), CommandError::TimedOut);
    assert!((5 * 2 * MS..5 * (OVERDUE_NS + MS)).contains(&took_ns), "{took_ns}");
    let counters = channel.counters().polled;
    assert_eq!((counters.requeued, counters.recreations), (4, 5));
    verify(&mut channel, 0..1, 0);
    drop(done);
    nothing_leaks(rig, vec![channel], before);
}

#[test]
fn what_was_aborted_is_begun_anew() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..1, 1);
    let slow = in_flight_late(&rig, &mut channel, 0, 1_000 * MS);
    let (done, took_ns) = rig.timed(|| channel.wait(slow));
    assert_eq!(done.result, Ok(()));
    holds(&done.buf.expect("the buffer"), 512, 0, 1);
    assert!((2 * MS..OVERDUE_NS + MS / 2).contains(&took_ns), "{took_ns}");
    let counters = channel.counters().polled;
    assert_eq!((counters.aborts, counters.recreations, counters.requeued), (1, 0, 1));
    rig.ssd.set_faults(late(1_000 * MS));
    let request = read_of(&channel, 0..1);
    let ticket = channel.submit(request).expect("room");
    let (done, took_ns) = rig.timed(|| channel.wait(ticket));
    assert_eq!(kind(&done), CommandError::TimedOut);
    assert!((5 * 2 * MS..5 * (OVERDUE_NS + MS / 2)).contains(&took_ns), "{took_ns}");
    assert_eq!(channel.counters().polled.aborts, 1 + 5);
}

/// Slots are used in another order than they stand in, and the ring has gone round since the oldest
/// was sent.
#[test]
fn what_was_in_flight_is_put_back_in_its_old_order() {
    let rig = Rig::with(ssd("optane"), ControllerOptions { io_timeout_ns: 1_000 * MS, ..quick() });
    let mut channel = rig.channel(16);
    let first: Vec<Ticket> =
        (0..16).map(|lba| in_flight_late(&rig, &mut channel, lba, 0)).collect();
    let mut first: Vec<Option<Ticket>> = first.into_iter().map(Some).collect();
    for n in [3, 1, 7, 0, 5, 15, 2, 4, 11, 9, 6, 8, 10, 14, 12, 13] {
        let ticket: Ticket = first[n].take().expect("each once");
        channel.wait(ticket).result.expect("read");
    }
    // Overlapping writes have no order; but the SSD does them as they come, so that the last one
    // tells.
    let writes: Vec<Ticket> = (1..=12)
        .map(|version| {
            let request = write_of(&channel, 0..1, version);
            let ticket = rig.submit_with_faults(late(100 * MS), &mut channel, request);
            for _ in 0..30 {
                // Others between, which go round the ring.
                verify(&mut channel, 8..9, 0);
            }
            ticket
        })
        .collect();
    rig.controller.reset_now();
    for ticket in writes {
        channel.wait(ticket).result.expect("put back");
    }
    assert_eq!(channel.counters().polled.requeued, 12);
    verify(&mut channel, 0..1, 12);
}

#[test]
fn a_reset_elsewhere_is_not_seen() {
    for policy in [Policy::Poll, Policy::HybridFixed(5_000), Policy::Interrupt] {
        let mut config = ssd("optane");
        config.mdts_bytes = 8192;
        let rig = Rig::new(config);
        let before = rig.device.heap().allocated_bytes();
        let mut channel = rig.channel(8);
        channel.set_policy(policy).expect("it has both queues");
        put(&mut channel, 0..1024, 1);
        let requests = [
            read_of(&channel, 0..8),
            write_of(&channel, 8..600, 2),
            Request::write_zeroes(600, 8),
            Request::deallocate(608, 8),
            Request::flush(),
        ];
        let tickets =
            requests.map(|request| rig.submit_with_faults(late(100 * MS), &mut channel, request));
        rig.controller.reset_now();
        for (n, ticket) in tickets.into_iter().enumerate() {
            let (done, took_ns) = rig.timed(|| channel.wait(ticket));
            assert_eq!(done.result, Ok(()), "{policy}: {n}");
            assert!(took_ns < 5 * MS, "{policy}: {n}: {took_ns}");
        }
        channel.set_policy(Policy::Poll).expect("it polls");
        verify(&mut channel, 0..8, 1);
        verify(&mut channel, 8..600, 2);
        verify(&mut channel, 600..608, 0);
        verify(&mut channel, 616..1024, 1);
        nothing_leaks(rig, vec![channel], before);
    }
}

#[test]
fn a_fatal_status_is_not_seen() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..64, 1);
    let pending = in_flight_late(&rig, &mut channel, 1, 100 * MS);
    let request = read_of(&channel, 3..4);
    let fatal = rig.submit_with_faults(always(Fault::FatalStatus), &mut channel, request);
    for (ticket, lba) in [(fatal, 3), (pending, 1)] {
        let done = channel.wait(ticket);
        assert_eq!(done.result, Ok(()));
        holds(&done.buf.expect("the buffer"), 512, lba, 1);
    }
}

#[test]
fn resets_are_not_put_up_with_for_ever() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(4);
    // After each reset the first command is the controller's end.
    rig.ssd.set_faults(always(Fault::FatalStatus));
    let request = read_of(&channel, 0..1);
    let ticket = channel.submit(request).expect("room");
    let done = channel.wait(ticket);
    assert_eq!(kind(&done), CommandError::Reset);
    assert_eq!(channel.counters().polled.requeued, 4);
}

/// What the device says again of a try that has ended is not taken for the next one.
#[test]
fn repeated_completions_of_a_try_do_not_end_the_next() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(16);
    rig.ssd.set_faults(with_statuses(always(Fault::DuplicateCqe), ALWAYS / 4));
    let mut versions = [0; 16];
    for version in 1..50 {
        let requests: Vec<_> = (0..16)
            .map(|lba| {
                let request = write_of(&channel, lba..lba + 1, version);
                channel.submit(request).expect("room")
            })
            .collect();
        for (lba, ticket) in requests.into_iter().enumerate() {
            if channel.wait(ticket).result.is_ok() {
                versions[lba] = version;
            }
        }
    }
    rig.ssd.set_faults(FaultPlan::NONE);
    for (lba, version) in (0..).zip(versions) {
        verify(&mut channel, lba..lba + 1, version);
    }
    let counters = channel.counters().polled;
    assert!(counters.retries > 50 && counters.strays > 500, "{counters:?}");
}

#[test]
fn a_write_that_was_detached_is_repeated_by_the_end_of_the_channel() {
    let mut repeated = 0;
    for seed in 0..20 {
        let rig = Rig::new(ssd("optane"));
        let mut channel = rig.channel(4);
        let request = write_of(&channel, 0..1, 7);
        let ticket = rig.submit_with_faults(refusing(seed), &mut channel, request);
        channel.detach(ticket);
        drop(channel);
        let mut channel = rig.channel(4);
        let request = read_of(&channel, 0..1);
        let ticket = channel.submit(request).expect("room");
        let buf = channel.wait(ticket).buf.expect("the buffer");
        if buf[..8] != [0; 8] {
            holds(&buf, 512, 0, 7);
            repeated += 1;
        }
    }
    assert!(repeated > 3, "{repeated}");
}

#[test]
fn a_power_cut_fails_the_next_flush_of_every_channel_once() {
    let rig = Rig::new(cached(true));
    let (mut writer, mut other) = (rig.channel(4), rig.channel(4));
    put(&mut writer, 0..8, 1);
    rig.ssd.power_cut(&mut Rng::new(1));
    // The first command to come notices the cut; commands that are retried do not report it.
    put(&mut writer, 8..16, 2);
    assert_eq!(flush(&mut writer), Err(CommandError::CacheLost.into()));
    assert_eq!(flush(&mut writer), Ok(()));
    // A flush on another channel has to report it too.
    assert_eq!(flush(&mut other), Err(CommandError::CacheLost.into()));
    assert_eq!(flush(&mut other), Ok(()));
    // But not on a channel opened after it was noticed.
    let mut later = rig.channel(4);
    assert_eq!(flush(&mut later), Ok(()));
    rig.ssd.power_cut(&mut Rng::new(2));
    assert_eq!(
        flush(&mut later),
        Err(CommandError::CacheLost.into()),
        "this flush found it itself"
    );
    assert_eq!(flush(&mut later), Ok(()), "and was told already");
    rig.ssd.power_cut(&mut Rng::new(3));
    verify(&mut later, 8..16, 2);
    let mut last = rig.channel(4);
    assert_eq!(flush(&mut last), Err(CommandError::CacheLost.into()), "no caller knew of this one");
}

#[test]
fn a_flush_that_waits_for_room_hears_of_a_power_cut() {
    let mut config = cached(true);
    config.mdts_bytes = 8192;
    let rig = Rig::new(config);
    let mut channel = rig.channel(2);
    put(&mut channel, 0..1, 1);
    // More parts than there is room for; the flush waits behind them.
    let request = write_of(&channel, 8..4104, 2);
    let large = rig.submit_with_faults(late(MS / 2), &mut channel, request);
    let flush = channel.submit(Request::flush()).expect("room");
    rig.ssd.power_cut(&mut Rng::new(1));
    assert_eq!(channel.wait(large).result, Ok(()));
    assert_eq!(kind(&channel.wait(flush)), CommandError::CacheLost);
    verify(&mut channel, 8..4104, 2);
}

#[test]
fn no_flush_fails_without_a_volatile_cache_or_for_our_own_reset() {
    let rig = Rig::new(cached(false));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    rig.ssd.power_cut(&mut Rng::new(1));
    assert_eq!(flush(&mut channel), Ok(()));
    verify(&mut channel, 0..8, 1);
    let rig = Rig::new(cached(true));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    rig.controller.reset_now();
    assert_eq!(flush(&mut channel), Ok(()));
    rig.ssd.power_cut(&mut Rng::new(1));
    verify(&mut channel, 0..8, 1);
}

/// A channel without an interrupt naps; the pause must not be slept through, nor the deadline.
#[test]
fn pauses_end_in_time_for_any_way_to_wait() {
    let policies = [
        Policy::Poll,
        Policy::HybridFixed(100),
        Policy::HybridHalfMean,
        Policy::Adaptive(Default::default()),
    ];
    for policy in policies {
        for interrupt in [false, true] {
            let rig = Rig::with(
                ssd("optane"),
                ControllerOptions { io_timeout_ns: 1_000 * MS, ..quick() },
            );
            let options = ChannelOptions {
                depth: 4,
                policy: Some(policy),
                interrupt: Some(interrupt),
                ..ChannelOptions::default()
            };
            let mut channel = rig.device.channel(&options).expect("a channel");
            channel.set_spin_budget_ns(0);
            for seed in 0..30 {
                let request = read_of(&channel, 0..1);
                let ticket = rig.submit_with_faults(refusing(seed), &mut channel, request);
                let (_, took_ns) = rig.timed(|| channel.wait(ticket));
                assert!(took_ns < 100 * US, "{policy} {interrupt}: {took_ns}");
            }
        }
    }
}

/// The flush that fails tells of what was lost up to then, and not of what is lost after it.
#[test]
fn a_second_power_cut_before_the_next_flush_is_told_as_well() {
    let rig = Rig::new(cached(true));
    let mut channel = rig.channel(4);
    for seed in 1..4 {
        put(&mut channel, 0..8, seed);
        rig.ssd.power_cut(&mut Rng::new(seed));
        // It is a write that notices.
        put(&mut channel, 8..16, seed);
        assert_eq!(flush(&mut channel), Err(CommandError::CacheLost.into()), "cut {seed}");
    }
    assert_eq!(flush(&mut channel), Ok(()));
}

/// Of two flushes, on a queue each, the one that was there before the cut is the last to hear of
/// it.
#[test]
fn a_flush_that_hears_late_of_a_power_cut_does_not_tell_of_the_next() {
    let rig = Rig::new(cached(true));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    let early = Request { policy: Some(Policy::Interrupt), ..Request::flush() };
    let early = rig.submit_with_faults(late(MS), &mut channel, early);
    rig.ssd.power_cut(&mut Rng::new(1));
    rig.controller.reset_now();
    assert_eq!(flush(&mut channel), Err(CommandError::CacheLost.into()));
    assert_eq!(kind(&channel.wait(early)), CommandError::CacheLost);
    put(&mut channel, 0..8, 2);
    rig.ssd.power_cut(&mut Rng::new(2));
    put(&mut channel, 8..16, 2);
    assert_eq!(flush(&mut channel), Err(CommandError::CacheLost.into()), "the second cut");
    assert_eq!(flush(&mut channel), Ok(()));
}

/// Does `action` when the SSD has first been found not to answer an admin command.
fn when_stuck(rig: &Rig, action: impl FnOnce(&SteppedSsd) + Send + 'static) {
    fn watch(
        meddling: Arc<Meddling>,
        ssd: SteppedSsd,
        action: impl FnOnce(&SteppedSsd) + Send + 'static,
    ) {
        let again = Arc::clone(&meddling);
        meddling.on_sleep(move || match ssd.faults().iter().any(|rule| rule.hits > 0) {
            true => action(&ssd),
            false => watch(again, ssd, action),
        });
    }
    let opcodes = Some(OpcodeSet::admin(&[AdminOpcode::CreateIoCq]));
    let when = When { opcodes, ..When::ONCE };
    rig.ssd.add_fault(FaultRule::new(Fault::StuckAdmin, when)).expect("room");
    watch(Arc::clone(&rig.meddling), rig.ssd.clone(), action);
}

#[test]
fn a_power_cut_while_its_queue_is_created_anew_fails_a_flush() {
    let rig = Rig::new(cached(true));
    let mut channel = rig.channel(4);
    put(&mut channel, 0..8, 1);
    let lost = rig.submit_with_faults(LOST, &mut channel, Request::flush());
    when_stuck(&rig, |ssd| {
        ssd.power_cut(&mut Rng::new(1));
    });
    assert_eq!(kind(&channel.wait(lost)), CommandError::CacheLost);
    assert_eq!(flush(&mut channel), Ok(()), "and was told already");
}

#[test]
fn a_device_that_vanishes_while_a_queue_is_created_anew_is_gone() {
    for reset in [false, true] {
        let rig = Rig::new(ssd("optane"));
        let before = rig.device.heap().allocated_bytes();
        let mut channel = rig.channel(4);
        put(&mut channel, 0..8, 1);
        let lost = in_flight_lost(&rig, &mut channel, 0);
        when_stuck(&rig, SteppedSsd::unplug);
        if reset {
            rig.controller.reset_now();
        }
        let (done, took_ns) = rig.timed(|| channel.wait(lost));
        assert_eq!(kind(&done), CommandError::Gone { memory_released: true }, "{reset}");
        assert!(took_ns < OVERDUE_NS + 5 * MS, "{reset}: {took_ns}");
        let request = read_of(&channel, 0..1);
        let error = channel.submit(request).map(drop).expect_err("gone").error;
        assert!(error.to_string().contains("gone"), "{reset}: {error}");
        drop(done);
        nothing_leaks(rig, vec![channel], before);
    }
}

/// A detached write is not polled for. The end of the channel waits for it, for as long as a wait
/// for the write would have taken.
#[test]
fn a_write_that_was_detached_outlives_a_failure_of_the_controller() {
    let fatal = always(Fault::FatalStatus);
    for policy in [Policy::Poll, Policy::Interrupt] {
        for plan in [fatal.clone(), LOST] {
            let rig = Rig::new(ssd("optane"));
            let mut channel = rig.channel(4);
            let request = Request { policy: Some(policy), ..write_of(&channel, 0..1, 7) };
            let ticket = rig.submit_with_faults(plan, &mut channel, request);
            channel.detach(ticket);
            // What was lost was done; what is to be repeated is not known to be done.
            let writes = rig.ssd.counters().writes;
            let ((), took_ns) = rig.timed(|| drop(channel));
            assert!(took_ns < OVERDUE_NS + MS, "{took_ns}");
            assert_eq!(rig.ssd.counters().writes, writes + 1, "{policy}");
            verify(&mut rig.channel(4), 0..1, 7);
        }
    }
}
