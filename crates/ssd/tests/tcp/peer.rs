//! A host of NVMe/TCP for tests: blocking, one PDU after the other.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::fabrics::{CNTLID_DYNAMIC, ConnectData, cattr, set_zero_ended};
use meantime_nvme_spec::regs::{CC, CSTS, Cc, Csts};
use meantime_nvme_spec::sgl::SglDescriptor;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;
use meantime_nvme_spec::tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, DataHeader, InitializeConnection, PduType, R2t, TermReq,
    dgst, flags,
};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

pub(crate) const HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";

/// A received PDU.
pub(crate) struct Pdu {
    pub(crate) common: CommonHeader,
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) digests_right: bool,
}

impl Pdu {
    pub(crate) fn kind(&self) -> PduType {
        PduType::try_from(self.common.kind).unwrap()
    }

    pub(crate) fn cqe(&self) -> Cqe {
        assert_eq!(self.kind(), PduType::CapsuleResp);
        CapsuleResp::read_from_bytes(&self.header).unwrap().cqe()
    }

    pub(crate) fn data_header(&self) -> DataHeader {
        assert_eq!(self.kind(), PduType::C2hData);
        DataHeader::read_from_bytes(&self.header).unwrap()
    }

    pub(crate) fn r2t(&self) -> R2t {
        assert_eq!(self.kind(), PduType::R2t);
        R2t::read_from_bytes(&self.header).unwrap()
    }

    pub(crate) fn fes(&self) -> u16 {
        assert_eq!(self.kind(), PduType::TargetTermReq);
        TermReq::read_from_bytes(&self.header).unwrap().fes.get()
    }
}

/// The result of a command.
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) dw0: u32,
    pub(crate) dw1: u32,
    /// `None` if there was no response but data with SUCCESS.
    pub(crate) sqhd: Option<u16>,
    pub(crate) data: Vec<u8>,
}

pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) digests: u8,
    pub(crate) max_h2c: u32,
    cid: u16,
}

