//! Features (1.4 §5.13, §5.21): their values, and Get Features.

use meantime_spec::features::{
    ApstEntry, ApstTable, Arbitration, AsyncEventConfig, AutonomousPowerStateTransition,
    ErrorRecovery, FeatureCapabilities, HostBehaviorSupport, InterruptCoalescing,
    InterruptVectorConfig, KeepAliveTimer, NonOperationalPowerStateConfig, NumberOfQueues,
    PowerManagement, TemperatureThreshold, VolatileWriteCache, WriteAtomicity, fid, sel,
};
use meantime_spec::log::critical_warning;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::{Status, StatusCode};
use zerocopy::IntoBytes;

use super::Controller;
use super::complete::Outcome;
use super::fast::RUN;
use crate::config::SsdConfig;

/// The temperature this SSD always has, in kelvin.
pub(super) const COMPOSITE_KELVIN: u16 = 310;
/// WCTEMP and CCTEMP.
pub(super) const WARNING_KELVIN: u16 = 343;
pub(super) const CRITICAL_KELVIN: u16 = 353;

/// Values that can be saved: the same kind holds those in force, those saved and the defaults.
#[derive(Clone)]
pub(super) struct Values {
    pub(super) arbitration: Arbitration,
    pub(super) power: PowerManagement,
    pub(super) over_kelvin: u16,
    pub(super) under_kelvin: u16,
    /// By namespace.
    pub(super) error_recovery: Vec<ErrorRecovery>,
    pub(super) cache: VolatileWriteCache,
    pub(super) coalescing: InterruptCoalescing,
    pub(super) atomicity: WriteAtomicity,
    pub(super) events: AsyncEventConfig,
    pub(super) transitions_on: AutonomousPowerStateTransition,
    pub(super) transitions: Box<ApstTable>,
    pub(super) permissive: NonOperationalPowerStateConfig,
    /// Never saved: a reset turns it off.
    pub(super) keep_alive: KeepAliveTimer,
}

pub(super) struct Features {
    pub(super) current: Values,
    /// What a reset brings back; the defaults as long as nothing was saved.
    pub(super) saved: Values,
    default: Values,
    /// As allocated; `None` until the host has asked.
    pub(super) queues: Option<NumberOfQueues>,
    /// Advanced Command Retry: the host understands retry delays.
    pub(super) advanced_retry: bool,
    burst: u32,
}

impl Values {
    fn defaults(config: &SsdConfig) -> Self {
        let mut transitions = Box::new(ApstTable::default());
        let last = config.power_states.iter().rposition(|state| state.non_operational);
        if let (Some(idle_ms), Some(last)) = (config.apst_idle_ms, last) {
            for (entry, state) in transitions.entries.iter_mut().zip(&config.power_states) {
                if !state.non_operational {
                    *entry = ApstEntry::new(last as u8, idle_ms);
                }
            }
        }
        Self {
            arbitration: Arbitration(0).with_ab(Arbitration::NO_LIMIT),
            power: PowerManagement(0),
            over_kelvin: WARNING_KELVIN,
            under_kelvin: 0,
            error_recovery: vec![ErrorRecovery(0); config.namespaces.len()],
            cache: VolatileWriteCache(0).with_wce(config.volatile_write_cache),
            coalescing: InterruptCoalescing(0),
            atomicity: WriteAtomicity(0),
            events: AsyncEventConfig(0),
            transitions_on: AutonomousPowerStateTransition(0)
                .with_apste(config.apst_idle_ms.is_some()),
            transitions,
            permissive: NonOperationalPowerStateConfig(0),
            keep_alive: KeepAliveTimer(0),
        }
    }

    /// Critical Warning of the SMART / Health log.
    pub(super) fn critical_warning(&self) -> u8 {
        if COMPOSITE_KELVIN >= self.over_kelvin || COMPOSITE_KELVIN <= self.under_kelvin {
            critical_warning::TEMPERATURE
        } else {
            0
        }
    }
}

impl Features {
    pub(super) fn new(config: &SsdConfig) -> Self {
        let default = Values::defaults(config);
        let (current, saved) = (default.clone(), default.clone());
        Self { current, saved, default, queues: None, advanced_retry: false, burst: RUN as u32 }
    }

    /// A controller level reset: restores the saved values.
    pub(super) fn reset(&mut self) {
        self.current = self.saved.clone();
        self.queues = None;
        self.advanced_retry = false;
        self.set_arbitration(self.current.arbitration);
    }

    pub(super) fn set_arbitration(&mut self, value: Arbitration) {
        self.current.arbitration = value;
        self.burst = value.burst().unwrap_or(RUN as u32).min(RUN as u32);
    }

    /// Commands to take from one submission queue before the next has its turn.
    #[inline(always)]
    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// The greatest submission queue identifier.
    pub(super) fn max_sqs(&self, config: &SsdConfig) -> u32 {
        self.queues.map_or(u32::from(config.io_queues().0), NumberOfQueues::sq)
    }

    /// The greatest completion queue identifier.
    pub(super) fn max_cqs(&self, config: &SsdConfig) -> u32 {
        self.queues.map_or(u32::from(config.io_queues().1), NumberOfQueues::cq)
    }
}

