//! A small target in this process, which a test can make misbehave.
//!
//! It is written from the specification, apart from the product's own: what it sends is right until
//! [`Misdeed`] changes it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;
/// Blocks of the namespace.
pub(crate) const BLOCKS: usize = 8192;
/// The most in-capsule data of an I/O queue.
pub(crate) const IN_CAPSULE: usize = 8192;
/// The most data of one H2CData.
pub(crate) const MAXH2C: usize = 4096;

/// What happens to each PDU that the target sends: queue identifier, number of the PDU on its
/// connection, bytes. An error closes the connection after what is left of the bytes.
pub(crate) type Misdeed = Box<dyn FnMut(u16, u64, &mut Vec<u8>) -> io::Result<()> + Send>;

/// What tests set and read.
pub(crate) struct Shared {
    pub(crate) medium: Mutex<Vec<u8>>,
    pub(crate) misdeed: Mutex<Option<Misdeed>>,
    /// Sends completions of reads in PDUs of their own, and data in two parts.
    pub(crate) splits: AtomicBool,
    /// Connections accepted, commands of I/O queues, Keep Alives, controllers disabled by the host.
    pub(crate) connections: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) keep_alives: AtomicU64,
    pub(crate) resets: AtomicU64,
    /// Answers nothing on I/O queues while set.
    pub(crate) is_mute: AtomicBool,
    /// The volatile write cache bit.
    pub(crate) has_cache: AtomicBool,
    /// Open connections, to be cut.
    pub(crate) streams: Mutex<Vec<(u16, TcpStream)>>,
    /// Refuses new connections while set.
    pub(crate) is_closed: AtomicBool,
    /// Answers nothing while set, as a process that is stopped: the kernel still accepts
    /// connections and bytes.
    pub(crate) is_stopped: AtomicBool,
    /// CAP.MQES, counted from 1.
    pub(crate) queue_entries: AtomicU32,
    /// CNTRLTYPE.
    pub(crate) controller_type: AtomicU32,
    next_cntlid: AtomicU32,
}

pub(crate) struct Target {
    pub(crate) shared: Arc<Shared>,
    pub(crate) port: u16,
    is_over: Arc<AtomicBool>,
}

impl Target {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            medium: Mutex::new(vec![0; BLOCK * BLOCKS]),
            misdeed: Mutex::new(None),
            splits: false.into(),
            connections: 0.into(),
            commands: 0.into(),
            keep_alives: 0.into(),
            resets: 0.into(),
            is_mute: false.into(),
            has_cache: false.into(),
            streams: Mutex::default(),
            is_closed: false.into(),
            is_stopped: false.into(),
            queue_entries: 128.into(),
            controller_type: 0.into(),
            next_cntlid: 1.into(),
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let (all, over) = (Arc::clone(&shared), Arc::clone(&is_over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                all.wait_while_stopped();
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                if all.is_closed.load(Ordering::Relaxed) {
                    continue;
                }
                stream.set_nonblocking(false).unwrap();
                all.connections.fetch_add(1, Ordering::Relaxed);
                let all = Arc::clone(&all);
                thread::spawn(move || {
                    let _ = Connection::new(stream, all).serve();
                });
            }
        });
        Self { shared, port, is_over }
    }

    pub(crate) fn uri(&self, parameters: &str) -> String {
        let host = "hostnqn=nqn.2014-08.org.example:host&hostid=0123456789abcdef0123456789abcdef";
        format!(
            "nvme+tcp://127.0.0.1:{}/nqn.2014-08.org.example:disk?{host}{parameters}",
            self.port
        )
    }

    /// Closes the connections for which `which` says so, by queue identifier.
    pub(crate) fn cut(&self, which: impl Fn(u16) -> bool) {
        self.shared.streams.lock().unwrap().retain(|(qid, stream)| {
            let cut = which(*qid);
            if cut {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            !cut
        });
    }

    pub(crate) fn misbehave(
        &self,
        misdeed: impl FnMut(u16, u64, &mut Vec<u8>) -> io::Result<()> + Send + 'static,
    ) {
        *self.shared.misdeed.lock().unwrap() = Some(Box::new(misdeed));
    }

    pub(crate) fn behave(&self) {
        *self.shared.misdeed.lock().unwrap() = None;
    }
}

