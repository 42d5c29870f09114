//! The I/O loop and the verification, on a software SSD with injected faults.

mod order;

use std::sync::atomic::{AtomicBool, Ordering};

use itertools::iproduct;
use meantime_block::{
    BlockChannel, BlockDevice, BlockInfo, ChannelOptions, Done, IoError, IoErrorKind, NvmeChannel,
    NvmeDevice, OpenOptions, Rejected, Request, SubmitError, Ticket,
};
use meantime_completion::Policy;
use meantime_hw::{Clock, DmaBuf, HwError};
use meantime_nvme::{CommandError, Op};

use super::tally::Tally;
use crate::engine::{Ended, Engine, Faults, Limit, Slots, Source, Unrecorded};
use crate::job::testing::job;
use crate::pattern::{Io, Pattern, PatternSpec};
use crate::shape::Shape;
use crate::verify::{Course, Rules, Verified};

const BS: u64 = 4096;
const NO_LIMIT: Limit = Limit::NONE;

/// A fault of the device.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// Flips a bit of the data read at an LBA.
    FlipsReadAt(u64),
    /// Acknowledges writes to an LBA without doing them.
    LosesWriteAt(u64),
    /// Answers reads of an LBA with an error.
    FailsReadAt(u64, IoErrorKind),
}

/// A channel to a device with a fault.
struct Faulty {
    inner: NvmeChannel,
    wrong: Wrong,
    /// The LBA in flight by `user_data`.
    lbas: Vec<u64>,
    /// The requests, each with its operation, FUA, and the number in flight.
    sent: Vec<(Op, bool, usize)>,
    sent_lbas: Vec<u64>,
}

impl Faulty {
    fn twist(&mut self, mut request: Request) -> Request {
        self.sent.push((request.op, request.fua, self.inner.in_flight()));
        if request.op == Op::Flush {
            return request;
        }
        self.sent_lbas.push(request.lba);
        let slot = request.user_data as usize;
        self.lbas[slot] = if request.op == Op::Read { request.lba } else { u64::MAX };
        if self.wrong == Wrong::LosesWriteAt(request.lba) {
            request.op = Op::Read;
        }
        request
    }

    fn corrupt(&self, mut done: Done) -> Done {
        if done.buf.is_none() {
            return done;
        }
        if let (Wrong::FlipsReadAt(lba), Some(buf)) = (self.wrong, &mut done.buf)
            && self.lbas[done.user_data as usize] == lba
        {
            buf[100] ^= 1;
        }
        if let Wrong::FailsReadAt(lba, kind) = self.wrong
            && self.lbas[done.user_data as usize] == lba
        {
            done.result = Err(IoError { op: Op::Read, lba, kind });
        }
        done
    }
}

impl BlockChannel for Faulty {
    fn info(&self) -> &BlockInfo {
        self.inner.info()
    }
    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        self.inner.alloc(bytes)
    }
    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected> {
        let request = self.twist(request);
        self.inner.submit(request)
    }
    fn enqueue(&mut self, request: Request) -> Result<(), Rejected> {
        let request = self.twist(request);
        self.inner.enqueue(request)
    }
    fn plug(&mut self) {
        self.inner.plug();
    }
    fn unplug(&mut self) {
        self.inner.unplug();
    }
    fn poll(&mut self) -> usize {
        self.inner.poll()
    }
    fn wait(&mut self, ticket: Ticket) -> Done {
        let done = self.inner.wait(ticket);
        self.corrupt(done)
    }
    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        self.inner.try_take(ticket)
    }
    fn detach(&mut self, ticket: Ticket) {
        self.inner.detach(ticket);
    }
    fn next_done(&mut self) -> Option<Done> {
        let done = self.inner.next_done()?;
        Some(self.corrupt(done))
    }
    fn wait_done(&mut self) -> Option<Done> {
        let done = self.inner.wait_done()?;
        Some(self.corrupt(done))
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn depth(&self) -> u16 {
        self.inner.depth()
    }
    fn policy(&self) -> Policy {
        self.inner.policy()
    }
    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError> {
        self.inner.set_policy(policy)
    }
}

fn device() -> NvmeDevice {
    meantime_block::open_nvme("mem:1M", &OpenOptions::default()).unwrap()
}

fn faulty(device: &NvmeDevice, depth: u16, wrong: Wrong) -> Faulty {
    let options = ChannelOptions { depth, ..ChannelOptions::default() };
    let inner = device.channel(&options).unwrap();
    Faulty {
        inner,
        wrong,
        lbas: vec![u64::MAX; usize::from(depth)],
        sent: Vec::new(),
        sent_lbas: Vec::new(),
    }
}

