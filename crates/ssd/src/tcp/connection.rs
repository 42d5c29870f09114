//! The input of one connection, which turns bytes, in pieces of any size, into commands and data.

use std::collections::VecDeque;
use std::net::SocketAddr;

use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::tcp::{
    ADMIN_CAPSULE_BYTES, CapsuleCmd, CommonHeader, DIGEST_BYTES, DataHeader, FatalError,
    InitializeConnection, PFV_1_0, PduType, TermReq, dgst, flags, header_bytes,
};
use zerocopy::{FromBytes, IntoBytes};

use super::association::is_own_feature;
use super::authentication::Authentication;
use super::backend::{Backend, ConnId, State};
use super::machine::BUFFER_BYTES;
use super::output::{Corrupted, Output};

/// The maximum of in-capsule data of an I/O command.
pub(super) const IN_CAPSULE_BYTES: usize = 16 << 10;

/// The value of MAXH2CDATA.
pub(super) const MAX_H2C_BYTES: u32 = BUFFER_BYTES as u32;

/// The longest header, with its digest.
const HEADER_BYTES: usize = 128 + DIGEST_BYTES;

/// The maximum of padding before data that is accepted.
const PADDING_BYTES: usize = 128;

/// The maximum number of bytes of answers that the host has not taken while its further commands
/// are still read.
const UNSENT_BYTES: usize = 4 << 20;

/// The maximum number of such bytes that are in no slot.
const UNSENT_OWN_BYTES: usize = 256 << 10;

/// How long a connection may take for ICReq, Connect and the authentication, for data for which it was asked, and to
/// take the answers that were sent.
pub(super) const PATIENCE_NS: u64 = 10_000_000_000;

/// How long a host may take to close after a TermReq.
const LINGER_NS: u64 = 2_000_000_000;

/// A broken rule after which the connection's bytes cannot be understood any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fatal {
    pub(super) fes: FatalError,
    /// The offset of the wrong field in the header, or the computed digest.
    pub(super) fei: u32,
    pub(super) why: &'static str,
}

fn fatal<T>(fes: FatalError, fei: u32, why: &'static str) -> Result<T, Fatal> {
    Err(Fatal { fes, fei, why })
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The target waits for ICReq.
    Fresh,
    /// The connection is initialised.
    Ready,
    /// A TermReq was sent. Bytes that come are dropped until the host closes.
    Ending,
    /// The connection is to be closed.
    Closed,
}

/// The queue that Connect has made of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The association, by place.
    pub(super) association: usize,
    pub(super) qid: u16,
    pub(super) entries: u32,
    /// The value of SQHD.
    pub(super) head: u32,
    /// Whether SQ flow control is disabled.
    pub(super) no_flow: bool,
}

/// Data that came in a capsule.
#[derive(Clone, Copy, Debug)]
pub(super) struct InCapsule {
    pub(super) slot: u16,
    pub(super) len: u32,
    /// Whether its digest was wrong.
    pub(super) bad: bool,
}

/// The result of taking some bytes.
pub(super) enum Got {
    /// More bytes are needed.
    Nothing,
    /// There is no slot for the next command.
    Stalled,
    Capsule(Sqe, Option<InCapsule>),
    /// All data of a slot has come.
    Filled(u16),
    /// The host ends the connection.
    Terminated,
}

struct Data {
    /// The command, if the data is in its capsule.
    capsule: Option<Sqe>,
    slot: u16,
    /// The number of padding bytes that are still to come.
    padding: usize,
    /// The offset in the slot at which the next byte goes.
    at: usize,
    /// The number of bytes that are still to come.
    left: usize,
    crc: u32,
    digest: [u8; DIGEST_BYTES],
    /// The number of bytes of the digest that are still to come.
    digest_left: usize,
}

pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) phase: Phase,
    header: [u8; HEADER_BYTES],
    /// The number of bytes of `header` that have come.
    have: usize,
    body: Option<Data>,
    pub(super) digests: u8,
    /// HPDA in bytes.
    pub(super) align: usize,
    pub(super) queue: Option<Queue>,
    pub(super) authentication: Authentication,
    /// The identifiers in use.
    cids: Vec<u64>,
    /// The number of commands that are not answered.
    pub(super) outstanding: u32,
    pub(super) r2ts: u32,
    /// Writes that wait until R2T can be sent.
    pub(super) deferred: VecDeque<Sqe>,
    pub(super) out: Output,
    /// The number of further bytes after which the connection is closed. This injects a fault.
    pub(super) cut: Option<usize>,
    /// The time, while bytes are taken.
    pub(super) now_ns: u64,
    /// The time at which data last came, or at which the first of the open R2Ts was sent.
    pub(super) data_ns: u64,
    /// The time since which the socket takes nothing.
    pub(super) blocked_ns: Option<u64>,
    pub(super) opened_ns: u64,
    /// The address that the host has connected to, if it listens at several.
    pub(super) local: Option<SocketAddr>,
    /// The time at which the TermReq was sent.
    pub(super) ended_ns: u64,
}

impl Connection {
    pub(super) fn new(id: ConnId, now_ns: u64) -> Self {
        Self {
            id,
            phase: Phase::Fresh,
            header: [0; HEADER_BYTES],
            have: 0,
            body: None,
            digests: 0,
            align: 4,
            queue: None,
            authentication: Authentication::default(),
            cids: Vec::new(),
            outstanding: 0,
            r2ts: 0,
            deferred: VecDeque::new(),
            out: Output::default(),
            cut: None,
            now_ns,
            data_ns: now_ns,
            blocked_ns: None,
            opened_ns: now_ns,
            local: None,
            ended_ns: 0,
        }
    }

