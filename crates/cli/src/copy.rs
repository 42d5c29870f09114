//! `meantime copy`: all of a device's data to another device, or from and to a pipe.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use meantime_block::{
    Access, BlockChannel as _, BlockDevice as _, Channel, ChannelOptions, Device, OpenOptions,
    Request, Ticket,
};
use meantime_hw::DmaBuf;

use crate::cli::CopyArgs;
use crate::failure::{Context as _, Failure, named};
use crate::figures;
use crate::signal;

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
    let from_device = open(from, Access::Read, false)?;
    let to_device = open(to, Access::ReadWrite, args.force)?;
    if let (Some(reads), Some(writes)) = (&from_device, &to_device) {
        fits(reads, writes)?;
    }
    let start = Instant::now();
    let bytes = pump(from_device.as_ref(), to_device.as_ref())?;
    signal::check(None)?;
    let took_s = start.elapsed().as_secs_f64();
    let rate = (bytes as f64 / took_s.max(1e-9)) as u64;
    let [copied, rate] = [bytes, rate].map(figures::bytes);
    eprintln!("meantime: copied {copied} in {took_s:.1} s ({rate}/s)");
    Ok(ExitCode::SUCCESS)
}

/// Opens the device of `uri`. Returns `None` for a pipe.
fn open(uri: &str, access: Access, force: bool) -> Result<Option<Device>, Failure> {
    if uri == PIPE {
        return Ok(None);
    }
    let protect = access == Access::ReadWrite && !force;
    let options = OpenOptions { access, protect, ..OpenOptions::default() };
    meantime_block::open(uri, &options).map(Some).map_err(|error| named(uri, &error))
}

/// Checks the sizes before anything is overwritten.
fn fits(from: &Device, to: &Device) -> Result<(), Failure> {
    let (from, to) = (from.info(), to.info());
    let (bytes, room, block_bytes) = (from.bytes(), to.bytes(), to.block_bytes);
    let (from, to) = (&from.uri, &to.uri);
    if bytes > room {
        return Err(Failure::new(format_args!(
            "{from} has {bytes} bytes, {to} has room for {room}: nothing was copied"
        )));
    }
    if bytes % u64::from(block_bytes) != 0 {
        return Err(Failure::new(format_args!(
            "{from} has {bytes} bytes, which are no whole number of the {block_bytes} bytes' blocks \
             of {to}: nothing was copied"
        )));
    }
    Ok(())
}

/// Copies everything, from and to a device or a pipe, and returns the number of bytes. What was
/// copied to a device is durable.
fn pump(from: Option<&Device>, to: Option<&Device>) -> Result<u64, Failure> {
    let mut source = from.map(Stream::new).transpose()?;
    let mut target = to.map(Stream::new).transpose()?;
    let (mut piece, mut bytes) = (Vec::with_capacity(CHUNK_BYTES), 0);
    loop {
        match &mut source {
            Some(device) => device.read(&mut piece)?,
            None => fill(&mut piece).context("cannot read standard input")?,
        }
        if signal::stopped() {
            return Ok(bytes);
        }
        bytes += piece.len() as u64;
        match &mut target {
            Some(device) if piece.is_empty() => device.finish()?,
            Some(device) => device.write(&piece)?,
            None => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(&piece).and_then(|()| stdout.flush());
                written.context("cannot write the data to standard output")?;
            }
        }
        if piece.is_empty() {
            return Ok(bytes);
        }
    }
}

