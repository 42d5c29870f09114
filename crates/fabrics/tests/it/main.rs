//! The host against a target that is right, one that is wrong in every way, and our own.

#[cfg(feature = "auth")]
mod auth;
mod cut;
mod ours;
mod target;

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, NvmeDevice, OpenOptions, Request,
    open_nvme,
};
use meantime_completion::Policy;
use meantime_nvme::ControllerOptions;
use target::{BLOCK, Target};

/// Options with which a test ends soon.
fn options() -> OpenOptions {
    let controller = ControllerOptions {
        io_timeout_ns: 3_000_000_000,
        abort_grace_ns: 200_000_000,
        admin_timeout_ns: 2_000_000_000,
        io_queues: 8,
        ..ControllerOptions::default()
    };
    OpenOptions { controller, ..OpenOptions::default() }
}

fn opened(target: &Target, parameters: &str) -> NvmeDevice {
    open_nvme(&target.uri(parameters), &options()).unwrap()
}

fn channel(device: &NvmeDevice, policy: Policy) -> NvmeChannel {
    device
        .channel(&ChannelOptions { policy: Some(policy), depth: 32, ..ChannelOptions::default() })
        .unwrap()
}

/// `bytes` of the pattern `seed`.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8 ^ seed as u8).collect()
}

/// Writes and reads back blocks of several sizes.
fn verify(channel: &mut NvmeChannel) {
    for (round, bytes) in [512, 4096, 8192, 8704, 65_536, 131_072, 1 << 20].into_iter().enumerate()
    {
        let lba = 16 * round as u64;
        let mut buf = channel.alloc(bytes).unwrap();
        buf.copy_from_slice(&pattern(lba, bytes));
        let mut buf = channel.write(lba, buf).unwrap();
        buf.fill(0xee);
        let buf = channel.read(lba, buf).unwrap();
        assert!(buf[..] == pattern(lba, bytes)[..], "{bytes} bytes");
    }
}

#[test]
fn every_size_every_way() {
    for digest in ["", "&digest=header", "&digest=data", "&digest=header+data"] {
        for splits in [false, true] {
            let target = Target::start();
            target.shared.splits.store(splits, Ordering::Relaxed);
            let device = opened(&target, digest);
            for policy in ["poll", "interrupt", "adaptive"] {
                verify(&mut channel(&device, policy.parse().unwrap()));
            }
            assert_eq!(device.controller().info().version.major(), 1);
        }
    }
}

#[test]
fn many_at_once() {
    let target = Target::start();
    let device = opened(&target, "");
    for policy in [Policy::Poll, Policy::Interrupt] {
        let mut channel = channel(&device, policy);
        target.shared.medium.lock().unwrap().copy_from_slice(&pattern(9, BLOCK * target::BLOCKS));
        let mut sent = 0;
        let mut ended = 0;
        while ended < 2000 {
            while sent < 2000 && sent - ended < 32 {
                let bytes = BLOCK << (sent % 6);
                let buf = channel.alloc(bytes).unwrap();
                let request = Request::read(sent * 3, buf).user_data(sent);
                channel.enqueue(request).map_err(|rejected| rejected.error).unwrap();
                sent += 1;
            }
            let done = channel.wait_done().unwrap();
            done.result.unwrap();
            let (buf, from) = (done.buf.unwrap(), done.user_data as usize * 3 * BLOCK);
            let all = pattern(9, BLOCK * target::BLOCKS);
            assert!(buf[..] == all[from..from + buf.len()], "request {}", done.user_data);
            ended += 1;
        }
    }
}

#[test]
fn a_lost_io_connection_is_invisible() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let target = Target::start();
        let device = opened(&target, "&kato_ms=300");
        let mut channel = channel(&device, policy);
        verify(&mut channel);
        let started = Instant::now();
        for _ in 0..5 {
            target.cut(|qid| qid > 0);
            verify(&mut channel);
        }
        // The target has confirmed each reset: nothing to wait for.
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        assert!(target.shared.resets.load(Ordering::Relaxed) >= 5);
        // A flush says nothing of a loss: the controller was there all the time.
        channel.flush().unwrap();
    }
}

