//! What a single future does: which is woken when, which gets room, what comes back.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use meantime_block::{
    AsyncChannel, BlockChannel, DriverTaken, NvmeChannel, Request, RequestError, SharedChannel,
    SubmitError,
};
use meantime_completion::Policy;
use meantime_nvme::CommandError;
use meantime_testkit::rig::{LOST, MS, Rig, ssd};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::<Self>::default();
        (Arc::clone(&count), Waker::from(count))
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

fn channel(rig: &Rig, depth: u16) -> AsyncChannel<NvmeChannel> {
    AsyncChannel::new(rig.channel(depth))
}

fn assert_send<T: Send>(_: &T) {}

#[test]
fn shared_channels_and_their_futures_are_send() {
    let rig = Rig::new(ssd("null"));
    let channel: SharedChannel<NvmeChannel> = AsyncChannel::shared(rig.channel(4));
    assert_send(&channel);
    let buf = channel.alloc(512).expect("memory");
    assert_send(&channel.read(0, buf));
    assert_send(&channel.flush());
    assert_send(&channel.submit(Request::flush()));
    assert_send(&channel.driver().expect("the first"));
    let task = {
        let channel = channel.clone();
        async move {
            let buf = channel.alloc(512).expect("memory");
            channel.write(0, buf).await
        }
    };
    assert_send(&task);
}

#[test]
fn a_driver_wakes_each_future_once_and_nothing_else_does() {
    let rig = Rig::new(ssd("optane"));
    let channel = channel(&rig, 4);
    let driver = channel.driver().expect("the first");
    assert_eq!(channel.driver().err(), Some(DriverTaken));
    let (count, waker) = Count::new();
    let mut read = pin!(channel.read(0, channel.alloc(512).expect("memory")));
    for _ in 0..3 {
        assert!(poll(read.as_mut(), &waker).is_pending());
    }
    assert_eq!(count.get(), 0);
    assert_eq!(driver.wait(), 1);
    assert_eq!(count.get(), 1);
    assert!(poll(read, &waker).is_ready());
    assert_eq!((driver.wait(), count.get()), (0, 1));
}

#[test]
fn without_a_driver_a_future_looks_and_wakes_itself() {
    let rig = Rig::new(ssd("optane"));
    let channel = channel(&rig, 4);
    let (count, waker) = Count::new();
    let mut read = pin!(channel.read(0, channel.alloc(512).expect("memory")));
    let mut polls = 0;
    while poll(read.as_mut(), &waker).is_pending() {
        polls += 1;
        assert_eq!(count.get(), polls, "as often woken as polled, or an executor would forget it");
        assert!(polls < 10_000);
    }
    assert!(polls > 1);
}

#[test]
fn when_the_driver_goes_futures_look_again() {
    let rig = Rig::new(ssd("optane"));
    let channel = channel(&rig, 1);
    let driver = channel.driver().expect("the first");
    let ((sent, sent_waker), (waits, waits_waker)) = (Count::new(), Count::new());
    let mut first = pin!(channel.flush());
    let mut second = pin!(channel.flush());
    assert!(poll(first.as_mut(), &sent_waker).is_pending());
    assert!(poll(second.as_mut(), &waits_waker).is_pending());
    drop(driver);
    assert_eq!((sent.get(), waits.get()), (1, 1));
    while poll(first.as_mut(), &sent_waker).is_pending() {}
    while poll(second.as_mut(), &waits_waker).is_pending() {}
}

