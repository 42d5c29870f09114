//! Connections, associations, and the answers to hosts.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::fabrics::SQHD_NONE;
use meantime_nvme_spec::opcode::admin as opcode;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_nvme_spec::tcp::CapsuleResp;
use zerocopy::IntoBytes as _;

use super::admin::{self, Identity};
use super::association::{Association, Waiting};
use super::backend::{Backend, ConnId, Reaped};
use super::connection::{Connection, Phase};
use super::counters::SharedCounters;
use super::faults::{Injector, NetFaults};
use super::options::TargetOptions;
use super::output::{Corrupted, PIECES};
use super::refused::Refusals;
use crate::config::SsdConfig;
use crate::error::SsdError;
use crate::medium::Medium;

/// The maximum number of associations with the discovery service at once.
const DISCOVERIES: usize = 64;

/// The maximum number of entries of a host's queue.
const QUEUE_ENTRIES: u32 = 1024;

/// A response that is held back.
pub(super) struct Held {
    due_ns: u64,
    pub(super) conn: ConnId,
    response: Response,
}

pub(super) enum Response {
    /// The completion of a slot's command.
    Done(u16, Cqe),
    /// A completion without data.
    Cqe(Cqe),
    /// A completion of a command whose identifier another command has, and keeps.
    Conflict(Cqe),
    /// A slot's data, of a successful read that the target answers itself.
    Data(u16),
}

pub(super) struct Engine {
    pub(super) backend: Backend,
    pub(super) conns: Vec<Option<Connection>>,
    generations: Vec<u32>,
    pub(super) free: Vec<usize>,
    /// The associations by place. First come those that have a queue pair of the SSD's (place + 1),
    /// then those with the discovery service.
    pub(super) associations: Vec<Option<Association>>,
    /// The number of places of the first kind.
    pub(super) pairs: usize,
    pub(super) entries: u32,
    pub(super) options: TargetOptions,
    pub(super) addr: SocketAddr,
    pub(super) counters: Arc<SharedCounters>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) injector: Injector,
    pub(super) held: VecDeque<Held>,
    /// The Connects that wait.
    pub(super) waiting: Vec<Waiting>,
    /// Connections with something to send.
    pub(super) dirty: Vec<usize>,
    /// Connections with deferred commands.
    pub(super) deferring: Vec<usize>,
    pub(super) reaped: Vec<Reaped>,
    pub(super) now_ns: u64,
    pub(super) last_cntlid: u16,
    /// Whether CSTS.CFS of the SSD has been passed on.
    pub(super) failed: bool,
    pub(super) gone: bool,
}

impl Engine {
    pub(super) fn new(
        config: SsdConfig,
        medium: Medium,
        options: TargetOptions,
    ) -> Result<Self, SsdError> {
        let pairs = usize::from(config.max_io_queues);
        let entries = QUEUE_ENTRIES.min(config.max_queue_entries);
        let backend = Backend::new(config, medium)?;
        let now_ns = backend.now_ns();
        Ok(Self {
            backend,
            conns: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            associations: (0..pairs + DISCOVERIES).map(|_| None).collect(),
            pairs,
            entries,
            injector: Injector::new(options.net_faults),
            addr: options.addr,
            options,
            counters: Arc::default(),
            refusals: Arc::default(),
            held: VecDeque::new(),
            waiting: Vec::new(),
            dirty: Vec::new(),
            deferring: Vec::new(),
            reaped: Vec::new(),
            now_ns,
            last_cntlid: 0,
            failed: false,
            gone: false,
        })
    }

    pub(super) fn set_net_faults(&mut self, plan: NetFaults) {
        self.injector = Injector::new(plan);
    }

