//! The known facts of the controllers, as JSON and for the table.

use meantime_block::{Access, BlockDevice as _, OpenOptions};
use meantime_hw::pci::{KernelDisk, NvmeFunction, Repaired, UseKind};
use serde_json::{Value, json};

use super::table;
use crate::facts::{Fact, facts, object, objects};
use crate::partitions::{contents, held};

/// Returns everything that is known.
pub(super) fn report(functions: &[NvmeFunction], repaired: Option<&[Repaired]>) -> Value {
    let devices: Vec<_> = functions.iter().map(of).collect();
    let mut report = json!({ "devices": objects(&devices) });
    if let Some(repaired) = repaired {
        report["repaired"] = repaired.iter().map(repair).collect();
    }
    report
}

/// Returns what is known of a controller.
pub(super) fn of(function: &NvmeFunction) -> Vec<Fact> {
    let group = function.group.as_ref().map(|group| {
        json!({
            "number": group.number,
            "no_iommu": group.no_iommu,
            "others": group.others.iter().map(|other| json!({
                "address": other.address.to_string(),
                "class": other.class,
                "driver": other.driver,
                "in_the_way": other.is_in_the_way(),
            })).collect::<Vec<_>>(),
        })
    });
    let uses = function.uses.iter().map(|one| {
        json!({
            "device": one.device,
            "kind": kind(&one.kind),
            "what": one.kind.to_string(),
            "forbids": one.forbids(),
        })
    });
    facts! {
        "address", "address": function.address.to_string();
        "name", "name": function.controller;
        "model", "model": function.model => table::model(function);
        "size", "bytes": function.bytes() => table::size(function);
        "driver", "driver": function.driver => function.driver.as_deref().unwrap_or("none");
        "IOMMU group", "iommu_group": group => table::group(function);
        "used by", "uses": uses.collect::<Value>() => table::used_by(function);
        "", "vendor_id": function.vendor_id;
        "", "device_id": function.device_id;
        "", "serial": function.serial;
        "", "firmware": function.firmware;
        "", "driver_override": function.driver_override;
        "", "numa_node": function.numa_node;
        "", "pcie_link": function.link;
        "", "disks": function.disks;
        "", "partitions": on_disks(function).iter().map(|(disk, content)| match content {
            OnDisk::Partitions(all) => json!({ "disk": disk, "partitions": objects(all) }),
            OnDisk::Whole(held) => json!({ "disk": disk, "holds": object(held) }),
        }).collect::<Value>();
        "", "taker": function.taker;
    }
}

/// What lies on a disk.
pub(super) enum OnDisk {
    /// The facts of each partition.
    Partitions(Vec<Vec<Fact>>),
    /// The facts of what lies on all of it, without a partition table.
    Whole(Vec<Fact>),
}

/// What lies on the controller's disks that the kernel has, and this process may read.
pub(super) fn on_disks(function: &NvmeFunction) -> Vec<(String, OnDisk)> {
    let options = OpenOptions { access: Access::Read, ..OpenOptions::default() };
    let of_disk = |disk: &KernelDisk| {
        let device = meantime_block::open(&format!("kernel:/dev/{}", disk.name), &options).ok()?;
        let content = match contents(&device).ok()? {
            Some((_, contents)) => {
                let block_bytes = device.info().block_bytes;
                OnDisk::Partitions(contents.iter().map(|one| one.facts(block_bytes)).collect())
            }
            None => OnDisk::Whole(held(&meantime_block::signature(&device).ok()??)),
        };
        Some((disk.name.clone(), content))
    };
    function.disks.iter().filter_map(of_disk).collect()
}

fn kind(kind: &UseKind) -> &'static str {
    match kind {
        UseKind::Mounted { .. } => "mounted",
        UseKind::Swap => "swap",
        UseKind::Held { .. } => "held",
        UseKind::Exclusive => "exclusive",
        UseKind::Open { .. } => "open",
        _ => "other",
    }
}

fn repair(one: &Repaired) -> Value {
    json!({
        "address": one.address.to_string(),
        "found": one.found,
        "driver": one.outcome.as_ref().ok().and_then(|returned| returned.driver.clone()),
        "disks": one.outcome.as_ref().map_or_else(|_| Vec::new(), |returned| returned.disks.clone()),
        "error": one.outcome.as_ref().err().map(ToString::to_string),
    })
}
