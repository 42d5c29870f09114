//! A vfio-user client and an NVMe host written by hand: every byte typed from the specifications,
//! without our structures, whose errors would otherwise stay hidden.

use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// The longest wait of a test; none is expected to last that long.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DMA_UNMAP: u16 = 3;
pub const GET_INFO: u16 = 4;
pub const GET_REGION_INFO: u16 = 5;
pub const GET_IRQ_INFO: u16 = 7;
pub const SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const RESET: u16 = 13;

pub const EINVAL: u32 = 22;

/// Encodes numbers for the wire.
#[macro_export]
macro_rules! wire {
    ($($number:expr),* $(,)?) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $( bytes.extend_from_slice(&$number.to_le_bytes()); )*
        bytes
    }};
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub fn header(id: u16, command: u16, bytes: u32, flags: u32) -> Vec<u8> {
    wire![id, command, bytes, flags, 0u32]
}

#[derive(Debug)]
pub struct Answer {
    pub id: u16,
    pub command: u16,
    pub flags: u32,
    pub error: u32,
    pub body: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

pub struct Client {
    pub stream: UnixStream,
    next_id: u16,
}

impl Client {
    /// Connects without sending anything.
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, next_id: 0x7001 }
    }

    /// Connects and sends VERSION with `json`.
    pub fn new(path: &Path, json: &str) -> Self {
        let mut client = Self::connect(path);
        client.introduce(json);
        client
    }

    pub fn introduce(&mut self, json: &str) -> Answer {
        let answer = self.ask(VERSION, &version(json), &[]);
        assert_eq!(answer.error, 0);
        answer
    }

    pub fn send_raw(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let pieces = [IoSlice::new(bytes)];
        let sent =
            rustix::net::sendmsg(self.stream.as_fd(), &pieces, &mut control, SendFlags::NOSIGNAL)
                .unwrap();
        self.stream.write_all(&bytes[sent..]).unwrap();
    }

    pub fn send(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        let mut bytes = header(self.next_id, command, 16 + body.len() as u32, 0);
        bytes.extend_from_slice(body);
        self.send_raw(&bytes, fds);
        self.next_id
    }

    /// The next answer; `None` if the server has closed the connection.
    pub fn try_receive(&mut self) -> Option<Answer> {
        let mut head = [0; 16];
        let mut fds = Vec::new();
        let mut have = 0;
        while have < 16 {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [IoSliceMut::new(&mut head[have..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got =
                match rustix::net::recvmsg(self.stream.as_fd(), &mut pieces, &mut control, flags) {
                    Ok(got) => got.bytes,
                    // After a stop and a continue.
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(rustix::io::Errno::CONNRESET) => return None,
                    Err(error) => panic!("no answer: {error}"),
                };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    fds.extend(more);
                }
            }
            if got == 0 {
                return None;
            }
            have += got;
        }
        let mut body = vec![0; u32_at(&head, 4) as usize - 16];
        self.stream.read_exact(&mut body).unwrap();
        Some(Answer {
            id: u16_at(&head, 0),
            command: u16_at(&head, 2),
            flags: u32_at(&head, 8),
            error: u32_at(&head, 12),
            body,
            fds,
        })
    }

    /// The answer to a command, of any kind.
    pub fn ask(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Answer {
        let id = self.send(command, body, fds);
        let answer = self.try_receive().expect("the server has hung up");
        assert_eq!((answer.id, answer.command), (id, command));
        // A reply; an error if and only if it has an errno, without a body.
        assert_eq!(answer.flags, if answer.error == 0 { 1 } else { 0x21 }, "{answer:?}");
        assert!(
            answer.error == 0 || (answer.body.is_empty() && answer.fds.is_empty()),
            "{answer:?}"
        );
        answer
    }

    /// The body of the answer to a command that must succeed.
    #[track_caller]
    pub fn ok(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Vec<u8> {
        let answer = self.ask(command, body, fds);
        assert_eq!(answer.error, 0);
        answer.body
    }

    /// The errno of a command that must fail.
    #[track_caller]
    pub fn errno(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> u32 {
        let answer = self.ask(command, body, fds);
        assert_ne!(answer.error, 0);
        answer.error
    }

    pub fn read(&mut self, region: u32, offset: u64, count: u32) -> Vec<u8> {
        let body = self.ok(REGION_READ, &wire![offset, region, count], &[]);
        assert_eq!(body[..16], wire![offset, region, count]);
        body[16..].to_vec()
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let mut body = wire![offset, region, data.len() as u32];
        body.extend_from_slice(data);
        assert_eq!(self.ok(REGION_WRITE, &body, &[]), wire![offset, region, data.len() as u32]);
    }

    pub fn map(&mut self, memory: &Memory, iova: u64) {
        self.map_part(memory, 0, iova, memory.len as u64);
    }

    /// Maps `len` bytes of `memory` from `offset`.
    pub fn map_part(&mut self, memory: &Memory, offset: u64, iova: u64, len: u64) {
        let body = wire![32u32, 3u32, offset, iova, len];
        assert!(self.ok(DMA_MAP, &body, &[memory.file.as_fd()]).is_empty());
    }

    pub fn unmap(&mut self, iova: u64, len: u64) -> Answer {
        self.ask(DMA_UNMAP, &wire![24u32, 0u32, iova, len], &[])
    }

    /// The doorbells, mapped according to the region's description.
    pub fn doorbells(&mut self) -> Doorbells {
        let answer = self.ask(GET_REGION_INFO, &wire![64u32, 0u32, 0u32, 0u32, 0u64, 0u64], &[]);
        assert_eq!((answer.error, answer.fds.len()), (0, 1));
        let (region_offset, area) = (u64_at(&answer.body, 24), u64_at(&answer.body, 48));
        let len = u64_at(&answer.body, 56) as usize;
        let memory = Memory::of(answer.fds.into_iter().next().unwrap(), region_offset + area, len);
        Doorbells { memory, area }
    }
}

pub fn version(json: &str) -> Vec<u8> {
    let mut body = wire![0u16, 1u16];
    if !json.is_empty() {
        body.extend_from_slice(json.as_bytes());
        body.push(0);
    }
    body
}

/// A mapped memory file.
pub struct Memory {
    pub file: OwnedFd,
    base: *mut u8,
    pub len: usize,
}

// SAFETY: a mapping belongs to the process, and is only accessed through raw copies and atomics.
unsafe impl Send for Memory {}

impl Memory {
    pub fn new(len: usize) -> Self {
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("by-hand", flags).unwrap();
        rustix::fs::ftruncate(&file, len as u64).unwrap();
        Self::of(file, 0, len)
    }

    pub fn of(file: OwnedFd, offset: u64, len: usize) -> Self {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping.
        let base =
            unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, offset) }
                .unwrap();
        Self { file, base: base.cast(), len }
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) }
    }

    pub fn get(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), bytes.as_mut_ptr(), len) }
        bytes
    }

    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.len && at.is_multiple_of(4));
        // SAFETY: within the mapping, aligned, and only accessed as an atomic while shared.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our mapping.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

