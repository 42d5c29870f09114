//! The SSD on its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use meantime_nvme_spec::opcode::io::READ;
use meantime_nvme_spec::regs;
use meantime_nvme_spec::soft_port::PortError;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;
use meantime_ssd::{
    Fault, FaultPlan, FaultRule, Medium, Model, MonotonicClock, Ssd, SsdConfig, SsdError, When,
};
use meantime_testkit::host::*;
use meantime_testkit::process::in_own_process;

#[test]
fn data_comes_back() {
    let (ssd, mut host) = threaded(config(1 << 20, 512));
    host.create_queues(1, 64, None);
    let buffer = host.alloc(4096);
    for lba in 0..100u64 {
        host.write(buffer, &[lba as u8 + 1; 512]);
        ok(host.io(1, Sqe::write(0, 1, lba, 1, buffer, 0, false)));
    }
    for lba in 0..100u64 {
        ok(host.io(1, Sqe::read(0, 1, lba, 1, buffer, 0)));
        assert_eq!(host.read(buffer, 512), [lba as u8 + 1; 512]);
    }
    let counters = ssd.counters();
    assert_eq!((counters.reads, counters.writes, counters.refused), (100, 100, 0));
}

#[test]
fn a_deep_queue_completes_everything_in_order() {
    let (_ssd, mut host) = threaded(config(1 << 20, 512));
    host.create_queues(1, 64, None);
    let buffer = host.alloc(64 * 4096);
    let mut cid = 0u16;
    for _ in 0..1000 {
        for i in 0..63u64 {
            host.put(1, &Sqe::read(cid.wrapping_add(i as u16), 1, i, 1, buffer + i * 4096, 0));
        }
        host.ring(1);
        for i in 0..63 {
            let cqe = ok(host.wait(1));
            assert_eq!(cqe.cid.get(), cid.wrapping_add(i));
        }
        cid = cid.wrapping_add(63);
    }
}

#[test]
fn the_service_time_is_the_models() {
    let mut config = config(1 << 20, 512);
    config.model = Model::named("nand").unwrap();
    config.stamps = true;
    let (ssd, mut host) = threaded(config);
    host.create_queues(1, 64, None);
    let buffer = host.alloc(4096);
    // The other tests compete for the CPUs, so that a single I/O may take any longer, but none is
    // faster.
    let deadline = Instant::now() + Duration::from_secs(20);
    let (mut fastest, mut n) = (u64::MAX, 0);
    while fastest > 110_000 || n < 100 {
        let start = now_ns();
        ok(host.io(1, Sqe::read(0, 1, n % 2048, 1, buffer, 0)));
        fastest = fastest.min(now_ns() - start);
        n += 1;
        assert!(Instant::now() < deadline, "{fastest} ns at best");
    }
    assert!(fastest >= 55_000, "{fastest} ns");
    let stamps = ssd.stamps().unwrap();
    assert_eq!(stamps.written(), n);
    let stamp = stamps.get(n - 1).unwrap();
    assert_eq!(stamp.qid, 1);
    assert!(stamp.seen_ns <= stamp.begun_ns && stamp.begun_ns + 50_000 < stamp.written_ns);
}

/// CPU time of the thread called `name`, in clock ticks.
fn thread_ticks(name: &str) -> u64 {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim() != name {
            continue;
        }
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').unwrap().1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        // utime and stime are fields 14 and 15 of proc(5), counted from 1; two are before the ')'.
        ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    }
    ticks
}

#[test]
fn an_idle_ssd_parks_and_wakes() {
    // Other tests run in threads of the same name.
    if !in_own_process("threaded::an_idle_ssd_parks_and_wakes", |_| {}) {
        return;
    }
    let (ssd, mut host) = threaded(config(1 << 20, 512));
    host.create_queues(1, 64, None);
    let buffer = host.alloc(4096);
    // A held Asynchronous Event Request is no reason to stay awake.
    host.submit(0, &Sqe::async_event_request(7));
    for _ in 0..5 {
        let mut spent = 0;
        loop {
            // Whether it sleeps now, however often it did before.
            let deadline = Instant::now() + Duration::from_secs(30);
            while ssd.counters().parks <= ssd.counters().wakes {
                assert!(Instant::now() < deadline, "it never parks");
                std::thread::sleep(Duration::from_millis(1));
            }
            let before = thread_ticks("meantime-ssd");
            std::thread::sleep(Duration::from_millis(200));
            let now = thread_ticks("meantime-ssd") - before;
            // An earlier wake-up may be pending, after which the thread polls for 2 ms more; and a
            // tick is charged to the thread that runs at that moment.
            if now <= 1 {
                break;
            }
            spent += now;
            assert!(spent < 20, "{spent} ticks of CPU while parked");
        }
        ok(host.io(1, Sqe::read(0, 1, 0, 1, buffer, 0)));
    }
    assert!(ssd.counters().wakes >= 4);
}

