//! A running job: its channel, its buffers, and the I/Os that have ended.

use std::ffi::c_int;
use std::sync::Arc;

use meantime_block::{
    BlockChannel, BlockDevice, Channel, ChannelError, ChannelOptions, Device, Done, Errno, IoError,
    Rejected, Request, Ticket,
};
use meantime_completion::Policy;

use crate::abi::{FIO_Q_BUSY, FIO_Q_COMPLETED, FIO_Q_QUEUED};
use crate::slab::Slab;

/// The operations that fio requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A read into the buffer.
    Read,
    /// A write from the buffer.
    Write,
    /// A flush.
    Flush,
    /// A deallocation.
    Trim,
}

/// An I/O as fio wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Io {
    /// The address of its `io_u`.
    pub(crate) id: usize,
    pub(crate) kind: Kind,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The number of its buffer.
    pub(crate) index: usize,
}

/// An I/O that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) id: usize,
    /// A positive errno, or 0.
    pub(crate) errno: c_int,
}

/// The settings of a job.
pub(crate) struct Asks {
    /// The number of I/Os in flight.
    pub(crate) depth: usize,
    /// The number of I/Os by one doorbell.
    pub(crate) batch: u32,
    /// Whether writes end only when they survive a loss of power.
    pub(crate) writes_are_durable: bool,
    /// Whether a failed flush is to end the job.
    pub(crate) minds_flushes: bool,
}

/// A job's state between `init` and `cleanup`.
pub(crate) struct Job {
    // Dropped in this order: the channel waits for what is in flight.
    channel: Channel,
    pub(crate) slab: Slab,
    device: Arc<Device>,
    /// The only I/O in flight, if the job has one at a time.
    single: Option<Ticket>,
    one_by_one: bool,
    /// The number of I/Os that go to the device by one doorbell, and the number that wait for it.
    batch: u32,
    collected: u32,
    writes_are_durable: bool,
    block_mask: u64,
    block_shift: u32,
    ended: Vec<Ended>,
    /// The errors of the failed I/Os in `ended`.
    errors: Vec<(usize, String)>,
    /// The errno of a flush that failed lately, or 0; used if fio does not look at errors of
    /// flushes.
    flush_failed: c_int,
    minds_flushes: bool,
    /// Whether the log has the reason of a refused I/O, which fio does not report.
    has_refused: bool,
}

