//! Handles hosts that come and go: Connect, properties, and the end of an association.

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::fabrics::{
    CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN, FabricsStatus, FabricsType, SQHD_NONE, cattr, nqn,
    sub_type,
};
use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::regs::{self, Cc, Csts, shst};
use meantime_nvme_spec::sgl::SglKind;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_nvme_spec::tcp::CapsuleResp;
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::association::{Association, Change, Waiting, cap};
use super::authentication::Authentication;
use super::backend::ConnId;
use super::connection::{Connection, Fatal, InCapsule, Phase, Queue};
use super::engine::{Engine, dnr};
use super::output::Corrupted;

/// How long a Connect waits for the end of the connection that has its I/O queue. A host that has
/// lost a connection connects anew at once, and its end may be noticed only after that.
const PASSING_NS: u64 = 100_000_000;

/// The reason why Connect is refused.
struct Refused {
    status: Status,
    /// DW0 of the completion.
    dw0: u32,
    /// The reason for the log.
    why: String,
    /// Whether the reason may soon be gone.
    passes: bool,
}

fn refused(status: Status, dw0: u32, why: impl Into<String>) -> Refused {
    Refused { status, dw0, why: why.into(), passes: false }
}

/// Returns the refusal for a wrong parameter at `offset` of the entry.
fn in_entry(offset: u32, why: impl Into<String>) -> Refused {
    refused(status(FabricsStatus::ConnectInvalidParameters), offset, why)
}

/// Returns the refusal for a wrong parameter at `offset` of the data.
fn in_data(offset: u32, why: impl Into<String>) -> Refused {
    in_entry(offset | 1 << 16, why)
}

/// Returns the refusal of Connect with a status that no repetition changes.
fn not_now(code: StatusCode, why: &str) -> Refused {
    refused(dnr(code), 0, why)
}

/// Returns the name that a host has given itself, which is empty if it has none, or `None` if it is
/// no NQN. Base 2.0 requires a name, but SPDK's programs send none unless they are given one, and
/// its target accepts that.
fn host_name(field: &[u8; 256]) -> Option<&str> {
    if field[0] == 0 { Some("") } else { nqn(field) }
}

/// Returns the host's name for the log.
fn host_words(data: Option<&ConnectData>) -> String {
    match data.map(|data| host_name(&data.hostnqn)) {
        Some(Some("")) => "a host without a name".to_owned(),
        Some(Some(name)) => name.to_owned(),
        Some(None) => "a host whose NQN is not valid".to_owned(),
        None => "a host".to_owned(),
    }
}

fn status(code: FabricsStatus) -> Status {
    Status::from_bits(code as u16).with_dnr()
}

impl Engine {
    /// Returns the maximum number of I/O queues of a host.
    pub(super) fn most_queues(&self) -> u16 {
        self.options.max_queues
    }

    pub(super) fn version(&self) -> u32 {
        self.backend.machine().controller().regs.read32(regs::VS)
    }

    /// Handles the first command of a connection, which has to be Connect.
    pub(super) fn connect(&mut self, index: usize, sqe: &Sqe, data: Option<InCapsule>) {
        let read = self.connect_data(index, sqe, data);
        self.drop_data(data);
        match (read, self.conns[index].as_ref().map(|conn| conn.id)) {
            (Ok(data), Some(conn)) => {
                let until_ns = self.now_ns + PASSING_NS;
                self.try_join(Waiting { conn, sqe: *sqe, data: Box::new(data), until_ns });
            }
            (Err(refused), _) => self.conclude(index, sqe.cid(), None, Err(refused)),
            (Ok(_), None) => {}
        }
    }

