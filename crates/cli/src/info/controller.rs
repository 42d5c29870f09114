//! Identify Controller and CAP in words.

use meantime_nvme::ControllerInfo;
use meantime_spec::identify::{oacs, oncs};
use meantime_spec::regs::CAP_CSS_NVM;
use serde_json::json;

use super::{Fact, names_of};
use crate::figures;

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

/// What the controller says of itself; `queue_entries` is the most the driver makes of a queue.
pub(super) fn facts(info: &ControllerInfo, queue_entries: u16) -> Vec<Fact> {
    let (cap, version) = (info.cap, info.version);
    let version = format!("{}.{}.{}", version.major(), version.minor(), version.tertiary());
    let largest = cap.max_queue_entries();
    let used = if u32::from(queue_entries) < largest {
        format!(", {queue_entries} used")
    } else {
        String::new()
    };
    let (least_page, most_page) = (u64::from(cap.min_page_size()), u64::from(cap.max_page_size()));
    let nvm = cap.css() & CAP_CSS_NVM != 0;
    let transfer = u64::from(info.max_transfer_bytes);
    vec![
        Fact::new("model", &info.model, "model", json!(info.model)),
        Fact::new("serial number", &info.serial, "serial", json!(info.serial)),
        Fact::new("firmware", &info.firmware, "firmware", json!(info.firmware)),
        Fact::new(
            "PCI vendor",
            format!("{:#06x}", info.vendor_id),
            "vendor_id",
            json!(info.vendor_id),
        ),
        Fact::new("NVMe version", &version, "version", json!(version)),
        Fact::new("CAP", format!("{:#018x}", cap.0), "cap", json!(format!("{:#018x}", cap.0))),
        Fact::new(
            "  queue entries",
            format!("up to {largest}{used}"),
            "max_queue_entries",
            json!(largest),
        ),
        Fact::new(
            "  contiguous queues",
            if cap.cqr() { "required" } else { "not required" },
            "contiguous_queues_required",
            json!(cap.cqr()),
        ),
        Fact::new(
            "  ready timeout",
            figures::time(f64::from(cap.timeout_ms()) * 1e6),
            "ready_timeout_ms",
            json!(cap.timeout_ms()),
        ),
        Fact::new(
            "  doorbell stride",
            format!("{} bytes", cap.doorbell_stride()),
            "doorbell_stride_bytes",
            json!(cap.doorbell_stride()),
        ),
        Fact::new(
            "  page size",
            format!("{} to {}", figures::bytes(least_page), figures::bytes(most_page)),
            "page_bytes",
            json!([least_page, most_page]),
        ),
        Fact::new(
            "  NVM command set",
            if nvm { "yes" } else { "no" },
            "nvm_command_set",
            json!(nvm),
        ),
        Fact::new(
            "most data a command",
            figures::bytes(transfer),
            "max_transfer_bytes",
            json!(transfer),
        ),
        Fact::new(
            "namespaces",
            format!("up to {}", info.namespace_count),
            "namespace_count",
            json!(info.namespace_count),
        ),
        Fact::new(
            "volatile write cache",
            if info.volatile_write_cache { "present" } else { "none" },
            "volatile_write_cache",
            json!(info.volatile_write_cache),
        ),
        Fact::new("I/O queue pairs", info.io_queues, "io_queues", json!(info.io_queues)),
        Fact::new("interrupt vectors", info.vectors, "vectors", json!(info.vectors)),
        Fact::new(
            "optional I/O commands",
            names_of(u64::from(info.oncs), ONCS),
            "oncs",
            json!(info.oncs),
        ),
        Fact::new(
            "optional admin commands",
            names_of(u64::from(info.oacs), OACS),
            "oacs",
            json!(info.oacs),
        ),
        Fact::new(
            "event requests",
            info.event_requests,
            "event_requests",
            json!(info.event_requests),
        ),
    ]
}
