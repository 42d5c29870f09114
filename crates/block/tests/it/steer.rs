//! What a channel shows while it runs, and how its policy is changed from outside, in virtual time.

use std::sync::{Arc, Mutex, PoisonError};

use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, Request};
use meantime_completion::Policy;
use meantime_completion::telemetry::{self, AskError, ChannelControl};
use meantime_testkit::rig::{Rig, put, ssd};

fn alone(rig: &Rig, policy: Policy) -> (NvmeChannel, Arc<ChannelControl>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _no_other = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before: Vec<u64> = telemetry::channels().iter().map(|control| control.id()).collect();
    let options = ChannelOptions {
        depth: 4,
        policy: Some(policy),
        interrupt: Some(policy == Policy::Interrupt),
        ..ChannelOptions::default()
    };
    let channel = rig.device.channel(&options).expect("a channel");
    // Other tests of this process have channels, too; none comes meanwhile.
    let control = telemetry::channels().into_iter().rev().find(|control| {
        !before.contains(&control.id())
            && control.state().policy == policy.to_string()
            && control.device() == channel.info().uri
    });
    (channel, control.expect("listed"))
}

/// Three intervals of publishing, at some 8 µs an I/O.
const IOS: u64 = 20_000;

#[test]
fn every_policy_shows_what_it_does() {
    for policy in [Policy::Poll, Policy::Interrupt, Policy::HybridFixed(3_000), Policy::ADAPTIVE] {
        let rig = Rig::new(ssd("optane"));
        let (mut channel, control) = alone(&rig, policy);
        assert_eq!(control.state().figures.ended, 0);
        let ((), took_ns) =
            rig.timed(|| (0..IOS).for_each(|n| put(&mut channel, n % 8..n % 8 + 1, n)));
        let figures = control.state().figures;
        // It was last shown within the interval and the rounds of a queue after it.
        let mean_ns = took_ns / IOS;
        let unseen = telemetry::PUBLISH_INTERVAL_NS / mean_ns + 300;
        assert!(figures.ended > IOS - unseen && figures.ended <= IOS, "{policy}: {figures:?}");
        assert!(figures.thread_id > 0 && figures.thread_cpu_ns > 0);
        assert!(figures.in_flight <= 1);
        if policy != Policy::Interrupt {
            let shown_ns = figures.timed_sum_ns / figures.timed.max(1);
            assert!(
                shown_ns > mean_ns / 2 && shown_ns < mean_ns * 2,
                "{policy}: {shown_ns} for {mean_ns}"
            );
        }
        match policy {
            Policy::Poll => {
                assert!((5..100).contains(&figures.timed), "samples: {}", figures.timed)
            }
            Policy::Interrupt => assert!(figures.blocks > IOS / 2),
            Policy::HybridFixed(_) => assert_eq!(figures.sleeps, figures.ended),
            // Of I/O that it does not sleep in, it times some.
            _ => {
                assert!(
                    figures.timed > 100
                        && figures.expected_ns > 5_000
                        && figures.expected_low_ns > 5_000
                )
            }
        }
        drop(channel);
        assert!(control.is_closed() && telemetry::channel(control.id()).is_none());
    }
}

#[test]
fn a_policy_is_changed_from_outside() {
    let rig = Rig::new(ssd("optane"));
    let (mut channel, control) = alone(&rig, Policy::Poll);
    let run = |channel: &mut NvmeChannel| (0..IOS).for_each(|n| put(channel, n % 8..n % 8 + 1, n));
    let asked = control.ask(Policy::HybridFixed(3_000)).expect("no other request");
    assert_eq!(asked.answer(), None, "the channel was not used yet");
    run(&mut channel);
    assert_eq!(asked.answer(), Some(Ok(())));
    drop(asked);
    assert_eq!(channel.policy(), Policy::HybridFixed(3_000));
    run(&mut channel);
    let state = control.state();
    assert_eq!(state.policy, "hybrid=3us");
    assert!(state.figures.sleeps > IOS / 2, "{state:?}");

    // It has no vector: refused, with the reason, and nothing has changed.
    let asked = control.ask(Policy::Interrupt).expect("no other request");
    run(&mut channel);
    let Some(Err(AskError::Refused(why))) = asked.answer() else { panic!("{asked:?}") };
    assert!(why.contains("no interrupt vector"), "{why}");
    assert_eq!(channel.policy(), Policy::HybridFixed(3_000));
}

/// A sample is a polled I/O that is timed. Requests of a queue are unaffected by sampling.
#[test]
fn sampling_changes_nothing_for_requests_of_a_queue() {
    let rig = Rig::new(ssd("optane"));
    let (mut channel, control) = alone(&rig, Policy::Poll);
    let (mut begun, mut ended) = (0u64, 0u64);
    while channel.clock().now_ns() < 4 * telemetry::PUBLISH_INTERVAL_NS {
        let buf = channel.alloc(512).expect("memory");
        channel.enqueue(Request::read(begun % 8, buf)).expect("room");
        begun += 1;
        if begun.is_multiple_of(3) {
            channel.wait_until(&|| false);
        }
        while begun - ended > 2 {
            channel.wait_done().expect("three are under way").result.expect("read");
            ended += 1;
        }
    }
    while let Some(done) = channel.wait_done() {
        done.result.expect("read");
        ended += 1;
    }
    assert_eq!(ended, begun);
    let figures = control.state().figures;
    assert!(figures.timed > 3, "{figures:?}");
    let mean_ns = figures.timed_sum_ns / figures.timed;
    assert!((5_000..100_000).contains(&mean_ns), "{mean_ns}");
    assert_eq!(figures.sleeps, 0);
}