impl Job {
    pub(crate) fn new(
        device: Arc<Device>,
        policy: Policy,
        Asks { depth, batch, writes_are_durable, minds_flushes }: Asks,
    ) -> Result<Self, ChannelError> {
        let options =
            |depth| ChannelOptions { depth, policy: Some(policy), ..ChannelOptions::default() };
        let wanted = u16::try_from(depth).unwrap_or(u16::MAX);
        let channel = match device.channel(&options(wanted)) {
            // The rest waits in fio, which is told that the channel is full.
            Err(ChannelError::Depth { limit, .. }) if wanted > limit => {
                device.channel(&options(limit))
            }
            channel => channel,
        }?;
        let block_bytes = device.info().block_bytes;
        Ok(Self {
            channel,
            slab: Slab::default(),
            device,
            single: None,
            one_by_one: depth == 1,
            batch,
            collected: 0,
            writes_are_durable,
            block_mask: u64::from(block_bytes) - 1,
            block_shift: block_bytes.trailing_zeros(),
            ended: Vec::with_capacity(depth),
            errors: Vec::new(),
            flush_failed: 0,
            minds_flushes,
            has_refused: false,
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Starts `io`. Returns the value for `queue`, and the errno of an I/O that ended at once.
    #[inline(always)]
    pub(crate) fn start(&mut self, io: Io) -> (c_int, c_int) {
        if io.offset & self.block_mask != 0 {
            return self.unaligned(io);
        }
        let lba = io.offset >> self.block_shift;
        let request = match io.kind {
            Kind::Read | Kind::Write => {
                let Some(buf) = self.slab.take(io.index, io.bytes) else {
                    return self.no_buffer(io);
                };
                if io.kind == Kind::Read {
                    Request::read(lba, buf)
                } else {
                    let write = Request::write(lba, buf);
                    if self.writes_are_durable { write.fua() } else { write }
                }
            }
            Kind::Flush => Request::flush(),
            Kind::Trim if io.bytes & self.block_mask != 0 => return self.unaligned(io),
            Kind::Trim => Request::deallocate(lba, io.bytes >> self.block_shift),
        };
        let request = request.user_data(io.id as u64);
        if self.one_by_one {
            match self.channel.submit(request) {
                Ok(ticket) => self.single = Some(ticket),
                Err(rejected) => return self.refused(io, rejected),
            }
            return (FIO_Q_QUEUED, 0);
        }
        if self.batch > 1 {
            self.channel.plug();
        }
        if let Err(rejected) = self.channel.enqueue(request) {
            return self.refused(io, rejected);
        }
        self.collected += 1;
        if self.batch > 1 && self.collected >= self.batch {
            self.channel.unplug();
            self.collected = 0;
        }
        (FIO_Q_QUEUED, 0)
    }

    /// Takes from `min` to `max` I/Os that have ended, and waits for the first of them if need be.
    /// `resolve` returns the buffer's number of an `io_u`. Returns their number or a negative
    /// errno.
    #[inline(always)]
    pub(crate) fn reap(
        &mut self,
        min: usize,
        max: usize,
        resolve: impl Fn(usize) -> usize,
    ) -> c_int {
        self.ended.clear();
        if self.flush_failed != 0 {
            return -std::mem::take(&mut self.flush_failed);
        }
        if let Some(ticket) = self.single.take() {
            let done = if min > 0 {
                self.channel.wait(ticket)
            } else {
                self.channel.poll();
                match self.channel.try_take(ticket) {
                    Ok(done) => done,
                    Err(ticket) => {
                        self.single = Some(ticket);
                        return 0;
                    }
                }
            };
            self.end(done, &resolve);
            return 1;
        }
        if self.collected > 0 {
            self.channel.unplug();
            self.collected = 0;
        }
        if min == 0 {
            self.channel.poll();
        }
        while self.ended.len() < max {
            let done = match self.channel.next_done() {
                Some(done) => Some(done),
                None if self.ended.len() < min => self.channel.wait_done(),
                None => None,
            };
            let Some(done) = done else { break };
            self.end(done, &resolve);
        }
        self.ended.len() as c_int
    }

    #[inline(always)]
    fn end(&mut self, done: Done, resolve: &impl Fn(usize) -> usize) {
        let id = done.user_data as usize;
        if let Some(buf) = done.buf {
            self.slab.put(resolve(id), buf);
        }
        let errno = match done.result {
            Ok(()) => 0,
            Err(error) => self.failed(id, &error),
        };
        self.ended.push(Ended { id, errno });
    }

    /// The errno of a flush that failed lately, or 0.
    #[inline(always)]
    pub(crate) fn flush_failed(&self) -> c_int {
        self.flush_failed
    }

    /// The `n`th of the I/Os that [`reap`](Self::reap) took.
    #[inline(always)]
    pub(crate) fn ended(&self, n: usize) -> Option<Ended> {
        self.ended.get(n).copied()
    }

    /// The text of the I/O's error.
    pub(crate) fn details(&mut self, id: usize) -> Option<String> {
        let at = self.errors.iter().position(|(of, _)| *of == id)?;
        Some(self.errors.swap_remove(at).1)
    }

    #[cold]
    #[inline(never)]
    fn failed(&mut self, id: usize, error: &IoError) -> c_int {
        let errno = Errno::from(error).0;
        if error.op == meantime_nvme::Op::Flush && self.minds_flushes {
            crate::host::say(format_args!("{}: {error}", self.device.info().uri));
            self.flush_failed = errno;
        }
        self.note(id, error.to_string());
        errno
    }

    fn note(&mut self, id: usize, what: String) {
        self.details(id);
        self.errors.push((id, what));
    }

    fn complain(&mut self, why: impl std::fmt::Display) {
        if !std::mem::replace(&mut self.has_refused, true) {
            crate::host::say(format_args!("{}: {why}", self.device.info().uri));
        }
    }

    #[cold]
    #[inline(never)]
    fn refused(&mut self, io: Io, rejected: Rejected) -> (c_int, c_int) {
        let Rejected { error, request } = rejected;
        if let Some(buf) = request.buf {
            self.slab.put(io.index, buf);
        }
        let errno = Errno::from(&error).0;
        if errno == libc::EAGAIN {
            return (FIO_Q_BUSY, 0);
        }
        self.complain(error);
        (FIO_Q_COMPLETED, errno)
    }

    #[cold]
    #[inline(never)]
    fn unaligned(&mut self, io: Io) -> (c_int, c_int) {
        let Io { offset, bytes, .. } = io;
        let block = self.block_mask + 1;
        self.complain(format_args!(
            "{bytes} bytes at offset {offset} are not whole blocks, which have {block} bytes"
        ));
        (FIO_Q_COMPLETED, libc::EINVAL)
    }

    #[cold]
    #[inline(never)]
    fn no_buffer(&mut self, io: Io) -> (c_int, c_int) {
        self.complain(self.slab.missing(io.index, io.bytes));
        (FIO_Q_COMPLETED, if self.slab.was_lost(io.index) { libc::ENODEV } else { libc::EINVAL })
    }
}
