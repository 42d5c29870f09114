//! A caller's own work in the gap, in virtual time: pieces move the clock by what they cost.

use meantime_block::{BlockChannel, NvmeChannel};
use meantime_completion::Policy;
use meantime_ssd::{FaultPlan, Jitter, Model, Slow, SsdConfig};
use meantime_testkit::rig::{Rig, US, late, read_of, ssd};

/// An SSD whose every command takes 10 µs.
fn taking_10_us() -> SsdConfig {
    let config = ssd("optane");
    let costs = vec![(512, 10 * US), (1 << 20, 10 * US + 1)];
    let model = Model {
        channels: 1,
        read: costs.clone(),
        write: costs,
        jitter: Jitter::None,
        slow: Slow::default(),
        nand: None,
        ..config.model
    };
    SsdConfig { model, ..config }
}

/// A read, with pieces of 1 µs as long as they fit. Returns their number, and the read's time.
fn read(rig: &Rig, channel: &mut NvmeChannel) -> (u64, u64) {
    let clock = rig.ssd.clock();
    let request = read_of(channel, 0..1);
    rig.timed(|| {
        let ticket = channel.submit(request).expect("room");
        let mut pieces = 0;
        while channel.gap_left_ns().is_some_and(|left_ns| left_ns >= US) {
            clock.advance(US);
            pieces += 1;
        }
        channel.wait(ticket).result.expect("read");
        pieces
    })
}

/// What fits is done, and no read is late for it; also when the device becomes slower or faster.
#[test]
fn as_much_is_done_as_fits() {
    for policy in [Policy::Poll, Policy::HybridHalfMean] {
        let rig = Rig::new(taking_10_us());
        let mut channel = rig.channel(1);
        channel.set_policy(policy).expect("it can");
        assert_eq!(channel.gap_left_ns(), Some(u64::MAX), "nothing is in flight");
        assert_eq!(read(&rig, &mut channel).0, 0, "it is not known yet");
        for (late_ns, least, most) in [(0, 7, 10), (50 * US, 50, 60), (0, 7, 10)] {
            rig.ssd.set_faults(if late_ns > 0 { late(late_ns) } else { FaultPlan::NONE });
            for _ in 0..100 {
                read(&rig, &mut channel);
            }
            for _ in 0..10 {
                let (pieces, took_ns) = read(&rig, &mut channel);
                assert!((least..=most).contains(&pieces), "{policy}: {pieces} pieces");
                assert!(took_ns < late_ns + 12 * US, "{policy}: {took_ns} ns");
            }
        }
    }
}

/// A channel stops timing its requests when its caller has stopped asking for the gap.
#[test]
fn who_does_not_ask_pays_nothing() {
    let rig = Rig::new(ssd("null"));
    let mut channel = rig.channel(1);
    let read_at_once = |channel: &mut NvmeChannel, asks: bool| {
        let request = read_of(channel, 0..1);
        let (done, took_ns) = rig.timed(|| {
            let ticket = channel.submit(request).expect("room");
            if asks {
                channel.gap_left_ns();
            }
            rig.ssd.run_until_idle();
            channel.wait(ticket)
        });
        done.result.expect("read");
        took_ns
    };
    // The first look at a deadline is at the first command.
    read_at_once(&mut channel, false);
    assert_eq!(read_at_once(&mut channel, false), 0);
    read_at_once(&mut channel, true);
    assert!(read_at_once(&mut channel, false) > 0, "timed");
    // A queue that is always busy looks at deadlines every four rounds of its ring.
    let mut timed = |ios: u64| (0..ios).filter(|_| read_at_once(&mut channel, false) > 0).count();
    assert!((60..=70).contains(&timed(200)));
    assert!(timed(200) <= 4);
}
