//! 4 KiB random reads of a device behind TCP, against the same bytes without a protocol: at depth
//! 1, and 8 on each of 4 queues. Bursts of both alternate.
//!
//! `cargo run --release -p meantime --example tcp -- URI [--cpu N] [--server-cpu N] [--bursts N]
//! [--ms N] [--pid PID] [--policy POLICY]`
//!
//! `--cpu` is this thread's, `--server-cpu` that of the other side of the exchange: the target's,
//! usually. PID is the target's process, for its CPU time. POLICY is `poll` unless given: the
//! exchange spins, too. Spinning counts as CPU time.

use std::time::{Duration, Instant};

use meantime::block::{
    BlockChannel, BlockDevice, Channel, ChannelKey, ChannelOptions, Device, DmaBuf, OpenOptions,
    PollGroup, Ready, Request, open,
};
use meantime::completion::Policy;
use meantime_baselines::exchange::{Burst, Exchange, ExchangeOptions, Load};
use meantime_hw::cpu;
use rustix::time::{ClockId, clock_gettime};

const BYTES: usize = 4096;
const QUEUES: usize = 4;
const DEPTH: usize = 8;
/// A target that polls is asleep by then; so is the exchange's server, at once.
const PAUSE: Duration = Duration::from_millis(4);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Options {
    uri: String,
    cpu: Option<usize>,
    server_cpu: Option<usize>,
    bursts: usize,
    time: Duration,
    pid: Option<u32>,
    policy: Policy,
}

fn options() -> Outcome<Options> {
    let mut words = std::env::args().skip(1);
    let uri = words.next().ok_or("the device's URI is missing")?;
    let (mut cpu, mut server_cpu, mut pid) = (None, None, None);
    let (mut bursts, mut ms, mut policy) = (15, 200, Policy::Poll);
    while let Some(word) = words.next() {
        let value = words.next().ok_or("a value is missing")?;
        if word == "--policy" {
            policy = value.parse()?;
            continue;
        }
        let number: usize = value.parse()?;
        match word.as_str() {
            "--cpu" => cpu = Some(number),
            "--server-cpu" => server_cpu = Some(number),
            "--bursts" => bursts = number.max(1),
            "--ms" => ms = number.max(1) as u64,
            "--pid" => pid = Some(number as u32),
            _ => return Err(format!("{word} is not an option").into()),
        }
    }
    Ok(Options { uri, cpu, server_cpu, bursts, time: Duration::from_millis(ms), pid, policy })
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The CPU time of all threads of a process; of none without one.
fn process_cpu_ns(pid: Option<u32>) -> Outcome<u64> {
    let Some(pid) = pid else { return Ok(0) };
    let mut total_ns = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        total_ns += text.split_whitespace().next().ok_or("schedstat is empty")?.parse::<u64>()?;
    }
    Ok(total_ns)
}

/// A burst of the device, and the CPU time of a read on either side.
struct Ours {
    burst: Burst,
    cpu_ns_each: [f64; 2],
}

/// A burst of the device, after a tenth of its time as a warm-up. `turn` adds the latencies of what
/// has ended.
fn device_burst(
    time: Duration,
    pid: Option<u32>,
    mut turn: impl FnMut(&mut Vec<u64>) -> Outcome<()>,
) -> Outcome<Ours> {
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time / 10 {
        turn(&mut times)?;
    }
    times.clear();
    let (target_ns, cpu_ns, start) = (process_cpu_ns(pid)?, thread_cpu_ns(), Instant::now());
    while start.elapsed() < time {
        turn(&mut times)?;
    }
    let wall_ns = start.elapsed().as_nanos() as u64;
    let cpu_ns = [thread_cpu_ns() - cpu_ns, process_cpu_ns(pid)? - target_ns];
    let (exchanges, middle) = (times.len() as u64, times.len() / 2);
    let median_ns = *times.select_nth_unstable(middle).1;
    let cpu_ns_each = cpu_ns.map(|ns| ns as f64 / exchanges as f64);
    Ok(Ours { burst: Burst { exchanges, wall_ns, median_ns }, cpu_ns_each })
}

