//! A raw host: it writes entries and rings doorbells directly, so that no layer hides the SSD's
//! behaviour.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meantime_nvme_spec::cqe::{Cqe, phase_of_high_word};
use meantime_nvme_spec::regs;
use meantime_nvme_spec::soft_port::{DmaRegion, Doorbells, SoftPort};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;
use meantime_ssd::{Clock, Medium, MonotonicClock, Ssd, SsdConfig, SteppedSsd};

/// The arena's address.
pub const BASE: u64 = 0x1_0000_0000;
pub const PAGE: u64 = 4096;

pub struct Arena {
    ptr: *mut u8,
    layout: Layout,
}

// SAFETY: memory that is only accessed by raw copies and atomics.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new(bytes: usize) -> Arc<Self> {
        let layout = Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: the layout is not empty.
        let ptr = unsafe { alloc_zeroed(layout) };
        assert!(!ptr.is_null());
        Arc::new(Self { ptr, layout })
    }

    /// All of it, at `iova`.
    pub fn region(arena: &Arc<Self>, iova: u64) -> DmaRegion {
        // SAFETY: allocated as long as the arena, which the region holds, and only accessed by raw
        // copies and atomics.
        unsafe { DmaRegion::new(iova, arena.addr(), arena.bytes(), Arc::clone(arena) as Arc<_>) }
    }

    pub fn addr(&self) -> usize {
        self.ptr.expose_provenance()
    }

    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.bytes());
        // SAFETY: within the allocation.
        unsafe { self.ptr.add(offset) }
    }

    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: aligned, within the allocation, and only accessed as an atomic while shared.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.ptr, self.layout) }
    }
}

pub struct Queue {
    pub qid: u16,
    pub sq_iova: u64,
    pub cq_iova: u64,
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub tail: u32,
    pub head: u32,
    pub phase: bool,
}

pub struct Host {
    pub port: Arc<dyn SoftPort>,
    pub bells: Arc<Doorbells>,
    pub arena: Arc<Arena>,
    next: u64,
    pub queues: Vec<Queue>,
    next_cid: u16,
}

pub fn config(bytes: u64, lba_bytes: u32) -> SsdConfig {
    SsdConfig::with_namespace(bytes, lba_bytes)
}

/// A stepped SSD with its host, enabled.
pub fn stepped(config: SsdConfig) -> (SteppedSsd, Host) {
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let ssd = SteppedSsd::new(config, medium, 1).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    (ssd, host)
}

/// A threaded SSD with its host, enabled.
pub fn threaded(config: SsdConfig) -> (Ssd, Host) {
    let medium = Medium::dram(config.total_bytes()).unwrap();
    let ssd = Ssd::start(config, medium, MonotonicClock::new()).unwrap();
    let mut host = Host::new(ssd.port());
    host.enable();
    (ssd, host)
}

pub fn now_ns() -> u64 {
    use std::sync::OnceLock;
    static CLOCK: OnceLock<MonotonicClock> = OnceLock::new();
    CLOCK.get_or_init(MonotonicClock::new).now_ns()
}

impl Host {
    pub fn new(port: Arc<dyn SoftPort>) -> Self {
        let arena = Arena::new(16 << 20);
        port.map_dma(Arena::region(&arena, BASE)).unwrap();
        let bells = port.doorbells();
        Self { port, bells, arena, next: BASE, queues: Vec::new(), next_cid: 1 }
    }

    /// Allocates whole pages.
    pub fn alloc(&mut self, bytes: u64) -> u64 {
        let at = self.next;
        self.next += bytes.next_multiple_of(PAGE);
        assert!(self.next <= BASE + self.arena.bytes() as u64, "arena full");
        at
    }

    pub fn write(&self, iova: u64, data: &[u8]) {
        let at = self.arena.at((iova - BASE) as usize, data.len());
        // SAFETY: within the arena, where the SSD does not write while it owns no command on it.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at, data.len()) }
    }

