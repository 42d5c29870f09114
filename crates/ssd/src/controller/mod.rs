//! The controller is one state machine. It has no thread and no clock of its own.
//!
//! [`Controller::turn`] does the pending work and returns what it waits for.
//! [`threaded`](crate::threaded) calls it in a loop, and [`stepped`](crate::stepped) calls it
//! whenever its clock moves. A command takes this path:
//!
//! - `turn` sees a tail doorbell, reserves completion entries, fetches;
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
mod doorbell;
mod enable;
mod ending;
mod error_log;
mod events;
mod fast;
mod faulty;
mod feature_commands;
mod features;
mod fused;
pub(crate) mod identify;
mod interrupts;
mod io;
mod keep_alive;
mod logs;
mod outcome;
mod pending;
mod power;
mod prp;
mod queues;
mod refusals;
mod regs;
mod sgl;
mod turn;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use meantime_nvme_spec::features::fid;
use meantime_nvme_spec::soft_port::{DmaRegion, Doorbells, Interrupt, PortError};
use meantime_nvme_spec::status::Status;

use crate::config::SsdConfig;
use crate::counters::SharedCounters;
use crate::event_requests::Events;
use crate::faults::{FaultPlan, FaultRule, Faults, TooManyRules};
use crate::hostmem::{HostMemory, Segment};
use crate::medium::Medium;
use crate::record::Recorder;
use crate::service::Service;
use crate::stamps::{STAMP_RING_LEN, StampRing};
use crate::store::Store;
use doorbell::Shadows;
use error_log::ErrorLog;
use features::Features;
use interrupts::Interrupts;
use pending::{Pending, most_inside};
use power::Power;
use queues::{Cq, Sq};
pub(crate) use regs::RegisterFile;

/// The maximum number of refusals that are kept.
const MAX_REFUSALS: usize = 256;

/// The result of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There was work.
    Worked,
    /// There is no work now. Something is due at a known time.
    Waiting,
    /// Commands or events are waiting for the host to take completions.
    Blocked,
    /// There is no work until a doorbell or a call.
    Idle,
}

/// A rule that the host broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The queue on which it happened, or 0 for registers.
    pub qid: u16,
    /// Identifier of the command, if the refusal concerns one.
    pub cid: Option<u16>,
    /// The status of the failed command, if it failed.
    pub status: Option<Status>,
    /// The rule that was broken.
    pub reason: &'static str,
    /// Whether it was tolerated, because hosts do it when they disconnect, and it is harmless. A
    /// [strict](SsdConfig::strict) SSD does not tolerate it.
    pub tolerated: bool,
}

/// A round robin among the queues of one class.
#[derive(Clone, Copy, Default)]
struct Rotation {
    /// The queue being served, or the last one.
    qid: u16,
    /// The rest of its burst.
    left: u32,
}

/// The state of arbitration.
#[derive(Default)]
struct Arbiter {
    /// Whether CC.AMS selects weighted round robin with urgent priority class.
    weighted: bool,
    rotations: [Rotation; 4],
    /// The number of commands that the high, medium and low class may still send in this round.
    credits: [u32; 3],
    /// Index of the sending class.
    current: usize,
}

/// The host's last activity.
#[derive(Default)]
pub(super) struct KeepAlive {
    since_ns: u64,
    /// The number of commands fetched by then.
    seen: u64,
    /// The value of [`Controller::tails`] then.
    tails: u64,
}

/// A software NVMe controller.
pub(crate) struct Controller {
    pub(crate) config: SsdConfig,
    pub(crate) regs: Arc<RegisterFile>,
    pub(crate) doorbells: Arc<Doorbells>,
    host: HostMemory,
    pub(crate) store: Store,
    /// The submission queues. Index 0 is the admin queue while the controller is enabled; the
    /// others are in order of creation.
    sqs: Vec<Sq>,
    /// The completion queues by queue identifier.
    cqs: Vec<Option<Cq>>,
    /// The host's shadow doorbells, if it has set them up.
    shadows: Option<Shadows>,
    /// Indexes of the doorbells of queues that ended with their memory. They are kept until the
    /// host deletes the queues or reuses their identifiers.
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
    /// Whether commands complete when they are fetched, and no work needs the time.
    immediate: bool,
    /// Whether work is due at a known time.
    timed: bool,
    /// Whether the arbiter chooses, because not every command is fetched at once.
    arbitrated: bool,
    arbiter: Arbiter,
    /// The maximum number of commands inside the device.
    most_inside: u32,
    /// When CSTS.RDY becomes 1.
    ready_at_ns: Option<u64>,
    /// The memory of the current command's data. It is kept between commands for its capacity.
    segments: Vec<Segment>,
    /// Whether the next command of a queue waits for room in its completion queue.
    blocked: bool,
}

impl Controller {
    /// Creates a controller. `config` has been validated, and `medium` is large enough.
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
            most_inside: most_inside(config.model.inside),
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

    /// Applies the values of the power features.
    pub(super) fn apply_transitions(&mut self, now_ns: u64) {
        let values = &self.features;
        let is_on = values[fid::AUTONOMOUS_POWER_STATE_TRANSITION] == 1;
        let table = is_on.then(|| values.transitions.clone());
        self.power.set_transitions(table, now_ns);
        self.choose_path();
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

    /// Returns the content of all namespaces.
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

    pub(crate) fn map_dma(&mut self, region: DmaRegion) -> Result<(), PortError> {
        self.host.map(region)
    }

    pub(crate) fn set_vector(
        &mut self,
        vector: u16,
        event: Option<Interrupt>,
    ) -> Result<(), PortError> {
        self.interrupts.set_event(vector, event)
    }

    /// Returns whether there are queues whose doorbells the host may ring.
    pub(crate) fn has_queues(&self) -> bool {
        !self.sqs.is_empty()
    }

    pub(super) fn update_timed(&mut self) {
        self.timed = !self.pending.is_empty()
            || self.ready_at_ns.is_some()
            || self.interrupts.next_deadline_ns().is_some();
    }
}
