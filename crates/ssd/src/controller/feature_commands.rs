//! Executes Get Features and Set Features (1.4 §5.13, §5.21).

use meantime_nvme_spec::features::{
    ApstTable, ErrorRecovery, HostBehaviorSupport, InterruptCoalescing, InterruptVectorConfig,
    NumberOfQueues, PowerManagement, TemperatureThreshold, fid, sel,
};
use meantime_nvme_spec::log::{AsyncEventCode, critical_warning};
use meantime_nvme_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_nvme_spec::status::StatusCode;
use zerocopy::IntoBytes as _;

use super::Controller;
use super::features::has_feature;
use super::io::check_stored;
use super::outcome::{Checked, Outcome, invalid_field, invalid_if, no_such_namespace, refuse_if};

/// Returns the bits of CDW11 that are the value of feature `fid`.
fn mask(fid: u8) -> u32 {
    match fid {
        fid::ARBITRATION | fid::KEEP_ALIVE_TIMER => u32::MAX,
        fid::POWER_MANAGEMENT => 0xff,
        fid::ERROR_RECOVERY | fid::INTERRUPT_COALESCING | fid::ASYNC_EVENT_CONFIG => 0xffff,
        _ => 1,
    }
}

impl Controller {
    /// Returns the value of namespace `nsid`. Hosts written before the feature became per-namespace
    /// ask with NSID 0, which returns the common value of all namespaces.
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
        let unknown = !has_feature(fid, &self.config);
        invalid_if(unknown, "Get Features: a feature this controller does not have")?;
        let selects = sqe.sel() != sel::CURRENT;
        invalid_if(selects, "Get Features: Select, though ONCS does not offer it")?;
        let cdw11 = sqe.cdw11.get();
        let value = match fid {
            fid::POWER_MANAGEMENT => self.power.current(now_ns, !self.pending.is_empty()).0,
            fid::TEMPERATURE_THRESHOLD => {
                let which = TemperatureThreshold(cdw11);
                match (which.tmpsel(), which.thsel()) {
                    (0, 0) => self.features.over_kelvin.into(),
                    (0, 1) => self.features.under_kelvin.into(),
                    _ => {
                        return Err(invalid_field("Temperature Threshold: no such sensor or type"));
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

    /// Returns Coalescing Disable of interrupt vector `iv`.
    pub(super) fn coalescing_disabled(&mut self, iv: u16) -> Checked<&mut bool> {
        let none = || invalid_field("Interrupt Vector Configuration: no such vector");
        self.interrupts.coalescing_disabled(iv).ok_or_else(none)
    }

    pub(super) fn set_features(&mut self, sqe: &Sqe, now_ns: u64) -> Checked {
        let (fid, nsid) = (sqe.fid(), sqe.nsid.get());
        let unknown = !has_feature(fid, &self.config);
        invalid_if(unknown, "Set Features: a feature this controller does not have")?;
        let rule = "Set Features: a feature that cannot be saved";
        refuse_if(sqe.sv(), StatusCode::FeatureIdentifierNotSaveable, rule)?;
        let one = nsid != 0 && nsid != NSID_BROADCAST;
        if one && self.store.namespace(nsid).is_none() {
            return Err(no_such_namespace());
        }
        let common = one && fid != fid::ERROR_RECOVERY;
        let rule = "Set Features: of a namespace, though the feature is the controller's";
        refuse_if(common, StatusCode::FeatureNotNamespaceSpecific, rule)?;
        let cdw11 = sqe.cdw11.get();
        let mut value = cdw11 & mask(fid);
        match fid {
            fid::POWER_MANAGEMENT if !self.power.has_state(PowerManagement(value).ps()) => {
                return Err(invalid_field("Power Management: a power state beyond NPSS"));
            }
            fid::TEMPERATURE_THRESHOLD => self.set_threshold(TemperatureThreshold(cdw11))?,
            fid::ERROR_RECOVERY => self.set_error_recovery(sqe, ErrorRecovery(cdw11))?,
            fid::VOLATILE_WRITE_CACHE => {
                check_stored(sqe, self.store.enable_cache(value == 1))?;
            }
            fid::NUMBER_OF_QUEUES => value = self.number_of_queues(NumberOfQueues(cdw11))?.0,
            fid::INTERRUPT_VECTOR_CONFIG => {
                let config = InterruptVectorConfig(cdw11);
                *self.coalescing_disabled(config.iv())? = config.cd();
            }
            fid::AUTONOMOUS_POWER_STATE_TRANSITION => self.set_transitions(sqe)?,
            fid::HOST_BEHAVIOR_SUPPORT => {
                let mut data = [0; size_of::<HostBehaviorSupport>()];
                self.take(sqe, &mut data)?;
                invalid_if(data[0] > 1, "Host Behavior Support: ACRE is neither 0 nor 1")?;
                value = data[0].into();
            }
            _ => {}
        }
        let events = self.features.events();
        self.features[fid] = value;
        match fid {
            fid::ARBITRATION => self.features.apply_arbitration(),
            fid::POWER_MANAGEMENT => {
                self.power.set_state(PowerManagement(value), now_ns);
                self.choose_path();
            }
            fid::NUMBER_OF_QUEUES => return Ok(Outcome::dw0(value)),
            fid::INTERRUPT_COALESCING => self.interrupts.coalescing = InterruptCoalescing(value),
            fid::ASYNC_EVENT_CONFIG if events.smart() & critical_warning::TEMPERATURE == 0 => {
                self.warn_of_temperature(0);
            }
            fid::AUTONOMOUS_POWER_STATE_TRANSITION => self.apply_transitions(now_ns),
            fid::KEEP_ALIVE_TIMER => self.restart_keep_alive(now_ns),
            _ => {}
        }
        Ok(Outcome::OK)
    }

    fn set_error_recovery(&mut self, sqe: &Sqe, value: ErrorRecovery) -> Checked<()> {
        invalid_if(value.dulbe(), "Error Recovery: DULBE, though NSFEAT does not offer it")?;
        let value = ErrorRecovery(value.0 & mask(fid::ERROR_RECOVERY));
        let nsid = sqe.nsid.get();
        let values = &mut self.features.error_recovery;
        match values.get_mut((nsid as usize).wrapping_sub(1)) {
            Some(of_namespace) => *of_namespace = value,
            None if nsid == NSID_BROADCAST => values.fill(value),
            None => return Err(no_such_namespace()),
        }
        Ok(())
    }

    fn set_transitions(&mut self, sqe: &Sqe) -> Checked<()> {
        let mut table = ApstTable::default();
        self.take(sqe, table.as_mut_bytes())?;
        let rule =
            "Autonomous Power State Transition: into a state that is operational, or not there";
        invalid_if(!self.power.allows(&table), rule)?;
        *self.features.transitions = table;
        Ok(())
    }

    fn set_threshold(&mut self, new: TemperatureThreshold) -> Checked<()> {
        /// This value of Threshold Temperature Select means all sensors.
        const ALL: u8 = 15;
        invalid_if(!matches!(new.tmpsel(), 0 | ALL), "Temperature Threshold: no such sensor")?;
        let values = &mut self.features;
        let before = values.critical_warning();
        match new.thsel() {
            0 => values.over_kelvin = new.tmpth(),
            1 => values.under_kelvin = new.tmpth(),
            _ => return Err(invalid_field("Temperature Threshold: a reserved type")),
        }
        self.warn_of_temperature(before);
        Ok(())
    }

    /// Reports a temperature that crosses a threshold, if the host enabled the event.
    fn warn_of_temperature(&mut self, before: u8) {
        let values = &self.features;
        let risen = values.critical_warning() & !before;
        if risen & values.events().smart() & critical_warning::TEMPERATURE != 0 {
            self.event(AsyncEventCode::TemperatureThreshold);
        }
    }

    /// Returns the number of queues granted to a host that asks for `wanted`.
    fn number_of_queues(&self, wanted: NumberOfQueues) -> Checked<NumberOfQueues> {
        let beyond = wanted.nsq() == u16::MAX || wanted.ncq() == u16::MAX;
        invalid_if(beyond, "Number of Queues: FFFFh")?;
        // Set Features is not allowed after I/O queues have been created (1.4 §5.21.1.7).
        let rule = "Number of Queues: there are I/O queues already";
        refuse_if(self.has_io_queues(), StatusCode::CommandSequenceError, rule)?;
        let (sqs, cqs) = self.config.io_queues();
        let grant = |wanted: u32, most: u16| wanted.min(u32::from(most)) as u16;
        Ok(NumberOfQueues::new(grant(wanted.sq(), sqs), grant(wanted.cq(), cqs)))
    }
}
