//! A host that keeps account of what it asked the SSD for, and panics if it gets anything else.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::ahead;
use meantime_nvme_spec::cqe::{Cqe, phase_of_high_word};
use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::regs::{self, Aqa, Cc, Csts};
use meantime_nvme_spec::soft_port::{Doorbells, SOFT_DSTRD, SoftPort, VirtualClock};
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;
use meantime_ssd::{Fault, FaultPlan, Rng, SteppedSsd};

use super::memory::{Memory, RINGS_INDEX};
use super::queues::{CQ_ENTRIES, Cq, SQ_ENTRIES, Sq, cq_base, sq_base};

/// In ns; far longer than anything takes, faults included.
const LONG: u64 = 1 << 36;

pub struct Host<'m> {
    ssd: SteppedSsd,
    port: Arc<dyn SoftPort>,
    clock: Arc<dyn VirtualClock>,
    bells: Arc<Doorbells>,
    pub memory: &'m mut Memory,
    /// The admin queue is first.
    pub sqs: Vec<Sq>,
    pub cqs: Vec<Cq>,
    /// Data pointers may lead into the queues: nothing is expected but that the SSD survives.
    wild: bool,
    /// The SSD has had time to do whatever it can since it was last told something.
    idle: bool,
    plan: FaultPlan,
    /// Ever any faults; ever stuck since the controller was enabled.
    faulty: bool,
    stuck: bool,
    /// Completions that belong to no command.
    strays: u64,
    next_cid: u16,
}

impl<'m> Host<'m> {
    pub fn new(ssd: SteppedSsd, memory: &'m mut Memory, wild: bool) -> Self {
        let (port, clock) = (ssd.port(), ssd.clock());
        let bells = port.doorbells();
        memory.reset();
        for index in 0..super::memory::REGIONS {
            memory.map(index, &*port);
        }
        Self {
            ssd,
            port,
            clock,
            bells,
            memory,
            sqs: Vec::new(),
            cqs: Vec::new(),
            wild,
            idle: true,
            plan: FaultPlan::NONE,
            faulty: false,
            stuck: false,
            strays: 0,
            next_cid: 0,
        }
    }