/// Random places of a device.
struct Places {
    state: u64,
    count: u64,
    blocks_each: u64,
}

impl Places {
    fn of(device: &Device) -> Self {
        let blocks_each = (BYTES as u64 / u64::from(device.info().block_bytes)).max(1);
        Self { state: 7, count: device.info().blocks / blocks_each, blocks_each }
    }

    fn read(&mut self, buf: DmaBuf) -> Request {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        Request::read(self.state % self.count * self.blocks_each, buf)
    }
}

/// One read after the other.
struct Single {
    channel: Channel,
    places: Places,
    buf: Option<DmaBuf>,
}

impl Single {
    fn turn(&mut self, times: &mut Vec<u64>) -> Outcome<()> {
        let buf = self.buf.take().ok_or("it has its buffer")?;
        let request = self.places.read(buf);
        let start = Instant::now();
        let ticket = self.channel.submit(request)?;
        let done = self.channel.wait(ticket);
        times.push(start.elapsed().as_nanos() as u64);
        done.result?;
        self.buf = done.buf;
        Ok(())
    }
}

/// Several on several queues, from one thread: a read that has ended is followed by another.
struct Several {
    group: PollGroup<Channel>,
    places: Places,
    /// Buffers of reads that are not in flight, each with its channel and its number.
    idle: Vec<(ChannelKey, u64, DmaBuf)>,
    /// When the reads began, by their numbers.
    begun: Vec<Instant>,
    ready: Vec<Ready>,
}

impl Several {
    fn new(device: &Device, options: &ChannelOptions) -> Outcome<Self> {
        let (mut group, mut idle) = (PollGroup::new(), Vec::new());
        for _ in 0..QUEUES {
            let channel = device.channel(options)?;
            let bufs: Vec<_> =
                (0..DEPTH).map(|_| channel.alloc(BYTES)).collect::<Result<_, _>>()?;
            let key = group.add(channel);
            for buf in bufs {
                idle.push((key, idle.len() as u64, buf));
            }
        }
        let begun = vec![Instant::now(); idle.len()];
        Ok(Self { group, places: Places::of(device), idle, begun, ready: Vec::new() })
    }

    /// Sends what is idle, a batch for each channel, and takes what has ended.
    fn turn(&mut self, times: &mut Vec<u64>) -> Outcome<()> {
        let now = Instant::now();
        self.idle.sort_unstable_by_key(|(_, number, _)| *number);
        let mut plugged = None;
        for (key, number, buf) in self.idle.drain(..) {
            if plugged != Some(key) {
                if let Some(key) = plugged.replace(key) {
                    self.group.channel(key).unplug();
                }
                self.group.channel(key).plug();
            }
            self.begun[number as usize] = now;
            self.group.channel(key).enqueue(self.places.read(buf).user_data(number))?;
        }
        if let Some(key) = plugged {
            self.group.channel(key).unplug();
        }
        self.take(times)
    }

    fn take(&mut self, times: &mut Vec<u64>) -> Outcome<()> {
        self.group.wait_many(None, self.begun.len(), &mut self.ready);
        let now = Instant::now();
        for ready in self.ready.drain(..) {
            let Ready::Done(key, done) = ready else { continue };
            let at = done.user_data;
            let buf = done.into_buf()?;
            times.push(now.duration_since(self.begun[at as usize]).as_nanos() as u64);
            self.idle.push((key, at, buf));
        }
        Ok(())
    }

