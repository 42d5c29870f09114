//! The loop of jobs with a [`Shape`]: flushes, pauses, rates and batches.
//!
//! An I/O's latency begins after everything that it waits for: before a pause and before a flush,
//! the loop waits for all I/Os in flight (as fio does), so nothing completes unseen. A flush
//! therefore covers every write before it.

use std::sync::atomic::Ordering;

use meantime_block::{BlockChannel, Done, Request};

use super::{Ended, Engine, Flight, Limit, Record, Source, quarantined};
use crate::pattern::{Dir, Io};
use crate::shape::Shape;

/// The time of a pause for which the thread spins, because a sleep may end this much late.
const SPIN_NS: u64 = 150_000;

/// The longest sleep without a look at the stop flag.
const SLEEP_MAX_NS: u64 = 50_000_000;

/// `user_data` of a flush.
const FLUSH: u64 = u64::MAX;

impl<C: BlockChannel> Engine<'_, C> {
    /// Does I/O until `limit` as `shape` says.
    pub(crate) fn run_shaped<S: Source, R: Record>(
        &mut self,
        source: &mut S,
        shape: &mut Shape,
        limit: Limit,
        record: &mut R,
    ) -> Ended {
        Round { engine: self, source, shape, record, limit, ios: 0, ended: None }.run()
    }

    /// Sends a flush, with nothing in flight. Returns whether it succeeded.
    pub(crate) fn flush_once(&mut self) -> Result<bool, Ended> {
        if let Err(rejected) = self.channel.enqueue(Request::flush().user_data(FLUSH)) {
            return Err(Ended::Lost(rejected.error.to_string()));
        }
        match self.channel.wait_done().map(|done| done.result) {
            Some(Err(error)) => self.failed(&error, false).map(|()| false),
            _ => Ok(true),
        }
    }
}

/// One call of the loop.
struct Round<'r, 'e, C, S, R> {
    engine: &'r mut Engine<'e, C>,
    source: &'r mut S,
    shape: &'r mut Shape,
    record: &'r mut R,
    limit: Limit,
    ios: u64,
    ended: Option<Ended>,
}

impl<C: BlockChannel, S: Source, R: Record> Round<'_, '_, C, S, R> {
    fn run(mut self) -> Ended {
        self.shape.begin(self.engine.clock.now_ns());
        self.ended = self.engine.stopped();
        loop {
            if self.ended.is_none() {
                self.fill();
            }
            if self.out() == 0
                && let Some(ended) = self.ended
            {
                self.shape.rest(self.engine.clock.now_ns());
                return ended;
            }
            let batch = self.shape.batch;
            self.reap(batch.least, batch.most);
            let now_ns = self.engine.clock.now_ns();
            self.end_if_due(now_ns);
        }
    }

    /// Ends the turn if the stop flag is set or time is up.
    fn end_if_due(&mut self, now_ns: u64) {
        if self.ended.is_none() {
            self.ended = self.engine.stopped_or_due(now_ns, &self.limit);
        }
    }

    /// Returns the number of I/Os that are not yet reaped: those in flight, and completed ones.
    fn out(&self) -> usize {
        self.engine.slots.bufs.len() - self.engine.slots.free.len()
    }

    /// Submits until the depth is reached, or until it has waited. After a wait nothing is in
    /// flight, so the depth alone would not end this, and the caller has to check whether the turn
    /// has ended.
    fn fill(&mut self) {
        self.engine.slots.batch.clear();
        while !self.engine.slots.free.is_empty() && self.ended.is_none() {
            if self.ios >= self.limit.max_ios {
                self.ended = Some(Ended::Limit);
                break;
            }
            let Some(io) = self.shape.held.take().or_else(|| self.source.next()) else {
                self.ended = Some(Ended::Dry);
                break;
            };
            if !self.is_time_for(&io) {
                self.shape.held = Some(io);
                break;
            }
            self.send(&io);
            if self.engine.slots.batch.len() >= self.shape.batch.submit {
                self.ring();
            }
        }
        self.ring();
    }

    /// Returns whether `io` may be submitted now. If it may not, this has waited for a part of what
    /// must come before: a flush, a pause, or its due time. (For the time of a trace's step it
    /// waits with I/Os in flight.)
    fn is_time_for(&mut self, io: &Io) -> bool {
        if self.shape.is_flush_due() {
            self.wait_for_all();
            self.flush();
            return false;
        }
        if let Some((due_ns, is_flush)) = self.shape.step() {
            self.wait_until(due_ns);
            if is_flush && self.ended.is_none() {
                self.wait_for_all();
                self.flush();
            }
            if is_flush || self.ended.is_some() {
                return false;
            }
        }
        if let Some((pause_ns, spin_ns)) = self.shape.pause() {
            self.wait_for_all();
            let now_ns = self.engine.clock.now_ns();
            self.pause(now_ns + pause_ns, spin_ns);
            let left_ns = (now_ns + pause_ns).saturating_sub(self.engine.clock.now_ns());
            if self.ended.is_some() && left_ns > 0 {
                self.shape.pause_left(left_ns);
            }
            return false;
        }
        if let Some(due_ns) = self.shape.due_ns(io)
            && self.engine.clock.now_ns() < due_ns
        {
            self.wait_for_all();
            self.pause(due_ns, 0);
            return false;
        }
        true
    }