    /// Returns the data of a command, if it is a valid Connect.
    fn connect_data(
        &mut self,
        index: usize,
        sqe: &Sqe,
        data: Option<InCapsule>,
    ) -> Result<ConnectData, Refused> {
        const BYTES: usize = size_of::<ConnectData>();
        let is_connect = sqe.opcode() == admin::FABRICS
            && sqe.fctype() == u8::from(FabricsType::Connect)
            && !self.waiting.iter().any(|waiting| waiting.conn.index as usize == index);
        if !is_connect {
            let why = "its first command was not Connect, or not the only one";
            return Err(not_now(StatusCode::CommandSequenceError, why));
        }
        if data.is_some_and(|data| data.bad) {
            self.counters.data_digest_errors.add(1);
            let status = Status::from_code(StatusCode::TransientTransportError);
            return Err(refused(status, 0, "the data digest of its Connect was wrong"));
        }
        let sgl = sqe.sgl1();
        let fits = sgl.identifier == (SglKind::DataBlock as u8) << 4 | sub_type::OFFSET
            && sgl.address.get() == 0
            && sgl.length.get() as usize == BYTES;
        let data = data.filter(|data| fits && data.len as usize >= BYTES).and_then(|data| {
            let bytes = self.backend.machine().data(usize::from(data.slot), 0..BYTES);
            ConnectData::read_from_bytes(bytes).ok()
        });
        let why = "Connect had not 1,024 bytes of data in its capsule";
        data.ok_or_else(|| not_now(StatusCode::DataSglLengthInvalid, why))
    }

    /// Makes a queue of a connection, now or when that is possible.
    fn try_join(&mut self, waiting: Waiting) {
        let is_ready = |conn: &mut Connection| conn.phase == Phase::Ready;
        if !self.live(waiting.conn).is_some_and(is_ready) {
            return;
        }
        let index = waiting.conn.index as usize;
        match self.join(index, &waiting.sqe, &waiting.data) {
            Err(Refused { passes: true, .. }) if self.now_ns < waiting.until_ns => {
                self.waiting.push(waiting);
            }
            made => self.conclude(index, waiting.sqe.cid(), Some(&waiting.data), made),
        }
    }

