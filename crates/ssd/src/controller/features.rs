//! The values of the features (1.4 §5.21). None of them can be saved, so a reset restores the
//! defaults.

use std::ops::{Index, IndexMut};

use meantime_nvme_spec::features::{
    ApstEntry, ApstTable, Arbitration, AsyncEventConfig, ErrorRecovery, NumberOfQueues, fid,
};
use meantime_nvme_spec::log::critical_warning;

use super::queues::RUN;
use crate::config::SsdConfig;

/// The temperature that this SSD always has, in kelvin.
pub(super) const COMPOSITE_KELVIN: u16 = 310;
/// WCTEMP and CCTEMP.
pub(super) const WARNING_KELVIN: u16 = 343;
pub(super) const CRITICAL_KELVIN: u16 = 353;

/// One more than the greatest feature identifier.
const FIDS: usize = fid::HOST_BEHAVIOR_SUPPORT as usize + 1;

/// The current values of all features except those of interrupt vectors.
pub(super) struct Features {
    /// The values by identifier, as in DW0 of Get Features. The value of Host Behavior Support is
    /// ACRE.
    dw0: [u32; FIDS],
    pub(super) over_kelvin: u16,
    pub(super) under_kelvin: u16,
    /// The values by namespace.
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
    /// Returns the defaults.
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

    /// Returns the events that the host has enabled.
    pub(super) fn events(&self) -> AsyncEventConfig {
        AsyncEventConfig(self[fid::ASYNC_EVENT_CONFIG])
    }

    /// Returns Critical Warning of the SMART / Health log.
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

    /// Returns the number of commands taken from a submission queue before the next queue's turn.
    #[inline(always)]
    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the number of I/O queues of each kind that the host may create.
    pub(super) fn queues(&self) -> NumberOfQueues {
        NumberOfQueues(self[fid::NUMBER_OF_QUEUES])
    }
}

/// Returns whether there is feature `fid`.
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