impl Peer {
    /// A connection on which nothing has been sent.
    pub(crate) fn plain(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, digests: 0, max_h2c: 0, cid: 100 }
    }

    /// One that has been initialised.
    pub(crate) fn with(addr: SocketAddr, digests: u8, hpda: u8) -> Self {
        let mut peer = Self::plain(addr);
        peer.send(icreq(digests, hpda).as_bytes());
        let answer = peer.receive().expect("ICResp");
        assert_eq!(answer.kind(), PduType::IcResp);
        let response = InitializeConnection::read_from_bytes(&answer.header).unwrap();
        assert_eq!((response.dgst, response.pda), (digests, 0));
        peer.max_h2c = response.limit.get();
        peer.digests = digests;
        peer
    }

    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self::with(addr, 0, 0)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns the next PDU, or `None` if the target has closed.
    pub(crate) fn receive(&mut self) -> Option<Pdu> {
        let mut common = [0; 8];
        match self.stream.read_exact(&mut common) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer"),
            Err(_) => return None,
        }
        let common = CommonHeader::read_from_bytes(&common).unwrap();
        let mut rest = vec![0; common.plen.get() as usize - 8];
        self.stream.read_exact(&mut rest).ok()?;
        let mut all = common.as_bytes().to_vec();
        all.extend_from_slice(&rest);
        let hlen = usize::from(common.hlen);
        let header = all[..hlen].to_vec();
        let mut digests_right = true;
        if common.has(flags::HDGST) {
            let crc = crc32c::crc32c(&header).to_le_bytes();
            digests_right &= all[hlen..hlen + 4] == crc;
        }
        let pdo = usize::from(common.pdo);
        let mut data = if pdo > 0 { all[pdo..].to_vec() } else { Vec::new() };
        if common.has(flags::DDGST) {
            let crc = data.split_off(data.len() - 4);
            digests_right &= crc == crc32c::crc32c(&data).to_le_bytes();
        }
        Some(Pdu { common, header, data, digests_right })
    }

    /// A PDU as it is sent.
    pub(crate) fn pdu(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut common = CommonHeader::read_from_bytes(&header[..8]).unwrap();
        common = common.with_digests(self.digests);
        let mut bytes = common.as_bytes().to_vec();
        bytes.extend_from_slice(&header[8..]);
        if self.digests & dgst::HEADER != 0 {
            bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        }
        bytes.extend_from_slice(data);
        if self.digests & dgst::DATA != 0 && !data.is_empty() {
            bytes.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
        }
        bytes
    }

    pub(crate) fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        self.pdu(CapsuleCmd::new(sqe, data.len() as u32).as_bytes(), data)
    }

    pub(crate) fn next_cid(&mut self) -> u16 {
        self.cid += 1;
        self.cid
    }

    /// Sends a command without data of its own, and returns what comes of it.
    pub(crate) fn command(&mut self, sqe: &Sqe, in_capsule: &[u8]) -> Answer {
        self.try_command(sqe, in_capsule).expect("closed")
    }

    pub(crate) fn try_command(&mut self, sqe: &Sqe, in_capsule: &[u8]) -> Option<Answer> {
        let bytes = self.capsule(sqe, in_capsule);
        self.stream.write_all(&bytes).ok()?;
        self.answer(sqe.cid())
    }

    pub(crate) fn answer(&mut self, cid: u16) -> Option<Answer> {
        let mut data = Vec::new();
        loop {
            let pdu = self.receive()?;
            assert!(pdu.digests_right);
            if pdu.kind() == PduType::CapsuleResp {
                let cqe = pdu.cqe();
                assert_eq!(cqe.cid.get(), cid);
                assert!(!cqe.phase());
                let (dw0, dw1) = (cqe.dw0.get(), cqe.dw1.get());
                let sqhd = Some(cqe.sqhd.get());
                return Some(Answer { status: cqe.status(), dw0, dw1, sqhd, data });
            }
            let header = pdu.data_header();
            assert_eq!(header.cccid.get(), cid);
            assert_eq!(header.datao.get() as usize, data.len());
            assert_eq!(header.datal.get() as usize, pdu.data.len());
            data.extend_from_slice(&pdu.data);
            assert!(pdu.common.has(flags::LAST));
            if pdu.common.has(flags::SUCCESS) {
                let status = Status::SUCCESS;
                return Some(Answer { status, dw0: 0, dw1: 0, sqhd: None, data });
            }
        }
    }

    /// Connects a queue.
    pub(crate) fn connect(&mut self, what: &Connect) -> Answer {
        let cid = self.next_cid();
        let sqe = Sqe::connect(cid, what.qid, what.entries, what.cattr, what.kato_ms);
        self.command(&sqe, what.data().as_bytes())
    }

    pub(crate) fn property(&mut self, offset: u32, bytes: u8) -> Answer {
        let sqe = Sqe::property_get(self.next_cid(), offset, bytes);
        self.command(&sqe, &[])
    }

    pub(crate) fn set_cc(&mut self, cc: Cc) -> Status {
        let sqe = Sqe::property_set(self.next_cid(), CC, 4, cc.0.into());
        self.command(&sqe, &[]).status
    }

    pub(crate) fn csts(&mut self) -> Csts {
        Csts(self.property(CSTS, 4).dw0)
    }

    pub(crate) fn enable(&mut self) {
        let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4);
        assert!(self.set_cc(cc).is_success());
        assert!(self.csts().rdy());
    }

    /// A read of `blocks` blocks of `block_bytes`.
    pub(crate) fn read(&mut self, slba: u64, blocks: u32, block_bytes: u32) -> Answer {
        let sqe = Sqe::read(self.next_cid(), 1, slba, blocks, 0, 0)
            .with_sgl(SglDescriptor::transport(blocks * block_bytes));
        self.command(&sqe, &[])
    }

    /// A write with its data in the capsule.
    pub(crate) fn write(&mut self, slba: u64, block_bytes: u32, data: &[u8]) -> Answer {
        let blocks = data.len() as u32 / block_bytes;
        let sqe = Sqe::write(self.next_cid(), 1, slba, blocks, 0, 0, false)
            .with_sgl(SglDescriptor::in_capsule(data.len() as u32));
        self.command(&sqe, data)
    }

    /// A write whose data is sent when the target asks for it, in pieces.
    pub(crate) fn write_asked(
        &mut self,
        slba: u64,
        block_bytes: u32,
        data: &[u8],
        piece: usize,
    ) -> Answer {
        let blocks = data.len() as u32 / block_bytes;
        let sqe = Sqe::write(self.next_cid(), 1, slba, blocks, 0, 0, false)
            .with_sgl(SglDescriptor::transport(data.len() as u32));
        let bytes = self.capsule(&sqe, &[]);
        self.send(&bytes);
        let r2t = self.receive().unwrap().r2t();
        assert_eq!(r2t.cccid.get(), sqe.cid());
        assert_eq!((r2t.r2to.get(), r2t.r2tl.get()), (0, data.len() as u32));
        for (at, part) in data.chunks(piece).enumerate() {
            let offset = at * piece;
            let last = offset + part.len() == data.len();
            let bytes = self.h2c(sqe.cid(), r2t.ttag.get(), offset as u32, part, last);
            self.send(&bytes);
        }
        self.answer(sqe.cid()).unwrap()
    }

    pub(crate) fn h2c(&self, cid: u16, ttag: u16, offset: u32, data: &[u8], last: bool) -> Vec<u8> {
        let mut header = DataHeader::default();
        header.common = CommonHeader::new(PduType::H2cData, 24, data.len() as u32);
        header.common.flags |= if last { flags::LAST } else { 0 };
        header.cccid.set(cid);
        header.ttag.set(ttag);
        header.datao.set(offset);
        header.datal.set(data.len() as u32);
        self.pdu(header.as_bytes(), data)
    }
}

