use super::*;
use std::cell::Cell;

#[derive(Default)]
struct Device {
    heartbeat: Option<u64>,
    slept_ns: Cell<u64>,
}

impl Source for Device {
    fn reap(&mut self) -> usize {
        0
    }

    fn has_completion(&self) -> bool {
        false
    }

    fn tick(&mut self, _: u64) -> usize {
        0
    }

    fn tick_interval_ns(&self) -> u64 {
        1_000_000
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.slept_ns.set(self.slept_ns.get() + duration_ns);
    }

    fn wait_interrupt(&self, _: u64) -> bool {
        false
    }

    fn heartbeat_here(&self) -> Option<u64> {
        self.heartbeat
    }
}

/// Spins for `for_ns`, with a reading of the clock every 100 ns.
fn spin(
    watchdog: &mut DeviceWatchdog,
    device: &mut Device,
    from_ns: u64,
    for_ns: u64,
    heartbeats: u64,
) {
    for n in 0..for_ns / 100 {
        device.heartbeat = device.heartbeat.map(|heartbeat| heartbeat + heartbeats);
        watchdog.yield_cpu(device, from_ns + 100 * n);
    }
}

#[test]
fn sleeps_only_while_the_device_stands_still() {
    let (mut watchdog, mut device) =
        (DeviceWatchdog::default(), Device { heartbeat: Some(7), ..Device::default() });
    spin(&mut watchdog, &mut device, 1_000_000, 500_000, 1);
    assert_eq!((device.slept_ns.get(), watchdog.interval_ns), (0, SELDOM_NS));
    spin(&mut watchdog, &mut device, 1_500_000, 49_000, 0);
    assert_eq!(device.slept_ns.get(), 0);
    spin(&mut watchdog, &mut device, 1_549_000, 50_000, 0);
    assert!(device.slept_ns.get() > 0);
    // Back soon.
    device.slept_ns.set(0);
    spin(&mut watchdog, &mut device, 1_600_000, 200_000, 1);
    assert_eq!((device.slept_ns.get(), watchdog.interval_ns), (0, SELDOM_NS));
    // It was parked for long: that it did not run is no news.
    spin(&mut watchdog, &mut device, 900_000_000, 100, 0);
    assert_eq!(device.slept_ns.get(), 0);
}

#[test]
fn other_devices_are_asked_seldom() {
    let (mut watchdog, mut device) = (DeviceWatchdog::default(), Device::default());
    spin(&mut watchdog, &mut device, 1_000, 100_000, 1);
    assert_eq!((watchdog.interval_ns, device.slept_ns.get()), (SELDOM_NS, 0));
}