#[test]
fn parking_never_loses_a_doorbell() {
    let mut config = config(1 << 20, 512);
    // Parks all the time.
    config.park_after_ns = 0;
    let (ssd, mut host) = threaded(config);
    host.create_queues(1, 64, None);
    let buffer = host.alloc(4096);
    let start = Instant::now();
    let mut n = 0u32;
    // Half a second; longer where the two threads have to take turns.
    while start.elapsed() < Duration::from_millis(500) || n < 200 {
        ok(host.io(1, Sqe::read(0, 1, 0, 1, buffer, 0)));
        // Now and then long enough for it to fall asleep, or just about.
        for _ in 0..n % 64 * 100 {
            std::hint::spin_loop();
        }
        n += 1;
    }
    assert_eq!(ssd.counters().reads, u64::from(n));
}

#[test]
fn after_the_end_registers_read_all_ones() {
    let (ssd, host) = threaded(config(1 << 20, 512));
    let port = ssd.port();
    drop(ssd);
    assert_eq!(port.read32(regs::CSTS), regs::GONE);
    assert_eq!(port.read64(regs::CAP), u64::MAX);
    port.write32(regs::CC, 0);
    assert_eq!(port.unmap_dma(BASE), Err(PortError::Gone));
    drop(host);
}

#[test]
fn a_vanished_device_answers_nothing() {
    let mut config = config(1 << 20, 512);
    config.faults =
        FaultPlan::only(FaultRule::new(Fault::SurpriseRemoval, When { from: 4, ..When::ALWAYS }));
    let (ssd, mut host) = threaded(config);
    host.create_queues(1, 64, None);
    let buffer = host.alloc(4096);
    for _ in 0..3 {
        ok(host.io(1, Sqe::read(0, 1, 0, 1, buffer, 0)));
    }
    host.submit(1, &Sqe::read(99, 1, 0, 1, buffer, 0));
    host.wait_csts(regs::Csts::is_gone);
    assert!(host.poll(1).is_none());
    drop(ssd);
}

#[test]
fn mapping_and_unmapping() {
    let (_ssd, host) = threaded(config(1 << 20, 512));
    let port = Arc::clone(&host.port);
    let arena = Arena::new(8192);
    let region = |iova| Arena::region(&arena, iova);
    assert_eq!(port.map_dma(region(BASE)), Err(PortError::Overlap));
    assert_eq!(port.map_dma(region(BASE - 4096)), Err(PortError::Overlap));
    assert_eq!(port.map_dma(region(BASE - 8192)), Ok(()));
    assert_eq!(port.unmap_dma(BASE - 4096), Err(PortError::NotMapped));
    assert_eq!(port.unmap_dma(BASE - 8192), Ok(()));
    assert_eq!(Arc::strong_count(&arena), 1, "nothing keeps an unmapped region");
    assert_eq!(port.set_vector(60_000, None), Err(PortError::NoSuchVector));
}

#[test]
fn bad_configurations_are_named() {
    let medium = || Medium::dram(1 << 20).unwrap();
    let start = |config| match Ssd::start(config, medium(), MonotonicClock::new()) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("it should not start"),
    };
    let with = |change: fn(&mut SsdConfig)| {
        let mut c = config(1 << 20, 512);
        change(&mut c);
        c
    };
    assert!(start(SsdConfig::default()).contains("namespaces"));
    assert!(start(config(2 << 20, 512)).contains("medium has"));
    assert!(start(config(1 << 20, 1024)).contains("512 or 4096"));
    assert!(start(with(|c| c.mdts_bytes = 12345)).contains("mdts_bytes"));
    assert!(start(with(|c| c.serial = "x".repeat(21))).contains("serial"));
    assert!(start(with(|c| c.cpu = Some(900))).contains("CPU 900"));
}

