//! The metrics of a served SSD.

use meantime_block::control::metrics::{self, Kind, Metrics, Published};
use meantime_ssd::Counters;
use meantime_ssd::tcp::TcpCounters;

/// The counters of the SSD besides commands, bytes and faults. Each has its name there, its name
/// here, and a description.
const COUNTERS: [(&str, &str, &str); 15] = [
    ("refused", "refused_commands", "Commands that ended with an error because of the host"),
    ("bad_registers", "refused_register_accesses", "Register accesses that broke a rule"),
    ("bad_doorbells", "refused_doorbells", "Doorbell values beyond their queue"),
    ("stray_doorbells", "stray_doorbells", "Rings of doorbells whose queue does not exist"),
    ("cid_conflicts", "cid_conflicts", "Commands with a CID that was outstanding"),
    ("dma_errors", "dma_errors", "Transfers to or from memory that is not mapped"),
    ("media_errors", "media_errors", "Reads of blocks that Write Uncorrectable has marked"),
    ("ended_queues", "ended_queues", "Queues that ended because the host unmapped their memory"),
    ("fatal", "fatal_errors", "Times that the controller failed (CSTS.CFS)"),
    ("resets", "resets", "Controller resets"),
    ("cqes", "completions", "Completion queue entries written"),
    ("interrupts", "interrupts", "Interrupts sent"),
    ("parks", "thread_parks", "Times that the SSD's thread parked"),
    ("wakes", "thread_wakes", "Times that the SSD's thread was woken"),
    ("naps", "thread_naps", "Times that the SSD's thread napped"),
];

const TCP_COUNTERS: [(&str, &str); 13] = [
    ("connections", "Connections accepted"),
    ("too_many", "Connections closed at once, because there were too many"),
    ("ended", "Connections that have ended, for any reason"),
    ("associations", "Hosts that have connected"),
    ("associations_ended", "Hosts that have gone"),
    ("connects_refused", "Connects refused"),
    ("authentications_failed", "Hosts that could not authenticate themselves"),
    ("fatal_errors", "PDUs after which the connection had to end"),
    ("terminated_by_hosts", "Connections that hosts ended because of an error"),
    ("data_digest_errors", "Wrong data digests received"),
    ("keep_alives_expired", "Keep Alive Timers expired"),
    ("too_slow", "Connections closed because they took too long"),
    ("r2ts", "R2Ts sent"),
];

/// Publishes what `counters` returns of the SSD `device`.
pub(super) fn publish(
    device: &str,
    counters: impl Fn() -> Counters + Send + Sync + 'static,
    more: impl Fn(&mut Metrics, &str) + Send + Sync + 'static,
) -> Published {
    let device = device.to_owned();
    metrics::publish(move |metrics| {
        add(metrics, &device, &counters());
        more(metrics, &device);
    })
}

fn add(metrics: &mut Metrics, device: &str, c: &Counters) {
    for (operation, count) in [
        ("read", c.reads),
        ("write", c.writes),
        ("flush", c.flushes),
        ("other", c.other_io),
        ("admin", c.admin_commands),
    ] {
        let labels = [("device", device), ("operation", operation)];
        let help = "Commands: I/O commands completed, admin commands fetched";
        metrics.add("meantime_ssd_commands", Kind::Counter, help, &labels, count);
    }
    for (operation, bytes) in [("read", c.read_bytes), ("write", c.written_bytes)] {
        let labels = [("device", device), ("operation", operation)];
        metrics.add("meantime_ssd_bytes", Kind::Counter, "Bytes of data", &labels, bytes);
    }
    for (name, count) in c.iter() {
        if let Some(fault) = name.strip_prefix("injected_") {
            injected(metrics, device, fault, count);
        } else if let Some((_, name, help)) = COUNTERS.iter().find(|(known, ..)| *known == name) {
            let name = format!("meantime_ssd_{name}");
            metrics.add(&name, Kind::Counter, help, &[("device", device)], count);
        }
    }
}

fn injected(metrics: &mut Metrics, device: &str, fault: &str, count: u64) {
    let labels = [("device", device), ("fault", fault)];
    let name = "meantime_ssd_injected_faults";
    metrics.add(name, Kind::Counter, "Faults injected", &labels, count);
}

/// Adds the number of `drivers` that have connected over vfio-user.
pub(super) fn add_drivers(metrics: &mut Metrics, device: &str, drivers: u64) {
    let help = "Drivers that have connected";
    metrics.add("meantime_ssd_drivers", Kind::Counter, help, &[("device", device)], drivers);
}

/// Adds what is counted over TCP.
pub(super) fn add_tcp(metrics: &mut Metrics, device: &str, counters: &TcpCounters) {
    for (name, count) in counters.iter() {
        if let Some(fault) = name.strip_prefix("injected_") {
            injected(metrics, device, &format!("tcp_{fault}"), count);
        } else if let Some((name, help)) = TCP_COUNTERS.iter().find(|(known, _)| *known == name) {
            let name = format!("meantime_ssd_tcp_{name}");
            metrics.add(&name, Kind::Counter, help, &[("device", device)], count);
        }
    }
}
