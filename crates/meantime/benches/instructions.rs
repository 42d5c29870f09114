//! Instructions of one 4 KiB read, submit and reap, polling excluded: counted by callgrind against
//! the stepped SSD, which runs between the two and is not counted. The same binary and toolchain
//! give the same number on any machine. Once by a ticket, and once as a future beside a driver.
//!
//! `cargo bench -p meantime --bench instructions` runs itself under valgrind, prints the counts,
//! and fails above the limits.

use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use meantime_block::{
    AsyncChannel, BlockChannel, BlockDevice, ChannelOptions, Done, Driver, NvmeChannel, NvmeDevice,
    Request,
};
use meantime_completion::Policy;
use meantime_hw::DmaBuf;
use meantime_hw::soft::SoftTransport;
use meantime_nvme::{Controller, ControllerOptions};
use meantime_nvme_spec::soft_port::VirtualClock;
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};

/// Enough that one-time work of the first reads (learning, the device's start) is negligible.
const READS: u64 = 20_000;
const LIMIT: u64 = 250;
const ASYNC_LIMIT: u64 = 880;

/// The counted code: submit, and reap the completion.
#[inline(never)]
fn counted_read(
    channel: &mut NvmeChannel,
    clock: &dyn VirtualClock,
    lba: u64,
    buf: DmaBuf,
) -> Done {
    let ticket = match channel.submit(Request::read(lba, buf)) {
        Ok(ticket) => ticket,
        Err(rejected) => panic!("{rejected}"),
    };
    device_works(clock);
    channel.wait(ticket)
}

/// The counted code: all work of a future and the driver for its reads, except waiting.
#[inline(never)]
fn counted_async_reads(driver: &Driver<NvmeChannel>, clock: &dyn VirtualClock, mut buf: DmaBuf) {
    let mut cx = Context::from_waker(Waker::noop());
    for n in 0..READS {
        let mut read = pin!(driver.channel().read(n * 8 % 4096, buf));
        buf = loop {
            match read.as_mut().poll(&mut cx) {
                Poll::Ready(Ok(buf)) => break buf,
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => {
                    device_works(clock);
                    driver.process();
                }
            }
        };
    }
}

/// Lets the stepped SSD execute the command. Entering this function turns counting off, leaving it
/// turns it on again.
#[inline(never)]
fn device_works(clock: &dyn VirtualClock) {
    clock.advance(10_000);
}

fn body(counted: &str) {
    let config = SsdConfig::with_namespace(16 << 20, 512);
    let ssd =
        SteppedSsd::new(config, Medium::dram(16 << 20).expect("memory"), 1).expect("a stepped SSD");
    // SAFETY: the port has no other user.
    let transport = unsafe { SoftTransport::new(ssd.port(), "stepped".into(), None) };
    let controller =
        Controller::enable(Arc::new(transport), ControllerOptions::default()).expect("enabled");
    let device = NvmeDevice::new(controller, 1, "stepped".into()).expect("a namespace");
    let mut channel = device
        .channel(&ChannelOptions { policy: Some(Policy::Poll), ..ChannelOptions::default() })
        .expect("a channel");
    let clock = ssd.clock();
    let mut buf = channel.alloc(4096).expect("memory");
    // Only one of them: each toggles the counting.
    if counted == "counted_read" {
        for n in 0..READS {
            let done = counted_read(&mut channel, clock.as_ref(), n * 8 % 4096, buf);
            assert!(done.result.is_ok());
            buf = done.buf.expect("the buffer");
        }
        return;
    }
    let channel = AsyncChannel::new(channel);
    let driver = channel.driver().expect("nobody else drives it");
    counted_async_reads(&driver, clock.as_ref(), buf);
}

/// Instructions per read in the function `counted`.
fn count(counted: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .args(["--toggle-collect=*device_works*"])
        // The stepped SSD also works during clock readings, which with a real device are rdtsc.
        .args(["--toggle-collect=*VirtualClock*now_ns*"])
        .arg(format!("--toggle-collect=*{counted}*"))
        .arg(std::env::current_exe().expect("our own name"))
        .env("MEANTIME_COUNTED", counted)
        .output()
        .expect("valgrind runs (install it, e.g. by `make setup-test`)");
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split("Collected :").nth(1))
        .unwrap_or_else(|| panic!("no count in valgrind's output:\n{said}"));
    collected.trim().parse::<u64>().expect("a number") / READS
}

fn main() {
    if let Ok(counted) = std::env::var("MEANTIME_COUNTED") {
        return body(&counted);
    }
    for (what, counted, limit) in
        [("", "counted_read", LIMIT), (" as a future", "counted_async_reads", ASYNC_LIMIT)]
    {
        let instructions = count(counted);
        println!(
            "instructions of a 4 KiB read{what}, submit and reap: {instructions} (limit {limit})"
        );
        assert!(instructions > 50, "nothing was counted");
        assert!(instructions <= limit, "more instructions than the limit");
    }
}