#[test]
fn a_lost_association_is_made_again_after_its_keep_alive_timeout() {
    for has_cache in [false, true] {
        let target = Target::start();
        target.shared.has_cache.store(has_cache, Ordering::Relaxed);
        let device = opened(&target, "&kato_ms=400");
        let mut channel = channel(&device, Policy::Poll);
        verify(&mut channel);
        let cut_at = Instant::now();
        target.cut(|_| true);
        verify(&mut channel);
        assert!(cut_at.elapsed() >= Duration::from_millis(400), "{:?}", cut_at.elapsed());
        // What the cache held may be lost, and is said once.
        let flushed = channel.flush();
        match flushed {
            Err(error) if has_cache => {
                assert!(error.to_string().contains("lost power"), "{error}");
            }
            flushed => assert!(flushed.is_ok() && !has_cache, "{flushed:?}"),
        }
        channel.flush().unwrap();
    }
}

#[test]
fn commands_in_flight_survive_a_loss() {
    let target = Target::start();
    let device = opened(&target, "&kato_ms=200");
    let mut channel = channel(&device, Policy::Interrupt);
    verify(&mut channel);
    target.shared.is_mute.store(true, Ordering::Relaxed);
    let mut buf = channel.alloc(4096).unwrap();
    buf.copy_from_slice(&pattern(3, 4096));
    let ticket = channel.submit(Request::write(0, buf)).map_err(|rejected| rejected.error).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    target.cut(|_| true);
    target.shared.is_mute.store(false, Ordering::Relaxed);
    let done = channel.wait(ticket);
    done.result.unwrap();
    assert!(target.shared.medium.lock().unwrap()[..4096] == pattern(3, 4096));
}

#[test]
fn a_target_that_stays_away_is_gone() {
    let target = Target::start();
    let device = opened(&target, "&kato_ms=100&loss_ms=1000");
    let mut channel = channel(&device, Policy::Poll);
    verify(&mut channel);
    target.shared.is_closed.store(true, Ordering::Relaxed);
    target.cut(|_| true);
    let buf = channel.alloc(4096).unwrap();
    let started = Instant::now();
    let error = channel.read(0, buf).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    // In flight, or sent afterwards.
    let said = error.to_string();
    assert!(said.contains("gone") || said.contains("could not be made again"), "{said}");
}

/// The user's limits hold whatever the ladder is at: waiting for the old association to end,
/// connecting anew, or resetting the controller.
#[test]
fn a_target_that_stops_answering_is_given_up_in_time() {
    for (loss_ms, resets) in [(0, false), (300, false), (600, false), (600, true)] {
        let target = Target::start();
        let device = opened(&target, &format!("&kato_ms=100&loss_ms={loss_ms}"));
        let mut channel = channel(&device, Policy::Poll);
        verify(&mut channel);
        let buf = channel.alloc(4096).unwrap();
        target.shared.is_stopped.store(true, Ordering::Relaxed);
        let stopped = Instant::now();
        if resets {
            device.controller().reset_now();
        }
        let error = channel.read(0, buf).unwrap_err().to_string();
        // The Keep Alive that is not answered, the loss, and one command.
        let most = Duration::from_millis(150 + loss_ms + 500 + 500);
        assert!(stopped.elapsed() < most, "{loss_ms} ms: {:?}", stopped.elapsed());
        assert!(error.contains("gone") || error.contains("lost"), "{error}");
        let buf = channel.alloc(4096).unwrap();
        let errors = [
            channel.read(0, buf).unwrap_err().to_string(),
            device.channel(&ChannelOptions::default()).err().unwrap().to_string(),
            device.controller().trouble().unwrap(),
        ];
        for error in errors {
            for words in ["127.0.0.1", "did not answer", &format!("{loss_ms} ms"), "loss_ms="] {
                assert!(error.contains(words), "no {words}: {error}");
            }
            assert!(!error.contains("CSTS") && !error.contains("power"), "{error}");
        }
    }
}

