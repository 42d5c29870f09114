//! Features (1.4 §5.13, §5.21): their values, and Get Features. None can be saved: a reset restores
//! the defaults.

use std::ops::{Index, IndexMut};

use meantime_spec::features::{
    ApstEntry, ApstTable, Arbitration, AsyncEventConfig, ErrorRecovery, HostBehaviorSupport,
    InterruptVectorConfig, NumberOfQueues, TemperatureThreshold, fid, sel,
};
use meantime_spec::log::critical_warning;
use meantime_spec::sqe::Sqe;
use zerocopy::IntoBytes;

use super::Controller;
use super::complete::Outcome;
use super::failure::{Checked, invalid_field, no_such_namespace};
use super::fast::RUN;
use crate::config::SsdConfig;

/// The temperature this SSD always has, in kelvin.
pub(super) const COMPOSITE_KELVIN: u16 = 310;
/// WCTEMP and CCTEMP.
pub(super) const WARNING_KELVIN: u16 = 343;
pub(super) const CRITICAL_KELVIN: u16 = 353;

/// One more than the greatest feature identifier.
const FIDS: usize = fid::HOST_BEHAVIOR_SUPPORT as usize + 1;

/// The current values of all features except those of interrupt vectors.
pub(super) struct Features {
    /// By identifier, as in DW0 of Get Features. For Host Behavior Support: ACRE.
    dw0: [u32; FIDS],
    pub(super) over_kelvin: u16,
    pub(super) under_kelvin: u16,
    /// By namespace.
    pub(super) error_recovery: Vec<ErrorRecovery>,
    pub(super) transitions: Box<ApstTable>,
    burst: u32,
}

/// The value of the feature with this identifier.
impl Index<u8> for Features {
    type Output = u32;

    fn index(&self, fid: u8) -> &u32 {
        &self.dw0[usize::from(fid)]
    }
}

impl IndexMut<u8> for Features {
    fn index_mut(&mut self, fid: u8) -> &mut u32 {
        &mut self.dw0[usize::from(fid)]
    }
}

impl Features {
    /// The defaults.
    pub(super) fn new(config: &SsdConfig) -> Self {
        let mut transitions = Box::new(ApstTable::default());
        let last = config.power_states.iter().rposition(|state| state.non_operational);
        if let (Some(idle_ms), Some(last)) = (config.apst_idle_ms, last) {
            for (entry, state) in transitions.entries.iter_mut().zip(&config.power_states) {
                if !state.non_operational {
                    *entry = ApstEntry::new(last as u8, idle_ms);
                }
            }
        }
        let mut values = Self {
            dw0: [0; FIDS],
            over_kelvin: WARNING_KELVIN,
            under_kelvin: 0,
            error_recovery: vec![ErrorRecovery(0); config.namespaces.len()],
            transitions,
            burst: RUN as u32,
        };
        let (sqs, cqs) = config.io_queues();
        values[fid::NUMBER_OF_QUEUES] = NumberOfQueues::new(sqs, cqs).0;
        values[fid::ARBITRATION] = Arbitration(0).with_ab(Arbitration::NO_LIMIT).0;
        values[fid::VOLATILE_WRITE_CACHE] = config.volatile_write_cache.into();
        values[fid::AUTONOMOUS_POWER_STATE_TRANSITION] = config.apst_idle_ms.is_some().into();
        values
    }

    /// The events that the host has enabled.
    pub(super) fn events(&self) -> AsyncEventConfig {
        AsyncEventConfig(self[fid::ASYNC_EVENT_CONFIG])
    }

    /// Critical Warning of the SMART / Health log.
    pub(super) fn critical_warning(&self) -> u8 {
        if COMPOSITE_KELVIN >= self.over_kelvin || COMPOSITE_KELVIN <= self.under_kelvin {
            critical_warning::TEMPERATURE
        } else {
            0
        }
    }
    pub(super) fn apply_arbitration(&mut self) {
        self.burst = self.arbitration().burst().unwrap_or(RUN as u32).min(RUN as u32);
    }

    pub(super) fn arbitration(&self) -> Arbitration {
        Arbitration(self[fid::ARBITRATION])
    }

