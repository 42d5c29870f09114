//! The controllers as a table.

use meantime_hw::pci::{DiskUse, NvmeFunction, Taker};

use super::facts::{self, OnDisk};
use crate::facts::{rows, table};
use crate::figures;

/// The maximum number of a device's uses that are shown. A thousand containers may each have a
/// mount.
const USES_MAX: usize = 6;

/// Returns the table, with advice on its devices.
pub(super) fn text(functions: &[NvmeFunction], is_root: bool, has_pci: bool) -> String {
    if functions.is_empty() {
        let why =
            if has_pci { "" } else { " (/sys/bus/pci is not there: a container without /sys?)" };
        return format!(
            "No NVMe controller on PCI here{why}.\nA software SSD needs none: `meantime info \
             --device mem:1G`, `meantime bench --rw randread --device mem:1G`\n"
        );
    }
    let controllers: Vec<_> = functions.iter().map(facts::of).collect();
    let on_disks = functions.iter().flat_map(facts::on_disks);
    let on_disks = on_disks.map(|(disk, content)| match content {
        OnDisk::Partitions(all) => format!("\nPartitions of {disk}\n{}", table(&all)),
        OnDisk::Whole(held) => format!("\nOn the whole of {disk}\n{}", rows(&held)),
    });
    let on_disks = on_disks.collect::<String>();
    format!("{}{on_disks}\n{}", table(&controllers), advice(functions, is_root))
}

pub(super) fn model(function: &NvmeFunction) -> String {
    let ids = format!("{:04x}:{:04x}", function.vendor_id, function.device_id);
    let mut lines = function.model.clone().unwrap_or_else(|| format!("PCI device {ids}"));
    let mut facts = Vec::new();
    if let Some(link) = &function.link {
        let speed = |speed: &str| speed.trim_end_matches(" PCIe").to_owned();
        let mut words = format!("{} ×{}", speed(&link.speed), link.width);
        // Shows if the link is slower than the device allows.
        if let (Some(max_speed), Some(max_width)) = (&link.max_speed, link.max_width)
            && (max_speed, max_width) != (&link.speed, link.width)
        {
            words += &format!(" (of {} ×{max_width})", speed(max_speed));
        }
        facts.push(words);
    }
    facts.extend(function.numa_node.map(|node| format!("NUMA node {node}")));
    if !facts.is_empty() {
        lines += &format!("\n{}", facts.join(", "));
    }
    lines
}

pub(super) fn size(function: &NvmeFunction) -> String {
    match (function.bytes(), function.disks.len()) {
        (None, _) => "–".to_owned(),
        (Some(bytes), 1) => figures::bytes(bytes),
        (Some(bytes), count) => format!("{}\nin {count}", figures::bytes(bytes)),
    }
}

pub(super) fn group(function: &NvmeFunction) -> String {
    let Some(group) = &function.group else { return "none".to_owned() };
    let mut lines =
        vec![group.number.to_string() + if group.no_iommu { " (no IOMMU)" } else { "" }];
    lines.extend(group.others_in_words().into_iter().map(|other| format!("with {other}")));
    lines.join("\n")
}

pub(super) fn used_by(function: &NvmeFunction) -> String {
    let is_foreign = function.driver.as_deref() == Some("vfio-pci");
    let foreign = || is_foreign.then(|| "bound by another program".to_owned());
    let taken = function.taker.as_ref().map(taker_in_words).or_else(foreign);
    let mut lines = Vec::from_iter(taken);
    let words = |one: &DiskUse| format!("{}: {}", one.device, one.kind);
    lines.extend(function.uses.iter().take(USES_MAX).map(words));
    if function.uses.len() > USES_MAX {
        lines.push(format!("and {} more", function.uses.len() - USES_MAX));
    }
    if lines.is_empty() { "–".to_owned() } else { lines.join("\n") }
}

fn taker_in_words(taker: &Taker) -> String {
    let pid = taker.pid;
    match (taker.unfinished, taker.persistent, taker.uid) {
        (true, ..) => format!("left by process {pid}"),
        (false, true, Some(uid)) => format!("bound, for user {uid}"),
        (false, true, None) => "bound".to_owned(),
        (false, false, _) => format!("taken by process {pid}"),
    }
}

/// Describes what can be done, and what is not visible.
fn advice(functions: &[NvmeFunction], is_root: bool) -> String {
    let mut text = String::new();
    let addresses = |which: &dyn Fn(&&NvmeFunction) -> bool| -> Vec<String> {
        functions.iter().filter(which).map(|function| function.address.to_string()).collect()
    };
    let astray = |function: &&NvmeFunction| {
        function.driver.is_none() || function.taker.as_ref().is_some_and(|taker| taker.unfinished)
    };
    let left = addresses(&astray);
    if !left.is_empty() {
        let left = left.join(", ");
        text += &format!(
            "Left half-way: {left}. `sudo meantime devices --repair` gives back what no program \
             uses\n"
        );
    }
    let free = |function: &&NvmeFunction| {
        !astray(function)
            && function.driver.as_deref() == Some("nvme")
            && function.uses.is_empty()
            && function.group.as_ref().is_some_and(|group| group.in_the_way().next().is_none())
    };
    if let Some(first) = addresses(&free).first() {
        text += &format!(
            "To use one: --device vfio:{first} as root, which takes it for as long as that runs\n\
             For other users, once: `sudo meantime bind {first} --owner USER`\n"
        );
    }
    let bound = addresses(&|function| {
        function.taker.as_ref().is_some_and(|taker| taker.persistent && !taker.unfinished)
    });
    if let Some(first) = bound.first() {
        text += &format!("To give one back to the kernel: `sudo meantime unbind {first}`\n");
    }
    if functions.iter().any(|function| function.group.is_none()) {
        text += "There is no IOMMU at work, and SSDs cannot be taken safely: switch it on in the \
                 firmware (VT-d, AMD-Vi),\n\
                 and boot with intel_iommu=on on Intel\n";
    }
    if !is_root {
        text += "Other users' programs and mounts, and exclusive uses, are for root to see: there \
                 may be more\n";
    }
    text
}
