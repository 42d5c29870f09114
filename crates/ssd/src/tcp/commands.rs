//! Executes commands: answers some here, and passes the others to the SSD.

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::fabrics::{DISCOVERY_LOG, DISCOVERY_NQN, FabricsType, sub_type};
use meantime_nvme_spec::features::{NumberOfQueues, fid};
use meantime_nvme_spec::identify::cns;
use meantime_nvme_spec::opcode::{DataTransfer, admin, io};
use meantime_nvme_spec::regs;
use meantime_nvme_spec::sgl::{SglKind, psdt};
use meantime_nvme_spec::sqe::{Sqe, fuse};
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_nvme_spec::tcp::{CommonHeader, FatalError, PduType, R2t};
use zerocopy::IntoBytes as _;

use super::association::is_own_feature;
use super::authentication;
use super::backend::State;
use super::connection::{Connection, Fatal, InCapsule, Phase, Queue};
use super::discovery;
use super::engine::{Engine, Response, dnr};
use super::machine::BUFFER_BYTES;
use super::output::Corrupted;

/// The maximum number of R2Ts of one connection that are not answered.
const R2TS: u32 = 32;

/// The size of every Identify structure in bytes.
const IDENTIFY_BYTES: u32 = 4096;

/// The size of all ranges that Dataset Management can have, in bytes.
const RANGES_BYTES: u32 = 4096;

/// The transfer of a command.
enum Transfer {
    None,
    ToHost(u32),
    FromHost(u32),
}

impl Engine {
    /// Handles a command that has come.
    #[inline]
    pub(super) fn command(&mut self, index: usize, sqe: Sqe, data: Option<InCapsule>) {
        let Some(conn) = &mut self.conns[index] else { return };
        if let Some(data) = data {
            let slot = self.backend.slot_mut(data.slot);
            slot.sqe = sqe;
            slot.len = data.len;
        }
        let cid = sqe.cid();
        let Some(queue) = &mut conn.queue else {
            return self.connect(index, &sqe, data);
        };
        queue.head = if queue.head + 1 >= queue.entries { 0 } else { queue.head + 1 };
        let queue = *queue;
        if queue.qid == 0
            && !self.backend.config().strict
            && let Some(association) = &mut self.associations[queue.association]
            && association.requests.release(cid)
        {
            conn.outstanding -= 1;
            conn.free_cid(cid);
            self.backend.controller().tolerate_reuse(cid);
        }
        if conn.outstanding >= queue.entries {
            let why = "more commands at once than the queue has entries";
            return self.fatal(index, Fatal { fes: FatalError::Sequence, fei: 0, why });
        }
        conn.outstanding += 1;
        let id = conn.id;
        if !conn.use_cid(cid) {
            self.drop_data(data);
            let status = dnr(StatusCode::CommandIdConflict);
            return self.answer(id, Response::Conflict(Cqe::new(0, 0, 0, cid, status, false)));
        }
        let needs_authentication = conn.authentication.is_needed();
        if let Some(association) = &mut self.associations[queue.association] {
            association.alive_ns = self.now_ns;
        }
        let refused = if data.is_some_and(|data| data.bad) {
            self.counters.data_digest_errors.add(1);
            Some(Status::from_code(StatusCode::TransientTransportError))
        } else if sqe.fuse() != fuse::NONE || sqe.psdt() != psdt::SGL {
            Some(dnr(StatusCode::InvalidFieldInCommand))
        } else if sqe.opcode() == admin::FABRICS {
            return self.fabrics(index, queue, &sqe, data);
        } else if needs_authentication {
            Some(authentication::required())
        } else if !self.associations[queue.association].as_ref().is_some_and(|a| a.takes_commands())
        {
            Some(dnr(StatusCode::CommandSequenceError))
        } else {
            None
        };
        if let Some(status) = refused {
            self.drop_data(data);
            self.respond(index, cid, status, 0);
        } else if queue.qid > 0 {
            self.io(index, queue, sqe, data);
        } else if queue.association >= self.pairs {
            self.drop_data(data);
            self.discovery(index, queue, &sqe);
        } else {
            self.admin(index, queue, sqe, data);
        }
    }

