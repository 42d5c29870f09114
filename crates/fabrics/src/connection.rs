//! One queue's connection: capsules go out, data and completions come in.
//!
//! A connection belongs to one queue pair of the driver. It takes entries from the submission ring,
//! sends them as capsules, receives data straight into the commands' buffers, and writes completion
//! queue entries. It knows no thread and never blocks.
//!
//! **What the target may not do.** A PDU that is not expected ends the connection with a TermReq:
//! data for no command, beyond its length, twice or in disorder; a completion before all data; an
//! R2T for what was not asked; a wrong header digest. A wrong data digest ends the command with
//! *Transient Transport Error*, which the driver repeats.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::identify::{self, cns};
use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::sgl::SglDescriptor;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::{Status, StatusCode};
use meantime_nvme_spec::tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, DIGEST_BYTES, DataHeader, FatalError, PduType, R2t,
    TermReq, dgst, flags, header_bytes,
};
use rustix::event::{PollFlags, epoll};
use rustix::net::{Shutdown, connect_unspec, shutdown};
use zerocopy::{FromBytes, IntoBytes};

use crate::command::{Command, Direction, admin_data, io_data, walk_prps};
use crate::identified::{BlockShifts, Identified};
use crate::input::Input;
use crate::memory::{Mapped, NotMapped, Piece, RANGES_MAX, Ranges};
use crate::output::Output;

/// The CID of the connection's own command: the driver's tags are smaller.
pub(crate) const OWN_CID: u16 = 0xffff;

/// The slot that stands for this command when its data is received.
const OWN_SLOT: u16 = u16::MAX;

/// The most receiving calls of one look, so that it ends.
const RECEIVES_MAX: usize = 16;

/// What a connection needs to know of the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    /// Digests.
    pub(crate) dgst: u8,
    /// The most data of one H2CData.
    pub(crate) maxh2c_bytes: u32,
    /// The most data in a capsule.
    pub(crate) in_capsule_bytes: u32,
}

/// The driver's rings of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rings {
    pub(crate) sq_iova: u64,
    pub(crate) cq_iova: u64,
    pub(crate) entries: u16,
    pub(crate) cq_entries: u16,
}

/// Where the parser stands in the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reading {
    Header,
    /// The data of a command; `left` bytes of this PDU are still to come.
    Data {
        slot: u16,
        left: u32,
        crc: u32,
        flags: u8,
    },
    /// The digest of such data.
    Digest {
        slot: u16,
        crc: u32,
        flags: u8,
    },
}

/// The result of a PDU from the target; an error ends the connection.
type Taken<T = ()> = Result<T, (FatalError, String)>;

/// A command of the connection's own: Connect, properties, Keep Alive.
#[derive(Debug, Default)]
struct Own {
    is_busy: bool,
    /// The data that it reads, and the expected number of bytes.
    data: Vec<u8>,
    bytes: u32,
    end: Option<Cqe>,
}

pub(crate) struct Connection {
    pub(crate) socket: Arc<OwnedFd>,
    qid: u16,
    pub(crate) agreed: Agreed,
    rings: Option<Rings>,
    sq_head: u16,
    cq_tail: u16,
    phase: bool,
    pub(crate) commands: Vec<Command>,
    /// Commands of the driver in flight.
    pub(crate) in_flight: u16,
    /// Reads in flight, oldest first.
    pub(crate) reads: VecDeque<u16>,
    /// The number of receiving calls until answers are guessed again.
    pub(crate) no_guesses: u32,
    own: Own,
    output: Output,
    pub(crate) input: Input,
    pub(crate) reading: Reading,
    identified: Arc<Identified>,
    shifts: BlockShifts,
    /// The reason why it ended.
    ended: Option<String>,
    /// The process that it belongs to.
    process: u32,
    /// An epoll instance that watches the socket, and whether it reports room to send.
    event: Option<Arc<OwnedFd>>,
    tells_room: bool,
}

