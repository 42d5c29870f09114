//! Mixed commands of random sizes and depths over several queues, every block verified, with status
//! errors, lost, late, duplicate and stray completions and resets. The SSD is stepped: a seed
//! reproduces a run.
//!
//! `MEANTIME_TORTURE=10000000 cargo test --release -p meantime-block --test it torture` is
//! the long run; `MEANTIME_SEED=n` runs one seed.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, Done, IoErrorKind, NvmeChannel, Request, SubmitError,
};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use meantime_nvme::{CommandError, ControllerOptions, Op};
use meantime_ssd::{Fault, FaultPlan, Model, SsdConfig};
use meantime_testkit::faults::{ppm, with_statuses};
use meantime_testkit::{Rng, device, quick, stepped};

/// What a block may hold: the version written last, and versions of writes whose end is not known.
/// Version 0 is zeroes.
#[derive(Clone, Debug, Default)]
struct Expected {
    certain: u64,
    possible: Vec<u64>,
    /// A write is in flight: neither read nor write it.
    busy: bool,
    /// Reads in flight: do not write it.
    readers: u32,
}

struct InFlight {
    op: Op,
    lba: u64,
    blocks: u64,
    version: u64,
}

fn word(lba: u64, version: u64, index: u64) -> u64 {
    if version == 0 { 0 } else { Rng::new(lba ^ version.rotate_left(32)).next() ^ index }
}

fn fill(block: &mut [u8], lba: u64, version: u64) {
    for (index, chunk) in block.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(lba, version, index as u64).to_le_bytes());
    }
}

/// The version a block holds, if it is one of `candidates`, whole.
fn version_of(block: &[u8], lba: u64, candidates: impl Iterator<Item = u64>) -> Option<u64> {
    for version in candidates {
        let base = word(lba, version, 0);
        let whole = block.chunks_exact(8).enumerate().all(|(index, chunk)| {
            let expected = if version == 0 { 0 } else { base ^ index as u64 };
            u64::from_le_bytes(chunk.try_into().expect("8 bytes")) == expected
        });
        if whole {
            return Some(version);
        }
    }
    None
}

#[derive(Default, Debug)]
struct Tally {
    commands: u64,
    reads_verified: u64,
    status_errors: u64,
    timed_out: u64,
    reset: u64,
    resets_made: u64,
    strays: u64,
    late: u64,
    aborts: u64,
    recreations: u64,
    retries: u64,
    requeued: u64,
    fallbacks: u64,
}

struct Torture {
    rng: Rng,
    channels: Vec<NvmeChannel>,
    blocks: Vec<Expected>,
    block_bytes: usize,
    in_flight: HashMap<u64, InFlight>,
    /// Buffers just given back, filled with a canary: a device that still wrote to one would be
    /// found out.
    resting: Vec<(DmaBuf, u8)>,
    next_id: u64,
    tally: Tally,
}

impl Torture {
    fn size_blocks(&mut self) -> u64 {
        match self.rng.below(20) {
            0 => 1 + self.rng.below(300),
            1..=4 => 1 + self.rng.below(40),
            _ => 1 + self.rng.below(8),
        }
    }

    fn buffer(&mut self, channel: usize, bytes: usize) -> DmaBuf {
        if self.resting.len() > 16 {
            let at = self.rng.below(self.resting.len() as u64) as usize;
            let (buf, canary) = self.resting.swap_remove(at);
            assert!(
                buf.iter().all(|&byte| byte == canary),
                "a buffer was written to after it came back"
            );
            if buf.capacity() >= bytes {
                let mut buf = buf;
                buf.set_len(bytes);
                return buf;
            }
        }
        self.channels[channel].alloc(bytes).expect("memory")
    }

    fn rest(&mut self, mut buf: DmaBuf) {
        let canary = self.rng.next() as u8;
        buf.fill(canary);
        self.resting.push((buf, canary));
    }

