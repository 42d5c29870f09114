//! How much deferred work fits in the gap of a 4 KiB read, and its cost for the read: on the
//! threaded software SSD, in real time.
//!
//! `cargo bench -p meantime --bench deferred [DEVICE]` prints for each policy and size of piece, as
//! medians of alternating runs with and without work: the mean latency without, its change with as
//! much work as there is a place for, the work an I/O in µs, the share of the gap, and how many
//! I/Os were found late. `MEANTIME_PAIRS=n` sets how often it alternates.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, OpenOptions, Request, open_nvme,
};
use meantime_completion::{Pieces, Policy, Progress};
use meantime_hw::{Clock, DmaBuf, cpu};

const READS: u64 = 2_000;
const WARM_UP: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = cpu::allowed();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    cpu::bind(&[first])?;
    // (cargo adds `--bench`.)
    let uri = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let uri = uri.unwrap_or_else(|| format!("mem:64M?model=zssd&cpu={last}"));
    let pairs = std::env::var("MEANTIME_PAIRS").map_or(Ok(9), |text| text.parse())?;
    let device = open_nvme(&uri, &OpenOptions::default())?;

    println!("{uri}, 4 KiB random reads, one at a time; {pairs} pairs of {READS}");
    println!("policy         piece   without      with work    work/IO   of the gap   late");
    let policies = [Policy::Poll, Policy::HybridFixed(2_000), Policy::ADAPTIVE];
    for policy in policies {
        for piece_ns in [250, 500, 1_000, 2_000, 4_000] {
            let mut results: Vec<Pair> = (0..pairs)
                .map(|_| Pair::run(&device, policy, piece_ns))
                .collect::<Result<_, _>>()?;
            let mut median = |what: fn(&Pair) -> f64| {
                results.sort_by(|a, b| what(a).total_cmp(&what(b)));
                what(&results[results.len() / 2])
            };
            let without_ns = median(|pair| pair.without_ns);
            let change = median(|pair| pair.with_ns / pair.without_ns - 1.0);
            let work_ns = median(|pair| pair.work_ns);
            let late = median(|pair| pair.late);
            println!(
                "{:<12} {:>4.2} us  {:>6.2} us  {:>+8.2} %   {:>6.2} us   {:>6.1} %   {:>6.2} %",
                policy.to_string(),
                piece_ns as f64 / 1e3,
                without_ns / 1e3,
                change * 100.0,
                work_ns / 1e3,
                work_ns / without_ns * 100.0,
                late * 100.0,
            );
        }
    }
    Ok(())
}

/// One run without work and one with, on a channel each.
struct Pair {
    without_ns: f64,
    with_ns: f64,
    /// Per I/O.
    work_ns: f64,
    /// Per I/O.
    late: f64,
}

impl Pair {
    fn run(
        device: &impl BlockDevice<Channel = NvmeChannel>,
        policy: Policy,
        piece_ns: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let options =
            ChannelOptions { depth: 1, policy: Some(policy), ..ChannelOptions::default() };
        let mut channel = device.channel(&options)?;
        let without_ns = mean_read_ns(&mut channel)?;
        let mut channel = device.channel(&options)?;
        let clock = Clock::real();
        // The bound that an author would give: the time measured, plus a tenth.
        let over = Arc::<AtomicBool>::default();
        let stop = Arc::clone(&over);
        let work = Pieces::new(piece_ns + piece_ns / 10, move || {
            if stop.load(Ordering::Relaxed) {
                return Progress::Done;
            }
            let end_ns = clock.now_ns() + piece_ns;
            while clock.now_ns() < end_ns {}
            Progress::More
        });
        // Never forced: only pieces that fit are measured.
        channel.defer(Box::new(work.patience_ns(u64::MAX)))?;
        let with_ns = mean_read_ns(&mut channel)?;
        let work = channel.counters().work;
        over.store(true, Ordering::Relaxed);
        // The expected time, not the measured one, which includes other programs' work on this
        // core.
        let work_ns = (work.pieces * piece_ns) as f64 / (READS + WARM_UP) as f64;
        Ok(Self { without_ns, with_ns, work_ns, late: work.late as f64 / (READS + WARM_UP) as f64 })
    }
}

/// The mean time of a read, in ns, without the slowest 1 %, which are the machine's.
fn mean_read_ns(channel: &mut NvmeChannel) -> Result<f64, Box<dyn Error>> {
    let clock = Clock::real();
    let blocks = channel.info().blocks / 8;
    let mut random = 7u64;
    let mut buf: DmaBuf = channel.alloc(4096)?;
    let mut times = Vec::with_capacity((READS + WARM_UP) as usize);
    for _ in 0..READS + WARM_UP {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let start_ns = clock.now_ns();
        let request = Request::read((random >> 33) % blocks * 8, buf);
        let ticket = channel.submit(request).map_err(|rejected| rejected.error)?;
        let done = channel.wait(ticket);
        times.push(clock.now_ns() - start_ns);
        done.result?;
        buf = done.buf.ok_or("the buffer")?;
    }
    let mut times = times.split_off(WARM_UP as usize);
    times.sort_unstable();
    times.truncate(times.len() - times.len() / 100);
    Ok(times.iter().sum::<u64>() as f64 / times.len() as f64)
}
