//! Compare-and-write: two commands, fused, that are done both or not at all, and never repeated.

use std::sync::Arc;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, IoErrorKind, NvmeChannel, NvmeDevice, Request,
    SubmitError, open,
};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{CommandError, Controller, ControllerOptions};
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_ssd::{FaultControl as _, FaultRule, Medium, Model, MonotonicClock, Ssd, SsdConfig};
use meantime_testkit::rig::{LOST, MS, Rig, kind, late, rig_options, ssd};

const BLOCK: usize = 512;

/// The buffer of a compare-and-write of one block.
fn halves(channel: &impl BlockChannel, expected: u8, new: u8) -> DmaBuf {
    let mut buf = channel.alloc(2 * BLOCK).expect("memory");
    buf[..BLOCK].fill(expected);
    buf[BLOCK..].fill(new);
    buf
}

fn block(channel: &mut impl BlockChannel, lba: u64) -> u8 {
    let buf = channel.alloc(BLOCK).expect("memory");
    let buf = channel.read(lba, buf).expect("a read");
    assert!(buf.iter().all(|byte| *byte == buf[0]), "a torn block");
    buf[0]
}

fn pair(channel: &NvmeChannel, lba: u64, expected: u8, new: u8) -> Request {
    Request::compare_and_write(lba, halves(channel, expected, new))
}

#[test]
fn what_is_as_expected_is_written() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let rig = Rig::new(ssd("optane"));
        assert_eq!(rig.device.info().compare_write_blocks, 1);
        let mut channel = rig.channel(4);
        channel.set_policy(policy).expect("it has an interrupt");
        let buf = halves(&channel, 0, 7);
        let (buf, written) = channel.compare_and_write(9, buf).expect("done");
        assert!(written && block(&mut channel, 9) == 7);
        let (buf, written) = channel.compare_and_write(9, buf).expect("done");
        assert!(!written && buf.len() == 2 * BLOCK && block(&mut channel, 9) == 7);
        let ticket = channel.submit(pair(&channel, 9, 1, 2)).expect("room");
        let done = channel.wait(ticket);
        assert_eq!(kind(&done), IoErrorKind::Miscompare);
        assert!(done.result.unwrap_err().to_string().contains("compare and write at LBA 9"));
        assert_eq!(rig.ssd.counters().refused, 0);
    }
}

/// Longer ones than a page, whose second half begins in the middle of one.
#[test]
fn as_many_blocks_as_the_device_says() {
    let rig = Rig::new(SsdConfig { atomic_write_lbas: 40, ..ssd("null") });
    let mut channel = rig.channel(4);
    for blocks in [1, 7, 8, 9, 40] {
        let bytes = blocks * BLOCK;
        let mut buf = channel.alloc(2 * bytes).expect("memory");
        let byte = |n: usize| (n / BLOCK + blocks) as u8;
        (0..bytes).for_each(|n| buf[bytes + n] = byte(n));
        let was = channel.read(100, channel.alloc(bytes).expect("memory")).expect("a read");
        buf[..bytes].copy_from_slice(&was);
        assert!(channel.compare_and_write(100, buf).expect("done").1);
        let is = channel.read(100, channel.alloc(bytes).expect("memory")).expect("a read");
        assert!(is.iter().enumerate().all(|(n, is)| *is == byte(n)), "{blocks} blocks");
    }
}