    /// Marks a command identifier as used. Returns false if it was used already.
    #[inline(always)]
    pub(super) fn use_cid(&mut self, cid: u16) -> bool {
        if self.cids.is_empty() {
            self.cids = vec![0; 1 << 10];
        }
        let (word, bit) = (&mut self.cids[usize::from(cid >> 6)], 1 << (cid & 63));
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    #[inline(always)]
    pub(super) fn free_cid(&mut self, cid: u16) {
        if let Some(word) = self.cids.get_mut(usize::from(cid >> 6)) {
            *word &= !(1 << (cid & 63));
        }
    }

    /// Returns when the connection is closed if nothing happens on it.
    pub(super) fn until_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Closed => return None,
            Phase::Ending => return Some(self.ended_ns + LINGER_NS),
            _ => {}
        }
        let is_new = self.queue.is_none() || self.authentication.is_needed();
        let opened_ns = is_new.then_some(self.opened_ns);
        let awaits_data = self.body.is_some() || self.r2ts > 0;
        let data_ns = awaits_data.then_some(self.data_ns);
        let since_ns = [opened_ns, data_ns, self.blocked_ns].into_iter().flatten().min()?;
        Some(since_ns + PATIENCE_NS)
    }

    fn qid(&self) -> Option<u16> {
        self.queue.map(|queue| queue.qid)
    }

    /// Takes bytes of `input` from `used` on, up to the next result.
    #[inline]
    pub(super) fn next(
        &mut self,
        input: &[u8],
        used: &mut usize,
        backend: &mut Backend,
    ) -> Result<Got, Fatal> {
        loop {
            if self.body.is_some() {
                match self.take_data(input, used, backend)? {
                    Some(got) => return Ok(got),
                    None if *used == input.len() => return Ok(Got::Nothing),
                    None => continue,
                }
            }
            if !self.collect(8, input, used) {
                return Ok(Got::Nothing);
            }
            let (common, kind, len) = self.check_common()?;
            if !self.collect(len, input, used) {
                return Ok(Got::Nothing);
            }
            self.check_header_digest(len, kind)?;
            match kind {
                PduType::IcReq => self.initialize()?,
                PduType::HostTermReq => return Ok(Got::Terminated),
                PduType::CapsuleCmd => {
                    let full =
                        self.out.left() > UNSENT_BYTES || self.out.left_of_own() > UNSENT_OWN_BYTES;
                    let stalled = full
                        || (!backend.may_take(self.id, self.qid())
                            && (common.plen.get() as usize > len || self.takes_slot()));
                    if stalled {
                        // One byte is returned, so that the command is examined again.
                        self.have -= 1;
                        *used -= 1;
                        self.data_ns = self.now_ns;
                        return Ok(Got::Stalled);
                    }
                    if let Some(got) = self.capsule(common, len, backend)? {
                        return Ok(got);
                    }
                }
                _ => self.h2c_data(common, len, backend)?,
            }
        }
    }

    /// Returns whether the command in the header, which has no data with it, takes a slot.
    fn takes_slot(&self) -> bool {
        let Ok(capsule) = CapsuleCmd::read_from_bytes(&self.header[..72]) else { return true };
        let sqe = capsule.sqe();
        let is_own = match sqe.opcode() {
            admin::FABRICS => true,
            _ if self.qid() != Some(0) => false,
            admin::KEEP_ALIVE | admin::ASYNC_EVENT_REQUEST => true,
            admin::SET_FEATURES | admin::GET_FEATURES => is_own_feature(sqe.fid()),
            _ => false,
        };
        !is_own
    }

    /// Collects the first `len` bytes of a header. Returns false if more are needed.
    #[inline(always)]
    fn collect(&mut self, len: usize, input: &[u8], used: &mut usize) -> bool {
        if self.have < len {
            let count = (len - self.have).min(input.len() - *used);
            self.header[self.have..self.have + count].copy_from_slice(&input[*used..*used + count]);
            self.have += count;
            *used += count;
        }
        self.have >= len
    }

    /// Checks the fields with which every PDU begins. Returns its type, and the length of its
    /// header and digest.
    #[inline(always)]
    fn check_common(&self) -> Result<(CommonHeader, PduType, usize), Fatal> {
        let common = CommonHeader::read_from_bytes(&self.header[..8]).unwrap_or_default();
        let Ok(kind) = PduType::try_from(common.kind) else {
            return fatal(FatalError::InvalidHeader, 0, "unknown PDU type");
        };
        match (kind, self.phase) {
            (PduType::IcReq, Phase::Fresh) | (PduType::HostTermReq, _) => {}
            (PduType::CapsuleCmd | PduType::H2cData, Phase::Ready) => {}
            (PduType::IcReq, _) => return fatal(FatalError::Sequence, 0, "a second ICReq"),
            (_, Phase::Fresh) => return fatal(FatalError::Sequence, 0, "no ICReq at first"),
            _ => return fatal(FatalError::InvalidHeader, 0, "a PDU that only targets send"),
        }
        if common.hlen != header_bytes(kind) {
            return fatal(FatalError::InvalidHeader, 2, "HLEN is not the PDU type's");
        }
        let has_digest = matches!(kind, PduType::CapsuleCmd | PduType::H2cData)
            && self.digests & dgst::HEADER != 0;
        if common.has(flags::HDGST) != has_digest {
            return fatal(FatalError::InvalidHeader, 1, "HDGSTF is not what was agreed on");
        }
        let len = usize::from(common.hlen) + if has_digest { DIGEST_BYTES } else { 0 };
        let plen = common.plen.get() as usize;
        let most = match kind {
            PduType::IcReq => len,
            PduType::HostTermReq => len + 128,
            _ => len + PADDING_BYTES + BUFFER_BYTES + DIGEST_BYTES,
        };
        if plen < len || plen > most {
            return fatal(FatalError::InvalidHeader, 4, "PLEN out of range");
        }
        Ok((common, kind, len))
    }

    #[inline(always)]
    fn check_header_digest(&self, len: usize, kind: PduType) -> Result<(), Fatal> {
        let hlen = usize::from(header_bytes(kind));
        if len == hlen {
            return Ok(());
        }
        let crc = crc32c::crc32c(&self.header[..hlen]);
        if self.header[hlen..len] != crc.to_le_bytes() {
            return fatal(FatalError::HeaderDigest, crc, "the header's digest is wrong");
        }
        Ok(())
    }

    fn initialize(&mut self) -> Result<(), Fatal> {
        let request = InitializeConnection::read_from_bytes(&self.header[..128]);
        let request = request.unwrap_or_default();
        if request.pfv.get() != PFV_1_0 {
            return fatal(FatalError::Unsupported, 8, "a PDU format version that is not known");
        }
        if request.pda > 31 {
            return fatal(FatalError::InvalidHeader, 10, "HPDA beyond 31");
        }
        if request.dgst & !(dgst::HEADER | dgst::DATA) != 0 {
            return fatal(FatalError::Unsupported, 11, "DGST has reserved bits");
        }
        self.have = 0;
        self.digests = request.dgst;
        self.align = (usize::from(request.pda) + 1) * 4;
        self.phase = Phase::Ready;
        let mut response = InitializeConnection::default();
        response.common = CommonHeader::new(PduType::IcResp, 128, 0);
        response.dgst = request.dgst;
        response.limit.set(MAX_H2C_BYTES);
        self.out.pdu(response.as_bytes(), 0, Corrupted::default());
        Ok(())
    }

    /// Returns where a PDU's data is: its padding and length.
    #[inline(always)]
    fn data_of(&self, common: CommonHeader, len: usize) -> Result<(usize, usize), Fatal> {
        let plen = common.plen.get() as usize;
        if plen == len {
            return Ok((0, 0));
        }
        let pdo = usize::from(common.pdo);
        if pdo < len || !pdo.is_multiple_of(4) || pdo > len + PADDING_BYTES {
            return fatal(FatalError::InvalidHeader, 3, "PDO out of range");
        }
        let has_digest = self.digests & dgst::DATA != 0;
        if common.has(flags::DDGST) != has_digest {
            return fatal(FatalError::InvalidHeader, 1, "DDGSTF is not what was agreed on");
        }
        let data = plen.checked_sub(pdo + if has_digest { DIGEST_BYTES } else { 0 });
        match data {
            Some(data @ 1..) => Ok((pdo - len, data)),
            _ => fatal(FatalError::InvalidHeader, 4, "PLEN is shorter than what it holds"),
        }
    }

    #[inline(always)]
    fn capsule(
        &mut self,
        common: CommonHeader,
        len: usize,
        backend: &mut Backend,
    ) -> Result<Option<Got>, Fatal> {
        let (padding, data) = self.data_of(common, len)?;
        let most = match &self.queue {
            Some(Queue { qid: 1.., .. }) => IN_CAPSULE_BYTES,
            _ => ADMIN_CAPSULE_BYTES,
        };
        if data > most {
            return fatal(FatalError::TransferLimit, 4, "more in-capsule data than IOCCSZ allows");
        }
        let capsule = CapsuleCmd::read_from_bytes(&self.header[..72]).unwrap_or_default();
        let sqe = capsule.sqe();
        self.have = 0;
        if data == 0 {
            return Ok(Some(Got::Capsule(sqe, None)));
        }
        let Some(slot) = backend.take(self.id) else { return Ok(Some(Got::Stalled)) };
        self.begin_data(Some(sqe), slot, padding, 0, data);
        Ok(None)
    }

    fn begin_data(
        &mut self,
        capsule: Option<Sqe>,
        slot: u16,
        padding: usize,
        at: usize,
        left: usize,
    ) {
        let digest_left = if self.digests & dgst::DATA != 0 { DIGEST_BYTES } else { 0 };
        let digest = [0; DIGEST_BYTES];
        self.data_ns = self.now_ns;
        self.body = Some(Data { capsule, slot, padding, at, left, crc: 0, digest, digest_left });
    }

    fn h2c_data(
        &mut self,
        common: CommonHeader,
        len: usize,
        backend: &mut Backend,
    ) -> Result<(), Fatal> {
        let (padding, data) = self.data_of(common, len)?;
        let pdu = DataHeader::read_from_bytes(&self.header[..24]).unwrap_or_default();
        let slot = pdu.ttag.get();
        if usize::from(slot) >= backend.slots()
            || backend.slot(slot).state != State::Filling
            || backend.slot(slot).conn != self.id
        {
            return fatal(FatalError::InvalidHeader, 10, "TTAG of no R2T");
        }
        let of = backend.slot(slot);
        if pdu.cccid.get() != of.sqe.cid() {
            return fatal(FatalError::InvalidHeader, 8, "CCCID is not the command of TTAG");
        }
        if pdu.datal.get() as usize != data || data == 0 {
            return fatal(FatalError::InvalidHeader, 16, "DATAL is not the length of the data");
        }
        if pdu.datao.get() != of.received {
            return fatal(FatalError::DataRange, 12, "DATAO is not where the data goes on");
        }
        let left = (of.len - of.received) as usize;
        if data > left {
            return fatal(FatalError::DataRange, 16, "more data than R2T has asked for");
        }
        if common.has(flags::LAST) != (data == left) {
            return fatal(FatalError::InvalidHeader, 1, "LAST_PDU is not that of the last data");
        }
        let at = of.received as usize;
        self.have = 0;
        self.begin_data(None, slot, padding, at, data);
        Ok(())
    }

    /// Takes data of the current PDU. Returns the result once all of it has come.
    fn take_data(
        &mut self,
        input: &[u8],
        used: &mut usize,
        backend: &mut Backend,
    ) -> Result<Option<Got>, Fatal> {
        let with_digest = self.digests & dgst::DATA != 0;
        let Some(data) = &mut self.body else { return Ok(None) };
        let skipped = data.padding.min(input.len() - *used);
        data.padding -= skipped;
        *used += skipped;
        let count = if data.padding > 0 { 0 } else { data.left.min(input.len() - *used) };
        if count > 0 {
            let from = &input[*used..*used + count];
            let slot = usize::from(data.slot);
            backend.machine_mut().data_mut(slot, data.at..data.at + count).copy_from_slice(from);
            if with_digest {
                data.crc = crc32c::crc32c_append(data.crc, from);
            }
            data.at += count;
            data.left -= count;
            self.data_ns = self.now_ns;
            *used += count;
        }
        if data.left == 0 && data.digest_left > 0 {
            let count = data.digest_left.min(input.len() - *used);
            let at = DIGEST_BYTES - data.digest_left;
            data.digest[at..at + count].copy_from_slice(&input[*used..*used + count]);
            data.digest_left -= count;
            *used += count;
        }
        if data.padding > 0 || data.left > 0 || data.digest_left > 0 {
            return Ok(None);
        }
        let bad = with_digest && data.digest != data.crc.to_le_bytes();
        let (capsule, slot, end) = (data.capsule, data.slot, data.at as u32);
        self.body = None;
        if let Some(sqe) = capsule {
            return Ok(Some(Got::Capsule(sqe, Some(InCapsule { slot, len: end, bad }))));
        }
        let of = backend.slot_mut(slot);
        of.bad |= bad;
        of.received = end;
        Ok((end == of.len).then_some(Got::Filled(slot)))
    }

    /// Sends a TermReq with the header that is at fault, without its digest. The connection's
    /// further bytes are dropped.
    pub(super) fn terminate(&mut self, fatal: Fatal, now_ns: u64) {
        let hlen = PduType::try_from(self.header[0]).map_or(8, header_bytes);
        let offending = &self.header[..self.have.min(hlen.into())];
        let mut pdu = TermReq::default();
        let (hlen, len) = (size_of::<TermReq>() as u8, offending.len() as u32);
        pdu.common = CommonHeader::new(PduType::TargetTermReq, hlen, len);
        // The data of this PDU has no digest, and no offset.
        pdu.common.pdo = 0;
        pdu.fes.set(fatal.fes as u16);
        pdu.fei = fatal.fei.to_le_bytes();
        let mut bytes = pdu.as_bytes().to_vec();
        bytes.extend_from_slice(offending);
        self.out.pdu(&bytes, 0, Corrupted::default());
        self.phase = Phase::Ending;
        self.ended_ns = now_ns;
        self.deferred.clear();
    }
}