    /// Releases the slot of data that is not needed.
    pub(super) fn drop_data(&mut self, data: Option<InCapsule>) {
        if let Some(data) = data {
            self.backend.release(data.slot);
        }
    }

    #[inline(always)]
    fn io(&mut self, index: usize, queue: Queue, sqe: Sqe, data: Option<InCapsule>) {
        let transfer = match sqe.opcode() {
            io::READ | io::WRITE | io::COMPARE => match self.backend.lba_shift(sqe.nsid.get()) {
                Some(shift) => {
                    let bytes = u64::from(sqe.nlb()) << shift;
                    let bytes = bytes.min(u64::from(u32::MAX)) as u32;
                    if sqe.opcode() == io::READ {
                        Transfer::ToHost(bytes)
                    } else {
                        Transfer::FromHost(bytes)
                    }
                }
                // The SSD refuses this command.
                None => Transfer::None,
            },
            // Linux describes a page, whatever the number of ranges.
            io::DATASET_MANAGEMENT => {
                Transfer::FromHost(sqe.sgl1().length.get().clamp(sqe.nr() * 16, RANGES_BYTES))
            }
            _ => Transfer::None,
        };
        self.start(index, sqe, data, &transfer, queue.association as u16 + 1);
    }

    fn admin(&mut self, index: usize, queue: Queue, sqe: Sqe, data: Option<InCapsule>) {
        let cid = sqe.cid();
        let length = sqe.sgl1().length.get();
        // This is the transfer of the device, or the answer to a command that the device does not
        // see.
        let transfer = match sqe.opcode() {
            admin::ASYNC_EVENT_REQUEST => return self.hold_request(index, queue, cid, data),
            admin::KEEP_ALIVE => Err((Status::SUCCESS, 0)),
            admin::ABORT => {
                self.drop_data(data);
                return self.abort(index, queue, sqe);
            }
            admin::SET_FEATURES | admin::GET_FEATURES if is_own_feature(sqe.fid()) => {
                Err(self.own_feature(queue.association, &sqe))
            }
            admin::CREATE_IO_CQ
            | admin::CREATE_IO_SQ
            | admin::DELETE_IO_CQ
            | admin::DELETE_IO_SQ
            | admin::DOORBELL_BUFFER_CONFIG => Err((dnr(StatusCode::InvalidCommandOpcode), 0)),
            admin::IDENTIFY if length >= IDENTIFY_BYTES => Ok(Transfer::ToHost(IDENTIFY_BYTES)),
            admin::IDENTIFY => Err((dnr(StatusCode::DataSglLengthInvalid), 0)),
            admin::GET_LOG_PAGE => {
                Ok(Transfer::ToHost((sqe.numd_dwords() * 4).min(u32::MAX.into()) as u32))
            }
            admin::GET_FEATURES if length > 0 => Ok(Transfer::ToHost(length.min(IDENTIFY_BYTES))),
            admin::SET_FEATURES if length > 0 && length <= IDENTIFY_BYTES => {
                Ok(Transfer::FromHost(length))
            }
            _ => Ok(Transfer::None),
        };
        match transfer {
            Ok(transfer) => self.start(index, sqe, data, &transfer, 0),
            Err((status, dw0)) => {
                self.drop_data(data);
                self.respond(index, cid, status, dw0.into());
            }
        }
    }