pub struct Doorbells {
    pub memory: Memory,
    /// Its offset in BAR0.
    pub area: u64,
}

/// The address of the host's memory.
pub const IOVA: u64 = 0x7f00_0000_0000;
const ASQ: usize = 0;
const ACQ: usize = 0x1000;
const SQ: usize = 0x2000;
const CQ: usize = 0x3000;
/// The first page that is free for data.
pub const DATA: usize = 0x4000;
pub const ENTRIES: u32 = 16;
/// The region of the I/O queues, if they have their own: address and size.
pub const IO_QUEUES: (u64, u64) = (IOVA + SQ as u64, (DATA - SQ) as u64);

struct Queue {
    sq: usize,
    cq: usize,
    tail: u32,
    head: u32,
    phase: u8,
}

/// A driver based on the NVMe specification alone.
pub struct Host {
    pub client: Client,
    pub memory: Memory,
    pub bells: Doorbells,
    stride: usize,
    queues: [Queue; 2],
    /// Offset in BAR0 of the word that is checked after ringing; if it is not 0, the doorbell is
    /// sent again by message.
    pub parked_offset: Option<usize>,
    cid: u16,
}

impl Host {
    /// Maps memory and doorbells; does not change the controller.
    pub fn new(mut client: Client) -> Self {
        let memory = Memory::new(1 << 20);
        client.map(&memory, IOVA);
        Self::with(client, memory)
    }

    /// The same, with the I/O queues in a separate region, [`IO_QUEUES`].
    pub fn with_regions(mut client: Client) -> Self {
        let memory = Memory::new(1 << 20);
        let len = memory.len as u64 - DATA as u64;
        client.map_part(&memory, 0, IOVA, SQ as u64);
        client.map_part(&memory, SQ as u64, IO_QUEUES.0, IO_QUEUES.1);
        client.map_part(&memory, DATA as u64, IOVA + DATA as u64, len);
        Self::with(client, memory)
    }

    fn with(mut client: Client, memory: Memory) -> Self {
        let bells = client.doorbells();
        let dstrd = u64_at(&client.read(0, 0, 8), 0) >> 32 & 0xf;
        let queue = |sq, cq| Queue { sq, cq, tail: 0, head: 0, phase: 1 };
        let queues = [queue(ASQ, ACQ), queue(SQ, CQ)];
        Self { client, memory, bells, stride: 4 << dstrd, queues, parked_offset: None, cid: 0 }
    }

    pub fn csts(&mut self) -> u32 {
        u32_at(&self.client.read(0, 0x1c, 4), 0)
    }