    /// Waits until `due_ns`, or until the turn ends. Completions are taken meanwhile, so that they
    /// are seen when they come.
    fn wait_until(&mut self, due_ns: u64) {
        let clock = self.engine.clock;
        if clock.now_ns() >= due_ns {
            return;
        }
        self.ring();
        while self.out() > 0 && self.ended.is_none() && clock.now_ns() < due_ns {
            let (stop, until_ns) = (self.engine.stop, due_ns.min(self.limit.until_ns));
            let ends = || clock.now_ns() >= until_ns || stop.load(Ordering::Relaxed);
            self.engine.channel.wait_until(&ends);
            self.reap(0, usize::MAX);
            self.end_if_due(clock.now_ns());
        }
        self.pause(due_ns, 0);
    }

    /// Rings the doorbell, and waits for all I/Os in flight.
    fn wait_for_all(&mut self) {
        self.ring();
        self.drain();
    }

    fn send(&mut self, io: &Io) {
        // There is a free slot, because fewer I/Os are in flight than there are slots.
        let Some(slot) = self.engine.slots.free.pop() else { return };
        let Some(mut buf) = self.engine.slots.bufs[slot].take() else {
            self.engine.slots.free.push(slot);
            self.ended = Some(quarantined());
            return;
        };
        buf.set_len(io.bytes);
        self.source.prepare(slot, io, &mut buf);
        if self.engine.slots.batch.is_empty() && self.shape.batch.submit > 1 {
            self.engine.channel.plug();
        }
        let mut request = self.engine.request(slot, io, buf).user_data(slot as u64);
        request.fua = self.shape.fua && io.dir == Dir::Write;
        let start_ns = self.engine.clock.now_ns();
        if let Err(rejected) = self.engine.channel.enqueue(request) {
            self.engine.restore_buf(slot, rejected.request.buf);
            self.engine.slots.free.push(slot);
            self.ended = Some(Ended::Lost(rejected.error.to_string()));
            return;
        }
        self.engine.slots.flights[slot] = Flight { io: *io, start_ns, rung_ns: start_ns };
        self.engine.slots.batch.push(slot);
        self.shape.submits(io);
        self.ios += 1;
    }

    /// Rings the doorbell for all commands submitted since the last one.
    fn ring(&mut self) {
        if self.engine.slots.batch.is_empty() {
            return;
        }
        self.engine.channel.unplug();
        let rung_ns = self.engine.clock.now_ns();
        for slot in &self.engine.slots.batch {
            self.engine.slots.flights[*slot].rung_ns = rung_ns;
        }
        let ios = self.engine.slots.batch.len() as u64;
        self.record.submitted(self.engine.channel.in_flight().max(1), ios);
        self.engine.slots.batch.clear();
    }

    /// Waits for `least` completions and takes at most `most`.
    fn reap(&mut self, least: usize, most: usize) {
        let mut taken = 0;
        while taken < most {
            let channel = &mut *self.engine.channel;
            let done = match channel.next_done() {
                None if taken < least => channel.wait_done(),
                None if taken == 0 => {
                    channel.poll();
                    channel.next_done()
                }
                done => done,
            };
            let Some(done) = done else { break };
            let seen_ns = self.engine.clock.now_ns();
            self.complete(done, seen_ns);
            taken += 1;
        }
        if taken > 0 {
            self.record.reaped(taken as u64);
        }
    }

    /// Waits for all I/Os in flight.
    fn drain(&mut self) {
        while self.out() > 0 {
            self.reap(1, usize::MAX);
        }
    }

    fn complete(&mut self, done: Done, seen_ns: u64) {
        let slot = done.user_data as usize;
        let Flight { io, start_ns, rung_ns } = self.engine.slots.flights[slot];
        match self.engine.finish_io(self.source, slot, &io, done) {
            Ok(true) => {
                let clat_ns = seen_ns.saturating_sub(rung_ns);
                self.record.done(&io, rung_ns - start_ns, clat_ns, seen_ns);
            }
            Ok(false) => {}
            Err(lost) => self.ended = Some(lost),
        }
        // The slot is free even without its buffer. The next I/O that takes the slot detects that.
        self.engine.slots.free.push(slot);
    }

    /// Sends a flush, unless the turn has ended. Nothing else is in flight.
    fn flush(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.shape.flushed();
        let start_ns = self.engine.clock.now_ns();
        match self.engine.flush_once() {
            Ok(true) => self.record.flushed(self.engine.clock.now_ns() - start_ns),
            Ok(false) => {}
            Err(lost) => self.ended = Some(lost),
        }
    }

    /// Pauses until `due_ns` or the turn's end. Spins for at least `spin_ns` of the pause.
    fn pause(&mut self, due_ns: u64, spin_ns: u64) {
        let busy_until_ns = self.engine.clock.now_ns() + spin_ns;
        loop {
            let now_ns = self.engine.clock.now_ns();
            self.end_if_due(now_ns);
            if now_ns >= due_ns || self.ended.is_some() {
                return;
            }
            let left_ns = due_ns.min(self.limit.until_ns) - now_ns;
            if left_ns > SPIN_NS && now_ns >= busy_until_ns {
                self.engine.clock.sleep_ns((left_ns - SPIN_NS).min(SLEEP_MAX_NS));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}
