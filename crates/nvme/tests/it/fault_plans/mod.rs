//! Random fault plans: mixed commands by tickets and futures on a small device that fails in every
//! way there is, every block verified against what it may hold. No request hangs, no byte is wrong,
//! every buffer comes back, and no device writes to one after that.
//!
//! `MEANTIME_FAULT_PLANS=1000000 cargo test --release -p meantime-nvme --test it
//! fault_plans` is the long run of the stepped SSD, where a seed reproduces a run:
//! `MEANTIME_SEED=n` runs one. `MEANTIME_FAULT_PLANS_THREADED=1000` is that of the SSD with a
//! thread of its own.

mod model;
mod plan;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::model::Model;
use self::world::{Device, Lanes};
use meantime_block::{
    AsyncChannel, BlockDevice, ChannelOptions, IoErrorKind, NvmeChannel, NvmeDevice, Request,
};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use meantime_nvme::{CommandError, Controller, ControllerOptions, Op};
use meantime_ssd::{FaultControl, Model as Service, SsdConfig};
use meantime_testkit::{Rng, device};

/// With `MEANTIME_TRACE=1`: what happens, to find the reason.
macro_rules! trace {
    ($($what:tt)*) => {
        if std::env::var_os("MEANTIME_TRACE").is_some() {
            println!($($what)*);
        }
    };
}

const MS: u64 = 1_000_000;

/// No wait may take longer, in virtual time: every step of the ladder at its worst, several times
/// over.
const BOUND_NS: u64 = 300_000 * MS;

/// What came of plans.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
struct Tally {
    plans: u64,
    requests: u64,
    verified: u64,
    statuses: u64,
    timed_out: u64,
    reset: u64,
    gone: u64,
    other: u64,
    rejected: u64,
    dropped: u64,
    reopened: u64,
    power_cuts: u64,
    found_corrupt: u64,
    strays: u64,
    aborts: u64,
    recreations: u64,
    longest_wait_ms: u64,
    virtual_ms: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        let longest = self.longest_wait_ms.max(other.longest_wait_ms);
        macro_rules! sum { ($($field:ident)*) => { $( self.$field += other.$field; )* } }
        sum!(plans requests verified statuses timed_out reset gone other rejected dropped reopened power_cuts);
        sum!(found_corrupt strays aborts recreations virtual_ms);
        self.longest_wait_ms = longest;
    }
}

struct Run {
    rng: Rng,
    device: Device,
    control: Box<dyn FaultControl>,
    options: ControllerOptions,
    /// Nothing may go wrong.
    faultless: bool,
    controller: Arc<Controller>,
    nvme: NvmeDevice,
    lanes: Option<Lanes>,
    /// Of the heap, before there was a channel.
    allocated_before: usize,
    model: Model,
    /// Buffers that came back, filled with a canary.
    resting: Vec<(DmaBuf, u8)>,
    next_id: u64,
    gone: bool,
    tally: Tally,
}

impl Run {
    fn new(seed: u64, threaded: bool) -> Self {
        let mut rng = Rng::new(seed);
        let lba_bytes = if rng.one_in(4) { 4096 } else { 512 };
        let blocks = if lba_bytes == 512 { 128 } else { 32 };
        let mut config = SsdConfig::with_namespace(blocks * u64::from(lba_bytes), lba_bytes);
        config.mdts_bytes = [8192, 16384][rng.below(2) as usize];
        config.optimal_io_boundary_lbas = [0, 0, 0, 8, 7][rng.below(5) as usize];
        config.volatile_write_cache = rng.one_in(2);
        config.ready_timeout_ms = 500;
        config.model =
            Service::named(["null", "optane", "fast12"][rng.below(3) as usize]).expect("built in");
        config.max_io_queues = 8;
        config.vectors = 8;
        let cached = config.volatile_write_cache;
        let mut options = ControllerOptions { io_queues: 8, ..meantime_testkit::quick() };
        if threaded {
            options.io_timeout_ns = 5 * MS;
            options.abort_grace_ns = 2 * MS;
            options.admin_timeout_ns = 100 * MS;
        }
        let device = Device::new(config, rng.next(), threaded);
        if let Device::Stepped(ssd) = &device {
            // A thread that looks all the time, or is descheduled most of it.
            ssd.set_tick_ns([50, 500, 5_000, 50_000][rng.below(4) as usize]);
        }
        let control = device.control();
        let controller = device.driver(options);
        let nvme = meantime_testkit::device(&controller);
        let allocated_before = controller.heap().allocated_bytes();
        Self {
            rng,
            device,
            control,
            options,
            faultless: false,
            controller,
            nvme,
            lanes: None,
            allocated_before,
            model: Model::new(blocks, lba_bytes as usize, cached),
            resting: Vec::new(),
            next_id: 1,
            gone: false,
            tally: Tally::default(),
        }
    }