fn spec(read_percent: u8, passes: Option<u64>) -> PatternSpec {
    PatternSpec {
        offset_bytes: 0,
        range_bytes: 1 << 20,
        pass_bytes: 1 << 20,
        block_shift: 9,
        bs_read_bytes: BS,
        bs_write_bytes: BS,
        random: true,
        read_percent,
        passes,
        seed: 1,
    }
}

fn drive<S: Source>(channel: &mut Faulty, source: &mut S, limit: Limit) -> (Ended, Tally, Faults) {
    let mut slots = Slots::new(channel, channel.lbas.len(), BS as usize).unwrap();
    let (clock, stop) = (Clock::real(), AtomicBool::new(false));
    let (mut tally, mut faults) = (Tally::default(), Faults::default());
    tally.series.begin(clock.now_ns(), 0);
    let mut engine =
        Engine { channel, slots: &mut slots, clock: &clock, stop: &stop, faults: &mut faults };
    let ended = engine.run(source, limit, &mut tally);
    (ended, tally, faults)
}

/// Runs one pass of writes (or a mix of them) and reads it back. Returns errors, the first finding,
/// and the number of blocks checked.
fn verify(depth: u16, read_percent: u8, passes: u64, wrong: Wrong) -> (u64, String, u64) {
    let device = device();
    let mut channel = faulty(&device, depth, wrong);
    let spec = spec(read_percent, Some(passes));
    let rules = Rules::of(&job(&[("rw", "write"), ("verify", "crc32c")]));
    let mut verified = Verified::new(
        Course::Plain(Box::new(Pattern::new(spec))),
        rules,
        &spec,
        usize::from(depth),
        7,
    );
    loop {
        let (ended, _, faults) = drive(&mut channel, &mut verified, NO_LIMIT);
        assert_eq!((ended, faults.errors), (Ended::Dry, 0));
        assert_eq!(drive(&mut channel, &mut verified.read_back(), NO_LIMIT).0, Ended::Dry);
        if !verified.course.begin_pass() {
            break;
        }
    }
    let findings = verified.findings.clone();
    (findings.errors, findings.first.unwrap_or_default(), findings.checked)
}

#[test]
fn good_data_verifies() {
    for depth in [1, 16] {
        assert_eq!(verify(depth, 0, 1, Wrong::Nothing), (0, String::new(), 256));
        let (errors, first, checked) = verify(depth, 50, 4, Wrong::Nothing);
        assert_eq!((errors, first.as_str()), (0, ""));
        assert!(checked > 500, "{checked}");
    }
}

#[test]
fn a_flipped_bit_is_found() {
    for depth in [1, 16] {
        let (errors, first, checked) = verify(depth, 0, 1, Wrong::FlipsReadAt(80));
        assert_eq!((errors, checked), (1, 256));
        assert!(first.contains("offset 40960") && first.contains("payload"), "{first}");
    }
}

#[test]
fn a_lost_write_is_found() {
    for depth in [1, 16] {
        let (errors, first, _) = verify(depth, 0, 1, Wrong::LosesWriteAt(8));
        assert_eq!(errors, 1);
        assert!(first.contains("offset 4096") && first.contains("found zeroes"), "{first}");
    }
}

#[test]
fn a_mixed_job_finds_it_too() {
    let (errors, first, _) = verify(8, 50, 6, Wrong::FlipsReadAt(0));
    assert!(errors > 0 && first.contains("offset 0 "), "{first}");
}

#[test]
fn everything_is_counted_once() {
    let device = device();
    for depth in [1, 4, 32] {
        let mut channel = faulty(&device, depth, Wrong::Nothing);
        let mut plain = Pattern::new(spec(30, Some(3)));
        let (ended, tally, faults) = drive(&mut channel, &mut plain, NO_LIMIT);
        assert_eq!(
            (ended, tally.ios(), tally.bytes(), faults.errors),
            (Ended::Dry, 768, 3 << 20, 0)
        );
        assert_eq!(tally.depths.iter().sum::<u64>(), 768);
        let [read, write, _] = &tally.directions;
        assert_eq!(read.lat.n() + write.lat.n(), 768);
        assert!(read.ios > 150 && read.ios < 310);
        let mut endless = Pattern::new(spec(100, None));
        let (ended, tally, _) =
            drive(&mut channel, &mut endless, Limit { max_ios: 1000, ..NO_LIMIT });
        assert_eq!((ended, tally.ios()), (Ended::Limit, 1000));
        assert_eq!(channel.in_flight(), 0);
    }
}

