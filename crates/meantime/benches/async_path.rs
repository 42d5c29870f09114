//! The cost of futures: the asynchronous path against the synchronous one, on the same channel of
//! the `null` model, alternating.
//!
//! `cargo bench -p meantime --bench async_path` prints, as medians of alternating runs: the latency
//! of random reads at depth 1 by `read` and by `read().await`, and their difference; and the IOPS
//! of 1,000 tasks on one queue against those of 1,000 requests in flight without futures, by
//! tickets (the oldest waited for and replaced) and by batches (all that have ended taken and
//! replaced); and what a task's turn costs on a channel that answers at once, where there is
//! nothing to wait for.

use std::collections::VecDeque;
use std::error::Error;

use async_executor::LocalExecutor;
use meantime_block::{
    AsyncChannel, BlockChannel, BlockDevice, BlockInfo, ChannelOptions, Done, NvmeChannel,
    OpenOptions, Rejected, Request, SubmitError, Ticket, open_nvme,
};
use meantime_completion::Policy;
use meantime_hw::{Clock, DmaBuf, HwError, cpu};

const DEVICE_BYTES: u64 = 1 << 30;
const PAIRS: usize = 15;
const TASKS: u64 = 1_000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let cpus = cpu::allowed();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    cpu::bind(&[first])?;
    let device =
        open_nvme(&format!("mem:{DEVICE_BYTES}?model=null&cpu={last}"), &OpenOptions::default())?;
    let options = ChannelOptions {
        depth: TASKS as u16,
        policy: Some(Policy::Poll),
        ..ChannelOptions::default()
    };
    let mut channel = device.channel(&options)?;
    fill(&mut channel)?;
    for bytes in [512, 4096] {
        channel = depth_1(channel, bytes)?;
    }
    let channel = many(channel)?;
    turns(channel)
}

/// Writes every page of the medium, so that none is the kernel's zero page.
fn fill(channel: &mut NvmeChannel) -> Result<()> {
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

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The mean of the middle half: finer than a median where the clock ticks in steps of 10 ns.
fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = &values[values.len() / 4..values.len() * 3 / 4];
    half.iter().sum::<f64>() / half.len() as f64
}

/// The spread, after `median` has sorted them.
fn spread(values: &[f64]) -> String {
    format!("{:.2} to {:.2}", values[0], values[values.len() - 1])
}

const IOS: usize = 22_000;
const WARM_UP: usize = 2_000;

fn depth_1(mut channel: NvmeChannel, bytes: usize) -> Result<NvmeChannel> {
    let clock = Clock::real();
    let mut random = Random(7);
    let blocks = bytes as u64 / u64::from(channel.info().block_bytes);
    let places = channel.info().blocks / blocks;
    let mut times = Vec::with_capacity(IOS);
    let (mut sync_ns, mut async_ns, mut added_ns) = (vec![], vec![], vec![]);
    for _ in 0..PAIRS {
        let mut buf = channel.alloc(bytes)?;
        times.clear();
        for _ in 0..IOS {
            let lba = random.below(places) * blocks;
            let start_ns = clock.now_ns();
            buf = channel.read(lba, buf)?;
            times.push((clock.now_ns() - start_ns) as f64);
        }
        let sync = middle(&mut times[WARM_UP..]);

        let shared = AsyncChannel::new(channel);
        times.clear();
        pollster::block_on(async {
            for _ in 0..IOS {
                let lba = random.below(places) * blocks;
                let start_ns = clock.now_ns();
                buf = shared.read(lba, buf).await?;
                times.push((clock.now_ns() - start_ns) as f64);
            }
            Result::Ok(())
        })?;
        let futures = middle(&mut times[WARM_UP..]);
        channel = shared.into_channel().map_err(|_| "the channel has another handle")?;
        sync_ns.push(sync);
        async_ns.push(futures);
        added_ns.push(futures - sync);
    }
    println!(
        "{bytes:>5} B depth 1: sync {:.0} ns, async {:.0} ns, added {:.0} ns ({})",
        median(&mut sync_ns),
        median(&mut async_ns),
        median(&mut added_ns),
        spread(&added_ns),
    );
    Ok(channel)
}

const MANY_IOS: u64 = 1_000_000;

fn many(mut channel: NvmeChannel) -> Result<NvmeChannel> {
    let (mut tickets, mut batches, mut tasks) = (vec![], vec![], vec![]);
    let (mut to_tickets, mut to_batches) = (vec![], vec![]);
    for _ in 0..PAIRS {
        let by_tickets = iops(|| by_tickets(&mut channel))?;
        let by_batches = iops(|| by_batches(&mut channel))?;
        let shared = AsyncChannel::new(channel);
        let by_tasks = iops(|| by_tasks(&shared))?;
        channel = shared.into_channel().map_err(|_| "the channel has another handle")?;
        tickets.push(by_tickets);
        batches.push(by_batches);
        tasks.push(by_tasks);
        to_tickets.push(by_tasks / by_tickets);
        to_batches.push(by_tasks / by_batches);
    }
    println!(
        "512 B, {TASKS} in flight: tickets {:.2} M IOPS, batches {:.2}, tasks {:.2}",
        median(&mut tickets) / 1e6,
        median(&mut batches) / 1e6,
        median(&mut tasks) / 1e6,
    );
    println!(
        "  tasks to tickets {:.2} ({}), to batches {:.2} ({})",
        median(&mut to_tickets),
        spread(&to_tickets),
        median(&mut to_batches),
        spread(&to_batches),
    );
    Ok(channel)
}