    fn open_lanes(&mut self) {
        let channel = |rng: &mut Rng| -> NvmeChannel {
            let depth = [1, 2, 7, 16][rng.below(4) as usize];
            #[allow(clippy::needless_update, reason = "options may come to be more")]
            let options = ChannelOptions {
                depth,
                policy: Some(Policy::Poll),
                interrupt: Some(true),
                ..ChannelOptions::default()
            };
            let mut tries = if self.device.is_threaded() { 20 } else { 1 };
            let mut channel = loop {
                tries -= 1;
                match self.nvme.channel(&options) {
                    Ok(channel) => break channel,
                    Err(error) => assert!(tries > 0, "no channel: {error}"),
                }
            };
            channel.set_spin_budget_ns(20_000);
            channel
        };
        let lanes = if self.rng.one_in(2) {
            let channel = AsyncChannel::new(channel(&mut self.rng));
            let driver = self.rng.one_in(2).then(|| channel.driver().expect("the first"));
            Lanes::Futures { channel, driver, running: Vec::new() }
        } else {
            Lanes::Tickets((0..1 + self.rng.below(2)).map(|_| channel(&mut self.rng)).collect())
        };
        self.lanes = Some(lanes);
    }

    fn lanes(&mut self) -> &mut Lanes {
        self.lanes.as_mut().expect("open")
    }

    /// One more fault.
    fn order(&mut self) {
        let rule = plan::rule(&mut self.rng, self.options.io_timeout_ns, self.model.may_corrupt);
        trace!("order {rule}");
        // There may be 32 already.
        let _ = self.control.add_fault(rule);
    }

    fn buffer(&mut self, bytes: usize) -> DmaBuf {
        if self.resting.len() > 8 {
            let at = self.rng.below(self.resting.len() as u64) as usize;
            let (mut buf, canary) = self.resting.swap_remove(at);
            rested(&buf, canary);
            if buf.capacity() >= bytes {
                buf.set_len(bytes);
                return buf;
            }
        }
        self.lanes().alloc(bytes)
    }

