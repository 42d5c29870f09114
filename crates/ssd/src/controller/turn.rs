//! One turn: decides which queues have commands, how many of them are fetched, and what is due.

use std::sync::atomic::Ordering;

use super::doorbell::{cq_doorbell, sq_doorbell};
use super::fused::Head;
use super::queues::Cq;
use super::{Controller, Turn};
use crate::clock::Clock;

impl Controller {
    /// Serves every queue once.
    #[inline]
    pub(crate) fn turn<C: Clock>(&mut self, clock: &C) -> Turn {
        self.blocked = false;
        if self.timed | self.arbitrated {
            return self.turn_by_clock(clock);
        }
        // Only executed commands create timed work, so without commands nothing new is due.
        if self.serve_all(clock) { Turn::Worked } else { self.without_work() }
    }

    /// Does a turn while work is due later, or not every command may be fetched.
    #[inline(never)]
    fn turn_by_clock<C: Clock>(&mut self, clock: &C) -> Turn {
        let mut worked = self.timed && self.expire(clock.now_ns());
        if self.arbitrated {
            worked |= self.arbitrate(clock);
        } else {
            let mut index = 0;
            while index < self.sqs.len() {
                worked |= self.serve_if_rung(index, self.features.burst(), clock);
                index += 1;
            }
        }
        if worked {
            Turn::Worked
        } else if self.timed {
            Turn::Waiting
        } else {
            self.without_work()
        }
    }

    #[inline(always)]
    fn without_work(&self) -> Turn {
        if self.blocked || self.events.held_back() { Turn::Blocked } else { Turn::Idle }
    }

    /// Visits every queue once. Returns true if there were commands.
    #[inline(always)]
    fn serve_all<C: Clock>(&mut self, clock: &C) -> bool {
        let mut worked = false;
        // The admin queue is first among them; serving it may change the list.
        let mut index = 0;
        while let Some(sq) = self.sqs.get(index) {
            let tail = sq.doorbell.load();
            // This does not prefetch the next entry without a doorbell, which would take the line
            // away from the host that is about to write it (tried without a gain).
            if tail != sq.head {
                worked |= self.serve(index, tail, self.features.burst(), clock);
            }
            index += 1;
        }
        worked
    }

    /// Fetches and executes commands of a queue whose tail doorbell is not at its head, at most
    /// `burst` except on the admin queue. Returns true if there were any.
    #[inline(always)]
    pub(super) fn serve<C: Clock>(
        &mut self,
        index: usize,
        tail: u32,
        burst: u32,
        clock: &C,
    ) -> bool {
        let sq = &mut self.sqs[index];
        if tail >= sq.ring.entries() {
            if sq.bad_tail != Some(tail) {
                sq.bad_tail = Some(tail);
                let qid = sq.qid;
                self.bad_doorbell(qid, "submission queue tail beyond the queue");
            }
            return false;
        }
        sq.bad_tail = None;
        if index == 0 {
            return self.serve_admin(tail, clock);
        }
        if self.immediate {
            self.serve_at_once(index, tail, burst, clock)
        } else {
            self.serve_timed(index, tail, burst, clock)
        }
    }

    /// Returns the room for completions of the commands of `sqs[index]`. Reads the head doorbell if
    /// there seems to be none.
    pub(super) fn room(&mut self, index: usize, wanted: u32) -> u32 {
        let cqid = self.sqs[index].cqid;
        let Some(cq) = &mut self.cqs[usize::from(cqid)] else { return 0 };
        if cq.room() < wanted
            && let Err(reason) = cq.refresh()
        {
            self.bad_doorbell(cqid, reason);
        }
        let room = self.cqs[usize::from(cqid)].as_ref().map_or(0, Cq::room);
        self.blocked |= room == 0;
        room
    }

    /// Serves one turn's commands of an I/O queue whose completions come later, need stamps, or may
    /// be faulty.
    fn serve_timed<C: Clock>(&mut self, index: usize, tail: u32, burst: u32, clock: &C) -> bool {
        let wanted = self.sqs[index].available(tail).min(burst);
        let n = wanted.min(self.room(index, wanted)).min(self.room_inside());
        if n == 0 {
            return false;
        }
        let seen_ns = clock.now_ns();
        let mut taken = 0;
        while taken < n {
            let sq = &self.sqs[index];
            // An earlier command's injected stray completion may have used this turn's room.
            if self.cqs[usize::from(sq.cqid)].as_ref().is_none_or(|cq| cq.room() == 0) {
                break;
            }
            let qid = sq.qid;
            match self.head_of(index, tail) {
                Head::NoRoom => break,
                Head::Pair(first, second) => {
                    self.sqs[index].advance(2);
                    taken += 2;
                    self.start_pair(index, (&first, &second), seen_ns, clock);
                }
                Head::One => {
                    let sq = &mut self.sqs[index];
                    let sqe = sq.ring.read_sqe(sq.head);
                    sq.advance(1);
                    taken += 1;
                    self.start_timed(index, &sqe, None, seen_ns, clock);
                }
            }
            // A fault may have removed the queues.
            if self.sqs.get(index).is_none_or(|sq| sq.qid != qid) {
                return true;
            }
        }
        self.announce(index, clock);
        taken > 0
    }

    /// Checks every doorbell, including those without a queue, and whether the host is still alive.
    /// This is called on idle turns only.
    pub(crate) fn inspect(&mut self, now_ns: u64) {
        self.look_for_life(now_ns);
        for qid in 0..self.cqs.len() as u16 {
            if let Some(Err(reason)) = self.cqs[usize::from(qid)].as_mut().map(Cq::refresh) {
                self.bad_doorbell(qid, reason);
            }
        }
        for qid in 0..self.cqs.len() as u16 {
            let has_sq = self.sqs.iter().any(|sq| sq.qid == qid);
            let has_cq = self.cqs[usize::from(qid)].is_some();
            for (index, exists) in [(sq_doorbell(qid), has_sq), (cq_doorbell(qid), has_cq)] {
                let Some(cell) = self.doorbells.get(index).filter(|_| !exists) else { continue };
                if cell.swap(0, Ordering::Relaxed) != 0 {
                    self.stray_doorbell(index);
                }
            }
        }
        self.deliver_events();
    }

    /// Returns the time of the next due work.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        let keep_alive = self.keep_alive_until_ns();
        let times = [
            self.pending.next_due_ns(),
            self.interrupts.next_deadline_ns(),
            self.ready_at_ns,
            keep_alive,
        ];
        times.into_iter().flatten().min()
    }

    /// Does the work due by `now_ns`.
    fn expire(&mut self, now_ns: u64) -> bool {
        let mut worked = false;
        if self.ready_at_ns.is_some_and(|at| at <= now_ns) {
            self.ready_at_ns = None;
            self.regs.set_ready(true);
            worked = true;
        }
        while let Some(command) = self.pending.pop_due(now_ns) {
            self.finish(command, now_ns);
            worked = true;
        }
        if worked {
            self.announce_all(now_ns);
        }
        self.counters.interrupts.add(self.interrupts.expire(now_ns));
        self.update_timed();
        worked
    }
}