    pub fn enable(&mut self) {
        self.client.write(0, 0x24, &wire![(ENTRIES - 1) << 16 | (ENTRIES - 1)]);
        self.client.write(0, 0x28, &wire![IOVA + ASQ as u64]);
        self.client.write(0, 0x30, &wire![IOVA + ACQ as u64]);
        self.client.write(0, 0x14, &wire![0x0046_0001u32]);
        let start = Instant::now();
        while self.csts() & 1 == 0 {
            assert!(start.elapsed() < PATIENCE, "not ready: {:#x}", self.csts());
        }
    }

    /// A command's first bytes: opcode, command identifier, namespace, PRP1.
    pub fn command(&mut self, opcode: u8, nsid: u32, prp1: u64) -> [u8; 64] {
        self.cid += 1;
        let mut sqe = [0; 64];
        sqe[0] = opcode;
        sqe[2..4].copy_from_slice(&self.cid.to_le_bytes());
        sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
        sqe[24..32].copy_from_slice(&prp1.to_le_bytes());
        sqe
    }

    pub fn put(&mut self, qid: usize, sqe: &[u8; 64]) {
        let queue = &mut self.queues[qid];
        self.memory.put(queue.sq + queue.tail as usize * 64, sqe);
        queue.tail = (queue.tail + 1) % ENTRIES;
    }

    pub fn ring(&mut self, qid: usize) {
        let (at, tail) = (qid * 2 * self.stride, self.queues[qid].tail);
        self.bells.memory.word(at).store(tail, Ordering::Release);
        if let Some(parked) = self.parked_offset {
            fence(Ordering::SeqCst);
            let word = parked - self.bells.area as usize;
            if self.bells.memory.word(word).load(Ordering::Relaxed) != 0 {
                self.client.write(0, self.bells.area + at as u64, &wire![tail]);
            }
        }
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self, qid: usize) -> Option<[u8; 16]> {
        let queue = &mut self.queues[qid];
        let at = queue.cq + queue.head as usize * 16;
        let status = self.memory.word(at + 12).load(Ordering::Acquire);
        if (status >> 16 & 1) as u8 != queue.phase {
            return None;
        }
        let cqe = self.memory.get(at, 16).try_into().unwrap();
        queue.head += 1;
        if queue.head == ENTRIES {
            queue.head = 0;
            queue.phase ^= 1;
        }
        let (at, head) = ((qid * 2 + 1) * self.stride, queue.head);
        self.bells.memory.word(at).store(head, Ordering::Release);
        Some(cqe)
    }

    pub fn wait(&mut self, qid: usize) -> [u8; 16] {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.poll(qid) {
                return cqe;
            }
            assert!(start.elapsed() < PATIENCE, "no completion on queue {qid}");
            std::thread::yield_now();
        }
    }

    /// Executes a command and returns its status code and type (0: success).
    pub fn run(&mut self, qid: usize, sqe: [u8; 64]) -> u16 {
        self.put(qid, &sqe);
        self.ring(qid);
        let cqe = self.wait(qid);
        assert_eq!(cqe[12..14], sqe[2..4], "another command's completion");
        u16_at(&cqe, 14) >> 1 & 0x7ff
    }

    /// Identify Controller.
    pub fn identify(&mut self) -> Vec<u8> {
        let mut sqe = self.command(0x06, 0, IOVA + DATA as u64);
        sqe[40] = 1;
        assert_eq!(self.run(0, sqe), 0);
        self.memory.get(DATA, 4096)
    }

    /// Creates an I/O queue pair; completions interrupt by `vector`, if there is one.
    pub fn create_queues(&mut self, vector: Option<u16>) {
        let mut sqe = self.command(0x05, 0, IOVA + CQ as u64);
        sqe[40..44].copy_from_slice(&wire![(ENTRIES - 1) << 16 | 1]);
        let interrupts = vector.map_or(0u32, |vector| u32::from(vector) << 16 | 2);
        sqe[44..48].copy_from_slice(&wire![interrupts | 1]);
        assert_eq!(self.run(0, sqe), 0);
        let mut sqe = self.command(0x01, 0, IOVA + SQ as u64);
        sqe[40..44].copy_from_slice(&wire![(ENTRIES - 1) << 16 | 1]);
        sqe[44..48].copy_from_slice(&wire![1u32 << 16 | 1]);
        assert_eq!(self.run(0, sqe), 0);
    }

    /// Zeroes the I/O queue pair's memory, so that another can be created there.
    pub fn forget_queues(&mut self) {
        self.memory.put(SQ, &[0; DATA - SQ]);
        self.queues[1] = Queue { sq: SQ, cq: CQ, tail: 0, head: 0, phase: 1 };
    }

    /// A read (2) or write (1) of the block of 512 bytes at `lba`, to or from `iova`.
    pub fn transfer(&mut self, opcode: u8, lba: u64, iova: u64) -> [u8; 64] {
        let mut sqe = self.command(opcode, 1, iova);
        sqe[40..48].copy_from_slice(&lba.to_le_bytes());
        sqe
    }
}