/// One that answers again in time is used again.
#[test]
fn a_target_that_answers_again_within_the_loss_is_used() {
    let target = Target::start();
    let device = opened(&target, "&kato_ms=100&loss_ms=20000");
    let mut channel = channel(&device, Policy::Poll);
    verify(&mut channel);
    target.shared.is_stopped.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1000));
            target.shared.is_stopped.store(false, Ordering::Relaxed);
        });
        verify(&mut channel);
    });
    assert!(device.controller().gone().is_none());
}

#[test]
fn queues_of_two_entries() {
    let target = Target::start();
    target.shared.queue_entries.store(2, Ordering::Relaxed);
    let device = opened(&target, "");
    assert_eq!((device.max_depth(), device.info().compare_write_blocks), (1, 0));
    for policy in [Policy::Poll, Policy::Interrupt] {
        let options =
            ChannelOptions { depth: 1, policy: Some(policy), ..ChannelOptions::default() };
        verify(&mut device.channel(&options).unwrap());
    }
    assert!(device.channel(&ChannelOptions::default()).is_err());
}

/// What has no namespaces is named as that.
#[test]
fn discovery_services_are_no_devices() {
    let failed = |uri: &str| open_nvme(uri, &options()).map(drop).unwrap_err().to_string();
    for uri in ["nvme+tcp://127.0.0.1:1", "nvme+tcp://127.0.0.1:1/?nsid=1"] {
        let error = failed(uri);
        assert!(error.contains("`meantime discover nvme+tcp://127.0.0.1:1`"), "{error}");
    }
    let target = Target::start();
    target.shared.controller_type.store(2, Ordering::Relaxed);
    let error = failed(&target.uri(""));
    assert!(
        error.contains("discovery controller") && error.contains("meantime discover"),
        "{error}"
    );
}

/// A target that wants TLS cannot say so by a PDU.
#[test]
fn a_target_that_may_want_tls() {
    for (answer, words) in [
        (&[][..], "perhaps it wants TLS"),
        (&[0x15, 3, 3, 0, 2, 2, 10][..], "wants TLS, which"),
        (&[1, 0, 128, 0][..], "within its answer"),
    ] {
        for resets in [false, true] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let uri = format!("nvme+tcp://{}/nqn.x?hostnqn=nqn.h", listener.local_addr().unwrap());
            let error = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    // What is not read resets the connection.
                    let mut bytes = [0; 128];
                    let most = if resets && answer.is_empty() { 100 } else { 128 };
                    io::Read::read_exact(&mut stream, &mut bytes[..most]).unwrap();
                    io::Write::write_all(&mut stream, answer).unwrap();
                });
                open_nvme(&uri, &options()).map(drop).unwrap_err().to_string()
            });
            assert!(error.contains(words), "{error}");
        }
    }
}

#[test]
fn an_idle_association_is_kept_alive() {
    let target = Target::start();
    let _device = opened(&target, "&kato_ms=200");
    std::thread::sleep(Duration::from_millis(1000));
    let count = target.shared.keep_alives.load(Ordering::Relaxed);
    assert!((5..=14).contains(&count), "{count} in 1 s, one for each 100 ms");
}

/// Every byte of every kind of answer, wrong: the I/O ends well or with an error, in bounded time,
/// and what is read is never wrong.
#[test]
fn every_cut_of_every_pdu() {
    let target = Target::start();
    let device = opened(&target, "&kato_ms=100&digest=header+data");
    let mut channel = channel(&device, Policy::Poll);
    verify(&mut channel);
    let want = pattern(0x55, 4096);
    target.shared.medium.lock().unwrap()[..4096].copy_from_slice(&want);
    for at in (0..36).chain([100, 1000, 4000, 4127, 4128, 4131]) {
        let mut done = false;
        target.misbehave(move |qid, _, pdu| {
            if qid == 0 || done || pdu[0] != 7 {
                return Ok(());
            }
            done = true;
            pdu.truncate(at);
            Err(io::Error::other("cut"))
        });
        let buf = channel.alloc(4096).unwrap();
        let buf = channel.read(0, buf).unwrap_or_else(|error| panic!("cut at {at}: {error}"));
        assert!(buf[..] == want[..], "cut at {at}");
    }
}

