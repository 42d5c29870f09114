//! `kernel:` devices: what is written is read, in any depth and by either engine; what cannot be
//! done says why.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelError, ChannelOptions, Device, IoErrorKind, OpenOptions,
    Request, SubmitError, open,
};
use meantime_completion::Policy;

const ENGINES: [&str; 2] = ["io_uring", "preadv2"];

/// A directory on the disk that the tests are built on: a temporary directory may be in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

fn device(path: &Path, parameters: &str) -> Device {
    open(&format!("kernel:{}?{parameters}", path.display()), &OpenOptions::default())
        .expect("a device")
}

fn interrupt(depth: u16) -> ChannelOptions {
    ChannelOptions { depth, policy: Some(Policy::Interrupt), ..ChannelOptions::default() }
}

fn open_error(uri: &str) -> String {
    match open(uri, &OpenOptions::default()) {
        Ok(_) => panic!("{uri} was opened"),
        Err(error) => error.to_string(),
    }
}

/// The page cache is never polled: a channel whose user says nothing does without, one that shall
/// poll is refused.
#[test]
fn what_cannot_be_polled_is_not_polled_unless_somebody_says_so() {
    let dir = directory();
    for engine in ENGINES {
        let path = dir.path().join(engine);
        let device = device(&path, &format!("engine={engine}&direct=0&create=1M"));
        let mut channel = device.channel(&ChannelOptions::default()).expect("a channel");
        assert_eq!(channel.policy(), Policy::ADAPTIVE);
        let buf = channel.alloc(4096).expect("memory");
        channel.write(0, buf).expect("written");
        let poll = ChannelOptions { policy: Some(Policy::Poll), ..ChannelOptions::default() };
        assert!(matches!(device.channel(&poll), Err(ChannelError::Policy { .. })));
    }
}

#[test]
fn what_is_written_is_read_and_is_in_the_file() {
    let dir = directory();
    for engine in ENGINES {
        for direct in [1, 0] {
            let path = dir.path().join(format!("{engine}{direct}"));
            let device = device(&path, &format!("engine={engine}&direct={direct}&create=1M"));
            assert_eq!(device.info().bytes(), 1 << 20);
            let mut channel = device.channel(&interrupt(4)).expect("a channel");
            let mut buf = channel.alloc(12288).expect("memory");
            buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
            let lba = 8192 / u64::from(device.info().block_bytes);
            let buf = channel.write(lba, buf).expect("written");
            channel.flush().expect("flushed");
            let other = channel.alloc(12288).expect("memory");
            let other = channel.read(lba, other).expect("read");
            assert_eq!(*buf, *other);
            let mut file = std::fs::File::open(&path).expect("the file");
            let mut there = vec![0; 12288];
            file.seek(SeekFrom::Start(8192))
                .and_then(|_| file.read_exact(&mut there))
                .expect("its contents");
            assert_eq!(*buf, *there);
            let ticket = channel.submit(Request::write(lba, buf).fua()).expect("taken");
            assert!(channel.wait(ticket).result.is_ok());
        }
    }
}

/// Against a model in memory: reads, writes, zeroes at random places and sizes, up to 32 at a time
/// on places of their own.
#[test]
fn agrees_with_a_model() {
    const BLOCKS: u64 = 512;
    let dir = directory();
    for engine in ENGINES {
        let device =
            device(&dir.path().join(engine), &format!("engine={engine}&lba=4096&create=2M"));
        let mut channel = device.channel(&interrupt(32)).expect("a channel");
        let mut model = vec![0u8; (BLOCKS * 4096) as usize];
        let mut seed = 0x1234_5678_9abc_def0_u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for round in 0..40 {
            // 32 places that do not overlap.
            let mut expected = std::collections::HashMap::new();
            channel.plug();
            for place in 0..32 {
                let blocks = 1 + random(8);
                let lba = place * 16 + random(8);
                let range = (lba * 4096) as usize..((lba + blocks) * 4096) as usize;
                let request = match random(3) {
                    0 => {
                        let mut buf = channel.alloc(range.len()).expect("memory");
                        buf.fill((round * 32 + place) as u8);
                        model[range.clone()].copy_from_slice(&buf);
                        Request::write(lba, buf)
                    }
                    1 if engine == "io_uring" => {
                        model[range.clone()].fill(0);
                        Request::write_zeroes(lba, blocks)
                    }
                    _ => {
                        let mut buf = channel.alloc(range.len()).expect("memory");
                        buf.fill(0xee);
                        expected.insert(place, range.clone());
                        Request::read(lba, buf)
                    }
                };
                channel.enqueue(request.user_data(place)).expect("room for 32");
            }
            channel.unplug();
            let mut ended = 0;
            while let Some(done) = channel.wait_done() {
                done.result.expect("done");
                ended += 1;
                if let Some(range) = expected.remove(&done.user_data) {
                    let buf = done.buf.expect("the buffer");
                    assert!(*buf == model[range], "round {round}, place {}", done.user_data);
                }
            }
            assert_eq!((ended, channel.in_flight()), (32, 0));
            assert!(expected.is_empty());
        }
    }
}