#[test]
fn a_failed_io_is_counted_and_the_job_goes_on() {
    let device = device();
    for depth in [1, 16] {
        let mut channel =
            faulty(&device, depth, Wrong::FailsReadAt(8, CommandError::TimedOut.into()));
        let (ended, tally, faults) =
            drive(&mut channel, &mut Pattern::new(spec(100, Some(2))), NO_LIMIT);
        assert_eq!((ended, tally.ios(), faults.errors), (Ended::Dry, 510, 2));
        assert_eq!(
            faults.first.as_deref(),
            Some("read at LBA 8: the device did not answer in time")
        );
    }
}

#[test]
fn a_device_that_is_gone_ends_the_job() {
    let device = device();
    for depth in [1, 16] {
        let gone = CommandError::Gone { memory_released: true };
        let mut channel = faulty(&device, depth, Wrong::FailsReadAt(8, gone.into()));
        let (ended, tally, faults) =
            drive(&mut channel, &mut Pattern::new(spec(100, None)), NO_LIMIT);
        assert_eq!(ended, Ended::Lost("read at LBA 8: the device is gone".to_owned()));
        assert_eq!(faults.errors, 1);
        assert!(tally.ios() < 256 + 16);
        assert_eq!(channel.in_flight(), 0);
    }
}

#[test]
fn what_the_channel_refuses_ends_the_job() {
    let device = device();
    let mut channel = faulty(&device, 1, Wrong::Nothing);
    // This is beyond the end, which the channel refuses. A checked job never gets there.
    let mut plain = Pattern::new(PatternSpec { offset_bytes: 1 << 20, ..spec(100, None) });
    let (ended, tally, _) = drive(&mut channel, &mut plain, NO_LIMIT);
    assert!(matches!(ended, Ended::Lost(why) if why.contains("beyond the namespace")));
    assert_eq!(tally.ios(), 0);
}

/// Runs one pass of 256 writes with `keys`, in turns of `limit`. Returns the requests and the
/// tally.
fn shaped(depth: u16, keys: &[(&str, &str)], limit: Limit) -> (Vec<(Op, bool, usize)>, Tally) {
    let depth_text = depth.to_string();
    let job = job(&[&[("rw", "randwrite"), ("iodepth", &depth_text)], keys].concat());
    let mut shape = Shape::of(&job, 1).unwrap();
    let device = device();
    let mut channel = faulty(&device, depth, Wrong::Nothing);
    let mut slots = Slots::new(&channel, usize::from(depth), BS as usize).unwrap();
    let (clock, stop) = (Clock::real(), AtomicBool::new(false));
    let (mut tally, mut faults) = (Tally::default(), Faults::default());
    let mut plain = Pattern::new(spec(0, Some(1)));
    loop {
        tally.series.begin(clock.now_ns(), 0);
        let mut engine = Engine {
            channel: &mut channel,
            slots: &mut slots,
            clock: &clock,
            stop: &stop,
            faults: &mut faults,
        };
        let ended = engine.run_shaped(&mut plain, &mut shape, limit, &mut tally);
        assert_eq!(channel.in_flight(), 0);
        match ended {
            Ended::Limit => {}
            ended => {
                assert_eq!((ended, faults.errors), (Ended::Dry, 0));
                return (std::mem::take(&mut channel.sent), tally);
            }
        }
    }
}

#[test]
fn a_flush_comes_alone_after_so_many_writes() {
    for depth in [1, 16] {
        // The result is the same for any division into turns.
        for max_ios in [u64::MAX, 7, 1] {
            let (sent, tally) =
                shaped(depth, &[("fsync", "10"), ("sync", "dsync")], Limit { max_ios, ..NO_LIMIT });
            assert_eq!((tally.ios(), sent.len()), (256, 256 + 25));
            let mut writes = 0;
            for (op, fua, in_flight) in sent {
                match op {
                    Op::Flush => assert_eq!((writes % 10, in_flight), (0, 0)),
                    _ => {
                        assert!(fua);
                        writes += 1;
                    }
                }
            }
            assert_eq!(tally.flushes.unwrap().n(), 25);
        }
    }
}

#[test]
fn depths_and_batches_are_kept() {
    let most = |sent: &[(Op, bool, usize)]| {
        sent.iter().map(|(.., in_flight)| in_flight + 1).max().unwrap()
    };
    let (sent, tally) = shaped(16, &[("iodepth_batch", "4")], NO_LIMIT);
    assert_eq!((tally.ios(), most(&sent)), (256, 16));
    assert_eq!(tally.submits.iter().sum::<u64>(), tally.submits[1], "never more than four at once");
    assert!(tally.submits[1] >= 64);
    let (_, tally) = shaped(
        16,
        &[("iodepth_batch_complete_min", "8"), ("iodepth_batch_complete_max", "8")],
        NO_LIMIT,
    );
    assert_eq!((tally.ios(), tally.completes[2]), (256, 32), "{:?}", tally.completes);
    // A pause after each I/O leaves one in flight.
    let (sent, tally) = shaped(16, &[("thinktime", "1")], NO_LIMIT);
    assert_eq!((tally.ios(), most(&sent)), (256, 1));
    let (sent, _) = shaped(16, &[("thinktime", "1"), ("thinktime_blocks", "4")], NO_LIMIT);
    assert_eq!(most(&sent), 4);
}

