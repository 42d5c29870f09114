//! The claims about the kernel's own paths, in a virtual machine.
//!
//! Figures are those of `scripts/guest/reproduce.plan`: two kernels, since Linux 5.10 has the
//! sleep before polling that later ones have lost. Latencies are medians: the machine around the
//! guest takes its CPU away for milliseconds now and then, and a mean would show that.

use meantime_report::reproduction::Unit;

use crate::document::Document;
use crate::experiment::{
    Claim, Expect, Experiment, Leg, Mark, Plot, Series, difference, ratio, value,
};
use crate::runner::{Bench, RunError};

/// The experiments, of all documents.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        fast12_ways(),
        lkml13_poll(),
        lkml13_interrupts(),
        bates15_drivers(),
        bates15_tail(),
        vault17_ways(),
        vault17_sleep(),
        vault17_user(),
    ]
}

/// Why a ratio may be another than on a machine.
const EMULATED: &str = "An emulated CPU is some twenty times slower than the document's, and an \
                        interrupt, a system call and a doorbell do not become slower by the same \
                        factor.";

const SIZES: [(&str, u64); 2] = [("512 B", 512), ("4 KiB", 4096)];

fn linux_5_10(bench: &mut Bench<'_>) -> Result<(), RunError> {
    bench.guest("5.10")
}

fn linux_6_1(bench: &mut Bench<'_>) -> Result<(), RunError> {
    bench.guest("6.1")
}

fn both(bench: &mut Bench<'_>) -> Result<(), RunError> {
    linux_5_10(bench)?;
    linux_6_1(bench)
}

fn fast12_ways() -> Experiment {
    let of = |bytes: u64, way: &str| format!("6.1/null/{bytes}/kernel-{way}/p50_ns");
    let bars = SIZES.map(|(name, bytes)| {
        Series::new(
            name,
            ["interrupt", "poll"].map(|way| {
                let mark = Mark::new(way, ratio(of(bytes, way), of(bytes, "interrupt")));
                if bytes == 4096 {
                    mark.there(ratio(format!("figure1/{way}/4096"), "figure1/interrupt/4096"))
                } else {
                    mark
                }
            }),
        )
    });
    Experiment {
        id: "fast12-guest-figure1",
        document: Document::Fast12,
        place: "Figure 1",
        title: "The kernel's synchronous and asynchronous way",
        question: "By how much is a polled read faster in the kernel itself?",
        there: "Linux 2.6.33 with two drivers of one device: the synchronous one polls and is \
                called directly, the asynchronous one takes interrupts and is called by the \
                block layer's queue.",
        here: "Linux 6.1 in a virtual machine, on QEMU's NVMe controller, whose medium answers at \
               once: medians of random reads at depth 1 by io_uring, with interrupts and with \
               IOPOLL. Both go the same way through the block layer. Shown are parts of the \
               interrupt's time.",
        leg: Leg::Guest,
        measure: linux_6_1,
        claims: vec![
            Claim::new(
                "The synchronous way shortens a 4 KiB read at least as much as in the document",
                ratio(of(4096, "poll"), of(4096, "interrupt")),
                Expect::AtMostThere,
            )
            .there(ratio("figure1/poll/4096", "figure1/interrupt/4096"))
            .unless(
                "The document's synchronous driver also leaves the block layer's queue out; here \
                 polling alone is the difference.",
            ),
            Claim::new(
                "It shortens a 512 B read",
                ratio(of(512, "poll"), of(512, "interrupt")),
                Expect::AtMost(0.9),
            )
            .there(ratio("table1/poll/512", "table1/interrupt/512"))
            .unless(EMULATED),
        ],
        plot: Plot::Bars(Unit::Ratio, bars.to_vec()),
    }
}

