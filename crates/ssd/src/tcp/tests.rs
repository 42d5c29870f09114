//! Tests when the target's thread leaves its CPU to others, by counts of its sleeps.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meantime_nvme_spec::tcp::{CommonHeader, InitializeConnection, PduType};
use rustix::thread::{CpuSet, sched_getaffinity};
use zerocopy::IntoBytes as _;

use super::*;

const EXCHANGES: u32 = 50;
/// This is longer than a test takes, so the thread sleeps only for the sake of others.
const LONG_NS: u64 = 600_000_000_000;

/// Starts a target that is allowed one CPU, with made-up figures.
fn target(waited_ns: WaitedNs, park_after_ns: u64) -> Target {
    let start = move || {
        let cpus = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu));
        // The CPU is set for this thread, from which the target's thread inherits it.
        sys::pin_to_cpu(first.unwrap()).unwrap();
        let config = SsdConfig { park_after_ns, ..SsdConfig::with_namespace(1 << 20, 512) };
        let medium = Medium::dram(config.total_bytes()).unwrap();
        let options = TargetOptions::default();
        let listener = listen(options.addr).unwrap();
        Target::start_beside(config, medium, options, listener, waited_ns).unwrap()
    };
    std::thread::spawn(start).join().unwrap()
}

/// Connects, makes the target answer, and leaves it nothing to do for a moment. A quick host on its
/// CPU would never let it be idle.
fn exchange(target: &Target) {
    let mut stream = TcpStream::connect(target.addr()).unwrap();
    let mut request = InitializeConnection::default();
    request.common = CommonHeader::new(PduType::IcReq, 128, 0);
    stream.write_all(request.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 128]).unwrap();
    std::thread::sleep(Duration::from_millis(1));
}

/// Returns how often the target slept in some exchanges. It stops early if the target did sleep.
fn sleeps(target: &Target) -> u64 {
    let sleeps = || target.tcp_counters().sleeps;
    (0..EXCHANGES).take_while(|_| sleeps() == 0).for_each(|_| exchange(target));
    sleeps()
}

/// Reports that no other thread waits for the CPU.
fn alone() -> Option<u64> {
    Some(7_000_000)
}

/// Reports that between any two readings another thread uses the CPU for a millisecond.
fn beside_another() -> Option<u64> {
    static WAITED_NS: AtomicU64 = AtomicU64::new(0);
    Some(WAITED_NS.fetch_add(1_000_000, Ordering::Relaxed))
}

#[test]
fn a_target_on_one_cpu_that_nobody_else_wants_spins() {
    assert_eq!(sleeps(&target(alone, LONG_NS)), 0);
}

#[test]
fn a_target_whose_cpu_is_wanted_sleeps_after_a_few_rounds() {
    assert!(sleeps(&target(beside_another, LONG_NS)) > 0);
}

#[test]
fn a_target_that_is_not_told_how_long_it_waits_takes_its_only_cpu_for_shared() {
    assert!(sleeps(&target(|| None, LONG_NS)) > 0);
}

#[test]
fn a_target_that_never_parks_sleeps_for_nobody() {
    for waited_ns in [alone, beside_another, || None] {
        assert_eq!(sleeps(&target(waited_ns, u64::MAX)), 0);
    }
}