    /// Passes a command to the SSD, once its data is there.
    #[inline(always)]
    fn start(
        &mut self,
        index: usize,
        sqe: Sqe,
        data: Option<InCapsule>,
        transfer: &Transfer,
        pair: u16,
    ) {
        let sgl = sqe.sgl1();
        let is = |kind: SglKind, sub: u8| sgl.identifier == (kind as u8) << 4 | sub;
        let in_capsule = is(SglKind::DataBlock, sub_type::OFFSET);
        let by_transport = is(SglKind::TransportDataBlock, sub_type::TRANSPORT);
        let length = sgl.length.get();
        let wrong_length = Some(StatusCode::DataSglLengthInvalid);
        let wrong = match *transfer {
            Transfer::None => None,
            Transfer::ToHost(bytes) | Transfer::FromHost(bytes)
                if bytes as usize > BUFFER_BYTES =>
            {
                Some(StatusCode::InvalidFieldInCommand)
            }
            Transfer::ToHost(_) if !by_transport => Some(StatusCode::SglDescriptorTypeInvalid),
            Transfer::ToHost(bytes) if length < bytes || (pair > 0 && length > bytes) => {
                wrong_length
            }
            Transfer::ToHost(_) => None,
            Transfer::FromHost(_) if !(by_transport || in_capsule) => {
                Some(StatusCode::SglDescriptorTypeInvalid)
            }
            Transfer::FromHost(_) if in_capsule && sgl.address.get() != 0 => {
                Some(StatusCode::SglOffsetInvalid)
            }
            Transfer::FromHost(bytes) if length != bytes => wrong_length,
            Transfer::FromHost(bytes) if in_capsule => {
                if data.is_some_and(|data| data.len == bytes) { None } else { wrong_length }
            }
            Transfer::FromHost(_) if data.is_some() => wrong_length,
            Transfer::FromHost(_) => {
                // The command goes behind those that already wait.
                let waits = |conn: &Connection| !conn.deferred.is_empty();
                if self.conns[index].as_ref().is_some_and(waits) {
                    return self.defer(index, sqe);
                }
                return self.ask_for_data(index, sqe);
            }
        };
        if let Some(code) = wrong {
            self.drop_data(data);
            return self.respond(index, sqe.cid(), dnr(code), 0);
        }
        let Some(conn) = &mut self.conns[index] else { return };
        let taken = data.map(|data| data.slot).or_else(|| self.backend.take(conn.id));
        // The connection was asked for a command only because there was a slot.
        let Some(slot) = taken else {
            let status = Status::from_code(StatusCode::CommandInterrupted);
            return self.respond(index, sqe.cid(), status, 0);
        };
        let of = self.backend.slot_mut(slot);
        of.sqe = sqe;
        (of.len, of.is_read) = match *transfer {
            Transfer::None => (0, false),
            Transfer::ToHost(bytes) => (bytes, true),
            Transfer::FromHost(bytes) => (bytes, false),
        };
        if pair == 0 && of.is_read {
            // The SSD may fill less than was asked for, and the buffer was another host's.
            let len = of.len as usize;
            self.backend.machine_mut().data_mut(usize::from(slot), 0..len).fill(0);
        }
        if !self.backend.stage(slot, pair) {
            self.refuse_slot(index, slot, dnr(StatusCode::CommandSequenceError));
        }
    }

    /// Returns whether there is room for one more R2T. Its data may come behind a command that
    /// takes a slot, so writes that wait for data must not use all slots that a connection, or all
    /// connections, can have.
    fn may_ask(&self, conn: &Connection) -> bool {
        let qid = conn.queue.map(|queue| queue.qid);
        conn.r2ts < R2TS.min(self.backend.most() as u32 / 2)
            && self.backend.filling < self.backend.slots() / 2
            && self.backend.may_take(conn.id, qid)
    }

