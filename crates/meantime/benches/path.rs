//! The polled path against the floor and at depth 32, on the `null` model.
//!
//! `cargo bench -p meantime --bench path` prints, as medians of alternating pairs: the latency of
//! random reads at depth 1 of 512 B and 4 KiB as a ratio to the floor of the same process
//! (docs/benchmarks.md); IOPS of one thread at depth 32; and the CPU time that submitting and
//! reaping take of it per I/O, polling excluded.

use std::error::Error;

use meantime_baselines::floor::Floor;
use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, OpenOptions, Request, open_nvme,
};
use meantime_completion::Policy;
use meantime_completion::calibrate::cacheline_rtt;
use meantime_hw::{Clock, DmaBuf, cpu};

const DEVICE_BYTES: u64 = 1 << 30;
const PAIRS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = cpu::allowed();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    cpu::bind(&[first])?;
    let device =
        open_nvme(&format!("mem:{DEVICE_BYTES}?model=null&cpu={last}"), &OpenOptions::default())?;
    let options =
        ChannelOptions { depth: 32, policy: Some(Policy::Poll), ..ChannelOptions::default() };
    let mut channel = device.channel(&options)?;
    let mut floor = Floor::start(DEVICE_BYTES, Some(last))?;
    fill(&mut channel)?;

    println!("cache line there and back: {} ns", cacheline_rtt(Some(last))?.median_ns());
    for bytes in [4096, 512] {
        depth_1(&mut channel, &mut floor, bytes)?;
    }
    for _ in 0..3 {
        depth_32(&mut channel)?;
    }
    println!("cache line there and back: {} ns", cacheline_rtt(Some(last))?.median_ns());
    Ok(())
}

/// Writes every page of the medium, so that none is the kernel's zero page.
fn fill(channel: &mut NvmeChannel) -> Result<(), Box<dyn Error>> {
    let mut buf = channel.alloc(1 << 20)?;
    buf.fill(0x5a);
    let blocks = buf.len() as u64 / u64::from(channel.info().block_bytes);
    for chunk in 0..channel.info().blocks / blocks {
        buf = channel.write(chunk * blocks, buf)?;
    }
    Ok(())
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn depth_1(
    channel: &mut NvmeChannel,
    floor: &mut Floor,
    bytes: usize,
) -> Result<(), Box<dyn Error>> {
    let clock = Clock::real();
    let mut random = Random(7);
    let blocks = bytes as u64 / u64::from(channel.info().block_bytes);
    let places = channel.info().blocks / blocks;
    let mut buf = channel.alloc(bytes)?;
    let (mut ours, mut floors, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..PAIRS {
        let floor_ns = floor.measure(&mut buf, bytes, 20_000);
        let mut times = Vec::with_capacity(22_000);
        for _ in 0..22_000 {
            let lba = random.below(places) * blocks;
            let start_ns = clock.now_ns();
            let ticket =
                channel.submit(Request::read(lba, buf)).map_err(|rejected| rejected.error)?;
            let done = channel.wait(ticket);
            times.push(clock.now_ns() - start_ns);
            done.result?;
            buf = done.buf.expect("a read's buffer");
        }
        let mut times = times.split_off(2_000);
        times.sort_unstable();
        let median = times[times.len() / 2] as f64;
        ours.push(median);
        floors.push(floor_ns);
        ratios.push(median / floor_ns);
    }
    println!(
        "{bytes:>5} B depth 1: {:.0} ns, floor {:.0} ns, ratio {:.2} ({:.2} to {:.2})",
        median(&mut ours),
        median(&mut floors),
        median(&mut ratios),
        ratios[0],
        ratios[ratios.len() - 1],
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn depth_32(channel: &mut NvmeChannel) -> Result<(), Box<dyn Error>> {
    const IOS: u64 = 4_000_000;
    let clock = Clock::real();
    let mut random = Random(11);
    let blocks = channel.info().blocks;
    let mut free: Vec<DmaBuf> = (0..32).map(|_| channel.alloc(512)).collect::<Result<_, _>>()?;
    let (mut finished, mut started, mut busy_ns) = (0, 0, 0);
    let start_ns = clock.now_ns();
    while finished < IOS {
        let before_ns = clock.now_ns();
        channel.plug();
        while started < IOS
            && let Some(buf) = free.pop()
        {
            let request = Request::read(random.below(blocks), buf);
            channel.enqueue(request).map_err(|rejected| rejected.error)?;
            started += 1;
        }
        channel.unplug();
        busy_ns += clock.now_ns() - before_ns;
        loop {
            let before_ns = clock.now_ns();
            if channel.poll() == 0 {
                continue;
            }
            while let Some(done) = channel.next_done() {
                done.result?;
                free.extend(done.buf);
                finished += 1;
            }
            busy_ns += clock.now_ns() - before_ns;
            if free.len() >= 8 || finished == IOS {
                break;
            }
        }
    }
    let elapsed_ns = clock.now_ns() - start_ns;
    println!(
        "  512 B depth 32: {:.2} M IOPS, {} ns of submitting and reaping per I/O",
        IOS as f64 * 1e3 / elapsed_ns as f64,
        busy_ns / IOS,
    );
    Ok(())
}
