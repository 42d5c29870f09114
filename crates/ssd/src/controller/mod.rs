//! The controller: one state machine, no thread and no clock of its own.
//!
//! [`Controller::turn`] does the pending work and returns what it waits for;
//! [`threaded`](crate::threaded) calls it in a loop, [`stepped`](crate::stepped) whenever its clock
//! moves. A command's path:
//!
//! - [`serve`](Controller::turn) sees a tail doorbell, reserves completion entries, fetches;
//! - `fast` executes runs of plain reads and writes at once, when nothing needs a clock;
//! - `io` and `admin` execute everything else; data is transferred when the command is fetched;
//! - `complete` writes the completion now, or keeps it in `pending` until its service time has
//!   passed;
//! - `interrupts` interrupts the host.

mod admin;
mod arbiter;
mod complete;
mod dbbuf;
mod direct;
mod ending;
mod error_log;
mod events;
mod failure;
mod fast;
mod faulty;
mod features;
mod fused;
pub(crate) mod identify;
mod interrupts;
mod io;
mod keep_alive;
mod logs;
mod pending;
mod power;
mod prp;
mod queues;
mod regs;
mod set_features;
mod sgl;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use meantime_spec::log::AsyncEventCode;
use meantime_spec::seam::{DmaRegion, Doorbells, Interrupt, SeamError};
use meantime_spec::status::Status;

use crate::Rng;
use crate::clock::Clock;
use crate::config::SsdConfig;
use crate::counters::SharedCounters;
use crate::faults::{FaultPlan, FaultRule, Faults, TooManyRules};
use crate::hostmem::{HostMemory, Segment};
use crate::medium::Medium;
use crate::record::Recorder;
use crate::service::Service;
use crate::stamps::{STAMP_RING_LEN, StampRing};
use crate::store::Store;
use arbiter::Arbiter;
use dbbuf::Shadows;
use error_log::ErrorLog;
use events::Events;
use features::Features;
use fused::Head;
use interrupts::Interrupts;
use keep_alive::KeepAlive;
use pending::{MAX_PENDING, Pending};
use power::Power;
use queues::{Cq, Sq, cq_doorbell, sq_doorbell};
pub(crate) use regs::RegisterFile;

/// The most refusals that are kept.
const MAX_REFUSALS: usize = 256;

/// The result of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There was work.
    Worked,
    /// No work now; something is due at a known time.
    Waiting,
    /// Commands or events are waiting for the host to take completions.
    Blocked,
    /// No work until a doorbell or a call.
    Idle,
}

/// A rule that the host broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The queue it happened on; 0 for registers too.
    pub qid: u16,
    /// Identifier of the command, if the refusal concerns one.
    pub cid: Option<u16>,
    /// The status of the failed command, if it failed.
    pub status: Option<Status>,
    /// The rule that was broken.
    pub reason: &'static str,
    /// Whether it was tolerated: hosts do it when they disconnect, and it is harmless. A
    /// [strict](SsdConfig::strict) SSD does not tolerate it.
    pub tolerated: bool,
}

/// A software NVMe controller.
pub(crate) struct Controller {
    pub(crate) config: SsdConfig,
    pub(crate) regs: Arc<RegisterFile>,
    pub(crate) doorbells: Arc<Doorbells>,
    host: HostMemory,
    pub(crate) store: Store,
    /// Index 0 is the admin queue while the controller is enabled; the others in order of creation.
    sqs: Vec<Sq>,
    /// By queue identifier.
    cqs: Vec<Option<Cq>>,
    /// The host's shadow doorbells, if it has set them up.
    shadows: Option<Shadows>,
    /// Indexes of the doorbells of queues that ended with their memory, until the host deletes the
    /// queues or reuses their identifiers.
    ended: BTreeSet<usize>,
    interrupts: Interrupts,
    service: Service,
    pub(crate) faults: Faults,
    pending: Pending,
    features: Features,
    events: Events,
    keep_alive: KeepAlive,
    power: Power,
    errors: ErrorLog,
    power_cycles: u64,
    unsafe_shutdowns: u64,
    pub(crate) counters: Arc<SharedCounters>,
    pub(crate) stamps: Option<Arc<StampRing>>,
    recorder: Option<Recorder>,
    /// The latest refusals, oldest first.
    pub(crate) refusals: VecDeque<Refusal>,
    /// Commands complete when they are fetched, and no work needs the time.
    immediate: bool,
    /// Work is due at a known time.
    timed: bool,
    /// Not every command is fetched at once: the arbiter chooses.
    arbitrated: bool,
    arbiter: Arbiter,
    /// The most commands inside the device.
    most_inside: u32,
    /// When CSTS.RDY becomes 1.
    ready_at_ns: Option<u64>,
    /// The memory of the current command's data. Kept between commands for its capacity.
    segments: Vec<Segment>,
    /// The next command of a queue waits for room in its completion queue.
    blocked: bool,
}

