//! What the documents contain, and which experiments cover it.

/// A table, figure or claim of a document.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// What it is.
    pub what: &'static str,
    /// The experiments that cover it; empty if it is in [`NOT_MEASURABLE`].
    pub covered_by: &'static [&'static str],
}

/// What cannot be measured on a machine of this kind.
#[derive(Debug, Clone, Copy)]
pub struct NotMeasurable {
    /// What it is: the item's own words.
    pub what: &'static str,
    /// What it would need.
    pub needs: &'static str,
}

const fn item(what: &'static str, covered_by: &'static [&'static str]) -> Item {
    Item { what, covered_by }
}

/// Everything that the documents' tables and figures show.
pub const INVENTORY: &[Item] = &[
    item("FAST'12, table 1: device time without software", &["fast12-table1"]),
    item("FAST'12, table 1: the projections for an 8 Gb/s bus", &["fast12-projection"]),
    item("FAST'12, figure 1: six bars with deviations", &["fast12-figure1"]),
    item("FAST'12, figure 2: Ta, Tb, Td, Tu beside a competing process", &["fast12-figure2"]),
    item("FAST'12, figure 2: a faster bus against the unchanged software", &["fast12-projection"]),
    item(
        "FAST'12, figure 2: 8,000 cycles of Tu with refills of TLB and caches",
        &["fast12-refill"],
    ),
    item("FAST'12, figure 3: IOPS by CPUs, live", &["fast12-figure3"]),
    item("FAST'12, figure 3: IOPS by CPUs, 1 to 8", &["fast12-figure3-cpus"]),
    item("FAST'12: interrupt saturation", &["fast12-saturation"]),
    item("FAST'12: the latency of coalescing", &["fast12-coalescing"]),
    item("FAST'12: the C-state question", &["fast12-c-state"]),
    item("FAST'12: break-even of interrupt and polling", &["fast12-break-even"]),
    item("RFC 2013: dd, 8.0 µs by interrupt and 5.5 µs by polling", &["lkml13-dd"]),
    item("RFC 2013, reply: 2 M switches per second, idle and back in 1 µs", &["lkml13-idle"]),
    item("RFC 2013, reply: PM QoS in place of polling", &["lkml13-pm-qos"]),
    item("RFC 2013: polling where one would sleep, buffered or not", &["lkml13-buffered"]),
    item("RFC 2013: several I/Os before one wait", &["lkml13-batch"]),
    item("RFC 2013: back to sleep after a time slice", &["lkml13-slice"]),
    item("Bates: the split of device and host", &["bates15-split"]),
    item("Bates: mean and worst of device and host", &["bates15-worst"]),
    item("Bates: the spread, put down to MSI-X", &["bates15-msix"]),
    item("Bates: table of three drivers, latency and throughput", &["bates15-drivers"]),
    item("Bates: table of three drivers, CPU load", &["bates15-load"]),
    item("Bates: 70/30 and other mixes on a preconditioned drive", &["bates15-mixes"]),
    item("Bates: reads behind writes and erases", &["bates15-stalls"]),
    item("Bates: coalescing at higher load", &["bates15-coalescing"]),
    item("Le Moal: table of latencies by way to wait", &["vault17-latency"]),
    item("Le Moal: gain by device time, none for disks", &["vault17-device-time"]),
    item("Le Moal: distributions of the latencies", &["vault17-distribution"]),
    item(
        "Le Moal: fixed sleeps of 1 to 4 µs, and half the mean",
        &["vault17-fixed-sleeps", "vault17-fixed-sleeps-simulated"],
    ),
    item("Le Moal: CPU load by way to wait", &["vault17-cpu"]),
    item(
        "Le Moal: sleep time by I/O size, small I/Os overslept",
        &["vault17-sizes", "vault17-sizes-simulated"],
    ),
    item("Le Moal: a switch costs 0.5 to 2 µs", &["vault17-switch"]),
    item("Le Moal: exceedance on an idle machine, 1 in 6,000", &["vault17-tail-idle"]),
    item("Le Moal: exceedance on a loaded machine, 1 in 5,000", &["vault17-tail-loaded"]),
    item("Le Moal: exceedance with SCHED_RR", &["vault17-tail-sched"]),
    item("Le Moal: the short path of Linux 4.10", &["vault17-short-path"]),
    item("Le Moal: a user-level driver beside the kernel", &["vault17-user"]),
    item("Le Moal: the user-level driver's tail under load", &["vault17-user-tail"]),
    item("Le Moal: user-level polling, hybrid for each I/O", &["vault17-user-hybrid"]),
    item("Le Moal: RWF_HIPRI for each I/O", &["vault17-hipri"]),
    item("Le Moal: polling that reaps others' completions", &["vault17-reaping"]),
    item("Le Moal, left open: priorities and arbitration", &["vault17-priority"]),
    item("Le Moal, left open: the scheduler knowing about polling", &["vault17-tail-sched"]),
    item("Le Moal, left open: interrupts made useless by polling", &["vault17-interrupts"]),
    item(
        "Le Moal, left open: a better estimate for mixed sizes",
        &["vault17-estimate", "vault17-estimate-simulated"],
    ),
    // The kernel's own paths.
    item("FAST'12, figure 1: both ways in the kernel", &["fast12-guest-figure1"]),
    item("RFC 2013: dd by interrupt and by io_poll", &["lkml13-guest-poll"]),
    item("RFC 2013: no interrupt and no sleep by io_poll", &["lkml13-guest-interrupts"]),
    item("Bates: table of three drivers, kernel and user space", &["bates15-guest-drivers"]),
    item("Bates: the tail of three drivers", &["bates15-guest-tail"]),
    item("Le Moal: the kernel's interrupt, classic and hybrid polling", &["vault17-guest-ways"]),
    item("Le Moal: the kernel's fixed sleeps", &["vault17-guest-sleep"]),
    item("Le Moal: a user-level driver beside the kernel", &["vault17-guest-user"]),
    item("AIOS'19, slide 3: device, kernel and user of a read and an fsync", &["aios19-shares"]),
    item("AIOS'19, slides 11 to 23: anatomy of a read", &["aios19-read"]),
    item("AIOS'19, slides 11 to 23: anatomy of a write + fsync", &["aios19-fsync"]),
    item("AIOS'19, slide 14: rate of duplicate I/O", &["aios19-duplicate"]),
    item("AIOS'19, slide 16: late unmapping is optional", &["aios19-unmap"]),
    item(
        "AIOS'19: fio random read by size, on both SSDs",
        &["aios19-read-size-optane", "aios19-read-size-zssd"],
    ),
    item(
        "AIOS'19: fio random read by threads, on both SSDs",
        &["aios19-read-threads-optane", "aios19-read-threads-zssd"],
    ),
    item("AIOS'19, slide 32: the asynchronous stack, polled", &["aios19-poll"]),
    item("AIOS'19: fio random write + fsync by size", &["aios19-fsync-size"]),
    item("AIOS'19: fio random write + fsync by threads", &["aios19-fsync-threads"]),
    item("AIOS'19: RocksDB readrandom by threads", &["aios19-rocksdb-readrandom"]),
    item("AIOS'19: RocksDB fillsync by threads", &["aios19-rocksdb-fillsync"]),
    item("AIOS'19, slides 36 and 45: beside a stack in user space", &["aios19-user-level"]),
    item("AIOS'19: the memory table", &["aios19-memory"]),
    item("AIOS'19: distribution of the submission's latency", &["aios19-submission"]),
    item("AIOS'19, slide 40: misses of the extent look-up", &["aios19-extents"]),
    item("AIOS'19: read latency by level of optimisation", &["aios19-read-levels"]),
    item("AIOS'19: write latency by level of optimisation", &["aios19-write-levels"]),
    item("AIOS'19: the CPU's time", &["aios19-cpu"]),
];

/// What is not measurable here: at most six items.
pub const NOT_MEASURABLE: &[NotMeasurable] = &[];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::registry::experiments;

    #[test]
    fn every_item_has_its_experiment() {
        let experiments = experiments();
        let ids: BTreeSet<&str> = experiments.iter().map(|one| one.id).collect();
        assert_eq!(ids.len(), experiments.len(), "a name is used twice");
        let mut covering = BTreeSet::new();
        for item in INVENTORY {
            let excused = NOT_MEASURABLE.iter().any(|one| one.what == item.what);
            assert_eq!(item.covered_by.is_empty(), excused, "{}", item.what);
            for id in item.covered_by {
                assert!(ids.contains(id), "{}: {id}", item.what);
                covering.insert(*id);
            }
        }
        let beyond: Vec<_> = ids.difference(&covering).collect();
        assert!(beyond.is_empty(), "{beyond:?} cover no item");
        assert!(NOT_MEASURABLE.len() <= 6);
        for one in NOT_MEASURABLE {
            assert!(INVENTORY.iter().any(|item| item.what == one.what), "{}", one.what);
        }
    }
}
