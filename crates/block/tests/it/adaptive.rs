//! `adaptive` and `auto` through a channel, on a device whose time is stepped: sleeping ends at
//! once there and costs nothing, so that whatever can be slept is.

use std::sync::atomic::Ordering;

use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, NvmeChannel};
use meantime_completion::{Goal, Policy};
use meantime_ssd::{FaultPlan, Jitter, Model, SsdConfig};
use meantime_testkit::rig::{MS, Rig, US, late, put, read_of, ssd, verify, write_of};

/// A channel without an interrupt.
fn channel(rig: &Rig, depth: u16, policy: Policy) -> NvmeChannel {
    let interrupt = Some(false);
    let options =
        ChannelOptions { depth, policy: Some(policy), interrupt, ..ChannelOptions::default() };
    rig.device.channel(&options).expect("a channel")
}

/// A device that takes `ns` for everything.
fn constant(ns: u64) -> SsdConfig {
    let mut config = ssd("nvram");
    config.model = Model {
        read: vec![(512, ns)],
        write: vec![(512, ns)],
        jitter: Jitter::None,
        ..config.model
    };
    config
}

fn read(channel: &mut NvmeChannel, blocks: u64) {
    let ticket = channel.submit(read_of(channel, 0..blocks)).expect("room");
    channel.wait(ticket).result.expect("read");
}

/// The virtual time that `ios` reads take, and how much of it was slept.
fn reads(rig: &Rig, channel: &mut NvmeChannel, ios: u64) -> (u64, u64) {
    let slept_ns = || rig.meddling.slept_ns.load(Ordering::Relaxed);
    let before_ns = slept_ns();
    let ((), took_ns) = rig.timed(|| (0..ios).for_each(|_| read(channel, 1)));
    (took_ns, slept_ns() - before_ns)
}

#[test]
fn sleeps_through_what_it_knows_and_is_in_time() {
    let rig = Rig::new(constant(20 * US));
    let mut polling = channel(&rig, 1, Policy::Poll);
    let (polled_ns, _) = reads(&rig, &mut polling, 1_000);
    let mut adaptive = channel(&rig, 1, Policy::ADAPTIVE);
    reads(&rig, &mut adaptive, 200);
    let (took_ns, slept_ns) = reads(&rig, &mut adaptive, 1_000);
    assert!(took_ns as f64 <= 1.03 * polled_ns as f64, "{took_ns} against {polled_ns}");
    assert!(slept_ns as f64 >= 0.9 * took_ns as f64, "{slept_ns} of {took_ns}");
    let estimate = adaptive.estimate().expect("it estimates");
    assert!((19_000.0..21_000.0).contains(&estimate.median_ns) && estimate.held, "{estimate:?}");
}

#[test]
fn a_device_that_becomes_faster_or_slower_is_followed() {
    for (first_ns, then_ns) in [(10 * US, 50 * US), (60 * US, 10 * US)] {
        let rig = Rig::new(constant(first_ns.min(then_ns)));
        let mut channel = channel(&rig, 1, Policy::ADAPTIVE);
        let plan_for = |ns| match ns - first_ns.min(then_ns) {
            0 => FaultPlan::NONE,
            more_ns => late(more_ns),
        };
        rig.ssd.set_faults(plan_for(first_ns));
        reads(&rig, &mut channel, 1_000);
        rig.ssd.set_faults(plan_for(then_ns));
        reads(&rig, &mut channel, 200);
        let (took_ns, slept_ns) = reads(&rig, &mut channel, 500);
        assert!(
            took_ns as f64 <= 1.06 * (500 * then_ns) as f64,
            "{first_ns} to {then_ns}: {took_ns}"
        );
        assert!(
            slept_ns as f64 >= 0.8 * took_ns as f64,
            "{first_ns} to {then_ns}: {slept_ns} of {took_ns}"
        );
    }
}

/// With an interrupt a sleep is over when the I/O is: the first one that is faster than it was
/// expected to be is found as soon as any other.
#[test]
fn a_completion_ends_a_sleep() {
    let rig = Rig::new(constant(10 * US));
    // A goal that is held by sleeps alone.
    let policy = Some(Policy::Adaptive(Goal::P99(100_000)));
    let options = ChannelOptions { policy, ..ChannelOptions::default() };
    let mut channel = rig.device.channel(&options).expect("a channel");
    rig.ssd.set_faults(late(50 * US));
    reads(&rig, &mut channel, 1_000);
    let waits = channel.counters().interrupt_waits;
    assert!(waits.sleeps > 500 && waits.blocks == 0, "{waits:?}");
    rig.ssd.set_faults(FaultPlan::NONE);
    let (took_ns, _) = reads(&rig, &mut channel, 1);
    assert!((10 * US..11 * US).contains(&took_ns), "{took_ns}");
    // A channel without one sleeps on, once.
    let mut polled = self::channel(&rig, 1, Policy::ADAPTIVE);
    rig.ssd.set_faults(late(50 * US));
    reads(&rig, &mut polled, 1_000);
    rig.ssd.set_faults(FaultPlan::NONE);
    let (took_ns, _) = reads(&rig, &mut polled, 1);
    assert!(took_ns > 55 * US, "{took_ns}");
}