impl Controller {
    /// `config` has been validated, `medium` is large enough.
    pub(crate) fn new(config: SsdConfig, medium: Medium) -> Self {
        let queues = config.max_io_queues + 1;
        let service = Service::new(config.model.clone(), config.seed);
        let stamps = config.stamps.then(|| Arc::new(StampRing::new(STAMP_RING_LEN)));
        let mut controller = Self {
            regs: Arc::new(RegisterFile::new(&config)),
            doorbells: Arc::new(Doorbells::new(queues)),
            host: HostMemory::default(),
            store: Store::new(&config, medium),
            sqs: Vec::with_capacity(usize::from(queues)),
            cqs: (0..queues).map(|_| None).collect(),
            shadows: None,
            ended: BTreeSet::new(),
            interrupts: Interrupts::new(config.vectors),
            service,
            faults: Faults::new(config.faults.clone()),
            pending: Pending::with_capacity(1024),
            features: Features::new(&config),
            events: Events::default(),
            keep_alive: KeepAlive::default(),
            power: Power::new(config.power_states.clone()),
            errors: ErrorLog::default(),
            power_cycles: 1,
            unsafe_shutdowns: 0,
            counters: Arc::default(),
            stamps,
            recorder: None,
            refusals: VecDeque::with_capacity(MAX_REFUSALS),
            immediate: false,
            timed: false,
            arbitrated: false,
            arbiter: Arbiter::default(),
            most_inside: Self::most_inside(config.model.inside),
            ready_at_ns: None,
            segments: Vec::with_capacity(512),
            blocked: false,
            config,
        };
        controller.apply_transitions(0);
        controller
    }

    fn choose_path(&mut self) {
        self.immediate = self.service.is_null()
            && self.faults.is_none()
            && self.stamps.is_none()
            && self.recorder.is_none()
            && !self.power.needs_clock()
            && !self.store.has_uncorrectable();
        self.arbitrated = self.arbiter.weighted || self.config.model.inside > 0;
    }

    pub(crate) fn set_faults(&mut self, plan: FaultPlan) {
        self.faults = Faults::new(plan);
        self.choose_path();
    }

    /// Records what is written and flushed from now on.
    pub(crate) fn set_recorder(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
        self.choose_path();
    }

    /// Begins a turn in the record, if there is one.
    pub(crate) fn begin_turn(&mut self) {
        if let Some(recorder) = &self.recorder {
            recorder.next_turn();
        }
    }