impl Shared {
    fn wait_while_stopped(&self) {
        while self.is_stopped.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shared.is_stopped.store(false, Ordering::Relaxed);
        self.is_over.store(true, Ordering::Relaxed);
        self.cut(|_| true);
    }
}

struct Connection {
    stream: TcpStream,
    shared: Arc<Shared>,
    qid: u16,
    dgst: u8,
    cc: u32,
    sent: u64,
    /// Commands that came while another one's data was waited for.
    waiting: VecDeque<(Vec<u8>, Vec<u8>)>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Connection {
    fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        Self { stream, shared, qid: 0, dgst: 0, cc: 0, sent: 0, waiting: VecDeque::new() }
    }

    /// A PDU: its header, and its data. Digests are checked.
    fn receive(&mut self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let mut header = vec![0; 8];
        self.stream.read_exact(&mut header)?;
        self.shared.wait_while_stopped();
        let (hlen, pdo, plen) =
            (usize::from(header[2]), usize::from(header[3]), u32_at(&header, 4) as usize);
        header.resize(hlen, 0);
        self.stream.read_exact(&mut header[8..])?;
        let mut rest = vec![0; plen - hlen];
        self.stream.read_exact(&mut rest)?;
        if header[1] & 1 != 0 {
            assert_eq!(rest[..4], crc32c::crc32c(&header).to_le_bytes(), "HDGST");
        }
        if pdo == 0 {
            return Ok((header, Vec::new()));
        }
        let mut data = rest.split_off(pdo - hlen);
        if header[1] & 2 != 0 {
            let digest = data.split_off(data.len() - 4);
            assert_eq!(digest, crc32c::crc32c(&data).to_le_bytes(), "DDGST");
        }
        Ok((header, data))
    }

