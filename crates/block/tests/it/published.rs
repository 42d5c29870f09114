//! The published policies through a channel, on a device whose time is stepped. What waking costs
//! is assumed: it would be measured.

use std::sync::atomic::Ordering;

use meantime_baselines::published::{Published, WakeCosts, register};
use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, SubmitError};
use meantime_completion::Policy;
use meantime_ssd::SsdConfig;
use meantime_testkit::rig::{MS, Rig, US, put, read_of, ssd, verify, write_of};

/// A sleep costs 2 × 1 + 1 = 3 µs; the interrupt is taken from 30 µs on.
const COSTS: WakeCosts = WakeCosts { context_switch_ns: 1_000, interrupt_ns: 1_000 };

fn published() -> Published {
    register().expect("no other rules")
}

fn per_io() -> [Policy; 4] {
    let Published { hybrid_bucket, ehp, pas, dpas, .. } = published();
    [hybrid_bucket, ehp, pas, dpas]
}

/// A channel with both queues.
fn channel(rig: &Rig, depth: u16, policy: Policy) -> NvmeChannel {
    // The first test to come says so, for all of them.
    let _ = COSTS.assume();
    assert_eq!(WakeCosts::of_this_machine(), COSTS);
    let options = ChannelOptions {
        depth,
        policy: Some(policy),
        interrupt: Some(true),
        ..ChannelOptions::default()
    };
    rig.device.channel(&options).expect("a channel")
}

fn read(channel: &mut NvmeChannel, blocks: u64) {
    let ticket = channel.submit(read_of(channel, 0..blocks)).expect("room");
    channel.wait(ticket).result.expect("read");
}

/// How often was slept, and for how long, in `action`.
fn slept(rig: &Rig, action: impl FnOnce()) -> (u64, u64) {
    let read = || {
        [&rig.meddling.sleeps, &rig.meddling.slept_ns].map(|count| count.load(Ordering::Relaxed))
    };
    let before = read();
    action();
    let after = read();
    (after[0] - before[0], after[1] - before[1])
}

/// Reads for `duration_ns` of virtual time.
fn read_for(rig: &Rig, channel: &mut NvmeChannel, blocks: u64, duration_ns: u64) {
    let start_ns = rig.ssd.peek_ns();
    while rig.ssd.peek_ns() - start_ns < duration_ns {
        read(channel, blocks);
    }
}

/// Sleeps on the polled queue, and how many of them were too long.
fn polled_sleeps(channel: &NvmeChannel) -> (u64, u64) {
    let waits = channel.counters().polled_waits;
    (waits.sleeps, waits.oversleeps)
}

#[test]
fn each_does_io_and_sleeps() {
    for policy in per_io() {
        let rig = Rig::new(ssd("nvram"));
        let mut channel = channel(&rig, 4, policy);
        (0..64).for_each(|n| put(&mut channel, n..n + 1, n + 1));
        read_for(&rig, &mut channel, 8, 120 * MS);
        (0..64).for_each(|n| verify(&mut channel, n..n + 1, n + 1));
        let counters = channel.counters();
        assert!(counters.polled_waits.sleeps > 50, "{policy}: {counters:?}");
        assert_eq!(counters.interrupt.expect("there").staged, 0, "{policy}: nvram takes 8 µs");
        assert_eq!(channel.policy(), policy);
    }
}

/// A request's own policy, which the channel was never told of.
#[test]
fn each_works_for_single_requests() {
    for policy in per_io() {
        let rig = Rig::new(ssd("nvram"));
        let mut channel = channel(&rig, 4, Policy::Poll);
        for n in 0..300 {
            let ticket = channel.submit(write_of(&channel, 0..1, n).policy(policy)).expect("room");
            channel.wait(ticket).result.expect("written");
        }
        verify(&mut channel, 0..1, 299);
        let (sleeps, _) = polled_sleeps(&channel);
        // 300 I/Os of 8 µs are 2.4 ms: no window has closed.
        let learns_at_once = [published().pas, published().dpas].contains(&policy);
        assert_eq!(sleeps > 0, learns_at_once, "{policy}: {sleeps}");
    }
}

/// Half the mean of each size, not of both together.
#[test]
fn hybrid_bucket_sleeps_by_size() {
    let rig = Rig::new(ssd("nand"));
    let mut channel = channel(&rig, 1, published().hybrid_bucket);
    let start_ns = rig.ssd.peek_ns();
    let (mut small_ns, mut large_ns, mut count) = (0, 0, 0);
    let time = |blocks, channel: &mut NvmeChannel| rig.timed(|| read(channel, blocks)).1;
    while rig.ssd.peek_ns() - start_ns < 99 * MS {
        (small_ns, large_ns, count) =
            (small_ns + time(1, &mut channel), large_ns + time(128, &mut channel), count + 1);
    }
    assert_eq!(polled_sleeps(&channel).0, 0, "no mean before 100 ms");
    read_for(&rig, &mut channel, 1, 3 * MS);
    for (blocks, mean_ns) in [(1, small_ns / count), (128, large_ns / count)] {
        let (sleeps, slept_ns) = slept(&rig, || read(&mut channel, blocks));
        assert_eq!(sleeps, 1);
        let half_ns = mean_ns / 2;
        assert!(
            slept_ns.abs_diff(half_ns) < half_ns / 10,
            "{blocks} blocks: {slept_ns} of {mean_ns}"
        );
    }
    assert!(
        large_ns > small_ns * 5 / 4,
        "the two sizes take different times: {small_ns}, {large_ns}"
    );
}

