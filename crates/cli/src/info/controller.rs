//! Identify Controller and CAP as text.

use crate::facts::{Fact, facts, names_of};
use crate::figures;
use meantime_nvme::ControllerInfo;
use meantime_nvme_spec::identify::{oacs, oncs};
use meantime_nvme_spec::regs::{CAP_CSS_NVM, Cap};
use serde_json::Value;

const ONCS: &[(u64, &str)] = &[
    (oncs::COMPARE as u64, "Compare"),
    (oncs::WRITE_UNCORRECTABLE as u64, "Write Uncorrectable"),
    (oncs::DATASET_MANAGEMENT as u64, "Dataset Management"),
    (oncs::WRITE_ZEROES as u64, "Write Zeroes"),
    (oncs::SAVE_SELECT as u64, "Save and Select of features"),
    (oncs::RESERVATIONS as u64, "Reservations"),
    (oncs::TIMESTAMP as u64, "Timestamp"),
    (oncs::VERIFY as u64, "Verify"),
    (oncs::COPY as u64, "Copy"),
];

const OACS: &[(u64, &str)] = &[
    (oacs::SECURITY as u64, "Security Send and Receive"),
    (oacs::FORMAT as u64, "Format NVM"),
    (oacs::FIRMWARE as u64, "Firmware Commit and Download"),
    (oacs::NAMESPACE_MANAGEMENT as u64, "Namespace Management"),
    (oacs::DEVICE_SELF_TEST as u64, "Device Self-test"),
    (oacs::DIRECTIVES as u64, "Directives"),
    (oacs::NVME_MI as u64, "NVMe-MI"),
    (oacs::VIRTUALIZATION_MANAGEMENT as u64, "Virtualization Management"),
    (oacs::DOORBELL_BUFFER_CONFIG as u64, "Doorbell Buffer Config"),
    (oacs::GET_LBA_STATUS as u64, "Get LBA Status"),
    (oacs::LOCKDOWN as u64, "Lockdown"),
];

/// Returns the controller's facts. `queue_entries` is the maximum that our driver uses for a queue;
/// `None` if the kernel's driver has the controller.
pub(super) fn facts(info: &ControllerInfo, queue_entries: Option<u16>) -> Vec<Fact> {
    let version = info.version;
    let version = format!("{}.{}.{}", version.major(), version.minor(), version.tertiary());
    let transfer = u64::from(info.max_transfer_bytes);
    let ours = |count: u16| queue_entries.map(|_| count);
    let mut all = facts! {
        "model", "model": info.model;
        "serial number", "serial": info.serial;
        "firmware", "firmware": info.firmware;
        "PCI vendor", "vendor_id": info.vendor_id => format!("{:#06x}", info.vendor_id);
        "NVMe version", "version": version;
    };
    all.extend(match info.cap {
        Some(cap) => capabilities(cap, queue_entries),
        None => facts! {
            "CAP", "cap": Value::Null => "not told: the kernel's driver has the registers";
        },
    });
    all.extend(facts! {
        "most data a command", "max_transfer_bytes": transfer => figures::bytes(transfer);
        "namespaces", "namespace_count": info.namespace_count
            => format!("up to {}", info.namespace_count);
        "volatile write cache", "volatile_write_cache": info.volatile_write_cache
            => if info.volatile_write_cache { "present" } else { "none" };
        "I/O queue pairs", "io_queues": ours(info.io_queues);
        "interrupt vectors", "vectors": ours(info.vectors);
        "optional I/O commands", "oncs": info.oncs => names_of(u64::from(info.oncs), ONCS);
        "optional admin commands", "oacs": info.oacs => names_of(u64::from(info.oacs), OACS);
        "event requests", "event_requests": info.event_requests;
    });
    all
}

fn capabilities(cap: Cap, queue_entries: Option<u16>) -> Vec<Fact> {
    let largest = cap.max_queue_entries();
    let used = queue_entries.filter(|entries| u32::from(*entries) < largest);
    let used = used.map_or_else(String::new, |entries| format!(", {entries} used"));
    let (least_page, most_page) = (u64::from(cap.min_page_size()), u64::from(cap.max_page_size()));
    let nvm = cap.css() & CAP_CSS_NVM != 0;
    facts! {
        "CAP", "cap": format!("{:#018x}", cap.0);
        "  queue entries", "max_queue_entries": largest => format!("up to {largest}{used}");
        "  contiguous queues", "contiguous_queues_required": cap.cqr()
            => if cap.cqr() { "required" } else { "not required" };
        "  ready timeout", "ready_timeout_ms": cap.timeout_ms()
            => figures::time(f64::from(cap.timeout_ms()) * 1e6);
        "  doorbell stride", "doorbell_stride_bytes": cap.doorbell_stride()
            => format!("{} bytes", cap.doorbell_stride());
        "  page size", "page_bytes": [least_page, most_page]
            => format!("{} to {}", figures::bytes(least_page), figures::bytes(most_page));
        "  NVM command set", "nvm_command_set": nvm;
    }
}
