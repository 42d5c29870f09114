//! The configuration of a software SSD.

use meantime_nvme_spec::dbbuf;
use meantime_nvme_spec::soft_port::SOFT_DSTRD;

use crate::error::SsdError;
use crate::faults::FaultPlan;
use crate::model::Model;

/// No latency of a power state may exceed this: an hour.
const MAX_LATENCY_US: u32 = 3_600_000_000;

/// One namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// Size in bytes; a multiple of `lba_bytes`.
    pub bytes: u64,
    /// Bytes per logical block: 512 or 4096.
    pub lba_bytes: u32,
}

impl NamespaceConfig {
    /// Returns what is wrong with it.
    fn problem(&self) -> Option<String> {
        let Self { bytes, lba_bytes } = *self;
        if lba_bytes != 512 && lba_bytes != 4096 {
            return Some(format!(": {lba_bytes} bytes a block; 512 or 4096"));
        }
        if bytes == 0 {
            return Some(format!(" is empty; give it a multiple of {lba_bytes} bytes"));
        }
        let fits_512 = bytes.is_multiple_of(512);
        let advice = if fits_512 { "; blocks of 512 bytes (lba=512) fit" } else { "" };
        (!bytes.is_multiple_of(lba_bytes.into()))
            .then(|| format!(": {bytes} bytes are no multiple of {lba_bytes}{advice}"))
    }
}

/// A power state (1.4 §8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerState {
    /// Maximum power, in 10 mW.
    pub max_power_10mw: u16,
    /// Entry latency in µs.
    pub enlat_us: u32,
    /// Exit latency in µs. If the SSD is in this state and it is non-operational, the next I/O
    /// command waits that long.
    pub exlat_us: u32,
    /// Whether no I/O command is processed in this state. The SSD leaves it by itself when one
    /// arrives.
    pub non_operational: bool,
}

/// The configuration of a software SSD. [`Default`] has no namespace, and every other field is
/// usable.
#[derive(Clone, Debug)]
pub struct SsdConfig {
    /// The namespaces, NSID 1 first, one after another on the medium.
    pub namespaces: Vec<NamespaceConfig>,
    /// How long commands take.
    pub model: Model,
    /// Whether there is a volatile write cache: completed writes may be lost by a power cut until
    /// they are flushed.
    pub volatile_write_cache: bool,
    /// The maximum of unflushed data in the cache, in bytes. Beyond it the oldest data are written
    /// back.
    pub write_cache_bytes: u64,
    /// The maximum number of I/O queues of each kind: 1 to 1024.
    pub max_io_queues: u16,
    /// The maximum number of I/O completion queues, 1 to `max_io_queues`. `None` allows as many as
    /// there are submission queues.
    pub max_io_completion_queues: Option<u16>,
    /// The maximum number of entries of a queue: 2 to 65536.
    pub max_queue_entries: u32,
    /// The maximum number of bytes that a command may transfer: a power of two of at least 8192, or
    /// 0 for no limit.
    pub mdts_bytes: u32,
    /// Optimal I/O boundary in logical blocks; 0 for none.
    pub optimal_io_boundary_lbas: u16,
    /// Atomic Write Unit Power Fail in logical blocks, counted from 1: a power cut never tears a
    /// write of that size.
    pub atomic_write_lbas: u16,
    /// Power states, number 0 first. There are 1 to 32, the first one is operational, and none has
    /// more power than the previous one.
    pub power_states: Vec<PowerState>,
    /// The default of Autonomous Power State Transition: the time without I/O commands, in ms,
    /// after which the SSD enters the last power state. `None` leaves it off until the host turns
    /// it on. A time requires a non-operational state.
    pub apst_idle_ms: Option<u32>,
    /// Whether to offer Doorbell Buffer Config. The number of queues is then limited to those whose
    /// shadow doorbells fit in a page.
    pub shadow_doorbells: bool,
    /// Interrupt vectors: 1 to 2048.
    pub vectors: u16,
    /// CPU to bind the SSD's thread to. It applies only to an SSD with a thread.
    pub cpu: Option<usize>,
    /// Time without any activity after which the thread sleeps, in ns. It does not apply to an SSD
    /// that is stepped or inline. A target over TCP also sleeps if other threads want its CPU. With
    /// `u64::MAX` the thread never sleeps.
    pub park_after_ns: u64,
    /// Time from CC.EN = 1 to CSTS.RDY = 1, in ns.
    pub ready_after_ns: u64,
    /// CAP.TO: the host's longest wait for CSTS.RDY, in ms. It is rounded up to 500 ms.
    pub ready_timeout_ms: u32,
    /// Whether to refuse also harmless violations that hosts commit when they disconnect. These
    /// are: a command with the identifier of an outstanding Asynchronous Event Request (Command ID
    /// Conflict), unmapping the memory of a queue (CSTS.CFS), and Get Features of a namespace's
    /// feature with NSID 0 (Invalid Namespace or Format).
    pub strict: bool,
    /// Faults to inject.
    pub faults: FaultPlan,
    /// Whether to take time stamps of every I/O command.
    pub stamps: bool,
    /// Seed of the model's random variation.
    pub seed: u64,
    /// Serial number, up to 20 ASCII characters.
    pub serial: String,
}

