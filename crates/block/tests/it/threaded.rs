//! The driver and the software SSD on threads of their own, in real time: concurrency, parking,
//! CPU, leaks; and what can be wrong with a device that is to be opened.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, NvmeDevice, OpenOptions, Request, open,
};
use meantime_completion::Policy;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{CommandError, Controller, ControllerOptions};
use meantime_ssd::{Medium, Model, MonotonicClock, Ssd, SsdConfig};
use meantime_testkit::process::in_own_process;
use meantime_testkit::rig::{put, read_of, verify, write_of};
use meantime_testkit::{Rng, device};
use rustix::time::{ClockId, clock_gettime};

/// Tests that measure are not run beside others of this file: there may be no more than two CPUs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An SSD that a test can also reach, and a driver on it.
fn start(config: SsdConfig, options: ControllerOptions) -> (Arc<Ssd>, NvmeDevice) {
    let medium = Medium::dram(config.total_bytes()).expect("memory for the medium");
    let ssd = Arc::new(Ssd::start(config, medium, MonotonicClock::new()).expect("it starts"));
    // SAFETY: the port has no other user.
    let transport = unsafe {
        SoftTransport::new(ssd.port(), "threaded".into(), Some(Box::new(Arc::clone(&ssd))))
    };
    let controller =
        Controller::enable(Arc::new(transport), options).expect("the controller comes up");
    (ssd, device(&controller))
}

fn config(model: &str) -> SsdConfig {
    let model = Model::named(model).expect("built in");
    SsdConfig { model, ..SsdConfig::with_namespace(16 << 20, 512) }
}

fn both_ways(depth: u16) -> ChannelOptions {
    ChannelOptions {
        depth,
        policy: Some(Policy::Poll),
        interrupt: Some(true),
        ..ChannelOptions::default()
    }
}

/// CPU time so far in ns, by `clock`.
fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits for `condition`, which another thread makes true soon.
fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn threads_with_a_channel_each_verify_their_data() {
    let _alone = alone();
    for model in ["null", "optane"] {
        let (ssd, device) = start(config(model), ControllerOptions::default());
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let device = &device;
                scope.spawn(move || work(device, thread));
            }
        });
        assert_eq!(
            ssd.counters().refused + ssd.counters().bad_doorbells + ssd.counters().stray_doorbells,
            0
        );
    }
}

/// Writes and verifies in the thread's own part of the device, in every way there is.
fn work(device: &NvmeDevice, thread: u64) {
    let mut channel = device.channel(&both_ways(8)).expect("a channel");
    let mut rng = Rng::new(thread);
    let first = thread * device.info().blocks / 4;
    for version in 1..100 {
        let policy =
            [Policy::Poll, Policy::Interrupt, Policy::HybridFixed(2_000), Policy::HybridHalfMean]
                [rng.below(4) as usize];
        channel.set_policy(policy).expect("it has both queues");
        let ranges: Vec<_> = (0..8)
            .map(|n| {
                let lba = first + n * 1_000 + rng.below(500);
                lba..lba + 1 + rng.below(if n == 0 { 400 } else { 16 })
            })
            .collect();
        for lbas in ranges.iter().cloned() {
            channel.enqueue(write_of(&channel, lbas, version)).expect("room");
        }
        while let Some(done) = channel.wait_done() {
            done.result.expect("written");
        }
        ranges.into_iter().for_each(|lbas| verify(&mut channel, lbas, version));
    }
}

/// Whatever moment a reset by another thread comes at: afterwards every channel works.
#[test]
fn resets_while_channels_are_opened_and_used() {
    let _alone = alone();
    let (_ssd, device) = start(config("null"), ControllerOptions::default());
    let channels: Vec<NvmeChannel> = std::thread::scope(|scope| {
        let device = &device;
        let users: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || (0..30).map(|n| open_and_use(device, n)).collect::<Vec<_>>())
            })
            .collect();
        while !users.iter().all(ScopedJoinHandle::is_finished) {
            device.controller().reset_now();
            std::thread::yield_now();
        }
        users.into_iter().flat_map(|user| user.join().expect("no panic")).collect()
    });
    for (n, mut channel) in channels.into_iter().enumerate() {
        // What it was in the middle of may still be failed once.
        let ticket = channel.submit(Request::flush()).expect("room");
        let _ = channel.wait(ticket);
        let ticket = channel.submit(Request::flush()).expect("room");
        let result = channel.wait(ticket).result;
        assert!(result.is_ok(), "channel {n} never recovers: {result:?}");
    }
    let again: Vec<_> = (0..64).map(|_| device.channel(&polled(32))).collect();
    let failed = again.iter().filter_map(|channel| channel.as_ref().err()).next();
    assert!(failed.is_none(), "queue identifiers are lost: {failed:?}");
}

