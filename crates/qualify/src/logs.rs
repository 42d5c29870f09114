//! Log pages against the specification's rules.

use meantime_block::BlockChannel as _;
use meantime_nvme::AdminQueries as _;
use meantime_nvme_spec::identify::{IdentifyController, cns, oncs};
use meantime_nvme_spec::log::SmartLog;
use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};

use crate::identify::read;
use crate::notes::{Notes, Outcome};
use crate::subject::Subject;

const SMART: &str = "1.4 §5.14.1.2";

/// Checks the SMART log, and that its counters follow what is read.
pub(crate) fn smart(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let controller = subject.device()?.controller().clone();
    let before = controller.smart()?;
    values(&before, notes);
    let mut channel = subject.polled(1)?;
    let bytes = (1 << 20).min(subject.info().bytes() as usize);
    let mut buf = channel.alloc(bytes.min(subject.info().max_transfer_bytes as usize))?;
    // Data Units Read counts 512,000 bytes.
    for _ in 0..16 {
        buf = channel.read(0, buf)?;
    }
    let after = controller.smart()?;
    for (name, before, after) in [
        ("Data Units Read", before.data_units_read, after.data_units_read),
        ("Data Units Written", before.data_units_written, after.data_units_written),
        ("Host Read Commands", before.host_read_commands, after.host_read_commands),
        ("Host Write Commands", before.host_write_commands, after.host_write_commands),
        ("Controller Busy Time", before.controller_busy_time, after.controller_busy_time),
        ("Power Cycles", before.power_cycles, after.power_cycles),
        ("Power On Hours", before.power_on_hours, after.power_on_hours),
        ("Unsafe Shutdowns", before.unsafe_shutdowns, after.unsafe_shutdowns),
        ("Media Errors", before.media_errors, after.media_errors),
        ("Error Log Entries", before.error_log_entries, after.error_log_entries),
    ] {
        let (before, after) = (before.get(), after.get());
        notes.require(before <= after, SMART, || {
            format!("{name} went down from {before} to {after}")
        });
    }
    notes.fact("temperature", format!("{} K", after.composite_temperature.get()));
    notes.fact("used", format!("{} %", after.percentage_used));
    notes.fact("media errors", after.media_errors.get().to_string());
    notes.fact("unsafe shutdowns", after.unsafe_shutdowns.get().to_string());
    Ok(())
}

fn values(log: &SmartLog, notes: &mut Notes) {
    for (name, percent) in [
        ("Available Spare", log.available_spare),
        ("Available Spare Threshold", log.available_spare_threshold),
    ] {
        notes.require(percent <= 100, SMART, || format!("{name} is {percent} %"));
    }
    notes.require(log.critical_warning >> 6 == 0, SMART, || {
        format!("Critical Warning sets reserved bits: {:02x}h", log.critical_warning)
    });
    let is_low = log.available_spare < log.available_spare_threshold;
    notes.require(!is_low || log.critical_warning & 1 != 0, SMART, || {
        "Available Spare is below its threshold, and Critical Warning does not say so".to_owned()
    });
}

/// Checks the error log, the firmware log, and the log of supported commands.
pub(crate) fn others(subject: &mut Subject<'_>, notes: &mut Notes) -> Outcome {
    let controller = subject.device()?.controller().clone();
    let errors = controller.error_log(64)?;
    let counts: Vec<u64> = errors.iter().map(|entry| entry.error_count.get()).collect();
    notes.require(counts.is_sorted_by(|one, next| one > next), "1.4 §5.14.1.1", || {
        format!("the error log is not in decreasing order of its counts: {counts:?}")
    });
    notes.fact("entries of the error log", counts.len().to_string());
    let raw: IdentifyController = read(subject, cns::CONTROLLER, 0)?;
    let slots = controller.firmware_slots()?;
    let active = slots.afi & 7;
    notes.require((1..=7).contains(&active), "1.4 §5.14.1.3", || {
        format!("the active firmware slot is {active}: 1 to 7 exist")
    });
    let revision = slots.revision(active);
    notes.require(
        revision.is_none_or(|revision| revision == raw.firmware()),
        "1.4 §5.14.1.3",
        || {
            format!(
                "slot {active} has firmware {:?}, and Identify says {:?}",
                revision.unwrap_or_default(),
                raw.firmware()
            )
        },
    );
    let Some(commands) = controller.commands_supported()? else {
        notes.fact("commands log", "not supported");
        return Ok(());
    };
    const COMMANDS: &str = "1.4 §5.14.1.5";
    let admin = [
        AdminOpcode::Identify,
        AdminOpcode::GetLogPage,
        AdminOpcode::GetFeatures,
        AdminOpcode::SetFeatures,
        AdminOpcode::Abort,
        AdminOpcode::AsyncEventRequest,
    ];
    for opcode in admin {
        notes.require(commands.admin_effects(opcode as u8).csupp(), COMMANDS, || {
            format!("the commands log does not have {opcode}, which is mandatory")
        });
    }
    for opcode in [IoOpcode::Flush, IoOpcode::Write, IoOpcode::Read] {
        notes.require(commands.io_effects(opcode as u8).csupp(), COMMANDS, || {
            format!("the commands log does not have {opcode}, which is mandatory")
        });
    }
    for (bit, opcode) in [
        (oncs::COMPARE, IoOpcode::Compare),
        (oncs::WRITE_UNCORRECTABLE, IoOpcode::WriteUncorrectable),
        (oncs::DATASET_MANAGEMENT, IoOpcode::DatasetManagement),
        (oncs::WRITE_ZEROES, IoOpcode::WriteZeroes),
        (oncs::VERIFY, IoOpcode::Verify),
    ] {
        let (log, identify) =
            (commands.io_effects(opcode as u8).csupp(), raw.oncs.get() & bit != 0);
        notes.require(log == identify, COMMANDS, || {
            let words = |has| if has { "has" } else { "does not have" };
            format!("ONCS {} {opcode}, and the commands log {} it", words(identify), words(log))
        });
    }
    Ok(())
}
