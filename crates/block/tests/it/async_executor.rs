//! Our executor: tasks, panics, and wake-ups from elsewhere while it works, sleeps, or waits for
//! the device.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use meantime_block::{
    AsyncChannel, BlockDevice, ChannelOptions, Executor, NvmeChannel, OpenOptions, open_nvme,
};
use meantime_completion::Policy;
use meantime_nvme::ControllerOptions;
use meantime_testkit::rig::{LOST, Rig, rig_options, ssd};

fn executor(rig: &Rig, depth: u16) -> Executor<NvmeChannel> {
    Executor::new(&AsyncChannel::new(rig.channel(depth))).expect("the first")
}

/// Lets the other tasks run once.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn more_tasks_than_slots_all_end() {
    let rig = Rig::new(ssd("optane"));
    let executor = executor(&rig, 4);
    let done = Rc::new(Cell::new(0));
    for task in 0..5_000u64 {
        let (channel, done) = (executor.channel().clone(), Rc::clone(&done));
        let task = async move {
            let mut buf = channel.alloc(512).expect("memory");
            for n in 0..3 {
                buf = channel.read((task + n) % 1024, buf).await.expect("read");
            }
            done.set(done.get() + 1);
        };
        executor.spawn(task).detach();
    }
    executor.run();
    assert_eq!((done.get(), executor.tasks()), (5_000, 0));
}