    /// Sends R2T for the data of a write, or makes the write wait for its turn.
    fn ask_for_data(&mut self, index: usize, sqe: Sqe) {
        let Some(conn) = &self.conns[index] else { return };
        if !self.may_ask(conn) {
            return self.defer(index, sqe);
        }
        let Some(conn) = &mut self.conns[index] else { return };
        let Some(slot) = self.backend.take(conn.id) else { return };
        let length = sqe.sgl1().length.get();
        if conn.r2ts == 0 {
            conn.data_ns = self.now_ns;
        }
        conn.r2ts += 1;
        self.backend.filling += 1;
        let of = self.backend.slot_mut(slot);
        (of.sqe, of.len, of.state) = (sqe, length, State::Filling);
        let mut pdu = R2t::default();
        let common = CommonHeader::new(PduType::R2t, size_of::<R2t>() as u8, 0);
        pdu.common = common.with_digests(conn.digests);
        pdu.cccid.set(sqe.cid());
        pdu.ttag.set(slot);
        pdu.r2tl.set(length);
        conn.out.pdu(pdu.as_bytes(), conn.digests, Corrupted::default());
        self.counters.r2ts.add(1);
        self.mark_dirty(index);
    }

    /// Sends R2T for deferred writes as far as there is room.
    pub(super) fn resume(&mut self, index: usize) {
        loop {
            let Some(conn) = &self.conns[index] else { return };
            if conn.deferred.is_empty() || conn.phase != Phase::Ready {
                return;
            }
            if !self.may_ask(conn) {
                return self.keep_deferring(index);
            }
            let next = self.conns[index].as_mut().and_then(|conn| conn.deferred.pop_front());
            if let Some(sqe) = next {
                self.ask_for_data(index, sqe);
            }
        }
    }

    /// Handles a write whose data is complete.
    pub(super) fn filled(&mut self, index: usize, slot: u16) {
        let Some(conn) = &mut self.conns[index] else { return };
        conn.r2ts -= 1;
        let Some(queue) = conn.queue else { return };
        let pair = if queue.qid > 0 { queue.association as u16 + 1 } else { 0 };
        let association = &self.associations[queue.association];
        if self.backend.slot(slot).bad {
            self.counters.data_digest_errors.add(1);
            let status = Status::from_code(StatusCode::TransientTransportError);
            self.refuse_slot(index, slot, status);
        } else if !association.as_ref().is_some_and(|a| a.takes_commands())
            || !self.backend.stage(slot, pair)
        {
            self.refuse_slot(index, slot, dnr(StatusCode::CommandSequenceError));
        }
    }

    /// Executes commands for features that each host has for itself.
    fn own_feature(&mut self, at: usize, sqe: &Sqe) -> (Status, u32) {
        let most = self.most_queues();
        let Some(association) = &mut self.associations[at] else {
            return (dnr(StatusCode::InternalError), 0);
        };
        let is_set = sqe.opcode() == admin::SET_FEATURES;
        if sqe.fid() == fid::KEEP_ALIVE_TIMER {
            if is_set {
                association.kato_ms = sqe.cdw11.get();
                return (Status::SUCCESS, 0);
            }
            return (Status::SUCCESS, association.kato_ms);
        }
        if is_set {
            let wanted = NumberOfQueues(sqe.cdw11.get());
            if wanted.nsq() == u16::MAX || wanted.ncq() == u16::MAX {
                return (dnr(StatusCode::InvalidFieldInCommand), 0);
            }
            if !association.io.is_empty() {
                return (dnr(StatusCode::CommandSequenceError), 0);
            }
            association.granted = wanted.sq().min(wanted.cq()).min(u32::from(most)) as u16;
        }
        (Status::SUCCESS, NumberOfQueues::new(association.granted, association.granted).0)
    }

    fn hold_request(&mut self, index: usize, queue: Queue, cid: u16, data: Option<InCapsule>) {
        self.drop_data(data);
        let Some(association) = &mut self.associations[queue.association] else { return };
        if !association.requests.hold(cid) {
            let code = StatusCode::AsynchronousEventRequestLimitExceeded;
            return self.respond(index, cid, dnr(code), 0);
        }
        self.deliver(queue.association);
    }