#[test]
fn what_cannot_be_is_not_sent() {
    let rig = Rig::new(ssd("null"));
    let mut channel = rig.channel(4);
    let mut refused = |lba, bytes| {
        let buf = channel.alloc(bytes).expect("memory");
        channel.submit(Request::compare_and_write(lba, buf)).expect_err("it cannot be").error
    };
    let halves = |bytes| SubmitError::Halves { bytes, block_bytes: 512 };
    assert_eq!(refused(0, 512), halves(512));
    assert_eq!(refused(0, 1536), halves(1536));
    assert_eq!(refused(0, 2048), SubmitError::NotAtomic { blocks: 2, most: 1 });
    assert!(matches!(refused(8192, 1024), SubmitError::OutOfRange { .. }));
    let request = Request { buf: None, ..pair(&channel, 0, 0, 0) };
    assert_eq!(channel.submit(request).expect_err("nothing to write").error, SubmitError::Buffer);
    // Another device's buffer; and a device of the kernel's, which has no such thing.
    let other = Rig::new(ssd("null")).channel(4);
    let foreign = pair(&other, 0, 0, 0);
    assert_eq!(channel.submit(foreign).expect_err("foreign").error, SubmitError::ForeignBuffer);
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(1 << 20).expect("its size");
    let kernel =
        open(&format!("kernel:{}?direct=0", file.path().display()), &Default::default()).unwrap();
    assert_eq!(kernel.info().compare_write_blocks, 0);
    let options = ChannelOptions { policy: Some(Policy::Interrupt), ..ChannelOptions::default() };
    let mut channel = kernel.channel(&options).expect("a channel");
    let buf = channel.alloc(1024).expect("memory");
    let error = channel.submit(Request::compare_and_write(0, buf)).expect_err("unsupported").error;
    assert!(matches!(error, SubmitError::Unsupported(_)), "{error}");
}

/// Pairs among reads, many times around a small queue: if anything came between, the SSD would say
/// so.
#[test]
fn nothing_comes_between() {
    for model in ["null", "optane"] {
        let rig = Rig::new(SsdConfig { max_queue_entries: 12, ..ssd(model) });
        let mut channel = rig.channel(10);
        let mut value = 0u8;
        for round in 0u64..300 {
            channel.plug();
            for n in 0..round % 7 {
                channel
                    .enqueue(Request::read(n, channel.alloc(BLOCK).expect("memory")))
                    .expect("room");
            }
            let ticket =
                channel.submit(pair(&channel, 5, value, value.wrapping_add(1))).expect("room");
            // There is one slot for second commands: this one waits for it.
            let other = channel.submit(pair(&channel, 6, 0xee, 1)).expect("room");
            channel.enqueue(Request::flush()).expect("room");
            channel.unplug();
            assert_eq!(channel.wait(ticket).result, Ok(()), "round {round}");
            assert_eq!(kind(&channel.wait(other)), IoErrorKind::Miscompare);
            while let Some(done) = channel.wait_done() {
                assert_eq!(done.result, Ok(()));
            }
            value = value.wrapping_add(1);
        }
        assert_eq!(block(&mut channel, 5), value);
        assert_eq!(rig.ssd.counters().refused, 0, "{:?}", rig.ssd.refusals());
    }
}

/// Whatever happens to either command: the request fails with its reason, the block is the old or
/// the new one, and the device was asked once.
#[test]
fn a_pair_is_never_repeated() {
    let internal = CommandError::Status(Status::from_code(StatusCode::InternalError));
    let gone =
        |kind| [CommandError::TimedOut, CommandError::Reset].iter().any(|gone| kind == *gone);
    for (rule, expected) in [
        ("status status=internal-error opcode=compare", Some(internal)),
        ("status status=internal-error opcode=write", Some(internal)),
        ("lost-completion opcode=compare", None),
        ("lost-completion opcode=write", None),
        ("late-completion opcode=compare by=1s", None),
        ("late-completion opcode=write by=1s", None),
        ("fatal-status opcode=compare", None),
        ("fatal-status opcode=write", None),
    ] {
        let rig = Rig::with(ssd("optane"), rig_options(2 * MS));
        let mut channel = rig.channel(4);
        let rule = format!("{rule} times=1");
        rig.ssd.add_fault(FaultRule::parse_line(&rule).expect("a rule")).expect("room");
        let ticket = channel.submit(pair(&channel, 3, 0, 9)).expect("room");
        let done = channel.wait(ticket);
        match expected {
            Some(kind_expected) => assert_eq!(kind(&done), kind_expected, "{rule}"),
            None => assert!(gone(kind(&done)), "{rule}: {:?}", kind(&done)),
        }
        assert!(done.buf.is_some(), "{rule}");
        let is = block(&mut channel, 3);
        assert!([0, 9].contains(&is), "{rule}: {is}");
        if expected.is_some() {
            assert_eq!(is, 0, "{rule}");
        }
        let (ssd, counters) = (rig.ssd.counters(), channel.counters().polled);
        assert!(ssd.other_io <= 1 && ssd.writes <= 1, "{rule}: {ssd:?}");
        assert_eq!((counters.retries, counters.requeued), (0, 0), "{rule}");
        assert_eq!(ssd.refused, 0, "{rule}: {:?}", rig.ssd.refusals());
        // The queue goes on.
        let (_, written) = {
            let buf = halves(&channel, is, 77);
            channel.compare_and_write(3, buf).expect("done")
        };
        assert!(written && block(&mut channel, 3) == 77, "{rule}");
    }
}

