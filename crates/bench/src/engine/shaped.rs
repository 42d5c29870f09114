//! The loop of jobs with a [`Shape`]: flushes, pauses, rates, batches and depths that change.
//!
//! An I/O's latency begins after whatever it had to wait for: before a pause, and before a flush,
//! all that is in flight is waited for (as fio does), so that nothing completes unseen. A flush
//! therefore covers every write before it.

use meantime_block::{BlockChannel, Done, Request};

use super::{Ended, Engine, Flight, Limit, Record, Source, quarantined};
use crate::pattern::{Dir, Io};
use crate::search::Verdict;
use crate::shape::Shape;

use std::sync::atomic::Ordering;
use std::time::Duration;

/// The rest of a pause is spent looking at the clock: a sleep may end so much later.
const SPIN_NS: u64 = 150_000;

/// A sleep looks so often whether the end was asked for.
const SLEEP_MAX_NS: u64 = 50_000_000;

/// `user_data` of a flush.
const FLUSH: u64 = u64::MAX;

impl<C: BlockChannel> Engine<'_, C> {
    /// Does I/O until `limit` in the way of `shape`.
    pub(crate) fn run_shaped<S: Source, R: Record>(
        &mut self,
        source: &mut S,
        shape: &mut Shape,
        limit: Limit,
        record: &mut R,
    ) -> Ended {
        let mut round = Round { source, shape, record, limit, ios: 0, ended: None };
        round.shape.begin(self.clock.now_ns());
        loop {
            if round.ended.is_none() {
                self.fill(&mut round);
            }
            if self.out() == 0
                && let Some(ended) = round.ended
            {
                let now_ns = self.clock.now_ns();
                round.shape.rest(now_ns);
                // When time is up it is for the others of its flow as well.
                if ended != Ended::Limit || now_ns < limit.until_ns {
                    round.shape.leave_flow();
                }
                return ended;
            }
            let batch = round.shape.batch();
            loop {
                self.reap(&mut round, batch.least, batch.most);
                if self.out() <= batch.low || round.ended.is_some() {
                    break;
                }
            }
            let now_ns = self.clock.now_ns();
            if round.ended.is_none() {
                if self.stop.load(Ordering::Relaxed) {
                    round.ended = Some(Ended::Stopped);
                } else if now_ns >= limit.until_ns {
                    round.ended = Some(Ended::Limit);
                }
            }
            let verdict =
                if round.ended.is_none() { round.shape.judge(now_ns) } else { Verdict::GoOn };
            match verdict {
                Verdict::GoOn => {}
                Verdict::Changed => self.drain(&mut round),
                Verdict::Found => {
                    self.drain(&mut round);
                    round.ended.get_or_insert(Ended::Found);
                }
                Verdict::Done => round.ended = Some(Ended::Dry),
                Verdict::Hopeless(worst_ns) => {
                    self.faults.errors += 1;
                    self.faults.first.get_or_insert_with(|| {
                        format!(
                            "latency_target cannot be kept: one at a time took {} µs",
                            worst_ns / 1000
                        )
                    });
                    round.ended = Some(Ended::Dry);
                }
            }
        }
    }

    /// I/Os that have not been taken back: those in flight, and those that have ended unseen.
    fn out(&self) -> usize {
        self.slots.bufs.len() - self.slots.free.len()
    }

    /// Submits until the depth is reached, with what has to come in between.
    fn fill<S: Source, R: Record>(&mut self, round: &mut Round<'_, S, R>) {
        self.slots.batch.clear();
        let depth = round.shape.depth(self.slots.bufs.len());
        while self.out() < depth && round.ended.is_none() {
            if round.ios >= round.limit.max_ios {
                round.ended = Some(Ended::Limit);
                break;
            }
            let Some(io) = round.shape.held.take().or_else(|| round.source.next()) else {
                round.ended = Some(Ended::Dry);
                break;
            };
            if !self.is_time_for(&io, round) {
                round.shape.held = Some(io);
                break;
            }
            self.send(&io, round);
            if self.slots.batch.len() >= round.shape.batch().submit {
                self.ring(round);
            }
        }
        self.ring(round);
    }

    /// Flushes, pauses and waits until `io` may be submitted; false if the turn has ended before,
    /// or if others of its flow are to go first.
    fn is_time_for<S: Source, R: Record>(&mut self, io: &Io, round: &mut Round<'_, S, R>) -> bool {
        if round.shape.is_flush_due() {
            self.ring(round);
            self.drain(round);
            self.flush(round);
            round.shape.flushed();
        }
        if let Some((pause_ns, spin_ns)) = round.shape.pause() {
            self.ring(round);
            self.drain(round);
            let now_ns = self.clock.now_ns();
            self.pause(now_ns + pause_ns, spin_ns, round);
            let left_ns = (now_ns + pause_ns).saturating_sub(self.clock.now_ns());
            if round.ended.is_some() && left_ns > 0 {
                round.shape.pause_left(left_ns);
            }
        }
        if let Some(due_ns) = round.shape.due_ns(io)
            && self.clock.now_ns() < due_ns
        {
            self.ring(round);
            self.drain(round);
            self.pause(due_ns, 0, round);
        }
        if round.ended.is_none()
            && let Some(sleep) = round.shape.waits_for_flow()
        {
            self.ring(round);
            if !sleep.is_zero() {
                self.drain(round);
                let until_ns = self.clock.now_ns() + sleep.as_nanos() as u64;
                self.pause(until_ns, 0, round);
            } else if self.out() == 0 {
                // Nothing to take back meanwhile.
                std::thread::yield_now();
            }
            return false;
        }
        round.ended.is_none()
    }

    fn send<S: Source, R: Record>(&mut self, io: &Io, round: &mut Round<'_, S, R>) {
        // There is one: fewer are in flight than there are slots.
        let Some(slot) = self.slots.free.pop() else { return };
        let Some(mut buf) = self.slots.bufs[slot].take() else {
            self.slots.free.push(slot);
            round.ended = Some(quarantined());
            return;
        };
        let io = &Io { ioprio: round.shape.priority(io), ..*io };
        buf.set_len(io.bytes);
        round.source.prepare(slot, io, &mut buf);
        if self.slots.batch.is_empty() && round.shape.batch().submit > 1 {
            self.channel.plug();
        }
        let mut request = self.request(slot, io, buf).user_data(slot as u64);
        request.fua = round.shape.fua && io.dir == Dir::Write;
        request.ioprio = io.ioprio;
        let start_ns = self.clock.now_ns();
        if let Err(rejected) = self.channel.enqueue(request) {
            self.give_back(slot, rejected.request.buf);
            self.slots.free.push(slot);
            round.ended = Some(Ended::Lost(rejected.error.to_string()));
            return;
        }
        self.slots.flights[slot] = Flight { io: *io, start_ns, rung_ns: start_ns };
        self.slots.batch.push(slot);
        round.shape.submits(io);
        round.ios += 1;
    }

    /// The doorbell, for what was submitted since the last one.
    fn ring<S: Source, R: Record>(&mut self, round: &mut Round<'_, S, R>) {
        if self.slots.batch.is_empty() {
            return;
        }
        self.channel.unplug();
        let rung_ns = self.clock.now_ns();
        for slot in &self.slots.batch {
            self.slots.flights[*slot].rung_ns = rung_ns;
        }
        let ios = self.slots.batch.len() as u64;
        round.record.submitted(self.channel.in_flight().max(1), ios);
        self.slots.batch.clear();
    }

    /// Waits for `least` and takes `most` at most.
    fn reap<S: Source, R: Record>(
        &mut self,
        round: &mut Round<'_, S, R>,
        least: usize,
        most: usize,
    ) {
        let mut taken = 0;
        while taken < most {
            let done = match self.channel.next_done() {
                Some(done) => Some(done),
                None if taken < least => self.channel.wait_done(),
                None if taken == 0 => {
                    self.channel.poll();
                    self.channel.next_done()
                }
                None => None,
            };
            let Some(done) = done else { break };
            let seen_ns = self.clock.now_ns();
            self.ended(done, seen_ns, round);
            taken += 1;
        }
        if taken > 0 {
            round.record.reaped(taken as u64);
        }
    }

    /// Waits for all that is in flight.
    fn drain<S: Source, R: Record>(&mut self, round: &mut Round<'_, S, R>) {
        while self.out() > 0 {
            self.reap(round, 1, usize::MAX);
        }
    }

    fn ended<S: Source, R: Record>(
        &mut self,
        done: Done,
        seen_ns: u64,
        round: &mut Round<'_, S, R>,
    ) {
        let slot = done.user_data as usize;
        let Flight { io, start_ns, rung_ns } = self.slots.flights[slot];
        match self.take_back(round.source, slot, &io, done) {
            Ok(good) => {
                if good {
                    let clat_ns = seen_ns.saturating_sub(rung_ns);
                    round.record.done(&io, rung_ns - start_ns, clat_ns, seen_ns);
                    round.shape.took(rung_ns - start_ns + clat_ns);
                }
            }
            Err(lost) => round.ended = Some(lost),
        }
        // Even without its buffer: whoever takes the slot next finds that out.
        self.slots.free.push(slot);
    }

    /// A flush by itself: nothing else is in flight.
    fn flush<S: Source, R: Record>(&mut self, round: &mut Round<'_, S, R>) {
        if round.ended.is_some() {
            return;
        }
        let start_ns = self.clock.now_ns();
        match self.flush_once() {
            Ok(true) => round.record.flushed(self.clock.now_ns() - start_ns),
            Ok(false) => {}
            Err(lost) => round.ended = Some(lost),
        }
    }

    /// A flush, with nothing in flight; whether it was done.
    pub(crate) fn flush_once(&mut self) -> Result<bool, Ended> {
        if let Err(rejected) = self.channel.enqueue(Request::flush().user_data(FLUSH)) {
            return Err(Ended::Lost(rejected.error.to_string()));
        }
        match self.channel.wait_done().map(|done| done.result) {
            Some(Err(error)) => self.failed(&error, false).map(|()| false),
            _ => Ok(true),
        }
    }

    /// Until `due_ns` or the turn's end; `spin_ns` of it at least are spent busily.
    fn pause<S: Source, R: Record>(
        &mut self,
        due_ns: u64,
        spin_ns: u64,
        round: &mut Round<'_, S, R>,
    ) {
        let busy_until_ns = self.clock.now_ns() + spin_ns;
        loop {
            let now_ns = self.clock.now_ns();
            if self.stop.load(Ordering::Relaxed) {
                round.ended.get_or_insert(Ended::Stopped);
            } else if now_ns >= round.limit.until_ns {
                round.ended.get_or_insert(Ended::Limit);
            }
            if now_ns >= due_ns || round.ended.is_some() {
                return;
            }
            let left_ns = due_ns.min(round.limit.until_ns) - now_ns;
            if left_ns > SPIN_NS && now_ns >= busy_until_ns {
                std::thread::sleep(Duration::from_nanos((left_ns - SPIN_NS).min(SLEEP_MAX_NS)));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// One call of the loop.
struct Round<'r, S, R> {
    source: &'r mut S,
    shape: &'r mut Shape,
    record: &'r mut R,
    limit: Limit,
    ios: u64,
    ended: Option<Ended>,
}
