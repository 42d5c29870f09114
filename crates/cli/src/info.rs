//! `meantime info`: a device's description of itself.

mod controller;
mod features;
mod more;
mod smart;

use std::process::ExitCode;

use meantime_block::{BlockDevice as _, NvmeDevice, OpenOptions, Queried};
use meantime_nvme::Identified;
use serde_json::{Value, json};

use crate::cli::InfoArgs;
use crate::facts::{Fact, facts, object, objects, rows, table};
use crate::failure::Failure;
use crate::figures;
use crate::output;
use crate::partitions::{self, Content};
use crate::signal;

/// Runs the command.
pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode, Failure> {
    let uri = args.device.trim();
    // A device that was taken from the kernel's driver is given back before the end.
    signal::catch();
    let Queried { device, controller, nsid } =
        meantime_block::open_queried(uri, &OpenOptions::default())
            .map_err(|error| crate::failure::named(uri, &error))?;
    let asked = &*controller;
    let ours = device.as_nvme().map(NvmeDevice::controller);
    let controller =
        controller::facts(&asked.identified().info, ours.map(|ours| ours.max_queue_entries()));
    let features = features::features(asked, nsid);
    let smart = smart::facts(asked);
    // The kernel's driver uses no other arbitration than round robin.
    let more = more::facts(asked, nsid, ours.is_some_and(|ours| ours.has_queue_classes()));
    let namespaces = namespaces(asked.identified(), nsid);
    let block_bytes = device.info().block_bytes;
    let partitions = partitions::contents(&device);
    // Without a table the device itself may hold something.
    let held = match &partitions {
        Ok(None) => meantime_block::signature(&device).ok().flatten(),
        _ => None,
    }
    .map(|found| partitions::held(&found));
    let of_all = |contents: &[Content]| -> Vec<_> {
        contents.iter().map(|content| content.facts(block_bytes)).collect()
    };
    if args.json {
        let refused = |error: &String| json!({ "error": error });
        let report = json!({
            "device": uri,
            "controller": object(&controller),
            "namespaces": objects(&namespaces),
            "partitions": match &partitions {
                Ok(Some((table, contents))) => json!({
                    "table": table.kind.to_string(),
                    "id": table.id,
                    "remarks": table.remarks,
                    "partitions": objects(&of_all(contents)),
                }),
                Ok(None) => Value::Null,
                Err(error) => refused(&error.to_string()),
            },
            "holds": held.as_ref().map(|held| object(held)),
            "features": objects(&features),
            "more": object(&more),
            "smart": smart.as_ref().map_or_else(refused, |facts| object(facts)),
        });
        return output::end(output::json_text(&report).as_bytes());
    }
    let mut text = format!("Controller of {uri}\n{}", rows(&controller));
    text += &format!("\nNamespaces\n{}", table(&namespaces));
    text += &match &partitions {
        Ok(Some((found, contents))) => {
            let remarks = found.remarks.iter().map(|remark| format!("  {remark}\n"));
            let list = table(&of_all(contents));
            format!("\nPartitions ({})\n{list}{}", found.kind, remarks.collect::<String>())
        }
        Ok(None) => {
            held.map_or_else(String::new, |held| format!("\nOn the whole of it\n{}", rows(&held)))
        }
        Err(error) => format!("\nPartitions: {error}\n"),
    };
    text += &format!("\nFeatures (current values)\n{}", table(&features));
    text += &format!("\nPower, firmware, commands, errors\n{}", rows(&more));
    text += &match smart {
        Ok(facts) => format!("\nHealth (SMART log)\n{}", rows(&facts)),
        Err(error) => format!("\nHealth: {error}\n"),
    };
    output::end(text.as_bytes())
}

/// The namespaces, also those that cannot be used.
fn namespaces(identified: &Identified, opened: u32) -> Vec<Vec<Fact>> {
    let blocks_of = |blocks: u32| match blocks {
        0 => "none".to_owned(),
        1 => "1 block".to_owned(),
        blocks => format!("{blocks} blocks"),
    };
    let usable = identified.namespaces.iter().map(|ns| {
        let (block_bytes, opened) = (u64::from(ns.block_bytes()), ns.nsid == opened);
        facts! {
            "NSID", "nsid": ns.nsid;
            "size", "bytes": ns.bytes() => figures::bytes(ns.bytes());
            "blocks", "blocks": ns.blocks;
            "block", "block_bytes": block_bytes => figures::bytes(block_bytes);
            "in use", "used_blocks": ns.used_blocks
                => figures::bytes(ns.used_blocks.saturating_mul(block_bytes));
            "most a command", "max_blocks_per_command": ns.max_blocks
                => figures::bytes(u64::from(ns.max_blocks) << ns.block_shift);
            "compare and write", "compare_write_blocks": ns.compare_write_blocks
                => blocks_of(ns.compare_write_blocks);
            "boundary", "optimal_boundary_blocks": ns.optimal_boundary_blocks
                => blocks_of(ns.optimal_boundary_blocks);
            "usable", "usable": true => if opened { "yes, opened" } else { "yes" };
            "", "opened": opened;
        }
    });
    let unusable = identified.unusable.iter().map(|(nsid, why)| {
        facts! {
            "NSID", "nsid": nsid;
            "usable", "usable": false => format!("no: {why}");
            "", "why": why.to_string();
        }
    });
    usable.chain(unusable).collect()
}
