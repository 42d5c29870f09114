//! `meantime copy`: all of a device's data to another device, or from and to a pipe.

mod source;
mod target;

use std::process::ExitCode;
use std::time::Instant;

use meantime_block::{Access, BlockDevice, Channel, ChannelOptions, Device, OpenOptions};

use crate::cli::CopyArgs;
use crate::failure::{Failure, named};
use crate::figures;
use crate::signal;

use source::Source;
use target::Target;

/// How much is in flight on either side: the number of I/Os, and the size of each.
const DEPTH: u16 = 8;
const CHUNK_BYTES: usize = 128 << 10;

/// What stands for standard input or output.
const PIPE: &str = "-";

/// Runs the command.
pub(crate) fn run(args: &CopyArgs) -> Result<ExitCode, Failure> {
    let (from, to) = (args.from.trim(), args.to.trim());
    if from == PIPE && to == PIPE {
        return Err(Failure::usage(
            "copying from a pipe to a pipe needs no device: name one, e.g. file:disk.img",
        ));
    }
    if from == to {
        return Err(Failure::usage(format_args!(
            "{from} is both what is read and what is written"
        )));
    }
    signal::catch();
    let from_device = open(from, Access::Read)?;
    let to_device = open(to, Access::ReadWrite)?;
    if let (Some(reads), Some(writes)) = (&from_device, &to_device) {
        fits(reads, writes)?;
    }
    let start = Instant::now();
    let mut source = Source::new(from_device.as_ref())?;
    let mut target = Target::new(to_device.as_ref())?;
    let bytes = pump(&mut source, &mut target)?;
    if let Some(code) = signal::exit_code() {
        return Ok(ExitCode::from(code));
    }
    let took = start.elapsed();
    let rate = (bytes as f64 / took.as_secs_f64().max(1e-9)) as u64;
    eprintln!(
        "meantime: copied {} in {:.1} s ({}/s)",
        figures::bytes(bytes),
        took.as_secs_f64(),
        figures::bytes(rate)
    );
    Ok(ExitCode::SUCCESS)
}

/// The device of `uri`; `None` for a pipe.
fn open(uri: &str, access: Access) -> Result<Option<Device>, Failure> {
    if uri == PIPE {
        return Ok(None);
    }
    let options = OpenOptions { access, ..OpenOptions::default() };
    meantime_block::open(uri, &options).map(Some).map_err(|error| named(uri, &error))
}

/// Found before anything is overwritten.
fn fits(from: &Device, to: &Device) -> Result<(), Failure> {
    let (from, to) = (from.info(), to.info());
    if from.bytes() > to.bytes() {
        return Err(Failure::new(format_args!(
            "{} has {} bytes, {} has room for {}: nothing was copied",
            from.uri,
            from.bytes(),
            to.uri,
            to.bytes()
        )));
    }
    if from.bytes() % u64::from(to.block_bytes) != 0 {
        return Err(Failure::new(format_args!(
            "{} has {} bytes, which are no whole number of the {} bytes' blocks of {}: nothing was copied",
            from.uri,
            from.bytes(),
            to.block_bytes,
            to.uri
        )));
    }
    Ok(())
}

/// A channel for large I/Os in order.
fn channel(device: &Device) -> Result<Channel, Failure> {
    let policy = device.usual_policy();
    let options = ChannelOptions { depth: DEPTH, policy, ..ChannelOptions::default() };
    device.channel(&options).map_err(|error| named(&device.info().uri, &error))
}

/// Bytes of a chunk on a device whose blocks have `block_bytes`.
fn chunk_bytes(block_bytes: u32) -> usize {
    CHUNK_BYTES.max(block_bytes as usize)
}

/// Everything from `source` to `target`, until a signal asks for the end; how many bytes.
fn pump(source: &mut Source, target: &mut Target) -> Result<u64, Failure> {
    let mut bytes = 0;
    while !signal::stopped() {
        let Some(data) = source.next()? else {
            target.finish()?;
            break;
        };
        target.put(data)?;
        bytes += data.len() as u64;
    }
    Ok(bytes)
}