/// Both kernels, as series of two ways at 512 B: a mark for each kernel and way.
fn by_kernel(mark: impl Fn(&str, &'static str) -> Mark) -> Vec<Series> {
    let ways = ["interrupt", "poll"];
    let series =
        |kernel: &str| Series::new(format!("Linux {kernel}"), ways.map(|way| mark(kernel, way)));
    ["5.10", "6.1"].map(series).to_vec()
}

fn lkml13_poll() -> Experiment {
    let over = |kernel: &str, way: &str| {
        let of = |way: &str| format!("{kernel}/null/512/kernel-{way}/p50_ns");
        ratio(of(way), of("interrupt"))
    };
    let mark = |kernel: &str, way: &'static str| {
        Mark::new(way, over(kernel, way)).there(ratio(format!("dd/{way}"), "dd/interrupt"))
    };
    Experiment {
        id: "lkml13-guest-poll",
        document: Document::Lkml13,
        place: "RFC",
        title: "The driver's io_poll instead of sleeping",
        question: "How much does a read gain if the kernel asks the driver instead of sleeping?",
        there: "`dd iflag=direct bs=512` on a Chatham prototype: 8.0 µs a read, and 5.5 µs with \
                the patch. The patch polls once the caller would sleep.",
        here: "What became of the patch, in a virtual machine: medians of direct reads of 512 B at \
               depth 1 by io_uring with IOPOLL (a queue for polling), and by interrupt, on QEMU's \
               NVMe controller, whose medium answers at once. Shown are parts of the interrupt's \
               time.",
        leg: Leg::Guest,
        measure: both,
        claims: vec![
            Claim::new(
                "Polling shortens a read at least as much as the patch did (Linux 5.10)",
                over("5.10", "poll"),
                Expect::AtMostThere,
            )
            .there(ratio("dd/poll", "dd/interrupt"))
            .unless(EMULATED),
            Claim::new("It still does in Linux 6.1", over("6.1", "poll"), Expect::AtMostThere)
                .there(ratio("dd/poll", "dd/interrupt"))
                .unless(EMULATED),
        ],
        plot: Plot::Bars(Unit::Ratio, by_kernel(mark)),
    }
}

fn lkml13_interrupts() -> Experiment {
    let of = |kernel: &str, way: &str| format!("{kernel}/null/512/kernel-{way}/interrupts_ratio");
    Experiment {
        id: "lkml13-guest-interrupts",
        document: Document::Lkml13,
        place: "RFC and reply",
        title: "Interrupts for each read",
        question: "Does a polled read raise an interrupt?",
        there: "The RFC's patch keeps the device's interrupts on, and saves the sleep. Later \
                kernels poll on queues without interrupts.",
        here: "The reads of lkml13-guest-poll: interrupts of the device's vectors, from \
               /proc/interrupts, for each read that the kernel counted.",
        leg: Leg::Guest,
        measure: both,
        claims: vec![
            Claim::new(
                "A read by interrupt raises one interrupt",
                value(of("6.1", "interrupt")),
                Expect::Within(0.7, 1.3),
            )
            .ours()
            .unless("On a slow CPU several completions may share an interrupt."),
            Claim::new(
                "A polled read raises none today",
                value(of("6.1", "poll")),
                Expect::AtMost(0.05),
            )
            .ours(),
        ],
        plot: Plot::Bars(Unit::Ratio, by_kernel(|kernel, way| Mark::new(way, of(kernel, way)))),
    }
}

/// The ways of the table of three drivers.
const DRIVERS: [(&str, &str); 3] = [
    ("kernel, interrupt", "kernel-interrupt"),
    ("kernel, polling", "kernel-poll"),
    ("user space, polling", "ours-poll"),
];

