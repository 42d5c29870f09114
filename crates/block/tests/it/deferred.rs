//! Deferred work in the gaps, in virtual time: pieces move the clock by what they cost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use meantime_block::{BlockChannel, NvmeChannel};
use meantime_completion::{
    DEFERRED_LIMIT, DeferRefusal, Deferred, PATIENCE_NS, Pieces, Policy, Progress, WorkCounters,
};
use meantime_nvme::CommandError;
use meantime_ssd::{FaultPlan, Jitter, Model, Slow, SsdConfig};
use meantime_testkit::rig::{
    LOST, MS, OVERDUE_NS, Rig, US, kind, late, put, read_of, rig_options, ssd, verify,
};
use proptest::prelude::*;

/// An SSD whose every command takes `device_ns`, give or take `sigma`.
fn taking(device_ns: u64, sigma: f64) -> SsdConfig {
    let config = ssd("optane");
    let jitter = if sigma > 0.0 { Jitter::Lognormal { sigma } } else { Jitter::None };
    let costs = vec![(512, device_ns), (1 << 20, device_ns + 1)];
    let slow = Slow::default();
    let model = Model {
        channels: 1,
        read: costs.clone(),
        write: costs,
        jitter,
        slow,
        nand: None,
        ..config.model
    };
    SsdConfig { model, ..config }
}

/// Work of pieces that take `cost_ns` each; it counts them, and has `count` of them.
fn pieces(
    rig: &Rig,
    bound_ns: u64,
    cost_ns: u64,
    count: u64,
) -> (Pieces<impl FnMut() -> Progress + Send + use<>>, Arc<AtomicU64>) {
    let (clock, ran) = (rig.ssd.clock(), Arc::<AtomicU64>::default());
    let counted = Arc::clone(&ran);
    let run = move || {
        clock.advance(cost_ns);
        if counted.fetch_add(1, Ordering::Relaxed) + 1 < count {
            Progress::More
        } else {
            Progress::Done
        }
    };
    (Pieces::new(bound_ns, run), ran)
}

const ENDLESS: u64 = u64::MAX;

/// Work that never fits and never ends: it keeps the channel's eyes on the time.
fn anchor() -> Box<dyn Deferred> {
    Box::new(Pieces::new(u64::MAX, || Progress::More).patience_ns(u64::MAX))
}

/// Has the channel know how long its reads take.
fn learn(channel: &mut NvmeChannel) {
    channel.defer(anchor()).expect("room");
    (0..40).for_each(|_| read(channel));
}

fn read(channel: &mut NvmeChannel) {
    let ticket = channel.submit(read_of(channel, 0..1)).expect("room");
    channel.wait(ticket).result.expect("read");
}

fn work(channel: &NvmeChannel) -> WorkCounters {
    channel.counters().work
}

#[test]
fn as_much_is_done_as_fits_and_no_io_is_late_for_it() {
    for policy in [Policy::Poll, Policy::ADAPTIVE, Policy::HybridFixed(2_000)] {
        let rig = Rig::new(taking(10 * US, 0.0));
        let mut channel = rig.channel(1);
        channel.set_policy(policy).expect("a polled policy");
        learn(&mut channel);
        let ((), without_ns) = rig.timed(|| read(&mut channel));
        // By hand: three pieces of 3 us fit into 10 us, a fourth does not.
        let (three, ran) = pieces(&rig, 3 * US, 3 * US, ENDLESS);
        channel.defer(Box::new(three)).expect("room");
        for n in 1..=50 {
            let ((), with_ns) = rig.timed(|| read(&mut channel));
            // A thread that waits for an interrupt sees virtual time pass in steps of 200 ns.
            assert!(with_ns <= without_ns + 300, "{policy}: {with_ns} instead of {without_ns}");
            assert_eq!(ran.load(Ordering::Relaxed), 3 * n, "{policy}");
        }
        let counters = work(&channel);
        assert_eq!((counters.pieces, counters.late, counters.forced), (150, 0, 0), "{policy}");
    }
}

#[test]
fn what_does_not_fit_is_not_run_and_what_fits_is_run_meanwhile() {
    let rig = Rig::new(taking(10 * US, 0.0));
    let mut channel = rig.channel(1);
    learn(&mut channel);
    let (large, ran_large) = pieces(&rig, 11 * US, 11 * US, ENDLESS);
    let (small, ran_small) = pieces(&rig, US, US, 20);
    channel.defer(Box::new(large)).expect("room");
    channel.defer(Box::new(small)).expect("room");
    (0..20).for_each(|_| read(&mut channel));
    assert_eq!([ran_large, ran_small].map(|ran| ran.load(Ordering::Relaxed)), [0, 20]);
}

