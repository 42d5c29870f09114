//! Power states, firmware slots, commands, errors, and what the namespaces are called.

use meantime_block::NvmeDevice;
use meantime_nvme::{NamespaceIds, PowerState};
use meantime_spec::log::CommandsSupportedLog;
use meantime_spec::opcode::{AdminOpcode, IoOpcode};
use serde_json::{Value, json};

use super::{Fact, in_lines};

/// How many entries of the error log are shown.
const ERRORS_SHOWN: u16 = 4;

/// What each question gave; one that was refused says so.
pub(super) fn facts(device: &NvmeDevice) -> Vec<Fact> {
    let controller = device.controller();
    let states = &controller.info().power_states;
    let in_words: Vec<String> = states.iter().map(power_words).collect();
    let as_json: Vec<Value> = states.iter().map(power_json).collect();
    let mut rows =
        vec![Fact::new("power states", in_words.join("\n"), "power_states", json!(as_json))];
    let classes =
        if controller.has_queue_classes() { "weighted round robin" } else { "round robin" };
    rows.push(Fact::new("arbitration", classes, "arbitration", json!(classes)));
    let sgls = controller.info().sgls & 3 != 0;
    rows.push(Fact::new(
        "SGLs",
        if sgls { "supported" } else { "none" },
        "sgls",
        json!(controller.info().sgls),
    ));
    rows.push(firmware(device));
    rows.push(commands(device));
    rows.push(errors(device));
    let (words, value) = match controller.namespace_ids(device.namespace().nsid) {
        Ok(ids) => ids_words(&ids),
        Err(error) => (error.to_string(), json!({ "error": error.to_string() })),
    };
    rows.push(Fact::new("opened namespace", words, "namespace_ids", value));
    rows
}

fn power_words(state: &PowerState) -> String {
    let power = match state.max_power_100uw {
        0 => "power not told".to_owned(),
        units => format!("{} W", f64::from(units) / 10_000.0),
    };
    let use_of_it = if state.operational { "" } else { ", no I/O" };
    format!("{power}, {} µs to enter, {} µs to leave{use_of_it}", state.entry_us, state.exit_us)
}

fn power_json(state: &PowerState) -> Value {
    json!({
        "max_power_100uw": state.max_power_100uw,
        "entry_us": state.entry_us,
        "exit_us": state.exit_us,
        "operational": state.operational,
    })
}

fn firmware(device: &NvmeDevice) -> Fact {
    let (words, value) = match device.controller().firmware_slots() {
        Ok(log) => {
            let slots: Vec<(u8, String)> = (1..=7)
                .filter_map(|slot| {
                    log.revision(slot).map(|revision| (slot, revision.trim_end().to_owned()))
                })
                .filter(|(_, revision)| !revision.is_empty())
                .collect();
            // AFI 2:0: the slot that runs.
            let active = log.afi & 7;
            let words: Vec<String> = slots
                .iter()
                .map(|(slot, revision)| {
                    format!("{slot}: {revision}{}", if *slot == active { " (runs)" } else { "" })
                })
                .collect();
            (words.join(", "), json!({ "active": active, "slots": slots }))
        }
        Err(error) => (error.to_string(), json!({ "error": error.to_string() })),
    };
    Fact::new("firmware slots", words, "firmware_slots", value)
}

fn commands(device: &NvmeDevice) -> Fact {
    let (words, value) = match device.controller().commands_supported() {
        Ok(Some(log)) => {
            let (admin, io) = supported(&log);
            (
                format!("{};\n{}", in_lines(&admin), in_lines(&io)),
                json!({ "admin": admin, "io": io }),
            )
        }
        Ok(None) => ("not told".to_owned(), Value::Null),
        Err(error) => (error.to_string(), json!({ "error": error.to_string() })),
    };
    Fact::new("commands supported", words, "commands_supported", value)
}

/// The names of the admin and I/O commands that are supported; a vendor's own by their numbers.
fn supported(log: &CommandsSupportedLog) -> (Vec<String>, Vec<String>) {
    let name = |known: Option<&'static str>, opcode: u8| {
        known.map_or_else(|| format!("{opcode:02x}h"), ToOwned::to_owned)
    };
    let admin = (0..=u8::MAX).filter(|&opcode| log.admin_effects(opcode).csupp());
    let io = (0..=u8::MAX).filter(|&opcode| log.io_effects(opcode).csupp());
    (
        admin
            .map(|opcode| name(AdminOpcode::try_from(opcode).ok().map(AdminOpcode::name), opcode))
            .collect(),
        io.map(|opcode| name(IoOpcode::try_from(opcode).ok().map(IoOpcode::name), opcode))
            .collect(),
    )
}

fn errors(device: &NvmeDevice) -> Fact {
    let (words, value) = match device.controller().error_log(ERRORS_SHOWN) {
        Ok(entries) if entries.is_empty() => ("empty".to_owned(), json!([])),
        Ok(entries) => {
            let words: Vec<String> = entries
                .iter()
                .map(|entry| {
                    format!(
                        "#{} queue {}: {}",
                        entry.error_count.get(),
                        entry.sqid.get(),
                        entry.status()
                    )
                })
                .collect();
            (words.join("\n"), json!(words))
        }
        Err(error) => (error.to_string(), json!({ "error": error.to_string() })),
    };
    Fact::new("error log", words, "error_log", value)
}

fn ids_words(ids: &NamespaceIds) -> (String, Value) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let named = [
        ("EUI64", ids.eui64.as_ref().map(|id| hex(id))),
        ("NGUID", ids.nguid.as_ref().map(|id| hex(id))),
        ("UUID", ids.uuid.as_ref().map(|id| hex(id))),
    ];
    let words: Vec<String> =
        named.iter().filter_map(|(name, id)| Some(format!("{name} {}", id.as_ref()?))).collect();
    let words = if words.is_empty() { "no identifiers".to_owned() } else { words.join("\n") };
    let [eui64, nguid, uuid] = named.map(|(_, id)| id);
    (words, json!({ "eui64": eui64, "nguid": nguid, "uuid": uuid }))
}