    /// Whether the SSD has been made to work enough for one input.
    pub fn exhausted(&self) -> bool {
        let counters = self.ssd.counters();
        counters.cqes > 4096 || counters.read_bytes + counters.written_bytes > 32 << 20
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    // What the host does.

    /// Writes an entry to the submission queue at `index`, without ringing.
    pub fn put(&mut self, index: usize, sqe: Sqe) {
        let Some(sq) = self.sqs.get_mut(index) else { return };
        if !sq.lost && sq.room() == 0 {
            return;
        }
        let at = (sq.tail + sq.staged) % sq.entries;
        if self.memory.store(sq.base + u64::from(at) * 64, &sqe.to_words()) {
            sq.staged = (sq.staged + 1) % sq.entries;
            if let Some(entry) = sq.ring.get_mut(at as usize) {
                *entry = sqe;
            }
        }
    }

    /// Rings for everything written.
    pub fn ring(&mut self, index: usize) {
        let Some(sq) = self.sqs.get_mut(index) else { return };
        let (qid, tail) = (sq.qid, (sq.tail + sq.staged) % sq.entries);
        if sq.lost {
            (sq.tail, sq.staged) = (tail, 0);
        } else {
            sq.announce(tail);
        }
        self.store_doorbell(usize::from(qid) * 2, tail);
    }

    /// Frees up to `most` entries of the completion queue at `index`.
    pub fn ack(&mut self, index: usize, most: u32) {
        let Some(cq) = self.cqs.get_mut(index).filter(|cq| !cq.lost) else { return };
        cq.acked = (cq.acked + most.min(cq.unacked())) % cq.entries;
        let (qid, head) = (cq.qid, cq.acked);
        self.store_doorbell(usize::from(qid) * 2 + 1, head);
    }

    /// Rings any doorbell with any value.
    pub fn doorbell(&mut self, index: usize, value: u32) {
        let qid = (index / 2) as u16;
        self.run_until_idle();
        if index.is_multiple_of(2)
            && let Some(at) = self.sqs.iter().position(|sq| sq.qid == qid)
        {
            let caught_up = self.has_caught_up(at);
            let sq = &mut self.sqs[at];
            if !sq.lost && !caught_up {
                // Where the SSD's head is, and so what this announces, is not known.
                sq.give_up();
                self.doubt(at);
            } else if !sq.lost && value < sq.entries {
                sq.announce(value);
            }
        }
        if !index.is_multiple_of(2)
            && let Some(cq) = self.cqs.iter_mut().find(|cq| cq.qid == qid)
        {
            if value < cq.entries && ahead(cq.acked, value, cq.entries) <= cq.unacked() {
                cq.acked = value;
            } else {
                cq.corrupted = true;
            }
        }
        self.store_doorbell(index, value);
        if !index.is_multiple_of(2) {
            // A head is only looked at when there seems to be no room, or here: before it is
            // overwritten.
            self.run_until_idle();
        }
    }

    fn store_doorbell(&mut self, index: usize, value: u32) {
        self.idle = false;
        if let Some(cell) = self.bells.get(index) {
            cell.store(value, Ordering::Release);
        }
    }

    /// Writes a register, or through a register a doorbell.
    pub fn write_register(&mut self, offset: u32, value: u64, wide: bool) {
        if wide && (regs::DOORBELLS - 4..u32::MAX - 4).contains(&offset) {
            self.write_register(offset, value, false);
            return self.write_register(offset + 4, value >> 32, false);
        }
        if let Some(at) =
            offset.checked_sub(regs::DOORBELLS).filter(|at| at.is_multiple_of(4 << SOFT_DSTRD))
            && let index = (at / (4 << SOFT_DSTRD)) as usize
            && index < self.bells.len()
        {
            return self.doorbell(index, value as u32);
        }
        let was_enabled = self.is_enabled();
        if !was_enabled && self.memory.is_mapped(RINGS_INDEX) {
            // A host clears its completion queues before it enables the controller.
            for qid in 0..=super::IO_QUEUES {
                self.memory.store(cq_base(qid), &[0; super::memory::PAGE as usize / 8]);
            }
        }
        if wide {
            self.port.write64(offset, value);
        } else {
            self.port.write32(offset, value as u32);
        }
        self.idle = false;
        match (was_enabled, self.is_enabled()) {
            (true, false) => self.let_go(),
            (false, true) => self.learn_admin_queues(),
            _ => self.observe(),
        }
    }

    fn is_enabled(&self) -> bool {
        let cc = self.port.read32(regs::CC);
        cc != regs::GONE && Cc(cc).en()
    }

    fn csts(&self) -> Csts {
        Csts(self.port.read32(regs::CSTS))
    }

    /// Enables the controller as a driver does.
    pub fn enable(&mut self, sq_entries: u32, cq_entries: u32) {
        if self.is_enabled() {
            self.write_register(regs::CC, 0, false);
        }
        let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4);
        self.write_register(regs::AQA, u64::from(Aqa::new(sq_entries, cq_entries).0), false);
        self.write_register(regs::ASQ, sq_base(0), true);
        self.write_register(regs::ACQ, cq_base(0), true);
        self.write_register(regs::CC, u64::from(cc.0), false);
        for _ in 0..4 {
            self.advance(1_000_000);
        }
    }

    fn learn_admin_queues(&mut self) {
        self.stuck = injects(&self.plan, Fault::StuckAdmin);
        if self.csts().cfs()
            || self.csts().0 == regs::GONE
            || injects(&self.plan, Fault::NeverReady)
        {
            return self.observe();
        }
        let aqa = Aqa(self.port.read32(regs::AQA));
        let ours = self.port.read64(regs::ASQ) == sq_base(0)
            && self.port.read64(regs::ACQ) == cq_base(0)
            && (aqa.asqs() <= SQ_ENTRIES && aqa.acqs() <= CQ_ENTRIES);
        let ring = if ours { self.ring_memory(0, aqa.asqs()) } else { None };
        self.cqs.push(Cq::new(0, aqa.acqs(), ring.is_none()));
        self.sqs.push(Sq::new(0, 0, self.port.read64(regs::ASQ), aqa.asqs(), ring));
        self.observe();
    }

