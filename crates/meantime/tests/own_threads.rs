//! Every thread started by the library and the software SSD blocks the signals of the host program.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use meantime_baselines::floor::Floor;
use meantime_block::{OpenOptions, control, open};
use meantime_ext4::format::mkfs::MakeOptions;
use meantime_ext4::{FileSystem, MountOptions, Timestamp, mkfs};
use meantime_ssd::served::{Server, Socket, SocketOptions};
use meantime_ssd::{Medium, MonotonicClock, Ssd, SsdConfig};

/// The blocked signals of each thread of this process, by thread name: bit 0 is signal 1.
fn blocked() -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    let of = |status: String| {
        let mask = u64::from_str_radix(&field(&status, "SigBlk:"), 16).unwrap();
        (field(&status, "Name:"), mask)
    };
    statuses.map(of).collect()
}

#[test]
fn all_of_ours_block_the_signals_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let device = open("mem:64M", &OpenOptions::default()).unwrap();
    let made = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    mkfs::make(&device, &MakeOptions::new([7; 32], made)).unwrap();
    let mut options = MountOptions { write: true, background: true, ..MountOptions::default() };
    options.commit_overlap.caller_commits = false;
    let fs = FileSystem::mount(device, &options).unwrap();
    let control = control::serve(&dir.path().join("control")).unwrap();
    let floor = Floor::start(1 << 20, None).unwrap();
    let config = SsdConfig::with_namespace(1 << 20, 512);
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
    let socket = Socket::bind(&dir.path().join("ssd"), &SocketOptions::default()).unwrap();
    let served = Server::start(socket, ssd.function_port(), |_| {}).unwrap();
    let faults =
        meantime_ssd::control::serve(&dir.path().join("ctl"), Arc::new(ssd.handle())).unwrap();

    // The kernel limits a thread's name to 15 bytes.
    let names = [
        "meantime-ssd",
        "meantime-ext4",
        "meantime-jbd2",
        "meantime-contro",
        "meantime-floor",
        "meantime-served",
        "meantime-ssd-ct",
    ];
    // A thread sets its name when it starts.
    let begun = Instant::now();
    let mut threads = blocked();
    while !names.iter().all(|name| threads.contains_key(*name)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "not all of {names:?}: {threads:?}");
        std::thread::sleep(Duration::from_millis(1));
        threads = blocked();
    }
    for name in names {
        let mask = threads[name];
        for signal in 1..32 {
            let reaches = [
                libc::SIGBUS,
                libc::SIGSEGV,
                libc::SIGFPE,
                libc::SIGILL,
                libc::SIGTRAP,
                libc::SIGSYS,
                libc::SIGKILL,
                libc::SIGSTOP,
            ];
            let is_blocked = mask >> (signal - 1) & 1 == 1;
            assert_eq!(
                is_blocked,
                !reaches.contains(&signal),
                "{name}: signal {signal} ({mask:#x})"
            );
        }
    }
    drop((faults, served, floor, control));
    fs.unmount().unwrap();
}
