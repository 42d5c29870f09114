//! No allocation for an I/O by a future: not in the channel, nor where futures wait for room.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use meantime_block::{
    AsyncChannel, BlockDevice, ChannelOptions, NvmeChannel, OpenOptions, open_nvme,
};

use meantime_completion::Policy;
use meantime_testkit::alloc::allocations;

const TASKS: usize = 64;
const IOS: u64 = 500;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Polls each of `tasks` in turn, and looks at the queue in between, until all have ended.
fn run(channel: &AsyncChannel<NvmeChannel>, tasks: &mut [Task]) {
    let driver = channel.driver().expect("the only one");
    let mut cx = Context::from_waker(Waker::noop());
    let mut left: u64 = !0;
    while left != 0 {
        for (at, task) in tasks.iter_mut().enumerate() {
            if left & 1 << at != 0 && task.as_mut().poll(&mut cx) == Poll::Ready(()) {
                left &= !(1 << at);
            }
        }
        driver.process();
    }
}

fn tasks(channel: &AsyncChannel<NvmeChannel>) -> Vec<Task> {
    let task = |task: u64| -> Task {
        let channel = channel.clone();
        let mut buf = Some(channel.alloc(4096).expect("memory"));
        Box::pin(async move {
            for _ in 0..IOS {
                let read = channel.read(task * 8, buf.take().expect("it came back"));
                buf = Some(read.await.expect("read"));
            }
        })
    };
    (0..TASKS as u64).map(task).collect()
}

#[test]
fn nothing_is_allocated_for_an_io() {
    let device = open_nvme("mem:64M", &OpenOptions::default()).expect("a software SSD");
    // Half of the tasks wait for room at any time.
    let options = ChannelOptions {
        depth: TASKS as u16 / 2,
        policy: Some(Policy::Poll),
        ..ChannelOptions::default()
    };
    let channel = AsyncChannel::new(device.channel(&options).expect("a channel"));
    run(&channel, &mut tasks(&channel));
    let mut tasks = tasks(&channel);
    let before = allocations();
    run(&channel, &mut tasks);
    assert_eq!(allocations(), before, "allocations on the path of an I/O");
    drop(vec![1u8; 10]);
    assert!(allocations() > before, "the counter does count");
}