/// It does without where the device has few queues.
#[test]
fn an_interrupt_takes_no_queue_that_another_channel_needs() {
    for policy in [Policy::ADAPTIVE, Policy::Adaptive(Goal::Cpu(30))] {
        let rig = Rig::new(SsdConfig { max_io_queues: 4, ..ssd("nvram") });
        let options = ChannelOptions { policy: Some(policy), ..ChannelOptions::default() };
        let channels: Vec<_> =
            (0..3).map(|_| rig.device.channel(&options).expect("a queue is left")).collect();
        let with = channels.iter().filter(|channel| channel.counters().interrupt.is_some()).count();
        assert_eq!(with, 1);
        assert!(rig.device.channel(&options).is_err());
    }
}

#[test]
fn sizes_are_told_apart() {
    let mut config = ssd("nvram");
    config.model = Model {
        read: vec![(512, 5 * US), (65_536, 60 * US)],
        jitter: Jitter::None,
        ..config.model
    };
    let rig = Rig::new(config);
    let mut channel = channel(&rig, 1, Policy::ADAPTIVE);
    for _ in 0..400 {
        read(&mut channel, 1);
        read(&mut channel, 128);
    }
    let waits = channel.counters().polled_waits;
    let ((), took_ns) = rig.timed(|| {
        for _ in 0..400 {
            read(&mut channel, 1);
            read(&mut channel, 128);
        }
    });
    assert!(took_ns as f64 <= 1.04 * (400 * 65 * US) as f64, "{took_ns}");
    assert!(channel.counters().polled_waits.sleeps - waits.sleeps > 600, "both are slept for");
}

#[test]
fn each_request_has_its_goal() {
    let rig = Rig::new(constant(20 * US));
    let mut channel = channel(&rig, 4, Policy::Poll);
    let goals = [
        Goal::default(),
        Goal::Latency(500),
        Goal::P99(40_000),
        Goal::P999(100_000),
        Goal::Cpu(50),
        Goal::Latency(1),
    ];
    for n in 0..2_000u64 {
        let policy = Policy::Adaptive(goals[n as usize % goals.len()]);
        let ticket = channel
            .submit(write_of(&channel, n % 64..n % 64 + 1, n + 1).policy(policy))
            .expect("room");
        channel.wait(ticket).result.expect("written");
    }
    assert!(channel.counters().polled_waits.sleeps > 500);
    verify(&mut channel, 1_999 % 64..1_999 % 64 + 1, 2_000);
}

/// Several in flight, whichever ends first: nothing is lost, and sleeping costs little.
#[test]
fn several_in_flight() {
    for policy in [Policy::ADAPTIVE, Policy::Adaptive(Goal::Latency(40))] {
        let rig = Rig::new(ssd("zssd"));
        let mut ways = [Policy::Poll, policy].map(|policy| channel(&rig, 8, policy));
        let took_ns = ways.each_mut().map(|channel| {
            let mut turn = |ios: u64| {
                for n in 0..8 {
                    channel.enqueue(read_of(channel, n..n + 8)).expect("room");
                }
                for n in 8..ios + 8 {
                    let done = channel.wait_done().expect("eight are under way");
                    done.result.expect("read");
                    if n < ios {
                        channel.enqueue(read_of(channel, n % 64..n % 64 + 8)).expect("room");
                    }
                }
                assert!(channel.wait_done().is_none());
            };
            turn(1_000);
            rig.timed(|| turn(2_000)).1
        });
        assert!(took_ns[1] as f64 <= 1.05 * took_ns[0] as f64, "{policy}: {took_ns:?}");
    }
}

/// An I/O that takes far longer than any did before is not spun for, and is not lost.
#[test]
fn what_is_far_beyond_is_not_burnt_for() {
    let rig = Rig::new(constant(20 * US));
    let mut channel = channel(&rig, 2, Policy::ADAPTIVE);
    reads(&rig, &mut channel, 500);
    let ticket = rig.submit_with_faults(late(MS), &mut channel, read_of(&rig.channel(1), 0..1));
    let before = channel.counters().polled_waits.fallbacks;
    let (done, took_ns) = rig.timed(|| channel.wait(ticket));
    done.result.expect("read");
    assert!((MS..2 * MS).contains(&took_ns), "{took_ns}");
    assert_eq!(channel.counters().polled_waits.fallbacks - before, 1);
}

#[test]
fn it_goes_by_what_there_is() {
    let rig = Rig::new(ssd("nvram"));
    for interrupt in [None, Some(true), Some(false)] {
        let options = ChannelOptions {
            depth: 2,
            policy: Some(Policy::ADAPTIVE),
            interrupt,
            ..ChannelOptions::default()
        };
        let mut channel = rig.device.channel(&options).expect("a channel");
        assert_eq!(channel.event().is_some(), interrupt != Some(false));
        (0..500).for_each(|n| put(&mut channel, n % 64..n % 64 + 1, n + 1));
        verify(&mut channel, 499 % 64..499 % 64 + 1, 500);
    }
}

#[test]
fn the_policy_changes_while_running() {
    let rig = Rig::new(constant(20 * US));
    let mut channel = channel(&rig, 4, Policy::Poll);
    meantime_baselines::register().expect("no other rules");
    for n in 0..3_000u64 {
        let policies =
            ["poll", "adaptive", "pas", "adaptive:cpu=30", "hybrid=3us", "adaptive:p99=50us"];
        if n % 100 == 0 {
            let policy = policies[(n / 100) as usize % policies.len()].parse().expect("a policy");
            channel.set_policy(policy).expect("it can be waited for so");
            assert_eq!(channel.policy(), policy);
        }
        put(&mut channel, n % 64..n % 64 + 1, n + 1);
    }
    verify(&mut channel, 2_999 % 64..2_999 % 64 + 1, 3_000);
}