/// Reads standard input until `piece` is full or a signal comes. At the end of the input `piece` is
/// shorter.
fn fill(piece: &mut Vec<u8>) -> io::Result<()> {
    piece.resize(CHUNK_BYTES, 0);
    let mut filled = 0;
    while filled < piece.len() && !signal::stopped() {
        match io::stdin().lock().read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if signal::stopped() => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(filled);
    Ok(())
}

/// A device that is read ahead, or written behind.
struct Stream {
    channel: Channel,
    uri: String,
    /// I/Os in flight, oldest first.
    under_way: VecDeque<Ticket>,
    spare: Vec<DmaBuf>,
    next_lba: u64,
}

impl Stream {
    fn new(device: &Device) -> Result<Self, Failure> {
        let uri = device.info().uri.clone();
        let options = ChannelOptions { depth: DEPTH, ..ChannelOptions::default() };
        let channel = device.channel(&options).map_err(|error| named(&uri, &error))?;
        let spare = (0..DEPTH).map(|_| channel.alloc(CHUNK_BYTES)).collect::<Result<_, _>>();
        let spare = spare.map_err(|error| named(&uri, &error))?;
        Ok(Self { channel, uri, under_way: VecDeque::new(), spare, next_lba: 0 })
    }

    fn blocks_left(&self) -> u64 {
        self.channel.info().blocks - self.next_lba
    }

    fn submit(&mut self, request: Request, blocks: u64) -> Result<(), Failure> {
        let ticket = self.channel.submit(request);
        self.under_way.push_back(ticket.map_err(|rejected| named(&self.uri, &rejected.error))?);
        self.next_lba += blocks;
        Ok(())
    }

    /// Waits for the oldest I/O in flight, and returns its buffer, or `None` without any.
    fn wait(&mut self) -> Result<Option<DmaBuf>, Failure> {
        let Some(oldest) = self.under_way.pop_front() else { return Ok(None) };
        let done = self.channel.wait(oldest);
        done.result.map_err(|error| named(&self.uri, &error))?;
        let kept = || self.failed("the device has kept a buffer: open it again");
        done.buf.ok_or_else(kept).map(Some)
    }

    fn failed(&self, what: impl std::fmt::Display) -> Failure {
        Failure::new(format_args!("{}: {what}", self.uri))
    }

    /// Reads the next piece, and further ones ahead. At the end the piece is empty.
    fn read(&mut self, piece: &mut Vec<u8>) -> Result<(), Failure> {
        let block_bytes = u64::from(self.channel.info().block_bytes);
        while self.blocks_left() > 0
            && let Some(mut buf) = self.spare.pop()
        {
            let count = (CHUNK_BYTES as u64 / block_bytes).min(self.blocks_left());
            buf.set_len((count * block_bytes) as usize);
            self.submit(Request::read(self.next_lba, buf), count)?;
        }
        piece.clear();
        if let Some(buf) = self.wait()? {
            piece.extend_from_slice(&buf);
            self.spare.push(buf);
        }
        Ok(())
    }

    /// Writes a piece, without waiting for its end.
    fn write(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let info = self.channel.info();
        let (block_bytes, rest_bytes) = (info.block_bytes, piece.len() % info.block_bytes as usize);
        if rest_bytes != 0 {
            return Err(self.failed(format_args!(
                "the data ends {rest_bytes} bytes into a block of {block_bytes}: its last part was \
                 not written; fill it up to a whole block"
            )));
        }
        let blocks = piece.len() as u64 / u64::from(block_bytes);
        if blocks > self.blocks_left() {
            return Err(self.failed(format_args!(
                "there is more data than the device has room for, {} bytes: what did not fit was \
                 not written",
                info.bytes()
            )));
        }
        let spare = match self.spare.pop() {
            None => self.wait()?,
            spare => spare,
        };
        let Some(mut buf) = spare else { return Err(self.failed("it has no buffer")) };
        buf.set_len(piece.len());
        buf.copy_from_slice(piece);
        self.submit(Request::write(self.next_lba, buf), blocks)
    }

    /// Waits until everything is written, and durable.
    fn finish(&mut self) -> Result<(), Failure> {
        while self.wait()?.is_some() {}
        self.channel.flush().map_err(|error| named(&self.uri, &error))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for ticket in self.under_way.drain(..) {
            self.channel.detach(ticket);
        }
    }
}
