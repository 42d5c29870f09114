//! `meantime discover`: the subsystems of an NVMe/TCP target.

use std::process::ExitCode;

use comfy_table::Table;
use meantime_block::{OpenOptions, Subsystem};
use serde_json::{Value, json};

use crate::cli::DiscoverArgs;
use crate::failure::Failure;
use crate::output::{self, bare_table, table_lines};

/// Runs the command.
pub(crate) fn run(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let uri = args.target.trim();
    let found = meantime_block::discover(uri, &OpenOptions::default()).map_err(Failure::new)?;
    if args.json {
        let records: Vec<Value> = found.iter().map(record).collect();
        let report = json!({ "target": uri, "subsystems": records });
        return output::end(output::json_text(&report).as_bytes());
    }
    if found.is_empty() {
        return output::end(format!("{uri} has no subsystem for this host\n").as_bytes());
    }
    output::end(format!("{}\n", table_lines(&table(&found)).join("\n")).as_bytes())
}

/// The URI that opens it; `None` if it cannot be opened here.
fn uri(found: &Subsystem) -> Option<String> {
    let Subsystem { address, service, nqn, .. } = found;
    let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    let opens = found.trtype == 3 && !nqn.is_empty() && !found.needs_secure_channel;
    opens.then(|| format!("nvme+tcp://{host}:{service}/{nqn}"))
}

fn kind(found: &Subsystem) -> &'static str {
    found.kind.map_or("unknown", |kind| kind.name())
}

fn transport(found: &Subsystem) -> String {
    match found.trtype {
        1 => "rdma".to_owned(),
        2 => "fc".to_owned(),
        3 => "tcp".to_owned(),
        other => format!("type {other}"),
    }
}

fn record(found: &Subsystem) -> Value {
    json!({
        "kind": kind(found),
        "transport": transport(found),
        "address": found.address,
        "service": found.service,
        "nqn": found.nqn,
        "port_id": found.port_id,
        "needs_secure_channel": found.needs_secure_channel,
        "uri": uri(found),
    })
}

fn table(all: &[Subsystem]) -> Table {
    let mut table = bare_table();
    table.set_header(["kind", "transport", "device"]);
    for found in all {
        let device = uri(found).unwrap_or_else(|| {
            let why = match (found.needs_secure_channel, found.trtype) {
                (true, _) => "needs TLS",
                (_, 3) => "no valid NQN",
                _ => "not by TCP",
            };
            format!("{} ({why})", found.nqn)
        });
        table.add_row([kind(found).to_owned(), transport(found), device]);
    }
    table
}
