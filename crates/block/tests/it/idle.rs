//! A queue with nothing in flight uses no CPU, however it would be waited for: measured, the
//! software SSD's thread included.

use std::time::Duration;

use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, open_nvme};
use meantime_completion::Policy;

/// CPU time of this whole process.
fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn nothing_in_flight_costs_nothing() {
    let names = [
        "interrupt",
        "poll",
        "hybrid",
        "hybrid=5us",
        "hybrid-min",
        "hybrid-bucket",
        "ehp",
        "pas",
        "dpas",
        "adaptive",
        "adaptive:cpu=30",
        "adaptive:p99=50us",
    ];
    meantime_baselines::register().expect("no other rules");
    for name in names {
        let policy: Policy = name.parse().expect("a policy");
        let device =
            open_nvme("mem:16M?model=optane", &Default::default()).expect("a software SSD");
        let options = ChannelOptions {
            depth: 4,
            policy: Some(policy),
            interrupt: None,
            ..ChannelOptions::default()
        };
        let mut channel = device.channel(&options).expect("a channel");
        let mut buf = channel.alloc(4096).expect("memory");
        for n in 0..200 {
            buf = channel.read(n % 64, buf).expect("read");
        }
        // A sleeping process is charged next to nothing; one that spins in some thread, all of it.
        // The SSD's thread parks after 2 ms, in which it has to run: where others have the CPU that
        // may take a while, but hardly more of its own CPU time.
        let mut restless = Duration::ZERO;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let before = process_cpu();
            std::thread::sleep(Duration::from_millis(150));
            let used = process_cpu() - before;
            if used < Duration::from_millis(15) {
                break;
            }
            restless += used;
            assert!(
                restless < Duration::from_millis(100),
                "{name}: {used:?} of 150 ms, and before that no better"
            );
        }
        drop(buf);
    }
}
