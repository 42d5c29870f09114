//! The device's time stamps and the probe of a wait, as benchmarks use them.

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request, WaitTimes, open,
};
use meantime_completion::Policy;
use meantime_hw::Clock;

#[test]
fn stamps_and_waits_are_on_one_time_line() {
    let options = OpenOptions { stamps: true, ..OpenOptions::default() };
    // fast12: 2.9 µs for 4 KiB.
    for (uri, model_ns) in [("mem:4M?model=fast12", 2_900), ("mem:4M", 0)] {
        let device = open(uri, &options).unwrap();
        let stamps = device.stamps().expect("asked for");
        let options = ChannelOptions {
            depth: 1,
            policy: Some(Policy::Poll),
            interrupt: Some(true),
            ..ChannelOptions::default()
        };
        let mut channel = device.channel(&options).unwrap();
        let clock = Clock::real();
        let times = WaitTimes::new(clock.clone());
        let mut buf = Some(channel.alloc(4096).unwrap());
        for (nth, policy) in
            [Policy::Poll, Policy::Interrupt, Policy::HybridFixed(1_000)].iter().enumerate()
        {
            channel.set_policy(*policy).unwrap();
            for _ in 0..50 {
                times.reset();
                let start_ns = clock.now_ns();
                let ticket = channel.submit(Request::read(0, buf.take().unwrap())).unwrap();
                let done = channel.wait_probed(ticket, &times);
                let end_ns = clock.now_ns();
                done.result.unwrap();
                buf = done.buf;
                let seen_ns = times.seen_ns().expect("the NVMe channel tells");
                assert!(start_ns <= seen_ns && seen_ns <= end_ns);
                assert!(times.woken_ns().is_none_or(|ns| start_ns <= ns && ns <= seen_ns));
                assert!(times.woken_ns().is_some() || *policy != Policy::HybridFixed(1_000));
            }
            // The stamp is written after the CQE.
            let written = 50 * (nth as u64 + 1);
            while stamps.written() < written {
                std::thread::yield_now();
            }
            assert_eq!(stamps.written(), written);
        }
        for index in 0..150 {
            let stamp = stamps.get(index).unwrap();
            assert!(stamp.seen_ns <= stamp.begun_ns, "{stamp:?}");
            assert!(stamp.written_ns >= stamp.begun_ns + model_ns, "{stamp:?}");
        }
        assert_eq!(stamps.get(150), None);
        assert!(stamps.capacity() > 150);
    }
    assert!(open("mem:4M", &OpenOptions::default()).unwrap().stamps().is_none());
}