/// One queue, of which the SSD has 64.
fn polled(depth: u16) -> ChannelOptions {
    ChannelOptions { depth, policy: Some(Policy::Poll), ..ChannelOptions::default() }
}

fn open_and_use(device: &NvmeDevice, n: u64) -> NvmeChannel {
    let start = Instant::now();
    let mut channel = loop {
        // A reset may come between the commands that create it.
        if let Ok(channel) = device.channel(&polled(2)) {
            break channel;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no channel can be had");
    };
    for _ in 0..20 {
        let request = write_of(&channel, n * 8..n * 8 + 8, n);
        let ticket = channel.submit(request).expect("room");
        if let Err(error) = channel.wait(ticket).result {
            assert_eq!(error.kind, CommandError::Reset);
        }
    }
    channel
}

#[test]
fn a_device_unplugged_under_load_is_noticed_by_every_thread() {
    let _alone = alone();
    // Looks, which find that it is gone, are an eighth of the deadline apart. That itself is so
    // long that no thread is late for standing still.
    let options =
        ControllerOptions { io_timeout_ns: 4_000_000_000, ..ControllerOptions::default() };
    let (ssd, device) = start(config("optane"), options);
    let (ios, opened) = (AtomicU64::new(0), Barrier::new(3));
    let mut start = Instant::now();
    std::thread::scope(|scope| {
        for policy in [Policy::Poll, Policy::Interrupt] {
            let (device, ios, opened) = (&device, &ios, &opened);
            scope.spawn(move || {
                let mut channel = device.channel(&both_ways(4)).expect("a channel");
                channel.set_policy(policy).expect("it has both queues");
                opened.wait();
                loop {
                    let request = read_of(&channel, 0..8);
                    let Ok(ticket) = channel.submit(request) else { break };
                    let done = channel.wait(ticket);
                    assert!(done.buf.is_some());
                    ios.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = done.result {
                        assert_eq!(error.kind, CommandError::Gone { memory_released: true });
                        break;
                    }
                }
            });
        }
        opened.wait();
        until("the threads get going", || ios.load(Ordering::Relaxed) > 100);
        start = Instant::now();
        ssd.unplug();
    });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(device.heap().quarantined_bytes(), 0);
}

#[test]
fn no_wake_up_is_lost_around_the_park_threshold() {
    let _alone = alone();
    let park_after_ns = 200_000;
    let (ssd, device) =
        start(SsdConfig { park_after_ns, ..config("null") }, ControllerOptions::default());
    let mut channel = device.channel(&both_ways(4)).expect("a channel");
    let mut rng = Rng::new(1);
    for n in 0..2_000 {
        let parks = ssd.counters().parks;
        let policy = if n % 4 == 0 { Policy::Interrupt } else { Policy::Poll };
        channel.set_policy(policy).expect("it has both queues");
        let start = Instant::now();
        put(&mut channel, n % 64..n % 64 + 1, n + 1);
        // A wake-up that is lost costs the whole deadline, of 30 s; a busy machine some
        // milliseconds, or a few seconds.
        assert!(start.elapsed() < Duration::from_secs(20), "I/O {n} took {:?}", start.elapsed());
        // Beside other programs its thread may seldom run for long enough to see that it is idle:
        // so now and then it is waited for, however long it takes.
        if n % 20 == 0 {
            until("the SSD parks", || ssd.counters().parks > parks);
        }
        // Most of the pauses end just when the SSD's thread is about to sleep.
        let pause = Duration::from_nanos(park_after_ns - 20_000 + rng.below(40_000));
        let start = Instant::now();
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
    let counters = channel.counters().polled;
    assert_eq!((counters.late, counters.aborts), (0, 0));
}

#[test]
fn an_idle_device_costs_no_cpu() {
    let _alone = alone();
    if !in_own_process("threaded::an_idle_device_costs_no_cpu", |_| {}) {
        return;
    }
    let (ssd, device) = start(config("optane"), ControllerOptions::default());
    let mut channel = device.channel(&both_ways(4)).expect("a channel");
    put(&mut channel, 0..8, 1);
    // Waits until the SSD's thread is parked now, however often it parked before.
    until("the SSD parks", || ssd.counters().parks > ssd.counters().wakes);
    // Other programs' interrupts are charged to the running process, so the lowest of five
    // measurements counts.
    let used_ns = (0..5).map(|_| {
        let before_ns = cpu_ns(ClockId::ProcessCPUTime);
        std::thread::sleep(Duration::from_millis(300));
        cpu_ns(ClockId::ProcessCPUTime) - before_ns
    });
    let used_ns = used_ns.min().unwrap_or(u64::MAX);
    assert!(used_ns < 3_000_000, "{used_ns} ns of CPU in 300 ms");
    verify(&mut channel, 0..8, 1);
}

#[test]
fn a_wait_by_interrupt_blocks() {
    const READS: u64 = 100;
    let _alone = alone();
    // 4 ms: spinning for that long uses far more CPU time than the path of an I/O does, even on a
    // slow machine.
    let slow = "name = \"slow\"\nsource = \"a test\"\nchannels = 1\nread = [[4096, 4000000]]\nwrite = [[4096, 8000]]\n\
                flush_ns = 8000\ntrim_ns = 8000\n";
    let model = Model::parse(slow).expect("a model");
    let (_ssd, device) = start(SsdConfig { model, ..config("null") }, ControllerOptions::default());
    let mut channel = device.channel(&both_ways(1)).expect("a channel");
    channel.set_policy(Policy::Interrupt).expect("it has a vector");
    let (start, before_ns) = (Instant::now(), cpu_ns(ClockId::ThreadCPUTime));
    let mut buf = channel.alloc(4096).expect("memory");
    for n in 0..READS {
        buf = channel.read(n * 8, buf).expect("read");
    }
    let (wall_ns, used_ns) =
        (start.elapsed().as_nanos() as u64, cpu_ns(ClockId::ThreadCPUTime) - before_ns);
    assert!(wall_ns >= READS * 4_000_000, "{wall_ns}");
    assert!(used_ns < wall_ns / 2, "{used_ns} ns of CPU in {wall_ns} ns");
    let waits = channel.counters().interrupt_waits;
    // A thread that was preempted for the whole 4 ms finds the I/O done and need not block.
    assert!((READS / 2..2 * READS).contains(&waits.blocks) && waits.fallbacks == 0, "{waits:?}");
}

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).expect("procfs").count()
}

