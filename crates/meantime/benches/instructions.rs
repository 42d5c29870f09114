//! Instructions of one 4 KiB read, submit and reap, polling excluded: counted by callgrind against the stepped SSD, which runs
//! between the two and is not counted. The same binary and toolchain give the same number on any machine.
//!
//! `cargo bench -p meantime --bench instructions` runs itself under valgrind, prints the count, and fails above the limit.

use std::process::Command;
use std::sync::Arc;

use meantime::block::{BlockChannel, BlockDevice, ChannelOptions, Done, NvmeChannel, NvmeDevice, Request};
use meantime::hw::DmaBuf;
use meantime::hw::soft::SoftTransport;
use meantime::nvme::{Controller, ControllerOptions};
use meantime_spec::seam::VirtualClock;
use meantime_ssd::{Medium, SsdConfig, SteppedSsd};

const READS: u64 = 1_000;
const LIMIT: u64 = 250;

/// What is counted: submit, and wait for what is there.
#[inline(never)]
fn counted_read(channel: &mut NvmeChannel, clock: &dyn VirtualClock, lba: u64, buf: DmaBuf) -> Done {
    let ticket = match channel.submit(Request::read(lba, buf)) {
        Ok(ticket) => ticket,
        Err(rejected) => panic!("{rejected}"),
    };
    device_works(clock);
    channel.wait(ticket)
}

/// The stepped SSD executes the command. Entering this turns the counting off, leaving it turns it on again.
#[inline(never)]
fn device_works(clock: &dyn VirtualClock) {
    clock.advance(10_000);
}

fn body() {
    let config = SsdConfig::with_namespace(16 << 20, 512);
    let ssd = SteppedSsd::new(config, Medium::dram(16 << 20).expect("memory"), 1).expect("a stepped SSD");
    let transport = SoftTransport::new(ssd.port(), "stepped".into(), None);
    let controller = Controller::enable(Arc::new(transport), ControllerOptions::default()).expect("enabled");
    let device = NvmeDevice::new(controller, 1, "stepped".into()).expect("a namespace");
    let mut channel = device.channel(&ChannelOptions::default()).expect("a channel");
    let clock = ssd.clock();
    let mut buf = channel.alloc(4096).expect("memory");
    for n in 0..READS {
        let done = counted_read(&mut channel, clock.as_ref(), n * 8 % 4096, buf);
        assert!(done.result.is_ok());
        buf = done.buf.expect("the buffer");
    }
}

/// Instructions per read.
fn count() -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .args(["--toggle-collect=*counted_read*", "--toggle-collect=*device_works*"])
        .arg(std::env::current_exe().expect("our own name"))
        .env("MEANTIME_COUNTED", "1")
        .output()
        .expect("valgrind runs (install it, e.g. by `make setup`)");
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said
        .lines()
        .find_map(|line| line.split("Collected :").nth(1))
        .unwrap_or_else(|| panic!("no count in valgrind's output:\n{said}"));
    collected.trim().parse::<u64>().expect("a number") / READS
}

fn main() {
    if std::env::var_os("MEANTIME_COUNTED").is_some() {
        return body();
    }
    let instructions = count();
    println!("instructions of a 4 KiB read, submit and reap: {instructions} (limit {LIMIT})");
    assert!(instructions > 50, "nothing was counted");
    assert!(instructions <= LIMIT, "more instructions than the limit");
}
