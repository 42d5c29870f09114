//! The I/O loop: keeps a number of I/Os in flight, and measures their times.
//!
//! It is generic over the channel and the source of I/Os, so nothing on the path is dispatched
//! dynamically. It allocates nothing: buffers and slots exist before.

use std::sync::atomic::{AtomicBool, Ordering};

use meantime_block::{BlockChannel, Done, IoError, IoErrorKind, Request};
use meantime_hw::{Clock, DmaBuf};
use meantime_nvme::CommandError;

use super::pattern::{Dir, Io, Rng};
pub use super::record::{Record, Unrecorded};
pub use super::source::Source;

mod shaped;

#[derive(Debug, Clone, Copy)]
struct Flight {
    io: Io,
    start_ns: u64,
    rung_ns: u64,
}

/// The buffers of one thread on one device, one for each I/O in flight.
#[derive(Debug)]
pub struct Slots {
    bufs: Vec<Option<DmaBuf>>,
    flights: Vec<Flight>,
    free: Vec<usize>,
    batch: Vec<usize>,
}

impl Slots {
    /// Allocates `depth` buffers of `bytes`, filled with random data.
    pub fn new<C: BlockChannel>(
        channel: &C,
        depth: usize,
        bytes: usize,
    ) -> Result<Self, meantime_hw::HwError> {
        let mut rng = Rng::new(0x6d65_616e_7469_6d65);
        let io = Io { dir: Dir::Read, lba: 0, bytes: 0 };
        let idle = Flight { io, start_ns: 0, rung_ns: 0 };
        let mut bufs = Vec::with_capacity(depth);
        for _ in 0..depth {
            let mut buf = channel.alloc(bytes)?;
            rng.fill(&mut buf);
            bufs.push(Some(buf));
        }
        Ok(Self {
            bufs,
            flights: vec![idle; depth],
            free: (0..depth).rev().collect(),
            batch: Vec::with_capacity(depth),
        })
    }

    /// Returns one of the buffers, while nothing is in flight.
    pub(crate) fn any_buf(&mut self) -> Option<&mut DmaBuf> {
        self.bufs.iter_mut().flatten().next()
    }
}

/// The limits that end the loop: it stops at whichever is reached first.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Time by the clock.
    pub until_ns: u64,
    /// Number of I/Os.
    pub max_ios: u64,
}

impl Limit {
    /// There is no limit, so the loop stops when the source ends.
    pub(crate) const NONE: Self = Self { until_ns: u64::MAX, max_ios: u64::MAX };
}

/// Why the loop stopped. Nothing is in flight any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The limit was reached.
    Limit,
    /// The source has no more.
    Dry,
    /// The stop flag is set.
    Stopped,
    /// The device takes no more I/O.
    Lost(String),
}

impl Ended {
    /// Returns why the device takes no more I/O, if it does not.
    pub(crate) fn lost(self) -> Option<String> {
        match self {
            Self::Lost(why) => Some(why),
            _ => None,
        }
    }
}

/// I/Os that failed.
#[derive(Debug, Default, Clone)]
pub struct Faults {
    /// Their number.
    pub errors: u64,
    /// The first error, as text.
    pub first: Option<String>,
}

/// A thread's channel to a device, and everything it needs for I/O on it.
pub struct Engine<'a, C> {
    /// The channel.
    pub channel: &'a mut C,
    /// The buffers.
    pub slots: &'a mut Slots,
    /// The clock.
    pub clock: &'a Clock,
    /// Ends the loop when set.
    pub stop: &'a AtomicBool,
    /// Counts I/Os that failed.
    pub faults: &'a mut Faults,
}

