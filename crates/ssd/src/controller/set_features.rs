//! Set Features (1.4 §5.21).

use meantime_spec::features::{
    ApstTable, Arbitration, AsyncEventConfig, AutonomousPowerStateTransition, ErrorRecovery,
    HostBehaviorSupport, InterruptCoalescing, InterruptVectorConfig, KeepAliveTimer,
    NonOperationalPowerStateConfig, NumberOfQueues, PowerManagement, TemperatureThreshold,
    VolatileWriteCache, WriteAtomicity, fid,
};
use meantime_spec::log::{AsyncEventCode, critical_warning};
use meantime_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_spec::status::{Status, StatusCode};
use zerocopy::FromBytes;

use super::Controller;
use super::complete::Outcome;
use super::features::{Values, capabilities};

/// Where a value lies among others, to save it.
type Field = fn(&mut Values, &Values);

/// What saving a feature copies.
fn field(fid: u8) -> Option<Field> {
    Some(match fid {
        fid::ARBITRATION => |to, from| to.arbitration = from.arbitration,
        fid::POWER_MANAGEMENT => |to, from| to.power = from.power,
        fid::TEMPERATURE_THRESHOLD => {
            |to, from| (to.over_kelvin, to.under_kelvin) = (from.over_kelvin, from.under_kelvin)
        }
        fid::ERROR_RECOVERY => |to, from| to.error_recovery.clone_from(&from.error_recovery),
        fid::VOLATILE_WRITE_CACHE => |to, from| to.cache = from.cache,
        fid::INTERRUPT_COALESCING => |to, from| to.coalescing = from.coalescing,
        fid::WRITE_ATOMICITY => |to, from| to.atomicity = from.atomicity,
        fid::ASYNC_EVENT_CONFIG => |to, from| to.events = from.events,
        fid::AUTONOMOUS_POWER_STATE_TRANSITION => |to, from| {
            to.transitions_on = from.transitions_on;
            to.transitions.clone_from(&from.transitions);
        },
        fid::NON_OPERATIONAL_POWER_STATE_CONFIG => |to, from| to.permissive = from.permissive,
        _ => return None,
    })
}

impl Controller {
    pub(super) fn set_features(&mut self, sqe: &Sqe, now_ns: u64) -> Result<Outcome, Status> {
        let Some(capabilities) = capabilities(sqe.fid(), &self.config) else {
            return Err(self
                .at(40, 0)
                .invalid(sqe, "Set Features: a feature this controller does not have"));
        };
        let save = field(sqe.fid()).filter(|_| capabilities.saveable());
        if sqe.sv() && save.is_none() {
            let reason = "Set Features: a feature that cannot be saved";
            return Err(self.refuse(
                0,
                sqe.cid(),
                StatusCode::FeatureIdentifierNotSaveable,
                reason,
            ));
        }
        let nsid = sqe.nsid.get();
        let one = nsid != 0 && nsid != NSID_BROADCAST;
        if one && self.store.namespace(nsid).is_none() {
            return Err(self.no_namespace(sqe));
        }
        if one && !capabilities.namespace_specific() {
            let reason = "Set Features: of a namespace, though the feature is the controller's";
            return Err(self.refuse(0, sqe.cid(), StatusCode::FeatureNotNamespaceSpecific, reason));
        }
        let outcome = self.set_feature(sqe, now_ns)?;
        if let Some(save) = save.filter(|_| sqe.sv()) {
            save(&mut self.features.saved, &self.features.current);
        }
        Ok(outcome)
    }