    fn submit_one(&mut self, channel: usize) {
        let blocks = self.size_blocks().min(self.blocks.len() as u64);
        let lba = self.rng.below(self.blocks.len() as u64 - blocks + 1);
        let range = lba as usize..(lba + blocks) as usize;
        let op = match self.rng.below(100) {
            0..45 => Op::Read,
            45..90 => Op::Write,
            90..94 => Op::WriteZeroes,
            94..97 => Op::Deallocate,
            _ => Op::Flush,
        };
        let changes = matches!(op, Op::Write | Op::WriteZeroes | Op::Deallocate);
        let conflict = |block: &Expected| block.busy || (changes && block.readers > 0);
        if op != Op::Flush && self.blocks[range.clone()].iter().any(conflict) {
            return;
        }
        let id = self.next_id;
        let version = if op == Op::Write { id } else { 0 };
        let mut request = match op {
            Op::Read => {
                Request::read(lba, self.buffer(channel, blocks as usize * self.block_bytes))
            }
            Op::Write => {
                let mut buf = self.buffer(channel, blocks as usize * self.block_bytes);
                for (index, block) in buf.chunks_exact_mut(self.block_bytes).enumerate() {
                    fill(block, lba + index as u64, version);
                }
                Request::write(lba, buf)
            }
            Op::WriteZeroes => Request::write_zeroes(lba, blocks),
            Op::Deallocate => Request::deallocate(lba, blocks),
            Op::Flush => Request::flush(),
            other => unreachable!("{other:?} is not drawn"),
        }
        .user_data(id);
        if self.rng.one_in(8) && changes && op != Op::Deallocate {
            request = request.fua();
        }
        match self.rng.below(6) {
            0 => request = request.policy(Policy::Interrupt),
            1 => request = request.policy(Policy::HybridFixed(3_000)),
            _ => {}
        }
        match self.channels[channel].enqueue(request) {
            Ok(()) => {}
            Err(rejected) => {
                assert!(matches!(rejected.error, SubmitError::Full { .. }), "{}", rejected.error);
                self.resting.extend(rejected.request.buf.map(|mut buf| {
                    buf.fill(0);
                    (buf, 0)
                }));
                return;
            }
        }
        self.next_id += 1;
        if op != Op::Flush {
            for block in &mut self.blocks[range] {
                block.busy |= changes;
                block.readers += u32::from(op == Op::Read);
            }
        }
        self.in_flight.insert(id, InFlight { op, lba, blocks, version });
    }

    fn finish(&mut self, done: Done) {
        let was = self.in_flight.remove(&done.user_data).expect("each request ends once");
        self.tally.commands += 1;
        let range = was.lba as usize..(was.lba + was.blocks) as usize;
        match done.result {
            Ok(()) => {}
            Err(error) => match error.kind {
                IoErrorKind::Command(CommandError::Status(_)) => {
                    if std::env::var_os("MEANTIME_TRACE").is_some() {
                        println!("{error} {} blocks", was.blocks);
                    }
                    self.tally.status_errors += 1;
                }
                IoErrorKind::Command(CommandError::TimedOut) => self.tally.timed_out += 1,
                IoErrorKind::Command(CommandError::Reset) => self.tally.reset += 1,
                other => panic!("{other:?} cannot be: {error}"),
            },
        }
        match was.op {
            Op::Flush | Op::Compare | Op::Verify | Op::WriteUncorrectable | Op::CompareAndWrite => {
            }
            Op::Read => {
                self.blocks[range.clone()].iter_mut().for_each(|block| block.readers -= 1);
                if done.result.is_ok() {
                    let buf = done.buf.as_deref().expect("a read's buffer comes back");
                    for (index, bytes) in buf.chunks_exact(self.block_bytes).enumerate() {
                        let lba = was.lba + index as u64;
                        let block = &mut self.blocks[lba as usize];
                        let candidates =
                            std::iter::once(block.certain).chain(block.possible.iter().copied());
                        let Some(version) = version_of(bytes, lba, candidates) else {
                            panic!("block {lba} holds none of {block:?}: {:x?}", &bytes[..16]);
                        };
                        // Whatever it holds now it goes on holding.
                        block.certain = version;
                        block.possible.clear();
                    }
                    self.tally.reads_verified += was.blocks;
                }
            }
            Op::Write | Op::WriteZeroes | Op::Deallocate => {
                for block in &mut self.blocks[range] {
                    block.busy = false;
                    if done.result.is_ok() {
                        block.certain = was.version;
                        block.possible.clear();
                    } else {
                        block.possible.push(was.version);
                    }
                }
            }
        }
        if let Some(buf) = done.buf {
            self.rest(buf);
        }
    }
}