#[test]
fn what_the_caller_gets_wrong_is_refused_with_the_request() {
    let dir = directory();
    let device = device(&dir.path().join("f"), "lba=4096&create=64k");
    let mut channel = device.channel(&interrupt(2)).expect("a channel");
    let mut error = |request: Request| channel.submit(request).expect_err("refused").error;
    let buf = |bytes| device.heap().alloc(bytes).expect("memory");
    assert!(matches!(
        error(Request::read(16, buf(4096))),
        SubmitError::OutOfRange { size: 16, .. }
    ));
    assert!(matches!(error(Request::read(u64::MAX, buf(4096))), SubmitError::OutOfRange { .. }));
    assert!(matches!(error(Request::read(0, buf(512))), SubmitError::PartialBlock { .. }));
    assert!(matches!(error(Request::write_zeroes(0, 0)), SubmitError::Empty));
    let polled = error(Request::read(0, buf(4096)).policy(Policy::Poll));
    assert!(matches!(polled, SubmitError::CannotWait { policy: Policy::Poll, .. }), "{polled}");
    let elsewhere = open("mem:1M", &OpenOptions::default()).expect("a software SSD");
    let foreign = elsewhere.heap().alloc(4096).expect("memory");
    assert!(matches!(error(Request::read(0, foreign)), SubmitError::ForeignBuffer));
    for depth in [0, 1024] {
        let refused = device.channel(&interrupt(depth)).err().expect("refused");
        assert!(matches!(refused, ChannelError::Depth { limit: 1023, .. }), "{refused}");
    }
}

#[test]
fn a_full_channel_says_so_and_goes_on() {
    let dir = directory();
    for engine in ENGINES {
        let device = device(&dir.path().join(engine), &format!("engine={engine}&create=64k"));
        let mut channel = device.channel(&interrupt(2)).expect("a channel");
        let buf = || device.heap().alloc(4096).expect("memory");
        let first = channel.submit(Request::read(0, buf())).expect("room");
        let second = channel.submit(Request::read(8, buf())).expect("room");
        let refused = channel.submit(Request::read(16, buf())).expect_err("full");
        assert_eq!(refused.error, SubmitError::Full { depth: 2 });
        assert!(channel.wait(second).result.is_ok());
        channel.detach(first);
        while channel.in_flight() > 0 {
            channel.poll();
        }
        assert_eq!(device.heap().allocated_bytes(), 4096, "all but the one that was refused");
        drop(refused);
        assert_eq!(device.heap().allocated_bytes(), 0);
    }
}

#[test]
fn a_channel_that_is_dropped_waits_for_what_is_under_way() {
    let dir = directory();
    let device = device(&dir.path().join("f"), "create=16M");
    let mut channel = device.channel(&interrupt(32)).expect("a channel");
    for at in 0..32 {
        let buf = channel.alloc(256 << 10).expect("memory");
        channel.enqueue(Request::write(at * 512, buf)).expect("room");
    }
    drop(channel);
    assert_eq!((device.heap().allocated_bytes(), device.heap().quarantined_bytes()), (0, 0));
}