    /// The content of all namespaces.
    pub(crate) fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.store.total_bytes() as usize];
        self.store.span(0, bytes.len()).read(&mut bytes);
        bytes
    }

    /// Injects one more fault.
    pub(crate) fn add_fault(&mut self, rule: FaultRule) -> Result<(), TooManyRules> {
        let added = self.faults.add(rule);
        self.choose_path();
        added
    }

    /// Stops injecting faults.
    pub(crate) fn clear_faults(&mut self) {
        self.faults.clear();
        self.choose_path();
    }

    pub(crate) fn map_dma(&mut self, region: DmaRegion) -> Result<(), SeamError> {
        self.host.map(region)
    }

    pub(crate) fn set_vector(
        &mut self,
        vector: u16,
        event: Option<Interrupt>,
    ) -> Result<(), SeamError> {
        self.interrupts.set_event(vector, event)
    }

    /// Power fails and returns: a random subset of unflushed data is lost, and the controller is
    /// reset. Returns the number of lost writes.
    pub(crate) fn power_cut(&mut self, rng: &mut Rng) -> u64 {
        let (lost, torn) = self.store.power_cut(rng);
        self.counters.injected_tears.add(torn);
        self.power_cycles += 1;
        if !self.regs.is_shut_down() {
            self.unsafe_shutdowns += 1;
        }
        self.reset();
        self.regs.power_on();
        lost
    }

    /// Function level reset: everything except the host's memory and interrupts is as after
    /// power-on. No data is lost.
    pub(crate) fn reset_function(&mut self) {
        self.reset();
        self.regs.power_on();
    }

    /// Like `reset_function`, and removes the host with its memory and interrupts. The next host
    /// uses `doorbells`, which the former one cannot reach.
    pub(crate) fn power_cycle(&mut self, doorbells: Arc<Doorbells>) {
        self.reset_function();
        self.host = HostMemory::default();
        self.interrupts = Interrupts::of_stranger(self.config.vectors);
        self.doorbells = doorbells;
    }

    /// Whether there are queues whose doorbells the host may ring.
    pub(crate) fn has_queues(&self) -> bool {
        !self.sqs.is_empty()
    }

    /// The device leaves the bus: registers read all ones, and nothing completes.
    pub(crate) fn unplug(&mut self) {
        self.drop_queues();
        self.regs.set_gone();
        self.ready_at_ns = None;
        self.update_timed();
    }

    /// The device returns to the bus, as after power-on. The volatile cache keeps its content.
    pub(crate) fn plug(&mut self) {
        if self.regs.is_gone() {
            self.reset();
            self.regs.power_on();
            self.regs.set_present();
        }
    }

    /// Serves every queue once.
    #[inline]
    pub(crate) fn turn<C: Clock>(&mut self, clock: &C) -> Turn {
        self.blocked = false;
        if self.timed | self.arbitrated {
            return self.turn_by_clock(clock);
        }
        // Only executed commands create timed work: without commands, nothing new is due.
        if self.serve_all(clock) { Turn::Worked } else { self.without_work() }
    }

    /// A turn while work is due later, or not every command may be fetched.
    #[inline(never)]
    fn turn_by_clock<C: Clock>(&mut self, clock: &C) -> Turn {
        let mut worked = self.timed && self.expire(clock.now_ns());
        if self.arbitrated {
            worked |= self.arbitrate(clock);
        } else {
            let mut index = 0;
            while index < self.sqs.len() {
                worked |= self.serve_if_rung(index, self.features.burst(), clock);
                index += 1;
            }
        }
        if worked {
            Turn::Worked
        } else if self.timed {
            Turn::Waiting
        } else {
            self.without_work()
        }
    }

    #[inline(always)]
    fn without_work(&self) -> Turn {
        if self.blocked || self.events.held_back() { Turn::Blocked } else { Turn::Idle }
    }

    /// Visits every queue once. True if there were commands.
    #[inline(always)]
    fn serve_all<C: Clock>(&mut self, clock: &C) -> bool {
        let mut worked = false;
        // The admin queue is first among them; serving it may change the list.
        let mut index = 0;
        while let Some(sq) = self.sqs.get(index) {
            let tail = sq.doorbell.load();
            // Does not prefetch the next entry without a doorbell: that takes the line away from
            // the host, which is about to write it (tried, no gain).
            if tail != sq.head {
                worked |= self.serve(index, tail, self.features.burst(), clock);
            }
            index += 1;
        }
        worked
    }

    /// Fetches and executes commands of a queue whose tail doorbell is not at its head: at most
    /// `burst`, except on the admin queue. True if there were any.
    #[inline(always)]
    fn serve<C: Clock>(&mut self, index: usize, tail: u32, burst: u32, clock: &C) -> bool {
        let sq = &mut self.sqs[index];
        if tail >= sq.ring.entries() {
            if sq.bad_tail != Some(tail) {
                sq.bad_tail = Some(tail);
                let qid = sq.qid;
                self.bad_doorbell(qid, "submission queue tail beyond the queue");
            }
            return false;
        }
        sq.bad_tail = None;
        if index == 0 {
            return self.serve_admin(tail, clock);
        }
        if self.immediate {
            self.serve_at_once(index, tail, burst, clock)
        } else {
            self.serve_timed(index, tail, burst, clock)
        }
    }

    /// Room for completions of the commands of `sqs[index]`. Reads the head doorbell if there seems
    /// to be none.
    fn room(&mut self, index: usize, wanted: u32) -> u32 {
        let cqid = self.sqs[index].cqid;
        let Some(cq) = &mut self.cqs[usize::from(cqid)] else { return 0 };
        if cq.room() < wanted
            && let Err(reason) = cq.refresh()
        {
            self.bad_doorbell(cqid, reason);
        }
        let room = self.cqs[usize::from(cqid)].as_ref().map_or(0, Cq::room);
        self.blocked |= room == 0;
        room
    }

    /// Serves one turn's commands of an I/O queue whose completions come later, need stamps, or may
    /// be faulty.
    fn serve_timed<C: Clock>(&mut self, index: usize, tail: u32, burst: u32, clock: &C) -> bool {
        let wanted = self.sqs[index].available(tail).min(burst);
        let n = wanted.min(self.room(index, wanted)).min(self.room_inside());
        if n == 0 {
            return false;
        }
        let seen_ns = clock.now_ns();
        let mut taken = 0;
        while taken < n {
            let sq = &self.sqs[index];
            // An earlier command's injected stray completion may have used this turn's room.
            if self.cqs[usize::from(sq.cqid)].as_ref().is_none_or(|cq| cq.room() == 0) {
                break;
            }
            let qid = sq.qid;
            match self.head_of(index, tail) {
                Head::NoRoom => break,
                Head::Pair(first, second) => {
                    self.sqs[index].advance(2);
                    taken += 2;
                    self.start_pair(index, (&first, &second), seen_ns, clock);
                }
                Head::One => {
                    let sq = &mut self.sqs[index];
                    let sqe = sq.ring.read_sqe(sq.head);
                    sq.advance(1);
                    taken += 1;
                    self.start_timed(index, &sqe, None, seen_ns, clock);
                }
            }
            // A fault may have removed the queues.
            if self.sqs.get(index).is_none_or(|sq| sq.qid != qid) {
                return true;
            }
        }
        self.announce(index, clock);
        taken > 0
    }

    /// Checks every doorbell, including those without a queue, and whether the host is still alive.
    /// Called on idle turns only.
    pub(crate) fn inspect(&mut self, now_ns: u64) {
        self.look_for_life(now_ns);
        for qid in 0..self.cqs.len() as u16 {
            if let Some(Err(reason)) = self.cqs[usize::from(qid)].as_mut().map(Cq::refresh) {
                self.bad_doorbell(qid, reason);
            }
        }
        for qid in 0..self.cqs.len() as u16 {
            let has_sq = self.sqs.iter().any(|sq| sq.qid == qid);
            let has_cq = self.cqs[usize::from(qid)].is_some();
            for (index, exists) in [(sq_doorbell(qid), has_sq), (cq_doorbell(qid), has_cq)] {
                let Some(cell) = self.doorbells.get(index).filter(|_| !exists) else { continue };
                if cell.swap(0, std::sync::atomic::Ordering::Relaxed) != 0 {
                    self.stray_doorbell(index);
                }
            }
        }
        self.deliver_events();
    }

    /// The time of the next due work.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        let keep_alive = self.keep_alive_until_ns();
        let times = [
            self.pending.next_due_ns(),
            self.interrupts.next_deadline_ns(),
            self.ready_at_ns,
            keep_alive,
        ];
        times.into_iter().flatten().min()
    }

    pub(super) fn update_timed(&mut self) {
        self.timed = !self.pending.is_empty()
            || self.ready_at_ns.is_some()
            || self.interrupts.next_deadline_ns().is_some();
    }

    /// Does the work due by `now_ns`.
    fn expire(&mut self, now_ns: u64) -> bool {
        let mut worked = false;
        if self.ready_at_ns.is_some_and(|at| at <= now_ns) {
            self.ready_at_ns = None;
            self.regs.set_ready(true);
            worked = true;
        }
        while let Some(command) = self.pending.pop_due(now_ns) {
            self.finish(command, now_ns);
            worked = true;
        }
        if worked {
            self.announce_all(now_ns);
        }
        self.counters.interrupts.add(self.interrupts.expire(now_ns));
        self.update_timed();
        worked
    }

    fn remember(&mut self, refusal: Refusal) {
        self.counters.remembered.add(1);
        if self.refusals.len() == MAX_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(refusal);
    }

    /// Records a broken rule that concerns no particular command.
    #[cold]
    fn remember_rule(&mut self, qid: u16, reason: &'static str) {
        tracing::debug!(qid, reason, "register or doorbell refused");
        self.remember(Refusal { qid, cid: None, status: None, reason, tolerated: false });
    }

    #[cold]
    fn bad_doorbell(&mut self, qid: u16, reason: &'static str) {
        self.counters.bad_doorbells.add(1);
        self.remember_rule(qid, reason);
        self.event(AsyncEventCode::InvalidDoorbellWriteValue);
    }

    /// Handles a write to the doorbell at `index`, whose queue does not exist.
    #[cold]
    fn stray_doorbell(&mut self, index: usize) {
        self.counters.stray_doorbells.add(1);
        // The host may not have noticed yet that its queue has ended, or all queues by CSTS.CFS.
        if !self.ended.contains(&index) && !self.regs.csts().cfs() {
            self.remember_rule((index / 2) as u16, "doorbell of a queue that does not exist");
            self.event(AsyncEventCode::WriteToInvalidDoorbell);
        }
    }
}