fn bates15_drivers() -> Experiment {
    let of = |way: &str, figure: &str| format!("6.1/null/4096/{way}/{figure}");
    let bars = |name: &str, figure: &str| {
        Series::new(name, DRIVERS.map(|(name, way)| Mark::new(name, of(way, figure))))
    };
    Experiment {
        id: "bates15-guest-drivers",
        document: Document::Bates15,
        place: "table of three drivers",
        title: "Three drivers: latency, CPU load, throughput",
        question: "Which driver is quickest at depth 1, and what does it cost?",
        there: "The kernel's driver by interrupt, the kernel's by polling, and SPDK, with an NVRAM \
                card. SPDK and polling win at a higher CPU load, polling slightly behind SPDK.",
        here: "Linux 6.1 by io_uring, by interrupt and by IOPOLL, and Meantime in SPDK's place, on \
               one controller of QEMU in a virtual machine; its medium answers at once. 4 KiB \
               random reads at depth 1.",
        leg: Leg::Guest,
        measure: linux_6_1,
        claims: vec![
            Claim::new(
                "The kernel does more I/Os by polling than by interrupt",
                ratio(of("kernel-poll", "rate_iops"), of("kernel-interrupt", "rate_iops")),
                Expect::AtLeast(1.1),
            )
            .unless(EMULATED),
            Claim::new(
                "The driver in user space does more than the kernel's by interrupt",
                ratio(of("ours-poll", "rate_iops"), of("kernel-interrupt", "rate_iops")),
                Expect::AtLeast(1.1),
            )
            .unless(EMULATED),
            Claim::new(
                "The kernel's polling is behind user space",
                ratio(of("kernel-poll", "rate_iops"), of("ours-poll", "rate_iops")),
                Expect::AtMost(1.0),
            )
            .unless(EMULATED),
            Claim::new(
                "Polling has a higher CPU load than interrupts",
                difference(of("kernel-poll", "cpu_percent"), of("kernel-interrupt", "cpu_percent")),
                Expect::AtLeast(5.0),
            )
            .unless(
                "The device answers at once and the CPU is slow: by interrupt, too, the CPU is \
                 hardly ever idle.",
            ),
        ],
        plot: Plot::Bars(
            Unit::Time,
            vec![bars("median", "p50_ns"), bars("99 % are below", "p99_ns")],
        ),
    }
}

fn bates15_tail() -> Experiment {
    let of = |way: &str, figure: &str| format!("6.1/null/4096/{way}/{figure}");
    let curve = |(name, way): (&str, &str)| (name.to_owned(), format!("6.1/null/4096/{way}"));
    Experiment {
        id: "bates15-guest-tail",
        document: Document::Bates15,
        place: "table of three drivers, analyser trace",
        title: "Three drivers: the tail",
        question: "Do late I/Os come from interrupts?",
        there: "The device's part of a read was below 11 µs always, the host's 5 µs in the mean \
                and more than 30 µs at worst. That was traced to MSI-X and what passes it on. SPDK \
                and polling win in the tail.",
        here: "The three drivers of bates15-guest-drivers: shares of I/Os that take longer.",
        leg: Leg::Guest,
        measure: linux_6_1,
        claims: vec![
            Claim::new(
                "The kernel's polling has an earlier 99th percentile than its interrupts",
                ratio(of("kernel-poll", "p99_ns"), of("kernel-interrupt", "p99_ns")),
                Expect::AtMost(1.0),
            )
            .unless("The machine around the guest takes its CPU away, whichever way it waits."),
            Claim::new(
                "The driver in user space has an earlier one, too",
                ratio(of("ours-poll", "p99_ns"), of("kernel-interrupt", "p99_ns")),
                Expect::AtMost(1.0),
            )
            .unless("The machine around the guest takes its CPU away, whichever way it waits."),
        ],
        plot: Plot::Exceedance(DRIVERS.map(curve).to_vec()),
    }
}

/// The kernel's ways in Le Moal's table, with the document's names.
const WAYS: [(&str, &str, &str); 3] = [
    ("interrupt", "kernel-interrupt", "interrupt"),
    ("classic polling", "kernel-poll", "poll"),
    ("hybrid, half the mean", "kernel-hybrid", "hybrid"),
];

fn slow(way: &str, figure: &str) -> String {
    format!("5.10/slow/512/{way}/{figure}")
}

