//! Features (1.4 §5.13, §5.21).

use meantime_spec::features::{
    Arbitration, AsyncEventConfig, ErrorRecovery, InterruptCoalescing, InterruptVectorConfig, NumberOfQueues,
    PowerManagement, TemperatureThreshold, VolatileWriteCache, WriteAtomicity, fid,
};
use meantime_spec::log::{AsyncEventCode, critical_warning};
use meantime_spec::sqe::{NSID_BROADCAST, Sqe};
use meantime_spec::status::{Status, StatusCode};

use super::Controller;
use super::complete::Outcome;
use super::fast::RUN;
use crate::config::SsdConfig;

/// The temperature this SSD always has, in kelvin.
pub(super) const COMPOSITE_KELVIN: u16 = 310;
/// WCTEMP and CCTEMP.
pub(super) const WARNING_KELVIN: u16 = 343;
pub(super) const CRITICAL_KELVIN: u16 = 353;

/// Arbitration Burst 7 means no limit (1.4 §5.21.1.1).
const AB_NO_LIMIT: u8 = 7;

/// Current values. None can be saved, so that a reset brings the defaults back.
pub(super) struct Features {
    arbitration: Arbitration,
    power: PowerManagement,
    over_kelvin: u16,
    under_kelvin: u16,
    error_recovery: ErrorRecovery,
    /// As allocated; `None` until the host has asked.
    queues: Option<NumberOfQueues>,
    atomicity: WriteAtomicity,
    events: AsyncEventConfig,
    burst: u32,
}