    /// Passes an event that the SSD reports to every host.
    pub(super) fn event(&mut self, event: u32) {
        for at in 0..self.pairs {
            if let Some(association) = &mut self.associations[at] {
                association.event(event);
                self.deliver(at);
            }
        }
    }

    fn deliver(&mut self, at: usize) {
        while let Some(association) = &mut self.associations[at] {
            let Some(cid) = association.requests.oldest() else { return };
            let Some(event) = association.events.pop_front() else { return };
            association.requests.release(cid);
            let index = association.admin.index as usize;
            self.respond(index, cid, Status::SUCCESS, event.into());
        }
    }

    fn abort(&mut self, index: usize, queue: Queue, mut sqe: Sqe) {
        /// DW0 bit 0 says that the command was not aborted.
        const NOT_ABORTED: u64 = 1;
        let (cid, sqid, victim) = (sqe.cid(), sqe.abort_sqid(), sqe.abort_cid());
        let aborted = Status::from_code(StatusCode::CommandAbortedByRequest);
        let Some(association) = &mut self.associations[queue.association] else { return };
        if sqid == 0 && association.requests.release(victim) {
            self.respond(index, victim, aborted, 0);
            return self.respond(index, cid, Status::SUCCESS, 0);
        }
        let target = association.io.iter().find(|&&(qid, _)| qid == sqid).map(|&(_, id)| id);
        let target = if sqid == 0 { Some(association.admin) } else { target };
        if let Some(id) = target {
            let deferred = self.live(id).and_then(|conn| {
                let at = conn.deferred.iter().position(|sqe| sqe.cid() == victim)?;
                conn.deferred.remove(at)
            });
            if deferred.is_some() {
                self.respond(id.index as usize, victim, aborted, 0);
                return self.respond(index, cid, Status::SUCCESS, 0);
            }
            if let Some(slot) = self.backend.find(id, victim) {
                // The SSD knows the command by another identifier.
                let pair = self.backend.slot(slot).pair;
                sqe.cdw10.set(u32::from(pair) | u32::from(slot) << 16);
                return self.start(index, sqe, None, &Transfer::None, 0);
            }
        }
        self.respond(index, cid, Status::SUCCESS, NOT_ABORTED);
    }

    /// Executes Fabrics commands on a connected queue.
    fn fabrics(&mut self, index: usize, queue: Queue, sqe: &Sqe, data: Option<InCapsule>) {
        let (cid, kind) = (sqe.cid(), FabricsType::try_from(sqe.fctype()));
        if kind == Ok(FabricsType::AuthenticationSend) {
            return self.authentication_send(index, queue, sqe, data);
        }
        self.drop_data(data);
        let conn = self.conns[index].as_ref();
        let needs_authentication = conn.is_some_and(|conn| conn.authentication.is_needed());
        let (status, dws) = match kind {
            Ok(FabricsType::AuthenticationReceive) => {
                return self.authentication_receive(index, sqe);
            }
            _ if needs_authentication => (authentication::required(), 0),
            Ok(FabricsType::PropertyGet) if queue.qid == 0 => {
                match self.property(queue.association, sqe) {
                    Some(value) => (Status::SUCCESS, value),
                    None => (dnr(StatusCode::InvalidFieldInCommand), 0),
                }
            }
            Ok(FabricsType::PropertySet) if queue.qid == 0 => {
                if sqe.property_offset() != regs::CC || sqe.property_is_long() {
                    (dnr(StatusCode::InvalidFieldInCommand), 0)
                } else {
                    self.set_cc(queue.association, sqe.cdw12.get());
                    (Status::SUCCESS, 0)
                }
            }
            Ok(FabricsType::Connect) => (dnr(StatusCode::CommandSequenceError), 0),
            _ => (dnr(StatusCode::InvalidCommandOpcode), 0),
        };
        self.respond(index, cid, status, dws);
    }

