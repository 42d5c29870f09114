//! A polled I/O through C, by `mt_submit` and `mt_wait` or by a group that does not sleep,
//! allocates nothing. (No lock and no system call follow from what the thunks call: the library's
//! path, which has a test of its own, and nothing else.)

use std::ptr::{null, null_mut};

use meantime_c::abi::{Entry, MT_DONE, MT_READ, MT_WRITE, Outcome, Request, Ticket};
use meantime_c::{buf, channel, device, group};

use meantime_testkit::alloc::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Does `count` reads and writes, first one at a time and then eight at once.
fn ios(channel: *mut channel::MtChannel, bufs: &[*mut buf::Buf; 8], count: u64) {
    let request = |n: u64, buf| {
        let op = if n.is_multiple_of(2) { MT_READ } else { MT_WRITE };
        Request { op, flags: 0, lba: n * 8 % 1024, blocks: 0, buf, policy: 0, user_data: n }
    };
    let mut result = Outcome { buf: null_mut(), user_data: 0, error: 1, reserved: 0 };
    for n in 0..count {
        let mut ticket = Ticket { id: 0 };
        // SAFETY: handles that are open, and places on the stack.
        unsafe {
            assert_eq!(channel::mt_submit(channel, &request(n, bufs[0]), &mut ticket), 0);
            assert_eq!(channel::mt_wait(channel, ticket, &mut result), 0);
        }
        assert_eq!((result.buf, result.user_data, result.error), (bufs[0], n, 0));
    }
    for _ in 0..count / 8 {
        // SAFETY: as above.
        unsafe {
            assert_eq!(channel::mt_plug(channel), 0);
            for (n, &buf) in bufs.iter().enumerate() {
                assert_eq!(channel::mt_enqueue(channel, &request(n as u64, buf)), 0);
            }
            assert_eq!(channel::mt_unplug(channel), 0);
            for _ in 0..8 {
                assert_eq!(channel::mt_wait_done(channel, &mut result), 1);
            }
        }
    }
}

/// Does `count` reads by a group, which has the channel under the key 7. The group only looks:
/// where it sleeps, since the SSD's thread gets no CPU for long, it allocates.
fn by_group(
    group: *mut group::MtGroup,
    channel: *mut channel::MtChannel,
    buf: *mut buf::Buf,
    count: u64,
) {
    let none = Outcome { buf: null_mut(), user_data: 0, error: 1, reserved: 0 };
    for n in 0..count {
        let request =
            Request { op: MT_READ, flags: 0, lba: 0, blocks: 0, buf, policy: 0, user_data: n };
        let mut ready = [Entry { key: 0, what: 0, reserved: 0, result: none }; 4];
        // SAFETY: handles that are open, and places on the stack.
        unsafe {
            assert_eq!(channel::mt_enqueue(channel, &request), 0);
            while group::mt_group_wait(group, ready.as_mut_ptr(), 4, 0) == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!((ready[0].key, ready[0].what, ready[0].result.user_data), (7, MT_DONE, n));
    }
}

#[test]
fn nothing_is_allocated_or_freed() {
    let (mut device, mut channel, mut bufs) = (null_mut(), null_mut(), [null_mut(); 8]);
    // SAFETY: places on the stack, and a text that ends.
    unsafe {
        assert_eq!(device::mt_open(c"mem:16M".as_ptr(), &mut device), 0);
        assert_eq!(channel::mt_channel_open(device, null(), &mut channel), 0);
        bufs.iter_mut().for_each(|buf| assert_eq!(buf::mt_alloc(device, 4096, buf), 0));
    }
    ios(channel, &bufs, 16);
    let before = allocations();
    ios(channel, &bufs, 400);
    assert_eq!(allocations() - before, 0, "allocations on the path of an I/O");
    let mut group = null_mut();
    // SAFETY: a place on the stack, and a handle that is open.
    unsafe {
        assert_eq!(group::mt_group_open(&mut group), 0);
        assert_eq!(group::mt_group_add_channel(group, channel, 7), 0);
    }
    by_group(group, channel, bufs[0], 16);
    let before_group = allocations();
    by_group(group, channel, bufs[0], 400);
    assert_eq!(allocations() - before_group, 0, "allocations on the path of a group");
    // SAFETY: handles that are open, for the last time.
    unsafe {
        assert_eq!(group::mt_group_close(group), 0);
        bufs.iter().for_each(|&buf| assert_eq!(buf::mt_free(buf), 0));
        assert_eq!((channel::mt_channel_close(channel), device::mt_close(device)), (0, 0));
    }
    // Checks that the counter works.
    assert!(allocations() > before);
}
