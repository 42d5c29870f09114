//! One queue's connection over a socket pair, for the fuzzer in `fuzz/`, which is the target. This
//! is not an interface: it changes with the fuzzer's needs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use meantime_hw::pages::Pages;
use meantime_hw::{DmaLimits, Result};
use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::sqe::Sqe;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::connection::{Agreed, Connection, Rings};
use crate::identified::Identified;
use crate::memory::Memory;

/// Where the rings are, and the memory of the commands.
const SQ: u64 = 0;
const CQ: u64 = 0x4000;
pub const DATA: u64 = 0x1_0000;
pub const DATA_BYTES: usize = 0x8_0000;

/// A connection of which the fuzzer is the target.
pub struct Rig {
    memory: Memory,
    connection: Connection,
    peer: OwnedFd,
    entries: u16,
    tail: u16,
    head: u16,
    phase: bool,
}

/// The memory that all rigs of a thread share.
pub struct Arena(Arc<Pages>);

impl Arena {
    /// # Errors
    /// Fails if there is no memory.
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(Pages::map(2 << 20, &DmaLimits::default())?)))
    }
}

impl Rig {
    /// # Panics
    /// Panics if there is no descriptor.
    pub fn new(arena: &Arena, qid: u16, dgst: u8, in_capsule_bytes: u32, entries: u16) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, peer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .expect("a pair of sockets");
        let memory = Memory::default();
        memory.map(0, &arena.0).expect("an empty map");
        let zeroes = vec![0; DATA as usize];
        memory.mapped().store(0, &zeroes).expect("it is mapped");
        let identified = Arc::<Identified>::default();
        identified.set_shift(1, 9);
        let agreed = Agreed { dgst, maxh2c_bytes: 4096, in_capsule_bytes };
        let mut connection = Connection::new(Arc::new(ours), qid, agreed, &identified);
        connection.set_rings(Rings { sq_iova: SQ, cq_iova: CQ, entries, cq_entries: entries });
        Self { memory, connection, peer, entries, tail: 0, head: 0, phase: true }
    }

    /// Rings the doorbell for one more entry.
    pub fn submit(&mut self, sqe: &Sqe) {
        let at = SQ + u64::from(self.tail) * size_of::<Sqe>() as u64;
        self.memory.mapped().store(at, sqe.as_bytes()).expect("the ring");
        self.tail = (self.tail + 1) % self.entries;
        self.connection.submit(&self.memory.mapped(), self.tail);
    }

    /// Passes on the bytes that the target sends.
    pub fn feed(&mut self, bytes: &[u8]) {
        let _ = send(&self.peer, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        self.connection.progress(&self.memory.mapped());
    }

    /// Takes what was sent to the target.
    pub fn drain(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut part = [0; 65_536];
        while let Ok((bytes @ 1.., _)) = recv(&self.peer, &mut part, RecvFlags::DONTWAIT) {
            all.extend_from_slice(&part[..bytes]);
            self.connection.progress(&self.memory.mapped());
        }
        all
    }

    /// The next completion queue entry.
    pub fn reap(&mut self) -> Option<Cqe> {
        let mut bytes = [0; size_of::<Cqe>()];
        let at = CQ + u64::from(self.head) * bytes.len() as u64;
        self.memory.mapped().load(at, &mut bytes).expect("the ring");
        let cqe = Cqe::read_from_bytes(&bytes).expect("as long");
        if cqe.phase() != self.phase {
            return None;
        }
        self.head += 1;
        if self.head == self.entries {
            (self.head, self.phase) = (0, !self.phase);
        }
        Some(cqe)
    }

    /// Writes or reads the commands' memory.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        self.memory.mapped().store(DATA + offset as u64, bytes).expect("the data");
    }

    pub fn load(&self, offset: usize, bytes: &mut [u8]) {
        self.memory.mapped().load(DATA + offset as u64, bytes).expect("the data");
    }

    pub fn ended(&self) -> Option<&str> {
        self.connection.ended()
    }

    pub fn in_flight(&self) -> u16 {
        self.connection.in_flight
    }
}
