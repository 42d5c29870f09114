//! Futures dropped at random moments while the device answers with errors, late, twice, or never:
//! no buffer is reused before the device is done with it, none is lost, and what is written is what
//! is read. The SSD is stepped: a seed reproduces a run.
//!
//! `MEANTIME_ASYNC=10000000 cargo test --release -p meantime-block --test it async_torture`
//! is the long run; `MEANTIME_SEED=n` runs one seed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use meantime_block::{
    AsyncChannel, BlockDevice, ChannelOptions, Done, Driver, IoErrorKind, NvmeChannel, Rejected,
    Request,
};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use meantime_nvme::{CommandError, ControllerOptions};
use meantime_ssd::{Fault, FaultPlan, Model, SsdConfig};
use meantime_testkit::faults::{ppm, with_statuses};
use meantime_testkit::rig::{Rig, fill, holds, ssd};
use meantime_testkit::{Rng, device, quick, stepped};

const BLOCK: usize = 512;
const BLOCKS: u64 = 8192;

#[derive(Default, Debug)]
struct Tally {
    ready: u64,
    failed: u64,
    timed_out: u64,
    reset: u64,
    dropped_unsent: u64,
    dropped_waiting: u64,
    dropped_in_flight: u64,
    dropped_ended: u64,
    verified: u64,
    resets_made: u64,
    detached: u64,
}

#[derive(Default)]
struct Flag(AtomicU64);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Ended = Result<Done, Rejected>;

struct Running<'a> {
    future: Pin<Box<dyn Future<Output = Ended> + 'a>>,
    /// Blocks read; of a write, none.
    reads: Option<u64>,
    polled: bool,
    flag: Arc<Flag>,
    seen: u64,
}

struct Torture<'a> {
    rng: Rng,
    channel: &'a AsyncChannel<NvmeChannel>,
    driver: Option<Driver<NvmeChannel>>,
    running: Vec<Running<'a>>,
    /// Buffers that came back, filled with a canary: a device that still wrote to one would be
    /// found out.
    resting: Vec<(DmaBuf, u8)>,
    tally: Tally,
}