fn vault17_ways() -> Experiment {
    let mark = |(name, way, there): (&str, &str, &str)| {
        let here = ratio(slow(way, "p50_ns"), slow("kernel-interrupt", "p50_ns"));
        Mark::new(name, here).there(ratio(format!("latency/{there}"), "latency/interrupt"))
    };
    Experiment {
        id: "vault17-guest-ways",
        document: Document::Vault17,
        place: "latency table, CPU load",
        title: "The kernel's three ways to wait",
        question: "What do classic and hybrid polling in the kernel gain, and what do they cost?",
        there: "DRAM-based NVMe device, i7-4790, Linux 4.10; 512 B random direct reads at depth 1 \
                by one pinned process. RWF_HIPRI, with `io_poll_delay` −1 (classic) and 0 (half \
                the mean).",
        here: "Linux 5.10, the last of Debian's with this code, in a virtual machine, by io_uring \
               with IOPOLL. QEMU's NVMe controller has a medium outside of QEMU that sleeps for \
               100 µs, and answers after 200 to 300: on a CPU that is so much slower, a sleep \
               needs a slower device. Medians of the reads; shown are parts of the interrupt's \
               time.",
        leg: Leg::Guest,
        measure: linux_5_10,
        claims: vec![
            Claim::new(
                "Classic polling shortens a read at least as much as in the document",
                ratio(slow("kernel-poll", "p50_ns"), slow("kernel-interrupt", "p50_ns")),
                Expect::AtMostThere,
            )
            .there(ratio("latency/poll", "latency/interrupt"))
            .unless(EMULATED),
            Claim::new(
                "Half the mean is as quick as classic polling",
                ratio(slow("kernel-hybrid", "p50_ns"), slow("kernel-poll", "p50_ns")),
                Expect::AtMost(1.1),
            )
            .there(ratio("latency/hybrid", "latency/poll"))
            .unless(
                "The sleep ends late on an emulated CPU: a timer's interrupt and two context \
                 switches are a good part of the device's time. Reads that the machine around \
                 the guest delayed count in the kernel's mean, and make the sleep longer.",
            ),
            Claim::new(
                "Classic polling takes the whole CPU",
                value(slow("kernel-poll", "cpu_percent")),
                Expect::AtLeast(90.0),
            )
            .there(value("cpu/poll")),
            Claim::new(
                "Half the mean takes less CPU than classic polling",
                ratio(slow("kernel-hybrid", "cpu_percent"), slow("kernel-poll", "cpu_percent")),
                Expect::AtMost(0.8),
            )
            .there(ratio("cpu/hybrid", "cpu/poll")),
            Claim::new(
                "An interrupt takes less CPU than half the mean",
                ratio(
                    slow("kernel-interrupt", "cpu_percent"),
                    slow("kernel-hybrid", "cpu_percent"),
                ),
                Expect::AtMost(1.0),
            )
            .there(ratio("cpu/interrupt", "cpu/hybrid"))
            .unless(EMULATED),
        ],
        plot: Plot::Bars(Unit::Ratio, vec![Series::new("512 B", WAYS.map(mark))]),
    }
}

fn vault17_sleep() -> Experiment {
    const SLEEPS: [(&str, &str); 3] =
        [("50", "kernel-hybrid-50"), ("200", "kernel-hybrid-200"), ("400", "kernel-hybrid-400")];
    let sleeps = || SLEEPS.map(|(us, way)| Mark::new(us, slow(way, "p50_ns")));
    let level = |name: &str, way: &str| {
        Series::new(name, SLEEPS.map(|(us, _)| Mark::new(us, slow(way, "p50_ns"))))
    };
    Experiment {
        id: "vault17-guest-sleep",
        document: Document::Vault17,
        place: "fixed hybrid polling",
        title: "The kernel's fixed sleep before polling",
        question: "How long may the sleep be before it delays the read?",
        there: "With a device of some 3 µs, a sleep of 2 µs is as classic polling, 3 µs between, 4 \
                µs as an interrupt.",
        here: "Linux 5.10 in a virtual machine: `io_poll_delay` of 50, 200 and 400 µs, on the \
               device of vault17-guest-ways. Medians of the reads.",
        leg: Leg::Guest,
        measure: linux_5_10,
        claims: vec![
            Claim::new(
                "A sleep much shorter than the device's time is as classic polling",
                ratio(slow("kernel-hybrid-50", "p50_ns"), slow("kernel-poll", "p50_ns")),
                Expect::AtMost(1.15),
            )
            .unless(
                "The sleep ends late on an emulated CPU: a timer's interrupt and two context \
                 switches are a good part of the device's time.",
            ),
            Claim::new(
                "A sleep longer than the device's time is no quicker than an interrupt",
                ratio(slow("kernel-hybrid-400", "p50_ns"), slow("kernel-interrupt", "p50_ns")),
                Expect::AtLeast(1.0),
            )
            .unless(EMULATED),
            Claim::new(
                "The longer sleep takes less CPU",
                ratio(
                    slow("kernel-hybrid-400", "cpu_percent"),
                    slow("kernel-hybrid-50", "cpu_percent"),
                ),
                Expect::AtMost(0.9),
            ),
        ],
        plot: Plot::Lines(
            Unit::Time,
            "sleep, µs",
            true,
            vec![
                Series::new("sleep, then poll", sleeps()),
                level("classic polling", "kernel-poll"),
                level("interrupt", "kernel-interrupt"),
            ],
        ),
    }
}