    /// Retries the Connects that wait.
    pub(super) fn try_again(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.try_join(waiting);
        }
    }

    /// Answers Connect.
    fn conclude(
        &mut self,
        index: usize,
        cid: u16,
        data: Option<&ConnectData>,
        made: Result<u16, Refused>,
    ) {
        let (status, dw0) = match made {
            Ok(cntlid) => {
                let conn = self.conns[index].as_ref();
                let asked = conn.map_or(0, |conn| conn.authentication.asked());
                (Status::SUCCESS, u32::from(cntlid) | asked)
            }
            Err(Refused { status, dw0, why, .. }) => {
                self.counters.connects_refused.add(1);
                self.refusals.add(host_words(data), why);
                (status, dw0)
            }
        };
        let Some(conn) = &mut self.conns[index] else { return };
        let sqhd = match &conn.queue {
            Some(queue) if !queue.no_flow => queue.head as u16,
            Some(_) => SQHD_NONE,
            None => 0,
        };
        let mut pdu = CapsuleResp::new(&Cqe::new(dw0, sqhd, 0, cid, status, false));
        pdu.common = pdu.common.with_digests(conn.digests);
        conn.out.pdu(pdu.as_bytes(), conn.digests, Corrupted::default());
        self.mark_dirty(index);
    }

    /// Makes a queue of a connection. Returns CNTLID.
    fn join(&mut self, index: usize, sqe: &Sqe, data: &ConnectData) -> Result<u16, Refused> {
        if sqe.recfmt() != 0 {
            let status = status(FabricsStatus::ConnectIncompatibleFormat);
            return Err(refused(status, 0, format!("it asked for RECFMT {}", sqe.recfmt())));
        }
        let entries = u32::from(sqe.connect_sqsize()) + 1;
        if entries < 2 || entries > self.entries {
            let most = self.entries;
            let why =
                format!("it asked for a queue of {entries} entries; from 2 to {most} are possible");
            return Err(in_entry(44, why));
        }
        let subnqn = nqn(&data.subnqn).ok_or_else(|| in_data(256, "its SUBNQN is no NQN"))?;
        let hostnqn = host_name(&data.hostnqn).ok_or_else(|| in_data(512, "HOSTNQN is no NQN"))?;
        let is_discovery = subnqn == DISCOVERY_NQN;
        if !is_discovery && subnqn != self.options.nqn {
            return Err(in_data(256, format!("it asked for {subnqn}, which is not here")));
        }
        if let Err(why) = self.options.admits(hostnqn, is_discovery) {
            return Err(refused(status(FabricsStatus::ConnectInvalidHost), 0, why));
        }
        let Some(id) = self.conns[index].as_ref().map(|conn| conn.id) else {
            return Err(in_entry(42, "its connection has ended"));
        };
        let qid = sqe.connect_qid();
        let (association, cntlid) = if qid == 0 {
            if data.cntlid.get() != CNTLID_DYNAMIC {
                return Err(in_data(16, "it asked for a controller by number"));
            }
            self.associate(id, sqe, data.hostid, hostnqn, is_discovery)?
        } else {
            self.add_queue(id, qid, data, hostnqn, subnqn)?
        };
        if let Some(conn) = &mut self.conns[index] {
            let no_flow = sqe.cattr() & cattr::DISABLE_SQ_FLOW != 0;
            conn.queue = Some(Queue { association, qid, entries, head: 1, no_flow });
            conn.authentication = Authentication::of(&self.options);
        }
        Ok(cntlid)
    }

    fn associate(
        &mut self,
        admin: ConnId,
        sqe: &Sqe,
        hostid: [u8; 16],
        hostnqn: &str,
        is_discovery: bool,
    ) -> Result<(usize, u16), Refused> {
        let (from, to) =
            if is_discovery { (self.pairs, self.associations.len()) } else { (0, self.pairs) };
        let place = (from..to).find(|&at| self.associations[at].is_none());
        let Some(place) = place else {
            let busy = Status::from_bits(FabricsStatus::ConnectControllerBusy as u16);
            let all = to - from;
            return Err(refused(busy, 0, format!("all {all} controllers are taken (queues=)")));
        };
        let cntlid = self.next_cntlid();
        self.associations[place] = Some(Association {
            cntlid,
            hostid,
            hostnqn: hostnqn.to_owned(),
            is_discovery,
            cc: Cc(0),
            failed: false,
            shst: 0,
            kato_ms: sqe.connect_kato_ms(),
            alive_ns: self.now_ns,
            admin,
            io: Vec::new(),
            granted: self.most_queues(),
            requests: Default::default(),
            events: Default::default(),
        });
        self.counters.associations.add(1);
        Ok((place, cntlid))
    }

    /// Returns the next identifier that no association has. One that was used before comes as late
    /// as possible.
    fn next_cntlid(&mut self) -> u16 {
        /// CNTLIDs from here on are reserved (NVMe-oF 1.1 §3.3).
        const END: u16 = 0xfff0;
        loop {
            self.last_cntlid = if self.last_cntlid + 1 >= END { 1 } else { self.last_cntlid + 1 };
            let cntlid = self.last_cntlid;
            if !self.associations.iter().flatten().any(|other| other.cntlid == cntlid) {
                return cntlid;
            }
        }
    }

    fn add_queue(
        &mut self,
        id: ConnId,
        qid: u16,
        data: &ConnectData,
        hostnqn: &str,
        subnqn: &str,
    ) -> Result<(usize, u16), Refused> {
        let cntlid = data.cntlid.get();
        let is_it = |a: &Association| a.cntlid == cntlid && !a.is_discovery;
        let place = self.associations.iter().position(|a| a.as_ref().is_some_and(is_it));
        let unknown = || in_data(16, "it asked for a queue of a controller that is not there");
        let place = place.ok_or_else(unknown)?;
        let Some(association) = &mut self.associations[place] else { return Err(unknown()) };
        if association.hostnqn != hostnqn {
            return Err(in_data(512, "it asked for a queue of another host's controller"));
        }
        if association.hostid != data.hostid {
            return Err(in_data(0, "its queues have different HOSTIDs"));
        }
        if subnqn != self.options.nqn {
            return Err(in_data(256, "it asked for I/O queues of the discovery service"));
        }
        if qid > association.granted {
            let granted = association.granted;
            return Err(in_entry(42, format!("it asked for more than its {granted} I/O queues")));
        }
        if association.io.iter().any(|&(other, _)| other == qid) {
            let exists = in_entry(42, "it asked for an I/O queue that it has");
            return Err(Refused { passes: true, ..exists });
        }
        if !association.takes_commands() {
            let why = "it asked for an I/O queue before it had enabled its controller";
            return Err(not_now(StatusCode::CommandSequenceError, why));
        }
        association.io.push((qid, id));
        association.alive_ns = self.now_ns;
        Ok((place, cntlid))
    }

    /// Returns the value of a property, or `None` if there is none of this offset and size.
    pub(super) fn property(&mut self, at: usize, sqe: &Sqe) -> Option<u64> {
        let is_long = sqe.property_is_long();
        match (sqe.property_offset(), is_long) {
            (regs::CAP, true) => {
                let of_ssd = self.backend.machine().controller().regs.read64(regs::CAP);
                Some(cap(of_ssd, self.entries).0)
            }
            (regs::VS, false) => Some(self.version().into()),
            (regs::CC, false) => Some(self.associations[at].as_ref()?.cc.0.into()),
            (regs::CSTS, false) => Some(self.csts(at)?.0.into()),
            _ => None,
        }
    }

    fn csts(&mut self, at: usize) -> Option<Csts> {
        let association = self.associations[at].as_ref()?;
        let enabled = association.cc.en() && !association.failed;
        let ready = enabled
            && (association.is_discovery
                || (self.backend.csts().rdy() && self.backend.open_pair(at as u16 + 1)));
        Some(self.associations[at].as_ref()?.csts(ready))
    }

    /// Writes CC.
    pub(super) fn set_cc(&mut self, at: usize, value: u32) {
        let Some(association) = &mut self.associations[at] else { return };
        let is_discovery = association.is_discovery;
        match association.set_cc(Cc(value)) {
            Change::Nothing => {}
            Change::Enable if is_discovery => {}
            Change::Enable => {
                self.revive();
                if self.backend.csts().rdy() {
                    self.backend.open_pair(at as u16 + 1);
                }
            }
            Change::Disable => self.disable(at),
            Change::ShutDown => {
                let flushed = is_discovery || self.backend.controller().store.flush();
                if !is_discovery {
                    self.end_queues(at);
                }
                if let Some(association) = &mut self.associations[at] {
                    association.shst = if flushed { shst::COMPLETE } else { shst::OCCURRING };
                }
            }
        }
    }

    /// Handles CC.EN becoming 0: the queues end, and so do their commands.
    fn disable(&mut self, at: usize) {
        self.end_queues(at);
        let most = self.most_queues();
        let Some(association) = &mut self.associations[at] else { return };
        association.failed = false;
        association.shst = 0;
        association.granted = most;
        association.events.clear();
        // Event requests are not answered, because after a reset the host does not know them any
        // more.
        let admin = association.admin;
        let requests = association.requests.release_all();
        if let Some(conn) = self.live(admin) {
            for cid in requests {
                conn.outstanding -= 1;
                conn.free_cid(cid);
            }
        }
    }

    /// Closes an association's I/O connections, and the pair of queues behind them.
    fn end_queues(&mut self, at: usize) {
        let Some(association) = &mut self.associations[at] else { return };
        for (_, id) in std::mem::take(&mut association.io) {
            self.close_later_unless_ending(id);
        }
        if at < self.pairs {
            self.backend.close_pair(at as u16 + 1);
        }
    }

    fn close_later_unless_ending(&mut self, id: ConnId) {
        if self.live(id).is_some_and(|conn| conn.phase != Phase::Ending) {
            self.close_later(id);
        }
    }

    /// Ends an association. Its connections are closed, and no command of it is executed any more.
    pub(super) fn end_association(&mut self, at: usize) {
        self.end_queues(at);
        if let Some(association) = self.associations[at].take() {
            self.counters.associations_ended.add(1);
            self.close_later_unless_ending(association.admin);
        }
    }

    /// Ends an association, if its admin connection is `admin`.
    pub(super) fn end_association_of(&mut self, at: usize, admin: ConnId) {
        if self.associations[at].as_ref().is_some_and(|association| association.admin == admin) {
            self.end_association(at);
        }
    }

    /// Ends a connection with a TermReq.
    pub(super) fn fatal(&mut self, index: usize, fatal: Fatal) {
        self.counters.fatal_errors.add(1);
        let Some(conn) = &mut self.conns[index] else { return };
        tracing::debug!(why = fatal.why, "connection refused");
        conn.terminate(fatal, self.now_ns);
        let (queue, id) = (conn.queue, conn.id);
        self.mark_dirty(index);
        let Some(queue) = queue else { return };
        if queue.qid == 0 {
            self.end_association_of(queue.association, id);
        } else if let Some(association) = &mut self.associations[queue.association] {
            // The host may want the queue again before it has closed this connection.
            association.io.retain(|&(_, io)| io != id);
        }
    }
}
