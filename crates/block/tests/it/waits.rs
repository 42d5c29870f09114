//! What each way to wait costs in virtual time, and deadlines, which hold however a command is
//! waited for, and also when it is not.

use std::sync::atomic::Ordering;

use meantime_block::{BlockChannel, Request, SubmitError, Ticket};
use meantime_completion::Policy;
use meantime_nvme::{CommandError, ControllerOptions};
use meantime_testkit::rig::{
    GRACE_NS, LOST, MS, OVERDUE_NS, Rig, US, in_flight_late, in_flight_lost, kind, late,
    nothing_leaks, put, read_of, rig_options, ssd, verify, write_of,
};

#[test]
fn each_request_is_waited_for_as_it_says() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(4);
    let policies =
        [Policy::Interrupt, Policy::HybridFixed(5_000), Policy::Poll, Policy::HybridHalfMean];
    for (lba, policy) in (0..).zip(policies) {
        let interrupts = rig.ssd.counters().interrupts;
        let ticket =
            channel.submit(write_of(&channel, lba..lba + 1, 1).policy(policy)).expect("room");
        channel.wait(ticket).result.expect("written");
        // A polled I/O does not pay for an interrupt that no thread waits for.
        let sent = rig.ssd.counters().interrupts - interrupts;
        assert_eq!(sent, u64::from(policy == Policy::Interrupt), "{policy}");
    }
    let counters = channel.counters();
    assert_eq!((counters.polled.staged, counters.interrupt.expect("there").staged), (3, 1));
    assert_eq!((counters.polled_waits.sleeps, counters.interrupt_waits.blocks > 0), (1, true));
    verify(&mut channel, 0..4, 1);
}

/// "For whichever ends first", also when the requests wait in different ways.
#[test]
fn wait_done_finds_whichever_ends_first() {
    let policies = [Policy::Interrupt, Policy::Poll];
    for (slow, fast) in [(policies[0], policies[1]), (policies[1], policies[0])] {
        let rig = Rig::new(ssd("optane"));
        let mut channel = rig.channel(4);
        rig.ssd.set_faults(late(MS));
        channel.enqueue(read_of(&channel, 0..1).policy(slow).user_data(1)).expect("room");
        rig.ssd.run_until_idle();
        rig.ssd.set_faults(meantime_ssd::FaultPlan::NONE);
        channel.enqueue(read_of(&channel, 1..2).policy(fast).user_data(2)).expect("room");
        let (done, took_ns) = rig.timed(|| channel.wait_done().expect("two are under way"));
        assert!(done.user_data == 2 && took_ns < MS / 2, "{fast} after {slow}: {took_ns}");
        assert_eq!(channel.wait_done().map(|done| done.user_data), Some(1));
        assert!(channel.wait_done().is_none());
    }
}

#[test]
fn poll_never_sleeps_within_its_budget() {
    let rig = Rig::new(ssd("optane"));
    let mut channel = rig.channel(4);
    let sleeps = rig.meddling.sleeps.load(Ordering::Relaxed);
    for n in 0..200 {
        let ((), took_ns) = rig.timed(|| put(&mut channel, n..n + 8, n));
        assert!((7 * US..80 * US).contains(&took_ns), "{took_ns}");
    }
    assert_eq!(rig.meddling.sleeps.load(Ordering::Relaxed), sleeps);
    let waits = channel.counters().polled_waits;
    assert_eq!((waits.sleeps, waits.oversleeps, waits.fallbacks, waits.blocks), (0, 0, 0, 0));
}

#[test]
fn a_fixed_hybrid_sleeps_once_for_each_io() {
    for (sleep_ns, oversleeps) in [(3_000, 0), (30_000, 100)] {
        let rig = Rig::new(ssd("nvram"));
        let mut channel = rig.channel(1);
        channel.set_policy(Policy::HybridFixed(sleep_ns)).expect("a polled policy");
        let before = [&rig.meddling.sleeps, &rig.meddling.slept_ns]
            .map(|count| count.load(Ordering::Relaxed));
        (0..100).for_each(|n| put(&mut channel, n..n + 1, n));
        assert_eq!(rig.meddling.sleeps.load(Ordering::Relaxed) - before[0], 100);
        assert_eq!(
            rig.meddling.slept_ns.load(Ordering::Relaxed) - before[1],
            100 * u64::from(sleep_ns)
        );
        let waits = channel.counters().polled_waits;
        assert_eq!((waits.sleeps, waits.oversleeps, waits.fallbacks), (100, oversleeps, 0));
    }
}