/// Blocks that were written must not be reported as unwritten.
#[test]
fn a_device_that_writes_in_spite_of_the_comparison_is_told_from_one_that_does_not() {
    // Which of the two completes first does not matter.
    for delay in
        ["", "late-completion opcode=compare by=100us", "late-completion opcode=write by=100us"]
    {
        let rig = Rig::new(ssd("optane"));
        let mut channel = rig.channel(4);
        let add = |rule: &str| {
            rig.ssd.add_fault(FaultRule::parse_line(rule).expect("a rule")).expect("room");
        };
        add("unfused opcode=write");
        if !delay.is_empty() {
            add(delay);
        }
        // A pair that is as it should be.
        assert!(channel.compare_and_write(3, halves(&channel, 0, 7)).expect("done").1, "{delay}");
        let ticket = channel.submit(pair(&channel, 3, 0, 8)).expect("room");
        let done = channel.wait(ticket);
        assert_eq!(kind(&done), IoErrorKind::Unfused, "{delay}");
        assert!(done.buf.is_some() && block(&mut channel, 3) == 8, "{delay}");
        let error =
            channel.compare_and_write(3, halves(&channel, 0, 9)).map(|(_, written)| written);
        assert!(
            error.expect_err("no answer is right").to_string().contains("still wrote"),
            "{delay}"
        );
        // A write that failed of itself was begun, whatever it left.
        add("status status=write-fault opcode=write");
        let ticket = channel.submit(pair(&channel, 3, 0, 1)).expect("room");
        let kind_of = kind(&channel.wait(ticket));
        let fault = CommandError::Status(Status::from_code(StatusCode::WriteFault)).into();
        assert!([IoErrorKind::Unfused, fault].contains(&kind_of), "{delay}: {kind_of}");
        // The slot has forgotten it.
        rig.ssd.clear_faults();
        let ticket = channel.submit(pair(&channel, 3, 0, 1)).expect("room");
        assert_eq!(kind(&channel.wait(ticket)), IoErrorKind::Miscompare, "{delay}");
        assert_eq!(block(&mut channel, 3), 9, "{delay}");
    }
}

/// With others in flight, which are repeated when their queue goes; and with a pair that still
/// waits for its place.
#[test]
fn a_pair_does_not_take_its_neighbours_with_it() {
    for plan in [LOST, late(1_000 * MS)] {
        let rig =
            Rig::with(SsdConfig { max_queue_entries: 12, ..ssd("optane") }, rig_options(2 * MS));
        let mut channel = rig.channel(10);
        let request = pair(&channel, 3, 0, 9);
        let faulty = rig.submit_with_faults(plan, &mut channel, request);
        let write = Request::write(20, halves(&channel, 4, 4));
        let beside = channel.submit(write).expect("room");
        let waiting = channel.submit(pair(&channel, 4, 0, 8)).expect("room");
        assert_eq!(kind(&channel.wait(faulty)), CommandError::TimedOut);
        assert_eq!(channel.wait(beside).result, Ok(()));
        assert_eq!((block(&mut channel, 20), block(&mut channel, 21)), (4, 4));
        // It was sent after, or taken back with the queue: done or not, and said truly.
        let done = channel.wait(waiting);
        let is = block(&mut channel, 4);
        match done.result {
            Ok(()) => assert_eq!(is, 8),
            Err(error) => assert!(
                (error.kind == CommandError::Reset || error.kind == CommandError::TimedOut)
                    && [0, 8].contains(&is),
                "{error}"
            ),
        }
    }
}

