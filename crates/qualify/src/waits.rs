//! Latencies by each way to wait, and rates by depth and queues.

use std::time::Instant;

use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, Request};
use meantime_completion::{Goal, Policy};
use meantime_process::thread;
use meantime_random::Rng;
use meantime_report::figures::{iops, time};
use meantime_report::run::LatencyStats;

use crate::notes::{Notes, Outcome, Stop};
use crate::plan::Plan;
use crate::subject::{PAGE, Subject};

/// The most threads with a queue each.
const THREADS_MAX: usize = 4;

/// Reads pages at random for as long as `plan` says, `depth` at a time.
fn read_for(
    channel: &mut NvmeChannel,
    plan: &Plan<'_>,
    depth: u16,
    stats: &mut LatencyStats,
) -> Outcome<f64> {
    let block_bytes = channel.info().block_bytes as usize;
    let bytes = PAGE.max(block_bytes);
    let page_blocks = (bytes / block_bytes) as u64;
    let pages = (channel.info().blocks / page_blocks).max(1);
    let mut random = Rng::new(u64::from(depth));
    let (start, mut count) = (Instant::now(), 0u64);
    let mut bufs = Vec::new();
    for _ in 0..depth {
        bufs.push(channel.alloc(bytes.min(channel.info().bytes() as usize))?);
    }
    let clock = channel.clock().clone();
    while start.elapsed() < plan.measured && !plan.stopped() {
        while let Some(buf) = bufs.pop() {
            let lba = random.below(pages) * page_blocks;
            let request = Request::read(lba, buf).user_data(clock.now_ns());
            channel.enqueue(request).map_err(|rejected| Stop::from(rejected.error))?;
        }
        while let Some(done) = channel.wait_done() {
            stats.record(clock.now_ns().saturating_sub(done.user_data));
            bufs.push(done.into_buf()?);
            count += 1;
            if bufs.len() >= usize::from(depth).div_ceil(2) {
                break;
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    while let Some(done) = channel.wait_done() {
        done.into_buf()?;
    }
    Ok(count as f64 / seconds)
}

/// The latencies of reads of a page, one at a time, by each way to wait.
pub(crate) fn latencies(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let policies = [Policy::Poll, Policy::Interrupt, Policy::Adaptive(Goal::default())];
    for policy in policies {
        let device = subject.device()?;
        let name = policy.to_string();
        if let Err(error) = device.can_wait(policy) {
            notes.fact(name, format!("not there: {error}"));
            continue;
        }
        let options =
            ChannelOptions { depth: 4, policy: Some(policy), ..ChannelOptions::default() };
        let mut channel = device.channel(&options)?;
        let mut stats = LatencyStats::default();
        read_for(&mut channel, subject.plan, 1, &mut stats)?;
        let [p50, p99] = [50.0, 99.0].map(|p| stats.percentile_ns(p));
        let counters = channel.counters();
        let words = [stats.mean_ns(), p50 as f64, p99 as f64, stats.max_ns() as f64].map(time);
        let [mean, p50_words, p99, max] = words;
        notes.fact(&name, format!("mean {mean}, p50 {p50_words}, p99 {p99}, max {max}"));
        notes.undisturbed(&name, &counters.polled);
        counters.interrupt.iter().for_each(|one| notes.undisturbed(&name, one));
        // Without an interrupt the driver looks when it next checks deadlines.
        let look_ns = device.controller().options().io_timeout_ns / 8;
        let is_late = policy == Policy::Interrupt && stats.max_ns() >= look_ns;
        notes.require(!is_late, "1.4 §7.5", || {
            format!("a read took {max}: the driver found it by looking, without an interrupt")
        });
        if policy == Policy::Poll {
            notes.fact("shortest polled read", time(stats.min_ns() as f64));
            drop(channel);
            subject.read_ns = Some(p50);
        }
        subject.go_on()?;
    }
    Ok(())
}

/// The rates of reads of a page by depth on one queue, and by queues with a thread each.
pub(crate) fn rates(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let device = subject.device()?;
    for depth in [1, 4, 16, 64].into_iter().filter(|&depth| depth <= device.max_depth()) {
        let mut channel = subject.polled(depth)?;
        let mut stats = LatencyStats::default();
        let rate = read_for(&mut channel, subject.plan, depth, &mut stats)?;
        let p99 = time(stats.percentile_ns(99.0) as f64);
        notes.fact(format!("depth {depth}"), format!("{} IOPS, p99 {p99}", iops(rate)));
        notes.undisturbed(&format!("polled, depth {depth}"), &channel.counters().polled);
        subject.go_on()?;
    }
    let queues = usize::from(device.controller().info().io_queues);
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    for threads in (2..=most.min(queues)).filter(|count| count.is_power_of_two()) {
        let depth = 16.min(device.max_depth());
        let channels = (0..threads).map(|_| subject.polled(depth)).collect::<Outcome<Vec<_>>>()?;
        let plan = subject.plan;
        let results: Vec<Outcome<f64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = channels
                .into_iter()
                .map(|mut channel| {
                    thread::spawn_scoped(scope, "qualify", move || {
                        read_for(&mut channel, plan, depth, &mut LatencyStats::default())
                    })
                })
                .collect();
            let failed = || Stop::NotTested("a thread could not be started".to_owned());
            threads
                .into_iter()
                .map(|thread| {
                    thread.map_err(|_| failed())?.join().unwrap_or_else(|_| Err(failed()))
                })
                .collect()
        });
        let rate: f64 = results.into_iter().sum::<Outcome<f64>>()?;
        notes.fact(format!("{threads} queues of depth {depth}"), format!("{} IOPS", iops(rate)));
    }
    Ok(())
}