    fn send(&mut self, kind: u8, flags: u8, fields: &[u8], data: &[u8]) -> io::Result<()> {
        let hlen = 8 + fields.len();
        let digests = if kind > 3 { self.dgst } else { 0 };
        let (hd, dd) = (digests & 1, if data.is_empty() { 0 } else { digests & 2 });
        let pdo = hlen + 4 * usize::from(hd);
        let plen = pdo + data.len() + if dd != 0 { 4 } else { 0 };
        let mut pdu = vec![kind, flags | hd | dd, hlen as u8];
        pdu.push(if data.is_empty() { 0 } else { pdo as u8 });
        pdu.extend((plen as u32).to_le_bytes());
        pdu.extend(fields);
        if hd != 0 {
            pdu.extend(crc32c::crc32c(&pdu.clone()).to_le_bytes());
        }
        pdu.extend(data);
        if dd != 0 {
            pdu.extend(crc32c::crc32c(data).to_le_bytes());
        }
        let mut verdict = Ok(());
        if let Some(misdeed) = &mut *self.shared.misdeed.lock().unwrap() {
            verdict = misdeed(self.qid, self.sent, &mut pdu);
        }
        self.sent += 1;
        self.stream.write_all(&pdu)?;
        if verdict.is_err() {
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
        verdict
    }

    fn respond(&mut self, cid: u16, status: u16, dw0: u64) -> io::Result<()> {
        let mut cqe = dw0.to_le_bytes().to_vec();
        cqe.extend(0xffffu16.to_le_bytes());
        cqe.extend([0, 0]);
        cqe.extend(cid.to_le_bytes());
        cqe.extend((status << 1).to_le_bytes());
        self.send(5, 0, &cqe, &[])
    }

    /// The data of a read, with success unless it is split.
    fn send_data(&mut self, cid: u16, data: &[u8]) -> io::Result<()> {
        let splits = self.shared.splits.load(Ordering::Relaxed) && data.len() > 1024;
        let at = if splits { data.len() / 2 } else { data.len() };
        let (first, second) = data.split_at(at);
        let fields = |offset: usize, len: usize| {
            let mut fields = cid.to_le_bytes().to_vec();
            fields.extend([0, 0]);
            fields.extend((offset as u32).to_le_bytes());
            fields.extend((len as u32).to_le_bytes());
            fields.extend([0; 4]);
            fields
        };
        if !splits {
            return self.send(7, 4 | 8, &fields(0, at), first);
        }
        self.send(7, 0, &fields(0, at), first)?;
        self.send(7, 4, &fields(at, second.len()), second)?;
        self.respond(cid, 0, 0)
    }

    /// The data of a write, by R2Ts for 16 KiB each.
    fn ask_for(&mut self, cid: u16, len: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < len {
            let (offset, part) = (all.len(), (len - all.len()).min(16 << 10));
            let ttag = 0x7000 + (offset >> 10) as u16;
            let mut fields = cid.to_le_bytes().to_vec();
            fields.extend(ttag.to_le_bytes());
            fields.extend((offset as u32).to_le_bytes());
            fields.extend((part as u32).to_le_bytes());
            fields.extend([0; 4]);
            self.send(9, 0, &fields, &[])?;
            while all.len() < offset + part {
                let (header, data) = self.receive()?;
                if header[0] == 4 {
                    // Another command, for later.
                    self.waiting.push_back((header[8..72].to_vec(), data));
                    continue;
                }
                assert_eq!((header[0], u16_at(&header, 8)), (6, cid));
                assert_eq!(u16_at(&header, 10), ttag);
                assert_eq!(u32_at(&header, 12) as usize, all.len());
                assert!(data.len() <= MAXH2C && data.len() == u32_at(&header, 16) as usize);
                all.extend(data);
                let is_last = header[1] & 4 != 0;
                assert_eq!(is_last, all.len() == offset + part, "LAST");
            }
        }
        Ok(all)
    }

    fn serve(mut self) -> io::Result<()> {
        let (header, _) = self.receive()?;
        assert_eq!((header[0], header.len(), u16_at(&header, 8), header[10]), (0, 128, 0, 0));
        let dgst = header[11];
        let mut fields = vec![0; 120];
        fields[3] = dgst;
        fields[4..8].copy_from_slice(&(MAXH2C as u32).to_le_bytes());
        self.send(1, 0, &fields, &[])?;
        self.dgst = dgst;
        loop {
            let (header, data) = self.receive()?;
            if header[0] == 2 {
                return Ok(());
            }
            assert_eq!(header[0], 4, "type");
            let sqe = header[8..72].to_vec();
            self.execute(&sqe, data)?;
            while let Some((sqe, data)) = self.waiting.pop_front() {
                self.execute(&sqe, data)?;
            }
        }
    }

    fn execute(&mut self, sqe: &[u8], data: Vec<u8>) -> io::Result<()> {
        let (opcode, cid) = (sqe[0], u16_at(sqe, 2));
        assert_eq!(sqe[1] >> 6, 1, "PSDT");
        match (opcode, self.qid) {
            (0x7f, _) => self.fabrics(sqe, cid, &data),
            (_, 0) => self.admin(sqe, cid),
            _ => {
                self.shared.commands.fetch_add(1, Ordering::Relaxed);
                if self.shared.is_mute.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.io(sqe, cid, data)
            }
        }
    }

    fn fabrics(&mut self, sqe: &[u8], cid: u16, data: &[u8]) -> io::Result<()> {
        match sqe[4] {
            1 => {
                assert_eq!(data.len(), 1024);
                assert!(data[256..].starts_with(b"nqn.2014-08.org.example:disk\0"));
                assert!(data[512..].starts_with(b"nqn.2014-08.org.example:host\0"));
                assert_eq!(sqe[46] & 4, 4, "flow control is off");
                self.qid = u16_at(sqe, 42);
                if self.qid > 0 {
                    let entries = self.shared.queue_entries.load(Ordering::Relaxed);
                    assert!(u32::from(u16_at(sqe, 44)) < entries, "SQSIZE");
                }
                let cntlid = if self.qid == 0 {
                    assert_eq!(u16_at(data, 16), 0xffff);
                    self.shared.next_cntlid.fetch_add(1, Ordering::Relaxed)
                } else {
                    u32::from(u16_at(data, 16))
                };
                let clone = self.stream.try_clone()?;
                self.shared.streams.lock().unwrap().push((self.qid, clone));
                self.respond(cid, 0, cntlid.into())
            }
            // Property Set of CC.
            0 => {
                if u32_at(sqe, 44) == 0x14 {
                    let cc = u32_at(sqe, 48);
                    if self.cc & 1 == 1 && cc & 1 == 0 {
                        self.shared.resets.fetch_add(1, Ordering::Relaxed);
                        // A controller that is disabled has no queues.
                        self.shared.streams.lock().unwrap().retain(|(qid, stream)| {
                            let ends = *qid > 0;
                            if ends {
                                let _ = stream.shutdown(std::net::Shutdown::Both);
                            }
                            !ends
                        });
                    }
                    self.cc = cc;
                }
                self.respond(cid, 0, 0)
            }
            4 => {
                let value = match u32_at(sqe, 44) {
                    // MQES, CQR, TO 10, NVM command set.
                    0x00 => {
                        let entries = self.shared.queue_entries.load(Ordering::Relaxed);
                        u64::from(entries - 1) | 1 << 16 | 20 << 24 | 1 << 37
                    }
                    0x08 => 0x0001_0300,
                    0x14 => u64::from(self.cc),
                    0x1c => {
                        u64::from(self.cc & 1) | if self.cc >> 14 & 3 != 0 { 2 << 2 } else { 0 }
                    }
                    _ => 0,
                };
                self.respond(cid, 0, value)
            }
            other => panic!("FCTYPE {other}"),
        }
    }

    fn admin(&mut self, sqe: &[u8], cid: u16) -> io::Result<()> {
        match sqe[0] {
            0x06 => {
                assert_eq!((u32_at(sqe, 32), sqe[39]), (4096, 0x5a), "SGL1");
                let mut page = vec![0; 4096];
                match sqe[40] {
                    0 => {
                        page[..8].copy_from_slice(&(BLOCKS as u64).to_le_bytes());
                        page[8..16].copy_from_slice(&(BLOCKS as u64).to_le_bytes());
                        page[130] = 9;
                    }
                    1 => {
                        page[77] = 5; // MDTS: 128 KiB.
                        page[111] = self.shared.controller_type.load(Ordering::Relaxed) as u8;
                        (page[512], page[513]) = (0x66, 0x44);
                        page[516] = 1;
                        page[525] = self.shared.has_cache.load(Ordering::Relaxed).into();
                        let ioccsz = (64 + IN_CAPSULE as u32) / 16;
                        page[1792..1796].copy_from_slice(&ioccsz.to_le_bytes());
                    }
                    2 => page[0] = 1,
                    _ => return self.respond(cid, 2, 0),
                }
                self.send_data(cid, &page)
            }
            // Number of Queues: eight; Keep Alive Timer: unknown.
            0x09 if sqe[40] == 7 => self.respond(cid, 0, 7 | 7 << 16),
            0x09 | 0x0a => self.respond(cid, 2, 0),
            // An event request stays.
            0x0c => Ok(()),
            0x18 => {
                self.shared.keep_alives.fetch_add(1, Ordering::Relaxed);
                self.respond(cid, 0, 0)
            }
            0x08 => self.respond(cid, 0, 1),
            _ => self.respond(cid, 1, 0),
        }
    }

    fn io(&mut self, sqe: &[u8], cid: u16, data: Vec<u8>) -> io::Result<()> {
        let len = (usize::from(u16_at(sqe, 48)) + 1) * BLOCK;
        let from = u64::from_le_bytes(sqe[40..48].try_into().unwrap()) as usize * BLOCK;
        match sqe[0] {
            0 => self.respond(cid, 0, 0),
            1 => {
                assert_eq!(u32_at(sqe, 32) as usize, len, "SGL1 length");
                let data = match sqe[39] {
                    0x01 => data,
                    0x5a => self.ask_for(cid, len)?,
                    other => panic!("SGL1 {other:#x}"),
                };
                assert_eq!(data.len(), len);
                assert_eq!(sqe[39] == 1, len <= IN_CAPSULE, "in the capsule");
                self.shared.medium.lock().unwrap()[from..from + len].copy_from_slice(&data);
                self.respond(cid, 0, 0)
            }
            2 => {
                let data = self.shared.medium.lock().unwrap()[from..from + len].to_vec();
                self.send_data(cid, &data)
            }
            _ => self.respond(cid, 1, 0),
        }
    }
}