pub(crate) fn icreq(digests: u8, hpda: u8) -> InitializeConnection {
    let mut request = InitializeConnection::default();
    request.common = CommonHeader::new(PduType::IcReq, 128, 0);
    (request.dgst, request.pda) = (digests, hpda);
    request
}

/// The parameters of Connect.
#[derive(Clone)]
pub(crate) struct Connect {
    pub(crate) qid: u16,
    pub(crate) entries: u16,
    pub(crate) cattr: u8,
    pub(crate) kato_ms: u32,
    pub(crate) cntlid: u16,
    pub(crate) hostid: u8,
    pub(crate) subnqn: String,
    pub(crate) hostnqn: String,
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            qid: 0,
            entries: 32,
            cattr: cattr::DISABLE_SQ_FLOW,
            kato_ms: 0,
            cntlid: CNTLID_DYNAMIC,
            hostid: 1,
            subnqn: meantime_ssd::tcp::DEFAULT_NQN.to_owned(),
            hostnqn: HOST.to_owned(),
        }
    }
}

impl Connect {
    pub(crate) fn io(cntlid: u16, qid: u16) -> Self {
        Self { qid, cntlid, entries: 128, ..Self::default() }
    }

    pub(crate) fn data(&self) -> ConnectData {
        let mut data = ConnectData::new_zeroed();
        data.hostid = [self.hostid; 16];
        data.cntlid.set(self.cntlid);
        set_zero_ended(&mut data.subnqn, &self.subnqn);
        set_zero_ended(&mut data.hostnqn, &self.hostnqn);
        data
    }
}

/// A host with an enabled controller and one I/O queue.
pub(crate) struct Host {
    pub(crate) admin: Peer,
    pub(crate) io: Peer,
    pub(crate) cntlid: u16,
}

impl Host {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        Self::with(addr, 0, &Connect::default())
    }

    pub(crate) fn with(addr: SocketAddr, digests: u8, how: &Connect) -> Self {
        let mut admin = Peer::with(addr, digests, 0);
        let answer = admin.connect(how);
        assert!(answer.status.is_success(), "{}", answer.status);
        let cntlid = answer.dw0 as u16;
        admin.enable();
        let mut io = Peer::with(addr, digests, 0);
        let connect = Connect { qid: 1, cntlid, entries: 128, ..how.clone() };
        assert!(io.connect(&connect).status.is_success());
        Self { admin, io, cntlid }
    }
}