/// The kernel looks at it: a class that there is not is refused. It has no call that takes one
/// beside io_uring's.
#[test]
fn an_io_has_a_priority_of_its_own() {
    let dir = directory();
    for engine in ENGINES {
        let path = dir.path().join(engine);
        let device = device(&path, &format!("engine={engine}&create=64k"));
        let mut channel = device.channel(&interrupt(1)).expect("a channel");
        for (ioprio, good) in [(0, true), (2 << 13 | 3, true), (5 << 13, engine == "preadv2")] {
            for write in [true, false] {
                let buf = channel.alloc(4096).expect("memory");
                let request = if write { Request::write(0, buf) } else { Request::read(0, buf) };
                let ticket = channel.submit(Request { ioprio, ..request }).expect("taken");
                let done = channel.wait(ticket);
                assert_eq!(done.result.is_ok(), good, "{engine} {ioprio:#x}: {:?}", done.result);
            }
        }
    }
}

#[test]
fn a_file_that_was_truncated_is_an_error() {
    let dir = directory();
    for engine in ENGINES {
        let path = dir.path().join(engine);
        let device = device(&path, &format!("engine={engine}&create=64k"));
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(0))
            .expect("truncated");
        let mut channel = device.channel(&interrupt(1)).expect("a channel");
        let buf = channel.alloc(4096).expect("memory");
        let ticket = channel.submit(Request::read(0, buf)).expect("taken");
        let done = channel.wait(ticket);
        assert_eq!(done.result.expect_err("nothing there").kind, IoErrorKind::EndOfFile);
        assert!(done.buf.is_some());
    }
}

#[test]
fn ways_to_wait_that_the_kernel_lacks_say_why() {
    let dir = directory();
    let path = dir.path().join("f");
    let uring = device(&path, "create=64k");
    let why = |device: &Device, policy: Policy| {
        device.can_wait(policy).err().map(|error| error.to_string())
    };
    assert_eq!(why(&uring, Policy::Interrupt), None);
    assert!(why(&uring, Policy::HybridHalfMean).expect("removed").contains("6.4"));
    assert!(why(&uring, Policy::HybridFixed(1)).expect("removed").contains("hybrid-min"));
    // A disk with queues to poll can; any other says what would help.
    if let Some(why) = why(&uring, Policy::Poll) {
        assert!(why.contains("poll"), "{why}");
    }
    let calls = device(&path, "engine=preadv2");
    assert!(why(&calls, Policy::Poll).expect("ignored").contains("5.19"));
    let buffered = device(&path, "direct=0");
    assert!(why(&buffered, Policy::Poll).expect("not polled").contains("direct=0"));
    let mut channel = uring.channel(&interrupt(1)).expect("a channel");
    assert!(matches!(
        channel.set_policy(Policy::HybridHalfMean),
        Err(SubmitError::CannotWait { .. })
    ));
    assert_eq!(channel.policy(), Policy::Interrupt);
}

#[test]
fn what_cannot_be_opened_says_why_and_leaves_nothing() {
    let dir = directory();
    let at = |name: &str| format!("kernel:{}", dir.path().join(name).display());
    assert!(open_error(&at("absent")).contains("create=SIZE"));
    assert!(open_error(&format!("kernel:{}", dir.path().display())).contains("neither"));
    let null = open_error("kernel:/dev/null");
    assert!(null.contains("neither") && null.contains("/dev/ng0n1"), "{null}");
    // Not made, whatever `create` says.
    let absent = open_error("kernel:/dev/ng4294967295n1?create=1M");
    assert!(absent.contains("5.19") && absent.contains("kernel:/dev/nvme0n1"), "{absent}");
    assert!(!Path::new("/dev/ng4294967295n1").exists());
    std::fs::write(dir.path().join("small"), b"x").expect("a file");
    assert!(open_error(&at("small")).contains("less than a block"));
    // Too large for any disk here: nothing may be left of it.
    let error = open_error(&format!("{}?create=4096T", at("huge")));
    assert!(error.contains("cannot create"), "{error}");
    assert!(!dir.path().join("huge").exists());
    // sysfs has no direct I/O, whatever the machine.
    let error = open_error("kernel:/sys/kernel/mm/transparent_hugepage/enabled");
    assert!(error.contains("direct=0") || error.contains("no such file"), "{error}");
}