fn vault17_user() -> Experiment {
    let of = |kernel: &str, way: &str| format!("{kernel}/null/512/{way}/p50_ns");
    let bars = |kernel: &str| {
        let ways = [
            ("interrupt", "kernel-interrupt", "interrupt"),
            ("classic polling", "kernel-poll", "poll"),
            ("user space, polling", "ours-poll", "user"),
        ];
        let mark = |(name, way, there): (&str, &str, &str)| {
            Mark::new(name, ratio(of(kernel, way), of(kernel, "kernel-interrupt")))
                .there(ratio(format!("latency/{there}"), "latency/interrupt"))
        };
        Series::new(format!("Linux {kernel}"), ways.map(mark))
    };
    Experiment {
        id: "vault17-guest-user",
        document: Document::Vault17,
        place: "user-level driver",
        title: "A user-level driver beside the kernel's",
        question: "How much is left to gain by a driver in user space?",
        there: "Classic polling by a user-level driver: 3.16 µs, 30 % less than the kernel's \
                classic polling and 47 % less than its interrupt.",
        here: "Meantime's driver by VFIO behind an emulated IOMMU, and the kernel's own two ways \
               by io_uring, on one controller of QEMU in a virtual machine; its medium answers at \
               once. Medians of 512 B random reads at depth 1; shown are parts of the \
               interrupt's time.",
        leg: Leg::Guest,
        measure: both,
        claims: vec![
            Claim::new(
                "User space gains at least as much on the interrupt as in the document (5.10)",
                ratio(of("5.10", "ours-poll"), of("5.10", "kernel-interrupt")),
                Expect::AtMostThere,
            )
            .there(ratio("latency/user", "latency/interrupt"))
            .unless(EMULATED),
            Claim::new(
                "The same against Linux 6.1",
                ratio(of("6.1", "ours-poll"), of("6.1", "kernel-interrupt")),
                Expect::AtMostThere,
            )
            .there(ratio("latency/user", "latency/interrupt"))
            .unless(EMULATED),
            Claim::new(
                "User space gains at least as much on classic polling as in the document (5.10)",
                ratio(of("5.10", "ours-poll"), of("5.10", "kernel-poll")),
                Expect::AtMostThere,
            )
            .there(ratio("latency/user", "latency/poll"))
            .unless(
                "Most of a polled read is QEMU's controller here, which is the same for both \
                 drivers.",
            ),
            Claim::new(
                "The same against Linux 6.1's polling",
                ratio(of("6.1", "ours-poll"), of("6.1", "kernel-poll")),
                Expect::AtMostThere,
            )
            .there(ratio("latency/user", "latency/poll"))
            .unless(
                "Most of a polled read is QEMU's controller here, which is the same for both \
                 drivers.",
            ),
        ],
        plot: Plot::Bars(Unit::Ratio, vec![bars("5.10"), bars("6.1")]),
    }
}