    /// What the submission queue's memory holds, unless account of it cannot be kept.
    fn ring_memory(&self, qid: u16, entries: u32) -> Option<Vec<Sqe>> {
        let entry =
            |i: u32| Some(Sqe::from_words(self.memory.load(sq_base(qid) + u64::from(i) * 64)?));
        if self.wild { None } else { (0..entries).map(entry).collect() }
    }

    /// Creates queue `qid` on completion queue `cqid`, and that too unless there is one.
    pub fn create_queues(
        &mut self,
        qid: u16,
        cqid: u16,
        sq_entries: u32,
        cq_entries: u32,
        vector: Option<u16>,
    ) {
        if self.sqs.is_empty() {
            return;
        }
        if !self.cqs.iter().any(|cq| cq.qid == cqid) {
            let cid = self.cid();
            self.put(0, Sqe::create_io_cq(cid, cqid, cq_entries, cq_base(cqid), vector));
        }
        let cid = self.cid();
        self.put(0, Sqe::create_io_sq(cid, qid, sq_entries, sq_base(qid), cqid, 0));
        let lost = self.sqs[0].lost;
        self.ring(0);
        self.run_until_idle();
        if lost && self.sqs.iter().all(|sq| sq.qid != qid) && !self.sqs.is_empty() {
            // Nobody reads the admin completions: perhaps they are there.
            self.cqs.push(Cq::new(cqid, cq_entries, true));
            self.sqs.push(Sq::new(qid, cqid, sq_base(qid), sq_entries, None));
        }
    }

    pub fn map(&mut self, index: usize) {
        self.memory.map(index, &*self.port);
    }

    pub fn unmap(&mut self, index: usize) {
        self.memory.unmap(index, &*self.port);
        self.idle = false;
        // What was written before is there to be read; the memory is taken away after.
        self.observe();
        self.memory.close();
    }