/// What is mounted may be looked at, and not be written.
#[test]
fn a_mounted_disk_is_opened_for_reading_only() {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("the mounts");
    let disk = mounts
        .lines()
        .filter_map(|line| line.split(' ').next())
        .find(|name| name.starts_with("/dev/") && std::fs::File::open(name).is_ok());
    let Some(disk) = disk else {
        eprintln!("no mounted disk that this process may read: nothing to test");
        return;
    };
    let device = device(Path::new(disk), "");
    let Device::Kernel(kernel) = &device else { panic!("of the kernel") };
    assert!(kernel.read_only().is_some());
    let mut channel = device.channel(&interrupt(1)).expect("a channel");
    let buf = channel.alloc(4096).expect("memory");
    let buf = channel.read(0, buf).expect("read");
    let refused = channel.submit(Request::write(0, buf)).expect_err("mounted").error;
    assert!(matches!(refused, SubmitError::ReadOnly(_)), "{refused}");
    assert!(matches!(
        channel.submit(Request::write_zeroes(0, 1)).expect_err("mounted").error,
        SubmitError::ReadOnly(_)
    ));
}

/// More chunks of memory than the first, registered when they are met; and none that is another
/// heap's.
#[test]
fn memory_that_comes_later_is_registered() {
    let dir = directory();
    for fixed in [0, 1] {
        let device = device(&dir.path().join("f"), &format!("fixed={fixed}&create=64M"));
        let mut channel = device.channel(&interrupt(2)).expect("a channel");
        let bufs: Vec<_> = (0..5).map(|_| channel.alloc(6 << 20).expect("memory")).collect();
        for (at, mut buf) in bufs.into_iter().enumerate() {
            buf.fill(at as u8 + 1);
            let buf = channel.write(at as u64 * 12288, buf).expect("written");
            let mut again = channel.read(at as u64 * 12288, buf).expect("read");
            assert!(again.iter().all(|byte| *byte == at as u8 + 1));
            again.fill(0);
        }
    }
}

#[test]
fn a_detached_write_is_done_when_the_channel_ends() {
    let dir = directory();
    for engine in ENGINES {
        let path = dir.path().join(engine);
        let device = device(&path, &format!("engine={engine}&create=64k"));
        let mut channel = device.channel(&interrupt(4)).expect("a channel");
        let mut buf = channel.alloc(4096).expect("memory");
        buf.fill(7);
        let ticket = channel.submit(Request::write(0, buf)).expect("room");
        channel.detach(ticket);
        drop(channel);
        assert!(
            std::fs::read(&path).expect("the file")[..4096].iter().all(|byte| *byte == 7),
            "{engine}"
        );
    }
}

/// The kernel does I/O in the name of the thread that began it; a channel may be handed on.
#[test]
fn a_channel_outlives_the_thread_that_began_its_io() {
    let dir = directory();
    for direct in [0, 1] {
        let device = device(&dir.path().join("f"), &format!("direct={direct}&create=8M"));
        let mut channel = device.channel(&interrupt(32)).expect("a channel");
        let began = std::thread::spawn(move || {
            for at in 0..16 {
                let mut buf = channel.alloc(64 << 10).expect("memory");
                buf.fill(9);
                let request = if at % 2 == 0 {
                    Request::read(at * 128, buf)
                } else {
                    Request::write(at * 128, buf)
                };
                channel.enqueue(request).expect("room");
            }
            channel
        });
        let mut channel = began.join().expect("no panic");
        while let Some(done) = channel.wait_done() {
            done.result.expect("done");
        }
    }
}

/// Memory that exceeds the limit on pinned memory, or finds no room in the ring, is not registered
/// but works otherwise.
#[test]
fn memory_that_cannot_be_registered_is_used_all_the_same() {
    let dir = directory();
    let device = device(&dir.path().join("f"), "create=1M");
    let mut channel = device.channel(&interrupt(1)).expect("a channel");
    // More chunks than a ring has room for.
    let bufs: Vec<_> = (0..70).map(|_| channel.alloc(8 << 20).expect("memory")).collect();
    for mut buf in bufs {
        buf.set_len(4096);
        drop(channel.read(0, buf).expect("read"));
    }
}