    /// Executes commands of the discovery controller.
    fn discovery(&mut self, index: usize, queue: Queue, sqe: &Sqe) {
        let cid = sqe.cid();
        let (status, dw0) = match sqe.opcode() {
            admin::IDENTIFY if sqe.cns() == cns::CONTROLLER => {
                let Some(association) = &self.associations[queue.association] else { return };
                let page = discovery::identify(association.cntlid, self.version(), self.entries);
                return self.answer_with(index, sqe, &page, 0, IDENTIFY_BYTES.into());
            }
            admin::GET_LOG_PAGE if sqe.lid() == DISCOVERY_LOG => {
                let local = self.conns[index].as_ref().and_then(|conn| conn.local);
                let addr = local.unwrap_or(self.addr);
                let page = discovery::log_page(&self.options.nqn, addr);
                let offset = sqe.log_page_offset();
                if !offset.is_multiple_of(4) || offset > page.len() as u64 {
                    (dnr(StatusCode::InvalidFieldInCommand), 0)
                } else {
                    let len = sqe.numd_dwords() * 4;
                    return self.answer_with(index, sqe, &page, offset as usize, len);
                }
            }
            admin::GET_LOG_PAGE => (dnr(StatusCode::InvalidLogPage), 0),
            admin::KEEP_ALIVE => (Status::SUCCESS, 0),
            admin::ASYNC_EVENT_REQUEST => return self.hold_request(index, queue, cid, None),
            admin::ABORT => return self.abort(index, queue, *sqe),
            admin::SET_FEATURES | admin::GET_FEATURES if sqe.fid() == fid::KEEP_ALIVE_TIMER => {
                self.own_feature(queue.association, sqe)
            }
            admin::SET_FEATURES | admin::GET_FEATURES if sqe.fid() == fid::ASYNC_EVENT_CONFIG => {
                (Status::SUCCESS, 0)
            }
            admin::IDENTIFY | admin::SET_FEATURES | admin::GET_FEATURES => {
                (dnr(StatusCode::InvalidFieldInCommand), 0)
            }
            _ => (dnr(StatusCode::InvalidCommandOpcode), 0),
        };
        debug_assert_ne!(self.options.nqn, DISCOVERY_NQN);
        self.respond(index, cid, status, dw0.into());
    }

    /// Answers with `len` bytes of a page from `offset` on, and zeroes beyond.
    pub(super) fn answer_with(
        &mut self,
        index: usize,
        sqe: &Sqe,
        page: &[u8],
        offset: usize,
        len: u64,
    ) {
        let sgl = sqe.sgl1();
        // The opcode of Fabrics commands does not say which way their data go.
        let to_host = sqe.opcode() == admin::FABRICS
            || DataTransfer::of(sqe.opcode()) == DataTransfer::ControllerToHost;
        let by_transport = to_host
            && sgl.identifier == (SglKind::TransportDataBlock as u8) << 4 | sub_type::TRANSPORT;
        let code = if !by_transport {
            Some(StatusCode::SglDescriptorTypeInvalid)
        } else if len > BUFFER_BYTES as u64 {
            Some(StatusCode::InvalidFieldInCommand)
        } else if u64::from(sgl.length.get()) < len {
            Some(StatusCode::DataSglLengthInvalid)
        } else {
            None
        };
        let Some(conn) = &self.conns[index] else { return };
        let id = conn.id;
        let status = match code {
            Some(code) => dnr(code),
            None => match self.backend.take(id) {
                Some(slot) => {
                    let of = self.backend.slot_mut(slot);
                    (of.sqe, of.len, of.is_read) = (*sqe, len as u32, true);
                    let to = self.backend.machine_mut().data_mut(slot.into(), 0..len as usize);
                    to.fill(0);
                    let from = &page[offset..];
                    let count = from.len().min(to.len());
                    to[..count].copy_from_slice(&from[..count]);
                    return self.answer(id, Response::Data(slot));
                }
                None => Status::from_code(StatusCode::CommandInterrupted),
            },
        };
        self.respond(index, sqe.cid(), status, 0);
    }
}
