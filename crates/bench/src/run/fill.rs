//! Fills memory before it is read, as fio lays out a file before it reads it.
//!
//! All pages of a DRAM medium that were never written are the same page of zeroes, which stays in
//! the cache. Reads of them would be faster than any device's.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use meantime_block::{BlockChannel, BlockDevice, ChannelOptions, KernelDevice};
use meantime_hw::Clock;
use meantime_report::figures;

use super::devices::Devices;
use super::error::{RunError, fail};
use super::progress::Progress;
use crate::engine::{Engine, Faults, Limit, Slots, Unrecorded};
use crate::memory;
use crate::pattern::{Pattern, PatternSpec};
use crate::plan::JobPlan;

const BLOCK_BYTES: u64 = 256 << 10;
const DEPTH: u16 = 8;

/// Fills the parts of initially empty media that `plan` reads or writes, unless they were filled
/// before.
///
/// # Errors
/// Returns an error if the medium cannot be filled, or is a file with holes that `plan` would read.
pub fn fill(
    plan: &JobPlan,
    devices: &mut Devices,
    stop: &AtomicBool,
    progress: &impl Progress,
) -> Result<(), RunError> {
    if plan.verifies() && !plan.job.writes() {
        // An earlier job wrote the blocks that it checks.
        return Ok(());
    }
    for index in &plan.devices {
        if stop.load(Relaxed) {
            break;
        }
        let (offset_bytes, bytes) = plan.reach(devices.get(*index).info());
        let gaps = devices.take_unfilled(*index, offset_bytes..offset_bytes + bytes);
        if gaps.is_empty() {
            if let Some(device) = devices.get(*index).as_kernel() {
                check_holes(plan, device, offset_bytes, bytes, progress)?;
            }
            continue;
        }
        let uri = devices.uri(*index);
        let bytes: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
        if memory::available_bytes().is_some_and(|available_bytes| bytes > available_bytes / 2) {
            let size = figures::bytes(bytes);
            progress.warning(format_args!(
                "{uri}: too little memory to fill {size} beforehand: figures of reads will be too \
                 good"
            ));
            continue;
        }
        progress.filling(uri);
        for gap in gaps {
            fill_range(devices, *index, gap, stop)?;
        }
        if !stop.load(Relaxed) {
            devices.keep_filled(*index);
        }
    }
    Ok(())
}

/// Reads of unwritten blocks would not give the disk's figures.
fn check_holes(
    plan: &JobPlan,
    device: &KernelDevice,
    offset_bytes: u64,
    bytes: u64,
    progress: &impl Progress,
) -> Result<(), RunError> {
    if !plan.job.reads() || !device.has_holes(offset_bytes, bytes) {
        return Ok(());
    }
    let uri = &device.info().uri;
    let what = format!(
        "{uri}: parts of the file were never written, and the file system answers reads of them \
         without asking the disk: write it first (--rw write), or remove it and have it made by \
         create=SIZE"
    );
    // A job that also writes may read what it wrote.
    if plan.job.writes() {
        progress.warning(what);
        return Ok(());
    }
    Err(RunError::new(what))
}

fn fill_range(
    devices: &Devices,
    index: usize,
    range: Range<u64>,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let (offset_bytes, bytes) = (range.start, range.end - range.start);
    let (device, uri) = (devices.device(index), devices.uri(index));
    let options = ChannelOptions { depth: DEPTH, ..ChannelOptions::default() };
    let mut channel = device.channel(&options).map_err(|error| RunError::of_device(uri, &error))?;
    let block_bytes = BLOCK_BYTES.min(bytes);
    let rest_bytes = bytes % block_bytes;
    for (from, length, block_bytes) in [
        (offset_bytes, bytes - rest_bytes, block_bytes),
        (offset_bytes + bytes - rest_bytes, rest_bytes, rest_bytes),
    ] {
        if length == 0 {
            continue;
        }
        let mut pattern = Pattern::new(PatternSpec {
            offset_bytes: from,
            range_bytes: length,
            pass_bytes: length,
            block_shift: device.info().block_bytes.trailing_zeros(),
            bs_read_bytes: block_bytes,
            bs_write_bytes: block_bytes,
            random: false,
            read_percent: 0,
            passes: Some(1),
            seed: 0,
        });
        let mut slots = Slots::new(&channel, usize::from(DEPTH), block_bytes as usize)
            .map_err(|error| RunError::of_device(uri, &error))?;
        let (clock, mut faults) = (Clock::real(), Faults::default());
        let mut engine = Engine {
            channel: &mut channel,
            slots: &mut slots,
            clock: &clock,
            stop,
            faults: &mut faults,
        };
        let ended = engine.run(&mut pattern, Limit::NONE, &mut Unrecorded);
        if let Some(why) = ended.lost().or(faults.first) {
            fail!("{uri}: filling it before the run: {why}");
        }
    }
    debug_assert_eq!(channel.in_flight(), 0);
    Ok(())
}
