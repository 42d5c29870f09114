//! The SMART / health log in words (NVMe Base 1.4 §5.14.1.2).

use meantime_nvme::AdminQueries;
use meantime_nvme_spec::log::critical_warning;

use crate::facts::{Fact, facts, names_of};

const WARNINGS: &[(u64, &str)] = &[
    (critical_warning::SPARE as u64, "spare below its threshold"),
    (critical_warning::TEMPERATURE as u64, "temperature beyond a threshold"),
    (critical_warning::RELIABILITY as u64, "reliability degraded"),
    (critical_warning::READ_ONLY as u64, "medium read only"),
    (critical_warning::VOLATILE_BACKUP as u64, "backup of volatile memory failed"),
    (critical_warning::PERSISTENT_MEMORY_REGION as u64, "persistent memory region unreliable"),
];

/// Formats kelvin in degrees Celsius.
pub(super) fn celsius(kelvin: u16) -> String {
    match kelvin {
        0 => "not reported".to_owned(),
        u16::MAX => "none".to_owned(),
        _ => format!("{} °C", i32::from(kelvin) - 273),
    }
}

/// Returns the log, or the controller's error.
pub(super) fn facts(controller: &dyn AdminQueries) -> Result<Vec<Fact>, String> {
    let log = controller.smart().map_err(|error| error.to_string())?;
    let kelvin = log.composite_temperature.get();
    let warning = log.critical_warning;
    // Data units are thousands of 512 bytes.
    let units = |count: u128| format!("{count} ({:.1} GB)", count as f64 * 512_000.0 / 1e9);
    let (read, written) = (log.data_units_read.get(), log.data_units_written.get());
    Ok(facts! {
        "critical warnings", "critical_warning": warning
            => names_of(u64::from(warning), WARNINGS);
        "temperature", "temperature_kelvin": kelvin => celsius(kelvin);
        "available spare", "available_spare_percent": log.available_spare
            => format!("{} % (threshold {} %)", log.available_spare, log.available_spare_threshold);
        "life used", "percentage_used": log.percentage_used
            => format!("{} %", log.percentage_used);
        "data units read", "data_units_read": number(read) => units(read);
        "data units written", "data_units_written": number(written) => units(written);
        "read commands", "host_read_commands": number(log.host_read_commands.get());
        "write commands", "host_write_commands": number(log.host_write_commands.get());
        "busy time (minutes)", "controller_busy_minutes": number(log.controller_busy_time.get());
        "power cycles", "power_cycles": number(log.power_cycles.get());
        "power-on hours", "power_on_hours": number(log.power_on_hours.get());
        "unsafe shutdowns", "unsafe_shutdowns": number(log.unsafe_shutdowns.get());
        "media errors", "media_errors": number(log.media_errors.get());
        "error log entries", "error_log_entries": number(log.error_log_entries.get());
    })
}

/// Converts `count` and saturates at 64 bits, the limit of JSON numbers. No counter reaches it.
fn number(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