#[test]
fn hybrid_sleeps_half_the_mean_once_a_window_has_closed() {
    let rig = Rig::new(ssd("nvram"));
    let mut channel = rig.channel(1);
    channel.set_policy(Policy::HybridHalfMean).expect("a polled policy");
    let start_ns = rig.ssd.peek_ns();
    while rig.ssd.peek_ns() - start_ns < 99 * MS {
        put(&mut channel, 0..1, 1);
    }
    let early = channel.counters().polled_waits;
    assert_eq!((early.sleeps, channel.mean_device_time_ns()), (0, 0), "no mean before 100 ms");
    while rig.ssd.peek_ns() - start_ns < 101 * MS {
        put(&mut channel, 0..1, 1);
    }
    let mean_ns = channel.mean_device_time_ns();
    assert!((7_900..8_500).contains(&mean_ns), "Bates' 8 µs: {mean_ns}");
    let before =
        [&rig.meddling.sleeps, &rig.meddling.slept_ns].map(|count| count.load(Ordering::Relaxed));
    (0..50).for_each(|_| put(&mut channel, 0..1, 1));
    assert_eq!(rig.meddling.sleeps.load(Ordering::Relaxed) - before[0], 50);
    assert_eq!(rig.meddling.slept_ns.load(Ordering::Relaxed) - before[1], 50 * mean_ns.div_ceil(2));
}

/// The mean is of what the device takes, not of what its caller does before it asks.
#[test]
fn hybrid_does_not_count_the_time_a_result_lies_about() {
    let rig = Rig::new(ssd("nvram"));
    let mut channel = rig.channel(1);
    channel.set_policy(Policy::HybridHalfMean).expect("a polled policy");
    for _ in 0..200 {
        let ticket = channel.submit(read_of(&channel, 0..1)).expect("room");
        while channel.poll() == 0 {}
        channel.clock().sleep_ns(MS);
        channel.wait(ticket).result.expect("read");
    }
    let mean_ns = channel.mean_device_time_ns();
    assert!((7_000..20_000).contains(&mean_ns), "{mean_ns}");
}

/// Nor of one that failed: it would have the next I/O slept through for half its deadline.
#[test]
fn hybrid_does_not_learn_from_what_timed_out() {
    let options = ControllerOptions { retries: 0, ..rig_options(400 * MS) };
    let rig = Rig::with(ssd("nvram"), options);
    let mut channel = rig.channel(1);
    channel.set_policy(Policy::HybridHalfMean).expect("a polled policy");
    put(&mut channel, 0..1, 1);
    let request = read_of(&channel, 0..1);
    let lost = rig.submit_with_faults(LOST, &mut channel, request);
    assert_eq!(kind(&channel.wait(lost)), CommandError::TimedOut);
    let ((), took_ns) = rig.timed(|| put(&mut channel, 0..1, 2));
    assert!(took_ns < MS, "a device of 8 µs, slept for {took_ns}");
}

/// The times of hybrid requests that a polled one's wait finds ended are taken in as well, and
/// then.
#[test]
fn hybrid_learns_beside_polled_requests() {
    let rig = Rig::new(ssd("nvram"));
    let mut channel = rig.channel(2);
    for _ in 0..300 {
        let [hybrid, polled] = [Policy::HybridHalfMean, Policy::Poll]
            .map(|policy| channel.submit(read_of(&channel, 0..1).policy(policy)).expect("room"));
        // Both are there when the first look comes.
        rig.ssd.run_until_idle();
        rig.ssd.clock().advance(15 * US);
        channel.wait(polled).result.expect("read");
        channel.wait(hybrid).result.expect("read");
        rig.ssd.clock().advance(MS);
    }
    let mean_ns = channel.mean_device_time_ns();
    assert!((7_000..20_000).contains(&mean_ns), "{mean_ns} after 300 ms");
}