fn iops(run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let clock = Clock::real();
    let start_ns = clock.now_ns();
    run()?;
    Ok(MANY_IOS as f64 * 1e9 / (clock.now_ns() - start_ns) as f64)
}

fn bufs(channel: &impl BlockChannel) -> Result<Vec<DmaBuf>> {
    (0..TASKS).map(|_| channel.alloc(512).map_err(Into::into)).collect()
}

fn by_tickets(channel: &mut NvmeChannel) -> Result<()> {
    let mut random = Random(11);
    let blocks = channel.info().blocks;
    let mut tickets = VecDeque::with_capacity(TASKS as usize);
    for buf in bufs(channel)? {
        tickets.push_back(channel.submit(Request::read(random.below(blocks), buf))?);
    }
    for _ in TASKS..MANY_IOS {
        let done = channel.wait(tickets.pop_front().expect("as many as there were"));
        done.result?;
        let buf = done.buf.expect("a read's buffer");
        tickets.push_back(channel.submit(Request::read(random.below(blocks), buf))?);
    }
    for ticket in tickets {
        channel.wait(ticket).result?;
    }
    Ok(())
}

fn by_batches(channel: &mut impl BlockChannel) -> Result<()> {
    let mut random = Random(11);
    let blocks = channel.info().blocks;
    let mut free = bufs(channel)?;
    let (mut started, mut finished) = (0, 0);
    while finished < MANY_IOS {
        channel.plug();
        while started < MANY_IOS
            && let Some(buf) = free.pop()
        {
            channel.enqueue(Request::read(random.below(blocks), buf))?;
            started += 1;
        }
        channel.unplug();
        channel.poll();
        while let Some(done) = channel.next_done() {
            done.result?;
            free.extend(done.buf);
            finished += 1;
        }
    }
    Ok(())
}

fn by_tasks<C: BlockChannel + 'static>(channel: &AsyncChannel<C>) -> Result<()> {
    let tasks = LocalExecutor::new();
    let blocks = channel.info().blocks;
    for task in 0..TASKS {
        let (reading, mut buf) = (channel.clone(), channel.alloc(512)?);
        let reads = async move {
            let mut random = Random(11 + task);
            for _ in 0..MANY_IOS / TASKS {
                buf = reading.read(random.below(blocks), buf).await.expect("read");
            }
        };
        tasks.spawn(reads).detach();
    }
    let driver = channel.driver()?;
    while !tasks.is_empty() {
        driver.plug();
        while tasks.try_tick() {}
        driver.unplug();
        driver.process();
    }
    Ok(())
}

/// Completes requests at once, without a device.
struct AtOnce {
    memory: NvmeChannel,
    ended: VecDeque<Done>,
}

impl BlockChannel for AtOnce {
    fn info(&self) -> &BlockInfo {
        self.memory.info()
    }

    fn alloc(&self, bytes: usize) -> std::result::Result<DmaBuf, HwError> {
        self.memory.alloc(bytes)
    }

    fn submit(&mut self, _: Request) -> std::result::Result<Ticket, Rejected> {
        unreachable!("it is only asked by `enqueue`")
    }

    #[inline]
    fn enqueue(&mut self, request: Request) -> std::result::Result<(), Rejected> {
        let Request { buf, user_data, .. } = request;
        self.ended.push_back(Done { result: Ok(()), buf, user_data });
        Ok(())
    }

    fn plug(&mut self) {}

    fn unplug(&mut self) {}

    fn poll(&mut self) -> usize {
        self.ended.len()
    }

    fn wait(&mut self, _: Ticket) -> Done {
        unreachable!("it gives no ticket")
    }

    fn try_take(&mut self, _: Ticket) -> std::result::Result<Done, Ticket> {
        unreachable!("it gives no ticket")
    }

    fn detach(&mut self, _: Ticket) {
        unreachable!("it gives no ticket")
    }

    #[inline]
    fn next_done(&mut self) -> Option<Done> {
        self.ended.pop_front()
    }

    fn wait_done(&mut self) -> Option<Done> {
        self.ended.pop_front()
    }

    fn depth(&self) -> u16 {
        TASKS as u16
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn policy(&self) -> Policy {
        Policy::Poll
    }

    fn set_policy(&mut self, _: Policy) -> std::result::Result<(), SubmitError> {
        Ok(())
    }
}

fn turns(memory: NvmeChannel) -> Result<()> {
    let mut channel = AtOnce { memory, ended: VecDeque::with_capacity(TASKS as usize) };
    let mut added_ns = vec![];
    for _ in 0..PAIRS {
        let without = iops(|| by_batches(&mut channel))?;
        let shared = AsyncChannel::new(channel);
        let with = iops(|| by_tasks(&shared))?;
        channel = shared.into_channel().map_err(|_| "the channel has another handle")?;
        added_ns.push(1e9 / with - 1e9 / without);
    }
    println!(
        "a channel that answers at once, {TASKS} tasks: futures and executor take {:.0} ns an I/O ({})",
        median(&mut added_ns),
        spread(&added_ns),
    );
    Ok(())
}
