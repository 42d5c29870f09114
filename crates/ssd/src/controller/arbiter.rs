//! Arbitration decides which queue's commands are fetched next when not all can be (1.4 §4.13).
//!
//! While the device takes every command at once, the order does not matter, and
//! [`Controller::turn`] visits every queue once. With weighted round robin selected (CC.AMS), or
//! with a model that bounds the commands inside the device, this module chooses a queue for every
//! few commands.

use super::{Arbiter, Controller, Rotation};
use crate::clock::Clock;

/// The maximum number of commands of one turn. Calls and unknown doorbells are handled between
/// turns.
const TURN: u32 = 256;

/// Classes of weighted round robin, numbered as in QPRIO: urgent, high, medium, low.
const URGENT: u8 = 0;
const WEIGHTED: [u8; 3] = [1, 2, 3];

impl Arbiter {
    /// Sets the state after a controller reset, with the mechanism that CC.AMS selects.
    pub(super) fn reset(&mut self, weighted: bool) {
        *self = Self { weighted, ..Self::default() };
    }
}

impl Controller {
    /// Returns the number of commands that may still enter the device.
    #[inline(always)]
    pub(super) fn room_inside(&self) -> u32 {
        self.most_inside.saturating_sub(self.pending.len() as u32)
    }

    /// Serves one turn's commands, in the order of the arbitration mechanism. Returns true if there
    /// were any.
    pub(super) fn arbitrate<C: Clock>(&mut self, clock: &C) -> bool {
        let mut worked = false;
        let mut fetched = 0;
        while fetched < TURN {
            // 1.4 §4.13.2: admin commands come before all others.
            worked |= self.serve_if_rung(0, 0, clock);
            // A full device does not end a queue's round.
            if self.room_inside() == 0 {
                break;
            }
            let taken = if self.arbiter.weighted {
                self.serve_by_class(clock)
            } else {
                self.rotate(None, u32::MAX, clock)
            };
            if taken == 0 {
                break;
            }
            fetched += taken;
            worked = true;
        }
        worked
    }

    /// Serves the urgent class, or else the class whose credits are in use. Returns the number of
    /// commands.
    fn serve_by_class<C: Clock>(&mut self, clock: &C) -> u32 {
        let urgent = self.rotate(Some(URGENT), u32::MAX, clock);
        if urgent > 0 {
            return urgent;
        }
        // The second pass has new credits, in case no queue with commands had any.
        for _ in 0..2 {
            for step in 0..WEIGHTED.len() {
                let class = (self.arbiter.current + step) % WEIGHTED.len();
                let credits = self.arbiter.credits[class];
                if credits == 0 {
                    continue;
                }
                let taken = self.rotate(Some(WEIGHTED[class]), credits, clock);
                if taken > 0 {
                    // A fused pair is not split for lack of a credit.
                    self.arbiter.credits[class] = credits.saturating_sub(taken);
                    self.arbiter.current = class;
                    return taken;
                }
            }
            self.arbiter.credits = self.features.arbitration().weights();
            self.arbiter.current = 0;
        }
        0
    }

    /// Serves the next queue of `class` (or of all classes), with at most `most` commands, and no
    /// more than the rest of the queue's burst. Returns the number of commands.
    fn rotate<C: Clock>(&mut self, class: Option<u8>, most: u32, clock: &C) -> u32 {
        let slot = usize::from(class.unwrap_or(URGENT));
        let Rotation { qid, left } = self.arbiter.rotations[slot];
        let queues = self.sqs.len();
        let at = self.sqs.iter().position(|sq| sq.qid == qid && sq.qid != 0);
        // This continues with the previous queue if its burst is not used up, and otherwise with
        // the one after it.
        let first = at.unwrap_or(0) + usize::from(at.is_some() && left == 0);
        for step in 0..queues {
            let index = (first + step) % queues;
            let Some(sq) = self.sqs.get(index) else { return 0 };
            if sq.qid == 0 || class.is_some_and(|class| sq.qprio != class) {
                continue;
            }
            let next = sq.qid;
            let burst =
                if next == qid && left > 0 && step == 0 { left } else { self.features.burst() };
            let before = sq.head;
            if !self.serve_if_rung(index, burst.min(most), clock) {
                continue;
            }
            // A fault may have removed the queues.
            let Some(sq) = self.sqs.get(index).filter(|sq| sq.qid == next) else { return 1 };
            let taken = if sq.head >= before {
                sq.head - before
            } else {
                sq.head + sq.ring.entries() - before
            };
            self.arbiter.rotations[slot] =
                Rotation { qid: next, left: burst.saturating_sub(taken) };
            return taken;
        }
        0
    }

    /// Serves at most `burst` commands of `sqs[index]`. Returns true if there were any. It is not
    /// inlined, because [`Controller::turn`] has its own inlined copy of this call chain.
    #[inline(never)]
    pub(super) fn serve_if_rung<C: Clock>(&mut self, index: usize, burst: u32, clock: &C) -> bool {
        let Some(sq) = self.sqs.get(index) else { return false };
        let tail = sq.doorbell.load();
        tail != sq.head && self.serve(index, tail, burst, clock)
    }
}