impl Default for SsdConfig {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            model: Model::null(),
            volatile_write_cache: false,
            write_cache_bytes: 32 << 20,
            max_io_queues: 64,
            max_io_completion_queues: None,
            max_queue_entries: 1024,
            mdts_bytes: 1 << 20,
            optimal_io_boundary_lbas: 0,
            atomic_write_lbas: 1,
            power_states: vec![PowerState {
                max_power_10mw: 800,
                enlat_us: 0,
                exlat_us: 0,
                non_operational: false,
            }],
            apst_idle_ms: None,
            shadow_doorbells: false,
            vectors: 65,
            cpu: None,
            park_after_ns: 2_000_000,
            ready_after_ns: 0,
            ready_timeout_ms: 2_000,
            strict: false,
            faults: FaultPlan::NONE,
            stamps: false,
            seed: 0,
            serial: "MEANTIME0001".into(),
        }
    }
}

impl SsdConfig {
    /// Returns a configuration with one namespace of `bytes` bytes in blocks of `lba_bytes`, and
    /// defaults for the rest.
    #[must_use]
    pub fn with_namespace(bytes: u64, lba_bytes: u32) -> Self {
        Self { namespaces: vec![NamespaceConfig { bytes, lba_bytes }], ..Self::default() }
    }

    /// Returns the total bytes of all namespaces, saturating at `u64::MAX`.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.namespaces.iter().fold(0, |sum, n| sum.saturating_add(n.bytes))
    }

    /// Checks that an SSD can be built from it.
    ///
    /// # Errors
    /// [`SsdError::Config`], which names the field and the values allowed.
    pub fn validate(&self) -> Result<(), SsdError> {
        let err = |field, problem: String| Err(SsdError::config(field, problem));
        let namespaces = self.namespaces.len();
        if !(1..=1024).contains(&namespaces) {
            return err("namespaces", format!("{namespaces} namespaces; give 1 to 1024"));
        }
        for (nsid, namespace) in (1..).zip(&self.namespaces) {
            if let Some(problem) = namespace.problem() {
                return err("namespaces", format!("namespace {nsid}{problem}"));
            }
        }
        if self.total_bytes() > i64::MAX as u64 {
            return err("namespaces", "more bytes in all than can be mapped".into());
        }
        for (field, value, range) in [
            ("max_io_queues", u32::from(self.max_io_queues), 1..=1024),
            ("max_queue_entries", self.max_queue_entries, 2..=65536),
            ("vectors", u32::from(self.vectors), 1..=2048),
        ] {
            if !range.contains(&value) {
                return err(field, format!("{value}; {} to {}", range.start(), range.end()));
            }
        }
        if let Some(cqs) = self.max_io_completion_queues
            && !(1..=self.max_io_queues).contains(&cqs)
        {
            let problem = format!("{cqs}; 1 to max_io_queues, {}", self.max_io_queues);
            return err("max_io_completion_queues", problem);
        }
        // A single page cannot be expressed: MDTS is a power of two of pages, and its 0 means no
        // limit.
        let mdts_bytes = self.mdts_bytes;
        if mdts_bytes != 0 && (mdts_bytes < 8192 || !mdts_bytes.is_power_of_two()) {
            let right = "a power of two of at least 8192, or 0 for no limit";
            return err("mdts_bytes", format!("{mdts_bytes}; {right}"));
        }
        if self.atomic_write_lbas == 0 {
            let problem = "0; at least 1: a logical block is always atomic";
            return err("atomic_write_lbas", problem.into());
        }
        self.validate_power()?;
        if self.volatile_write_cache && self.write_cache_bytes < 4096 {
            return err("write_cache_bytes", format!("{}; at least 4096", self.write_cache_bytes));
        }
        // CAP.TO is eight bits of 500 ms.
        if self.ready_timeout_ms > 127_500 {
            return err("ready_timeout_ms", format!("{}; at most 127500", self.ready_timeout_ms));
        }
        let serial = &self.serial;
        if serial.len() > 20 || !serial.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            let problem = format!("{serial:?}; at most 20 printable ASCII characters");
            return err("serial", problem);
        }
        Ok(())
    }

    fn validate_power(&self) -> Result<(), SsdError> {
        let states = &self.power_states;
        let problem = if states.is_empty() || states.len() > 32 {
            format!("{} power states; give 1 to 32", states.len())
        } else if states[0].non_operational {
            "power state 0 is non-operational; it is the one that everything begins in".into()
        } else if states.windows(2).any(|pair| pair[1].max_power_10mw > pair[0].max_power_10mw) {
            "a power state takes more power than the one before; give the strongest first".into()
        } else if states.iter().any(|s| s.enlat_us > MAX_LATENCY_US || s.exlat_us > MAX_LATENCY_US)
        {
            format!("a power state's latency is above {MAX_LATENCY_US} us")
        } else if self.apst_idle_ms.is_some() && !states.iter().any(|s| s.non_operational) {
            "apst_idle_ms needs a non-operational power state to enter".into()
        } else if self.apst_idle_ms.is_some_and(|ms| !(1..1 << 24).contains(&ms)) {
            "apst_idle_ms is not within 1 to 16777215".into()
        } else {
            return Ok(());
        };
        Err(SsdError::config("power_states", problem))
    }

    /// Returns the maximum number of I/O submission and completion queues that are granted.
    pub(crate) fn io_queues(&self) -> (u16, u16) {
        // 1.4 §5.7: all shadow doorbells have to lie within their page.
        let most =
            if self.shadow_doorbells { dbbuf::queues_per_page(SOFT_DSTRD) - 1 } else { u16::MAX };
        let sqs = self.max_io_queues.min(most);
        (sqs, self.max_io_completion_queues.unwrap_or(sqs).min(sqs))
    }
}
