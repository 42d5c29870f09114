//! The cost of a read at depth 1 through C and through Rust: medians of alternating pairs, on one
//! device.
//!
//! `cargo bench -p meantime-capi --bench thunks`.

use std::error::Error;
use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::ptr::{null, null_mut};

use meantime_block::{
    BlockChannel, BlockDevice, Channel, ChannelOptions, OpenOptions, Request, open,
};
use meantime_c::abi;
use meantime_c::{buf, channel, device};
use meantime_hw::{Clock, DmaBuf, cpu};

const PAIRS: usize = 31;
const READS: usize = 20_000;
const BLOCKS: u64 = (256 << 20) / 512;

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = cpu::allowed();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    cpu::bind(&[first])?;
    let uri = format!("mem:256M?cpu={last}");
    // Two devices: the SSD's thread of the unused one sleeps.
    let rust = open(&uri, &OpenOptions::default())?;
    let mut rust = Rust { channel: rust.channel(&ChannelOptions::default())?, buf: None };
    rust.buf = Some(rust.channel.alloc(512)?);
    let mut c = C::open(&CString::new(uri)?)?;
    let (mut rust_ns, mut c_ns, mut ratios) = (vec![], vec![], vec![]);
    for pair in 0..PAIRS {
        // They alternate, because the second finds other caches and another frequency.
        let (a, b) = if pair % 2 == 0 {
            let a = median_ns(|lba| rust.read(lba));
            (a, median_ns(|lba| c.read(lba)))
        } else {
            let b = median_ns(|lba| c.read(lba));
            (median_ns(|lba| rust.read(lba)), b)
        };
        rust_ns.push(a);
        c_ns.push(b);
        ratios.push(b / a);
    }
    println!(
        "512 B depth 1: Rust {:.0} ns, C {:.0} ns, ratio {:.3} (quartiles {:.3} to {:.3})",
        quantile(&mut rust_ns, 2),
        quantile(&mut c_ns, 2),
        quantile(&mut ratios, 2),
        quantile(&mut ratios, 1),
        quantile(&mut ratios, 3),
    );
    Ok(())
}

fn quantile(values: &mut [f64], quarter: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * quarter / 4]
}

fn median_ns(mut read: impl FnMut(u64)) -> f64 {
    let clock = Clock::real();
    let mut state = 7u64;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lba = (state >> 33) % BLOCKS;
        let start_ns = clock.now_ns();
        read(lba);
        times.push(clock.now_ns() - start_ns);
    }
    let mut times = times.split_off(READS / 10);
    times.sort_unstable();
    times[times.len() / 2] as f64
}

struct Rust {
    channel: Channel,
    buf: Option<DmaBuf>,
}

impl Rust {
    fn read(&mut self, lba: u64) {
        let buf = self.buf.take().expect("it came back");
        let ticket = self.channel.submit(Request::read(lba, buf)).expect("room for one");
        let done = self.channel.wait(ticket);
        done.result.expect("a read");
        self.buf = done.buf;
    }
}

/// The functions' addresses, as used by a C program.
struct C {
    submit:
        unsafe extern "C" fn(*mut channel::MtChannel, *const abi::Request, *mut abi::Ticket) -> i32,
    wait: unsafe extern "C" fn(*mut channel::MtChannel, abi::Ticket, *mut abi::Outcome) -> i32,
    channel: *mut channel::MtChannel,
    buf: *mut buf::Buf,
}

impl C {
    fn open(uri: &CStr) -> Result<Self, Box<dyn Error>> {
        let (mut device, mut channel, mut buf) = (null_mut(), null_mut(), null_mut());
        // SAFETY: a text that ends, and places on the stack.
        let failed = unsafe {
            device::mt_open(uri.as_ptr(), &mut device) != 0
                || channel::mt_channel_open(device, null(), &mut channel) != 0
                || buf::mt_alloc(device, 512, &mut buf) != 0
        };
        if failed {
            return Err("no device for C".into());
        }
        let (submit, wait) = (black_box(channel::mt_submit as _), black_box(channel::mt_wait as _));
        Ok(Self { submit, wait, channel, buf })
    }

    fn read(&mut self, lba: u64) {
        let op = abi::MT_READ;
        let request =
            abi::Request { op, flags: 0, lba, blocks: 0, buf: self.buf, policy: 0, user_data: 0 };
        let mut ticket = abi::Ticket { id: 0 };
        // SAFETY: handles that are open, and places on the stack.
        unsafe {
            assert_eq!((self.submit)(self.channel, &request, &mut ticket), 0);
            assert_eq!((self.wait)(self.channel, ticket, null_mut()), 0);
        }
    }
}
