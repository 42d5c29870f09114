//! No allocation for an I/O while there is deferred work, nor for its pieces: what is needed was
//! allocated when it was handed over.

use std::task::Poll;

use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, OpenOptions, Request, open_nvme,
};
use meantime_completion::{Pieces, Policy, Progress};
use meantime_hw::DmaBuf;

use meantime_testkit::alloc::allocations;

fn reads(channel: &mut NvmeChannel, bufs: &mut Vec<DmaBuf>, ios: u64) {
    for n in 0..ios {
        let buf = bufs.pop().expect("a buffer");
        let ticket = channel.submit(Request::read(n * 8 % 1024, buf)).expect("room for one");
        bufs.extend(channel.wait(ticket).buf);
        if n % 8 == 0 {
            while let Some(buf) = bufs.pop() {
                channel.enqueue(Request::read(64, buf)).expect("room for four");
            }
            while let Some(done) = channel.wait_done() {
                bufs.extend(done.buf);
            }
        }
    }
}

#[test]
fn nothing_is_allocated_or_freed_by_an_io_with_work() {
    let device =
        open_nvme("mem:64M?model=optane", &OpenOptions::default()).expect("a software SSD");
    for policy in [Policy::Poll, Policy::HybridFixed(2_000), Policy::Interrupt] {
        let options = ChannelOptions {
            depth: 4,
            policy: Some(policy),
            interrupt: Some(true),
            ..ChannelOptions::default()
        };
        let mut channel = device.channel(&options).expect("a channel");
        let mut bufs: Vec<_> = (0..4).map(|_| channel.alloc(4096).expect("memory")).collect();
        // Some that always go on, and some that go to and fro between those that can and those that
        // cannot.
        for n in 0..50u64 {
            let endless = Pieces::new(500, || Progress::More);
            channel.defer(Box::new(endless.patience_ns(n % 5 * 100_000))).expect("room");
            let woken = std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::Pending
            });
            channel
                .defer(Box::new(Pieces::future(500, woken).patience_ns(n % 7 * 10_000)))
                .expect("room");
        }
        reads(&mut channel, &mut bufs, 50);
        let (before, pieces) = (allocations(), channel.counters().work.pieces);
        reads(&mut channel, &mut bufs, 500);
        assert_eq!(allocations() - before, 0, "{policy}: allocations on the path of an I/O");
        assert!(channel.counters().work.pieces > pieces + 500, "{policy}: work was done");
        // Not run to their ends, which they have not.
        std::mem::forget(channel);
    }
}