impl<C: BlockChannel> Engine<'_, C> {
    /// Does I/O until `limit`.
    pub fn run<S: Source, R: Record>(
        &mut self,
        source: &mut S,
        limit: Limit,
        record: &mut R,
    ) -> Ended {
        match self.slots.bufs.len() {
            1 => self.run_one_by_one(source, limit, record),
            _ => self.run_deep(source, limit, record),
        }
    }

    fn run_one_by_one<S: Source, R: Record>(
        &mut self,
        source: &mut S,
        limit: Limit,
        record: &mut R,
    ) -> Ended {
        let mut ios = 0;
        loop {
            if let Some(stopped) = self.stopped() {
                return stopped;
            }
            let Some(io) = source.next() else { return Ended::Dry };
            let Some(mut buf) = self.slots.bufs[0].take() else { return quarantined() };
            buf.set_len(io.bytes);
            source.prepare(0, &io, &mut buf);
            let start_ns = self.clock.now_ns();
            let request = self.request(0, &io, buf);
            let ticket = match self.channel.submit(request) {
                Ok(ticket) => ticket,
                Err(rejected) => {
                    self.restore_buf(0, rejected.request.buf);
                    return Ended::Lost(rejected.error.to_string());
                }
            };
            let rung_ns = self.clock.now_ns();
            let done = self.channel.wait(ticket);
            let seen_ns = self.clock.now_ns();
            match self.finish_io(source, 0, &io, done) {
                Ok(true) => {
                    record.done(&io, rung_ns - start_ns, seen_ns - rung_ns, seen_ns);
                    record.submitted(1, 1);
                    record.reaped(1);
                }
                Ok(false) => {}
                Err(lost) => return lost,
            }
            ios += 1;
            if seen_ns >= limit.until_ns || ios >= limit.max_ios {
                return Ended::Limit;
            }
        }
    }

    /// Submits in batches, one doorbell each. All completed I/Os are reaped before slots are filled
    /// again.
    fn run_deep<S: Source, R: Record>(
        &mut self,
        source: &mut S,
        limit: Limit,
        record: &mut R,
    ) -> Ended {
        let mut ios = 0;
        let mut ended = self.stopped();
        loop {
            if ended.is_none() {
                let room = usize::try_from(limit.max_ios - ios).unwrap_or(usize::MAX);
                ended = self.submit_batch(source, room, &limit);
                let batch = self.slots.batch.len();
                ios += batch as u64;
                if batch > 0 {
                    record.submitted(self.channel.in_flight().max(1), batch as u64);
                }
            }
            let Some(mut done) = self.channel.wait_done() else {
                return ended.unwrap_or(Ended::Limit);
            };
            let seen_ns = self.clock.now_ns();
            let mut reaped = 0;
            loop {
                reaped += 1;
                let slot = done.user_data as usize;
                let Flight { io, start_ns, rung_ns } = self.slots.flights[slot];
                match self.finish_io(source, slot, &io, done) {
                    Ok(true) => {
                        // An I/O of a batch may complete before the batch's clock reading.
                        record.done(
                            &io,
                            rung_ns - start_ns,
                            seen_ns.saturating_sub(rung_ns),
                            seen_ns,
                        );
                        self.slots.free.push(slot);
                    }
                    Ok(false) => self.slots.free.push(slot),
                    Err(lost) => ended = Some(lost),
                }
                match self.channel.next_done() {
                    Some(next) => done = next,
                    None => break,
                }
            }
            record.reaped(reaped);
            if ended.is_none() {
                ended = self.stopped_or_due(seen_ns, &limit);
                if ended.is_none() && ios >= limit.max_ios {
                    ended = Some(Ended::Limit);
                }
            }
        }
    }

    /// Returns the loop's end if the stop flag is set.
    #[inline(always)]
    fn stopped(&self) -> Option<Ended> {
        self.stop.load(Ordering::Relaxed).then_some(Ended::Stopped)
    }

    /// Returns the loop's end if the stop flag is set, or time is up at `now_ns`.
    #[inline(always)]
    fn stopped_or_due(&self, now_ns: u64, limit: &Limit) -> Option<Ended> {
        self.stopped().or((now_ns >= limit.until_ns).then_some(Ended::Limit))
    }

    #[inline(always)]
    fn submit_batch<S: Source>(
        &mut self,
        source: &mut S,
        room: usize,
        limit: &Limit,
    ) -> Option<Ended> {
        let mut ended = None;
        self.slots.batch.clear();
        if !S::SLOW_TO_PREPARE {
            self.channel.plug();
        }
        let mut start_ns = self.clock.now_ns();
        while ended.is_none()
            && self.slots.batch.len() < room
            && let Some(slot) = self.slots.free.pop()
        {
            let Some(io) = source.next() else {
                self.slots.free.push(slot);
                ended = Some(Ended::Dry);
                break;
            };
            let Some(mut buf) = self.slots.bufs[slot].take() else {
                ended = Some(quarantined());
                break;
            };
            buf.set_len(io.bytes);
            source.prepare(slot, &io, &mut buf);
            if S::SLOW_TO_PREPARE {
                start_ns = self.clock.now_ns();
                // Filling a thousand buffers takes long.
                ended = self.stopped_or_due(start_ns, limit);
            }
            let request = self.request(slot, &io, buf).user_data(slot as u64);
            if let Err(rejected) = self.channel.enqueue(request) {
                self.restore_buf(slot, rejected.request.buf);
                self.slots.free.push(slot);
                ended = Some(Ended::Lost(rejected.error.to_string()));
                break;
            }
            let rung_ns = if S::SLOW_TO_PREPARE { self.clock.now_ns() } else { start_ns };
            self.slots.flights[slot] = Flight { io, start_ns, rung_ns };
            self.slots.batch.push(slot);
        }
        if !S::SLOW_TO_PREPARE {
            self.channel.unplug();
            let rung_ns = self.clock.now_ns();
            for slot in &self.slots.batch {
                self.slots.flights[*slot].rung_ns = rung_ns;
            }
        }
        ended
    }

    /// Builds the request for `io`. A request without data leaves the buffer in its slot.
    #[inline(always)]
    fn request(&mut self, slot: usize, io: &Io, buf: DmaBuf) -> Request {
        match io.dir {
            Dir::Read => Request::read(io.lba, buf),
            Dir::Write => Request::write(io.lba, buf),
            Dir::Trim => {
                self.slots.bufs[slot] = Some(buf);
                let block_bytes = self.channel.info().block_bytes as usize;
                Request::deallocate(io.lba, (io.bytes / block_bytes) as u64)
            }
        }
    }

    /// Returns the buffer of a rejected request to its slot.
    #[cold]
    fn restore_buf(&mut self, slot: usize, buf: Option<DmaBuf>) {
        if buf.is_some() {
            self.slots.bufs[slot] = buf;
        }
    }

    /// Returns the buffer to its slot. Returns whether the I/O succeeded.
    #[inline(always)]
    fn finish_io<S: Source>(
        &mut self,
        source: &mut S,
        slot: usize,
        io: &Io,
        done: Done,
    ) -> Result<bool, Ended> {
        let good = done.result.is_ok();
        if let Some(buf) = &done.buf {
            source.ended(slot, io, buf, good);
        }
        let lost = done.buf.is_none() && io.dir != Dir::Trim;
        if io.dir != Dir::Trim {
            self.slots.bufs[slot] = done.buf;
        }
        match done.result {
            Ok(()) => Ok(true),
            Err(error) => self.failed(&error, lost).map(|()| false),
        }
    }

    /// Counts an I/O that failed. Returns an error if the loop cannot continue.
    #[cold]
    fn failed(&mut self, error: &IoError, lost: bool) -> Result<(), Ended> {
        self.faults.errors += 1;
        self.faults.first.get_or_insert_with(|| error.to_string());
        match error.kind {
            IoErrorKind::Command(CommandError::Gone { .. }) => Err(Ended::Lost(error.to_string())),
            _ if lost => Err(quarantined()),
            _ => Ok(()),
        }
    }
}

#[cold]
fn quarantined() -> Ended {
    Ended::Lost(
        "the device is gone, and a buffer that it may still write to was given up".to_owned(),
    )
}