    /// Adds a connection. Returns `None` if there are too many, or if the SSD is not there.
    pub(super) fn open(&mut self) -> Option<usize> {
        if self.gone || self.conns.len() - self.free.len() >= self.options.max_connections {
            self.counters.too_many.add(1);
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            self.generations.push(0);
            self.conns.len() - 1
        });
        self.generations[index] = self.generations[index].wrapping_add(1);
        let id = ConnId { index: index as u32, generation: self.generations[index] };
        self.conns[index] = Some(Connection::new(id, self.now_ns));
        self.counters.connections.add(1);
        Some(index)
    }

    /// Returns the connection, if it is still the same one.
    #[inline(always)]
    pub(super) fn live(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.conns.get_mut(id.index as usize)?.as_mut().filter(|conn| conn.id == id)
    }

    /// Returns whether the connection is to be closed, or does not exist any more.
    pub(super) fn is_over(&self, index: usize) -> bool {
        self.conns.get(index).and_then(Option::as_ref).is_none_or(|c| c.phase == Phase::Closed)
    }

    /// Marks a connection to be closed.
    pub(super) fn close_later(&mut self, id: ConnId) {
        let index = id.index as usize;
        if let Some(conn) = self.live(id) {
            conn.phase = Phase::Closed;
            self.mark_dirty(index);
        }
    }

    #[inline(always)]
    pub(super) fn mark_dirty(&mut self, index: usize) {
        if self.dirty.last() != Some(&index) {
            self.dirty.push(index);
        }
    }

    /// Sends a response, now or after the delay.
    pub(super) fn answer(&mut self, conn: ConnId, response: Response) {
        if self.injector.plan.delay_ns > 0 {
            let due_ns = self.backend.now_ns() + self.injector.plan.delay_ns;
            self.held.push_back(Held { due_ns, conn, response });
        } else {
            self.send(conn, response);
        }
    }

    pub(super) fn release_held(&mut self) {
        self.now_ns = self.backend.now_ns();
        // The plan may have changed, so the responses may not be in order, but nearly always they
        // are.
        while self.held.front().is_some_and(|held| held.due_ns <= self.now_ns) {
            let Some(Held { conn, response, .. }) = self.held.pop_front() else { break };
            self.send(conn, response);
        }
    }

    /// Returns when there is something to do without any bytes coming.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        let held = self.held.front().map(|held| held.due_ns);
        [held, self.backend.next_event_ns()].into_iter().flatten().min()
    }

    fn send(&mut self, id: ConnId, response: Response) {
        if self.live(id).is_none_or(|conn| conn.phase != Phase::Ready) {
            if let Response::Done(slot, _) | Response::Data(slot) = response {
                self.backend.release(slot);
            }
            return;
        }
        let index = id.index as usize;
        if let Response::Done(slot, _) = response {
            self.patch(slot, id);
        }
        let Some(conn) = &mut self.conns[index] else { return };
        let Some(queue) = &conn.queue else { return };
        let corrupted =
            if self.injector.none { Corrupted::default() } else { self.injector.corrupts() };
        let before = conn.out.left();
        let sqhd = if queue.no_flow { SQHD_NONE } else { queue.head as u16 };
        let keeps_cid = matches!(response, Response::Conflict(_));
        let (mut cqe, data) = match response {
            Response::Cqe(cqe) | Response::Conflict(cqe) => (cqe, None),
            Response::Data(slot) => {
                let cid = self.backend.slot(slot).sqe.cid();
                (Cqe::new(0, 0, 0, cid, Status::SUCCESS, false), Some(slot))
            }
            Response::Done(slot, done) => {
                let of = self.backend.slot(slot);
                let mut cqe = done;
                cqe.cid.set(of.sqe.cid());
                cqe.status_phase.set(done.status_phase.get() & !1);
                let data = (of.is_read && of.len > 0 && done.status().is_success()).then_some(slot);
                if data.is_none() {
                    self.backend.release(slot);
                }
                (cqe, data)
            }
        };
        let cid = cqe.cid.get();
        let mut answered = false;
        if let Some(slot) = data {
            let len = self.backend.slot(slot).len;
            // No completion has to follow if it would carry no information.
            answered = queue.no_flow && cqe.dw0.get() == 0 && cqe.status_phase.get() == 0;
            let how = (conn.digests, conn.align);
            conn.out.data(&self.backend, (slot, cid, len), how, answered, corrupted);
        }
        if !answered {
            cqe.sqhd.set(sqhd);
            cqe.sqid.set(0);
            let mut pdu = CapsuleResp::new(&cqe);
            pdu.common = pdu.common.with_digests(conn.digests);
            conn.out.pdu(pdu.as_bytes(), conn.digests, corrupted);
        }
        conn.outstanding -= 1;
        if !keeps_cid {
            conn.free_cid(cid);
        }
        if !self.injector.none {
            if (corrupted.header && conn.digests & 1 != 0)
                || (corrupted.data && conn.digests & 2 != 0 && data.is_some())
            {
                self.counters.injected_digests.add(1);
            }
            if conn.cut.is_none()
                && let Some(at) = self.injector.cuts(conn.out.left() - before)
            {
                self.counters.injected_closes.add(1);
                conn.cut = Some(before + at);
                if before + at == 0 {
                    conn.phase = Phase::Closed;
                }
            }
        }
        self.mark_dirty(index);
    }

    /// Changes the SSD's Identify data to those that hosts are to get.
    #[inline(always)]
    fn patch(&mut self, slot: u16, id: ConnId) {
        let of = self.backend.slot(slot);
        if of.pair != 0 || of.sqe.opcode() != opcode::IDENTIFY {
            return;
        }
        let (structure, len) = (of.sqe.cns(), of.len as usize);
        let Some(queue) = self.live(id).and_then(|conn| conn.queue) else { return };
        let Some(association) = &self.associations[queue.association] else { return };
        let identity =
            Identity { cntlid: association.cntlid, nqn: &self.options.nqn, entries: self.entries };
        let data = self.backend.machine_mut().data_mut(usize::from(slot), 0..len);
        admin::patch(structure, data, &identity);
    }

    /// Answers a command that took no slot.
    pub(super) fn respond(&mut self, index: usize, cid: u16, status: Status, dws: u64) {
        let Some(conn) = &self.conns[index] else { return };
        let id = conn.id;
        let mut cqe = Cqe::new(dws as u32, 0, 0, cid, status, false);
        cqe.dw1.set((dws >> 32) as u32);
        self.answer(id, Response::Cqe(cqe));
    }

    /// Releases the slot of a command, and answers the command.
    pub(super) fn refuse_slot(&mut self, index: usize, slot: u16, status: Status) {
        let cid = self.backend.slot(slot).sqe.cid();
        self.backend.release(slot);
        self.respond(index, cid, status, 0);
    }

    /// Defers a command of a connection, for which there may be room later.
    pub(super) fn defer(&mut self, index: usize, sqe: Sqe) {
        if let Some(conn) = &mut self.conns[index] {
            conn.deferred.push_back(sqe);
            self.keep_deferring(index);
        }
    }

    pub(super) fn keep_deferring(&mut self, index: usize) {
        if !self.deferring.contains(&index) {
            self.deferring.push(index);
        }
    }

    /// Collects the next pieces to send of a connection.
    pub(super) fn gather<'a>(&'a self, index: usize, to: &mut [IoSlice<'a>; PIECES]) -> usize {
        let Some(conn) = &self.conns[index] else { return 0 };
        conn.out.gather(&self.backend, to, conn.cut.unwrap_or(usize::MAX))
    }

    /// Notes that `count` bytes were sent.
    pub(super) fn sent(&mut self, index: usize, count: usize) {
        let Some(conn) = &mut self.conns[index] else { return };
        conn.out.advance(count, &mut self.backend);
        conn.blocked_ns = None;
        if let Some(cut) = &mut conn.cut {
            *cut -= count;
            if *cut == 0 {
                conn.phase = Phase::Closed;
            }
        }
    }

    /// Notes that the socket takes nothing for now.
    pub(super) fn blocked(&mut self, index: usize) {
        if let Some(conn) = &mut self.conns[index] {
            conn.blocked_ns.get_or_insert(self.now_ns);
        }
    }

    /// Returns the number of hosts whose controller is enabled.
    pub(super) fn enabled(&self) -> usize {
        self.associations[..self.pairs].iter().flatten().filter(|a| a.cc.en()).count()
    }

    pub(super) fn has_orphans(&self) -> bool {
        self.backend.has_orphans(|id| {
            let conn = self.conns.get(id.index as usize).and_then(Option::as_ref);
            conn.is_some_and(|conn| conn.id == id)
        })
    }

    /// Enables the SSD, because a controller is enabled.
    pub(super) fn revive(&mut self) {
        let alone = self.enabled() <= 1;
        if self.failed || (alone && (!self.backend.csts().rdy() || self.has_orphans())) {
            self.failed = false;
            self.backend.enable();
        }
    }
}

/// Returns a status that a repetition does not change.
pub(super) fn dnr(code: StatusCode) -> Status {
    Status::from_code(code).with_dnr()
}