/// Resident memory in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn opening_and_dropping_leaks_nothing() {
    let _alone = alone();
    if !in_own_process("threaded::opening_and_dropping_leaks_nothing", |_| {}) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = format!("file:{}?create=1M&lba=4k", dir.path().join("disk.img").display());
    let once = |n: u64| {
        let uri = if n.is_multiple_of(2) { "mem:1M?model=optane" } else { &file };
        let device = open(uri, &OpenOptions::default()).expect("it opens");
        let mut channel = device.channel(&both_ways(4)).expect("a channel");
        put(&mut channel, 0..8, n + 1);
        channel.set_policy(Policy::Interrupt).expect("it has both queues");
        verify(&mut channel, 0..8, n + 1);
        if n.is_multiple_of(3) {
            let request = read_of(&channel, 0..8);
            channel.enqueue(request).expect("room");
        }
        // In any order.
        if n.is_multiple_of(5) { drop((device, channel)) } else { drop((channel, device)) }
    };
    (0..20).for_each(once);
    let before = (count("/proc/self/fd"), count("/proc/self/task"), resident());
    (0..200).for_each(once);
    // A thread that was joined may be listed for a moment more.
    until("threads are left", || count("/proc/self/task") <= before.1);
    assert_eq!(count("/proc/self/fd"), before.0, "descriptors");
    let grown = resident().saturating_sub(before.2);
    assert!(grown < 4 << 20, "{grown} bytes more after 200 devices");
}