    /// The number of commands taken from a submission queue before the next queue's turn.
    #[inline(always)]
    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// The number of I/O queues of each kind that the host may create.
    pub(super) fn queues(&self) -> NumberOfQueues {
        NumberOfQueues(self[fid::NUMBER_OF_QUEUES])
    }
}

/// Whether there is feature `fid`.
pub(super) fn has_feature(fid: u8, config: &SsdConfig) -> bool {
    match fid {
        fid::ARBITRATION
        | fid::POWER_MANAGEMENT
        | fid::TEMPERATURE_THRESHOLD
        | fid::ERROR_RECOVERY
        | fid::NUMBER_OF_QUEUES
        | fid::INTERRUPT_COALESCING
        | fid::INTERRUPT_VECTOR_CONFIG
        | fid::WRITE_ATOMICITY
        | fid::ASYNC_EVENT_CONFIG
        | fid::KEEP_ALIVE_TIMER
        | fid::HOST_BEHAVIOR_SUPPORT => true,
        fid::VOLATILE_WRITE_CACHE => config.volatile_write_cache,
        fid::AUTONOMOUS_POWER_STATE_TRANSITION | fid::NON_OPERATIONAL_POWER_STATE_CONFIG => {
            config.power_states.iter().any(|state| state.non_operational)
        }
        _ => false,
    }
}

impl Controller {
    /// The value of namespace `nsid`. Hosts written before the feature became per-namespace ask
    /// with NSID 0: it returns the common value of all namespaces.
    fn error_recovery(&self, nsid: u32) -> Option<ErrorRecovery> {
        let values = &self.features.error_recovery;
        if nsid == 0 && !self.config.strict {
            let first = values.first().copied();
            return first.filter(|first| values.iter().all(|value| value.0 == first.0));
        }
        values.get((nsid as usize).wrapping_sub(1)).copied()
    }

    pub(super) fn get_features(&mut self, sqe: &Sqe, now_ns: u64) -> Checked {
        let fid = sqe.fid();
        if !has_feature(fid, &self.config) {
            let rule = "Get Features: a feature this controller does not have";
            return Err(invalid_field(rule));
        }
        if sqe.sel() != sel::CURRENT {
            let rule = "Get Features: Select, though ONCS does not offer it";
            return Err(invalid_field(rule));
        }
        let cdw11 = sqe.cdw11.get();
        let value = match fid {
            fid::POWER_MANAGEMENT => self.power.current(now_ns, !self.pending.is_empty()).0,
            fid::TEMPERATURE_THRESHOLD => {
                let which = TemperatureThreshold(cdw11);
                match (which.tmpsel(), which.thsel()) {
                    (0, 0) => self.features.over_kelvin.into(),
                    (0, 1) => self.features.under_kelvin.into(),
                    _ => {
                        let rule = "Temperature Threshold: no such sensor or type";
                        return Err(invalid_field(rule));
                    }
                }
            }
            fid::ERROR_RECOVERY => {
                self.error_recovery(sqe.nsid.get()).ok_or_else(no_such_namespace)?.0
            }
            fid::INTERRUPT_VECTOR_CONFIG => {
                let iv = InterruptVectorConfig(cdw11).iv();
                let disabled = *self.coalescing_disabled(iv)?;
                InterruptVectorConfig(0).with_iv(iv).with_cd(disabled).0
            }
            fid::AUTONOMOUS_POWER_STATE_TRANSITION => {
                let table = self.features.transitions.clone();
                self.answer(sqe, table.as_bytes(), size_of::<ApstTable>())?;
                self.features[fid]
            }
            fid::HOST_BEHAVIOR_SUPPORT => {
                let data = HostBehaviorSupport::new(self.features[fid] == 1);
                self.answer(sqe, data.as_bytes(), size_of::<HostBehaviorSupport>())?;
                0
            }
            fid => self.features[fid],
        };
        Ok(Outcome::dw0(value))
    }

    /// Coalescing Disable of interrupt vector `iv`.
    pub(super) fn coalescing_disabled(&mut self, iv: u16) -> Checked<&mut bool> {
        let none = || invalid_field("Interrupt Vector Configuration: no such vector");
        self.interrupts.coalescing_disabled(iv).ok_or_else(none)
    }
}