impl Connection {
    /// Makes a connection over `socket`, after ICResp.
    pub(crate) fn new(
        socket: Arc<OwnedFd>,
        qid: u16,
        agreed: Agreed,
        identified: &Arc<Identified>,
    ) -> Self {
        Self {
            socket,
            qid,
            agreed,
            rings: None,
            sq_head: 0,
            cq_tail: 0,
            phase: true,
            commands: Vec::new(),
            in_flight: 0,
            reads: VecDeque::new(),
            no_guesses: 0,
            own: Own::default(),
            output: Output::new(agreed.dgst),
            input: Input::new(),
            reading: Reading::Header,
            identified: Arc::clone(identified),
            shifts: BlockShifts::new(Arc::clone(identified)),
            ended: None,
            process: std::process::id(),
            event: None,
            tells_room: false,
        }
    }

    /// Sets the driver's rings, which are empty.
    pub(crate) fn set_rings(&mut self, rings: Rings) {
        self.rings = Some(rings);
        (self.sq_head, self.cq_tail, self.phase) = (0, 0, true);
        self.commands.resize_with(usize::from(rings.entries), Command::default);
    }

    /// The reason why the connection ended; `None` if it has not.
    pub(crate) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Ends the connection. Its descriptor stays open and reports the end, so that waiters notice.
    pub(crate) fn end(&mut self, why: impl Into<String>) {
        if self.ended.is_none() {
            self.ended = Some(why.into());
            self.output.clear();
            self.abort();
        }
    }

    /// Ends the connection with its association: whatever was in flight on it is over.
    pub(crate) fn end_for_good(&mut self, why: &str) {
        self.end(why);
        self.abort();
        self.in_flight = 0;
    }

    /// Drops what the kernel has not yet sent. The kernel would otherwise send it later, perhaps
    /// when the network works again, and a write would be executed long after it was given up.
    fn abort(&self) {
        // The child of a fork must not do this to its parent's connection.
        if std::process::id() == self.process {
            let _ = connect_unspec(&self.socket);
        }
    }

    /// Called when the controller was reset, and the connection is kept without the driver's
    /// memory: only its own commands go on. If anything else is under way, the connection ends.
    pub(crate) fn retire(&mut self) {
        if !self.output.is_empty() || !matches!(self.reading, Reading::Header) {
            return self.end("the controller was reset");
        }
        self.rings = None;
        self.commands.iter_mut().for_each(|command| command.is_busy = false);
        self.reads.clear();
        self.in_flight = 0;
    }