#[test]
fn room_goes_to_waiters_in_order() {
    let rig = Rig::new(ssd("optane"));
    let channel = channel(&rig, 2);
    let driver = channel.driver().expect("the first");
    let counts: Vec<_> = (0..6).map(|_| Count::new()).collect();
    let mut futures: Vec<_> = (0..6).map(|_| Box::pin(channel.flush())).collect();
    let mut ended = Vec::new();
    for (future, (_, waker)) in futures.iter_mut().zip(&counts) {
        assert!(poll(future.as_mut(), waker).is_pending());
    }
    assert_eq!((channel.in_flight(), channel.room()), (2, 0));
    while ended.len() < 6 {
        driver.wait();
        // The last is asked first: it must not overtake.
        for at in (0..6).rev() {
            if !ended.contains(&at) && poll(futures[at].as_mut(), &counts[at].1).is_ready() {
                ended.push(at);
            }
        }
    }
    let generation: Vec<_> = ended.iter().map(|at| at / 2).collect();
    assert_eq!(generation, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn a_waiter_that_is_dropped_passes_its_room_on() {
    let rig = Rig::new(ssd("optane"));
    let channel = channel(&rig, 1);
    let driver = channel.driver().expect("the first");
    let ((told, told_waker), (next, next_waker)) = (Count::new(), Count::new());
    let mut first = Box::pin(channel.flush());
    assert!(poll(first.as_mut(), &told_waker).is_pending());
    let mut dropped = Box::pin(channel.flush());
    assert!(poll(dropped.as_mut(), &told_waker).is_pending());
    let mut last = Box::pin(channel.flush());
    assert!(poll(last.as_mut(), &next_waker).is_pending());
    driver.wait();
    assert!(poll(first.as_mut(), &told_waker).is_ready());
    assert_eq!((told.get(), next.get()), (2, 0), "the second was told of its room");
    drop(dropped);
    assert_eq!(next.get(), 1, "and did not take it");
    assert!(poll(last.as_mut(), &next_waker).is_pending());
    assert_eq!(driver.wait(), 1);
    assert!(poll(last.as_mut(), &next_waker).is_ready());
}

#[test]
fn an_abandoned_request_makes_room_when_it_ends() {
    let rig = Rig::new(ssd("optane"));
    for attended in [true, false] {
        let channel = channel(&rig, 1);
        let driver = attended.then(|| channel.driver().expect("the first"));
        let (count, waker) = Count::new();
        let mut abandoned = Box::pin(channel.flush());
        assert!(poll(abandoned.as_mut(), &waker).is_pending());
        let mut waits = pin!(channel.flush());
        assert!(poll(waits.as_mut(), &waker).is_pending());
        drop(abandoned);
        assert_eq!(channel.in_flight(), 1);
        loop {
            let woken = count.get();
            if let Some(driver) = &driver {
                driver.wait();
                assert!(count.get() > woken, "no task would poll it again");
            }
            if poll(waits.as_mut(), &waker).is_ready() {
                break;
            }
        }
    }
}

#[test]
fn buffers_of_dropped_futures_come_back_when_the_device_is_done() {
    let rig = Rig::new(ssd("optane"));
    let channel = channel(&rig, 1);
    let driver = channel.driver().expect("the first");
    let heap = rig.device.heap();
    let before = heap.allocated_bytes();
    let alloc = || channel.alloc(4096).expect("memory");
    // Never polled: at once.
    drop(channel.read(0, alloc()));
    assert_eq!(heap.allocated_bytes(), before);
    // In flight: with its completion, though that is late.
    rig.ssd.set_faults(meantime_testkit::rig::late(MS));
    let mut in_flight = Box::pin(channel.read(0, alloc()));
    assert!(poll(in_flight.as_mut(), Waker::noop()).is_pending());
    // Waiting for room: at once.
    let mut waiting = Box::pin(channel.read(0, alloc()));
    assert!(poll(waiting.as_mut(), Waker::noop()).is_pending());
    assert_eq!(heap.allocated_bytes(), before + 8192);
    drop(waiting);
    assert_eq!(heap.allocated_bytes(), before + 4096);
    drop(in_flight);
    assert_eq!(heap.allocated_bytes(), before + 4096);
    driver.process();
    assert_eq!(heap.allocated_bytes(), before + 4096, "the device may write to it still");
    assert_eq!(driver.wait(), 1);
    assert_eq!(heap.allocated_bytes(), before);
    // Ended, and never asked for.
    rig.ssd.set_faults(meantime_ssd::FaultPlan::NONE);
    let mut ended = Box::pin(channel.read(0, alloc()));
    assert!(poll(ended.as_mut(), Waker::noop()).is_pending());
    driver.wait();
    drop(ended);
    assert_eq!((heap.allocated_bytes(), channel.room()), (before, 1));
}

#[test]
fn the_last_handle_waits_for_what_is_in_flight() {
    let rig = Rig::new(ssd("optane"));
    let before = rig.device.heap().allocated_bytes();
    let channel = channel(&rig, 4);
    rig.ssd.set_faults(LOST);
    let mut read = Box::pin(channel.read(0, channel.alloc(4096).expect("memory")));
    assert!(poll(read.as_mut(), Waker::noop()).is_pending());
    drop(read);
    let channel = channel.into_channel().err().expect("a request is under way");
    drop(channel);
    assert_eq!(rig.device.heap().allocated_bytes(), before);
    assert_eq!(rig.device.heap().quarantined_bytes(), 0);
}

#[test]
fn errors_come_out_and_rejected_requests_come_back_whole() {
    let rig = Rig::new(ssd("optane"));
    let channel = channel(&rig, 1);
    let buf = channel.alloc(4096).expect("memory");
    let iova = buf.iova();
    let request = Request::read(1 << 40, buf).user_data(77);
    let rejected = pollster::block_on(channel.submit(request)).expect_err("beyond the end");
    assert!(matches!(rejected.error, SubmitError::OutOfRange { .. }));
    assert_eq!(rejected.request.user_data, 77);
    assert_eq!(rejected.request.buf.map(|buf| buf.iova()), Some(iova));
    assert_eq!(channel.room(), 1, "it takes no slot");

    rig.ssd.set_faults(LOST);
    let buf = channel.alloc(4096).expect("memory");
    let error = pollster::block_on(channel.write(0, buf)).expect_err("lost");
    assert!(matches!(error, RequestError::Failed(error) if error.kind == CommandError::TimedOut));
    rig.ssd.set_faults(meantime_ssd::FaultPlan::NONE);
    let done = pollster::block_on(channel.submit(Request::flush().user_data(5))).expect("taken");
    assert_eq!((done.result, done.user_data), (Ok(()), 5), "no error is left from the one before");
}

#[test]
fn a_channel_becomes_synchronous_again() {
    let rig = Rig::new(ssd("null"));
    let channel = channel(&rig, 2);
    assert_eq!(channel.set_policy(Policy::Interrupt), Ok(()));
    let driver = channel.driver().expect("the first");
    let channel = channel.into_channel().err().expect("the driver has a handle");
    drop(driver);
    let mut channel = channel.into_channel().expect("the last handle");
    assert_eq!(channel.policy(), Policy::Interrupt);
    channel.flush().expect("flushed");
}