fn refused(uri: &str) -> String {
    match open(uri, &OpenOptions::default()) {
        Ok(_) => panic!("{uri} opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    for (uri, words) in [
        ("nvme0n1", &["nvme0n1", "no scheme", "mem:1G?model=optane"][..]),
        ("men:1G", &["men:1G", "unknown scheme"]),
        ("mem:1G?model=optan", &["optan", "no service-time model", "optane"]),
        ("mem:1M?model=./none.toml", &["./none.toml", "No such file"]),
        ("mem:1M?model=", &["model=", "name of a model"]),
        ("mem:8388608T", &["8388608T"]),
        ("mem:1000000T", &["1000000T", "smaller"]),
        ("mem:1M?mdts=4k", &["mdts"]),
        ("mem:1M?nsid=3&namespaces=2", &["nsid=3", "1 to 2"]),
        ("mem:1M?cpu=1023", &["1023"]),
    ] {
        let error = refused(uri);
        assert!(words.iter().all(|word| error.contains(word)), "{uri}: {error}");
    }
}

#[test]
fn files_that_cannot_be_a_medium_say_why_and_are_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let uri = |name: &str, rest: &str| format!("file:{}{rest}", path(name).display());
    std::fs::write(path("odd"), [7; 5000]).expect("written");
    std::fs::write(path("tiny"), [7; 511]).expect("written");
    std::fs::write(path("empty"), []).expect("written");
    std::fs::write(path("good"), [7; 8192]).expect("written");
    for (uri, words) in [
        (uri("missing", ""), &["missing", "No such file"][..]),
        (uri("missing/disk", "?create=1M"), &["missing/disk", "No such file"]),
        (uri("tiny", ""), &["tiny", "holds no block"]),
        (uri("missing", "?create=5000"), &["create=5000"]),
        (uri("empty", ""), &["empty"]),
        (uri("", ""), &["directory"]),
        (uri("good", "?create=1M"), &["8192 bytes", "1048576"]),
        (uri("good", "?model=optan"), &["optan", "optane"]),
    ] {
        let error = refused(&uri);
        assert!(words.iter().all(|word| error.contains(word)), "{uri}: {error}");
    }
    let device = open(&uri("good", ""), &OpenOptions::default()).expect("a medium");
    let error = refused(&uri("good", ""));
    assert!(error.contains("in use") && error.contains("another file"), "{error}");
    drop(device);
    open(&uri("good", ""), &OpenOptions::default()).expect("free again");
    assert_eq!(std::fs::read(path("good")).expect("there"), [7; 8192]);
    // What is behind the last whole block is out of reach, and stays.
    let device = open(&uri("odd", ""), &OpenOptions::default()).expect("a medium of 9 blocks");
    assert_eq!(device.info().bytes(), 4608);
    drop(device);
    assert_eq!(std::fs::read(path("odd")).expect("there"), [7; 5000]);
    assert_eq!(std::fs::read(path("tiny")).expect("there"), [7; 511]);
    assert!(!path("missing").exists());
}

/// "Nothing left behind": a file that was to be created is not there if the device could not be
/// opened.
#[test]
fn an_open_that_fails_creates_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let left: Vec<String> =
        ["model=optan", "model=./none.toml", "mdts=4k", "cpu=1023", "queues=1024&vectors=0"]
            .into_iter()
            .enumerate()
            .filter_map(|(n, wrong)| {
                let path = dir.path().join(format!("{n}.img"));
                let opened = open(
                    &format!("file:{}?create=1M&{wrong}", path.display()),
                    &OpenOptions::default(),
                );
                (opened.is_err() && Path::exists(&path)).then(|| wrong.to_owned())
            })
            .collect();
    assert!(left.is_empty(), "files were left behind by {left:?}");
}

/// Only what this open has created may be removed: not a link of the user's, and not the file that
/// another was quicker to create.
#[test]
fn an_open_that_fails_removes_nothing_of_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).expect("a link");
    let uri = format!("file:{}?create=1M&cpu=1023", link.display());
    assert!(open(&uri, &OpenOptions::default()).is_err());
    assert!(link.is_symlink(), "the link was removed");
    for n in 0..100 {
        let path = dir.path().join(format!("{n}.img"));
        let uri = format!("file:{}?create=64K", path.display());
        std::thread::scope(|scope| {
            let racers = [(); 2].map(|()| scope.spawn(|| open(&uri, &OpenOptions::default())));
            let opened = racers.map(|racer| racer.join().expect("no panic"));
            let winners = opened.iter().filter(|opened| opened.is_ok()).count();
            assert_eq!(path.exists(), winners > 0, "{n}: {winners} opened it");
        });
    }
}