/// 8 µs less 3 are slept; NAND, at more than 30, goes to the interrupt once a window has closed.
#[test]
fn ehp_sleeps_or_takes_the_interrupt_by_the_minimum() {
    let rig = Rig::new(ssd("nvram"));
    let mut fast = channel(&rig, 1, published().ehp);
    let times_ns: Vec<u64> = (0..1_800).map(|_| rig.timed(|| read(&mut fast, 1)).1).collect();
    let (sleeps, slept_ns) = slept(&rig, || read(&mut fast, 1));
    let min_ns = *times_ns.iter().min().expect("some");
    assert!(times_ns.iter().sum::<u64>() > 12 * MS && min_ns > 4 * US, "{min_ns}");
    // What a test sees of an I/O's time is a little more than what the channel does.
    assert!(sleeps == 1 && slept_ns.abs_diff(min_ns - 3 * US) < US, "{slept_ns} of {min_ns}");
    assert_eq!(fast.counters().interrupt.expect("there").staged, 0);
    assert_eq!(polled_sleeps(&fast).1, 0, "never too long");

    let rig = Rig::new(ssd("nand"));
    let mut slow = channel(&rig, 1, published().ehp);
    read_for(&rig, &mut slow, 1, 9 * MS);
    assert_eq!((slow.counters().interrupt.expect("there").staged, polled_sleeps(&slow).0), (0, 0));
    read_for(&rig, &mut slow, 1, 21 * MS);
    let before = slow.counters();
    (0..50).for_each(|_| read(&mut slow, 1));
    let after = slow.counters();
    assert_eq!(
        after.interrupt.expect("there").staged - before.interrupt.expect("there").staged,
        50
    );
    assert_eq!(after.polled.staged, before.polled.staged);
}

/// It comes close to the device's time, and stays there: its last results are about as often of the
/// one kind as of the other.
#[test]
fn pas_finds_the_device_time() {
    let rig = Rig::new(ssd("nvram"));
    let mut channel = channel(&rig, 1, published().pas);
    (0..1_000).for_each(|_| read(&mut channel, 1));
    let before = polled_sleeps(&channel);
    let (sleeps, slept_ns) = slept(&rig, || (0..1_000).for_each(|_| read(&mut channel, 1)));
    assert_eq!(sleeps, 1_000);
    assert!((6 * US..10 * US).contains(&(slept_ns / sleeps)), "{slept_ns}");
    let oversleeps = polled_sleeps(&channel).1 - before.1;
    assert!((50..800).contains(&oversleeps), "{oversleeps}");
}

/// At depth 1 it is classic polling for 1,000 I/Os in 1,100.
#[test]
fn dpas_at_depth_1_is_classic_polling() {
    let rig = Rig::new(ssd("nvram"));
    let mut channel = channel(&rig, 1, published().dpas);
    (0..1_100).for_each(|_| read(&mut channel, 1));
    assert_eq!(polled_sleeps(&channel).0, 100);
    (0..1_100).for_each(|_| read(&mut channel, 1));
    assert_eq!(polled_sleeps(&channel).0, 200);
    assert_eq!(channel.counters().interrupt.expect("there").staged, 0);
}

/// Eight in flight that are there when they are waited for: every sleep is too long, the floor is
/// hit, and the depth is above θ.
#[test]
fn dpas_takes_the_interrupt_when_it_is_overloaded() {
    let rig = Rig::new(ssd("nand"));
    let mut channel = channel(&rig, 8, published().dpas);
    let mut round = || {
        let tickets: Vec<_> = (0..8)
            .map(|lba| channel.submit(read_of(&channel, lba..lba + 1)).expect("room"))
            .collect();
        rig.ssd.run_until_idle();
        rig.ssd.clock().advance(MS);
        tickets.into_iter().for_each(|ticket| channel.wait(ticket).result.expect("read"));
        channel.counters().interrupt.expect("there").staged
    };
    // 100 to be overloaded, 100 to be judged; 8 a round.
    let rounds: Vec<u64> = (0..30).map(|_| round()).collect();
    assert_eq!(rounds[24], 0, "{rounds:?}");
    assert_eq!(rounds[29] - rounds[26], 24, "{rounds:?}");
    // That lasts for 10,000.
    for _ in 0..1_250 {
        round();
    }
    let before = round();
    assert_eq!(round(), before, "overloaded again: polled");
}

/// None of them is an error without a vector: they poll.
#[test]
fn without_a_vector_they_poll() {
    for policy in per_io() {
        let _ = COSTS.assume();
        let rig = Rig::new(SsdConfig { vectors: 1, ..ssd("nand") });
        rig.device.can_wait(policy).expect("it can do without");
        let options = ChannelOptions {
            depth: 8,
            policy: Some(policy),
            interrupt: None,
            ..ChannelOptions::default()
        };
        let mut told = rig.device.channel(&options).expect("without");
        let mut set = rig
            .device
            .channel(&ChannelOptions { policy: Some(Policy::Poll), ..options })
            .expect("a channel");
        set.set_policy(policy).expect("it can do without");
        for channel in [&mut told, &mut set] {
            assert_eq!((channel.policy(), channel.counters().interrupt), (policy, None));
            (0..400).for_each(|n| put(channel, n..n + 1, n + 1));
            verify(channel, 0..1, 1);
            assert_eq!(channel.counters().polled_waits.blocks, 0, "{policy}");
        }
        // The one that cannot do without says so still.
        assert_eq!(set.set_policy(Policy::Interrupt), Err(SubmitError::NoInterrupt));
    }
}
