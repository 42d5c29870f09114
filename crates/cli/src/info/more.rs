//! Power states, firmware slots, commands, errors, and the namespaces' identifiers.

use meantime_nvme::{AdminQueries, Error, NamespaceIds, PowerState};
use meantime_nvme_spec::opcode::{AdminOpcode, IoOpcode};
use serde_json::{Value, json};

use crate::facts::{COLUMNS, Fact, facts};
use crate::figures::wrapped;

/// Number of error log entries that are shown.
const ERRORS_SHOWN: u16 = 4;

/// Returns the answer to each query, or why it was refused. `nsid` is the opened namespace, and
/// `has_queue_classes` says how queues are arbitrated.
pub(super) fn facts(
    controller: &dyn AdminQueries,
    nsid: u32,
    has_queue_classes: bool,
) -> Vec<Fact> {
    let info = &controller.identified().info;
    let states = &info.power_states;
    let in_words: Vec<String> = states.iter().map(power_words).collect();
    let as_json: Vec<Value> = states.iter().map(power_json).collect();
    let classes = if has_queue_classes { "weighted round robin" } else { "round robin" };
    let sgls = info.sgls;
    let mut rows = facts! {
        "power states", "power_states": as_json => in_words.join("\n");
        "arbitration", "arbitration": classes;
        "SGLs", "sgls": sgls => if sgls & 3 != 0 { "supported" } else { "none" };
    };
    rows.push(asked("firmware slots", "firmware_slots", firmware(controller)));
    rows.push(asked("commands supported", "commands_supported", commands(controller)));
    rows.push(asked("error log", "error_log", errors(controller)));
    let ids = controller.namespace_ids(nsid).map(|ids| ids_words(&ids));
    rows.push(asked("opened namespace", "namespace_ids", ids));
    rows
}

/// The answer to a query as text and JSON, or the reason why it was refused.
type Answer = Result<(String, Value), Error>;

fn asked(name: &'static str, key: &'static str, answer: Answer) -> Fact {
    let (words, value) = answer.unwrap_or_else(|error| {
        let text = error.to_string();
        (text.clone(), json!({ "error": text }))
    });
    Fact::new(name, key, value, [words])
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

fn firmware(controller: &dyn AdminQueries) -> Answer {
    let log = controller.firmware_slots()?;
    let revision = |slot| log.revision(slot).map(str::trim_end).filter(|text| !text.is_empty());
    let slots: Vec<(u8, &str)> = (1..=7).filter_map(|slot| Some((slot, revision(slot)?))).collect();
    // Bits 2:0 of AFI are the active slot.
    let active = log.afi & 7;
    let runs = |slot: u8| if slot == active { " (runs)" } else { "" };
    let words: Vec<String> =
        slots.iter().map(|(slot, revision)| format!("{slot}: {revision}{}", runs(*slot))).collect();
    Ok((words.join(", "), json!({ "active": active, "slots": slots })))
}

/// Returns the supported admin and I/O commands by name, vendor-specific ones by number.
fn commands(controller: &dyn AdminQueries) -> Answer {
    let Some(log) = controller.commands_supported()? else {
        return Ok(("not told".to_owned(), Value::Null));
    };
    let name = |known: Option<&'static str>, opcode: u8| {
        known.map_or_else(|| format!("{opcode:02x}h"), ToOwned::to_owned)
    };
    let admin = (0..=u8::MAX).filter(|&opcode| log.admin_effects(opcode).csupp());
    let admin = admin.map(|op| name(AdminOpcode::try_from(op).ok().map(AdminOpcode::name), op));
    let io = (0..=u8::MAX).filter(|&opcode| log.io_effects(opcode).csupp());
    let io = io.map(|op| name(IoOpcode::try_from(op).ok().map(IoOpcode::name), op));
    let (admin, io): (Vec<_>, Vec<_>) = (admin.collect(), io.collect());
    let [of_admin, of_io] = [&admin, &io].map(|names| wrapped(&names.join(", "), COLUMNS));
    let words = format!("{of_admin};\n{of_io}");
    Ok((words, json!({ "admin": admin, "io": io })))
}

fn errors(controller: &dyn AdminQueries) -> Answer {
    let entries = controller.error_log(ERRORS_SHOWN)?;
    let words = entries.iter().map(|entry| {
        let (number, queue) = (entry.error_count.get(), entry.sqid.get());
        format!("#{number} queue {queue}: {}", entry.status())
    });
    let words: Vec<String> = words.collect();
    let text = if words.is_empty() { "empty".to_owned() } else { words.join("\n") };
    Ok((text, json!(words)))
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
