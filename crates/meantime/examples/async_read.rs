//! Many tasks on one queue:
//! `cargo run --release -p meantime --example async_read [DEVICE [TASKS]]`.
//!
//! Each task reads 4 KiB blocks at random addresses, one after another. A driver looks at the queue
//! between rounds of tasks, and sends the requests of a round with one doorbell.

use std::error::Error;
use std::time::Instant;

use async_executor::LocalExecutor;
use meantime::block::{AsyncChannel, BlockDevice, Channel, ChannelOptions, OpenOptions};
use meantime::completion::Policy;

const READS: u64 = 1_000;

async fn reader(channel: AsyncChannel<Channel>, task: u64) -> Result<u64, Box<dyn Error>> {
    let info = channel.info();
    let blocks = 4096 / u64::from(info.block_bytes);
    let places = info.blocks / blocks;
    let mut buf = channel.alloc(4096)?;
    let mut random = task + 1;
    let mut sum = 0;
    for _ in 0..READS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        buf = channel.read((random >> 33) % places * blocks, buf).await?;
        sum += u64::from(buf[0]);
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().unwrap_or_else(|| "mem:256M?model=optane".to_owned());
    let tasks: u64 = arguments.next().map_or(Ok(64), |text| text.parse())?;

    let device = meantime::block::open(&uri, &OpenOptions::default())?;
    let options = ChannelOptions {
        depth: tasks.clamp(1, 256) as u16,
        policy: Some(Policy::Poll),
        ..ChannelOptions::default()
    };
    let channel = AsyncChannel::new(device.channel(&options)?);
    let driver = channel.driver()?;

    let start = Instant::now();
    let executor = LocalExecutor::new();
    let readers: Vec<_> =
        (0..tasks).map(|task| executor.spawn(reader(channel.clone(), task))).collect();
    while !executor.is_empty() {
        driver.plug();
        while executor.try_tick() {}
        driver.unplug();
        driver.wait();
    }
    for reader in readers {
        pollster::block_on(reader)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{tasks} tasks, {READS} reads each: {:.0} IOPS", (tasks * READS) as f64 / seconds);
    Ok(())
}