    fn submit_one(&mut self) {
        let blocks = match self.rng.below(10) {
            0 => 1 + self.rng.below(self.model.len()),
            1..3 => 1 + self.rng.below(20),
            _ => 1 + self.rng.below(4),
        };
        let lba = self.rng.below(self.model.len() - blocks + 1);
        let op = match self.rng.below(100) {
            0..42 => Op::Read,
            42..84 => Op::Write,
            84..90 => Op::WriteZeroes,
            90..94 => Op::Deallocate,
            _ => Op::Flush,
        };
        if !self.model.is_free(op, lba, blocks) {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let bytes =
            if op.has_data() { blocks as usize * self.nvme.info().block_bytes as usize } else { 0 };
        let buf = op.has_data().then(|| self.buffer(bytes));
        let fua = self.rng.one_in(6);
        let request =
            self.model.request(id, op, lba, blocks, fua, |_| buf.expect("of a command with data"));
        let request = match self.rng.below(8) {
            0 => request.policy(Policy::Interrupt),
            1 => request.policy(Policy::HybridFixed(3_000)),
            _ => request,
        };
        trace!("{id}: {op:?} {blocks} blocks at {lba}, FUA {}", request.fua);
        self.send(id, request);
    }

    fn send(&mut self, id: u64, request: Request) {
        let Self { lanes, rng, .. } = self;
        if let Err(rejected) = lanes.as_mut().expect("open").submit(rng, id, request) {
            self.rejected(id, rejected.request);
        }
    }

    /// It was not even sent: no room, or the device is gone.
    fn rejected(&mut self, id: u64, request: Request) {
        self.tally.rejected += 1;
        self.model.withdraw(id);
        self.resting.extend(request.buf.map(|mut buf| {
            buf.fill(0);
            (buf, 0)
        }));
    }

    fn rest(&mut self, mut buf: DmaBuf) {
        let canary = self.rng.next() as u8;
        buf.fill(canary);
        self.resting.push((buf, canary));
    }

    /// Takes what has ended; waits for something first if `wait`.
    fn collect(&mut self, wait: bool) {
        let mut ended = Vec::new();
        let clock = self.controller.clock().clone();
        let before_ns = clock.now_ns();
        let Self { lanes, rng, .. } = self;
        let lanes = lanes.as_mut().expect("open");
        if wait {
            lanes.wait(&clock, rng, &mut ended);
        } else {
            lanes.reap(&mut ended);
        }
        let took_ns = clock.now_ns() - before_ns;
        assert!(took_ns < BOUND_NS, "a wait of {took_ns} ns");
        self.tally.longest_wait_ms = self.tally.longest_wait_ms.max(took_ns / MS);
        for ended in ended {
            let done = match ended {
                Ok(done) => done,
                Err((id, rejected)) => {
                    self.rejected(id, rejected.request);
                    continue;
                }
            };
            self.tally.requests += 1;
            trace!("{}: {:?}", done.user_data, done.result.map_err(|error| error.kind));
            if let Err(error) = done.result {
                assert!(!self.faultless, "{error}, though nothing was ordered to fail");
                match error.kind {
                    IoErrorKind::Command(CommandError::Status(_)) => self.tally.statuses += 1,
                    IoErrorKind::Command(CommandError::TimedOut) => self.tally.timed_out += 1,
                    IoErrorKind::Command(CommandError::Reset) => self.tally.reset += 1,
                    IoErrorKind::Command(CommandError::Gone { memory_released }) => {
                        assert!(memory_released, "it can always be cut off");
                        self.gone = true;
                        self.tally.gone += 1;
                    }
                    IoErrorKind::Os(_) | IoErrorKind::EndOfFile => {
                        panic!("there is no kernel here: {error}")
                    }
                    #[allow(unreachable_patterns, reason = "the driver may have more to say")]
                    _ => self.tally.other += 1,
                }
            }
            self.model.end(&done);
            if let Some(buf) = done.buf {
                self.rest(buf);
            }
        }
    }

    fn turn(&mut self) {
        for _ in 0..1 + self.rng.below(8) {
            self.submit_one();
        }
        let wait = self.rng.one_in(3);
        if wait || self.rng.one_in(2) {
            self.collect(wait && self.model.under_way() > 0);
        }
        if self.rng.one_in(4) {
            let Self { lanes, rng, model, .. } = self;
            let may = |id| matches!(model.op(id), Op::Read | Op::Flush);
            if let Some(id) = lanes.as_mut().expect("open").drop_one(rng, may) {
                self.model.forget(id);
                self.tally.dropped += 1;
            }
        }
        if self.faultless {
            return;
        }
        let event = self.rng.below(120);
        if event < 5 {
            trace!("event {event}");
        }
        match event {
            0 => self.order(),
            1 => self.control.clear_faults(),
            2 => self.controller.reset_now(),
            3 => {
                self.tally.power_cuts += 1;
                self.control.cut_power(self.rng.next());
                self.model.power_cut();
            }
            4 if self.rng.one_in(8) => self.control.unplug(),
            _ => {}
        }
        // A submission may be what finds that it is gone.
        if self.gone || self.is_gone() {
            self.drain();
            if self.rng.one_in(2) {
                self.reopen();
            }
        }
    }

    /// Whether the driver has given the device up.
    fn is_gone(&self) -> bool {
        self.controller.gone().is_some()
    }

    fn drain(&mut self) {
        while self.model.under_way() > 0 {
            self.collect(true);
        }
    }

    /// Ends the channels and the driver: every buffer is there again.
    fn close(&mut self) {
        let lanes = self.lanes.take().expect("open");
        let [strays, _, aborts, recreations] = lanes.counts();
        self.tally.strays += strays;
        self.tally.aborts += aborts;
        self.tally.recreations += recreations;
        let clock = self.controller.clock().clone();
        let before_ns = clock.now_ns();
        drop(lanes);
        assert!(clock.now_ns() - before_ns < BOUND_NS, "closing took too long");
        for (buf, canary) in self.resting.drain(..) {
            rested(&buf, canary);
        }
        if self.controller.heap().allocated_bytes() > self.allocated_before {
            // An admin command that was never answered has its buffer until then.
            self.control.clear_faults();
            self.controller.reset_now();
        }
        let heap = self.controller.heap();
        assert_eq!(heap.quarantined_bytes(), 0);
        // When it was given up its admin queue has gone as well.
        assert!(heap.allocated_bytes() <= self.allocated_before, "buffers that never came back");
    }

    /// The device is plugged in again, and another driver is on it.
    fn reopen(&mut self) {
        self.close();
        self.control.clear_faults();
        self.control.unplug();
        self.control.plug();
        self.controller = self.device.driver(self.options);
        self.nvme = device(&self.controller);
        self.allocated_before = self.controller.heap().allocated_bytes();
        self.gone = false;
        self.tally.reopened += 1;
        self.open_lanes();
        for _ in 0..self.rng.below(3) {
            self.order();
        }
    }

    /// One plan: its faults, its commands, and everything put right again.
    fn plan(&mut self) {
        self.tally.plans += 1;
        self.model.may_corrupt = self.rng.one_in(8);
        self.open_lanes();
        let rules = self.rng.below(6);
        // In real time a thread that gets no CPU looks like a device that does not answer.
        self.faultless = rules == 0 && !self.device.is_threaded();
        for _ in 0..rules {
            self.order();
        }
        let turns = match self.rng.below(10) {
            0 => self.rng.below(60),
            _ => self.rng.below(20),
        };
        for _ in 0..turns {
            self.turn();
        }
        self.control.clear_faults();
        self.drain();
        const AT_ONCE: u64 = 16;
        for lba in (0..self.model.len()).step_by(AT_ONCE as usize) {
            self.must(Op::Read, lba, AT_ONCE.min(self.model.len() - lba));
        }
        if self.model.may_corrupt {
            // Nothing of that is to be found, or brought back, later.
            self.must(Op::WriteZeroes, 0, self.model.len());
        }
        self.must(Op::Flush, 0, 0);
        self.close();
    }

    /// The device has no faults any more: `op` succeeds, perhaps after failures that report the
    /// earlier faults.
    fn must(&mut self, op: Op, lba: u64, blocks: u64) {
        for _ in 0..if self.device.is_threaded() { 50 } else { 4 } {
            if self.gone || self.is_gone() {
                self.reopen();
                self.control.clear_faults();
            }
            let succeeded = self.model.succeeded;
            let id = self.next_id;
            self.next_id += 1;
            let bytes = blocks as usize * self.nvme.info().block_bytes as usize;
            let buf = op.has_data().then(|| self.buffer(bytes));
            let request = self
                .model
                .request(id, op, lba, blocks, true, |_| buf.expect("of a command with data"));
            self.send(id, request);
            self.drain();
            if self.model.succeeded > succeeded {
                return;
            }
        }
        panic!("{op:?} at {lba} cannot be done though nothing is wrong any more");
    }

    fn end(mut self) -> Tally {
        self.tally.verified = self.model.verified;
        self.tally.found_corrupt = self.model.found_corrupt;
        if let Device::Stepped(ssd) = &self.device {
            self.tally.virtual_ms = ssd.peek_ns() / MS;
        }
        self.tally
    }
}

fn rested(buf: &DmaBuf, canary: u8) {
    assert!(buf.iter().all(|&byte| byte == canary), "a buffer was written to after it came back");
}

/// How many plans run one after another on the same device.
const PLANS_OF_A_DEVICE: u64 = 16;

fn run(seed: u64, threaded: bool) -> Tally {
    let mut run = Run::new(seed, threaded);
    for _ in 0..PLANS_OF_A_DEVICE {
        run.plan();
    }
    run.end()
}

/// Runs at least `plans` plans on `threads` threads. A device that takes longer than `patience`
/// ends the process.
fn run_all(plans: u64, threads: usize, threaded: bool, patience: Duration) -> Tally {
    let devices = plans.div_ceil(PLANS_OF_A_DEVICE);
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Tally::default());
    // By thread: the seed it is at, and since when.
    let at: Vec<Mutex<Option<(u64, Instant)>>> = (0..threads).map(|_| Mutex::new(None)).collect();
    let busy = AtomicU64::new(threads as u64);
    std::thread::scope(|scope| {
        for place in &at {
            let (next, sum, busy) = (&next, &sum, &busy);
            scope.spawn(move || {
                let _done = OnDrop(|| {
                    busy.fetch_sub(1, Ordering::Relaxed);
                });
                let mut own = Tally::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= devices {
                        break;
                    }
                    *place.lock().expect("ours") = Some((seed, Instant::now()));
                    let tally =
                        std::panic::catch_unwind(|| run(seed, threaded)).unwrap_or_else(|_| {
                            next.store(u64::MAX / 2, Ordering::Relaxed);
                            panic!("a plan of device {seed} failed: MEANTIME_SEED={seed}");
                        });
                    own.add(&tally);
                }
                *place.lock().expect("ours") = None;
                sum.lock().expect("no thread panics here").add(&own);
            });
        }
        while busy.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(20));
            for place in &at {
                if let Ok(place) = place.lock()
                    && let Some((seed, since)) = *place
                    && since.elapsed() > patience
                {
                    eprintln!("a plan of device {seed} hangs: MEANTIME_SEED={seed}");
                    std::process::abort();
                }
            }
        }
    });
    sum.into_inner().expect("no thread panicked")
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn random_plans_on_the_stepped_ssd() {
    if let Some(seed) = number("MEANTIME_SEED") {
        println!("{:?}", run(seed, false));
        return;
    }
    let plans = number("MEANTIME_FAULT_PLANS").unwrap_or(3_000);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let sum = run_all(plans, threads, false, Duration::from_secs(120));
    println!("{sum:?} in {:.1} s", began.elapsed().as_secs_f64());
    for happened in [
        sum.statuses,
        sum.timed_out,
        sum.gone,
        sum.dropped,
        sum.reopened,
        sum.power_cuts,
        sum.found_corrupt,
        sum.strays,
        sum.aborts,
        sum.recreations,
    ] {
        assert!(happened > 0 || plans < 1_000, "a fault that never happened: {sum:?}");
    }
    assert!(sum.verified > sum.requests);
}

#[test]
fn a_seed_reproduces_a_plan() {
    for seed in 0..4 {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}

#[test]
fn random_plans_in_real_time() {
    let plans = number("MEANTIME_FAULT_PLANS_THREADED").unwrap_or(30);
    let began = Instant::now();
    let sum = run_all(plans, 1, true, Duration::from_secs(300));
    println!("{sum:?} in {:.1} s", began.elapsed().as_secs_f64());
    assert!(sum.verified > 0);
}
