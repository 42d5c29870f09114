//! `meantime info`: a device's description of itself.

mod controller;
mod features;
mod more;
mod smart;

use std::process::ExitCode;

use comfy_table::{CellAlignment, Table};
use meantime_block::{NvmeDevice, OpenOptions};
use serde_json::{Value, json};

use crate::cli::InfoArgs;
use crate::failure::Failure;
use crate::figures;
use crate::output::{self, bare_table, table_lines};
use crate::signal;

/// A line of a table: its name, its text, and its JSON.
struct Fact {
    name: &'static str,
    words: String,
    key: &'static str,
    value: Value,
}

impl Fact {
    fn new(name: &'static str, words: impl ToString, key: &'static str, value: Value) -> Self {
        Self { name, words: words.to_string(), key, value }
    }
}

/// Facts: the name, the key and the value of each, and its text.
macro_rules! facts {
    ($($name:literal, $key:literal: $value:expr => $words:expr;)*) => {
        vec![$(Fact::new($name, $words, $key, serde_json::json!($value))),*]
    };
}
use facts;

/// Runs the command.
pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode, Failure> {
    let uri = args.device.trim();
    // A device that was taken from the kernel's driver is given back before the end.
    signal::catch();
    let device = meantime_block::open_nvme(uri, &OpenOptions::default())
        .map_err(|error| crate::failure::named(uri, &error))?;
    let controller =
        controller::facts(device.controller().info(), device.controller().max_queue_entries());
    let features = features::features(&device);
    let smart = smart::facts(&device);
    let more = more::facts(&device);
    let refused = |error| json!({ "error": error });
    if args.json {
        let report = json!({
            "device": uri,
            "controller": object(&controller),
            "namespaces": namespaces_json(&device),
            "features": features.iter().map(features::Feature::json).collect::<Vec<_>>(),
            "more": object(&more),
            "smart": smart.as_ref().map_or_else(refused, |facts| object(facts)),
        });
        return output::end(output::json_text(&report).as_bytes());
    }
    let mut text = format!("Controller of {uri}\n{}\n", facts_table(&controller));
    text += &format!("\nNamespaces\n{}\n", namespaces_table(&device));
    text += &format!("\nFeatures (current values)\n{}\n", features::table(&features));
    text += &format!("\nPower, firmware, commands, errors\n{}\n", facts_table(&more));
    text += &match smart {
        Ok(facts) => format!("\nHealth (SMART log)\n{}\n", facts_table(&facts)),
        Err(error) => format!("\nHealth: {error}\n"),
    };
    output::end(text.as_bytes())
}

fn object(facts: &[Fact]) -> Value {
    Value::Object(facts.iter().map(|fact| (fact.key.to_owned(), fact.value.clone())).collect())
}

fn rendered(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table_lines(&table).iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn facts_table(facts: &[Fact]) -> String {
    let mut table = bare_table();
    for fact in facts {
        table.add_row([fact.name.to_owned(), fact.words.clone()]);
    }
    rendered(table)
}

fn namespaces_table(device: &NvmeDevice) -> String {
    let mut table = bare_table();
    table.set_header([
        "NSID",
        "size",
        "blocks",
        "block",
        "in use",
        "most a command",
        "compare and write",
        "boundary",
        "usable",
    ]);
    for ns in device.controller().namespaces() {
        let boundary = match ns.optimal_boundary_blocks {
            0 => "none".to_owned(),
            blocks => format!("{blocks} blocks"),
        };
        let pair = match u64::from(ns.compare_write_blocks) {
            0 => "none".to_owned(),
            blocks => figures::bytes(blocks << ns.block_shift),
        };
        table.add_row([
            ns.nsid.to_string(),
            figures::bytes(ns.bytes()),
            ns.blocks.to_string(),
            figures::bytes(u64::from(ns.block_bytes())),
            figures::bytes(ns.used_blocks.saturating_mul(u64::from(ns.block_bytes()))),
            figures::bytes(u64::from(ns.max_blocks) << ns.block_shift),
            pair,
            boundary,
            if ns.nsid == device.namespace().nsid {
                "yes, opened".to_owned()
            } else {
                "yes".to_owned()
            },
        ]);
    }
    for (nsid, why) in device.controller().unusable_namespaces() {
        let mut row = vec![nsid.to_string()];
        row.extend(std::iter::repeat_n("–".to_owned(), 7));
        row.push(format!("no: {why}"));
        table.add_row(row);
    }
    for at in [0, 2] {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    rendered(table)
}

fn namespaces_json(device: &NvmeDevice) -> Value {
    let usable = device.controller().namespaces().iter().map(|ns| {
        json!({
            "nsid": ns.nsid,
            "usable": true,
            "opened": ns.nsid == device.namespace().nsid,
            "bytes": ns.bytes(),
            "blocks": ns.blocks,
            "block_bytes": ns.block_bytes(),
            "used_blocks": ns.used_blocks,
            "max_blocks_per_command": ns.max_blocks,
            "compare_write_blocks": ns.compare_write_blocks,
            "optimal_boundary_blocks": ns.optimal_boundary_blocks,
        })
    });
    let unusable = device.controller().unusable_namespaces().iter();
    let unusable = unusable.map(|(nsid, why)| json!({ "nsid": nsid, "usable": false, "why": why }));
    Value::Array(usable.chain(unusable).collect())
}

/// Returns the names of the set bits of `bits`, by (bit, name).
fn names_of(bits: u64, names: &[(u64, &str)]) -> String {
    let set = names.iter().filter(|(bit, _)| bits & bit != 0);
    let set: Vec<String> = set.map(|(_, name)| (*name).to_owned()).collect();
    if set.is_empty() { "none".to_owned() } else { in_lines(&set) }
}

/// Wraps a list into lines.
fn in_lines(words: &[String]) -> String {
    const COLUMNS: usize = 90;
    let mut lines = vec![String::new()];
    for (n, word) in words.iter().enumerate() {
        let part = format!("{word}{}", if n + 1 < words.len() { ", " } else { "" });
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() <= COLUMNS => {
                line.push_str(&part)
            }
            _ => lines.push(part),
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}