impl Torture<'_> {
    /// A buffer fresh from the heap – where those of dropped futures go – or one that has rested.
    fn buffer(&mut self, bytes: usize) -> DmaBuf {
        if self.resting.len() > 24 {
            let at = self.rng.below(self.resting.len() as u64) as usize;
            let (buf, canary) = self.resting.swap_remove(at);
            assert!(
                buf.iter().all(|&byte| byte == canary),
                "a buffer was written to after it came back"
            );
        }
        self.channel.alloc(bytes).expect("memory")
    }

    fn rest(&mut self, mut buf: DmaBuf) {
        // What no block of the medium holds throughout.
        let canary = self.rng.next() as u8;
        buf.fill(canary);
        self.resting.push((buf, canary));
    }

    /// What a block holds never changes: every write writes what is there, so that reads are
    /// verified whatever was dropped.
    fn start(&mut self) {
        let blocks =
            if self.rng.one_in(10) { 1 + self.rng.below(64) } else { 1 + self.rng.below(8) };
        let lba = self.rng.below(BLOCKS - blocks);
        let mut buf = self.buffer(blocks as usize * BLOCK);
        let (request, reads) = match self.rng.below(20) {
            0 => (Request::flush(), None),
            1..8 => {
                fill(&mut buf, BLOCK, lba, 1);
                (Request::write(lba, buf), None)
            }
            _ => {
                buf.fill(0xa5);
                (Request::read(lba, buf), Some(lba))
            }
        };
        let request = match self.rng.below(6) {
            0 => request.policy(Policy::Interrupt),
            1 => request.policy(Policy::HybridFixed(3_000)),
            _ => request,
        };
        let future = Box::pin(self.channel.submit(request.user_data(lba)));
        self.running.push(Running { future, reads, polled: false, flag: Arc::default(), seen: 0 });
    }

    fn poll(&mut self, at: usize) {
        let running = &mut self.running[at];
        let woken = running.flag.0.load(Ordering::Relaxed);
        running.seen = woken;
        running.polled = true;
        let waker = Waker::from(Arc::clone(&running.flag));
        let poll = running.future.as_mut().poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(ended) = poll {
            let running = self.running.swap_remove(at);
            self.ended(running, ended);
        }
    }

    fn ended(&mut self, running: Running, ended: Ended) {
        let done = ended.expect("nothing is wrong with the requests");
        match done.result {
            Ok(()) => self.tally.ready += 1,
            Err(error) => match error.kind {
                IoErrorKind::Command(CommandError::Status(_)) => self.tally.failed += 1,
                IoErrorKind::Command(CommandError::TimedOut) => self.tally.timed_out += 1,
                IoErrorKind::Command(CommandError::Reset) => self.tally.reset += 1,
                other => panic!("{other:?} cannot be: {error}"),
            },
        }
        if let (Some(lba), Ok(()), Some(buf)) = (running.reads, &done.result, &done.buf) {
            assert_eq!(done.user_data, lba);
            holds(buf, BLOCK, lba, 1);
            self.tally.verified += 1;
        }
        if let Some(buf) = done.buf {
            self.rest(buf);
        }
    }

    fn drop_one(&mut self, at: usize) {
        let running = self.running.swap_remove(at);
        let (polled, ended) =
            (running.polled, running.flag.0.load(Ordering::Relaxed) > running.seen);
        let before = (self.channel.in_flight(), self.channel.room());
        drop(running);
        match (polled, ended && self.driver.is_some()) {
            (false, _) => self.tally.dropped_unsent += 1,
            (true, true) => self.tally.dropped_ended += 1,
            (true, false) if before.1 == 0 && self.running.len() > before.0 => {
                self.tally.dropped_waiting += 1
            }
            (true, false) => self.tally.dropped_in_flight += 1,
        }
        assert_eq!(
            self.channel.in_flight(),
            before.0,
            "dropping a future ends nothing at the device"
        );
    }

    fn dropped(&self) -> u64 {
        let Tally { dropped_unsent, dropped_waiting, dropped_in_flight, dropped_ended, .. } =
            self.tally;
        dropped_unsent + dropped_waiting + dropped_in_flight + dropped_ended
    }

    /// Polls those that were woken, as an executor would.
    fn poll_woken(&mut self) {
        for at in (0..self.running.len()).rev() {
            let running = &self.running[at];
            if running.polled && running.flag.0.load(Ordering::Relaxed) > running.seen {
                self.poll(at);
            }
        }
    }

    fn turn(&mut self) {
        for _ in 0..1 + self.rng.below(6) {
            self.start();
        }
        for _ in 0..self.rng.below(12) {
            if !self.running.is_empty() {
                let at = self.rng.below(self.running.len() as u64) as usize;
                self.poll(at);
            }
        }
        match &self.driver {
            Some(driver) if self.rng.one_in(4) => drop(driver.wait()),
            Some(driver) if self.rng.one_in(2) => drop(driver.process()),
            _ => {}
        }
        if self.rng.one_in(2) {
            self.poll_woken();
        }
        for _ in 0..self.rng.below(7) {
            if !self.running.is_empty() {
                let at = self.rng.below(self.running.len() as u64) as usize;
                self.drop_one(at);
            }
        }
        if self.rng.one_in(500) {
            // The duty changes hands.
            self.tally.detached += 1;
            self.driver = match self.driver.take() {
                None => Some(self.channel.driver().expect("no other driver")),
                Some(driver) => {
                    drop(driver);
                    None
                }
            };
        }
    }
}

fn run(seed: u64, drops: u64) -> Tally {
    let mut rng = Rng::new(seed);
    let mut config = SsdConfig::with_namespace(BLOCKS * BLOCK as u64, BLOCK as u32);
    config.mdts_bytes = [8192, 131_072][rng.below(2) as usize];
    config.model =
        Model::named(["null", "optane", "fast12"][rng.below(3) as usize]).expect("built in");
    // The device's errors reach the caller at once, after a try, or only when it insists.
    let options = ControllerOptions { retries: [0, 1, 4][rng.below(3) as usize], ..quick() };
    let (ssd, controller) = stepped(config, options, seed);
    let device = device(&controller);
    let before = controller.heap().allocated_bytes();
    let depth = [1, 3, 16, 64][rng.below(4) as usize];
    let options = ChannelOptions {
        depth,
        policy: Some(Policy::Poll),
        interrupt: Some(true),
        ..ChannelOptions::default()
    };
    let mut channel = device.channel(&options).expect("a channel");
    channel.set_spin_budget_ns(20_000);
    meantime_testkit::rig::put(&mut channel, 0..BLOCKS, 1);
    let with_channel = controller.heap().allocated_bytes();
    ssd.set_faults(
        with_statuses(FaultPlan { seed, ..FaultPlan::NONE }, 5_000)
            .with(ppm(Fault::LostCompletion, if rng.one_in(2) { 2_000 } else { 0 }))
            .with(ppm(Fault::LateCompletion(100_000 + rng.below(3_000_000)), 5_000))
            .with(ppm(Fault::StrayCqe, 500))
            .with(ppm(Fault::DuplicateCqe, 500)),
    );
    let channel = AsyncChannel::new(channel);
    let driver = rng.one_in(2).then(|| channel.driver().expect("the first"));
    let (running, resting, tally) = (vec![], vec![], Tally::default());
    let mut torture = Torture { rng, channel: &channel, driver, running, resting, tally };
    while torture.dropped() < drops {
        torture.turn();
        if torture.rng.one_in(5_000) {
            torture.tally.resets_made += 1;
            controller.reset_now();
        }
    }
    // Half of the rest is dropped; the others all come to an end, no wake-up lost.
    torture.running.truncate(torture.running.len() / 2);
    for at in (0..torture.running.len()).rev() {
        if !torture.running[at].polled {
            torture.poll(at);
        }
    }
    while !torture.running.is_empty() {
        let left = torture.running.len();
        if let Some(driver) = &torture.driver {
            let under_way = driver.channel().in_flight() > 0;
            let ended = driver.wait();
            assert!(ended > 0 || !under_way || left == 0, "a wait that ended nothing");
        }
        torture.poll_woken();
    }
    drop(torture.driver.take());
    for (buf, canary) in torture.resting.drain(..) {
        assert!(
            buf.iter().all(|&byte| byte == canary),
            "a buffer was written to after it came back"
        );
    }
    let tally = std::mem::take(&mut torture.tally);
    drop(torture);
    // Those of dropped futures too; each has a deadline.
    let driver = channel.driver().expect("no other driver");
    while channel.in_flight() > 0 {
        driver.wait();
    }
    drop(driver);
    assert_eq!(channel.room(), usize::from(depth), "slots that never came back");
    assert_eq!(controller.heap().allocated_bytes(), with_channel, "buffers that never came back");
    assert_eq!(controller.heap().quarantined_bytes(), 0);
    drop(channel);
    assert_eq!(controller.heap().allocated_bytes(), before);
    tally
}