#[test]
fn a_rate_is_not_exceeded() {
    for depth in [1, 4] {
        let clock = Clock::real();
        let start_ns = clock.now_ns();
        let (sent, tally) = shaped(depth, &[("rate_iops", "10000")], NO_LIMIT);
        assert_eq!((sent.len(), tally.ios()), (256, 256));
        assert!(clock.now_ns() - start_ns >= 255 * 100_000);
    }
}

#[test]
fn time_up_in_a_pause_loses_no_io() {
    let clock = Clock::real();
    // The turn ends before the second I/O is due, and the job continues in the next one.
    let job = job(&[("rw", "randwrite"), ("rate_iops", "5")]);
    let mut shape = Shape::of(&job, 1).unwrap();
    let device = device();
    let mut channel = faulty(&device, 1, Wrong::Nothing);
    let mut slots = Slots::new(&channel, 1, BS as usize).unwrap();
    let (stop, mut faults) = (AtomicBool::new(false), Faults::default());
    let mut plain = Pattern::new(PatternSpec { pass_bytes: 3 * BS, ..spec(0, Some(1)) });
    let mut ended = Ended::Limit;
    let mut turns = 0;
    while ended == Ended::Limit {
        let limit = Limit { until_ns: clock.now_ns() + 1_000_000, max_ios: u64::MAX };
        let mut engine = Engine {
            channel: &mut channel,
            slots: &mut slots,
            clock: &clock,
            stop: &stop,
            faults: &mut faults,
        };
        ended = engine.run_shaped(&mut plain, &mut shape, limit, &mut Unrecorded);
        turns += 1;
    }
    assert_eq!((ended, channel.sent.len()), (Ended::Dry, 3));
    // One turn for each I/O, unless the turns were much too long.
    assert!(turns >= 2, "{turns}");
    let lbas: std::collections::HashSet<u64> = channel.sent_lbas.iter().copied().collect();
    assert_eq!(lbas.len(), 3);
}

/// Writes whose buffers take long to fill. The stop flag is set when `left` of them have been
/// filled.
struct Slow<'a> {
    writes: Pattern,
    left: usize,
    stop: &'a AtomicBool,
}

impl Source for Slow<'_> {
    const SLOW_TO_PREPARE: bool = true;

    fn next_in_pass(&mut self) -> Option<Io> {
        self.writes.next()
    }

    fn prepare(&mut self, _: usize, _: &Io, _: &mut DmaBuf) {
        self.left -= 1;
        self.stop.store(self.left == 0, Ordering::Relaxed);
    }
}

/// Neither at its beginning nor between buffers does a loop send what it need not.
#[test]
fn a_loop_that_is_told_to_end_sends_nothing_more() {
    let device = device();
    for (depth, is_shaped, filled) in iproduct!([1, 16], [false, true], [0, 3]) {
        // A flush is due after each write.
        let job = job(&[("rw", "randwrite"), ("iodepth", "16"), ("fsync", "1")]);
        let mut shape = Shape::of(&job, 1).unwrap();
        let mut channel = faulty(&device, depth, Wrong::Nothing);
        let mut slots = Slots::new(&channel, usize::from(depth), BS as usize).unwrap();
        let (clock, stop) = (Clock::real(), AtomicBool::new(filled == 0));
        let mut source = Slow { writes: Pattern::new(spec(0, None)), left: filled, stop: &stop };
        let mut faults = Faults::default();
        let mut engine = Engine {
            channel: &mut channel,
            slots: &mut slots,
            clock: &clock,
            stop: &stop,
            faults: &mut faults,
        };
        let ended = match is_shaped {
            true => engine.run_shaped(&mut source, &mut shape, NO_LIMIT, &mut Unrecorded),
            false => engine.run(&mut source, NO_LIMIT, &mut Unrecorded),
        };
        assert_eq!(ended, Ended::Stopped);
        let writes = channel.sent.iter().filter(|(op, ..)| *op == Op::Write).count();
        assert_eq!((writes, channel.in_flight()), (filled, 0), "{depth} {is_shaped}");
    }
}