#[test]
fn a_spin_budget_that_runs_out_ends_in_growing_sleeps() {
    let rig = Rig::with(ssd("optane"), rig_options(100 * MS));
    let mut channel = rig.channel(1);
    channel.set_spin_budget_ns(20 * US);
    let ticket =
        rig.submit_with_faults(late(10 * MS), &mut channel, read_of(&rig.channel(1), 0..1));
    let sleeps = rig.meddling.sleeps.load(Ordering::Relaxed);
    let (done, took_ns) = rig.timed(|| channel.wait(ticket));
    done.result.expect("late, and in time");
    // Never more than a nap too late: a 64th of the time so far.
    assert!((10 * MS..10 * MS + 260 * US).contains(&took_ns), "{took_ns}");
    let waits = channel.counters().polled_waits;
    let slept = rig.meddling.sleeps.load(Ordering::Relaxed) - sleeps;
    assert_eq!((waits.fallbacks, waits.blocks), (1, slept));
    // 64 for each factor of e from 20 µs to 10 ms, fewer of the first, which are at least 1 µs long.
    assert!((340..=380).contains(&slept), "{slept}");
}

/// "Every command has a deadline": one that is lost ends by it although its neighbours keep the
/// channel busy.
#[test]
fn a_lost_command_ends_by_its_deadline_on_a_busy_channel() {
    for policy in [Policy::Poll, Policy::HybridFixed(20_000), Policy::Interrupt] {
        let rig = Rig::once(ssd("optane"));
        let mut channel = rig.channel(4);
        channel.set_policy(policy).expect("it has both queues");
        let lost = in_flight_lost(&rig, &mut channel, 0);
        let start_ns = rig.ssd.peek_ns();
        let mut waiting = Ok(lost);
        while let Ok(ticket) = waiting {
            let took_ns = rig.ssd.peek_ns() - start_ns;
            assert!(took_ns < 5 * OVERDUE_NS, "{policy}: not ended after five deadlines");
            // The neighbour fails with its queue once; nothing else may be wrong with it.
            let request = read_of(&channel, 1..2);
            let neighbour = channel.submit(request).expect("room");
            if channel.wait(neighbour).result.is_err() {
                assert!(took_ns > MS, "{policy}");
            }
            waiting = match channel.try_take(ticket) {
                Ok(done) => Err(kind(&done)),
                Err(ticket) => Ok(ticket),
            };
        }
        assert_eq!(waiting.expect_err("ended"), CommandError::TimedOut, "{policy}");
    }
}

/// Deadlines are each command's own: many overdue at once do not queue for their ends.
#[test]
fn many_overdue_commands_end_together() {
    let rig = Rig::once(ssd("optane"));
    let mut channel = rig.channel(64);
    let tickets: Vec<Ticket> =
        (0..64).map(|lba| in_flight_late(&rig, &mut channel, lba, 10_000 * MS)).collect();
    let ((), took_ns) = rig.timed(|| {
        tickets
            .into_iter()
            .for_each(|ticket| assert_eq!(kind(&channel.wait(ticket)), CommandError::TimedOut));
    });
    assert!(took_ns < 2 * OVERDUE_NS + 64 * GRACE_NS / 8, "{} deadlines", took_ns / (2 * MS));
}

#[test]
fn a_detached_request_that_is_lost_gives_its_slot_back() {
    let rig = Rig::once(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let mut channel = rig.channel(1);
    let ticket = in_flight_lost(&rig, &mut channel, 0);
    channel.detach(ticket);
    assert!(matches!(
        channel.submit(Request::flush()).expect_err("taken").error,
        SubmitError::Full { .. }
    ));
    let ((), took_ns) = rig.timed(|| while channel.poll() == 0 {});
    assert!((2 * MS..OVERDUE_NS + GRACE_NS + MS).contains(&took_ns), "{took_ns}");
    put(&mut channel, 0..1, 1);
    verify(&mut channel, 0..1, 1);
    nothing_leaks(rig, vec![channel], before);
}

#[test]
fn dropping_a_channel_waits_for_the_device_and_no_longer_than_the_deadline() {
    let rig = Rig::new(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    for (plan, least_ns, most_ns) in [
        (late(MS), MS, OVERDUE_NS),
        (LOST, 2 * MS, OVERDUE_NS + MS),
        (late(100 * MS), 2 * MS, OVERDUE_NS + MS),
    ] {
        let mut channel = rig.channel(4);
        for policy in [Policy::Poll, Policy::Interrupt] {
            let request = write_of(&channel, 0..8, 3).policy(policy);
            let ticket = rig.submit_with_faults(plan.clone(), &mut channel, request);
            channel.detach(ticket);
        }
        let ((), took_ns) = rig.timed(|| drop(channel));
        assert!((least_ns..2 * most_ns).contains(&took_ns), "two queues, {took_ns}");
        assert_eq!(rig.device.heap().allocated_bytes(), before);
    }
    assert_eq!(rig.device.heap().quarantined_bytes(), 0);
}