impl Features {
    pub(super) fn new() -> Self {
        Self {
            arbitration: Arbitration(0).with_ab(AB_NO_LIMIT),
            power: PowerManagement(0),
            over_kelvin: WARNING_KELVIN,
            under_kelvin: 0,
            error_recovery: ErrorRecovery(0),
            queues: None,
            atomicity: WriteAtomicity(0),
            events: AsyncEventConfig(0),
            burst: RUN as u32,
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new();
    }

    /// Commands to take from one submission queue before the next has its turn.
    #[inline(always)]
    pub(super) fn burst(&self) -> u32 {
        self.burst
    }

    /// The greatest submission queue identifier.
    pub(super) fn max_sqs(&self, config: &SsdConfig) -> u32 {
        self.queues.map_or(u32::from(config.max_io_queues), NumberOfQueues::sq)
    }

    /// The greatest completion queue identifier.
    pub(super) fn max_cqs(&self, config: &SsdConfig) -> u32 {
        self.queues.map_or(u32::from(config.max_io_queues), NumberOfQueues::cq)
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

impl Controller {
    fn invalid(&mut self, sqe: &Sqe, reason: &'static str) -> Status {
        self.refuse(0, sqe.cid(), StatusCode::InvalidFieldInCommand, reason)
    }

    pub(super) fn get_features(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        if sqe.sel() != 0 {
            return Err(self.invalid(sqe, "Get Features: Select, though ONCS does not offer it"));
        }
        let cdw11 = sqe.cdw11.get();
        let value = match sqe.fid() {
            fid::ARBITRATION => self.features.arbitration.0,
            fid::POWER_MANAGEMENT => self.features.power.0,
            fid::TEMPERATURE_THRESHOLD => {
                let which = TemperatureThreshold(cdw11);
                match (which.tmpsel(), which.thsel()) {
                    (0, 0) => u32::from(self.features.over_kelvin),
                    (0, 1) => u32::from(self.features.under_kelvin),
                    _ => return Err(self.invalid(sqe, "Temperature Threshold: no such sensor or type")),
                }
            }
            fid::ERROR_RECOVERY => {
                if self.store.namespace(sqe.nsid.get()).is_none() {
                    let reason = "no such namespace";
                    return Err(self.refuse(0, sqe.cid(), StatusCode::InvalidNamespaceOrFormat, reason));
                }
                self.features.error_recovery.0
            }
            fid::VOLATILE_WRITE_CACHE if self.store.has_cache() => {
                VolatileWriteCache(0).with_wce(self.store.cache_enabled()).0
            }
            fid::NUMBER_OF_QUEUES => {
                let max = self.config.max_io_queues;
                self.features.queues.unwrap_or(NumberOfQueues::new(max, max)).0
            }
            fid::INTERRUPT_COALESCING => self.interrupts.coalescing.0,
            fid::INTERRUPT_VECTOR_CONFIG => {
                let iv = InterruptVectorConfig(cdw11).iv();
                match self.interrupts.coalescing_disabled(iv) {
                    Some(disabled) => InterruptVectorConfig(0).with_iv(iv).with_cd(*disabled).0,
                    None => return Err(self.invalid(sqe, "Interrupt Vector Configuration: no such vector")),
                }
            }
            fid::WRITE_ATOMICITY => self.features.atomicity.0,
            fid::ASYNC_EVENT_CONFIG => self.features.events.0,
            _ => return Err(self.invalid(sqe, "Get Features: a feature this controller does not have")),
        };
        Ok(Outcome::dw0(value))
    }

    pub(super) fn set_features(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        let cdw11 = sqe.cdw11.get();
        let known = matches!(sqe.fid(), fid::ARBITRATION..=fid::ASYNC_EVENT_CONFIG)
            && sqe.fid() != fid::LBA_RANGE_TYPE
            && (sqe.fid() != fid::VOLATILE_WRITE_CACHE || self.store.has_cache());
        if !known {
            return Err(self.invalid(sqe, "Set Features: a feature this controller does not have"));
        }
        if sqe.sv() {
            let reason = "Set Features: nothing can be saved";
            return Err(self.refuse(0, sqe.cid(), StatusCode::FeatureIdentifierNotSaveable, reason));
        }
        match sqe.fid() {
            fid::ARBITRATION => {
                self.features.arbitration = Arbitration(cdw11);
                let ab = self.features.arbitration.ab();
                let burst = if ab == AB_NO_LIMIT { RUN as u32 } else { 1 << ab };
                self.features.burst = burst.min(RUN as u32);
            }
            fid::POWER_MANAGEMENT => {
                if PowerManagement(cdw11).ps() != 0 {
                    return Err(self.invalid(sqe, "Power Management: there is only power state 0"));
                }
                self.features.power = PowerManagement(cdw11);
            }
            fid::TEMPERATURE_THRESHOLD => self.set_threshold(sqe, TemperatureThreshold(cdw11))?,
            fid::ERROR_RECOVERY => {
                let nsid = sqe.nsid.get();
                if nsid != NSID_BROADCAST && self.store.namespace(nsid).is_none() {
                    let reason = "no such namespace";
                    return Err(self.refuse(0, sqe.cid(), StatusCode::InvalidNamespaceOrFormat, reason));
                }
                if ErrorRecovery(cdw11).dulbe() {
                    return Err(self.invalid(sqe, "Error Recovery: DULBE, though NSFEAT does not offer it"));
                }
                self.features.error_recovery = ErrorRecovery(cdw11 & 0xffff);
            }
            fid::VOLATILE_WRITE_CACHE => {
                if !self.store.enable_cache(VolatileWriteCache(cdw11).wce()) {
                    return Err(Status::from_code(StatusCode::WriteFault));
                }
            }
            fid::NUMBER_OF_QUEUES => return self.set_number_of_queues(sqe, NumberOfQueues(cdw11)),
            fid::INTERRUPT_COALESCING => self.interrupts.coalescing = InterruptCoalescing(cdw11 & 0xffff),
            fid::INTERRUPT_VECTOR_CONFIG => {
                let config = InterruptVectorConfig(cdw11);
                match self.interrupts.coalescing_disabled(config.iv()) {
                    Some(disabled) => *disabled = config.cd(),
                    None => return Err(self.invalid(sqe, "Interrupt Vector Configuration: no such vector")),
                }
            }
            fid::WRITE_ATOMICITY => self.features.atomicity = WriteAtomicity(cdw11 & 1),
            _ => {
                let was = self.features.events;
                self.features.events = AsyncEventConfig(cdw11 & 0xffff);
                if was.smart() & critical_warning::TEMPERATURE == 0 {
                    self.warn_of_temperature(0);
                }
            }
        }
        Ok(Outcome::OK)
    }

    fn set_threshold(&mut self, sqe: &Sqe, new: TemperatureThreshold) -> Result<(), Status> {
        /// Threshold Temperature Select: all sensors.
        const ALL: u8 = 15;
        if new.tmpsel() != 0 && new.tmpsel() != ALL {
            return Err(self.invalid(sqe, "Temperature Threshold: no such sensor"));
        }
        let before = self.features.critical_warning();
        match new.thsel() {
            0 => self.features.over_kelvin = new.tmpth(),
            1 => self.features.under_kelvin = new.tmpth(),
            _ => return Err(self.invalid(sqe, "Temperature Threshold: a reserved type")),
        }
        self.warn_of_temperature(before);
        Ok(())
    }

    /// Reports a temperature beyond a threshold, if it was not so before and the host wants to know.
    fn warn_of_temperature(&mut self, before: u8) {
        let risen = self.features.critical_warning() & !before;
        if risen & self.features.events.smart() & critical_warning::TEMPERATURE != 0 {
            self.event(AsyncEventCode::TemperatureThreshold);
        }
    }

    fn set_number_of_queues(&mut self, sqe: &Sqe, wanted: NumberOfQueues) -> Result<Outcome, Status> {
        if wanted.nsq() == u16::MAX || wanted.ncq() == u16::MAX {
            return Err(self.invalid(sqe, "Number of Queues: FFFFh"));
        }
        // 1.4 §5.21.1.7: not after I/O queues have been created.
        if self.sqs.len() > 1 || self.cqs.iter().skip(1).any(Option::is_some) {
            let reason = "Number of Queues: there are I/O queues already";
            return Err(self.refuse(0, sqe.cid(), StatusCode::CommandSequenceError, reason));
        }
        let max = u32::from(self.config.max_io_queues);
        let allocated = NumberOfQueues::new(wanted.sq().min(max) as u16, wanted.cq().min(max) as u16);
        self.features.queues = Some(allocated);
        Ok(Outcome::dw0(allocated.0))
    }
}