#[test]
fn every_wrong_byte_of_a_header() {
    let target = Target::start();
    let device = opened(&target, "&kato_ms=100");
    let mut channel = channel(&device, Policy::Poll);
    verify(&mut channel);
    let want = pattern(0x66, 4096);
    target.shared.medium.lock().unwrap()[..4096].copy_from_slice(&want);
    for at in 0..24usize {
        for bit in [0, 3, 7] {
            let mut done = false;
            target.misbehave(move |qid, _, pdu| {
                if qid == 0 || done || pdu[0] != 7 {
                    return Ok(());
                }
                done = true;
                pdu[at] ^= 1 << bit;
                Ok(())
            });
            let mut buf = channel.alloc(4096).unwrap();
            buf.fill(0);
            match channel.read(0, buf) {
                Ok(buf) => assert!(buf[..] == want[..], "byte {at}, bit {bit}"),
                Err(error) => panic!("byte {at}, bit {bit}: {error}"),
            }
        }
    }
}

#[test]
fn digests_find_every_wrong_byte() {
    let target = Target::start();
    let device = opened(&target, "&kato_ms=100&digest=header+data");
    let mut channel = channel(&device, Policy::Poll);
    let want = pattern(0x77, 4096);
    target.shared.medium.lock().unwrap()[..4096].copy_from_slice(&want);
    for at in (8..28).chain([28, 29, 1000, 4122, 4123, 4124, 4127]) {
        let mut done = false;
        target.misbehave(move |qid, _, pdu| {
            if qid > 0 && !done && pdu[0] == 7 {
                done = true;
                pdu[at] ^= 0x10;
            }
            Ok(())
        });
        let buf = channel.alloc(4096).unwrap();
        let buf = channel.read(0, buf).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert!(buf[..] == want[..], "byte {at}");
    }
    assert!(device.controller().gone().is_none());
}

#[test]
fn refusals_name_the_reason() {
    let target = Target::start();
    let failed = |parameters: &str| match open_nvme(&target.uri(parameters), &options()) {
        Ok(_) => panic!("{parameters}: opened"),
        Err(error) => error.to_string(),
    };
    // Connect's status.
    for (status, words) in [
        (0x182u16, "NQN"),
        (0x184, "does not allow this host: add its NQN there (nqn.2014-08.org.example:host)"),
        (0x181, "no controller left"),
        (0x191, "DH-HMAC-CHAP"),
    ] {
        target.misbehave(move |_, number, pdu| {
            if number == 1 {
                pdu[22..24].copy_from_slice(&(status << 1).to_le_bytes());
            }
            Ok(())
        });
        let error = failed("");
        assert!(error.contains(words), "{error}");
    }
    // ICResp.
    for (at, value, words) in
        [(0, 5, "no NVMe/TCP target"), (8, 1, "format"), (10, 1, "CPDA"), (13, 0, "MAXH2CDATA")]
    {
        target.misbehave(move |_, number, pdu| {
            if number == 0 {
                pdu[at] = value;
            }
            Ok(())
        });
        let error = failed("");
        assert!(error.contains(words), "{error}");
    }
    target.misbehave(|_, number, pdu| {
        if number == 0 {
            pdu[11] = 0;
        }
        Ok(())
    });
    assert!(failed("&digest=data").contains("digest="), "{}", failed("&digest=data"));
    target.behave();
    let error = open_nvme("nvme+tcp://127.0.0.1:1/nqn.x?hostnqn=nqn.h", &options());
    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.contains("is a target listening there?"), "{error}");
    assert!(failed("&nsid=7").contains("namespace 7"), "{}", failed("&nsid=7"));
}
