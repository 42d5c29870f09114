//! Features of interest, with their values in words (NVMe Base 1.4 §5.21.1).

use meantime_nvme::{AdminQueries, Error};
use meantime_nvme_spec::features::{
    Arbitration, AsyncEventConfig, ErrorRecovery, InterruptCoalescing, InterruptVectorConfig,
    NumberOfQueues, PowerManagement, TemperatureThreshold, VolatileWriteCache, WriteAtomicity, fid,
};

use crate::facts::{Fact, facts};

type InWords = fn(u32) -> String;

const FEATURES: &[(u8, &str, InWords)] = &[
    (fid::ARBITRATION, "Arbitration", |dw0| {
        let value = Arbitration(dw0);
        let burst = match value.ab() {
            7 => "no limit".to_owned(),
            shift => format!("{} commands", 1u32 << shift),
        };
        let (low, medium, high) = (value.lpw(), value.mpw(), value.hpw());
        format!("burst {burst}, weights low {low} medium {medium} high {high}")
    }),
    (fid::POWER_MANAGEMENT, "Power Management", |dw0| {
        let value = PowerManagement(dw0);
        format!("power state {}, workload hint {}", value.ps(), value.wh())
    }),
    (fid::TEMPERATURE_THRESHOLD, "Temperature Threshold", |dw0| {
        super::smart::celsius(TemperatureThreshold(dw0).tmpth())
    }),
    (fid::ERROR_RECOVERY, "Error Recovery", |dw0| {
        let value = ErrorRecovery(dw0);
        let limit = match value.tler() {
            0 => "no time limit".to_owned(),
            units => format!("time limit {} ms", u32::from(units) * 100),
        };
        format!("{limit}, error on deallocated blocks {}", on_off(value.dulbe()))
    }),
    (fid::VOLATILE_WRITE_CACHE, "Volatile Write Cache", |dw0| {
        on_off(VolatileWriteCache(dw0).wce()).to_owned()
    }),
    (fid::NUMBER_OF_QUEUES, "Number of Queues", |dw0| {
        let value = NumberOfQueues(dw0);
        format!("{} submission, {} completion", value.sq(), value.cq())
    }),
    (fid::INTERRUPT_COALESCING, "Interrupt Coalescing", |dw0| {
        let value = InterruptCoalescing(dw0);
        match (value.thr(), value.time()) {
            (0, _) | (_, 0) => "off: an interrupt per completion".to_owned(),
            (threshold, time) => {
                format!("{} completions or {} µs", u32::from(threshold) + 1, u32::from(time) * 100)
            }
        }
    }),
    (fid::INTERRUPT_VECTOR_CONFIG, "Interrupt Vector Configuration", |dw0| {
        let value = InterruptVectorConfig(dw0);
        let coalescing = if value.cd() { "disabled" } else { "allowed" };
        format!("vector {}: coalescing {coalescing}", value.iv())
    }),
    (fid::WRITE_ATOMICITY, "Write Atomicity Normal", |dw0| {
        if WriteAtomicity(dw0).dn() { "only over power failures" } else { "as identified" }
            .to_owned()
    }),
    (fid::ASYNC_EVENT_CONFIG, "Asynchronous Event Configuration", |dw0| {
        let value = AsyncEventConfig(dw0);
        let changes = on_off(value.namespace_attribute());
        format!("SMART warnings {:#04x}, namespace changes {changes}", value.smart())
    }),
];

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Reads the features from `controller`; those of a namespace of namespace `nsid`.
pub(super) fn features(controller: &dyn AdminQueries, nsid: u32) -> Vec<Vec<Fact>> {
    let ask = |&(fid, name, in_words): &(u8, &'static str, InWords)| {
        let value = match fid {
            // A Get Features would leave an entry in the device's error log.
            fid::VOLATILE_WRITE_CACHE if !controller.identified().info.volatile_write_cache => {
                Err("the controller has no volatile write cache".to_owned())
            }
            // This feature is the namespace's; the others are the controller's.
            fid::ERROR_RECOVERY => get(controller, fid, nsid),
            _ => get(controller, fid, 0),
        };
        let mut facts = facts! {
            "FID", "fid": fid => format!("{fid:02x}h");
            "feature", "name": name;
        };
        match value {
            Ok(dw0) => facts.extend(facts! {
                "value", "value": dw0 => format!("{dw0:#010x}");
                "in words", "words": in_words(dw0);
            }),
            Err(error) => facts.extend(facts! { "in words", "error": error; }),
        }
        facts
    };
    FEATURES.iter().map(ask).collect()
}

fn get(controller: &dyn AdminQueries, fid: u8, nsid: u32) -> Result<u32, String> {
    controller.get_feature(fid, nsid).map_err(|error| match error {
        Error::Admin { status, .. } => format!("refused: {status}"),
        other => other.to_string(),
    })
}
