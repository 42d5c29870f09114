//! `meantime discover`: the subsystems of an NVMe/TCP target.

use std::process::ExitCode;

use meantime_block::{OpenOptions, Subsystem, SubsystemType};
use serde_json::json;

use crate::cli::DiscoverArgs;
use crate::facts::{Fact, facts, objects, table};
use crate::failure::Failure;
use crate::output;

/// Runs the command.
pub(crate) fn run(args: &DiscoverArgs) -> Result<ExitCode, Failure> {
    let uri = args.target.trim();
    let (host, found) =
        meantime_block::discover_as(uri, &OpenOptions::default()).map_err(Failure::new)?;
    let records: Vec<Vec<Fact>> = found.iter().map(record).collect();
    if args.json {
        let as_host = json!({ "nqn": host.nqn, "id": host.id_text() });
        let report = json!({ "target": uri, "host": as_host, "subsystems": objects(&records) });
        return output::end(output::json_text(&report).as_bytes());
    }
    let name = format!("This host is {}, {}.\n", host.nqn, host.id_text());
    if found.is_empty() {
        return output::end(format!("{uri} has no subsystem for this host.\n{name}").as_bytes());
    }
    output::end(format!("{}{name}", table(&records)).as_bytes())
}

/// The URI that opens it, or why it cannot be opened here.
fn uri(found: &Subsystem) -> Result<String, &'static str> {
    let Subsystem { address, service, nqn, .. } = found;
    if found.trtype != 3 {
        return Err("not by TCP");
    }
    if found.needs_secure_channel {
        return Err("needs TLS");
    }
    if nqn.is_empty() {
        return Err("no valid NQN");
    }
    if address.is_empty() {
        return Err("no address");
    }
    let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    // A record without TRSVCID means the usual port.
    let port = match (service.as_str(), found.kind) {
        ("", Some(SubsystemType::Nvm) | None) => 4420,
        ("", Some(_)) => 8009,
        (service, _) => match service.parse::<u16>() {
            Ok(port @ 1..) => port,
            _ => return Err("no valid port"),
        },
    };
    Ok(format!("nvme+tcp://{host}:{port}/{nqn}"))
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

fn record(found: &Subsystem) -> Vec<Fact> {
    let uri = uri(found);
    let device = uri.clone().unwrap_or_else(|why| format!("{} ({why})", found.nqn));
    facts! {
        "kind", "kind": kind(found);
        "transport", "transport": transport(found);
        "", "address": found.address;
        "", "service": found.service;
        "", "nqn": found.nqn;
        "", "port_id": found.port_id;
        "", "needs_secure_channel": found.needs_secure_channel;
        "device", "uri": uri.ok() => device;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_a_uri_that_opens_or_a_reason() {
        let record = |kind, address: &str, service: &str| Subsystem {
            kind: Some(kind),
            trtype: 3,
            address: address.to_owned(),
            service: service.to_owned(),
            nqn: "nqn.x".to_owned(),
            port_id: 1,
            needs_secure_channel: false,
        };
        use SubsystemType::{CurrentDiscovery, Nvm, Referral};
        for (kind, address, service, want) in [
            (Nvm, "192.0.2.7", "4421", Ok("nvme+tcp://192.0.2.7:4421/nqn.x")),
            (Nvm, "192.0.2.7", "", Ok("nvme+tcp://192.0.2.7:4420/nqn.x")),
            (Nvm, "::1", "", Ok("nvme+tcp://[::1]:4420/nqn.x")),
            (Referral, "192.0.2.7", "", Ok("nvme+tcp://192.0.2.7:8009/nqn.x")),
            (CurrentDiscovery, "192.0.2.7", "", Ok("nvme+tcp://192.0.2.7:8009/nqn.x")),
            (Nvm, "192.0.2.7", "nvme", Err("no valid port")),
            (Nvm, "192.0.2.7", "0", Err("no valid port")),
            (Nvm, "", "4420", Err("no address")),
        ] {
            let found = record(kind, address, service);
            assert_eq!(uri(&found), want.map(str::to_owned), "{found:?}");
            if let Ok(uri) = uri(&found) {
                uri.parse::<meantime_block::Uri>().unwrap();
            }
        }
        let secure = Subsystem { needs_secure_channel: true, ..record(Nvm, "192.0.2.7", "") };
        assert_eq!(uri(&secure), Err("needs TLS"));
    }
}