/// A feature's capabilities; `None` if there is no such feature.
pub(super) fn capabilities(fid: u8, config: &SsdConfig) -> Option<FeatureCapabilities> {
    let changeable = FeatureCapabilities(0).with_changeable(true);
    let saveable = changeable.with_saveable(true);
    match fid {
        fid::ARBITRATION
        | fid::POWER_MANAGEMENT
        | fid::TEMPERATURE_THRESHOLD
        | fid::INTERRUPT_COALESCING
        | fid::WRITE_ATOMICITY
        | fid::ASYNC_EVENT_CONFIG => Some(saveable),
        fid::ERROR_RECOVERY => Some(saveable.with_namespace_specific(true)),
        fid::VOLATILE_WRITE_CACHE => config.volatile_write_cache.then_some(saveable),
        fid::NUMBER_OF_QUEUES
        | fid::INTERRUPT_VECTOR_CONFIG
        | fid::HOST_BEHAVIOR_SUPPORT
        | fid::KEEP_ALIVE_TIMER => Some(changeable),
        fid::AUTONOMOUS_POWER_STATE_TRANSITION | fid::NON_OPERATIONAL_POWER_STATE_CONFIG => {
            config.power_states.iter().any(|state| state.non_operational).then_some(saveable)
        }
        _ => None,
    }
}

impl Controller {
    /// Refuses a value: CDW11's, unless another field was named before.
    pub(super) fn invalid(&mut self, sqe: &Sqe, reason: &'static str) -> Status {
        if !self.is_located() {
            self.at(44, 0);
        }
        self.refuse(0, sqe.cid(), StatusCode::InvalidFieldInCommand, reason)
    }

    /// The value of namespace `nsid`. Hosts from before the feature was per namespace ask with NSID
    /// 0: for the value of all namespaces.
    fn error_recovery(&self, nsid: u32, values: &[ErrorRecovery]) -> Option<ErrorRecovery> {
        if nsid == 0 && !self.config.strict {
            let first = values.first().copied();
            return first.filter(|first| values.iter().all(|value| value.0 == first.0));
        }
        values.get((nsid as usize).wrapping_sub(1)).copied()
    }

    pub(super) fn get_features(&mut self, sqe: &Sqe, now_ns: u64) -> Result<Outcome, Status> {
        let Some(capabilities) = capabilities(sqe.fid(), &self.config) else {
            return Err(self
                .at(40, 0)
                .invalid(sqe, "Get Features: a feature this controller does not have"));
        };
        let busy = !self.pending.is_empty();
        let features = &self.features;
        let mut values = match sqe.sel() {
            sel::CURRENT => features.current.clone(),
            sel::DEFAULT => features.default.clone(),
            sel::SAVED => features.saved.clone(),
            sel::SUPPORTED_CAPABILITIES => return Ok(Outcome::dw0(capabilities.0)),
            _ => return Err(self.at(41, 0).invalid(sqe, "Get Features: a reserved Select")),
        };
        let is_current = sqe.sel() == sel::CURRENT;
        if is_current {
            values.power = self.power.current(now_ns, busy);
        }
        let cdw11 = sqe.cdw11.get();
        let value = match sqe.fid() {
            fid::ARBITRATION => values.arbitration.0,
            fid::POWER_MANAGEMENT => values.power.0,
            fid::TEMPERATURE_THRESHOLD => {
                let which = TemperatureThreshold(cdw11);
                match (which.tmpsel(), which.thsel()) {
                    (0, 0) => u32::from(values.over_kelvin),
                    (0, 1) => u32::from(values.under_kelvin),
                    _ => {
                        return Err(
                            self.invalid(sqe, "Temperature Threshold: no such sensor or type")
                        );
                    }
                }
            }
            fid::ERROR_RECOVERY => {
                match self.error_recovery(sqe.nsid.get(), &values.error_recovery) {
                    Some(value) => value.0,
                    None => return Err(self.no_namespace(sqe)),
                }
            }
            fid::VOLATILE_WRITE_CACHE => values.cache.0,
            fid::NUMBER_OF_QUEUES => {
                let (sqs, cqs) = self.config.io_queues();
                let most = NumberOfQueues::new(sqs, cqs);
                if is_current { self.features.queues.unwrap_or(most).0 } else { most.0 }
            }
            fid::INTERRUPT_COALESCING => values.coalescing.0,
            fid::INTERRUPT_VECTOR_CONFIG => {
                let iv = InterruptVectorConfig(cdw11).iv();
                match self.interrupts.coalescing_disabled(iv) {
                    Some(disabled) => {
                        let disabled = *disabled && is_current;
                        InterruptVectorConfig(0).with_iv(iv).with_cd(disabled).0
                    }
                    None => {
                        return Err(
                            self.invalid(sqe, "Interrupt Vector Configuration: no such vector")
                        );
                    }
                }
            }
            fid::WRITE_ATOMICITY => values.atomicity.0,
            fid::ASYNC_EVENT_CONFIG => values.events.0,
            fid::AUTONOMOUS_POWER_STATE_TRANSITION => {
                self.answer(sqe, values.transitions.as_bytes(), size_of::<ApstTable>())?;
                values.transitions_on.0
            }
            fid::NON_OPERATIONAL_POWER_STATE_CONFIG => values.permissive.0,
            fid::KEEP_ALIVE_TIMER => values.keep_alive.0,
            _ => {
                let data = HostBehaviorSupport::new(self.features.advanced_retry && is_current);
                self.answer(sqe, data.as_bytes(), size_of::<HostBehaviorSupport>())?;
                0
            }
        };
        Ok(Outcome::dw0(value))
    }
}
