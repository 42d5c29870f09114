//! The actions of the target when bytes come, when the SSD has something to report, and when time
//! has passed.

use super::association::Association;
use super::backend::{ConnId, Reaped};
use super::connection::{Connection, Got, Phase};
use super::engine::{Engine, Response};
use crate::controller::Turn;

/// The number of commands of one connection before the next has its turn.
const BURST: u32 = 32;

impl Engine {
    /// Takes bytes that have come. Returns how many. The others are to be offered again, once there
    /// is room, or after the other connections.
    #[inline]
    pub(super) fn receive(&mut self, index: usize, input: &[u8]) -> usize {
        let mut used = 0;
        if let Some(conn) = &mut self.conns[index] {
            conn.now_ns = self.now_ns;
        }
        for _ in 0..BURST {
            let Some(conn) = &mut self.conns[index] else { return input.len() };
            match conn.phase {
                Phase::Ending | Phase::Closed => return input.len(),
                Phase::Fresh | Phase::Ready => {}
            }
            match conn.next(input, &mut used, &mut self.backend) {
                Ok(Got::Nothing) => {
                    if !conn.out.is_empty() {
                        self.mark_dirty(index);
                    }
                    return used;
                }
                Ok(Got::Stalled) => return used,
                Ok(Got::Capsule(sqe, data)) => {
                    if !self.injector.none && self.injector.drops() {
                        self.counters.injected_closes.add(1);
                        let id = conn.id;
                        self.close_later(id);
                        return input.len();
                    }
                    self.command(index, sqe, data);
                }
                Ok(Got::Filled(slot)) => self.filled(index, slot),
                Ok(Got::Terminated) => {
                    self.counters.terminated_by_hosts.add(1);
                    let id = conn.id;
                    self.close_later(id);
                    return input.len();
                }
                Err(fatal) => {
                    self.fatal(index, fatal);
                    return input.len();
                }
            }
        }
        used
    }

    /// Lets the SSD work, and queues the answers.
    #[inline]
    pub(super) fn turn(&mut self) -> Turn {
        let mut reaped = std::mem::take(&mut self.reaped);
        let turn = self.backend.turn(&mut reaped);
        self.take_reaped(&mut reaped);
        self.reaped = reaped;
        if !self.held.is_empty() {
            self.release_held();
        }
        if !self.deferring.is_empty() {
            let mut deferring = std::mem::take(&mut self.deferring);
            // Each connection is the first one in its turn.
            deferring.rotate_left(1);
            for index in deferring {
                self.resume(index);
            }
        }
        if turn != Turn::Idle {
            self.check_device();
        }
        turn
    }

    /// Handles what the SSD does by itself. Returns true if there was something.
    pub(super) fn inspect(&mut self) -> bool {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.backend.inspect(&mut reaped);
        let worked = !reaped.is_empty();
        self.take_reaped(&mut reaped);
        self.reaped = reaped;
        worked
    }

    #[inline(always)]
    fn take_reaped(&mut self, reaped: &mut Vec<Reaped>) {
        for one in reaped.drain(..) {
            match one {
                Reaped::Done(slot, cqe) => {
                    let conn = self.backend.slot(slot).conn;
                    self.answer(conn, Response::Done(slot, cqe));
                }
                Reaped::Event(event) => self.event(event),
            }
        }
    }

    /// Handles what has happened to the SSD.
    pub(super) fn check_device(&mut self) {
        let gone = self.backend.is_gone();
        if gone != self.gone {
            self.gone = gone;
            self.end_all();
            if !gone {
                self.backend.enable();
            }
        } else if !gone && self.backend.lost_power() {
            // A target whose SSD has no power answers nothing.
            self.end_all();
            self.backend.enable();
            self.failed = false;
        } else if !gone && !self.failed && self.backend.csts().cfs() {
            self.failed = true;
            let pairs = self.pairs;
            for association in self.associations[..pairs].iter_mut().flatten() {
                association.failed |= association.cc.en();
            }
        }
    }

    fn end_all(&mut self) {
        let all: Vec<ConnId> = self.conns.iter().flatten().map(|conn| conn.id).collect();
        for id in all {
            self.close_later(id);
        }
    }

    /// Notes that the thread did not run since `before_ns`. Commands that were handled meanwhile,
    /// with the old time, came later.
    pub(super) fn catch_up(&mut self, before_ns: u64) {
        for association in self.associations.iter_mut().flatten() {
            if association.alive_ns == before_ns {
                association.alive_ns = self.now_ns;
            }
        }
    }

    /// Ends what has taken too long. It is called from time to time, after all bytes that have come
    /// were handled.
    pub(super) fn tick(&mut self) {
        let now_ns = self.now_ns;
        for at in 0..self.associations.len() {
            let Some(association) = &self.associations[at] else { continue };
            if association.until_ns().is_some_and(|until_ns| now_ns >= until_ns) {
                self.counters.keep_alives_expired.add(1);
                tracing::debug!(hostnqn = association.hostnqn, "Keep Alive Timer expired");
                self.end_association(at);
            }
        }
        for index in 0..self.conns.len() {
            let Some(conn) = &self.conns[index] else { continue };
            let late = conn.until_ns().is_some_and(|until_ns| now_ns >= until_ns);
            if late {
                self.counters.too_slow.add(1);
                let id = conn.id;
                self.close_later(id);
            }
        }
        if !self.waiting.is_empty() {
            self.try_again();
        }
        self.check_device();
    }

    /// Returns when `tick` has something to do, at the latest.
    pub(super) fn next_tick_ns(&self) -> Option<u64> {
        let hosts = self.associations.iter().flatten().filter_map(Association::until_ns).min();
        let conns = self.conns.iter().flatten().filter_map(Connection::until_ns).min();
        let waiting = self.waiting.iter().map(|waiting| waiting.until_ns).min();
        [hosts, conns, waiting].into_iter().flatten().min()
    }

    /// Removes a connection, and what depends on it.
    pub(super) fn close(&mut self, index: usize) {
        let Some(mut conn) = self.conns.get_mut(index).and_then(Option::take) else { return };
        conn.out.drop_all(&mut self.backend);
        self.held.retain(|held| held.conn != conn.id);
        self.backend.abandon(conn.id);
        self.counters.ended.add(1);
        self.free.push(index);
        let Some(queue) = conn.queue else { return };
        if queue.qid == 0 {
            self.end_association_of(queue.association, conn.id);
            if !self.gone && self.enabled() == 0 && self.has_orphans() {
                // A command that is never answered keeps its slot.
                self.backend.enable();
            }
        } else if let Some(association) = &mut self.associations[queue.association] {
            association.io.retain(|&(_, id)| id != conn.id);
        }
        if !self.waiting.is_empty() {
            self.try_again();
        }
    }
}