    /// Ends the connection for a violation by the target, which a PDU reports to it, with the
    /// header of the offending PDU.
    fn refuse(&mut self, error: FatalError, why: String, header: &[u8]) {
        let mut pdu = TermReq::default();
        pdu.common = CommonHeader::new(PduType::HostTermReq, 24, header.len() as u32);
        pdu.fes.set(error as u16);
        // This is done only if nothing is under way: in the middle of another PDU it would be no
        // TermReq.
        if self.output.is_empty() {
            let _ = rustix::net::send(
                &self.socket,
                &[pdu.as_bytes(), header].concat(),
                rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL,
            );
        }
        // The reason is set directly so that the PDU is still sent; the end of the association
        // drops what is left.
        self.ended = Some(format!("{error}: {why}"));
        self.output.clear();
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Takes the entries up to `tail` from the submission ring and sends them.
    pub(crate) fn submit(&mut self, mapped: &Mapped<'_>, tail: u16) {
        while let Some(sqe) = self.take_entry(mapped, tail) {
            self.begin(mapped, sqe);
        }
        self.flush(mapped);
    }

    /// Takes the next entry before `tail` from the submission ring.
    pub(crate) fn take_entry(&mut self, mapped: &Mapped<'_>, tail: u16) -> Option<Sqe> {
        let rings = self.rings?;
        if self.ended.is_some() || tail >= rings.entries || self.sq_head == tail {
            return None;
        }
        let at = rings.sq_iova + u64::from(self.sq_head) * size_of::<Sqe>() as u64;
        let Ok(sqe) = mapped.sqe(at) else {
            self.end("the submission queue is no longer mapped");
            return None;
        };
        self.sq_head = (self.sq_head + 1) % rings.entries;
        Some(sqe)
    }

    /// Queues the capsule of `sqe`, or ends the command.
    pub(crate) fn begin(&mut self, mapped: &Mapped<'_>, sqe: Sqe) {
        if let Err(status) = self.start(mapped, sqe) {
            self.post(mapped, 0, sqe.cid(), status);
        }
    }

    /// Queues the capsule of `sqe`, or returns the status with which it ends.
    fn start(&mut self, mapped: &Mapped<'_>, sqe: Sqe) -> Result<(), Status> {
        let (direction, bytes) = match self.qid {
            0 => admin_data(&sqe)?,
            _ => io_data(&sqe, &mut self.shifts)?,
        };
        let in_capsule =
            direction == Direction::Out && bytes <= u64::from(self.agreed.in_capsule_bytes);
        let slot = slot(sqe.cid());
        let command = match self.commands.get_mut(slot) {
            Some(command) if !command.is_busy => command,
            _ => return Err(Status::from_code(StatusCode::CommandIdConflict)),
        };
        if bytes > 0 {
            walk_prps(mapped, &sqe, bytes, &mut command.pieces)?;
        }
        let bytes = bytes as u32;
        command.is_busy = true;
        (command.cid, command.opcode, command.nsid) = (sqe.cid(), sqe.opcode(), sqe.nsid.get());
        command.cns = sqe.cns();
        (command.direction, command.bytes, command.moved) = (direction, bytes, 0);
        (command.in_capsule, command.bad_digest) = (in_capsule, false);
        self.in_flight += 1;
        if direction == Direction::In {
            self.reads.push_back(slot as u16);
        }

        let sgl = if in_capsule {
            SglDescriptor::in_capsule(bytes)
        } else {
            SglDescriptor::transport(bytes)
        };
        let mut pdu = CapsuleCmd::new(&sqe.with_sgl(sgl), if in_capsule { bytes } else { 0 });
        let data = command.part(0, if in_capsule { bytes } else { 0 });
        let queued = self.output.pdu(mapped, pdu.as_mut_bytes(), &[], slot as u16, data);
        queued.map_err(|NotMapped| {
            self.end("data of a command is not mapped");
            Status::from_code(StatusCode::DataTransferError)
        })
    }

    /// Sends a command of the connection's own, with `data` in its capsule, that reads `bytes`.
    pub(crate) fn start_own(&mut self, mapped: &Mapped<'_>, mut sqe: Sqe, data: &[u8], bytes: u32) {
        sqe.set_cid(OWN_CID);
        if data.is_empty() {
            sqe = sqe.with_sgl(SglDescriptor::transport(bytes));
        }
        self.own = Own { is_busy: true, bytes, ..Own::default() };
        let mut pdu = CapsuleCmd::new(&sqe, data.len() as u32);
        let _ = self.output.pdu(mapped, pdu.as_mut_bytes(), data, OWN_SLOT, std::iter::empty());
        self.flush(mapped);
    }

    /// Whether a command of the connection's own is in flight.
    pub(crate) fn is_own_busy(&self) -> bool {
        self.own.is_busy
    }

    /// Whether a command of the connection's own has ended.
    pub(crate) fn has_own_end(&self) -> bool {
        self.own.end.is_some()
    }

    /// The events for which a thread waits that waits for progress.
    pub(crate) fn waits_for(&self) -> PollFlags {
        if self.output.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Takes the completion of the connection's own command, with its data.
    pub(crate) fn take_own(&mut self) -> Option<(Cqe, Vec<u8>)> {
        let end = self.own.end.take()?;
        Some((end, mem::take(&mut self.own.data)))
    }

    /// Has `event`, an epoll instance, watch the socket.
    pub(crate) fn set_event(&mut self, event: &Arc<OwnedFd>) {
        let flags = epoll::EventFlags::IN;
        // Fails only if memory is short; blocking waits then use the socket itself.
        if epoll::add(event, &self.socket, epoll::EventData::new_u64(0), flags).is_ok() {
            self.event = Some(Arc::clone(event));
        }
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self, mapped: &Mapped<'_>) {
        if self.output.is_empty() {
            return;
        }
        if let Err(error) = self.output.send(mapped, self.socket.as_fd()) {
            return self.end(error.to_string());
        }
        let waits = !self.output.is_empty();
        if waits != self.tells_room
            && let Some(event) = &self.event
        {
            self.tells_room = waits;
            let room = if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let flags = epoll::EventFlags::IN | room;
            let _ = epoll::modify(event, &self.socket, epoll::EventData::new_u64(0), flags);
        }
    }

    /// Sends what waits, and receives what has come.
    pub(crate) fn progress(&mut self, mapped: &Mapped<'_>) {
        if self.ended.is_some() {
            return;
        }
        self.flush(mapped);
        for _ in 0..RECEIVES_MAX {
            match self.receive(mapped) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.end(error.to_string()),
            }
            if self.ended.is_some() {
                return;
            }
        }
        self.flush(mapped);
    }

    /// Makes one receiving call. Returns false if nothing more has come.
    fn receive(&mut self, mapped: &Mapped<'_>) -> io::Result<bool> {
        if !self.input.is_empty() {
            return self.receive_rest(mapped);
        }
        match self.reading {
            Reading::Data { slot, left, .. } if slot != OWN_SLOT => {
                self.receive_data(mapped, slot, left)
            }
            Reading::Header => {
                let guess = self.guess();
                if guess.is_empty() {
                    self.receive_rest(mapped)
                } else {
                    self.receive_guessed(mapped, &guess)
                }
            }
            _ => self.receive_rest(mapped),
        }
    }

    /// Receives into the buffer, and parses.
    fn receive_rest(&mut self, mapped: &Mapped<'_>) -> io::Result<bool> {
        let room = self.input.room();
        let wanted = room.len();
        let mut ranges = Ranges::new(mapped);
        ranges.buffer(room);
        let came = received(ranges.receive(self.socket.as_fd()))?;
        let Some(came) = came else { return Ok(false) };
        self.input.came(came);
        self.parse(mapped);
        Ok(came == wanted)
    }

    /// Receives the rest of a PDU's data into its place, and what follows into the buffer.
    fn receive_data(&mut self, mapped: &Mapped<'_>, slot: u16, left: u32) -> io::Result<bool> {
        let command = &self.commands[usize::from(slot)];
        let mut ranges = Ranges::new(mapped);
        let mut placed = 0;
        for piece in command.part(command.moved, left).take(RANGES_MAX - 1) {
            ranges.piece(piece).map_err(|NotMapped| io::Error::other("a buffer is not mapped"))?;
            placed += piece.len as usize;
        }
        if placed == left as usize {
            ranges.buffer(self.input.room());
        }
        let wanted = ranges.bytes();
        let came = received(ranges.receive(self.socket.as_fd()))?;
        let Some(came) = came else { return Ok(false) };
        let in_place = came.min(placed);
        self.input.came(came - in_place);
        self.data_came(mapped, in_place as u32);
        self.parse(mapped);
        Ok(came == wanted)
    }

    pub(crate) fn header_digest_bytes(&self) -> usize {
        if self.agreed.dgst & dgst::HEADER != 0 { DIGEST_BYTES } else { 0 }
    }

    /// Notes that `bytes` of the current PDU's data have come into their place.
    pub(crate) fn data_came(&mut self, mapped: &Mapped<'_>, bytes: u32) {
        let Reading::Data { slot, left, crc, flags } = self.reading else { return };
        let mut crc = crc;
        if slot == OWN_SLOT {
            let from = self.own.data.len() - bytes as usize;
            crc = crc32c::crc32c_append(crc, &self.own.data[from..]);
        } else {
            let command = &mut self.commands[usize::from(slot)];
            if flags & flags::DDGST != 0 {
                for piece in command.part(command.moved, bytes) {
                    crc = mapped.crc(crc, piece).unwrap_or(!crc);
                }
            }
            command.moved += bytes;
        }
        let left = left - bytes;
        self.reading = match left {
            0 if flags & flags::DDGST != 0 => Reading::Digest { slot, crc, flags },
            0 => Reading::Header,
            _ => Reading::Data { slot, left, crc, flags },
        };
        if let Reading::Header = self.reading {
            self.data_ended(mapped, slot, flags);
        }
    }

    /// Called when the data of a C2HData have come, and their digest.
    fn data_ended(&mut self, mapped: &Mapped<'_>, slot: u16, flags: u8) {
        if flags & flags::SUCCESS == 0 {
            return;
        }
        let (moved, bytes) = match self.commands.get(usize::from(slot)) {
            Some(command) => (command.moved, command.bytes),
            None => (self.own.data.len() as u32, self.own.bytes),
        };
        if flags & flags::LAST == 0 || moved != bytes {
            let why = format!("success after {moved} of {bytes} bytes");
            return self.refuse(FatalError::Sequence, why, &[]);
        }
        if slot == OWN_SLOT {
            self.own.is_busy = false;
            self.own.end = Some(Cqe::default());
            return;
        }
        self.finish(mapped, slot, 0, Status::from_code(StatusCode::SuccessfulCompletion));
    }

    /// Parses what is in the buffer.
    pub(crate) fn parse(&mut self, mapped: &Mapped<'_>) {
        while self.ended.is_none() {
            match self.reading {
                Reading::Header => {
                    let bytes = self.input.bytes();
                    let Some(&kind) = bytes.first() else { return };
                    let Ok(kind) = PduType::try_from(kind) else {
                        let why = format!("a PDU of type {kind:#x}");
                        return self.refuse(FatalError::InvalidHeader, why, &[]);
                    };
                    let digest = match kind {
                        PduType::TargetTermReq => 0,
                        _ => self.header_digest_bytes(),
                    };
                    let len = usize::from(header_bytes(kind)) + digest;
                    if bytes.len() < len {
                        return;
                    }
                    let mut header = [0; 128 + DIGEST_BYTES];
                    header[..len].copy_from_slice(&bytes[..len]);
                    self.input.consume(len);
                    self.take_header(mapped, &header[..len]);
                }
                Reading::Data { slot, left, .. } => {
                    if self.input.is_empty() {
                        return;
                    }
                    let bytes = self.input.bytes();
                    let len = bytes.len().min(left as usize);
                    if slot == OWN_SLOT {
                        self.own.data.extend_from_slice(&bytes[..len]);
                        self.input.consume(len);
                        self.data_came(mapped, len as u32);
                        continue;
                    }
                    let command = &self.commands[usize::from(slot)];
                    let mut from = 0;
                    let stored = command.part(command.moved, len as u32).all(|piece| {
                        let until = from + piece.len as usize;
                        let stored = mapped.store(piece.iova, &bytes[from..until]).is_ok();
                        from = until;
                        stored
                    });
                    if !stored {
                        return self.end("a buffer is not mapped");
                    }
                    self.input.consume(len);
                    self.data_came(mapped, len as u32);
                }
                Reading::Digest { slot, crc, flags } => {
                    let Some(&digest) = self.input.bytes().first_chunk::<DIGEST_BYTES>() else {
                        return;
                    };
                    self.input.consume(DIGEST_BYTES);
                    self.reading = Reading::Header;
                    if u32::from_le_bytes(digest) != crc {
                        match self.commands.get_mut(usize::from(slot)) {
                            Some(command) => command.bad_digest = true,
                            None => return self.end("a wrong data digest"),
                        }
                    }
                    self.data_ended(mapped, slot, flags);
                }
            }
        }
    }

    /// Handles a PDU's header, with its digest.
    pub(crate) fn take_header(&mut self, mapped: &Mapped<'_>, header: &[u8]) {
        let Ok((common, _)) = CommonHeader::read_from_prefix(header) else { return };
        let Ok(kind) = PduType::try_from(common.kind) else { return };
        let hlen = usize::from(header_bytes(kind));
        if usize::from(common.hlen) != hlen {
            let why = format!("HLEN {} of {kind}", common.hlen);
            return self.refuse(FatalError::InvalidHeader, why, &header[..hlen]);
        }
        if kind == PduType::TargetTermReq {
            let fes = TermReq::read_from_prefix(header).map_or(0, |(pdu, _)| pdu.fes.get());
            let why = FatalError::try_from(fes).map_or("unknown reason", FatalError::name);
            return self.end(format!("the target ended it: {why}"));
        }
        let digest = self.header_digest_bytes();
        if common.has(flags::HDGST) != (digest > 0) {
            let why = format!("flags {:#x} of {kind}", common.flags);
            return self.refuse(FatalError::InvalidHeader, why, &header[..hlen]);
        }
        if digest > 0 && header[hlen..] != crc32c::crc32c(&header[..hlen]).to_le_bytes() {
            let why = format!("of {kind}");
            return self.refuse(FatalError::HeaderDigest, why, &header[..hlen]);
        }
        let taken = match kind {
            PduType::CapsuleResp => self.take_response(mapped, header),
            PduType::C2hData => self.take_data(&common, header),
            PduType::R2t => self.take_r2t(mapped, &common, header),
            _ => Err((FatalError::Sequence, format!("a {kind} from the target"))),
        };
        if let Err((error, why)) = taken {
            self.refuse(error, why, &header[..hlen]);
        }
    }

    /// The busy slot of `cid`.
    fn busy_slot(&self, cid: u16) -> Taken<u16> {
        let slot = slot(cid);
        match self.commands.get(slot) {
            Some(command) if command.is_busy && command.cid == cid => Ok(slot as u16),
            _ => Err((FatalError::Sequence, format!("CID {cid:#x} is not in flight"))),
        }
    }

    /// Checks the length of a PDU of 24 bytes without data.
    fn check_without_data(&self, common: &CommonHeader) -> Taken {
        let plen = common.plen.get();
        if plen != 24 + self.header_digest_bytes() as u32 || common.pdo != 0 {
            return Err((FatalError::InvalidHeader, format!("PLEN {plen}, PDO {}", common.pdo)));
        }
        Ok(())
    }

    fn take_response(&mut self, mapped: &Mapped<'_>, header: &[u8]) -> Taken {
        let Ok((pdu, _)) = CapsuleResp::read_from_prefix(header) else { return Ok(()) };
        let cqe = pdu.cqe();
        self.check_without_data(&pdu.common)?;
        if cqe.cid.get() == OWN_CID && self.own.is_busy {
            self.own.is_busy = false;
            self.own.end = Some(cqe);
            return Ok(());
        }
        let slot = self.busy_slot(cqe.cid.get())?;
        let command = &self.commands[usize::from(slot)];
        let all_moved = command.in_capsule || command.moved == command.bytes;
        if cqe.status().is_success() && !all_moved {
            let why = format!("a completion after {} of {} bytes", command.moved, command.bytes);
            return Err((FatalError::Sequence, why));
        }
        if self.output.has_data_of(slot) {
            return Err((FatalError::Sequence, "a completion before its data were sent".into()));
        }
        self.finish(mapped, slot, cqe.dw0.get(), cqe.status());
        Ok(())
    }

    fn take_data(&mut self, common: &CommonHeader, header: &[u8]) -> Taken {
        let Ok((pdu, _)) = DataHeader::read_from_prefix(header) else { return Ok(()) };
        let (offset, len) = (pdu.datao.get(), pdu.datal.get());
        let has_digest = self.agreed.dgst & dgst::DATA != 0;
        let tail = if has_digest { DIGEST_BYTES as u32 } else { 0 };
        let pdo = 24 + self.header_digest_bytes() as u32;
        let right = u32::from(common.pdo) == pdo
            && common.plen.get().checked_sub(pdo + tail) == Some(len)
            && common.has(flags::DDGST) == has_digest;
        if !right {
            let why = format!("PDO {}, PLEN {}, {len} bytes", common.pdo, common.plen.get());
            return Err((FatalError::InvalidHeader, why));
        }
        let (slot, moved, bytes) = if pdu.cccid.get() == OWN_CID && self.own.is_busy {
            (OWN_SLOT, self.own.data.len() as u32, self.own.bytes)
        } else {
            let slot = self.busy_slot(pdu.cccid.get())?;
            let command = &self.commands[usize::from(slot)];
            let reads = command.direction == Direction::In;
            (slot, command.moved, if reads { command.bytes } else { 0 })
        };
        if len == 0 || offset != moved || len > bytes - moved.min(bytes) {
            let why = format!("{len} bytes at {offset}, after {moved} of {bytes}");
            return Err((FatalError::DataRange, why));
        }
        self.reading = Reading::Data { slot, left: len, crc: 0, flags: common.flags };
        Ok(())
    }

    fn take_r2t(&mut self, mapped: &Mapped<'_>, common: &CommonHeader, header: &[u8]) -> Taken {
        let Ok((pdu, _)) = R2t::read_from_prefix(header) else { return Ok(()) };
        self.check_without_data(common)?;
        let slot = self.busy_slot(pdu.cccid.get())?;
        let command = &mut self.commands[usize::from(slot)];
        if command.direction != Direction::Out || command.in_capsule {
            return Err((FatalError::Sequence, "R2T for a command that sends no more".into()));
        }
        let (offset, len) = (pdu.r2to.get(), pdu.r2tl.get());
        if len == 0 || offset != command.moved || len > command.bytes - command.moved {
            let why = format!(
                "R2T for {len} bytes at {offset}, after {} of {}",
                command.moved, command.bytes
            );
            return Err((FatalError::DataRange, why));
        }
        command.moved += len;
        let most = self.agreed.maxh2c_bytes;
        let mut sent = 0;
        while sent < len {
            let part = most.min(len - sent);
            let mut data = DataHeader::default();
            data.common = CommonHeader::new(PduType::H2cData, 24, part);
            (data.cccid, data.ttag) = (pdu.cccid, pdu.ttag);
            (data.datao, data.datal) = ((offset + sent).into(), part.into());
            if sent + part == len {
                data.common.flags |= flags::LAST;
            }
            let pieces = command.part(offset + sent, part);
            if self.output.pdu(mapped, data.as_mut_bytes(), &[], slot, pieces).is_err() {
                self.end("data of a command is no longer mapped");
                return Ok(());
            }
            sent += part;
        }
        Ok(())
    }

    /// Ends the command in `slot`.
    fn finish(&mut self, mapped: &Mapped<'_>, slot: u16, dw0: u32, status: Status) {
        let command = &mut self.commands[usize::from(slot)];
        command.is_busy = false;
        let (cid, bad_digest) = (command.cid, command.bad_digest);
        self.in_flight -= 1;
        if command.direction == Direction::In
            && let Some(at) = self.reads.iter().position(|read| *read == slot)
        {
            self.reads.remove(at);
        }
        let identifies = self.qid == 0 && command.opcode == admin::IDENTIFY;
        if identifies && status.is_success() && !bad_digest {
            let mut data = [0; identify::SIZE];
            load(mapped, &mut command.part(0, data.len() as u32), &mut data);
            match command.cns {
                cns::NAMESPACE => self.identified.learn_namespace(command.nsid, &data),
                cns::CONTROLLER => self.identified.learn_controller(&data),
                _ => {}
            }
        }
        let status = match status {
            status if bad_digest && status.is_success() => {
                Status::from_code(StatusCode::TransientTransportError)
            }
            status => status,
        };
        self.post(mapped, dw0, cid, status);
    }

    /// Writes a completion queue entry.
    pub(crate) fn post(&mut self, mapped: &Mapped<'_>, dw0: u32, cid: u16, status: Status) {
        let Some(rings) = self.rings else { return };
        let cqe = Cqe::new(dw0, self.sq_head, self.qid, cid, status, self.phase);
        let at = rings.cq_iova + u64::from(self.cq_tail) * size_of::<Cqe>() as u64;
        if mapped.post(at, &cqe).is_err() {
            return self.end("the completion queue is no longer mapped");
        }
        self.cq_tail += 1;
        if self.cq_tail == rings.cq_entries {
            (self.cq_tail, self.phase) = (0, !self.phase);
        }
    }
}

/// The slot of a command: the driver's tag.
fn slot(cid: u16) -> usize {
    usize::from(cid & 0x3ff)
}

/// Copies pieces to `to`, as far as they are mapped.
pub(crate) fn load(mapped: &Mapped<'_>, pieces: &mut impl Iterator<Item = Piece>, to: &mut [u8]) {
    let mut at = 0;
    for piece in pieces {
        let until = at + piece.len as usize;
        let _ = mapped.load(piece.iova, &mut to[at..until]);
        at = until;
    }
}

/// Interprets a receiving call: bytes, `None` for nothing yet, or an error if the target has
/// closed.
pub(crate) fn received(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(0) => Err(io::Error::other("the target closed it")),
        Ok(came) => Ok(Some(came)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}
