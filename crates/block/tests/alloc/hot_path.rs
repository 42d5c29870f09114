//! No allocation and no system call between submit and reap under `poll`: shown by a counting
//! allocator and by strace. (No lock follows from the second, and from there being none in `nvme/`
//! and `block/` but the admin queue's.)

use std::process::Command;

use meantime_baselines::published::{Published, register};
use meantime_block::{
    BlockChannel, BlockDevice, ChannelOptions, NvmeChannel, OpenOptions, Request, open_nvme,
};
use meantime_completion::{Goal, Policy};
use meantime_hw::DmaBuf;

use meantime_testkit::alloc::allocations;

fn channel() -> NvmeChannel {
    let device = open_nvme("mem:64M", &OpenOptions::default()).expect("a software SSD");
    let policy = Some(Policy::Poll);
    let options = ChannelOptions { depth: 32, policy, ..ChannelOptions::default() };
    let mut channel = device.channel(&options).expect("a channel");
    // On a machine whose CPUs are all busy the SSD's thread may not run for a while; that must not
    // end the polling.
    channel.set_spin_budget_ns(10_000_000_000);
    channel
}

/// Reads and writes at depth 1, by ticket.
fn depth_1(channel: &mut NvmeChannel, mut buf: DmaBuf, ios: u64) -> DmaBuf {
    for n in 0..ios {
        let lba = n * 8 % 1024;
        let request = if n % 2 == 0 { Request::read(lba, buf) } else { Request::write(lba, buf) };
        let ticket = channel.submit(request).expect("room for one");
        buf = channel.wait(ticket).buf.expect("the buffer");
    }
    buf
}

/// Reads at depth 32, whichever ends first.
fn depth_32(channel: &mut NvmeChannel, bufs: &mut Vec<DmaBuf>, ios: u64) {
    for _ in 0..ios / 32 {
        channel.plug();
        while let Some(buf) = bufs.pop() {
            channel.enqueue(Request::read(64, buf)).expect("room for 32");
        }
        channel.unplug();
        while let Some(done) = channel.wait_done() {
            bufs.extend(done.buf);
        }
    }
}

#[test]
fn nothing_is_allocated_or_freed() {
    let mut channel = channel();
    let large = channel.alloc(256 << 10).expect("memory");
    let mut bufs: Vec<_> = (0..32).map(|_| channel.alloc(4096).expect("memory")).collect();
    let large = depth_1(&mut channel, large, 10);
    let before = allocations();
    let large = depth_1(&mut channel, large, 1_000);
    depth_32(&mut channel, &mut bufs, 10_000);
    assert_eq!(allocations() - before, 0, "allocations on the path of an I/O");
    let mut large = large;
    let ours = [Policy::ADAPTIVE, Policy::Adaptive(Goal::P99(50_000))];
    let Published { hybrid_bucket, ehp, pas, dpas, .. } = register().expect("no other rules");
    for policy in [hybrid_bucket, ehp, pas, dpas].into_iter().chain(ours) {
        channel.set_policy(policy).expect("a polled policy");
        large = depth_1(&mut channel, large, 300);
        let before = allocations();
        large = depth_1(&mut channel, large, 1_000);
        assert_eq!(allocations() - before, 0, "allocations under {policy}");
    }
    // The counter does count.
    drop((vec![1u8; 10], large));
    assert!(allocations() > before);
}

/// The path under strace, between two marks. In a process of its own.
#[test]
fn traced_body() {
    if std::env::var_os("MEANTIME_TRACED").is_none() {
        return;
    }
    let mark = || {
        // An otherwise unused system call with a telling argument.
        // SAFETY: closing a descriptor that cannot exist has no effect.
        unsafe { libc::close(-4242) };
    };
    let mut channel = channel();
    let buf = channel.alloc(4096).expect("memory");
    let mut bufs: Vec<_> = (0..32).map(|_| channel.alloc(4096).expect("memory")).collect();
    let buf = depth_1(&mut channel, buf, 100);
    mark();
    let buf = depth_1(&mut channel, buf, 2_000);
    depth_32(&mut channel, &mut bufs, 3_200);
    mark();
    drop(buf);
}

/// The calls that strace saw between the marks, a line each.
fn calls_between_the_marks() -> Vec<String> {
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let traced = Command::new("strace")
        .args(["-f", "-o", trace.path().to_str().expect("a plain path")])
        .arg(std::env::current_exe().expect("our own name"))
        .args(["--exact", "hot_path::traced_body", "--test-threads=1"])
        .env("MEANTIME_TRACED", "1")
        .output();
    match traced {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("strace failed: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("cannot run strace ({error}): install it, e.g. by `make setup-test`"),
    }
    let text = std::fs::read_to_string(trace.path()).expect("the trace");
    let lines: Vec<&str> = text.lines().collect();
    // Without the closing parenthesis: strace breaks a call in two when another thread's comes
    // between.
    let is_mark = |at: &usize| lines[*at].contains("close(-4242");
    let marks: Vec<usize> = (0..lines.len()).filter(is_mark).collect();
    assert_eq!(marks.len(), 2, "the marks are in the trace");
    let thread = lines[marks[0]].split_whitespace().next().expect("a thread id");
    lines[marks[0] + 1..marks[1]]
        .iter()
        .filter(|line| line.split_whitespace().next() == Some(thread))
        // A preempted thread takes signals and restarts; neither is a call of ours, nor is the
        // second half of one. One exception: ringing the doorbell of a software SSD whose thread
        // has parked wakes it, and it parks when we are preempted for 2 ms.
        .filter(|line| {
            !["---", "restart_syscall", "resumed>", "FUTEX_WAKE"]
                .iter()
                .any(|part| line.contains(part))
        })
        .map(|line| (*line).to_owned())
        .collect()
}

/// A waiter leaves its CPU to a device's thread that stands still, by a call: where others take
/// both CPUs that happens, so one trace of several is to be without a call.
#[test]
fn no_system_call_is_made() {
    let mut calls = Vec::new();
    for _ in 0..50 {
        calls = calls_between_the_marks();
        if calls.is_empty() {
            return;
        }
    }
    calls.truncate(20);
    panic!("system calls on the path of an I/O, in each of 50 traces:\n{}", calls.join("\n"));
}