/// With a device faster than any piece.
#[test]
fn nothing_starves() {
    for policy in [Policy::Poll, Policy::Interrupt, Policy::HybridFixed(1_000)] {
        let rig = Rig::new(taking(2 * US, 0.0));
        let mut channel = rig.channel(1);
        channel.set_policy(policy).expect("there are both queues");
        let (large, ran) = pieces(&rig, 5 * US, 5 * US, 3);
        let start_ns = rig.ssd.peek_ns();
        channel.defer(Box::new(large)).expect("room");
        while rig.ssd.peek_ns() - start_ns < PATIENCE_NS - 20 * US {
            read(&mut channel);
        }
        assert_eq!(ran.load(Ordering::Relaxed), 0, "{policy}");
        let mut longest_ns = 0;
        for _ in 0..20 {
            let ((), took_ns) = rig.timed(|| read(&mut channel));
            longest_ns = longest_ns.max(took_ns);
        }
        assert_eq!((ran.load(Ordering::Relaxed), channel.deferred()), (3, 0), "{policy}");
        // A piece, then a look: not three in one wait.
        assert!((5 * US..9 * US).contains(&longest_ns), "{policy}: {longest_ns}");
        let counters = work(&channel);
        assert_eq!(
            (counters.forced, counters.late, counters.late_max_ns / US),
            (3, 3, 5),
            "{policy}"
        );
    }
}

/// Nor during a wait that is itself longer than it may wait.
#[test]
fn a_long_wait_does_not_hold_work_up() {
    for policy in [Policy::Poll, Policy::Interrupt, Policy::ADAPTIVE, Policy::HybridFixed(50_000)] {
        let rig = Rig::with(taking(10 * US, 0.0), rig_options(400 * MS));
        let mut channel = rig.channel(1);
        channel.set_policy(policy).expect("there are both queues");
        let request = read_of(&channel, 0..1);
        let ticket = rig.doomed(late(60 * MS), &mut channel, request);
        let (clock, ran_ns) = (rig.ssd.clock(), Arc::<AtomicU64>::default());
        let noted = Arc::clone(&ran_ns);
        let note = move || noted.store(clock.now_ns(), Ordering::Relaxed);
        let handed_ns = rig.ssd.peek_ns();
        channel.defer(Box::new(Pieces::once(5 * US, note))).expect("room");
        channel.wait(ticket).result.expect("late, and in time");
        let waited_ns = ran_ns.load(Ordering::Relaxed) - handed_ns;
        assert!((PATIENCE_NS..PATIENCE_NS + 2 * MS).contains(&waited_ns), "{policy}: {waited_ns}");
    }
}

/// Work that has waited too long and never ends does not keep a lost command from its deadline.
#[test]
fn endless_work_does_not_hide_a_deadline() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let rig = Rig::once(taking(10 * US, 0.0));
        let mut channel = rig.channel(1);
        channel.set_policy(policy).expect("there are both queues");
        let (endless, ran) = pieces(&rig, US, US, ENDLESS);
        channel.defer(Box::new(endless.patience_ns(0))).expect("room");
        let request = read_of(&channel, 0..1);
        let lost = rig.doomed(LOST, &mut channel, request);
        let (done, took_ns) = rig.timed(|| channel.wait(lost));
        assert_eq!(kind(&done), CommandError::TimedOut, "{policy}");
        assert!(took_ns < 2 * OVERDUE_NS, "{policy}: {took_ns}");
        assert!(ran.load(Ordering::Relaxed) > 1_000, "{policy}");
    }
}

#[test]
fn a_caller_that_only_polls_runs_overdue_work() {
    let rig = Rig::new(taking(2 * US, 0.0));
    let mut channel = rig.channel(1);
    let (large, ran) = pieces(&rig, 5 * US, 5 * US, 3);
    channel.defer(Box::new(large)).expect("room");
    let start_ns = rig.ssd.peek_ns();
    while rig.ssd.peek_ns() - start_ns < PATIENCE_NS + 100 * US {
        channel.enqueue(read_of(&channel, 0..1)).expect("room");
        while channel.poll() == 0 {}
        channel.next_done().expect("ended").result.expect("read");
    }
    assert_eq!((ran.load(Ordering::Relaxed), channel.deferred()), (3, 0));
}

/// Requests without tickets, several at once: what counts is the one that may end first.
#[test]
fn work_is_done_while_any_of_several_is_waited_for() {
    for policies in [[Policy::Poll; 2], [Policy::Poll, Policy::Interrupt]] {
        let rig = Rig::new(taking(10 * US, 0.0));
        let mut channel = rig.channel(4);
        channel.defer(anchor()).expect("room");
        let two = |channel: &mut NvmeChannel| {
            for policy in policies {
                channel.enqueue(read_of(channel, 0..1).policy(policy)).expect("room");
            }
            (0..2).for_each(|_| channel.wait_done().expect("two").result.expect("read"));
        };
        (0..100).for_each(|_| two(&mut channel));
        let ((), without_ns) = rig.timed(|| two(&mut channel));
        let (small, ran) = pieces(&rig, 2 * US, 2 * US, ENDLESS);
        channel.defer(Box::new(small)).expect("room");
        let ((), with_ns) = rig.timed(|| two(&mut channel));
        let ran = ran.load(Ordering::Relaxed);
        assert!(
            ran >= 4 && with_ns <= without_ns + 3 * US,
            "{ran} pieces, {with_ns} for {without_ns}"
        );
    }
}