#[test]
fn memory_that_cannot_be_locked_names_the_limit() {
    /// CAP_IPC_LOCK of linux/capability.h.
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let poor = |command: &mut std::process::Command| {
        let limit = libc::rlimit { rlim_cur: 64 << 10, rlim_max: 64 << 10 };
        // SAFETY: between fork and exec only two system calls are made, which allocate and lock
        // nothing.
        unsafe {
            command.pre_exec(move || {
                // Root may lock whatever it likes by this capability. Others do not have it, and
                // may not drop it.
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
                match libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
    };
    if !in_own_process("threaded::memory_that_cannot_be_locked_names_the_limit", poor) {
        return;
    }
    let fds = count("/proc/self/fd");
    let error = refused("mem:64M?lock=1");
    for word in ["cannot lock", "RLIMIT_MEMLOCK is 64 KiB", "ulimit -l", "CAP_IPC_LOCK"] {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(count("/proc/self/fd"), fds);
    open("mem:64M", &OpenOptions::default()).expect("without locking it needs no right");
}

#[test]
fn a_thread_that_waits_is_released_by_a_reset() {
    let _alone = alone();
    // Looks are an eighth of the deadline apart: the waiter hears of the reset after a second. (Of
    // its deadline it would hear as `TimedOut`.)
    let options = ControllerOptions {
        io_timeout_ns: 8_000_000_000,
        retries: 0,
        ..ControllerOptions::default()
    };
    let (ssd, device) = start(config("optane"), options);
    ssd.set_faults(meantime_testkit::rig::LOST);
    let waiting = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (device, waiting) = (&device, &waiting);
        let waiter = scope.spawn(move || {
            let mut channel = device.channel(&both_ways(1)).expect("a channel");
            let ticket =
                channel.submit(read_of(&channel, 0..1).policy(Policy::Interrupt)).expect("room");
            waiting.store(true, Ordering::Release);
            channel.wait(ticket).result.expect_err("reset").kind
        });
        until("the thread waits", || waiting.load(Ordering::Acquire));
        device.controller().reset_now();
        assert_eq!(waiter.join().expect("no panic"), CommandError::Reset);
    });
}

/// The register behind a shadow wakes the SSD, which looks at shadows only while it is awake.
#[test]
fn a_parked_ssd_with_shadow_doorbells_is_woken() {
    let _alone = alone();
    let config = SsdConfig { shadow_doorbells: true, park_after_ns: 100_000, ..config("null") };
    let options =
        ControllerOptions { shadow_doorbells: Some(true), ..ControllerOptions::default() };
    let (ssd, device) = start(config, options);
    let mut channel = device.channel(&both_ways(4)).expect("a channel");
    for version in 1..5 {
        until("the SSD parks", || ssd.counters().parks >= version);
        std::thread::sleep(Duration::from_millis(5));
        put(&mut channel, 0..8, version);
    }
    let counters = channel.counters().polled;
    assert_eq!((counters.aborts, counters.late), (0, 0), "nothing had to be overdue");
}

/// NVMe Base 1.4 §5.21.1.8: the device interrupts after a number of completions, or after a time.
#[test]
fn coalescing_by_uri_delays_interrupts_only() {
    let _alone = alone();
    const TIME: Duration = Duration::from_micros(25_500);
    let uri = "mem:16M?model=nand&coalesce=4/25.5ms";
    let device = open(uri, &OpenOptions::default()).expect("a software SSD");
    let mut channel = device.channel(&both_ways(4)).expect("a channel");
    // The median of five: a thread that is held up may find the completion before it sleeps, and
    // whatever is quick may be held up.
    let mut median = |policy: Policy, depth: u64| {
        let mut times: Vec<Duration> = (0..5)
            .map(|_| {
                let start = Instant::now();
                let tickets: Vec<_> = (0..depth)
                    .map(|lba| {
                        let request = read_of(&channel, lba..lba + 1).policy(policy);
                        channel.submit(request).expect("room")
                    })
                    .collect();
                for ticket in tickets {
                    channel.wait(ticket).result.expect("read");
                }
                start.elapsed()
            })
            .collect();
        times.sort();
        times[2]
    };
    assert!(median(Policy::Interrupt, 1) >= TIME);
    assert!(median(Policy::Interrupt, 4) < TIME);
    assert!(median(Policy::Poll, 1) < TIME);
}