#[test]
fn futures_dropped_at_random_moments_under_faults() {
    let total: u64 =
        std::env::var("MEANTIME_ASYNC").map_or(100_000, |n| n.parse().expect("a number"));
    if let Ok(seed) = std::env::var("MEANTIME_SEED") {
        println!("{:?}", run(seed.parse().expect("a number"), total));
        return;
    }
    let each = 5_000;
    let mut sum = Tally::default();
    for seed in 0..total.div_ceil(each) {
        let tally = std::panic::catch_unwind(|| run(seed, each)).unwrap_or_else(|_| {
            panic!("seed {seed} failed: MEANTIME_SEED={seed} MEANTIME_ASYNC={each}")
        });
        sum.ready += tally.ready;
        sum.failed += tally.failed;
        sum.timed_out += tally.timed_out;
        sum.reset += tally.reset;
        sum.dropped_unsent += tally.dropped_unsent;
        sum.dropped_waiting += tally.dropped_waiting;
        sum.dropped_in_flight += tally.dropped_in_flight;
        sum.dropped_ended += tally.dropped_ended;
        sum.verified += tally.verified;
        sum.resets_made += tally.resets_made;
        sum.detached += tally.detached;
    }
    println!("{sum:?}");
    let Tally { dropped_unsent, dropped_waiting, dropped_in_flight, dropped_ended, .. } = sum;
    for happened in [dropped_unsent, dropped_waiting, dropped_in_flight, dropped_ended] {
        assert!(happened > total / 1000, "a moment at which hardly any future was dropped");
    }
    for happened in
        [sum.failed, sum.timed_out, sum.reset, sum.resets_made, sum.verified, sum.detached]
    {
        assert!(happened > 0, "a fault that never happened");
    }
}

/// A device goes that cannot be cut off, with `count` reads sent or waiting for room, most of them
/// dropped; how many bytes are given up for good.
fn quarantined_bytes(depth: u16, count: usize) -> usize {
    let rig = Rig::new(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let channel = AsyncChannel::new(rig.channel(depth));
    let driver = channel.driver().expect("the first");
    rig.meddling.refuses_unmap.store(true, Ordering::Relaxed);
    rig.ssd.set_faults(meantime_testkit::rig::LOST);
    let mut cx = Context::from_waker(Waker::noop());
    let mut futures: Vec<_> = (0..count as u64)
        .map(|n| Box::pin(channel.read(n, channel.alloc(4096).expect("memory"))))
        .collect();
    for future in &mut futures {
        assert!(future.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(channel.in_flight(), count.min(usize::from(depth)));
    rig.ssd.unplug();
    futures.truncate(4);
    while channel.in_flight() > 0 {
        driver.wait();
    }
    for mut future in futures {
        let Poll::Ready(result) = future.as_mut().poll(&mut cx) else { panic!("it has ended") };
        result.expect_err("the device is gone");
    }
    drop((driver, channel));
    let heap = rig.device.heap();
    assert!(heap.allocated_bytes() <= before + heap.quarantined_bytes());
    heap.quarantined_bytes()
}

#[test]
fn a_gone_device_keeps_no_more_than_the_depth() {
    // With one, it is that and the queues.
    assert_eq!(quarantined_bytes(8, 20) - quarantined_bytes(8, 1), 7 * 4096);
}