    /// Waits for what is in flight: between two bursts nothing is.
    fn drain(&mut self) -> Outcome<()> {
        while self.idle.len() < self.begun.len() {
            self.take(&mut Vec::new())?;
        }
        Ok(())
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    values[values.len() / 2]
}

/// Prints both, and the ratios of pairs of bursts with their quartiles and their range. Of the
/// exchange both sides spin: each uses all of a CPU.
fn print(what: &str, bursts: &[(Ours, Burst)]) {
    let row = |name: &str, of: fn(&(Ours, Burst)) -> Burst, cpu_ns_each: [f64; 2]| {
        let middle =
            |figure: fn(&Burst) -> f64| median(bursts.iter().map(|pair| figure(&of(pair))));
        println!(
            "{what:10} {name:10} {:>9.2} {:>9.1} {:>11.2} {:>11.2}",
            middle(|burst| burst.median_ns as f64) / 1e3,
            middle(Burst::rate) / 1e3,
            cpu_ns_each[0] / 1e3,
            cpu_ns_each[1] / 1e3,
        );
    };
    let ours = [0, 1].map(|side| median(bursts.iter().map(|pair| pair.0.cpu_ns_each[side])));
    row("device", |pair| pair.0.burst, ours);
    let each_ns = median(bursts.iter().map(|pair| 1e9 / pair.1.rate()));
    row("reference", |pair| pair.1, [each_ns; 2]);
    let ratio = |name: &str, figure: fn(&Burst) -> f64| {
        let ratios =
            sorted(bursts.iter().map(|(ours, theirs)| figure(&ours.burst) / figure(theirs)));
        let [least, lower, middle, upper, most] =
            [0, 1, 2, 3, 4].map(|part| ratios[(ratios.len() - 1) * part / 4]);
        println!(
            "{what:10} ratio of {name} {middle:.3} (quartiles {lower:.3} to {upper:.3}, all \
             {least:.3} to {most:.3})"
        );
    };
    ratio("the medians", |burst| burst.median_ns as f64);
    // Of the two this suffers more from other programs.
    ratio("the rates", Burst::rate);
    println!();
}

fn main() -> Outcome<()> {
    let Options { uri, cpu, server_cpu, bursts, time, pid, policy } = options()?;
    let device = open(&uri, &OpenOptions::default())?;
    let medium_bytes = device.info().bytes().min(1 << 30);
    let one = ExchangeOptions { medium_bytes, server_cpu, ..ExchangeOptions::default() };
    let (mut alone, mut several_sockets) =
        (Exchange::start(&one)?, Exchange::start(&ExchangeOptions { sockets: QUEUES, ..one })?);
    // Not earlier: threads inherit it.
    if let Some(cpu) = cpu {
        cpu::bind(&[cpu])?;
    }
    let mut pairs = Vec::new();
    {
        let options =
            ChannelOptions { depth: 1, policy: Some(policy), ..ChannelOptions::default() };
        let channel = device.channel(&options)?;
        let buf = Some(channel.alloc(BYTES)?);
        let mut single = Single { channel, places: Places::of(&device), buf };
        let load = Load { payload_bytes: BYTES, outstanding: 1 };
        for _ in 0..bursts {
            let ours = device_burst(time, pid, |times| single.turn(times))?;
            std::thread::sleep(PAUSE);
            pairs.push((ours, alone.burst(&load, time)?));
        }
    }
    println!("                        median µs   k per s  CPU µs here  CPU µs there");
    print("depth 1", &pairs);
    pairs.clear();
    let options =
        ChannelOptions { depth: DEPTH as u16, policy: Some(policy), ..ChannelOptions::default() };
    let mut several = Several::new(&device, &options)?;
    let load = Load { payload_bytes: BYTES, outstanding: DEPTH };
    for _ in 0..bursts {
        let ours = device_burst(time, pid, |times| several.turn(times))?;
        several.drain()?;
        std::thread::sleep(PAUSE);
        pairs.push((ours, several_sockets.burst(&load, time)?));
    }
    print(&format!("depth {QUEUES}x{DEPTH}"), &pairs);
    Ok(())
}
