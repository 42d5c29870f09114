//! `meantime copy`: all of a device's data to another device, or from and to a pipe.

mod source;
mod target;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Instant;

use meantime_block::{
    Access, BlockChannel as _, BlockDevice as _, Channel, ChannelOptions, Device, OpenOptions,
    Request, Ticket,
};
use meantime_hw::DmaBuf;

use crate::cli::CopyArgs;
use crate::failure::{Failure, named};
use crate::figures;
use crate::signal;

use source::Source;
use target::Target;

/// Amount in flight on either side: the number of I/Os, and the size of each.
const DEPTH: u16 = 8;
const CHUNK_BYTES: usize = 128 << 10;

/// The name of standard input or output.
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
    signal::check(None)?;
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

/// Opens the device of `uri`; `None` for a pipe.
fn open(uri: &str, access: Access) -> Result<Option<Device>, Failure> {
    if uri == PIPE {
        return Ok(None);
    }
    let options = OpenOptions { access, ..OpenOptions::default() };
    meantime_block::open(uri, &options).map(Some).map_err(|error| named(uri, &error))
}

/// Checks the sizes before anything is overwritten.
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
            "{} has {} bytes, which are no whole number of the {} bytes' blocks of {}: nothing was \
             copied",
            from.uri,
            from.bytes(),
            to.block_bytes,
            to.uri
        )));
    }
    Ok(())
}

/// I/Os of a device in flight, in order, and spare buffers.
struct Stream {
    channel: Channel,
    uri: String,
    under_way: VecDeque<Ticket>,
    spare: Vec<DmaBuf>,
    /// Bytes of a buffer, and of every I/O but the last.
    chunk_bytes: usize,
    next_lba: u64,
}

impl Stream {
    fn new(device: &Device) -> Result<Self, Failure> {
        let uri = device.info().uri.clone();
        let options = ChannelOptions { depth: DEPTH, ..ChannelOptions::default() };
        let channel = device.channel(&options).map_err(|error| named(&uri, &error))?;
        let chunk_bytes = CHUNK_BYTES.max(device.info().block_bytes as usize);
        let spare = (0..=DEPTH).map(|_| channel.alloc(chunk_bytes)).collect::<Result<_, _>>();
        let spare = spare.map_err(|error| named(&uri, &error))?;
        let under_way = VecDeque::new();
        Ok(Self { channel, uri, under_way, spare, chunk_bytes, next_lba: 0 })
    }

    fn is_full(&self) -> bool {
        self.under_way.len() == usize::from(DEPTH)
    }

    /// Returns the number of blocks for which no I/O was sent yet.
    fn blocks_left(&self) -> u64 {
        self.channel.info().blocks - self.next_lba
    }

    /// Sends `request` for the next `blocks` blocks.
    fn submit(&mut self, request: Request, blocks: u64) -> Result<(), Failure> {
        let ticket = self.channel.submit(request);
        self.under_way.push_back(ticket.map_err(|rejected| named(&self.uri, &rejected.error))?);
        self.next_lba += blocks;
        Ok(())
    }

    /// Waits for the oldest I/O. Returns its buffer, if the device returned it; `None` if nothing
    /// is in flight.
    fn wait(&mut self) -> Result<Option<Option<DmaBuf>>, Failure> {
        let Some(oldest) = self.under_way.pop_front() else { return Ok(None) };
        let done = self.channel.wait(oldest);
        done.result.map_err(|error| named(&self.uri, &error))?;
        Ok(Some(done.buf))
    }

    fn failed(&self, what: impl std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: {what}", self.uri))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // I/Os are left only after an error or a signal.
        for ticket in self.under_way.drain(..) {
            self.channel.detach(ticket);
        }
    }
}

/// Copies everything from `source` to `target`, until a signal stops it. Returns the number of
/// bytes.
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
