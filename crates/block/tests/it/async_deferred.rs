//! Deferred work beside tasks: what a channel runs while an executor waits, and tasks that are
//! polled only in the gap.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use meantime_block::{AsyncChannel, Executor, NvmeChannel};
use meantime_completion::{Pieces, Progress};
use meantime_testkit::rig::{Rig, US, ssd};

fn executor(rig: &Rig, depth: u16) -> Executor<NvmeChannel> {
    Executor::new(&AsyncChannel::new(rig.channel(depth))).expect("the first")
}

async fn read(channel: &AsyncChannel<NvmeChannel>) {
    let buf = channel.alloc(512).expect("memory");
    channel.read(0, buf).await.expect("read");
}

#[test]
fn work_is_done_while_the_executor_waits_for_the_device() {
    let rig = Rig::new(ssd("optane"));
    let executor = executor(&rig, 4);
    let (clock, ran) = (rig.ssd.clock(), Arc::<AtomicU64>::default());
    let counted = Arc::clone(&ran);
    let work = Pieces::new(US, move || {
        clock.advance(US);
        if counted.fetch_add(1, Ordering::Relaxed) < 100 { Progress::More } else { Progress::Done }
    });
    let channel = executor.channel();
    channel.defer(Box::new(work)).expect("room");
    executor.block_on(async {
        for _ in 0..200 {
            read(channel).await;
        }
    });
    assert_eq!((ran.load(Ordering::Relaxed), channel.deferred()), (101, 0));
    let counters = channel.inspect(|channel| channel.counters().work);
    assert_eq!((counters.forced, counters.panics), (0, 0));
    assert!(counters.late <= 10, "{counters:?}");
}

/// Nothing is under way: all the time is free.
#[test]
fn an_idle_executor_does_deferred_work() {
    let rig = Rig::new(ssd("optane"));
    let executor = executor(&rig, 1);
    let channel = executor.channel().clone();
    let done = Arc::new(Mutex::new(None::<Waker>));
    let told = Arc::clone(&done);
    // Larger than any gap; its end is what the task waits for, and it panics on the way.
    channel
        .defer(Box::new(Pieces::once(u64::MAX, || panic!("not out of block_on"))))
        .expect("room");
    let work = Pieces::once(u64::MAX, move || {
        if let Some(waker) = told.lock().unwrap().take() {
            waker.wake();
        }
    });
    channel.defer(Box::new(work)).expect("room");
    let mut polls = 0;
    executor.block_on(poll_fn(|cx| {
        polls += 1;
        if polls > 1 && channel.deferred() == 0 {
            return Poll::Ready(());
        }
        *done.lock().unwrap() = Some(cx.waker().clone());
        Poll::Pending
    }));
    assert_eq!(channel.inspect(|channel| channel.counters().work.panics), 1);
}

/// Deferred work that another thread wakes gets the executor out of its sleep.
#[test]
fn a_sleeping_executor_hears_of_deferred_work_that_goes_on() {
    let rig = Rig::new(ssd("optane"));
    let executor = executor(&rig, 1);
    let channel = executor.channel().clone();
    let task = Arc::new(Mutex::new(None::<Waker>));
    let told = Arc::clone(&task);
    let mut waking = None;
    let work = poll_fn(move |cx| {
        if waking.is_none() {
            let waker = cx.waker().clone();
            let wake = move || {
                std::thread::sleep(Duration::from_millis(50));
                waker.wake();
            };
            waking = Some(std::thread::spawn(wake));
            return Poll::Pending;
        }
        if let Some(waker) = told.lock().unwrap().take() {
            waker.wake();
        }
        Poll::Ready(())
    });
    channel.defer(Box::new(Pieces::future(US, work))).expect("room");
    executor.block_on(poll_fn(|cx| {
        *task.lock().unwrap() = Some(cx.waker().clone());
        if channel.deferred() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }));
}

/// It wakes a task, which goes on although the I/O is still under way.
#[test]
fn a_task_that_work_has_woken_need_not_wait_for_the_device() {
    let rig = Rig::new(ssd("nand"));
    let executor = executor(&rig, 2);
    let channel = executor.channel().clone();
    let (ready, order) = (Arc::<AtomicU64>::default(), Rc::<RefCell<Vec<&str>>>::default());
    let reader = executor.spawn({
        let (channel, order) = (channel.clone(), Rc::clone(&order));
        async move {
            read(&channel).await;
            order.borrow_mut().push("read");
        }
    });
    executor.block_on(async {
        let mut handed = false;
        poll_fn(|cx| {
            if !std::mem::replace(&mut handed, true) {
                let (waker, ready) = (cx.waker().clone(), Arc::clone(&ready));
                let work = move || {
                    ready.store(1, Ordering::Relaxed);
                    waker.wake();
                };
                channel.defer(Box::new(Pieces::once(US, work))).expect("room");
            }
            if ready.load(Ordering::Relaxed) == 1 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        order.borrow_mut().push("woken");
        reader.await;
    });
    assert_eq!(*order.borrow(), ["woken", "read"]);
}

/// Polled in gaps that they fit into, with the channel at hand, and like other tasks in all else.
#[test]
fn deferred_tasks_run_in_the_gap() {
    let rig = Rig::new(ssd("optane"));
    let executor = executor(&rig, 4);
    let clock = rig.ssd.clock();
    let turns = Rc::new(Cell::new(0));
    let deferred = executor.spawn_deferred(US, {
        let (clock, turns, channel) =
            (clock.clone(), Rc::clone(&turns), executor.channel().clone());
        async move {
            for _ in 0..50 {
                clock.advance(US);
                turns.set(turns.get() + 1);
                yield_now().await;
            }
            read(&channel).await;
            "the end"
        }
    });
    // Too large for any gap here, until it has waited too long, or nothing is under way.
    let large = executor.spawn_deferred(1_000 * US, async { panic!("its handle's") });
    let channel = executor.channel();
    executor.block_on(async {
        while !deferred.is_finished() {
            read(channel).await;
        }
        assert_eq!((deferred.await, turns.get()), ("the end", 50));
    });
    executor.spawner().spawn_deferred(US, async {}).detach();
    executor.spawn_deferred(US, std::future::pending::<()>()).cancel();
    executor.run();
    assert!(catch_unwind(AssertUnwindSafe(|| executor.block_on(large))).is_err());
}

/// With requests under way at any time, and none of them long enough.
#[test]
fn deferred_tasks_do_not_starve() {
    let rig = Rig::new(ssd("optane"));
    let executor = executor(&rig, 4);
    let large = executor.spawn_deferred(u64::MAX, async { 7 });
    let channel = executor.channel();
    executor.block_on(async {
        // By the clock of the machine, 10 ms later.
        while !large.is_finished() {
            read(channel).await;
        }
        assert_eq!(large.await, 7);
    });
}

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