    pub fn read(&self, iova: u64, len: usize) -> Vec<u8> {
        let at = self.arena.at((iova - BASE) as usize, len);
        let mut data = vec![0; len];
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(at, data.as_mut_ptr(), len) }
        data
    }

    /// Lets a stepped SSD work; does nothing to a threaded one.
    pub fn run_until_idle(&self) {
        if let Some(clock) = self.port.virtual_clock() {
            clock.advance(0);
        }
    }

    pub fn prepare_admin(&mut self, entries: u32) {
        let sq_iova = self.alloc(u64::from(entries) * 64);
        let cq_iova = self.alloc(u64::from(entries) * 16);
        self.write(cq_iova, &vec![0; entries as usize * 16]);
        self.port.write32(regs::AQA, regs::Aqa::new(entries, entries).0);
        self.port.write64(regs::ASQ, sq_iova);
        self.port.write64(regs::ACQ, cq_iova);
        self.queues = vec![Queue {
            qid: 0,
            sq_iova,
            cq_iova,
            sq_entries: entries,
            cq_entries: entries,
            tail: 0,
            head: 0,
            phase: true,
        }];
    }

    /// CC with the fields that every host sets.
    pub fn cc() -> regs::Cc {
        regs::Cc(0).with_en(true).with_iosqes(6).with_iocqes(4)
    }

    pub fn enable(&mut self) {
        self.prepare_admin(32);
        self.port.write32(regs::CC, Self::cc().0);
        self.wait_csts(|csts| csts.rdy());
    }

    pub fn csts(&self) -> regs::Csts {
        regs::Csts(self.port.read32(regs::CSTS))
    }

    pub fn wait_csts(&self, is: impl Fn(regs::Csts) -> bool) {
        let start = Instant::now();
        while !is(self.csts()) {
            if let Some(clock) = self.port.virtual_clock() {
                clock.advance(1_000_000);
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", self.csts());
        }
    }

    pub fn queue(&mut self, qid: u16) -> &mut Queue {
        self.queues.iter_mut().find(|q| q.qid == qid).expect("queue exists")
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// Writes an entry without ringing the doorbell.
    pub fn put(&mut self, qid: u16, sqe: &Sqe) {
        let (at, words) = {
            let q = self.queue(qid);
            let at = q.sq_iova + u64::from(q.tail) * 64;
            q.tail = (q.tail + 1) % q.sq_entries;
            (at, sqe.to_words())
        };
        for (i, word) in words.iter().enumerate() {
            self.arena.word((at - BASE) as usize + i * 8).store(*word, Ordering::Relaxed);
        }
    }

    pub fn ring(&mut self, qid: u16) {
        let tail = self.queue(qid).tail;
        self.bells.sq_tail(qid).unwrap().store(tail, Ordering::Release);
        if self.bells.parking().must_wake() {
            self.port.wake();
        }
    }

    pub fn submit(&mut self, qid: u16, sqe: &Sqe) {
        self.put(qid, sqe);
        self.ring(qid);
    }

    /// Takes the next completion, without updating the head doorbell.
    pub fn peek(&mut self, qid: u16) -> Option<Cqe> {
        let (at, phase) = {
            let q = self.queue(qid);
            ((q.cq_iova - BASE) as usize + q.head as usize * 16, q.phase)
        };
        let high = self.arena.word(at + 8).load(Ordering::Acquire);
        if phase_of_high_word(high) != phase {
            return None;
        }
        let low = self.arena.word(at).load(Ordering::Relaxed);
        let q = self.queue(qid);
        q.head += 1;
        if q.head == q.cq_entries {
            q.head = 0;
            q.phase = !q.phase;
        }
        Some(Cqe::from_words([low, high]))
    }

    pub fn ring_head(&mut self, qid: u16) {
        let head = self.queue(qid).head;
        self.bells.cq_head(qid).unwrap().store(head, Ordering::Release);
    }

    pub fn poll(&mut self, qid: u16) -> Option<Cqe> {
        let cqe = self.peek(qid)?;
        self.ring_head(qid);
        Some(cqe)
    }

    /// Waits for the next completion, letting time pass.
    pub fn wait(&mut self, qid: u16) -> Cqe {
        let clock = self.port.virtual_clock();
        let start = Instant::now();
        let mut turns = 0u64;
        loop {
            if let Some(cqe) = self.poll(qid) {
                return cqe;
            }
            if let Some(clock) = &clock {
                clock.now_ns();
            }
            turns += 1;
            if turns.is_multiple_of(1024) {
                assert!(start.elapsed() < Duration::from_secs(30), "no completion on queue {qid}");
            }
        }
    }

    pub fn admin(&mut self, mut sqe: Sqe) -> Cqe {
        let cid = self.cid();
        sqe.set_cid(cid);
        self.submit(0, &sqe);
        let cqe = self.wait(0);
        assert_eq!((cqe.cid.get(), cqe.sqid.get()), (cid, 0));
        cqe
    }

    pub fn io(&mut self, qid: u16, mut sqe: Sqe) -> Cqe {
        let cid = self.cid();
        sqe.set_cid(cid);
        self.submit(qid, &sqe);
        let cqe = self.wait(qid);
        assert_eq!((cqe.cid.get(), cqe.sqid.get()), (cid, qid));
        cqe
    }

    /// Creates an I/O queue pair with the same identifier for both.
    pub fn create_queues(&mut self, qid: u16, entries: u32, vector: Option<u16>) {
        self.create_pair(qid, entries, vector, 0);
    }

    /// The same without interrupts, of a priority class.
    pub fn create_queues_of(&mut self, qid: u16, entries: u32, qprio: u8) {
        self.create_pair(qid, entries, None, qprio);
    }

    fn create_pair(&mut self, qid: u16, entries: u32, vector: Option<u16>, qprio: u8) {
        let sq_iova = self.alloc(u64::from(entries) * 64);
        let cq_iova = self.alloc(u64::from(entries) * 16);
        self.write(cq_iova, &vec![0; entries as usize * 16]);
        ok(self.admin(Sqe::create_io_cq(0, qid, entries, cq_iova, vector)));
        ok(self.admin(Sqe::create_io_sq(0, qid, entries, sq_iova, qid, qprio)));
        let (sq_entries, cq_entries) = (entries, entries);
        self.queues.push(Queue {
            qid,
            sq_iova,
            cq_iova,
            sq_entries,
            cq_entries,
            tail: 0,
            head: 0,
            phase: true,
        });
    }
}

#[track_caller]
pub fn ok(cqe: Cqe) -> Cqe {
    assert!(cqe.status().is_success(), "{}", cqe.status());
    cqe
}

/// Checks that the command ended with `code` and Do Not Retry.
#[track_caller]
pub fn refused(cqe: Cqe, code: StatusCode) {
    assert!(cqe.status().is(code), "{} instead of {code}", cqe.status());
    assert!(cqe.status().dnr(), "{} should say do not retry", cqe.status());
}
