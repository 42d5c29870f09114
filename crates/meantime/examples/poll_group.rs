//! What waiting on many channels costs the busy one: 4 KiB reads at depth 1, by the channel alone
//! and by a group, with and without idle channels beside it.
//!
//! `cargo run --release -p meantime --example poll_group [URI [POLICY]]`

use std::time::Instant;

use meantime::block::{
    BlockChannel, BlockDevice, Channel, ChannelOptions, OpenOptions, PollGroup, Ready, Request,
    open,
};
use meantime::completion::Policy;
use rustix::time::{ClockId, clock_gettime};

const READS: u64 = 20_000;
const TURNS: usize = 9;
const IDLE: usize = 64;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn request(channel: &Channel, buf: meantime::block::DmaBuf, n: u64) -> Request {
    let blocks_each = 4096 / u64::from(channel.info().block_bytes);
    let count = channel.info().blocks / blocks_each;
    Request::read(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count * blocks_each, buf)
}

/// The mean time of a read in ns, and its CPU time.
fn timed(run: impl FnOnce() -> Outcome<()>) -> Outcome<(f64, f64)> {
    let (start, cpu_ns) = (Instant::now(), thread_cpu_ns());
    run()?;
    let used_ns = thread_cpu_ns() - cpu_ns;
    Ok((start.elapsed().as_nanos() as f64 / READS as f64, used_ns as f64 / READS as f64))
}

fn alone(channel: &mut Channel) -> Outcome<()> {
    let mut buf = channel.alloc(4096)?;
    for n in 0..READS {
        let request = request(channel, buf, n);
        channel.enqueue(request)?;
        buf = channel.wait_done().ok_or("one is in flight")?.into_buf()?;
    }
    Ok(())
}

fn in_group(group: &mut PollGroup<Channel>) -> Outcome<()> {
    let key = group.channels().next().ok_or("there is one")?.0;
    let mut buf = group.channel(key).alloc(4096)?;
    for n in 0..READS {
        let channel = group.channel(key);
        let request = request(channel, buf, n);
        channel.enqueue(request)?;
        let Some(Ready::Done(_, done)) = group.wait(None) else { return Err("no result".into()) };
        buf = done.into_buf()?;
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let uri = words.next().unwrap_or_else(|| "mem:64M?model=optane".to_owned());
    let policy = words.next().unwrap_or_else(|| "poll".to_owned()).parse()?;
    let device = open(&uri, &OpenOptions::default())?;
    let idle = open("mem:64M", &OpenOptions::default())?;
    let options = ChannelOptions { depth: 4, policy: Some(policy), ..ChannelOptions::default() };
    let mut by_itself = device.channel(&options)?;
    let mut groups = [PollGroup::new(), PollGroup::new()];
    for group in &mut groups {
        group.add(device.channel(&options)?);
    }
    // Without interrupts, of which a device has fewer.
    let polled =
        ChannelOptions { depth: 4, policy: Some(Policy::Poll), ..ChannelOptions::default() };
    for _ in 0..IDLE {
        groups[1].add(idle.channel(&polled)?);
    }
    let mut rows: [(Vec<f64>, Vec<f64>); 3] = Default::default();
    for _ in 0..TURNS {
        let mut row = |at: usize, (ns, cpu_ns): (f64, f64)| {
            rows[at].0.push(ns);
            rows[at].1.push(cpu_ns);
        };
        row(0, timed(|| alone(&mut by_itself))?);
        row(1, timed(|| in_group(&mut groups[0]))?);
        row(2, timed(|| in_group(&mut groups[1]))?);
    }
    let base_ns = median(&mut rows[0].0);
    for ((ns, cpu_ns), name) in rows.iter_mut().zip(["alone", "group", "group with 64 idle"]) {
        let (ns, cpu_ns) = (median(ns), median(cpu_ns));
        println!("{name:20} {ns:8.0} ns a read ({:.3}), {cpu_ns:8.0} ns of CPU", ns / base_ns);
    }
    Ok(())
}