fn run(seed: u64, commands: u64) -> Tally {
    let mut rng = Rng::new(seed);
    let lba_bytes = if rng.one_in(2) { 512 } else { 4096 };
    let mut config = SsdConfig::with_namespace(4 << 20, lba_bytes);
    config.mdts_bytes = [8192, 16384, 131_072, 1 << 20][rng.below(4) as usize];
    config.optimal_io_boundary_lbas = [0, 0, 8, 7, 256][rng.below(5) as usize];
    config.volatile_write_cache = rng.one_in(2);
    config.model = Model::named(["null", "optane", "fast12", "nand"][rng.below(4) as usize])
        .expect("built in");
    let queues = 1 + rng.below(4);
    // The device's errors reach the caller at once, after a try, or only when it insists.
    let options = ControllerOptions { retries: [0, 1, 4][rng.below(3) as usize], ..quick() };
    let (ssd, controller) = stepped(config, options, seed);
    // Faults only from here on: that the controller comes up is tested elsewhere.
    let faults = with_statuses(FaultPlan { seed, ..FaultPlan::NONE }, 5_000)
        .with(ppm(Fault::LostCompletion, if rng.one_in(2) { 300 } else { 0 }))
        .with(ppm(Fault::LateCompletion(1_000_000 + rng.below(3_000_000)), 1_000))
        .with(ppm(Fault::StrayCqe, 500))
        .with(ppm(Fault::DuplicateCqe, 500));
    ssd.set_faults(faults);
    let device = device(&controller);
    let mut channels: Vec<NvmeChannel> = Vec::new();
    for _ in 0..queues {
        let depth = [1, 2, 7, 32, 128][rng.below(5) as usize];
        let options = ChannelOptions {
            depth,
            policy: Some(Policy::Poll),
            interrupt: Some(true),
            ..ChannelOptions::default()
        };
        let mut channel = device.channel(&options).expect("a channel");
        channel.set_spin_budget_ns(20_000);
        channels.push(channel);
    }
    let blocks = vec![Expected::default(); device.info().blocks as usize];
    let mut torture = Torture {
        rng,
        channels,
        blocks,
        block_bytes: lba_bytes as usize,
        in_flight: HashMap::new(),
        resting: Vec::new(),
        next_id: 1,
        tally: Tally::default(),
    };
    while torture.tally.commands < commands {
        let at = torture.rng.below(torture.channels.len() as u64) as usize;
        for _ in 0..1 + torture.rng.below(8) {
            torture.submit_one(at);
        }
        if torture.rng.one_in(3) {
            torture.channels[at].poll();
        }
        while let Some(done) = torture.channels[at].next_done() {
            torture.finish(done);
        }
        if torture.rng.one_in(4)
            && let Some(done) = torture.channels[at].wait_done()
        {
            torture.finish(done);
        }
        if torture.rng.one_in(20_000) {
            torture.tally.resets_made += 1;
            controller.reset_now();
        }
    }
    for at in 0..torture.channels.len() {
        while let Some(done) = torture.channels[at].wait_done() {
            torture.finish(done);
        }
        let counters = torture.channels[at].counters();
        for queue in [Some(counters.polled), counters.interrupt].into_iter().flatten() {
            torture.tally.strays += queue.strays;
            torture.tally.late += queue.late;
            torture.tally.aborts += queue.aborts;
            torture.tally.recreations += queue.recreations;
            torture.tally.retries += queue.retries;
            torture.tally.requeued += queue.requeued;
        }
        torture.tally.fallbacks += counters.polled_waits.fallbacks;
    }
    assert!(torture.in_flight.is_empty(), "requests that never ended");
    for (buf, canary) in &torture.resting {
        assert!(
            buf.iter().all(|byte| byte == canary),
            "a buffer was written to after it came back"
        );
    }
    let Torture { channels, resting, tally, .. } = torture;
    drop((channels, resting, device));
    assert_eq!(controller.heap().quarantined_bytes(), 0);
    drop(controller);
    tally
}

/// What `each` makes of the numbers below `count`, on as many threads as there are CPUs.
fn in_threads<T: Send>(count: u64, each: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let made = each(number);
                    done.lock().expect("no thread panics here").push(made);
                }
            });
        }
    });
    done.into_inner().expect("no thread panicked")
}

#[test]
fn mixed_commands_verify_under_faults() {
    let total: u64 =
        std::env::var("MEANTIME_TORTURE").map_or(100_000, |n| n.parse().expect("a number"));
    if let Ok(seed) = std::env::var("MEANTIME_SEED") {
        println!("{:?}", run(seed.parse().expect("a number"), total));
        return;
    }
    let each = 20_000;
    let tallies = in_threads(total.div_ceil(each), |seed| {
        std::panic::catch_unwind(|| run(seed, each)).unwrap_or_else(|_| {
            panic!("seed {seed} failed: MEANTIME_SEED={seed} MEANTIME_TORTURE={each}")
        })
    });
    let mut sum = Tally::default();
    for tally in tallies {
        sum.commands += tally.commands;
        sum.reads_verified += tally.reads_verified;
        sum.status_errors += tally.status_errors;
        sum.timed_out += tally.timed_out;
        sum.reset += tally.reset;
        sum.resets_made += tally.resets_made;
        sum.strays += tally.strays;
        sum.late += tally.late;
        sum.aborts += tally.aborts;
        sum.recreations += tally.recreations;
        sum.retries += tally.retries;
        sum.requeued += tally.requeued;
        sum.fallbacks += tally.fallbacks;
    }
    println!("{sum:?}");
    // The faults did happen, and every rung of the ladder was stepped on.
    assert!(
        sum.status_errors > 0
            && sum.timed_out > 0
            && sum.strays > 0
            && sum.aborts > 0
            && sum.recreations > 0
    );
    assert!(sum.retries > 0 && sum.requeued > 0 && sum.reset > 0);
    assert!(sum.reads_verified > sum.commands);
}

#[test]
fn a_seed_reproduces_a_run() {
    assert_eq!(format!("{:?}", run(42, 5_000)), format!("{:?}", run(42, 5_000)));
}