/// Adds 1 to the block's number, as often as it takes; how often it was told that it did.
fn count_up(device: &NvmeDevice, policy: Policy, times: u32, faulty: bool) -> u64 {
    let options = ChannelOptions { depth: 8, policy: Some(policy), ..ChannelOptions::default() };
    let mut channel = device.channel(&options).expect("a channel");
    let mut pair = channel.alloc(2 * BLOCK).expect("memory");
    let mut told = 0;
    while told < u64::from(times) {
        let read = channel.alloc(BLOCK).expect("memory");
        let Ok(read) = channel.read(1, read) else {
            assert!(faulty);
            continue;
        };
        let number = u64::from_le_bytes(read[..8].try_into().expect("8 bytes"));
        pair[..BLOCK].copy_from_slice(&read);
        pair[BLOCK..].fill(number as u8);
        pair[BLOCK..BLOCK + 8].copy_from_slice(&(number + 1).to_le_bytes());
        let ticket = channel.submit(Request::compare_and_write(1, pair)).expect("room");
        let done = channel.wait(ticket);
        pair = done.buf.expect("the device is there");
        match done.result.map_err(|error| error.kind) {
            Ok(()) => told += 1,
            Err(IoErrorKind::Miscompare) => {}
            // Not executed, as the plan says of them.
            Err(IoErrorKind::Command(CommandError::Status(status)))
                if faulty && status.is(StatusCode::InternalError) => {}
            Err(error) => panic!("{error}"),
        }
    }
    told
}

/// Threads that count up one block, each by channels of its own: no count is lost, and none comes
/// twice.
#[test]
fn counters_in_one_block_add_up() {
    const THREADS: u64 = 4;
    const TIMES: u32 = 200;
    for (model, faulty) in [("null", false), ("fast12", false), ("null", true), ("optane", true)] {
        let config = SsdConfig {
            model: Model::named(model).expect("a built-in model"),
            ..SsdConfig::with_namespace(1 << 20, 512)
        };
        let medium = Medium::dram(1 << 20).expect("memory");
        let ssd = Ssd::start(config, medium, MonotonicClock::new()).expect("an SSD");
        if faulty {
            for opcode in ["compare", "write"] {
                let rule = format!("status status=internal-error opcode={opcode} every=11");
                ssd.handle()
                    .add_fault(FaultRule::parse_line(&rule).expect("a rule"))
                    .expect("room");
            }
        }
        let port = ssd.port();
        // SAFETY: the port has no other user.
        let transport = unsafe { SoftTransport::new(port, "counters".into(), None) };
        // Writes are not repeated: each is an answer.
        let options = ControllerOptions { retries: 0, ..ControllerOptions::default() };
        let controller =
            Controller::enable(Arc::new(transport), options).expect("the controller comes up");
        let device = meantime_testkit::device(&controller);
        let told: u64 = std::thread::scope(|scope| {
            let policy = |n| if n % 2 == 0 { Policy::Poll } else { Policy::Interrupt };
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    let device = &device;
                    scope.spawn(move || count_up(device, policy(n), TIMES, faulty))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("it counts")).sum()
        });
        let mut channel = device.channel(&ChannelOptions::default()).expect("a channel");
        let read = channel.read(1, channel.alloc(BLOCK).expect("memory")).expect("a read");
        let number = u64::from_le_bytes(read[..8].try_into().expect("8 bytes"));
        assert_eq!(
            (number, told),
            (THREADS * u64::from(TIMES), THREADS * u64::from(TIMES)),
            "{model}"
        );
        assert!(read[8..].iter().all(|byte| *byte == (number - 1) as u8), "another's write");
        assert_eq!(ssd.counters().refused, 0, "{:?}", ssd.refusals());
    }
}