    fn set_feature(&mut self, sqe: &Sqe, now_ns: u64) -> Result<Outcome, Status> {
        let cdw11 = sqe.cdw11.get();
        match sqe.fid() {
            fid::ARBITRATION => self.features.set_arbitration(Arbitration(cdw11)),
            fid::POWER_MANAGEMENT => {
                let value = PowerManagement(cdw11 & 0xff);
                if usize::from(value.ps()) >= self.power.state_count() {
                    return Err(self.invalid(sqe, "Power Management: a power state beyond NPSS"));
                }
                self.features.current.power = value;
                self.power.set_state(value, now_ns);
                self.choose_path();
            }
            fid::TEMPERATURE_THRESHOLD => self.set_threshold(sqe, TemperatureThreshold(cdw11))?,
            fid::ERROR_RECOVERY => {
                if ErrorRecovery(cdw11).dulbe() {
                    return Err(
                        self.invalid(sqe, "Error Recovery: DULBE, though NSFEAT does not offer it")
                    );
                }
                let value = ErrorRecovery(cdw11 & 0xffff);
                let nsid = sqe.nsid.get();
                let values = &mut self.features.current.error_recovery;
                match values.get_mut((nsid as usize).wrapping_sub(1)) {
                    Some(of_namespace) => *of_namespace = value,
                    None if nsid == NSID_BROADCAST => values.fill(value),
                    None => return Err(self.no_namespace(sqe)),
                }
            }
            fid::VOLATILE_WRITE_CACHE => {
                let value = VolatileWriteCache(cdw11 & 1);
                if !self.store.enable_cache(value.wce()) {
                    return Err(Status::from_code(StatusCode::WriteFault));
                }
                self.features.current.cache = value;
            }
            fid::NUMBER_OF_QUEUES => return self.set_number_of_queues(sqe, NumberOfQueues(cdw11)),
            fid::INTERRUPT_COALESCING => {
                self.features.current.coalescing = InterruptCoalescing(cdw11 & 0xffff);
                self.interrupts.coalescing = self.features.current.coalescing;
            }
            fid::INTERRUPT_VECTOR_CONFIG => {
                let config = InterruptVectorConfig(cdw11);
                match self.interrupts.coalescing_disabled(config.iv()) {
                    Some(disabled) => *disabled = config.cd(),
                    None => {
                        return Err(
                            self.invalid(sqe, "Interrupt Vector Configuration: no such vector")
                        );
                    }
                }
            }
            fid::WRITE_ATOMICITY => self.features.current.atomicity = WriteAtomicity(cdw11 & 1),
            fid::ASYNC_EVENT_CONFIG => {
                let was = self.features.current.events;
                self.features.current.events = AsyncEventConfig(cdw11 & 0xffff);
                if was.smart() & critical_warning::TEMPERATURE == 0 {
                    self.warn_of_temperature(0);
                }
            }
            fid::AUTONOMOUS_POWER_STATE_TRANSITION => self.set_transitions(sqe, now_ns)?,
            fid::NON_OPERATIONAL_POWER_STATE_CONFIG => {
                self.features.current.permissive = NonOperationalPowerStateConfig(cdw11 & 1);
            }
            fid::KEEP_ALIVE_TIMER => {
                self.features.current.keep_alive = KeepAliveTimer(cdw11);
                self.restart_keep_alive(now_ns);
            }
            _ => {
                let mut data = [0; size_of::<HostBehaviorSupport>()];
                self.take(sqe, &mut data)?;
                match data[0] {
                    acre @ (0 | 1) => self.features.advanced_retry = acre == 1,
                    _ => {
                        return Err(
                            self.invalid(sqe, "Host Behavior Support: ACRE is neither 0 nor 1")
                        );
                    }
                }
            }
        }
        Ok(Outcome::OK)
    }

    fn set_transitions(&mut self, sqe: &Sqe, now_ns: u64) -> Result<(), Status> {
        let mut data = [0; size_of::<ApstTable>()];
        self.take(sqe, &mut data)?;
        let Ok(table) = ApstTable::read_from_bytes(&data) else {
            return Err(Status::from_code(StatusCode::InternalError));
        };
        if !self.power.allows(&table) {
            let reason =
                "Autonomous Power State Transition: into a state that is operational, or not there";
            return Err(self.invalid(sqe, reason));
        }
        self.features.current.transitions_on = AutonomousPowerStateTransition(sqe.cdw11.get() & 1);
        *self.features.current.transitions = table;
        self.apply_transitions(now_ns);
        Ok(())
    }

    /// Puts the values of the power features in force.
    pub(super) fn apply_transitions(&mut self, now_ns: u64) {
        let values = &self.features.current;
        let table = values.transitions_on.apste().then(|| values.transitions.clone());
        self.power.set_transitions(table, now_ns);
        self.choose_path();
    }

    fn set_threshold(&mut self, sqe: &Sqe, new: TemperatureThreshold) -> Result<(), Status> {
        /// Threshold Temperature Select: all sensors.
        const ALL: u8 = 15;
        if new.tmpsel() != 0 && new.tmpsel() != ALL {
            return Err(self.invalid(sqe, "Temperature Threshold: no such sensor"));
        }
        let values = &mut self.features.current;
        let before = values.critical_warning();
        match new.thsel() {
            0 => values.over_kelvin = new.tmpth(),
            1 => values.under_kelvin = new.tmpth(),
            _ => return Err(self.invalid(sqe, "Temperature Threshold: a reserved type")),
        }
        self.warn_of_temperature(before);
        Ok(())
    }

    /// Reports a temperature that crosses a threshold, if the host asked for the event.
    fn warn_of_temperature(&mut self, before: u8) {
        let values = &self.features.current;
        let risen = values.critical_warning() & !before;
        if risen & values.events.smart() & critical_warning::TEMPERATURE != 0 {
            self.event(AsyncEventCode::TemperatureThreshold);
        }
    }

    fn set_number_of_queues(
        &mut self,
        sqe: &Sqe,
        wanted: NumberOfQueues,
    ) -> Result<Outcome, Status> {
        if wanted.nsq() == u16::MAX || wanted.ncq() == u16::MAX {
            return Err(self.invalid(sqe, "Number of Queues: FFFFh"));
        }
        // 1.4 §5.21.1.7: not after I/O queues have been created.
        if self.sqs.len() > 1 || self.cqs.iter().skip(1).any(Option::is_some) {
            let reason = "Number of Queues: there are I/O queues already";
            return Err(self.refuse(0, sqe.cid(), StatusCode::CommandSequenceError, reason));
        }
        let (sqs, cqs) = self.config.io_queues();
        let grant = |wanted: u32, most: u16| wanted.min(u32::from(most)) as u16;
        let allocated = NumberOfQueues::new(grant(wanted.sq(), sqs), grant(wanted.cq(), cqs));
        self.features.queues = Some(allocated);
        Ok(Outcome::dw0(allocated.0))
    }
}