#[test]
fn file_media() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    assert!(matches!(Medium::file(&path, None), Err(SsdError::Io { .. })), "never creates unasked");
    assert!(!path.exists());
    assert!(matches!(Medium::file(&path, Some(12345)), Err(SsdError::Size { .. })));
    assert!(!path.exists());

    let medium = Medium::file(&path, Some(1 << 20)).unwrap();
    assert!(matches!(Medium::file(&path, None), Err(SsdError::InUse { .. })));
    let ssd = Ssd::start(config(1 << 20, 4096), medium, MonotonicClock::new()).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(1, 16, None);
    let buffer = host.alloc(4096);
    host.write(buffer, &[7; 4096]);
    ok(host.io(1, Sqe::write(0, 1, 5, 1, buffer, 0, false)));
    ok(host.io(1, Sqe::flush(0, 1)));
    drop(ssd);
    let content = std::fs::read(&path).unwrap();
    assert_eq!(content.len(), 1 << 20);
    assert!(content[5 * 4096..6 * 4096].iter().all(|&b| b == 7));

    assert!(
        matches!(Medium::file(&path, Some(2 << 20)), Err(SsdError::Size { .. })),
        "never resized"
    );
    assert_eq!(Medium::file(&path, None).unwrap().len(), 1 << 20);
    assert!(matches!(
        Medium::file(dir.path(), None),
        Err(SsdError::NotAFile { kind: "directory", .. })
    ));
    assert!(matches!(Medium::file("/dev/null", None), Err(SsdError::NotAFile { .. })));
    std::fs::write(dir.path().join("short"), [0; 511]).unwrap();
    assert!(matches!(Medium::file(dir.path().join("short"), None), Err(SsdError::Size { .. })));
}

/// A file whose size is no multiple of 4096 has all its blocks of 512 bytes, and keeps what lies
/// behind them.
#[test]
fn file_media_of_odd_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.img");
    let content: Vec<u8> = (0..9 * 512 + 100).map(|at| (at / 512) as u8 + 1).collect();
    std::fs::write(&path, &content).unwrap();
    assert_eq!(Medium::file_read_only(&path).unwrap().len(), 9 * 512);
    let medium = Medium::file(&path, None).unwrap();
    let refusal =
        Ssd::start(config(9 * 512, 4096), medium, MonotonicClock::new()).map(drop).unwrap_err();
    assert!(refusal.to_string().contains("lba=512"), "{refusal}");

    let medium = Medium::file(&path, None).unwrap();
    let ssd = Ssd::start(config(9 * 512, 512), medium, MonotonicClock::new()).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    host.create_queues(1, 16, None);
    let buffer = host.alloc(4096);
    ok(host.io(1, Sqe::read(0, 1, 8, 1, buffer, 0)));
    assert_eq!(host.read(buffer, 512), [9; 512]);
    host.write(buffer, &[77; 512]);
    ok(host.io(1, Sqe::write(0, 1, 8, 1, buffer, 0, true)));
    refused(host.io(1, Sqe::write(0, 1, 9, 1, buffer, 0, false)), StatusCode::LbaOutOfRange);
    ok(host.io(1, Sqe::write_zeroes(0, 1, 0, 8, false, false)));
    drop(ssd);
    let after = std::fs::read(&path).unwrap();
    assert_eq!(after.len(), content.len());
    assert!(after[..8 * 512].iter().all(|byte| *byte == 0) && after[8 * 512..9 * 512] == [77; 512]);
    assert_eq!(after[9 * 512..], content[9 * 512..]);
}