    pub fn set_vector(&mut self, vector: u16, event: Option<Arc<OwnedFd>>) {
        let _ = self.port.set_vector(vector, event.map(Into::into));
    }

    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.faulty |= !plan.is_none();
        self.stuck |= injects(&plan, Fault::StuckAdmin);
        self.plan = plan.clone();
        self.ssd.set_faults(plan);
    }

    pub fn power_cut(&mut self, seed: u64) {
        self.ssd.power_cut(&mut Rng::new(seed));
        assert!(!self.is_enabled(), "enabled after a power cut");
        self.let_go();
    }

    pub fn unplug(&mut self) {
        self.ssd.unplug();
        self.observe();
    }

    // How time passes.

    /// One turn of the SSD.
    pub fn turn(&mut self) {
        self.clock.now_ns();
        self.observe();
    }

    pub fn advance(&mut self, ns: u64) {
        self.clock.advance(ns);
        self.observe();
        self.idle = true;
        for at in 0..self.sqs.len() {
            self.has_caught_up(at);
        }
    }

    pub fn run_until_idle(&mut self) {
        if !self.idle {
            self.advance(0);
        }
    }

    // What the host sees.

    /// Takes every completion there is, checks that nothing else was written, and learns what
    /// became of the controller.
    fn observe(&mut self) {
        // Completions of commands first: a queue may have been deleted after them.
        for at in (0..self.cqs.len()).rev() {
            self.consume(at);
        }
        let csts = self.csts();
        if (csts.0 == regs::GONE || csts.cfs()) && !self.sqs.is_empty() {
            self.let_go();
        }
    }

    fn consume(&mut self, at: usize) {
        let Some(cq) = self.cqs.get_mut(at).filter(|cq| !cq.lost) else { return };
        let qid = cq.qid;
        let cells =
            self.memory.words(cq_base(qid), cq.entries as usize * 2).expect("a queue's memory");
        let mut taken: Vec<Cqe> = Vec::new();
        loop {
            let at = cq.head as usize;
            let words = [0, 1].map(|half| cells[at * 2 + half].load(Ordering::Acquire));
            if phase_of_high_word(words[1]) != cq.phase {
                break;
            }
            assert!(cq.unacked() < cq.entries - 1, "completion queue {qid} overflows");
            taken.push(Cqe::from_words(words));
            cq.seen[at] = words;
            cq.head += 1;
            if cq.head == cq.entries {
                (cq.head, cq.phase) = (0, !cq.phase);
            }
        }
        for (at, seen) in cq.seen.iter().enumerate() {
            let now = [0, 1].map(|half| cells[at * 2 + half].load(Ordering::Relaxed));
            assert_eq!(now, *seen, "entry {at} of completion queue {qid} was written over");
        }
        for cqe in taken {
            self.completed(qid, &cqe);
        }
    }

    fn completed(&mut self, cqid: u16, cqe: &Cqe) {
        let (sqid, status) = (cqe.sqid.get(), cqe.status());
        let Some(sq) = self.sqs.iter_mut().find(|sq| sq.qid == sqid) else {
            panic!("{cqe:?} of a queue that does not exist");
        };
        assert_eq!(sq.cqid, cqid, "{cqe:?} on another queue's completion queue");
        assert_eq!(cqe.dw1.get(), 0, "{cqe:?}: a reserved dword is not zero");
        if sq.lost {
            return;
        }
        let head = u32::from(cqe.sqhd.get());
        assert!(head < sq.entries, "{cqe:?}: a head beyond the queue");
        assert!(
            ahead(sq.head, head, sq.entries) <= ahead(sq.head, sq.tail, sq.entries),
            "{cqe:?}: a head beyond the tail, or behind the one before ({}..={})",
            sq.head,
            sq.tail
        );
        sq.head = head;
        match sq.complete(cqe, status.is(StatusCode::CommandIdConflict)) {
            Some(sqe) if sqid == 0 && status.is_success() => self.admin_completed(&sqe),
            Some(_) => {}
            None => {
                assert!(self.faulty, "{cqe:?} without a command");
                self.strays += 1;
                let injected = self.ssd.counters().injected_strays;
                assert!(self.strays <= injected, "more strays than the {injected} injected");
            }
        }
    }

    /// What an admin command did to the queues.
    fn admin_completed(&mut self, sqe: &Sqe) {
        let (qid, entries, base) = (sqe.qid(), sqe.queue_entries(), sqe.prp1.get());
        match sqe.opcode() {
            admin::CREATE_IO_CQ => {
                let ours = base == cq_base(qid) && entries <= CQ_ENTRIES && !self.wild;
                let cleared = ours && self.memory.store(base, &vec![0; entries as usize * 2]);
                self.cqs.push(Cq::new(qid, entries, !cleared));
            }
            admin::CREATE_IO_SQ => {
                let cqid = sqe.cqid();
                let counted = self.cqs.iter().any(|cq| cq.qid == cqid && !cq.lost);
                let ours = base == sq_base(qid) && entries <= SQ_ENTRIES && counted;
                let ring = if ours { self.ring_memory(qid, entries) } else { None };
                self.sqs.push(Sq::new(qid, cqid, base, entries, ring));
            }
            admin::DELETE_IO_SQ => {
                for sq in self.sqs.iter().filter(|sq| sq.qid == qid && !sq.lost) {
                    // What was fetched has been ended before.
                    let unfetched = ahead(sq.head, sq.tail, sq.entries) as usize;
                    let forgotten = sq.in_flight.len().saturating_sub(unfetched) as u64;
                    let lost = self.ssd.counters().injected_losses;
                    assert!(
                        forgotten <= lost,
                        "{forgotten} commands of a deleted queue never completed"
                    );
                }
                self.sqs.retain(|sq| sq.qid != qid);
            }
            admin::DELETE_IO_CQ => {
                assert!(
                    self.sqs.iter().all(|sq| sq.cqid != qid),
                    "queue {qid} deleted while in use"
                );
                self.cqs.retain(|cq| cq.qid != qid);
            }
            _ => {}
        }
    }

    /// Whether the SSD must have fetched everything that the submission queue at `at` announced. If
    /// so, its head is known to be there.
    fn has_caught_up(&mut self, at: usize) -> bool {
        let (sq, cqid) = (&self.sqs[at], self.sqs[at].cqid);
        let Some(cq) = self.cqs.iter().find(|cq| cq.qid == cqid && !cq.lost && !cq.corrupted)
        else {
            return false;
        };
        let bound = || self.sqs.iter().filter(|sq| sq.cqid == cqid);
        if !self.idle || sq.lost || bound().any(|sq| sq.lost) {
            return false;
        }
        if self.ssd.counters().injected_strays > 0 {
            // One that was taken for a completion hides that its command still waits.
            return false;
        }
        let in_flight: usize = bound().map(|sq| sq.in_flight.len()).sum();
        // Admin commands complete when they are fetched: there is room, or there is none.
        let fits = cq.unacked() as usize + in_flight < cq.entries as usize;
        let caught_up = fits || cqid == 0 && cq.unacked() < cq.entries - 1;
        if caught_up {
            self.sqs[at].head = self.sqs[at].tail;
        }
        caught_up
    }

    /// The host no longer knows what the submission queue at `at` fetches. If that is the admin
    /// queue, queues may come and go unnoticed.
    fn doubt(&mut self, at: usize) {
        if at == 0 {
            self.sqs.iter_mut().for_each(Sq::give_up);
            self.cqs.iter_mut().for_each(|cq| cq.lost = true);
        }
    }

    /// The controller has been reset, or has failed, or is gone: it has let go of all memory.
    fn let_go(&mut self) {
        self.check_rings();
        self.sqs.clear();
        self.cqs.clear();
        self.memory.close_all(|| self.clock.advance(LONG));
        self.idle = true;
    }

    /// Nobody but the host writes to submission queues.
    fn check_rings(&self) {
        for sq in self.sqs.iter().filter(|sq| !sq.lost) {
            let now = self.ring_memory(sq.qid, sq.entries);
            // Without the memory the controller has failed already.
            assert!(
                now.is_none_or(|now| now == sq.ring),
                "submission queue {} was written to",
                sq.qid
            );
        }
    }

    // The end.

    /// Lets the SSD finish, and checks that it did.
    pub fn finish(mut self) {
        self.run_until_idle();
        for at in 0..self.sqs.len() {
            let sq = &self.sqs[at];
            if !sq.lost {
                // In case the last value was one that cannot be.
                self.store_doorbell(usize::from(sq.qid) * 2, sq.tail);
            }
        }
        let mut cqes = u64::MAX;
        for _ in 0..1024 {
            for at in 0..self.cqs.len() {
                self.ack(at, u32::MAX);
            }
            self.advance(LONG);
            if std::mem::replace(&mut cqes, self.ssd.counters().cqes) == self.ssd.counters().cqes {
                break;
            }
        }
        self.check_rings();
        let mut unanswered = 0;
        for sq in self.sqs.iter().filter(|sq| !sq.lost) {
            if self.cqs.iter().any(|cq| cq.qid == sq.cqid && (cq.lost || cq.corrupted)) {
                continue;
            }
            let due = sq
                .in_flight
                .iter()
                .filter(|sqe| sq.qid != 0 || sqe.opcode() != admin::ASYNC_EVENT_REQUEST);
            if sq.qid != 0 {
                unanswered += due.count() as u64;
            } else if !self.stuck {
                assert_eq!(due.count(), 0, "admin commands never completed: {:x?}", sq.in_flight);
            }
        }
        let lost = self.ssd.counters().injected_losses;
        assert!(
            unanswered <= lost,
            "{unanswered} commands never completed, {lost} were lost by the fault plan"
        );
        self.memory.check_canaries();
        for index in 0..super::memory::REGIONS {
            self.memory.unmap(index, &*self.port);
        }
    }
}

fn injects(plan: &FaultPlan, fault: Fault) -> bool {
    plan.rules.iter().any(|rule| rule.fault == fault)
}
