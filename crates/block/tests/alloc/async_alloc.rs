//! No allocation for an I/O by a future: not in the channel, not in our executor, nor where futures
//! wait for room.

use std::cell::Cell;
use std::rc::Rc;

use meantime_block::{
    AsyncChannel, BlockDevice, ChannelOptions, Executor, NvmeChannel, OpenOptions, open_nvme,
};

use meantime_completion::Policy;
use meantime_testkit::alloc::allocations;

const TASKS: usize = 64;
const WARM_UP: u32 = 50;
const IOS: u32 = 500;

/// Waits until `count` tasks are here.
async fn meet(here: &Cell<usize>, count: usize) {
    here.set(here.get() + 1);
    std::future::poll_fn(|cx| {
        if here.get() >= count {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
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
    let channel: AsyncChannel<NvmeChannel> =
        AsyncChannel::new(device.channel(&options).expect("a channel"));
    let executor = Executor::new(&channel).expect("the first");
    let [begin, end] = [(), ()].map(|()| Rc::new(Cell::new(0)));
    for task in 0..TASKS as u64 {
        let (channel, begin, end) = (channel.clone(), Rc::clone(&begin), Rc::clone(&end));
        let task = async move {
            let mut buf = channel.alloc(4096).expect("memory");
            for n in 0..WARM_UP + IOS {
                if n == WARM_UP {
                    meet(&begin, TASKS + 1).await;
                }
                buf = channel.read(task * 8, buf).await.expect("read");
            }
            // Not freed before the count was taken.
            meet(&end, TASKS + 1).await;
        };
        executor.spawn(task).detach();
    }
    let counted = executor.block_on(async {
        meet(&begin, TASKS + 1).await;
        let before = allocations();
        // Last, so that it goes on as soon as all the others are there.
        while end.get() < TASKS {
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if end.get() < TASKS {
                    std::task::Poll::Pending
                } else {
                    std::task::Poll::Ready(())
                }
            })
            .await;
        }
        let counted = allocations() - before;
        end.set(TASKS + 1);
        counted
    });
    assert_eq!(counted, 0, "allocations on the path of an I/O");
    executor.run();
    let before = allocations();
    drop(vec![1u8; 10]);
    assert!(allocations() > before, "the counter does count");
}