#[test]
fn a_medium_that_is_only_read() {
    use meantime_nvme_spec::dsm::DsmRange;
    use zerocopy::IntoBytes as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let content: Vec<u8> = (0..1 << 20).map(|i| (i / 4096) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let writer = Medium::file(&path, None).unwrap();
    assert!(matches!(Medium::file_read_only(&path), Err(SsdError::InUse { .. })));
    drop(writer);
    // Readers share the file, and it cannot be opened for writing meanwhile.
    let other = Medium::file_read_only(&path).unwrap();
    assert!(matches!(Medium::file(&path, None), Err(SsdError::InUse { .. })));
    for vwc in [false, true] {
        let c = SsdConfig { volatile_write_cache: vwc, ..config(1 << 20, 4096) };
        let ssd =
            Ssd::start(c, Medium::file_read_only(&path).unwrap(), MonotonicClock::new()).unwrap();
        let mut host = Host::new(ssd.port());
        host.enable();
        host.create_queues(1, 16, None);
        let buffer = host.alloc(4096);
        ok(host.io(1, Sqe::read(0, 1, 5, 1, buffer, 0)));
        ok(host.io(1, Sqe::transfer(READ, 0, 1, 5, 0, buffer, 0, true)));
        assert_eq!(host.read(buffer, 4096), [5; 4096]);
        ok(host.io(1, Sqe::flush(0, 1)));
        let mut range = DsmRange::default();
        range.length.set(1);
        host.write(buffer, range.as_bytes());
        for sqe in [
            Sqe::write(0, 1, 5, 1, buffer, 0, false),
            Sqe::write(0, 1, 5, 1, buffer, 0, true),
            Sqe::write_zeroes(0, 1, 5, 1, false, false),
            Sqe::write_uncorrectable(0, 1, 5, 1),
            Sqe::dsm_deallocate(0, 1, 1, buffer, 0),
        ] {
            refused(host.io(1, sqe), StatusCode::NamespaceIsWriteProtected);
        }
    }
    drop(other);
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

#[test]
fn who_created_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    assert!(Medium::file(&path, Some(1 << 20)).unwrap().was_created());
    assert!(!Medium::file(&path, Some(1 << 20)).unwrap().was_created());
    assert!(!Medium::file(&path, None).unwrap().was_created());
    assert!(!Medium::dram(4096).unwrap().was_created());
    // A link that leads nowhere is neither followed nor removed.
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(Medium::file(&link, Some(1 << 20)).is_err());
    assert!(!target.exists() && link.symlink_metadata().is_ok());
    // A failure after the file was created leaves nothing behind: no file system has room for that
    // size.
    let huge = dir.path().join("huge");
    assert!(matches!(Medium::file(&huge, Some(1 << 62)), Err(SsdError::Io { .. })));
    assert!(!huge.exists());
}

#[test]
fn an_event_that_waits_for_room_keeps_the_thread_awake() {
    use meantime_nvme_spec::features::fid;
    let mut c = config(1 << 20, 512);
    c.park_after_ns = 100_000;
    let ssd = Ssd::start(c, Medium::dram(1 << 20).unwrap(), MonotonicClock::new()).unwrap();
    let mut host = Host::new(ssd.port());
    host.prepare_admin(2);
    host.port.write32(regs::CC, Host::cc().0);
    host.wait_csts(|csts| csts.rdy());
    let deadline = Instant::now() + Duration::from_secs(30);
    host.submit(0, &Sqe::async_event_request(100));
    // There is room for one entry: the next may be submitted when this one was fetched.
    while ssd.counters().admin_commands < 1 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    ok(host.admin(Sqe::set_features(0, 0, fid::TEMPERATURE_THRESHOLD, false, 300)));
    host.submit(0, &Sqe::set_features(7, 0, fid::ASYNC_EVENT_CONFIG, false, 2));
    let parks = ssd.counters().parks;
    while ssd.counters().parks < parks + 2 {
        assert!(Instant::now() < deadline, "it only naps, but naps again");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Writing a completion queue head does not wake the thread.
    assert_eq!(ok(host.wait(0)).cid.get(), 7);
    assert_eq!(ok(host.wait(0)).cid.get(), 100);
}

/// A clock that can be made to hang, and with it the thread that reads it; and whether one does.
#[derive(Clone)]
struct Hanging(Arc<(std::sync::Mutex<()>, AtomicBool)>, MonotonicClock);

impl meantime_ssd::Clock for Hanging {
    fn now_ns(&self) -> u64 {
        let (lock, hangs) = &*self.0;
        if lock.try_lock().is_err() {
            hangs.store(true, Ordering::Release);
            drop(lock.lock());
        }
        self.1.now_ns()
    }
}

#[test]
fn an_ssd_that_hangs_is_not_waited_for() {
    let hang = Arc::<(std::sync::Mutex<()>, AtomicBool)>::default();
    let clock = Hanging(Arc::clone(&hang), MonotonicClock::new());
    let mut c = config(1 << 20, 512);
    // It looks at the clock all the time.
    (c.park_after_ns, c.ready_timeout_ms) = (u64::MAX, 500);
    let ssd = Ssd::start(c, Medium::dram(1 << 20).unwrap(), clock).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    let hanging = hang.0.lock().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !hang.1.load(Ordering::Acquire) {
        assert!(Instant::now() < deadline, "nobody reads the clock");
        std::thread::yield_now();
    }
    let start = Instant::now();
    let (port, other) = (ssd.port(), Arena::new(4096));
    let region = Arena::region(&other, 0x1000);
    std::thread::scope(|scope| {
        let map = scope.spawn(|| port.map_dma(region.clone()));
        let unmap = scope.spawn(|| port.unmap_dma(0x7777_0000));
        let vector = scope.spawn(|| port.set_vector(0, None));
        scope.spawn(|| port.write32(regs::VS, 0));
        for refused in [map, unmap, vector] {
            assert_eq!(refused.join().unwrap(), Err(PortError::Unresponsive));
        }
    });
    assert!((5..60).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    drop(hanging);
    // It does after all what it was asked to.
    ok(host.admin(Sqe::abort(0, 0, 77)));
    port.unmap_dma(0x1000).unwrap();
}