#[test]
fn tasks_take_turns_and_need_no_io() {
    let rig = Rig::new(ssd("null"));
    let executor = executor(&rig, 1);
    let turns = Rc::new(RefCell::new(Vec::new()));
    let spawner = executor.spawner();
    let tasks: Vec<_> = (0..3)
        .map(|task| {
            let (turns, spawner) = (Rc::clone(&turns), spawner.clone());
            executor.spawn(async move {
                for _ in 0..4 {
                    turns.borrow_mut().push(task);
                    yield_now().await;
                }
                // And from within.
                spawner.spawn(async move { task * 10 }).await
            })
        })
        .collect();
    let results = executor.block_on(async {
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.await);
        }
        results
    });
    assert_eq!(results, [0, 10, 20]);
    assert_eq!(*turns.borrow(), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_panic_comes_out_where_the_task_is_awaited_and_loses_no_buffer() {
    let rig = Rig::new(ssd("optane"));
    let executor = executor(&rig, 4);
    let before = rig.device.heap().allocated_bytes();
    let channel = executor.channel().clone();
    let task = executor.spawn(async move {
        let mut read = Box::pin(channel.read(0, channel.alloc(4096).expect("memory")));
        poll_fn(|cx| {
            assert!(read.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        panic!("in flight");
    });
    let other = executor.spawn(async { 7 });
    let caught = catch_unwind(AssertUnwindSafe(|| executor.block_on(task)));
    assert_eq!(caught.expect_err("a panic").downcast_ref::<&str>(), Some(&"in flight"));
    assert_eq!(executor.block_on(other), 7, "the executor goes on");
    // So does a panic of what it blocks on.
    assert!(
        catch_unwind(AssertUnwindSafe(|| executor.block_on(async { panic!("root") }))).is_err()
    );
    executor.block_on(executor.channel().flush()).expect("flushed");
    while executor.channel().in_flight() > 0 {
        executor.block_on(yield_now());
    }
    assert_eq!(rig.device.heap().allocated_bytes(), before);
}

#[test]
fn a_cancelled_task_and_a_dropped_executor_give_up_their_requests() {
    let rig = Rig::new(ssd("optane"));
    let channel = AsyncChannel::new(rig.channel(8));
    let executor = Executor::new(&channel).expect("the first");
    let before = rig.device.heap().allocated_bytes();
    let read = |channel: AsyncChannel<NvmeChannel>| async move {
        channel.read(0, channel.alloc(4096).expect("memory")).await.expect("read");
        unreachable!("it is dropped before")
    };
    rig.ssd.set_faults(LOST);
    let cancelled = executor.spawn(read(channel.clone()));
    executor.spawn(read(channel.clone())).detach();
    executor.block_on(yield_now());
    executor.block_on(yield_now());
    assert_eq!(channel.in_flight(), 2);
    cancelled.cancel();
    executor.block_on(yield_now());
    executor.block_on(yield_now());
    assert_eq!((executor.tasks(), channel.in_flight()), (1, 2));
    drop(executor);
    let driver = channel.driver().expect("the executor is gone");
    while channel.in_flight() > 0 {
        driver.wait();
    }
    assert_eq!(rig.device.heap().allocated_bytes(), before);
}

#[test]
fn blocking_within_a_task_of_the_same_executor_says_so() {
    let rig = Rig::new(ssd("null"));
    let executor = executor(&rig, 1);
    let nested =
        catch_unwind(AssertUnwindSafe(|| executor.block_on(async { executor.block_on(async {}) })));
    let panic = nested.expect_err("nested");
    assert!(
        panic.downcast_ref::<&str>().is_some_and(|text| text.contains("await the future there"))
    );
    executor.block_on(async {});
}

/// A flag that another thread sets, and the waker to call then.
#[derive(Default)]
struct Remote {
    set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Remote {
    async fn wait(&self) {
        poll_fn(|cx| {
            *self.waker.lock().expect("not poisoned") = Some(cx.waker().clone());
            if self.set.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().expect("not poisoned").take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[test]
fn a_wake_up_from_another_thread_ends_sleep() {
    let rig = Rig::new(ssd("null"));
    let executor = executor(&rig, 1);
    for pause_us in [0, 0, 0, 50, 5_000] {
        let remote = Arc::<Remote>::default();
        let thread = std::thread::spawn({
            let remote = Arc::clone(&remote);
            move || {
                std::thread::sleep(Duration::from_micros(pause_us));
                remote.set();
            }
        });
        executor.block_on(remote.wait());
        thread.join().expect("no panic");
    }
}

/// A read takes so long that only the wake-up can end the wait before that, whenever it comes.
const SLOW: &str = r#"
name = "slow"
source = "a test"
channels = 8
read = [[4096, 25000000000], [131072, 25000000000]]
write = [[4096, 8000], [131072, 50000]]
flush_ns = 8000
trim_ns = 8000
"#;

#[test]
fn a_wake_up_from_another_thread_ends_a_wait_for_the_device() {
    let model = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
    std::fs::write(model.path(), SLOW).expect("written");
    let uri = format!("mem:8M?model={}", model.path().display());
    let once = ControllerOptions { retries: 0, ..ControllerOptions::default() };
    let options = OpenOptions { controller: once, ..OpenOptions::default() };
    let device = open_nvme(&uri, &options).expect("a software SSD");
    for policy in ["poll", "interrupt", "hybrid=10us"] {
        let policy: Policy = policy.parse().expect("a policy");
        let channel =
            device.channel(&ChannelOptions { policy: Some(policy), ..ChannelOptions::default() });
        let channel = AsyncChannel::new(channel.expect("a channel"));
        let executor = Executor::new(&channel).expect("the first");
        let remote = Arc::<Remote>::default();
        let thread = std::thread::spawn({
            let remote = Arc::clone(&remote);
            move || {
                std::thread::sleep(Duration::from_millis(20));
                remote.set();
            }
        });
        let reading = channel.clone();
        let read =
            async move { reading.read(0, reading.alloc(512).expect("memory")).await.map(drop) };
        executor.spawn(read).detach();
        executor.block_on(remote.wait());
        assert_eq!(channel.in_flight(), 1, "{policy}: it waited for the device instead");
        thread.join().expect("no panic");
        // The read is not waited for.
        device.controller().reset_now();
    }
}

/// The stepped device, so that no real time passes: a lost command's deadline ends the wait of the
/// executor.
#[test]
fn deadlines_are_kept_while_tasks_wait() {
    let rig = Rig::with(ssd("optane"), rig_options(2_000_000));
    let executor = executor(&rig, 4);
    for policy in [Policy::Poll, Policy::Interrupt, Policy::HybridFixed(5_000)] {
        executor.channel().set_policy(policy).expect("it has both queues");
        rig.ssd.set_faults(LOST);
        let buf = executor.channel().alloc(512).expect("memory");
        let result = executor.block_on(executor.channel().read(0, buf));
        result.expect_err("lost");
        rig.ssd.set_faults(meantime_ssd::FaultPlan::NONE);
        executor.block_on(executor.channel().flush()).expect("flushed");
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// Wherever a panic occurs and is caught, the other tasks run on, and the executor keeps track of
/// which tasks have ended.
#[test]
fn a_panic_anywhere_leaves_the_other_tasks_ready() {
    let rig = Rig::new(ssd("null"));
    let executor = executor(&rig, 4);

    let others: Vec<_> = (0..70).map(|n| executor.spawn(async move { n })).collect();
    let root = catch_unwind(AssertUnwindSafe(|| executor.block_on(async { panic!("root") })));
    assert!(root.is_err());
    let sum = executor.block_on(async {
        let mut sum = 0;
        for other in others {
            sum += other.await;
        }
        sum
    });
    assert_eq!(sum, (0..70).sum::<i32>());

    // A future that panics while it is dropped: that is its outcome.
    let bomb = Bomb;
    let task = executor.spawn(poll_fn(move |_| {
        let _ = &bomb;
        Poll::Ready(())
    }));
    let other = executor.spawn(async { 1 });
    executor.run();
    assert!(catch_unwind(AssertUnwindSafe(|| executor.block_on(task))).is_err());
    assert_eq!(executor.block_on(other), 1);

    // An output that panics while it is dropped, and that no handle awaits: out of the executor,
    // which goes on.
    executor.spawn(async { Bomb }).detach();
    let other = executor.spawn(async { 2 });
    assert!(catch_unwind(AssertUnwindSafe(|| executor.run())).is_err());
    assert_eq!(executor.block_on(other), 2);
    executor.run();
}
