//! The futures under other people's executors, on a software SSD with a thread of its own.

use std::time::Duration;

use meantime_block::{
    AsyncChannel, BlockDevice, ChannelOptions, Driver, NvmeChannel, OpenOptions, Shared,
    SharedChannel, Sharing, open_nvme,
};
use meantime_completion::Policy;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const TASKS: u64 = 40;
const DEPTH: u16 = 16;

fn channel(policy: Policy) -> NvmeChannel {
    let device =
        open_nvme("mem:64M?model=optane", &OpenOptions::default()).expect("a software SSD");
    let options = ChannelOptions {
        depth: DEPTH,
        policy: Some(policy),
        interrupt: Some(true),
        ..ChannelOptions::default()
    };
    device.channel(&options).expect("a channel")
}

/// Writes blocks of its own and reads them back; more tasks do so than there are slots.
async fn work<S: Sharing>(channel: AsyncChannel<NvmeChannel, S>, task: u64) -> u64 {
    let mut buf = channel.alloc(4096).expect("memory");
    for n in 0..8 {
        let lba = (task * 8 + n) * 8;
        buf.fill((task * 8 + n) as u8);
        buf = channel.write(lba, buf).await.expect("written");
        buf.fill(0);
        buf = channel.read(lba, buf).await.expect("read");
        assert!(buf.iter().all(|&byte| byte == (task * 8 + n) as u8));
    }
    channel.flush().await.expect("flushed");
    task
}

async fn work_in_turn<S: Sharing>(channel: &AsyncChannel<NvmeChannel, S>) {
    for task in 0..3 {
        work(channel.clone(), task).await;
    }
}

#[test]
fn pollster_and_futures_executor() {
    let channel = AsyncChannel::new(channel(Policy::Poll));
    pollster::block_on(work_in_turn(&channel));
    futures_executor::block_on(work_in_turn(&channel));
    let shared = AsyncChannel::shared(channel.into_channel().expect("the only handle"));
    pollster::block_on(work_in_turn(&shared));
}

#[test]
fn async_executor_local_and_of_threads() {
    let local = AsyncChannel::new(channel(Policy::Poll));
    let executor = async_executor::LocalExecutor::new();
    let tasks: Vec<_> = (0..TASKS).map(|task| executor.spawn(work(local.clone(), task))).collect();
    futures_executor::block_on(executor.run(async {
        for task in tasks {
            task.await;
        }
    }));
    drop(executor);
    let shared = AsyncChannel::shared(local.into_channel().expect("the only handle"));
    let executor = async_executor::Executor::new();
    std::thread::scope(|scope| {
        let tasks: Vec<_> =
            (0..TASKS).map(|task| executor.spawn(work(shared.clone(), task))).collect();
        let threads = [(); 2].map(|()| {
            let (executor, shared) = (&executor, &shared);
            scope.spawn(move || {
                futures_executor::block_on(executor.run(work(shared.clone(), 1_000)));
            })
        });
        pollster::block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

async fn spawn_all(channel: SharedChannel<NvmeChannel>) {
    let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(work(channel.clone(), task))).collect();
    for (task, expected) in tasks.into_iter().zip(0..) {
        assert_eq!(task.await.expect("no panic"), expected);
    }
    // Dropped in flight, by the runtime.
    let aborted: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(work(channel.clone(), task))).collect();
    tokio::task::yield_now().await;
    aborted.iter().for_each(tokio::task::JoinHandle::abort);
    for task in aborted {
        let _ = task.await;
    }
    assert_eq!(work(channel.clone(), 7).await, 7);
    while channel.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        channel.flush().await.expect("flushed");
    }
    assert_eq!(channel.room(), usize::from(DEPTH));
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn multi_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn tokio_without_a_driver() {
    for runtime in [current_thread(), multi_thread()] {
        runtime.block_on(spawn_all(AsyncChannel::shared(channel(Policy::Poll))));
    }
    // Tasks of one thread.
    let local = AsyncChannel::new(channel(Policy::Poll));
    let set = tokio::task::LocalSet::new();
    current_thread().block_on(set.run_until(async {
        let tasks: Vec<_> =
            (0..TASKS).map(|task| tokio::task::spawn_local(work(local.clone(), task))).collect();
        for task in tasks {
            task.await.expect("no panic");
        }
    }));
}

async fn drive(driver: Driver<NvmeChannel, Shared>) {
    let event = driver.event().expect("a channel with an interrupt");
    // SAFETY: an `EventFd` has one descriptor, which is open as long as it, or a clone of it, is
    // there.
    let event = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }
        .expect("a descriptor");
    loop {
        if let Ok(ready) = tokio::time::timeout(Duration::from_millis(500), event.readable()).await
        {
            ready.expect("the runtime runs").clear_ready();
        }
        event.get_ref().take();
        driver.process();
    }
}

#[test]
fn tokio_driven_by_the_interrupt() {
    for runtime in [current_thread(), multi_thread()] {
        runtime.block_on(async {
            let channel = AsyncChannel::shared(channel(Policy::Interrupt));
            let driving = tokio::spawn(drive(channel.driver().expect("the first")));
            spawn_all(channel).await;
            driving.abort();
        });
    }
}

#[test]
fn a_driver_on_a_thread_of_its_own() {
    for policy in [Policy::Poll, Policy::Interrupt] {
        let channel = AsyncChannel::shared(channel(policy));
        let driver = channel.driver().expect("the first");
        let runtime = multi_thread();
        std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    if driver.wait() == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            runtime.block_on(spawn_all(channel.clone()));
            drop(stop);
        });
    }
}
