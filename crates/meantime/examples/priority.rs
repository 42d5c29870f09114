//! An application's single 4 KiB reads beside its bulk reads of 128 KiB at depth 32, in three
//! arrangements: each kind in separate queues that take turns, in queues of two classes, and both
//! in one queue, where the poller of the single read also reaps the bulk.
//!
//! `cargo run --release -p meantime --example priority [URI]`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meantime::block::{
    BlockChannel, BlockDevice, Channel, ChannelOptions, OpenOptions, QueueClass, Request, open,
};
use meantime::completion::Policy;

const SINGLE_BYTES: usize = 4096;
const BULK_BYTES: usize = 128 << 10;
const BULK_DEPTH: u16 = 32;
const RUNTIME: Duration = Duration::from_secs(2);

/// Addresses on the device, in a scattered order.
struct Places {
    next: u64,
    count: u64,
    blocks_each: u64,
}

impl Places {
    fn of(channel: &Channel, bytes: usize) -> Self {
        let blocks_each = bytes as u64 / u64::from(channel.info().block_bytes);
        Self { next: 1, count: channel.info().blocks / blocks_each, blocks_each }
    }

    fn next_lba(&mut self) -> u64 {
        self.next = self
            .next
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.next >> 33) % self.count * self.blocks_each
    }
}

/// Bulk reads in flight on a channel, replaced as they end.
struct Bulk(Places);

impl Bulk {
    fn start(channel: &mut Channel) -> Result<Self, Box<dyn std::error::Error>> {
        let mut places = Places::of(channel, BULK_BYTES);
        for _ in 0..BULK_DEPTH {
            let buf = channel.alloc(BULK_BYTES)?;
            channel.enqueue(Request::read(places.next_lba(), buf))?;
        }
        Ok(Self(places))
    }

    /// Reaps completions and starts as many reads. Returns their number.
    fn turn(&mut self, channel: &mut Channel) -> Result<u64, Box<dyn std::error::Error>> {
        let mut ended = 0;
        while let Some(done) = channel.next_done() {
            channel.enqueue(Request::read(self.0.next_lba(), done.into_buf()?))?;
            ended += 1;
        }
        Ok(ended)
    }
}

/// Single reads for [`RUNTIME`], calling `beside` between them. Returns their latencies in ns.
fn singles(
    channel: &mut Channel,
    mut beside: impl FnMut(&mut Channel) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let mut places = Places::of(channel, SINGLE_BYTES);
    let mut buf = channel.alloc(SINGLE_BYTES)?;
    let mut latencies_ns = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < RUNTIME {
        let start = Instant::now();
        let ticket = channel.submit(Request::read(places.next_lba(), buf))?;
        let done = channel.wait(ticket);
        latencies_ns.push(start.elapsed().as_nanos() as u64);
        buf = done.into_buf()?;
        beside(channel)?;
    }
    Ok(latencies_ns)
}

fn show(name: &str, mut latencies_ns: Vec<u64>, bulk: u64) {
    latencies_ns.sort_unstable();
    let at = |share: f64| {
        latencies_ns
            .get((latencies_ns.len() as f64 * share) as usize)
            .map_or(0.0, |ns| *ns as f64 / 1e3)
    };
    let bulk_mb = bulk as f64 * BULK_BYTES as f64 / 1e6 / RUNTIME.as_secs_f64();
    println!("{name:<24} {:>9.1} {:>9.1} {:>9.1} {bulk_mb:>12.0}", at(0.5), at(0.99), at(0.999));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "mem:256M?model=nand".into());
    let device = open(&uri, &OpenOptions::default())?;
    println!(
        "{:<24} {:>9} {:>9} {:>9} {:>12}",
        "4 KiB reads, µs", "p50", "p99", "p99.9", "bulk MB/s"
    );
    for (name, single, bulk) in [
        ("queues of one class", QueueClass::Medium, QueueClass::Medium),
        ("queues of two classes", QueueClass::High, QueueClass::Low),
        ("urgent beside low", QueueClass::Urgent, QueueClass::Low),
    ] {
        let options = |depth, class| ChannelOptions {
            depth,
            class: Some(class),
            ..ChannelOptions::default()
        };
        let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
        let latencies_ns = std::thread::scope(|scope| {
            let bulk = scope.spawn(|| -> Result<(), String> {
                let mut channel = device
                    .channel(&options(BULK_DEPTH, bulk))
                    .map_err(|error| error.to_string())?;
                let mut reads = Bulk::start(&mut channel).map_err(|error| error.to_string())?;
                while !stop.load(Ordering::Relaxed) {
                    channel.poll();
                    let turned = reads.turn(&mut channel).map_err(|error| error.to_string())?;
                    ended.fetch_add(turned, Ordering::Relaxed);
                    std::thread::yield_now();
                }
                Ok(())
            });
            let mut channel = device.channel(&options(1, single))?;
            let latencies_ns = singles(&mut channel, |_| Ok(()));
            stop.store(true, Ordering::Relaxed);
            bulk.join().map_err(|_| "the bulk's thread panicked")??;
            latencies_ns
        })?;
        show(name, latencies_ns, ended.load(Ordering::Relaxed));
    }
    let mut channel = device.channel(&ChannelOptions {
        depth: BULK_DEPTH + 1,
        policy: Some(Policy::Poll),
        ..ChannelOptions::default()
    })?;
    let mut bulk = Bulk::start(&mut channel)?;
    let mut ended = 0;
    let latencies_ns = singles(&mut channel, |channel| {
        ended += bulk.turn(channel)?;
        Ok(())
    })?;
    show("one shared queue", latencies_ns, ended);
    Ok(())
}