#[test]
fn a_panic_in_a_piece_is_not_the_waiter_s() {
    let rig = Rig::new(taking(10 * US, 0.0));
    let mut channel = rig.channel(2);
    put(&mut channel, 0..1, 1);
    learn(&mut channel);
    let (after, ran) = pieces(&rig, US, US, 1);
    channel.defer(Box::new(Pieces::once(US, || panic!("said in a piece")))).expect("room");
    channel.defer(Box::new(after)).expect("room");
    // The wait gives what it was asked for, data included, and the work behind it is done.
    verify(&mut channel, 0..1, 1);
    assert_eq!(
        (ran.load(Ordering::Relaxed), work(&channel).panics, work(&channel).finished),
        (1, 1, 2)
    );
    let panic = catch_unwind(AssertUnwindSafe(|| channel.run_deferred(0))).expect_err("reported");
    assert_eq!(panic.downcast_ref(), Some(&"said in a piece"));
    assert_eq!(channel.run_deferred(0), 0, "once");
    verify(&mut channel, 0..1, 1);
}

#[test]
fn a_full_backlog_gives_the_work_back() {
    let rig = Rig::new(taking(10 * US, 0.0));
    let mut channel = rig.channel(1);
    for _ in 0..DEFERRED_LIMIT {
        channel.defer(Box::new(Pieces::once(US, || {}))).expect("room");
    }
    let (one_more, ran) = pieces(&rig, US, US, 1);
    let refused = channel.defer(Box::new(one_more)).expect_err("full");
    assert_eq!(refused.why, DeferRefusal::Full { limit: DEFERRED_LIMIT });
    assert!(refused.to_string().contains("run_deferred"));
    assert_eq!(channel.run_deferred(u64::MAX), DEFERRED_LIMIT);
    channel.defer(refused.work).expect("there is room again");
    assert_eq!((channel.run_deferred(1), ran.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_channel_that_is_dropped_does_what_is_left() {
    let rig = Rig::new(taking(10 * US, 0.0));
    let mut channel = rig.channel(1);
    let (some, ran) = pieces(&rig, MS, MS, 5);
    channel.defer(Box::new(Pieces::once(US, || panic!("not out of a drop")))).expect("room");
    channel.defer(Box::new(some)).expect("room");
    let ticket = channel.submit(read_of(&channel, 0..1)).expect("room");
    channel.detach(ticket);
    drop(channel);
    assert_eq!(ran.load(Ordering::Relaxed), 5);

    // But not for ever; what cannot go on, and what goes on too long, is dropped.
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let mut channel = rig.channel(1);
    let dropped = Arc::<AtomicBool>::default();
    let told = Told(Arc::clone(&dropped));
    let never = async move {
        let _told = told;
        std::future::pending().await
    };
    let (endless, ran) = pieces(&rig, MS, MS, ENDLESS);
    channel.defer(Box::new(Pieces::future(US, never))).expect("room");
    channel.defer(Box::new(endless)).expect("room");
    let ((), took_ns) = rig.timed(|| drop(channel));
    assert!((900 * MS..1_100 * MS).contains(&took_ns), "{took_ns}");
    assert!(ran.load(Ordering::Relaxed) > 900 && dropped.load(Ordering::Relaxed));
}

#[test]
fn a_future_goes_on_in_the_gap_after_it_was_woken() {
    let rig = Rig::new(taking(10 * US, 0.0));
    let mut channel = rig.channel(1);
    learn(&mut channel);
    let (kept, polls) = (Arc::new(Mutex::new(None::<Waker>)), Arc::<AtomicU64>::default());
    let future = {
        let (kept, polls) = (Arc::clone(&kept), Arc::clone(&polls));
        std::future::poll_fn(move |cx| {
            *kept.lock().unwrap() = Some(cx.waker().clone());
            if polls.fetch_add(1, Ordering::Relaxed) == 1 { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    channel.defer(Box::new(Pieces::future(US, future))).expect("room");
    (0..10).for_each(|_| read(&mut channel));
    assert_eq!((polls.load(Ordering::Relaxed), channel.deferred()), (1, 2));
    let waker = kept.lock().unwrap().take().expect("it was polled");
    std::thread::spawn(move || waker.wake()).join().expect("woken");
    read(&mut channel);
    assert_eq!((polls.load(Ordering::Relaxed), channel.deferred()), (2, 1));
}

/// A read that is complete at once costs no reading of the clock, which would move it: before there
/// is work, and some I/Os after.
#[test]
fn without_work_no_clock_is_read() {
    let rig = Rig::new(ssd("null"));
    let mut channel = rig.channel(1);
    let read_at_once = |channel: &mut NvmeChannel| {
        let request = read_of(channel, 0..1);
        let (done, took_ns) = rig.timed(|| {
            let ticket = channel.submit(request).expect("room");
            rig.ssd.settle();
            channel.wait(ticket)
        });
        done.result.expect("read");
        took_ns
    };
    // (The first look at a deadline is at the first command.)
    read_at_once(&mut channel);
    assert_eq!(read_at_once(&mut channel), 0);
    channel.defer(Box::new(Pieces::once(US, || {}))).expect("room");
    assert!(read_at_once(&mut channel) > 0);
    channel.run_deferred(u64::MAX);
    // (A queue that is always busy looks at deadlines every four rounds of its ring.)
    let mut timed = |ios: u64| (0..ios).filter(|_| read_at_once(&mut channel) > 0).count();
    assert!((60..=70).contains(&timed(200)));
    assert!(timed(200) <= 4);
}

/// A device that becomes faster or slower is kept up with.
#[test]
fn the_gap_is_learned_anew() {
    let rig = Rig::new(taking(10 * US, 0.0));
    let mut channel = rig.channel(1);
    let (small, ran) = pieces(&rig, US, US, ENDLESS);
    learn(&mut channel);
    channel.defer(Box::new(small)).expect("room");
    for (late_ns, least, most) in [(50 * US, 50, 60), (0, 7, 10)] {
        rig.ssd.set_faults(if late_ns > 0 { late(late_ns) } else { FaultPlan::NONE });
        (0..100).for_each(|_| read(&mut channel));
        let before = ran.load(Ordering::Relaxed);
        (0..10).for_each(|_| read(&mut channel));
        let per_io = (ran.load(Ordering::Relaxed) - before) / 10;
        assert!((least..=most).contains(&per_io), "{per_io} pieces of 1 us an I/O");
    }
}

/// Those that do not learn: of the others each I/O is waited for as the ones before it went, which
/// is another way with work than without.
fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Poll),
        Just(Policy::Interrupt),
        (500u32..40_000).prop_map(Policy::HybridFixed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The same I/O with the same device times, with work and without: none ends later by more than
    /// one piece, whatever piece, bound, device and policy; and pieces that keep their bounds make
    /// next to none late.
    #[test]
    fn no_io_is_late_by_more_than_one_piece(
        device_ns in 1_000u64..60_000,
        sigma in prop_oneof![Just(0.0), 0.01f64..0.6],
        cost_ns in 100u64..30_000,
        bound_percent in prop_oneof![Just(100u64), 20u64..300],
        patience_ns in prop_oneof![Just(PATIENCE_NS), 0u64..100_000],
        policy in policies(),
    ) {
        const IOS: usize = 120;
        let bound_ns = cost_ns * bound_percent / 100;
        let run = |with_work: bool| {
            let rig = Rig::new(taking(device_ns, sigma));
            let mut channel = rig.channel(1);
            channel.set_policy(policy).expect("there are both queues");
            let (work, ran) = pieces(&rig, bound_ns, cost_ns, ENDLESS);
            if with_work {
                channel.defer(Box::new(work.patience_ns(patience_ns))).expect("room");
            }
            let times: Vec<u64> = (0..IOS).map(|_| rig.timed(|| read(&mut channel)).1).collect();
            (times, ran.load(Ordering::Relaxed), channel.counters().work)
        };
        let (without, _, _) = run(false);
        let (with, ran, counters) = run(true);
        for (n, (with_ns, without_ns)) in with.iter().zip(&without).enumerate() {
            // Looks and readings of the clock, 50 ns each, and the steps of a blocked wait.
            let most_ns = without_ns + cost_ns + 1_000;
            prop_assert!(*with_ns <= most_ns, "I/O {n}: {with_ns} ns, without work {without_ns} ns");
        }
        prop_assert_eq!(counters.pieces, ran);
        prop_assert!(counters.late <= counters.pieces.min(IOS as u64));
        prop_assert!(counters.late == 0 || counters.late_max_ns <= cost_ns + 200);
        prop_assert_eq!(counters.overruns > 0, bound_ns < cost_ns + 50 && ran > 0);
        if patience_ns == PATIENCE_NS && bound_percent >= 120 && sigma == 0.0 {
            // (A piece of at most 1 us is tried while nothing is known.)
            prop_assert!(counters.late <= 8, "{counters:?}");
        }
    }
}
